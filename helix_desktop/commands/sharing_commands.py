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
    if arguments.show_key:
        return await _print_workspace_key(arguments, workspace, console)

    arguments.to = arguments.to or os.environ.get(workspace_link.STORE, "")
    if not arguments.to:
        raise InvalidInput(
            "No shared store was specified.", remedy=f"Specify its address with --to: {_ADDRESSES}."
        )
    where = parse_store_address(arguments.to)
    # Opening the store says what is not installed, before anything is asked.
    row_store = open_row_store(where, RowCipher(bytes(32)).space)
    row_store.close()
    if not arguments.yes:
        await workspace_access.wait_for_index(workspace, console)
        stored = await workspace.index.compute_figures()
        await console.print_error(
            f"{stored.size:,} bytes of content and the conversations of {workspace.name} would be "
            f"encrypted and sent to {where.url}. Whoever runs the store can read neither text nor names."
        )
        return workspace_access.ASKING
    return await _share_and_sync(arguments, workspace, console)


async def _share_and_sync(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    from helix_desktop.workbench import shared_store_setup

    secrets = workspace_access.open_secrets(arguments.places)
    wishes = {"acknowledge": arguments.acknowledge, "quota": arguments.quota}
    if arguments.to == os.environ.get(workspace_link.STORE):
        about = await shared_store_setup.share_from_environment(workspace, **wishes)
    else:
        about = await shared_store_setup.share_workspace(workspace, arguments.to, secrets, **wishes)
    link = _require_store_link(workspace)
    await link.sync_content_now()
    await link.announce_and_send_missing()
    await _sync_conversations(workspace)
    join = f"  helix-desktop workspace join {link.url} --folder DIR"
    key = f"The command asks for the key. To see the key, run `workspace share {workspace.id} --show-key` on this computer."
    if not workspace.settings.shared.get("url"):
        join = "  helix-desktop workspace join --folder DIR"
        key = f"Set {workspace_link.STORE} and {workspace_link.KEY} there, too."
    result = {"id": workspace.id, "store": about, "url": link.url}
    line = f"{workspace.name} is shared through {about}. On another computer, run:"
    return await print_result(arguments, console, result, line, join, key)


async def _sync_conversations(workspace: StoredWorkspace) -> str:
    """Sends and fetches new facts. Returns what went wrong, or an empty string."""
    from helix_desktop.workbench import conversation_sharing, open_workbench

    open_here = open_workbench.workbench_of(workspace)
    if holds_conversations(_require_store_link(workspace).url):
        if open_here is None:
            return await conversation_sharing.sync_closed_workspace(workspace)
        await open_here.sharing.sync_conversations_now()
        return open_here.sharing.unreadable_conversation_reason()
    return ""


async def _print_workspace_key(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
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
    arguments: Namespace, console: Console, result: dict[str, str], what: str
) -> int:
    await print_result(arguments, console, result, result["key"])
    await console.print_error(
        f"Anyone who has this key and can reach the shared store can read {what}."
    )
    return 0


# --- `join`: opening a workspace of a shared store on this computer ---


async def run_join_command(arguments: Namespace) -> int:
    if not arguments.url and os.environ.get(workspace_link.STORE):
        return await _join_with_key(arguments, format_key_line(workspace_link.read_store_key()))
    if arguments.url == "-":
        arguments.url = _read_typed_line("Address of the shared store: ")
    text = _read_typed_line("Key of the workspace (a line that begins with helix1-): ")
    return await _join_with_key(arguments, text)


def _read_typed_line(question: str) -> str:
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        print_text(question, file=sys.stderr, end="", flush=True)
    return sys.stdin.readline().strip()


async def _join_with_key(arguments: Namespace, text: str) -> int:
    from helix_desktop.workbench import shared_store_setup

    here = arguments.places
    folder = arguments.folder.absolute()
    name = arguments.name or folder.name
    url = arguments.url
    secrets = None
    if url:
        secrets = workspace_access.open_secrets(here)
    else:  # Without an address, the key stays in the environment too.
        url = os.environ.get(workspace_link.STORE, "")
    workspaces = workspace_access.open_all_workspaces(here)
    known = await shared_store_setup.join_shared_workspace(
        workspaces, url, text, name, folder, secrets
    )
    async with aclosing(await workspaces.open_stored_workspace(known.id)) as workspace:
        workspace_link.link_workspace(workspace, workspace_access.open_secrets(here), syncs=False)
        # If this fails, the workspace was joined, and its conversations come with the next sync.
        with suppress(HelixError):
            await _sync_conversations(workspace)
    result = {"id": known.id, "name": known.name, "folder": str(known.folder)}
    return await print_result(arguments, Terminal(), result, known.id)


# --- `sync`, `sharing status` and `unshare` ---


async def run_sync_command(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    link = _require_store_link(workspace)
    await link.sync_content_now()
    complaint = await _sync_conversations(workspace)
    done: dict[str, Any] = {}
    if arguments.check:
        entries, missing, damaged = await link.repair_shared_entries()
        done |= {"checked": entries, "missing": missing, "damaged": damaged}
    if arguments.collect:
        done["collected"] = await link.remove_unused_rows(arguments.days * 86_400)
    figures = await _sharing_figures(workspace, link)
    figures["trouble"] = figures["trouble"] or complaint
    lines: list[str] = []
    if not figures["trouble"]:
        lines.append(_describe_sharing(figures))
    elif not arguments.json:
        await console.print_error(_describe_sharing(figures))
    if arguments.check:
        lines.append(
            f"Compared {done['checked']:,} entries. Sent again: {done['missing']:,} entries that were missing from the store and {done['damaged']:,} that were damaged."
        )
    if arguments.collect:
        lines.append(f"Removed {done['collected']:,} rows that no computer uses from the store.")
    await print_result(arguments, console, figures | done, *lines)
    if figures["trouble"] or figures["waiting"] or figures["facts_waiting"]:
        return 1
    return 0


async def run_sharing_status_command(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    link = _require_store_link(workspace)
    figures = await _sharing_figures(workspace, link)
    try:
        about, usage = await link.test_connection()
        figures |= {"store": about, "rows": usage.rows, "bytes": usage.bytes, "quota": usage.quota}
    except HelixError as error:
        figures |= {"trouble": str(error)}
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
    now = asdict(await link.link_status())
    now["forgetting"] = now.pop("burying")
    facts = 0
    if holds_conversations(now["url"]):
        facts = await workspace.count_unsent_facts()
    return {"facts_waiting": facts, **now}


def _describe_sharing(figures: Mapping[str, Any]) -> str:
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
    from helix_desktop.workbench import shared_store_setup

    _require_store_link(workspace)
    if not arguments.yes:
        await console.print_error(f"{workspace.name} would no longer be shared from this computer.")
        return workspace_access.ASKING
    url = str(workspace.settings.shared.get("url", ""))
    left = await shared_store_setup.unshare_workspace(workspace)
    if arguments.forget_key:
        await workspace_link.delete_link_secrets(
            workspace.id, url, workspace_access.open_secrets(arguments.places)
        )
    line = f"{workspace.name} is no longer shared from this computer. Everything already sent stays in the store."
    await print_result(arguments, console, {"id": workspace.id, "told": not left}, line)
    if left:
        await console.print_error(left)
    return 0


def _require_store_link(workspace: StoredWorkspace) -> SharedStoreLink:
    if workspace.link is None:
        raise NotFound(
            f"{workspace.name} is not shared.",
            remedy=f"To share the workspace, run `workspace share {workspace.id} --to URL`.",
        )
    return workspace.link


def add_workspace_share(verbs: Subparsers) -> None:
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
