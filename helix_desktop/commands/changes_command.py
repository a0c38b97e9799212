"""`changes`: what the agent changed in the workspace's folders, as a list or a patch,
and how to undo it.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
    add_yes_option,
)
from helix_desktop.commands.workspace_access import print_result, run_on_workbench, run_on_workspace
from helix_desktop.console import Console
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    printable_path,
)
from helix_desktop.engine.facts import ModelReplied, ToolCall, ToolReturned
from helix_desktop.errors import InvalidInput, NotFound, format_things
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.tool_translation import edited_files_of_call

if TYPE_CHECKING:
    from helix_desktop.workbench import Workbench
    from helix_desktop.workbench.undo_and_change_list import FileChanges


async def _print_turns_with_files(bench: Workbench, arguments: Namespace, console: Console) -> int:
    """Lists the chosen turns with the files that each changed, and what a foreign agent edited."""
    conversation, changes = await _find_conversation_with_changes(bench, arguments, console)
    turns: list[dict[str, object]] = []
    lines: list[str] = []
    for turn in await _chosen_turns_of_changes(changes, arguments, conversation):
        files = await changes.file_changes_of_steps(turn.sources)
        described_files = [_describe_file_change(file) for file in files]
        turns.append({"turn": turn.number, "message": turn.title, "files": described_files})
        heading = f"Turn {turn.turn_numbers}: {turn.title}"
        if not files:
            heading += " (undone)"
        lines.append(heading)
        for file in files:
            lines.append(_line_of_file_change(file))

    not_covered: list[dict[str, str]] = []
    if arguments.json and not getattr(arguments, "is_on_copy", False):
        not_covered = await _list_paths_without_undo(changes)
    edits = await _list_edits_of_agent(bench, conversation)
    for edit in edits:
        lines.append(f"  [{edit['seq']}] {edit['tool']}  {edit['path']}")

    if not lines:
        title = conversation
        row = bench.conversation_row(conversation)
        if row:
            title = row.title
        lines.append(f"No changes to files were recorded in {title}.")
    result = {
        "conversation": conversation,
        "turns": turns,
        "not_covered": not_covered,
        "edits": edits,
    }
    return await print_result(arguments, console, result, *lines)


async def _list_paths_without_undo(changes: FileChanges) -> list[dict[str, str]]:
    """Lists what checkpoints leave out. To know it, all files are stored, for which a full disk
    has no room.
    """
    await changes.prepare_checkpoints()
    uncovered_paths = changes.list_uncovered_paths()
    return [{"path": uncovered.path, "why": uncovered.why} for uncovered in uncovered_paths]


def _line_of_file_change(file: FileChange) -> str:
    """Returns a line such as `changed  +12  -3  main.py (was old.py)`."""
    line = (
        f"  {file.change_word:<8} +{file.added:<6} -{file.removed:<6} {printable_path(file.place)}"
    )
    if not file.renamed:
        return line
    # The change of the old place, which is empty now, names the new one, and the other way round.
    relation = "was"
    if file.change.after is None:
        relation = "now"
    return f"{line} ({relation} {printable_path(file.renamed)})"


async def _list_edits_of_agent(bench: Workbench, conversation: str) -> list[dict[str, object]]:
    """Lists the files that a connected or recorded agent's calls wrote, unless a call failed."""
    row = await bench.workspace.journal.find_conversation(conversation)
    if not await workspace_access.read_agent_of_conversation(bench.workspace, row):
        return []
    recorded_facts = await bench.read_conversation_facts(conversation)
    failed_calls: set[str] = set()
    for recorded in recorded_facts:
        if isinstance(recorded.fact, ToolReturned) and not recorded.fact.ok:
            failed_calls.add(recorded.fact.call)

    edits: list[dict[str, object]] = []
    for recorded in recorded_facts:
        if not isinstance(recorded.fact, ModelReplied):
            continue
        for part in recorded.fact.parts:
            if not isinstance(part, ToolCall) or part.id in failed_calls:
                continue
            for path in edited_files_of_call(part):
                edits.append({"seq": recorded.seq, "tool": part.name, "path": path})
    return edits


