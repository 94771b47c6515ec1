"""Python runs this before any script where ringscope has put its folder on PYTHONPATH: `ringscope doctor -- COMMAND`,
and `ringscope record -- LAUNCHER ...`, whose ranks it cannot start itself."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

here = os.path.dirname(__file__)
sys.path[:] = [folder for folder in sys.path if folder != here]
for variable, name in (("RINGSCOPE_OBSERVED", "harness.doctor.observer"), ("RINGSCOPE_OWN", "harness.launch.own")):
    if variable in os.environ:
        try:
            module = importlib.import_module(name)
        except ImportError:  # another environment's Python: what it does is not seen, and the doctor and record say so
            pass
        else:
            module.begin()
# The file of this name that the environment has itself.
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
