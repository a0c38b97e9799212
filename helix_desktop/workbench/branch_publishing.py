"""Pushes the branch of the workspace's repository, opens a pull request for it, and reads its
checks, each when the user says so.

A repository can come from anywhere, and its settings can name programs for nearly everything. So
neither git's push nor `gh` or `glab` run in it: the push reads its objects from an empty
repository of our own, where only the user's own settings apply (their login, their keys), and the
other programs are told the address and the branch, and run in an empty folder. Hooks do not run.
"""

import asyncio
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.pull_request_text import PullRequestText, write_pull_request_text
from helix_desktop.engine.session import Session
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import (
    first_text,
    number_at,
    objects_at,
    parse_json_or_none,
    text_at,
)
from helix_desktop.processes import starter
from helix_desktop.processes.starter import run_process
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.git_runner import run_git

LIMIT_SECONDS = 120.0
LONGEST_ADDRESS = 2_000
LARGEST_LOG = 400_000  # Bytes; of a longer log, the end is kept, where the failure is.
LONGEST_REASON = 500
NOT_PUSHED = "Nothing was pushed. Your commits are kept here."
NOT_OPENED = "No pull request was opened. Your branch and your text are kept."
# git's own words for a server that cannot be reached.
_OFFLINE = re.compile(
    r"could not resolve host|could not connect|network is unreachable|connection (timed out|refused)"
    r"|error connecting to|no such host|failed to connect|could not read from remote",
    re.IGNORECASE,
)
_REJECTED = re.compile(r"\[(remote )?rejected\]|non-fast-forward|fetch first", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\S+")
_GITHUB_JOB = re.compile(r"/job/(\d+)")
# The words of both sites for how a check ended. Any other means that it has not.
_STATE_BY_OUTCOME = {
    "success": "passed",
    "neutral": "passed",
    "skipped": "passed",
    "manual": "passed",
    "failure": "failed",
    "failed": "failed",
    "error": "failed",
    "cancelled": "failed",
    "canceled": "failed",
    "timed_out": "failed",
    "action_required": "failed",
    "startup_failure": "failed",
}
# As in `https://login:secret@host/path`.
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/@]*@")


@dataclass(frozen=True, slots=True)
class BranchState:
    """The branch that is checked out. `unpushed`: how many of its commits no branch of the remote
    has. `address`: where it is pushed to. `tool`: the program that opens pull requests there, `gh`
    or `glab`, or empty. Without a remote, `remote`, `address` and `tool` are empty.
    """

    root: Path
    branch: str
    commit: str
    remote: str
    address: str
    unpushed: int
    tool: str

    @property
    def shown_address(self) -> str:
        """The address without a login or a secret."""
        return _LOGIN_IN_ADDRESS.sub("", self.address)


