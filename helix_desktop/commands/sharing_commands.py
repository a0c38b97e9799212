"""`workspace share`, `join`, `sync`, `sharing` and `unshare`: a workspace on several machines."""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_argument,
    add_yes_option,
)
from helix_desktop.commands.workspace_access import print_result, run_on_workspace
from helix_desktop.console import Console, Terminal, print_text
from helix_desktop.errors import HelixError, InvalidInput, NotFound, format_things
from helix_desktop.secrets import SharedStoreKey
from helix_desktop.store import workspace_link
from helix_desktop.store.shared.row_encryption import RowCipher, format_key_line, new_workspace_key
from helix_desktop.store.shared.shared_store_link import SharedStoreLink
from helix_desktop.store.shared.store_address import (
    holds_conversations,
    open_row_store,
    parse_store_address,
)
from helix_desktop.store.stored_workspace import StoredWorkspace

_ADDRESSES = "postgresql://user@host/database, s3://bucket/folder?endpoint=https://host, or - for standard input"

SECONDS_OF_DAY = 86_400


# --- `share`: putting this workspace into a shared store ---


def _run_share(arguments: Namespace) -> int:
    """Reads the address here: another process that has the workspace open has another input."""
    if arguments.to == "-":
        arguments.to = _read_typed_line("Address of the shared store: ")
        arguments.argv = workspace_access.insert_options(arguments.argv, f"--to={arguments.to}")
    return workspace_access.run_on_workspace(arguments)


