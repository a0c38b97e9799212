"""Commands that misbehave: 100 children that ignore every signal, fork bombs, 500 MB of
output, whole sessions of them.

    python -m tests.faults.sandbox [--rounds 10] [--megabytes 500]

Every kind of sandbox this system has is tried. Shown for each: how long Stop took until
nothing of the command was left (limit: 2 s), and by how much the memory of this process
grew while it took in the output (limit: 100 MB), which is then read back from a real
cache and compared.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.tools.command_tools import CommandLimits
from helix_desktop.tools.permission import PermissionMode
from helix_desktop.tools.sandbox import SandboxKind
from helix_desktop.tools.toolbox import WorkspacePermissions
from helix_desktop.tools.workspace_tools import WorkspaceTools
from tests.tools.test_command_tools import alive
from tests.tools.world import Words

STUBBORN = """
trap '' TERM INT HUP
for i in $(seq 100); do (trap '' TERM INT HUP; setsid sleep {mark} & nohup sleep {mark} & sleep {mark}) & done
echo ready; wait
"""
BOMB = """
trap '' TERM INT HUP
breed() {{ sleep 0.02; [ $(ls /proc | grep -c '^[0-9]') -lt 600 ] && (setsid bash -c "$(declare -f breed); breed" {mark} & breed &) ; exec -a 'x {mark}' sleep 1000; }}
echo ready; breed
"""
LIMIT_STOP, LIMIT_MEMORY = 2.0, 100 << 20


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=500)
    arguments = parser.parse_args()
    return asyncio.run(trials(arguments.rounds, arguments.megabytes))


async def trials(rounds: int, megabytes: int) -> int:
    failed = 0
    for kind in SandboxKind:
        async with kit_with(kind) as kit:
            if kit is None:
                say(f"{kind}: not here")
                continue
            for name, script in (("100 stubborn children", STUBBORN), ("fork bomb", BOMB)):
                slowest, left = await stops(kit, script, rounds)
                failed += slowest > LIMIT_STOP or left > 0
                say(
                    f"{kind}: {name}, {rounds} times: slowest stop {slowest:.2f} s, {left} processes left"
                )
            grown, same = await output(kit, megabytes)
            failed += grown > LIMIT_MEMORY or not same
            say(
                f"{kind}: {megabytes} MB of output: memory grew by {grown >> 20} MB; read back {'the same' if same else 'DIFFERENT'}"
            )
    return 1 if failed else 0


def say(line: str) -> None:
    print(line, flush=True)


@asynccontextmanager
async def kit_with(kind: SandboxKind) -> AsyncIterator[WorkspaceTools | None]:
    """Tools on a workspace with a real cache."""
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "work").mkdir()
        known = AllWorkspaces(Path(home) / "workspaces", count=len)
        workspace = await known.open_stored_workspace(
            known.create_stored_workspace("trial", Path(home) / "work").id
        )
        tasks = OwnedTasks("trial")
        permissions = WorkspacePermissions(PermissionMode.ALLOW_ALL, sandboxed=True)
        stores = (workspace.cache, workspace.index, Words())
        kit = await WorkspaceTools.open_workspace_tools(
            [Path(home) / "work"], stores, permissions=permissions, spawn=tasks.spawn_task
        )
        there = kind is SandboxKind.NONE or kit.sandbox.kind is not SandboxKind.NONE
        kit.commands.sandbox = dataclasses.replace(kit.sandbox, kind=kind)
        kit.commands.limits = CommandLimits(seconds=600, output=1 << 40)
        permissions.sandboxed = True
        try:
            yield kit if there else None
        finally:
            await kit.aclose()
            await tasks.aclose()
            await workspace.aclose()


async def stops(kit: WorkspaceTools, script: str, rounds: int) -> tuple[float, int]:
    """The slowest stop in seconds, and how many processes were ever left after one."""
    slowest = 0.0
    left = 0
    for number in range(rounds):
        mark = f"9{number}{time.time_ns() % 10**9}"
        shown: list[str] = []
        run = asyncio.ensure_future(command(kit, script.format(mark=mark), shown.append))  # noqa: TID251 -- to cancel it
        while "ready" not in "".join(shown):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        run.cancel()
        await asyncio.wait([run])
        slowest = max(slowest, time.monotonic() - began)
        left += len(alive(mark))
    return slowest, left


async def output(kit: WorkspaceTools, megabytes: int) -> tuple[int, bool]:
    """By how much the peak of our memory grew, and whether what came back is what was printed."""
    program = f"import sys\nfor n in range({megabytes} * 16): sys.stdout.write((('%08d' % n) + 'x' * 55 + chr(10)) * 1024)"
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    python = Path(sys.executable).resolve()  # an environment below /tmp is not seen from inside
    outcome = await command(kit, f'"{python}" -c "{program}"', lambda _: None)
    grown = memory("VmHWM") - before
    expected = hashlib.sha256()
    found = hashlib.sha256()
    for number in range(megabytes * 16):
        expected.update((f"{number:08d}" + "x" * 55 + "\n").encode() * 1024)
    stored = outcome.output
    for start in range(0, stored.size, 1 << 20):
        found.update(
            await kit.resources.cache.read_range(
                stored.digest, start, min(1 << 20, stored.size - start)
            )
        )
    return grown, stored.size == megabytes << 20 and found.digest() == expected.digest()


def memory(name: str) -> int:
    """Of this process, in bytes: VmRSS now, VmHWM at its peak."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) * 1024


async def command(kit: WorkspaceTools, line: str, show: Callable[[str], None]):  # type: ignore[no-untyped-def]  # noqa: ANN201
    import json

    call = ToolCall("1", "run_command", json.dumps({"command": line, "seconds": 600}))
    return await kit.build_toolbox().run_tool_call(call, CallContext("c", yes, show))


async def yes(question: PermissionQuestion) -> PermissionAnswer:
    return PermissionAnswer(allowed=True)


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
