"""Recurrent layers as one forward loop and one backward loop."""
