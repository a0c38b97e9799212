"""Parses Markdown to blocks: CommonMark with tables, task lists and strikethrough, as plain values
without Qt.

HTML in the text is shown literally. A picture becomes a link, because nothing is loaded
just because a text names it. Text that is too long to parse in a frame is shown as its
source.
"""

import re
from dataclasses import field, replace
from enum import IntEnum
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.file_references import FILE_LINK, find_file_references
from helix_desktop.gui.transcript.markdown_chunks import LONGEST, MarkdownChunk

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


class TextStyle(IntEnum):
    """Bits that add up to plain numbers, because operations of a Flag take microseconds."""

    PLAIN = 0
    BOLD = 1
    ITALIC = 2
    CODE = 4
    STRUCK = 8
    MATH = 16


@dataclass(frozen=True, slots=True)
class StyledSpan:
    text: str
    style: int = TextStyle.PLAIN
    link: str = ""


@dataclass(frozen=True, slots=True)
class ParagraphBlock:
    """`marker` precedes a list item's first line. `quote`: the number of quotations
    that contain the paragraph.
    """

    spans: tuple[StyledSpan, ...]
    heading: int = 0
    indent: int = 0
    quote: int = 0
    marker: str = ""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    text: str
    language: str = ""
    indent: int = 0
    quote: int = 0


@dataclass(frozen=True, slots=True)
class TableBlock:
    """`aligned` has "left", "right" or "center" for each column. `continues`: it
    continues the last table.
    """

    rows: tuple[tuple[tuple[StyledSpan, ...], ...], ...]
    aligned: tuple[str, ...]
    continues: bool = False
    indent: int = 0
    quote: int = 0


@dataclass(frozen=True, slots=True)
class MathBlock:
    """A formula on separate lines, as LaTeX."""

    text: str
    indent: int = 0
    quote: int = 0


@dataclass(frozen=True, slots=True)
class RuleBlock:
    indent: int = 0
    quote: int = 0


Block = ParagraphBlock | CodeBlock | TableBlock | MathBlock | RuleBlock

_ADDRESS = re.compile(r"https?://[^\s<>\"'`\u201c\u201d]{1,2000}", re.IGNORECASE)
_BLANKS = re.compile(r"[ \t]{2,}")
_QUOTED = re.compile(r"`([^`\n]+)`")
_TASK = re.compile(r"\[([ xX])\][ \t]+")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]{1,200}\]:[ \t]*\S[^\n]{0,2000}$", re.MULTILINE)
_MOST_DEFINITIONS = 100
_WHOLE = {"code_inline": TextStyle.CODE, "math_inline": TextStyle.MATH}
_NOT_TYPED = ["escape", "heading", "lheading", "hr", "emphasis", "strikethrough"]
_STYLES = {"strong": TextStyle.BOLD, "em": TextStyle.ITALIC, "s": TextStyle.STRUCK}


@cache
def _build_markdown_parser(*, typed: bool) -> "MarkdownIt":
    """Imports the parser on first use. `typed`: a person wrote the text, so `# comment`
    or `a * b` stays as it is.
    """
    from markdown_it import MarkdownIt

    from helix_desktop.gui.transcript.formula_syntax import add_formula_syntax

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    if typed:
        return parser.disable(_NOT_TYPED)
    return add_formula_syntax(parser)


def find_link_reference_lines(text: str) -> str:
    """The lines that define link references, parsed along with every chunk that may use them."""
    if "]:" not in text:
        return ""
    definitions: list[str] = []
    for match in islice(_DEFINITION.finditer(text), _MOST_DEFINITIONS):
        definitions.append(match.group())
    return "\n".join(definitions)


