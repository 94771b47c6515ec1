"""Who owns each nanosecond of a GPU, and why it was idle when nobody did."""
