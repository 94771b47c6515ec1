"""A reader per format; picked by content, never by file name."""
