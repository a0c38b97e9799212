"""Cuts texts and queries into words as the search index does: prose, code identifiers and paths.

The index cuts a text at everything that is no letter or digit, so `snake_case` and
`a/path.py` are found by their parts. `extra_words_for_index` adds what that misses: the
humps of camelCase, and the characters and pairs of them of scripts without blanks. The
index knows which words a row has but not where, which halves it. Whether they are side
by side is checked in the text.
"""

import codecs
import functools
import re
import sqlite3
import string
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing

from helix_desktop.engine.search_query import LEAST_STEM, stem_of_word
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import resources_folder

SLICE = 1 << 16  # After decoding this many bytes, we let other threads run.
LONGEST_ROW = 64 * 1024  # In characters. Matches are found faster in short rows.
TOKENIZER = "unicode61 remove_diacritics 2"
_CUTTING = f"""
CREATE VIRTUAL TABLE words USING fts5(text, tokenize='{TOKENIZER}');
CREATE VIRTUAL TABLE cut USING fts5vocab(words, 'instance');
"""

# Matches a capital inside a word, and the rest of the word: `Case` in camelCase,
# `Server` in HTTPServer. Capitals are rare, so this search is fast. `*+` keeps it fast
# even for a megabyte of one letter.
_CAPITAL = re.compile(r"([A-Z](?:(?=[a-z0-9])(?<=[A-Z][A-Z])|(?<=[a-z0-9][A-Z]))[A-Za-z0-9]*+)")
_LETTERS = string.ascii_letters + string.digits
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|\n")
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')
_AROUND_WORD = re.compile(
    r"^[(\[,;:?!]+|(?:['’]s)?[()\].,;:?!]*$"
)  # Punctuation, and a possessive ending.
_WORDS = re.compile(r"\w+")
_BEGINS = r"(?<![^\W_])"  # No letter or digit precedes this.


def words_inside(text: str, *, each_once: bool = False, has_blanks: bool = False) -> str:
    before = _CAPITAL.split(text)  # Alternately text before a capital, and the rest of the word.
    words = [
        head[len(head.rstrip(_LETTERS)) :] + rest
        for head, rest in zip(before[::2], before[1::2], strict=False)
    ]
    words = list(dict.fromkeys(words)) if each_once else words
    hidden = " ".join(_HUMPS.findall("\n".join(words))).replace("\n", ".")
    if has_blanks or text.isascii():
        return hidden
    single = [" ".join(run) for run in _UNSPACED.findall(text)]
    return " . ".join([hidden, *single] if hidden else single)


def extra_words_for_index(text: str) -> str:
    pairs = _character_pairs(text)
    return f"{words_inside(text, each_once=True, has_blanks=not pairs)} {' '.join(pairs)}"


def _character_pairs(text: str) -> list[str]:
    """Return each pair of neighbours in a script without blanks, or a lone character."""
    lines = [] if text.isascii() else [line for line in text.splitlines() if not line.isascii()]
    runs = [run for line in lines for run in _UNSPACED.findall(line)]
    return [run[at : at + 2] for run in runs for at in range(max(1, len(run) - 1))]


def plain_words(text: str) -> list[str]:
    """Return a text's words as the index has them, except for accents."""
    return [word for word in re.split(r"[\W_]+", text.lower()) if word]


def split_for_index(text: str) -> Iterator[tuple[int, str]]:
    """Split a text, at line ends if possible. Yield each piece and its position."""
    start = 0
    while start < len(text):
        stop = start + LONGEST_ROW
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or stop
        yield start, text[start:stop]
        start = stop


def text_or_none(content: bytes) -> str | None:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")  # This also removes the byte order mark.
    if b"\0" in content[:8192]:
        return None
    decode, text = codecs.getincrementaldecoder("utf-8")("replace").decode, ""
    for at in range(0, len(content), SLICE):
        text += decode(content[at : at + SLICE])
    return text + decode(b"", final=True)


def query_terms(query: str) -> list[str]:
    """Return a query's terms: words, and quoted phrases."""
    terms = [
        phrase or _AROUND_WORD.sub("", word)
        for phrase, word in _ASKED.findall(query.replace("\0", " "))
    ]
    return [term for term in terms if _WORDS.search(term)]


@dataclass(frozen=True, slots=True)
class AskedTerm:
    """`expression`: the query for FTS5. `together`: what the text must contain if there
    are several words, or None.
    """

    expression: str
    together: re.Pattern[str] | None


