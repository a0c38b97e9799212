"""A copy of a repository: exact, and nothing of the user's is touched or run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.errors import ActionRefused
from helix_desktop.tools import git_runner
from helix_desktop.tools import private_git_copy as copying
from helix_desktop.tools.private_git_copy import (
    GitCheckout,
    create_repository_copy,
    find_source_repository,
)
from tests.tools.git_places import PROGRAMS, git_places, make_repository


def git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, input=given
    ).stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", ".")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@b")
    (folder / "file").write_text("one\n")
    (folder / "gone").write_text("gone\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "deep").write_text("deep\n")
    (folder / "link").symlink_to("file")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


def copy_of(project: Path, *, with_changes: bool = False, name: str = "copy") -> GitCheckout:
    source = find_source_repository(project)
    assert source is not None
    copy = GitCheckout(project.parent / name, is_copy=True)
    create_repository_copy(source, copy, with_changes=with_changes)
    return copy


def entries(folder: Path) -> dict[bytes, tuple[int, bytes]]:
    """Every path with its mode and content, but git's own."""
    found = {}
    for above, folders, files in os.walk(os.fsencode(folder)):
        if b".git" in folders:
            folders.remove(b".git")
        for name in (*folders, *files):
            path = above + b"/" + name
            mode = os.lstat(path).st_mode
            place = Path(os.fsdecode(path))
            link = place.is_symlink()
            content = (
                os.fsencode(place.readlink())
                if link
                else b""
                if name in folders
                else place.read_bytes()
            )
            found[os.path.relpath(path, os.fsencode(folder))] = (mode, content)
    return found


def state_of_user(folder: Path) -> list[object]:
    """All that must stay as it was: files, refs, the index to the byte, what status and
    fsck say.
    """
    index = (folder / ".git/index").read_bytes()
    said = [
        git(folder, *words.split())
        for words in (
            "for-each-ref",
            "symbolic-ref HEAD",
            "--no-optional-locks status -z",
            "fsck --strict",
        )
    ]
    return [entries(folder), index, said, sorted(map(str, (folder / ".git").rglob("*")))]