def parse_markdown_blocks(
    text: str, chunk: MarkdownChunk, link_references: str = "", *, breaks: bool = False
) -> tuple[Block, ...]:
    """Returns the blocks of one chunk. `breaks`: a person typed it, so line ends stay
    and formulas are text.
    """
    source = text[chunk.start : chunk.end]
    if chunk.is_fence:
        return (_parse_fence(source),)
    # What is so long is data. To parse it would block the window, so it is shown as it is.
    if _is_too_long_to_parse(source):
        return _split_into_plain_paragraphs(source)

    markdown = chunk.head + source
    if link_references:
        markdown = f"{markdown}\n\n{link_references}"
    tokens = _build_markdown_parser(typed=breaks).parse(markdown)
    soft_break = " "
    if breaks:
        soft_break = "\n"
    blocks = _MarkdownBlockBuilder(tokens, soft_break).blocks
    if chunk.is_table_continuation:
        return _tables_without_header(blocks)
    return tuple(blocks)


def _is_too_long_to_parse(source: str) -> bool:
    if len(source) > LONGEST * 2:
        return True
    for line in source.split("\n"):
        if len(line) > LONGEST:
            return True
    return False


def _tables_without_header(blocks: list[Block]) -> tuple[Block, ...]:
    """The header was added for the parser alone: the first chunk of the table shows it."""
    tables: list[Block] = []
    for block in blocks:
        if isinstance(block, TableBlock):
            tables.append(replace(block, rows=block.rows[1:], continues=True))
    return tuple(tables)


def _split_into_plain_paragraphs(source: str) -> tuple[Block, ...]:
    paragraphs: list[Block] = []
    for start in range(0, len(source), LONGEST):
        piece = source[start : start + LONGEST].rstrip("\n")
        paragraphs.append(ParagraphBlock((StyledSpan(piece),)))
    return tuple(paragraphs)


def block_as_plain_text(block: Block) -> str:
    """Returns a block as it is copied: cells of a table between tabs, formulas between
    dollar signs, items of a list with their marker.
    """
    if isinstance(block, CodeBlock):
        return block.text
    if isinstance(block, TableBlock):
        lines: list[str] = []
        for row in block.rows:
            lines.append("\t".join(map(join_span_texts, row)))
        return "\n".join(lines)
    if isinstance(block, MathBlock):
        return f"$${block.text}$$"
    if isinstance(block, RuleBlock):
        return "———"
    text = join_span_texts(block.spans)
    if not block.marker:
        return "  " * block.indent + text
    # The marker stands in the indent of its item.
    indent = "  " * max(0, block.indent - 1)
    return f"{indent}{block.marker} {text}"


def backticks_to_code_spans(text: str) -> tuple[StyledSpan, ...]:
    spans: list[StyledSpan] = []
    for number, piece in enumerate(_QUOTED.split(text)):
        style = TextStyle.PLAIN
        if number % 2:  # Every second piece stood between backticks.
            style = TextStyle.CODE
        if piece:
            spans.append(StyledSpan(piece, style))
    return tuple(spans)


def join_span_texts(spans: tuple[StyledSpan, ...]) -> str:
    texts: list[str] = []
    for span in spans:
        if span.style & TextStyle.MATH:
            texts.append(f"${span.text}$")
        else:
            texts.append(span.text)
    return "".join(texts)


def _parse_fence(source: str) -> CodeBlock:
    """Reads a fenced block of code, which may lack its closing line while it is being
    written. `source` begins with the opening line, as "```python".
    """
    opening, _, body = source.partition("\n")
    mark_and_info = opening.strip()
    mark_letter = mark_and_info[0]
    mark_width = len(mark_and_info) - len(mark_and_info.lstrip(mark_letter))
    lines = body.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    # A fence that is still being written has no closing line.
    if lines:
        last_line = lines[-1].strip()
        if len(last_line) >= mark_width and not last_line.strip(mark_letter):
            lines.pop()
    # The lines of an indented fence lose as much of their indent as the fence has.
    fence_indent = _count_leading_spaces(opening)
    if fence_indent:
        lines = [line[min(fence_indent, _count_leading_spaces(line)) :] for line in lines]
    return CodeBlock("\n".join(lines), _language_of_fence(mark_and_info[mark_width:]))


