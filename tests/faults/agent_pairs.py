"""Every ordered pair of the real agents and this program: a conversation made in one
goes on in the other.

python -m tests.faults.agent_pairs [--conversations N] [--seed S] [--agent NAME ...] [--to NAME ...]
    [--results FILE --seconds N]      in slices of so long: each run tries what the file does not have yet, and the table is that of the file
HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py

Each conversation is made by an agent against a scripted provider: commands, files that
are read, written and edited, plans, pictures, calls side by side, calls that fail. It
is imported and given to each of the others, as it is and folded. In each the user's
words must be in the next request byte for byte and every output and text in it or,
where it was folded, behind a hash that the agent recalls with its own client of the MCP
server. One more step must work. Of 20 files with credentials in the home none is opened
by this program (strace).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop import program_folders
from helix_desktop.engine.facts import ToolReturned
from helix_desktop.protocols.gateway_message import PieceKind
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.benchmarks.gateway_clients import KEY, SHELLS, _names
from tests.faults import agent_resume
from tests.faults.agent_resume import (
    AGENTS,
    OURS,
    begin,
    count_results,
    is_said_by_user,
    last_request,
    list_sessions,
    pieces_of_request,
    resume,
    run_in,
)
from tests.faults.agent_resume import run_agent as run_real_agent
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

Json = Any
EVERYBODY = (*AGENTS, OURS)
MOST_WAITS = 40
ASK = ("ask", "-w", "Work", "-m", "scripted/claude-sonnet-4-5", "--allow", "all")
CANARY = "canary-7f3a91"
CREDENTIALS = (
    ".claude/.credentials.json", ".codex/auth.json", ".local/share/opencode/auth.json", ".local/share/opencode/mcp-auth.json",
    ".gemini/oauth_creds.json", ".gemini/mcp-oauth-tokens.json", ".gemini/.env", ".pi/agent/auth.json", ".netrc", ".npmrc", ".pypirc",
    ".git-credentials", ".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", ".docker/config.json", ".kube/config",
    ".config/github-copilot/apps.json", ".config/gcloud/application_default_credentials.json", ".local/share/keyrings/login.keyring",
)  # fmt: skip
PATHS = ("file_path", "filePath", "path", "absolute_path")
READS, WRITES, EDITS = ("Read", "read", "read_file"), ("Write", "write", "write_file"), ("Edit", "edit", "replace", "edit_file")  # fmt: skip
PLANS: Mapping[str, Json] = {
    "TodoWrite": {"todos": [{"content": "count", "status": "pending", "activeForm": "counting"}]},
    "todowrite": {
        "todos": [{"content": "count", "status": "pending", "priority": "high", "id": "1"}]
    },
    "update_plan": {"plan": [{"step": "count", "status": "pending"}]},
    "write_todos": {"todos": [{"description": "count", "status": "pending"}]},
}
# Of how many calls, counted up to 1, the tool has one of these names; the rest are commands.
KINDS_OF_CALLS = (
    (0.5, ()),
    (0.65, READS),
    (0.75, WRITES),
    (0.85, EDITS),
    (0.93, tuple(PLANS)),
    (1.0, READS),
)
SPOKEN = (
    "step {}",
    "Schritt {}: naïve “Wörter” — 数字\n\n- one\n- two",
    'step {}: `code` and {{"json": "\\u00e9"}}',
)
COMMANDS = (
    "seq {0}0 {0}9; echo OUT-{0}-END",
    "printf 'Zeile\\tä “q” 数 %s\\n' a b c; echo OUT-{0}-END",
    "echo to the error stream >&2; echo OUT-{0}-END; exit 3",
    "printf '\\033[31mred\\033[0m OUT-{0}-END'",
    "seq {0}000 {0}400; echo OUT-{0}-END",
    'echo \'{{"key": "OUT-{0}-END", "path": "C:\\\\temp"}}\'',
    "true",
)
RECALLS = {"recall_cached_content": "sha256", "recall_history": "fold"}
RECALL = re.compile(
    r'(recall_cached_content|recall_history)\(\\*"([0-9a-f]{64}|\w+-\d+)\\*"(?:, lines=\\*"([\d-]+))?'
)
DEFERRED = re.compile(r"(mcp__[\w.-]+?__(recall_cached_content|recall_history))\b")
PAGE = re.compile(
    r"sha256\W+([0-9a-f]{64})(?:(?!sha256).)*?\[go on with lines=\W+([\d-]+)", re.DOTALL
)


def named_originals(text: str) -> list[tuple[str, str, str]]:
    """The calls of recall tools that a text shows, and the pages that follow others:
    the tool, the name, the lines.
    """
    pages = (("recall_cached_content", entry, lines) for entry, lines in PAGE.findall(text))
    return list(dict.fromkeys([*RECALL.findall(text), *pages]))


def arguments_of(tool: str, name: str, lines: str) -> dict[str, str]:
    return {RECALLS[tool]: name, **({"lines": lines} if lines else {})}


def deferred_tools(asked: Asked) -> dict[str, str]:
    """The full names of the recall tools that Qwen Code names in a text instead of offering them."""
    if "tool_call" not in _names(asked.body):
        return {}
    return {name: full for full, name in DEFERRED.findall(asked.raw.decode("utf-8", "replace"))}


def tools_of_request(body: Mapping[str, Json]) -> dict[str, Json]:
    """The schemas of the tools, by name."""
    tools = [
        one for tool in body.get("tools") or () for one in tool.get("functionDeclarations", [tool])
    ]
    found = [tool.get("function", tool) for tool in tools]
    return {one.get("name", ""): one.get("input_schema") or one.get("parametersJsonSchema") or one.get("parameters") or {} for one in found}  # fmt: skip


class RichScript:
    """So many steps of every kind that the agent has a tool for; then it is done.
    `recalls`: hashes it recalls first.
    """

    def __init__(self, chance: random.Random, work: Path) -> None:
        self.left = 0
        self.recalls = False
        self.asked_for = set[tuple[str, str, str]]()
        self.waits = 0  # How often the agent was told to wait for its servers.
        self._chance = chance
        self._work = work
        self._number = 0

    def __call__(self, asked: Asked) -> Sequence[Block]:
        tools = tools_of_request(asked.body)
        shell = next((name for name in (*SHELLS, "run_command") if name in tools), "")
        if not shell:
            return [Says("A title")]
        if self.recalls and (recall := self._recall_all(asked)):
            return recall
        if self.left <= 0:
            return [Says("All done.")]
        self.left -= 1
        said = self._chance.choice(SPOKEN).format(self.left)
        both = 2 if self._chance.random() < 0.3 else 1
        return [Says(said), *(self._call(shell, tools) for _ in range(both))]

    def _recall_all(self, asked: Asked) -> list[Block]:
        """The originals that the request names, each once, as far as the agent's own
        client knows the tool.
        """
        named = named_originals(asked.raw.decode("utf-8", "replace"))
        wanted = [original for original in named if original not in self.asked_for][:4]
        if not wanted:
            return []
        offered = _names(asked.body)
        names = {tool: name for name in offered for tool in RECALLS if tool in name}
        deferred = deferred_tools(asked)
        # An agent may go on while its servers start, which takes long on a busy machine.
        if not names and not deferred:
            return self._wait(offered)
        self.asked_for.update(wanted)
        blocks: list[Block] = [Says("I need them")]
        for tool, name, lines in wanted:
            arguments = arguments_of(tool, name, lines)
            if names:
                blocks.append(Calls(names[tool], arguments))
            else:
                blocks.append(Calls("tool_call", {"name": deferred[tool], "arguments": arguments}))
        return blocks

    def _wait(self, offered: Sequence[str]) -> list[Block]:
        if self.waits >= MOST_WAITS:
            return []
        self.waits += 1
        if "tool_search" in offered:
            return [Calls("tool_search", {"query": f"recall {self.waits}", "max_results": 9})]
        shell = next(name for name in offered if name in SHELLS)
        return [run_in(shell, f"sleep 1; echo waited {self.waits}")]

    def _call(self, shell: str, tools: Mapping[str, Json]) -> Block:
        self._number += 1
        kind = self._chance.random()
        names = next(names for most, names in KINDS_OF_CALLS if kind < most)
        name = next((name for name in names if name in tools), "")
        if name in PLANS:
            return Calls(name, PLANS[name])
        if name:
            properties = tools[name].get("properties", {})
            path = next((path for path in PATHS if path in properties), "")
            if path:
                return Calls(name, self._of_file(name, path, kind, properties))
        return run_in(shell, self._chance.choice(COMMANDS).format(self._number))

    def _of_file(self, name: str, path: str, kind: float, known: Mapping[str, Json]) -> Json:
        if name in WRITES:
            content = f"made {self._number}: ä “q” 数\n\ttab and OUT-{self._number}-END\n"
            return {path: str(self._work / f"made-{self._number}.txt"), "content": content}
        if name in EDITS:
            old = f"line {self._number}\n"
            new = f"line {self._number} again\n"
            if "edits" in known:
                return {
                    path: str(self._work / "notes.txt"),
                    "edits": [{"oldText": old, "newText": new}],
                }
            pairs = (
                ("old_string", "new_string"),
                ("oldString", "newString"),
                ("oldText", "newText"),
                ("old_text", "new_text"),
            )
            before, after = next((pair for pair in pairs if pair[0] in known), pairs[0])
            more = {"instruction": "say it again"} if "instruction" in known else {}
            return {path: str(self._work / "notes.txt"), before: old, after: new, **more}
        return {path: str(self._work / ("dot.png" if kind >= 0.93 else "notes.txt"))}  # fmt: skip


def picture() -> bytes:
    """A PNG of 8 by 8 red dots."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    head = (8).to_bytes(4) * 2 + bytes([8, 2, 0, 0, 0])
    rows = zlib.compress((b"\0" + b"\xff\0\0" * 8) * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@dataclass
class World:
    """A home in which an agent's conversation was made, and what is known of it."""

    home: Path
    provider: Provider
    script: RichScript
    read: set[str] = field(default_factory=set)  # credentials that this program opened

    @property
    def work(self) -> Path:
        return self.home.parent / "work"

    def helix(self, *words: str) -> str:
        """Run this program and watch it: which of the planted files does it open?"""
        with self.watched(*words) as process:
            out, err = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{words}: {err[-600:]}")
        return out

    @contextmanager
    def watched(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        log = self.home.parent / "strace"
        strace = [
            "strace",
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-e",
            "trace=open,openat,openat2",
            "-o",
            str(log),
        ]
        command = [
            *strace,
            sys.executable,
            "-m",
            "helix_desktop",
            "--home",
            str(self.home / "helix"),
            *words,
        ]
        own = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        variables = {
            **own,
            "HOME": str(self.home),
            "PYTHONPATH": str(Path.cwd()),
            "ANTHROPIC_API_KEY": KEY,
        }
        pipe = subprocess.PIPE
        with planted(self.home) as files:
            with subprocess.Popen(command, cwd=self.work, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:  # fmt: skip
                yield process
            lines = [
                line
                for line in log.read_text("utf-8", "replace").splitlines()
                if " = -1 " not in line
            ]
            self.read.update(file for file in files for line in lines if file in line)

    def restore(self, conversation: str, agent: str, *more: str) -> dict[str, Json]:
        told = self.helix(
            "conversation", "restore", "-w", "Work", conversation, "--to", agent, *more, "--json"
        )
        found: dict[str, Json] = json.loads(told)
        return found


@contextmanager
def planted(home: Path) -> Iterator[list[str]]:
    """The credentials, while this program runs: some agents refuse to work with a login
    that is none.
    """
    made = []
    for name in CREDENTIALS:
        file = home / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"token": CANARY}), "utf-8")
            made.append(file)
    try:
        yield [str(home / name) for name in CREDENTIALS]
    finally:
        for file in made:
            file.unlink()


