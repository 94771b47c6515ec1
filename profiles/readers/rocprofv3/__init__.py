"""rocprofv3: its results.json and its rocpd databases."""
