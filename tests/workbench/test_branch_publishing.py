"""After the commit: pushing to a bare repository, and pull requests by a stand-in for `gh`."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.pull_request_text import PullRequestText
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.processes.starter import FinishedProcess
from helix_desktop.tools.git_runner import choose_variables
from helix_desktop.workbench import branch_publishing
from helix_desktop.workbench.branch_publishing import (
    LONGEST_CHECK_NAME,
    MOST_CHECKS,
    BranchCheck,
    BranchPublishing,
    BranchState,
)
from helix_desktop.workbench.open_workbench import Workbench
from tests.workbench.conftest import Desks
from tests.workbench.test_open_workbench import bench_on

# It writes down what it was told, and answers as the file beside it says.
STAND_IN = """#!{python}
import json, os, sys
from pathlib import Path
here = Path(__file__).parent
told = dict(words=sys.argv[1:], folder=os.getcwd(), entries=sorted(os.listdir()), stdin="")
told["tokens"] = sorted(os.environ[name] for name in os.environ if name.endswith("_TOKEN"))
told["variables"] = sorted(os.environ)
if "--body-file" in sys.argv:
    told["stdin"] = sys.stdin.read()
with (here / "told").open("a") as file:
    file.write(json.dumps(told) + "\\n")
answer = json.loads((here / "answers.json").read_text())[" ".join(sys.argv[1:3])]
sys.stdout.write(answer.get("stdout", ""))
sys.stderr.write(answer.get("stderr", ""))
sys.exit(answer.get("code", 0))
"""
TEXT = PullRequestText("Add a file", "## What changed\n\n- `new` (new)\n")
OPENED = {"url": "https://example.org/me/it/pull/7", "state": "OPEN"}
CHECKS = [
    {"name": "build", "conclusion": "SUCCESS", "detailsUrl": "https://example.org/a/job/11"},
    {"name": "test", "conclusion": "FAILURE", "detailsUrl": "https://example.org/a/job/12"},
    {"name": "slow", "status": "IN_PROGRESS", "detailsUrl": "https://example.org/a/job/13"},
    {"context": "ci/other", "state": "ERROR", "targetUrl": "https://other.example"},
]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def server(tmp_path: Path) -> Path:
    bare = tmp_path / "server.git"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    return bare


@pytest.fixture
def project(folder: Path, server: Path) -> Path:
    (folder / "a").write_text("one\n")
    git(folder, "init", "-q", "-b", "work", ".")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@b")
    git(folder, "remote", "add", "origin", str(server))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x")
    return folder


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-in for `gh`, the first one where programs are searched for."""
    folder = tmp_path / "programs"
    folder.mkdir()
    script = folder / "gh"
    script.write_text(STAND_IN.format(python=sys.executable))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def answer(programs: Path, **answers: object) -> None:
    by_words = {name.replace("_", " "): value for name, value in answers.items()}
    (programs / "answers.json").write_text(json.dumps(by_words))


def told(programs: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (programs / "told").read_text().splitlines()]


@pytest.fixture
async def bench(desks: Desks, project: Path) -> Workbench:
    return await bench_on(desks, project)


async def publishing_of(bench: Workbench) -> tuple[BranchPublishing, BranchState]:
    publishing = bench.file_changes.branch_publishing
    state = await publishing.read_branch_state()
    assert state is not None
    return publishing, state


@pytest.mark.parametrize(
    "address", ["https://me:s3@cret@host.example/a/b.git", "https://s3cret@host.example/a/b.git"]
)
async def test_no_part_of_a_login_is_shown_or_told_to_another_program(
    bench: Workbench, address: str
) -> None:
    _, state = await publishing_of(bench)
    with_login = replace(state, address=address)
    assert with_login.shown_address == "https://host.example/a/b.git"


async def test_a_branch_is_pushed_and_nothing_is_left_to_push(
    bench: Workbench, project: Path, server: Path, programs: Path
) -> None:
    publishing, state = await publishing_of(bench)
    assert (state.branch, state.remote, state.unpushed, state.tool) == ("work", "origin", 1, "gh")
    await publishing.push_branch(state)
    assert git(server, "rev-parse", "work") == git(project, "rev-parse", "HEAD")
    assert git(project, "rev-parse", "--abbrev-ref", "work@{upstream}") == "origin/work"
    _, later = await publishing_of(bench)
    assert later.unpushed == 0
    git(project, "commit", "-qm", "y", "--allow-empty")
    _, later = await publishing_of(bench)
    assert later.unpushed == 1


