"""Keeps on the disk which messages wait to be sent, so that no word is lost if the program is killed.

A message waits in a conversation's queue while a turn runs. It is in the journal only when its own
turn begins, so each conversation with waiting messages has a small file. When the conversation is
opened again, they wait in its queue as before, and the user decides whether they are sent.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from helix_desktop.atomic_files import sync_folder_to_disk
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import Recorded, Text, UserPart, UserSaid
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.message_identity import is_same_message
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, FactAppended, MessagesQueued
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workbench.partial_replies import file_name_of_conversation

log = logging.getLogger(__name__)
VERSION = 1
NOT_KEPT = "The message could not be kept on the disk, so it was not sent."
MAKE_ROOM = "Make room on the disk, and send it again."
ENDING = ".queue"
NEW_ENDING = ".queue-new"
DAMAGED_ENDING = ".queue-damaged"
# What reading a file may raise that is damaged, or that a later version has written.
UNREADABLE = (OSError, ValueError, KeyError, TypeError, HelixError)
FindOpenSession = Callable[[str], Session | None]


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message that is not in the journal yet. `queued_at`: when, in seconds since 1970.

    `after_seq`: of a message without a command, only a later fact can be this one. An equal message
    that was recorded before is another one, because people send the same word twice.
    """

    message: QueuedMessage
    queued_at: float
    after_seq: int


@dataclass(slots=True)
class _KeptQueue:
    """The messages of one conversation that wait in its queue, and those that have left it but are
    not recorded yet: hooks run first, and long texts are stored.
    """

    waiting: list[KeptMessage] = field(default_factory=list)
    unrecorded: list[KeptMessage] = field(default_factory=list)
    is_written: bool = True  # Whether the file on the disk says the same.

    def update_from_queue(
        self, queue: Iterable[QueuedMessage], event: MessagesQueued, last_seq: int
    ) -> None:
        known = list(self.waiting)
        self.waiting = []
        for message in queue:
            kept = _pop_message(known, message.command_id, message.parts)
            if kept is None and message.parts in event.put_back:
                kept = _pop_message(self.unrecorded, message.command_id, message.parts)
            if kept is None:
                kept = KeptMessage(message, time.time(), last_seq)
            self.waiting.append(replace(kept, message=message))
        # Only now, when no equal message that goes on waiting can be taken for one of them.
        for parts, command_id in event.taken_back_with_ids():
            _pop_message(known, command_id, parts)
        # What has left the queue and was not taken back is about to be recorded.
        self.unrecorded.extend(known)

    def remove_recorded(self, recorded: Recorded, message: UserSaid) -> None:
        removed = _pop_message(self.unrecorded, message.command, message.parts)
        if message.command:
            return
        if removed is None:
            # It was recorded in another form, as it is long.
            removed = _pop_first_kept_without_command(self.unrecorded)
        removed_parts = message.parts
        if removed is not None:
            removed_parts = removed.message.parts
        # Otherwise an equal message that still waits would be taken for this one after a kill.
        for index, kept in enumerate(self.waiting):
            if kept.message.parts == removed_parts:
                self.waiting[index] = replace(kept, after_seq=recorded.seq)


