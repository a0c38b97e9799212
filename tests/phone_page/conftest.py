"""A page before a workspace that a window has open, and devices that use it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.phone_page.open_hosts import OpenHosts
from helix_desktop.phone_page.page_app import PhonePage
from helix_desktop.phone_page.page_guard import COOKIE, LOOPBACK_NAMES, PageGuard
from helix_desktop.phone_page.paired_devices import PairedDevice, PairedDevices
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.workbench.conftest import folder

__all__ = ["folder"]
HOST = "127.0.0.1:4357"
ORIGIN = f"http://{HOST}"


@pytest.fixture
def where(tmp_path: Path) -> ProgramFolders:
    return program_folders.find_program_folders(tmp_path / "home")


@pytest.fixture
async def bench(where: ProgramFolders, folder: Path) -> AsyncIterator[Workbench]:
    """As a window has it open."""
    desk = Workbenches(
        where,
        SecretStorage(where.key_file, environ={}),
        serve=lambda workspace: workspace_access.listen_for_commands(workspace, where),
    )
    made = await desk.create_workspace("Pairs", folder)
    await made.choose_model_for_role("demo/demo")
    yield made
    await desk.aclose()


@pytest.fixture
def devices(where: ProgramFolders) -> PairedDevices:
    where.config.mkdir(parents=True, exist_ok=True)
    return PairedDevices(where.config)


@pytest.fixture
async def hosts(where: ProgramFolders) -> AsyncIterator[OpenHosts]:
    made = OpenHosts(where, [])
    yield made
    await made.aclose()


@pytest.fixture
async def browser(devices: PairedDevices, hosts: OpenHosts) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that is not paired."""
    page = PhonePage(devices, hosts, "workstation", is_encrypted=False)
    guard = PageGuard(page.app, devices, LOOPBACK_NAMES, is_encrypted=False)
    transport = httpx.ASGITransport(app=guard)
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
        yield client


@dataclass
class Phone:
    """A paired device. It sends forms as browsers do."""

    browser: httpx.AsyncClient
    device: PairedDevice
    cookie: str

    @property
    def headers(self) -> dict[str, str]:
        return {"cookie": f"{COOKIE}={self.cookie}", "host": HOST}

    def address(self, path: str) -> str:
        """Below the device's own path, if it is not yet."""
        own_path = self.device.own_path
        return path if path.startswith(own_path) else own_path + path

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.browser.get(self.address(path), headers={**self.headers, **headers})

    async def post(self, path: str, **fields: str) -> httpx.Response:
        headers = {**self.headers, "origin": ORIGIN, "sec-fetch-site": "same-origin"}
        form = {"token": self.device.form_token, **fields}
        return await self.browser.post(self.address(path), headers=headers, data=form)


def pair(browser: httpx.AsyncClient, devices: PairedDevices, *, may_allow: bool = True) -> Phone:
    code = devices.create_pairing_code(may_allow=may_allow)
    device, cookie = devices.pair_device(code, "Ada's phone")
    return Phone(browser, device, cookie)


@pytest.fixture
def phone(browser: httpx.AsyncClient, devices: PairedDevices) -> Phone:
    return pair(browser, devices)


def hidden_fields(page: str) -> dict[str, str]:
    """The fields of the form of a question."""
    form = page[page.index("/answer") :]
    return dict(re.findall(r'name="(number|fingerprint)" value="([^"]*)"', form))
