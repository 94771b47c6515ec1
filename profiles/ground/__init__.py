"""Tools for every room: errors, numbers, statistics, intervals, files, threads, terminals; nothing about recordings."""
