"""Data classes: a recording (`timeline`), its measures (`measures`, `analysed`), and names in recordings."""
