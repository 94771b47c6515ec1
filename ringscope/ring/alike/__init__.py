"""Check that ranks are alike: in their data and weights, when they begin and when they end."""
