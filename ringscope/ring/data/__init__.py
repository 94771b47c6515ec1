"""What of the data is a rank's own, the same samples as one rank alone would take."""
