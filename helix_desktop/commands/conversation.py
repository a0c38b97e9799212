"""`conversation`: list those of a workspace, bring in those of other programs; what changed in the context of one between two moments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from helix_desktop.commands import bringing_in, minute
from helix_desktop.commands.open_workspace import say_json, verb
from helix_desktop.console import Console
from helix_desktop.errors import Ambiguous, NotThere, WrongUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from helix_desktop.commands import Subparsers
    from helix_desktop.engine.blocks import Block
    from helix_desktop.engine.difference import Change
    from helix_desktop.store.workspace import Workspace

SHOWN = 60  # characters of what a block says


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("conversation", help="list, compare, import and export conversations")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    verb(verbs, "list", "list conversations, most recently changed first", list_all).set_defaults(reads=True)
    one = verb(
        verbs,
        "difference",
        "show what was added to, removed from or folded in the context between two facts",
        difference,
    )
    one.add_argument("conversation", metavar="CONVERSATION", help="the conversation's ID, or the first part of it")
    one.add_argument("before", type=int, metavar="FROM", help="the number of the fact to start the comparison from")
    one.add_argument(
        "after", type=int, nargs="?", metavar="TO", help="the number of the fact to compare with (default: the newest)"
    )
    one.set_defaults(reads=True)
    bringing_in.add(verbs)
    written = verb(
        verbs,
        "export",
        "write a conversation to standard output in another program's format, one line per message",
        export,
    )
    written.set_defaults(reads=True)
    written.add_argument("conversation", metavar="CONVERSATION", help="the conversation's ID, or the first part of it")
    written.add_argument("--as", dest="form", choices=("claude-code", "openai"), default="openai", help="openai: chat completions messages; claude-code: a session for ~/.claude/projects/FOLDER/SESSION.jsonl")  # fmt: skip


async def list_all(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    rows = await workspace.journal.conversations()
    if arguments.json:
        await say_json(
            console,
            [
                {"id": row.id, "title": row.title or row.begins, "updated": row.updated, "parent": row.parent}
                for row in rows
            ],
        )
        return 0
    for row in rows:
        when = minute(row.updated)
        await console.say(f"{row.id}  {when}  {row.title or row.begins}".rstrip())
    return 0


async def export(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    import json
    from contextlib import suppress

    from helix_desktop.errors import CacheCorrupt
    from helix_desktop.histories import writing

    facts = await workspace.journal.read(await _named(workspace, arguments.conversation))
    contents = {}
    for digest in writing.named(facts):
        with suppress(NotThere, CacheCorrupt):
            contents[digest] = await workspace.cache.get(digest)
    folder = next(iter(workspace.settings.roots), "")
    write = writing.claude_code if arguments.form == "claude-code" else writing.openai
    lines = list(write(facts, contents.get, folder))
    if arguments.json:
        await say_json(console, lines)
        return 0
    for line in lines:
        await console.say(json.dumps(line, ensure_ascii=False))
    return 0


async def difference(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.engine import difference as differences
    from helix_desktop.engine.view import state_of

    name = await _named(workspace, arguments.conversation)
    facts = await workspace.journal.read(name)
    before, after = arguments.before, len(facts) if arguments.after is None else arguments.after
    if not 0 <= before <= len(facts) or not 0 <= after <= len(facts):
        raise WrongUse(f"This conversation has {len(facts):,} facts.", remedy=f"Use numbers from 0 to {len(facts)}.")
    state = state_of(facts)
    found = differences.difference(state.at(before).view(), state.at(after).view())
    if arguments.json:
        changes = [_described(change) for change in found.changes]
        await say_json(console, {"before": found.before, "after": found.after, "changes": changes})
        return 0
    for change in found.changes:
        await console.say(f"{change.how:<18} {change.tokens:>+9,}  {_line(change)}")
    await console.say(f"{found.before:,} tokens at {before}, {found.after:,} at {after}: {found.tokens:+,}")
    return 0


async def _named(workspace: Workspace, begins: str) -> str:
    """The conversation whose id begins so."""
    known = [row.id for row in await workspace.journal.conversations() if row.id.startswith(begins)]
    if begins in known:
        return begins
    if len(known) > 1:
        raise Ambiguous(f"The IDs of {len(known)} conversations begin with {begins}.", remedy="Enter more of the ID.")
    if not known:
        raise NotThere(
            f"There is no conversation that begins with {begins} here.",
            remedy="To see all conversations, run `conversation list`.",
        )
    return known[0]


def _line(change: Change) -> str:
    sides = [_said(side) for side in (change.before, change.after) if side]
    return " → ".join(sides)


def _said(blocks: Iterable[Block]) -> str:
    """How many parts, and what the first says."""
    first, *more = blocks
    low, high = _source(first)
    place = f"{low}" if low == high else f"{low}–{high}"
    name = first.fold or first.role.value
    rest = f" and {len(more)} more" if more else ""
    return f"{name} [{place}] {_words(first)}{rest}".strip()


def _words(block: Block) -> str:
    words = " ".join(str(getattr(block.content, "text", "") or getattr(block.content, "name", "")).split())
    return words if len(words) <= SHOWN else f"{words[: SHOWN - 1]}…"


def _described(change: Change) -> dict[str, object]:
    def sides(blocks: Iterable[Block]) -> list[dict[str, object]]:
        return [
            {"kind": block.kind.value, "fold": block.fold, "tokens": block.tokens, "source": _source(block)}
            for block in blocks
        ]

    return {
        "how": change.how.value,
        "tokens": change.tokens,
        "before": sides(change.before),
        "after": sides(change.after),
    }


def _source(block: Block) -> list[int]:
    """The first and the last fact it covers."""
    from helix_desktop.engine.history.covers import ends

    return list(ends(block.source))