def make_conversation(world: World, name: str, chance: random.Random) -> tuple[str, list[Json]]:
    """Its id in the workspace, and the pieces of its last request with the reply to it."""
    words = [
        "do the work: naïve “words”\n  and a second line",
        f"and more of it: {chance.random()}\n\ttabs, 'quotes' 数",
    ]
    if name == "gemini":  # 0.61 is refused when it resumes a session of its own that has calls
        words = words[:1]
    if name == OURS:
        conversation = converse_here(world, words, chance)
    else:
        file = converse_in_agent(world, name, words, chance)
        world.helix("conversation", "import", "-w", "Work", str(file))
        conversation = next(row["id"] for row in conversations(world) if not row["parent"])
    asked = next(
        asked for asked in reversed(world.provider.asked) if asked.protocol and _names(asked.body)
    )
    return conversation, [*pieces_of_request(asked), ("assistant", "text", "All done.")]


def converse_here(world: World, words: Sequence[str], chance: random.Random) -> str:
    """The id of the conversation."""
    options: list[str] = []
    conversation = ""
    for number, said in enumerate(words):
        world.script.left = steps_of_turn(number, chance)
        world.helix(*ASK, *options, said)
        (conversation,) = [row["id"] for row in conversations(world)]
        options = ["-c", conversation]
    return conversation


