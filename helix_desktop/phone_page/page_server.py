"""Runs the page as a process: its socket, its encryption, and its end in order."""

import contextlib
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

import uvicorn

from helix_desktop import concurrency, running_instance
from helix_desktop.bounded_http_protocol import BoundedHttpProtocol, EncryptedListeningSocket
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.gateway_socket import BACKLOG
from helix_desktop.phone_page import page_certificate
from helix_desktop.phone_page.open_hosts import OpenHosts
from helix_desktop.phone_page.page_app import PhonePage
from helix_desktop.phone_page.page_guard import LOOPBACK_NAMES, PageGuard
from helix_desktop.phone_page.paired_devices import PairedDevices
from helix_desktop.phone_page.webhook import Webhook, send_notices_until_cancelled
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import PAGE_ADDRESS, PAGE_PORT, ProgramSettings

PAGE_NAME = "page"  # Only one process of a home serves the page.
MOST_CONNECTIONS = 128


@dataclass(frozen=True, slots=True)
class PageAddress:
    """Where the page answers. Anywhere but on this computer alone, it is encrypted."""

    address: str
    port: int

    @property
    def is_encrypted(self) -> bool:
        return not ipaddress.ip_address(self.address).is_loopback

    @property
    def name_in_url(self) -> str:
        if ":" in self.address:
            return f"[{self.address}]"
        return self.address

    @property
    def url(self) -> str:
        scheme = "http"
        if self.is_encrypted:
            scheme = "https"
        return f"{scheme}://{self.name_in_url}:{self.port}/"

    @property
    def own_names(self) -> frozenset[str]:
        """The names in requests. An SSH tunnel reaches the page by a name of the loopback."""
        if self.is_encrypted:
            return frozenset({self.name_in_url})
        return LOOPBACK_NAMES | {self.name_in_url}


def read_page_address(where: ProgramFolders) -> PageAddress:
    settings = ProgramSettings(where.settings_file)
    address = settings[PAGE_ADDRESS]
    try:
        ip_address = ipaddress.ip_address(address)
    except ValueError as error:
        raise InvalidInput(
            f"{address!r} is not an address of this computer, such as 192.168.1.20.",
            remedy="Choose one with `helix-desktop resident page on --address`.",
        ) from error
    if ip_address.is_unspecified or ip_address.is_multicast:
        raise InvalidInput(
            f"{address} stands for many addresses. The page answers at one.",
            remedy="Choose one with `helix-desktop resident page on --address`.",
        )
    return PageAddress(str(ip_address), settings[PAGE_PORT])


async def serve_page(
    where: ProgramFolders, command: Sequence[str], on_listening: Callable[[str], object]
) -> int:
    """Serves until standard input closes or the process is asked to end."""
    claim = running_instance.claim_instance(where.run, PAGE_NAME)
    if claim is None:
        return 1
    address = read_page_address(where)
    hosts = OpenHosts(where, command)
    with claim, _listen(address) as listening_socket:
        config = _build_page_config(where, address, hosts)
        server = _PageServer(config)
        _stop_on_signals_and_end_of_input(server)
        hosts.start_looking()
        notice_tasks = concurrency.OwnedTasks("notices for a phone")
        sending_notices = send_notices_until_cancelled(Webhook(where), hosts)
        notice_tasks.spawn_task(sending_notices, name="send notices")
        on_listening(address.url)
        try:
            await server.serve(sockets=[listening_socket])
        finally:
            await notice_tasks.aclose(limit=1)
            await hosts.aclose()
    return 0


def _build_page_config(
    where: ProgramFolders, place: PageAddress, hosts: OpenHosts
) -> uvicorn.Config:
    devices = PairedDevices(where.config)
    machine = socket.gethostname()
    page = PhonePage(devices, hosts, machine, is_encrypted=place.is_encrypted)
    guard = PageGuard(page.app, devices, place.own_names, is_encrypted=place.is_encrypted)
    config = uvicorn.Config(
        guard,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=BoundedHttpProtocol,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
    )
    if place.is_encrypted:
        certificate, key = page_certificate.ensure_certificate(where.config, place.address)
        config.ssl_certfile = str(certificate)
        config.ssl_keyfile = str(key)
    return config


class _PageServer(uvicorn.Server):
    """A uvicorn server that leaves signals to us: uvicorn's would end the process at once."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(place: PageAddress) -> socket.socket:
    """Returns a socket that listens. InvalidInput if the address or the port cannot be used."""
    family = socket.AF_INET
    if ":" in place.address:
        family = socket.AF_INET6
    kind_of_socket = socket.socket
    if place.is_encrypted:
        kind_of_socket = EncryptedListeningSocket
    # asyncio sends small packets without delay only on sockets that name their protocol as TCP.
    listening = kind_of_socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((place.address, place.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise InvalidInput(
            f"The page cannot answer at {place.url}: {error.strerror}.",
            remedy="Choose another address or port with `helix-desktop resident page on`.",
        ) from error
    return listening


def _stop_on_signals_and_end_of_input(server: uvicorn.Server) -> None:
    """The resident holds the other end of standard input. If it is killed, the page ends, too."""

    def request_end(*_: object) -> None:
        server.should_exit = True

    def wait_for_end_of_input() -> None:
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 1024):
                pass
        request_end()

    if threading.current_thread() is threading.main_thread():
        for number in {signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGTERM)}:
            signal.signal(number, request_end)
    concurrency.start_thread(wait_for_end_of_input, name="end of the page", daemon=True)
