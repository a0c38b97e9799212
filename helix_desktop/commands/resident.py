"""`resident`: the process that holds the gateway's address while windows and terminals come and go."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING

from helix_desktop import places
from helix_desktop.commands import as_json, minute

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("resident", help="show or stop the process that holds the gateway's address")
    noun.add_argument("--run", dest="run_here", action="store_true", help=argparse.SUPPRESS)
    noun.set_defaults(run=_bare, json=False)
    verbs = noun.add_subparsers(metavar="VERB")
    status = verbs.add_parser("status", help="show whether it runs, and which agents use it")
    as_json(status)
    status.set_defaults(run=_status)
    stop = verbs.add_parser("stop", help="stop it; agents that use the gateway lose their connection")
    as_json(stop)
    stop.set_defaults(run=_stop)


def _bare(arguments: argparse.Namespace) -> int:
    return (_run if arguments.run_here else _status)(arguments)


def _status(arguments: argparse.Namespace) -> int:
    from helix_desktop.resident import client

    found = asyncio.run(client.ask(places.find(arguments.home), "status"))
    if arguments.json:
        print(json.dumps(found, indent=1))
    elif found is None:
        print("The resident process is not running. It is started when it is needed.")
    else:
        print(f"The resident process {found['pid']} has been running since {minute(found['since'])}.")
        print(f"The gateway's address is 127.0.0.1:{found['port']}." if found["port"] else "It holds no address.")
        for one in found["registered"]:
            print(" ".join(filter(None, (f"- {one['agent'] or 'any agent'}", one["folder"], one["upstream"]))))
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    from helix_desktop.resident import client

    found = asyncio.run(client.ask(places.find(arguments.home), "stop"))
    if arguments.json:
        print(json.dumps({"stopped": found is not None}))
    else:
        print("The resident process is not running." if found is None else "The resident process was stopped.")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    from helix_desktop.gateway import wrapping
    from helix_desktop.resident import process

    where = places.find(arguments.home)

    def listens() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    asyncio.run(process.run(where, [*wrapping.program(where), "gateway"], listens))
    return 0
