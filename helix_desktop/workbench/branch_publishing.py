"""Pushes the branch of the workspace's repository, opens a pull request for it, and reads its
checks, each when the user says so.

A repository can come from anywhere, and its settings can name programs for nearly everything. So
neither git's push nor `gh` or `glab` run in it: the push reads its objects from an empty
repository of our own, where only the user's own settings apply (their login, their keys), and the
other programs are told the address and the branch, and run in an empty folder. Hooks do not run.

The address comes from the repository, too. `gh` and `glab`, also when git asks them for a login, send
a token from some variables to whatever server they are told. So these variables are there only for a
server that the user has named (see `_variables_with_tokens_of_others`).
"""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop.atomic_files import create_folders
from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.pull_request_text import (
    MOST_COMMITS,
    BranchContents,
    CommittedFile,
    PullRequestText,
    write_pull_request_text,
)
from helix_desktop.engine.session import Session
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.leaked_keys import mask_keys
from helix_desktop.json_values import (
    first_text,
    has_more_values,
    number_at,
    objects_at,
    parse_json_or_none,
    text_at,
)
from helix_desktop.processes import starter
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.git_runner import choose_variables, run_git

LIMIT_SECONDS = 120.0
LONGEST_ADDRESS = 2_000
# Bytes of JSON about a pull request and its checks. Of an output with more, only the end is kept.
LARGEST_ANSWER = starter.MOST_OUTPUT_BYTES - 1
MOST_VALUES_OF_ANSWER = 200_000
LARGEST_LOG = 400_000  # Bytes; of a longer log, the end is kept, where the failure is.
LONGEST_REASON = 500
LONGEST_MESSAGE = 20_000
MOST_CHECKS = 1_000
LONGEST_CHECK_NAME = 200
NOT_PUSHED = "Nothing was pushed. Your commits are kept here."
NOT_OPENED = "No pull request was opened. Your branch and your text are kept."
# git's own words for a server that cannot be reached.
_OFFLINE = re.compile(
    r"could not resolve host|could not connect|network is unreachable|connection (timed out|refused)"
    r"|error connecting to|no such host|failed to connect|could not read from remote",
    re.IGNORECASE,
)
_NOT_LOGGED_IN = re.compile(
    r"could not read (username|password)|authentication failed|permission denied",
    re.IGNORECASE,
)
WHICH_VARIABLES = (
    "If you log in with a variable of your environment, name it in your own git settings for the login"
    " (such as `credential.helper`), or push in a terminal: git gets no other variables from here."
)
# They stand above those of the repository that receives commits, as no hook, filter or other program
# of it may run.
_SETTINGS_OF_RECEIVER = (
    f"core.hooksPath={os.devnull}",
    "core.alternateRefsCommand=true",
    "core.fsmonitor=false",
    "receive.autogc=false",
    "receive.denyCurrentBranch=refuse",
)
# The settings of the user that say how to log in, and the variables that they name.
_LOGIN_SETTINGS = r"^(credential\.(.*\.)?helper|core\.(sshcommand|askpass))$"
_VARIABLE_IN_SETTING = re.compile(r"\$\{?([A-Za-z_]\w*)")
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
# The variables whose token `gh` and `glab` send to any server, and those in which the user names theirs.
_TOKENS_OF_GITHUB_SERVERS = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
_NAMES_OF_GITHUB_SERVERS = ("GH_HOST",)
_TOKENS_OF_GITLAB_SERVERS = ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "OAUTH_TOKEN", "CI_JOB_TOKEN")
_NAMES_OF_GITLAB_SERVERS = ("GITLAB_HOST", "GITLAB_URI", "GL_HOST")
# The lists of variables that are for one program. git asks either of the others for a login.
_VARIABLES_BY_PROGRAM = {
    "git": (
        "variables_of_author",
        "variables_of_settings",
        "variables_for_logins",
        "variables_of_gh",
        "variables_of_glab",
    ),
    "gh": ("variables_of_gh",),
    "glab": ("variables_of_glab",),
}
# As in `https://host:443/path` or `ssh://login@host/path`, and as in `login@host:path`. An address with
# more than one login could be read in two ways, so it has no host.
_URL = re.compile(r"\w+://(?:[^/@\\]*@)?([\w.-]+)(?::\d+)?(?:/[^@\\]*)?")
_SHORT_ADDRESS = re.compile(r"(?:[^/:@\\]*@)?([\w.-]+)(?::[^@\\]*)?")
# As in `https://login:secret@host/path`. A secret may have an @ itself, so the login goes up to the
# last one before a slash.
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s]*@")


