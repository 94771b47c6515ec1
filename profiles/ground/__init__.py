"""What every room stands on: errors, numbers, time, files, threads and terminals. Knows nothing of recordings."""
