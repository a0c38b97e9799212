"""The rows of the list of conversations, from the journal, and how full each context is."""

import itertools
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
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
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.added_formats import name_of_program
from helix_desktop.store.async_stores import StoreJournal
from helix_desktop.store.conversation_rows import StoredConversation
from helix_desktop.workbench.open_sessions import OpenSessions
from helix_desktop.workbench.times_of_last_use import TimesOfLastUse, Use

_AGENTS = ("agent", "acp_agent", "recorded_from")
_SAME_IN_LIST = ("id", "updated", "pinned", "archived", "trashed", "parent", "parent_call", "cost")


class DailyCost:
    """`cost_today` is in dollars, and is 0 again when a new day begins."""

    def __init__(self) -> None:
        self._cost = 0.0
        self._day = _local_day(time.time())

    @property
    def cost_today(self) -> float:
        if _local_day(time.time()) != self._day:
            return 0.0
        return self._cost

    def add_cost_if_today(self, recorded: facts.Recorded) -> None:
        day = _local_day(time.time())
        if day != self._day:
            self._day = day
            self._cost = 0.0
        if _local_day(recorded.time) != day:
            return
        if isinstance(recorded.fact, facts.ModelReplied | facts.Spent):
            self._cost += recorded.fact.usage.cost


def facts_paid_here(recorded_facts: Sequence[facts.Recorded]) -> Iterator[facts.Recorded]:
    """Yield the facts this conversation paid for: none imported, none that its fork began with."""
    paid: list[facts.Recorded] = []
    first_paid_elsewhere = 0
    if recorded_facts:
        first_paid_elsewhere = recorded_facts[-1].seq + 1
    # Backwards, because an import or a fork is recorded behind the facts that were paid
    # elsewhere: of a fork, these are all facts before.
    for recorded in reversed(recorded_facts):
        if recorded.seq < first_paid_elsewhere:
            paid.append(recorded)
        if isinstance(recorded.fact, facts.BroughtIn):
            first_paid_elsewhere = min(first_paid_elsewhere, recorded.fact.first)
        elif getattr(recorded.fact, "forked_from", ""):
            break
    return reversed(paid)


def last_midnight() -> float:
    now = time.localtime()
    # The last field means that it is not known whether it was summer time.
    return time.mktime((now.tm_year, now.tm_mon, now.tm_mday, 0, 0, 0, 0, 0, -1))


def _local_day(timestamp: float) -> tuple[int, ...]:
    return time.localtime(timestamp)[:3]


