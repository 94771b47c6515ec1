"""Read recordings: one reader per format, chosen by the file's content, never by its name."""

from .all_files import File, Progress, heard, listed, read_all, read_file, sorted_out
from .formats import read

__all__ = ["File", "Progress", "heard", "listed", "read", "read_all", "read_file", "sorted_out"]