@dataclass(frozen=True, slots=True)
class BranchState:
    """The branch that is checked out. `unpushed`: how many of its commits no branch of the remote
    has. `address`: where it is pushed to. `tool`: the program that opens pull requests there, `gh`
    or `glab`, or empty. `base`: the branch of the remote that pull requests go to, or empty if that
    is not known. Without a remote, `remote`, `address`, `tool` and `base` are empty.
    """

    root: Path
    branch: str
    commit: str
    remote: str
    address: str
    unpushed: int
    tool: str
    base: str = ""

    @property
    def is_base(self) -> bool:
        """Whether a pull request would go from this branch to itself."""
        return bool(self.base) and self.branch == self.base

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

    async def write_text(self, state: BranchState, conversation: str) -> PullRequestText:
        """Of what looks like a key, only the ends stand there: many people can read a pull request."""
        session = await self._open_session(conversation)
        branch_contents = await asyncio.to_thread(_read_branch_contents, state)
        text = await write_pull_request_text(
            session.conversation.state, self._cache, branch_contents
        )
        return PullRequestText(mask_keys(text.title), mask_keys(text.body))

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
    """Returns the branch of a repository. Raises a HelixError if there is none or no
    commit.
    """
    branch = _read_git_line(root, "symbolic-ref", "--short", "-q", "HEAD")
    commit = _read_git_line(root, "rev-parse", "--verify", "HEAD")
    remote = _choose_remote(root, branch)
    if not remote:
        return BranchState(root, branch, commit, remote="", address="", unpushed=0, tool="")
    address = _read_git_line(root, "remote", "get-url", "--push", remote)
    unpushed = _read_git_line(root, "rev-list", "--count", "HEAD", "--not", f"--remotes={remote}")
    pull_request_tool = _find_pull_request_tool(address)
    base_branch = _find_base_branch(root, branch, remote)
    return BranchState(
        root=root,
        branch=branch,
        commit=commit,
        remote=remote,
        address=address,
        unpushed=int(unpushed),
        tool=pull_request_tool,
        base=base_branch,
    )


def _read_git_line(root: Path, *arguments: str) -> str:
    output = run_git(root, *arguments, remedy=NOT_PUSHED)
    return output.decode("utf-8", "replace").strip()


def _choose_remote(root: Path, branch: str) -> str:
    """Returns the remote to push to: the branch's own, else `origin`, else the first
    one.
    """
    remotes = _read_git_line(root, "remote").splitlines()
    try:
        upstream = _read_git_line(root, "config", "--get", f"branch.{branch}.remote")
    except HelixError:  # The branch has no upstream yet.
        upstream = ""
    if upstream in remotes:
        return upstream
    if "origin" in remotes:
        return "origin"
    if remotes:
        return remotes[0]
    return ""


def _find_base_branch(root: Path, branch: str, remote: str) -> str:
    """Returns the remote's main branch as far as the repository knows it, without asking the server."""
    with suppress(HelixError):  # Only a clone has written down which branch it is.
        name = _read_git_line(root, "symbolic-ref", "--short", "-q", f"refs/remotes/{remote}/HEAD")
        return name.removeprefix(f"{remote}/")
    for usual_name in ("main", "master"):
        with suppress(HelixError):
            _read_git_line(
                root, "rev-parse", "--verify", "-q", f"refs/remotes/{remote}/{usual_name}"
            )
            return usual_name
    if branch in ("main", "master"):
        return branch
    return ""


