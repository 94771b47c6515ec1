"""Nsight Systems: SQLite exports, .nsys-rep, and the CSV tables of `nsys stats`."""
