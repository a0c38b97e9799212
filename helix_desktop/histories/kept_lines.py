"""The lines of an agent's file, kept as the agent wrote them, for the day when the file is gone.

A conversation has what a session's messages say. It does not have how the agent wrote them down:
the order of fields, ids, notes between messages. A session that is written anew from messages
therefore makes the agent send other bytes than before, and the provider's cache of the session is
lost. From the kept lines, the agent gets the file that it had.

Texts and pictures that the cache has already, such as the outputs of tools, are not stored twice.
In the kept lines, a marker stands in their place: a zero byte, "t" or "b", the content's SHA-256
and another zero byte. No JSON has a zero byte.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from helix_desktop.engine.facts import BroughtIn, Recorded
from helix_desktop.engine.sha256_digest import Digest

# The first line of the kept lines of one import. Because of its zero byte, the index of texts
# leaves them out.
CONTINUES = b"\0the agent's lines 1, continued\n"
BEGINS = b"\0the agent's lines 1\n"
# A shorter text is hardly longer than the marker.
SHORTEST_TEXT = 200
_JSON_STRING = re.compile(rb'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_BASE64 = re.compile(rb"(data:[\w./+-]+;base64,)?([A-Za-z0-9+/]+=*)")
_MARKER = re.compile(rb"\0([tb])([0-9a-f]{64})\0")

ReadContent = Callable[[Digest], bytes | None]


def replace_stored_contents(lines: Iterable[bytes], digests: Collection[str]) -> list[bytes]:
    """Return the lines with markers in place of the contents that have these digests."""

    def marker_or_string(match: re.Match[bytes]) -> bytes:
        string = match[1]
        if len(string) < SHORTEST_TEXT:
            return match[0]
        return b'"%b"' % _replace_content_of_string(string, digests)

    replaced: list[bytes] = []
    for line in lines:
        if b"\0" in line:
            continue  # It is no JSON, so the agent does not read it either.
        if len(line) < SHORTEST_TEXT or not digests:
            replaced.append(line)
        else:
            replaced.append(_JSON_STRING.sub(marker_or_string, line))
    return replaced


def _replace_content_of_string(string: bytes, digests: Collection[str]) -> bytes:
    """Return a string as it stands in JSON, or the marker for the content that it is."""
    picture = _BASE64.fullmatch(string)
    if picture is not None:
        data = _decode_base64(picture[2])
        digest = hashlib.sha256(data).hexdigest()
        if digest in digests and base64.b64encode(data) == picture[2]:
            return (picture[1] or b"") + _marker(b"b", digest)
    try:
        text = json.loads(b'"%b"' % string)
        content = text.encode("utf-8")
    except (ValueError, RecursionError):
        return string
    digest = hashlib.sha256(content).hexdigest()
    # Another program may have written the same text with other escapes.
    if digest in digests and _as_json_string(content) == string:
        return _marker(b"t", digest)
    return string


def _decode_base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _marker(kind: bytes, digest: str) -> bytes:
    return b"\0%b%b\0" % (kind, digest.encode("ascii"))


def _as_json_string(content: bytes) -> bytes:
    """Return a text as it stands between the quotation marks of a JSON string."""
    text = content.decode("utf-8")
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8")


def digests_of_kept_lines(facts: Sequence[Recorded]) -> list[Digest]:
    """Return under which digests imports have stored lines, in order."""
    digests: list[Digest] = []
    for recorded in facts:
        if isinstance(recorded.fact, BroughtIn) and recorded.fact.lines is not None:
            digests.append(recorded.fact.lines.digest)
    return digests


def build_kept_lines(earlier: Sequence[bytes], lines: Sequence[bytes]) -> bytes:
    """Return what an import has to store so that all of these lines are kept, or nothing if they
    are already. `earlier`: what earlier imports have stored, in order.
    """
    kept_lines = join_kept_lines(earlier)
    if list(lines) == kept_lines[: len(lines)]:
        return b""
    if kept_lines and list(lines[: len(kept_lines)]) == kept_lines:
        return CONTINUES + b"".join(lines[len(kept_lines) :])
    return BEGINS + b"".join(lines)


def join_kept_lines(stored: Iterable[bytes]) -> list[bytes]:
    """Return the lines that imports have stored, in order. One whose file did not go on from the
    earlier lines begins anew.
    """
    lines: list[bytes] = []
    for content in stored:
        if content.startswith(BEGINS):
            lines = _split_lines(content.removeprefix(BEGINS))
        elif content.startswith(CONTINUES):
            lines += _split_lines(content.removeprefix(CONTINUES))
    return lines


def _split_lines(content: bytes) -> list[bytes]:
    """Return the lines, each with its end. Unlike `splitlines`, only a line feed ends a line."""
    return [line + b"\n" for line in content.split(b"\n")[:-1]]


def put_back_contents(
    lines: Iterable[bytes], known: Collection[str], read_content: ReadContent
) -> list[bytes]:
    """Return the lines without the markers of contents that no fact of the conversation has, as
    nothing else would keep these contents. `known`: the digests that facts have.
    """

    def marker_or_content(marker: re.Match[bytes]) -> bytes:
        if marker[2].decode("ascii") in known:
            return marker[0]
        return _content_of_marker(marker, read_content) or marker[0]

    return [_MARKER.sub(marker_or_content, line) for line in lines]


def restore_contents(lines: Iterable[bytes], read_content: ReadContent) -> list[bytes] | None:
    """Return the lines as the agent wrote them, or None if a content is no longer in the cache."""
    restored: list[bytes] = []
    for line in lines:
        pieces: list[bytes] = []
        end_of_last_marker = 0
        for marker in _MARKER.finditer(line):
            content = _content_of_marker(marker, read_content)
            if content is None:
                return None
            pieces.append(line[end_of_last_marker : marker.start()])
            pieces.append(content)
            end_of_last_marker = marker.end()
        pieces.append(line[end_of_last_marker:])
        restored.append(b"".join(pieces))
    return restored


def _content_of_marker(marker: re.Match[bytes], read_content: ReadContent) -> bytes | None:
    """Return what a marker stands for, as it stood in the line, or None if it cannot be read."""
    content = read_content(Digest.from_hex(marker[2].decode("ascii")))
    if content is None:
        return None
    if marker[1] == b"b":
        return base64.b64encode(content)
    return _as_json_string(content)
