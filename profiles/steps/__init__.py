"""Find the steps of a training in a recording, and the operations of each, from the most trusted source it has."""
