"""A user and an agent work at random on the same files, and the agent's copy is brought
back in every way.

Every line is written only once, so it can be said of each whose it is and where it
went. No line of the user's may be gone from the user's folder unless the agent removed
that very line or the user chose so, and no line of the agent's may be nowhere.
"""

from __future__ import annotations

import asyncio
import os
import random
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches, copy_files

NAMES = ("a", "b", "src/c", "src/d e", "new", "src/new", "local", "src", "ü")
WAYS = ("apply", "apply", "apply", "merge", "merge", "rebase", "discard")
CONFLICTS = ("leave", "leave", "leave", "yours", "copy", "markers")
LOCAL = "local"  # Ignored at first.
Lines = Counter[tuple[str, str]]


def git(folder: Path, *words: str, check: bool = True) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=False, capture_output=True)
    if check and done.returncode:
        raise AssertionError(f"git {words} in {folder}: {done.stderr.decode()}")
    return done.stdout.decode("utf-8", "surrogateescape")


def lines_of(folder: Path) -> Lines:
    """Each line of each file, with the file's name."""
    found: Lines = Counter()
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if ".git" in inside.parts or path.is_symlink() or not path.is_file():
            continue
        for line in path.read_bytes().decode("utf-8", "replace").splitlines():
            if not line.startswith(("<<<<<<<", "=======", ">>>>>>>", "|||||||")):
                found[str(inside), line] += 1
    return found


def files_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each entry's mode and content, without git's own and without folders."""
    found = {}
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if ".git" not in inside.parts and not (path.is_dir() and not path.is_symlink()):
            mode = path.lstat().st_mode
            found[str(inside)] = (
                mode,
                os.fsencode(path.readlink()) if stat.S_ISLNK(mode) else path.read_bytes(),
            )
    return found


@dataclass(frozen=True)
class FoldersBefore:
    """The user's folder, its index and the copy, before the copy is brought back."""

    lines: Lines
    files: dict[str, tuple[int, bytes]]
    index: object
    lines_of_copy: Lines


class Writer:
    """Changes the files of a folder at random. `removed` has each line that it took
    away, `touched` each file.
    """

    def __init__(self, folder: Path, word: str, chance: random.Random, numbers: count[int]) -> None:
        self.folder = folder
        self.word = word
        self.chance = chance
        self._numbers = numbers
        self.removed: set[tuple[str, str]] = set()
        self.touched: set[str] = set()
        self.did: list[str] = []

    def new_line(self) -> str:
        return f"{self.word}{next(self._numbers)}"

    def act(self, wanted: Callable[[], object] | None = None) -> None:
        often = (*(self.edit,) * 6, *(self.create,) * 3, self.delete, self.rename, self.set_mode)
        acts: tuple[Callable[[], object], ...] = (
            *often,
            self.stage,
            self.commit,
            self.commit,
            self.commit_some,
        )
        chosen = wanted or self.chance.choice((*acts, self.unignore))
        before = lines_of(self.folder)
        held = files_of(self.folder)
        said = chosen()
        self.did.append(f"{self.word}: {chosen.__name__} {said or ''}")
        self.removed |= {*before} - {*lines_of(self.folder)}
        now = files_of(self.folder)
        self.touched |= {name for name in {*held, *now} if held.get(name) != now.get(name)}

    def pick(self) -> Path | None:
        found = sorted(path for path in map(self.folder.joinpath, NAMES) if path.is_file())
        return self.chance.choice(found) if found else None

    def edit(self) -> str:
        if (path := self.pick()) is None:
            return ""
        lines = path.read_bytes().decode().splitlines(keepends=True)
        at = self.chance.randrange(len(lines) + 1)
        away = self.chance.choice((0, 0, 1, 1, len(lines)))
        end = self.chance.choice(("\n",) * 8 + ("\r\n", ""))
        lines[at : at + away] = [self.new_line() + (end if at + away >= len(lines) else "\n")]
        path.write_bytes("".join(lines).encode())
        return f"{path.name} at {at} -{away}"

    def create(self) -> str:
        path = self.folder / self.chance.choice(NAMES)
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            if not path.exists():
                path.write_text(
                    "".join(f"{self.new_line()}\n" for _ in range(self.chance.randrange(1, 4)))
                )
        return path.name

    def delete(self) -> str:
        if (path := self.pick()) is None:
            return ""
        path.unlink()
        return path.name

    def rename(self) -> str:
        path = self.pick()
        target = self.folder / self.chance.choice(NAMES)
        if path is None or target.exists():
            return ""
        with suppress(OSError):
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
        return f"{path.name} {target.name}"

    def set_mode(self) -> str:
        if (path := self.pick()) is None:
            return ""
        path.chmod(self.chance.choice((0o644, 0o755, 0o600)))
        return path.name

    def stage(self) -> None:
        if (path := self.pick()) is not None:
            git(self.folder, "add", str(path), check=False)

    def commit(self) -> None:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "-qm", self.new_line(), check=False)

    def commit_some(self) -> None:
        if (path := self.pick()) is not None:
            git(self.folder, "add", "--force", str(path), check=False)
            git(self.folder, "commit", "-qm", self.new_line(), check=False)

    def unignore(self) -> None:
        if self.chance.random() < 0.3:
            (self.folder / ".gitignore").write_text(f"{self.new_line()}\n")


