"""Codes and devices: what works once, what ends, and what a damaged file lets in."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from helix_desktop.phone_page.paired_devices import (
    CODE_SECONDS,
    DEVICES_FILE,
    MOST_WRONG_CODES,
    NOTED_SECONDS,
    PairedDevices,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def devices(tmp_path: Path, clock: Clock) -> PairedDevices:
    return PairedDevices(tmp_path, clock)


def test_a_code_works_once(devices: PairedDevices, tmp_path: Path) -> None:
    code = devices.create_pairing_code(may_allow=False)
    device, cookie = devices.pair_device(code, "  A   phone ")
    assert (device.name, device.may_allow) == ("A phone", False)
    assert devices.find_device(cookie) == device
    with pytest.raises(ActionRefused, match="not valid"):
        devices.pair_device(code, "Another")
    assert len(devices.list_devices()) == 1
    file = tmp_path / DEVICES_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    secret = cookie.partition(".")[2]
    assert secret not in file.read_text()
    assert code.replace("-", "") not in file.read_text()


def test_a_code_is_void_after_its_time_and_when_there_is_a_newer_one(
    devices: PairedDevices, clock: Clock
) -> None:
    old = devices.create_pairing_code(may_allow=True)
    new = devices.create_pairing_code(may_allow=True)
    with pytest.raises(ActionRefused):
        devices.pair_device(old, "A")
    clock.now += CODE_SECONDS + 1
    with pytest.raises(ActionRefused):
        devices.pair_device(new, "A")


def test_wrong_codes_make_the_right_one_void(devices: PairedDevices) -> None:
    code = devices.create_pairing_code(may_allow=True)
    for _ in range(MOST_WRONG_CODES):
        with pytest.raises(ActionRefused):
            devices.pair_device("AAAAA-AAAAA", "A")
    with pytest.raises(ActionRefused):
        devices.pair_device(code, "A")


def test_a_device_that_is_revoked_is_out_at_once_in_every_process(
    devices: PairedDevices, tmp_path: Path
) -> None:
    _, cookie = devices.pair_device(devices.create_pairing_code(may_allow=True), "A")
    _, other = devices.pair_device(devices.create_pairing_code(may_allow=True), "A")
    elsewhere = PairedDevices(tmp_path)
    assert [device.name for device in elsewhere.list_devices()] == ["A", "A 2"]
    devices.revoke_device("A")
    assert elsewhere.find_device(cookie) is None
    assert elsewhere.find_device(other) is not None
    with pytest.raises(NotFound):
        devices.revoke_device("A")


def test_a_name_is_needed(devices: PairedDevices) -> None:
    code = devices.create_pairing_code(may_allow=True)
    for name in ("", "  ", "a\u202eb", "\x1b[2J"):
        with pytest.raises(InvalidInput):
            devices.pair_device(code, name)
    assert devices.pair_device(code, "x" * 500)[0].name == "x" * 60


def test_the_last_use_is_written_at_most_once_a_minute(
    devices: PairedDevices, clock: Clock, tmp_path: Path
) -> None:
    device, _ = devices.pair_device(devices.create_pairing_code(may_allow=True), "A")
    before = (tmp_path / DEVICES_FILE).read_bytes()
    clock.now += NOTED_SECONDS - 1
    devices.note_use(device)
    assert (tmp_path / DEVICES_FILE).read_bytes() == before
    clock.now += 2
    devices.note_use(device)
    assert devices.list_devices()[0].last_used == clock.now
    devices.revoke_device("A")
    clock.now += NOTED_SECONDS + 1
    devices.note_use(device)  # A request that was on its way brings nobody back.
    assert list(devices.list_devices()) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"devices": 1, "code": "x"}',
        '{"devices": [{"id": "a"}], "code": {"code_hash": "x"}}',
        json.dumps({"devices": [{"id": 1, "name": "x", "secret_hash": None, "may_allow": "yes", "paired": 1}]}),
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_file_lets_nobody_in(
    devices: PairedDevices, tmp_path: Path, content: str
) -> None:
    (tmp_path / DEVICES_FILE).write_text(content)
    assert list(devices.list_devices()) == []
    assert devices.find_device(f"{'0' * 16}.{'A' * 43}") is None
    with pytest.raises(ActionRefused):
        devices.pair_device("AAAAA-AAAAA", "A")


@pytest.mark.parametrize("seconds_back", [CODE_SECONDS + 1, 3_600.0, 31_557_600.0])
def test_a_code_does_not_live_longer_because_the_clock_was_set_back(
    devices: PairedDevices, clock: Clock, seconds_back: float
) -> None:
    code = devices.create_pairing_code(may_allow=True)
    clock.now -= seconds_back
    with pytest.raises(ActionRefused):
        devices.pair_device(code, "A")


def test_a_code_ends_by_the_steady_clock_too(tmp_path: Path, clock: Clock) -> None:
    """The clock is set back a little, again and again."""
    steady = Clock()
    devices = PairedDevices(tmp_path, clock, steady)
    code = devices.create_pairing_code(may_allow=True)
    steady.now += CODE_SECONDS - 1
    restarted = PairedDevices(tmp_path, clock, steady)
    steady.now += 2
    with pytest.raises(ActionRefused):
        restarted.pair_device(code, "A")
    code = devices.create_pairing_code(may_allow=True)
    steady.now = 5.0  # The computer has started anew.
    with pytest.raises(ActionRefused):
        devices.pair_device(code, "A")


def test_the_last_use_is_noted_although_the_clock_was_set_back(
    devices: PairedDevices, clock: Clock
) -> None:
    device, cookie = devices.pair_device(devices.create_pairing_code(may_allow=False), "A")
    clock.now -= 31_557_600.0
    devices.note_use(device)
    used = devices.find_device(cookie)
    assert used is not None
    assert used.last_used == clock.now
