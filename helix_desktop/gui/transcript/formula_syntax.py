"""Formulas in Markdown, between dollars or backslashed brackets, removed before the parser
interprets their backslashes.

A single dollar sign is money or a variable far more often than a formula, so the text
between two of them must look like a formula.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

_PAIRS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"))
_SINGLE = re.compile(r"\$(?!\s)([^$\n]{1,400}?)(?<!\s)\$(?![0-9A-Za-z])")
_LIKE_ONE = re.compile(r"[\\^_={}<>+]|^[A-Za-z]$|^[A-Za-z]\([A-Za-z]\)$")
_FARTHEST = 4_000


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
    found = _find_bracketed_formula(state.src, state.pos) or _find_single_dollar_formula(
        state.src, state.pos
    )
    if found is None:
        return False
    latex, end = found
    if not silent:
        state.push("math_inline", "math", 0).content = latex
    state.pos = end
    return True


def _find_bracketed_formula(text: str, at: int) -> tuple[str, int] | None:
    for opening, closing in _PAIRS:
        if not text.startswith(opening, at):
            continue
        start = at + len(opening)
        end = text.find(closing, start, at + _FARTHEST)
        if end < 0:
            return None
        latex = " ".join(text[start:end].split())
        if not latex:
            return None
        return latex, end + len(closing)
    return None


def _find_single_dollar_formula(text: str, at: int) -> tuple[str, int] | None:
    if not text.startswith("$", at):
        return None
    match = _SINGLE.match(text, at)
    if match is None or not _LIKE_ONE.search(match.group(1)):
        return None
    return match.group(1), match.end()


def _parse_formula_block(state: StateBlock, first: int, last: int, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    """Parses a formula of several lines. None of its lines may begin a list or a heading."""
    start = state.bMarks[first] + state.tShift[first]
    opening, closing = next(
        (pair for pair in _PAIRS[:2] if state.src.startswith(pair[0], start)), ("", "")
    )
    if not opening or state.is_code_block(first):
        return False
    limit = state.eMarks[last - 1]
    end = state.src.find(closing, start + len(opening), min(limit, start + _FARTHEST))
    if end < 0:
        return False
    line = next(
        number for number in range(first, last) if state.eMarks[number] >= end + len(closing)
    )
    latex = " ".join(state.src[start + len(opening) : end].split())
    if not latex or state.src[end + len(closing) : state.eMarks[line]].strip(" .,;"):
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.block = True
        token.content = latex
        token.map = [first, line + 1]
        state.line = line + 1
    return True
