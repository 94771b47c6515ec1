"""Places in the user's code: profiler ranges around the parts of a script that a framework calls, and samples of all
other Python.

It runs inside the training. Nothing here imports a framework before the script does.
"""
