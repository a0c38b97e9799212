"""The conversations as a list shows them: what the journal knows of each, and how full its window is."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.budget import Meter
from helix_desktop.engine.facts import ConversationChanged, ConversationStarted, Recorded
from helix_desktop.engine.rows import USUAL_WINDOW, ConversationRow
from helix_desktop.store.conversations import Row
from helix_desktop.store.engine_ports import Journal
from helix_desktop.workbench import spending


class Rows:
    """All of a workspace, as true as the last fact that was recorded; and what has been spent."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[str, ConversationRow] = {}
        self._today = spending.Today()

    def __iter__(self) -> Iterator[ConversationRow]:
        return iter(self._rows.values())

    def find(self, conversation: str) -> ConversationRow | None:
        return self._rows.get(conversation)

    async def read(self) -> None:
        """From the journal, and what was spent since midnight."""
        self._rows = {row.id: await self._with_agent(row) for row in await self._journal.conversations()}
        for row in self:
            if row.updated >= spending.midnight() and row.cost:
                for recorded in spending.own(await self._journal.read(row.id)):
                    self._today.charge(recorded)

    async def read_again(self, conversations: Collection[str]) -> None:
        """These have come, or have changed otherwise than fact by fact."""
        for row in await self._journal.conversations():
            if row.id in conversations:
                self._rows[row.id] = await self._with_agent(row)

    async def _with_agent(self, row: Row) -> ConversationRow:
        """The row with the agent's name: as it was kept, or else as the conversation began."""
        shown = _shown(row)
        if shown.agent or row.meter:
            return shown
        behind = row.forked_at + 1 if row.forked_from else 0  # a fork says it behind its own beginning
        begun = await self._journal.read(row.id, after=behind, limit=1)
        fact = begun[0].fact if begun else None
        return replace(shown, agent=fact.agent) if isinstance(fact, ConversationStarted) else shown

    def drop(self, conversations: Collection[str]) -> None:
        self._rows = {name: row for name, row in self._rows.items() if name not in conversations}

    def begin(self, conversation: str, started: ConversationStarted, time: float) -> None:
        self._rows[conversation] = ConversationRow(
            conversation,
            started.title,
            time,
            parent=started.parent,
            parent_call=started.parent_call,
            agent=started.agent,
        )

    def take(self, recorded: Recorded, meter: Meter | None) -> None:
        """One more fact; `meter` where the conversation's session is there to tell it."""
        self._today.charge(recorded)
        self._rows[recorded.conversation] = _after(self._rows[recorded.conversation], recorded)
        if meter is not None:
            self.measure(recorded.conversation, meter)

    def measure(self, conversation: str, meter: Meter) -> None:
        """How full its window is now."""
        row = self._rows[conversation]
        self._rows[conversation] = replace(row, parts=dict(meter.parts), window=meter.window)

    def spent(self) -> tuple[float, float]:
        """Today, and ever."""
        return self._today.cost, sum(row.cost for row in self)


def _shown(row: Row) -> ConversationRow:
    """From the journal's row; the meter is what was kept at the end of its last turn."""
    parts, window, agent = _read(row.meter, row.last_seq)
    return ConversationRow(
        row.id,
        row.title or row.begins,
        row.updated,
        parts,
        window,
        row.pinned,
        row.archived,
        row.trashed,
        row.parent,
        row.parent_call,
        row.cost,
        agent,
    )


def _after(row: ConversationRow, recorded: Recorded) -> ConversationRow:
    """The row with one more fact."""
    row = replace(row, updated=recorded.time)
    if isinstance(recorded.fact, ConversationChanged):
        changed = recorded.fact
        given = {"title": changed.title, "pinned": changed.pinned, "archived": changed.archived}
        given |= {"trashed": changed.trashed}
        row = replace(row, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    if isinstance(recorded.fact, ConversationStarted):
        row = replace(row, agent=recorded.fact.agent)
    usage = getattr(recorded.fact, "usage", None)
    return replace(row, cost=row.cost + usage.cost) if usage is not None else row


def written(meter: Meter, seq: int, agent: str = "") -> str:
    """The meter after the fact `seq`, as the journal keeps it beside the conversation; derived, so its form needs no version."""
    parts = {kind.name: tokens for kind, tokens in meter.parts.items()}
    return json.dumps({"window": meter.window, "parts": parts, "seq": seq, **({"agent": agent} if agent else {})})


def _read(text: str, seq: int) -> tuple[Mapping[Kind, int], int, str]:
    """What was measured before the fact `seq` came, from another machine or just before the program was killed, holds no longer."""
    try:
        kept = json.loads(text)
        known = int(kept.get("seq", seq)) >= seq
        parts = {Kind[name]: int(tokens) for name, tokens in kept["parts"].items()} if known else {}
        return parts, int(kept["window"]), str(kept.get("agent", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, USUAL_WINDOW, ""
