"""Finds claims in a summary that its sources do not support: files, names, figures, quotations and orders.

It compares words alone. A file or name must occur in the sources, a figure also rounded or in
another unit, and an order must share words with a message of the user. What reads as an order is
in `resources/rule_words.json`. A claim found may still be true. So it is shown to a person, and
the writer is asked again; nothing is removed.
"""

import asyncio
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, combinations

from helix_desktop.engine import span_text_and_detail_sources
from helix_desktop.engine.agent_findings import split_sentences
from helix_desktop.engine.conversation_details import NEWEST_OUTPUTS, DetailSource, format_argument_values
from helix_desktop.engine.facts import Folded, Span
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.search_query import STOP_WORDS
from helix_desktop.engine.stated_rules_and_decisions import read_message_patterns, read_rule_words
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass

STEM_LETTERS = 5  # Words that share this many first letters count as forms of one word.
SEARCHED_PIECE = 2_000  # Searching more characters at once would block other threads.
COUNTABLE = 12  # Whole numbers up to this need no source, as the writer may have counted something.
MOST_FIGURES_TOGETHER = 8  # With more figures in a sentence, one that was invented would soon be a sum of others.
MOST_COMPARED_FIGURES = 12  # Of more known fractions than this, no differences are computed.
MOST_SUMMED_PRICES = 200  # With more prices of one label, any number would soon be a sum of some.
# What share of an order's words consecutive sentences of a user must contain, or a line of any
# source if nobody is said to have given it. More sentences would share words with most orders.
ORDER_SHARE, COPIED_SHARE, SENTENCES_TOGETHER = 0.36, 0.7, 3
SHORTENED = 7  # A prefix of at least this many letters counts as the whole word.
LEAST_WORDS = 2  # A part of a claimed order must share at least so many words with what the user wrote.
SHORT_ANSWER = 200  # A message of fewer characters may agree to what was proposed before it.
UNITS = (1000, 1024, 60, 1000**2, 1024**2, 3600, 1000**3, 1024**3)

