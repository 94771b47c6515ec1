"""Mark what of a page is markup already: drawings, JSON in a script, code in a sentence. All else is escaped."""

from __future__ import annotations

import json
import re
from typing import Any

from ..charts.chart import PAGE, Chart


def drawn(chart: Chart) -> dict[str, Any]:
    """A chart as SVG that fills its place, with a name for screen readers."""
    svg = chart.svg(PAGE, legend=not chart.id.startswith("ledger"))
    size = re.compile(r'width="(\d+)" height="\d+"')
    width = int(size.search(svg).group(1))  # type: ignore[union-attr]
    # On a phone the drawing is moved sideways rather than shrunk until its words cannot be read.
    # The steps' table has the whole width, for a bar each.
    most = "" if chart.id == "ledger-by-step" else f"max-width:{width}px;"
    svg = size.sub(f'style="{most}min-width:{width * 3 // 4}px" role="img"', svg, count=1)
    return {"id": chart.id, "title": chart.title, "text": chart.text, "svg": raw(svg)}


def script(value: Any) -> Any:
    """JSON that can stand in a script element: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return raw(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def coded(text: str) -> Any:
    """Words with what stands in `backticks` as code, and options whole."""
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return _unbroken(escape(text))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else _unbroken(p) for i, p in enumerate(parts))


def _unbroken(escaped: str) -> Any:
    """Options such as `--aggregate`, which a browser would break behind their dashes."""
    return raw(re.sub(r"--[a-z][a-z-]*", r'<span class="option">\g<0></span>', str(escaped)))


def raw(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)  # what this program wrote itself