def queries_of_terms(
    terms: Sequence[str], is_everywhere: Callable[[str], bool]
) -> Mapping[str, AskedTerm]:
    """Return the index's query for each term, as written or by its hidden words. A
    final `*` means a prefix.

    Words of a term that occur almost everywhere are left out: they are slow and select little.
    """
    hidden = [
        " ".join([words_inside(_UNSPACED.sub(" ", term)), *_character_pairs(term)])
        for term in terms
    ]
    cut = _cut_like_index([*terms, *hidden])
    return {
        term: _query_of_term(term, cut[at], cut[len(terms) + at], is_everywhere)
        for at, term in enumerate(terms)
    }


def _cut_like_index(texts: Sequence[str]) -> list[list[str]]:
    """Return each text's words as FTS5 splits and folds them. It would reject other queries."""
    cut: list[list[str]] = [[] for _ in texts]
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(_CUTTING)
        whole = (
            text.encode("utf-8", "replace").decode() for text in texts
        )  # A model may write half a surrogate pair.
        memory.executemany("INSERT INTO words(rowid, text) VALUES(?, ?)", enumerate(whole))
        for at, word in memory.execute("SELECT doc, term FROM cut ORDER BY doc, offset"):
            cut[at].append(word)
    return cut


def _query_of_term(
    term: str, plain: list[str], hidden: list[str], is_everywhere: Callable[[str], bool]
) -> AskedTerm:
    star, stem = "*" if term.endswith("*") else "", stem_of_word(term)
    ways, end = [], "" if star else r"(?![^\W_])"
    whole, humps = (r"[\W_]*".join(map(re.escape, words)) for words in (plain, hidden))
    together = [_BEGINS + whole + end, humps]
    for words in filter(None, (plain, hidden)):
        rare = [word for word in words if not is_everywhere(word)] if len(words) > 1 else []
        ways.append(
            " AND ".join(f'"{word}"{star if word == words[-1] else ""}' for word in rare or words)
        )
    if not star and len(term) > LEAST_STEM and stem != term.casefold():
        ways.append(f'"{stem}"*')
        together.append(_BEGINS + re.escape(stem))
    ways += [f'"{form}"' for form in _other_forms().get(term.casefold(), ())]
    expression = " OR ".join(f"({way})" for way in ways)
    several = max(len(plain), len(hidden)) > 1
    return AskedTerm(expression, re.compile("|".join(filter(None, together))) if several else None)


@functools.cache
def _other_forms() -> Mapping[str, Sequence[str]]:
    """Return the forms of irregular words that the word's stem does not find."""
    lines = (resources_folder() / "irregular_words.txt").read_text("utf-8").splitlines()
    forms = [line.split() for line in lines if not line.startswith("#")]
    return {word: [one for one in each if one != word] for each in forms for word in each}


def pattern_of_word(word: str) -> re.Pattern[str]:
    """Match, in a text in lower case, the word's stem where a word begins, or its other forms."""
    stem, others = re.escape(stem_of_word(word)), _other_forms().get(word.casefold(), ())
    # What stands before the word is checked behind it, because such a search is faster.
    whole = (rf"{form}(?<![^\W_]{form})(?![^\W_])" for form in others)
    return re.compile("|".join([rf"{stem}(?<![^\W_]{stem})", *whole]))


def fold_like_index(text: str) -> str:
    """Return the text in lower case and without accents, as in the index."""
    low = text.lower()
    return (
        low
        if low.isascii()
        else unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", low)))
    )


def split_unspaced_terms(terms: list[str]) -> list[str]:
    """Return the terms, with longer runs of a script without blanks replaced by pairs
    of characters.
    """
    split: list[str] = []
    for term in terms:
        split += _character_pairs(
            " ".join(run for run in _UNSPACED.findall(term) if len(run) > 2)
        ) or [term]
    return split


def find_first_term(text: str, terms: Sequence[str]) -> int:
    """Return the position of the first term that occurs in `text`, or 0 if none does."""
    low = text.lower()
    for term in terms:
        whole = term.lower().rstrip("*")
        longest = sorted(_WORDS.findall(whole), key=len, reverse=True)
        for needle in (whole, *longest, *map(stem_of_word, longest)):
            if (at := low.find(needle)) >= 0:
                return at
    return 0


def find_line(text: str, at: int) -> tuple[int, int]:
    """Return where the line around a position begins and ends."""
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, end if end >= 0 else len(text)


def cut_snippet(text: str, at: int, *, width: int = 200) -> str:
    """Return the line around a position, shortened on both sides, between words if
    possible, and marked.
    """
    begins, ends = find_line(text, at)
    first = max(begins, at - width // 3)
    last = min(ends, first + width)
    if first > begins:
        first = max(text.find(" ", first - 1, at) + 1, first)
    if last < ends:
        space = text.rfind(" ", at, last + 1)
        last = space if space > at else last
    shown = " ".join(text[first:last].split())
    return f"{'…' if first > begins else ''}{shown}{'…' if last < ends else ''}"
