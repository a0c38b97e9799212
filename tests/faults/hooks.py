"""Trusted hooks of a folder that plant, read and write, run in the sandbox by a real conversation.

    python -m tests.faults.hooks [--count 300] [--seed 1]

After each hook: nothing it left may run in the user's next git commands, files that
others run are as they were, what no agent sees is in no request and in no file, and in
a mode that only reads, the folder is as it was.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import logging
import random
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Text
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.secrets import SecretStorage
from helix_desktop.tools.sandbox import SandboxKind
from helix_desktop.workbench import Workbench, Workbenches
from tests.engine.agent import ScriptedModel, calls
from tests.faults.plan_mode import state_of
from tests.faults.planting import as_a_user, strange
from tests.scripted_tour import ClockWithoutPauses
from tests.tools.planting import empty_folder, prepare, ways
from tests.workbench.test_hook_runner import hooks
from tests.workbench.test_open_workbench import MODEL
from tests.workbench.test_rules_and_skills import trusting

MARKER = "planted-marker-7f3a91"
EVENTS = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart")
SECRETS = (
    *(
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".config/gh/hosts.yml",
        ".netrc",
        ".claude.json",
        ".next-agent/key",
    ),
    *(".config/opencode/auth.json", ".docker/config.json", ".bash_history"),
)
READS = (
    "cat {path}", "grep -rh marker {folder}", "python3 -c 'print(open(\"{path}\").read())'", "cp {path} taken; cat taken", "ln {path} taken; cat taken",
    "ln -s {path} taken; cat taken", "mv {path} taken; cat taken", "tar cf - {path} 2>/dev/null | strings", "base64 < {path}", "dd if={path} 2>/dev/null", "cat /proc/self/root{path}",
    "cat /proc/1/root{path}", "cat /proc/$PPID/root{path}", "find {folder} -type f -exec cat {{}} +", "git add -f {path}; git diff --cached", "git hash-object -w {path} | xargs git cat-file -p",
    "umount {path}; cat {path}", "unshare -Urm sh -c 'umount -l {path}; cat {path}'", "rm -f {path}; cat {path}", "cat {path} > taken", "awk 1 {path}", "diff {path} /dev/null",
    "cd $(dirname {path}); cat ./$(basename {path})", "cat $HOME/*/*/.env $HOME/.*/* 2>/dev/null", "while read -r a; do echo $a; done < {path}", "git stash -u; git show stash@{{0}}^3; git stash pop",
)  # fmt: skip
WRITES = (
    "touch new", "echo x > README.md", "rm -rf src", "mv src gone", "git commit --allow-empty -qm x", "git add -A", "git config user.name x", "mkdir deep", "ln -s / link",
    "chmod 777 README.md", "truncate -s 0 README.md", "(sleep 0.1; touch later) & exit 0", "setsid sh -c 'sleep 0.2; touch later' &", "mount -o remount,rw . ; touch new", "cp README.md copy",
)  # fmt: skip
FORMS = ("as it is", "a script", "a recipe")
_TALE = ("did not run", "don't run", "could not be run")


@dataclass(frozen=True)
class HookTrial:
    """`kind`: "plant", "read", "write" in a mode that only reads, or "edited" after it
    was trusted.
    """

    kind: str
    name: str
    line: str
    event: str
    form: str
    mode: str


@dataclass(frozen=True)
class HookWorld:
    base: Path
    bench: Workbench
    model: ScriptedModel

    @property
    def work(self) -> Path:
        return self.base / "user" / "work"

    @property
    def canary(self) -> Path:
        return self.base / "outside" / "ran"


def hook_trials(base: Path, count: int, seed: int) -> list[HookTrial]:
    """So many of them: half plant, a quarter read, and the rest write where nothing may
    be written, or were edited.
    """
    chance = random.Random(seed)
    planted = [(way.name, way.line) for way in ways(f"touch {base}/outside/ran")]
    paths = [base / "user/work/.env", *(base / "user" / name for name in SECRETS)]
    found = []
    for number in range(count):
        kind = ("plant", "read", "plant", "write", "plant", "read", "plant", "edited")[number % 8]
        name, line = chance.choice(planted)
        if kind == "read":
            path = chance.choice([paths[0], chance.choice(paths)])
            name = str(path)
            line = chance.choice(READS).format(path=path, folder=path.parent)
        elif kind != "plant":
            name = line = chance.choice([chance.choice(WRITES), line])
        mode = chance.choice(
            ["read only", "plan"] if kind == "write" else ["ask", "allow edits", "allow all"]
        )
        form = chance.choice(FORMS[1:] if kind == "edited" else FORMS)
        found.append(
            HookTrial(
                kind,
                name,
                line,
                chance.choice(EVENTS[:4] if kind == "edited" else EVENTS),
                form,
                mode,
            )
        )
    return found


async def open_hook_world(base: Path, model: ScriptedModel) -> tuple[HookWorld, Workbenches]:
    """A folder in a home with credentials, and a workspace on it."""
    for name in SECRETS:
        (base / "user" / name).parent.mkdir(parents=True, exist_ok=True)
        (base / "user" / name).write_text(f"{MARKER} in {name}\n")
    for name in ("user/work", "outside", "template/src"):
        (base / name).mkdir(parents=True)
    prepare(base / "template")
    (base / "template/README.md").write_text("# Read me\n")
    (base / "template/src/a.py").write_text("a = 1\n")
    (base / "template/.env").write_text(f"TOKEN={MARKER}\n")
    where = program_folders.find_program_folders(base / "desk")
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())
    shutil.copytree(base / "template", base / "user/work", dirs_exist_ok=True, symlinks=True)
    bench = await desk.create_workspace("Hooks", base / "user/work")
    await bench.choose_model_for_role(MODEL)
    return HookWorld(base, bench, model), desk


async def run_hook_trial(world: HookWorld, trial: HookTrial) -> list[str]:
    """What got through; nothing where nothing did."""
    work = world.work
    template = world.base / "template"
    bench = world.bench
    empty_folder(work)
    shutil.copytree(template, work, dirs_exist_ok=True, symlinks=True)
    _write_hook(work, trial)
    settings = (work / ".claude/settings.json").read_bytes()
    await bench.project.reread_project_folders()
    await trusting(bench)
    if trial.kind == "edited":
        (work / "run.sh").write_text("touch edited; exit 0\n")
    await bench.choose_permission_mode(trial.mode)
    before = state_of(work)
    home = _home_state(world)
    world.model.requests.clear()
    bench.hooks.last.clear()
    session = await bench.start_conversation()
    session.subscribe_to_events(lambda event: _refuse(session, event))
    world.model.script[:] = [calls("read_file", path="README.md")]
    session.send_message((Text("go"),))
    await asyncio.wait_for(session.wait_until_idle(), 120)
    await asyncio.sleep(
        0.3 if "sleep" in trial.line else 0
    )  # what it left behind would have had its time
    return await asyncio.to_thread(_what_got_through, world, trial, before, home, settings)


def _write_hook(work: Path, trial: HookTrial) -> None:
    code = 2 if trial.kind == "read" and trial.event in ("PreToolUse", "PostToolUse", "Stop") else 0
    line = trial.line if trial.kind != "read" else f"{{ {trial.line}; }} 2>&1; {trial.line} >&2"
    if trial.form != "as it is":
        (work / "run.sh").write_text(f"{line}\nexit {code}\n")
        (work / "Makefile").write_text("hook:\n\t@sh run.sh\n")
        line = "sh run.sh" if trial.form == "a script" else "cat run.sh >/dev/null; make -s hook"
    elif trial.kind == "read":
        line = f"{line}; exit {code}"
    hooks(work, trial.event, line, timeout=20)


def _refuse(session: object, event: Event) -> None:
    if isinstance(event, QuestionAsked):
        session.answer_question(event.number, PermissionAnswer(allowed=False))  # type: ignore[attr-defined]


def _home_state(world: HookWorld) -> dict[str, str]:
    files = {name: world.base / "user" / name for name in SECRETS}
    return {
        name: file.read_text() if file.is_file() else "it is gone" for name, file in files.items()
    }


def _what_got_through(
    world: HookWorld,
    trial: HookTrial,
    before: dict[str, str],
    home: dict[str, str],
    settings: bytes,
) -> list[str]:
    work = world.work
    found: list[str] = []
    notes = list(world.bench.hooks.last.values())
    has_run = bool(notes) and not any(words in note for note in notes for words in _TALE)
    if has_run and trial.kind == "edited":
        found.append(f"it ran: {notes}")
    if not has_run and trial.kind != "edited":
        found.append(f"it did not run: {notes}")
    if trial.kind in ("write", "edited"):
        found += _changed_paths(before, state_of(work))[:5]
    if changed := [name for name, text in _home_state(world).items() if text != home[name]]:
        found.append(f"changed in the home: {changed}")
    if (work / ".env").read_text() != f"TOKEN={MARKER}\n":
        found.append("a hidden file was changed")
    if (work / ".claude/settings.json").read_bytes() != settings:
        found.append("its own settings were changed")
    for name in strange(work, world.base / "template"):
        if name != ".claude/settings.json":
            found.append(f"changed: {name}")
    found += [f"a request has {what}" for what in _marks(repr(world.model.requests).encode())]
    found += _files_with_marks(work, apart_from=work / ".env")
    found += _files_with_marks(world.base / "outside", apart_from=work / ".env")
    as_a_user(work)
    if world.canary.exists():
        world.canary.unlink()
        found.append("what it left behind ran")
    return found


def _changed_paths(before: dict[str, str], after: dict[str, str]) -> list[str]:
    paths = before.keys() | after.keys()
    return [f"changed: {path}" for path in paths if before.get(path) != after.get(path)]


def _files_with_marks(folder: Path, apart_from: Path) -> list[str]:
    """Where something secret stands, apart from the file that is there for it."""
    found: list[str] = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path != apart_from:
            found += [f"{path} has {what}" for what in _marks(path.read_bytes())]
    return found


def _marks(content: bytes) -> list[str]:
    encoded = base64.b64encode(f"TOKEN={MARKER}\n".encode())[8:24]
    return [
        what
        for what, mark in (("the marker", MARKER.encode()), ("it in base64", encoded))
        if mark in content
    ]


async def try_hooks(count: int, seed: int, base: Path) -> tuple[list[str], str]:
    """What got through, and in which sandbox."""
    model = ScriptedModel([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workbench, "_model_client_for", lambda *_: model)
        patch.setenv("HOME", str(base / "user"))
        world, desk = await open_hook_world(base, model)
        kind = world.bench.kit.sandbox.kind
        failed = []
        try:
            for trial in hook_trials(base, count, seed) if kind is not SandboxKind.NONE else ():
                if through := await run_hook_trial(world, trial):
                    failed.append(f"{trial}: {through}")
                    print(f"FAILED: {failed[-1]}", flush=True)
        finally:
            await desk.aclose()
    return failed, kind


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        failed, kind = asyncio.run(try_hooks(given.count, given.seed, Path(folder)))
    print(
        f"hooks: {given.count} hooks in {kind}; {len(failed)} failures; {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
