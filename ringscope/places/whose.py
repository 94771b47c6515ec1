"""Whose code a frame runs (the user's, Python's standard library's, or a library's), and the line of the user's
code."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CellType, CodeType, FrameType
from typing import Any, Final, NamedTuple

USER, STANDARD, LIBRARY = range(3)
# kept from the start, because a script may change its directory while relative file names keep their meaning
_STARTED: Final = os.getcwd()
_PACKAGES: Final = ("site-packages", "dist-packages")
_STANDARD: Final = tuple(
    {os.path.join(os.path.realpath(sysconfig.get_path(name)), "") for name in ("stdlib", "platstdlib")}
)
_OURS: Final = tuple(
    os.path.join(Path(__file__).resolve().parents[2], name, "") for name in ("harness", "profiles", "ringscope")
)
# In these libraries calls are the training itself, not something that delays it.
FRAMEWORKS: Final = (
    "keras",
    "tf_keras",
    "tensorflow",
    "horovod",
    "torch",
    "torchvision",
    "lightning",
    "pytorch_lightning",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "transformers",
    "accelerate",
)
# Names of their functions that run the steps of a training: their caller waits for all of it.
LOOPS: Final = frozenset({"fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "train", "_fit_impl"})


class Where(NamedTuple):
    """A line of the user's code. file: relative to the working directory if the file is below it."""

    file: str
    line: int
    function: str = ""


@cache
def owner(filename: str) -> int:
    """USER, STANDARD (Python's standard library) or LIBRARY, by the name of the file that holds the code."""
    if filename.startswith("<"):
        return USER if filename.startswith(("<ipython", "<stdin")) else STANDARD
    real = os.path.realpath(os.path.join(_STARTED, filename))
    if within_main(real):
        return USER
    if real.startswith(_OURS) or _is_compiled(real) or os.path.basename(real).startswith("__autograph_generated_file"):
        return LIBRARY
    if library_root(real) is not None:
        return LIBRARY
    return STANDARD if real.startswith(_STANDARD) else USER


def _is_compiled(real: str) -> bool:
    """True for a file that torch.compile has written."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return f"{os.sep}torchinductor_" in real or bool(folder and real.startswith(os.path.join(folder, "")))


@cache
def _roots() -> tuple[str, ...]:
    """Folders into which pip has installed packages, also with `pip install --target`."""
    there = {os.path.realpath(entry) for entry in sys.path if entry and os.path.isdir(entry)}
    return tuple(os.path.join(one, "") for one in there if any(Path(one).glob("*.dist-info")))


def library_root(real: str) -> str | None:
    """The folder of installed packages that contains a file; None if there is none."""
    parts = real.split(os.sep)
    after = next((place for place in range(len(parts) - 1, 0, -1) if parts[place - 1] in _PACKAGES), None)
    if after is not None:
        return os.sep.join([*parts[:after], ""])
    return next((one for one in _roots() if real.startswith(one)), None)


@cache
def _main_folder() -> str | None:
    """The folder of the package that `python -m` runs, which may be installed like a library; None if a script runs."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    origin = getattr(spec, "origin", None)
    top = str(getattr(spec, "name", "")).partition(".")[0]
    if not origin or not top or top in ("harness", "profiles", "ringscope", *FRAMEWORKS):
        return None
    parts = Path(os.path.realpath(origin)).parts
    return os.path.join(*parts[: parts.index(top) + 1], "") if top in parts else None


def within_main(real: str) -> bool:
    folder = _main_folder()
    return folder is not None and real.startswith(folder)


@cache
def framework(filename: str) -> str | None:
    """The framework to which a file belongs ("ringscope" for ringscope's own); None if it belongs to none."""
    real = os.path.realpath(os.path.join(_STARTED, filename))
    if real.startswith(_OURS):
        return "ringscope"
    if _is_compiled(real):
        return "torch"
    root = library_root(real)
    if root is None:
        return None
    package = real.removeprefix(root).split(os.sep)[0]
    return package if package in FRAMEWORKS else None


@cache
def shown(filename: str) -> str:
    """A file's name in reports: relative to the working directory, or, for a library, to the folder where it is
    installed."""
    if filename.startswith("<"):
        return filename
    real = os.path.realpath(os.path.join(_STARTED, filename))
    root = library_root(real)
    if root is not None:
        return real.removeprefix(root)
    relative = os.path.relpath(real, os.path.realpath(_STARTED))
    return filename if relative.startswith("..") else relative


def path_of(file: str) -> str:
    """The path of a file from the name that `shown` gives it."""
    return os.path.join(_STARTED, file)


class About(NamedTuple):
    """Properties of a function's code object. framework: it belongs to a framework. drives: it runs the steps of a
    training. ours: it belongs to ringscope, which calls the user's code."""

    owner: int
    framework: bool
    drives: bool
    ours: bool


# by the code object's id, because its hash would cover all that it contains
_about: dict[int, tuple[About, CodeType]] = {}


def about(code: CodeType) -> About:
    known = _about.get(id(code))
    if known is None:
        of = framework(code.co_filename)
        trains, ours = of not in (None, "ringscope"), of == "ringscope"
        told = About(owner(code.co_filename), trains, trains and code.co_name in LOOPS, ours)
        known = _about[id(code)] = told, code
    return known[0]


def caller(*, of_loops: bool = False) -> Where | None:
    """The innermost line of the user's code on the calling thread; None if there is none. of_loops: look above a
    framework's training loop too, at the line that calls it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        told = about(frame.f_code)
        if told.owner == USER:
            return Where(shown(frame.f_code.co_filename), frame.f_lineno, qualified(frame))
        if told.drives and not of_loops:
            return None
        frame = frame.f_back
    return None


def _inner(function: Any, name: str) -> Any:
    """The function that finally runs, below decorators and partials; for an object its `__call__`."""
    held: Any = function
    while held is not None:
        inner, held = held, held.func if isinstance(held, partial) else getattr(held, "__wrapped__", None)
    # a decorator without functools.wraps has the function in its closure
    if name and getattr(inner, "__name__", name) != name:
        cells = [cell.cell_contents for cell in inner.__closure__ or () if cell != CellType()]
        inner = next((one for one in cells if getattr(one, "__name__", "") == name), inner)
    return inner if hasattr(inner, "__code__") else inspect.getattr_static(type(inner), "__call__", None)


def defined(function: Callable[..., Any], name: str = "") -> Where | None:
    """The definition of a user's function; None for a library's function, or for one that is not written in Python.
    name: the name in the function's definition, if decorators may have changed it; "" if it is not known."""
    inner = _inner(function, name)
    code = getattr(inner, "__code__", None)
    if code is None or owner(code.co_filename) != USER:
        return None
    name = str(getattr(inner, "__qualname__", code.co_name)).replace(".<locals>", "")
    return Where(shown(code.co_filename), code.co_firstlineno, name)


def qualified(frame: FrameType) -> str:
    """The function's name, with its class if Python knows that (since 3.11)."""
    code = frame.f_code
    return str(getattr(code, "co_qualname", code.co_name)).replace(".<locals>", "")
