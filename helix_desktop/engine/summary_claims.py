"""Finds claims in a summary that its sources do not support: files, names, figures,
quotations and orders.

It compares words alone. A file or name must occur in the sources, a figure also rounded or in
another unit. Whether an order was invented is a matter of degree: `invented_order_score.py` weighs
it. A claim found may still be true. So it is shown to a person, and the writer is asked again;
nothing is removed.
"""

import asyncio
import re
import zlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, combinations, filterfalse

from helix_desktop.engine import span_text_and_detail_sources
from helix_desktop.engine.agent_findings import split_sentences
from helix_desktop.engine.conversation_details import DetailSource, format_argument_values
from helix_desktop.engine.facts import Folded, Span
from helix_desktop.engine.invented_order_score import SaidWords, is_light_word, stems_in_pieces
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.stated_rules_and_decisions import compile_rule_words, read_rule_words
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import resources_folder

SEARCHED_PIECE = 2_000  # Searching more characters at once would block other threads.
COUNTABLE = 12  # Whole numbers up to this need no source, as the writer may have counted something.
MOST_FIGURES_TOGETHER = (
    8  # With more figures in a sentence, one that was invented would soon be a sum of others.
)
MOST_COMPARED_FIGURES = 12  # Of more known fractions than this, no differences are computed.
MOST_SUMMED_PRICES = 200  # With more prices of one label, any number would soon be a sum of some.
SHORTENED = 7  # A prefix of at least this many letters counts as the whole word.
SHORT_ANSWER = 200  # A message of fewer characters may agree to what was proposed before it.
UNITS = (1000, 1024, 60, 1000**2, 1024**2, 3600, 1000**3, 1024**3)

_WORD = re.compile(r"\w+")
# In German all nouns are capitalised, not only names.
_KINDS = "files,figures,prices,code names,names,no names,german,no claims,versions,rounded,quotations,short years"
(
    _FILE,
    _FIGURE,
    _PRICE,
    _CODE,
    _NAME,
    _NO_NAME,
    _GERMAN,
    _NO_CLAIM,
    _VERSION,
    _ROUNDED,
    _QUOTATION,
    _SHORT_YEAR,
) = map(compile_rule_words, _KINDS.split(","))
_STRANGE = compile_rule_words(
    "strange"
)  # Where a word in small letters or in the first place may be a name.
_LINE_NUMBER = re.compile(r" {0,9}(\d{1,9})(?:\t|→|[:|](?!\d))")  # As in a listing of a file.
_DIGITS = re.compile(r"\d{1,30}")
_MONTHS = ("", *read_rule_words("months"))  # The calendar's own names depend on the locale.
_NUMBERS = {
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "five": 5.0,
    "seven": 7.0,
    "ten": 10.0,
    "half": 0.5,
    "twenty": 20.0,
}


async def find_unsupported_claims_of_fold(
    history: ConversationState, fold: Folded, cache: ContentCache
) -> Sequence[str]:
    """Return the sentences with claims that no covered message of this branch and no
    setting supports.
    """
    if not isinstance(span := fold.cover, Span):
        return []
    seqs = [seq for seq in history.branch.order if span.first <= seq <= span.last]
    sources = await span_text_and_detail_sources.read_detail_sources(history.branch, seqs, cache)
    sources += span_text_and_detail_sources.sources_beside_messages(history, seqs)
    return await asyncio.to_thread(find_unsupported_claims, fold.text, sources)


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """The texts of sources, compressed to save memory, the users' messages among them,
    and what they agreed to.
    """

    packed: tuple[bytes, ...] = ()
    said: tuple[str, ...] = ()
    agreed: tuple[str, ...] = ()

    def with_sources(self, sources: Sequence[DetailSource]) -> "SourceTexts":
        calls = [source for source in sources if source.role == "call"]
        texts = [source.text for source in sources]
        texts += [f"{call.tool}\n{format_argument_values(call.text)}" for call in calls]
        texts += [change.path for source in sources for change in source.changes]
        joined = "\0".join(text.replace("\0", " ") for text in texts)
        packed = (*self.packed, zlib.compress(joined.encode("utf-8", "surrogatepass"), 1))
        said, agreed, reply = (
            [source.text for source in sources if source.role == "user"],
            list[str](),
            "",
        )
        for source in sources:
            if source.role == "user" and len(source.text) < SHORT_ANSWER:
                agreed.append(reply[-SEARCHED_PIECE:])
            reply = source.text if source.role == "assistant" else reply
        return SourceTexts(packed, (*self.said, *said), (*self.agreed, *agreed))

    def unpack_texts(self) -> Iterator[str]:
        for each in self.packed:
            yield from zlib.decompress(each).decode("utf-8", "surrogatepass").split("\0")