async def _print_patch(bench: Workbench, arguments: Namespace, console: Console) -> int:
    chosen = await _choose_file_changes(bench, arguments, console)
    patch = await chosen.changes.build_git_patch(chosen.files)
    if not arguments.json:
        await console.write_output(patch)
    return await print_result(arguments, console, {"patch": patch.decode("utf-8", "replace")})


async def _restore_files(bench: Workbench, arguments: Namespace, console: Console) -> int:
    """Undoes the chosen changes with `--yes`, and otherwise prints what would be done."""
    chosen = await _choose_file_changes(bench, arguments, console)
    if not chosen.files:
        nothing: dict[str, list[str]] = {"restored": [], "left": []}
        return await print_result(arguments, console, nothing, "There is nothing to restore.")
    await chosen.changes.prepare_checkpoints()
    plan = await chosen.changes.plan_undo(chosen.files)
    if not arguments.yes:
        await _print_restore_plan(chosen.files, plan, arguments, console)
        return workspace_access.ASKING

    choices = {planned.path: arguments.conflicts for planned in plan}
    undone = await chosen.changes.undo_file_changes(
        chosen.files, conversation=chosen.conversation, choices=choices
    )
    restored = [printable_path(path) for path in undone.restored]
    left_alone: list[dict[str, str]] = []
    for path, reason in undone.paths_left_alone:
        left_alone.append({"path": printable_path(path), "why": reason})
    result = {"restored": restored, "left": left_alone}
    count = format_things(len(restored), "file or folder was", "files and folders were")
    await print_result(arguments, console, result, f"{count} restored.")
    if not arguments.json:
        for left in left_alone:
            await console.print_error(f"{left['path']} was not changed: {left['why']}.")
    if left_alone:
        return 1
    return 0


async def _print_restore_plan(
    files: Sequence[FileChange], plan: Sequence[PlannedUndo], arguments: Namespace, console: Console
) -> None:
    """Prints for each file whether it would be restored, and how a later change would be treated."""
    sentences_of_conflict = {
        "now": "has changed since then and would be left as it is",
        "before": "has changed since then and would be restored anyway",
        "merge": "has changed since then; only the agent's changes would be undone",
    }
    sentences = {
        "restore": "would be restored",
        "already": "has not changed",
        "conflict": sentences_of_conflict[arguments.conflicts],
    }
    printable_paths = {file.path_of_change: printable_path(file.place) for file in files}
    lines = []
    result = []
    for planned in plan:
        path = printable_paths[planned.path]
        how = planned.how.value
        lines.append(f"{path} {sentences[how]}")
        result.append({"path": path, "how": how})
    await print_result(arguments, console, result, *lines)


@dataclass(frozen=True, slots=True)
class _ChosenFileChanges:
    """The changed files that the command names, or all of them, and where they are changed."""

    files: Sequence[FileChange]
    conversation: str
    changes: FileChanges


async def _choose_file_changes(
    bench: Workbench, arguments: Namespace, console: Console
) -> _ChosenFileChanges:
    """Finds the changes of the chosen turns, and of those the files that the user named.
    Refuses a path at which nothing was changed.
    """
    conversation, changes = await _find_conversation_with_changes(bench, arguments, console)
    sources: list[ChangeSource] = []
    for turn in await _chosen_turns_of_changes(changes, arguments, conversation):
        sources += turn.sources
    files = await changes.changes_with_folders(sources)

    for path in arguments.paths:
        files_at_path = [file for file in files if _is_file_named(file, [path])]
        if not files_at_path:
            raise NotFound(f"No change of {path} can be shown or undone here.", remedy="To see the changed files, run `changes list`.")  # fmt: skip
    chosen_files = [file for file in files if _is_file_named(file, arguments.paths)]
    return _ChosenFileChanges(chosen_files, conversation, changes)


async def _chosen_turns_of_changes(
    changes: FileChanges, arguments: Namespace, conversation: str
) -> Sequence[TurnOfChanges]:
    """Returns the turn that `--turn` names, by its number or as the last one, or all of them."""
    turns = await changes.turns_with_changes(conversation)
    if arguments.turn == "last":
        return turns[-1:]
    if not arguments.turn:
        return turns
    if not arguments.turn.isdecimal():
        raise InvalidInput(
            f"There is no turn {arguments.turn}.",
            remedy="Enter the number of a turn, or `last`.",
        )
    number = int(arguments.turn)
    turns_with_number = [turn for turn in turns if turn.number <= number <= turn.last]
    if not turns_with_number:
        raise NotFound(f"Turn {arguments.turn} in this conversation did not change any files.")
    return turns_with_number


