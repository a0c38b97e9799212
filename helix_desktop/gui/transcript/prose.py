"""Blocks of Markdown to boxes: the same in the chat, in a handover's document, and wherever else text is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from helix_desktop.gui.transcript.boxes import Box, Drawing, Key, RuleBox, Words
from helix_desktop.gui.transcript.chunks import chunks
from helix_desktop.gui.transcript.code import AT_ONCE, FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.drawing import Ink
from helix_desktop.gui.transcript.formula import FormulaBox
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.transcript.markdown import (
    Block,
    Code,
    Math,
    Paragraph,
    Rule,
    Span,
    Style,
    Table,
    blocks,
    references,
)
from helix_desktop.gui.transcript.table import TableBox

KeyOf = Callable[[int], Key]
Lines = Callable[[Key], int]


def prose(  # noqa: PLR0913 - all but the text are keywords with defaults
    ink: Ink,
    width: float,
    text: str,
    *,
    start: int = 0,
    breaks: bool = False,
    key_of: KeyOf = lambda _: (),
    lines: Lines = lambda _: FIRST_LINES,
    at_once: int = AT_ONCE,
    drawn: Drawing | None = None,
) -> Iterator[Box]:
    """The boxes of a text from the chunk at `start`; each remembers where its chunk begins and ends.

    `key_of` names the code block of a chunk, so that more of its `lines` can be opened. Code of up to
    `at_once` characters is coloured at once. `drawn` gives the pictures of formulas, once they are there.
    """

    def code(block: Code, gap: float) -> Box:
        left = float(ink.px(22) * block.indent + ink.px(14) * block.quote)
        more = key_of(chunk.start)
        most = lines(more) if more else 10_000
        return CodeBox(
            ink,
            width - left,
            block.text,
            block.language,
            left=left,
            gap=gap,
            more=more,
            lines=most,
            at_once=at_once,
            label=block.language,
        )

    shown = harmless(text)
    defined = references(shown)
    before: Block | None = Rule() if start else None
    table: TableBox | None = None
    for chunk in chunks(shown, start):
        for block in blocks(shown, chunk, defined, breaks=breaks):
            box = _box(ink, width, block, _gap(ink, before, block), table, code, drawn)
            table = box if isinstance(box, TableBox) else None
            before = block
            box.chunk, box.last, box.continues = chunk.start, chunk.end, chunk.continues
            yield box


def _box(
    ink: Ink,
    width: float,
    block: Block,
    gap: float,
    table: TableBox | None,
    code: Callable[[Code, float], Box],
    drawn: Drawing | None,
) -> Box:
    if isinstance(block, Paragraph):
        return Words(ink, width, block, gap=gap, drawn=drawn)
    if isinstance(block, Math):
        return _formula(ink, width, block, gap, drawn)
    if isinstance(block, Code):
        return code(block, gap)
    if isinstance(block, Table):
        return TableBox(ink, width, block, gap=0.0 if block.continues else gap, like=table if block.continues else None)
    return RuleBox(ink, width, block, gap=gap)


def _formula(ink: Ink, width: float, block: Math, gap: float, drawn: Drawing | None) -> Box:
    """Its source until it is drawn."""
    formula = drawn(block.text, True) if drawn is not None else None
    if formula is not None:
        return FormulaBox(ink, width, block, formula, gap=gap)
    box = Words(ink, width, Paragraph((Span(f"$${block.text}$$", Style.CODE),), 0, block.indent, block.quote), gap=gap)
    box.waits = drawn is not None
    return box


def _gap(ink: Ink, before: Block | None, block: Block) -> float:
    if isinstance(block, Paragraph) and block.heading:
        return float(ink.px(14)) if before else float(ink.px(3))
    both_listed = isinstance(before, Paragraph) and isinstance(block, Paragraph) and before.indent and block.indent
    return float(ink.px(3) if both_listed else ink.px(7))
