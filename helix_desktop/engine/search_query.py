"""Parses search queries: words by their stems, phrases in quotes, and filters such as
`tool:` and `before:`.
"""

import functools
import re
from datetime import UTC, datetime
from typing import Any

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_word_lists, resources_folder

FILTERS = ("tool", "file", "by", "agent", "before", "after")
LEAST_STEM = 4  # An ending is removed only if this many letters of the word are left.
_FILTER = re.compile(rf"(?<!\S)({'|'.join(FILTERS)}):(?!//)(\"[^\"]+\"|\S+)", re.IGNORECASE)
_ENDINGS = read_word_lists("words")["endings"]
_FIRST_PERSON = re.compile(r"\b(?:I|[Mm](?:y|e|ine|ir|ich|ein|eine[mnrs]?)|[Ii]ch)\b|我")
STOP_WORDS = frozenset((resources_folder() / "stop_words.txt").read_text("utf-8").split())


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """Filters of a search. `by`: user, agent or tool. Times are in seconds since 1970."""

    tool: str = ""
    file: str = ""
    by: str = ""
    agent: str = ""
    before: float = 0.0
    after: float = 0.0

    def is_in_time(self, time: float) -> bool:
        if self.before and time >= self.before:
            return False
        return time >= self.after


def split_query_into_words_and_filters(query: str) -> tuple[str, SearchFilters]:
    """Split a query into words and filters. Raises InvalidInput for a value that
    nothing could match.
    """
    values_by_filter: dict[str, Any] = {}
    for match in _FILTER.finditer(query):
        name = match[1].lower()
        value = match[2].strip('"')
        if name == "by" and value.casefold() not in ("user", "agent", "tool"):
            raise InvalidInput(
                f"“by:” does not know “{value}”.", remedy="After “by:”, write user, agent or tool."
            )
        if name in ("before", "after"):
            values_by_filter[name] = _time_of_date(value)
        else:
            values_by_filter[name] = value.casefold()
    words = _FILTER.sub(" ", query).strip()
    return words, SearchFilters(**values_by_filter)


def _time_of_date(value: str) -> float:
    """Return when a day, month or year begins, in seconds since 1970."""
    for date_format in ("%Y-%m-%d", "%Y-%m", "%Y", "%d.%m.%Y"):
        try:
            date = datetime.strptime(value, date_format).replace(tzinfo=UTC)
        except ValueError:
            continue
        return date.timestamp()
    raise InvalidInput(
        f"“{value}” is not a date.", remedy="Write a date as 2026-03-31, 2026-03 or 2026."
    )


# The same words are in many texts, and in the descriptions of thousands of tools.
@functools.lru_cache(1 << 15)
def stem_of_word(word: str) -> str:
    """Return the stem of an English or German word. Short and other words stay unchanged."""
    lower_word = word.casefold().rstrip("*")
    if not re.fullmatch("[a-zäöüß]+", lower_word):
        return lower_word
    stem = _without_ending(lower_word)
    # The last letter of "running" was doubled before the ending; that of "calling" was not.
    is_doubled = len(stem) > LEAST_STEM and stem[-1] == stem[-2]
    if is_doubled and stem[-1] not in "ls":
        return stem[:-1]
    return stem


def _without_ending(word: str) -> str:
    """Return a word without its first known ending that leaves enough of it."""
    for ending in _ENDINGS:
        stem_length = len(word) - len(ending)
        if word.endswith(ending) and stem_length >= LEAST_STEM:
            return word.removesuffix(ending)
    return word


def query_words_and_user_if_first_person(query: str) -> frozenset[str]:
    """Return the words of a query in lower case, and `user` if the query says "I" or "my"."""
    words = set(re.findall(r"\w+", query.casefold()))
    if _FIRST_PERSON.search(query):
        words.add("user")
    return frozenset(words)


def without_stop_words(words: list[str]) -> list[str]:
    """Return the meaningful words, or all if none is."""
    meaningful = []
    for word in words:
        if word.casefold().strip(".,;:?!") not in STOP_WORDS:
            meaningful.append(word)
    return meaningful or words
