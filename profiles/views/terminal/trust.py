"""The text of `ringscope check`: the verdict on recordings, and for each reason the affected numbers and a remedy."""

from __future__ import annotations

from typing import Any

MARKS = {"refuse": "✗", "care": "!", "note": "·"}


def text(found: dict[str, Any]) -> str:
    """The verdict and its reasons. found: the JSON of `ringscope check --json`."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in found["reasons"]:
        alike.setdefault((one["weight"], one["code"], one["numbers"], one["next"]), []).append(one["text"])
    lines = [f"trusted: {found['verdict']}"]
    for (weight, code, touches, remedy), texts in alike.items():
        more = f" (and {len(texts) - 1} more like it)" if len(texts) > 1 else ""
        lines += [f"{MARKS[weight]} {code}: {texts[0]}{more}", f"    touches {touches}", f"    → {remedy}"]
    return "\n".join(lines)