async def test_a_folder_without_a_remote_or_a_repository_has_nothing_to_push(
    desks: Desks, folder: Path
) -> None:
    bench = await bench_on(desks, folder)
    assert await bench.file_changes.branch_publishing.read_branch_state() is None
    git(folder, "init", "-q", ".")
    assert await bench.file_changes.branch_publishing.read_branch_state() is None


async def test_a_branch_with_a_commit_and_no_remote_is_known_as_one(
    desks: Desks, folder: Path
) -> None:
    git(folder, "init", "-q", "-b", "work", ".")
    git(folder, "config", "user.name", "a")
    git(folder, "config", "user.email", "a@a")
    git(folder, "commit", "-qm", "first", "--allow-empty")
    bench = await bench_on(desks, folder)
    state = await bench.file_changes.branch_publishing.read_branch_state()
    assert state is not None
    assert (state.branch, state.remote, state.unpushed, state.tool) == ("work", "", 0, "")


async def test_the_text_names_what_the_branch_has_committed_and_nothing_else(
    desks: Desks, project: Path
) -> None:
    """It named a file that was changed and not committed, and none of those that were."""
    (project / "b").write_text("old\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "the base")
    git(project, "push", "-q", "origin", "HEAD:main")
    git(project, "fetch", "-q")
    (project / "a").unlink()
    (project / "b").write_text("new\n")
    (project / "docs").mkdir()
    (project / "docs" / "c").write_text("c\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "the work")
    (project / "notes").write_text("not committed\n")
    bench = await bench_on(desks, project)
    session = await bench.start_conversation()
    publishing, state = await publishing_of(bench)
    assert state.base == "main"
    text = await publishing.write_text(state, session.id)
    changed = "- `a` (deleted)\n- `b`\n- `docs/c` (new)\n- Committed: the work\n\n"
    assert f"## What changed\n\n{changed}" in text.body
    # Commits were listed that the other branch had already.
    git(project, "push", "-q", "origin", "HEAD:main")
    git(project, "fetch", "-q")
    (project / "b").write_text("newer\n")
    git(project, "commit", "-qam", "more work")
    _, state = await publishing_of(bench)
    text = await publishing.write_text(state, session.id)
    assert "## What changed\n\n- `b`\n- Committed: more work\n\n" in text.body


async def test_a_key_that_the_user_wrote_is_not_in_the_text(desks: Desks, project: Path) -> None:
    key = "ghp_" + "aB3d" * 9
    bench = await bench_on(desks, project)
    session = await bench.start_conversation()
    await session.conversation.append_facts(UserSaid((Text(f"use {key} for the tests"),)))
    publishing, state = await publishing_of(bench)
    text = await publishing.write_text(state, session.id)
    assert key not in text.title + text.body
    assert "use ghp_aB3…3d for the tests" in text.body


async def test_the_branch_that_pull_requests_go_to_is_known(project: Path, desks: Desks) -> None:
    bench = await bench_on(desks, project)
    _, state = await publishing_of(bench)
    assert (state.branch, state.base) == ("work", ""), "the remote has no branch yet"
    git(project, "branch", "-m", "main")
    _, state = await publishing_of(bench)
    assert state.is_base, "the usual name"
    git(project, "push", "-q", "origin", "HEAD:trunk")
    git(project, "fetch", "-q")
    git(project, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    _, state = await publishing_of(bench)
    assert (state.base, state.is_base) == ("trunk", False)


async def test_what_others_pushed_is_not_overwritten(
    bench: Workbench, project: Path, server: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(server), "other")
    other = tmp_path / "other"
    git(other, "config", "user.name", "b")
    git(other, "config", "user.email", "b@b")
    git(other, "checkout", "-qb", "work")
    git(other, "commit", "-qm", "theirs", "--allow-empty")
    git(other, "push", "-q", "origin", "work")
    theirs = git(server, "rev-parse", "work")
    publishing, state = await publishing_of(bench)
    with pytest.raises(ActionRefused, match="did not take the branch work") as refused:
        await publishing.push_branch(state)
    assert "Nothing was pushed. Your commits are kept here." in str(refused.value)
    assert git(server, "rev-parse", "work") == theirs


async def test_a_server_that_cannot_be_reached_is_named_without_the_login(
    bench: Workbench, project: Path
) -> None:
    git(project, "remote", "set-url", "origin", "http://me:secret@127.0.0.1:9/it.git")
    publishing, state = await publishing_of(bench)
    with pytest.raises(ActionRefused, match="could not be reached") as refused:
        await publishing.push_branch(state)
    assert "secret" not in str(refused.value)
    assert "Nothing was pushed" in str(refused.value)


async def test_a_push_logs_in_as_in_the_users_shell(
    bench: Workbench,
    project: Path,
    server: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The defect: git got neither the variables by which it is told how to log in, nor those that the
    user's own settings for it name.
    """
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$MY_TOKEN $OTHER_TOKEN" > {tmp_path}/seen\nexec sh -c "$2"\n')
    ssh.chmod(0o755)
    home = tmp_path / "home of the user"
    home.mkdir()
    (home / ".gitconfig").write_text("[credential]\n\thelper = !echo $MY_TOKEN\n")
    for name, value in {
        "GIT_SSH_COMMAND": str(ssh),
        "GIT_SSH_VARIANT": "simple",
        "MY_TOKEN": "mine",
        "OTHER_TOKEN": "of something else",
        "HOME": str(home),
    }.items():
        monkeypatch.setenv(name, value)
    git(project, "remote", "set-url", "origin", f"ssh://git.example{server}")
    publishing, state = await publishing_of(bench)
    await publishing.push_branch(state)
    assert git(server, "rev-parse", "work") == state.commit
    assert (tmp_path / "seen").read_text() == "mine \n"


async def test_a_login_that_is_not_accepted_says_which_variables_git_gets(
    bench: Workbench, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    git(project, "remote", "set-url", "origin", "ssh://git.example/it")
    publishing, state = await publishing_of(bench)
    with pytest.raises(ActionRefused, match="did not accept the login") as refused:
        await publishing.push_branch(state)
    assert "name it in your own git settings" in refused.value.remedy


async def test_an_address_with_signs_that_nobody_sees_is_marked_in_what_is_said(
    bench: Workbench, project: Path
) -> None:
    git(project, "config", "remote.origin.url", "a\nb\u202e")
    publishing, state = await publishing_of(bench)
    with pytest.raises(ActionRefused) as refused:
        await publishing.push_branch(state)
    assert refused.value.what.isprintable()


@pytest.mark.parametrize("remote", ["ssh://127.0.0.1/it", "ext::sh -c 'touch {mark}'", "fd::7"])
async def test_no_program_that_the_repository_names_is_run_by_a_push(
    bench: Workbench, project: Path, server: Path, tmp_path: Path, remote: str
) -> None:
    mark = tmp_path / "was run"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch '{mark}'\nexit 1\n")
    evil.chmod(0o755)
    hooks = project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-push").write_text(evil.read_text())
    (hooks / "pre-push").chmod(0o755)
    for name in ("core.sshCommand", "core.fsmonitor", "core.askPass", "core.gitProxy"):
        git(project, "config", name, str(evil))
    git(project, "config", "credential.helper", f"!{evil}")
    git(project, "config", "remote.origin.receivepack", str(evil))
    git(project, "config", "protocol.ext.allow", "always")
    publishing, state = await publishing_of(bench)
    await publishing.push_branch(state)
    assert git(server, "rev-parse", "work")
    git(project, "remote", "set-url", "origin", remote.format(mark=mark))
    publishing, state = await publishing_of(bench)
    begun = time.monotonic()
    with pytest.raises(ActionRefused):
        await publishing.push_branch(state)
    assert time.monotonic() - begun < 60  # The address fd::7 was waited for until the limit.
    assert not mark.exists()


HOOKS_OF_SERVERS = ("pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive", "push-to-checkout", "pre-auto-gc")  # fmt: skip


@pytest.mark.parametrize("written_as", ["{}", "file://{}"])
@pytest.mark.parametrize("is_bare", [True, False])
async def test_a_push_into_another_folder_runs_no_program_of_that_repository(
    bench: Workbench, project: Path, tmp_path: Path, written_as: str, is_bare: bool
) -> None:
    """The defect: a repository can name a folder of its own as its remote, with hooks in it. They
    ran outside the sandbox.
    """
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho {{}} >> {ran}\n")
    program.chmod(0o755)
    evil = project / "evil.git"
    if is_bare:
        git(project, "init", "-q", "--bare", str(evil))
        place = evil
    else:
        git(project, "clone", "-q", str(project), str(evil))
        place = evil / ".git"
        (evil / ".git" / "info" / "attributes").write_text("* filter=x\n")
    for name in HOOKS_OF_SERVERS:
        (place / "hooks" / name).write_text(program.read_text())
        (place / "hooks" / name).chmod(0o755)
    settings = {
        "core.alternateRefsCommand": str(program),
        "receive.denyCurrentBranch": "updateInstead",
        "filter.x.smudge": str(program),
        "gc.recentObjectsHook": str(program),
        "gc.auto": "1",
    }
    for setting, value in settings.items():
        git(evil, "config", setting, value)
    (place / "objects" / "info" / "alternates").write_text(f"{project}/.git/objects\n")
    (project / "b").write_text("two\n")
    git(project, "add", "b")
    git(project, "commit", "-qm", "y")
    git(project, "remote", "set-url", "origin", written_as.format(evil))
    publishing, state = await publishing_of(bench)
    with suppress(ActionRefused):  # A branch that is checked out there is refused.
        await publishing.push_branch(state)
    assert not ran.exists(), ran.read_text()
    if is_bare:
        assert git(evil, "rev-parse", "work") == state.commit


async def test_a_pull_request_is_opened_with_the_text_and_its_checks_are_read(
    bench: Workbench, project: Path, server: Path, programs: Path
) -> None:
    log = "12:00 FAILED tests/test_a.py\n"
    answer(
        programs,
        pr_create={"stdout": "https://example.org/me/it/pull/7\n"},
        pr_view={"stdout": json.dumps({**OPENED, "statusCheckRollup": CHECKS})},
        run_view={"stdout": log},
    )
    publishing, state = await publishing_of(bench)
    address = await publishing.open_pull_request(state, TEXT)
    assert address == "https://example.org/me/it/pull/7"
    assert git(server, "rev-parse", "work") == state.commit, "what was not pushed is pushed first"
    (created,) = told(programs)
    words = created["words"]
    assert isinstance(words, list)
    assert words[:4] == ["pr", "create", "--repo", str(server)]
    assert words[words.index("--head") + 1] == "work"
    assert words[words.index("--title") + 1] == TEXT.title
    assert created["stdin"] == TEXT.body
    # In the repository, gh would run git, and git what the repository's settings name.
    assert (created["entries"], Path(str(created["folder"])) != project) == ([], True)
    request = await publishing.find_pull_request(state)
    assert request is not None
    assert request.address == address
    assert [(check.name, check.state) for check in request.checks] == [
        ("build", "passed"),
        ("test", "failed"),
        ("slow", "running"),
        ("ci/other", "failed"),
    ]
    _, failed, _, foreign = request.checks
    assert await publishing.read_failure_log(state, failed) == log
    assert told(programs)[-1]["words"] == [
        "run", "view", "--repo", str(server), "--job", "12", "--log-failed",
    ]  # fmt: skip
    with pytest.raises(ActionRefused, match=r"https://other\.example"):
        await publishing.read_failure_log(state, foreign)


@pytest.mark.parametrize(
    ("address", "tokens"),
    [
        ("https://github.com/me/it", ["of github.com"]),
        ("https://evil.example/me/it", ["of github.com"]),
        ("git@evil.example:work.example/it", ["of github.com"]),
        ("https://work.example@evil.example/it", ["of github.com"]),
        ("https://x@work.example@evil.example/it", ["of github.com"]),
        ("git@evil.example:it@work.example", ["of github.com"]),
        ("https://evil.example\\@work.example/it", ["of github.com"]),
        ("https://work.example:443/me/it", ["of github.com", "of work"]),
        ("git@WORK.example:me/it", ["of github.com", "of work"]),
        ("ssh://git@gitlab.example:22/me/it", ["of lab"]),
        ("https://gitlab.com/me/it", ["of lab"]),
        ("https://gitlab.evil.example/me/it", []),
    ],
)
async def test_a_token_goes_to_no_server_that_only_the_repository_names(
    desks: Desks,
    project: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    tokens: list[str],
) -> None:
    """`gh` sends the token of a company's server, and `glab` any token, wherever it is told to."""
    for name, value in {
        "GH_TOKEN": "of github.com",
        "GH_ENTERPRISE_TOKEN": "of work",
        "GH_HOST": "work.example",
        "GITLAB_TOKEN": "of lab",
        "GITLAB_HOST": "https://gitlab.example",
    }.items():
        monkeypatch.setenv(name, value)
    git(project, "remote", "set-url", "origin", address)
    answer(programs, pr_view={}, mr_view={}, ci_get={})
    (programs / "glab").symlink_to(programs / "gh")
    publishing, state = await publishing_of(await bench_on(desks, project))
    await publishing.find_pull_request(state)
    assert {tuple(row["tokens"]) for row in told(programs)} == {tuple(tokens)}  # type: ignore[arg-type]


@pytest.mark.parametrize("branch", ["--web", "--jq=env", "-Revil.example/o/r"])
async def test_a_branch_that_is_called_as_an_option_is_none(
    desks: Desks, project: Path, programs: Path, branch: str
) -> None:
    commit = git(project, "rev-parse", "HEAD")
    reference = project / ".git" / "refs" / "heads" / branch
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(f"{commit}\n")
    (project / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    answer(programs, pr_view={})
    publishing, state = await publishing_of(await bench_on(desks, project))
    assert state.branch == branch
    await publishing.find_pull_request(state)
    words = told(programs)[-1]["words"]
    assert isinstance(words, list)
    assert words[-2:] == ["--", branch]


async def test_what_a_server_says_of_checks_is_marked_and_limited(
    bench: Workbench, programs: Path
) -> None:
    row = {"name": "ok\u202e\x1b[2J" + "x" * 10_000, "conclusion": "failure"}
    answer(
        programs,
        pr_view={
            "stdout": json.dumps({"state": "OPEN", "url": 5, "statusCheckRollup": [row] * 5_000})
        },
    )
    publishing, state = await publishing_of(bench)
    request = await publishing.find_pull_request(state)
    assert request is not None
    assert len(request.checks) == MOST_CHECKS
    for check in request.checks:
        assert len(check.name) <= LONGEST_CHECK_NAME
        assert not {"\u202e", "\x1b"} & set(check.name)


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (
            "a pull request for branch work already exists",
            "The program gh refused: a pull request for branch",
        ),
        ("error connecting to api.github.com", "The program gh could not reach the server"),
    ],
)
async def test_a_pull_request_that_was_not_opened_says_why_and_that_the_text_is_kept(
    bench: Workbench, programs: Path, stderr: str, said: str
) -> None:
    answer(programs, pr_create={"stderr": stderr, "code": 1})
    publishing, state = await publishing_of(bench)
    with pytest.raises(ActionRefused, match=said) as refused:
        await publishing.open_pull_request(state, TEXT)
    assert "Your branch and your text are kept." in str(refused.value)
    with pytest.raises(InvalidInput):
        await publishing.open_pull_request(state, PullRequestText("  ", "x"))


@pytest.mark.parametrize(
    "stdout", ["", "no pull requests found", "[]", '{"state": "MERGED"}', '{"state": 3}']
)
async def test_a_branch_without_an_open_pull_request_has_no_checks(
    bench: Workbench, programs: Path, stdout: str
) -> None:
    answer(programs, pr_view={"stdout": stdout, "code": 1})
    publishing, state = await publishing_of(bench)
    assert await publishing.find_pull_request(state) is None


@pytest.mark.parametrize("row", ["[]," * 300_000 + "[]", '"' + "x" * 2_000_000 + '"'])
async def test_an_answer_that_is_too_long_is_not_taken_for_none(
    bench: Workbench, programs: Path, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was as if there were no pull request, or took a gigabyte."""
    monkeypatch.setattr(branch_publishing, "LARGEST_ANSWER", 1_000_000)
    answer(programs, pr_view={"stdout": '{"state": "OPEN", "statusCheckRollup": [' + row + "]}"})
    publishing, state = await publishing_of(bench)
    with pytest.raises(ActionRefused, match="more about the pull request than can be read"):
        await publishing.find_pull_request(state)


async def test_without_a_program_for_it_no_pull_request_is_offered(
    bench: Workbench, project: Path, programs: Path
) -> None:
    git(project, "remote", "set-url", "origin", "https://gitlab.example/me/it.git")
    publishing, state = await publishing_of(bench)
    assert state.tool == "", "gh opens none at GitLab"
    assert await publishing.find_pull_request(state) is None


async def test_programs_get_the_variables_that_they_need_and_no_others(
    bench: Workbench, project: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gh` got the whole environment, with the keys of providers and of anything else in it."""
    git(project, "remote", "set-url", "origin", "https://github.com/me/it")
    needed = {
        "HOME",
        "PATH",
        "SSH_AUTH_SOCK",
        "https_proxy",
        "SSL_CERT_FILE",
        "GH_TOKEN",
        "LC_TIME",
    }
    unneeded = {
        "ANTHROPIC_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "GITLAB_TOKEN",
        "GIT_DIR",
        "PYTHONPATH",
    }
    for name in needed.difference(("PATH",)).union(unneeded):
        monkeypatch.setenv(name, "/nowhere")
    publishing, state = await publishing_of(bench)
    answer(programs, pr_view={"stdout": "{}"})
    await publishing.find_pull_request(state)
    variables = set(cast("list[str]", told(programs)[-1]["variables"]))
    assert needed <= variables
    assert not unneeded & variables


def test_git_gets_no_key_of_another_program_and_finds_what_signs_and_logs_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SSH_AUTH_SOCK", "GNUPGHOME", "OPENAI_API_KEY", "HTTPS_PROXY", "MY_SECRET"):
        monkeypatch.setenv(name, "x")
    variables = choose_variables("variables_to_run")
    assert {"HOME", "PATH", "SSH_AUTH_SOCK", "GNUPGHOME"} <= set(variables)
    assert not {"OPENAI_API_KEY", "HTTPS_PROXY", "MY_SECRET"} & set(variables)
    assert "HTTPS_PROXY" in choose_variables("variables_for_servers")


# --- What is read and said


def state_at(address: str = "https://git.example/team/it.git", **values: Any) -> BranchState:
    return BranchState(Path("/nowhere"), "feature", "abc", "origin", address, 0, "gh", **values)


@pytest.mark.parametrize(("base", "is_base"), [("", False), ("main", False), ("feature", True)])
def test_a_request_from_a_branch_to_itself_makes_no_sense(base: str, *, is_base: bool) -> None:
    assert state_at(base=base).is_base is is_base


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://Git.Example/team/it.git", "git.example"),
        ("https://user:p@ss@git.example/team", ""),
        ("https://user:secret@git.example:8443/team", "git.example"),
        ("ssh://git@git.example:22/team", "git.example"),
        ("git@git.example:team/it.git", "git.example"),
        ("git.example:team", "git.example"),
        ("a@b@git.example:team", ""),
        ("/srv/it.git", ""),
    ],
)
def test_a_server_is_known_by_its_address_if_it_can_be_read_in_one_way(
    address: str, host: str
) -> None:
    assert branch_publishing._host_of_address(address) == host


def test_a_token_is_kept_back_from_servers_that_the_user_has_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("GH_HOST", "GITLAB_HOST", "GITLAB_URI", "GL_HOST")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    kept_back = branch_publishing._variables_with_tokens_of_others
    github = {"GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"}
    gitlab = {"GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "OAUTH_TOKEN", "CI_JOB_TOKEN"}
    assert kept_back("https://git.example/a") == github | gitlab
    assert kept_back("https://gitlab.com/a") == github
    monkeypatch.setenv("GH_HOST", "git.example")
    assert kept_back("https://git.example/a") == gitlab
    assert kept_back("https://other.example/a") == github | gitlab
    monkeypatch.setenv("GL_HOST", "https://git.example")
    assert kept_back("git@git.example:a") == set()


def test_what_github_prints_becomes_a_request_with_its_checks() -> None:
    parse = branch_publishing._parse_github_request
    assert parse(None) is None
    assert parse({"state": "MERGED", "url": "u"}) is None
    rows = [
        {"name": "tests", "conclusion": "SUCCESS", "detailsUrl": "https://x/run/1/job/77"},
        {"context": "deploy", "state": "FAILURE", "targetUrl": "https://y"},
        {"name": "slow", "conclusion": "", "state": ""},
    ]
    request = parse({"state": "OPEN", "url": "https://x/pull/1", "statusCheckRollup": rows})
    assert request is not None
    assert request.address == "https://x/pull/1"
    assert list(request.checks) == [
        BranchCheck("tests", "passed", "https://x/run/1/job/77", "77"),
        BranchCheck("deploy", "failed", "https://y", ""),
        BranchCheck("slow", "running", "", ""),
    ]
    many = [{"name": f"{n}"} for n in range(MOST_CHECKS + 5)]
    limited = parse({"state": "OPEN", "url": "u", "statusCheckRollup": many})
    assert limited is not None
    assert len(limited.checks) == MOST_CHECKS


@pytest.mark.parametrize(
    "written",
    ["file:///etc/passwd", "javascript:x", "https://x/\x1b[2J", "https://x/\u202ey", "https://x/ y", "https://x/" + "y" * 3_000],
)  # fmt: skip
def test_what_is_no_plain_address_of_the_web_is_no_link(written: str) -> None:
    row = {"name": "n", "state": "FAILURE", "targetUrl": written, "web_url": written}
    request = branch_publishing._parse_github_request(
        {"state": "OPEN", "url": written, "statusCheckRollup": [row]}
    )
    assert request is not None
    assert request.address == ""
    assert request.checks[0].link == ""
    assert branch_publishing._parse_gitlab_checks({"jobs": [row]})[0].link == ""


def test_what_gitlab_prints_becomes_the_checks_of_its_pipeline() -> None:
    parse = branch_publishing._parse_gitlab_checks
    assert parse(None) == []
    rows = [
        {"id": 5, "name": "tests", "status": "canceled", "web_url": "https://x/5"},
        {"id": 6, "name": "n" * 500, "status": "pending"},
    ]
    first, second = parse({"jobs": rows})
    assert first == BranchCheck("tests", "failed", "https://x/5", "5")
    assert (second.state, second.job) == ("running", "6")
    assert len(second.name) == LONGEST_CHECK_NAME


def test_an_answer_of_a_server_is_read_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = branch_publishing._parse_output_about_request
    assert parse("gh", b'{"a": 1}') == {"a": 1}
    assert parse("gh", b"no request") is None
    monkeypatch.setattr(branch_publishing, "LARGEST_ANSWER", 8)
    assert parse("gh", b'{"a": 1}') == {"a": 1}
    with pytest.raises(ActionRefused, match="gh printed more about the pull request"):
        parse("gh", b'{"a": 10}')


@pytest.mark.parametrize(
    ("said", "sentence", "remedy"),
    [
        (b"remote: authentication failed", "did not accept the login", "credential.helper"),
        (b"ssh: Could not resolve host x", "could not be reached", "Check the connection"),
        (b"fatal: odd", "git refused: fatal: odd.", "Nothing was pushed"),
    ],
)
def test_why_a_push_failed_is_said_with_what_can_be_done(
    said: bytes, sentence: str, remedy: str
) -> None:
    finished = FinishedProcess(("git",), 1, b"", said)
    error = branch_publishing._error_of_push(finished, state_at())
    assert sentence in error.what
    assert remedy in str(error.remedy) or branch_publishing.NOT_PUSHED in str(error.remedy)


def test_a_reason_is_one_line_without_a_login_and_of_a_limited_length() -> None:
    shorten = branch_publishing._shorten_reason
    assert shorten("see\n https://me:secret@x/it .") == "see https://x/it "
    assert len(shorten("x" * 100_000)) == branch_publishing.LONGEST_REASON
    finished = FinishedProcess(("git",), 1, b" out ", b"err\n")
    assert branch_publishing._output_text(finished) == "out \nerr"