async def _find_conversation_with_changes(
    bench: Workbench, arguments: Namespace, console: Console
) -> tuple[str, FileChanges]:
    """Finds a conversation, or without a name the newest one, with the changes in its folders."""
    if arguments.conversation:
        name = await workspace_access.find_conversation_by_prefix(
            bench.workspace, arguments.conversation
        )
    else:
        name = _newest_conversation(bench)
    row = await bench.workspace.journal.find_conversation(name)
    agent = await workspace_access.read_agent_of_conversation(bench.workspace, row)
    if agent:
        await console.print_error(
            f"{name} is a conversation of {agent}: what its tools edited is listed, and cannot be undone here."
        )
    await bench.open_session(name)
    return name, bench.file_changes_of(name)


def _newest_conversation(bench: Workbench) -> str:
    for row in bench.list_conversations():
        if not (row.trashed or row.archived or row.parent):
            return row.id
    raise NotFound(f"There is no conversation in {bench.name}.")


def _is_file_named(file: FileChange, paths: Sequence[str]) -> bool:
    """Whether the file is one of `paths`, or in one of these folders."""
    if not paths:
        return True
    for path in paths:
        folder_or_file = path.rstrip("/").removeprefix("./")
        if file.place == folder_or_file or file.place.startswith(f"{folder_or_file}/"):
            return True
    return False


def _describe_file_change(file: FileChange) -> dict[str, object]:
    return {
        "path": printable_path(file.place),
        "change": file.change_word,
        "added": file.added,
        "removed": file.removed,
        "by": file.by,
    }


def add_changes_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "changes", "show and undo the changes that agents made to your files")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_changes_list(verbs)
    _add_changes_show(verbs)
    _add_changes_restore(verbs)


def _add_changes_list(verbs: Subparsers) -> None:
    """Declares `changes list`."""
    command = add_command(verbs, "list", "list the turns that changed files, each with its files")
    add_workspace_option(command)
    command.add_argument(
        "--conversation",
        "-c",
        metavar="C",
        default="",
        help="the conversation's ID or title (default: the newest one)",
    )
    command.add_argument(
        "--turn", metavar="N", default="", help="the number of a turn, or last (default: all turns)"
    )
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace,
        work=partial(run_on_workbench, _print_turns_with_files),
        counts=False,
        reads=True,
    )


def _add_changes_show(verbs: Subparsers) -> None:
    """Declares `changes show`."""
    command = add_command(verbs, "show", "print the changes as a patch for `git apply`")
    add_workspace_option(command)
    command.add_argument("paths", metavar="PATH", nargs="*", help="only these files")
    command.add_argument(
        "--conversation",
        "-c",
        metavar="C",
        default="",
        help="the conversation's ID or title (default: the newest one)",
    )
    command.add_argument(
        "--turn", metavar="N", default="", help="the number of a turn, or last (default: all turns)"
    )
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=partial(run_on_workbench, _print_patch), counts=False, reads=True
    )


def _add_changes_restore(verbs: Subparsers) -> None:
    """Declares `changes restore`."""
    command = add_command(
        verbs, "restore", "restore files to their state before the agent changed them"
    )
    add_workspace_option(command)
    command.add_argument("paths", metavar="PATH", nargs="*", help="only these files")
    command.add_argument(
        "--conversation",
        "-c",
        metavar="C",
        default="",
        help="the conversation's ID or title (default: the newest one)",
    )
    command.add_argument(
        "--turn", metavar="N", default="", help="the number of a turn, or last (default: all turns)"
    )
    add_yes_option(command)
    command.add_argument(
        "--conflicts",
        choices=["now", "before", "merge"],
        default="now",
        help="what to do with files that were changed later: leave them unchanged (default), restore them anyway, or undo only the agent's changes",
    )
    add_json_option(command)
    command.set_defaults(
        run=run_on_workspace, work=partial(run_on_workbench, _restore_files), counts=False
    )
