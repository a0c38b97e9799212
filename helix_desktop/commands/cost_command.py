"""`cost`: why requests cost what they did: what was read from the provider's cache,
what was written anew, and why.
"""

from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

from helix_desktop.commands.workspace_access import find_conversation_by_prefix, print_result
from helix_desktop.console import Console
from helix_desktop.engine.facts import ConversationStarted, ModelReplied, Received
from helix_desktop.engine.request_costs import RequestCost, read_original_and_explain_requests
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.session_from_facts import (
    TimedReply,
    find_replies_at_gateway,
    names_of_session,
)
from helix_desktop.histories.session_writing import format_iso_time
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


async def _read_requests_of_agents(workspace: StoredWorkspace) -> list[tuple[str, RequestCost]]:
    """Returns all requests and their agents. One that the gateway and an agent's
    history have, or copies, counts once.
    """
    found: list[tuple[str, RequestCost]] = []
    known = set[
        tuple[str, int, int]
    ]()  # A copy of a session has the times and usages of the original.
    of_gateway: list[tuple[set[str], list[TimedReply]]] = []  # With the names of the session.
    brought = await workspace.journal.facts_about_imports()
    # An original comes before its copies: what was imported first counts, and before
    # that what began here.
    order = {
        one.conversation: at
        for at, one in reversed([*enumerate(brought, 1)])
        if getattr(one.fact, "run", "")
    }
    for row in sorted(
        await workspace.journal.list_conversations(), key=lambda row: order.get(row.id, 0)
    ):
        facts = await workspace.journal.read_facts(row.id)
        starts = [one.fact for one in facts if isinstance(one.fact, ConversationStarted)]
        last = (
            starts[-1] if starts else ConversationStarted()
        )  # A fork begins with its original's facts.
        agent = last.agent or NAMES.get(last.origin.kind, last.origin.kind) or OWN
        is_imported = any(one.origin.kind for one in starts)
        names = names_of_session([one.fact for one in facts])
        requests = await read_original_and_explain_requests(
            facts, shipped_prices, workspace.journal.read_facts
        )
        answers = [(one.seq, one.time, facts[one.seq - 1].fact) for one in requests]
        replies = {
            seq: (time, fact) for seq, time, fact in answers if isinstance(fact, ModelReplied)
        }
        if any(isinstance(one.fact, Received) for one in facts):
            of_gateway.append((names, [*replies.values()]))
        theirs = [
            reply for other, those in of_gateway if is_imported and other & names for reply in those
        ]
        copied = find_replies_at_gateway([*replies.values()], theirs)
        copies = {seq for at, seq in enumerate(replies) if at in copied}
        paid = {
            seq: (format_iso_time(time), one.usage.input, one.usage.output)
            for seq, (time, one) in replies.items()
        }
        copies |= {seq for seq, name in paid.items() if name in known}
        known.update(paid.values())
        # Only this program notes the digest of a request, also in a conversation that it imported.
        ours = {seq for seq, _, fact in answers if getattr(fact, "request", None)}
        found += (
            (OWN if one.seq in ours else agent, one) for one in requests if one.seq not in copies
        )
    return found


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
