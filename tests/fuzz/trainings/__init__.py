"""Random trainings: each on two ranks is that of one rank on the joined batches, or refused in one line."""
