"""The physical GPUs of a set of recordings, each with its operations and their launch calls, on a common clock."""
