"""The ```python blocks of a page, and what the page says that they print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    heading: str  # the last one above it
    code: str
    printed: str | None  # the ```text block that follows at once, if there is one
    line: int  # of the page, where its code begins


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        above = text[: match.start(1)]
        headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", above, flags=re.M | re.S), re.M)
        found.append(Block(headings[-1], match[1], match[2], above.count("\n") + 1))
    return found
