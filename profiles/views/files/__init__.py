"""Reports as files: Markdown, Perfetto, Parquet, and the files that a command writes."""
