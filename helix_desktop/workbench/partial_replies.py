"""Saves what a model is writing every second, so that a kill during an answer loses no more.

Each streaming reply has a small file, which is deleted once the reply is a fact. A file that is
found when a conversation is opened is from a program that was killed, and becomes a fact then.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import ModelReplied, Rewound, Stop, Text, TurnEnded
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import Event, FactAppended, ReplyStreamed
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.errors import StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workbench.open_sessions import OpenSessions

EVERY = 1.0  # Seconds between two saves of a reply that is still arriving.


@dataclass(slots=True)
class _StreamedReply:
    after: int  # The number of the last fact before this reply.
    pieces: list[str] = field(default_factory=list)
    written: int = 0  # The number of pieces that are already saved.


class PartialReplies:
    """The partial replies of a workbench, updated with its events."""

    def __init__(self, folder: Path, spawn: TaskSpawner, sessions: OpenSessions) -> None:
        self._folder = folder
        self._spawn = spawn
        self._sessions = sessions
        self._of: dict[str, _StreamedReply] = {}
        self._writing = False

    def update_partial_reply(self, event: Event) -> None:
        if isinstance(event, ReplyStreamed) and isinstance(event.delta, TextDelta):
            name = event.conversation
            session = self._sessions.find_open_session(name)
            last = session.conversation.state.seq if session is not None else 0
            streaming = self._of.setdefault(name, _StreamedReply(last))
            streaming.pieces.append(event.delta.text)
            if not self._writing:
                self._writing = True
                self._spawn(self._write_due_replies(), name="keep partial replies")
        elif isinstance(event, FactAppended) and isinstance(event.recorded.fact, ModelReplied | TurnEnded | Rewound):
            streaming_over = self._of.pop(event.recorded.conversation, None)
            if streaming_over is not None and streaming_over.written:
                deleting = asyncio.to_thread(self._delete_partial_reply, event.recorded.conversation)
                self._spawn(deleting, name="drop a partial reply")

    async def recover_cut_off_reply(self, conversation: Conversation, model: str, count: Callable[[str], int]) -> None:
        """Append what a killed program saved of an answer as a reply that was cut off."""
        found = await asyncio.to_thread(self._read_partial_reply, conversation.id)
        if found is None:
            return
        after, text = found
        facts = conversation.state.facts
        if text and not any(isinstance(each.fact, ModelReplied | TurnEnded | Rewound) for each in facts[after:]):
            reply = ModelReplied((Text(text, count(text)),), model, Stop.CUT, saw=after)
            await conversation.append_facts(reply)
        await asyncio.to_thread(self._delete_partial_reply, conversation.id)

    def delete_all_partial_replies(self) -> None:
        """Delete all partial replies, so that forgotten text does not survive in them."""
        self._of.clear()
        for file in self._folder.glob("*.json"):
            file.unlink(missing_ok=True)

    async def _write_due_replies(self) -> None:
        try:
            while behind := {name: each for name, each in self._of.items() if each.written < len(each.pieces)}:
                for name, streaming in behind.items():
                    streaming.written = len(streaming.pieces)
                    value = {"after": streaming.after, "text": "".join(streaming.pieces)}
                    await asyncio.to_thread(self._write_partial_reply, name, json.dumps(value))
                    if self._of.get(name) is not streaming:  # The reply was recorded as a fact in the meantime.
                        await asyncio.to_thread(self._delete_partial_reply, name)
                await asyncio.sleep(EVERY)
        except StoreFailed:
            return  # The disk is full. The reply is still in memory, and the turn reports the error.
        finally:
            self._writing = False

    def _partial_reply_file(self, conversation: str) -> Path:
        """Return the file's path. Earlier versions accepted any text as an ID, which is hashed."""
        is_name = fact_encoding.CONVERSATION_ID.fullmatch(conversation)
        name = conversation if is_name else hashlib.sha256(conversation.encode(errors="replace")).hexdigest()
        return self._folder / f"{name}.json"

    def _write_partial_reply(self, conversation: str, text: str) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_file_atomically(self._partial_reply_file(conversation), text, private=True)

    def _delete_partial_reply(self, conversation: str) -> None:
        self._partial_reply_file(conversation).unlink(missing_ok=True)

    def _read_partial_reply(self, conversation: str) -> tuple[int, str] | None:
        try:
            value = json.loads(self._partial_reply_file(conversation).read_text("utf-8"))
            return int(value["after"]), str(value["text"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
