"""rocprofv3: its results.json."""
