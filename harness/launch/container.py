"""Run ranks in a container: by pyxis if srun starts them, by Apptainer under any other launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # this package is mounted, because the image need not have it
PYTHON = "python3"  # the image's own Python


def apptainer(image: str, argv: Sequence[str], *, folders: Sequence[Path | str]) -> list[str]:
    """`argv` inside the image. This package and the folders are mounted, and `--nv` adds the GPU driver."""
    binds = [word for folder in (ROOT, *folders) for word in ("--bind", str(folder))]
    return ["apptainer", "exec", "--nv", *binds, image, *of_the_image(argv)]


def pyxis(image: str, *, folders: Sequence[Path | str]) -> list[str]:
    """srun's arguments that run ranks in the image, with this package and the folders mounted."""
    mounts = ",".join(f"{folder}:{folder}" for folder in (ROOT, *folders))
    return [f"--container-image={image}", f"--container-mounts={mounts}"]


def of_the_image(argv: Sequence[str]) -> list[str]:
    """The command with the image's Python in place of this process's."""
    return [PYTHON if word == sys.executable else word for word in argv]
