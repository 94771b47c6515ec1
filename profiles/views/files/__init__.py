"""Reports as files: Markdown, Perfetto, Parquet; and for each command the files that it writes."""
