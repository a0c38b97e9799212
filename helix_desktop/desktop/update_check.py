"""Whether there is a newer version: asked once a day at an address the user gave. Without one nothing is ever asked.

The address answers as GitHub's releases do: JSON with `tag_name`, and `html_url` where it can be had.
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable

from helix_desktop import __version__
from helix_desktop.errors import HelixError, ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_memory import WindowMemory
from helix_desktop.providers.http_transport import ProviderConnections, ProviderTransport

DAY = 86_400.0
EVERY = 3_600.0  # How often the clock is read, in seconds, because a laptop may sleep.
SECONDS = 15.0
LONGEST = 1 << 20
STAYS = 600_000
_VERSION = re.compile(r"v?(\d{1,6}(?:\.\d{1,6}){0,5})")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProgramRelease:
    version: str
    page: str


async def fetch_newest_release(address: str, connections: ProviderConnections) -> ProgramRelease:
    where = "the address of newer versions"
    async with ProviderTransport(address, where, {}, connections).open_get("", SECONDS) as answer:
        status, content = answer.status_code, await answer.read_whole_body(LONGEST)
    if status != 200:
        raise ProviderUnreachable(
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
        raise ProviderUnreachable(
            f"The response from {where} does not contain a version.", remedy="Correct the address."
        )
    return ProgramRelease(version[1], page if isinstance(page, str) else address)


def is_newer_version(version: str, than: str = __version__) -> bool:
    return _version_numbers(version) > _version_numbers(than)


def _version_numbers(version: str) -> list[int]:
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


@dataclass(frozen=True, slots=True)
class UpdateCheck:
    """`address`: the user's, as it is now."""

    address: Callable[[], str]
    memory: WindowMemory
    connections: ProviderConnections
    notices: Notices

    async def check_daily(self) -> None:
        """Look once a day, quietly."""
        while True:
            if self.address() and time.time() - self.memory.get_remembered("updates", "asked", default=0.0) >= DAY:
                await self.check_for_update(quiet=True)
            await asyncio.sleep(EVERY)

    async def check_for_update(self, *, quiet: bool = False) -> None:
        """Ask now, and tell what came of it; `quiet`: only of a newer version."""
        address = self.address()
        if not address:
            return
        self.memory.remember_value("updates", "asked", value=time.time())
        try:
            release = await fetch_newest_release(address, self.connections)
        except HelixError as error:
            # the error's message would name the address
            log.info("no newer version could be looked for: %s", type(error).__name__)
            if not quiet:
                self.notices.show_error_notice(error)
            return
        if is_newer_version(release.version):
            text = tr("Version {newer} is available. You have {ours}.", newer=release.version, ours=__version__)
            button = tr("Open {address}", address=release.page[:60])
            self.notices.show_notice(text, button=button, act=lambda: open_in_browser(release.page), stays=STAYS)
        elif not quiet:
            self.notices.show_notice(tr("Helix Desktop {ours} is up to date.", ours=__version__))
