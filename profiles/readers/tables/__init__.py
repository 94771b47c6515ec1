"""From a file's tables and printed values to the columns of a Timeline."""