class MessageQueueFiles:
    """The waiting messages of a workbench, updated with its events."""

    def __init__(self, folder: Path, find_open_session: FindOpenSession) -> None:
        self._folder = folder
        self._find_open_session = find_open_session
        self._queues: dict[str, _KeptQueue] = {}
        # Of all messages that an earlier process left. Their clients may still send them again.
        self._left_command_ids: set[str] = set()

    def update_queue_file(self, event: Event) -> None:
        """Write at once what has changed. What left the message box is nowhere else."""
        if isinstance(event, MessagesQueued):
            session = self._find_open_session(event.conversation)
            if session is None:
                return
            # Reports of agents are told anew by what made them.
            queue = [message for message in session.queue if not message.by]
            kept_queue = self._queues.setdefault(event.conversation, _KeptQueue())
            kept_queue.update_from_queue(queue, event, session.conversation.state.seq)
            self._write_queue_file(event.conversation)
        elif isinstance(event, FactAppended):
            self._note_recorded_fact(event.recorded)

    def _note_recorded_fact(self, recorded: Recorded) -> None:
        fact = recorded.fact
        kept_queue = self._queues.get(recorded.conversation)
        if kept_queue is None or not isinstance(fact, UserSaid) or fact.by:
            return
        kept_queue.remove_recorded(recorded, fact)
        self._write_queue_file(recorded.conversation)

    def restore_queue(self, session: Session) -> None:
        """Let the messages that a killed program kept wait in the queue of a session that is being
        opened. Those that the conversation has already are left out.
        """
        kept = self._read_kept_messages(session.id)
        for kept_message in kept:
            if kept_message.message.command_id:
                self._left_command_ids.add(kept_message.message.command_id)
        unrecorded = find_unrecorded_kept_messages(kept, session.conversation.state)
        if not unrecorded:
            # A file that stays says nothing new: all its messages are recorded.
            with suppress(OSError):
                self._file_of(session.id).unlink(missing_ok=True)
            return
        self._queues[session.id] = _KeptQueue(waiting=unrecorded)
        session.queue.extend(kept_message.message for kept_message in unrecorded)

    def had_message_of_command(self, session: Session, command_id: str) -> bool:
        """Return whether the message of this command is recorded, or an earlier process, which was
        killed, left it. Then it waits now, or was taken back since.
        """
        is_recorded = command_id in session.conversation.state.record.commands_of_messages
        return is_recorded or command_id in self._left_command_ids

    def sync_to_disk(self, conversation: str) -> None:
        """Return when what waits would survive a power failure, too. Raises StoreFailed."""
        queue = self._queues.get(conversation)
        if queue is not None and not queue.is_written:
            raise StoreFailed(NOT_KEPT, remedy=MAKE_ROOM)
        try:
            handle = os.open(self._file_of(conversation), os.O_RDONLY)
        except FileNotFoundError:
            return  # Nothing waits: what was sent is in the journal by now.
        try:
            os.fsync(handle)
            sync_folder_to_disk(self._folder)
        except OSError as error:
            raise StoreFailed(NOT_KEPT, remedy=MAKE_ROOM) from error
        finally:
            os.close(handle)

    def delete_queues_of(self, conversations: Iterable[str]) -> None:
        """Delete what waited in conversations that were deleted for good."""
        for conversation in conversations:
            self._queues.pop(conversation, None)
            path = self._file_of(conversation)
            path.unlink(missing_ok=True)
            for damaged in self._folder.glob(f"{path.stem}*{DAMAGED_ENDING}"):
                damaged.unlink()

    def forget_text(self, text: str) -> int:
        """Take back every waiting message that has the text in one of its forms. What could not be
        read is forgotten as a whole if the text is in it. Return how many messages and unreadable
        files went.
        """
        forms = TextForms(text)
        removed = 0
        for conversation in list(self._queues):
            session = self._find_open_session(conversation)
            if session is not None:
                removed += _take_back_messages_with(forms, session)
        files_of_open_queues = {self._file_of(conversation) for conversation in self._queues}
        for path in self._folder.glob(f"*{ENDING}"):
            if path not in files_of_open_queues:
                removed += _forget_messages_in_file(path, forms)
        for path in self._folder.glob(f"*{DAMAGED_ENDING}"):
            if forms.occurs_in_bytes(path.read_bytes()):
                path.unlink()
                removed += 1
        return removed

    # --- The file of a conversation

    def _file_of(self, conversation: str) -> Path:
        return self._folder / f"{file_name_of_conversation(conversation)}{ENDING}"

    def _write_queue_file(self, conversation: str) -> None:
        """Replace the file at once, without waiting for the disk: a kill does not undo that. Who
        promises more to somebody calls `sync_to_disk` before.
        """
        path = self._file_of(conversation)
        queue = self._queues[conversation]
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            _replace_queue_file(path, queue.unrecorded + queue.waiting)
            queue.is_written = True
        except OSError as error:
            queue.is_written = False
            log.warning("messages that wait in %s could not be kept: %s", conversation, error)

    def _read_kept_messages(self, conversation: str) -> list[KeptMessage]:
        path = self._file_of(conversation)
        reason: Exception
        try:
            return _read_queue_file(path)
        except FileNotFoundError:
            return []
        except UNREADABLE as error:
            reason = error
        try:
            kept_as = _set_damaged_file_aside(path)
        except OSError:  # The disk gives neither the file nor a new name for it.
            kept_as = path
        log.warning(
            "Messages that waited in %s could not be read (%s). Their file was kept as %s.",
            conversation,
            reason,
            kept_as,
        )
        return []


def _read_queue_file(path: Path) -> list[KeptMessage]:
    """Raises one of UNREADABLE, also for a file of a later version."""
    content = json.loads(path.read_text("ascii"))
    if content["version"] != VERSION:
        raise ValueError(f"it has version {content['version']!r}")
    return [_decode_kept_message(encoded) for encoded in content["messages"]]


