"""`resident page`: the page for phones and browsers, and the devices that may use it."""

from __future__ import annotations

import argparse
from argparse import Namespace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from helix_desktop.commands import format_local_time
from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    parse_port,
)
from helix_desktop.console import Terminal
from helix_desktop.errors import HelixError
from helix_desktop.gateway import wrapped_agent
from helix_desktop.program_settings import (
    PAGE_ADDRESS,
    PAGE_ON,
    PAGE_PORT,
    PAGE_WEBHOOK,
    PAGE_WEBHOOK_CONTENT,
    ProgramSettings,
)
from helix_desktop.resident import resident_client

if TYPE_CHECKING:
    from helix_desktop.phone_page.paired_devices import PairedDevice
    from helix_desktop.program_folders import ProgramFolders

PAIR_HINT = "To pair a device, run: helix-desktop resident page pair"


async def turn_page_on(arguments: Namespace) -> int:
    """Saves the page's address and port, turns it on, and prints where the background process
    answers now.
    """
    from helix_desktop.phone_page import page_server

    settings = ProgramSettings(arguments.places.settings_file)
    if arguments.address is not None:
        settings.change_setting(PAGE_ADDRESS, arguments.address)
    if arguments.port is not None:
        settings.change_setting(PAGE_PORT, arguments.port)
    page_server.read_page_address(arguments.places)  # A mistake is said before anything starts.
    settings.change_setting(PAGE_ON, True)
    command = wrapped_agent.command_of_this_program(arguments.places)
    status = await resident_client.ask_resident(arguments.places, "page", command=command)
    page = (status or {}).get("page") or {}
    if page.get("trouble"):
        raise HelixError(str(page["trouble"]))
    lines = [f"The page answers at {page.get('url')}", *_describe_certificate(arguments.places)]
    lines.append(PAIR_HINT)
    return await _print_page_answer(arguments, page, *lines)


async def turn_page_off(arguments: Namespace) -> int:
    ProgramSettings(arguments.places.settings_file).change_setting(PAGE_ON, False)
    await resident_client.ask_resident(arguments.places, "page")
    line = "The page is off. Paired devices stay paired until you revoke them."
    return await _print_page_answer(arguments, {"on": False}, line)


async def print_page_status(arguments: Namespace) -> int:
    """Prints whether the page can be reached, and which devices may use it."""
    is_on = ProgramSettings(arguments.places.settings_file)[PAGE_ON]
    status = await resident_client.ask_resident(arguments.places, "status") or {}
    page = status.get("page") or {}
    devices = _paired_devices(arguments.places).list_devices()
    lines = ["The page is off."]
    if is_on:
        lines = [*_describe_running_page(page), *_describe_certificate(arguments.places)]
    for device in devices:
        lines.append(_describe_device(device))
    if not devices:
        lines.append("No device is paired.")
    value = {
        "on": is_on,
        "url": page.get("url", ""),
        "trouble": page.get("trouble", ""),
        "devices": [_device_as_json(device) for device in devices],
    }
    return await _print_page_answer(arguments, value, *lines)


def _describe_running_page(page: dict[str, Any]) -> list[str]:
    if page.get("trouble"):
        return [str(page["trouble"])]
    if not page.get("url"):
        return [
            "The page is on, but the background process is not running. To start it, run: helix-desktop resident start"
        ]
    return [f"The page answers at {page['url']}"]


def _describe_certificate(where: ProgramFolders) -> list[str]:
    """Says how to recognize the page's certificate, which this program has signed itself. A
    page that only this computer reaches has none.
    """
    from helix_desktop.phone_page import page_certificate, page_server

    place = page_server.read_page_address(where)
    if not place.is_encrypted:
        return []
    certificate, _ = page_certificate.ensure_certificate(where.config, place.address)
    return [
        "The browser warns that it does not know the certificate. Continue only if its SHA-256 fingerprint is",
        page_certificate.read_certificate_fingerprint(certificate),
    ]


def _describe_device(device: PairedDevice) -> str:
    right = "may allow" if device.may_allow else "look only"
    return f"- {device.name} ({right}), last used {format_local_time(device.last_used)}, id {device.id}"


def _device_as_json(device: PairedDevice) -> dict[str, Any]:
    return {
        "id": device.id,
        "name": device.name,
        "may_allow": device.may_allow,
        "paired": datetime.fromtimestamp(device.paired, UTC).isoformat(),
        "last_used": datetime.fromtimestamp(device.last_used, UTC).isoformat(),
    }


async def print_pairing_code(arguments: Namespace) -> int:
    """Prints a code with which one device gets access, as a picture for its camera and as text."""
    from helix_desktop.phone_page import page_server
    from helix_desktop.phone_page.pairing_picture import draw_qr_lines, pairing_link

    code = _paired_devices(arguments.places).create_pairing_code(may_allow=not arguments.look_only)
    place = page_server.read_page_address(arguments.places)
    right = "look" if arguments.look_only else "look, allow, and send messages"
    pair_url = f"{place.url}pair"
    lines = draw_qr_lines(pairing_link(pair_url, code))
    lines += [
        f"Point the device's camera at the picture, or open {pair_url} there and enter this code within ten minutes: {code}",
        f"The device may {right}. The code works once.",
        *_describe_certificate(arguments.places),
    ]
    if not ProgramSettings(arguments.places.settings_file)[PAGE_ON]:
        lines.append("The page is off. To turn it on, run: helix-desktop resident page on")
    value = {"code": code, "url": pair_url, "may_allow": not arguments.look_only}
    return await _print_page_answer(arguments, value, *lines)


async def revoke_named_device(arguments: Namespace) -> int:
    device = _paired_devices(arguments.places).revoke_device(arguments.device)
    line = f"{device.name} can no longer use the page."
    return await _print_page_answer(arguments, {"revoked": device.id}, line)


