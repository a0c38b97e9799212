"""Keeps texts of message boxes in the window's state file: drafts, edits, and unsent messages."""

from collections.abc import Sequence

from helix_desktop.engine.facts import UserPart
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.chat.attachment_chips import decode_message_parts, encode_message_parts
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile

DraftPlace = tuple[str, str]  # A workspace's id, and a conversation's id or "new".
Parts = tuple[UserPart, ...]


@dataclass(frozen=True, slots=True)
class EditedMessage:
    """The message at `seq` is edited as a draft. `interrupted_draft`: the draft before that."""

    seq: int
    interrupted_draft: Parts


@dataclass(frozen=True, slots=True)
class UnsentMessage:
    """An unsent message. `edited` is the earlier message that it replaces, or 0."""

    parts: Parts
    is_steering: bool = False
    edited: int = 0


class MessageDrafts:
    """Keeps drafts in the window's state file, which is saved within a second."""

    def __init__(self, state_file: WindowStateFile) -> None:
        self._state_file = state_file

    def get_draft(self, place: DraftPlace) -> Parts:
        return decode_message_parts(
            self._state_file.get_remembered("draft", *place, default=dict[str, object]())
        )

    def save_draft(self, place: DraftPlace, parts: Sequence[UserPart]) -> None:
        message = encode_message_parts(parts)
        self._state_file.remember_value(
            "draft", *place, value=message if any(message.values()) else {}
        )

    def get_edited_message(self, place: DraftPlace) -> EditedMessage | None:
        kept = self._state_file.get_remembered("edit", *place, default=dict[str, object]())
        seq = kept.get("seq")
        return (
            EditedMessage(seq, decode_message_parts(kept.get("aside")))
            if isinstance(seq, int) and seq > 0
            else None
        )

    def save_edited_message(self, place: DraftPlace, edited: EditedMessage | None) -> None:
        value = (
            {"seq": edited.seq, "aside": encode_message_parts(edited.interrupted_draft)}
            if edited
            else {}
        )
        self._state_file.remember_value("edit", *place, value=value)

    def move_draft(self, before: DraftPlace, after: DraftPlace) -> None:
        self.save_draft(after, (*self.get_draft(after), *self.get_draft(before)))
        self.save_draft(before, ())


class UnsentMessages:
    """Messages whose conversation is not open yet. If the program ends, they become a draft."""

    def __init__(self, state_file: WindowStateFile) -> None:
        self._state_file = state_file
        self._held: dict[DraftPlace, list[UnsentMessage]] = {}

    def add_unsent_message(self, place: DraftPlace, message: UnsentMessage) -> None:
        self._held.setdefault(place, []).append(message)
        self._state_file.remember_value(
            "waiting",
            *place,
            value=[*self._remembered_messages_of(place), encode_message_parts(message.parts)],
        )

    def add_unsent_messages_of_state_file(
        self, place: DraftPlace, messages: Sequence[object]
    ) -> None:
        """Adds messages of the window's state file, as `encode_message_parts` wrote them."""
        self._held.setdefault(place, []).extend(
            UnsentMessage(decode_message_parts(each)) for each in messages
        )

    def unsent_messages_of(self, place: DraftPlace) -> Sequence[Parts]:
        return [message.parts for message in self._held.get(place, ())]

    def turn_unsent_messages_into_draft(self, place: DraftPlace) -> None:
        """Turns messages into a draft, because their conversation cannot be opened."""
        self._held.pop(place, None)

    def pop_unsent_messages(self, place: DraftPlace) -> Sequence[UnsentMessage]:
        """Removes and returns all messages of a place, oldest first."""
        taken, waiting = self._held.pop(place, []), self._remembered_messages_of(place)
        for message in taken:
            if (kept := encode_message_parts(message.parts)) in waiting:
                waiting.remove(kept)
        if taken:
            self._state_file.remember_value("waiting", *place, value=waiting)
        return taken

    def _remembered_messages_of(self, place: DraftPlace) -> list[object]:
        return list(self._state_file.get_remembered("waiting", *place, default=list[object]()))
