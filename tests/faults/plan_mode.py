"""Plan mode under fuzzed calls: every tool with every kind of argument, in sub-agents
too, and nothing on the disk changes.

The user says yes to whatever is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolCall, ToolSpec
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.token_counting import TiktokenCounter
from helix_desktop.tools.command_tools import CommandLimits
from helix_desktop.tools.delegate_tool import AgentPlace, Delegation, DelegationResult
from helix_desktop.tools.permission import PermissionMode, PermissionRule
from helix_desktop.tools.sandbox import SandboxKind
from helix_desktop.tools.toolbox import Toolbox, WorkspacePermissions
from helix_desktop.tools.tools_on_demand import OnDemandTools
from helix_desktop.tools.workspace_tools import WorkspaceTools

COMMANDS = (
    "rm -rf .", "rm -rf src README.md", "echo x > README.md", "echo x >> src/a.py", "touch new", "mkdir -p deep/er", "mv src gone",
    "sed -i s/a/b/ README.md", "python3 -c \"open('new','w').write('x')\"", "git init . && git commit --allow-empty -m x",
    "chmod 777 README.md", "ln -s /etc/passwd link", "cp README.md copy", "truncate -s 0 README.md", "tee new < README.md",
    "find . -name '*.py' -delete", "perl -i -pe s/a/b/ README.md", "dd if=/dev/zero of=new count=1", ": > README.md", "ls", "cat README.md",
    "(sleep 0.01; touch later) &", "nohup touch later >/dev/null 2>&1 &", "mount -o remount,rw . ; touch new", "unshare -r touch new",
    "touch {outside}/new", "rm -rf {outside}", "cd src && touch b.py", "bash -c 'touch new'", "env touch new", "touch .git/new", "echo x > .git/HEAD", "xargs touch <<< new",
)  # fmt: skip
PATHS = (
    "README.md",
    "src/a.py",
    ".",
    "new",
    "src",
    "../outside/x",
    "{outside}/kept",
    "/tmp/plan-mode-new",
    ".git/config",
    "src/../new",
)
FREE = (
    "x",
    "",
    "README",
    "*.py",
    "new text",
    "a" * 200,
    "open",
    "done",
    "https://localhost:1/",
    "1",
)


@dataclass
class Touching:
    """A server's tool that changes the folder when it runs."""

    folder: Path
    spec: ToolSpec = ToolSpec("srv__touch", "Touches", '{"type":"object","properties":{}}')
    title_for_question: str = "srv: touch"
    has_changed_description: bool = False
    runs_alone: bool = True
    only_reads: bool = False

    def remember_approval(self) -> None:
        pass

    async def call_foreign_tool(self, values: object, context: CallContext) -> Any:
        (self.folder / "touched").write_text("x")
        raise AssertionError("it ran")


@dataclass
class World:
    folder: Path
    outside: Path
    kit: WorkspaceTools
    chance: random.Random
    ran: dict[str, int] = field(default_factory=dict)
    calls: int = 0

    def box(self, depth: int) -> Toolbox:
        async def child(wish: Delegation, context: CallContext) -> DelegationResult:
            box = self.box(wish.depth)
            for _ in range(3):
                await self.call(box, context.ask)
            return DelegationResult("child", "done")

        demand = OnDemandTools(TiktokenCounter(), self.kit.finder)
        return self.kit.build_toolbox(
            start_child=child,
            place=AgentPlace(depth),
            more=lambda: [Touching(self.folder)],
            on_demand=demand,
        )

    async def call(self, box: Toolbox, ask: Any) -> None:
        name = self.chance.choice(
            sorted(box.callable_names - {"stop_command", "read_command_output"})
        )
        values = self.values(box, name)
        self.calls += 1
        outcome = await box.run_tool_call(
            ToolCall(f"c{self.calls}", name, json.dumps(values)),
            CallContext("c", ask, lambda _: None),
        )
        self.ran[name] = self.ran.get(name, 0) + outcome.ok

    def values(self, box: Toolbox, name: str) -> dict[str, object]:
        if name == "srv__touch":
            return {}
        schema = next(
            json.loads(spec.schema)
            for spec in (*box.offered_specs(), *box._searchable_specs())
            if spec.name == name
        )
        required = schema.get("required", [])
        found: dict[str, object] = {}
        for key, about in schema["properties"].items():
            if key in required or self.chance.random() < 0.4:
                found[key] = self.value(key, about)
        return found

    def value(self, key: str, about: dict[str, Any]) -> object:
        kind = about.get("type")
        if key in ("command", "path", "folder"):
            said = self.chance.choice(COMMANDS if key == "command" else PATHS)
            return said.replace("{outside}", str(self.outside))
        others: dict[str, object] = {
            "boolean": self.chance.random() < 0.3,
            "integer": 5 if key == "seconds" else self.chance.randint(1, 5),
            "array": [],
        }
        return others.get(str(kind), self.chance.choice(FREE))


def state_of(*folders: Path) -> dict[str, str]:
    """Every path with its kind, its rights and its content."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            about = path.lstat()
            content = (
                hashlib.sha256(path.read_bytes()).hexdigest()
                if path.is_file() and not path.is_symlink()
                else ""
            )
            found[str(path)] = (
                f"{about.st_mode:o} {about.st_mtime_ns if path.is_file() else 0} {content}"
            )
    return found


async def fuzz(calls: int, seed: int, base: Path) -> tuple[int, dict[str, int], list[str]]:
    """How many calls were made, how many of each tool came to something, and what
    changed on the disk.
    """
    folder = base / "work"
    outside = base / "outside"
    for path, text in (
        (folder / "README.md", "a readme\n"),
        (folder / "src/a.py", "a = 1\n"),
        (folder / ".git/HEAD", "ref: refs/heads/main\n"),
        (outside / "kept", "kept\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    cache = MemoryCache()
    tasks = OwnedTasks("plan mode")
    everything = (PermissionRule("allow"), PermissionRule("allow", tool="*", network=True))
    permissions = WorkspacePermissions(PermissionMode.PLAN, everything)
    kit = await WorkspaceTools.open_workspace_tools(
        [folder],
        (cache, MemoryIndex(MemoryJournal(), cache), TiktokenCounter()),
        permissions=permissions,
        spawn=tasks.spawn_task,
    )
    kit.commands.limits = CommandLimits(seconds=5)
    if kit.sandbox.kind is SandboxKind.NONE:
        print("there is no sandbox here: commands are refused")
    world = World(folder, outside, kit, random.Random(seed))
    before = state_of(folder, outside)

    async def yes(question: PermissionQuestion) -> PermissionAnswer:
        return PermissionAnswer(allowed=True, scope=question.scopes[-1], values=question.preview)

    box = world.box(0)
    while world.calls < calls:
        await world.call(box, yes)
    await kit.aclose()
    await tasks.aclose()
    await asyncio.sleep(0.2)  # what a command left behind would have had its time
    after = state_of(folder, outside)
    changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    return world.calls, world.ran, changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as base:
        made, ran, changed = asyncio.run(fuzz(wanted.calls, wanted.seed, Path(base)))
    print(f"{made:,} calls; came to something: {dict(sorted(ran.items()))}")
    print(f"{len(changed)} changes on the disk: {changed[:10]}")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