async def share_workspace_through_store(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Puts a workspace into a shared store, or with `--show-key` prints the key that others need."""
    if arguments.show_key:
        return await _print_workspace_key(arguments, workspace, console)

    arguments.to = arguments.to or os.environ.get(workspace_link.ADDRESS_VARIABLE, "")
    if not arguments.to:
        raise InvalidInput(
            "No shared store was specified.", remedy=f"Specify its address with --to: {_ADDRESSES}."
        )
    address = parse_store_address(arguments.to)
    # Opening the store says what is not installed, before anything is asked. No rows are read,
    # so any key will do.
    row_store = open_row_store(address, RowCipher(bytes(32)).space)
    row_store.close()

    if not arguments.yes:
        await workspace_access.wait_for_index(workspace, console)
        stored = await workspace.index.compute_figures()
        await console.print_error(
            f"{stored.size:,} bytes of content and the conversations of {workspace.name} would be "
            f"encrypted and sent to {address.url}. Whoever runs the store can read neither text nor names."
        )
        return workspace_access.ASKING
    return await _share_and_sync(arguments, workspace, console)


async def _share_and_sync(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Sets up the shared store, sends everything to it, and says how another computer joins."""
    store_description = await _set_up_sharing(arguments, workspace)
    link = _require_store_link(workspace)
    await link.sync_content_now()
    await link.announce_and_send_missing()
    await _sync_conversations(workspace)

    lines = [f"{workspace.name} is shared through {store_description}. On another computer, run:"]
    lines += _describe_how_to_join(workspace, link.url)
    result = {"id": workspace.id, "store": store_description, "url": link.url}
    return await print_result(arguments, console, result, *lines)


async def _set_up_sharing(arguments: Namespace, workspace: StoredWorkspace) -> str:
    """Connects the workspace to the store, with a new key from the keyring or with the address
    and key of the environment. Returns the name of the store for a sentence.
    """
    from helix_desktop.workbench import shared_store_setup

    if arguments.to == os.environ.get(workspace_link.ADDRESS_VARIABLE):
        return await shared_store_setup.share_from_environment(
            workspace, acknowledge=arguments.acknowledge, quota=arguments.quota
        )
    return await shared_store_setup.share_workspace(
        workspace,
        arguments.to,
        workspace_access.open_secrets(arguments.places),
        acknowledge=arguments.acknowledge,
        quota=arguments.quota,
    )


def _describe_how_to_join(workspace: StoredWorkspace, url: str) -> list[str]:
    is_address_saved = bool(workspace.settings.shared.get("url"))
    if is_address_saved:
        return [
            f"  helix-desktop workspace join {url} --folder DIR",
            f"The command asks for the key. To see the key, run `workspace share {workspace.id} --show-key` on this computer.",
        ]
    # Address and key come from the environment, on the other computer too.
    return [
        "  helix-desktop workspace join --folder DIR",
        f"Set {workspace_link.ADDRESS_VARIABLE} and {workspace_link.KEY_VARIABLE} there, too.",
    ]


async def _sync_conversations(workspace: StoredWorkspace) -> str:
    """Sends and fetches new facts. Returns what went wrong, or an empty string."""
    from helix_desktop.workbench import conversation_sharing, open_workbench

    link = _require_store_link(workspace)
    if not holds_conversations(link.url):
        return ""
    bench = open_workbench.workbench_of(workspace)
    if bench is None:
        return await conversation_sharing.sync_closed_workspace(workspace)
    await bench.sharing.sync_conversations_now()
    return bench.sharing.unreadable_conversation_reason()


async def _print_workspace_key(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Prints the key with which other computers can read what this workspace shares."""
    secrets = workspace_access.open_secrets(arguments.places)
    key = await secrets.read_secret(SharedStoreKey(workspace.id))
    if not key:
        raise NotFound(
            f"{workspace.name} has no key, because it is not shared from this computer.",
            remedy=f"To share the workspace, run `workspace share {workspace.id} --to URL`.",
        )
    return await _print_key(arguments, console, {"id": workspace.id, "key": key}, "the workspace")


async def run_new_key_command(arguments: Namespace) -> int:
    key = format_key_line(new_workspace_key())
    return await _print_key(
        arguments, Terminal(), {"key": key}, "everything that is shared with this key"
    )


async def _print_key(
    arguments: Namespace, console: Console, result: dict[str, str], readable_with_key: str
) -> int:
    """Prints a key, and says what it gives access to."""
    await print_result(arguments, console, result, result["key"])
    await console.print_error(
        f"Anyone who has this key and can reach the shared store can read {readable_with_key}."
    )
    return 0


# --- `join`: opening a workspace of a shared store on this computer ---


async def run_join_command(arguments: Namespace) -> int:
    if not arguments.url and os.environ.get(workspace_link.ADDRESS_VARIABLE):
        return await _join_with_key(arguments, format_key_line(workspace_link.read_store_key()))
    if arguments.url == "-":
        arguments.url = _read_typed_line("Address of the shared store: ")
    key_line = _read_typed_line("Key of the workspace (a line that begins with helix1-): ")
    return await _join_with_key(arguments, key_line)


def _read_typed_line(question: str) -> str:
    """Reads a line of the input. The question is shown only in a terminal."""
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        print_text(question, file=sys.stderr, end="", flush=True)
    return sys.stdin.readline().strip()


async def _join_with_key(arguments: Namespace, key_line: str) -> int:
    """Makes a workspace on this computer for the shared one that has this key, and fetches its
    conversations.
    """
    from helix_desktop.workbench import shared_store_setup

    folder = arguments.folder.absolute()
    name = arguments.name or folder.name
    secrets = workspace_access.open_secrets(arguments.places)
    workspaces = workspace_access.open_all_workspaces(arguments.places)
    if arguments.url:
        joined = await shared_store_setup.join_shared_workspace(
            workspaces, arguments.url, key_line, name, folder, secrets
        )
    else:
        # Address and key are in the environment, so neither is saved.
        url = os.environ.get(workspace_link.ADDRESS_VARIABLE, "")
        joined = await shared_store_setup.join_shared_workspace(
            workspaces, url, key_line, name, folder, None
        )

    async with aclosing(await workspaces.open_stored_workspace(joined.id)) as workspace:
        workspace_link.link_workspace(workspace, secrets, syncs=False)
        # If this fails, the workspace was joined, and its conversations come with the next sync.
        with suppress(HelixError):
            await _sync_conversations(workspace)
    result = {"id": joined.id, "name": joined.name, "folder": str(joined.folder)}
    return await print_result(arguments, Terminal(), result, joined.id)


# --- `sync`, `sharing status` and `unshare` ---


async def run_sync_command(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Sends and fetches what is new. `--check` and `--collect` also look after the store's rows."""
    link = _require_store_link(workspace)
    await link.sync_content_now()
    complaint = await _sync_conversations(workspace)
    lines_about_store: list[str] = []
    store_figures: dict[str, Any] = {}
    if arguments.check:
        checked, missing, damaged = await link.repair_shared_entries()
        store_figures |= {"checked": checked, "missing": missing, "damaged": damaged}
        lines_about_store.append(
            f"Compared {checked:,} entries. Sent again: {missing:,} entries that were missing from the store and {damaged:,} that were damaged."
        )
    if arguments.collect:
        removed_rows = await link.remove_unused_rows(arguments.days * SECONDS_OF_DAY)
        store_figures["collected"] = removed_rows
        lines_about_store.append(
            f"Removed {removed_rows:,} rows that no computer uses from the store."
        )

    figures = await _sharing_figures(workspace, link)
    figures["trouble"] = figures["trouble"] or complaint
    lines: list[str] = []
    if not figures["trouble"]:
        lines.append(_describe_sharing(figures))
    elif not arguments.json:
        await console.print_error(_describe_sharing(figures))
    lines += lines_about_store
    await print_result(arguments, console, figures | store_figures, *lines)
    if figures["trouble"] or figures["waiting"] or figures["facts_waiting"]:
        return 1
    return 0


async def run_sharing_status_command(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Prints what waits to be sent and, if the store can be reached, how much is in it."""
    link = _require_store_link(workspace)
    figures = await _sharing_figures(workspace, link)
    try:
        store_description, usage = await link.test_connection()
    except HelixError as error:
        figures["trouble"] = str(error)
    else:
        figures["store"] = store_description
        figures["rows"] = usage.rows
        figures["bytes"] = usage.bytes
        figures["quota"] = usage.quota

    lines: list[str] = []
    for name in ("url", "acknowledge", "store", "rows", "bytes", "quota"):
        if name not in figures:
            continue
        value = figures[name]
        if isinstance(value, int):
            value = f"{value:,}"
        lines.append(f"{name:<12}{value}")
    return await print_result(arguments, console, figures, _describe_sharing(figures), *lines)


async def _sharing_figures(workspace: StoredWorkspace, link: SharedStoreLink) -> dict[str, Any]:
    status = asdict(await link.link_status())
    unsent_facts = 0
    if holds_conversations(status["url"]):
        unsent_facts = await workspace.count_unsent_facts()
    figures: dict[str, Any] = {"facts_waiting": unsent_facts}
    figures.update(status)
    figures["forgetting"] = figures.pop("burying")
    return figures


def _describe_sharing(figures: Mapping[str, Any]) -> str:
    """Says whether everything is sent. If not, why, since when, and how much waits here."""
    entry_count = figures["waiting"]
    fact_count = figures["facts_waiting"]
    entries = format_things(entry_count, "entry", "entries")
    facts = format_things(fact_count, "fact", "facts")
    waiting = f"{entries} ({figures['waiting_bytes']:,} bytes), {facts} of conversations."
    if figures["trouble"]:
        since = ""
        if figures["away"]:
            since = time.strftime(" since %H:%M", time.localtime(figures["away"]))
        return f"Not in sync{since}. {figures['trouble']}\nWaiting here: {waiting}"
    if entry_count or fact_count:
        return f"Waiting to be sent: {waiting}"
    return "In sync."


async def run_unshare_command(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Ends the sharing from this computer, after a confirmation. The store keeps what it has."""
    from helix_desktop.workbench import shared_store_setup

    _require_store_link(workspace)
    if not arguments.yes:
        await console.print_error(f"{workspace.name} would no longer be shared from this computer.")
        return workspace_access.ASKING
    # Unsharing removes the address, which the secrets are saved under.
    url = str(workspace.settings.shared.get("url", ""))
    complaint = await shared_store_setup.unshare_workspace(workspace)
    if arguments.forget_key:
        secrets = workspace_access.open_secrets(arguments.places)
        await workspace_link.delete_link_secrets(workspace.id, url, secrets)
    result = {"id": workspace.id, "told": not complaint}
    line = f"{workspace.name} is no longer shared from this computer. Everything already sent stays in the store."
    await print_result(arguments, console, result, line)
    if complaint:
        await console.print_error(complaint)
    return 0


def _require_store_link(workspace: StoredWorkspace) -> SharedStoreLink:
    if workspace.link is None:
        raise NotFound(
            f"{workspace.name} is not shared.",
            remedy=f"To share the workspace, run `workspace share {workspace.id} --to URL`.",
        )
    return workspace.link


def add_workspace_share(verbs: Subparsers) -> None:
    """Declares `workspace share`."""
    command = add_command(
        verbs,
        "share",
        "share a workspace with other computers through a store that all of them can reach",
    )
    add_workspace_argument(command)
    command.add_argument(
        "--to",
        metavar="URL",
        default="",
        help="postgresql://user@host/database, s3://bucket/folder?endpoint=https://host, or - for standard input",
    )
    add_yes_option(command)
    command.add_argument(
        "--show-key", action="store_true", help="print the key that other computers need to join"
    )
    command.add_argument(
        "--acknowledge",
        choices=["local", "shared"],
        default="local",
        help="when new content counts as stored: once it is on this computer (local, the default) or in the shared store (shared)",
    )
    command.add_argument(
        "--quota",
        metavar="BYTES",
        type=int,
        default=None,
        help="maximum size in the shared store; 0 means no limit",
    )
    add_json_option(command)
    command.set_defaults(run=_run_share, work=share_workspace_through_store)


def add_workspace_new_key(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "new-key", "create a key for HELIX_STORE_KEY, for computers without a desktop"
    )
    add_json_option(command)
    command.set_defaults(run=run_new_key_command)


def add_workspace_join(verbs: Subparsers) -> None:
    """Declares `workspace join`."""
    command = add_command(
        verbs,
        "join",
        "join a shared workspace from this computer; with a URL, its key is read from standard input",
    )
    command.add_argument(
        "url",
        metavar="URL",
        nargs="?",
        help="postgresql://user@host/database, s3://bucket/folder?endpoint=https://host, or - for standard input (default: the store and the key in HELIX_STORE and HELIX_STORE_KEY)",
    )
    command.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        default="",
        required=True,
        help="the folder to work in on this computer",
    )
    command.add_argument(
        "--name",
        metavar="NAME",
        default="",
        help="a name for the workspace on this computer (default: the folder's name)",
    )
    add_json_option(command)
    command.set_defaults(run=run_join_command)


def add_workspace_sync(verbs: Subparsers) -> None:
    """Declares `workspace sync`."""
    command = add_command(verbs, "sync", "send and fetch new content now")
    add_workspace_argument(command)
    command.add_argument(
        "--check",
        action="store_true",
        help="compare everything on this computer with the store, and repair the store",
    )
    command.add_argument(
        "--collect",
        action="store_true",
        help="remove content that no computer uses any more from the store",
    )
    command.add_argument(
        "--days",
        metavar="DAYS",
        type=float,
        default=7.0,
        help="with --collect: remove only content older than this many days (default: 7)",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=run_sync_command)


def add_workspace_status(verbs: Subparsers) -> None:
    command = add_command(
        verbs,
        "status",
        "show whether a workspace is in sync with the store, and what is waiting to be sent",
    )
    add_workspace_argument(command)
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=run_sharing_status_command, counts=False)


def add_workspace_unshare(verbs: Subparsers) -> None:
    """Declares `workspace unshare`."""
    command = add_command(
        verbs,
        "unshare",
        "stop sharing a workspace from this computer, without removing anything here or in the store",
    )
    add_workspace_argument(command)
    add_yes_option(command)
    command.add_argument(
        "--forget-key",
        action="store_true",
        help="also remove the workspace's key from this computer's keyring",
    )
    add_json_option(command)
    command.set_defaults(run=run_on_workspace, work=run_unshare_command, counts=False)
