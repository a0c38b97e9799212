"""The agents that people have, over the Agent Client Protocol, with a scripted
provider: long turns, refusals, kills at random moments.

python -m tests.faults.acp_agents AGENT [--steps 60] [--kills 100] [--seed 1] [--routed]
ACP_CLIENTS: a folder with their npm packages

A conversation of ours with each agent does its steps; its processes are killed with
SIGKILL at random moments, and after each kill the next message must be answered. In the
end the workspace is opened again: all that was seen in the window must be there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import (
    Decided,
    Folded,
    ModelReplied,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
)
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked, ReplyStreamed
from helix_desktop.program_settings import ACP_AGENTS, ProgramSettings
from helix_desktop.resident.agent_routes import AgentRoutes
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.benchmarks.gateway_clients import KEY, _arguments, _names
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, _send
from tests.soak.driven import HOME

TITLES = {"claude": "Claude Code", "codex": "Codex"}
SHELLS = (
    "Bash", "exec_command", "shell", "shell_command", "run_shell_command", "bash", "run_commands",
)  # fmt: skip
PROGRAMS = {
    "claude": ("claude-agent-acp", ()),
    "codex": ("codex-acp", ()),
    "gemini": ("gemini", ("--experimental-acp",)),
    "qwen": ("qwen", ("--acp",)),
    "opencode": ("opencode", ("acp",)),
    "copilot": ("copilot", ("--acp",)),
    "cline": ("cline", ("--acp",)),
}


# They ask for an account of their own, whatever provider is set, and so nothing can be sent.
WITH_ACCOUNT_ONLY = ("cline",)
ASKS_TO_SIGN_IN = "Sign in with the agent's own program first"


class Upstream(Provider):
    """It has no list of models, so that an agent whose provider is set offers its own."""

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "GET":
            _send(handler, 404, {})
        else:
            super()._post(handler)


class Model:
    """Runs a numbered command in each step until the turn's steps are done. `per_turn`:
    steps of one turn, `later`: of those after it.
    """

    def __init__(self, per_turn: int, later: int = 0) -> None:
        self.per_turn = per_turn
        self.later = later
        self.done = 0
        self.left = per_turn

    def script(self, asked: Asked) -> list[Block]:
        shell = next((name for name in _names(asked.body) if name in SHELLS), "")
        if (
            not shell or b"The following is the Codex agent history" in asked.raw
        ):  # Codex has its own calls judged.
            return [Says("{}")]
        if self.left <= 0:
            self.left = self.per_turn = self.later or self.per_turn
            return [Says(f"The turn is over after step {self.done}.")]
        self.left -= 1
        self.done += 1
        command = f"echo output-{self.done} >> made.txt; seq {self.done} {self.done + 400}"
        asks = (
            {"sandbox_permissions": "require_escalated", "justification": "to write"}
            if shell == "exec_command"
            else {}
        )
        return [Says(f"said-{self.done} "), Calls(shell, {**_arguments(shell, command), **asks})]


def set_up(
    agent: str, home: Path, provider: Provider, *, routed: bool = False, command: str = ""
) -> None:
    """The agent's own home, as its user has it, with the provider's address. `command`:
    of an agent that is not in the table.
    """
    clients = Path(os.environ.get("ACP_CLIENTS", "/tmp/acp-clients"))
    program, options = PROGRAMS.get(agent, ("", ()))
    os.environ.update(
        HOME=str(home),
        ANTHROPIC_BASE_URL=provider.url, ANTHROPIC_API_KEY=KEY, OPENAI_API_KEY=KEY, GEMINI_API_KEY=KEY,
        GOOGLE_GEMINI_BASE_URL=provider.url, OPENAI_BASE_URL=f"{provider.url}/v1", OPENAI_MODEL="scripted",
        COPILOT_PROVIDER_BASE_URL=f"{provider.url}/v1", COPILOT_PROVIDER_API_KEY=KEY, COPILOT_MODEL="gpt-5", COPILOT_OFFLINE="true",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", DISABLE_AUTOUPDATER="1", IS_SANDBOX="1",
    )  # fmt: skip
    table = f'[model_providers.corp]\nname = "Corp"\nbase_url = "{provider.url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
    if routed:  # Without a provider of its own, which the gateway would leave alone.
        table = ""
    own = 'model_provider = "corp"\n' if table else ""
    opencode = {"provider": {"anthropic": {"options": {"baseURL": f"{provider.url}/v1", "apiKey": KEY}}}, "model": "anthropic/claude-sonnet-4-5", "permission": {"bash": "ask"}, "autoupdate": False}  # fmt: skip
    auth = {
        "security": {"auth": {"selectedType": "gemini-api-key" if agent == "gemini" else "openai"}}
    }
    for name, text in (
        (
            ".codex/config.toml",
            f'{own}model = "gpt-5"\napproval_policy = "on-request"\nsandbox_mode = "read-only"\n{table}',
        ),
        (".config/opencode/opencode.json", json.dumps(opencode)),
        (".gemini/settings.json", json.dumps(auth)),
        (".qwen/settings.json", json.dumps(auth)),
    ):
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    settings = program_folders.find_program_folders(home / HOME).settings_file
    settings.parent.mkdir(parents=True, exist_ok=True)
    command = command or f"{clients}/node_modules/.bin/{program} {' '.join(options)}"
    line = f"{TITLES.get(agent, agent)} = {command}"
    ProgramSettings(settings).change_setting(ACP_AGENTS, line)


def open_desks(home: Path, routes: AgentRoutes | None = None) -> Workbenches:
    where = program_folders.find_program_folders(home / HOME)
    desks = Workbenches(
        where,
        SecretStorage(where.key_file, environ={}),
        serve=lambda workspace: workspace_access.listen_for_commands(workspace, where),
    )
    if routes is not None:
        desks.register_route = routes.register_route
    return desks


class Watcher:
    """What a window would show, and the answers of its user: one question of `every` is refused."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.streamed: list[str] = []
        self.asked = self.refused = 0
        self.refuses = True
        self.every = 5
        session.subscribe_to_events(self.hear)

    def hear(self, event: Event) -> None:
        if isinstance(event, ReplyStreamed) and isinstance(event.delta, TextDelta):
            self.streamed.append(event.delta.text)
        if isinstance(event, QuestionAsked):
            self.asked += 1
            allowed = not self.refuses or self.asked % self.every != 0
            self.refused += not allowed
            loop = asyncio.get_running_loop()
            loop.call_soon(
                self.session.answer_question, event.number, PermissionAnswer(allowed=allowed)
            )


