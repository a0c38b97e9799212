"""Secrets of every kind in every place, escaped to every depth, then forgotten: no file
may hold them.

    python -m tests.faults.forgetting [--secrets 40] [--seed 1]

What is looked for afterwards is made here, with json, urllib and the codecs; nothing of
the program's own search is used. Where something is left, the program has to have said
where, or the trial fails.

Then a mark gets into a home by each way there is: typed, pasted, attached, read, written, printed,
imported, as a task, as a schedule, and by what killed programs leave. Each is forgotten from the
command line and looked for in every file of the home.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections import Counter
from pathlib import Path

from helix_desktop.engine.facts import (
    ConversationStarted,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.processes import starter
from helix_desktop.resident import schedules
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says
from tests.store.journal_damage import find_journal_damage

ALPHABETS = ("abcXYZ0189-_", 'ab"\\/ {}', "пароль密码ü", "a\n\t'$&<>%+", "😀é\u0301x~")
CODECS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
DEPTHS = range(5)


def secret(chance: random.Random) -> str:
    alphabet = chance.choice(ALPHABETS)
    middle = "".join(chance.choices(alphabet, k=chance.randrange(6, 24)))
    return f"{chance.randrange(10**9):09}{middle}{chance.choice(alphabet).strip() or 'x'}"


def escaped(text: str, depth: int, *, ascii_: bool) -> str:
    for _ in range(depth):
        text = json.dumps(text, ensure_ascii=ascii_)[1:-1]
    return text


def forms(text: str) -> list[str]:
    """As it is written at every depth, with and without letters beyond ASCII."""
    found = [text]
    at = {text}
    for _ in DEPTHS:
        at = {
            json.dumps(each, ensure_ascii=ascii_)[1:-1] for each in at for ascii_ in (True, False)
        }
        found += at
    return [*dict.fromkeys(found), urllib.parse.quote(text), urllib.parse.quote_plus(text)]


def holding(folder: Path, text: str) -> list[str]:
    """Files with any form of it, in any encoding."""
    needles = {
        form.encode(codec)
        for form in forms(text)
        for codec in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")
    }
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(needle in path.read_bytes() for needle in needles)]


async def fill(workspace: StoredWorkspace, secrets: list[str], chance: random.Random) -> None:
    """A conversation for each secret, with it wherever a secret can get to."""
    for number, one in enumerate(secrets):
        facts: list[object] = [ConversationStarted(f"Title {one}")]
        for depth in DEPTHS:
            form = escaped(one, depth, ascii_=chance.random() < 0.5)
            described = await workspace.cache.store_content(
                f"clean {number} {depth}".encode(), EntryOrigin("shell", f"run {form}")
            )
            held = await workspace.cache.store_content(
                f"k={form};".encode(chance.choice(CODECS)), EntryOrigin("shell", "x")
            )
            facts += [
                UserSaid((Text(f"my key is {form}, keep it"),)),
                ModelReplied(
                    (ToolCall(str(depth), "shell", json.dumps({"command": form})),), "m", Stop.CALLS
                ),
                ToolReturned(str(depth), held, 3, head=f"k={form}"),
                ToolReturned(str(depth), described, 3, head="clean"),
                Folded(f"f{depth}", FoldKind.EXCERPT, PartRef(2), f"it says {form}", 1, 9),
            ]
        piece = one.encode()
        split = b"\0" * ((1 << 20) - chance.randrange(1, len(piece))) + piece + b"\0" * 100
        await workspace.cache.store_content(split, EntryOrigin("shell", "large"))
        await workspace.journal.append_to_journal(f"c{number}", facts)  # type: ignore[arg-type]
        await workspace.journal.store_meter(f"c{number}", one)
        if number % 10 == 5:
            await workspace.back_up_now()
    await workspace.index.wait_until_indexed()
    await workspace.back_up_now()


async def trials(number: int, seed: int, found: Counter[str], folder: Path) -> None:
    chance = random.Random(seed)
    secrets = [secret(chance) for _ in range(number)]
    workspaces = AllWorkspaces(folder)
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Trial", folder).id
    )
    try:
        await fill(workspace, secrets, chance)
        damaged = workspace.folder / "damaged"
        damaged.mkdir(exist_ok=True)
        (damaged / "copy").write_text("\n".join(secrets))
        for one in secrets:
            found["held before"] += len(holding(workspace.folder, one))
            purged = await workspace.forget_content(text=one)
            found["secrets"] += 1
            found["entries"] += len(purged.entries)
            found["facts"] += purged.facts
            for name in holding(workspace.folder, one):
                found[f"LOST {one!r} is left in {name}"] += not any(
                    name in told for told in purged.elsewhere
                )
            found["told"] += len(purged.elsewhere)
        damage = (await workspace.cache.verify_cache()).damaged or await find_journal_damage(
            workspace
        )
        found["LOST something is damaged"] += bool(damage)
    finally:
        await workspace.aclose()


# An agent that `wrap` starts: it says something, runs what the model asks for, and goes on.
WRAPPED_AGENT = """
import json, os, sys, urllib.request
messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(2):
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "You are an agent.", "messages": messages}
    headers = {"content-type": "application/json", "x-api-key": "k", "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"].rstrip("/") + "/v1/messages"
    reply = json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))
    messages.append({"role": "assistant", "content": reply["content"]})
    calls = [block for block in reply["content"] if block["type"] == "tool_use"]
    if calls:
        result = {"type": "tool_result", "tool_use_id": calls[0]["id"], "content": sys.argv[2]}
        messages.append({"role": "user", "content": [result]})
