"""Finds text in a history that looks like a key, so that its owner can have it forgotten."""

import re
from collections.abc import Iterable, Iterator

from helix_desktop.engine.fact_encoding import encode_fact
from helix_desktop.engine.facts import Recorded, ToolReturned
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.resources import read_word_lists

# Each key contains one of these, and most texts contain none. Patterns with a fixed
# first character are fastest.
_MARKS = [re.compile(mark) for mark in read_word_lists("history_words")["key_marks"]]
_KEY = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{20,}|gh[po]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{18,}|xox[abps]-[A-Za-z0-9-]{16,}|A[KS]IA[0-9A-Z]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{30,}"
    r"|xai-[A-Za-z0-9]{30,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\n]{40,}?-----END [A-Z ]*PRIV"
    r"ATE KEY-----"
)
_LINE_END = re.compile(r"\\+n")
_AT_ONCE = 1 << 16  # Longer texts are searched in parts, because a search blocks other threads.
_OVERLAP = 4_096


def find_keys(text: str) -> Iterator[str]:
    """Yield everything that looks like a key, as often as it occurs."""
    for start in range(0, len(text), _AT_ONCE):
        end = start + _AT_ONCE
        # A search for the beginnings alone is faster, and most texts have none.
        has_mark = any(mark.search(text, start, end + _OVERLAP) for mark in _MARKS)
        if has_mark:
            for match in _KEY.finditer(text, start, end + _OVERLAP):
                # What begins in the overlap is found in the next part.
                if match.start() < end:
                    yield match[0]


def find_keys_in_facts(recorded_facts: Iterable[Recorded], contents: Iterable[bytes]) -> list[str]:
    """Return each key once, as it was written: in facts, and in arguments of calls,
    line ends are escaped.
    """
    texts = [encode_fact(recorded.fact) for recorded in recorded_facts]
    for content in contents:
        texts.append(content.decode("utf-8", "replace"))
    keys: dict[str, None] = {}
    for text in texts:
        for key in find_keys(text):
            keys[_LINE_END.sub("\n", key)] = None
    return list(keys)


def list_outputs_beside_facts(recorded_facts: Iterable[Recorded]) -> list[Digest]:
    """Return the outputs whose text does not stand in the facts, and is searched beside them."""
    digests: list[Digest] = []
    for recorded in recorded_facts:
        fact = recorded.fact
        if isinstance(fact, ToolReturned) and not fact.head:
            digests.append(fact.output.digest)
    return digests


def mask_key(key: str) -> str:
    """Return just enough of a key to recognise it."""
    if key.startswith("-----BEGIN"):
        # The line break may be written as two characters.
        first_line, _, _ = key.replace("\\n", "\n").partition("\n")
        return f"{first_line}…"
    return f"{key[:7]}…{key[-2:]}"


def longest_first(keys: Iterable[str]) -> list[str]:
    """Return the keys in the order in which to remove them. One can be the beginning of another,
    such as where a program printed only that, and the rest of the other would stay.
    """
    return sorted(keys, key=len, reverse=True)


def mask_keys(text: str) -> str:
    """Return the text with just the ends of everything in it that looks like a key."""
    masked_text = text
    for key in longest_first(set(find_keys(text))):
        masked_text = masked_text.replace(key, mask_key(key))
    return masked_text
