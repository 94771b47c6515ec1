"""Python runs this before any script where `ringscope doctor -- COMMAND` has put its folder on PYTHONPATH."""

import importlib.machinery
import importlib.util
import os
import sys

here = os.path.dirname(__file__)
sys.path[:] = [folder for folder in sys.path if folder != here]
try:
    from harness.doctor import observer
except ImportError:  # another environment's Python: what it does is not seen, and the doctor says so
    pass
else:
    observer.begin()
# The file of this name that the environment has itself.
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
