"""`cost`: why requests cost what they did: what was read from the provider's cache,
what was written anew, and why.
"""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from datetime import UTC, datetime
from typing import Any

from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
)
from helix_desktop.commands.workspace_access import (
    find_conversation_by_prefix,
    print_result,
    run_on_workspace,
)
from helix_desktop.console import Console, put_on_one_line
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    ModelReplied,
    ModelSet,
    Received,
    Recorded,
)
from helix_desktop.engine.request_costs import RequestCost, read_original_and_explain_requests
from helix_desktop.engine.state.token_ledger import LEAST_DOLLARS, Savings
from helix_desktop.engine.view import build_state
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.added_formats import name_of_program
from helix_desktop.histories.seen_twice import (
    SeenSession,
    TimedReply,
    find_replies_paid_elsewhere,
    names_of_session,
)
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.open_questions import record_unanswered_questions
from helix_desktop.workbench.open_workbench import workbench_of
from helix_desktop.workbench.unread_requests import (
    describe_unread_requests,
    sum_of_unread_requests,
    unread_requests_of_workspace,
)

OWN = "Helix Desktop"
# What savings are compared with (`engine/state/token_ledger.py`), as scripts read it in `--json`.
COMPARED_WITH = "a summary only when the window is full"


@dataclass(slots=True)
class CostSum:
    """`is_free`: all of its requests went to models that nobody charges for."""

    tokens: int = 0
    cost: float = 0.0
    is_free: bool = True


@dataclass(slots=True)
class CostSums:
    days: dict[str, CostSum] = field(default_factory=dict)
    agents: dict[str, CostSum] = field(default_factory=dict)
    models: dict[str, CostSum] = field(default_factory=dict)
    causes: dict[str, CostSum] = field(default_factory=dict)

    def add_request(self, counted: CountedRequest) -> None:
        """Adds a request to the sums of its day, agent and model, and its causes to theirs. A
        cause is why tokens were not read from the provider's cache.
        """
        request = counted.request
        is_free = counted.is_free
        day = datetime.fromtimestamp(request.time, UTC).astimezone().strftime("%Y-%m-%d")
        model = request.model.rpartition("/")[2]
        _add_to_sum(self.days, day, request.tokens, request.cost, is_free=is_free)
        _add_to_sum(self.agents, counted.agent, request.tokens, request.cost, is_free=is_free)
        _add_to_sum(self.models, model, request.tokens, request.cost, is_free=is_free)
        for cause in request.causes:
            kind = cause.cause.kind.value
            _add_to_sum(self.causes, kind, cause.tokens, cause.cost, is_free=is_free)


def _add_to_sum(
    sums: dict[str, CostSum], name: str, tokens: int, cost: float, *, is_free: bool
) -> None:
    total = sums.setdefault(name, CostSum())
    total.tokens += tokens
    total.cost += cost
    total.is_free &= is_free


async def print_costs(arguments: Namespace, workspace: StoredWorkspace, console: Console) -> int:
    """Prints what all requests cost, by day, agent, model and cause, or those of one conversation."""
    from helix_desktop.extensions.extension_loading import load_extensions_once

    # A format of an extension brings the name of the program whose sessions are counted.
    await load_extensions_once(arguments.places)
    bench = workbench_of(workspace)
    with suppress(HelixError):
        if bench is None:  # No conversation is open, so this may add to each.
            await record_unanswered_questions(workspace)
        else:
            await bench.record_questions_of_ended_processes()
    if arguments.conversation:
        return await _print_conversation_cost(arguments, workspace, console)
    sums = CostSums()
    for counted in await _read_requests_of_agents(workspace):
        sums.add_request(counted)

    account = unread_requests_of_workspace(workspace.folder)
    unread = sum_of_unread_requests(await asyncio.to_thread(account.read_unread_requests))
    result: dict[str, Any] = {
        "days": _sums_as_json("day", sums.days),
        "agents": _sums_as_json("agent", sums.agents),
        "models": _sums_as_json("model", sums.models),
        "causes": _sums_as_json("cause", sums.causes),
    }
    if unread.requests:
        result["unread"] = asdict(unread)
    lines = ["By day"]
    for day in sorted(sums.days):
        lines.append(_format_sum(day, sums.days[day]))
    lines += _describe_sums("By agent", sums.agents)
    lines += _describe_sums("By model", sums.models)
    lines += _describe_sums("By cause", sums.causes)
    if not sums.days:
        lines = ["No request has been recorded in this workspace."]
    if unread.requests:
        lines.append(describe_unread_requests(unread))
    return await print_result(arguments, console, result, *lines)


