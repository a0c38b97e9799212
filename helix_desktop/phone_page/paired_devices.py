"""The phones and browsers that may use the page, and the codes with which they are paired.

A code is shown once, works once, within ten minutes, and is void after five wrong tries. A device
then has a secret of its own in a cookie; only its hash is stored. Every request reads the file
again if it has changed, so a device that is revoked is out at once.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from helix_desktop import atomic_files
from helix_desktop.errors import ActionRefused, AmbiguousName, InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import list_at, object_at, text_at, value_at
from helix_desktop.store.shared.known_leases import seconds_since_start_of_computer

DEVICES_FILE = "page_devices.json"
CODE_SECONDS = 600.0
MOST_WRONG_CODES = 5
MOST_DEVICES = 50
# Without letters and digits that look alike. Ten of them are 49 bits.
_CODE_CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_CODE_LENGTH = 10
LONGEST_NAME = 60
NOTED_SECONDS = 60.0  # The time of the last use is written this often.
_COOKIE = re.compile(r"([0-9a-f]{16})\.([A-Za-z0-9_-]{43})")
NO_CODE = "This code is not valid. It may have been used already, or it is too old."


@dataclass(frozen=True, slots=True)
class PairedDevice:
    """`may_allow`: whether it may answer permission requests and send messages, or only look."""

    id: str
    name: str
    secret_hash: str
    may_allow: bool
    paired: float
    last_used: float = 0.0

    @property
    def form_token(self) -> str:
        """A page of another origin cannot read this, so it cannot forge a form."""
        key = self.secret_hash.encode()
        return hmac.digest(key, b"form", "sha256").hex()

    @property
    def own_path(self) -> str:
        """The path before all addresses of the page for this device. Only its browser knows it.

        Browsers send a cookie to every port of a computer. An agent that serves a page at another
        port would get this one, if it were not for this path alone.
        """
        key = self.secret_hash.encode()
        return f"/d/{hmac.digest(key, b'path', 'sha256').hex()[:32]}"


@dataclass(frozen=True, slots=True)
class PairingCode:
    """A code that waits to be used. Only its hash is stored."""

    code_hash: str
    expires: float
    may_allow: bool
    wrong_tries: int = 0
    # When it expires by the clock that starts with the computer. A code that lacks this is void.
    expires_by_steady_clock: float = 0.0

    def is_valid_at(self, date: float, steady_time: float) -> bool:
        """Say whether the code may be used. The clock that reaches its end first ends it, and so
        does one that was set back: the date by the user, the steady one by a start of the computer.
        """
        seconds_left = self.expires - date
        steady_seconds_left = self.expires_by_steady_clock - steady_time
        shortest = min(seconds_left, steady_seconds_left)
        longest = max(seconds_left, steady_seconds_left)
        return shortest >= 0 and longest <= CODE_SECONDS


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """What the file holds."""

    devices: tuple[PairedDevice, ...] = ()
    code: PairingCode | None = None


class PairedDevices:
    """The devices in one file, which the page and commands change at the same time."""

    def __init__(
        self,
        config_folder: Path,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = seconds_since_start_of_computer,
    ) -> None:
        self._path = config_folder / DEVICES_FILE
        self._clock = clock
        self._steady_clock = steady_clock
        self._read_at: tuple[int, int, int] = (0, 0, 0)
        self._known = DeviceFile()

    def list_devices(self) -> Sequence[PairedDevice]:
        return self._read_changed_file().devices

    def create_pairing_code(self, *, may_allow: bool) -> str:
        """Returns a new code. An earlier one that was not used is void."""
        letters = [secrets.choice(_CODE_CHARACTERS) for _ in range(_CODE_LENGTH)]
        code = "".join(letters)
        waiting = PairingCode(
            _hash_secret(code),
            self._clock() + CODE_SECONDS,
            may_allow,
            expires_by_steady_clock=self._steady_clock() + CODE_SECONDS,
        )
        with atomic_files.hold_for_change(self._path):
            stored = self._read_file()
            self._write_device_file(replace(stored, code=waiting))
        return f"{code[:5]}-{code[5:]}"

    def pair_device(self, code: str, name: str) -> tuple[PairedDevice, str]:
        """Uses up a code. Returns the device and its cookie. ActionRefused if the code is wrong."""
        words_of_name = name.split()
        name_on_one_line = " ".join(words_of_name)[:LONGEST_NAME]
        if not name_on_one_line or not name_on_one_line.isprintable():
            raise InvalidInput("Enter a name for this device.")
        typed_code = re.sub(r"[^A-Z0-9]", "", code.upper()[:100])
        with atomic_files.hold_for_change(self._path):
            stored = self._read_file()
            waiting = self._check_typed_code(stored, typed_code)
            if len(stored.devices) >= MOST_DEVICES:
                raise ActionRefused(
                    f"{MOST_DEVICES} devices are paired already.", remedy="Revoke one first."
                )
            secret = secrets.token_urlsafe(32)
            now = self._clock()
            device = PairedDevice(
                id=secrets.token_hex(8),
                name=_unused_name(name_on_one_line, stored.devices),
                secret_hash=_hash_secret(secret),
                may_allow=waiting.may_allow,
                paired=now,
                last_used=now,
            )
            self._write_device_file(DeviceFile(stored.devices + (device,)))
        return device, f"{device.id}.{secret}"

    def _check_typed_code(self, stored: DeviceFile, typed_code: str) -> PairingCode:
        """Returns the code that is waiting, if it is the typed one. A wrong try is counted."""
        waiting = stored.code
        if waiting is None or not waiting.is_valid_at(self._clock(), self._steady_clock()):
            raise ActionRefused(NO_CODE, remedy="Create a new code on the computer.")
        typed_hash = _hash_secret(typed_code)
        if not hmac.compare_digest(waiting.code_hash, typed_hash):
            code_after_try = _count_wrong_try(waiting)
            self._write_device_file(replace(stored, code=code_after_try))
            raise ActionRefused(NO_CODE, remedy="Create a new code on the computer.")
        return waiting

    def find_device(self, cookie: str) -> PairedDevice | None:
        """Returns the device that has this cookie, or None."""
        match = _COOKIE.fullmatch(cookie)
        if match is None:
            return None
        secret_hash = _hash_secret(match[2])
        for device in self.list_devices():
            if device.id == match[1] and hmac.compare_digest(device.secret_hash, secret_hash):
                return device
        return None

    def note_use(self, device: PairedDevice) -> None:
        """Writes down when a device was last used, at most once a minute."""
        now = self._clock()
        if 0 <= now - device.last_used < NOTED_SECONDS:  # Below 0, the clock was set back.
            return
        with atomic_files.hold_for_change(self._path):
            stored = self._read_file()
            devices: list[PairedDevice] = []
            for known in stored.devices:
                if known.id == device.id:
                    devices.append(replace(known, last_used=now))
                else:
                    devices.append(known)
            self._write_device_file(replace(stored, devices=tuple(devices)))

    def revoke_device(self, name_or_id: str) -> PairedDevice:
        """Removes a device. Its cookie is refused from now on."""
        with atomic_files.hold_for_change(self._path):
            stored = self._read_file()
            named: list[PairedDevice] = []
            others: list[PairedDevice] = []
            for device in stored.devices:
                if name_or_id in (device.id, device.name):
                    named.append(device)
                else:
                    others.append(device)
            if len(named) > 1:
                raise AmbiguousName(
                    f"{len(named)} devices are called {name_or_id}.", remedy="Use the ID instead."
                )
            if not named:
                raise NotFound(
                    f"There is no paired device {name_or_id}.",
                    remedy="To see the devices, run `helix-desktop resident page status`.",
                )
            self._write_device_file(replace(stored, devices=tuple(others)))
        return named[0]

    def _read_changed_file(self) -> DeviceFile:
        try:
            found = self._path.stat()
        except OSError:
            return DeviceFile()
        read_at = (found.st_ino, found.st_mtime_ns, found.st_size)
        if read_at != self._read_at:
            self._known = self._read_file()
            self._read_at = read_at
        return self._known

    def _read_file(self) -> DeviceFile:
        """Who cannot be read is not paired: a damaged file lets nobody in."""
        try:
            text = atomic_files.read_small_file(self._path)
            content = json.loads(text)
        except (OSError, ValueError, RecursionError):
            return DeviceFile()
        devices: list[PairedDevice] = []
        for stored in list_at(content, "devices"):
            device = _parse_device(stored)
            if device is not None:
                devices.append(device)
        code = _parse_code(value_at(content, "code"))
        return DeviceFile(tuple(devices), code)

    def _write_device_file(self, content: DeviceFile) -> None:
        devices = [asdict(device) for device in content.devices]
        code = None
        if content.code is not None:
            code = asdict(content.code)
        values = {"version": 1, "devices": devices, "code": code}
        text = json.dumps(values, indent=1)
        atomic_files.write_file_atomically(self._path, text, private=True)


def _count_wrong_try(code: PairingCode) -> PairingCode | None:
    if code.wrong_tries + 1 >= MOST_WRONG_CODES:
        return None
    return replace(code, wrong_tries=code.wrong_tries + 1)


def _unused_name(name: str, devices: Sequence[PairedDevice]) -> str:
    """What a device allowed is recorded under its name, so no two have the same."""
    taken = {device.name for device in devices}
    unused = name
    number = 2
    while unused in taken:
        unused = f"{name} {number}"
        number += 1
    return unused


def _parse_device(stored: Any) -> PairedDevice | None:
    try:
        device = PairedDevice(**object_at(stored))
    except TypeError:
        return None
    texts = (device.id, device.name, device.secret_hash)
    if not all(isinstance(text, str) and text for text in texts):
        return None
    if type(device.may_allow) is not bool or not isinstance(device.last_used, int | float):
        return None
    return device


def _parse_code(stored: Any) -> PairingCode | None:
    if not text_at(stored, "code_hash"):
        return None
    try:
        return PairingCode(**object_at(stored))
    except TypeError:
        return None


def _hash_secret(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
