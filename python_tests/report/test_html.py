"""Pages are self-contained, and escape the text they show."""

import base64
import re

import pytest

from wpnode_ext.report.html import Page


def test_text_is_escaped_and_tables_are_whole() -> None:
    page = Page("<b>run</b>")
    page.heading("a & b")
    page.paragraph("x < y")
    page.table([(1, "<i>")], header=("n", "name"))
    text = page.render()
    assert "<title>&lt;b&gt;run&lt;/b&gt;</title>" in text
    assert "a &amp; b" in text and "x &lt; y" in text
    assert (
        "<tr><th>n</th><th>name</th></tr><tr><td>1</td><td>&lt;i&gt;</td></tr>" in text
    )


def test_control_characters_are_shown() -> None:
    page = Page("run \x1b[31m")
    page.table([("u\u202e\0", "a\nb")])
    text = page.render()
    assert r"run \x1b[31m" in text and r"u\u202e\x00" in text and "a\nb" in text
    assert not {"\x1b", "\u202e", "\0"} & set(text)


def test_figures_are_embedded_as_png() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().plot([0, 1])
    page = Page("figure")
    page.figure(figure, "a line")
    text = page.render()
    (code,) = re.findall(r'src="data:image/png;base64,([^"]+)"', text)
    assert base64.b64decode(code).startswith(b"\x89PNG")
    assert "http" not in text.replace("http-equiv", "")
