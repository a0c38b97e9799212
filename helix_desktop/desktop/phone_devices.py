"""Implements `PhoneDevices` for the settings: the devices that may use the page for phones."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.errors import ActionRefused
from helix_desktop.gui.settings.installation_port import PairingInvitation, PhoneDevice
from helix_desktop.json_values import object_at
from helix_desktop.program_folders import ProgramFolders


class PagePhoneDevices:
    def __init__(self, where: ProgramFolders) -> None:
        self._where = where

    async def list_devices(self) -> Sequence[PhoneDevice]:
        return await asyncio.to_thread(self._read_devices)

    def _read_devices(self) -> list[PhoneDevice]:
        from helix_desktop.phone_page.paired_devices import PairedDevices

        return [
            PhoneDevice(device.id, device.name, device.may_allow, device.last_used)
            for device in PairedDevices(self._where.config).list_devices()
        ]

    async def list_own_addresses(self) -> Sequence[str]:
        from helix_desktop.phone_page.own_addresses import list_own_addresses

        return await asyncio.to_thread(list_own_addresses)

    async def restart_page(self) -> None:
        from helix_desktop.gateway import wrapped_agent
        from helix_desktop.resident import resident_client

        command = wrapped_agent.command_of_this_program(self._where)
        self._check_page_answers(
            await resident_client.ask_resident(self._where, "page", command=command)
        )

    def _check_page_answers(self, status: Mapping[str, Any] | None) -> None:
        """`status`: what the background process says, or None if it is not running."""
        page = object_at(status, "page")
        if page.get("trouble"):
            raise ActionRefused(str(page["trouble"]))
        if not page.get("url"):
            raise ActionRefused(
                "The page does not answer, so a code would lead nowhere.",
                remedy="Turn it on again.",
            )

    async def invite_device(self, *, may_allow: bool) -> PairingInvitation:
        from helix_desktop.resident import resident_client

        self._check_page_answers(await resident_client.ask_resident(self._where, "status"))
        return await asyncio.to_thread(self._create_invitation, may_allow)

    def _create_invitation(self, may_allow: bool) -> PairingInvitation:  # noqa: FBT001 - for to_thread
        from helix_desktop.phone_page import page_certificate, page_server, pairing_picture
        from helix_desktop.phone_page.paired_devices import PairedDevices

        place = page_server.read_page_address(self._where)
        create_private_folder(self._where.config)
        fingerprint = ""
        if place.is_encrypted:
            certificate, _ = page_certificate.ensure_certificate(self._where.config, place.address)
            fingerprint = page_certificate.read_certificate_fingerprint(certificate)
        code = PairedDevices(self._where.config).create_pairing_code(may_allow=may_allow)
        url = f"{place.url}pair"
        modules = pairing_picture.draw_qr_modules(pairing_picture.pairing_link(url, code))
        return PairingInvitation(code, url, fingerprint, modules)

    async def revoke_device(self, device: str) -> None:
        from helix_desktop.phone_page.paired_devices import PairedDevices

        await asyncio.to_thread(PairedDevices(self._where.config).revoke_device, device)

    async def send_test_notice(self) -> None:
        # Imported in a thread, as the libraries of the page take a while.
        webhook = await asyncio.to_thread(import_module, "helix_desktop.phone_page.webhook")
        notices = await asyncio.to_thread(import_module, "helix_desktop.phone_page.webhook_notices")
        test = notices.Notice(notices.NoticeKind.TEST)
        await webhook.Webhook(self._where).send_notice(test)