def processes_of(session: Session, bench: Workbench) -> list[int]:
    """The agent's process and all below it."""
    foreign = bench.acp._open_conversations.get(session.id)
    if foreign is None or foreign._connection is None:
        return []
    return below(foreign._connection._command.process.pid)


def below(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        children = Path(f"/proc/{one}/task/{one}/children")
        found += [int(word) for word in children.read_text().split()] if children.exists() else []
    return found


async def kill_at_random(
    bench: Workbench, session: Session, pick: random.Random, longest: float
) -> str:
    """After a random time one of the agent's processes is killed, or all of them. What
    was killed.
    """
    await asyncio.sleep(pick.uniform(0, longest))
    there = processes_of(session, bench)[1:] or processes_of(session, bench)
    if not there or session.is_idle:
        return ""
    victims = there if pick.random() < 0.5 else [pick.choice(there)]
    names = []
    for victim in victims:
        try:
            names.append(Path(f"/proc/{victim}/comm").read_text().strip())
            os.kill(victim, signal.SIGKILL)
        except (OSError, ProcessLookupError):
            continue
    return "+".join(names)


async def go_on_with_kills(
    bench: Workbench,
    session: Session,
    model: Model,
    pick: random.Random,
    kills: int,
    found: dict[str, Any],
) -> None:
    """Let the agent go on, and kill it in the middle, until it was killed so often."""
    model.per_turn = 4
    model.left = 4
    longest = 8.0
    while found["kills"] < kills:
        replies_before = len(facts(session, ModelReplied))
        since = time.monotonic()
        message = one_turn(session, f"go on {found['kills']}", found)
        _, killed = await asyncio.gather(message, kill_at_random(bench, session, pick, longest))
        found["kills"] += bool(killed)
        found["last"] = (killed, round(time.monotonic() - since, 1))
        model.left = 4
        if not killed:
            longest = max(0.5, longest * 0.9)
        print(json.dumps({**found, "done": model.done}), flush=True)
        if len(facts(session, ModelReplied)) == replies_before and not killed:
            found["wrong"].append(f"nothing was said after kill {found['kills']}")


def text_of_replies(session: Session) -> str:
    texts: list[str] = []
    for replied in facts(session, ModelReplied):
        texts += [part.text for part in replied.parts if isinstance(part, Text)]
    return "".join(texts)


def describe_difference(text: str, shown: str) -> str:
    start = 0
    while start < min(len(text), len(shown)) and text[start] == shown[start]:
        start += 1
    end = start + 80
    return f"text differs at {start} of {len(text)}/{len(shown)}: {text[start:end]!r} / {shown[start:end]!r}"


async def run(agent: str, steps: int, kills: int, seed: int, *, routed: bool) -> dict[str, Any]:
    pick = random.Random(seed)
    model = Model(steps)
    found: dict[str, Any] = {"agent": agent, "kills": 0, "ends": {}, "wrong": []}
    with (
        tempfile.TemporaryDirectory(prefix="helix-acp-", dir=os.environ.get("ACP_PLACE")) as place,
        Upstream(model.script) as provider,
    ):
        home = Path(place)
        folder = Path(place) / "work"
        folder.mkdir()
        set_up(agent, home, provider, routed=routed)
        routes = AgentRoutes(program_folders.find_program_folders(home / HOME)) if routed else None
        desks = open_desks(home, routes)
        bench = await desks.create_workspace("w", folder)
        session = await bench.start_conversation(acp_agent=TITLES.get(agent, agent))
        if agent == "codex":
            await (await bench.acp.start_agent(session.conversation)).choose_agent_option(
                session.conversation, "mode", "read-only"
            )
        watch = Watcher(session)
        begun = time.monotonic()
        watch.refuses = agent != "codex"  # a refusal ends its turn
        await one_turn(session, "do the work", found)
        found |= {
            "steps": model.done,
            "seconds": round(time.monotonic() - begun, 1),
            "asked": watch.asked,
            "refused": watch.refused,
        }
        foreign = bench.acp._open_conversations[session.id]
        found |= {
            "choices": {name: len(one.values) for name, one in foreign.choices.items()},
            "commands": len(foreign.commands),
        }
        found["can"] = sorted(foreign._connection.abilities) if foreign._connection else []
        watch.refuses = True
        await go_on_with_kills(bench, session, model, pick, kills, found)
        watch.refuses = agent != "codex"
        said = await one_turn(session, "the last message", found)
        if kills and session.turns.last_end and session.turns.last_end.reason is not TurnEnd.DONE:
            found["wrong"].append(f"the last turn: {said}")
        shown = "".join(watch.streamed)
        name = session.id
        await desks.aclose()
        desks = open_desks(home, routes)
        again = await desks.open_workspace(bench.id)
        kept = await again.open_session(name)
        Watcher(kept)
        text = text_of_replies(kept)
        if text != shown:
            found["wrong"].append(describe_difference(text, shown))
        found |= {
            "characters": len(text),
            "calls": sum(
                isinstance(part, ToolCall)
                for reply in facts(kept, ModelReplied)
                for part in reply.parts
            ),
            "results": len(facts(kept, ToolReturned)),
            "decided": len(facts(kept, Decided)),
            "refused_by_provider": provider.refused[:3],
        }
        end = await one_turn(kept, "after the restart", found)
        if end != "done":
            found["wrong"].append(f"after the restart: {end}")
        children = [row for row in again.list_conversations() if row.parent == name]
        found |= {
            "through_the_gateway": len(children),
            "asked_of_provider": sum(bool(asked.protocol) for asked in provider.asked),
        }
        if children:
            through = await again.open_session(children[0].id)
            found |= {
                "recorded": len(facts(through, ModelReplied)),
                "folds": len(facts(through, Folded)),
            }
        await desks.aclose()
        if routes is not None:
            routes.holding.close()
    return found


def wrong_in_refusal(found: dict[str, Any]) -> Iterator[str]:
    for why in found.get("why", {"": 1}):
        if ASKS_TO_SIGN_IN not in why:
            yield f"it was not refused with its reason: {why}"
    if set(found["ends"]) != {"failed"}:
        yield f"the turns ended as {found['ends']}"
    if found["asked_of_provider"]:
        yield "something was sent"


def facts(session: Session, kind: type[Any]) -> list[Any]:
    return [each.fact for each in session.all_facts if isinstance(each.fact, kind)]


SESSION_REFUSED = "its own record of the session is not complete"


async def one_turn(session: Session, text: str, found: dict[str, Any]) -> str:
    session.send_message((Text(text),))
    try:
        await asyncio.wait_for(session.wait_until_idle(), 300)
    except TimeoutError:
        found["wrong"].append(f"hung: {text}")
        session.stop_turn()
        await session.wait_until_idle()
    end = session.turns.last_end
    kind = end.reason.value if end else "none"
    found["ends"][kind] = found["ends"].get(kind, 0) + 1
    if end and end.why:
        found.setdefault("why", {})
        found["why"][end.why[:900]] = found["why"].get(end.why[:900], 0) + 1
        if SESSION_REFUSED in end.why:  # The sentence asks for another message.
            return await one_turn(session, text, found)
    return kind


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("agent", choices=PROGRAMS)
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument(
        "--routed", action="store_true", help="through the gateway, by providers/set"
    )
    given = arguments.parse_args()
    found = asyncio.run(run(given.agent, given.steps, given.kills, given.seed, routed=given.routed))
    if given.agent in WITH_ACCOUNT_ONLY:
        found["wrong"] = list(wrong_in_refusal(found))
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
