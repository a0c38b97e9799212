"""The resident process: knows who is registered with it, and keeps what they need running.

Callers reach it like any running program (`running_instance.py`), by a socket in a private folder
of the user, where both ends know each other's user. A registration lasts as long as its connection.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from helix_desktop import running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gateway import address_in_agent_settings, gateway_socket, wrapped_agent
from helix_desktop.gateway.registration import CONVERSATIONS_FILE, GatewayRegistration, new_token
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import (
    PAGE_ADDRESS,
    PAGE_ON,
    PAGE_PORT,
    RECORDER,
    ProgramSettings,
)
from helix_desktop.resident.gateway_keeper import GatewayKeeper
from helix_desktop.resident.history_recorder import HistoryRecorder
from helix_desktop.resident.page_keeper import PageKeeper
from helix_desktop.resident.schedule_keeper import ScheduleKeeper

log = logging.getLogger(__name__)
RESIDENT_NAME = "resident"
# A resident that was started for a caller ends if no agent registers within this many
# seconds.
FIRST_SECONDS = 20.0
ANSWER_PAUSE_SECONDS = 0.01
# After this many tries, we assume that the gateway is busy, and tell the caller its
# address.
MOST_ANSWER_TRIES = 1_000


class Resident:
    def __init__(
        self,
        where: ProgramFolders,
        keeper: GatewayKeeper,
        schedules: ScheduleKeeper,
        page: PageKeeper,
    ) -> None:
        self._where = where
        self._keeper = keeper
        self._page = page
        self.schedule_keeper = schedules
        self._recorder: HistoryRecorder | None = None
        self._registered: dict[str, GatewayRegistration] = {}
        self._installed: dict[str, GatewayRegistration] = {}
        self._starting = asyncio.Lock()
        self._changing_recorder = asyncio.Lock()
        self._changing_page = asyncio.Lock()
        self._place_of_page: tuple[str, int] = ("", 0)  # Where the page was started last.
        self._since = time.time()
        self._may_end = False
        self.trouble = ""
        self.ended = asyncio.Event()
        # Requests without arguments.
        self._requests: Mapping[str, Callable[[], Awaitable[None]]] = {
            "hold": self._ensure_listening,
            "installed": self.read_installed_registrations,
            "schedules": self._reread_schedules,
            "recorder": self.start_or_stop_recorder,
            "page": self.start_or_stop_page,
            "stop": self._stop,
            "status": self._answer_status,
        }

    @property
    def is_needed(self) -> bool:
        """Whether it records, agents use it or have its address in their settings, schedules
        exist, or the page for phones is on.
        """
        if self._recorder is not None or self._installed or self.schedule_keeper.schedules:
            return True
        if self._page.is_wanted or self._changing_page.locked():
            return True
        for registration in self._registered.values():
            # A window that only looks at the gateway does not keep it running.
            if not registration.sees_all:
                return True
        return False

    async def answer_resident_request(self, arguments: list[str], console: Console) -> int:
        """Do what a command or a window asks for. Some requests are answered with the status."""
        match arguments:
            case ["register", *rows]:
                registrations = [_parse_registration(row) for row in rows]
                return await self._hold_registrations(registrations, console)
            case ["register again", port, *rows]:
                # Agents know this port. If it is taken, another one will do.
                with suppress(InvalidInput, ValueError):
                    await self._ensure_listening(int(port))
                registrations = [_parse_registration(row) for row in rows]
                return await self._hold_registrations(registrations, console)
            case [request] if request in self._requests:
                await self._requests[request]()
            case _:
                raise InvalidInput(
                    "The background process does not support this request.",
                    remedy="Run `helix-desktop resident stop`, and then `helix-desktop resident start`.",
                )
        if arguments[0] in ("hold", "recorder", "page", "status"):
            await console.print_line(json.dumps(self.resident_status_as_json()))
        return 0

    async def _reread_schedules(self) -> None:
        self.schedule_keeper.reread_schedules()
        self.stop_unless_needed()

    async def _stop(self) -> None:
        self.ended.set()

    async def _answer_status(self) -> None:
        """There is nothing to do: the status follows."""

    def resident_status_as_json(self) -> dict[str, Any]:
        """Return the status for people and the window, without tokens."""
        recorder_status: dict[str, Any] | None = None
        if self._recorder is not None:
            recorder_status = self._recorder.recorder_status_as_json()
        registered: list[dict[str, str]] = []
        for registration in self._list_registrations():
            registered_agent = {
                "agent": registration.agent,
                "folder": registration.folder,
                "upstream": registration.upstream,
            }
            registered.append(registered_agent)
        installed_agents = [installed.agent for installed in self._installed.values()]
        page_status = self._page.page_status_as_json()
        return {
            "pid": os.getpid(),
            "since": self._since,
            "port": self._keeper.port,
            "gateway": self._keeper.gateway_pid,
            "trouble": self.trouble,
            "page": page_status,
            "schedules": len(self.schedule_keeper.schedules),
            "recorder": recorder_status,
            "installed": sorted(installed_agents),
            "registered": registered,
        }

    def _list_registrations(self) -> list[GatewayRegistration]:
        """Return those whose connection lasts, and those of addresses in agents' settings."""
        return list(self._registered.values()) + list(self._installed.values())

    async def read_installed_registrations(self) -> None:
        """Read which agents have this gateway's address in their settings. If somebody else now
        has its port, remove the address from these settings, or they would get the agents' keys.
        """
        ports_by_registration = await asyncio.to_thread(
            address_in_agent_settings.read_written_registrations, self._where.config
        )
        self._installed = {
            registration.token: registration for registration in ports_by_registration
        }
        # This comes first, so that the gateway accepts agents as soon as they can reach it.
        self._send_registrations_to_keeper()
        try:
            for port in set(ports_by_registration.values()):
                await self._ensure_listening(port)
        except InvalidInput as error:
            log.warning("%s", error.what)
            await self._remove_installed_addresses()
        self._update_gateway_and_stop_if_unneeded()

    async def _remove_installed_addresses(self) -> None:
        """Remove the address from agents' settings, and say in the status which agents had it."""
        disconnected_agents, complaints = await asyncio.to_thread(
            address_in_agent_settings.remove_all_addresses, self._where.config
        )
        for agent in disconnected_agents:
            complaints.append(
                f"The gateway's port is in use by another program, so {agent} no longer uses the gateway."
            )
        self.trouble = " ".join(complaints)
        self._installed = {}

    async def start_or_stop_recorder(self) -> None:
        """Start the recorder again with its settings, or stop it if it is off."""
        async with self._changing_recorder:
            previous = self._recorder
            if previous is not None:
                await asyncio.to_thread(previous.stop_recording)
                self._recorder = None
                self._may_end = True
            if ProgramSettings(self._where.settings_file)[RECORDER]:
                command = wrapped_agent.command_of_this_program(self._where)
                self._recorder = HistoryRecorder(
                    self._where, command, HistoryPlaces.of_this_user(), previous=previous
                )
                self._recorder.start_recording()
        self._update_gateway_and_stop_if_unneeded()

    async def start_or_stop_page(self) -> None:
        """Start the page for phones again with its settings, or stop it if it is off. A page that
        answers where the settings say is left alone: each of several changes asks for this.
        """
        async with self._changing_page:
            was_on = self._page.is_wanted
            settings = ProgramSettings(self._where.settings_file)
            wanted_place = (settings[PAGE_ADDRESS], settings[PAGE_PORT])
            if settings[PAGE_ON] and self._page.url and wanted_place == self._place_of_page:
                return
            await asyncio.to_thread(self._page.stop_page)
            if settings[PAGE_ON]:
                await asyncio.to_thread(self._page.start_page)
                self._place_of_page = wanted_place
            elif was_on:
                self._may_end = True
        self._update_gateway_and_stop_if_unneeded()

    async def _hold_registrations(
        self, registrations: Sequence[GatewayRegistration], console: Console
    ) -> int:
        """Keep the registrations until the caller disconnects, which cancels this coroutine."""
        self._may_end = True
        for registration in registrations:
            self._registered[registration.token] = registration
        try:
            self._send_registrations_to_keeper()
            await self._ensure_listening()
            tokens: list[str] = []
            addresses: list[str] = []
            for registration in registrations:
                address = gateway_socket.agent_address(self._keeper.port, registration.token)
                tokens.append(registration.token)
                addresses.append(address)
            # The gateway learns of all at once, so if it knows the last one, it knows the others.
            await _wait_until_answered(addresses[-1])
            await console.print_line(json.dumps({"addresses": addresses, "tokens": tokens}))
            await self.ended.wait()
        finally:
            for registration in registrations:
                # The caller may have registered again, over another connection.
                if self._registered.get(registration.token) is registration:
                    del self._registered[registration.token]
            self._update_gateway_and_stop_if_unneeded()
        return 0

    async def _ensure_listening(self, port: int = 0) -> None:
        """Start the gateway if none runs, on this port if one is given (0: any)."""
        async with self._starting:
            if not self._keeper.port:
                await asyncio.to_thread(self._keeper.start_first_gateway, port)
            elif port not in (0, self._keeper.port):
                raise InvalidInput(
                    f"The gateway is listening on port {self._keeper.port} instead of {port}."
                )

    def _update_gateway_and_stop_if_unneeded(self) -> None:
        self._send_registrations_to_keeper()
        if self._may_end:
            self.stop_unless_needed()

    def _send_registrations_to_keeper(self) -> None:
        self._keeper.set_registrations(self._list_registrations())

    def stop_unless_needed(self) -> None:
        self._may_end = True
        if not self.is_needed:
            self.ended.set()

    async def aclose(self) -> None:
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.stop_recording)
        await asyncio.to_thread(self._page.stop_page)
        await asyncio.to_thread(self._keeper.stop_gateway_process)
        (self._where.run / CONVERSATIONS_FILE).unlink(missing_ok=True)


