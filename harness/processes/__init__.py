"""Who starts, watches and ends whom: no rank outlives the job that started it."""
