"""Puts the gateway's address into an agent's settings, where somebody holds it from then on, and takes it out again.

An agent cannot ask who listens at an address: it sends its key. So the resident must hold the port before the address is written, and
again at every login; where that cannot be promised nothing is written.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from helix_desktop.errors import HelixError
from helix_desktop.gateway import installing, wrapping
from helix_desktop.gateway.agents import KnownAgent
from helix_desktop.gateway.installing import Change
from helix_desktop.places import Places
from helix_desktop.resident import client, login


def planned(agent: KnownAgent, where: Places) -> Change:
    """What connecting would change. The resident runs and holds the address when this returns."""
    login.check()
    held = asyncio.run(client.ask(where, "hold", command=wrapping.program(where)))
    if not held:
        raise HelixError(f"Nobody holds the gateway's address, so {agent.title} was not connected.")
    return installing.planned(agent, int(held["port"]), Path.home())


def connect(change: Change, where: Places) -> None:
    """Write the address, with its holder at every login."""
    login.start_at_login(wrapping.program(where))
    installing.install(change, where.config)
    asyncio.run(client.ask(where, "installed", command=wrapping.program(where)))


def disconnect(change: Change, where: Places) -> None:
    """Take it out. With the last one the resident is no longer started at login, and ends when nothing else needs it."""
    installing.uninstall(change, where.config)
    if not installing.installed_registrations(where.config):
        login.stop_at_login()
    asyncio.run(client.ask(where, "installed"))
