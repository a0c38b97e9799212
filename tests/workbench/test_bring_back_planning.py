"""Bringing a copy back does what git does: random pairs of trees by every way, compared
with git's own merge, rebase and apply.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from helix_desktop.errors import ActionRefused
from tests.workbench.conftest import Desks
from tests.workbench.test_git_repository import git

PAIRS = int(os.environ.get("HELIX_PAIRS", "18"))
NAMES = ["a", "b", "sub/c", "sub/d", "deep/er/e"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def change_tree(folder: Path, chance: random.Random) -> None:
    """A few changes of the kinds that people make: lines, modes, new, deleted and
    replaced files.
    """
    for name in chance.sample(NAMES, chance.randint(1, 3)):
        path = folder / name
        match chance.choice(["lines", "lines", "lines", "delete", "mode", "link", "binary"]):
            case "lines" if path.is_file() and not path.is_symlink():
                lines = path.read_bytes().splitlines(keepends=True)
                for _ in range(chance.randint(1, 2)):
                    lines.insert(chance.randint(0, len(lines)), b"new %d\n" % chance.randint(0, 99))
                    del lines[chance.randrange(len(lines))]
                path.write_bytes(b"".join(lines))
            case "delete":
                path.unlink(missing_ok=True)
            case "mode" if path.is_file() and not path.is_symlink():
                path.chmod(path.stat().st_mode ^ 0o111)
            case "link":
                path.unlink(missing_ok=True)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(f"target {chance.randint(0, 3)}")
            case _:
                other = folder / chance.choice([f"{name}.new", "more/x"])
                other.parent.mkdir(parents=True, exist_ok=True)
                other.write_bytes(bytes([chance.randint(0, 2)]) * 40)


def tree_of(folder: Path) -> dict[str, tuple[bool, bytes]]:
    """What git would store: names, whether they run, and content."""
    found = {}
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if inside.parts[0] == ".git" or (path.is_dir() and not path.is_symlink()):
            continue
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        found[str(inside)] = (not path.is_symlink() and bool(path.stat().st_mode & 0o100), content)
    return found


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


def clone_and_join(base: Path, theirs: Path, way: str, folder: Path) -> bool:
    """What git itself does with the two: `base` has the user's state, `theirs` the
    copy's. Whether it went without a conflict.
    """
    if way == "apply":
        gone = git(theirs, "diff", "--name-only", "--diff-filter=D", "HEAD").split()
        # `git apply` refuses what both have deleted, where nothing is left to do.
        words = [".", *(f":(exclude){name}" for name in gone if not os.path.lexists(base / name))]
        diff = ["git", "diff", "--binary", "HEAD", "--", *words]
        patch = subprocess.run(diff, cwd=theirs, check=True, capture_output=True).stdout
        subprocess.run(["cp", "-a", f"{base}/.", folder], check=True)
        git(folder, "add", "-A")
        done = subprocess.run(
            ["git", "apply", "--3way", "-"],
            cwd=folder,
            input=patch,
            check=False,
            capture_output=True,
        )
        return done.returncode == 0 or not patch
    subprocess.run(["cp", "-a", f"{theirs}/.", folder], check=True)
    commit(folder, "theirs")
    git(folder, "fetch", "-q", str(base), "HEAD")
    words = ["merge", "-q", "--no-edit"] if way == "merge" else ["rebase", "-q"]
    return (
        subprocess.run(
            ["git", *words, "FETCH_HEAD"], cwd=folder, check=False, capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.parametrize("way", ["merge", "rebase", "apply"])
async def test_random_pairs_of_trees_come_out_as_git_has_them(
    desks: Desks, tmp_path: Path, way: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q", ".")
    git(project, "config", "user.name", "a")
    git(project, "config", "user.email", "a@b")
    for name in NAMES:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("".join(f"{name} {number}\n" for number in range(12)))
    commit(project, "base")
    base = git(project, "rev-parse", "HEAD").strip()
    bench = await desks().create_workspace("W", project)
    joined = 0
    for seed in range(PAIRS // 3):
        chance = random.Random(f"{way} {seed}")
        git(project, "reset", "-q", "--hard", base)
        git(project, "clean", "-qfdx")
        copy = await bench.copies.create_copy(f"copy{seed}")
        work = copy.folder / "0"
        expected = tmp_path / f"{way}{seed}"
        change_tree(work, chance)
        change_tree(project, chance)
        if way != "apply":
            commit(project, "mine")
        before = tree_of(project)
        git(work, "add", "--intent-to-add", "--all")
        expected.mkdir()
        went_well = clone_and_join(project, work, way, expected)
        try:
            await bench.copies.bring_back(copy, way, "theirs")
        except ActionRefused:
            assert not went_well, f"{way} {seed}: git itself had no conflict"
            assert tree_of(project) == before
        else:
            assert went_well, f"{way} {seed}: git itself had a conflict"
            assert tree_of(project) == tree_of(expected), f"{way} {seed}"
            joined += 1
    assert joined
