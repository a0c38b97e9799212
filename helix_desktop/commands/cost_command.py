"""`cost`: why requests cost what they did: what was read from the provider's cache,
what was written anew, and why.
"""

from argparse import Namespace
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
from helix_desktop.console import Console
from helix_desktop.engine.facts import BroughtIn, ConversationStarted, ModelReplied, Received
from helix_desktop.engine.request_costs import RequestCost, read_original_and_explain_requests
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.seen_twice import (
    SeenSession,
    TimedReply,
    find_replies_paid_elsewhere,
    names_of_session,
)
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.store.stored_workspace import StoredWorkspace

Sums = dict[str, tuple[int, float]]
OWN = "Helix Desktop"


async def print_costs(arguments: Namespace, workspace: StoredWorkspace, console: Console) -> int:
    if arguments.conversation:
        return await _print_conversation_cost(arguments, workspace, console)
    sums: dict[str, Sums] = {"days": {}, "agents": {}, "models": {}, "causes": {}}
    for agent, request in await _read_requests_of_agents(workspace):
        _add_request_to_sums(sums, agent, request)
    result: dict[str, list[dict[str, object]]] = {}
    lines = []
    for name, found in sums.items():
        result[name] = [
            {name[:-1]: one, "tokens": tokens, "cost": cost}
            for one, (tokens, cost) in found.items()
        ]
        lines.append(f"By {name[:-1]}")
        ordered = sorted(found.items(), key=lambda one: one[0] if name == "days" else -one[1][1])
        for one, (tokens, cost) in ordered:
            lines.append(f"  {one:<40} {tokens:>14,} tokens  {_format_dollars(cost):>12}")
    if not sums["days"]:
        lines = ["No request has been recorded in this workspace."]
    return await print_result(arguments, console, result, *lines)


async def _print_conversation_cost(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    name = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(name)
    requests = await read_original_and_explain_requests(
        facts, shipped_prices, workspace.journal.read_facts
    )
    lines, result = [], []
    for request in requests:
        cost = f"{_format_dollars(request.cost):>10}"
        lines.append(f"{request.seq:>6}  {request.tokens:>10,} tokens  {cost}  {request.model}")
        told = [(one.cause.describe_cause(), one.tokens, one.cost) for one in request.causes]
        causes = [dict(zip(("cause", "tokens", "cost"), one, strict=True)) for one in told]
        result.append(
            {"seq": request.seq, "tokens": request.tokens, "cost": request.cost, "causes": causes}
        )
        for words, tokens, dollars in told:
            lines.append(f"        {tokens:>10,}         {_format_dollars(dollars):>10}  {words}")
    below = await _list_agents_with_costs(workspace, name)
    lines += [
        f"{_format_dollars(one['cost']):>39}  sub-agent {one['conversation']}: {one['title']}"
        for one in below
    ]
    await print_result(arguments, console, {"requests": result, "agents": below}, *lines)
    if not requests and not arguments.json:
        await console.print_error("The provider reported no token usage for this conversation.")
    return 0


async def _list_agents_with_costs(workspace: StoredWorkspace, name: str) -> list[dict[str, Any]]:
    """Returns all conversations below this one."""
    rows, found, seen = await workspace.journal.list_conversations(), list[dict[str, Any]](), {name}
    while below := [row for row in rows if row.parent in seen and row.id not in seen]:
        found += [{"conversation": row.id, "title": row.title, "cost": row.cost} for row in below]
        seen.update(row.id for row in below)
    return found


@dataclass(frozen=True, slots=True)
class _CountedConversation:
    """A conversation's requests, and what they are of an agent's session."""

    agent: str
    requests: list[RequestCost]
    seen: SeenSession
    own_requests: set[int]  # The numbers of those that this program sent itself.


async def _read_requests_of_agents(workspace: StoredWorkspace) -> list[tuple[str, RequestCost]]:
    """Returns all requests and their agents. One that the gateway and an agent's
    history have, or copies, counts once.
    """
    conversations = [
        await _read_counted_conversation(workspace, conversation)
        for conversation in await _list_originals_before_copies(workspace)
    ]
    paid_elsewhere = find_replies_paid_elsewhere([one.seen for one in conversations])
    found: list[tuple[str, RequestCost]] = []
    for conversation, left_out in zip(conversations, paid_elsewhere, strict=True):
        for request in conversation.requests:
            if request.seq not in left_out:
                is_own = request.seq in conversation.own_requests
                found.append((OWN if is_own else conversation.agent, request))
    return found


async def _list_originals_before_copies(workspace: StoredWorkspace) -> list[str]:
    """Returns conversations: first what began here, then what was imported, oldest import first."""
    rows = await workspace.journal.list_conversations()
    order: dict[str, int] = {}
    for position, recorded in enumerate(await workspace.journal.facts_about_imports(), 1):
        if isinstance(recorded.fact, BroughtIn) and recorded.fact.run:
            order.setdefault(recorded.conversation, position)
    return [row.id for row in sorted(rows, key=lambda row: order.get(row.id, 0))]


async def _read_counted_conversation(
    workspace: StoredWorkspace, conversation: str
) -> _CountedConversation:
    facts = await workspace.journal.read_facts(conversation)
    requests = await read_original_and_explain_requests(
        facts, shipped_prices, workspace.journal.read_facts
    )
    starts = [one.fact for one in facts if isinstance(one.fact, ConversationStarted)]
    # A fork begins with its original's facts.
    last_start = starts[-1] if starts else ConversationStarted()
    program = NAMES.get(last_start.origin.kind, last_start.origin.kind)
    replies: dict[int, TimedReply] = {}
    own_requests: set[int] = set()
    for request in requests:
        fact = facts[request.seq - 1].fact
        if isinstance(fact, ModelReplied):
            replies[request.seq] = TimedReply(request.time, fact)
            # Only this program notes the digest of a request, also in a conversation that
            # it imported.
            if fact.request:
                own_requests.add(request.seq)
    seen = SeenSession(
        frozenset(names_of_session([one.fact for one in facts])),
        replies,
        is_live=any(isinstance(one.fact, Received) for one in facts),
        is_imported=any(start.origin.kind for start in starts),
    )
    return _CountedConversation(last_start.agent or program or OWN, requests, seen, own_requests)


def _add_request_to_sums(sums: dict[str, Sums], agent: str, request: RequestCost) -> None:
    day = datetime.fromtimestamp(request.time, UTC).astimezone().strftime("%Y-%m-%d")
    whole = (("days", day), ("agents", agent), ("models", request.model.rpartition("/")[2]))
    parts = [(name, key, request.tokens, request.cost) for name, key in whole]
    parts += [("causes", one.cause.kind.value, one.tokens, one.cost) for one in request.causes]
    for name, key, tokens, cost in parts:
        before = sums[name].get(key, (0, 0.0))
        sums[name][key] = before[0] + tokens, before[1] + cost


def _format_dollars(cost: float) -> str:
    return f"${cost:,.4f}" if 0 < cost < 1 else f"${cost:,.2f}" if cost else "no price"


def add_cost_commands(nouns: Subparsers) -> None:
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
