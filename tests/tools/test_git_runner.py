"""The program's own calls of git run nothing of a repository's, whatever its settings say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.errors import ActionRefused
from helix_desktop.tools import git_runner
from helix_desktop.tools.git_runner import find_filtered_files, run_git
from tests.tools.git_places import PROGRAMS, git_places, make_repository


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project").mkdir()
    make_repository(tmp_path / "project")
    return tmp_path / "project"


def test_on_a_fresh_machine_it_is_said_in_one_sentence_that_git_lacks_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve lines of git's own stood in a notification, in capitals and with stars."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for command in (("init", "-q"), ("config", "user.useConfigOnly", "true")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, capture_output=True)
    with pytest.raises(ActionRefused) as caught:
        run_git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    assert caught.value.what == "git does not know your name and email address."
    assert "git config --global user.name" in caught.value.remedy
    assert caught.value.remedy.endswith("Nothing was committed.")
    (tmp_path / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n")
    run_git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")


def test_no_setting_makes_it_run_a_program(project: Path, tmp_path: Path) -> None:
    """All that `git help --config` names, at once and included, with hooks, attributes
    and variables that call for them.
    """
    run = f"touch {tmp_path}/canary"
    for place in git_places(run, tmp_path):
        if place.local and place.name.partition(",")[0] in PROGRAMS:
            subprocess.run(
                ["/bin/bash", "-c", place.line], cwd=project, check=False, capture_output=True
            )
    for hook in (
        "pre-commit",
        "post-commit",
        "commit-msg",
        "post-index-change",
        "reference-transaction",
        "prepare-commit-msg",
    ):
        (project / ".git/hooks" / hook).write_text(f"#!/bin/sh\n{run}\n")
        (project / ".git/hooks" / hook).chmod(0o755)
    listed = subprocess.run(
        ["git", "config", "--list"], cwd=project, check=True, capture_output=True, text=True
    ).stdout
    assert all(f"{name.lower()}=" in listed.lower() for name in PROGRAMS)
    blob = run_git(project, "ls-tree", "-r", "-l", "-z", "HEAD").split()[2].decode()
    run_git(project, "cat-file", "blob", blob)
    run_git(project, "ls-files", "-z")
    (project / "file").write_text("second\n")
    run_git(project, "add", "--all")
    assert b"second" in run_git(project, "commit", "--message", "second")
    assert not (tmp_path / "canary").exists()


def test_a_folder_that_was_deleted_is_told_in_plain_words(project: Path) -> None:
    gone = project / "gone"
    with pytest.raises(
        ActionRefused,
        match=f"^The workspace's folder {gone} no longer exists. Nothing was committed.$",
    ):
        run_git(gone, "ls-files")


def test_variables_of_the_caller_do_not_reach_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_EDITOR", "GIT_PAGER", "GIT_ASKPASS"):
        monkeypatch.setenv(name, f"touch {tmp_path}/canary")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'alias.x'='!touch x'")
    assert run_git(project, "ls-files").split() == [b".gitattributes", b"file"]
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "url",
    [
        "ssh://host/x",
        "ext::sh -c 'touch CANARY'",
        "host:x",
        "file:///nowhere",
        "https://127.0.0.1:9/x",
    ],
)
def test_what_a_partial_clone_lacks_is_not_fetched(project: Path, tmp_path: Path, url: str) -> None:
    tree = run_git(project, "rev-parse", "HEAD^{tree}").decode().strip()
    blob = run_git(project, "rev-parse", "HEAD:file").decode().strip()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": url.replace("CANARY", f"{tmp_path}/canary"),
        "core.sshCommand": f"touch {tmp_path}/canary",
        "protocol.ext.allow": "always",
        "protocol.ssh.allow": "always",
        "remote.origin.uploadpack": f"touch {tmp_path}/canary",
    }.items():
        subprocess.run(["git", "config", name, value], cwd=project, check=True)
    (project / ".git/objects" / blob[:2] / blob[2:]).unlink()
    run_git(project, "ls-tree", "-r", "-l", "-z", tree)
    with pytest.raises(ActionRefused):
        run_git(project, "cat-file", "blob", blob)
    assert not (tmp_path / "canary").exists()


def test_the_users_own_name_is_used_and_a_filter_is_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / ".gitconfig").write_text(
        "[user]\n\tname = Ada\n\temail = ada@x\n[core]\n\thooksPath = /x\n"
    )
    subprocess.run(["git", "config", "--unset", "user.name"], cwd=project, check=True)
    (project / "file").write_text("three\n")
    run_git(project, "commit", "--all", "--message", "third")
    assert run_git(project, "log", "-1", "--format=%an").strip() == b"Ada"
    assert find_filtered_files(project, [b"file", os.fsencode("new")]) == ["file", "new"]


def test_the_name_that_git_itself_would_use_is_used(project: Path, tmp_path: Path) -> None:
    """A work and a private name: the one for all repositories stood on every commit,
    until the program was restarted.
    """

    def name_of_commit() -> bytes:
        run_git(project, "commit", "--allow-empty", "--message", "next")
        return run_git(project, "log", "-1", "--format=%an %ae, %cn").strip()

    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Global\n\temail = global@x\n")
    assert name_of_commit() == b"a a@b, a"
    for name in ("user.name", "user.email"):
        subprocess.run(["git", "config", "--unset", name], cwd=project, check=True)
    assert name_of_commit() == b"Global global@x, Global"
    (tmp_path / "at-work").write_text("[user]\n\tname = Work\n")
    with (tmp_path / ".gitconfig").open("a") as settings:
        settings.write(f'[includeIf "gitdir:{project.parent}/"]\n\tpath = at-work\n')
    assert name_of_commit() == b"Work global@x, Work"


def test_a_repository_names_no_program_for_signing_beside_the_users(
    project: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    planted = tmp_path / "planted"
    for program in (own, planted):
        program.write_text(f"#!/bin/sh\ntouch {program}.ran\nexit 1\n")
        program.chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f"[commit]\n\tgpgsign\n[gpg]\n\tprogram = {own}\n")
    subprocess.run(["git", "config", "gpg.program", str(planted)], cwd=project, check=True)
    with pytest.raises(ActionRefused):
        run_git(project, "commit", "--allow-empty", "--message", "signed")
    assert (own.with_suffix(".ran").exists(), planted.with_suffix(".ran").exists()) == (True, False)


@pytest.mark.parametrize("section", ["filter", "merge", "diff", "hook"])
def test_a_driver_whose_name_git_would_read_wrongly_refuses_the_repository(
    project: Path, tmp_path: Path, section: str
) -> None:
    """`-c filter.a=b.clean=` sets `filter.a`: the repository's program would run."""
    key = {"filter": "clean", "merge": "driver", "diff": "textconv", "hook": "command"}[section]
    with (project / ".git/config").open("a") as config:
        config.write(f'[{section} "a=b"]\n\t{key} = "touch {tmp_path}/canary; cat"\n')
    (project / ".gitattributes").write_text(f"* {section}=a=b\n")
    os.utime(project / "file", (1, 1))
    with pytest.raises(ActionRefused, match="name a program with “=”"):
        run_git(project, "status", "--porcelain")
    assert not (tmp_path / "canary").exists()


