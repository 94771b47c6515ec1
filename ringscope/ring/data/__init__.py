"""Choose this rank's part of the data, so that all ranks together take the samples that one rank alone would take."""
