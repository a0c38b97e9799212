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
    return parser.disable(_NOT_TYPED) if typed else add_formula_syntax(parser)


def find_link_reference_lines(text: str) -> str:
    """The lines that define link references, parsed along with every chunk that may use them."""
    if "]:" not in text:
        return ""
    found = (
        match.group()
        for match, _ in zip(_DEFINITION.finditer(text), range(_MOST_DEFINITIONS), strict=False)
    )
    return "\n".join(found)


def parse_markdown_blocks(
    text: str, chunk: MarkdownChunk, link_references: str = "", *, breaks: bool = False
) -> tuple[Block, ...]:
    """Returns the blocks of one chunk. `breaks`: a person typed it, so line ends stay
    and formulas are text.
    """
    source = text[chunk.start : chunk.end]
    if chunk.is_fence:
        return (_parse_fence(source),)
    if len(source) > LONGEST * 2 or any(len(line) > LONGEST for line in source.split("\n")):
        pieces = (source[at : at + LONGEST].rstrip("\n") for at in range(0, len(source), LONGEST))
        return tuple(ParagraphBlock((StyledSpan(piece),)) for piece in pieces)
    whole = f"{chunk.head}{source}\n\n{link_references}" if link_references else chunk.head + source
    tokens = _build_markdown_parser(typed=breaks).parse(whole)
    parsed = _MarkdownBlockBuilder(tokens, "\n" if breaks else " ").blocks
    if chunk.is_table_continuation:
        return tuple(
            replace(each, rows=each.rows[1:], continues=True)
            for each in parsed
            if isinstance(each, TableBlock)
        )
    return tuple(parsed)


def block_as_plain_text(block: Block) -> str:
    if isinstance(block, CodeBlock):
        return block.text
    if isinstance(block, TableBlock):
        return "\n".join("\t".join(join_span_texts(cell) for cell in row) for row in block.rows)
    if isinstance(block, MathBlock):
        return f"$${block.text}$$"
    if isinstance(block, RuleBlock):
        return "———"
    before = (
        f"{'  ' * max(0, block.indent - 1)}{block.marker} " if block.marker else "  " * block.indent
    )
    return before + join_span_texts(block.spans)


def backticks_to_code_spans(text: str) -> tuple[StyledSpan, ...]:
    pieces = _QUOTED.split(text)
    styles = (TextStyle.PLAIN, TextStyle.CODE)
    return tuple(
        StyledSpan(piece, styles[number % 2]) for number, piece in enumerate(pieces) if piece
    )


def join_span_texts(spans: tuple[StyledSpan, ...]) -> str:
    return "".join(f"${span.text}$" if span.style & TextStyle.MATH else span.text for span in spans)


