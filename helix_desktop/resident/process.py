"""The resident process: who is registered with it, and what it therefore keeps running.

Callers reach it as every command reaches a running program (`instance.py`): a socket in a folder of this user's alone, where both ends
see whose the other is. A registration lasts as long as the connection that asked for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from helix_desktop import instance
from helix_desktop.console import Console
from helix_desktop.errors import WrongUse
from helix_desktop.gateway import installing, listening
from helix_desktop.gateway.registration import Registration, new_token
from helix_desktop.places import Places
from helix_desktop.resident.gateway_keeper import GatewayKeeper

log = logging.getLogger(__name__)
NAME = "resident"
FIRST_SECONDS = 20.0  # within which somebody must register with a resident that was started for it


class Resident:
    """What one resident process knows."""

    def __init__(self, where: Places, keeper: GatewayKeeper) -> None:
        self._where = where
        self._keeper = keeper
        self._registered: dict[str, Registration] = {}
        self._installed: dict[str, Registration] = {}
        self._starting = asyncio.Lock()
        self._since = time.time()
        self._may_end = False
        self.trouble = ""
        self.ended = asyncio.Event()

    @property
    def is_needed(self) -> bool:
        """Whether somebody is registered who does not only look on, or an agent's settings have its address."""
        return bool(self._installed) or any(not one.sees_all for one in self._registered.values())

    async def answer(self, arguments: list[str], console: Console) -> int:
        """What a caller asks: `instance.Answer`."""
        match arguments:
            case ["register", *told]:
                return await self._register([_registration(one) for one in told], console)
            case ["hold"]:
                await self._hold()
                await console.say(json.dumps(self.status()))
            case ["installed"]:
                await self.read_installed()
            case ["status"]:
                await console.say(json.dumps(self.status()))
            case ["stop"]:
                self.ended.set()
            case _:
                raise WrongUse("The resident does not know this request.", remedy="Update all of Helix Desktop.")
        return 0

    def status(self) -> dict[str, Any]:
        """For people and the window. Tokens stay here."""
        known = [*self._registered.values(), *self._installed.values()]
        return {
            "pid": os.getpid(),
            "since": self._since,
            "port": self._keeper.port,
            "gateway": self._keeper.pid,
            "trouble": self.trouble,
            "installed": sorted(one.agent for one in self._installed.values()),
            "registered": [{"agent": one.agent, "folder": one.folder, "upstream": one.upstream} for one in known],
        }

    async def read_installed(self) -> None:
        """The agents whose settings have an address of this gateway. Where its port is somebody else's now, they would get the
        agents' keys: so the address is taken out of those settings.
        """
        found = await asyncio.to_thread(installing.installed_registrations, self._where.config)
        try:
            for port in set(found.values()):
                await self._hold(port)
        except WrongUse as error:
            log.warning("%s", error.what)
            self.trouble = await asyncio.to_thread(installing.take_out_all, self._where.config)
            found = {}
        self._installed = {one.token: one for one in found}
        self._changed()

    async def _register(self, registrations: Sequence[Registration], console: Console) -> int:
        """Until the caller goes: then this is cancelled."""
        self._may_end = True
        self._registered.update({one.token: one for one in registrations})
        try:
            await self._hold()
            self._tell()
            tokens = [one.token for one in registrations]
            addresses = [listening.agent_address(self._keeper.port, token) for token in tokens]
            await console.say(json.dumps({"addresses": addresses, "tokens": tokens}))
            await self.ended.wait()
        finally:
            for one in registrations:
                self._registered.pop(one.token, None)
            self._changed()
        return 0

    async def _hold(self, port: int = 0) -> None:
        async with self._starting:
            if not self._keeper.port:
                await asyncio.to_thread(self._keeper.begin, port)
            elif port not in (0, self._keeper.port):
                raise WrongUse(f"The gateway listens on port {self._keeper.port}, and not on {port}.")

    def _changed(self) -> None:
        self._tell()
        if self._may_end:
            self.end_unless_needed()

    def _tell(self) -> None:
        self._keeper.tell([*self._registered.values(), *self._installed.values()])

    def end_unless_needed(self) -> None:
        """From now on it ends as soon as nobody needs it."""
        self._may_end = True
        if not self.is_needed:
            self.ended.set()

    async def aclose(self) -> None:
        """End what it keeps running."""
        await asyncio.to_thread(self._keeper.end)


async def run(where: Places, command: list[str], listens: Callable[[], None]) -> bool:
    """Be the resident until nothing needs it, or it is told to end. `listens` is called once it can be reached. False: another
    process is the resident.
    """
    claim = instance.claim(where.run, NAME)
    if claim is None:
        return False
    resident = Resident(where, GatewayKeeper(command))
    for number in _endings():
        asyncio.get_running_loop().add_signal_handler(number, resident.ended.set)
    await resident.read_installed()  # before anybody asks
    owner = await instance.listen(where.run, NAME, resident.answer)
    try:
        listens()
        asyncio.get_running_loop().call_later(FIRST_SECONDS, resident.end_unless_needed)
        await resident.ended.wait()
    finally:
        await owner.aclose()
        await resident.aclose()
        claim.close()
    return True


def _endings() -> tuple[signal.Signals, ...]:
    if sys.platform == "win32":
        return ()
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


def _registration(told: str) -> Registration:
    try:
        value = json.loads(told)
        made = Registration(**{**value, "token": value.get("token") or new_token()})
    except (ValueError, TypeError, AttributeError) as error:
        raise WrongUse("The registration is not valid.") from error
    return replace(made, key="")