def _replace_queue_file(path: Path, kept_messages: Sequence[KeptMessage]) -> None:
    if not kept_messages:
        path.unlink(missing_ok=True)
        return
    encoded = [_encode_kept_message(kept) for kept in kept_messages]
    new_path = path.with_suffix(NEW_ENDING)
    handle = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        json.dump({"version": VERSION, "messages": encoded}, file)
    new_path.replace(path)


def _set_damaged_file_aside(path: Path) -> Path:
    """Rename the file, so that the next message does not replace words that nobody has read."""
    kept_as = path.with_suffix(DAMAGED_ENDING)
    number = 0
    while kept_as.exists():
        number += 1
        kept_as = path.with_suffix(f".{number}{DAMAGED_ENDING}")
    path.rename(kept_as)
    return kept_as


def _forget_messages_in_file(path: Path, forms: TextForms) -> int:
    """The same for a conversation that is not open. Its other messages go on waiting."""
    if not forms.occurs_in_bytes(path.read_bytes()):
        return 0
    try:
        kept_messages = _read_queue_file(path)
    except UNREADABLE:
        path.unlink()
        return 1
    remaining = [kept for kept in kept_messages if not _has_text(kept.message, forms)]
    _replace_queue_file(path, remaining)
    return len(kept_messages) - len(remaining)


def find_unrecorded_kept_messages(
    kept_messages: Sequence[KeptMessage], conversation: ConversationState
) -> list[KeptMessage]:
    """Return the messages that the conversation does not have. Of those without a command, each
    recorded message counts for one that was kept, because people send the same word twice.
    """
    if not kept_messages:
        return []  # As nearly always: the conversation may be long.
    unmatched: list[Recorded] = []
    for entry in conversation.facts:
        if isinstance(entry.fact, UserSaid) and not entry.fact.command:
            unmatched.append(entry)
    unrecorded: list[KeptMessage] = []
    for kept in kept_messages:
        command_id = kept.message.command_id
        if command_id:
            if command_id not in conversation.record.commands_of_messages:
                unrecorded.append(kept)
            continue
        recorded_message = _find_later_equal_message(unmatched, kept)
        if recorded_message is None:
            unrecorded.append(kept)
        else:
            unmatched.remove(recorded_message)
    return unrecorded


def _find_later_equal_message(recorded: Sequence[Recorded], kept: KeptMessage) -> Recorded | None:
    """Return the first later message that says the same."""
    for entry in recorded:
        if entry.seq > kept.after_seq and is_same_message(entry.fact, kept.message.parts):
            return entry
    return None


def _pop_message(
    messages: list[KeptMessage], command_id: str, parts: Sequence[UserPart]
) -> KeptMessage | None:
    """Remove and return the message of this command or, where there is none, the first one without
    a command that has these parts.
    """
    for index, kept in enumerate(messages):
        if kept.message.command_id != command_id:
            continue
        if command_id or kept.message.parts == tuple(parts):
            return messages.pop(index)
    return None


def _pop_first_kept_without_command(messages: list[KeptMessage]) -> KeptMessage | None:
    for index, kept in enumerate(messages):
        if not kept.message.command_id:
            return messages.pop(index)
    return None


def _take_back_messages_with(forms: TextForms, session: Session) -> int:
    taken_back = 0
    for index in range(len(session.queue) - 1, -1, -1):
        if _has_text(session.queue[index], forms):
            session.queue.take_back_queued(index)
            taken_back += 1
    return taken_back


def _has_text(message: QueuedMessage, forms: TextForms) -> bool:
    for part in message.parts:
        if isinstance(part, Text) and forms.occurs_in_text(part.text):
            return True
    return False


def _encode_kept_message(kept: KeptMessage) -> dict[str, object]:
    message = kept.message
    return {
        "said": fact_encoding.encode_fact(UserSaid(message.parts)),
        "steer": message.steer,
        "rewinds_to": message.rewinds_to,
        "command": message.command_id,
        "queued_at": kept.queued_at,
        "after_seq": kept.after_seq,
    }


def _decode_kept_message(encoded: dict[str, Any]) -> KeptMessage:
    """Raises JournalCorrupt, KeyError, TypeError or ValueError for what is none."""
    said = fact_encoding.decode_fact(encoded["said"])
    if not isinstance(said, UserSaid):
        raise ValueError("a waiting message that is none")  # noqa: TRY004 - it is a file's content
    rewinds_to = encoded["rewinds_to"]
    if rewinds_to is not None:
        rewinds_to = int(rewinds_to)
    message = QueuedMessage(
        said.parts,
        steer=bool(encoded["steer"]),
        rewinds_to=rewinds_to,
        command_id=str(encoded["command"]),
    )
    return KeptMessage(message, float(encoded["queued_at"]), int(encoded["after_seq"]))
