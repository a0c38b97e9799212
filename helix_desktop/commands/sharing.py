"""`workspace share`, `join`, `sync`, `status`, `unshare`: a workspace on several machines."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helix_desktop import places
from helix_desktop.commands import as_json, on_workspace, open_workspace
from helix_desktop.commands.open_workspace import say_json
from helix_desktop.console import Console, Terminal
from helix_desktop.errors import HelixError, NotThere, WrongUse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from helix_desktop.commands import Subparsers
    from helix_desktop.store.shared.link import Link
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.store.workspaces import Known

_ADDRESSES = "postgresql://user@host/database or s3://bucket/folder?endpoint=https://host"


def add(verbs: Subparsers) -> None:
    one = _verb(verbs, "share", "share a workspace with other computers through a store that all of them can reach")
    on_workspace(one, positional=True)
    one.add_argument("--to", default="", metavar="URL", help=_ADDRESSES)
    one.add_argument(
        "--yes", action="store_true", help="share the workspace (by default, only show what would be shared)"
    )
    one.add_argument("--show-key", action="store_true", help="print the key that other computers need to join")
    one.add_argument(
        "--acknowledge", choices=("local", "shared"), help="when new content counts as stored (default: local)"
    )
    one.add_argument("--quota", type=int, metavar="BYTES", help="maximum size in the shared store; 0 means no limit")
    one.set_defaults(run=open_workspace.run, work=share)
    one = _verb(
        verbs, "new-key", "make a key for HELIX_STORE_KEY, for computers that share a workspace without a desktop"
    )
    one.set_defaults(run=new_key)
    one = _verb(verbs, "join", "join a shared workspace from this computer; its key is read from standard input")
    one.add_argument("url", metavar="URL", help=_ADDRESSES)
    one.add_argument("--folder", type=Path, required=True, metavar="DIR", help="the folder to work in on this computer")
    one.add_argument(
        "--name", default="", help="a name for the workspace on this computer (default: the folder's name)"
    )
    one.set_defaults(run=join)
    one = _verb(verbs, "sync", "send and fetch new content now")
    on_workspace(one, positional=True)
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
    one.set_defaults(run=open_workspace.run, work=sync)
    one = _verb(verbs, "status", "show whether a workspace is in sync with the store, and what is waiting to be sent")
    on_workspace(one, positional=True)
    one.set_defaults(run=open_workspace.run, work=status, counts=False)
    one = _verb(
        verbs, "unshare", "stop sharing a workspace from this computer, without removing anything here or in the store"
    )
    on_workspace(one, positional=True)
    one.add_argument("--yes", action="store_true", help="do it")
    one.add_argument(
        "--forget-key", action="store_true", help="also remove the workspace's key from this computer's keyring"
    )
    one.set_defaults(run=open_workspace.run, work=unshare, counts=False)


def _verb(verbs: Subparsers, name: str, sentence: str) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    as_json(one)
    return one


# --- share -----------------------------------------------------------------------------------------------------------


async def share(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    if arguments.show_key:
        return await _show_key(arguments, workspace, console)
    from helix_desktop.store import linking

    arguments.to = arguments.to or os.environ.get(linking.STORE, "")
    if not arguments.to:
        raise WrongUse("No shared store was specified.", remedy=f"Specify its address with --to: {_ADDRESSES}.")
    from helix_desktop.store.shared import address

    where = address.parse(arguments.to)
    if not arguments.yes:
        await open_workspace.caught_up(workspace, console)
        stored = await workspace.index.stats()
        await console.complain(
            f"Nothing was shared. With --yes, {stored.entries:,} entries ({stored.size:,} bytes) and the conversations of"
            f" {workspace.name} are encrypted and sent to {where.url}. Whoever runs the store can read neither text nor names."
        )
        return 1
    return await _share(arguments, workspace, console)


async def _share(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.store import linking
    from helix_desktop.workbench import shared_store

    secrets = open_workspace.secrets_of(arguments.places)
    acknowledge = arguments.acknowledge or "local"
    if arguments.to == os.environ.get(linking.STORE):
        about = await shared_store.share_from_environment(workspace, acknowledge=acknowledge, quota=arguments.quota)
    else:
        about = await shared_store.share(
            workspace, arguments.to, secrets, acknowledge=acknowledge, quota=arguments.quota
        )
    link = _link(workspace)
    await link.sync()
    await link.publish()
    await _conversations(workspace)
    if arguments.json:
        await say_json(console, {"id": workspace.id, "store": about, "url": link.url})
    else:
        await console.say(f"{workspace.name} is shared through {about}. On another computer, run:")
        await console.say(f"  helix-desktop workspace join {link.url} --folder DIR")
        await console.say(
            "The command asks for the key. To see the key, run `workspace share --show-key` on this computer."
        )
    return 0


async def _conversations(workspace: Workspace) -> str:
    """Send and fetch what is new of them; a store that cannot have conversations has none. Gives what is wrong with one."""
    from helix_desktop.store.shared import address
    from helix_desktop.workbench import bench, sharing

    open_here = bench.of(workspace)
    if address.holds_conversations(_link(workspace).url):
        if open_here is None:
            return await sharing.in_step(workspace)
        await open_here.sharing.now()
        return open_here.sharing.complaint()
    return ""


async def _show_key(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.secrets import SharedStoreKey

    key = await open_workspace.secrets_of(arguments.places).get(SharedStoreKey(workspace.id))
    if not key:
        raise NotThere(
            f"{workspace.name} has no key, because it is not shared from this computer.",
            remedy="To share the workspace, use --to URL.",
        )
    if arguments.json:
        await say_json(console, {"id": workspace.id, "key": key})
    else:
        await console.say(key)
    await console.complain("Anyone who has this key and can reach the store can read the workspace.")
    return 0


def new_key(arguments: argparse.Namespace) -> int:
    from helix_desktop.store.shared import sealing

    return asyncio.run(_say_new_key(arguments, sealing.written(sealing.new_key())))


async def _say_new_key(arguments: argparse.Namespace, key: str) -> int:
    console = Terminal()
    if arguments.json:
        await say_json(console, {"key": key})
    else:
        await console.say(key)
    await console.complain("Anyone who has this key and can reach the store can read what is shared with it.")
    return 0


# --- join ------------------------------------------------------------------------------------------------------------


def join(arguments: argparse.Namespace) -> int:
    if sys.stdin is None or sys.stdin.isatty():
        sys.stderr.write("Key of the workspace (a line that begins with helix1-): ")
        sys.stderr.flush()
    text = sys.stdin.readline() if sys.stdin is not None else ""
    return asyncio.run(_join(arguments, text))


async def _join(arguments: argparse.Namespace, text: str) -> int:
    from helix_desktop.workbench import shared_store

    here = places.find(arguments.home)
    folder = arguments.folder.absolute()
    workspaces, secrets = open_workspace.all_of(here), open_workspace.secrets_of(here)
    await _tell(
        arguments,
        await shared_store.join(workspaces, arguments.url, text, arguments.name or folder.name, folder, secrets),
    )
    return 0


async def _tell(arguments: argparse.Namespace, known: Known) -> None:
    console = Terminal()
    if arguments.json:
        await say_json(console, {"id": known.id, "name": known.name, "folder": str(known.folder)})
    else:
        await console.say(known.id)


# --- sync, status, unshare -------------------------------------------------------------------------------------------


async def sync(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    link = _link(workspace)
    await link.sync()
    complaint = await _conversations(workspace)
    done: dict[str, Any] = {}
    if arguments.check:
        entries, missing, damaged = await link.check()
        done |= {"checked": entries, "missing": missing, "damaged": damaged}
    if arguments.collect:
        done["collected"] = await link.collect(arguments.days * 86_400)
    figures = await _standing(workspace, link)
    figures["trouble"] = figures["trouble"] or complaint
    code = 1 if figures["trouble"] or figures["waiting"] or figures["facts_waiting"] else 0
    if arguments.json:
        await say_json(console, figures | done)
        return code
    await (console.complain if figures["trouble"] else console.say)(_sentence(figures))
    if arguments.check:
        await console.say(
            f"Compared {done['checked']:,} entries. Sent again: {done['missing']:,} entries that were missing from the store and {done['damaged']:,} that were damaged."
        )
    if arguments.collect:
        await console.say(f"Removed from the store {done['collected']:,} rows that no computer uses.")
    return code


async def status(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    link = _link(workspace)
    figures = await _standing(workspace, link)
    try:
        about, usage = await link.test()
        figures |= {"store": about, "rows": usage.rows, "bytes": usage.bytes, "quota": usage.quota}
    except HelixError as error:
        figures |= {"trouble": str(error)}
    if arguments.json:
        await say_json(console, figures)
        return 0
    await console.say(_sentence(figures))
    for name in ("url", "acknowledge", "store", "rows", "bytes", "quota"):
        if name in figures:
            value = figures[name]
            await console.say(f"{name:<12}{f'{value:,}' if isinstance(value, int) else value}")
    return 0


async def _standing(workspace: Workspace, link: Link) -> dict[str, Any]:
    from helix_desktop.store.shared import address

    now = await link.status()
    return {
        "facts_waiting": await workspace.facts_waiting() if address.holds_conversations(now.url) else 0,
        "url": now.url,
        "acknowledge": now.acknowledge,
        "waiting": now.waiting,
        "waiting_bytes": now.waiting_bytes,
        "forgetting": now.burying,
        "contact": now.contact,
        "away": now.away,
        "trouble": now.trouble,
    }


def _sentence(figures: Mapping[str, Any]) -> str:
    entries, facts = figures["waiting"], figures["facts_waiting"]
    what = f"{entries:,} cache entries ({figures['waiting_bytes']:,} bytes), {facts:,} facts of conversations."
    if figures["trouble"]:
        since = f" since {_time(figures['away'])}" if figures["away"] else ""
        return f"Not in sync{since}. {figures['trouble']}\nWaiting here: {what}"
    return f"Waiting to be sent: {what}" if entries or facts else "In sync."


def _time(moment: float) -> str:
    return time.strftime("%H:%M", time.localtime(moment))


async def unshare(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    from helix_desktop.store import linking
    from helix_desktop.workbench import shared_store

    _link(workspace)
    if not arguments.yes:
        await console.complain(f"{workspace.name} is still shared. Add --yes to stop sharing it from this computer.")
        return 1
    left = await shared_store.unshare(workspace)
    if arguments.forget_key:
        await linking.drop(workspace.id, open_workspace.secrets_of(arguments.places))
    if arguments.json:
        await say_json(console, {"id": workspace.id, "told": not left})
    else:
        await console.say(
            f"{workspace.name} is no longer shared from this computer. Everything already sent stays in the store."
        )
    if left:
        await console.complain(left)
    return 0


def _link(workspace: Workspace) -> Link:
    if workspace.link is None:
        raise NotThere(
            f"{workspace.name} is not shared.", remedy="To share the workspace, run `workspace share --to URL`."
        )
    return workspace.link
