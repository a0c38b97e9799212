"""Keeps the words of message boxes in the window's memory: drafts, edits of earlier messages, messages that are not sent yet."""

from __future__ import annotations

from collections.abc import Sequence

from helix_desktop.engine.facts import UserPart
from helix_desktop.gui.chat.attachments import read, written
from helix_desktop.gui.memory import Memory
from helix_desktop.values import dataclass

DraftPlace = tuple[str, str]  # a workspace and a conversation of it, or "new"
Parts = tuple[UserPart, ...]


@dataclass(frozen=True, slots=True)
class EditedMessage:
    """The message at `seq` is being edited; its text is the draft. `aside`: what was begun before."""

    seq: int
    aside: Parts


@dataclass(frozen=True, slots=True)
class UnsentMessage:
    """`edited`: the earlier message that it replaces; 0: none."""

    parts: Parts
    is_steering: bool = False
    edited: int = 0


class Drafts:
    """What stands in the memory is on the disk within a second."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def draft(self, place: DraftPlace) -> Parts:
        return read(self._memory.get("draft", *place, default=dict[str, object]()))

    def keep(self, place: DraftPlace, parts: Sequence[UserPart]) -> None:
        message = written(parts)
        self._memory.put("draft", *place, value=message if any(message.values()) else {})

    def edited(self, place: DraftPlace) -> EditedMessage | None:
        kept = self._memory.get("edit", *place, default=dict[str, object]())
        seq = kept.get("seq")
        return EditedMessage(seq, read(kept.get("aside"))) if isinstance(seq, int) and seq > 0 else None

    def keep_edited(self, place: DraftPlace, edited: EditedMessage | None) -> None:
        value = {"seq": edited.seq, "aside": written(edited.aside)} if edited else {}
        self._memory.put("edit", *place, value=value)

    def move(self, before: DraftPlace, after: DraftPlace) -> None:
        """The conversation that had not begun has a name now: what was typed meanwhile goes on in it."""
        self.keep(after, (*self.draft(after), *self.draft(before)))
        self.keep(before, ())


class UnsentMessages:
    """Messages whose conversation is not open yet. A program that ends meanwhile brings them back as a draft."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held: dict[DraftPlace, list[UnsentMessage]] = {}

    def hold(self, place: DraftPlace, message: UnsentMessage) -> None:
        self._held.setdefault(place, []).append(message)
        self._memory.put("waiting", *place, value=[*self._waiting(place), written(message.parts)])

    def hold_kept(self, place: DraftPlace, messages: Sequence[object]) -> None:
        """Messages the memory has already, as `written` made them."""
        self._held.setdefault(place, []).extend(UnsentMessage(read(each)) for each in messages)

    def at(self, place: DraftPlace) -> Sequence[Parts]:
        return [message.parts for message in self._held.get(place, ())]

    def leave(self, place: DraftPlace) -> None:
        """Its conversation cannot be opened: they become a draft when it can."""
        self._held.pop(place, None)

    def take(self, place: DraftPlace) -> Sequence[UnsentMessage]:
        """Take out all messages of a place, oldest first."""
        taken, waiting = self._held.pop(place, []), self._waiting(place)
        for message in taken:
            if (kept := written(message.parts)) in waiting:
                waiting.remove(kept)
        if taken:
            self._memory.put("waiting", *place, value=waiting)
        return taken

    def _waiting(self, place: DraftPlace) -> list[object]:
        return list(self._memory.get("waiting", *place, default=list[object]()))
