"""Communication between ranks: they exchange messages, share files, and end together."""