@dataclass(frozen=True, slots=True)
class BranchCheck:
    """A check of a pull request. `state` is "passed", "failed" or "running". `job`: by which the
    log is found, or empty.
    """

    name: str
    state: str
    link: str = ""
    job: str = ""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The open pull request of a branch, with the checks of its newest commit."""

    address: str
    checks: Sequence[BranchCheck] = ()


class BranchPublishing:
    def __init__(
        self,
        find_checkpoints: Callable[[], Checkpoints],
        open_session: Callable[[str], Awaitable[Session]],
        cache: ContentCache,
    ) -> None:
        self._find_checkpoints = find_checkpoints
        self._open_session = open_session
        self._cache = cache

    async def read_branch_state(self) -> BranchState | None:
        """Returns the state of the first folder that is on a branch and has a remote, or else of
        the first that is on a branch with a commit.
        """
        without_remote: BranchState | None = None
        for root in self._find_checkpoints().roots:
            try:
                state = await asyncio.to_thread(_read_branch_state, root)
            except HelixError:  # No repository, or none that git can read.
                continue
            if state.remote:
                return state
            if without_remote is None:
                without_remote = state
        return without_remote

    async def push_branch(self, state: BranchState) -> None:
        await asyncio.to_thread(_push_branch, state)

    async def write_text(self, conversation: str) -> PullRequestText:
        session = await self._open_session(conversation)
        return await write_pull_request_text(session.conversation.state, self._cache)

    async def open_pull_request(self, state: BranchState, text: PullRequestText) -> str:
        """Returns the address of the new pull request."""
        if not text.title.strip():
            raise InvalidInput("Enter a title for the pull request.")
        if state.unpushed:
            await self.push_branch(state)
        return await asyncio.to_thread(_open_pull_request, state, text)

    async def find_pull_request(self, state: BranchState) -> PullRequest | None:
        if not state.tool:
            return None
        return await asyncio.to_thread(_find_pull_request, state)

    async def read_failure_log(self, state: BranchState, check: BranchCheck) -> str:
        return await asyncio.to_thread(_read_failure_log, state, check)


# --- The branch


def _read_branch_state(root: Path) -> BranchState:
    branch = _read_git_line(root, "symbolic-ref", "--short", "-q", "HEAD")
    commit = _read_git_line(root, "rev-parse", "--verify", "HEAD")
    remote = _choose_remote(root, branch)
    if not remote:
        return BranchState(root, branch, commit, "", "", 0, "")
    address = _read_git_line(root, "remote", "get-url", "--push", remote)
    unpushed = _read_git_line(root, "rev-list", "--count", "HEAD", "--not", f"--remotes={remote}")
    return BranchState(
        root, branch, commit, remote, address, int(unpushed), _find_pull_request_tool(address)
    )


def _read_git_line(root: Path, *arguments: str) -> str:
    return run_git(root, *arguments, remedy=NOT_PUSHED).decode("utf-8", "replace").strip()


def _choose_remote(root: Path, branch: str) -> str:
    remotes = _read_git_line(root, "remote").splitlines()
    try:
        upstream = _read_git_line(root, "config", "--get", f"branch.{branch}.remote")
    except HelixError:  # The branch has no upstream yet.
        upstream = ""
    for candidate in (upstream, "origin"):
        if candidate in remotes:
            return candidate
    if remotes:
        return remotes[0]
    return ""


def _find_pull_request_tool(address: str) -> str:
    host = address.casefold()
    if "gitlab" in host:
        wanted = ["glab"]
    elif "github" in host:
        wanted = ["gh"]
    else:
        wanted = ["gh", "glab"]
    for name in wanted:
        if starter.find_program(name):
            return name
    return ""


# --- Pushing


def _push_branch(state: BranchState) -> None:
    if len(state.address) > LONGEST_ADDRESS or state.address.startswith("-"):
        raise ActionRefused("The address of the remote is not usable.", remedy=NOT_PUSHED)
    objects = _read_git_line(
        state.root, "rev-parse", "--path-format=absolute", "--git-path", "objects"
    )
    with tempfile.TemporaryDirectory(prefix="helix-push-") as folder:
        empty = Path(folder)
        _run_users_program("git", ["init", "--quiet", "--bare", "--template=", folder], empty)
        info = empty / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "alternates").write_text(f"{objects}\n", encoding="utf-8")
        target = f"{state.commit}:refs/heads/{state.branch}"
        settings = ["-c", f"core.hooksPath={os.devnull}", "-c", "protocol.ext.allow=never"]
        words = [*settings, "push", "--porcelain", "--", state.address, target]
        finished = _run_users_program("git", words, empty, check=False)
    if finished.returncode:
        raise _error_of_push(finished, state)
    _remember_pushed_branch(state)


def _remember_pushed_branch(state: BranchState) -> None:
    """Says in the user's repository what the remote has now, as `git push` itself does."""
    seen = f"refs/remotes/{state.remote}/{state.branch}"
    run_git(state.root, "update-ref", seen, state.commit, remedy="The branch was pushed.")
    for name, value in (("remote", state.remote), ("merge", f"refs/heads/{state.branch}")):
        setting = f"branch.{state.branch}.{name}"
        run_git(state.root, "config", setting, value, remedy="The branch was pushed.")


def _error_of_push(finished: starter.FinishedProcess, state: BranchState) -> ActionRefused:
    message = _message_of(finished)
    if _REJECTED.search(message):
        return ActionRefused(
            f"The server did not take the branch {state.branch}: {_shorten_reason(message)}.",
            remedy=f"{NOT_PUSHED} If others have pushed to it, pull first.",
        )
    if _OFFLINE.search(message):
        return ActionRefused(
            f"The server of {state.shown_address} could not be reached: {_shorten_reason(message)}.",
            remedy=f"{NOT_PUSHED} Check the connection and your login there, and try again.",
        )
    return ActionRefused(f"git refused: {_shorten_reason(message)}.", remedy=NOT_PUSHED)


# --- Pull requests and their checks


def _open_pull_request(state: BranchState, text: PullRequestText) -> str:
    where = ["--repo", state.shown_address]
    if state.tool == "gh":
        words = ["pr", "create", *where, "--head", state.branch, "--title", text.title]
        finished = _run_in_empty_folder(
            "gh", [*words, "--body-file", "-"], stdin=text.body.encode()
        )
    elif state.tool == "glab":
        words = ["mr", "create", *where, "--source-branch", state.branch, "--title", text.title]
        finished = _run_in_empty_folder("glab", [*words, "--description", text.body, "--yes"])
    else:
        raise ActionRefused(
            "Neither gh nor glab is installed.",
            remedy=f"{NOT_OPENED} Install one of them, or open it on the web page of the server.",
        )
    if finished.returncode:
        raise _error_of_tool(finished, state)
    addresses: list[str] = _ADDRESS.findall(finished.stdout.decode("utf-8", "replace"))
    if not addresses:
        return ""
    return addresses[-1]


def _error_of_tool(finished: starter.FinishedProcess, state: BranchState) -> ActionRefused:
    message = _message_of(finished)
    if _OFFLINE.search(message):
        return ActionRefused(
            f"The program {state.tool} could not reach the server: {_shorten_reason(message)}.",
            remedy=f"{NOT_OPENED} Check the connection and try again.",
        )
    return ActionRefused(
        f"The program {state.tool} refused: {_shorten_reason(message)}.", remedy=NOT_OPENED
    )


