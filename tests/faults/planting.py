"""Commands that leave something behind to be run later, in a real sandbox, as this user
and as an ordinary one.

    python -m tests.faults.planting [--ways 0] [--seed 1] [--first 1] [--last 0]

After each command the user does in the folder what users do (git in every repository
there is), with a home of their own: nothing of the command's may run. Files that
editors, shells and package managers run must be as they were. Root tries the same once
more as the user `hold_no_conversation`, where the system's Python can. Then ways out of
the sandbox are tried. All ways take longer than a quiet quarter of an hour: `--first` and
`--last` choose a part of them by number, which is the same part each time with one seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.tools import autorun_files
from helix_desktop.tools.permission import PermissionMode
from helix_desktop.tools.sandbox import SandboxKind
from helix_desktop.tools.toolbox import WorkspacePermissions
from helix_desktop.tools.workspace_tools import WorkspaceToolOptions, WorkspaceTools
from tests.tools.planting import Way, empty_folder, prepare, ways
from tests.tools.world import Words

GIT = (
    ["status"], ["st"], ["co"], ["log", "-p", "-1"], ["diff"], ["add", "-A"], ["stash"], ["commit", "--allow-empty", "-qm", "x"], ["checkout", "-q", "-B", "other"], ["fetch", "origin"],
    ["merge", "main"], ["rebase", "--continue"], ["gc", "-q"], ["submodule", "update"],
)  # fmt: skip
WAYS_TO_PROGRESS = 20  # So often it prints how far it is.
ESCAPES = {
    "remount the root": "mount -o remount,rw / ; echo x > {out}/escaped",
    "remount by a new bind": "mkdir -p m; mount --bind / m && mount -o remount,rw,bind m && echo x > m{out}/escaped",
    "a new user namespace": "unshare -Urm sh -c 'mount -o remount,rw / ; umount -l {out}; echo x > {out}/escaped'",
    "uncover what is hidden": "umount -l {hidden}; cat {hidden}/key",
    "uncover in a new namespace": "unshare -Urm sh -c 'umount -l {hidden}; cat {hidden}/key'",
    "write to /proc/sys": "for f in kernel/hostname kernel/core_pattern vm/overcommit_memory kernel/panic; do cat /proc/sys/$f > v; cat v > /proc/sys/$f && echo CHANGED; done",
    "press a key of the system": "echo h > /proc/sysrq-trigger && echo CHANGED",
    "enter process 1": "nsenter -t 1 -m sh -c 'echo x > {out}/escaped'",
    "chroot through /proc": "chroot /proc/1/root sh -c 'echo x > {out}/escaped'; ls /proc/1/root{hidden} && cat /proc/1/root{hidden}/key",
    "make a device": "mknod disk b 8 0 && echo CHANGED; mknod n c 1 3 && echo CHANGED",
    "load a module": "insmod /lib/modules/x.ko && echo CHANGED; modprobe dummy && echo CHANGED",
    "set the clock": "date -s '2001-01-01' && echo CHANGED; python3 -c 'import time; time.clock_settime(0, 1e9)' && echo CHANGED",
    "reach through a control group": "mkdir /sys/fs/cgroup/x && echo CHANGED; mount -t cgroup -o rdma cgroup m && echo CHANGED",
    "mount something": "mount -t tmpfs x {out} && echo CHANGED; mount -t proc proc /proc && echo CHANGED",
    "give back powers": "capsh --caps=all+eip -- -c 'echo x > {out}/escaped'; setpriv --inh-caps +all --ambient-caps +all sh -c 'echo x > {out}/escaped'",
    "a set-uid program": "cp /bin/sh s; chmod 4755 s; ./s -p -c 'echo x > {out}/escaped'; sudo -n sh -c 'echo x > {out}/escaped'",
    "a hard link to the outside": "ln {out}/file h; echo x > h; cat h",
    "a link to the outside": "ln -s {out} l; echo x > l/escaped",
    "trace a process outside": "python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16, {pid}, 0, 0))' | grep -x 0 && echo CHANGED",
    "open by handle": "python3 -c 'import ctypes; print(ctypes.CDLL(None).open_by_handle_at(3, b\"0\" * 32, 2))' | grep -v -- -1 && echo CHANGED",
    "hostname": "hostname helix-was-here && echo CHANGED",
    "kernel messages": "dmesg -C && echo CHANGED",
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", type=int, default=0, help="so many of the ways; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the number of the first way")
    parser.add_argument("--last", type=int, default=0, help="of the last way; 0 for all")
    parser.add_argument(
        "--landlock", action="store_true", help="by Landlock, though there may be bubblewrap"
    )
    arguments = parser.parse_args()
    sys.setrecursionlimit(
        20_000
    )  # `os.walk` calls itself for each folder in a folder, and one way makes 1,200 of them.
    part = ChosenWays(arguments.ways, arguments.seed, arguments.first, arguments.last)
    failures = asyncio.run(trial(part, landlock=arguments.landlock))
    if arguments.landlock:
        return int(failures > 0)
    if os.geteuid() == 0:
        failures += as_nobody(part)
    return int(failures > 0)


@dataclass(frozen=True)
class ChosenWays:
    """Which ways are tried: `count` of them in an order by `seed`, or all where it is 0, and of
    these the `first` to the `last`, or to the end where that is 0.
    """

    count: int
    seed: int
    first: int
    last: int

    def of(self, all_ways: list[Way]) -> list[Way]:
        count = min(self.count or len(all_ways), len(all_ways))
        in_order = random.Random(self.seed).sample(all_ways, count)
        return in_order[self.first - 1 : self.last or None]

    def as_arguments(self) -> list[str]:
        return [
            f"--ways={self.count}", f"--seed={self.seed}", f"--first={self.first}",
            f"--last={self.last}",
        ]  # fmt: skip


async def trial(part: ChosenWays, *, landlock: bool = False) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        for name in ("work", "home", "outside", "closed", "template"):
            (base / name).mkdir()
        os.environ["HOME"] = str(base / "home")
        canary = base / "outside" / "ran"
        prepare(base / "template")
        kit, tasks = await opened(base)
        if landlock:
            kit.commands.sandbox = kit.sandbox = replace(kit.sandbox, kind=SandboxKind.LANDLOCK)
        chosen = part.of(ways(f"touch {canary}"))
        failed: list[str] = []
        for number, way in enumerate(chosen, 1):
            said = await tried(kit, base, way, canary)
            if said:
                failed.append(f"{way.name}: {said}")
                print(f"FAILED so far: {failed[-1]}", flush=True)
            if number % WAYS_TO_PROGRESS == 0:
                print(
                    f"{number} of {len(chosen)} ways, {time.monotonic() - begun:.0f} s", flush=True
                )
        out = await escapes(kit, base)
        empty_folder(base / "work")
        await kit.aclose()
        await tasks.aclose()
    for line in (*failed, *out):
        print(f"FAILED: {line}", flush=True)
    who = "root" if os.geteuid() == 0 else "a user"
    kind = kit.sandbox.kind
    failures = len(failed) + len(out)
    print(
        f"planting: {len(chosen)} ways from number {part.first} as {who} in {kind}, {len(ESCAPES)} ways out; {failures} failures; {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return failures


async def opened(base: Path) -> tuple[WorkspaceTools, OwnedTasks]:
    cache = MemoryCache()
    tasks = OwnedTasks("trial")
    stores = (cache, MemoryIndex(MemoryJournal(), cache), Words())
    options = WorkspaceToolOptions(closed_paths=(base / "closed",))
    kit = await WorkspaceTools.open_workspace_tools(
        [base / "work"],
        stores,
        permissions=WorkspacePermissions(PermissionMode.ALLOW_ALL),
        spawn=tasks.spawn_task,
        options=options,
    )
    return kit, tasks


async def command(kit: WorkspaceTools, line: str) -> str:
    async def no(question: PermissionQuestion) -> PermissionAnswer:
        allowed = question.apart != "runs_later"  # the command runs; what it leaves is not wanted
        return PermissionAnswer(allowed=allowed)

    call = ToolCall("1", "run_command", json.dumps({"command": line, "seconds": 30}))
    outcome = await kit.build_toolbox().run_tool_call(call, CallContext("c", no, lambda _: None))
    return (await kit.resources.cache.read_content(outcome.output.digest)).decode(
        "utf-8", "replace"
    )


async def tried(kit: WorkspaceTools, base: Path, way: Way, canary: Path) -> str:
    """What of a way came through; nothing where nothing did."""
    work = base / "work"
    empty_folder(work)
    shutil.copytree(base / "template", work, dirs_exist_ok=True, symlinks=True)
    said = await command(kit, way.line)
    if changed := await asyncio.to_thread(strange, work, base / "template"):
        return f"{changed} changed ({said[-200:]!r})"
    await asyncio.to_thread(as_a_user, work)
    if canary.exists():
        canary.unlink()
        return f"it ran ({said[-200:]!r})"
    return ""


def strange(work: Path, template: Path) -> list[str]:
    """Files that others run and that are not as they were."""
    found = []
    for folder, _, names in os.walk(work):
        for name in names:
            path = Path(folder) / name
            inside = path.relative_to(work).as_posix()
            if ".git" in inside.split("/") or not autorun_files.is_autorun_path(inside):
                continue
            before = template / inside
            now = path.read_bytes() if path.is_file() else b""
            old = before.read_bytes() if before.is_file() else b""
            if path.is_symlink() or (
                now != old and autorun_files.extract_runnable_text(name, now, old)
            ):
                found.append(inside)
    return found


def as_a_user(work: Path) -> None:
    """Git in every folder that it may take for a repository."""
    places = {work}
    for folder, names, files in os.walk(work):
        if ".git" in (*names, *files) or {"HEAD", "objects"} <= {*names, *files}:
            places.add(Path(folder))
        names[:] = [name for name in names if name != "objects"]
    for place in sorted(places)[:8]:
        for words in GIT:
            subprocess.run(
                ["git", *words], cwd=place, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=20,
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"},
            )  # fmt: skip


async def escapes(kit: WorkspaceTools, base: Path) -> list[str]:
    """Which ways out were found."""
    out = base / "outside"
    hidden = base / "closed"
    (out / "file").write_text("outside\n")
    (hidden / "key").write_text("the hidden key\n")
    failed = []
    for name, form in ESCAPES.items():
        line = (
            form.replace("{out}", str(out))
            .replace("{hidden}", str(hidden))
            .replace("{pid}", str(os.getpid()))
        )
        said = await command(kit, line)
        if (
            (out / "escaped").exists()
            or "CHANGED" in said
            or "the hidden key" in said
            or (out / "file").read_text() != "outside\n"
        ):
            failed.append(f"{name}: {said[-300:]!r}")
            (out / "escaped").unlink(missing_ok=True)
    return failed


def as_nobody(part: ChosenWays) -> int:
    """The same in a process of an ordinary user, by the system's Python, which that
    user may run.
    """
    python = shutil.which("python3.11", path="/usr/bin")
    top = Path(__file__).parents[2]
    packages = ":".join(path for path in sys.path if path.endswith("site-packages"))
    if python is None or shutil.which("setpriv") is None:
        print("planting: not tried as a user: there is no Python for one here")
        return 0
    words = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        python,
        "-m",
        "tests.faults.planting",
    ]
    environment = {**os.environ, "PYTHONPATH": f"{top}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*words, *part.as_arguments()], cwd="/", env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
