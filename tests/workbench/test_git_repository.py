"""The user's repository: compared with without running anything of it, and committed to
when the user says so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.engine.changes.turn_changes import ChangeSource, FileChange
from helix_desktop.engine.facts import FilesCommitted
from helix_desktop.engine.state_of_work import describe_state_of_work
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from tests.workbench.conftest import Desks
from tests.workbench.test_open_workbench import bench_on


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "a").write_text("one\n")
    (folder / "b").write_text("b\n")
    git(folder, "init", "-q", ".")
    with (folder / ".git/config").open("a") as file:
        file.write("[user]\n\tname = a\n\temail = a@b\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return folder


async def test_what_is_different_from_a_revision(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    (project / "a").write_text("two\n")
    (project / "b").unlink()
    (project / "new").write_text("new\n")
    files = {
        file.place: file.change_word
        for file in await bench.file_changes.changes_since_revision("HEAD")
    }
    assert {place: files[place] for place in ("a", "b", "new")} == {
        "a": "changed",
        "b": "deleted",
        "new": "added",
    }
    with pytest.raises(NotFound):
        await bench.file_changes.changes_since_revision("nothing")


async def test_changes_that_no_conversation_made_are_known(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    repository = bench.file_changes.git_repository
    assert not await repository.has_uncommitted_changes()
    (project / "untracked").write_text("new\n")
    assert not await repository.has_uncommitted_changes()
    (project / "a").write_text("two\n")
    assert await repository.has_uncommitted_changes()


async def test_a_commit_takes_these_files_and_leaves_what_else_is_staged(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    (project / "a").write_text("two\n")
    (project / "b").write_text("mine\n")
    git(project, "add", "b")
    await bench.file_changes.git_repository.commit_files(["0/a", "0/never-there"], "Say two")
    assert git(project, "show", "--name-only", "--format=%s", "HEAD").split() == ["Say", "two", "a"]
    assert git(project, "diff", "--cached", "--name-only").split() == ["b"]


async def test_a_commit_leaves_out_empty_folders_and_one_that_git_refuses_leaves_nothing_staged(
    desks: Desks, project: Path
) -> None:
    """The list of a turn's changes has the folders, too: pytest makes `.benchmarks`,
    and no commit succeeded.
    """
    bench = await bench_on(desks, project)
    (project / "empty").mkdir()
    (project / "a").write_text("two\n")
    (project / "new").write_text("new\n")
    (project / "b").unlink()
    paths = ["0/empty", "0/a", "0/new", "0/b"]
    lock = (
        project
        / ".git"
        / "refs"
        / "heads"
        / f"{git(project, 'branch', '--show-current').strip()}.lock"
    )
    lock.touch()
    before = git(project, "status", "--porcelain")
    with pytest.raises(ActionRefused):
        await bench.file_changes.git_repository.commit_files(paths, "All")
    assert git(project, "status", "--porcelain") == before
    lock.unlink()
    await bench.file_changes.git_repository.commit_files(paths, "All")
    assert git(project, "status", "--porcelain") == ""
    with pytest.raises(InvalidInput, match="empty folders"):
        await bench.file_changes.git_repository.commit_files(["0/empty"], "Nothing")


async def test_what_the_last_commit_contains_is_known(desks: Desks, project: Path) -> None:
    """Whoever committed it, and with whatever else. What was taken back is not in a
    commit, whoever took it back.
    """
    bench = await bench_on(desks, project)
    changes = bench.file_changes
    found = list[FileChange]()
    await changes.prepare_checkpoints()

    async def do_step(act: Callable[[], object]) -> None:
        step = await changes.workspace_checkpoints.begin_step(str(len(found)), "c1", "command")
        assert step is not None
        act()
        fact = await changes.workspace_checkpoints.end_step(step)
        assert fact is not None
        found[:0] = await changes.file_changes_of_steps(
            [ChangeSource("c1", 1, 1.0, fact)]
        )  # The newest first.

    async def committed() -> list[str]:
        return sorted(
            await changes.git_repository.find_committed_paths([file.change for file in found])
        )

    await do_step(lambda: (project / "a").write_text("two\n"))
    await do_step(lambda: (project / "new").write_text("new\n"))
    await do_step((project / "b").unlink)
    assert await committed() == []
    await changes.git_repository.commit_files(["0/a", "0/b"], "Two of three")
    assert await committed() == ["0/a", "0/b"]
    await do_step(lambda: (project / "a").write_text("three\n"))
    assert await committed() == ["0/b"], "not the newer change"
    newest_changes = [found[0].change]
    changed = await changes.git_repository.find_paths_changed_since_commit(newest_changes)
    assert sorted(changed) == ["0/a"], "as committed before the newest change"
    (project / "a").write_text("three\nand mine\n")
    git(project, "commit", "-qam", "By hand")
    assert await committed() == ["0/a", "0/b"]
    git(project, "checkout", "-q", "HEAD~2", "--", ".")
    git(project, "commit", "-qm", "Taken back")
    assert await committed() == []


async def test_a_repository_is_begun_where_there_is_none(desks: Desks, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a").write_text("one\n")
    bench = await bench_on(desks, folder)
    repository = bench.file_changes.git_repository
    assert not await repository.has_repository()
    await repository.set_up_repository()
    assert await repository.has_repository()
    assert (
        not list((folder / ".git" / "hooks").glob("*"))
        if (folder / ".git" / "hooks").exists()
        else True
    )
    await repository.commit_files(["0/a"], "First")
    assert git(folder, "show", "--name-only", "--format=%s", "HEAD").split() == ["First", "a"]


async def test_a_commit_in_the_window_is_recorded_in_its_conversation(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    changes = bench.file_changes
    await changes.prepare_checkpoints()
    session = await bench.start_conversation("Says two")
    step = await changes.workspace_checkpoints.begin_step("1", session.id, "command")
    assert step is not None
    (project / "a").write_text("two\n")
    fact = await changes.workspace_checkpoints.end_step(step)
    assert fact is not None
    (recorded,) = await session.conversation.append_facts(fact)
    source = ChangeSource(session.id, recorded.seq, recorded.time, fact)
    files = await changes.file_changes_of_steps([source])
    answer = await changes.commit_files(session.id, files, "Say two")
    last = session.all_facts[-1].fact
    assert last == FilesCommitted(("0/a",), answer)
    state = await describe_state_of_work(session.conversation.state, bench.workspace.cache)
    assert '"Say two", by the user' in state
    assert "without a recorded commit" not in state