def converse_in_agent(world: World, name: str, words: Sequence[str], chance: random.Random) -> Path:
    """The agent's own file of the session."""
    given = begin(name, words[0])
    for number, said in enumerate(words):
        world.script.left = steps_of_turn(number, chance)
        if number > 0:
            session = agent_resume.session_id(name, agent_resume.session_file(name, world.home))
            given = resume(name, session, said)
        run_real_agent(name, world.provider, world.home, given)
    return agent_resume.session_file(name, world.home)


def steps_of_turn(number: int, chance: random.Random) -> int:
    return chance.randint(2, 10) if number == 0 else chance.randint(1, 6)


def conversations(world: World) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = json.loads(
        world.helix("conversation", "list", "-w", "Work", "--json")
    )
    return found


def go_on(
    world: World, agent: str, session: str, mark: str, steps: int = 1
) -> tuple[Asked, list[Json], str]:
    """The first request with the words, what was said after it, and what is wrong."""
    world.script.left = steps
    if agent == OURS:
        world.helix(*ASK, "-c", session, mark)
    else:
        run_real_agent(agent, world.provider, world.home, resume(agent, session, mark))
    first = next(
        asked
        for asked in world.provider.asked
        if asked.protocol and mark.encode() in asked.raw and _names(asked.body)
    )
    before = [piece for piece in pieces_of_request(first) if piece[2].strip('"') != mark]
    after = pieces_of_request(last_request(world.provider, mark))
    has_further_step = count_results(after) > count_results(before)
    return first, after, "" if has_further_step else "no further step"


