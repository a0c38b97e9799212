"""Finds details that a session's folds may have lost, without using the engine.

Unlike `engine/conversation_details.py`, it reads the recording instead of the facts, with patterns
of its own. A folded message's detail is lost if it is neither in the view nor in an entry that the
view names.
"""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator

from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.facts import Stored, Text
from helix_desktop.engine.messages import Block
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_result_reading import parse_call_arguments
from helix_desktop.errors import HelixError
from helix_desktop.histories.recorded_session import RecordedMessage
from helix_desktop.json_values import text_at

NAMED = re.compile(r'recall_cached_content\(\\?"([0-9a-f]{64})\\?"\)')
_NAME = re.compile(r"[A-Za-z_][\w./-]{9,80}")
_ADDRESS = re.compile(r"https?://[\w./%?=&#~+:@-]+[\w/]")
_DEMAND = re.compile(
    r"\b(?:must|never|always|do not|don't|only|prefer|please use)\b", re.IGNORECASE
)
_TROUBLE = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception): .*|^(?:FAILED|ERROR) .*|^E   .*", re.MULTILINE
)
_ENDS = re.compile(r"(?<=[.!?])\s+|\n")
_PATH_KEYS = ("path", "file_path", "filename", "file", "notebook_path", "old_path", "new_path")
# In characters. A replay must still contain only this much of a user's demand or an error.
SHOWN = 300

Read = Callable[[Digest], Awaitable[bytes]]


def details_of_recorded_message(message: RecordedMessage) -> Iterator[str]:
    """Yield what must not get lost when a message is replaced by a shorter text.

    That is each demand of the user word for word, and errors, addresses, paths and names.
    """
    if message.role == "user":
        # What an agent's own program adds is nobody's demand.
        words, _ = split_off_agent_additions([Text(message.text)])
        for sentence in _ENDS.split(words):
            if _DEMAND.search(sentence):
                yield sentence.strip()[:SHOWN]
    if message.role == "tool":
        for error_line in _TROUBLE.findall(message.text):
            yield error_line.strip()[:SHOWN]
    for call in message.calls:
        yield from _paths_in_call(call.arguments)
    for text in _texts_of_message(message):
        plain_text = text_or_json_values(text)
        yield from _ADDRESS.findall(plain_text)
        yield from _NAME.findall(plain_text)


def _paths_in_call(arguments: str) -> Iterator[str]:
    values = parse_call_arguments(arguments)
    for key in _PATH_KEYS:
        path = text_at(values, key)
        if path:
            yield path


def _texts_of_message(message: RecordedMessage) -> Iterator[str]:
    yield message.text
    for call in message.calls:
        yield call.arguments


def text_or_json_values(text: str) -> str:
    """Return a JSON object's values as lines, or any other text unchanged."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return "\n".join(_values_in_json(json.loads(text)))
    except (ValueError, RecursionError):
        return text


def _values_in_json(value: object) -> Iterator[str]:
    """Yield the names and values in a JSON value, at any depth, as texts."""
    if isinstance(value, dict):
        for key, field_value in value.items():
            yield str(key)
            yield from _values_in_json(field_value)
    elif isinstance(value, list):
        for element in value:
            yield from _values_in_json(element)
    else:
        yield str(value)


def digests_in_message(message: RecordedMessage) -> Iterator[Digest]:
    """Yield the hashes that a message names as entries. They may be invented."""
    texts = [message.text]
    for call in message.calls:
        texts.append(text_or_json_values(call.arguments))
    for text in texts:
        yield from map(Digest.from_hex, NAMED.findall(text))


class ReachableText:
    """The text of the view and of the entries that it names."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = "\n".join(map(_normalize_as_in_requests, texts))
        self._names = set(_NAME.findall(self._text))

    def holds_detail(self, detail: str) -> bool:
        """Whether a detail is in the text. Names are looked up first, because that is faster."""
        normalized_detail = _normalize_as_in_requests(detail)
        return normalized_detail in self._names or normalized_detail in self._text

    def unreachable_details(self, details: Iterable[str]) -> set[str]:
        return {detail for detail in details if detail.strip() and not self.holds_detail(detail)}


def _normalize_as_in_requests(text: str) -> str:
    """Replace NUL by a symbol and all white space by single spaces."""
    return " ".join(text.replace("\0", "\N{SYMBOL FOR NULL}").split())


def digests_in_view(blocks: Iterable[Block], text_of: Callable[[Block], str]) -> Iterator[Digest]:
    """Yield the hash of everything that can be fetched back from a view, which is what the model
    is shown: what its texts name, and the contents behind its folds (the shorter texts).
    """
    for block in blocks:
        yield from map(Digest.from_hex, NAMED.findall(text_of(block)))
        for stored in block.cached:
            yield stored.digest
        if isinstance(block.content, Stored):
            yield block.content.digest


async def recall_and_verify(digest: Digest, read: Read) -> bytes | None:
    """Return the content with this hash, or None if it is missing or damaged."""
    try:
        content = await read(digest)
    except HelixError:
        return None
    if hashlib.sha256(content).digest() != digest.raw:
        return None
    return content
