"""The preview of a long text: its first and last lines, the lines that look like errors, the shape of its data.

About as many tokens as asked for, whatever the text is: one line of 5 MB, a million spaces, NULs and escape codes.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Sequence
from itertools import islice

from helix_desktop.engine.details import error_lines
from helix_desktop.engine.strategies.names import names

PER_TOKEN = 3.2  # characters, on the cautious side
NAMES_SHARE = 0.6  # of the preview that tells which names stand in the text
LINE = 240  # characters of one line that are shown
ERRORS = 12
IN_A_THREAD = 1 << 15  # characters
KEYS = 12
JSON_LIMIT = 1_000_000  # characters: beyond, parsing would hold the interpreter too long
_LINE = re.compile(r"[^\r\n]+")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f]")


def preview(text: str, tokens: int) -> str:
    """What is worth knowing of a text without reading it."""
    named = names(text, int(tokens * NAMES_SHARE * PER_TOKEN))
    room = int(tokens * PER_TOKEN) - len(named)
    cleaned = text if len(text) <= JSON_LIMIT else text[: JSON_LIMIT // 2] + "\n" + text[-JSON_LIMIT // 2 :]
    first, last, count = _ends(cleaned, room)
    shape = _shape(text)
    errors = [_short(line) for line in error_lines(cleaned)][-ERRORS:]
    head = _fill(first, room * 4 // 10)
    tail = _fill([*first[len(head) :], *last][::-1], room * 3 // 10)[::-1]
    seen = set(head) | set(tail)
    said = _fill([line for line in errors if line not in seen], room * 3 // 10)
    left_out = count - len(head) - len(tail)
    pieces = [shape] if shape else []
    pieces += head
    if left_out > 0:
        pieces.append(f"[… {left_out:,} lines left out …]")
    if said:
        pieces += ["Lines that look like errors:", *said]
        pieces += ["Last lines:"] if tail else []
    said_names = [f"Names in it: {named}"] if named and left_out > 0 else []
    return "\n".join([*pieces, *tail, *said_names]) or "(nothing but space)"


async def made_preview(text: str, tokens: int) -> str:
    """The preview; of a long text it is made beside the event loop."""
    if len(text) < IN_A_THREAD:
        return preview(text, tokens)
    return await asyncio.to_thread(preview, text, tokens)


def _ends(text: str, room: int) -> tuple[list[str], list[str], int]:
    """The first and the last lines that are not empty, as many as `room` characters can take; and how many there are."""
    shorts = (_short(line.group()) for line in _LINE.finditer(text))
    numbered = ((number, line) for number, line in enumerate((line for line in shorts if line.strip()), 1))
    most = max(room, 1)
    first = list(islice(numbered, most))
    last = deque(numbered, maxlen=most)
    count = max((number for number, _ in (*first[-1:], *last)), default=0)
    return [line for _, line in first], [line for _, line in last], count


def _short(line: str) -> str:
    plain = _ESCAPES.sub("", line[: LINE * 4]).rstrip()
    plain = re.sub(r" {8,}", "        ", plain)
    return plain if len(plain) <= LINE else f"{plain[: LINE - 20]}… ({len(line):,} characters)"


def _fill(lines: Sequence[str], room: int) -> list[str]:
    taken: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        taken.append(line)
    return taken


def _shape(text: str) -> str:
    """The outline of JSON or of a table; empty for anything else."""
    start = text.lstrip()[:1]
    if start in ("{", "[") and len(text) <= JSON_LIMIT:
        try:
            return "JSON: " + _outline(json.loads(text), 2)
        except (ValueError, RecursionError):
            return ""
    first = text[:4_000].splitlines()[:3]
    for separator in ("\t", ",", "|", ";"):
        counts = {line.count(separator) for line in first}
        if len(first) > 2 and len(counts) == 1 and counts.pop() >= 2:
            return f"Table of {first[0].count(separator) + 1} columns: {_short(first[0])}"
    return ""


def _outline(value: object, depth: int) -> str:
    if isinstance(value, dict):
        keys = list(value)[:KEYS]
        more = f", … {len(value) - KEYS} more" if len(value) > KEYS else ""
        if depth == 0:
            return f"object of {len(value)}"
        return "{" + ", ".join(f"{str(key)[:60]}: {_outline(value[key], depth - 1)}" for key in keys) + more + "}"
    if isinstance(value, list):
        return f"list of {len(value)}" + (f" x {_outline(value[0], depth - 1)}" if value and depth else "")
    return type(value).__name__
