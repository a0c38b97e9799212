"""`recorder`: records the conversations of agents. `recorder --run` is the process that imports."""

import argparse
import asyncio
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from typing import Any

from helix_desktop import commands, running_instance
from helix_desktop.commands import format_local_time, workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_chosen_recordings_options,
    add_command,
    add_json_option,
)
from helix_desktop.commands.workspace_access import (
    NOTHING_REMOVED,
    WAY_TO_FORGET,
    open_all_workspaces,
)
from helix_desktop.console import Console, Terminal, dump_printed_json, print_text
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import project_workspace, wrapped_agent
from helix_desktop.histories import history_finding, read_share
from helix_desktop.histories.daily_read_check import DailyReadCheck
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.pending_copies import original_paths_of_copies, path_of_copy
from helix_desktop.histories.program_names import history_kinds_of_agents
from helix_desktop.histories.unknown_shapes import NOT_READ_YET
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import (
    RECORDER,
    RECORDER_WITHOUT_AGENTS,
    RECORDER_WITHOUT_FOLDERS,
    ProgramSetting,
    ProgramSettings,
)
from helix_desktop.resident import history_recorder, login_start
from helix_desktop.resident.history_recorder import list_history_folders_to_record
from helix_desktop.resident.resident_client import CollectingConsole, ask_resident
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace

# The shared workspace, as versions and languages of this program have named it.
IMPORTED = (
    "Imported conversations",
    "Importierte Unterhaltungen",
    "导入的对话",
    "Brought in",
    "Übernommen",
)
CLAIM = "recorder"  # Only the process that has this claim imports.
CLAIM_SECONDS = 0.2  # How often a process that waits for the claim asks for it.
NOT_AGAIN = "If an agent continues them, only what is new is recorded. To get all of one back, import its file."
STILL_THERE = "What was recorded before is kept. To delete it, use `recorder forget`."
RECORDED_TOO = "Conversations from the time when these were excluded are recorded now, too."
KEY = "Text that looks like a key was recorded in conversation"
# A database counts as in use for this many seconds, because it records only a turn's
# start.
IN_USE_SECONDS = 3600.0


def _run_recorder_forget(arguments: Namespace) -> int:
    return workspace_access.run_and_confirm(arguments, _delete_recorded_conversations)


def _turn_recorder_on(arguments: Namespace) -> int:
    """Changes what is left out, turns the recorder on, and tells the background process, which
    is started if it does not run. It is the one that records.
    """
    where = arguments.places
    settings = ProgramSettings(where.settings_file)
    # Before the recorder is on, so that nothing is recorded that was to be left out.
    change_exclusions(arguments, settings)
    command = wrapped_agent.command_of_this_program(where)
    if arguments.at_login:
        login_start.enable_login_start(command, for_recorder=True)
    settings.change_setting(RECORDER, value=True)
    asyncio.run(ask_resident(where, "recorder", command=command))
    notes: list[str] = []
    if arguments.without_agent or arguments.without_folder:
        notes.append(STILL_THERE)
    if arguments.with_agent or arguments.with_folder:
        notes.append(RECORDED_TOO)
    return _print_recorder_status(arguments, notes)


def change_exclusions(arguments: Namespace, settings: ProgramSettings) -> None:
    """Adds or removes single exclusions. Replacing the whole list could drop one that
    keeps something private.
    """
    _change_excluded_names(
        settings,
        RECORDER_WITHOUT_AGENTS,
        added=history_kinds_of_agents(arguments.without_agent),
        removed=history_kinds_of_agents(arguments.with_agent),
    )
    _change_excluded_names(
        settings,
        RECORDER_WITHOUT_FOLDERS,
        added=_resolve_full_paths(arguments.without_folder),
        removed=_resolve_full_paths(arguments.with_folder),
    )


