"""Tables: a file's tables and printed values become the columns of a Timeline."""
