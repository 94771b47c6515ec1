"""What a training run is: its cell, the strategies, and the records that its ranks write."""