def _parse_fence(source: str) -> CodeBlock:
    opening, _, body = source.partition("\n")
    mark = opening.strip()
    width = len(mark) - len(mark.lstrip(mark[0]))
    words = mark[width:].split()
    lines = body.split("\n")
    if lines and not lines[-1].strip():
        lines.pop()
    if lines and len(lines[-1].strip()) >= width and not lines[-1].strip().strip(mark[0]):
        lines.pop()
    if indent := len(opening) - len(opening.lstrip(" ")):
        lines = [line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in lines]
    return CodeBlock("\n".join(lines), words[0][:40].lower() if words else "")


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
                    self.aligned.append(
                        str(token.attrs.get("style", "")).partition(":")[2] or "left"
                    )
            elif kind in {"th_close", "td_close"}:
                in_cell = False
            else:
                self._add_block_or_change_nesting(token)

    def _add_block_or_change_nesting(self, token: "Token") -> None:
        if (kind := token.type) in {"bullet_list_open", "ordered_list_open"}:
            self.lists.append(_OpenList(kind[0] == "o", int(token.attrs.get("start", 1))))
        elif kind in {"bullet_list_close", "ordered_list_close"}:
            self.lists.pop()
        elif kind == "list_item_open":
            self.marker = self._next_list_marker()
        elif kind == "heading_open":
            self.heading = int(token.tag[1])
        elif kind in {"blockquote_open", "blockquote_close"}:
            self.quote += token.nesting
        elif kind in {"fence", "code_block"}:
            language = token.info.split()[0][:40].lower() if token.info.split() else ""
            self.blocks.append(
                CodeBlock(token.content.rstrip("\n"), language, len(self.lists), self.quote)
            )
        elif kind == "math_block":
            self.blocks.append(MathBlock(token.content, len(self.lists), self.quote))
        elif kind == "hr":
            self.blocks.append(RuleBlock(len(self.lists), self.quote))
        else:
            self._collect_table_rows(kind)

    def _collect_table_rows(self, kind: str) -> None:
        if kind == "table_open":
            self.rows, self.aligned = [], []
        elif kind == "tr_open":
            self.rows.append([])
        elif kind == "table_close":
            rows = tuple(tuple(row) for row in self.rows)
            self.blocks.append(
                TableBlock(rows, tuple(self.aligned), indent=len(self.lists), quote=self.quote)
            )

    def _next_list_marker(self) -> str:
        current = self.lists[-1]
        if not current.ordered:
            return "•" if len(self.lists) % 2 else "◦"
        current.number += 1
        return f"{current.number - 1}."

    def _add_paragraph_block(self, spans: tuple[StyledSpan, ...]) -> None:
        marker = self.marker
        if marker and not marker[0].isdigit() and spans and (task := _TASK.match(spans[0].text)):
            marker = "☐" if task.group(1) == " " else "☑"
            spans = (replace(spans[0], text=spans[0].text[task.end() :]), *spans[1:])
        self.blocks.append(ParagraphBlock(spans, self.heading, len(self.lists), self.quote, marker))
        self.marker, self.heading = "", 0


def _build_styled_spans(tokens: "list[Token]", soft_break: str) -> tuple[StyledSpan, ...]:
    """Returns runs of one style. A bare address becomes a link to itself."""
    found: list[StyledSpan] = []
    depth = dict.fromkeys(_STYLES, 0)
    links: list[str] = []
    for token in tokens:
        name = token.type.removesuffix("_open").removesuffix("_close")
        style = sum(bit for each, bit in _STYLES.items() if depth[each])
        link = links[-1] if links else ""
        if name in depth:
            depth[name] += token.nesting
        elif token.type == "link_open":
            links.append(str(token.attrs.get("href", "")))
        elif token.type == "link_close":
            links.pop()
        elif token.type in _WHOLE:
            whole_style = style | _WHOLE[token.type]
            if token.type == "code_inline":
                found += _link_file_references(token.content, whole_style, link)
            else:
                found.append(StyledSpan(token.content, whole_style, link))
        elif token.type == "image":
            address = str(token.attrs.get("src", ""))
            found.append(StyledSpan(f"[picture: {token.content or address}]", style, address))
        elif token.type in {"softbreak", "hardbreak"}:
            found.append(StyledSpan(soft_break if token.type == "softbreak" else "\n", style, link))
        elif token.content:
            found.extend(_link_bare_addresses(token.content, style, link))
    return tuple(found)


def _link_bare_addresses(text: str, style: int, link: str) -> list[StyledSpan]:
    if link or "://" not in text:
        return _link_file_references(text, style, link)
    found: list[StyledSpan] = []
    end = 0
    for match in _ADDRESS.finditer(text):
        address = match.group().rstrip(".,;:!?)]}*_")
        if match.start() > end:
            found += _link_file_references(text[end : match.start()], style, "")
        found.append(StyledSpan(address, style, address))
        end = match.start() + len(address)
    if end < len(text):
        found += _link_file_references(text[end:], style, "")
    return found


def _link_file_references(text: str, style: int, link: str) -> list[StyledSpan]:
    """Returns the text with each path of a file as a link of its own."""
    if link:
        return [StyledSpan(text, style, link)]
    found: list[StyledSpan] = []
    end = 0
    for reference in find_file_references(text):
        if reference.start > end:
            found.append(StyledSpan(text[end : reference.start], style))
        words = text[reference.start : reference.end]
        found.append(StyledSpan(words, style, FILE_LINK + words))
        end = reference.end
    if end < len(text):
        found.append(StyledSpan(text[end:], style))
    return found
