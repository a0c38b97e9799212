"""Recognises in a request what was imported from the agent's own files, so that both go on as one
conversation.

A session may have run without the gateway before, with the recorder on. When the agent
resumes it through the gateway, its first request tells everything again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.view import build_state
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_conversation import parts_from_pieces
from helix_desktop.gateway.conversations_port import Arrival
from helix_desktop.gateway.history_summarized_by_agent import (
    SummaryAtBeginning,
    find_summary_at_beginning,
    messages_from_summary_on,
)
from helix_desktop.gateway.summarized_conversation import (
    KeptEnd,
    find_kept_end,
    has_imported_summary,
    keeps_nothing,
    list_messages_behind_summary,
)
from helix_desktop.histories.seen_twice import names_of_session
from helix_desktop.protocols.gateway_message import PieceKind, ProtocolMessage, Speaker
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.session_intake import NEWEST, id_of_imported_session
from helix_desktop.workbench.session_seen_live import (
    ToldMessage,
    is_continued_here,
    match_first_messages,
    told_message_from_texts,
)

# So many conversations are compared with a request of an agent that does not name its session.
MOST_LOOKED_AT = 50


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """The conversation that an import made of a session. `seqs`: the last fact of each of the
    request's first messages, as far as they are there. `is_compacted`: its agent has shortened it.
    `is_summarized`: the request has the agent's own summary in place of them, and behind it `kept`,
    the end of the conversation, if that is there.
    """

    conversation: str
    seqs: tuple[int, ...]
    started: facts.ConversationStarted
    is_archived: bool
    is_compacted: bool = False
    is_summarized: bool = False
    kept: KeptEnd | None = None


async def find_imported_session(
    bench: Workbench, arrival: Arrival, messages: Sequence[ProtocolMessage]
) -> ImportedSession | None:
    """Return the conversation that was imported from an agent's own files and that its request
    continues, or None.

    Of several that begin with the same messages, it is the one that has most of them. What the
    user has continued here, thrown away or works on with another machine stays as it is.
    """
    summary = find_summary_at_beginning(messages)
    if summary is not None and not arrival.is_below_another:
        # Without a name, the messages that the agent has kept tell more than its summary.
        if arrival.session or not summary.keeps_messages:
            return await _find_summarized_session(bench, arrival, messages, summary)
    has_reply = any(message.speaker is Speaker.ASSISTANT for message in messages)
    if arrival.session:
        return await _find_session_by_name(bench, arrival, messages, has_reply=has_reply)
    if not has_reply:  # The session begins with this request.
        return None

    most_similar: ImportedSession | None = None
    most_messages = 0
    for conversation in await _list_conversations_that_begin_alike(bench, arrival.agent, messages):
        imported = await _compare_with_imported(bench, conversation, messages)
        if imported is not None and len(imported.seqs) > most_messages:
            most_similar = imported
            most_messages = len(imported.seqs)
    return most_similar


async def _find_session_by_name(
    bench: Workbench, arrival: Arrival, messages: Sequence[ProtocolMessage], *, has_reply: bool
) -> ImportedSession | None:
    """Return the conversation of the session that a request names, if it goes on with that.

    A request without a reply begins its session, unless its agent has put a summary in the place of
    all replies, as Codex does in a form that only its provider can read.
    """
    conversation = id_of_imported_session(arrival.agent, arrival.session)
    imported = await _compare_with_imported(bench, conversation, messages)
    if imported is None:
        return None
    begins_alike = has_reply and bool(imported.seqs)
    is_shortened = imported.is_compacted and not arrival.is_below_another
    if begins_alike or is_shortened:
        return imported
    return None


async def _find_summarized_session(
    bench: Workbench,
    arrival: Arrival,
    messages: Sequence[ProtocolMessage],
    summary: SummaryAtBeginning,
) -> ImportedSession | None:
    """Return the conversation for whose messages a request has the agent's own summary: the one of
    the session that it names, or else the only one that ends with what is behind it, where that is
    much or the agent's file had this very summary.
    """
    compared_messages = messages_from_summary_on(messages, summary)
    text_of_summary = ""
    if summary.piece is not None:
        text_of_summary = summary.piece.text
    behind_summary = await asyncio.to_thread(
        list_messages_behind_summary, compared_messages, text_of_summary
    )
    if arrival.session:
        candidates = [id_of_imported_session(arrival.agent, arrival.session)]
    else:
        candidates = _list_imported_conversations(bench, arrival.agent)
    certain: list[ImportedSession] = []
    for conversation in candidates:
        recorded_facts = await _read_facts_that_may_go_on(bench, conversation)
        if not recorded_facts:
            continue
        # In a thread: a long conversation takes a while.
        moment = await asyncio.to_thread(build_state, recorded_facts)
        kept = await asyncio.to_thread(find_kept_end, moment, behind_summary)
        is_certain = kept is not None and kept.is_certain
        if not is_certain and (kept is not None or keeps_nothing(behind_summary)):
            is_certain = await asyncio.to_thread(has_imported_summary, moment, summary.text)
        if arrival.session or is_certain:
            imported = _imported_session_of_facts(bench, conversation, recorded_facts, ())
            certain.append(replace(imported, is_summarized=True, kept=kept))
    if len(certain) != 1:
        return None
    return certain[0]


async def _compare_with_imported(
    bench: Workbench, conversation: str, messages: Sequence[ProtocolMessage]
) -> ImportedSession | None:
    """Return the conversation, with what it begins with of these messages, if it may be continued."""
    recorded_facts = await _read_facts_that_may_go_on(bench, conversation)
    if not recorded_facts:
        return None
    seqs = await asyncio.to_thread(find_facts_of_messages, recorded_facts, messages)
    return _imported_session_of_facts(bench, conversation, recorded_facts, seqs)


async def _read_facts_that_may_go_on(
    bench: Workbench, conversation: str
) -> Sequence[facts.Recorded]:
    """Return the facts of a conversation, or none if it must stay as it is."""
    row = bench.conversation_row(conversation)
    if row is None or row.trashed or bench.sharing.other_machine_writing(conversation):
        return ()
    recorded_facts = await bench.read_conversation_facts(conversation)
    if is_continued_here(recorded_facts):
        return ()
    return recorded_facts


def _imported_session_of_facts(
    bench: Workbench,
    conversation: str,
    recorded_facts: Sequence[facts.Recorded],
    seqs: tuple[int, ...],
) -> ImportedSession:
    start_facts: list[facts.ConversationStarted] = []
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.ConversationStarted):
            start_facts.append(recorded.fact)
    row = bench.conversation_row(conversation)
    is_archived = row is not None and row.archived
    is_compacted = any(_is_compaction(recorded.fact) for recorded in recorded_facts)
    return ImportedSession(
        conversation, seqs, start_facts[-1], is_archived=is_archived, is_compacted=is_compacted
    )


def _is_compaction(fact: facts.Fact) -> bool:
    return isinstance(fact, facts.Folded) and fact.kind is facts.FoldKind.HANDOVER


async def _list_conversations_that_begin_alike(
    bench: Workbench, agent: str, messages: Sequence[ProtocolMessage]
) -> list[str]:
    """Return the imported conversations of an agent that begin with the same words and the same
    first reply as a request. They are needed for agents that do not name their session.
    """
    candidates = _list_imported_conversations(bench, agent)
    if not candidates:
        return []
    # In a thread: the first message may be long, and others are to be answered meanwhile.
    beginning = await asyncio.to_thread(_facts_of_beginning, agent, messages)
    names = names_of_session(beginning)
    similar_conversations: list[str] = []
    for conversation in candidates:
        first_facts = await bench.workspace.journal.read_facts(conversation, limit=NEWEST)
        names_of_row = names_of_session([recorded.fact for recorded in first_facts])
        if not names.isdisjoint(names_of_row):
            similar_conversations.append(conversation)
    return similar_conversations


def _list_imported_conversations(bench: Workbench, agent: str) -> list[str]:
    """Return those that changed last of an agent's imported conversations."""
    imported_rows = [row for row in bench.list_conversations() if row.recorded_from == agent]
    imported_rows.sort(key=lambda row: row.updated, reverse=True)
    return [row.id for row in imported_rows[:MOST_LOOKED_AT]]