_WORD = re.compile(r"\w+")
_FILE = re.compile(
    r"(?<![\w:/@])(?:(?:[\w.@+~-]{1,120}/){1,40}[\w.@+-]{2,120}|[\w@+-]{2,120})\.[A-Za-z]\w{0,4}\b(?!\()"
    r"|(?<![\w:/<])~?/(?:[\w.@+-]{1,120}/){1,40}[\w.@+-]{1,120}|(?<=\b[it][no] )[\w-]{1,120}/[\w/-]{1,120}"
)
_FIGURE = re.compile(
    r"(?<![\w.,/-])v?(\d{1,30}(?:[.,]\d{1,30}){0,9})(?!\w{0,30}[\d_-])"
    r"(\s?(?:%|[kKMGT]i?B\b|[kM]\b|ms\b|s\b|sec|min|h\b|hours|million|thousand))?"
)
_VERSION = re.compile(r"(?<![\d.])\d{1,4}\.\d{1,4}(?=\.\d)")
_LINE_NUMBER = re.compile(r" {0,9}(\d{1,9})(?:\t|→|[:|](?!\d))")  # As in a listing of a file.
_PRICE = re.compile(
    r"(?:\b(price|amount|total|cost|fee|fare|balance|paid)s?\W{1,9}?[$€£]?|[$€£])"
    r"(-?)(\d{1,12}(?:[.,]\d{1,12}){0,9})",
    re.IGNORECASE,
)
_ROUNDED = re.compile(r"\b(?:about|almost|around|good|nearly|over|roughly|[Ss]ome|than|under)\W{1,3}(\d[\d,]*00)\b")
_DIGITS = re.compile(r"\d{1,30}")
_QUOTATION = re.compile(r"[“„«]([^”“»\n]{9,2000})[”“»]|(?<!\w)\"([^\"\n]{9,2000})\"")
_CODE = re.compile(
    r"`([^`\s]+)`|\b(?:named|called) ([a-z]\w*(?:-\w+)+)|\b([A-Za-z]+-\d[\w.-]*\w)"
    r"|\\([A-Za-z]\w+)|\b(\w*(?:\w_\w|[a-z][A-Z][a-z]|[A-Z]{2}[a-z]{2}|[A-Z]{4}|[A-Za-z]{2}\d|\d[a-f]{2}\d)\w*)"
)
_NAME = re.compile(read_message_patterns()["claimed_name"])
_NO_NAME = re.compile(read_message_patterns()["claimed_no_name"], re.IGNORECASE)
# These words show that a text is German, where all nouns are capitalised, not only names.
_GERMAN = re.compile(r"\b(?:der|die|das|und|ist|sind|im|mit|für|auf|nicht|wird|wurde|heißt)\b")
_NO_CLAIM = re.compile(
    r"\[[\d–, -]+\]|\b[0-9a-f]{64}\b|^[^\S\n]*(?:[-*]|\d+[.)])\s|^#+ .*|^\[.*\]$|^.*\brecall_(?:history|cached_content)\(.*"
    rf"|^{re.escape(NEWEST_OUTPUTS)}$(?:\n- .*)*|read the full transcript at: \S+|do not preface with \"I'll continue\" or similar",
    re.MULTILINE,
)
# Persons, what only persons do, what a program or a rule may do as well, what is somebody's, what is to be done.
_PERSON, _WILL, _DEMAND, _WISH, _DUTY, _GRANTED = (
    f"(?:{'|'.join(read_rule_words(kind))})"
    for kind in ("persons", "wills", "demands", "wish nouns", "duties", "granted")
)
_NAMED = r"(?-i:(?<![\w.-])(?!(?:The|This|That|It|Its|One|Each|All|No|A|Everything|Nothing|Docs)\b)[A-Z][a-z]+)\b"
_OFTEN = (
    r"(?:'d|'s|'ve| has| have| had| does| did| do| would)?(?:n't| not)?"
    r"(?: \w+ly| also| then| later| now| already| just| still| only| never| even)? "
)
_ATTRIBUTED = re.compile(
    rf"(?<!\bas )(?<!\bas the )\b(?:{_PERSON}|it was|we)\b[^.]{{0,40}}?\b(?:ask(?:s|ed)\b|want|request|insist"
    r"|demand|requir|prefer|told|said (?:that|to|no)|wish|promised|would (?:like|rather)|möchte|verlang)"
    rf"|\b(?:{_PERSON}|issue|ticket|brief|task){_OFTEN}(?:{_WILL}|{_DEMAND})|{_NAMED}{_OFTEN}{_WILL}"
    rf"|, (?:{_PERSON}|{_NAMED}) (?:says|said)\W*$|\b(?:says|said|wrote|stressed) the {_PERSON}\b|\bagreed\b"
    r"|\b(?:was|were) (?:not )?to (?!blame\b)(?=[a-z])|\bup to (?:him|her|them|us|me|you)\b"
    r"|\b(?:per|as) (?:arranged|discussed|instruct|promised|request|specified|stipulated|stressed"
    rf"|the (?:user|client) |s?he put it)|\baccording to (?:him|her|them|the (?:{_PERSON}|agreement|issue|ticket))\b"
    rf"|\b{_WISH} (?:of|laid|set|by|from|was)\b|\bwas the {_WISH}\b|(?:s?'s?|\b(?:his|her|their|by|under|on|with"
    rf"|without|so the))(?: explicit| express| prior| own)? {_WISH}\b"
    r"|\b(?:fine|ok(?:ay)?|(?:un)?acceptable|enough|all right|welcome|important|of no interest) (?:with|by|to|for)"
    r" (?:him|her|them|us|me|you|the [a-z]+|(?-i:[A-Z])\w+)\b"
    r"|\b(?:permission|green light|go-ahead|sign-off) (?:to|for|was|is)\b"
    rf"|\b(?:is|are|was|were|been|be) (?:not )?{_GRANTED}\b"
    r"|\b(?:settled|set|fixed|decided|clear|stated) (?:right )?(?:at|from) the (?:start|outset|beginning|end)\b"
    r"|\b(?:instructed|ordered|told|urged|reminded|warned|asked|allowed|permitted) (?:us|me|the \w+) (?:to|not|that)\b",
    re.IGNORECASE,
)
_ORDERED = re.compile(
    rf"{_ATTRIBUTED.pattern}|\b{_DUTY}\b"
    r"|^\W*no\b(?!.*\b(?:is|are|was|were|has|have|had|do|does|did|can|could|stands?|exists?)\b)|^\W*(?:keep|requested"
    r"|leave .{3,40} alone|gewünscht|do not|don't|never|always|avoid|use|make sure|under no circumstances)\b",
    re.IGNORECASE,
)
_STATE = re.compile(read_message_patterns()["stated_state"], re.IGNORECASE)
_PARTS = re.compile(r"[,;:()]| (?:since|because|and|but|which) |(?= so )")
_TERM = re.compile(r"\d+(?:[.,]\d+)*|[^\W_]+")
_LIGHT = STOP_WORDS.union(read_rule_words("light"))  # Words that say little about what an order is about.
_SHORT_CODE = re.compile(r"(?!BE|DO|GO|IF|IN|IS|IT|NO|OF|ON|OR|TO|WE)[A-Z]{2}")
_SHORT_YEAR = re.compile(r"\b\d\d?/\d\d?/(\d\d)\b")
_FIGURES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "ten": "10"}
_MONTH = re.compile(  # The number of the group that matches is the number of the month.
    "(january)|(february)|(march)|(april)|(may)|(june)|(july)|(august)|(september)|(october)|(november)|(december)"
)
_NUMBERS = {"one": 1.0, "two": 2.0, "three": 3.0, "five": 5.0, "seven": 7.0, "ten": 10.0, "half": 0.5, "twenty": 20.0}


