"""Colours code with Pygments, by a generator that can be paused at any time and continued later.

Text that could take Pygments long, because it is long or has very long lines, keeps the plain
colour. Pygments is imported with the first code, because an empty window does not need it.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from helix_desktop.resources import read_json_resource

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

# Text of more characters, or with a longer line, is not coloured.
MOST = 64 * 1024
LONGEST_LINE = 2_000

Run = tuple[int, int, str]  # The start of coloured text, its length, and the name of its colour.

_COLOURS: Mapping[str, str] = read_json_resource("style/code_colours.json")
_PLAIN = frozenset({"", "text", "plain", "plaintext", "txt", "console", "output", "none"})


def highlight_code(text: str, language: str) -> Iterator[Run]:
    """Yields the coloured runs of `text`, in order. `language` is the name after a
    fence, or a file's name.
    """
    if len(text) > MOST:
        return
    for line in text.split("\n"):
        if len(line) > LONGEST_LINE:
            return
    lexer = find_lexer(language)
    if lexer is None:
        return
    for start, token, value in lexer.get_tokens_unprocessed(text):
        colour_name = _colour_of_token(token)
        if colour_name and value.strip():
            yield start, len(value), colour_name


def highlight_language_of(file_name: str, media_type: str = "") -> str:
    """Names the language in which a file is coloured, by its media type or its name, or
    "" if there is none. Pygments is imported here, as most conversations never need it.
    """
    if media_type == "application/json":
        return "json"
    name = file_name.rpartition("/")[2]
    if "." not in name:
        return ""
    from pygments.lexers import find_lexer_class_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer = find_lexer_class_for_filename(name)
    except ClassNotFound:
        return ""
    if lexer is None or not lexer.aliases:
        return ""
    return str(lexer.aliases[0])


@lru_cache(maxsize=64)
def find_lexer(language: str) -> "Lexer | None":
    """Returns a lexer for a language, or None. Building one takes up to 40 ms."""
    if language in _PLAIN:
        return None
    from pygments.lexers import find_lexer_class_by_name
    from pygments.util import ClassNotFound

    try:
        return find_lexer_class_by_name(language)()
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _colour_of_token(token: "_TokenType") -> str:
    """Returns the colour of a kind of token, or of the kind that it belongs to."""
    token_name = ".".join(token) + "."
    for kind, colour_name in _COLOURS.items():
        if token_name.startswith(f"{kind}."):
            return colour_name
    return ""
