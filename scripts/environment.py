"""Make .venv with everything that `make bench` and `make test` need. A second call finds it ready and does nothing.

    python3 scripts/environment.py [--venv DIR] [--python PYTHON] [--force]

Needs Python 3.10 to 3.13, g++ and make; no root. TensorFlow comes with GPU support if there is a GPU. Horovod is built
once (scripts/build_horovod.py) and kept in ~/.cache/ringscope.
"""

# This file runs on any Python 3.6 or later, if only to say that it wants another.
import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.13", "3.12", "3.11", "3.10")
MADE_FROM = (
    "setup.cfg",
    "pyproject.toml",
    "scripts/environment.py",
    "scripts/build_horovod.py",
    "scripts/horovod_edits.py",
    "scripts/horovod_in_xla.cc",
    "scripts/build_attention.py",
    "scripts/attention_in_xla.cc",
)
# With one of these settings of pip nothing but pip installs: uv does not read them.
ONLY_PIP = {"index-url", "no-index", "proxy", "trusted-host", "client-cert", "no-binary", "only-binary"}
CHECK = "import horovod.tensorflow as hvd; assert hvd.gloo_built() and hvd.mpi_built()"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--python", help="the interpreter to use; default: this one, else the newest that fits")
    parser.add_argument("--force", action="store_true", help="go through all steps again")
    options = parser.parse_args()
    venv, gpu = options.venv.resolve(), Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()
    python, ready = venv / "bin" / "python", venv / "ringscope.ready"
    wanted = fingerprint(gpu)
    if not options.force and is_ready(python, ready, wanted, options.python):
        return
    with alone(venv.with_name(venv.name + ".lock")) as waited:
        if not (waited and is_ready(python, ready, wanted, options.python)):
            make(options, venv, gpu, wanted)


def is_ready(python, ready, wanted, named):
    made = python.exists() and ready.exists() and ready.read_text() == wanted
    return made and (not named or version_of(named) == version_of(python))


@contextlib.contextmanager
def alone(path):
    """One process at a time, by a lock that goes with the process. Gives whether another one was waited for."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            waited = False
        except OSError:
            print(f"another process makes {path.stem}; waiting for it", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
            waited = True
        yield waited


def make(options, venv, gpu, wanted):
    """Go through all steps."""
    python, ready, log = venv / "bin" / "python", venv / "ringscope.ready", venv.with_name(venv.name + ".log")
    interpreter = choose(options.python)
    version = version_of(interpreter)
    if ready.exists():
        ready.unlink()
    started = time.time()

    with step(f"[1/4] Python {version} in {venv.name}"):
        if not python.exists() or version_of(python) != version:
            shutil.rmtree(str(venv), ignore_errors=True)
            run([interpreter, "-m", "venv", venv], log, "apt install python3-venv, or name another: make PYTHON=...")
    with step(f"[2/4] TensorFlow{' for the GPU' if gpu else ''}, Keras, Open MPI, tools (1 to 2 minutes)"):
        project = f"{ROOT}[{'train' if gpu else 'train-cpu'},serve,dev,docs]"
        install(python, ["-e", project, "setuptools<81", "wheel"], log)
    with step("[3/4] Horovod: kept wheel, or from source (2 to 4 minutes on 2 cores)"):
        # It says itself what fails and where its log is.
        if subprocess.call([str(python), str(ROOT / "scripts" / "build_horovod.py")]):
            sys.exit(1)
        # It says what it lacks; without it attention with dropout is slower, and all else as fast.
        if gpu:
            subprocess.call([str(python), str(ROOT / "scripts" / "build_attention.py")])
    with step("[4/4] TensorFlow and Horovod load"):
        run([python, "-c", CHECK], log, "try: make clean setup")
    ready.write_text(wanted)
    print(f"ready after {time.time() - started:.0f} s")


def install(python, wanted, log):
    """Install by uv, which takes half of the CPU that pip takes, and all cores; by pip where uv is not to be had."""
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    uv = [python, "-m", "uv", "pip", "install", "-q", "--no-progress", "--compile-bytecode", "--python", python]
    settings = settings_of_pip(python)
    known = {"SSL_CERT_FILE": settings.get("cert"), "UV_CONSTRAINT": settings.get("constraint")}
    environment = dict(os.environ, **{name: value for name, value in known.items() if value})
    if not ONLY_PIP & set(settings) and not any(
        call(command, log, environment) for command in ([*pip, "uv"], [*uv, *wanted])
    ):
        return
    run([*pip, *wanted], log, "is the package index reachable?")


def settings_of_pip(python):
    """What its configuration files and environment variables set: values by name, without its section."""
    said = subprocess.run(
        [str(python), "-m", "pip", "config", "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    pairs = (line.partition("=") for line in said.stdout.decode().splitlines())
    return {key.rpartition(".")[2]: value.strip("'\"") for key, _, value in pairs}


def fingerprint(gpu):
    """A digest of what the environment is made from. When it changes, the steps run again."""
    digest = hashlib.sha256(f"gpu {shutil.which('nvcc')}".encode() if gpu else b"cpu")
    for name in MADE_FROM:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def choose(named):
    """An interpreter that TensorFlow supports: the named one, else this one, else the newest on the PATH."""
    candidates = [named] if named else [sys.executable, *("python" + version for version in SUPPORTED)]
    for candidate in candidates:
        if version_of(candidate) in SUPPORTED:
            return candidate
    found = ", ".join(f"{candidate} is {version_of(candidate) or 'not there'}" for candidate in candidates)
    return sys.exit(f"environment: wanted Python 3.10 to 3.13, but {found}; name one: make PYTHON=/path/to/python3.12")


def version_of(python):
    """Its version, such as 3.11; None if it does not run."""
    try:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        return subprocess.check_output([str(python), "-c", code], stderr=subprocess.DEVNULL).decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@contextlib.contextmanager
def step(text):
    print(text, flush=True)
    started = time.time()
    yield
    print(f"      {time.time() - started:.0f} s", flush=True)


def run(command, log, remedy):
    """Run with the output in the log. A failure ends in a line: what failed, what to do, where the log is."""
    if call(command, log):
        last = ([line for line in log.read_text().splitlines() if line.strip()] or ["no output"])[-1]
        sys.exit(f"environment: {last.strip()[:300]}; {remedy}\n  log: {log}")


def call(command, log, environment=None):
    """The exit code; the output goes to the log."""
    with log.open("w") as output:
        words = [str(word) for word in command]
        return subprocess.call(words, stdout=output, stderr=subprocess.STDOUT, env=environment)


if __name__ == "__main__":
    main()
