"""Places in the user's code: profiler ranges around the parts of a script that a framework calls, and samples of all
other Python code.

This package runs inside the training, and imports no framework before the script does.
"""
