"""Finds passages of a text with certain words, and says where else the words are.

A recalled passage is sent again with every later step, so it is shorter than a page.
Passages are chosen by the words that are rare in the text; a word that does not occur
changes nothing. No line is shown twice, even if a file was read five times.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from helix_desktop.engine.ports import TokenCounter
from helix_desktop.fast_dataclass import dataclass

# The most tokens of one result's passages, as every later step sends them again.
PASSAGES_TOKENS = 500
MOST_LINES_AROUND = 10  # More lines around a hit would take the room of other passages.
# Other searched words up to this many lines away raise a hit's rank, by this factor
# less for each line.
NEARBY_LINES = 5
NEARBY_WORTH = 0.8
# The gain for a word that follows its predecessor in the query within this many characters.
FOLLOWING_WORTH = 0.8
FOLLOWING_WITHIN = 8
# Further hits are only listed with their lines.
MOST_IN_ONE_TEXT = 2
MOST_IN_ALL_TEXTS = 4
WORTH_SHOWING = 0.4  # Hits that rank below this share of the best one are only listed, too.
SHOWN_WORTH = 0.5  # The weight of words that a better passage shows: the others may be elsewhere.
IN_VIEW_WORTH = 0.4  # The weight of lines that the view shows: nobody has to search for them.
MOST_WORDS = 16
MOST_HITS = 2_000
MOST_OTHER_HITS = 12
LONGEST_LINE = 1_000  # A line with more characters is cut to the part around the match.
# A text of at most this many characters a token may fit whole, so its tokens are counted.
CHARACTERS_OF_LONG_TOKENS = 8
_WORD = re.compile(r"[\w./-]+")

# By line number: the searched words in the line, and how rare each is.
Hits = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class LineSpan:
    """Neighbouring lines, by the numbers of the first and the last, counted from 1."""

    first: int
    last: int

    def has_line(self, number: int) -> bool:
        return self.first <= number <= self.last

    def line_numbers(self) -> range:
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class _TextAmongOthers:
    """One of several texts, and its lines as numbered over all texts together."""

    name: str
    span: LineSpan


def find_passages(
    tokens: TokenCounter, lines: Sequence[str], words: str, limit: int = PASSAGES_TOKENS
) -> str:
    """Return the best passages of one text in order, or all of a short text, or nothing.

    A passage is a line with searched words and some lines around it.
    """
    hits = _find_lines_with_words(lines, words)
    if not hits:
        return ""
    characters = sum(map(len, lines))
    if characters <= limit * CHARACTERS_OF_LONG_TOKENS:
        whole_text = "\n".join(lines)
        if tokens.count_tokens(whole_text) <= limit:
            return whole_text
    only_text = _TextAmongOthers("", LineSpan(1, len(lines)))
    choice = _PassageChoice(tokens, lines, hits, [only_text], limit)
    choice.choose_passages(MOST_IN_ONE_TEXT)
    rows = []
    for span in choice.passages_in_order():
        rows.append(f"[lines {span.first}-{span.last} of {len(lines):,}]")
        rows += _lines_of_passage(lines, span, hits)
    rows.append(_describe_other_hits(hits, choice.passages))
    return "\n".join(rows)


def find_passages_in_texts(
    tokens: TokenCounter,
    texts: Sequence[tuple[str, Sequence[str]]],
    words: str,
    limit: int = PASSAGES_TOKENS,
    in_view: Collection[str] = (),
) -> str:
    """Return the best passages of several texts, each of which has a name and lines.

    `in_view`: the lines that the model can see anyway, without the blanks around them. They
    count less. Of equally good passages, that of an earlier text is shown.
    """
    # All texts are searched as one, so that a word's rarity is the same in each of them.
    lines: list[str] = []
    named_texts: list[_TextAmongOthers] = []
    for name, text in texts:
        first = len(lines) + 1
        lines += text
        last = len(lines)
        named_texts.append(_TextAmongOthers(name, LineSpan(first, last)))
    lines_with_words = _find_lines_with_words(lines, words)
    hits = _lower_lines_in_view(lines_with_words, lines, in_view)
    choice = _PassageChoice(tokens, lines, hits, named_texts, limit)
    choice.choose_passages(MOST_IN_ALL_TEXTS)
    rows = []
    for span in choice.passages_in_order():
        # People count the lines of each text from 1.
        text_of_span = choice.text_with_line(span.first)
        lines_before_text = text_of_span.span.first - 1
        first_line = span.first - lines_before_text
        last_line = span.last - lines_before_text
        line_count = text_of_span.span.last - lines_before_text
        rows.append(f"[lines {first_line}-{last_line} of {line_count:,} of {text_of_span.name}]")
        rows += _lines_of_passage(lines, span, hits)
    return "\n".join(rows)


def _lower_lines_in_view(hits: Hits, lines: Sequence[str], in_view: Collection[str]) -> Hits:
    lowered: dict[int, Mapping[str, float]] = {}
    for number, rarities in hits.items():
        if lines[number - 1].strip() in in_view:
            lowered[number] = {word: rare * IN_VIEW_WORTH for word, rare in rarities.items()}
        else:
            lowered[number] = rarities
    return lowered


@dataclass(slots=True)
class _PassageChoice:
    """Chooses passages one after the other: each shows a line that no better one shows."""

    tokens: TokenCounter
    lines: Sequence[str]
    hits: Hits
    texts: Sequence[_TextAmongOthers]
    free_tokens: int
    passages: list[LineSpan] = field(default_factory=list)  # The best first.
    _shown_lines: set[str] = field(default_factory=set)
    _shown_words: set[str] = field(default_factory=set)

    def choose_passages(self, most: int) -> None:
        """Choose up to `most` passages, as many as fit."""
        worths = _weigh_hits_with_neighbours(self.hits)
        while len(self.passages) < most:
            hit = self._best_hit(worths)
            if hit == 0:
                return
            span = self._fit_passage(hit)
            if span is None:
                return
            self._add_passage(span)

    def passages_in_order(self) -> list[LineSpan]:
        return sorted(self.passages, key=lambda span: span.first)

    def text_with_line(self, number: int) -> _TextAmongOthers:
        for text in self.texts:
            if text.span.has_line(number):
                return text
        raise IndexError(number)

    def _best_hit(self, worths: Hits) -> int:
        """Return the best line that no passage shows, the first of equal ones, or 0.

        Words that a passage shows already count less.
        """
        best_number = 0
        best_worth = -1.0
        for number in sorted(worths):
            if self._is_shown(number):
                continue
            worth = 0.0
            for word, rare in worths[number].items():
                if word in self._shown_words:
                    worth += rare * SHOWN_WORTH
                else:
                    worth += rare
            if worth > best_worth:
                best_number = number
                best_worth = worth
        return best_number

    def _is_shown(self, number: int) -> bool:
        if any(span.has_line(number) for span in self.passages):
            return True
        # The same file may have been read several times.
        return self.lines[number - 1].strip() in self._shown_lines

    def _fit_passage(self, hit: int) -> LineSpan | None:
        """Return as many lines around a hit as there are tokens left for, or None if not even its
        own line fits. The best hit is shown in any case.
        """
        allowed = self._lines_free_around(hit)
        for lines_around in (MOST_LINES_AROUND, MOST_LINES_AROUND // 2, MOST_LINES_AROUND // 4, 0):
            first_line = max(allowed.first, hit - lines_around)
            last_line = min(allowed.last, hit + lines_around)
            span = LineSpan(first_line, last_line)
            if self._count_passage_tokens(span, {}) <= self.free_tokens:
                return span
        is_best_hit = not self.passages
        if is_best_hit:
            return LineSpan(hit, hit)
        return None

    def _lines_free_around(self, hit: int) -> LineSpan:
        """Return the lines of the hit's text that lie between the passages chosen already."""
        text_span = self.text_with_line(hit).span
        first_free = text_span.first
        last_free = text_span.last
        for passage in self.passages:
            if passage.last < hit:
                first_free = max(first_free, passage.last + 1)
            if passage.first > hit:
                last_free = min(last_free, passage.first - 1)
        return LineSpan(first_free, last_free)

    def _add_passage(self, span: LineSpan) -> None:
        self.passages.append(span)
        for number in span.line_numbers():
            self._shown_lines.add(self.lines[number - 1].strip())
            self._shown_words.update(self.hits.get(number, ()))
        self.free_tokens -= self._count_passage_tokens(span, self.hits)

    def _count_passage_tokens(self, span: LineSpan, hits: Hits) -> int:
        passage = "\n".join(_lines_of_passage(self.lines, span, hits))
        return self.tokens.count_tokens(passage)


