"""API keys and tokens: kept by the system's keyring, and by nothing else unless the user says so.

Where there is no keyring, or it is locked or silent, the user has three choices: for this session only, in an
environment variable, or, with consent, in a file that only they can read. Every call to a keyring runs on a thread of
its own with a limit, because a secret service that waits for somebody to unlock it answers when it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from helix_desktop import durable, tasks
from helix_desktop.errors import ConfigMistake, NoKeyring, Refused

T = TypeVar("T")
SERVICE = "helix-desktop"
CHOICES = (
    "Use the key for this session only, set it as an environment variable, or store it in a file only you can read."
)


class Where(Enum):
    """Who keeps a key."""

    KEYRING = "the system's keyring"
    SESSION = "this session only"
    ENVIRONMENT = "an environment variable"
    FILE = "a file that only you can read"


class Keyring(Protocol):
    """What is used of a backend of the keyring library."""

    def get_password(self, service: str, username: str) -> str | None: ...

    def set_password(self, service: str, username: str, password: str) -> None: ...

    def delete_password(self, service: str, username: str) -> None: ...


def system_keyring() -> Keyring:
    """The keyring of this system; NoKeyring where the library would store plain text, or has nothing."""
    import keyring

    backend = keyring.get_keyring()
    if "plaintext" in type(backend).__name__.lower():
        raise NoKeyring("The only keyring on this system stores keys as plain text.", remedy=CHOICES)
    return backend


class Secrets:
    """Named secrets. `consent` is asked each time before the file is used; `seen` hears every value, for redaction."""

    def __init__(
        self,
        key_file: Path,
        *,
        service: str = SERVICE,
        consent: Callable[[], bool] = lambda: False,
        seen: Callable[[str], None] = lambda _: None,
        keyring: Callable[[], Keyring] = system_keyring,
        environ: Mapping[str, str] = os.environ,
        limit: float = 10.0,
    ) -> None:
        self._file = key_file
        self._service = service
        self._consent = consent
        self._seen = seen
        self._keyring = keyring
        self._environ = environ
        self._limit = limit
        self._session: dict[str, str] = {}
        self._hanging: asyncio.Future[Any] | None = None

    async def get(self, name: str, *, variable: str = "") -> str | None:
        """The secret, or None. `variable`: a provider's usual variable, beside our own.

        NoKeyring only where it might be in a keyring that is there and does not answer.
        """
        found = self._session.get(name) or self._environ.get(environment_variable(name)) or self._environ.get(variable)
        if found is None and self._consent():
            found = self._read_file().get(name)
        if found is None:
            found = await self._asked(name)
        if found:
            self._seen(found)
        return found or None

    async def set(self, name: str, value: str, *, where: Where = Where.KEYRING) -> None:
        """Keep it there and forget it elsewhere. NoKeyring when the keyring cannot; nothing is stored then."""
        self._seen(value)
        if where is Where.ENVIRONMENT:
            raise Refused(f"Set {environment_variable(name)} before you start the program. The program can't set it.")
        if where is Where.FILE and not self._consent():
            raise Refused(
                "Keys are stored in a file only if you allow this in the settings.",
                remedy="To allow this, go to Settings > General > Keys. If you are not using the window, set file = true under [keys] in settings.toml.",
            )
        if where is Where.KEYRING:
            await self._call(lambda keyring: _keep(keyring, self._service, name, value))
        if where is Where.FILE or self._file.exists():
            content = {key: kept for key, kept in self._read_file().items() if key != name}
            self._write_file({**content, name: value} if where is Where.FILE else content)
        self._session.pop(name, None)
        if where is Where.SESSION:
            self._session[name] = value

    async def keep(self, name: str, value: str) -> None:
        """With the keyring; where none can be used, in the file the user allowed. NoKeyring where there is neither."""
        try:
            await self.set(name, value)
        except NoKeyring:
            if not self._consent():
                raise
            await self.set(name, value, where=Where.FILE)

    async def delete(self, name: str) -> None:
        """Forget it everywhere but in the environment; a keyring that is not there has nothing to forget."""
        self._session.pop(name, None)
        if name in (content := self._read_file()):
            self._write_file({key: value for key, value in content.items() if key != name})
        with contextlib.suppress(NoKeyring):
            await self._call(lambda keyring: _drop(keyring, self._service, name))

    async def where(self, name: str, *, variable: str = "") -> Where | None:
        """Who keeps it at the moment; None if nobody does."""
        if name in self._session:
            return Where.SESSION
        if self._environ.get(environment_variable(name)) or self._environ.get(variable):
            return Where.ENVIRONMENT
        if self._consent() and name in self._read_file():
            return Where.FILE
        return Where.KEYRING if await self._asked(name) else None

    async def check(self) -> None:
        """NoKeyring, with the reason, unless a keyring answers."""
        await self._call(lambda keyring: keyring.get_password(self._service, "is anybody there"))

    async def _asked(self, name: str) -> str | None:
        try:
            return await self._call(lambda keyring: keyring.get_password(self._service, name))
        except NoKeyring as error:
            if isinstance(error.__cause__, TimeoutError) or self._hanging is not None:
                raise
            return None

    async def _call(self, work: Callable[[Keyring], T]) -> T:
        """One call on a thread of its own. While an earlier one hangs, no further one is begun."""
        silent = f"The system's keyring did not respond within {self._limit:.0f} s; it may be waiting to be unlocked."
        if self._hanging is not None and not self._hanging.done():
            raise NoKeyring(silent, remedy=CHOICES)
        self._hanging = None
        call = tasks.detached(lambda: work(self._keyring()), name="keyring")
        call.add_done_callback(lambda late: late.cancelled() or late.exception())  # where nobody waits any more
        try:
            async with asyncio.timeout(self._limit):
                return await asyncio.shield(call)
        except TimeoutError as error:
            self._hanging = call
            raise NoKeyring(silent, remedy=CHOICES) from error
        except NoKeyring:
            raise
        except Exception as error:  # backends raise what they like, D-Bus errors among it
            why = f"The system's keyring cannot be used ({type(error).__name__})."
            absent = type(error).__name__ == "NoKeyringError"  # of the library, which is imported with its first use
            raise NoKeyring("This system has no keyring." if absent else why, remedy=CHOICES) from error
        finally:
            del call  # its error holds this frame, and with it whoever asked

    def _read_file(self) -> dict[str, str]:
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (ValueError, OSError) as error:
            raise ConfigMistake(
                f"The key file {self._file} cannot be read.", remedy="Fix or remove the file."
            ) from error
        return {str(name): str(value) for name, value in content.items()} if isinstance(content, dict) else {}

    def _write_file(self, content: Mapping[str, str]) -> None:
        durable.write(self._file, json.dumps(content, indent=1), private=True)


def environment_variable(name: str) -> str:
    """The variable that carries the secret `name`: HELIX_KEY_OPENAI for openai."""
    return f"HELIX_KEY_{re.sub('[^A-Z0-9]+', '_', name.upper()).strip('_')}"


def _keep(keyring: Keyring, service: str, name: str, value: str) -> None:
    keyring.set_password(service, name, value)
    if keyring.get_password(service, name) != value:  # keyring's null backend takes everything and keeps nothing
        raise NoKeyring("The system's keyring accepted the key but didn't store it.", remedy=CHOICES)


def _drop(keyring: Keyring, service: str, name: str) -> None:
    if keyring.get_password(service, name) is not None:
        keyring.delete_password(service, name)