def failures_of_pair(
    world: World, source: str, target: str, conversation: str, expected: Sequence[Json]
) -> list[str]:
    """What was wrong; a pair that breaks off does not take the source's other pairs with it."""
    try:
        return try_pair(world, source, target, conversation, expected)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the other pairs are tried
        world.script.recalls = False
        return [f"{type(error).__name__}: {error}"]


def try_pair(
    world: World, source: str, target: str, conversation: str, expected: Sequence[Json]
) -> list[str]:
    mark = f"MARK-{source}-{target}"
    refused = len(world.provider.refused)
    if target == OURS:
        world.script.recalls, world.script.asked_for = (
            True,
            set(),
        )  # large outputs stand behind their hashes there
        first, after, wrong = go_on(world, OURS, conversation, mark)
        world.script.recalls = False
    else:
        if target == "opencode":
            list_sessions(
                target, world.provider, world.home
            )  # it makes its database when it first starts
        made = world.restore(conversation, target)
        told = list_sessions(target, world.provider, world.home)
        first, after, wrong = go_on(world, target, made["session"], mark)
        if told is not None and made["session"] not in told:
            wrong += "; it does not list the session"
    found = [wrong] if wrong else []
    found += lost_pieces(expected, pieces_of_request(first), after if target == OURS else ())
    if target != OURS:
        found += [f"folded: {why}" for why in try_folded(world, target, conversation, expected)]
    return found + [f"refused: {why}" for why in world.provider.refused[refused:]]


def try_folded(world: World, agent: str, conversation: str, expected: Sequence[Json]) -> list[str]:
    """Folded, every output is in the request or behind a hash in it, which the agent
    itself recalls.
    """
    made = world.restore(conversation, agent, "--fold", "--mcp")
    if agent == "codex":  # `codex exec` does not wait for servers unless they are required
        settings = world.home / ".codex" / "config.toml"
        if "required = true" not in settings.read_text("utf-8"):
            settings.write_text(f"{settings.read_text('utf-8')}required = true\n", "utf-8")
    world.script.recalls = True
    world.script.asked_for = set()
    world.script.waits = 0
    first, after, why = go_on(world, agent, made["session"], f"FOLDED-{agent}", steps=8)
    world.script.recalls = False
    wrong = [why] if why else []
    # A single turn of small outputs has nothing that a fold would make shorter.
    if not made["folded"]:
        return wrong + lost_pieces(expected, pieces_of_request(first), ())
    if not made["fits"]:
        wrong.append("it does not fit")
    named = named_originals(first.raw.decode("utf-8", "replace"))
    if not named:
        wrong.append("no original is named")
        return wrong
    unasked = set(named) - world.script.asked_for
    if unasked:
        wrong.append(f"{len(unasked)} of {len(named)} originals could not be asked for")
    return wrong + outputs_out_of_reach(expected, after)


