"""`conversation import`, `find`, `imports` and `undo-import`: histories of other programs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop.commands import format_local_time, workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
)
from helix_desktop.commands.workspace_access import insert_options, print_result, run_on_workspace
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console, Terminal, print_text
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.errors import format_things
from helix_desktop.histories import added_formats, history_finding, subagent_files
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_rows import NO_MESSAGES
from helix_desktop.histories.leaked_keys import longest_first, mask_key

if TYPE_CHECKING:
    from helix_desktop.store.stored_workspace import StoredWorkspace
    from helix_desktop.workbench.history_imports import ImportResult

SHOWN = 20  # The maximum number of complaints about a history, and of keys, that are printed.


def run_find_histories(arguments: Namespace) -> int:
    """Lists the conversations of other programs that are on this computer, and databases that
    cannot be read.
    """
    from helix_desktop.extensions.extension_loading import load_extensions_in_thread

    extensions = load_extensions_in_thread(arguments.places)
    _print_to_user(extensions.complaints)
    places = HistoryPlaces.of_this_user()
    histories: list[history_finding.FoundHistories] = []
    for history in history_finding.find_histories(places):
        if history.conversations:
            histories.append(history)
    unread = list(history_finding.find_unread_databases(places))
    lines = list(_describe_histories_by_folder(histories))
    if not lines and unread:
        lines.append("No conversations from other programs that can be read were found.")
    elif not lines:
        lines.append("No conversations from other programs were found on this computer.")
    lines += unread
    # Only when it runs does an extension say which histories it reads, so each is named.
    not_asked = extensions.decisions.describe_those_never_allowed()
    if not_asked:
        lines.append(mark_text(not_asked))
    listed = [{**asdict(history), "path": str(history.path)} for history in histories]
    result = {"unread": unread, "found": listed}
    return asyncio.run(print_result(arguments, Terminal(), result, *lines))


def _describe_histories_by_folder(found: Sequence[history_finding.FoundHistories]) -> Sequence[str]:
    """Returns a line for each program and folder, and one for the total, or nothing if
    no history was found.
    """
    if not found:
        return []
    groups: dict[tuple[str, str], list[history_finding.FoundHistories]] = {}
    for history in found:
        groups.setdefault((history.kind, history.folder), []).append(history)

    lines: list[str] = []
    total_count = 0
    total_size = 0
    for (_kind, folder), histories in sorted(groups.items()):
        count = sum(history.conversations for history in histories)
        size = sum(history.size for history in histories)
        total_count += count
        total_size += size
        first_time = min(history.first for history in histories)
        last_time = max(history.last for history in histories)
        period = f"{_format_day(first_time)} to {_format_day(last_time)}"
        program = histories[0].program
        folder_or_none = folder or "(no folder)"
        lines.append(
            f"{program:<12} {count:>5}  {size / 1e6:>9,.1f} MB  {period}  {folder_or_none}"
        )
    lines.append(f"{total_count:,} conversations found, {total_size / 1e6:,.1f} MB.")
    return lines


def _format_day(time: float) -> str:
    date_and_time = format_local_time(time)
    return date_and_time[:10]


def run_history_import(arguments: Namespace) -> int:
    """Makes the paths absolute: the import may run in another working directory."""
    from helix_desktop.extensions.extension_loading import load_extensions_in_thread

    # An extension may bring the format that is meant, and one that is off could be missed.
    extensions = load_extensions_in_thread(arguments.places)
    _print_to_user(extensions.complaints)
    if arguments.kind and not added_formats.is_kind_of_history(arguments.kind):
        _print_to_user([extensions.decisions.describe_those_never_allowed()])
        added_formats.check_kind_of_history(arguments.kind)

    absolute_paths = {str(path): str(path.absolute()) for path in arguments.paths}
    argv = [absolute_paths.get(word, word) for word in arguments.argv]
    if not arguments.paths and not arguments.watch:
        arguments.paths = _find_history_files()
        arguments.found = True
        argv.append("--found")
        argv += [str(path) for path in arguments.paths]
    arguments.argv = argv
    arguments.paths = [path.absolute() for path in arguments.paths]
    arguments.lasting = arguments.watch
    return workspace_access.run_on_workspace(arguments)


def _print_to_user(sentences: Iterable[str]) -> None:
    """Prints them beside the command's own output. What packages are called is part of them."""
    for sentence in filter(None, sentences):
        print_text(mark_text(sentence), file=sys.stderr)