class ConversationListRows:
    """The rows of all conversations, up to date with the last fact, and what has been spent."""

    def __init__(self, journal: StoreJournal) -> None:
        self._journal = journal
        self._rows: dict[str, ConversationListRow] = {}
        self._cost_below_missing: dict[str, float] = {}  # By a parent that has no row.
        self._today = DailyCost()
        self._times = TimesOfLastUse()

    def __iter__(self) -> Iterator[ConversationListRow]:
        return iter(self._rows.values())

    def find_row(self, conversation: str) -> ConversationListRow | None:
        return self._rows.get(conversation)

    async def read_all_rows(self) -> None:
        """Read all rows from the journal, and what was spent since midnight."""
        first_facts = await self._journal.first_facts_without_meter()
        first_fact_by_conversation = {first.conversation: first for first in first_facts}
        rows: dict[str, ConversationListRow] = {}
        for stored_row in await self._journal.list_conversations():
            first_fact = first_fact_by_conversation.get(stored_row.id)
            rows[stored_row.id] = await self._row_with_agent_name(stored_row, first_fact)
        self._rows = rows
        await self._date_rows_in_order_of_use()
        # No turn has been started here yet, so the open ones were interrupted.
        for name in await self._journal.conversations_with_open_turn():
            row = self._rows[name]
            if not row.agent and not row.recorded_from:
                self._rows[name] = replace(row, is_interrupted=True)
        self._cost_below_missing.clear()
        for row in tuple(self):
            self._add_cost_above(row, row.cost)
        paid_today = await self._journal.facts_about_cost(last_midnight())
        for _, facts_of_conversation in itertools.groupby(paid_today, attrgetter("conversation")):
            for recorded in facts_paid_here(tuple(facts_of_conversation)):
                self._today.add_cost_if_today(recorded)

    async def _date_rows_in_order_of_use(self) -> None:
        """Give conversations that were used while the clock was wrong a time that fits between
        those used before and after.
        """
        uses: dict[str, Use] = {}
        for conversation, number in await self._journal.numbers_of_last_facts_by_own_clock():
            row = self._rows.get(conversation)
            if row is not None:
                uses[conversation] = Use(number, row.updated)
        self._show_times_of_use(self._times.set_all_uses(uses))

    def _show_times_of_use(self, times: Mapping[str, float]) -> None:
        for conversation, time_of_use in times.items():
            row = self._rows.get(conversation)
            if row is not None and row.updated != time_of_use:
                self._rows[conversation] = replace(row, updated=time_of_use)

    async def reread_rows(self, conversations: Collection[str]) -> None:
        """Read rows again of conversations that are new, or did not change by single facts."""
        for conversation in conversations:
            with suppress(NotFound):
                row = await self._journal.find_conversation(conversation)
                # What other programs and machines write has the times of their clocks.
                self._times.forget_conversations([conversation])
                first_fact = None
                if not row.meter:
                    first_fact = await self._read_fact_that_names_agent(row)
                self._replace_row(await self._row_with_agent_name(row, first_fact))

    async def _read_fact_that_names_agent(self, row: StoredConversation) -> facts.Recorded | None:
        seq_before = 0
        if row.forked_from:
            # A fork begins with the copied facts and one more. The next fact names the agent.
            seq_before = row.forked_at + 1
        read_facts = await self._journal.read_facts(row.id, after=seq_before, limit=1)
        if not read_facts:
            return None
        return read_facts[0]

    async def _row_with_agent_name(
        self, stored_row: StoredConversation, first_fact: facts.Recorded | None
    ) -> ConversationListRow:
        """Return the row with the agent's name, as it was stored or from the first fact."""
        row = _list_row_of_stored(stored_row)
        if stored_row.forked_from and stored_row.cost:
            # The sum from the journal includes the cost of the copied facts.
            facts_of_fork = await self._journal.read_facts(
                stored_row.id, after=stored_row.forked_at
            )
            cost = 0.0
            for recorded in facts_paid_here(facts_of_fork):
                usage = getattr(recorded.fact, "usage", None)
                if usage:
                    cost += usage.cost
            row = replace(row, cost=cost)
        if first_fact is not None and isinstance(first_fact.fact, facts.ConversationStarted):
            return _row_with_agents(row, first_fact.fact)
        return row

    def remove_conversation_rows(self, conversations: Collection[str]) -> None:
        self._times.forget_conversations(conversations)
        for conversation in conversations:
            row = self._rows.get(conversation)
            if row is None:
                continue
            self._add_cost_above(row, -row.cost - row.agents_cost)
            # Its agents may stay, and it may come back from another machine.
            self._cost_below_missing[conversation] = row.agents_cost
            del self._rows[conversation]

    def add_new_row(
        self, conversation: str, started: facts.ConversationStarted, time: float
    ) -> None:
        row = ConversationListRow(
            conversation,
            started.title,
            time,
            parent=started.parent,
            parent_call=started.parent_call,
        )
        self._rows[conversation] = _row_with_agents(row, started)

    def update_row_with_fact(self, recorded: facts.Recorded, meter: WindowMeter | None) -> None:
        """Apply a new fact to its row. `meter`: from the conversation's session, if
        that is open.
        """
        self._today.add_cost_if_today(recorded)
        self._replace_row(_list_row_after_fact(self._rows[recorded.conversation], recorded))
        if not isinstance(recorded.fact, facts.BroughtIn):
            times = self._times.note_use(recorded.conversation, recorded.time)
            self._show_times_of_use(times)
        if meter is not None:
            self.update_row_meter(recorded.conversation, meter)

    def ids_above(self, conversation: str) -> list[str]:
        """Return the conversation that delegated this work, the one above that, and so on."""
        ids = [conversation]
        while True:
            row = self._rows.get(ids[-1])
            if row is None or row.parent not in self._rows:
                break
            # Conversations of other machines may name each other as parents.
            if row.parent in ids:
                break
            ids.append(row.parent)
        return ids[1:]

    def _replace_row(self, row: ConversationListRow) -> None:
        """Replace a row. The costs of a new one's sub-agents may already be known."""
        before = self._rows.get(row.id)
        if before is not None:
            agents_cost = before.agents_cost
            added_dollars = row.cost - before.cost
        else:
            agents_cost = self._cost_below_missing.pop(row.id, 0.0)
            added_dollars = row.cost + agents_cost
        self._rows[row.id] = replace(row, agents_cost=agents_cost)
        if added_dollars:
            self._add_cost_above(row, added_dollars)

    def _add_cost_above(self, row: ConversationListRow, dollars: float) -> None:
        top_row = row
        for conversation_above in self.ids_above(row.id):
            row_above = self._rows[conversation_above]
            top_row = replace(row_above, agents_cost=row_above.agents_cost + dollars)
            self._rows[conversation_above] = top_row
        missing_parent = top_row.parent
        if missing_parent and missing_parent not in self._rows:
            known_cost = self._cost_below_missing.get(missing_parent, 0.0)
            self._cost_below_missing[missing_parent] = known_cost + dollars

    def update_row_meter(self, conversation: str, meter: WindowMeter) -> None:
        row = self._rows[conversation]
        self._rows[conversation] = replace(row, parts=dict(meter.parts), window=meter.window)

    def cost_today_and_ever(self) -> tuple[float, float]:
        cost_ever = 0.0
        for row in self:
            cost_ever += row.cost
        return self._today.cost_today, cost_ever


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
        self._rows = rows
        self._journal = journal
        self._sessions = sessions
        self._spawn = spawn
        self._unsaved: dict[str, str] = {}  # Meters that are not saved yet, by conversation.

    def update_row_after_fact(self, recorded: facts.Recorded) -> None:
        """Update a row, and save its meter at the end of a turn. Of facts written
        together, the last has it.
        """
        session = self._sessions.find_open_session(recorded.conversation)
        meter = None
        if session is not None and session.conversation.state.seq == recorded.seq:
            meter = session.context.next_request_meter()
        self._rows.update_row_with_fact(recorded, meter)
        if session is not None and meter is not None:
            is_idle = session.running is ConversationActivity.IDLE
            if is_idle or isinstance(recorded.fact, facts.TurnEnded):
                self._schedule_meter_write(session, meter)

    def update_shown_meter(self, conversation: str) -> None:
        """Update the meter in the conversation's row, so that the list and the window agree."""
        session = self._sessions.find_open_session(conversation)
        row = self._rows.find_row(conversation)
        if session is None or row is None:
            return
        meter = session.context.next_request_meter()
        if row.parts != meter.parts or row.window != meter.window:
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
        state = session.conversation.state
        row = self._rows.find_row(session.id)
        recorded_from = ""
        if row is not None:
            recorded_from = row.recorded_from
        self._unsaved[session.id] = encode_meter(
            meter, state.seq, session.agent, state.acp_agent, recorded_from
        )

    async def _save_meter(self, conversation: str) -> None:
        """Save the newest meter of a conversation. It counts as unsaved until it is written."""
        while conversation in self._unsaved:
            meter = self._unsaved[conversation]
            with suppress(HelixError):  # If no meter is saved, the list computes one.
                await self._journal.store_meter(conversation, meter)
            # While this one was written, a newer one may have come.
            if self._unsaved.get(conversation) == meter:
                del self._unsaved[conversation]


