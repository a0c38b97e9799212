"""`conversation`: list those of a workspace, bring in those of other programs; what changed in the context of one between two moments."""

import argparse
import json
from collections.abc import Iterable

from helix_desktop.commands import (
    CONVERSATION,
    Options,
    Subparsers,
    conversation_restore_command,
    format_local_minute,
    history_import_commands,
)
from helix_desktop.commands.workspace_access import add_workspace_verb, find_conversation_by_prefix, print_result
from helix_desktop.console import Console
from helix_desktop.engine import view_difference as differences
from helix_desktop.engine.blocks import Block
from helix_desktop.engine.history.covers import first_and_last
from helix_desktop.engine.view import build_state
from helix_desktop.engine.view_difference import ViewChange
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import claude_code_writer, session_export
from helix_desktop.store.stored_workspace import StoredWorkspace

SHOWN = 60  # How many characters of each block are shown.


def add_conversation_command(nouns: Subparsers) -> None:
    noun = nouns.add_parser("conversation", help="list, compare, import and export conversations")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    sentence = "list conversations, most recently changed first"
    add_workspace_verb(verbs, "list", sentence, print_conversation_list, reads=True)
    sentence = "show what was added to, removed from or folded in the context between two facts"
    options: Options = {
        **CONVERSATION,
        "FROM": {"dest": "before", "type": int, "help": "the number of the fact to start the comparison from"},
        "[TO]": {"dest": "after", "type": int, "help": "the number of the fact to compare with (default: the newest)"},
    }
    add_workspace_verb(verbs, "difference", sentence, print_context_difference, options, reads=True)
    history_import_commands.add_history_import_commands(verbs)
    conversation_restore_command.add_restore_command(verbs)
    forms = "openai: chat completions messages; claude-code: a session for ~/.claude/projects/FOLDER/SESSION.jsonl"
    options = {**CONVERSATION, "--as openai|claude-code": {"dest": "form", "help": forms}}
    sentence = "write a conversation to standard output in another program's format, one line per message"
    add_workspace_verb(verbs, "export", sentence, export_conversation_file, options, reads=True)


async def print_conversation_list(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    rows = await workspace.journal.list_conversations()
    told = [
        {"id": row.id, "title": row.title or row.begins, "updated": row.updated, "parent": row.parent} for row in rows
    ]
    lines = [f"{row.id}  {format_local_minute(row.updated)}  {row.title or row.begins}".rstrip() for row in rows]
    return await print_result(arguments, console, told, *lines)


async def export_conversation_file(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    facts = await workspace.journal.read_facts(await find_conversation_by_prefix(workspace, arguments.conversation))
    contents = await conversation_restore_command.read_exported_entries(workspace, facts)
    folder = next(iter(workspace.settings.roots), "")
    is_claude = arguments.form == "claude-code"
    write = claude_code_writer.export_claude_code_lines if is_claude else session_export.openai_lines
    lines = list(write(facts, contents.get, folder))
    return await print_result(arguments, console, lines, *(json.dumps(line, ensure_ascii=False) for line in lines))


async def print_context_difference(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    name = await find_conversation_by_prefix(workspace, arguments.conversation)
    facts = await workspace.journal.read_facts(name)
    before, after = arguments.before, len(facts) if arguments.after is None else arguments.after
    if not 0 <= before <= len(facts) or not 0 <= after <= len(facts):
        raise InvalidInput(
            f"This conversation has {len(facts):,} facts.", remedy=f"Use numbers from 0 to {len(facts)}."
        )
    state = build_state(facts)
    old, new = state.past_moment(before), state.past_moment(after)
    found = differences.compare_views(old.take_view(), new.take_view())
    changes = [_describe_view_change(change) for change in found.changes]
    lines = [
        f"{change.change_kind:<18} {change.added_tokens:>+9,}  {_format_view_change(change)}"
        for change in found.changes
    ]
    net = new.counted_tokens - old.counted_tokens
    lines.append(f"{old.counted_tokens:,} tokens at {before}, {new.counted_tokens:,} at {after}: {net:+,}")
    result = {"before": old.counted_tokens, "after": new.counted_tokens, "changes": changes}
    return await print_result(arguments, console, result, *lines)


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
    return list(first_and_last(block.source))
