"""What every room uses: errors, numbers, statistics, intervals, files, threads and terminals; nothing about
recordings."""