def _list_row_of_stored(row: StoredConversation) -> ConversationListRow:
    """Build a row from the journal's, with the meter that was stored at the end of its
    last turn.
    """
    stored_meter = _decode_meter(row.meter, row.last_seq)
    # These fields have the same names in both.
    fields: dict[str, Any] = {name: getattr(row, name) for name in _SAME_IN_LIST}
    fields.update(stored_meter.agents)
    fields["title"] = row.title or row.begins
    fields["parts"] = stored_meter.parts
    fields["window"] = stored_meter.window
    return ConversationListRow(**fields)


def _list_row_after_fact(row: ConversationListRow, recorded: facts.Recorded) -> ConversationListRow:
    """Return a row as it is after a new fact of its conversation."""
    fact = recorded.fact
    changes: dict[str, Any] = {"updated": recorded.time}
    if isinstance(fact, facts.ConversationChanged):
        for name in ("title", "pinned", "archived", "trashed"):
            value = getattr(fact, name)
            if value is not None:  # None means that it stays as it is.
                changes[name] = value
    if isinstance(fact, facts.UserSaid | facts.ModelReplied | facts.TurnEnded):
        changes["is_interrupted"] = False
    usage = getattr(fact, "usage", None)
    if usage is not None:
        changes["cost"] = row.cost + usage.cost
    if isinstance(fact, facts.BroughtIn):
        # Another program paid for the replies that came before. The journal's rows do the same.
        changes["cost"] = max(0.0, row.cost - fact.cost)
    changed_row = replace(row, **changes)
    if isinstance(fact, facts.ConversationStarted):
        return _row_with_agents(changed_row, fact)
    return changed_row


def _row_with_agents(
    row: ConversationListRow, started: facts.ConversationStarted
) -> ConversationListRow:
    program = name_of_program(started.origin.kind)
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
    values: dict[str, object] = {"window": meter.window, "parts": parts, "seq": seq}
    for name, agent in zip(_AGENTS, agents, strict=False):
        if agent:
            values[name] = agent
    return json.dumps(values)


@dataclass(frozen=True, slots=True)
class _StoredMeter:
    parts: Mapping[ContextKind, int] = field(default_factory=dict)
    window: int = USUAL_WINDOW
    agents: Mapping[str, str] = field(default_factory=dict)


def _decode_meter(text: str, seq: int) -> _StoredMeter:
    """Decode a stored meter. Its parts are left out if it was measured before the fact `seq`."""
    try:
        decoded = json.loads(text)
        agents = {name: str(decoded.get(name, "")) for name in _AGENTS}
        window = int(decoded["window"])
        measured_at = int(decoded.get("seq", seq))
        if measured_at < seq:
            return _StoredMeter({}, window, agents)
        parts: dict[ContextKind, int] = {}
        for name, tokens in decoded["parts"].items():
            parts[ContextKind[name]] = int(tokens)
        return _StoredMeter(parts, window, agents)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        # Another version may have stored it in another form. The list shows less until
        # the next turn.
        return _StoredMeter()
