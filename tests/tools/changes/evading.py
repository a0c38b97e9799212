"""Commands that try to have a file of the user's changed or removed so that no undo brings it back.

Each is a way of evading the checkpoint with a loss: `python -m
tests.tools.changes.evading FOLDER NUMBER…` does some of them to folders of their own
and says what was lost. It runs as an ordinary user or as root without the right to read
everything.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path

from helix_desktop.engine.changes import folder_state
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.checkpoints import Checkpoints

SMALL = CheckpointCoverage(most_files=400, most_bytes=8_000_000, most_file_bytes=3_000_000)
FILES = {"thesis.txt": "thesis", "docs/chapter.txt": "chapter", "docs/deep/er/notes.txt": "notes", "target/plan.txt": "plan", "venv/own.txt": "own"}  # fmt: skip
# How a file of the user's is lost; {f} is the file, {d} its folder.
LOSSES = {
    "removed": "rm -f {f}",
    "written": "echo lost > {f}",
    "of the same size": "n=$(wc -c < {f}); head -c $n /dev/zero > new; touch -r {f} new; cat new > {f}; touch -r new {f}; rm new",
    "a folder now": "rm -f {f}; mkdir -p {f}/x; echo y > {f}/x/y",
    "a pipe now": "rm -f {f}; mkfifo {f}",
    "a link now": "rm -f {f}; ln -s /dev/zero {f}",
    "very large now": "truncate -s 6G {f}",
    "moved": "mv {f} $'moved\\xff\\xfe'",
}
# What is to keep the checkpoint from seeing it.
WAYS = {
    "a sparse file": "truncate -s 6G big",
    "a very large file": "truncate -s 10T big",
    "some files that are too much together": "for i in 1 2 3 4; do truncate -s 2900K big$i; done",
    "many tiny files": "mkdir many; for i in $(seq 600); do : > many/$i; done",
    "many tiny files beside it": "for i in $(seq 600); do : > {d}/tiny$i; done",
    "many folders": "mkdir -p many/{{1..30}}/{{1..15}}; for i in many/*/*; do : > $i/f; done",
    "closed": "chmod 000 {f}",
    "its folder closed": "chmod 000 {d}",
    "its folder not to be searched": "chmod 400 {d}",
    "its folder not to be listed": "chmod 300 {d}",
    "its folder not to be written": "chmod 500 {d}",
    "all closed": "chmod 000 .",
    "a tag of caches": "printf 'Signature: 8a477f597d28d172789f06886806bc55' > {d}/CACHEDIR.TAG; cp {d}/CACHEDIR.TAG docs",
    "names that rules go by": "touch Cargo.toml pom.xml CMakeLists.txt build.gradle venv/pyvenv.cfg",
    "its folder by a name that is left out": "[ {d} = . ] || mv {d} node_modules",
    "its folder as git's": "[ {d} = . ] || mv {d} .git",
    "rules of git": "mkdir -p .git/info; echo '*' | tee .gitignore .git/info/exclude",
    "a name of our own": "echo x > .helix-undo-0123456789abcdef",
    "pipes and links": "mkfifo p1 {d}/p2; ln -s / all; ln -s /dev/zero zero; ln -s . loop",
    "very deep": "d=$(printf 'd/%.0s' $(seq 260)); mkdir -p $d; [ {d} = . ] || cp -r {d} $d",
    "a hard link that is left out": "mkdir -p node_modules; [ -f {f} ] && ln -f {f} node_modules/t && echo lost > node_modules/t",
    "a hard link": "[ -f {f} ] && ln -f {f} other && echo lost >> other",
    "other letters": "for f in docs/*; do mv $f ${{f^^}}; done",
    "everything": "rm -rf ./* .[a-z]*",
    "all by other names": "for f in *; do mv $f x$f; done",
    "swapped all the time": "for i in $(seq 50); do mv thesis.txt t2; mv t2 thesis.txt; done",
}


def commands() -> list[tuple[str, str]]:
    """A name and a line of shell each; the way comes before the loss, or after it."""
    found = []
    for way, loss, file in itertools.product(WAYS, LOSSES, FILES):
        words = {"f": file, "d": os.path.dirname(file) or "."}  # noqa: PTH120 -- a text
        lines = [WAYS[way].format(**words), LOSSES[loss].format(**words)]
        found.append((f"{way}, {file} {loss}", "\n".join(lines)))
        found.append((f"{file} {loss}, {way}", "\n".join(reversed(lines))))
    return found


def fill(folder: Path) -> dict[str, bytes]:
    for name, word in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{word}\n" * 40)
    return {name: (folder / name).read_bytes() for name in FILES}


async def lost(base: Path, line: str) -> list[str]:
    """Files that are not as they were once the command was undone, and that nobody was
    told of before it ran.
    """
    folder = base / "project"
    folder.mkdir(parents=True)
    contents = fill(folder)
    known = AllWorkspaces(base / "home")
    workspace = await known.open_stored_workspace(known.create_stored_workspace("net", folder).id)
    checkpoints = Checkpoints([folder], workspace.cache, coverage=SMALL)
    try:
        window = await checkpoints.begin_step("1", "c", "command")
        if window is None or checkpoints.folders.uncovered_entries():
            return ["no checkpoint"]
        subprocess.run(["/bin/bash", "-c", line], cwd=folder, check=False, capture_output=True)
        fact = await checkpoints.end_step(window, thorough=True)
        left = []
        if fact is not None:
            changes = folder_state.decode_difference(
                await workspace.cache.read_content(fact.difference.digest)
            )
            planned = await change_restoring.plan_undo_of_changes(checkpoints, changes)
            left = (
                await change_restoring.restore_paths(
                    checkpoints, change_restoring.plan_restore_steps(planned)
                )
            ).paths_left_alone
        return [
            f"{name} ({left})"
            for name, content in contents.items()
            if not _is(folder / name, content)
        ]
    finally:
        await checkpoints.aclose()
        await workspace.aclose()


def _is(path: Path, content: bytes) -> bool:
    try:
        return not path.is_symlink() and path.is_file() and path.read_bytes() == content
    except OSError:
        return False


def main() -> int:
    base = Path(sys.argv[1])
    every = commands()
    failed = 0
    for number in map(int, sys.argv[2:]):
        name, line = every[number]
        found = asyncio.run(lost(base / str(number), line))
        if found:
            failed += 1
            print(f"{number} {name}: {', '.join(found)}", flush=True)  # noqa: T201 -- the answer of this process
    return min(failed, 100)


def as_an_ordinary_user(base: Path, numbers: list[int]) -> subprocess.CompletedProcess[str]:
    """The same in a process for which modes count, also where the tests run as root."""
    words = [sys.executable, "-m", "tests.tools.changes.evading", str(base), *map(str, numbers)]
    if os.geteuid() == 0:
        words = [
            "setpriv",
            "--bounding-set=-dac_override,-dac_read_search",
            "--inh-caps=-all",
            *words,
        ]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )


if __name__ == "__main__":
    sys.exit(main())
