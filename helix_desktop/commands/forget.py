"""`forget`: remove a text from all of a workspace, or entries of its cache, for good."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop.commands import as_json, on_workspace, open_workspace
from helix_desktop.commands.open_workspace import say_json
from helix_desktop.console import Console
from helix_desktop.errors import WrongUse

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.engine.ports import Purged
    from helix_desktop.store.workspace import Workspace

STANDARD = "-"


def add(nouns: Subparsers) -> None:
    sentence = "permanently remove a piece of text, or entries, from the cache, the conversations and the backups"
    noun = nouns.add_parser("forget", help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    noun.add_argument("hashes", nargs="*", metavar="HASH", help="the hash of an entry, or the first part of it")
    noun.add_argument("--text", default="", help="the text to remove everywhere; - reads standard input")
    noun.add_argument("--yes", action="store_true", help="required, because this cannot be undone")
    on_workspace(noun)
    as_json(noun)
    noun.set_defaults(run=run, work=forget, counts=False)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.hashes and not arguments.text:
        raise WrongUse("There is nothing to forget.", remedy="Specify --text TEXT, or the hash of an entry.")
    if not arguments.yes:
        raise WrongUse("Nothing was forgotten. Forgetting cannot be undone.", remedy="Add --yes to confirm.")
    return open_workspace.run(arguments, gather=arguments.text == STANDARD)


async def forget(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    text = await _read(console) if arguments.text == STANDARD else arguments.text
    if not text and not arguments.hashes:
        raise WrongUse("There is nothing to forget: standard input was empty.")
    entries = [await workspace.cache.resolve(name) for name in arguments.hashes]
    purged = await workspace.forgetting(text=text, entries=entries)
    if arguments.json:
        await say_json(console, _described(purged))
    else:
        await console.say(_told(purged))
    remembered = await asyncio.to_thread(_remembered, arguments.places.window, text)
    for sentence in (*purged.elsewhere, *remembered, *purged.ciphertext):
        await console.complain(sentence)
    return 0 if (purged.entries or purged.facts) and not purged.elsewhere and not remembered else 1


async def _read(console: Console) -> str:
    """All of the input, without the end of its last line."""
    content = bytearray()
    while piece := await console.read():
        content += piece
    return content.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


def _described(purged: Purged) -> dict[str, object]:
    return {
        "entries": [digest.hex for digest in purged.entries],
        "facts": purged.facts,
        "conversations": list(purged.conversations),
        "backups": purged.backups,
        "elsewhere": list(purged.elsewhere),
        "ciphertext": list(purged.ciphertext),
    }


def _remembered(window: Path, text: str) -> tuple[str, ...]:
    """The window alone can change its drafts, and what was typed before: a running one would write them again."""
    from helix_desktop.engine.traces import Traces

    if not text or not window.exists() or not Traces(text).in_bytes(window.read_bytes()):
        return ()
    return (
        f"The text is also in {window}, in a draft or in your input history. To forget it there, use the window: Settings > Storage.",
    )


def _told(purged: Purged) -> str:
    if not purged.entries and not purged.facts:
        return "Nothing in this workspace contains that."
    return (
        f"Forgotten: {len(purged.entries):,} entries; {purged.facts:,} facts in {len(purged.conversations):,} "
        f"conversations and {purged.backups:,} backups were changed."
    )