def _count_leading_spaces(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _language_of_fence(info: str) -> str:
    """Returns the first of the words that stand behind the mark of a fence."""
    words = info.split()
    if not words:
        return ""
    return words[0][:40].lower()


@dataclass(slots=True)
class _OpenList:
    ordered: bool
    number: int


@dataclass(slots=True)
class _MarkdownBlockBuilder:
    """Builds blocks in one pass over the parser's tokens."""

    tokens: "list[Token]"
    soft_break: str
    blocks: list[Block] = field(default_factory=list)
    lists: list[_OpenList] = field(default_factory=list)
    quote: int = 0
    marker: str = ""
    heading: int = 0
    rows: list[list[tuple[StyledSpan, ...]]] = field(default_factory=list)
    aligned: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Goes through the tokens once, from the first to the last.

        The text between two block tokens is one "inline" token. It becomes a cell of the newest
        row within a table's cell, and a paragraph anywhere else.
        """
        in_cell = False
        for token in self.tokens:
            kind = token.type
            if kind == "inline":
                spans = _build_styled_spans(token.children or [], self.soft_break)
                if in_cell:
                    self.rows[-1].append(spans)
                else:
                    self._add_paragraph_block(spans)
            elif kind in {"th_open", "td_open"}:
                in_cell = True
                if kind == "th_open":
                    # The parser writes `text-align:right`, or nothing.
                    style = str(token.attrs.get("style", ""))
                    _, _, alignment = style.partition(":")
                    self.aligned.append(alignment or "left")
            elif kind in {"th_close", "td_close"}:
                in_cell = False
            else:
                self._add_block_or_change_nesting(token)

    def _add_block_or_change_nesting(self, token: "Token") -> None:
        """Handles a token outside a table's cells.

        Code, formulas and rules are blocks by themselves. The tokens that open or close a list,
        a heading or a quotation add nothing; they change how the next blocks are indented and
        marked.
        """
        kind = token.type
        list_depth = len(self.lists)
        if kind in {"bullet_list_open", "ordered_list_open"}:
            is_ordered = kind == "ordered_list_open"
            first_number = int(token.attrs.get("start", 1))
            self.lists.append(_OpenList(is_ordered, first_number))
        elif kind in {"bullet_list_close", "ordered_list_close"}:
            self.lists.pop()
        elif kind == "list_item_open":
            self.marker = self._next_list_marker()
        elif kind == "heading_open":
            self.heading = int(token.tag[1])
        elif kind in {"blockquote_open", "blockquote_close"}:
            self.quote += token.nesting
        elif kind in {"fence", "code_block"}:
            code = token.content.rstrip("\n")
            language = _language_of_fence(token.info)
            self.blocks.append(CodeBlock(code, language, list_depth, self.quote))
        elif kind == "math_block":
            self.blocks.append(MathBlock(token.content, list_depth, self.quote))
        elif kind == "hr":
            self.blocks.append(RuleBlock(list_depth, self.quote))
        else:
            self._collect_table_rows(kind)

    def _collect_table_rows(self, kind: str) -> None:
        if kind == "table_open":
            self.rows = []
            self.aligned = []
        elif kind == "tr_open":
            self.rows.append([])
        elif kind == "table_close":
            rows = tuple(tuple(row) for row in self.rows)
            self.blocks.append(
                TableBlock(rows, tuple(self.aligned), indent=len(self.lists), quote=self.quote)
            )

    def _next_list_marker(self) -> str:
        current = self.lists[-1]
        if current.ordered:
            marker = f"{current.number}."
            current.number += 1
            return marker
        # Each level of a list has the other bullet.
        if len(self.lists) % 2:
            return "•"
        return "◦"

    def _add_paragraph_block(self, spans: tuple[StyledSpan, ...]) -> None:
        paragraph = ParagraphBlock(spans, self.heading, len(self.lists), self.quote, self.marker)
        is_numbered = self.marker[:1].isdigit()
        if self.marker and not is_numbered:
            paragraph = _with_task_marker(paragraph)
        self.blocks.append(paragraph)
        self.marker = ""
        self.heading = 0


def _with_task_marker(item: ParagraphBlock) -> ParagraphBlock:
    """Turns `[x]` at the beginning of a list item into a box instead of its bullet."""
    if not item.spans:
        return item
    first_span = item.spans[0]
    task = _TASK.match(first_span.text)
    if task is None:
        return item
    box = "☑"
    if task.group(1) == " ":
        box = "☐"
    words = replace(first_span, text=first_span.text[task.end() :])
    return replace(item, spans=(words, *item.spans[1:]), marker=box)


def _build_styled_spans(tokens: "list[Token]", soft_break: str) -> tuple[StyledSpan, ...]:
    """Returns runs of one style. A bare address becomes a link to itself."""
    spans: list[StyledSpan] = []
    nesting_depth = dict.fromkeys(_STYLES, 0)
    open_links: list[str] = []
    for token in tokens:
        style_name = token.type.removesuffix("_open").removesuffix("_close")
        if style_name in nesting_depth:
            nesting_depth[style_name] += token.nesting
        elif token.type == "link_open":
            open_links.append(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            open_links.pop()
        else:
            style = _add_up_styles(nesting_depth)
            link = ""
            if open_links:
                link = open_links[-1]
            spans.extend(_build_spans_of_token(token, style, link, soft_break))
    return tuple(spans)


def _add_up_styles(nesting_depth: dict[str, int]) -> int:
    style = 0
    for style_name, style_bit in _STYLES.items():
        if nesting_depth[style_name] > 0:
            style |= style_bit
    return style


def _build_spans_of_token(
    token: "Token", style: int, link: str, soft_break: str
) -> list[StyledSpan]:
    """Turns a token of the Markdown parser into spans of styled text. File names in
    code and bare web addresses become links.
    """
    if token.type == "code_inline":
        return _link_file_references(token.content, style | _WHOLE[token.type], link)
    if token.type in _WHOLE:
        return [StyledSpan(token.content, style | _WHOLE[token.type], link)]
    # A picture becomes a link: nothing is loaded just because a text names it.
    if token.type == "image":
        address = str(token.attrs.get("src", ""))
        return [StyledSpan(f"[picture: {token.content or address}]", style, address)]
    line_ends = {"softbreak": soft_break, "hardbreak": "\n"}
    if token.type in line_ends:
        return [StyledSpan(line_ends[token.type], style, link)]
    text = token.content
    if soft_break == " ":
        # As everywhere in Markdown: a line of a tool's that is quoted without quoting it may have
        # a gap of half a screen.
        text = _BLANKS.sub(" ", text)
    if text:
        return _link_bare_addresses(text, style, link)
    return []


def _link_bare_addresses(text: str, style: int, link: str) -> list[StyledSpan]:
    if link or "://" not in text:
        return _link_file_references(text, style, link)
    spans: list[StyledSpan] = []
    end = 0
    for match in _ADDRESS.finditer(text):
        address = match.group().rstrip(".,;:!?)]}*_")
        if match.start() > end:
            spans += _link_file_references(text[end : match.start()], style, "")
        spans.append(StyledSpan(address, style, address))
        end = match.start() + len(address)
    if end < len(text):
        spans += _link_file_references(text[end:], style, "")
    return spans


def _link_file_references(text: str, style: int, link: str) -> list[StyledSpan]:
    """Returns the text with each path of a file as a link of its own."""
    if link:
        return [StyledSpan(text, style, link)]
    spans: list[StyledSpan] = []
    end = 0
    for reference in find_file_references(text):
        if reference.start > end:
            spans.append(StyledSpan(text[end : reference.start], style))
        words = text[reference.start : reference.end]
        spans.append(StyledSpan(words, style, FILE_LINK + words))
        end = reference.end
    if end < len(text):
        spans.append(StyledSpan(text[end:], style))
    return spans
