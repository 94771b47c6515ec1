"""nvprof: SQLite files and printed CSV traces."""