def _find_lines_with_words(lines: Sequence[str], words: str) -> Hits:
    """Return the lines with searched words. A rare word weighs more than a common one."""
    searched_words = _split_into_words(words)
    lower_lines = [line.casefold() for line in lines]
    hits: dict[int, dict[str, float]] = {}
    for word in searched_words:
        numbers = [number for number, line in enumerate(lower_lines, 1) if word in line]
        if not numbers:
            continue
        rarity = math.log(1 + len(lines) / len(numbers))
        for number in numbers[:MOST_HITS]:
            rarities = hits.setdefault(number, {})
            rarities[word] = rarity

    for number, rarities_of_words in hits.items():
        lower_line = lower_lines[number - 1]
        rarities_of_words.update(_rarities_of_pairs(lower_line, searched_words, rarities_of_words))
    return hits


def _rarities_of_pairs(
    lower_line: str, searched_words: Sequence[str], rarities: Mapping[str, float]
) -> dict[str, float]:
    """Return what a line gains by words that follow each other as in the query: these weigh more
    than both apart.
    """
    rarities_of_pairs: dict[str, float] = {}
    for word, next_word in pairwise(searched_words):
        if word not in rarities or next_word not in rarities:
            continue
        if _is_followed_by(lower_line, word, next_word):
            lower_rarity = min(rarities[word], rarities[next_word])
            rarities_of_pairs[f"{word} {next_word}"] = FOLLOWING_WORTH * lower_rarity
    return rarities_of_pairs