def _read_branch_contents(state: BranchState) -> BranchContents | None:
    """Returns what the branch has and the base has not, or None if there is no base."""
    if not state.base or state.is_base:
        return None
    base = f"refs/remotes/{state.remote}/{state.base}"
    options_for_files = ["--name-status", "--no-renames", "--relative", "-z"]
    # `git log` would go by the repository's settings and could start a program that checks
    # signatures. Of merges, the other branch has what matters.
    options_for_commits = ["--no-merges", f"--max-count={MOST_COMMITS}", "--reverse"]
    options_for_commits.append("--format=%x00%s")
    try:
        files = run_git(
            state.root,
            "diff",
            *options_for_files,
            f"{base}...{state.commit}",
            "--",
            remedy=NOT_OPENED,
        )
        commits = run_git(
            state.root,
            "rev-list",
            *options_for_commits,
            f"{base}..{state.commit}",
            "--",
            remedy=NOT_OPENED,
        )
    except HelixError:  # The base was never fetched, or shares no commit with the branch.
        return None
    subjects: list[str] = []
    for line in commits.decode("utf-8", "replace").split("\n"):
        # Between the subjects stand the hashes, without a zero byte before them.
        if line.startswith("\0"):
            subjects.append(line.removeprefix("\0"))
    return BranchContents(_parse_committed_files(files), subjects)


def _parse_committed_files(output: bytes) -> list[CommittedFile]:
    # A letter for what happened to the file and its path, each with a zero byte behind it.
    fields = output.decode("utf-8", "replace").split("\0")
    files: list[CommittedFile] = []
    for letter, path in zip(fields[0::2], fields[1::2], strict=False):
        files.append(CommittedFile(path, is_new=letter == "A", is_deleted=letter == "D"))
    return files


def _find_pull_request_tool(address: str) -> str:
    """Returns the installed program for the server, or an empty string. A server's name need not
    say which of the two kinds it is: then either will do.
    """
    lower_address = address.casefold()
    if "gitlab" in lower_address:
        tools = ["glab"]
    elif "github" in lower_address:
        tools = ["gh"]
    else:
        tools = ["gh", "glab"]
    for tool in tools:
        if starter.find_own_program(tool):
            return tool
    return ""


# --- Pushing


def _push_branch(state: BranchState) -> None:
    """Pushes the branch from an empty repository of our own, as the module's
    description says.
    """
    if len(state.address) > LONGEST_ADDRESS or state.address.startswith("-"):
        raise ActionRefused("The address of the remote is not usable.", remedy=NOT_PUSHED)
    with tempfile.TemporaryDirectory(prefix="helix-push-") as folder:
        repository = Path(folder)
        make_repository = ["init", "--quiet", "--bare", "--template=", folder]
        _run_users_program("git", make_repository, repository, state)
        _borrow_objects(repository, state.root)
        arguments = [
            "-c",
            f"core.hooksPath={os.devnull}",
            "-c",
            "protocol.ext.allow=never",
            # It would speak over an open file of ours, and wait for ever.
            "-c",
            "protocol.fd.allow=never",
            *_push_to_server(state.address),
            "--porcelain",
            "--",
            state.address,
            f"{state.commit}:refs/heads/{state.branch}",
        ]
        variables = _variables_of_login(repository, state)
        finished = _run_users_program(
            "git", arguments, repository, state, check=False, variables=variables
        )
    if finished.returncode:
        raise _error_of_push(finished, state)
    _remember_pushed_branch(state)


def _push_to_server(address: str) -> list[str]:
    """Returns git's words for pushing. In a folder of this computer, git starts the program that
    receives commits, which runs what that repository's settings and hooks say. The repository that
    is pushed can name such a folder, even one of its own.
    """
    if not _is_address_of_folder(address):
        return ["-c", "protocol.file.allow=never", "push"]
    receive = ["git"]
    for setting in _SETTINGS_OF_RECEIVER:
        receive += ["-c", setting]
    receive.append("receive-pack")
    return ["push", f"--receive-pack={' '.join(receive)}"]


def _is_address_of_folder(address: str) -> bool:
    """Whether git takes an address for a folder of this computer: without a colon before the first
    slash, which would end a host's name.
    """
    if address.startswith("file://"):
        return True
    before_slash, _, _ = address.partition("/")
    is_drive = re.match(r"[A-Za-z]:", address) is not None and sys.platform == "win32"
    return ":" not in before_slash or is_drive


