"""Saves every second what a model is writing and what commands print, so that a kill loses no more.

Each streaming reply and each printing call has a small file, which is deleted once
there is a fact instead. A file that is found when a conversation is opened is from a
program that was killed, and becomes a fact then.
"""

import asyncio
import hashlib
import json
from dataclasses import field
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import ModelReplied, Rewound, Stop, Text, ToolReturned, TurnEnded
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.ports import ContentCache, EntryOrigin, TokenCounter
from helix_desktop.engine.session_events import Event, FactAppended, ReplyStreamed, ToolPrinted
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.errors import StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workbench.open_sessions import OpenSessions

EVERY = 1.0  # Seconds between two saves of a reply that is still arriving.
# Only so many characters at the end of what a running command has printed are saved.
MOST_PRINTED = 8_000
CUT_OFF = "\n[The program ended while this call ran.\nAbove is the end of what it had printed.\nCheck before repeating.]"


@dataclass(slots=True)
class _StreamedReply:
    after: int  # The number of the last fact before this reply.
    pieces: list[str] = field(default_factory=list)
    written: int = 0  # The number of pieces that are already saved.
    is_saved: bool = False
    characters: int = 0

    def shorten_to_end(self) -> None:
        """Keep only the end of an output, which may go on without end."""
        if self.characters > 2 * MOST_PRINTED:
            output = "".join(self.pieces)
            self.pieces = [output[-MOST_PRINTED:]]
            self.characters = MOST_PRINTED
            self.written = 0


def file_name_of_conversation(conversation: str) -> str:
    """Return its ID. Earlier versions accepted any text as an ID, which is hashed."""
    if fact_encoding.CONVERSATION_ID.fullmatch(conversation):
        return conversation
    return hashlib.sha256(conversation.encode(errors="replace")).hexdigest()


def delete_partial_replies(folder: Path, text: str) -> int:
    """Delete the files that have the text, and new versions of them that were being written. Return
    how many.
    """
    forms = TextForms(text)
    deleted = 0
    for file in [*folder.glob("*.json"), *folder.glob(".*.json-????????")]:
        if forms.occurs_in_bytes(file.read_bytes()):
            file.unlink(missing_ok=True)
            deleted += 1
    return deleted


def _key_of_output(conversation: str, call: str) -> str:
    return f"{conversation}\n{call}"  # No conversation has such an ID.


