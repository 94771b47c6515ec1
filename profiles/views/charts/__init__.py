"""Charts as Vega-Lite specifications."""
