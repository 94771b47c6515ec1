"""A place in a JSON document, as pages and files name it."""

from __future__ import annotations

from typing import Any


def at_pointer(document: Any, pointer: str) -> Any:
    """RFC 6901."""
    for key in pointer.split("/")[1:]:
        if document is None:
            return None
        key = key.replace("~1", "/").replace("~0", "~")
        document = document[int(key)] if isinstance(document, list) else document[key]
    return document
