"""Whole jobs: a sweep, a recording, the proof of a finding."""
