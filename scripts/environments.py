"""Run ring's core tests on Python 3.10 to 3.13, with the oldest to the newest Keras and TensorFlow that it supports.

    python3 scripts/environments.py [--only oldest] [--keras DIR] [--folder DIR]

Makes each environment by scripts/environment.py, which builds Horovod for it, and keeps it. `newest` takes what the
package index has, whatever setup.cfg pins. --keras: a checkout of Keras, whose sources stand in for the release.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = {"oldest": "3.10", "pinned": "3.11", "between": "3.12", "newest": "3.13"}
NEWEST = ("keras", "tensorflow-cpu")
# All names are there, forms are laid over what Keras calls, and two ranks train as one.
CORE = (
    "tests/ring/internals/test_seams.py",
    "tests/ring/forms/test_forms.py",
    "tests/ring/data/test_sharing.py",
    "tests/ring/test_ring.py",
    "tests/ring/test_equality.py",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PYTHONS, action="append")
    parser.add_argument("--keras", type=Path, help="a checkout of Keras, in the place of the release")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "environments")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = [name for name in options.only or PYTHONS if not passes(name, options.folder, options.keras)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def passes(name: str, folder: Path, keras: Path | None) -> bool:
    venv = folder / name
    where = ["--venv", str(venv), "--python", f"python{PYTHONS[name]}"]
    subprocess.run([sys.executable, str(ROOT / "scripts/environment.py"), *where], check=True)
    python = str(venv / "bin" / "python")
    if name == "newest":
        subprocess.run([python, "-m", "pip", "install", "-q", "--upgrade", *NEWEST], check=True)
    paths = [str(ROOT), *([str(keras.resolve())] if keras else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(reversed(paths))}
    told = "import keras, tensorflow as tf, sys; print(sys.version.split()[0], keras.__version__, tf.__version__)"
    versions = subprocess.run([python, "-c", told], env=environment, capture_output=True, text=True, check=True).stdout
    print(f"{name}: Python, Keras and TensorFlow {versions.strip()}", flush=True)
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not ci and not exhaustive", *CORE]
    return subprocess.run(tests, cwd=ROOT, env=environment).returncode == 0


if __name__ == "__main__":
    main()
