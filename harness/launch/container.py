"""Ranks in a container: pyxis where srun starts them, Apptainer under any other launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # ringscope, which the image need not hold
PYTHON = "python3"  # of the image


def apptainer(image: str, argv: Sequence[str], *, folders: Sequence[Path | str]) -> list[str]:
    """`argv` inside the image, with this package and the folders visible; `--nv` gives it the GPUs' driver."""
    binds = [word for folder in (ROOT, *folders) for word in ("--bind", str(folder))]
    return ["apptainer", "exec", "--nv", *binds, image, *of_the_image(argv)]


def pyxis(image: str, *, folders: Sequence[Path | str]) -> list[str]:
    """srun's arguments."""
    mounts = ",".join(f"{folder}:{folder}" for folder in (ROOT, *folders))
    return [f"--container-image={image}", f"--container-mounts={mounts}"]


def of_the_image(argv: Sequence[str]) -> list[str]:
    """The command with the image's Python in place of ours."""
    return [PYTHON if word == sys.executable else word for word in argv]
