"""Hold a recording (`timeline`), what is measured of it (`measures`, `analysed`), and names in recordings."""
