"""Python runs this file before any script if its folder is on PYTHONPATH. `ringscope doctor -- COMMAND` puts the folder
there; so does `ringscope record -- COMMAND`, where the user's launcher or script starts ranks."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

here = os.path.dirname(__file__)
sys.path[:] = [folder for folder in sys.path if folder != here]
for variable, name in (
    ("RINGSCOPE_OBSERVED", "harness.doctor.observer"),
    ("RINGSCOPE_OWN", "harness.launch.users_launcher"),
    ("RINGSCOPE_JOINED", "harness.machine.joined"),
):
    if variable in os.environ:
        try:
            module = importlib.import_module(name)
        except ImportError:  # the Python of another environment is not observed; doctor and record report that
            pass
        else:
            module.begin()
# The environment may have its own file of this name, which runs next.
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
