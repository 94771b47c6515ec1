"""Turn a file's tables and printed values into the columns of a Timeline."""
