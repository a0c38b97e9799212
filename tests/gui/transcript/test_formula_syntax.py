"""Formulas: taken from the text as they were written, drawn off the window's thread,
shown as their source where they cannot be.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.view import build_state
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import TextBox
from helix_desktop.gui.transcript.formula_pictures import (
    FormulaBox,
)
from helix_desktop.gui.transcript.markdown_blocks import (
    CodeBlock,
    MathBlock,
    ParagraphBlock,
    TextStyle,
    join_span_texts,
    parse_markdown_blocks,
)
from helix_desktop.gui.transcript.markdown_chunks import MarkdownChunk
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from tests.gui.transcript.facts import Told


def formulas_in(text: str) -> list[str]:
    found = parse_markdown_blocks(text, MarkdownChunk(0, len(text)))
    paragraphs = [block for block in found if isinstance(block, ParagraphBlock)]
    inline = [
        span.text for block in paragraphs for span in block.spans if span.style & TextStyle.MATH
    ]
    return [block.text for block in found if isinstance(block, MathBlock)] + inline


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"The sum $\int x\,dx$ is", [r"\int x\,dx"]),
        (r"with \(a_1 + b\) and \[c^2\] in it", ["a_1 + b", "c^2"]),
        ("$$\na\n= b\n- c\n$$", ["a = b - c"]),
        (r"\[ \frac{a}{b} \]", [r"\frac{a}{b}"]),
        ("let $x$ be", ["x"]),
        ("it costs $5 and then $10 more", []),
        ("$HOME/bin:$PATH and ${A}_$B", []),
        ("`$x^2$` is code", []),
        ("    $$\n    x\n    $$", []),
        ("no end $x^2 here", []),
        ("$$ no end", []),
    ],
)
def test_what_is_a_formula(text: str, found: list[str]) -> None:
    assert formulas_in(text) == found


def test_code_stays_code() -> None:
    text = "```\n$$x$$\n```"
    assert [type(block) for block in parse_markdown_blocks(text, MarkdownChunk(0, len(text)))] == [
        CodeBlock
    ]


def test_an_answer_shows_the_source_and_then_the_picture_and_copies_the_source(
    pane: TranscriptPane, settle: Callable[[], None], theme: Theme
) -> None:
    told = Told()
    told.user("why?")
    told.reply("With $e^{x}\\,$ and\n\n$$\\frac{a}{b}$$\n\nand $\\frac{q$ here.")
    pane.open_transcript(build_state(told.facts))
    settle()
    QApplication.processEvents()
    settle()
    laid = pane.view.column.lay_out_fully(1)
    assert [type(box) for box in laid.boxes[1:]] == [TextBox, FormulaBox, TextBox]
    assert (
        laid.text_between_offsets(0, laid.text_length)
        == "m\nWith $e^{x}\\,$ and\n$$\\frac{a}{b}$$\nand $\\frac{q$ here."
    )
    pane.view.viewport().grab()
    theme.set_scheme_and_zoom("dark", 2.0)
    QApplication.processEvents()
    settle()
    assert [type(box) for box in pane.view.column.lay_out_fully(1).boxes[1:]] == [
        TextBox,
        FormulaBox,
        TextBox,
    ]


def test_joined_spans_keep_the_dollars() -> None:
    found = parse_markdown_blocks("a $x^2$ b", MarkdownChunk(0, 9))[0]
    assert isinstance(found, ParagraphBlock)
    assert join_span_texts(found.spans) == "a $x^2$ b"
