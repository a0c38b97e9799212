"""Builds boxes from Markdown, for the chat, a handover's document and other texts."""

from collections.abc import Callable, Iterator

from helix_desktop.gui.transcript import markdown_blocks
from helix_desktop.gui.transcript.basic_boxes import (
    FormulaLookup,
    FormulaPicture,
    LayoutBox,
    RuleBox,
    SectionKey,
    TextBox,
)
from helix_desktop.gui.transcript.code_box import AT_ONCE, FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.markdown_chunks import split_markdown_chunks
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.table_box import TableBox

KeyOf = Callable[[int], SectionKey]
Lines = Callable[[SectionKey], int]


def build_boxes_from_markdown(  # noqa: PLR0913 - all but the text are keywords with defaults
    ink: DrawingStyle,
    width: float,
    text: str,
    *,
    start: int = 0,
    breaks: bool = False,
    key_of: KeyOf = lambda _: (),
    lines: Lines = lambda _: FIRST_LINES,
    at_once: int = AT_ONCE,
    drawn: FormulaLookup | None = None,
) -> Iterator[LayoutBox]:
    """Yields the boxes of a text from the chunk at `start`. Each knows where its chunk begins and
    ends.

    `key_of` names the code block of a chunk, so that more of its `lines` can be opened. Code of up
    to `at_once` characters is coloured at once. `drawn` returns the pictures of formulas that have
    been drawn.
    """

    def build_code_box(block: markdown_blocks.CodeBlock, gap: float) -> CodeBox:
        left = ink.left_edge_of(block)
        more = key_of(chunk.start)
        most = 10_000
        if more:
            most = lines(more)
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

    shown = make_safe_text(text)
    defined = markdown_blocks.find_link_reference_lines(shown)
    before: markdown_blocks.Block | None = None
    if start:  # Something stands above, whatever it is.
        before = markdown_blocks.RuleBlock()
    box: LayoutBox | None = None
    for chunk in split_markdown_chunks(shown, start):
        for block in markdown_blocks.parse_markdown_blocks(shown, chunk, defined, breaks=breaks):
            gap = _gap_before_block(before, block)
            if isinstance(block, markdown_blocks.CodeBlock):
                box = build_code_box(block, gap)
            elif isinstance(block, markdown_blocks.TableBlock):
                box = _build_table_box(ink, width, block, gap, box)
            elif isinstance(block, markdown_blocks.ParagraphBlock):
                box = TextBox(ink, width, block, gap=gap, drawn=drawn)
            elif isinstance(block, markdown_blocks.MathBlock):
                box = _build_formula_box(ink, width, block, gap, drawn)
            else:
                box = RuleBox(ink, width, block, gap=gap)
            before = block
            box.chunk_start = chunk.start
            box.chunk_end = chunk.end
            box.is_table_continuation = chunk.is_table_continuation
            yield box


def _build_table_box(
    ink: DrawingStyle,
    width: float,
    block: markdown_blocks.TableBlock,
    gap: float,
    box_before: LayoutBox | None,
) -> TableBox:
    """Returns a table, or the next part of a long one, whose columns are as wide as above."""
    if not block.continues:
        return TableBox(ink, width, block, gap=gap)
    table_before = None
    if isinstance(box_before, TableBox):
        table_before = box_before
    return TableBox(ink, width, block, gap=0.0, like=table_before)


def _build_formula_box(
    ink: DrawingStyle,
    width: float,
    block: markdown_blocks.MathBlock,
    gap: float,
    drawn: FormulaLookup | None,
) -> LayoutBox:
    """Returns the picture of a formula, or its source until that is drawn."""
    formula: FormulaPicture | None = None
    if drawn is not None:
        formula = drawn(block.text, True)
    if formula is not None:
        from helix_desktop.gui.transcript.formula_pictures import FormulaBox

        return FormulaBox(ink, width, block, formula, gap=gap)
    source = markdown_blocks.ParagraphBlock(
        (markdown_blocks.StyledSpan(f"$${block.text}$$", markdown_blocks.TextStyle.CODE),),
        0,
        block.indent,
        block.quote,
    )
    box = TextBox(ink, width, source, gap=gap)
    box.is_waiting_for_drawing = drawn is not None
    return box


def _gap_before_block(before: markdown_blocks.Block | None, block: markdown_blocks.Block) -> float:
    if isinstance(block, markdown_blocks.ParagraphBlock) and block.heading:
        if before is None:
            return 3
        return 14
    if _is_in_list(before) and _is_in_list(block):  # The items of a list stand close together.
        return 3
    return 7


def _is_in_list(block: markdown_blocks.Block | None) -> bool:
    return isinstance(block, markdown_blocks.ParagraphBlock) and block.indent > 0
