"""Finds claims in a summary that its sources do not support: files, names, figures, quotations and orders.

It compares words alone. A file or name must occur in the sources, a figure also rounded or in
another unit, and an order must share words with a message of the user. A claim found may still be
true. So it is shown to a person, and the writer is asked again; nothing is removed.
"""

import asyncio
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain, combinations

from helix_desktop.engine import span_as_text
from helix_desktop.engine.conversation_details import DetailSource
from helix_desktop.engine.facts import Folded, Span
from helix_desktop.engine.important_sentences import split_sentences
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.fast_dataclass import dataclass

STEM_LETTERS = 5  # Words that share this many first letters count as forms of one word.
SEARCHED_PIECE = 2_000  # Searching more characters at once would block other threads.
COUNTABLE = 12  # Whole numbers up to this need no source, as the writer may have counted something.
MOST_COMPARED_FIGURES = 200  # With more known figures than this, their differences are not computed.
# The share of an order's words that a single user message must contain, if it is retold, or otherwise.
# COPIED_SHARE: a single line of any source that contains this share of its words is enough too.
RETOLD_SHARE, ORDER_SHARE, COPIED_SHARE = 0.15, 0.45, 0.5
SHORTENED = 7  # The beginning of a word counts as the word if it has at least this many letters.
LEAST_WORDS = 3  # Part of a sentence with fewer words than this is not checked on its own.
UNITS = (1000, 1024, 60, 1000**2, 1024**2, 3600, 1000**3, 1024**3)

