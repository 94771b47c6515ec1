"""What inference costs: CPU against GPU, replicas against one model, and requests gathered into batches."""
