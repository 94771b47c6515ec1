"""Ground of every room: errors, numbers, time, files, threads and terminals. Knows nothing of recordings."""
