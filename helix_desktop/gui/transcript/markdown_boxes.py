"""Builds boxes from Markdown, for the chat, a handover's document and other texts."""

from collections.abc import Callable, Iterator

from helix_desktop.fast_dataclass import dataclass
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
from helix_desktop.gui.transcript.markdown_chunks import MarkdownChunk, split_markdown_chunks
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.table_box import TableBox

ALL_LINES = 10_000
# Returns the key of the code block in the chunk that begins at a place of the text.
KeyOf = Callable[[int], SectionKey]
# Returns how many lines of the code block with a key are shown.
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
    builder = _BlockBoxBuilder(ink, width, key_of, lines, at_once, drawn)
    if start:  # Something stands above, whatever it is.
        builder.block_before = markdown_blocks.RuleBlock()
    safe_text = make_safe_text(text)
    link_references = markdown_blocks.find_link_reference_lines(safe_text)
    for chunk in split_markdown_chunks(safe_text, start):
        blocks = markdown_blocks.parse_markdown_blocks(
            safe_text, chunk, link_references, breaks=breaks
        )
        for block in blocks:
            box = builder.build_box(block, chunk)
            box.chunk_start = chunk.start
            box.chunk_end = chunk.end
            box.is_table_continuation = chunk.is_table_continuation
            yield box


@dataclass(slots=True)
class _BlockBoxBuilder:
    """Builds a box for each block, and remembers the last one: it decides the space between."""

    ink: DrawingStyle
    width: float
    key_of: KeyOf
    lines: Lines
    at_once: int
    drawn: FormulaLookup | None
    block_before: markdown_blocks.Block | None = None
    box_before: LayoutBox | None = None

    def build_box(self, block: markdown_blocks.Block, chunk: MarkdownChunk) -> LayoutBox:
        """Builds the box that draws a block, with the gap that belongs between it and
        the block before. The later parts of a long table get the columns of the part
        before them.
        """
        gap = _gap_before_block(self.block_before, block)
        box: LayoutBox
        if isinstance(block, markdown_blocks.CodeBlock):
            key = self.key_of(chunk.start)
            box = self._build_code_box(block, gap, key)
        elif isinstance(block, markdown_blocks.TableBlock):
            box = _build_table_box(self.ink, self.width, block, gap, self.box_before)
        elif isinstance(block, markdown_blocks.ParagraphBlock):
            box = TextBox(self.ink, self.width, block, gap=gap, drawn=self.drawn)
        elif isinstance(block, markdown_blocks.MathBlock):
            box = _build_formula_box(self.ink, self.width, block, gap, self.drawn)
        else:
            box = RuleBox(self.ink, self.width, block, gap=gap)
        self.block_before = block
        self.box_before = box
        return box

    def _build_code_box(
        self, block: markdown_blocks.CodeBlock, gap: float, key: SectionKey
    ) -> CodeBox:
        """Builds the box of a block of code. It shows the first lines, and more of them
        if the user opened it; `key` is by what that is remembered, or () if nothing can
        be opened.
        """
        left = self.ink.left_edge_of(block)
        # Where nothing can be opened, all of the code is shown.
        shown_lines = ALL_LINES
        if key:
            shown_lines = self.lines(key)
        return CodeBox(
            self.ink,
            self.width - left,
            block.text,
            block.language,
            left=left,
            gap=gap,
            more=key,
            lines=shown_lines,
            at_once=self.at_once,
            label=block.language,
        )


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
    picture: FormulaPicture | None = None
    if drawn is not None:
        picture = drawn(block.text, True)
    if picture is not None:
        from helix_desktop.gui.transcript.formula_pictures import FormulaBox

        return FormulaBox(ink, width, block, picture, gap=gap)

    source = markdown_blocks.StyledSpan(f"$${block.text}$$", markdown_blocks.TextStyle.CODE)
    paragraph = markdown_blocks.ParagraphBlock((source,), indent=block.indent, quote=block.quote)
    box = TextBox(ink, width, paragraph, gap=gap)
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
