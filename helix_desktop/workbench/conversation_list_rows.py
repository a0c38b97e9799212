"""The rows of the list of conversations, from the journal, and how full each context is."""

import itertools
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any

from helix_desktop.engine import facts
from helix_desktop.engine.context_usage import WindowMeter
from helix_desktop.engine.list_rows import USUAL_WINDOW, ConversationListRow
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.errors import HelixError, NotFound
from helix_desktop.histories.program_names import NAMES
from helix_desktop.store.async_stores import StoreJournal
from helix_desktop.store.conversation_rows import StoredConversation
from helix_desktop.workbench.open_sessions import OpenSessions

_AGENTS = ("agent", "acp_agent", "recorded_from")
_SAME_IN_LIST = ("id", "updated", "pinned", "archived", "trashed", "parent", "parent_call", "cost")


class DailyCost:
    """`cost_today` is in dollars, and is 0 again when a new day begins."""

    def __init__(self) -> None:
        self._cost = 0.0
        self._day = _local_day(time.time())

    @property
    def cost_today(self) -> float:
        return self._cost if _local_day(time.time()) == self._day else 0.0

    def add_cost_if_today(self, recorded: facts.Recorded) -> None:
        day = _local_day(time.time())
        if day != self._day:
            self._day, self._cost = day, 0.0
        if (
            isinstance(recorded.fact, facts.ModelReplied | facts.Spent)
            and _local_day(recorded.time) == day
        ):
            self._cost += recorded.fact.usage.cost


def facts_paid_here(recorded_facts: Sequence[facts.Recorded]) -> Iterator[facts.Recorded]:
    """Yield the facts this conversation paid for: none imported, none that its fork began with."""
    paid, first_elsewhere = [], recorded_facts[-1].seq + 1 if recorded_facts else 0
    for one in reversed(
        recorded_facts
    ):  # Whoever paid elsewhere says so behind what was paid: of a fork, all of it.
        if one.seq < first_elsewhere:
            paid.append(one)
        if isinstance(one.fact, facts.BroughtIn):
            first_elsewhere = min(first_elsewhere, one.fact.first)
        elif getattr(one.fact, "forked_from", ""):
            break
    return reversed(paid)


def last_midnight() -> float:
    return time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))


def _local_day(timestamp: float) -> tuple[int, ...]:
    return time.localtime(timestamp)[:3]