_WORD = re.compile(r"\w+")
_FILE = re.compile(
    r"(?<![\w:/@])(?:[\w.@+~-]{1,120}/){0,40}[\w@+-]{2,120}\.[A-Za-z]\w{0,4}\b(?!\()"
    r"|(?<![\w:/<])~?/(?:[\w.@+-]{1,120}/){1,40}[\w.@+-]{1,120}|(?<=\b[it][no] )[\w-]{1,120}/[\w/-]{1,120}"
)
_FIGURE = re.compile(
    r"(?<![\w.,/-])(\d{1,30}(?:[.,]\d{1,30}){0,9})(?!\w{0,30}[\d_-])"
    r"(\s?(?:%|[kKMGT]i?B\b|[kM]\b|ms\b|s\b|sec|min|h\b|hours|million|thousand))?"
)
_DIGITS = re.compile(r"\d{1,30}")
_QUOTATION = re.compile(r"[“„«]([^”“»\n]{9,2000})[”“»]|(?<!\w)\"([^\"\n]{9,2000})\"")
_CODE = re.compile(
    r"`([^`\s]+)`|\\([A-Za-z]\w+)|\b(\w*(?:\w_\w|[a-z][A-Z][a-z]|[A-Z]{2}[a-z]{2}|[A-Za-z]{2}\d|\d[a-f]{2}\d)\w*)"
)
_NAME = re.compile(
    r"\b(?:package|crate|library|module|function|method|class|component|hook|constant) (\w+)\b"
    r"|(?<=[\w,] )([A-ZÀ-ÖØ-ÞČŁŚŠŽ][a-zß-ž]{2,}\b(?: [A-ZÀ-ÖØ-ÞČŁŚŠŽ][a-zß-ž]{2,}\b)*)"
    r"|^\W{0,9}([A-ZÀ-ÖØ-ÞČŁŚŠŽ]\w+|\w+-\w+) (?:is|was|has|shows|handles|uses|needs|keeps|runs|stores|blocks|wraps|sends|serves|zeigt)\b"
)
_NO_NAME = re.compile(
    r"(?:s|ing|ed|ly|[ts]ion|ity|ment|ness|[ae]nce|age|th|work|next|it|\w*self|he|one|\w*here|this|wh\w+|user)$",
    re.IGNORECASE,
)
# These words show that a text is German, where all nouns are capitalised and not just names.
_GERMAN = re.compile(r"\b(?:der|die|das|und|ist|sind|im|mit|für|auf|nicht|wird|wurde|heißt)\b")
_NO_CLAIM = re.compile(
    r"\[[\d–, -]+\]|\b[0-9a-f]{64}\b|^[^\S\n]*(?:[-*]|\d+[.)])\s|^#+ .*|^\[.*\]$|^.*\brecall_(?:history|cached_content)\(.*"
    r"|read the full transcript at: \S+|do not preface with \"I'll continue\" or similar",
    re.MULTILINE,
)
_ORDERED = re.compile(
    r"(?<!\bas )(?<!\bas the )\b(?:users?|clients?|customer|owner|lead|supervisor|management|you|they|s?he|it was|benutzer\w*|du|sie)\b[^.]{0,40}?"
    r"\b(?:ask(?:s|ed)\b|want|request|insist|demand|requir|prefer|told|said (?:that|to|no)|wish|would (?:like|rather)|möchte|verlang)"
    r"|^\W*(?:no|keep|gewünscht|requested|do not|don't|never)\b"
    r"|\b(?:should|shall|must|need(?:s|ed)? to|ha(?:s|ve) to|(?:is|are) (?:not )?(?:to be|allowed)|forbid\w*|acceptable|ruled out"
    r"|out of the question|off[- ]limits|leave .{3,40} alone|wants?|insist(?:s|ed)|prefers?|soll\w*|darf|dürfen|muss|müssen)\b",
    re.IGNORECASE,
)
_RETOLD = re.compile(r"\basked(?! that| not)")
_STATE = re.compile(r"\b(?:yet|so far|nor did|noch nicht)\b")
_PARTS = re.compile(r"[,;:()]| (?:since|because|and|but|which|so) ")
_COMMON = re.compile(
    r"the[mnyrsi]?\w?|an?d|but|for|from|with\w*|into|are|w[ae]re?s?|been|its|th[ai][ts]|those|not?|only|all|any|each|every|both|wh\w+|after|"
    r"before|now|still|also|ha[sd]|have|did|does|will|w?sh?c?ould|must|may|can|never|always|how|users?|you|s?he|his|her|ask\w*|want\w*|told|"
    r"said|insist\w*|demand\w*|request\w*|require\w*|prefer\w*|d[eia][rsenm]|eine?n?|und|oder|nicht|keine?|nur|ist|sind|war|wird|werden|"
    r"soll\w*|m[uü]ss\w*|d[aü]rf\w*|immer|nie|auf|mit|von|für|aus|benutzer|möchte|verlang\w*|dass|gewünscht|..?(?<!\d)"
)
_SHORT_YEAR = re.compile(r"\b\d\d?/\d\d?/(\d\d)\b")
_MONTH = re.compile(  # The number of the group that matches is the number of the month.
    "(january)|(february)|(march)|(april)|(may)|(june)|(july)|(august)|(september)|(october)|(november)|(december)"
)
_NUMBERS = {"one": 1.0, "two": 2.0, "three": 3.0, "five": 5.0, "seven": 7.0, "ten": 10.0, "half": 0.5, "twenty": 20.0}


async def find_unsupported_claims_of_fold(
    branch: ConversationBranch, fold: Folded, cache: ContentCache
) -> Sequence[str]:
    """Return the sentences with claims that no covered message of this branch supports."""
    if not isinstance(span := fold.cover, Span):
        return []
    seqs = [seq for seq in branch.order if span.first <= seq <= span.last]
    sources = await span_as_text.read_detail_sources(branch, seqs, cache)
    return await asyncio.to_thread(find_unsupported_claims, fold.text, sources)


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """The texts of sources, compressed to save memory, and the users' messages among them."""

    packed: tuple[bytes, ...] = ()
    said: tuple[str, ...] = ()

    def with_sources(self, sources: Sequence[DetailSource]) -> "SourceTexts":
        joined = "\0".join(source.text.replace("\0", " ") for source in sources).encode("utf-8", "surrogatepass")
        said = (source.text for source in sources if source.role == "user")
        return SourceTexts((*self.packed, zlib.compress(joined, 1)), (*self.said, *said))

    def unpack_texts(self) -> Iterator[str]:
        for each in self.packed:
            yield from zlib.decompress(each).decode("utf-8", "surrogatepass").split("\0")


