"""`resident page` without a background process: what is off stays off, and each act says what it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.phone_page.paired_devices import PairedDevices
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from helix_desktop.program_settings import (
    PAGE_ADDRESS,
    PAGE_ON,
    PAGE_PORT,
    PAGE_WEBHOOK,
    PAGE_WEBHOOK_CONTENT,
    ProgramSettings,
)
from tests.commands.conftest import Helix

NTFY = "https://ntfy.example.org/a-name"


class Page:
    """`resident page` in one home."""

    def __init__(self, helix: Helix, places: ProgramFolders) -> None:
        self._helix = helix
        self.places = places

    @property
    def settings(self) -> ProgramSettings:
        return ProgramSettings(self.places.settings_file)

    def say(self, *words: str) -> str:
        """Return what a person reads."""
        code, out, err = self._helix("--home", self.places.data, "resident", "page", *words)
        assert (code, err) == (0, "")
        return out

    def read(self, *words: str) -> Any:
        """Return what a script reads."""
        return json.loads(self.say(*words, "--json"))

    def refuse(self, *words: str) -> str:
        code, out, err = self._helix("--home", self.places.data, "resident", "page", *words)
        assert (code != 0, out) == (True, "")
        return err


@pytest.fixture
def page(helix: Helix, tmp_path: Path) -> Page:
    return Page(helix, find_program_folders(tmp_path / "helix"))


def test_it_is_off_until_it_is_turned_on(page: Page) -> None:
    for words in ((), ("status",)):
        assert page.say(*words) == "The page is off.\nNo device is paired.\n"
    assert page.read() == {"on": False, "url": "", "trouble": "", "devices": []}


def test_a_page_that_is_on_without_a_background_process_says_how_to_start_it(page: Page) -> None:
    page.settings.change_setting(PAGE_ON, True)
    assert "The page is on, but the background process is not running." in page.say("status")
    assert page.read("status")["on"] is True


def test_turning_it_off_is_saved_and_said(page: Page) -> None:
    page.settings.change_setting(PAGE_ON, True)
    assert page.say("off") == "The page is off. Paired devices stay paired until you revoke them.\n"
    assert page.settings[PAGE_ON] is False
    assert page.read("off") == {"on": False}


@pytest.mark.parametrize("address", ["0.0.0.0", "my-computer", "224.0.0.1"])  # noqa: S104 - it is refused
def test_an_address_that_cannot_be_answered_at_turns_nothing_on(page: Page, address: str) -> None:
    assert address in page.refuse("on", "--address", address)
    assert page.settings[PAGE_ON] is False


def test_the_place_of_the_page_is_remembered(page: Page) -> None:
    page.refuse("on", "--address", "my-computer", "--port", "4999")
    assert (page.settings[PAGE_ADDRESS], page.settings[PAGE_PORT]) == ("my-computer", 4999)
    page.settings.change_setting(PAGE_ADDRESS, "127.0.0.1")
    assert page.read("pair")["url"] == "http://127.0.0.1:4999/pair"


def test_a_code_for_a_device_says_what_it_allows_and_that_the_page_is_off(page: Page) -> None:
    said = page.say("pair")
    assert "The device may look, allow, and send messages. The code works once." in said
    assert said.endswith("The page is off. To turn it on, run: helix-desktop resident page on\n")
    looking = page.read("pair", "--look-only")
    assert looking["may_allow"] is False
    page.settings.change_setting(PAGE_ON, True)
    said = page.say("pair", "--look-only")
    assert "The device may look. The code works once." in said
    assert "The page is off" not in said


@pytest.mark.parametrize(("may_allow", "right"), [(True, "may allow"), (False, "look only")])
def test_a_paired_device_is_listed_until_it_is_revoked(
    page: Page, may_allow: bool, right: str
) -> None:
    devices = PairedDevices(page.places.config)
    devices.pair_device(devices.create_pairing_code(may_allow=may_allow), "My phone")
    (device,) = devices.list_devices()
    listed = page.say("status")
    assert f"- My phone ({right}), last used" in listed
    assert listed.rstrip().endswith(f"id {device.id}")
    assert "No device is paired." not in listed
    (as_json,) = page.read("status")["devices"]
    assert (as_json["id"], as_json["name"], as_json["may_allow"]) == (
        device.id,
        "My phone",
        may_allow,
    )
    assert as_json["paired"].endswith("+00:00")
    assert page.read("revoke", "My phone") == {"revoked": device.id}
    assert "No device is paired." in page.say("status")
    assert "My phone" in page.refuse("revoke", "My phone")


def test_notices_go_where_they_were_sent_to_last(page: Page) -> None:
    assert page.say("webhook") == "No notices are sent.\n"
    said = page.say("webhook", NTFY)
    assert f"Notices are sent to {NTFY} while the page is on, without content." in said
    assert "The page is off. To turn it on" in said
    page.settings.change_setting(PAGE_ON, True)
    assert "The page is off" not in page.say("webhook")
    assert "with the title of the conversation" in page.say("webhook", "--content", "on")
    assert page.read("webhook") == {"webhook": NTFY, "content": True}
    assert page.read("webhook", "--content", "off") == {"webhook": NTFY, "content": False}
    assert page.settings[PAGE_WEBHOOK_CONTENT] is False
    assert page.read("webhook", "off") == {"webhook": "", "content": False}
    assert page.settings[PAGE_WEBHOOK] == ""


def test_an_address_to_which_no_notice_can_go_changes_nothing(page: Page) -> None:
    page.say("webhook", NTFY)
    page.refuse("webhook", "ntfy.example.org")
    assert page.settings[PAGE_WEBHOOK] == NTFY
