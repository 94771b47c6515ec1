"""Find which operation belongs to which training step, from the most trusted source that a recording has."""
