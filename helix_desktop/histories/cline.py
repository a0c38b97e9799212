"""Tasks of Cline: `…/saoudrizwan.claude-dev/tasks/<id>/api_conversation_history.json`, messages in Anthropic's form.

Untried: written after Cline's documentation. What Cline cut out of the middle of a long task is told in `ui_messages.json` as a range of
messages; it becomes a fold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.histories import anthropic_style
from helix_desktop.histories.recording import Compaction, RecordedMessage, Recording
from helix_desktop.histories.rows import Row, Told, number, objects, string, time_of

KIND = "cline"
NAME = "api_conversation_history.json"
CUT = "[Some earlier messages of this conversation were left out to keep within the context window.]"


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    """The one task of a folder."""
    made = anthropic_style.messages(rows, told.complaints)
    beside = _beside(path)
    begun = time_of(number(int(path.parent.name))) if path.parent.name.isdecimal() else 0.0
    times = _times(beside, begun)
    timed = [replace(message, time=message.time or times(at, len(made))) for at, message in enumerate(made)]
    title = next((string(one, "text") for one in beside if one.get("say") == "task"), "")
    name = path.parent.name
    return [
        Recording(
            str(path), tuple(timed), KIND, name, " ".join(title.split())[:60], compactions=_cuts(beside, rows, timed)
        )
    ]


def _beside(path: Path) -> list[Mapping[str, object]]:
    try:
        return objects(json.loads((path.parent / "ui_messages.json").read_bytes().decode("utf-8", "replace")))
    except (OSError, ValueError, RecursionError):
        return []


def _times(beside: Sequence[Mapping[str, object]], begun: float) -> Callable[[int, int], float]:
    """Cline notes no times in the history: spread between the first and the last it shows."""
    shown = [time for one in beside if (time := time_of(one.get("ts")))]
    first = shown[0] if shown else begun
    last = max(shown[-1] if shown else begun, first)
    return lambda at, count: first + (last - first) * at / max(1, count - 1)


def _cuts(
    beside: Sequence[Mapping[str, object]], rows: Sequence[Row], made: Sequence[RecordedMessage]
) -> tuple[Compaction, ...]:
    ranges = [one.get("conversationHistoryDeletedRange") for one in beside]
    found = [
        one for one in ranges if isinstance(one, list) and len(one) == 2 and all(isinstance(at, int) for at in one)
    ]
    if not found or len(made) < len(rows):
        return ()
    last = int(found[-1][1])
    kept = anthropic_style.messages(rows[: last + 1], [])
    return (Compaction(len(made), min(len(kept), len(made)), CUT, made[-1].time if made else 0.0, "Cline cut here"),)