def _change_excluded_names(
    settings: ProgramSettings,
    setting: ProgramSetting[str],
    *,
    added: Sequence[str],
    removed: Sequence[str],
) -> None:
    """Changes a setting that lists excluded names, one a line."""
    names: list[str] = []
    for name in settings[setting].splitlines():
        if _list_spellings_of_name(name).isdisjoint(removed):
            names.append(name)
    names += added
    names_without_repeats = dict.fromkeys(names)
    settings.change_setting(setting, "\n".join(names_without_repeats))


def _list_spellings_of_name(name: str) -> set[str]:
    """Returns how an excluded folder or agent may be written."""
    try:
        spellings = history_kinds_of_agents([name])
    except InvalidInput:  # It is no agent, so it is a folder.
        spellings = _resolve_full_paths([name])
    return {name}.union(spellings)


def _resolve_full_paths(names: Sequence[str]) -> list[str]:
    full_paths: list[str] = []
    for name in names:
        stripped_name = name.strip()
        if stripped_name:
            full_path = Path(stripped_name).expanduser().resolve()
            full_paths.append(str(full_path))
    return full_paths


def is_folder_within(folder: str, folders: Sequence[str]) -> bool:
    """Whether a folder, or what it links to, is in one of these folders. One that is named by the
    last parts of its path only, such as `work/secret`, may be anywhere.
    """
    paths: list[Path] = []
    for path in (Path(folder), Path(folder).resolve()):
        paths.append(path)
        paths += path.parents
    for name in folders:
        named_parts = Path(name).parts
        for path in paths:
            last_parts = path.parts[-len(named_parts) :]
            if last_parts == named_parts:
                return True
    return False


def _turn_recorder_off(arguments: Namespace) -> int:
    """Turns the recorder off, and starts nothing at login any more unless something else needs it."""
    where = arguments.places
    settings = ProgramSettings(where.settings_file)
    settings.change_setting(RECORDER, value=False)
    asyncio.run(ask_resident(where, "recorder"))
    login_start.disable_unneeded_login_start(where)
    return _print_recorder_status(arguments)


def _delete_recorded_conversations(arguments: Namespace) -> int:
    """Runs `conversation delete` in each workspace that may have recordings, and prints what
    all of them removed. Returns the highest exit code.
    """
    program_folders = arguments.places
    delete_command = ["conversation", "delete"] + _words_of_chosen_recordings(arguments)
    console = CollectingConsole()
    if arguments.yes:
        # Copies that could not be imported are recordings, too.
        history_recorder.delete_failed_copies(program_folders)

    highest_code = 0
    for workspace in _list_chosen_workspaces(arguments):
        exit_code = _run_command_in_workspace(
            program_folders, workspace.id, delete_command, console
        )
        highest_code = max(highest_code, exit_code)

    if arguments.json:
        answers = [json.loads(answer) for answer in console.answers]
        print_text(dump_printed_json(_sum_removed(answers), indent=1))
    else:
        print_text(_describe_removed(console.answers, can_come_again=not arguments.yes))
    if console.complaint:
        print_text(console.complaint, file=sys.stderr)
    return highest_code


def _list_chosen_workspaces(arguments: Namespace) -> Sequence[KnownWorkspace]:
    """Returns the workspaces with a folder in one of the given folders, or all of them."""
    workspaces = open_all_workspaces(arguments.places).list_workspaces()
    chosen_folders = _resolve_full_paths(arguments.folder)
    if not chosen_folders:
        return workspaces
    return [workspace for workspace in workspaces if _has_root_within(workspace, chosen_folders)]


def _has_root_within(workspace: KnownWorkspace, folders: Sequence[str]) -> bool:
    for root in workspace.settings.roots:
        if is_folder_within(root, folders):
            return True
    return False


def _describe_removed(answers: Sequence[str], *, can_come_again: bool) -> str:
    """Returns the sentences of the workspaces in which something was removed."""
    lines = [answer for answer in answers if answer != NOTHING_REMOVED]
    if not lines:
        return NOTHING_REMOVED
    if not can_come_again:
        lines.append(NOT_AGAIN)
    return "\n".join(lines)


