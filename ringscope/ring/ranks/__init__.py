"""That ranks are alike, tell each other what they need, and end together."""