async def find_unsupported_claims_of_fold(
    history: ConversationState, fold: Folded, cache: ContentCache
) -> Sequence[str]:
    """Return the sentences with claims that no covered message of this branch and no setting supports."""
    if not isinstance(span := fold.cover, Span):
        return []
    seqs = [seq for seq in history.branch.order if span.first <= seq <= span.last]
    sources = await span_text_and_detail_sources.read_detail_sources(history.branch, seqs, cache)
    sources += span_text_and_detail_sources.sources_beside_messages(history, seqs)
    return await asyncio.to_thread(find_unsupported_claims, fold.text, sources)


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """The texts of sources, compressed to save memory, and the users' messages among them."""

    packed: tuple[bytes, ...] = ()
    said: tuple[str, ...] = ()

    def with_sources(self, sources: Sequence[DetailSource]) -> "SourceTexts":
        calls = [source for source in sources if source.role == "call"]
        texts = [source.text for source in sources]
        texts += [f"{call.tool}\n{format_argument_values(call.text)}" for call in calls]
        texts += [change.path for source in sources for change in source.changes]
        joined = "\0".join(text.replace("\0", " ") for text in texts).encode("utf-8", "surrogatepass")
        said, reply = list[str](), ""
        for source in sources:
            if source.role == "user":
                said += [source.text, reply[-SEARCHED_PIECE:] * (len(source.text) < SHORT_ANSWER)]
            reply = source.text if source.role == "assistant" else reply
        return SourceTexts((*self.packed, zlib.compress(joined, 1)), (*self.said, *said))

    def unpack_texts(self) -> Iterator[str]:
        for each in self.packed:
            yield from zlib.decompress(each).decode("utf-8", "surrogatepass").split("\0")


def find_unsupported_claims(
    summary: str, sources: Sequence[DetailSource], more: SourceTexts | None = None
) -> list[str]:
    """Return sentences with claims that no source supports, each after its claim."""
    whole = split_sentences(_NO_CLAIM.sub("", summary))
    parts = (one[at : at + SEARCHED_PIECE] for one in whole for at in range(0, len(one), SEARCHED_PIECE))
    sentences = list(dict.fromkeys(parts))  # A model that loops repeats one thousands of times.
    known = _KnownWords((more or SourceTexts()).with_sources(sources), sentences)
    claims = ((one, dict.fromkeys(known.find_unsupported_in_sentence(one))) for one in sentences)
    named = ((one, ", ".join(each for each in found if each != one)) for one, found in claims if found)
    return [f"{found} — {one}" if found else one for one, found in named]