class Trial:
    def __init__(self, base: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.numbers = count()
        self.base = base
        self.project = base / "project"
        self.user = Writer(self.project, "user", self.chance, self.numbers)
        self.agents: dict[str, Writer] = {}
        self.everyone: dict[str, Writer] = {}  # Also those whose copies were discarded.
        self.did: list[str] = []
        self.found: Counter[str] = Counter()

    def create_project(self) -> None:
        place = self.project
        kind = self.chance.choice(("plain", "plain", "worktree", "crlf", "input", "submodule"))
        if kind == "worktree":
            place = self.base / "first"
        (place / "src").mkdir(parents=True)
        for name in ("a", "b", "src/c", "src/d e"):
            (place / name).write_text(
                "".join(f"base{next(self.numbers)}\n" for _ in range(self.chance.randrange(6)))
            )
        (place / ".gitignore").write_text(f"{LOCAL}\n")
        git(place, "init", "-q", ".")
        for name, value in (("user.name", "a"), ("user.email", "a@b")):
            git(place, "config", name, value)
        if kind in ("crlf", "input"):
            git(place, "config", "core.autocrlf", "true" if kind == "crlf" else "input")
        git(place, "add", "--all")
        git(place, "commit", "-qm", "x")
        if kind == "worktree":
            git(place, "worktree", "add", "-q", str(self.project))
        if kind == "submodule":
            commit = git(place, "rev-parse", "HEAD").strip()
            git(place, "update-index", "--add", "--cacheinfo", f"160000,{commit},module")
            git(place, "commit", "-qm", "with a submodule")
            (place / "module").mkdir()
        (self.project / LOCAL).write_text(f"{self.user.new_line()}\n")
        self.did.append(kind)

    async def run(self, bench: Workbench, steps: int) -> None:
        for _ in range(steps):
            what = self.chance.random()
            if not self.agents or (what < 0.04 and len(self.agents) < 2):
                await self.make_copy(bench)
            elif what < 0.4:
                self.user.act()
                self.did.append(self.user.did[-1])
            elif what < 0.75:
                name = self.chance.choice(sorted(self.agents))
                self.agents[name].act()
                self.did.append(self.agents[name].did[-1])
            else:
                await self.bring_back(bench, self.chance.choice(sorted(self.agents)))

    async def make_copy(self, bench: Workbench) -> None:
        with_changes = self.chance.random() < 0.6
        session = await bench.start_conversation_in_copy("Apart", with_changes=with_changes)
        copy = bench.copies.find_copy(session.id)
        assert copy is not None
        self.did.append(f"copy {copy.id} with changes: {with_changes}")
        made = Writer(copy.folder / "0", f"agent{len(self.did)}x", self.chance, self.numbers)
        self.agents[copy.id] = self.everyone[copy.id] = made

    async def bring_back(self, bench: Workbench, name: str) -> None:
        copy = bench.copies.find_copy(name)
        agent = self.agents[name]
        assert copy is not None
        way = self.chance.choice(WAYS)
        conflicts = self.chance.choice(CONFLICTS)
        before = self.read_folders(agent)
        refused = ""
        said: tuple[str, ...] = ()
        try:
            said = await bench.copies.bring_back(copy, way, agent.new_line(), conflicts)
        except ActionRefused as error:
            refused = str(error)
        self.did.append(f"bring back {name} by {way} {conflicts}: {refused or said}")
        self.found[f"{way} refused" if refused else way] += 1
        self.check_folder_of_user(agent, before, way, conflicts, refused)
        if way == "discard" and not refused:
            await self.check_nothing_is_lost(bench, said, before.lines_of_copy)
            del self.agents[name]
            return
        self.check_folder_of_copy(copy, name, before, way)
        can_be_undone = "undo this" in "".join(said)  # Nothing is said where it was refused.
        if way == "apply" and can_be_undone and self.chance.random() < 0.5:
            await self.undo(bench, before.files)

    def read_folders(self, agent: Writer) -> FoldersBefore:
        return FoldersBefore(
            lines=lines_of(self.project),
            files=files_of(self.project),
            index=self.read_index(),
            lines_of_copy=lines_of(agent.folder),
        )

    def check_folder_of_user(
        self, agent: Writer, before: FoldersBefore, way: str, conflicts: str, refused: str
    ) -> None:
        """What is the user's stands where it stood, but for what the user let go."""
        files = files_of(self.project)
        is_same_index = before.index == self.read_index()
        is_refused_in_part = way == "apply" and "All other changes" in refused
        if refused and not is_refused_in_part:
            is_as_before = before.files == files and is_same_index
            assert is_as_before, self.explain("a refusal changed something")
        may_lose_lines = way == "apply" and conflicts == "copy"
        if not may_lose_lines:
            gone = self.find_lost_lines(before.lines, lines_of(self.project), agent.removed)
            assert not gone, self.explain(f"lines are gone from the user's folder: {gone}")
        if way in ("apply", "discard"):
            assert is_same_index, self.explain("the index is another one")
        wrong = []
        for path, entry in before.files.items():
            is_of_user_alone = path not in agent.touched and not path.startswith("src/")
            if is_of_user_alone and files.get(path) != entry:
                wrong.append(path)
        assert not wrong, self.explain(f"files that the agent never touched: {wrong}")

    def check_folder_of_copy(
        self, copy: copy_files.FolderCopy, name: str, before: FoldersBefore, way: str
    ) -> None:
        """Every line of the agent's is still in the copy. A merge that stopped is given up first."""
        agent = self.agents[name]
        if way == "apply":
            is_as_before = lines_of(agent.folder) == before.lines_of_copy
            assert is_as_before, self.explain("an apply changed the copy")
        git_folder = agent.folder / ".git"
        if (git_folder / "MERGE_HEAD").exists() or (git_folder / "rebase-merge").exists():
            git(agent.folder, "merge" if way == "merge" else "rebase", "--abort")
            if self.chance.random() < 0.5:
                agent.act(agent.edit)  # Its file may be one that was set aside for the merge.
            copy_files.put_back_files_of_copy(copy)
        may_go = self.user.removed | self.all_removed_by_others(name)
        gone = self.find_lost_lines(before.lines_of_copy, lines_of(agent.folder), may_go)
        lost = {line for line in gone if not self.is_committed(agent.folder, line)}
        assert not lost, self.explain(f"lines are gone from the copy: {lost}")

    def is_committed(self, folder: Path, line: tuple[str, str]) -> bool:
        """Whether a line is in the last commit, although the folder no longer has it:
        nobody needs to ask for that.
        """
        return (
            line[1] in git(folder, "grep", "-h", "-e", line[1], "HEAD", check=False).split()
            if line[1]
            else True
        )

    def all_removed_by_others(self, name: str) -> set[tuple[str, str]]:
        return {
            line
            for other, agent in self.everyone.items()
            if other != name
            for line in agent.removed
        }

    def find_lost_lines(
        self, before: Lines, now: Lines, may_go: set[tuple[str, str]]
    ) -> set[tuple[str, str]]:
        """Lines that are gone and not only moved to another file."""
        new = {line for _, line in {*now} - {*before}}
        removed = {line for _, line in may_go}
        return {
            each
            for each in {*before} - {*now} - may_go
            if each[1] not in new and each[1] not in removed
        }

    async def undo(self, bench: Workbench, held: dict[str, tuple[int, bytes]]) -> None:
        conversation = max(
            row.id for row in bench.list_conversations() if row.title == "Changes from a copy"
        )
        for turn in await bench.file_changes.turns_with_changes(conversation):
            files = await bench.file_changes.changes_with_folders(turn.sources)
            await bench.file_changes.undo_file_changes(files, conversation=conversation)
        self.did.append("undo")
        assert files_of(self.project) == held, self.explain("an undo of the apply is not exact")

    async def check_nothing_is_lost(
        self, bench: Workbench, said: tuple[str, ...], in_copy: Lines
    ) -> None:
        everything = {line for _, line in lines_of(self.project)}
        shown = [git(self.project, "log", "-p", "--all", "--reflog", "-m")]
        for sentence in said:
            if " as " in sentence:
                bundle = await bench.workspace.cache.read_content(
                    Digest.from_hex(sentence.split(" as ")[1][:64])
                )
                (self.base / "bundle").write_bytes(bundle)
                with tempfile.TemporaryDirectory(dir=self.base) as scratch:
                    git(self.base, "clone", "-q", "--no-checkout", str(self.project), scratch)
                    git(
                        Path(scratch),
                        "fetch",
                        "-q",
                        str(self.base / "bundle"),
                        "+refs/*:refs/kept/*",
                    )
                    git(
                        Path(scratch),
                        "fetch",
                        "-q",
                        str(self.base / "bundle"),
                        "+HEAD:refs/kept/all",
                        check=False,
                    )
                    shown.append(git(Path(scratch), "log", "-p", "--all", "-m"))
        text = {line[1:].rstrip("\r") for each in shown for line in each.split("\n")}
        gone = {
            line
            for name, line in in_copy
            if line not in everything | text and not self.is_ignored(name)
        }
        assert not gone, self.explain(f"lines of the copy are nowhere: {gone}")

    def is_ignored(self, name: str) -> bool:
        return name == LOCAL  # What git ignores is not kept by a discard.

    def read_index(self) -> str:
        return (
            git(self.project, "ls-files", "--stage")
            + git(self.project, "rev-parse", "HEAD")
            + git(self.project, "stash", "list")
        )

    def explain(self, what: str) -> str:
        return "\n".join((what, *self.did))


@asynccontextmanager
async def open_workbenches(base: Path) -> AsyncIterator[Workbenches]:
    where = program_folders.find_program_folders(base / "home")
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
    try:
        yield desk
    finally:
        await desk.aclose()


async def run_trial(seed: int, steps: int = 40) -> Counter[str]:
    with tempfile.TemporaryDirectory(prefix="helix-trial-") as name:
        base = Path(name).resolve()
        trial = Trial(base, seed)
        trial.create_project()
        async with open_workbenches(base) as desk:
            await trial.run(await desk.create_workspace("W", trial.project), steps)
        return trial.found


def run_numbered_trials(run: Callable[[int], Counter[str]]) -> int:
    """Run the trials with the numbers from the first argument to the second. Return 1
    if one went wrong.
    """
    first, last = map(int, sys.argv[1:3])
    found: Counter[str] = Counter()
    wrong = 0
    for seed in range(first, last):
        try:
            found += run(seed)
        except (AssertionError, Exception) as error:  # noqa: BLE001 -- says each
            wrong += 1
            print(f"--- seed {seed}: {type(error).__name__} {error}", flush=True)
    print(dict(found), f"{wrong} wrong", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(run_numbered_trials(lambda seed: asyncio.run(run_trial(seed))))
