"""9,000 tools of 60 real server processes: `python -m tests.benchmarks.many_tools [--servers 60]`.

What they cost in front of a request, how long a search takes, and the bill of 40 calls
of ten tools, in one run: with tools on demand, with an array of tools that grows with
what was found, and with all definitions sent. A scripted provider speaks Anthropic's
protocol and bills each request as it came in, by the cache marks it carries.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import ModelReplied, Text, ToolReturned, ToolsOffered, ToolSpec
from helix_desktop.engine.session import Session
from helix_desktop.mcp_client.hosted_server import McpConnectionState
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.token_counting import TiktokenCounter
from helix_desktop.tools.tools_on_demand import OnDemandTools, ToolFinder
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.rules_and_skills import WorkspaceRulesAndSkills
from tests.mcp_client.world import SCRIPT
from tests.peers.anthropic_billing import Cache
from tests.peers.anthropic_server import AnthropicServer, reply
from tests.peers.peer import Answer, Seen

WINDOW = 4_000_000  # tokens: all definitions fit
TOOLS = 10  # how many tools are used,
TIMES = 4  # and how often each
# Prices as shares of the input price.
READ = 0.1
WRITE = 1.25
OUT = 5.0
VERBS = (
    "create",
    "list",
    "update",
    "delete",
    "search",
    "export",
    "import",
    "archive",
    "share",
    "count",
)
THINGS = (
    "issue", "invoice", "contact", "ticket", "file", "event", "report", "order", "message", "customer", "task", "page", "user",
    "label", "payment",
)  # fmt: skip
Call = tuple[str, dict[str, Any]]


def listed(server: int) -> list[dict[str, Any]]:
    """150 tools, with descriptions and parameters of usual length."""
    return [_tool(server, verb, thing) for verb in VERBS for thing in THINGS]


def _tool(server: int, verb: str, thing: str) -> dict[str, Any]:
    properties = {
        f"{thing}_id": {"type": "string", "description": f"The id of the {thing}"},
        "filter": {"type": "string", "description": f"Only {thing}s that fit this expression"},
        "limit": {"type": "integer", "description": "How many at the most"},
    }
    said = f"{verb.capitalize()} a {thing} in system {server}. Returns the {thing} with all its fields and links."
    return {
        "name": f"{verb}_{thing}",
        "description": said,
        "inputSchema": {"type": "object", "properties": properties},
    }


class Growing(OnDemandTools):
    """As other programs do it: what a search found is in the array from then on."""

    def __init__(self, plain: OnDemandTools) -> None:
        self.found: dict[str, ToolSpec] = {}
        finder = _Remembering(plain.finder, self.found)
        super().__init__(
            plain.tokens,
            finder,
            plain.token_room,
            plain.specs_sent_before,
            plain.catalogues,
            plain.also_searchable,
        )

    def definitions_to_send(
        self, foreign: Sequence[ToolSpec], rare: Sequence[ToolSpec]
    ) -> tuple[ToolSpec, ...]:
        return (*super().definitions_to_send(foreign, rare), *self.found.values())


class _Remembering(ToolFinder):
    def __init__(self, finder: ToolFinder, found: dict[str, ToolSpec]) -> None:
        self._finder = finder
        self._found = found

    async def find_best_tools(
        self, query: str, limit: int, specs: Sequence[ToolSpec], allowed: Callable[[str], bool]
    ) -> list[ToolSpec]:
        best = await self._finder.find_best_tools(query, limit, specs, allowed)
        for spec in best:
            self._found[spec.name] = spec
        return best


class Billing(AnthropicServer):
    """Answers with the next call, and bills what it was sent."""

    def __init__(self, made: Iterator[Call]) -> None:
        super().__init__()
        self.models = ({"id": "scripted", "type": "model", "max_input_tokens": WINDOW},)
        self.cache = Cache()
        self.made = made
        self.bill = 0.0
        self.steps = 0

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        self.requests.clear()  # they are megabytes
        used = self.cache.bill(seen.body)
        call = next(self.made, None)
        written = len(json.dumps(call)) // 4
        self.bill += (
            used["input_tokens"]
            + WRITE * used["cache_creation_input_tokens"]
            + READ * used["cache_read_input_tokens"]
            + OUT * written
        )
        self.steps += 1
        if call is None:
            return reply("Done.")
        return reply(calls=[call])


def calls(*, searching: bool, wrapped: bool, servers: int) -> Iterator[Call]:
    for number in range(TOOLS):
        server = number * 7 % servers
        verb = VERBS[number]
        thing = THINGS[number]
        name = f"server{server}__{verb}_{thing}"
        if searching:
            yield "find_tools", {"query": f"{verb} {thing} in system {server}"}
        for week in range(TIMES):
            arguments = {"filter": f"{thing}s of week {week}", "limit": week + 1}
            if wrapped:
                yield "call_tool", {"name": name, "arguments": arguments}
            else:
                yield name, arguments


async def ready(bench: Workbench, servers: int) -> None:
    changed = asyncio.Event()
    bench.mcp_servers.listeners.append(changed.set)
    async with asyncio.timeout(600):
        while _count_ready(bench) < servers:
            changed.clear()
            await changed.wait()


def _count_ready(bench: Workbench) -> int:
    return sum(
        server.status.state is McpConnectionState.READY
        for server in bench.mcp_servers.running_servers
    )


async def run(base: Path, way: str, servers: int) -> None:
    made = calls(searching=way != "all sent", wrapped=way == "on demand", servers=servers)
    (base / "project").mkdir(parents=True)
    where = program_folders.find_program_folders(base / "home")
    with Billing(made) as peer:
        desk = Workbenches(where, SecretStorage(where.key_file, environ={"A_KEY": "k"}))
        desk.configured.save_provider(
            ProviderConfig("peer", "anthropic", base_url=peer.base_url, variable="A_KEY")
        )
        desk.configured.correct_model("peer", "scripted", {"window": WINDOW})
        bench = await desk.create_workspace("Many", base / "project")
        await bench.choose_model_for_role("peer/scripted")
        await bench.choose_permission_mode("allow all")
        await bench.choose_context_policy("layered", {"tools_share": float(way == "all sent")})
        started = time.perf_counter()
        await bench.change_settings({f"mcp.server{n}": _config(base, n) for n in range(servers)})
        await ready(bench, servers)
        begun = time.perf_counter() - started
        session = await bench.start_conversation()
        session.send_message((Text("Work."),))
        await asyncio.wait_for(session.wait_until_idle(), 600)
        _told(way, session, peer, begun)
        if way == "on demand":
            await _searches(bench, session.conversation)
        await desk.aclose()


def _config(base: Path, number: int) -> dict[str, object]:
    listing = base / f"{number}.json"
    listing.write_text(json.dumps(listed(number)))
    return {
        "command": sys.executable,
        "args": [str(SCRIPT), "listed", str(listing)],
        "start_seconds": 300,
    }


def _told(way: str, session: Session, peer: Billing, begun: float) -> None:
    results: list[ToolReturned] = []
    replies: list[ModelReplied] = []
    last_offer = ToolsOffered((), 0)
    for recorded in session.all_facts:
        match recorded.fact:
            case ToolReturned() as result:
                results.append(result)
            case ModelReplied() as reply:
                replies.append(reply)
            case ToolsOffered() as offer:
                last_offer = offer
    failed = sum(not result.ok for result in results)
    counter = TiktokenCounter()
    standing = 0
    for spec in last_offer.tools:
        if spec.name in ("find_tools", "call_tool") or "__" in spec.name:
            standing += counter.count_tokens(spec.name + spec.description + spec.schema)
    print(
        f"{way:10} bill {peer.bill:12,.0f}  steps {peer.steps}, {len(results)} calls,"
        f" {failed} failed, {len(replies)} replies; servers ready in {begun:.1f} s;"
        f" standing {standing:,} tokens, {last_offer.withheld:,} definitions not sent",
        flush=True,
    )


async def _searches(bench: Workbench, conversation: Conversation) -> None:
    """Through the finder the agent's searches went through, and the clock on the wall."""
    specs = tuple(tool.spec for tool in bench.mcp_servers.list_offered_server_tools())
    finder = bench.kit.finder
    questions = [
        f"{verb} the {thing}s of system {number} that fit a filter"
        for number, (verb, thing) in enumerate(zip(VERBS, THINGS, strict=False))
    ]
    questions.append("count")
    questions.append(
        "list the fields and links of an id with a filter expression and a limit in a system that fits it"
    )
    await finder.find_best_tools(questions[0], 5, specs, lambda _: True)
    took: list[float] = []
    for question in questions * 10:
        started = time.perf_counter()
        await finder.find_best_tools(question, 5, specs, lambda _: True)
        took.append((time.perf_counter() - started) * 1000)
    print(
        f"           a search: median {statistics.median(took):.1f} ms, longest {max(took):.1f} ms of {len(took)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=60)
    wanted = parser.parse_args()
    print(f"{wanted.servers} server processes with {len(listed(0)) * wanted.servers:,} tools")
    on_demand = WorkspaceRulesAndSkills.build_tools_on_demand

    def growing(project: WorkspaceRulesAndSkills, *given: Any) -> OnDemandTools:
        return Growing(on_demand(project, *given))

    for way in ("on demand", "growing", "all sent"):
        WorkspaceRulesAndSkills.build_tools_on_demand = on_demand  # type: ignore[method-assign]
        if way == "growing":
            WorkspaceRulesAndSkills.build_tools_on_demand = growing  # type: ignore[method-assign, assignment]
        with tempfile.TemporaryDirectory(prefix="helix-many-") as base:
            asyncio.run(run(Path(base), way, wanted.servers))


if __name__ == "__main__":
    main()
