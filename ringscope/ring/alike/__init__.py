"""Check that ranks are alike: their data, their weights, how they begin and how they end."""