def test_a_lock_is_named_in_plain_words(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", ".")
    lock = tmp_path / ".git" / "index.lock"
    lock.touch()
    with pytest.raises(ActionRefused) as refused:
        run_git(tmp_path, "read-tree", "--empty")
    assert (
        refused.value.what
        == "Another git program is working in this repository, or was killed there."
    )
    assert refused.value.remedy.endswith(f"If none is running, delete {lock}.")


def test_what_git_says_is_one_line_without_its_advice(tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", ".")
    with pytest.raises(ActionRefused) as refused:
        run_git(tmp_path, "merge", "nothing")
    assert refused.value.what == "git refused: merge: nothing - not something we can merge."


def test_a_file_that_stands_for_far_more_than_its_bytes_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: everything that git printed was kept, and a kilobyte can stand for a gigabyte."""
    monkeypatch.setattr(git_runner, "MOST_OUTPUT_BYTES", 1_000_000)
    (project / "file").write_bytes(bytes(1_000_001))
    run_git(project, "commit", "--all", "--message", "large")
    with pytest.raises(ActionRefused, match="git printed more than 0 MB and was stopped"):
        run_git(project, "cat-file", "blob", "HEAD:file")
    assert run_git(project, "cat-file", "blob", "HEAD~:file")


def test_the_users_name_is_found_where_git_itself_finds_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: a name in variables, or in settings that a variable names, was not known."""
    for name in ("user.name", "user.email"):
        subprocess.run(["git", "config", "--unset", name], cwd=project, check=True)
    settings = tmp_path / "my settings"
    settings.write_text("[user]\n\tname = Ada\n\temail = ada@x\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    run_git(project, "commit", "--allow-empty", "--message", "next")
    assert run_git(project, "log", "-1", "--format=%an %ce").strip() == b"Ada ada@x"

    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "Grace")
    run_git(project, "commit", "--allow-empty", "--message", "next")
    assert run_git(project, "log", "-1", "--format=%an").strip() == b"Grace"

    monkeypatch.setenv("GIT_AUTHOR_NAME", "Lin")
    run_git(project, "commit", "--allow-empty", "--message", "next")
    assert run_git(project, "log", "-1", "--format=%an %cn").strip() == b"Lin Grace"


PLACES_OF_PIPES = (
    "config", "HEAD", "packed-refs", "commondir", "objects/info/alternates", "info/grafts", "refs/heads/main", "shallow",
    "objects/pack/multi-pack-index", "objects/info/commit-graph",
)  # fmt: skip


def put_in_place(path: Path, put: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    put(path)


@pytest.fixture(scope="module")
def kernel_names_pipes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Some kernels do not say where a process waits. There, git's own time limit ends it."""
    if sys.platform != "linux":
        pytest.skip("only Linux says where a process waits")
    pipe = tmp_path_factory.mktemp("kernel") / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe]) as waiting:
        waits_in = ""
        end = time.monotonic() + 10
        while waits_in != "wait_for_partner" and time.monotonic() < end:
            waits_in = Path(f"/proc/{waiting.pid}/wchan").read_text("ascii")
            os.sched_yield()
        waiting.kill()
    if waits_in != "wait_for_partner":
        pytest.skip("this kernel does not say where a process waits")


@pytest.mark.usefixtures("kernel_names_pipes")
@pytest.mark.parametrize("place", [*PLACES_OF_PIPES, "included", "an object"])
def test_git_does_not_wait_at_a_pipe_of_the_repository(project: Path, place: str) -> None:
    """Each such call held a thread for two minutes, and the window has few."""
    git = project / ".git"
    if place == "included":
        run_git(project, "config", "include.path", "pipe")
        place = "pipe"
    elif place == "an object":
        name = run_git(project, "rev-parse", "HEAD").decode().strip()
        place = f"objects/{name[:2]}/{name[2:]}"
    put_in_place(git / place, os.mkfifo)
    begun = time.monotonic()
    with pytest.raises(ActionRefused, match="a named pipe is in the place of a file"):
        run_git(project, "rev-list", "--count", "HEAD", "--not", "--remotes")
    assert time.monotonic() - begun < git_runner.LIMIT_SECONDS / 4


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process from outside")
@pytest.mark.parametrize("place", ["commondir", "objects/info/alternates", "info/grafts"])
def test_git_fills_no_memory_with_a_file_without_an_end(
    project: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_runner, "MOST_MEMORY_BYTES", 200 << 20)
    put_in_place(project / ".git" / place, lambda path: path.symlink_to("/dev/zero"))
    with pytest.raises(ActionRefused, match=r"git refused: [Oo]ut of memory"):
        run_git(project, "rev-list", "--count", "HEAD")
