"""Keeps texts of message boxes in the window's state file: drafts, edits, and unsent messages."""

from collections.abc import Sequence

from helix_desktop.engine.facts import Recorded, Text, UserPart, UserSaid
from helix_desktop.engine.message_identity import is_same_message
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.chat.attachment_chips import decode_message_parts, encode_message_parts
from helix_desktop.gui.saved_layouts_and_drafts import DRAFT_ID, WindowStateFile, new_draft_id

DraftPlace = tuple[str, str]  # A workspace's id, and a conversation's id or "new".
Parts = tuple[UserPart, ...]


@dataclass(frozen=True, slots=True)
class EditedMessage:
    """The message at `seq` is edited as a draft. `interrupted_draft`: the draft before that."""

    seq: int
    interrupted_draft: Parts


@dataclass(frozen=True, slots=True)
class UnsentMessage:
    """An unsent message. `edited` is the earlier message that it replaces, or 0. `draft_id`: of
    the draft that it was, "" if an earlier version kept it. `awaited_name`: of the conversation
    that was being opened or created when it was written.
    """

    parts: Parts
    is_steering: bool = False
    edited: int = 0
    draft_id: str = ""
    awaited_name: str = ""


def encode_draft_message(parts: Sequence[UserPart], draft_id: str) -> dict[str, object]:
    encoded: dict[str, object] = dict(encode_message_parts(parts))
    if draft_id:
        encoded[DRAFT_ID] = draft_id
    return encoded


def decode_draft_id(message: object) -> str:
    """Returns what a message of the file is known by in its conversation once it is sent, or "" if
    an earlier version wrote it.
    """
    if isinstance(message, dict):
        draft_id = message.get(DRAFT_ID)
        if isinstance(draft_id, str):
            return draft_id
    return ""


def find_unrecorded_messages(
    queued: Sequence[object], conversation: ConversationState
) -> list[Parts]:
    """Returns the queued messages that the conversation does not have. Of messages that an earlier
    version kept, each recorded one counts for one, because people send the same word twice.
    """
    if not queued:
        return []  # As nearly always: the conversation may be long.
    unmatched: list[Recorded] = []
    for entry in conversation.facts:
        if isinstance(entry.fact, UserSaid) and not entry.fact.command:
            unmatched.append(entry)
    unrecorded: list[Parts] = []
    for message in queued:
        parts = decode_message_parts(message)
        draft_id = decode_draft_id(message)
        if draft_id:
            if draft_id not in conversation.record.commands_of_messages:
                unrecorded.append(parts)
            continue
        queued_at = 0.0
        after_seq = 0
        if isinstance(message, dict):
            queued_at = message.get("queued_at", 0.0)
            after_seq = message.get("after_seq", 0)
        recorded_message = _find_recorded_message(unmatched, parts, queued_at, after_seq)
        if recorded_message is None:
            unrecorded.append(parts)
        else:
            unmatched.remove(recorded_message)
    return unrecorded


def _find_recorded_message(
    recorded: Sequence[Recorded], parts: Parts, queued_at: float, after_seq: int
) -> Recorded | None:
    """Returns the first message with these parts that was recorded after they were queued."""
    if queued_at <= 0:  # An earlier version did not write the time, so nothing is known.
        return None
    for entry in recorded:
        is_later = entry.time >= queued_at and entry.seq > after_seq
        if is_later and is_same_message(entry.fact, parts):
            return entry
    return None


def join_drafts(first: Sequence[UserPart], second: Sequence[UserPart]) -> Parts:
    """Joins the texts of two drafts with a blank line between them, and their attachments."""
    texts: list[str] = []
    attachments: list[UserPart] = []
    for part in (*first, *second):
        if not isinstance(part, Text):
            attachments.append(part)
        elif part.text.strip():
            texts.append(part.text)
    joined: list[UserPart] = []
    if texts:
        joined.append(Text("\n\n".join(texts)))
    return (*joined, *attachments)