def find_unsupported_claims(
    summary: str, sources: Sequence[DetailSource], more: SourceTexts | None = None
) -> list[str]:
    """Return sentences with claims that no source supports, each after its claim."""
    whole = split_sentences(_NO_CLAIM.sub("", summary))
    sentences = [one[at : at + SEARCHED_PIECE] for one in whole for at in range(0, len(one), SEARCHED_PIECE)]
    known = _KnownWords((more or SourceTexts()).with_sources(sources), sentences)
    claims = ((one, list(dict.fromkeys(known.find_unsupported_in_sentence(one)))) for one in sentences)
    return [one if found == [one] else f"{', '.join(found)} — {one}" for one, found in claims if found]


class _KnownWords:
    def __init__(self, sources: SourceTexts, sentences: Sequence[str]) -> None:
        self._sources = sources
        asked = {word for one in sentences for word in _casefolded_words(one)}
        asked |= {word.removesuffix("s") for word in asked} | _NUMBERS.keys()
        starts = {word[:SHORTENED] for word in asked if len(word) >= SHORTENED}
        words = map(str.casefold, self._read_words())  # A set of all would take half as much memory as the texts.
        self._words = {word for word in words if word in asked or word[:SHORTENED] in starts}
        capitals = {word for word in self._read_words() if word.isupper() and word.isalpha() and 3 <= len(word) <= 5}
        forms = {form for word in capitals for form in (word.lower(), word.capitalize())}
        written = forms.intersection(self._read_words())
        self._codes = {word for word in capitals if written.isdisjoint((word.lower(), word.capitalize()))}
        self._files = {_casefolded_base_name(file) for piece in self._pieces() for file in _FILE.findall(piece)}
        numbers = {_number_of(number) for piece in self._pieces() for number, _ in _FIGURE.findall(piece)}
        numbers.update(float(one) for piece in self._pieces() for one in _DIGITS.findall(piece))  # even within dates
        numbers.update(2000 + float(year) for piece in self._pieces() for year in _SHORT_YEAR.findall(piece))
        self._numbers = numbers | {_NUMBERS[word] for word in _NUMBERS.keys() & self._words}

    def _read_words(self) -> Iterator[str]:
        return chain.from_iterable(map(_WORD.findall, self._pieces()))

    def _pieces(self) -> Iterator[str]:
        """Return the lines of all sources. Long ones are cut, as searching one is slow."""
        lines = (line for text in self._sources.unpack_texts() for line in text.splitlines())
        return (line[at : at + SEARCHED_PIECE] for line in lines for at in range(0, len(line), SEARCHED_PIECE))

    def find_unsupported_in_sentence(self, sentence: str) -> Iterator[str]:
        quoted = ("".join(found) for found in _QUOTATION.findall(sentence))
        yield from (text for text in quoted if " " in text and not self._has_quotation(text))
        rest = _QUOTATION.sub("", sentence)
        for file in (found.rstrip(".") for found in _FILE.findall(rest)):
            if not (self._has_file(_casefolded_base_name(file)) and self._has_name(file)):
                yield file
        rest = _FILE.sub("", rest)
        yield from (name for name in _find_names_in_sentence(rest) if not self._has_name(name))
        figures = _FIGURE.findall(rest)
        for text, unit in figures:
            if not self._has_figure(text, unit.strip(), [_number_of(other) for other, _ in figures if other != text]):
                yield text + unit
        if any(not self._has_demand(part) for part in _demand_parts(sentence)) and not self._has_demand(sentence):
            yield sentence

    def _has_quotation(self, quoted: str) -> bool:
        parts = (_normalise_case_and_spaces(part).strip(" .,;:!?") for part in re.split(r"…|\.\.\.|\[[^\]]*\]", quoted))
        texts = self._sources.unpack_texts
        return all(any(part in _normalise_case_and_spaces(text) for text in texts()) for part in parts)

    def _has_file(self, name: str) -> bool:
        """Whether the name occurs as a file, or within an address or line of code."""
        if "." not in name or name in self._files:
            return True
        inside = re.compile(rf"(?<![\w.-]){re.escape(name)}(?!\w)")
        return any(name in piece and inside.search(piece) for piece in map(str.casefold, self._pieces()))

    def _has_name(self, name: str) -> bool:
        """Whether a name occurs, also without plural, as abbreviation, as a month's number or in part."""
        shortened = len(name) >= SHORTENED and any(word.startswith(name) for word in self._words)
        return shortened or all(map(self._has_word, _casefolded_words(name))) or self._has_abbreviation(name)

    def _has_word(self, word: str) -> bool:
        month = _MONTH.fullmatch(word)
        return bool({word, word.removesuffix("s")} & self._words or (month and month.lastindex in self._numbers))

    def _has_abbreviation(self, name: str) -> bool:
        """Whether the name's beginning or its initials occur in capitals."""
        letters, initials = name.upper().replace(" ", ""), "".join(word[0] for word in name.split())
        return name.istitle() and any(
            letters.startswith(code) or (initials[1:] and code.startswith(initials)) for code in self._codes
        )

    def _has_figure(self, text: str, unit: str, beside: Sequence[float]) -> bool:
        """Whether a figure occurs, also rounded, converted, or as share or difference of others."""
        value, digits, known = _number_of(text), len(text.replace(",", ".").partition(".")[2]), self._numbers
        if (
            value in known
            or (value <= COUNTABLE and not digits and not unit)
            or (text[0] == "0" and value - 1 in known)
        ):
            return True
        tried = [known, *({each / by for each in known} for by in UNITS if unit and unit != "%")]
        if unit == "%":
            tried.append({100 * each / whole for each in known for whole in beside if whole})
        if digits > 1 and len(known) <= MOST_COMPARED_FIGURES:
            tried.append({abs(one - other) for one, other in combinations(known, 2)})
        return any(-0.5000001 <= (each - value) * 10**digits < 1 for each in chain(*tried))

    def _has_demand(self, text: str) -> bool:
        wanted, least = _stems_of(text), RETOLD_SHARE if _RETOLD.search(text) else ORDER_SHARE
        enough = COPIED_SHARE * len(wanted)
        near = (piece for piece in self._pieces() if sum(map(piece.casefold().__contains__, wanted)) >= enough)
        return any(len(wanted & _stems_of(said)) >= least * len(wanted) for said in self._sources.said) or any(
            len(wanted & _stems_of(piece)) >= enough for piece in near
        )