def _facts_of_beginning(agent: str, messages: Sequence[ProtocolMessage]) -> list[facts.Fact]:
    """Return what a request's messages are as facts, up to the first reply."""
    beginning: list[facts.Fact] = [facts.ConversationStarted(agent=agent)]
    for message in messages:
        if message.speaker is Speaker.ASSISTANT:
            parts = parts_from_pieces(message.pieces)
            beginning.append(facts.ModelReplied(parts, "", facts.Stop.END))
            break
        texts = [facts.Text(piece.text) for piece in message.pieces_of_kind(PieceKind.TEXT)]
        beginning.append(facts.UserSaid(tuple(texts)))
    return beginning


def facts_that_connect_agent(imported: ImportedSession, arrival: Arrival) -> list[facts.Fact]:
    """Return the facts by which the agent goes on with a conversation that was imported."""
    known_count = len(imported.seqs)
    known_hashes = arrival.chain[:known_count]
    received = facts.Received(known_hashes, imported.seqs, arrival.session, arrival.head)
    started = facts.ConversationStarted(
        parent=imported.started.parent,
        parent_call=imported.started.parent_call,
        origin=imported.started.origin,
        agent=arrival.agent,
    )
    new_facts: list[facts.Fact] = [started, received]
    if imported.is_archived:
        new_facts.append(facts.ConversationChanged(archived=False))
    return new_facts


def find_facts_of_messages(
    recorded_facts: Sequence[facts.Recorded], messages: Sequence[ProtocolMessage], after: int = 0
) -> tuple[int, ...]:
    """Return the last fact of each of the first messages, as far as they are recorded behind the
    fact `after`. It may take a second.
    """
    told_messages = [_told_message(message) for message in messages]
    return match_first_messages(recorded_facts, told_messages, after)


def has_imported_facts(recorded_facts: Sequence[facts.Recorded], after: int) -> bool:
    """Whether something was imported from the agent's files behind the fact `after`."""
    for recorded in reversed(recorded_facts):
        if recorded.seq <= after:
            return False
        if isinstance(recorded.fact, facts.BroughtIn) and recorded.fact.run:
            return recorded.fact.first < recorded.seq
    return False


def _told_message(message: ProtocolMessage) -> ToldMessage:
    """Return a request's message in the form in which it is compared with recorded facts."""
    if message.speaker is Speaker.ASSISTANT:
        parts = parts_from_pieces(message.pieces)
        return ToldMessage(facts.ModelReplied(parts, "", facts.Stop.END))
    texts = [piece.text for piece in message.pieces_of_kind(PieceKind.TEXT)]
    results = [piece.id for piece in message.pieces_of_kind(PieceKind.RESULT)]
    return told_message_from_texts(texts, results)