class ConversationListRows:
    """The rows of all conversations, up to date with the last fact, and what has been spent."""

    def __init__(self, journal: StoreJournal) -> None:
        self._journal = journal
        self._rows: dict[str, ConversationListRow] = {}
        self._cost_below_missing: dict[str, float] = {}  # By a parent that has no row.
        self._today = DailyCost()

    def __iter__(self) -> Iterator[ConversationListRow]:
        return iter(self._rows.values())

    def find_row(self, conversation: str) -> ConversationListRow | None:
        return self._rows.get(conversation)

    async def read_all_rows(self) -> None:
        """Read all rows from the journal, and what was spent since midnight."""
        first = {one.conversation: one for one in await self._journal.first_facts_without_meter()}
        rows = await self._journal.list_conversations()
        self._rows = {
            row.id: await self._row_with_agent_name(row, first.get(row.id)) for row in rows
        }
        for (
            name
        ) in await self._journal.conversations_with_open_turn():  # None has been started here yet.
            if not (row := self._rows[name]).agent and not row.recorded_from:
                self._rows[name] = replace(row, is_interrupted=True)
        self._cost_below_missing.clear()
        for one in tuple(self):
            self._add_cost_above(one, one.cost)
        paid = await self._journal.facts_about_cost(last_midnight())
        for _, of_one in itertools.groupby(paid, attrgetter("conversation")):
            for recorded in facts_paid_here(tuple(of_one)):
                self._today.add_cost_if_today(recorded)

    async def reread_rows(self, conversations: Collection[str]) -> None:
        """Read rows again of conversations that are new, or did not change by single facts."""
        for one in conversations:
            with suppress(NotFound):
                row = await self._journal.find_conversation(one)
                # A fork begins with the copied facts and one more. The next fact names the agent.
                behind = row.forked_at + 1 if row.forked_from else 0
                begun = (
                    () if row.meter else await self._journal.read_facts(one, after=behind, limit=1)
                )
                self._replace_row(await self._row_with_agent_name(row, begun[0] if begun else None))

    async def _row_with_agent_name(
        self, row: StoredConversation, begun: facts.Recorded | None
    ) -> ConversationListRow:
        """Return the row with the agent's name, as it was stored or from the first fact."""
        shown = _list_row_of_stored(row)
        if (
            row.forked_from and row.cost
        ):  # The sum from the journal includes the cost of the copied facts.
            own = facts_paid_here(await self._journal.read_facts(row.id, after=row.forked_at))
            shown = replace(
                shown,
                cost=sum(usage.cost for one in own if (usage := getattr(one.fact, "usage", None))),
            )
        fact = begun.fact if begun is not None else None
        return (
            _row_with_agents(shown, fact) if isinstance(fact, facts.ConversationStarted) else shown
        )

    def remove_conversation_rows(self, conversations: Collection[str]) -> None:
        for one in [self._rows[name] for name in conversations if name in self._rows]:
            now = self._rows[one.id]  # Without the agents of it that were removed before.
            self._add_cost_above(now, -now.cost - now.agents_cost)
            self._cost_below_missing[one.id] = now.agents_cost
            del self._rows[one.id]

    def add_new_row(
        self, conversation: str, started: facts.ConversationStarted, time: float
    ) -> None:
        row = ConversationListRow(conversation, started.title, time, parent=started.parent)
        self._rows[conversation] = _row_with_agents(
            replace(row, parent_call=started.parent_call), started
        )

    def update_row_with_fact(self, recorded: facts.Recorded, meter: WindowMeter | None) -> None:
        """Apply a new fact to its row. `meter`: from the conversation's session, if
        that is open.
        """
        self._today.add_cost_if_today(recorded)
        self._replace_row(_list_row_after_fact(self._rows[recorded.conversation], recorded))
        if meter is not None:
            self.update_row_meter(recorded.conversation, meter)

    def ids_above(self, conversation: str) -> list[str]:
        """Return the conversation that delegated this work, the one above that, and so on."""
        found = [conversation]  # Conversations of other machines may name each other as parents.
        while (
            (row := self._rows.get(found[-1])) is not None
            and row.parent in self._rows
            and row.parent not in found
        ):
            found.append(row.parent)
        return found[1:]

    def _replace_row(self, row: ConversationListRow) -> None:
        """Replace a row. The costs of a new one's sub-agents may already be known."""
        before = self._rows.get(row.id)
        below = before.agents_cost if before else self._cost_below_missing.pop(row.id, 0.0)
        self._rows[row.id] = replace(row, agents_cost=below)
        if dollars := row.cost - before.cost if before else row.cost + below:
            self._add_cost_above(row, dollars)

    def _add_cost_above(self, row: ConversationListRow, dollars: float) -> None:
        for above in self.ids_above(row.id):
            row = replace(self._rows[above], agents_cost=self._rows[above].agents_cost + dollars)
            self._rows[above] = row
        if row.parent and row.parent not in self._rows:
            self._cost_below_missing[row.parent] = (
                self._cost_below_missing.get(row.parent, 0.0) + dollars
            )

    def update_row_meter(self, conversation: str, meter: WindowMeter) -> None:
        row = self._rows[conversation]
        self._rows[conversation] = replace(row, parts=dict(meter.parts), window=meter.window)

    def cost_today_and_ever(self) -> tuple[float, float]:
        return self._today.cost_today, sum(row.cost for row in self)