def _find_history_files() -> list[Path]:
    places = HistoryPlaces.of_this_user()
    histories = history_finding.find_histories(places)
    files_by_session = subagent_files.find_files_of_sessions(history.path for history in histories)
    files: list[Path] = []
    for files_of_session in files_by_session.values():
        files.extend(files_of_session)
    return files


async def import_into_workspace(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Imports once, or with `--watch` until it is stopped. Returns 1 if nothing of what the user
    named was found.
    """
    if arguments.watch:
        return await _import_until_stopped(arguments, workspace, console)
    result = await _import_once(arguments, workspace)
    await _forget_keys_and_print_result(arguments, workspace, result, console)
    is_named_by_user = arguments.copies is None and not arguments.found
    is_nothing_found = not result.imported and not result.unchanged_conversations
    if is_named_by_user and is_nothing_found:
        return 1
    return 0


async def _import_once(arguments: Namespace, workspace: StoredWorkspace) -> ImportResult:
    """Imports all. If it is stopped, the next process that runs this command line continues."""
    from helix_desktop.workbench.history_imports import ImportResult, new_import_name
    from helix_desktop.workbench.session_import import ImportedConversation

    # What was imported before this command line was stopped.
    earlier: dict[str, Any] = json.loads(arguments.earlier or "{}")
    imported_earlier = [ImportedConversation(**row) for row in earlier.get("imported", ())]
    values: dict[str, Any] = {"run": new_import_name()}
    values.update(earlier)
    values["imported"] = imported_earlier
    values["here"] = set(earlier.get("here", ()))
    result = ImportResult(**values)
    work = _import_all(arguments, workspace, result)
    importing = OwnedTasks("import").spawn_task(work, name="import histories")
    arguments.stop_work = importing.cancel
    try:
        return await importing
    except asyncio.CancelledError:
        arguments.earlier = json.dumps(asdict(result), default=list)
        arguments.argv = insert_options(arguments.argv, "--earlier", arguments.earlier)
        raise
    finally:
        arguments.stop_work = None


async def _import_all(
    arguments: Namespace, workspace: StoredWorkspace, result: ImportResult
) -> ImportResult:
    """Reads the files and adds what is new to the workspace, through its open workbench if
    there is one.

    First it is decided which files are read, then of which program each is, and which of them
    the user has named. `--copies` names a folder with copies that the recorder has made, as an
    agent may have deleted its files since.
    """
    from helix_desktop import token_counting, workbench
    from helix_desktop.extensions.extension_loading import load_extensions_once
    from helix_desktop.workbench.history_imports import HistoryImport, find_files_to_import
    from helix_desktop.workbench.session_preparation import SessionPreparation

    await load_extensions_once(arguments.places)
    places = history_finding.history_folders(HistoryPlaces.of_this_user())
    if arguments.copies is not None:
        files = arguments.paths
    elif arguments.paths:
        files = await asyncio.to_thread(find_files_to_import, arguments.paths)
    else:
        files = _find_history_files()

    kinds: dict[str, str] = {}
    for file in files:
        kinds[str(file)] = arguments.kind or history_finding.find_kind_by_folder(places, file)
    only_folders: frozenset[str] = frozenset()
    if arguments.only_folder is not None:
        only_folders = frozenset({arguments.only_folder})
    named_by_user: frozenset[Path] = frozenset()
    if not arguments.copies and not arguments.found:
        named_by_user = frozenset(arguments.paths)

    preparation = SessionPreparation(
        kinds=kinds,
        wanted_folders=dict.fromkeys(kinds, only_folders),
        copies=arguments.copies,
        named=named_by_user,
        program_folders=arguments.places,
    )
    bench = workbench.workbench_of(workspace)
    if bench is not None:
        return await bench.import_histories(files, preparation=preparation, result=result)
    counter = token_counting.shared_token_counter()  # Shared with the workspace's index.
    return await HistoryImport(workspace, counter, preparation, result=result).import_files(files)


async def _import_until_stopped(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Imports now and after each change to a file, until Ctrl+C, and then prints the result."""
    import watchfiles

    imported_ids: set[str] = set()
    has_imported = False
    changes = watchfiles.awatch(
        *_folders_to_watch(arguments.paths),
        step=200,
        debounce=1_000,
        rust_timeout=500,
        yield_on_timeout=True,
    )
    try:
        # The first value arrives once the folders are being watched, so that no change is missed.
        async for changed in changes:
            if has_imported and not changed:
                continue
            result = await _import_once(arguments, workspace)
            for conversation in result.imported:
                imported_ids.add(conversation.id)
            if result.imported or not has_imported:
                await _forget_keys_and_print_result(arguments, workspace, result, console)
            has_imported = True
    except asyncio.CancelledError:
        # Ctrl+C is the usual end of this command, and no error.
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        if not arguments.json:
            await console.print_line(
                f"Stopped watching. New or changed conversations: {len(imported_ids):,}."
            )
    return 0


def _folders_to_watch(paths: Sequence[Path]) -> set[Path]:
    """Returns the folders of the given files, or all in which agents write."""
    if paths:
        folders_named: set[Path] = set()
        for path in paths:
            if path.is_dir():
                folders_named.add(path)
            else:
                folders_named.add(path.parent)
        return folders_named

    places = HistoryPlaces.of_this_user()
    folders: list[Path] = []
    for folders_of_program in history_finding.history_folders(places).values():
        folders += folders_of_program
    for added_format in added_formats.list_added_formats():
        folders += added_formats.folders_of_format(added_format, places.home)
    return {folder for folder in folders if folder.is_dir()}


async def _forget_keys_and_print_result(
    arguments: Namespace, workspace: StoredWorkspace, result: ImportResult, console: Console
) -> None:
    """Forgets what looks like a key, if the user wants that, and prints what was imported."""
    forgotten = 0
    places_left: list[str] = []
    if arguments.forget_keys:
        from helix_desktop.commands.forget_command import forget_everywhere

        for key in longest_first(result.keys):
            removed = await forget_everywhere(arguments.places, workspace, text=key)
            places_left += removed.elsewhere
        forgotten = len(result.keys)

    complaints = list(dict.fromkeys(result.complaints))
    keys: list[dict[str, object]] = []
    masked_keys: list[str] = []
    for key, counts in result.keys.items():
        masked_key = mask_key(key)
        masked_keys.append(masked_key)
        keys.append({"key": masked_key, "places": counts})
    printed_result: dict[str, Any] = {
        "run": result.run,
        "imported": [asdict(conversation) for conversation in result.imported],
        "unchanged": len(result.unchanged_conversations),
        "complaints": complaints,
        "keys": keys,
        "forgotten": forgotten,
        "elsewhere": list(dict.fromkeys(places_left)),
    }
    if not arguments.json:
        for place in dict.fromkeys(places_left):
            await console.print_error(place)
        for complaint in _describe_complaints(complaints):
            await console.print_error(complaint)
    lines = list(_describe_imported(result))
    lines += _describe_keys(masked_keys, forgotten)
    await print_result(arguments, console, printed_result, *lines)


def _describe_imported(result: ImportResult) -> Iterator[str]:
    for conversation in result.imported:
        counts = f"{conversation.messages:>5} messages {conversation.outputs:>5} outputs"
        yield f"{conversation.id}  {counts}  {conversation.title or conversation.path}"
    imported = len(result.imported)
    known = len(result.unchanged_conversations)
    yield f"{imported:,} imported (import {result.run}); {known:,} had already been imported."


def _describe_keys(masked_keys: Sequence[str], forgotten: int) -> Iterator[str]:
    mark = ""
    if forgotten:
        mark = " (forgotten)"
    for key in masked_keys[:SHOWN]:
        yield f"This looks like a key: {key}{mark}"
    if masked_keys and not forgotten:
        yield "To remove these keys, use `helix-desktop forget`, or import again with --forget-keys."


def _describe_complaints(complaints: Sequence[str]) -> Iterator[str]:
    unusual = [complaint for complaint in complaints if NO_MESSAGES not in complaint]
    yield from unusual[:SHOWN]
    if len(unusual) > SHOWN:
        yield f"… and {len(unusual) - SHOWN} more; --json lists all of them."
    files = len(complaints) - len(unusual)
    if files:  # Lines without a message are normal, so a sentence for each file is too much.
        names = format_things(files, "file", "files")
        yield f"Lines that are not messages, in {names}, are kept in the cache as they are. --json lists them."


async def print_past_imports(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Lists the imports into this workspace, with the IDs by which they can be undone."""
    from helix_desktop.workbench.history_imports import list_import_runs

    listed: list[dict[str, Any]] = []
    lines: list[str] = []
    for run, count, is_undone in await list_import_runs(workspace):
        listed.append({"run": run, "conversations": count, "undone": is_undone})
        line = f"{run}  {format_things(count, 'conversation', 'conversations'):>19}"
        if is_undone:
            line += "  (undone)"
        lines.append(line)
    if not lines:
        lines.append("Nothing has been imported.")
    return await print_result(arguments, console, listed, *lines)


async def undo_named_import(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Undoes an import, in the open workbench if there is one, and says what could not be undone."""
    from helix_desktop import workbench
    from helix_desktop.workbench import history_imports

    bench = workbench.workbench_of(workspace)
    if bench is not None:
        count, stayed = await bench.undo_import_run(arguments.import_run)
    else:
        count, stayed = await history_imports.undo_import(workspace, arguments.import_run)
    if not arguments.json:
        for sentence in stayed:
            await console.print_error(sentence)
    conversations = format_things(count, "conversation", "conversations")
    line = (
        f"The import of {conversations} was undone. Newly imported conversations are in the trash."
    )
    return await print_result(arguments, console, {"undone": count, "stayed": stayed}, line)


def add_conversation_import(verbs: Subparsers) -> None:
    """Declares `conversation import`. The options without help are those with which this
    program's own processes call it.
    """
    command = add_command(
        verbs, "import", "import conversations from other programs, except those already imported"
    )
    add_workspace_option(command)
    command.add_argument(
        "paths",
        metavar="PATH",
        type=Path,
        nargs="*",
        help="a file or a folder (default: everything that `conversation find` lists)",
    )
    command.add_argument(
        "--from",
        metavar="KIND",
        dest="kind",
        default="",
        help=f"the files' program or format, if it is not detected: {', '.join(added_formats.OWN_KINDS)}, or that of an extension",
    )
    command.add_argument(
        "--watch",
        action="store_true",
        help="keep importing new conversations until you press Ctrl+C",
    )
    command.add_argument(
        "--forget-keys",
        action="store_true",
        help="after the import, permanently remove everything that looks like a key",
    )
    command.add_argument("--found", action="store_true", help=argparse.SUPPRESS)
    command.add_argument(
        "--copies", metavar="FOLDER", type=Path, default=None, help=argparse.SUPPRESS
    )
    command.add_argument("--only-folder", metavar="FOLDER", default=None, help=argparse.SUPPRESS)
    command.add_argument("--earlier", metavar="RESULT", default="", help=argparse.SUPPRESS)
    add_json_option(command)
    command.set_defaults(run=run_history_import, work=import_into_workspace, counts=True)


def add_conversation_find(verbs: Subparsers) -> None:
    command = add_command(verbs, "find", "list conversations from other programs on this computer")
    add_json_option(command)
    command.set_defaults(run=run_find_histories)


def add_conversation_imports(verbs: Subparsers) -> None:
    command = add_command(verbs, "imports", "list imports, newest first")
    add_workspace_option(command)
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=print_past_imports, counts=False)


def add_conversation_undo_import(verbs: Subparsers) -> None:
    """Declares `conversation undo-import`."""
    command = add_command(
        verbs, "undo-import", "undo an import and move its conversations to the trash"
    )
    add_workspace_option(command)
    command.add_argument(
        "import_run", metavar="IMPORT", help="the import's ID, as shown by `conversation imports`"
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=undo_named_import, counts=False)