def find_unsupported_claims(
    summary: str, sources: Sequence[DetailSource], more: SourceTexts | None = None
) -> list[str]:
    """Return sentences with claims that no source supports, each after its claim."""
    whole = split_sentences(_NO_CLAIM.sub("", summary))
    parts = (
        one[at : at + SEARCHED_PIECE] for one in whole for at in range(0, len(one), SEARCHED_PIECE)
    )
    sentences = list(dict.fromkeys(parts))  # A model that loops repeats one thousands of times.
    known = _KnownWords((more or SourceTexts()).with_sources(sources), sentences)
    claims = ((one, dict.fromkeys(known.find_unsupported_in_sentence(one))) for one in sentences)
    named = (
        (one, ", ".join(each for each in found if each != one)) for one, found in claims if found
    )
    return [f"{found} — {one}" if found else one for one, found in named]


class _KnownWords:
    def __init__(self, sources: SourceTexts, sentences: Sequence[str]) -> None:
        self._sources = sources
        self._orders = SaidWords(sources.said, sources.agreed, sentences)
        self._stems = stems_in_pieces(self._orders.wanted, self._pieces())
        asked = {word for one in sentences for word in _WORD.findall(one.casefold())}
        asked |= {word.removesuffix("s") for word in asked} | _NUMBERS.keys()
        starts = {word[:SHORTENED] for word in asked if len(word) >= SHORTENED}
        # A set of all would take half as much memory as the texts.
        words = chain(map(str.casefold, self._read_words()), read_rule_words("known to all"))
        self._words = {word for word in words if word in asked or word[:SHORTENED] in starts}
        capitals = {
            word
            for word in self._read_words()
            if word.isupper() and word.isalpha() and 3 <= len(word) <= 5
        }
        forms = {form for word in capitals for form in (word.lower(), word.capitalize())}
        written = forms.intersection(self._read_words())
        self._codes = {
            word for word in capitals if written.isdisjoint((word.lower(), word.capitalize()))
        }
        self._codes.difference_update(read_rule_words("no places"))
        files = {
            file
            for piece in self._pieces()
            if "." in piece or "/" in piece
            for file in _FILE.findall(piece)
        }
        self._files = {file.casefold().rpartition("/")[2] for file in files}
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
        return (
            line[at : at + SEARCHED_PIECE]
            for line in lines
            for at in range(0, len(line), SEARCHED_PIECE)
        )

    def find_unsupported_in_sentence(self, sentence: str) -> Iterator[str]:
        quoted = ("".join(found) for found in _QUOTATION.findall(sentence))
        yield from (text for text in quoted if " " in text and not self._has_quotation(text))
        rest = _QUOTATION.sub("", sentence)
        for file in (found.rstrip(".") for found in _FILE.findall(rest)):
            if not (self._has_name(file) and self._has_file(file)):
                yield file
        rest = _FILE.sub(" ", rest)
        yield from (name for name in _find_names_in_sentence(rest) if not self._has_name(name))
        strange = (
            []
            if _GERMAN.search(rest)
            else filterfalse(_NO_NAME.search, map("".join, _STRANGE.findall(rest)))
        )
        yield from (
            word
            for word in strange
            if not (is_light_word(word) or self._has_name(word) or _is_common(word))
        )
        figures = _FIGURE.findall(rest)
        listed: set[float] = self._listed if "line" in rest or _LINE_NUMBER.match(rest) else set()
        rounded = set(_ROUNDED.findall(rest))
        for text, unit in figures:
            beside = [
                _number_of(other)
                for other, its in figures
                if other != text and self._has_figure(other, its, ())
            ]
            value = _number_of(text)
            is_known = value in listed or (text in rounded and self._has_rounded(value))
            if not (is_known or self._has_figure(text, unit.strip(), beside)):
                yield text + unit
        if self._orders.is_invented(sentence, self._stems) and not self._has_quotation(sentence):
            yield sentence

    def _has_quotation(self, quoted: str) -> bool:
        parts = (
            _normalise_case_and_spaces(part).strip(" .,;:!?")
            for part in re.split(r"…|\.\.\.|\[[^\]]*\]", quoted)
        )
        texts = self._sources.unpack_texts
        return all(
            any(part in _normalise_case_and_spaces(text) for text in texts()) for part in parts
        )

    def _has_file(self, file: str) -> bool:
        """Whether a file's name occurs, also in an address. What ends like no path is code."""
        name = file.casefold().rpartition("/")[2]
        is_code = "/" not in file and name.rpartition(".")[2] not in self._suffixes
        if "." not in name or name in self._files or is_code:
            return True
        inside = re.compile(rf"(?<![\w.-]){re.escape(name)}(?!\w)")
        return any(
            name in piece and inside.search(piece) for piece in map(str.casefold, self._pieces())
        )

    def _has_name(self, name: str) -> bool:
        """Whether a name occurs, also without plural, as abbreviation, as a month's
        number or in part.
        """
        if "-" in name:
            spelled = re.compile(re.escape(name).replace(r"\-", "[-_ ]?"), re.IGNORECASE)
            return any(map(spelled.search, self._pieces()))
        shortened = len(name) >= SHORTENED and any(word.startswith(name) for word in self._words)
        if (
            shortened
            or all(map(self._has_word, _WORD.findall(name.casefold())))
            or self._has_abbreviation(name)
        ):
            return True
        # In code, a name has no spaces and may be part of a longer one.
        joined = name.casefold().replace(" ", "")
        is_longer = " " in name or (len(name) > 3 and not name.istitle())
        return is_longer and any(joined in piece for piece in map(str.casefold, self._pieces()))

    def _has_word(self, word: str) -> bool:
        is_month = word in _MONTHS and _MONTHS.index(word) in self._numbers
        return is_month or bool({word, word.removesuffix("s")} & self._words)

    def _has_abbreviation(self, name: str) -> bool:
        """Whether the name's beginning, its initials or the code of a city's airport
        occur in capitals.
        """
        letters, initials = name.upper().replace(" ", ""), "".join(word[0] for word in name.split())
        starts = [code for code in self._codes if initials[1:] and code.startswith(initials)]
        near = [
            line
            for line in read_rule_words("airports")
            if line[4:] == name.lower() and line[:3] in self._codes
        ]
        return name.istitle() and bool(starts or near or any(map(letters.startswith, self._codes)))

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
        runs = (
            prices[at : at + MOST_FIGURES_TOGETHER]
            for prices in columns
            for at in range(len(prices))
        )
        return any(value in accumulate(run) for run in runs)