class ConversationMeters:
    """Updates the rows of open conversations from their sessions. Stores meters at the
    end of a turn.
    """

    def __init__(
        self,
        rows: ConversationListRows,
        journal: StoreJournal,
        sessions: OpenSessions,
        spawn: TaskSpawner,
    ) -> None:
        self._rows, self._journal, self._sessions, self._spawn = rows, journal, sessions, spawn
        self._unsaved: dict[str, str] = {}  # Meters that are not saved yet, by conversation.

    def update_row_after_fact(self, recorded: facts.Recorded) -> None:
        """Update a row, and save its meter at the end of a turn. Of facts written
        together, the last has it.
        """
        session = self._sessions.find_open_session(recorded.conversation)
        is_last = session is not None and session.conversation.state.seq == recorded.seq
        meter = session.context.next_request_meter() if session and is_last else None
        self._rows.update_row_with_fact(recorded, meter)
        if session is not None and meter is not None:
            is_idle = session.running is ConversationActivity.IDLE
            if is_idle or isinstance(recorded.fact, facts.TurnEnded):
                self._schedule_meter_write(session, meter)

    def update_shown_meter(self, conversation: str) -> None:
        """Update the meter in the conversation's row, so that the list and the window agree."""
        session, row = (
            self._sessions.find_open_session(conversation),
            self._rows.find_row(conversation),
        )
        if session is not None and row is not None:
            meter = session.context.next_request_meter()
            if (row.parts, row.window) != (meter.parts, meter.window):
                self._rows.update_row_meter(conversation, meter)
                self._schedule_meter_write(session, meter)

    async def reread_rows_and_meters(self, conversations: Collection[str]) -> None:
        await self._rows.reread_rows(conversations)
        for conversation in conversations:
            self.update_shown_meter(conversation)

    async def save_unsaved_meters(self) -> None:
        for conversation in tuple(self._unsaved):
            await self._save_meter(conversation)

    def _schedule_meter_write(self, session: Session, meter: WindowMeter) -> None:
        if session.id not in self._unsaved:
            self._spawn(self._save_meter(session.id), name="keep the meter")
        state, row = session.conversation.state, self._rows.find_row(session.id)
        agents = session.agent, state.acp_agent, row.recorded_from if row else ""
        self._unsaved[session.id] = encode_meter(meter, state.seq, *agents)

    async def _save_meter(self, conversation: str) -> None:
        """Save the newest meter of a conversation. It counts as unsaved until it is written."""
        while meter := self._unsaved.get(conversation, ""):
            with suppress(HelixError):  # If no meter is saved, the list computes one.
                await self._journal.store_meter(conversation, meter)
            if self._unsaved.get(conversation) == meter:
                del self._unsaved[conversation]


def _list_row_of_stored(row: StoredConversation) -> ConversationListRow:
    """Build a row from the journal's, with the meter that was stored at the end of its
    last turn.
    """
    parts, window, agents = _decode_meter(row.meter, row.last_seq)
    same: dict[str, Any] = agents | {name: getattr(row, name) for name in _SAME_IN_LIST}
    title = row.title or row.begins
    return ConversationListRow(title=title, parts=parts, window=window, **same)


def _list_row_after_fact(row: ConversationListRow, recorded: facts.Recorded) -> ConversationListRow:
    row = replace(row, updated=recorded.time)
    if isinstance(recorded.fact, facts.ConversationChanged):
        given = {
            name: getattr(recorded.fact, name)
            for name in ("title", "pinned", "archived", "trashed")
        }
        row = replace(row, **{name: value for name, value in given.items() if value is not None})
    if isinstance(recorded.fact, facts.ConversationStarted):
        row = _row_with_agents(row, recorded.fact)
    if isinstance(recorded.fact, facts.UserSaid | facts.ModelReplied | facts.TurnEnded):
        row = replace(row, is_interrupted=False)
    usage = getattr(recorded.fact, "usage", None)
    return replace(row, cost=row.cost + usage.cost) if usage is not None else row


def _row_with_agents(
    row: ConversationListRow, started: facts.ConversationStarted
) -> ConversationListRow:
    program = NAMES.get(started.origin.kind, "")
    return replace(
        row,
        agent=started.agent,
        acp_agent=started.acp_agent or row.acp_agent,
        recorded_from=program,
    )


def encode_meter(meter: WindowMeter, seq: int, *agents: str) -> str:
    """Return the meter after the fact `seq`, to store in the journal. It is derived, so
    it has no version.
    """
    parts = {kind.name: tokens for kind, tokens in meter.parts.items()}
    named = {name: value for name, value in zip(_AGENTS, agents, strict=False) if value}
    return json.dumps({"window": meter.window, "parts": parts, "seq": seq, **named})


def _decode_meter(text: str, seq: int) -> tuple[Mapping[ContextKind, int], int, dict[str, str]]:
    """Decode a stored meter. Its parts are left out if it was measured before the fact `seq`."""
    try:
        kept = json.loads(text)
        known = int(kept.get("seq", seq)) >= seq
        parts = (
            {ContextKind[name]: int(tokens) for name, tokens in kept["parts"].items()}
            if known
            else {}
        )
        return parts, int(kept["window"]), {name: str(kept.get(name, "")) for name in _AGENTS}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, USUAL_WINDOW, {}
