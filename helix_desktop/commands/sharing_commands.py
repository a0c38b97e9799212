"""`workspace share`, `run_join`, `run_sync`, `run_sharing_status`, `run_unshare`: a workspace on several machines."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import program_folders
from helix_desktop.commands import add_json_option, add_workspace_argument, workspace_access
from helix_desktop.commands.workspace_access import print_json
from helix_desktop.console import Console, Terminal
from helix_desktop.errors import HelixError, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from helix_desktop.commands import Subparsers
    from helix_desktop.store.all_workspaces import KnownWorkspace
    from helix_desktop.store.shared.shared_store_link import SharedStoreLink
    from helix_desktop.store.stored_workspace import StoredWorkspace

_ADDRESSES = "postgresql://user@host/database or s3://bucket/folder?endpoint=https://host"


def add_sharing_commands(verbs: Subparsers) -> None:
    one = _add_sharing_verb(
        verbs, "share", "share a workspace with other computers through a store that all of them can reach"
    )
    add_workspace_argument(one, positional=True)
    one.add_argument("--to", default="", metavar="URL", help=_ADDRESSES)
    one.add_argument(
        "--yes", action="store_true", help="share the workspace (by default, only show what would be shared)"
    )
    one.add_argument("--show-key", action="store_true", help="print the key that other computers need to join")
    one.add_argument(
        "--acknowledge", choices=("local", "shared"), help="when new content counts as stored (default: local)"
    )
    one.add_argument("--quota", type=int, metavar="BYTES", help="maximum size in the shared store; 0 means no limit")
    one.set_defaults(run=workspace_access.run_on_workspace, work=run_share)
    one = _add_sharing_verb(
        verbs, "new-key", "make a key for HELIX_STORE_KEY, for computers that share a workspace without a desktop"
    )
    one.set_defaults(run=run_new_key)
    one = _add_sharing_verb(
        verbs, "join", "join a shared workspace from this computer; its key is read from standard input"
    )
    one.add_argument("url", metavar="URL", help=_ADDRESSES)
    one.add_argument("--folder", type=Path, required=True, metavar="DIR", help="the folder to work in on this computer")
    one.add_argument(
        "--name", default="", help="a name for the workspace on this computer (default: the folder's name)"
    )
    one.set_defaults(run=run_join)
    one = _add_sharing_verb(verbs, "sync", "send and fetch new content now")
    add_workspace_argument(one, positional=True)
    one.add_argument(
        "--check", action="store_true", help="compare everything on this computer with the store, and repair the store"
    )
    one.add_argument(
        "--collect", action="store_true", help="remove content from the store that no computer uses any more"
    )
    one.add_argument(
        "--days",
        type=float,
        default=7.0,
        help="with --collect: remove only content older than this many days (default: 7)",
    )
    one.set_defaults(run=workspace_access.run_on_workspace, work=run_sync)
    one = _add_sharing_verb(
        verbs, "status", "show whether a workspace is in sync with the store, and what is waiting to be sent"
    )
    add_workspace_argument(one, positional=True)
    one.set_defaults(run=workspace_access.run_on_workspace, work=run_sharing_status, counts=False)
    one = _add_sharing_verb(
        verbs, "unshare", "stop sharing a workspace from this computer, without removing anything here or in the store"
    )
    add_workspace_argument(one, positional=True)
    one.add_argument("--yes", action="store_true", help="do it")
    one.add_argument(
        "--forget-key", action="store_true", help="also remove the workspace's key from this computer's keyring"
    )
    one.set_defaults(run=workspace_access.run_on_workspace, work=run_unshare, counts=False)


def _add_sharing_verb(verbs: Subparsers, name: str, sentence: str) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    add_json_option(one)
    return one


# --- share -----------------------------------------------------------------------------------------------------------


async def run_share(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    if arguments.show_key:
        return await _print_workspace_key(arguments, workspace, console)
    from helix_desktop.store import workspace_link

    arguments.to = arguments.to or os.environ.get(workspace_link.STORE, "")
    if not arguments.to:
        raise InvalidInput("No shared store was specified.", remedy=f"Specify its address with --to: {_ADDRESSES}.")
    from helix_desktop.store.shared import store_address

    where = store_address.parse_store_address(arguments.to)
    if not arguments.yes:
        await workspace_access.wait_for_index(workspace, console)
        stored = await workspace.index.stats()
        await console.print_error(
            f"Nothing was shared. With --yes, {stored.entries:,} entries ({stored.size:,} bytes) and the conversations of"
            f" {workspace.name} are encrypted and sent to {where.url}. Whoever runs the store can read neither text nor names."
        )
        return 1
    return await _share_and_sync(arguments, workspace, console)


async def _share_and_sync(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.store import workspace_link
    from helix_desktop.workbench import shared_store_setup

    secrets = workspace_access.open_secrets(arguments.places)
    acknowledge = arguments.acknowledge or "local"
    if arguments.to == os.environ.get(workspace_link.STORE):
        about = await shared_store_setup.share_from_environment(
            workspace, acknowledge=acknowledge, quota=arguments.quota
        )
    else:
        about = await shared_store_setup.share_workspace(
            workspace, arguments.to, secrets, acknowledge=acknowledge, quota=arguments.quota
        )
    link = _require_store_link(workspace)
    await link.sync_content_now()
    await link.announce_and_send_missing()
    await _sync_conversations(workspace)
    if arguments.json:
        await print_json(console, {"id": workspace.id, "store": about, "url": link.url})
    else:
        await console.print_line(f"{workspace.name} is shared through {about}. On another computer, run:")
        await console.print_line(f"  helix-desktop workspace join {link.url} --folder DIR")
        await console.print_line(
            "The command asks for the key. To see the key, run `workspace share --show-key` on this computer."
        )
    return 0


async def _sync_conversations(workspace: StoredWorkspace) -> str:
    """Send and fetch what is new of them; a store that cannot have conversations has none. Gives what is wrong with one."""
    from helix_desktop.store.shared import store_address
    from helix_desktop.workbench import conversation_sharing, open_workbench

    open_here = open_workbench.workbench_of(workspace)
    if store_address.holds_conversations(_require_store_link(workspace).url):
        if open_here is None:
            return await conversation_sharing.sync_closed_workspace(workspace)
        await open_here.sharing.sync_conversations_now()
        return open_here.sharing.unreadable_conversation_reason()
    return ""


async def _print_workspace_key(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.secrets import SharedStoreKey

    key = await workspace_access.open_secrets(arguments.places).read_secret(SharedStoreKey(workspace.id))
    if not key:
        raise NotFound(
            f"{workspace.name} has no key, because it is not shared from this computer.",
            remedy="To share the workspace, use --to URL.",
        )
    if arguments.json:
        await print_json(console, {"id": workspace.id, "key": key})
    else:
        await console.print_line(key)
    await console.print_error("Anyone who has this key and can reach the store can read the workspace.")
    return 0


def run_new_key(arguments: argparse.Namespace) -> int:
    from helix_desktop.store.shared import row_encryption

    return asyncio.run(_print_new_key(arguments, row_encryption.format_key_line(row_encryption.new_workspace_key())))


async def _print_new_key(arguments: argparse.Namespace, key: str) -> int:
    console = Terminal()
    if arguments.json:
        await print_json(console, {"key": key})
    else:
        await console.print_line(key)
    await console.print_error("Anyone who has this key and can reach the store can read what is shared with it.")
    return 0


# --- join ------------------------------------------------------------------------------------------------------------


def run_join(arguments: argparse.Namespace) -> int:
    if sys.stdin is None or sys.stdin.isatty():
        sys.stderr.write("Key of the workspace (a line that begins with helix1-): ")
        sys.stderr.flush()
    text = sys.stdin.readline() if sys.stdin is not None else ""
    return asyncio.run(_join_with_key(arguments, text))


async def _join_with_key(arguments: argparse.Namespace, text: str) -> int:
    from helix_desktop.workbench import shared_store_setup

    here = program_folders.find_program_folders(arguments.home)
    folder = arguments.folder.absolute()
    workspaces, secrets = workspace_access.open_all_workspaces(here), workspace_access.open_secrets(here)
    await _print_joined_workspace(
        arguments,
        await shared_store_setup.join_shared_workspace(
            workspaces, arguments.url, text, arguments.name or folder.name, folder, secrets
        ),
    )
    return 0


async def _print_joined_workspace(arguments: argparse.Namespace, known: KnownWorkspace) -> None:
    console = Terminal()
    if arguments.json:
        await print_json(console, {"id": known.id, "name": known.name, "folder": str(known.folder)})
    else:
        await console.print_line(known.id)


# --- sync, status, unshare -------------------------------------------------------------------------------------------


async def run_sync(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    link = _require_store_link(workspace)
    await link.sync_content_now()
    complaint = await _sync_conversations(workspace)
    done: dict[str, Any] = {}
    if arguments.check:
        entries, missing, damaged = await link.check_shared_entries()
        done |= {"checked": entries, "missing": missing, "damaged": damaged}
    if arguments.collect:
        done["collected"] = await link.remove_unused_rows(arguments.days * 86_400)
    figures = await _sharing_figures(workspace, link)
    figures["trouble"] = figures["trouble"] or complaint
    code = 1 if figures["trouble"] or figures["waiting"] or figures["facts_waiting"] else 0
    if arguments.json:
        await print_json(console, figures | done)
        return code
    await (console.print_error if figures["trouble"] else console.print_line)(_describe_sharing(figures))
    if arguments.check:
        await console.print_line(
            f"Compared {done['checked']:,} entries. Sent again: {done['missing']:,} entries that were missing from the store and {done['damaged']:,} that were damaged."
        )
    if arguments.collect:
        await console.print_line(f"Removed from the store {done['collected']:,} rows that no computer uses.")
    return code


async def run_sharing_status(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    link = _require_store_link(workspace)
    figures = await _sharing_figures(workspace, link)
    try:
        about, usage = await link.test_connection()
        figures |= {"store": about, "rows": usage.rows, "bytes": usage.bytes, "quota": usage.quota}
    except HelixError as error:
        figures |= {"trouble": str(error)}
    if arguments.json:
        await print_json(console, figures)
        return 0
    await console.print_line(_describe_sharing(figures))
    for name in ("url", "acknowledge", "store", "rows", "bytes", "quota"):
        if name in figures:
            value = figures[name]
            await console.print_line(f"{name:<12}{f'{value:,}' if isinstance(value, int) else value}")
    return 0


async def _sharing_figures(workspace: StoredWorkspace, link: SharedStoreLink) -> dict[str, Any]:
    from helix_desktop.store.shared import store_address

    now = await link.link_status()
    return {
        "facts_waiting": await workspace.count_unsent_facts() if store_address.holds_conversations(now.url) else 0,
        "url": now.url,
        "acknowledge": now.acknowledge,
        "waiting": now.waiting,
        "waiting_bytes": now.waiting_bytes,
        "forgetting": now.burying,
        "contact": now.contact,
        "away": now.away,
        "trouble": now.trouble,
    }


def _describe_sharing(figures: Mapping[str, Any]) -> str:
    entries, facts = figures["waiting"], figures["facts_waiting"]
    what = f"{entries:,} cache entries ({figures['waiting_bytes']:,} bytes), {facts:,} facts of conversations."
    if figures["trouble"]:
        since = f" since {_format_time_ago(figures['away'])}" if figures["away"] else ""
        return f"Not in sync{since}. {figures['trouble']}\nWaiting here: {what}"
    return f"Waiting to be sent: {what}" if entries or facts else "In sync."


def _format_time_ago(moment: float) -> str:
    return time.strftime("%H:%M", time.localtime(moment))


async def run_unshare(arguments: argparse.Namespace, workspace: StoredWorkspace, console: Console) -> int:
    from helix_desktop.store import workspace_link
    from helix_desktop.workbench import shared_store_setup

    _require_store_link(workspace)
    if not arguments.yes:
        await console.print_error(f"{workspace.name} is still shared. Add --yes to stop sharing it from this computer.")
        return 1
    url = str(workspace.settings.shared.get("url", ""))
    left = await shared_store_setup.unshare_workspace(workspace)
    if arguments.forget_key:
        await workspace_link.drop(workspace.id, url, workspace_access.open_secrets(arguments.places))
    if arguments.json:
        await print_json(console, {"id": workspace.id, "told": not left})
    else:
        await console.print_line(
            f"{workspace.name} is no longer shared from this computer. Everything already sent stays in the store."
        )
    if left:
        await console.print_error(left)
    return 0


def _require_store_link(workspace: StoredWorkspace) -> SharedStoreLink:
    if workspace.link is None:
        raise NotFound(
            f"{workspace.name} is not shared.", remedy="To share the workspace, run `workspace share --to URL`."
        )
    return workspace.link