def _variables_of_login(repository: Path, state: BranchState) -> dict[str, str]:
    """Returns the variables that the user's own settings for logins name, such as `echo $MY_TOKEN`.
    `repository` is the empty one, which has no settings that say so.
    """
    arguments = ["config", "--includes", "--get-regexp", _LOGIN_SETTINGS]
    finished = _run_users_program("git", arguments, repository, state, check=False)
    settings = finished.stdout.decode("utf-8", "replace")
    refused = _variables_with_tokens_of_others(state.address)
    variables: dict[str, str] = {}
    for name in _VARIABLE_IN_SETTING.findall(settings):
        if name in os.environ and name not in refused:
            variables[name] = os.environ[name]
    return variables


def _borrow_objects(repository: Path, original: Path) -> None:
    """Lets git read the original's objects as if they were in this repository."""
    objects_folder = _read_git_line(
        original, "rev-parse", "--path-format=absolute", "--git-path", "objects"
    )
    info_folder = repository / "objects" / "info"
    create_folders(info_folder)
    (info_folder / "alternates").write_text(f"{objects_folder}\n", encoding="utf-8")


def _remember_pushed_branch(state: BranchState) -> None:
    """Says in the user's repository what the remote has now, as `git push` itself does."""
    remedy = "The branch was pushed."
    remote_branch = f"refs/remotes/{state.remote}/{state.branch}"
    run_git(state.root, "update-ref", remote_branch, state.commit, remedy=remedy)
    # The branch's upstream, so that git can say what was not pushed yet.
    setting = f"branch.{state.branch}"
    run_git(state.root, "config", f"{setting}.remote", state.remote, remedy=remedy)
    run_git(state.root, "config", f"{setting}.merge", f"refs/heads/{state.branch}", remedy=remedy)


def _error_of_push(finished: starter.FinishedProcess, state: BranchState) -> ActionRefused:
    """Returns an error that says whether the server refused, could not be reached, or
    git failed.
    """
    message = _output_text(finished)
    reason = _shorten_reason(message)
    address = mark_on_one_line(state.shown_address)
    if _REJECTED.search(message):
        return ActionRefused(
            f"The server did not take the branch {state.branch}: {reason}.",
            remedy=f"{NOT_PUSHED} If others have pushed to it, pull first.",
        )
    if _NOT_LOGGED_IN.search(message):
        return ActionRefused(
            f"The server of {address} did not accept the login: {reason}.",
            remedy=f"{NOT_PUSHED} {WHICH_VARIABLES}",
        )
    if _OFFLINE.search(message):
        return ActionRefused(
            f"The server of {address} could not be reached: {reason}.",
            remedy=f"{NOT_PUSHED} Check the connection and your login there, and try again.",
        )
    return ActionRefused(f"git refused: {reason}.", remedy=NOT_PUSHED)


# --- Pull requests and their checks


def _open_pull_request(state: BranchState, text: PullRequestText) -> str:
    """Returns the address of the new pull request, or an empty string if the tool printed none."""
    if state.tool == "gh":
        arguments = ["pr", "create", "--repo", state.shown_address]
        arguments += ["--head", state.branch, "--title", text.title, "--body-file", "-"]
        finished = _run_in_empty_folder("gh", arguments, state, stdin=text.body.encode())
    elif state.tool == "glab":
        arguments = ["mr", "create", "--repo", state.shown_address]
        arguments += ["--source-branch", state.branch, "--title", text.title]
        arguments += ["--description", text.body, "--yes"]
        finished = _run_in_empty_folder("glab", arguments, state)
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
    message = _output_text(finished)
    reason = _shorten_reason(message)
    if _OFFLINE.search(message):
        return ActionRefused(
            f"The program {state.tool} could not reach the server: {reason}.",
            remedy=f"{NOT_OPENED} Check the connection and try again.",
        )
    return ActionRefused(f"The program {state.tool} refused: {reason}.", remedy=NOT_OPENED)


def _find_pull_request(state: BranchState) -> PullRequest | None:
    if state.tool == "gh":
        return _find_github_request(state)
    return _find_gitlab_request(state)


def _find_github_request(state: BranchState) -> PullRequest | None:
    arguments = ["pr", "view", "--repo", state.shown_address]
    # A repository can call its branch as an option is called.
    arguments += ["--json", "url,state,statusCheckRollup", "--", state.branch]
    finished = _run_in_empty_folder("gh", arguments, state)
    return _parse_github_request(_parse_output_about_request("gh", finished.stdout))


