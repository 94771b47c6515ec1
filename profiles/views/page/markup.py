"""Make parts of a page that are HTML already, so that the template does not escape them: drawings, JSON in a script,
code in a sentence.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..charts.chart import PAGE, Chart


def drawn(chart: Chart) -> dict[str, Any]:
    """A chart as SVG that fits the page's width, with the role `img`; and its id, title and description."""
    svg = chart.svg(PAGE, legend=not chart.id.startswith("ledger"))
    size = re.compile(r'width="(\d+)" height="\d+"')
    width = int(size.search(svg).group(1))  # type: ignore[union-attr]
    # The minimum width makes a phone scroll the drawing sideways, so that its words stay readable.
    # The chart of steps takes the whole width, since it has a bar per step.
    most = "" if chart.id == "ledger-by-step" else f"max-width:{width}px;"
    svg = size.sub(f'style="{most}min-width:{width * 3 // 4}px" role="img"', svg, count=1)
    return {"id": chart.id, "title": chart.title, "text": chart.text, "svg": raw(svg)}


def script(value: Any) -> Any:
    """JSON for a script element, escaped so that nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return raw(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def coded(text: str) -> Any:
    """Text as HTML: `backticks` become code, and options such as `--json` are not broken over lines."""
    from markupsafe import Markup, escape

    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:
        return _unbroken(escape(text))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else _unbroken(p) for i, p in enumerate(parts))


def _unbroken(escaped: str) -> Any:
    """Put options like `--aggregate` in spans, because a browser would break lines after their dashes."""
    return raw(re.sub(r"--[a-z][a-z-]*", r'<span class="option">\g<0></span>', str(escaped)))


def raw(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)  # safe, because this program made the text
