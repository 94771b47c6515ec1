"""Files appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import RingscopeError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes `path`'s place where the block ends well and goes where it does not.

    Raises RingscopeError where the folder does not exist or may not be written.
    """
    beside = path.with_name(f".{path.name}.writing")
    try:
        yield beside
        beside.replace(path)
    except OSError as error:
        raise RingscopeError(f"{path}: cannot be written: {error.strerror or error}; name another file") from None
    finally:
        beside.unlink(missing_ok=True)