def _is_shared_workspace(where: ProgramFolders, workspace: str) -> bool:
    # Only with schedules: the resident is always there, and takes little memory without these.
    from helix_desktop.store.all_workspaces import AllWorkspaces
    from helix_desktop.store.workspace_link import is_set_up_to_be_shared

    try:
        known_workspace = AllWorkspaces(where.workspaces_folder).find_known_workspace(workspace)
    except HelixError:  # It was removed, or its settings cannot be read.
        return False
    return is_set_up_to_be_shared(known_workspace)


async def run_resident(
    where: ProgramFolders, command: list[str], listens: Callable[[], None]
) -> bool:
    """Run until nothing needs the resident or it must end. Return False if another
    process is resident. `listens` is called once requests are answered.
    """
    claim = running_instance.claim_instance(where.run, RESIDENT_NAME)
    if claim is None:
        return False
    schedule_keeper = ScheduleKeeper(where.data, command, partial(_is_shared_workspace, where))
    schedule_keeper.reread_schedules()
    gateway_keeper = GatewayKeeper(command + ["gateway"])
    resident = Resident(where, gateway_keeper, schedule_keeper, PageKeeper(command))
    _end_on_signals(resident.ended)
    await resident.read_installed_registrations()  # Read before the resident answers requests.
    request_listener = await running_instance.listen_for_requests(
        where.run, RESIDENT_NAME, resident.answer_resident_request
    )
    schedule_tasks = OwnedTasks("resident")
    schedule_tasks.spawn_task(
        schedule_keeper.add_due_tasks_until_cancelled(), name="keep schedules"
    )
    try:
        listens()
        await resident.start_or_stop_recorder()
        await resident.start_or_stop_page()
        asyncio.get_running_loop().call_later(FIRST_SECONDS, resident.stop_unless_needed)
        await resident.ended.wait()
    finally:
        await schedule_tasks.aclose()
        await request_listener.aclose()
        await resident.aclose()
        claim.close()
    return True


def _end_on_signals(ended: asyncio.Event) -> None:
    if sys.platform == "win32":  # Its event loop has no handlers of signals.
        return
    for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signal_number, ended.set)


async def _wait_until_answered(address: str) -> None:
    """Wait until the gateway knows an address. It learns it over a pipe, so an early
    request could be refused.
    """
    for _ in range(MOST_ANSWER_TRIES):
        if await asyncio.to_thread(wrapped_agent.fetch_gateway_status, address) is not None:
            return
        await asyncio.sleep(ANSWER_PAUSE_SECONDS)


def _parse_registration(row: str) -> GatewayRegistration:
    """Read a registration from JSON. One without a token gets a new one; a key is not kept."""
    try:
        fields = json.loads(row)
        fields["token"] = fields.get("token") or new_token()
        registration = GatewayRegistration(**fields)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInput("The agent's registration with the gateway is not valid.") from error
    return replace(registration, key="")
