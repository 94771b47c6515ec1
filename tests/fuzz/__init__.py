"""Coverage-guided fuzzing of the readers of text, JSON and protobuf: any bytes are read, or refused in one line."""
