"""What a recording holds (`timeline`), what is measured of it (`measures`, `analysed`), and names in recordings."""
