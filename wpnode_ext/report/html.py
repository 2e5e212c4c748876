"""Self-contained HTML pages: tables, and figures embedded as PNG."""

import base64
import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..common.files import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: 0.8rem 0; }
th, td { text-align: left; padding: 0.25rem 1rem 0.25rem 0; vertical-align: top;
         border-bottom: 1px solid #ddd; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
figcaption, .note { color: #555; font-size: 0.9rem; }
.verdict { background: #f3f3f3; padding: 0.6rem 1rem; }
code { background: #f3f3f3; padding: 0 0.2rem; }
"""


class Page:
    """A page that grows from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{_escaped(text)}</h2>")

    def paragraph(self, text: str, *, note: bool = False) -> None:
        kind = ' class="note"' if note else ""
        self._parts.append(f"<p{kind}>{_escaped(text)}</p>")

    def verdict(self, text: str, details: str) -> None:
        """Adds the main result in a box of its own."""
        self._parts.append(
            f'<p class="verdict"><strong>{_escaped(text)}</strong><br>'
            f"{_escaped(details)}</p>"
        )

    def table(
        self, rows: Sequence[Sequence[object]], header: Sequence[str] | None = None
    ) -> None:
        def line(cells: Sequence[object], tag: str) -> str:
            inside = "".join(f"<{tag}>{_escaped(c)}</{tag}>" for c in cells)
            return f"<tr>{inside}</tr>"

        lines = [line(header, "th")] if header is not None else []
        lines += [line(row, "td") for row in rows]
        self._parts.append(f"<table>{''.join(lines)}</table>")

    def figure(self, figure: "Figure", caption: str) -> None:
        """Embeds a figure and closes it."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
        figure.clear()
        code = base64.b64encode(buffer.getvalue()).decode("ascii")
        text = _escaped(caption)
        self._parts.append(
            f'<figure><img src="data:image/png;base64,{code}" alt="{text}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def render(self) -> str:
        title = _escaped(self._title)
        return (
            "<!DOCTYPE html>\n"
            f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )


def _escaped(text: object) -> str:
    """Text with HTML and control characters escaped."""
    return html.escape(printable(text, keep="\n\t"))
