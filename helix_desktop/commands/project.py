"""`project`: what a workspace's folders bring for agents; trusting it by its hash, and switching it off and on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helix_desktop.commands.open_workspace import say_json, verb
from helix_desktop.console import Console, shown
from helix_desktop.engine import exact
from helix_desktop.errors import Ambiguous, NotThere, Refused, WrongUse

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.project.item import Item
    from helix_desktop.store.workspace import Workspace

LEAST = 12  # characters of a hash that name a content


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser(
        "project", help="list and trust the rules, skills, slash commands, hooks and agents in a folder"
    )
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    verb(verbs, "list", "list all items for agents in the folder, with their state and hash", list_items)
    one = verb(verbs, "show", "show the text of an item and its hash", show)
    one.add_argument("item", metavar="ITEM", help="the item's path or name")
    one = verb(verbs, "trust", "trust an item, identified by its hash, after you have read its content", trust)
    one.add_argument(
        "items", nargs="+", metavar="ITEM=HASH", help=f"an item, and at least {LEAST} characters of its hash"
    )
    for name, sentence in (("off", "stop using items"), ("on", "use items again")):
        one = verb(verbs, name, sentence, switch)
        one.add_argument("items", nargs="+", metavar="ITEM", help="the item's path or name")
        one.set_defaults(on=name == "on")


async def list_items(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    await _told(arguments, console, await _items(workspace))
    return 0


async def show(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    item = _named(await _items(workspace), arguments.item)
    if arguments.json:
        await say_json(console, {**_described(item), "text": item.text})
        return 0
    await console.say(exact.shown(item.text))
    await console.say(f"{item.state}, {shown(item.key)}={item.sha256}")
    return 0


async def trust(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.workbench.project import Project

    project = Project(workspace)
    items = (await project.look_again()).items
    agreed = [_with_hash(items, each) for each in arguments.items]
    await project.trust(*agreed)
    keys = {item.key for item in agreed}
    await _told(arguments, console, [item for item in project.now.items if item.key in keys])
    return 0


async def switch(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.workbench.project import Project

    project = Project(workspace)
    items = (await project.look_again()).items
    keys = [_named(items, each).key for each in arguments.items]
    for key in keys:
        await project.switch(key, on=arguments.on)
    await _told(arguments, console, [item for item in project.now.items if item.key in keys])
    return 0


async def _items(workspace: Workspace) -> Sequence[Item]:
    from helix_desktop.workbench.project import Project

    return (await Project(workspace).look_again()).items


def _with_hash(items: Sequence[Item], text: str) -> Item:
    """Only the content whose hash the user has: what changed since it was read is refused."""
    name, _, digest = text.rpartition("=")
    if not name or len(digest) < LEAST:
        raise WrongUse(
            f"{text} does not have the form ITEM=HASH.",
            remedy=f"Write ITEM=HASH with at least {LEAST} characters of the hash; `project show` prints it.",
        )
    item = _named(items, name)
    if not item.sha256.startswith(digest.lower()):
        raise Refused(
            f"{name} does not match this hash. Nothing was trusted.", remedy="Read the item with `project show`."
        )
    return item


def _named(items: Sequence[Item], name: str) -> Item:
    found = [item for item in items if name == item.key] or [item for item in items if name == item.name]
    if not found:
        raise NotThere(f"This folder contains no item called {name}.", remedy="`project list` shows all items.")
    if len(found) > 1:
        raise Ambiguous(f"{len(found)} items are called {name}.", remedy="Use the path.")
    return found[0]


async def _told(arguments: argparse.Namespace, console: Console, items: Sequence[Item]) -> None:
    if arguments.json:
        await say_json(console, [_described(item) for item in items])
        return
    for item in items:
        await console.say(
            f"{item.kind:<8} {item.state:<26} {item.sha256[:LEAST]}  {shown(item.name)}  {shown(item.key)}"
        )
    if not items:
        await console.say("This folder contains nothing for agents.")


def _described(item: Item) -> dict[str, object]:
    return {
        "kind": item.kind, "name": item.name, "item": item.key, "state": item.state, "sha256": item.sha256,
        "about": item.about, "notes": list(item.notes),
    }  # fmt: skip