class MessageDrafts:
    """Keeps drafts in the window's state file, which is saved within a second."""

    def __init__(self, state_file: WindowStateFile) -> None:
        self._state_file = state_file

    def get_draft(self, place: DraftPlace) -> Parts:
        return decode_message_parts(
            self._state_file.get_remembered("draft", *place, default=dict[str, object]())
        )

    def get_draft_id(self, place: DraftPlace) -> str:
        return decode_draft_id(
            self._state_file.get_remembered("draft", *place, default=dict[str, object]())
        )

    def save_draft(
        self, place: DraftPlace, parts: Sequence[UserPart], *, draft_id: str = ""
    ) -> None:
        message: dict[str, object] = {}
        if any(encode_message_parts(parts).values()):
            # One that no message box shows has an id, too: it may be sent as soon as it is shown,
            # before the file is written again.
            message = encode_draft_message(parts, draft_id or new_draft_id())
        self._state_file.remember_value("draft", *place, value=message)

    def get_edited_message(self, place: DraftPlace) -> EditedMessage | None:
        remembered = self._state_file.get_remembered("edit", *place, default=dict[str, object]())
        seq = remembered.get("seq")
        if not isinstance(seq, int) or seq <= 0:
            return None
        return EditedMessage(seq, decode_message_parts(remembered.get("aside")))

    def save_edited_message(self, place: DraftPlace, edited: EditedMessage | None) -> None:
        value: dict[str, object] = {}
        if edited is not None:
            value["seq"] = edited.seq
            value["aside"] = encode_message_parts(edited.interrupted_draft)
        self._state_file.remember_value("edit", *place, value=value)

    def turn_edited_message_into_draft(self, place: DraftPlace) -> None:
        """Makes a draft of an earlier message that is being edited, which is left behind."""
        edited = self.get_edited_message(place)
        if edited is None:
            return
        self.save_edited_message(place, None)
        self.save_draft(place, join_drafts(self.get_draft(place), edited.interrupted_draft))

    def move_draft(self, before: DraftPlace, after: DraftPlace) -> None:
        self.save_draft(after, join_drafts(self.get_draft(after), self.get_draft(before)))
        self.save_draft(before, ())


class UnsentMessages:
    """Messages that left their message box and that no conversation has yet: it is being opened or
    created, or the user is being asked about them. If the program ends, they become a draft.
    """

    def __init__(self, state_file: WindowStateFile) -> None:
        self._state_file = state_file
        # Those whose conversation is not open yet.
        self._held: dict[DraftPlace, list[UnsentMessage]] = {}
        # Those that are being sent, by their ids.
        self._being_sent: dict[str, tuple[DraftPlace, UnsentMessage]] = {}

    def add_unsent_message(self, place: DraftPlace, message: UnsentMessage) -> None:
        self._held.setdefault(place, []).append(message)
        self._add_to_file(place, message)

    def keep_until_sent(self, place: DraftPlace, message: UnsentMessage) -> None:
        """Keeps a message until `forget_message`. One that is kept already moves to this place."""
        self.forget_message(message.draft_id)
        self._being_sent[message.draft_id] = (place, message)
        self._add_to_file(place, message)

    def forget_message(self, draft_id: str) -> None:
        """Ends `keep_until_sent`, just before the conversation or the message box has the message:
        the file is not written in between.
        """
        kept = self._being_sent.pop(draft_id, None)
        if kept is not None:
            place, message = kept
            self._remove_from_file(place, [message])

    def ids_of_this_start(self, place: DraftPlace) -> set[str]:
        """Returns the ids of the messages that the file has and that are still to be sent."""
        ids = {message.draft_id for message in self._held.get(place, ())}
        for draft_id, (place_of_message, _message) in self._being_sent.items():
            if place_of_message == place:
                ids.add(draft_id)
        return ids

    def add_unsent_messages_of_state_file(
        self, place: DraftPlace, messages: Sequence[object]
    ) -> None:
        """Adds messages of the window's state file, as `encode_draft_message` wrote them."""
        held_messages = self._held.setdefault(place, [])
        for message in messages:
            parts = decode_message_parts(message)
            held_messages.append(UnsentMessage(parts, draft_id=decode_draft_id(message)))

    def unsent_messages_of(self, place: DraftPlace) -> Sequence[Parts]:
        return [message.parts for message in self._held.get(place, ())]

    def turn_unsent_messages_into_draft(self, place: DraftPlace) -> None:
        """Turns messages into a draft, because their conversation cannot be opened."""
        self._held.pop(place, None)

    def pop_unsent_messages(
        self, place: DraftPlace, *, awaited_name: str = ""
    ) -> Sequence[UnsentMessage]:
        """Removes and returns all messages of a place, oldest first, or only those that await one
        of several new conversations.
        """
        messages: list[UnsentMessage] = []
        others: list[UnsentMessage] = []
        for message in self._held.pop(place, []):
            if awaited_name in ("", message.awaited_name):
                messages.append(message)
            else:
                others.append(message)
        if others:
            self._held[place] = others
        if messages:
            self._remove_from_file(place, messages)
        return messages

    def _add_to_file(self, place: DraftPlace, message: UnsentMessage) -> None:
        waiting = self._remembered_messages_of(place)
        encoded = encode_draft_message(message.parts, message.draft_id)
        if encoded not in waiting:  # It may be there as one that its host has not confirmed.
            waiting.append(encoded)
        self._state_file.remember_value("waiting", *place, value=waiting)

    def _remove_from_file(self, place: DraftPlace, messages: Sequence[UnsentMessage]) -> None:
        waiting = self._remembered_messages_of(place)
        for message in messages:
            encoded = encode_draft_message(message.parts, message.draft_id)
            if encoded in waiting:
                waiting.remove(encoded)
        self._state_file.remember_value("waiting", *place, value=waiting)

    def _remembered_messages_of(self, place: DraftPlace) -> list[object]:
        return list(self._state_file.get_remembered("waiting", *place, default=list[object]()))