def outputs_out_of_reach(expected: Sequence[Json], after: Sequence[Json]) -> list[str]:
    """Say it, if the requests after the fold have not all lines of each output."""
    seen = "\n".join([piece[2] for piece in after])
    outputs: list[str] = []
    missing: list[str] = []
    for _, kind, text in expected:
        if kind == PieceKind.RESULT.value and re.search(r"OUT-\d+-END", text):
            outputs.append(text)
            if not same_lines(text, seen):
                missing.append(text)
    if not missing:
        return []
    return [
        f"{len(missing)} of {len(outputs)} outputs are out of reach, first {missing[0][:200]!r}"
    ]


def same_lines(output: str, seen: str) -> bool:
    """Whether each line of the output was seen, as it is or quoted in JSON, also more than once."""
    return all(any(form in seen for form in quoted(line.strip())) for line in output.splitlines())


def quoted(text: str) -> Iterator[str]:
    yield text
    for ascii_only in (True, False):
        form = text
        for _ in range(3):
            form = json.dumps(form, ensure_ascii=ascii_only)[1:-1]
            yield form


def lost_pieces(
    expected: Sequence[Json], got: Sequence[Json], brought_back: Sequence[Json]
) -> list[str]:
    text = "\n".join(piece[2] for piece in (*got, *brought_back))
    words = [piece[2] for piece in got if is_said_by_user(piece)]
    lost: list[Json] = []
    for piece in expected:
        is_call = piece[1] == PieceKind.CALL.value
        is_changed = is_said_by_user(piece) and piece[2] not in words
        is_missing = not is_call and not is_in(piece[2], text, brought_back)
        if is_changed or is_missing:
            lost.append(piece)
    if not lost:
        return []
    return [f"{len(lost)} of {len(expected)} pieces are lost, first {str(lost[0])[:400]}"]


def is_in(piece: str, text: str, brought_back: Sequence[Json]) -> bool:
    return piece.strip() in text or (bool(brought_back) and same_lines(piece, text))


def recall_every_output(world: World, conversation: str) -> list[str]:
    """Over the workspace's own MCP server: each output of the conversation, by its
    hash, in as many calls as it takes.
    """

    async def read_outputs() -> dict[str, str]:
        workspaces = AllWorkspaces(
            program_folders.find_program_folders(world.home / "helix").workspaces_folder
        )
        (known,) = workspaces.list_workspaces()
        workspace = await workspaces.open_stored_workspace(known.id)
        facts = [one.fact for one in await workspace.journal.read_facts(conversation)]
        digests = [fact.output.digest for fact in facts if isinstance(fact, ToolReturned)]
        contents = await workspace.cache.read_contents(digests)
        await workspace.aclose()
        return {digest.hex: contents[digest].decode("utf-8", "replace") for digest in digests}

    outputs = asyncio.run(read_outputs())
    # One server for all: to start it for each took half of a pair's time.
    with recalling_server(world) as ask:
        told = [recalled(ask, [("recall_cached_content", one, "")]) for one in outputs]
    unseen = [
        text
        for text, found in zip(outputs.values(), told, strict=True)
        if not same_lines(text, found)
    ]
    return [f"{len(unseen)} of {len(outputs)} outputs are not recalled by their hash, first {unseen[0][:200]!r}"] if unseen else []  # fmt: skip


Ask = Callable[..., Json]


@contextmanager
def recalling_server(world: World) -> Iterator[Ask]:
    """The workspace's MCP server, to be asked."""

    def ask(number: int, method: str, **given: Json) -> Json:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": given}) + "\n"
        )
        server.stdin.flush()
        return json.loads(server.stdout.readline())["result"]

    with world.watched("mcp", "--workspace", "Work") as server:
        ask(
            0,
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={},
            clientInfo={"name": "trial", "version": "1"},
        )
        yield ask
        assert server.stdin is not None
        server.stdin.close()


def recalled(ask: Ask, wanted: Sequence[tuple[str, str, str]]) -> str:
    """What the workspace's server says of these, and of all that it names in turn."""
    left = dict.fromkeys(wanted)
    text = ""
    for tool, *rest in (asked := list(left)):
        found = ask(1, "tools/call", name=tool, arguments=arguments_of(tool, *rest))
        page = found.get("structuredContent") or {"text": str(found)}
        text += f"\n{page['text']}"
        new = [
            one for one in named_originals(json.dumps(page, ensure_ascii=False)) if one not in left
        ]
        left.update(dict.fromkeys(new))
        asked.extend(new)
    return text


