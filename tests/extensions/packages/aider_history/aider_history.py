"""Reads `.aider.chat.history.md`, in which aider saves what was said in a folder.

A line "# aider chat started at …" begins a session. "#### " is before what the user typed,
"> " before what aider itself printed. Everything else is the model's.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from helix_desktop.extensions.extension_interfaces import Extension, ExtensionHistoryFormat
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession

START = "# aider chat started at "
FILE_NAME = ".aider.chat.history.md"


def is_aider_history(path: Path, beginning: bytes) -> bool:
    return path.name.endswith(FILE_NAME) and START.encode() in beginning


def read_aider_history(path: Path) -> Iterable[RecordedSession]:
    text = path.read_text("utf-8", errors="replace")
    for part in text.split(f"\n{START}"):
        if not part.strip():
            continue
        time_text, _, body = part.removeprefix(START).partition("\n")
        messages = tuple(_messages_of_session(body, _parse_start(time_text)))
        if messages:
            yield RecordedSession(
                name=f"{path} {time_text}",
                messages=messages,
                kind="aider",
                session=f"{path.parent} {time_text}",
                folder=str(path.parent),
            )


def _parse_start(text: str) -> float:
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except ValueError:
        return 0.0


def _messages_of_session(body: str, time: float) -> Iterator[RecordedMessage]:
    role = "assistant"
    lines: list[str] = []
    for line in body.splitlines():
        if line.startswith("> "):
            continue  # Of aider itself: which model it uses, what it committed.
        line_role = "assistant"
        if line.startswith("#### "):
            line_role = "user"
        if line_role != role:
            yield from _message(role, lines, time)
            role = line_role
            lines = []
        lines.append(line.removeprefix("#### "))
    yield from _message(role, lines, time)


def _message(role: str, lines: list[str], time: float) -> Iterator[RecordedMessage]:
    text = "\n".join(lines).strip()
    if not text:
        return
    if role == "user":
        yield RecordedMessage("user", text, time=time)
    else:
        yield RecordedMessage("assistant", text, time=time)


extension = Extension(
    title="Histories of aider",
    history_formats=[
        ExtensionHistoryFormat(
            "aider", "aider", is_aider_history, read_aider_history, endings=(FILE_NAME,)
        )
    ],
)