def _split_into_words(words: str) -> list[str]:
    """Return the different words of a query, without a sentence's full stop behind them."""
    split_words: dict[str, None] = {}
    for word in _WORD.findall(words):
        plain = word.rstrip("./-").casefold()
        if plain:
            split_words[plain] = None
    return list(split_words)[:MOST_WORDS]


def _is_followed_by(line: str, word: str, next_word: str) -> bool:
    """Whether the next word comes soon after the first place of a word, as in the query."""
    end_of_word = line.find(word) + len(word)
    searched_end = end_of_word + FOLLOWING_WITHIN + len(next_word)
    return next_word in line[end_of_word:searched_end]


def _weigh_hits_with_neighbours(hits: Hits) -> Hits:
    """Return the lines worth showing, with the words in and near each of them."""
    weights_by_line: dict[int, dict[str, float]] = {}
    for number, rarities in hits.items():
        weights = dict(rarities)
        for distance in range(1, NEARBY_LINES + 1):
            share = NEARBY_WORTH / (1 + distance / 2)
            _raise_weights(weights, hits.get(number - distance, {}), share)
            _raise_weights(weights, hits.get(number + distance, {}), share)
        weights_by_line[number] = weights
    return _keep_lines_worth_showing(weights_by_line)


def _keep_lines_worth_showing(weights_by_line: Hits) -> Hits:
    """Return the lines whose words weigh at least a certain share of what those of the best line
    weigh.
    """
    best_worth = 0.0
    for weights in weights_by_line.values():
        best_worth = max(best_worth, sum(weights.values()))
    lines_worth_showing: dict[int, Mapping[str, float]] = {}
    for number, weights in weights_by_line.items():
        if sum(weights.values()) >= WORTH_SHOWING * best_worth:
            lines_worth_showing[number] = weights
    return lines_worth_showing


def _raise_weights(weights: dict[str, float], neighbour: Mapping[str, float], share: float) -> None:
    for word, rare in neighbour.items():
        weights[word] = max(weights.get(word, 0), rare * share)


def _lines_of_passage(lines: Sequence[str], span: LineSpan, hits: Hits) -> list[str]:
    shown = []
    for number in span.line_numbers():
        shown.append(_shorten_line(lines[number - 1], hits.get(number, {})))
    return shown


def _shorten_line(line: str, words: Iterable[str]) -> str:
    """Return a line, or the part of a very long line around a word, with its position."""
    if len(line) <= LONGEST_LINE:
        return line
    first_position = _find_first_word(line, words)
    start = max(0, first_position - LONGEST_LINE // 2)
    end = min(start + LONGEST_LINE, len(line))
    return f"[characters {start + 1:,}-{end:,} of {len(line):,}] {line[start:end]}"


def _find_first_word(line: str, words: Iterable[str]) -> int:
    """Return where in a line the first of the words begins, whatever its case."""
    folded_line = line.casefold()
    positions = [folded_line.find(word) for word in words if word in folded_line]
    position = min(positions, default=0)
    if len(folded_line) == len(line):
        return position
    # Some letters are longer without their case: "ß" becomes "ss".
    folded_length = 0
    for index, character in enumerate(line):
        if folded_length >= position:
            return index
        folded_length += len(character.casefold())
    return len(line)


def _describe_other_hits(hits: Iterable[int], passages: Sequence[LineSpan]) -> str:
    """Say where else the words are, and how to ask for these lines."""
    shown_lines: set[int] = set()
    for span in passages:
        shown_lines.update(span.line_numbers())
    other_lines = [number for number in sorted(hits) if number not in shown_lines]
    next_line = max(shown_lines) + 1
    way_on = f'go on with lines="{next_line}-"'
    if not other_lines:
        return f"[{way_on}]"
    listed = ", ".join(map(str, other_lines[:MOST_OTHER_HITS]))
    if len(other_lines) > MOST_OTHER_HITS:
        listed += f", … {len(other_lines) - MOST_OTHER_HITS} more"
    return f"[also in lines {listed}; {way_on}]"