class _KnownWords:
    def __init__(self, sources: SourceTexts, sentences: Sequence[str]) -> None:
        self._sources = sources
        wanted = {stem for one in sentences for stem in _stems_of(one)}
        said = [[_stems_of(one, every=True) & wanted for one in split_sentences(text)] for text in sources.said]
        counts = Counter(stem for each in said for one in each for stem in one)
        number = sum(map(len, said)) + 2
        self._weights = {stem: math.log(number / (counts[stem] + 1)) for stem in wanted}
        # Consecutive sentences' words, as an order is often given in several.
        self._said = {frozenset().union(*each[n : n + SENTENCES_TOGETHER]) for each in said for n in range(len(each))}
        asked = {word for one in sentences for word in _casefolded_words(one)}
        asked |= {word.removesuffix("s") for word in asked} | _NUMBERS.keys()
        starts = {word[:SHORTENED] for word in asked if len(word) >= SHORTENED}
        words = map(str.casefold, self._read_words())  # A set of all would take half as much memory as the texts.
        self._words = {word for word in words if word in asked or word[:SHORTENED] in starts}
        capitals = {word for word in self._read_words() if word.isupper() and word.isalpha() and 3 <= len(word) <= 5}
        forms = {form for word in capitals for form in (word.lower(), word.capitalize())}
        written = forms.intersection(self._read_words())
        self._codes = {word for word in capitals if written.isdisjoint((word.lower(), word.capitalize()))}
        self._codes.difference_update(read_rule_words("no places"))
        files = {file for piece in self._pieces() if "." in piece or "/" in piece for file in _FILE.findall(piece)}
        self._files = set(map(_casefolded_base_name, files))
        self._words.update(read_rule_words("known to all"))
        self._suffixes = {file.casefold().rpartition(".")[2] for file in files if "/" in file}
        numbers, self._columns = set[float](), defaultdict[str, list[float]](list)
        self._listed = set[float]()  # The numbers of lines in listings.
        line = 0
        for whole in filter(_DIGITS.search, self._pieces()):
            found = _LINE_NUMBER.match(whole)
            before, line = line, int(found.group(1)) if found else 0
            piece = whole
            if found and line == before + 1:
                self._listed.add(line)
                piece = whole[found.end() :]
            numbers.update(_number_of(number) for number, _ in _FIGURE.findall(piece))
            numbers.update(map(float, _DIGITS.findall(piece)))  # even within dates
            numbers.update(map(float, _VERSION.findall(piece)))
            numbers.update(2000 + float(year) for year in _SHORT_YEAR.findall(piece))
            for label, minus, number in _PRICE.findall(piece):
                self._columns[label.lower() + minus].append(_number_of(number))
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
            if not (self._has_name(file) and self._has_file(file)):
                yield file
        rest = _FILE.sub("", rest)
        yield from (name for name in _find_names_in_sentence(rest) if not self._has_name(name))
        figures = _FIGURE.findall(rest)
        listed: set[float] = self._listed if "line" in rest or _LINE_NUMBER.match(rest) else set()
        rounded = set(_ROUNDED.findall(rest))
        for text, unit in figures:
            beside = [_number_of(other) for other, its in figures if other != text and self._has_figure(other, its, ())]
            value = _number_of(text)
            if value in listed or (text in rounded and self._has_rounded(value)):
                continue
            if not self._has_figure(text, unit.strip(), beside):
                yield text + unit
        if _states_order(sentence) and not (self._has_order(sentence) or self._has_orders_of_parts(sentence)):
            yield sentence

    def _has_quotation(self, quoted: str) -> bool:
        parts = (_normalise_case_and_spaces(part).strip(" .,;:!?") for part in re.split(r"…|\.\.\.|\[[^\]]*\]", quoted))
        texts = self._sources.unpack_texts
        return all(any(part in _normalise_case_and_spaces(text) for text in texts()) for part in parts)

    def _has_file(self, file: str) -> bool:
        """Whether a file's name occurs, also in an address. What ends like no path is code."""
        name = _casefolded_base_name(file)
        is_code = "/" not in file and name.rpartition(".")[2] not in self._suffixes
        if "." not in name or name in self._files or is_code:
            return True
        inside = re.compile(rf"(?<![\w.-]){re.escape(name)}(?!\w)")
        return any(name in piece and inside.search(piece) for piece in map(str.casefold, self._pieces()))

    def _has_name(self, name: str) -> bool:
        """Whether a name occurs, also without plural, as abbreviation, as a month's number or in part."""
        if "-" in name:
            spelled = re.compile(re.escape(name).replace(r"\-", "[-_ ]?"), re.IGNORECASE)
            return any(map(spelled.search, self._pieces()))
        shortened = len(name) >= SHORTENED and any(word.startswith(name) for word in self._words)
        if shortened or all(map(self._has_word, _casefolded_words(name))) or self._has_abbreviation(name):
            return True
        # In code, a name has no spaces and may be part of a longer one.
        joined = name.casefold().replace(" ", "")
        is_longer = " " in name or (len(name) > 3 and not name.istitle())
        return is_longer and any(joined in piece for piece in map(str.casefold, self._pieces()))

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
        """Whether a figure occurs, also rounded, converted, or computed from others."""
        value, known = _number_of(text), self._numbers
        if value < 0 and not re.fullmatch(r"\d\d?\.\d\d?\.(?:\d\d){1,2}", text):  # not a date
            return any(text in piece for piece in self._pieces())
        fraction = text.replace(",", ".").partition(".")[2]
        digits = 0 if value >= 1000 and value == int(value) else len(fraction)
        is_counted = value <= COUNTABLE and not digits and not unit
        if is_counted or value in known or (text[0] == "0" and value - 1 in known):
            return True
        prices = {price for column in self._columns.values() for price in column}
        near = known | _compute_from_figures_beside(beside)
        near |= {abs(price - each) for price in prices for each in beside}
        units = [by for by in UNITS if by % 1024 or "B" in unit] if unit and unit != "%" else []
        tried = [near, *({each / by for each in near} for by in units)]
        if unit == "%":
            tried.append({100 * each / whole for each in known for whole in beside if whole})
        fractions = [each for each in known if each % 1] if digits > 1 else []
        if len(fractions) <= MOST_COMPARED_FIGURES:
            tried.append({abs(one - other) for one, other in combinations(fractions, 2)})
        is_near = any(-0.5000001 <= (each - value) * 10**digits < 1 for each in chain(*tried))
        return is_near or self._is_sum_of_prices(value)

    def _has_rounded(self, value: float) -> bool:
        place = next(10**zeros for zeros in (4, 3, 2) if not value % 10**zeros)
        return any(-place / 2 <= each - value < place for each in self._numbers)

    def _is_sum_of_prices(self, value: float) -> bool:
        """Whether it is the sum of consecutive prices with the same label, as in a list of them."""
        columns = (prices for prices in self._columns.values() if len(prices) <= MOST_SUMMED_PRICES)
        runs = (prices[at : at + MOST_FIGURES_TOGETHER] for prices in columns for at in range(len(prices)))
        return any(value in accumulate(run) for run in runs)

    def _has_orders_of_parts(self, sentence: str) -> bool:
        """Whether all parts that are orders have a source; if none is, whether a user said one."""
        parts = _PARTS.split(sentence)
        if orders := list(filter(_states_order, parts)):
            return all(self._has_order(part, LEAST_WORDS) for part in orders)
        return any(len(stems) > 1 and self._was_said(stems) for stems in map(_stems_of, parts))

    def _has_order(self, text: str, least: int = 0) -> bool:
        wanted = _stems_of(text)
        was_said = self._was_said(wanted, least)
        if was_said or _ATTRIBUTED.search(text):
            return was_said or self._has_quotation(text)  # It may be copied from an output.
        enough = COPIED_SHARE * len(wanted)
        near = (piece for piece in self._pieces() if sum(map(piece.casefold().__contains__, wanted)) >= enough)
        return any(len(wanted & _stems_of(piece)) >= enough for piece in near)

    def _was_said(self, wanted: set[str], least: int = 0) -> bool:
        """Whether consecutive sentences of a user share enough words with it. Rare words count more."""
        enough = ORDER_SHARE * sum(map(self._weights.__getitem__, wanted))
        least = min(least, len(wanted))
        shared = (wanted & said for said in self._said)
        return any(len(one) >= least and sum(map(self._weights.__getitem__, one)) >= enough for one in shared)