def test_a_question_to_git_is_one_process(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asked for the settings as well, which can run nothing when git only reads:
    two thirds of all processes.
    """
    asked: list[list[str]] = []
    run = git_runner._run_git_process

    def count_and_run(words: list[str], *arguments: Any, **options: Any) -> Any:
        asked.append(words)
        return run(words, *arguments, **options)

    git_runner.run_git(project, "rev-parse", "HEAD")  # Reads the user's own settings once.
    monkeypatch.setattr(git_runner, "_run_git_process", count_and_run)
    source = GitCheckout(project)
    assert source.head
    assert len(asked) == 1
    assert source.list_submodule_paths() == []
    assert len(asked) == 2
    source.check_no_merge_open()
    assert len(asked) == 3
    source.run("update-index", "--refresh")
    assert [
        word for words in asked[3:] for word in words if word in ("config", "update-index")
    ] == [
        "config",
        "update-index",
    ]


def test_the_copy_has_the_commit_and_is_apart(project: Path) -> None:
    (project / "file").write_text("not committed\n")
    before = state_of_user(project)
    copy = copy_of(project)
    assert copy.head == git(project, "rev-parse", "HEAD").decode().strip()
    assert copy.branch == "main"
    assert (copy.folder / "file").read_text() == "one\n"
    assert git(copy.folder, "status", "--porcelain") == b""
    (copy.folder / "file").write_text("two\n")
    git(copy.folder, "commit", "-qam", "second")
    git(copy.folder, "branch", "other")
    assert state_of_user(project) == before


def test_what_is_not_committed_is_carried_over_exactly(project: Path) -> None:
    odd = os.fsdecode(b"new\nline \xff")
    (project / odd).write_bytes(b"\0\xff\n\r\n")
    (project / odd).chmod(0o640)
    (project / " ").write_text("a blank\n")
    (project / "run").write_text("#!/bin/sh\n")
    (project / "run").chmod(0o755)
    (project / "dangling").symlink_to(os.fsdecode(b"\xfe/nowhere"))
    (project / "link").unlink()
    (project / "link").write_text("now a file\n")
    (project / "gone").unlink()
    (project / "sub" / "deep").unlink()
    (project / "sub").rmdir()
    (project / "sub").write_text("now a file\n")
    (project / "file").unlink()
    (project / "file").mkdir()
    (project / "file" / "inner").write_text("inner\n")
    git(project, "add", "run")
    git(project, "rm", "-q", "--cached", ".gitignore")
    before = state_of_user(project)
    copy = copy_of(project, with_changes=True)
    theirs = entries(project)
    ours = entries(copy.folder)
    assert {path: (mode & 0o170000, content) for path, (mode, content) in ours.items()} == {
        path: (mode & 0o170000, content) for path, (mode, content) in theirs.items()
    }
    assert ours[os.fsencode(odd)] == theirs[os.fsencode(odd)]
    assert ours[b"run"] == theirs[b"run"]
    assert state_of_user(project) == before


def test_ignored_files_stay_and_so_do_those_the_user_ignores_everywhere(
    project: Path, tmp_path: Path
) -> None:
    (project / "ignored").write_text("x")
    (project / "mine.swp").write_text("x")
    (tmp_path / "patterns").write_text("*.swp\n")
    (project / ".git/info/exclude").write_text("*.here\n")
    (project / "mine.here").write_text("x")
    source = find_source_repository(project, tmp_path / "patterns")
    assert source is not None
    create_repository_copy(
        source, copy := GitCheckout(tmp_path / "copy", is_copy=True), with_changes=True
    )
    assert sorted(path.name for path in copy.folder.iterdir()) == [
        ".git",
        ".gitignore",
        "file",
        "gone",
        "link",
        "sub",
    ]
    (copy.folder / "other.swp").write_text("x")
    (copy.folder / "other.here").write_text("x")
    assert copy.uncommitted_paths() == []


def test_a_sparse_checkout_a_pointer_and_a_submodule(project: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    git(project, "config", "filter.lfs.smudge", "tr a-z A-Z")
    git(project, "config", "filter.lfs.clean", "cat")
    (project / "big").write_text(pointer)
    git(project, "add", "big")
    (project / ".gitattributes").write_text("big filter=lfs\n")
    commit = git(project, "rev-parse", "HEAD").decode().strip()
    git(project, "update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    git(project, "add", ".gitattributes")
    git(project, "commit", "-qm", "second")
    git(project, "sparse-checkout", "set", "--no-cone", "/*", "!/sub/")
    assert not (project / "sub").exists()
    source = find_source_repository(project)
    assert source is not None
    copy = GitCheckout(project.parent / "copy", is_copy=True)
    made = create_repository_copy(source, copy, with_changes=True)
    assert not (copy.folder / "sub").exists()
    assert (copy.folder / "big").read_text() == pointer
    assert list((copy.folder / "module").iterdir()) == []
    assert made.notes == ("Submodules are not copied: their folders are empty.",)
    assert git(copy.folder, "status", "--porcelain") == b""


def test_a_worktree_and_a_shallow_clone_can_be_copied(project: Path, tmp_path: Path) -> None:
    git(project, "worktree", "add", "-q", "-b", "side", str(tmp_path / "tree"))
    copy = copy_of(tmp_path / "tree")
    assert (copy.branch, (copy.folder / "file").read_text()) == ("side", "one\n")
    git(project, "commit", "-q", "--allow-empty", "-m", "more")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{project}", "shallow")
    copy = copy_of(tmp_path / "shallow", name="other")
    assert git(copy.folder, "rev-list", "--count", "HEAD") == b"1\n"


def _run_everything(folder: Path, run: str, tmp_path: Path) -> None:
    for place in git_places(run, tmp_path):
        if place.local and place.name.partition(",")[0] in PROGRAMS:
            subprocess.run(
                ["/bin/bash", "-c", place.line], cwd=folder, check=False, capture_output=True
            )
    for hook in (
        "post-checkout",
        "post-merge",
        "reference-transaction",
        "post-index-change",
        "pre-commit",
        "pre-rebase",
    ):
        (folder / ".git/hooks" / hook).write_text(f"#!/bin/sh\n{run}\n")
        (folder / ".git/hooks" / hook).chmod(0o755)


def test_a_hostile_repository_runs_nothing(project: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    make_repository(hostile)
    _run_everything(hostile, f"touch {tmp_path}/canary", tmp_path)
    (hostile / ".gitmodules").write_text(
        '[submodule "m"]\npath = m\nurl = ext::sh -c "touch canary"\nupdate = !touch canary\n'
    )
    (hostile / "file").write_text("changed\n")
    copy = copy_of(hostile, with_changes=True)
    assert (copy.folder / "file").read_text() == "changed\n"
    own = (copy.folder / ".git/config").read_text()
    assert "canary" not in own
    assert not list((copy.folder / ".git").glob("hooks/*"))
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf .git; ln -s ../project/.git .git",
        "rm -rf .git; echo 'gitdir: ../project/.git' > .git",
        "rm -rf .git/refs .git/objects; ln -s ../../project/.git/refs .git/refs; ln -s ../../project/.git/objects .git/objects",
        "rm -rf .git/refs/heads; ln -s ../../../project/.git/refs/heads .git/refs/heads",
        "echo ../../project/.git > .git/commondir",
        "git config core.worktree ../project",
        "rm .git/HEAD; ln -s ../../project/.git/HEAD .git/HEAD",
    ],
)
def test_a_repository_made_of_anothers_files_is_refused(
    project: Path, tmp_path: Path, line: str
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    make_repository(hostile)
    subprocess.run(["/bin/bash", "-c", line], cwd=hostile, check=True)
    with pytest.raises(ActionRefused):
        copy_of(hostile)
    assert not (tmp_path / "copy").exists()


def test_borrowed_objects_in_a_circle_do_not_hang(project: Path) -> None:
    (project / ".git/objects/info").mkdir(exist_ok=True)
    (project / ".git/objects/info/alternates").write_text(f"{project}/.git/objects\n../objects\n")
    assert copy_of(project).head == git(project, "rev-parse", "HEAD").decode().strip()


# What an agent may write into a git folder, so that its copy shows it what is outside: SECRET is a
# folder of the user's with a file.
SHOWN_BY_COPY = {
    "borrowed": "echo SECRET > .git/objects/info/alternates",
    "borrowed by a path from here": "echo ../../../secret > .git/objects/info/alternates",
    "borrowed through a link": "ln -s SECRET away; echo ../../away > .git/objects/info/alternates",
    "borrowed by what is borrowed": "mkdir -p o/info; echo SECRET > o/info/alternates; echo ../../o > .git/objects/info/alternates",
    "quoted": """echo '"SECRET"' > .git/objects/info/alternates""",
    "the list as a link": "echo SECRET > list; ln -s ../../../list .git/objects/info/alternates",
    "ignored files": "mkdir -p .git/info; rm -f .git/info/exclude; ln -s SECRET/file .git/info/exclude",
    "chosen files": "mkdir -p .git/info; ln -s SECRET/file .git/info/sparse-checkout",
    "packs": "rm -rf .git/objects/pack; ln -s SECRET .git/objects/pack",
    "endless": "rm -f .git/info/exclude; mkfifo .git/info/exclude",
    "an endless list": "mkfifo .git/objects/info/alternates",
}  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="links and pipes")
@pytest.mark.parametrize("way", SHOWN_BY_COPY)
def test_a_copy_shows_nothing_that_is_outside_of_the_repository(project: Path, way: str) -> None:
    """Commands in a copy may read the folders that git borrows objects from, and some of git's files
    are copied: an agent named ~/.ssh as such a folder, had a copy made, and read the keys there.
    """
    secret = project.parent / "secret"
    secret.mkdir()
    (secret / "file").write_text("the key 4711")
    (project / ".git/objects/info").mkdir(exist_ok=True)
    line = SHOWN_BY_COPY[way].replace("SECRET", str(secret))
    subprocess.run(["/bin/bash", "-ec", line], cwd=project, check=True)
    source = find_source_repository_or_none(project)
    if source is None:
        return
    copy = GitCheckout(project.parent / "copy", is_copy=True)
    try:
        copied = create_repository_copy(source, copy, with_changes=True)
    except ActionRefused:
        return
    assert not any("secret" in os.path.realpath(folder) for folder in copied.objects)
    for path in copy.folder.rglob("*"):
        assert not path.is_file() or b"4711" not in path.read_bytes(), path


def find_source_repository_or_none(project: Path) -> GitCheckout | None:
    try:
        return find_source_repository(project)
    except ActionRefused:
        return None


def test_a_repository_that_borrows_objects_says_how_it_can_be_copied(project: Path) -> None:
    borrower = project.parent / "borrower"
    git(project.parent, "clone", "-q", "--shared", str(project), str(borrower))
    with pytest.raises(ActionRefused, match="borrows objects from") as refused:
        copy_of(borrower)
    assert "git repack -a -d" in refused.value.remedy
    git(borrower, "repack", "-a", "-d", "-q")
    (borrower / ".git/objects/info/alternates").unlink()
    assert copy_of(borrower).head == git(project, "rev-parse", "HEAD").decode().strip()


def test_without_a_commit_or_a_repository(tmp_path: Path) -> None:
    assert find_source_repository(tmp_path) is None
    git(tmp_path, "init", "-q", ".")
    with pytest.raises(ActionRefused, match="no commit yet"):
        copy_of(tmp_path)


def _plan_with_links(project: Path) -> tuple[copying.GitCheckout, copying.BranchMove]:
    """A commit that adds a link, replaces a file by a link and changes another file,
    planned and not carried out.
    """
    for name in ("file", "text"):
        (project / name).write_text(f"{name}\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "before")
    (project / "new").symlink_to("nowhere")
    (project / "file").unlink()
    (project / "file").symlink_to("text")
    (project / "text").write_text("changed\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "after")
    commit = git(project, "rev-parse", "HEAD").decode().strip()
    git(project, "reset", "-q", "--hard", "HEAD^")
    source = copying.find_source_repository(project)
    assert source is not None
    return source, copying.plan_branch_move(source, commit, lambda _: ())


def test_links_that_git_wrote_before_it_was_killed_are_taken_back(project: Path) -> None:
    source, move = _plan_with_links(project)
    (project / "new").symlink_to("nowhere")
    (project / "file").unlink()
    (project / "file").symlink_to("text")
    (project / "text").unlink()  # As git does just before it writes the other version.
    assert not copying.repair_branch_move(source, move)
    assert git(project, "status", "--porcelain") == b""
    assert not (project / "new").is_symlink()
    assert (project / "text").read_text() == "text\n"


def test_a_link_of_the_users_is_left_alone_when_a_killed_merge_is_taken_back(project: Path) -> None:
    source, move = _plan_with_links(project)
    (project / "new").symlink_to("elsewhere")
    assert not copying.repair_branch_move(source, move)
    assert str((project / "new").readlink()) == "elsewhere"


def test_a_file_that_came_with_a_copy_is_never_missing_in_it_while_it_is_set_aside(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: after a kill at that moment, the next merge committed that the agent
    had deleted the user's file.
    """
    (project / "file").write_text("the user's\n")
    source = copying.find_source_repository(project)
    assert source is not None
    copy = GitCheckout(project.parent / "copy", is_copy=True)
    made = create_repository_copy(source, copy, with_changes=True)
    git(
        copy.folder,
        "-c",
        "user.name=a",
        "-c",
        "user.email=e",
        "commit",
        "-qam",
        "The agent commits what came with it",
    )
    run = GitCheckout.run

    def run_or_be_killed(self: GitCheckout, *arguments: str, **given: Any) -> bytes:
        if arguments[0] == "checkout-index":
            raise KeyboardInterrupt
        return run(self, *arguments, **given)

    with monkeypatch.context() as patch:
        patch.setattr(GitCheckout, "run", run_or_be_killed)
        with pytest.raises(KeyboardInterrupt):
            copying.merge_or_rebase_in_copy(source, copy, made, rebase=False)
    assert (copy.folder / "file").read_text() == "the user's\n"
    copying.put_back_set_aside_files(copy, made)
    assert (copy.folder / "file").read_text() == "the user's\n"
    assert copying.list_uncommitted_paths(copy, made) == []
    assert copying.merge_or_rebase_in_copy(source, copy, made, rebase=False) == copy.head
    assert git(copy.folder, "status", "--porcelain") == b""


def test_a_repository_within_a_copy_is_named_and_nothing_is_committed(project: Path) -> None:
    copy = copy_of(project)
    head = git(copy.folder, "rev-parse", "HEAD")
    (copy.folder / "lib").mkdir()
    git(copy.folder / "lib", "init", "-q", ".")
    (copy.folder / "lib" / "file").write_text("x")
    git(copy.folder / "lib", "add", "-A")
    git(copy.folder / "lib", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "own")
    with pytest.raises(ActionRefused, match=r"^lib/? in the copy is a repository of its own"):
        copying.commit_and_bundle_copy(None, copy, copying.CopySource(str(project)))
    assert git(copy.folder, "rev-parse", "HEAD") == head


@pytest.mark.parametrize("rebase", [False, True])
def test_what_the_user_committed_meanwhile_is_joined_with_what_the_copy_has(
    project: Path, *, rebase: bool
) -> None:
    source = copying.find_source_repository(project)
    assert source is not None
    copy = GitCheckout(project.parent / "copy", is_copy=True)
    made = create_repository_copy(source, copy, with_changes=False)
    who = ("-c", "user.name=a", "-c", "user.email=e")
    for folder, name in ((project, "of_user"), (copy.folder, "of_agent")):
        (folder / name).write_text(name)
        git(folder, "add", name)
        git(folder, *who, "commit", "-qm", name)
    source_now = copying.find_source_repository(project)
    assert source_now is not None

    commit = copying.merge_or_rebase_in_copy(source_now, copy, made, rebase=rebase)
    names = git(copy.folder, "ls-tree", "--name-only", commit).decode().split()
    assert {"of_user", "of_agent"} <= set(names)
    assert source_now.head in git(copy.folder, "rev-list", commit).decode().split()


def test_a_copy_of_a_copy_borrows_from_the_users_repository(project: Path) -> None:
    first = find_source_repository(project)
    assert first is not None
    copied = create_repository_copy(
        first, GitCheckout(project.parent / "copy", is_copy=True), with_changes=False
    )
    source = find_source_repository(project.parent / "copy")
    assert source is not None
    again = create_repository_copy(
        source,
        GitCheckout(project.parent / "again", is_copy=True),
        with_changes=False,
        lenders=copied.objects,
    )
    assert again.objects == (f"{source.folder}/.git/objects", f"{project}/.git/objects")


def test_a_repository_whose_path_has_letters_beyond_ascii_lends_its_objects(project: Path) -> None:
    """Git writes such a path in quotes, so commands in the copy could not read the folder."""
    renamed = project.rename(project.parent / 'Prüfung "neu" 新')
    source = find_source_repository(renamed)
    assert source is not None
    copy = GitCheckout(project.parent / "copy", is_copy=True)
    copied = create_repository_copy(source, copy, with_changes=False)
    assert copied.objects == (f"{renamed}/.git/objects",)