def try_source(source: str, chance: random.Random, targets: Sequence[str]) -> dict[str, list[str]]:
    """What was wrong, by target."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        home = Path(folder, "home")
        work = Path(folder, "work")
        home.mkdir()
        work.mkdir()
        (work / "notes.txt").write_text("".join(f"line {n}\n" for n in range(1, 40)), "utf-8")
        (work / "dot.png").write_bytes(picture())
        script = RichScript(chance, work)
        (
            home / ".gemini"
        ).mkdir()  # as a person who trusts the folder: only there it starts servers
        (home / ".gemini/trustedFolders.json").write_text(
            json.dumps({str(work): "TRUST_FOLDER"}), "utf-8"
        )
        with Provider(
            script, accepted="have one role"
        ) as provider:  # pi sends its summary so; the real one joins them
            world = World(home, provider, script)
            world.helix("workspace", "new", "Work", "--folder", str(work))
            world.helix("provider", "add", "scripted", "--kind", "anthropic", "--base-url", provider.url, "--variable", "ANTHROPIC_API_KEY")  # fmt: skip
            conversation, expected = make_conversation(world, source, chance)
            wrong = {one: failures_of_pair(world, source, one, conversation, expected) for one in targets if one != source}  # fmt: skip
            if unseen := recall_every_output(world, conversation):
                wrong["recall"] = unseen
            if world.read:
                wrong.setdefault("secrets", []).append(f"this program opened {sorted(world.read)}")
            return wrong


class Results:
    """What was wrong, by source, target and seed; in a file, of which the last line
    about a pair holds.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.wrong: dict[tuple[str, str, int], list[str]] = {}
        lines = file.read_text("utf-8").splitlines() if file is not None and file.exists() else []
        for source, target, seed, why in map(json.loads, lines):
            self.wrong[source, target, seed] = why

    def add(self, source: str, target: str, seed: int, why: list[str]) -> None:
        self.wrong[source, target, seed] = why
        print(f"{source} → {target}, seed {seed}: {'; '.join(why) or 'right'}", flush=True)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([source, target, seed, why], ensure_ascii=False) + "\n")

    def table(self) -> str:
        tried = Counter[tuple[str, str]]()
        right = Counter[tuple[str, str]]()
        for (source, target, _), why in self.wrong.items():
            tried[source, target] += 1
            right[source, target] += not why
        columns = list(dict.fromkeys([*EVERYBODY, *(target for _, target in tried)]))
        lines = [f"{'':10}" + "".join(f"{one:>10}" for one in columns)]
        for source in EVERYBODY:
            cells = (
                f"{right[source, one]}/{tried[source, one]}" if tried[source, one] else ""
                for one in columns
            )
            lines.append(f"{source:10}" + "".join(f"{cell:>10}" for cell in cells))
        lines.append(
            f"{tried.total()} pairs of a conversation and an agent, {tried.total() - right.total()} wrong"
        )
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=1, help="of each agent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", choices=EVERYBODY, nargs="+", default=EVERYBODY)
    parser.add_argument("--to", choices=(*EVERYBODY, "qwen"), nargs="+", default=EVERYBODY)
    parser.add_argument("--results", type=Path)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no conversation begins after so long"
    )
    arguments = parser.parse_args()
    results = Results(arguments.results)
    until = time.monotonic() + arguments.seconds
    for number in range(arguments.conversations):
        for source in arguments.agent:
            if time.monotonic() > until:
                break
            try_untried(source, arguments.seed * 1000 + number, arguments.to, results)
    print(results.table())
    return int(any(results.wrong.values()))


def try_untried(source: str, seed: int, wanted: Sequence[str], results: Results) -> None:
    """The pairs of one conversation that have no result yet."""
    targets: list[str] = []
    for target in wanted:
        if target != source and (source, target, seed) not in results.wrong:
            targets.append(target)
    if not targets:
        return
    try:
        wrong = try_source(source, random.Random(f"{source} {seed}"), targets)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the other conversations are tried
        wrong = {target: [f"{type(error).__name__}: {error}"] for target in targets}
    for target, why in wrong.items():
        results.add(source, target, seed, why)


if __name__ == "__main__":
    sys.exit(main())