class PartialReplies:
    """The partial replies and outputs of a workbench, updated with its events."""

    def __init__(self, folder: Path, spawn: TaskSpawner, sessions: OpenSessions) -> None:
        self._folder = folder
        self._spawn = spawn
        self._sessions = sessions
        self._of: dict[str, _StreamedReply] = {}
        self._writing = False

    def update_partial_reply(self, event: Event) -> None:
        """Note what an event adds to a reply or an output, or that it is complete."""
        if isinstance(event, ReplyStreamed) and isinstance(event.delta, TextDelta):
            self._add_text(event.conversation, event.conversation, event.delta.text)
        elif isinstance(event, ToolPrinted):
            key = _key_of_output(event.conversation, event.call)
            output = self._add_text(key, event.conversation, event.text)
            output.shorten_to_end()
        elif isinstance(event, FactAppended):
            match event.recorded.fact:
                case ModelReplied() | TurnEnded() | Rewound():
                    self._drop_text(event.recorded.conversation)
                case ToolReturned(call=call):
                    self._drop_text(_key_of_output(event.recorded.conversation, call))

    def text_in_progress(self, conversation: str) -> str:
        """Return what the model has written of a reply that is not a fact yet."""
        streaming = self._of.get(conversation)
        if streaming is None:
            return ""
        return "".join(streaming.pieces)

    def _add_text(self, key: str, conversation: str, text: str) -> _StreamedReply:
        last = 0
        session = self._sessions.find_open_session(conversation)
        if session is not None:
            last = session.conversation.state.seq
        streaming = self._of.setdefault(key, _StreamedReply(last))
        streaming.pieces.append(text)
        streaming.characters += len(text)
        if not self._writing:
            self._writing = True
            self._spawn(self._write_due_replies(), name="keep partial replies")
        return streaming

    def _drop_text(self, key: str) -> None:
        streaming_over = self._of.pop(key, None)
        if streaming_over is not None and streaming_over.is_saved:
            self._spawn(
                asyncio.to_thread(self._delete_partial_reply, key), name="drop a partial reply"
            )

    async def recover_texts(
        self, conversation: Conversation, model: str, cache: ContentCache, tokens: TokenCounter
    ) -> None:
        """Append what a killed program saved: an answer that was cut off, and the
        outputs of calls that still ran.
        """
        await self._recover_cut_off_reply(conversation, model, tokens)
        for pending in tuple(conversation.state.branch.running_calls):
            call = pending.call
            key = _key_of_output(conversation.id, pending.id)
            saved = await asyncio.to_thread(self._read_partial_reply, key)
            if saved is None:
                continue
            _, printed = saved
            text = f"{printed[-MOST_PRINTED:]}{CUT_OFF}"
            origin = EntryOrigin(call.name, describe_call_as_source(call.arguments))
            stored = await cache.store_content(text.encode("utf-8", "replace"), origin)
            count = tokens.count_tokens(text)
            result = ToolReturned(pending.id, stored, count, ok=False, stopped=True)
            await conversation.append_facts(result)
            await asyncio.to_thread(self._delete_partial_reply, key)

    async def _recover_cut_off_reply(
        self, conversation: Conversation, model: str, tokens: TokenCounter
    ) -> None:
        """Append what a model had written of a reply when the program was killed."""
        saved = await asyncio.to_thread(self._read_partial_reply, conversation.id)
        if saved is None:
            return
        after, text = saved
        is_over = False
        for recorded in conversation.state.facts[after:]:
            if isinstance(recorded.fact, ModelReplied | TurnEnded | Rewound):
                is_over = True
        if text and not is_over:
            part = Text(text, tokens.count_tokens(text))
            await conversation.append_facts(ModelReplied((part,), model, Stop.CUT, saw=after))
        await asyncio.to_thread(self._delete_partial_reply, conversation.id)

    def forget_text(self, text: str) -> int:
        """Delete the partial replies that have the text, and return how many. No reply is arriving
        meanwhile. Those of other conversations stay: a killed program left them, and they become
        facts when their conversations are opened.
        """
        self._of.clear()
        return delete_partial_replies(self._folder, text)

    async def _write_due_replies(self) -> None:
        """Save what has come since the last time, until nothing is left to save."""
        try:
            due = self._unsaved_texts()
            while due:
                for name, streaming in due.items():
                    await self._save_text(name, streaming)
                await asyncio.sleep(EVERY)
                due = self._unsaved_texts()
        except (StoreFailed, OSError):
            # The disk is full. The reply is still in memory, and the turn reports the
            # error.
            return
        finally:
            self._writing = False

    async def _save_text(self, name: str, streaming: _StreamedReply) -> None:
        streaming.written = len(streaming.pieces)
        streaming.is_saved = True
        value = {"after": streaming.after, "text": "".join(streaming.pieces)}
        await asyncio.to_thread(self._write_partial_reply, name, json.dumps(value))
        if self._of.get(name) is not streaming:
            # It was recorded as a fact in the meantime.
            await asyncio.to_thread(self._delete_partial_reply, name)

    def _unsaved_texts(self) -> dict[str, _StreamedReply]:
        unsaved: dict[str, _StreamedReply] = {}
        for name, streaming in self._of.items():
            if streaming.written < len(streaming.pieces):
                unsaved[name] = streaming
        return unsaved

    def _partial_reply_file(self, conversation: str) -> Path:
        return self._folder / f"{file_name_of_conversation(conversation)}.json"

    def _write_partial_reply(self, conversation: str, text: str) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_file_atomically(self._partial_reply_file(conversation), text, private=True)

    def _delete_partial_reply(self, conversation: str) -> None:
        self._partial_reply_file(conversation).unlink(missing_ok=True)

    def _read_partial_reply(self, conversation: str) -> tuple[int, str] | None:
        try:
            value = json.loads(self._partial_reply_file(conversation).read_text("utf-8"))
            return int(value["after"]), str(value["text"])
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return None