"""
MCP_SERVER = """
import json, sys
TOOLS = {"tools": [{"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}]}
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    result = None
    if method == "initialize":
        about = {"name": "marks", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    elif method == "tools/list":
        result = TOOLS
    elif method == "tools/call":
        resource = {"uri": "file:///a", "mimeType": "text/plain", "text": sys.argv[2]}
        content = [{"type": "text", "text": sys.argv[1]}, {"type": "resource", "resource": resource}]
        result = {"content": content, "structuredContent": {"a": sys.argv[3]}}
    if "id" in request and result is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


class MarkedHome:
    """A home of its own, with a workspace in which a mark stands for each way into it."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        self.home = folder / "helix"
        self._chance = chance
        self.marks: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        for name, value in os.environ.items():
            if not name.startswith(("XDG_", "HELIX_")):
                self._variables[name] = value
        self._variables["HOME"] = str(folder / "me")
        self._variables["HELIX_HOME"] = str(self.home)
        self.run("workspace", "new", "Here", "--folder", str(self.project))
        (self.workspace,) = (self.home / "workspaces").glob("here-*")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            starter.own_program_command(*words),
            cwd=self.project,
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def ask(self, *words: str) -> None:
        asked = self.run("ask", "-w", "Here", "--model", "demo/demo", *words)
        assert asked.returncode == 0, asked.stderr

    def mark(self, way: str) -> str:
        self.marks[way] = f"markof{way}{self._chance.randrange(10**9):09}zq"
        return self.marks[way]

    def enter_marks_through_others(self) -> None:
        """By an agent that is wrapped, by its model, and by an MCP server."""
        agent = self.folder / "agent.py"
        agent.write_text(WRAPPED_AGENT)
        said: list[list[Block]] = [[Says(self.mark("wrappedreply")), Calls("Bash", {"command": self.mark("wrappedcall")})], [Says("done")]]  # fmt: skip
        words = [self.mark("wrappedwords"), self.mark("wrappedresult")]
        with Provider(lambda _asked: said.pop(0)) as provider:
            line = shlex.join([sys.executable, str(agent), *words])
            wrapped = self.run(
                *("wrap", "-w", "Here", "--upstream", provider.url, "--protocol", "anthropic"),
                *("--command", line),
            )
        self.run("resident", "stop")
        assert wrapped.returncode == 0, wrapped.stderr
        assert "3 requests" in wrapped.stderr or "2 requests" in wrapped.stderr

        server = self.folder / "server.py"
        server.write_text(MCP_SERVER)
        # Beside the home, so that only what the program keeps of them has the marks.
        marks = [self.mark(way) for way in ("mcptext", "mcpresource", "mcpvalue")]
        (Path(self._variables["HOME"])).mkdir(exist_ok=True)
        settings = self.workspace / "workspace.toml"
        settings_before = settings.read_text()
        server_words = json.dumps([str(server), *marks])
        settings.write_text(
            f"{settings_before}\n[mcp.marks]\ncommand = {json.dumps(sys.executable)}\nargs = {server_words}\n"
        )
        with Provider(self._call_look_until_it_is_there, strict=False) as provider:
            self.run("provider", "add", "peer", "--kind", "anthropic", "--base-url", provider.url)
            words_to_ask = ("ask", "-w", "Here", "--model", "peer/claude-sonnet-4-5", "--allow", "all", "go")  # fmt: skip
            asked = self.run(*words_to_ask)
        assert asked.returncode == 0, asked.stderr
        settings.write_text(settings_before)

    def _call_look_until_it_is_there(self, asked: Asked) -> list[Block]:
        """The server may still be starting when the model is asked first."""
        content = asked.raw.decode()
        if self.marks["mcptext"] in content:
            return [Says("done")]
        if content.count("tool_use_id") % 2:
            return [Calls("run_command", {"command": f"sleep 0.{content.count('tool_use_id')}"})]
        return [Calls("call_tool", {"name": "marks__look", "arguments": {}})]

    def leave_file(self, way: str, path: str) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"after": 1, "words": self.mark(way), "device": ""}))

    def enter_marks(self) -> None:
        self.ask(f"hello {self.mark('typed')}")
        self.ask("word " * 20_000 + self.mark("pasted"))
        attached_file = self.folder / "attached.txt"
        attached_file.write_text(self.mark("attached"))
        self.ask("--attach", str(attached_file), "hello")
        attached_file.unlink()
        (self.project / "read.txt").write_text(self.mark("read"))
        self.ask("read read.txt")
        (self.project / "read.txt").unlink()
        self.ask("--allow", "edits", f"write written.txt: {self.mark('written')}")
        (self.project / "written.txt").unlink()
        self.ask("--allow", "commands", f"run echo {self.mark('printed')}")
        history = self.folder / "history.jsonl"
        said = [{"role": "user", "content": self.mark("imported")}, {"role": "assistant", "content": "ok"}]  # fmt: skip
        history.write_text("".join(f"{json.dumps(line)}\n" for line in said))
        self.run("conversation", "import", "-w", "Here", str(history), "--from", "openai")
        history.unlink()
        self.run("task", "add", "-w", "Here", "--model", "demo/demo", self.mark("task"))
        # The command would start the process that keeps schedules, which stays.
        schedule = schedules.build_schedule(
            "Here", self.mark("schedule"), "08:00", "UTC", schedules.WEEKDAYS
        )
        schedules.write_schedules(self.home, [schedule])
        inside = self.workspace.relative_to(self.home)
        self.leave_file("reply", f"{inside}/partial/c1.json")
        self.leave_file("unfinishedreply", f"{inside}/partial/.c1.json-0123abcd")
        self.leave_file("denial", f"{inside}/partial/0123.denial")
        self.leave_file("queue", f"{inside}/partial/c1.queue-damaged")
        self.leave_file("newqueue", f"{inside}/partial/c1.queue-new")
        self.leave_file("damaged", f"{inside}/damaged/copy")
        self.leave_file("failedcopy", "recorder/1.failed/s.jsonl")
        self.leave_file("waitingcopy", "recorder/2/s.jsonl")
        self.leave_file("draft", "window.json")


def try_ways(seed: int, found: Counter[str], folder: Path, most: int = 100) -> None:
    """Enter a mark by each way, then forget them one after another, `most` at most."""
    chance = random.Random(seed)
    marked_home = MarkedHome(folder, chance)
    # First, as what killed programs left is taken up when the workspace is opened again.
    marked_home.enter_marks_through_others()
    marked_home.enter_marks()
    for mark in marked_home.marks.values():
        if any(mark.encode() in file.read_bytes() for file in folder.rglob("*") if file.is_file()):
            found["ways"] += 1
    forgotten_ways = chance.sample(sorted(marked_home.marks), min(most, len(marked_home.marks)))
    for way in forgotten_ways:
        mark = marked_home.marks[way]
        told = marked_home.run("forget", "-w", "Here", "--text", mark, "--yes").stderr
        for file in folder.rglob("*"):
            if not file.is_file():
                continue
            found["files of ways"] += 1
            if mark.encode() not in file.read_bytes():
                continue
            is_told = file.name in told or (way == "schedule" and "schedule remove" in told)
            found["told of ways"] += is_told
            found[f"LOST {way} is left in {file.name}"] += not is_told


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--secrets", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(trials(arguments.secrets, arguments.seed, found, Path(folder)))
        try_ways(arguments.seed, found, Path(folder) / "ways")
    lost = [key for key, count in found.items() if key.startswith("LOST") and count]
    for key in lost[:10]:
        print(key)
    print(
        f"forgetting: {found['secrets']} secrets, {found['held before']} files held them, {found['entries']:,} entries, "
        f"{found['facts']:,} facts; {found['ways']} ways in, {found['files of ways']:,} files searched, "
        f"{found['told of ways']} of them told; {len(lost)} failures; {time.monotonic() - start:.0f} s, seed {arguments.seed}"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