def _compute_from_figures_beside(beside: Sequence[float]) -> set[float]:
    """Compute what a reader can check: sums, differences and products of two figures, and sums of consecutive ones."""
    figures = beside[:MOST_FIGURES_TOGETHER]
    pairs = [found for one, other in combinations(figures, 2) for found in (abs(one - other), one * other)]
    return {*pairs, *(sum(figures[start:end]) for start, end in combinations(range(len(figures) + 1), 2))}


def _states_order(text: str) -> bool:
    """Whether it is an order, or part of it one that is said to be somebody's."""
    if _STATE.search(text):
        return any(_ATTRIBUTED.search(part) and not _STATE.search(part) for part in _PARTS.split(text))
    return bool(_ORDERED.search(text))


def _find_names_in_sentence(sentence: str) -> Iterator[str]:
    yield from map("".join, _CODE.findall(sentence))
    for labelled, inside, first in _NAME.findall(sentence):
        named = labelled or first
        if not (_GERMAN.search(sentence) if inside else _NO_NAME.search(named) or _is_light(named)):
            yield inside or named


def _is_light(word: str) -> bool:
    return word.casefold() in _LIGHT or (len(word) < 3 and not word[-1].isdigit())


def _casefolded_words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _stems_of(text: str, *, every: bool = False) -> set[str]:
    """Return the beginnings of its words, of common ones only if all are wanted, and its numbers."""
    terms = _TERM.findall(text)
    if not every:
        terms = [one for one in terms if not _is_light(one) or _SHORT_CODE.fullmatch(one)]
    folded = (re.sub(r"(?:ing|ed|e?s)$", "", one.casefold()) for one in terms)
    return {_FIGURES.get(one, one if _DIGITS.search(one) else one[:STEM_LETTERS]) for one in folded}


def _casefolded_base_name(file: str) -> str:
    return file.casefold().rpartition("/")[2]


def _normalise_case_and_spaces(text: str) -> str:
    return " ".join(text.casefold().split())


def _number_of(text: str) -> float:
    grouped = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text)
    number = text.replace(",", "" if grouped else ".")
    return float(number) if number.count(".") < 2 else -1.0  # A number with two dots is a version or a date.
