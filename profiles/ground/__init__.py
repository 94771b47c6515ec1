"""Tools that know nothing of recordings: errors, numbers, statistics, intervals, files, threads, terminals."""