def _find_pull_request(state: BranchState) -> PullRequest | None:
    where = ["--repo", state.shown_address]
    if state.tool == "gh":
        fields = ["--json", "url,state,statusCheckRollup"]
        finished = _run_in_empty_folder("gh", ["pr", "view", state.branch, *where, *fields])
        return _parse_github_request(finished.stdout)
    words = ["mr", "view", state.branch, *where, "--output", "json"]
    request = parse_json_or_none(_run_in_empty_folder("glab", words).stdout)
    if text_at(request, "state") != "opened":
        return None
    words = ["ci", "get", "--branch", state.branch, *where, "--output", "json"]
    pipeline = parse_json_or_none(_run_in_empty_folder("glab", words).stdout)
    return PullRequest(text_at(request, "web_url"), _parse_gitlab_checks(pipeline))


def _parse_github_request(output: bytes) -> PullRequest | None:
    """Reads what `gh pr view --json` prints: nothing where there is no pull request."""
    request = parse_json_or_none(output)
    if text_at(request, "state") != "OPEN":
        return None
    checks: list[BranchCheck] = []
    for row in objects_at(request, "statusCheckRollup"):
        # A job of GitHub has a conclusion once it has ended; a status of another service a state.
        outcome = first_text(row, "conclusion", "state")
        link = first_text(row, "detailsUrl", "targetUrl")
        job = _GITHUB_JOB.search(link)
        number = "" if job is None else job[1]
        state = _STATE_BY_OUTCOME.get(outcome.casefold(), "running")
        checks.append(BranchCheck(first_text(row, "name", "context"), state, link, number))
    return PullRequest(text_at(request, "url"), checks)


def _parse_gitlab_checks(pipeline: object) -> list[BranchCheck]:
    """Reads what `glab ci get --output json` prints: a pipeline with its jobs."""
    checks: list[BranchCheck] = []
    for row in objects_at(pipeline, "jobs"):
        state = _STATE_BY_OUTCOME.get(text_at(row, "status"), "running")
        number = str(number_at(row, "id"))
        checks.append(BranchCheck(text_at(row, "name"), state, text_at(row, "web_url"), number))
    return checks


def _read_failure_log(state: BranchState, check: BranchCheck) -> str:
    if not check.job:
        raise ActionRefused(
            f"The program {state.tool} has no log of {check.name}: it does not run on the server itself.",
            remedy=f"Look at {check.link}." if check.link else "",
        )
    where = ["--repo", state.shown_address]
    if state.tool == "gh":
        words = ["run", "view", *where, "--job", check.job, "--log-failed"]
    else:
        words = ["ci", "trace", check.job, *where]
    finished = _run_in_empty_folder(state.tool, words)
    if finished.returncode and not finished.stdout:
        raise ActionRefused(
            f"The program {state.tool} refused: {_shorten_reason(_message_of(finished))}.",
            remedy="Nothing was changed. Try again.",
        )
    return finished.stdout[-LARGEST_LOG:].decode("utf-8", "replace")


# --- Running the user's own programs


def _run_in_empty_folder(
    name: str, words: Sequence[str], *, stdin: bytes = b""
) -> starter.FinishedProcess:
    with tempfile.TemporaryDirectory(prefix="helix-forge-") as folder:
        return _run_users_program(name, words, Path(folder), stdin=stdin, check=False)


def _run_users_program(
    name: str, words: Sequence[str], folder: Path, *, stdin: bytes = b"", check: bool = True
) -> starter.FinishedProcess:
    program = starter.find_program(name)
    if not program:
        raise ActionRefused(f"The program {name} was not found.", remedy=f"Install {name}.")
    # The user's own variables for git could name another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    # Nobody sits at a terminal who could answer.
    environment["GIT_TERMINAL_PROMPT"] = "0"
    environment["GIT_NO_LAZY_FETCH"] = "1"
    environment["GH_PROMPT_DISABLED"] = "1"
    environment["NO_PROMPT"] = "1"
    environment["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    launch = starter.ProcessLaunch(
        starter.CommandAuthor.USER, [program, *words], folder, environment, has_own_session=True
    )
    try:
        finished = run_process(launch, input_bytes=stdin, seconds=LIMIT_SECONDS)
    except starter.ProcessTimeout as error:
        raise ActionRefused(
            f"The program {name} did not finish within {LIMIT_SECONDS:.0f} seconds and was stopped.",
            remedy="Look at the server's web page to see what arrived there.",
        ) from error
    if check and finished.returncode:
        reason = _shorten_reason(_message_of(finished))
        raise ActionRefused(f"The program {name} refused: {reason}.", remedy=NOT_PUSHED)
    return finished


def _message_of(finished: starter.FinishedProcess) -> str:
    return (finished.stdout + b"\n" + finished.stderr).decode("utf-8", "replace").strip()


def _shorten_reason(message: str) -> str:
    """Returns the message on one line, without logins in addresses."""
    reason = " ".join(_LOGIN_IN_ADDRESS.sub("", message).split())
    return reason[:LONGEST_REASON].rstrip(".")
