"""Formulas in Markdown, between dollars or backslashed brackets, removed before the parser
interprets their backslashes.

A single dollar sign is money or a variable far more often than a formula, so the text
between two of them must look like a formula.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from helix_desktop.fast_dataclass import dataclass

_BLOCK_PAIRS = {"$$": "$$", "\\[": "\\]"}
_PAIRS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"))
_SINGLE = re.compile(r"\$(?!\s)([^$\n]{1,400}?)(?<!\s)\$(?![0-9A-Za-z])")
_LIKE_ONE = re.compile(r"[\\^_={}<>+]|^[A-Za-z]$|^[A-Za-z]\([A-Za-z]\)$")
_FARTHEST = 4_000  # A formula ends within so many characters.


@dataclass(frozen=True, slots=True)
class _InlineFormula:
    """A formula in a text, and where the text goes on behind it."""

    latex: str
    end: int


def add_formula_syntax(parser: MarkdownIt) -> MarkdownIt:
    """Adds the tokens `math_inline` and `math_block` to a parser."""
    parser.inline.ruler.before("escape", "math", _parse_inline_formula)
    parser.block.ruler.before(
        "fence",
        "math",
        _parse_formula_block,
        {"alt": ["paragraph", "reference", "blockquote", "list"]},
    )
    return parser


def _parse_inline_formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    formula = _find_bracketed_formula(state.src, state.pos)
    if formula is None:
        formula = _find_single_dollar_formula(state.src, state.pos)
    if formula is None:
        return False
    if not silent:
        state.push("math_inline", "math", 0).content = formula.latex
    state.pos = formula.end
    return True


def _find_bracketed_formula(text: str, position: int) -> _InlineFormula | None:
    for opening, closing in _PAIRS:
        if not text.startswith(opening, position):
            continue
        start = position + len(opening)
        end = text.find(closing, start, position + _FARTHEST)
        if end < 0:
            return None
        latex = " ".join(text[start:end].split())
        if not latex:
            return None
        return _InlineFormula(latex, end + len(closing))
    return None


def _find_single_dollar_formula(text: str, position: int) -> _InlineFormula | None:
    if not text.startswith("$", position):
        return None
    match = _SINGLE.match(text, position)
    if match is None or not _LIKE_ONE.search(match.group(1)):
        return None
    return _InlineFormula(match.group(1), match.end())


def _parse_formula_block(
    state: StateBlock,
    first_line: int,
    end_line: int,
    silent: bool,  # noqa: FBT001 - the parser's signature
) -> bool:
    """Parses a formula of several lines. None of its lines may begin a list or a heading."""
    start = state.bMarks[first_line] + state.tShift[first_line]
    opening = state.src[start : start + 2]
    if opening not in _BLOCK_PAIRS or state.is_code_block(first_line):
        return False
    closing = _BLOCK_PAIRS[opening]
    latex_start = start + len(opening)
    farthest = min(state.eMarks[end_line - 1], start + _FARTHEST)
    latex_end = state.src.find(closing, latex_start, farthest)
    if latex_end < 0:
        return False

    formula_end = latex_end + len(closing)
    last_line = first_line
    while state.eMarks[last_line] < formula_end:
        last_line += 1
    latex = " ".join(state.src[latex_start:latex_end].split())
    text_behind = state.src[formula_end : state.eMarks[last_line]]
    # A formula within a sentence is none of its own.
    if not latex or text_behind.strip(" .,;"):
        return False
    if silent:
        return True
    token = state.push("math_block", "math", 0)
    token.block = True
    token.content = latex
    token.map = [first_line, last_line + 1]
    state.line = last_line + 1
    return True
