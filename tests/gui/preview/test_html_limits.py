"""Pages and texts that would hold the window are shown as their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.gui.preview.preview_pane import PreviewPane
from tests.gui.preview.shown_files import show

# Each ended the process, or held the window's thread for more than two seconds.
HOSTILE_PAGES = {
    "tables inside each other": "<table><tr><td>" * 5_000,
    "divisions inside each other": "<div>" * 20_000,
    "tables that a comment seems to close": "<table><tr><td><!--</table>-->" * 300,
    "tables that an attribute seems to close": "<table><tr><td title='</table>'>" * 300,
    "lists inside each other": "<ul><li>" * 20_000,
    "a word": "a" * 300_000,
    "many cells": "<table>" + "<tr><td>a</td><td>a</td></tr>" * 30_000,
    "many rules": "<style>" + "p{color:red}" * 60_000 + "</style>" + "<p>a</p>" * 2_000,
    "a rule of many selectors": "<style>" + "p," * 200_000 + "p{color:red}</style>" + "<p>a</p>" * 9_000,
    "many letters": "word " * 1_000_000,
    "a few very wide cells": "<table>" + "<tr><td colspan=60000>x" * 300,
    "wide cells behind an attribute": "<table>" + "<tr><td title='>' colspan=60000>x" * 300,
    "wide cells in what seems a comment": "<table>" + "<tr><td a='<!--' colspan=60000 b='-->'>x" * 300,
    "wide cells of another spelling": "<table>" + "<tr><td colspan='&#54;0000'>x" * 300,
    "many wide cells": "<table>" + ("<tr>" + "<td a=\"'\" colspan=300>x" * 20) * 300,
    "a long list": "<ul>" + "<li>x" * 15_000,
    "many fonts": "".join(f"<span style='font-family:f{n}'>x</span>" for n in range(9_000)),
    "pictures beside each other": "<img style='float:left' width=3>" * 6_000,
    "tables beside each other": "<style>table{float:right}</style>" + "<table><tr><td>x</table>" * 4_000,
    "pictures beside each other, in entities": "<img style='&#102;loat:right' width=3>x " * 6_000,
    "fonts, in entities": "".join(f"<font f&#97;ce='F{n}'>x</font>" for n in range(9_000)),
    "wide cells, in entities": "<table>" + "<tr><td c&#111;lspan=60000>x" * 300,
    "cells over many rows, in entities": "<table>" + "<tr><td r&#111;wspan=60000>x" * 4_000,
    "lines": "<pre>" + "x\n" * 400_000,
    "tabs": "<pre>" + "\t" * 900_000,
    "letters without spaces": ("ภาษาไทยไม่มีช่องว่าง" * 400 + " ") * 110,
    "emoji": "👩‍💻 " * 200_000,
    "cells over many rows": "<table>" + "<tr><td rowspan=60000>x" * 4_000,
    "tables in tables side by side": ("<table><tr><td>" * 8 + "x" + "</table>" * 8) * 790,
}  # fmt: skip


@pytest.mark.parametrize("page", HOSTILE_PAGES.values(), ids=HOSTILE_PAGES)
def test_a_page_that_would_hold_the_window_is_shown_as_its_source(
    page: str, pane: PreviewPane, tmp_path: Path
) -> None:
    show(pane, tmp_path, "a.html", page.encode())
    assert pane.stack.currentWidget() is pane.lines


def test_a_usual_page_with_tables_in_tables_and_a_picture_in_itself_is_drawn(
    pane: PreviewPane, tmp_path: Path
) -> None:
    row = "<tr><td>a<td><table><tr><td>b</table></tr>"
    picture = f"<img src='data:image/png;base64,{'A' * 50_000}'>"
    row += "<tr><td colspan=4 style='font-family: Arial; float: left'>x"
    page = f"<style>{'p {color: red}' * 100}</style><p>one<p>two<ul><li>a<li>b</ul><table>{row * 200}</table>{picture}"
    show(pane, tmp_path, "a.html", page.encode())
    assert pane.stack.currentWidget() is pane.html


@pytest.mark.parametrize(
    "text",
    [
        "a\n\n" * 10_000,
        "|a|b|\n|-|-|\n" + "|a|b|\n" * 10_000,
        "*a " * 400_000,
        "a" * 900_000,
        "a\u202e" * 90_000,
        "<" * 300_000,
        "*_" * 200_000,
        "http://a.b " * 90_000,
        ("ภาษาไทยไม่มีช่องว่าง" * 400 + " ") * 40,
    ],
    ids=["lines", "table", "large", "word", "marks", "brackets", "stars", "links", "letters"],
)
def test_a_text_that_would_hold_the_window_is_shown_as_its_source(
    text: str, pane: PreviewPane, tmp_path: Path
) -> None:
    show(pane, tmp_path, "a.md", text.encode())
    assert pane.stack.currentWidget() is pane.lines
