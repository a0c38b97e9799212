"""Whether there is a newer version: asked once a day at an address the user gave. Without one nothing is ever asked.

The address answers as GitHub's releases do: JSON with `tag_name`, and `html_url` where it can be had.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable

from helix_desktop import __version__
from helix_desktop.errors import HelixError, Unreachable
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.links import open_link
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.words import tr
from helix_desktop.providers.transport import Connections, Transport
from helix_desktop.values import dataclass

DAY = 86_400.0
EVERY = 3_600.0  # seconds between two looks at the clock: a laptop sleeps
SECONDS = 15.0
LONGEST = 1 << 20
STAYS = 600_000
_VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,5})")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Release:
    version: str
    page: str


async def newest(address: str, connections: Connections) -> Release:
    """The release the address tells of."""
    where = "the address of newer versions"
    async with Transport(address, where, {}, connections).get("", SECONDS) as answer:
        status, content = answer.status, await answer.whole(LONGEST)
    if status != 200:
        raise Unreachable(
            f"No version was found at {where}: the server responded with status {status}.",
            remedy="Correct the address.",
        )
    try:
        told = json.loads(content)
        version = _VERSION.match(told["tag_name"])
        page = told.get("html_url")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        version, page = None, None
    if version is None:
        raise Unreachable(f"The response from {where} does not contain a version.", remedy="Correct the address.")
    return Release(version[1], page if isinstance(page, str) else address)


def is_newer(version: str, than: str = __version__) -> bool:
    return _numbers(version) > _numbers(than)


def _numbers(version: str) -> list[int]:
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


@dataclass(frozen=True, slots=True)
class Updates:
    """`address`: the user's, as it is now."""

    address: Callable[[], str]
    memory: Memory
    connections: Connections
    notices: Notices

    async def watch(self) -> None:
        """Look once a day, quietly."""
        while True:
            if self.address() and time.time() - self.memory.get("updates", "asked", default=0.0) >= DAY:
                await self.look(quiet=True)
            await asyncio.sleep(EVERY)

    async def look(self, *, quiet: bool = False) -> None:
        """Ask now, and tell what came of it; `quiet`: only of a newer version."""
        address = self.address()
        if not address:
            return
        self.memory.put("updates", "asked", value=time.time())
        try:
            release = await newest(address, self.connections)
        except HelixError as error:
            log.info("no newer version could be looked for: %s", type(error).__name__)  # its words name the address
            if not quiet:
                self.notices.tell_error(error)
            return
        if is_newer(release.version):
            text = tr("Version {newer} is available. You have {ours}.", newer=release.version, ours=__version__)
            button = tr("Open {address}", address=release.page[:60])
            self.notices.tell(text, button=button, act=lambda: open_link(release.page), stays=STAYS)
        elif not quiet:
            self.notices.tell(tr("Helix Desktop {ours} is up to date.", ours=__version__))
