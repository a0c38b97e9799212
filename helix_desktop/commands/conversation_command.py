"""`conversation`: list those of a workspace, bring in those of other programs; what changed in the context of one between two moments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from helix_desktop.commands import conversation_restore_command, format_local_minute, history_import_commands
from helix_desktop.commands.conversation_restore_command import find_conversation_by_prefix
from helix_desktop.commands.workspace_access import add_workspace_verb, print_json
from helix_desktop.console import Console
from helix_desktop.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from helix_desktop.commands import Subparsers
    from helix_desktop.engine.blocks import Block
    from helix_desktop.engine.view_difference import ViewChange
    from helix_desktop.store.stored_workspace import StoredWorkspace

SHOWN = 60  # How many characters of each block are shown.


def add_conversation_command(nouns: Subparsers) -> None:
    noun = nouns.add_parser("conversation", help="list, compare, import and export conversations")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    add_workspace_verb(
        verbs, "list", "list conversations, most recently changed first", print_conversation_list
    ).set_defaults(reads=True)
    one = add_workspace_verb(
        verbs,
        "difference",
        "show what was added to, removed from or folded in the context between two facts",
        print_context_difference,
    )
    one.add_argument("conversation", metavar="CONVERSATION", help="the conversation's ID, or the first part of it")
    one.add_argument("before", type=int, metavar="FROM", help="the number of the fact to start the comparison from")
    one.add_argument(
        "after", type=int, nargs="?", metavar="TO", help="the number of the fact to compare with (default: the newest)"
    )
    one.set_defaults(reads=True)
    history_import_commands.add_history_import_commands(verbs)
    conversation_restore_command.add_restore_command(verbs)
    written = add_workspace_verb(
        verbs,
        "export",
        "write a conversation to standard output in another program's format, one line per message",
        export_conversation_file,
    )
    written.set_defaults(reads=True)
    written.add_argument("conversation", metavar="CONVERSATION", help="the conversation's ID, or the first part of it")
    written.add_argument("--as", dest="form", choices=("claude-code", "openai"), default="openai", help="openai: chat completions messages; claude-code: a session for ~/.claude/projects/FOLDER/SESSION.jsonl")  # fmt: skip


async def print_conversation_list(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    rows = await workspace.journal.list_conversations()
    if arguments.json:
        await print_json(
            console,
            [
                {"id": row.id, "title": row.title or row.begins, "updated": row.updated, "parent": row.parent}
                for row in rows
            ],
        )
        return 0
    for row in rows:
        when = format_local_minute(row.updated)
        await console.print_line(f"{row.id}  {when}  {row.title or row.begins}".rstrip())
    return 0


async def export_conversation_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    import json
    from contextlib import suppress

    from helix_desktop.errors import CacheCorrupt
    from helix_desktop.histories import claude_code_writer, session_export

    facts = await workspace.journal.read_facts(await find_conversation_by_prefix(workspace, arguments.conversation))
    contents = {}
    for digest in session_export.entries_needed_for_export(facts):
        with suppress(NotFound, CacheCorrupt):
            contents[digest] = await workspace.cache.read_content(digest)
    folder = next(iter(workspace.settings.roots), "")
    is_claude = arguments.form == "claude-code"
    write = claude_code_writer.export_claude_code_lines if is_claude else session_export.openai_lines
    lines = list(write(facts, contents.get, folder))
    if arguments.json:
        await print_json(console, lines)
        return 0
    for line in lines:
        await console.print_line(json.dumps(line, ensure_ascii=False))
    return 0


async def print_context_difference(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.engine import view_difference as differences
    from helix_desktop.engine.view import build_state

    name = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(name)
    before, after = arguments.before, len(facts) if arguments.after is None else arguments.after
    if not 0 <= before <= len(facts) or not 0 <= after <= len(facts):
        raise InvalidInput(
            f"This conversation has {len(facts):,} facts.", remedy=f"Use numbers from 0 to {len(facts)}."
        )
    state = build_state(facts)
    found = differences.compare_views(state.past_moment(before).take_view(), state.past_moment(after).take_view())
    if arguments.json:
        changes = [_describe_view_change(change) for change in found.changes]
        await print_json(console, {"before": found.before, "after": found.after, "changes": changes})
        return 0
    for change in found.changes:
        await console.print_line(f"{change.change_kind:<18} {change.added_tokens:>+9,}  {_format_view_change(change)}")
    await console.print_line(f"{found.before:,} tokens at {before}, {found.after:,} at {after}: {found.net_tokens:+,}")
    return 0


def _format_view_change(change: ViewChange) -> str:
    sides = [_describe_blocks(side) for side in (change.before, change.after) if side]
    return " → ".join(sides)


def _describe_blocks(blocks: Iterable[Block]) -> str:
    """How many parts, and what the first says."""
    first, *more = blocks
    low, high = _covered_fact_range(first)
    place = f"{low}" if low == high else f"{low}–{high}"
    name = first.fold or first.role.value
    rest = f" and {len(more)} more" if more else ""
    return f"{name} [{place}] {_first_words_of_block(first)}{rest}".strip()


def _first_words_of_block(block: Block) -> str:
    words = " ".join(str(getattr(block.content, "text", "") or getattr(block.content, "name", "")).split())
    return words if len(words) <= SHOWN else f"{words[: SHOWN - 1]}…"


def _describe_view_change(change: ViewChange) -> dict[str, object]:
    def blocks_as_json(blocks: Iterable[Block]) -> list[dict[str, object]]:
        return [
            {"kind": block.kind.value, "fold": block.fold, "tokens": block.tokens, "source": _covered_fact_range(block)}
            for block in blocks
        ]

    return {
        "how": change.change_kind.value,
        "tokens": change.added_tokens,
        "before": blocks_as_json(change.before),
        "after": blocks_as_json(change.after),
    }


def _covered_fact_range(block: Block) -> list[int]:
    """The first and the last fact it covers."""
    from helix_desktop.engine.history.covers import first_and_last

    return list(first_and_last(block.source))