def _demand_parts(sentence: str) -> list[str]:
    """Return a sentence's parts that state an order, or all of it, or nothing for a state."""
    if _STATE.search(sentence) or not _ORDERED.search(sentence):
        return []
    parts = [part for part in _PARTS.split(sentence) if _ORDERED.search(part) and len(_stems_of(part)) >= LEAST_WORDS]
    return parts or [sentence]


def _find_names_in_sentence(sentence: str) -> Iterator[str]:
    yield from map("".join, _CODE.findall(sentence))
    for labelled, inside, first in _NAME.findall(sentence):
        named = labelled or first
        if not (_GERMAN.search(sentence) if inside else _NO_NAME.search(named) or _COMMON.fullmatch(named)):
            yield inside or named


def _casefolded_words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _stems_of(text: str) -> set[str]:
    words = (word for word in _casefolded_words(text) if not _COMMON.fullmatch(word))
    return {re.sub(r"(?:ing|ed|e?s)$", "", word)[:STEM_LETTERS] for word in words}


def _casefolded_base_name(file: str) -> str:
    return file.casefold().rpartition("/")[2]


def _normalise_case_and_spaces(text: str) -> str:
    return " ".join(text.casefold().split())


def _number_of(text: str) -> float:
    grouped = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text)
    number = text.replace(",", "" if grouped else ".")
    return float(number) if number.count(".") < 2 else -1.0  # A number with two dots is a version or a date.