def _find_gitlab_request(state: BranchState) -> PullRequest | None:
    repository_and_format = ["--repo", state.shown_address, "--output", "json"]
    arguments = ["mr", "view"] + repository_and_format + ["--", state.branch]
    finished = _run_in_empty_folder("glab", arguments, state)
    request = _parse_output_about_request("glab", finished.stdout)
    if text_at(request, "state") != "opened":
        return None

    arguments = ["ci", "get", "--branch", state.branch]
    finished = _run_in_empty_folder("glab", arguments + repository_and_format, state)
    pipeline = _parse_output_about_request("glab", finished.stdout)
    address = _plain_web_address(text_at(request, "web_url"))
    return PullRequest(address, _parse_gitlab_checks(pipeline))


def _parse_output_about_request(name: str, output: bytes) -> object:
    """Returns the JSON that a program printed, or None if it printed something else. Raises
    ActionRefused if that is too much to be about a pull request: it comes from the server.
    """
    if len(output) > LARGEST_ANSWER or has_more_values(output, MOST_VALUES_OF_ANSWER):
        raise ActionRefused(
            f"The program {name} printed more about the pull request than can be read.",
            remedy="Look at the server's web page.",
        )
    return parse_json_or_none(output)


def _parse_github_request(request: object) -> PullRequest | None:
    """Reads what `gh pr view --json` prints: nothing where there is no pull request."""
    if text_at(request, "state") != "OPEN":
        return None
    checks: list[BranchCheck] = []
    for row in objects_at(request, "statusCheckRollup")[:MOST_CHECKS]:
        # A job of GitHub has a conclusion once it has ended; a status of another service a state.
        outcome = first_text(row, "conclusion", "state")
        state = _STATE_BY_OUTCOME.get(outcome.casefold(), "running")
        link = _plain_web_address(first_text(row, "detailsUrl", "targetUrl"))
        job_in_link = _GITHUB_JOB.search(link)
        job = ""
        if job_in_link is not None:
            job = job_in_link[1]
        name = _name_of_check(first_text(row, "name", "context"))
        checks.append(BranchCheck(name, state, link, job))
    return PullRequest(_plain_web_address(text_at(request, "url")), checks)


def _parse_gitlab_checks(pipeline: object) -> list[BranchCheck]:
    """Reads what `glab ci get --output json` prints: a pipeline with its jobs."""
    checks: list[BranchCheck] = []
    for row in objects_at(pipeline, "jobs")[:MOST_CHECKS]:
        name = _name_of_check(text_at(row, "name"))
        state = _STATE_BY_OUTCOME.get(text_at(row, "status"), "running")
        link = _plain_web_address(text_at(row, "web_url"))
        job = str(number_at(row, "id"))
        checks.append(BranchCheck(name, state, link, job))
    return checks


def _plain_web_address(written: str) -> str:
    """Returns an address that a server names, or nothing if it is none that can be shown and opened."""
    if len(written) <= LONGEST_ADDRESS and written.isprintable() and _ADDRESS.fullmatch(written):
        return written
    return ""


def _name_of_check(written_name: str) -> str:
    """Returns what whoever can change the repository there called a check, fit to be shown in a button."""
    return mark_on_one_line(written_name)[:LONGEST_CHECK_NAME]


def _read_failure_log(state: BranchState, check: BranchCheck) -> str:
    """Returns the end of a failed check's log. Raises ActionRefused if there is none."""
    if not check.job:
        remedy = ""
        if check.link:
            remedy = f"Look at {check.link}."
        raise ActionRefused(
            f"The program {state.tool} has no log of {check.name}: it does not run on the server itself.",
            remedy=remedy,
        )
    repository = ["--repo", state.shown_address]
    if state.tool == "gh":
        arguments = ["run", "view"] + repository + ["--job", check.job, "--log-failed"]
    else:
        arguments = ["ci", "trace", check.job] + repository
    finished = _run_in_empty_folder(state.tool, arguments, state)
    if finished.returncode and not finished.stdout:
        reason = _shorten_reason(_output_text(finished))
        raise ActionRefused(
            f"The program {state.tool} refused: {reason}.",
            remedy="Nothing was changed. Try again.",
        )
    return finished.stdout[-LARGEST_LOG:].decode("utf-8", "replace")


