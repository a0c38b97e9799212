"""`project`: lists what a workspace's folders provide for agents; trusts it by its
hash, and switches it on and off.
"""

from argparse import Namespace
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
)
from helix_desktop.commands.workspace_access import print_result, run_on_workspace
from helix_desktop.console import Console
from helix_desktop.engine import hidden_characters
from helix_desktop.errors import ActionRefused, AmbiguousName, InvalidInput, NotFound
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.store.stored_workspace import StoredWorkspace

if TYPE_CHECKING:
    from helix_desktop.workbench.rules_and_skills import WorkspaceRulesAndSkills

LEAST = 12  # The minimum number of characters of a hash that the user enters.


async def print_project_items(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    project = await _read_project(workspace)
    return await _print_items(arguments, console, project.now.items)


async def print_project_item(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Prints an item's text, with its hidden characters marked, and the hash to trust it by."""
    project = await _read_project(workspace)
    item = _item_by_name(project.now.items, arguments.item)
    result = _project_item_as_json(item)
    result["text"] = item.text
    marked_text = hidden_characters.mark_text(item.text)
    line = f"{item.state_description}, {item.settings_key}={item.content_sha256}"
    return await print_result(arguments, console, result, marked_text, line)


async def trust_project_items(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    project = await _read_project(workspace)
    agreed = [_item_with_hash(project.now.items, text) for text in arguments.items]
    await project.trust_items(*agreed)
    keys = {item.settings_key for item in agreed}
    return await _print_items(arguments, console, project.now.items, keys)


async def switch_project_item(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    project = await _read_project(workspace)
    chosen = [_item_by_name(project.now.items, name) for name in arguments.items]
    keys = [item.settings_key for item in chosen]
    for key in keys:
        await project.switch_item(key, on=arguments.on)
    return await _print_items(arguments, console, project.now.items, keys)


async def _read_project(workspace: StoredWorkspace) -> "WorkspaceRulesAndSkills":
    from helix_desktop.workbench.rules_and_skills import WorkspaceRulesAndSkills

    project = WorkspaceRulesAndSkills(workspace)
    await project.reread_project_folders()
    return project


def _item_with_hash(items: Sequence[ProjectItem], text: str) -> ProjectItem:
    """Returns the item whose hash the user gave. An item that changed since the user
    read it is refused.
    """
    name, _, digest = text.rpartition("=")
    if not name or len(digest) < LEAST:
        raise InvalidInput(
            f"{text} does not have the form ITEM=HASH.",
            remedy=f"Write ITEM=HASH with at least {LEAST} characters of the hash. `project show` prints the hash.",
        )
    item = _item_by_name(items, name)
    if not item.content_sha256.startswith(digest.lower()):
        raise ActionRefused(
            f"{name} does not match this hash. Nothing was trusted.",
            remedy="Read the item with `project show`.",
        )
    return item


def _item_by_name(items: Sequence[ProjectItem], name: str) -> ProjectItem:
    """Returns the item with this key, which is its path, or else the only one with this name."""
    matching = [item for item in items if item.settings_key == name]
    if not matching:
        matching = [item for item in items if item.name == name]
    if not matching:
        raise NotFound(
            f"This folder contains no item called {name}.", remedy="`project list` shows all items."
        )
    if len(matching) > 1:
        raise AmbiguousName(f"{len(matching)} items are called {name}.", remedy="Use the path.")
    return matching[0]


async def _print_items(
    arguments: Namespace,
    console: Console,
    items: Sequence[ProjectItem],
    keys: Collection[str] | None = None,
) -> int:
    """Prints a line for each item, or only for the items with these keys."""
    listed: list[dict[str, object]] = []
    lines: list[str] = []
    for item in items:
        if keys is not None and item.settings_key not in keys:
            continue
        listed.append(_project_item_as_json(item))
        short_hash = item.content_sha256[:LEAST]
        lines.append(
            f"{item.kind:<8} {item.state_description:<26} {short_hash}  {item.name}  {item.settings_key}"
        )
    if not lines:
        lines.append("This folder contains no agent instructions, skills, hooks or servers.")
    return await print_result(arguments, console, listed, *lines)


def _project_item_as_json(item: ProjectItem) -> dict[str, object]:
    """Returns an item as `--json` prints it, without its text."""
    return {
        "kind": item.kind,
        "name": item.name,
        "item": item.settings_key,
        "state": item.state_description,
        "sha256": item.content_sha256,
        "about": item.about,
        "notes": list(item.notes),
    }


def add_project_commands(nouns: Subparsers) -> None:
    """Declares `project` and its verbs."""
    noun = add_command(
        nouns,
        "project",
        "list and trust the rules, skills, slash commands, hooks and agents in a folder",
    )
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_project_list(verbs)
    _add_project_show(verbs)
    _add_project_trust(verbs)
    _add_project_off(verbs)
    _add_project_on(verbs)


def _add_project_list(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "list", "list all items for agents in the folder, with their state and hash"
    )
    add_workspace_option(command)
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=print_project_items, counts=False, reads=True)


def _add_project_show(verbs: Subparsers) -> None:
    command = add_command(verbs, "show", "show the text of an item and its hash")
    add_workspace_option(command)
    command.add_argument(
        "item", metavar="ITEM", help="the path or name of the rule, skill, hook, command or agent"
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=print_project_item, counts=False, reads=True)


def _add_project_trust(verbs: Subparsers) -> None:
    """Declares `project trust`. The hash shows that the user has seen this content of the item."""
    command = add_command(
        verbs, "trust", "trust an item, identified by its hash, after you have read its content"
    )
    add_workspace_option(command)
    command.add_argument(
        "items",
        metavar="ITEM=HASH",
        nargs="+",
        help="an item, and at least 12 characters of its hash",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=trust_project_items, counts=False)


def _add_project_off(verbs: Subparsers) -> None:
    """Declares `project off`, which is `project on` with another value."""
    command = add_command(verbs, "off", "stop using items")
    add_workspace_option(command)
    command.add_argument(
        "items",
        metavar="ITEM",
        nargs="+",
        help="the path or name of the rule, skill, hook, command or agent",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=switch_project_item, counts=False, on=False)


def _add_project_on(verbs: Subparsers) -> None:
    """Declares `project on`, which is `project off` with another value."""
    command = add_command(verbs, "on", "use items again")
    add_workspace_option(command)
    command.add_argument(
        "items",
        metavar="ITEM",
        nargs="+",
        help="the path or name of the rule, skill, hook, command or agent",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=switch_project_item, counts=False, on=True)
