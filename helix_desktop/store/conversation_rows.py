"""The list of conversations: a row for each, derived from one fact after another."""

import hashlib
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_json_resource

COLUMNS = tuple(map(tuple, read_json_resource("schemas/conversation_columns.json")))
_LARGEST = 2**63 - 1
_BEGINS = 120  # In characters. If there is no title, this much of the first message is shown.


def conversation_id_of_session(kind: str, session: str) -> str:
    """Return the id that an import gives to the conversation of another program's session. It is
    the same in every import.
    """
    return hashlib.sha256(f"{kind}\0{session}".encode("utf-8", "replace")).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation as lists show it. `meter`: a text the program last stored about
    its context.
    """

    id: str
    last_seq: int
    created: float
    updated: float
    title: str = ""
    begins: str = ""
    pinned: bool = False
    archived: bool = False
    trashed: bool = False
    parent: str = ""
    parent_call: str = ""
    forked_from: str = ""
    forked_at: int = 0
    turns: int = 0
    sent: int = 0  # Tokens of all requests, as reported by providers.
    written: int = 0  # Tokens of all replies.
    cost: float = 0.0
    meter: str = ""

    def column_values(self) -> tuple[str | int | float, ...]:
        """Return the column values in order, without what a database refuses: lone
        surrogates, sums beyond 64 bits.
        """
        return tuple(_storable_value(getattr(self, name)) for name, _ in COLUMNS)

    @classmethod
    def from_columns(cls, row: tuple[str | int | float, ...]) -> "StoredConversation":
        names = [field.name for field in fields(cls)]
        values = dict(zip(names, row, strict=True))
        for flag in ("pinned", "archived", "trashed"):  # SQLite stores them as 0 or 1.
            values[flag] = bool(values[flag])
        return cls(**values)  # type: ignore[arg-type]  # the columns are declared beside the fields


def _storable_value(value: str | float) -> str | int | float:
    if isinstance(value, int):
        return max(-_LARGEST, min(value, _LARGEST))
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return value


def build_empty_row(conversation: str, time: float) -> StoredConversation:
    return StoredConversation(conversation, 0, time, time)


def advance_row(row: StoredConversation, recorded: Iterable[facts.Recorded]) -> StoredConversation:
    """Return the row as it is after these further facts of its conversation.

    What the replies cost and how long they were is summed up here; all else that a fact
    can change in a row is in `_row_after_fact`. What another program paid for replies
    that were imported is no cost of this one, so it is subtracted.
    """
    advanced = row
    sent = row.sent
    written = row.written
    cost = row.cost
    last_seq = row.last_seq
    updated = row.updated
    for entry in recorded:
        last_seq = entry.seq
        updated = entry.time
        match entry.fact:
            case facts.ModelReplied(usage=usage) | facts.Spent(usage=usage):
                sent += usage.input
                written += usage.output
                cost += usage.cost
            case facts.BroughtIn(cost=cost_elsewhere):
                cost = max(0.0, cost - cost_elsewhere)
            case fact:
                advanced = _row_after_fact(advanced, fact)
    return replace(
        advanced, last_seq=last_seq, updated=updated, sent=sent, written=written, cost=cost
    )


def _row_after_fact(row: StoredConversation, fact: facts.Fact) -> StoredConversation:
    """Return the row with what one fact changes: how the conversation began, its title and flags,
    the words of its first message, the number of its turns.
    """
    match fact:
        case facts.ConversationStarted() as started:
            return _row_after_start(row, started)
        case facts.ConversationChanged() as changed:
            return _row_after_change(row, changed)
        case facts.UserSaid(by="") as message if not row.begins:
            text, *_ = split_off_agent_additions(message.parts)
            words = text[:1000].split()
            beginning = " ".join(words)[:_BEGINS]
            return replace(row, begins=beginning)
        case facts.TurnEnded():
            return replace(row, turns=row.turns + 1)
    return row


def _row_after_change(
    row: StoredConversation, changed: facts.ConversationChanged
) -> StoredConversation:
    """Return the row with what the user has changed. None in the fact means that it stays."""
    changes: dict[str, Any] = {}
    if changed.title is not None:
        changes["title"] = changed.title
    if changed.pinned is not None:
        changes["pinned"] = changed.pinned
    if changed.archived is not None:
        changes["archived"] = changed.archived
    if changed.trashed is not None:
        changes["trashed"] = changed.trashed
    return replace(row, **changes)


def _row_after_start(
    row: StoredConversation, started: facts.ConversationStarted
) -> StoredConversation:
    """Return the row of a conversation that begins. A fork first has the facts of its original, and
    then this one: what the user did with the original is not taken over.
    """
    title = started.title or row.title
    if started.forked_from:
        return replace(
            row,
            title=title,
            forked_from=started.forked_from,
            forked_at=started.forked_at,
            pinned=False,
            archived=False,
            trashed=False,
        )
    return replace(row, title=title, parent=started.parent, parent_call=started.parent_call)