# --- Running the user's own programs


def _run_in_empty_folder(
    name: str, arguments: Sequence[str], state: BranchState, *, stdin: bytes = b""
) -> starter.FinishedProcess:
    with tempfile.TemporaryDirectory(prefix="helix-forge-") as folder:
        return _run_users_program(name, arguments, Path(folder), state, stdin=stdin, check=False)


def _run_users_program(
    name: str,
    arguments: Sequence[str],
    folder: Path,
    state: BranchState,
    *,
    stdin: bytes = b"",
    check: bool = True,
    variables: Mapping[str, str] = {},
) -> starter.FinishedProcess:
    """Runs a program of the user's. `check`: raise ActionRefused if it fails. `variables`: further
    ones for it.
    """
    program = starter.find_own_program(name)
    if not program:
        raise ActionRefused(f"The program {name} was not found.", remedy=f"Install {name}.")
    launch = starter.ProcessLaunch(
        starter.CommandAuthor.USER,
        [program] + list(arguments),
        folder,
        _environment_for_server(name, state.address, folder) | dict(variables),
        has_own_session=True,
    )
    try:
        finished = starter.run_process_keeping_end(launch, input_bytes=stdin, seconds=LIMIT_SECONDS)
    except starter.ProcessTimeout as error:
        raise ActionRefused(
            f"The program {name} did not finish within {LIMIT_SECONDS:.0f} seconds and was stopped.",
            remedy="Look at the server's web page to see what arrived there.",
        ) from error
    if check and finished.returncode:
        reason = _shorten_reason(_output_text(finished))
        raise ActionRefused(f"The program {name} refused: {reason}.", remedy=NOT_PUSHED)
    return finished


def _environment_for_server(name: str, address: str, folder: Path) -> dict[str, str]:
    """Returns the user's variables that a program needs. It must neither ask anything nor use
    another repository, nor send a token to a server that it is not for.
    """
    environment = choose_variables(
        "variables_to_run", "variables_for_servers", *_VARIABLES_BY_PROGRAM[name]
    )
    for variable in _variables_with_tokens_of_others(address):
        environment.pop(variable, None)
    # Nobody sits at a terminal who could answer.
    environment["GIT_TERMINAL_PROMPT"] = "0"
    environment["GIT_NO_LAZY_FETCH"] = "1"
    environment["GH_PROMPT_DISABLED"] = "1"
    environment["NO_PROMPT"] = "1"
    environment["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    return environment


def _variables_with_tokens_of_others(address: str) -> set[str]:
    """Returns the variables whose token is not for the server at this address, as far as the user
    has said. Without one, `gh` and `glab` use what the user has logged in with at that server.
    """
    host = _host_of_address(address)
    kept_back: set[str] = set()
    if host not in _servers_named_by_user(_NAMES_OF_GITHUB_SERVERS):
        kept_back.update(_TOKENS_OF_GITHUB_SERVERS)
    if host != "gitlab.com" and host not in _servers_named_by_user(_NAMES_OF_GITLAB_SERVERS):
        kept_back.update(_TOKENS_OF_GITLAB_SERVERS)
    return kept_back


def _servers_named_by_user(variables: Sequence[str]) -> set[str]:
    servers: set[str] = set()
    for name in variables:
        value = os.environ.get(name)
        if value:
            servers.add(_host_of_address(value))
    return servers


def _host_of_address(address: str) -> str:
    found = _URL.fullmatch(address) or _SHORT_ADDRESS.fullmatch(address)
    if found is None:
        return ""
    return found[1].casefold()


def _output_text(finished: starter.FinishedProcess) -> str:
    output = finished.stdout + b"\n" + finished.stderr
    return output.decode("utf-8", "replace").strip()


def _shorten_reason(message: str) -> str:
    """Returns the message on one line, without logins in addresses."""
    # The message comes from the server. It is as long as the server wants.
    without_logins = _LOGIN_IN_ADDRESS.sub("", message[:LONGEST_MESSAGE])
    one_line = mark_on_one_line(" ".join(without_logins.split()))
    return one_line[:LONGEST_REASON].rstrip(".")
