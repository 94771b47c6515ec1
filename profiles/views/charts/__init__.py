"""Charts as Vega-Lite specifications, and the one palette."""
