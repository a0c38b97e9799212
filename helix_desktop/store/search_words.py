"""Words as the search sees them: prose, code identifiers and paths.

The index has two columns. `text` is the text itself, cut at everything that is no letter or digit,
so `snake_case` and `a/path.py` are found by their parts and, as a phrase, as a whole. `hidden_words`
adds what that misses: the humps of camelCase, and the single characters of scripts without blanks.
"""

import codecs
import re
import string
from collections.abc import Iterator, Sequence

from helix_desktop.engine.search_query import LEAST_STEM, stem_of_word

SLICE = 1 << 16  # After this many bytes decoded, or characters indexed, other threads get their turn.
PIECE = 64 * 1024  # In characters: the longest row. In short rows, matches are found fast.

# Matches a capital inside a word, and the rest of the word: `Case` in camelCase, `Server` in HTTPServer.
# Capitals are rare, so this search is fast. `*+` keeps it fast even for a megabyte of one letter.
_CAPITAL = re.compile(r"([A-Z](?:(?=[a-z0-9])(?<=[A-Z][A-Z])|(?<=[a-z0-9][A-Z]))[A-Za-z0-9]*+)")
_LETTERS = string.ascii_letters + string.digits
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|\n")
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')
_AROUND_WORD = re.compile(r"^[(\[,;:?!]+|(?:['’]s)?[()\].,;:?!]*$")  # Punctuation, and a possessive
_WORDS = re.compile(r"\w+")


def hidden_words(text: str) -> str:
    before = _CAPITAL.split(text)  # By turns: text before a capital, and the rest of that word.
    words = [head[len(head.rstrip(_LETTERS)) :] + rest for head, rest in zip(before[::2], before[1::2], strict=False)]
    hidden = " ".join(_HUMPS.findall("\n".join(words))).replace("\n", ".")
    if text.isascii():
        return hidden
    single = [" ".join(run) for run in _UNSPACED.findall(text)]
    return " . ".join([hidden, *single] if hidden else single)


def plain_words(text: str) -> list[str]:
    """The words of a text as the index has them, but for accents."""
    return [word for word in re.split(r"[\W_]+", text.lower()) if word]


def split_for_index(text: str) -> Iterator[tuple[int, str]]:
    """Cut into pieces at line ends where that is possible; each with where it begins."""
    start = 0
    while start < len(text):
        stop = start + PIECE
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or stop
        yield start, text[start:stop]
        start = stop


def text_or_none(content: bytes) -> str | None:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")  # The byte order mark is removed, too.
    if b"\0" in content[:8192]:
        return None
    decode, text = codecs.getincrementaldecoder("utf-8")("replace").decode, ""
    for at in range(0, len(content), SLICE):
        text += decode(content[at : at + SLICE])
    return text + decode(b"", final=True)


def query_terms(query: str) -> list[str]:
    """The terms of a query: words, and phrases in quotes."""
    terms = [phrase or _AROUND_WORD.sub("", word) for phrase, word in _ASKED.findall(query.replace("\0", " "))]
    return [term for term in terms if _WORDS.search(term)]


def fts_expression(terms: Sequence[str], *, every: bool = True) -> str:
    """What FTS5 is asked: every term (or any), as it stands or by its hidden words. A `*` at a term's end means "begins so"."""
    return (" AND " if every else " OR ").join(_fts_term(term) for term in terms)


def split_unspaced_terms(terms: list[str]) -> list[str]:
    """The terms, with pairs of signs in the place of a longer run of a script without blanks."""
    split: list[str] = []
    for term in terms:
        runs = [run for run in _UNSPACED.findall(term) if len(run) > 2]
        split += [run[at : at + 2] for run in runs for at in range(len(run) - 1)] or [term]
    return split


def _fts_term(term: str) -> str:
    star = "*" if term.endswith("*") else ""
    plain = term.replace('"', " ").rstrip("*")
    asked = f'"{plain}"{star}'
    stem = stem_of_word(plain)
    if not star and len(plain) > LEAST_STEM and stem != plain.casefold():
        asked = f'({asked} OR "{stem}"*)'
    hidden = hidden_words(plain)
    return f'({asked} OR parts : "{hidden.replace(" . ", " ")}"{star})' if hidden else asked


def find_first_term(text: str, terms: Sequence[str]) -> int:
    """Where in `text` the first of the terms stands that does; 0 where none is found as it was asked."""
    low = text.lower()
    for term in terms:
        words = _WORDS.findall(term.lower().rstrip("*"))
        longest = sorted(words, key=len, reverse=True)
        for needle in (term.lower().rstrip("*"), *longest, *map(stem_of_word, longest)):
            if (at := low.find(needle)) >= 0:
                return at
    return 0


def cut_snippet(text: str, at: int, *, width: int = 200) -> str:
    """The line around a place, shortened on both sides: between words where there are any, and marked so."""
    begins, ends = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    ends = ends if ends >= 0 else len(text)
    first = max(begins, at - width // 3)
    last = min(ends, first + width)
    if first > begins:
        first = max(text.find(" ", first - 1, at) + 1, first)
    if last < ends:
        space = text.rfind(" ", at, last + 1)
        last = space if space > at else last
    shown = " ".join(text[first:last].split())
    return f"{'…' if first > begins else ''}{shown}{'…' if last < ends else ''}"