def _sums_as_json(what_is_named: str, sums: Mapping[str, CostSum]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, total in sums.items():
        rows.append({what_is_named: name, "tokens": total.tokens, "cost": total.cost})
    return rows


def _describe_sums(heading: str, sums: Mapping[str, CostSum]) -> list[str]:
    """Returns a line for each sum, the most expensive one first."""
    lines = [heading]
    by_cost = sorted(sums.items(), key=_cost_of_named_sum, reverse=True)
    for name, total in by_cost:
        lines.append(_format_sum(name, total))
    return lines


def _cost_of_named_sum(name_and_sum: tuple[str, CostSum]) -> float:
    return name_and_sum[1].cost


def _format_sum(name: str, total: CostSum) -> str:
    dollars = _format_dollars(total.cost, is_free=total.is_free)
    return f"  {put_on_one_line(name):<40} {total.tokens:>14,} tokens  {dollars:>12}"


async def _print_conversation_cost(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Prints what each request of a conversation cost and why, and what its sub-agents cost."""
    conversation = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(conversation)
    requests = await read_original_and_explain_requests(
        facts, shipped_prices, workspace.journal.read_facts
    )
    free_models = _free_models_of(facts)
    lines: list[str] = []
    result: list[dict[str, Any]] = []
    for request in requests:
        lines += _describe_request(request, is_free=request.model in free_models)
        result.append(_request_as_json(request))

    sub_agents = await _list_agents_with_costs(workspace, conversation)
    for agent in sub_agents:
        dollars = _format_dollars(agent["cost"])
        lines.append(f"{dollars:>39}  sub-agent {agent['conversation']}: {agent['title']}")
    savings = build_state(facts).savings_until_moment()
    lines += _describe_savings(savings)
    printed = {"requests": result, "agents": sub_agents, "savings": _savings_as_json(savings)}
    await print_result(arguments, console, printed, *lines)
    if not requests and not arguments.json:
        await console.print_error("The provider reported no token usage for this conversation.")
    return 0


def _describe_request(request: RequestCost, *, is_free: bool) -> list[str]:
    """Returns a line for a request, and one for each cause of its cost."""
    cost = _format_dollars(request.cost, is_free=is_free)
    lines = [f"{request.seq:>6}  {request.tokens:>10,} tokens  {cost:>10}  {request.model}"]
    for cause in request.causes:
        dollars = _format_dollars(cause.cost, is_free=is_free)
        words = cause.cause.describe_cause()
        lines.append(f"        {cause.tokens:>10,}         {dollars:>10}  {words}")
    return lines


def _request_as_json(request: RequestCost) -> dict[str, Any]:
    causes: list[dict[str, Any]] = []
    for cause in request.causes:
        words = cause.cause.describe_cause()
        causes.append({"cause": words, "tokens": cause.tokens, "cost": cause.cost})
    return {"seq": request.seq, "tokens": request.tokens, "cost": request.cost, "causes": causes}


def _savings_as_json(figures: Savings) -> dict[str, object]:
    """Returns what was sent and paid, and what it would have been without shortening."""
    return {
        "compared_with": COMPARED_WITH,
        "tokens": figures.sent,
        "tokens_without": figures.without,
        "cost": figures.paid,
        "cost_without": figures.paid_without,
    }


def _describe_savings(figures: Savings) -> list[str]:
    """Returns the line that says what shortening has saved or cost, if it is anything."""
    if figures.is_saved_in_dollars:
        saved = figures.saved_dollars
        is_nothing = abs(saved) < LEAST_DOLLARS
        amount = _format_dollars(abs(saved))
        comparison = f"{_format_dollars(figures.paid)} instead of about {_format_dollars(figures.paid_without)}"
    else:
        saved = figures.saved_tokens
        is_nothing = not saved
        amount = f"{abs(saved):,} tokens"
        comparison = f"{figures.sent:,} instead of about {figures.without:,} tokens"
    if is_nothing:
        return []
    verb = "saved"
    if saved < 0:
        verb = "cost"
        amount = f"{amount} more"
    return [
        f"Shortening has {verb} about {amount} so far: {comparison} if everything were sent as long as it fits."
    ]


def _free_models_of(facts: Sequence[Recorded]) -> frozenset[str]:
    """Returns the models that ran on the user's own computer."""
    free_models: set[str] = set()
    for recorded in facts:
        if isinstance(recorded.fact, ModelSet) and recorded.fact.is_free:
            free_models.add(recorded.fact.model)
    return frozenset(free_models)


async def _list_agents_with_costs(workspace: StoredWorkspace, name: str) -> list[dict[str, Any]]:
    """Returns the sub-agents of this conversation, those that they started, and so on."""
    rows = await workspace.journal.list_conversations()
    agents: list[dict[str, Any]] = []
    listed_ids = {name}
    while True:
        children = [row for row in rows if row.parent in listed_ids and row.id not in listed_ids]
        if not children:
            return agents
        for row in children:
            agents.append({"conversation": row.id, "title": row.title, "cost": row.cost})
            listed_ids.add(row.id)


@dataclass(frozen=True, slots=True)
class _CountedConversation:
    """A conversation's requests, and what they are of an agent's session."""

    agent: str
    requests: list[RequestCost]
    seen: SeenSession
    own_requests: set[int]  # The numbers of those that this program sent itself.
    free_models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CountedRequest:
    """A request that counts, and the agent that sent it."""

    agent: str
    request: RequestCost
    is_free: bool


async def _read_requests_of_agents(workspace: StoredWorkspace) -> list[CountedRequest]:
    """Returns all requests and their agents. One that the gateway and an agent's
    history have, or copies, counts once.
    """
    conversations: list[_CountedConversation] = []
    for name in await _list_originals_before_copies(workspace):
        conversations.append(await _read_counted_conversation(workspace, name))
    sessions = [conversation.seen for conversation in conversations]
    paid_elsewhere = find_replies_paid_elsewhere(sessions)

    counted: list[CountedRequest] = []
    for conversation, seqs_paid_elsewhere in zip(conversations, paid_elsewhere, strict=True):
        for request in conversation.requests:
            if request.seq in seqs_paid_elsewhere:
                continue
            agent = conversation.agent
            if request.seq in conversation.own_requests:
                agent = OWN
            is_free = request.model in conversation.free_models
            counted.append(CountedRequest(agent, request, is_free))
    return counted


async def _list_originals_before_copies(workspace: StoredWorkspace) -> list[str]:
    """Returns conversations: first what began here, then what was imported, oldest import first."""
    rows = await workspace.journal.list_conversations()
    imported_ids: dict[str, None] = {}  # A dict, because it keeps the order.
    for recorded in await workspace.journal.facts_about_imports():
        if isinstance(recorded.fact, BroughtIn) and recorded.fact.run:
            imported_ids[recorded.conversation] = None

    ids = {row.id for row in rows}
    began_here = [row.id for row in rows if row.id not in imported_ids]
    # An imported conversation may have been deleted since then.
    still_stored = [imported_id for imported_id in imported_ids if imported_id in ids]
    return began_here + still_stored


async def _read_counted_conversation(
    workspace: StoredWorkspace, conversation: str
) -> _CountedConversation:
    """Reads a conversation's requests, and whose session they are of."""
    recorded_facts = await workspace.journal.read_facts(conversation)
    requests = await read_original_and_explain_requests(
        recorded_facts, shipped_prices, workspace.journal.read_facts
    )

    replies: dict[int, TimedReply] = {}
    own_requests: set[int] = set()
    for request in requests:
        reply = recorded_facts[request.seq - 1].fact
        if not isinstance(reply, ModelReplied):
            continue
        replies[request.seq] = TimedReply(request.time, reply)
        # Only this program notes the digest of a request, also in a conversation that
        # it imported.
        if reply.request:
            own_requests.add(request.seq)

    facts = [recorded.fact for recorded in recorded_facts]
    starts = [fact for fact in facts if isinstance(fact, ConversationStarted)]
    is_imported = any(start.origin.kind for start in starts)
    is_live = any(isinstance(fact, Received) for fact in facts)
    names = frozenset(names_of_session(facts))
    seen = SeenSession(names, replies, is_live=is_live, is_imported=is_imported)
    agent = _agent_that_started(starts)
    free_models = _free_models_of(recorded_facts)
    return _CountedConversation(agent, requests, seen, own_requests, free_models)


def _agent_that_started(starts: Sequence[ConversationStarted]) -> str:
    """Returns the agent or program that a conversation is of. A fork begins with the facts of its
    original, so its last start counts.
    """
    if not starts:
        return OWN
    last_start = starts[-1]
    program = last_start.origin.kind
    return last_start.agent or name_of_program(program) or program or OWN


def _format_dollars(cost: float, *, is_free: bool = False) -> str:
    if cost:
        decimals = 2
        if 0 < cost < 1:
            decimals = 4
        return f"${cost:,.{decimals}f}"
    if is_free:
        return "assumed free"
    return "no price"


def add_cost_commands(nouns: Subparsers) -> None:
    """Declares `cost`, which has no verbs."""
    noun = add_command(nouns, "cost", "show why requests cost what they did")
    add_workspace_option(noun)
    noun.add_argument(
        "--conversation",
        "-c",
        metavar="C",
        default="",
        help="the conversation's ID, or the first part of it (default: totals for all conversations)",
    )
    add_json_option(noun)
    noun.set_defaults(run=run_on_workspace, work=print_costs, counts=False, reads=True)