def _words_of_chosen_recordings(arguments: Namespace) -> list[str]:
    """Returns the options that choose the same conversations in each workspace."""
    words: list[str] = []
    for name in history_kinds_of_agents(arguments.agent):
        words += ["--agent", name]
    words += ["--before", arguments.before or "9999-01-01"]
    if arguments.yes:
        words.append("--yes")
    if arguments.json:
        words.append("--json")
    return words


def _sum_removed(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what was removed in all workspaces: lists are joined, figures added."""
    total: dict[str, Any] = {"conversations": [], "entries": 0, "bytes": 0}
    for answer in answers:
        for name, value in answer.items():
            if name in total:
                total[name] = total[name] + value
            else:
                total[name] = value
    return total


def _run_command_in_workspace(
    where: ProgramFolders, workspace: str, words: Sequence[str], console: Console
) -> int:
    """Runs a command line, such as `conversation import …`, on this workspace."""
    # The first two words are the command's name. Its options follow.
    argv = list(words[:2])
    argv += ["-w", workspace]
    argv += words[2:]
    arguments = commands.build_command_line_parser(argv).parse_args(argv)
    arguments.argv = argv
    arguments.places = where
    return asyncio.run(workspace_access.run_here_or_at_owner(arguments, workspace, console))


def _print_recorder_status(arguments: Namespace, notes: Sequence[str] = ()) -> int:
    """Prints whether the recorder is on, what it reads, and what it could not read."""
    where = arguments.places
    settings = ProgramSettings(where.settings_file)
    places = HistoryPlaces.of_this_user()
    resident_status = asyncio.run(ask_resident(where, "status")) or {}
    running = resident_status.get("recorder") or {}

    folders_that_are_read: list[dict[str, str]] = []
    for kind, folder in history_recorder.list_history_folders_to_record(where, places):
        if folder.is_dir():
            folders_that_are_read.append({"agent": kind, "folder": str(folder)})

    shares = read_share.measure_read_shares(places, where.data)
    shares_as_json = [_read_share_as_json(share) for share in shares]

    unread = list(read_share.sentences_about_unread(where.data, shares))
    status: dict[str, Any] = {
        "on": settings[RECORDER],
        "recording": bool(running),
        "reads": folders_that_are_read,
        "without_agents": settings[RECORDER_WITHOUT_AGENTS].splitlines(),
        "without_folders": settings[RECORDER_WITHOUT_FOLDERS].splitlines(),
        "keeps_in": str(where.workspaces_folder),
        "last_import": running.get("last_import", 0.0),
        "trouble": running.get("trouble", ""),
        "damaged": running.get("damaged", []),
        "keys": running.get("keys", []),
        "unread": unread,
        "read_shares": shares_as_json,
    }

    lines = _describe_status(status)
    lines += notes
    printing = workspace_access.print_result(arguments, Terminal(), status, *lines)
    return asyncio.run(printing)


def _describe_status(status: Mapping[str, Any]) -> list[str]:
    """Returns the lines that `recorder status` prints."""
    lines = [_describe_state_and_reads(status)]
    for read in status["reads"]:
        lines.append(f"- {read['agent']}: {read['folder']}")
    for name in status["without_agents"]:
        lines.append(f"- not recorded: conversations with {name}")
    for name in status["without_folders"]:
        line = f"- not recorded: work in {name}"
        if Path(name).is_absolute() and not Path(name).is_dir():
            line += " (no such folder)"
        lines.append(line)
    lines.append(
        f"Each conversation is saved in the workspace for its folder, in {status['keeps_in']}. Without a project folder (in your home folder, for example), it is saved in “{IMPORTED[0]}”."
    )
    if status["last_import"]:
        lines.append(f"The last recording was at {format_local_time(status['last_import'])}.")
    lines += status["damaged"]
    lines += status["unread"]
    lines += status["keys"]
    if status["trouble"]:
        lines.append(f"The last import failed and will be tried again: {status['trouble']}")
    return lines


def _describe_state_and_reads(status: Mapping[str, Any]) -> str:
    """Says whether the recorder is on. The folders that it reads follow, if there are any."""
    state = "on"
    introduction = "It reads:"
    if not status["on"]:
        state = "off"
        introduction = "It would read:"
    elif not status["recording"]:
        state = "on, but no agent is being recorded at the moment"
    if not status["reads"]:
        introduction = "No conversations from other programs were found on this computer."
    return f"The recorder is {state}. {introduction}"


def _answer_import_requests(arguments: Namespace) -> int:
    """Answers each request, a line of input, with a line of output, until the input ends."""
    where = arguments.places
    # If the resident was killed, its importer may still be working, so wait until it ends.
    claim = running_instance.claim_instance(where.run, CLAIM)
    while claim is None:
        time.sleep(CLAIM_SECONDS)
        claim = running_instance.claim_instance(where.run, CLAIM)

    databases_read: set[FolderOfDatabase] = set()
    check: DailyReadCheck | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if "check" in request:
            if check is None:
                check = _begin_check(where, request["now"])
            answer = _answer_check_request(check, request["check"])
            if answer["is_checked"] is not False:
                check = None
        else:
            answer = _answer_import_request(where, request, databases_read)
        print_text(json.dumps(answer), flush=True)
    claim.close()
    return 0


def _begin_check(where: ProgramFolders, now: float) -> DailyReadCheck:
    """Begins the check of what agents write. Work in folders that are excluded is not read for it."""
    folders = list_history_folders_to_record(where, HistoryPlaces.of_this_user())
    excluded_folders = _folders_not_recorded(where)

    def may_read(kind: str, file: Path) -> bool:
        if not excluded_folders:
            return True
        with suppress(OSError):  # It may have been deleted meanwhile.
            for history in history_finding.find_histories_in_file(kind, file):
                if not is_folder_within(history.folder, excluded_folders):
                    return True
        return False

    return DailyReadCheck(where.data, folders, may_read, now)


def _answer_check_request(check: DailyReadCheck, seconds: float) -> dict[str, object]:
    """Checks more files. `is_checked` is None if what was found could not be kept."""
    try:
        return {"is_checked": check.check_for(seconds), "files_read": check.files_read}
    except OSError as error:
        return {"is_checked": None, "trouble": f"{error.strerror}"}


@dataclass(frozen=True, slots=True)
class FolderOfDatabase:
    """A folder whose conversations are in a database with those of other folders."""

    file: Path
    folder: str


@dataclass(slots=True)
class _ImportOutcome:
    imported: int = 0
    trouble: str = ""
    damaged: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def add_answer(self, workspace: str, answer: Mapping[str, Any]) -> None:
        """Adds what the import into one workspace answered."""
        self.imported += len(answer["imported"])
        for complaint in answer["complaints"]:
            if " is damaged. " in complaint:
                self.damaged.append(complaint)
            if NOT_READ_YET in complaint:
                self.unread.append(complaint)
        remedy = WAY_TO_FORGET.format(workspace)
        for key in answer["keys"]:
            for conversation in key["places"]:
                self.keys.append(f"{KEY} {conversation}: {key['key']}. {remedy}")

    def as_answer(self) -> dict[str, object]:
        return {
            "imported": self.imported,
            "trouble": self.trouble,
            "damaged": self.damaged,
            "keys": self.keys,
            "unread": self.unread,
        }


def _answer_import_request(
    where: ProgramFolders, request: Mapping[str, Any], databases_read: set[FolderOfDatabase]
) -> dict[str, object]:
    """Imports the files of a request into the workspaces of their folders.

    `databases_read`: what this process has read. It reads it again only if it is in use.
    """
    if "copies" in request:
        copies = Path(request["copies"])
        files = list(original_paths_of_copies(copies))
    else:
        copies = where.data / "no-copies"
        files = [Path(name) for name in request["files"]]

    outcome = _ImportOutcome()
    imports = _group_imports_by_workspace(where, files, copies, databases_read)
    for workspace, import_arguments in imports:
        words = ["conversation", "import", "--json"] + import_arguments
        console = CollectingConsole()
        try:
            exit_code = _run_command_in_workspace(where, workspace, words, console)
        except (HelixError, OSError) as error:
            outcome.trouble = str(error)
            continue
        if exit_code != 0:
            outcome.trouble = console.complaint
        else:
            outcome.add_answer(workspace, json.loads(console.answers[-1]))
    if outcome.trouble:
        # The request will come again, so nothing in it counts as read.
        databases_read.clear()
    return outcome.as_answer()


@dataclass(frozen=True, slots=True)
class _ImportTarget:
    """Where conversations go. `only_folder`: of a database, only those of this folder."""

    workspace: str
    only_folder: str | None = None


def _group_imports_by_workspace(
    where: ProgramFolders,
    files: Sequence[Path],
    copies: Path,
    databases_read: set[FolderOfDatabase],
) -> Iterator[tuple[str, list[str]]]:
    """Yields each workspace, made if missing, with the import arguments for its files."""
    excluded_folders = _folders_not_recorded(where)
    history_folders = list_history_folders_to_record(where, HistoryPlaces.of_this_user())
    workspaces = open_all_workspaces(where)
    workspace_of_folder = cache(partial(_find_or_create_workspace_of_folder, workspaces))

    files_by_target: dict[_ImportTarget, list[Path]] = {}
    for file in files:
        copy = path_of_copy(copies, file)
        for history in _find_histories_of_file(file, copy, history_folders):
            if is_folder_within(history.folder, excluded_folders):
                continue
            in_database = FolderOfDatabase(file, history.folder)
            if in_database in databases_read and not _is_in_use(history):
                continue
            only_folder = None
            if file.suffix == ".db":  # A database, in which other folders' conversations are too.
                databases_read.add(in_database)
                only_folder = history.folder
            target = _ImportTarget(workspace_of_folder(history.folder), only_folder)
            files_by_target.setdefault(target, []).append(file)

    for target, files_of_target in files_by_target.items():
        yield target.workspace, _import_arguments(target, files_of_target, copies)


def _is_in_use(history: history_finding.FoundHistories) -> bool:
    return time.time() - history.last <= IN_USE_SECONDS


def _import_arguments(target: _ImportTarget, files: Sequence[Path], copies: Path) -> list[str]:
    """Returns the arguments of `conversation import` for files that go to one workspace."""
    import_arguments = [str(file) for file in files]
    if target.only_folder is not None:
        import_arguments += ["--only-folder", target.only_folder]
    import_arguments += ["--copies", str(copies)]
    return import_arguments


def _folders_not_recorded(where: ProgramFolders) -> list[str]:
    """Returns the user's exclusions as they are written, and with links resolved."""
    settings = ProgramSettings(where.settings_file)
    names: list[str] = []
    full_names: list[str] = []
    for line in settings[RECORDER_WITHOUT_FOLDERS].splitlines():
        name = line.strip()
        if not name:
            continue
        names.append(name)
        if Path(name).expanduser().is_absolute():
            full_names.append(name)
    return names + _resolve_full_paths(full_names)


def _find_histories_of_file(
    file: Path, copy: Path, history_folders: Sequence[tuple[str, Path]]
) -> Iterator[history_finding.FoundHistories]:
    """Yields the histories in a file, read from its copy if there is one."""
    for kind, folder in history_folders:
        if not file.is_relative_to(folder):
            continue
        if copy.is_file():
            yield from history_finding.find_histories_in_file(kind, file, copy)
        elif file.is_file():
            yield from history_finding.find_histories_in_file(kind, file, None)
        return


def _find_or_create_workspace_of_folder(workspaces: AllWorkspaces, name: str) -> str:
    """Returns the workspace of a folder, or the shared one if the folder does not exist
    or is no project.
    """
    known_workspaces = workspaces.list_workspaces()
    folder = Path(name)
    exists = bool(name) and folder.is_absolute() and folder.is_dir()
    if exists and project_workspace.can_be_project_folder(folder, Path.home()):
        project_folder = folder.resolve()
        project = project_workspace.find_project_workspace(known_workspaces, project_folder)
        if project is None:
            project = project_workspace.create_project_workspace(workspaces, project_folder)
        return project.id

    for workspace in known_workspaces:
        if workspace.name in IMPORTED:
            return workspace.id
    return workspaces.create_stored_workspace(IMPORTED[0]).id


def add_recorder_commands(nouns: Subparsers) -> None:
    """Declares `recorder` and its verbs. `recorder --run` is for the background process, which
    starts it to import.
    """
    noun = add_command(nouns, "recorder", "save the conversations of the agents on this computer")
    noun.set_defaults(
        run=_print_recorder_status, json=False, starts=False, process=_answer_import_requests
    )
    noun.add_argument(
        "--run",
        dest="run",
        action="store_const",
        const=_answer_import_requests,
        help=argparse.SUPPRESS,
    )
    verbs = noun.add_subparsers(required=False, metavar="VERB")
    _add_recorder_on(verbs)
    _add_recorder_off(verbs)
    _add_recorder_forget(verbs)
    _add_recorder_status(verbs)


def _add_recorder_on(verbs: Subparsers) -> None:
    """Declares `recorder on`."""
    command = add_command(verbs, "on", "start recording, and import existing conversations")
    command.add_argument("--at-login", action="store_true", help="start recording when you log in")
    command.add_argument(
        "--without-agent",
        metavar="AGENT",
        action="append",
        default=[],
        help="also leave out this agent; what was recorded before is kept; can be repeated",
    )
    command.add_argument(
        "--without-folder",
        metavar="FOLDER",
        action="append",
        default=[],
        help="leave out this folder and its subfolders too; what was recorded before is kept; can be repeated",
    )
    command.add_argument(
        "--with-agent",
        metavar="AGENT",
        action="append",
        default=[],
        help="no longer leave out this agent, and record its existing conversations too; can be repeated",
    )
    command.add_argument(
        "--with-folder",
        metavar="FOLDER",
        action="append",
        default=[],
        help="no longer leave out this folder, and record its existing conversations too; can be repeated",
    )
    add_json_option(command)
    command.set_defaults(run=_turn_recorder_on)


def _add_recorder_off(verbs: Subparsers) -> None:
    command = add_command(verbs, "off", "stop recording, but keep recorded conversations")
    add_json_option(command)
    command.set_defaults(run=_turn_recorder_off)


def _add_recorder_forget(verbs: Subparsers) -> None:
    """Declares `recorder forget`."""
    command = add_command(
        verbs,
        "forget",
        "permanently delete what was recorded, and do not record these conversations again, even if they continue; the agents' own files stay",
    )
    command.add_argument(
        "--folder",
        metavar="FOLDER",
        action="append",
        default=[],
        help="only in the workspaces for this folder and its subfolders",
    )
    add_chosen_recordings_options(command)
    add_json_option(command)
    command.set_defaults(run=_run_recorder_forget)


def _add_recorder_status(verbs: Subparsers) -> None:
    command = add_command(
        verbs,
        "status",
        "show whether the recorder is on, what it reads, and where it saves conversations",
    )
    add_json_option(command)
    command.set_defaults(run=_print_recorder_status)


def _read_share_as_json(share: read_share.ReadShare) -> dict[str, Any]:
    """Returns how much of an agent's files was read, and what was not."""
    return {
        "agent": share.kind,
        "bytes": share.all_files.bytes,
        "read_bytes": share.read_bytes,
        "unread_names": list(share.unread.names),
        "partly_read_files": share.partly_read.count,
        "partly_read_bytes": share.partly_read.bytes,
        "unknown": dict(share.unknown),
    }
