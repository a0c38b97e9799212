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

from helix_desktop.documents.document_kinds import KINDS
from helix_desktop.engine.document_pages import blank_lines_of_form
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.search_query import LEAST_STEM, stem_of_word
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import resources_folder

SLICE = 1 << 16  # After decoding this many bytes, we let other threads run.
LONGEST_ROW = 64 * 1024  # In characters. Matches are found faster in short rows.
TOKENIZER = "unicode61 remove_diacritics 2"
# Of these, the text is stored as well, or they are no text: a PDF may consist of letters alone.
_FORMATS_WITHOUT_TEXT = (b"%PDF-", b"%!PS", b"PK\x03\x04", b"GIF8", b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"SQLite", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x7fELF")  # fmt: skip
_TYPES_OF_DOCUMENTS = frozenset(kind.media_type for kind in KINDS)
# The tools that a document's original is stored for. Its text is an entry of its own.
_TOOLS_WITH_DOCUMENTS = frozenset({"user", ToolName.READ_DOCUMENT})
# The tool that `workbench/session_import.py` names for lines of a history that are no
# messages.
NOTES = "import"
_BEGINNING = 8192  # In bytes. So much of a content tells whether it is text.
# Bytes that are in no text, whatever its encoding is, and in no output for a terminal.
_CONTROLS = bytes(range(7)) + bytes(range(0x0E, 0x1B)) + bytes(range(0x1C, 0x20))
MOST_CONTROLS = 0.02  # Of compressed bytes, a tenth are such.
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
_TERM = re.compile(r'"([^"]*)"|(\S+)')
# Punctuation, and a possessive ending.
_AROUND_WORD = re.compile(r"^[(\[,;:?!]+|(?:['’]s)?[()\].,;:?!]*$")
_WORDS = re.compile(r"\w+")
# An escape in JSON: a backslash that is escaped itself begins none.
_ESCAPE = re.compile(r"\\.")
_ESCAPED_BLANKS = ("\\n", "\\r", "\\t")
_WORD_BEGINS = r"(?<![^\W_])"  # No letter or digit precedes this.
_WORD_ENDS = r"(?![^\W_])"  # None follows.


def words_inside(text: str, *, each_once: bool = False, has_blanks: bool = False) -> str:
    """Return the words that identifiers in a text are made of, and the characters of scripts
    without blanks, each between blanks. A dot parts what does not belong together.
    """
    words = _words_with_capitals(text)
    if each_once:
        words = list(dict.fromkeys(words))
    inner_words = " ".join(_HUMPS.findall("\n".join(words))).replace("\n", ".")
    if has_blanks or text.isascii():
        return inner_words
    groups = []
    if inner_words:
        groups.append(inner_words)
    for run in _UNSPACED.findall(text):
        groups.append(" ".join(run))
    return " . ".join(groups)


def _words_with_capitals(text: str) -> list[str]:
    """Return the words that have a capital inside, such as camelCase and HTTPServer."""
    # Alternately the text before a capital, and the rest of its word.
    parts = _CAPITAL.split(text)
    words = []
    for text_before, word_end in zip(parts[::2], parts[1::2], strict=False):
        length_before_word = len(text_before.rstrip(_LETTERS))
        word_start = text_before[length_before_word:]
        words.append(word_start + word_end)
    return words


def extra_words_for_index(text: str) -> str:
    pairs = _character_pairs(text)
    return f"{words_inside(text, each_once=True, has_blanks=not pairs)} {' '.join(pairs)}"


def _character_pairs(text: str) -> list[str]:
    """Return each pair of neighbours in a script without blanks, or a lone character."""
    pairs: list[str] = []
    if text.isascii():
        return pairs
    for line in text.splitlines():
        if line.isascii():
            continue
        for run in _UNSPACED.findall(line):
            count = max(1, len(run) - 1)
            pairs += [run[position : position + 2] for position in range(count)]
    return pairs


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


def searched_text_or_none(content: bytes, about: EntryOrigin) -> str | None:
    """Return the text in which an entry is found, or None if it is found by no words.

    That of a document has blanks in place of the lines that give it its form, and its original is
    not searched, because its text is another entry. Lines of an agent's history that no reader
    understands are JSON, and have blanks in place of its line ends and tabs, of which each would be
    a letter before the next word. Every position is that in the content.
    """
    if about.tool in _TOOLS_WITH_DOCUMENTS and about.media_type in _TYPES_OF_DOCUMENTS:
        return None
    text = text_or_none(content)
    if text is None:
        return None
    if about.tool == NOTES:
        return _ESCAPE.sub(_blanks_for_escape, text)
    return blank_lines_of_form(text)


def _blanks_for_escape(escape: re.Match[str]) -> str:
    if escape[0] in _ESCAPED_BLANKS:
        return "  "
    return escape[0]


def text_or_none(content: bytes) -> str | None:
    """Return the content as text, or None if it is binary. Long content is decoded in pieces,
    so that other threads can run.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", "replace")  # This also removes the byte order mark.
    if _is_no_text(content[:_BEGINNING]):
        return None
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    text = ""
    for position in range(0, len(content), SLICE):
        text += decode(content[position : position + SLICE])
    return text + decode(b"", final=True)


def _is_no_text(beginning: bytes) -> bool:
    if b"\0" in beginning or beginning.startswith(_FORMATS_WITHOUT_TEXT):
        return True
    count_of_controls = len(beginning) - len(beginning.translate(None, _CONTROLS))
    return count_of_controls > 1 + MOST_CONTROLS * len(beginning)


def query_terms(query: str) -> list[str]:
    """Return a query's terms: words, and quoted phrases."""
    terms: list[str] = []
    for phrase, word in _TERM.findall(query.replace("\0", " ")):
        word_without_punctuation = _AROUND_WORD.sub("", word)
        term = phrase or word_without_punctuation
        if _WORDS.search(term):
            terms.append(term)
    return terms


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

    Hidden words are those within a name, such as `case` in camelCase, and pairs of characters of a
    script without blanks. Words of a term that occur almost everywhere are left out: they are slow
    and select little.
    """
    hidden_texts: list[str] = []
    for term in terms:
        hidden_words = [words_inside(_UNSPACED.sub(" ", term))]
        hidden_words += _character_pairs(term)
        hidden_texts.append(" ".join(hidden_words))

    # All texts are cut at once: first the terms, then their hidden words.
    cut_texts = _cut_like_index(list(terms) + hidden_texts)
    queries: dict[str, AskedTerm] = {}
    for index, term in enumerate(terms):
        plain = cut_texts[index]
        hidden = cut_texts[len(terms) + index]
        queries[term] = _query_of_term(term, plain, hidden, is_everywhere)
    return queries


def _cut_like_index(texts: Sequence[str]) -> list[list[str]]:
    """Return each text's words as FTS5 splits and folds them. It would reject other queries."""
    words_by_text: list[list[str]] = [[] for _ in texts]
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(_CUTTING)
        # A model may write half a surrogate pair.
        valid_texts = (text.encode("utf-8", "replace").decode() for text in texts)
        memory.executemany("INSERT INTO words(rowid, text) VALUES(?, ?)", enumerate(valid_texts))
        for number, word in memory.execute("SELECT doc, term FROM cut ORDER BY doc, offset"):
            words_by_text[number].append(word)
    return words_by_text


def _query_of_term(
    term: str, plain: list[str], hidden: list[str], is_everywhere: Callable[[str], bool]
) -> AskedTerm:
    """Return what to ask the index for one term, and what the text must contain.

    The index is asked for any of these: the term's words as written, its hidden words
    (the words inside a name, or pairs of characters of a script without spaces), words
    with the same stem, and other forms of the word. It does not know whether words are
    side by side, so a pattern for the text is returned if there are several.
    """
    is_prefix = term.endswith("*")
    end_of_term = _WORD_ENDS
    if is_prefix:
        end_of_term = ""
    alternatives: list[str] = []
    for words in (plain, hidden):
        if words:
            all_words = _all_words_expression(words, is_everywhere, is_prefix=is_prefix)
            alternatives.append(all_words)
    patterns = [_WORD_BEGINS + _words_side_by_side(plain) + end_of_term]
    if hidden:
        patterns.append(_words_side_by_side(hidden))

    stem = stem_of_word(term)
    folded_term = term.casefold()
    if not is_prefix and len(term) > LEAST_STEM and stem != folded_term:
        alternatives.append(f'"{stem}"*')
        patterns.append(_WORD_BEGINS + re.escape(stem))
    other_forms = _other_forms().get(folded_term, ())
    alternatives += [f'"{form}"' for form in other_forms]

    expression = " OR ".join(f"({alternative})" for alternative in alternatives)
    if len(plain) > 1 or len(hidden) > 1:
        any_pattern = "|".join(patterns)
        return AskedTerm(expression, together=re.compile(any_pattern))
    return AskedTerm(expression, together=None)


def _all_words_expression(
    words: Sequence[str], is_everywhere: Callable[[str], bool], *, is_prefix: bool
) -> str:
    """Return the query for texts that have all these words. Those that occur almost everywhere
    are left out, unless all of them do.
    """
    asked_words = list(words)
    if len(words) > 1:
        rare_words = [word for word in words if not is_everywhere(word)]
        asked_words = rare_words or asked_words
    quoted_words: list[str] = []
    for word in asked_words:
        quoted_word = f'"{word}"'
        if is_prefix and word == words[-1]:
            quoted_word += "*"
        quoted_words.append(quoted_word)
    return " AND ".join(quoted_words)


def _words_side_by_side(words: Sequence[str]) -> str:
    return r"[\W_]*".join(map(re.escape, words))


@functools.cache
def _other_forms() -> Mapping[str, Sequence[str]]:
    """Return the forms of irregular words that the word's stem does not find."""
    others: dict[str, Sequence[str]] = {}
    for line in (resources_folder() / "irregular_words.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        forms = line.split()
        for word in forms:
            others[word] = [form for form in forms if form != word]
    return others


def pattern_of_word(word: str) -> re.Pattern[str]:
    """Match, in a text in lower case, the word's stem where a word begins, or its other forms."""
    stem = re.escape(stem_of_word(word))
    other_forms = _other_forms().get(word.casefold(), ())
    # What stands before the word is checked behind it, because such a search is faster.
    other_patterns = (rf"{form}(?<![^\W_]{form})(?![^\W_])" for form in other_forms)
    return re.compile("|".join([rf"{stem}(?<![^\W_]{stem})", *other_patterns]))


def fold_like_index(text: str) -> str:
    """Return the text in lower case and without accents, as in the index."""
    lower_text = text.lower()
    if lower_text.isascii():
        return lower_text
    without_accents = _ACCENTS.sub("", unicodedata.normalize("NFD", lower_text))
    return unicodedata.normalize("NFC", without_accents)


def split_unspaced_terms(terms: list[str]) -> list[str]:
    """Return the terms, with longer runs of a script without blanks replaced by pairs
    of characters.
    """
    split: list[str] = []
    for term in terms:
        long_runs = [run for run in _UNSPACED.findall(term) if len(run) > 2]
        split += _character_pairs(" ".join(long_runs)) or [term]
    return split


def find_first_term(text: str, terms: Sequence[str]) -> int:
    """Return the position of the first term that occurs in `text`, or 0 if none does.

    The index also finds a text in which a term's words are apart, or in another form. So the term
    is looked for as a whole, then its words, the longest first, and then their stems.
    """
    lower_text = text.lower()
    for term in terms:
        term_text = term.lower().rstrip("*")
        words_longest_first = sorted(_WORDS.findall(term_text), key=len, reverse=True)
        candidates = [term_text]
        candidates += words_longest_first
        candidates += [stem_of_word(word) for word in words_longest_first]
        for candidate in candidates:
            position = lower_text.find(candidate)
            if position >= 0:
                return position
    return 0


def words_in_text(words: Sequence[str], text: str) -> list[str]:
    """Return those of a query's words that the text has, whole or as a stem.

    An index that was written by an earlier version also has the lines that give a document its form.
    """
    folded_text = fold_like_index(text)
    words_here: list[str] = []
    for word in words:
        stem = fold_like_index(stem_of_word(word))
        forms = [stem, *plain_words(stem), *_other_forms().get(word.casefold(), ())]
        if any(form in folded_text for form in forms):
            words_here.append(word)
    return words_here


def find_line(text: str, position: int) -> tuple[int, int]:
    """Return where the line around a position begins and ends."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    if end < 0:
        end = len(text)
    return start, end


def cut_snippet(text: str, position: int, *, width: int = 200) -> str:
    """Return the line around a position, shortened on both sides to about `width` characters,
    between words if possible. An ellipsis marks where something was left out.
    """
    line_start, line_end = find_line(text, position)
    start = max(line_start, position - width // 3)
    end = min(line_end, start + width)
    first_shown = start
    before = ""
    if start > line_start:
        before = "…"
        next_word = text.find(" ", start - 1, position) + 1
        first_shown = max(start, next_word)
    end_shown = end
    after = ""
    if end < line_end:
        after = "…"
        last_space = text.rfind(" ", position, end + 1)
        if last_space > position:
            end_shown = last_space
    passage = " ".join(text[first_shown:end_shown].split())
    return f"{before}{passage}{after}"