async def set_webhook(arguments: Namespace) -> int:
    """Says where notices are sent, after changing what was named."""
    from helix_desktop.phone_page.webhook import Webhook, check_webhook_address
    from helix_desktop.phone_page.webhook_notices import Notice, NoticeKind

    settings = ProgramSettings(arguments.places.settings_file)
    if arguments.address == "off":
        settings.change_setting(PAGE_WEBHOOK, "")
    elif arguments.address is not None:
        check_webhook_address(arguments.address)
        settings.change_setting(PAGE_WEBHOOK, arguments.address)
    if arguments.content is not None:
        settings.change_setting(PAGE_WEBHOOK_CONTENT, arguments.content == "on")
    address = settings[PAGE_WEBHOOK]
    if not address:
        return await _print_page_answer(
            arguments, {"webhook": "", "content": False}, "No notices are sent."
        )
    if arguments.token:
        await _store_webhook_token(arguments, address)
    lines = [f"Notices are sent to {address} while the page is on, {_describe_content(settings)}."]
    if not settings[PAGE_ON]:
        lines.append("The page is off. To turn it on, run: helix-desktop resident page on")
    if arguments.test:
        await Webhook(arguments.places).send_notice(Notice(NoticeKind.TEST))
        lines.append("A test was sent.")
    value = {"webhook": address, "content": settings[PAGE_WEBHOOK_CONTENT]}
    return await _print_page_answer(arguments, value, *lines)


def _describe_content(settings: ProgramSettings) -> str:
    if settings[PAGE_WEBHOOK_CONTENT]:
        return "with the title of the conversation and what the agent asks for"
    return "without content"


async def _store_webhook_token(arguments: Namespace, address: str) -> None:
    """Asks for the token that the address needs, and stores it where `--keep` says."""
    from helix_desktop.commands.provider_command import ask_for_key
    from helix_desktop.commands.workspace_access import open_secrets
    from helix_desktop.secrets import SecretKeeper, WebhookToken

    token = ask_for_key("the webhook").strip()
    where = SecretKeeper.KEYRING
    if arguments.keep == "file":
        where = SecretKeeper.FILE
    await open_secrets(arguments.places).store_secret_at(WebhookToken(address), token, where=where)


async def serve_page_until_stopped(arguments: Namespace) -> int:
    from helix_desktop.phone_page import page_server

    command = wrapped_agent.command_of_this_program(arguments.places)
    tell = partial(print, flush=True)
    return await page_server.serve_page(arguments.places, command, tell)


def _paired_devices(where: ProgramFolders) -> Any:
    from helix_desktop.phone_page.paired_devices import PairedDevices

    return PairedDevices(where.config)


async def _print_page_answer(arguments: Namespace, value: object, *lines: str) -> int:
    from helix_desktop.commands.workspace_access import print_result

    return await print_result(arguments, Terminal(), value, *lines)


def add_page_commands(verbs: Subparsers) -> None:
    """Declares `resident page` and its verbs. Without a verb, it prints the status."""
    page = add_command(verbs, "page", "show your conversations on a phone or in another browser")
    add_json_option(page)
    page.set_defaults(run=print_page_status)
    acts = page.add_subparsers(required=False, metavar="ACT")
    _add_page_on(acts)
    off = add_command(acts, "off", "stop the page")
    add_json_option(off)
    off.set_defaults(run=turn_page_off)
    status = add_command(acts, "status", "show the page's address and the paired devices")
    add_json_option(status)
    status.set_defaults(run=print_page_status)
    pair = add_command(acts, "pair", "show a code with which one device can be paired")
    pair.add_argument(
        "--look-only",
        action="store_true",
        help="the device may neither allow anything nor send messages",
    )
    add_json_option(pair)
    pair.set_defaults(run=print_pairing_code)
    revoke = add_command(acts, "revoke", "take away a device's access at once")
    revoke.add_argument("device", metavar="DEVICE", help="the device's name or ID")
    add_json_option(revoke)
    revoke.set_defaults(run=revoke_named_device)
    _add_page_webhook(acts)
    serve = acts.add_parser("serve", help=argparse.SUPPRESS)
    serve.set_defaults(run=serve_page_until_stopped)


def _add_page_on(acts: Subparsers) -> None:
    """Declares `resident page on`."""
    command = add_command(
        acts, "on", "start the page, also after a restart of the background process"
    )
    command.add_argument(
        "--address",
        metavar="A",
        default=None,
        help="an address of this computer (default: the one used last; at first 127.0.0.1, which only this computer reaches)",
    )
    command.add_argument(
        "--port",
        metavar="PORT",
        type=parse_port,
        default=None,
        help="the port (default: the one used last; at first 4357)",
    )
    add_json_option(command)
    command.set_defaults(run=turn_page_on)


def _add_page_webhook(acts: Subparsers) -> None:
    """Declares `resident page webhook`."""
    command = add_command(
        acts, "webhook", "name an address that is told when an agent waits for you or has ended"
    )
    command.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        default=None,
        help="such as https://ntfy.sh/a-name-that-nobody-guesses or https://gotify.example.org/message; off: send nothing",
    )
    command.add_argument(
        "--content",
        choices=["on", "off"],
        default=None,
        help="send the title of the conversation and what the agent asks for, too (default: off)",
    )
    command.add_argument(
        "--token",
        action="store_true",
        help="ask for the token that the address needs, or read it from standard input",
    )
    command.add_argument(
        "--keep", choices=["keyring", "file"], default="keyring", help="where to store the token"
    )
    command.add_argument("--test", action="store_true", help="send a notice now")
    add_json_option(command)
    command.set_defaults(run=set_webhook)
