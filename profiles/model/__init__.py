"""Data classes for a recording (`timeline`) and its measures (`measures`, `analysed`), and names in recordings."""