def _compute_from_figures_beside(beside: Sequence[float]) -> set[float]:
    """Compute what a reader can check: sums, differences and products of two figures,
    and sums of consecutive ones.
    """
    figures = beside[:MOST_FIGURES_TOGETHER]
    pairs = [
        found
        for one, other in combinations(figures, 2)
        for found in (abs(one - other), one * other)
    ]
    return {
        *pairs,
        *(sum(figures[start:end]) for start, end in combinations(range(len(figures) + 1), 2)),
    }


def _find_names_in_sentence(sentence: str) -> Iterator[str]:
    yield from map("".join, _CODE.findall(sentence))
    for labelled, inside, first in _NAME.findall(sentence):
        named = labelled or first
        if not (
            _GERMAN.search(sentence) if inside else _NO_NAME.search(named) or is_light_word(named)
        ):
            yield inside or named


@cache
def _is_common(word: str) -> bool:
    """Whether the token vocabulary has each of its parts as a whole."""
    tokens = (resources_folder() / "encodings" / "o200k_base.tiktoken").read_bytes()
    return all(
        b"\n%s " % b64encode(f" {part}".encode()) in tokens for part in word.lower().split("-")
    )


def _normalise_case_and_spaces(text: str) -> str:
    return " ".join(text.casefold().split())


def _number_of(text: str) -> float:
    grouped = re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text)
    number = text.replace(",", "" if grouped else ".")
    return (
        float(number) if number.count(".") < 2 else -1.0
    )  # A number with two dots is a version or a date.
