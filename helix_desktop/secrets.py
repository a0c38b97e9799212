"""API keys and tokens, which are stored in the system's keyring, or elsewhere only if the user
agrees.

Each secret has an addressee: a provider, an MCP server, a shared store. It is requested by one of
the types below, so that no caller gets another's secret. The names in the keyring must not change.

Without a usable keyring, the user can choose: for this session only, an environment variable, or,
with consent, a private file. Every call to a keyring runs on its own thread with a time limit,
because a secret service that waits to be unlocked may not answer for a long time.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from helix_desktop import atomic_files, concurrency
from helix_desktop.errors import ActionRefused, ConfigFileMistake, HelixError, NoUsableKeyring
from helix_desktop.fast_dataclass import dataclass

if TYPE_CHECKING:
    import secretstorage

if sys.platform == "linux":
    import resource  # Windows has no such module.

T = TypeVar("T")
# Matches the names of secrets that do not belong to a provider.
_NAMES_OF_OTHER_SECRETS = re.compile(r"mcp[./].*|shared-.*[0-9a-f]{6}(#.*)?|webhook#.*", re.DOTALL)
SERVICE = "helix-desktop"
_PORTS = {"https": 443, "http": 80}
OTHER_PLACES_FOR_KEYS = "Use the key for this session only, set it as an environment variable, or store it in a file only you can read."
STILL_LOCKED = "The system's keyring asked to be unlocked, but is still locked."
# The names of errors that keyrings raise if nobody enters the password.
REFUSALS = frozenset({"KeyringLocked", "LockedException", "PromptDismissedException", "KeyDenied"})


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """The key of one provider. `host`: of its current address. `entered_for`: the host
    for which the key was entered, if different; a key is not sent to a changed address.
    `variable`: the provider's usual environment variable. `own_hosts`: the only hosts
    for keys from the environment. `address_variables`: variables that name another
    address for these. `is_optional`: works without a key.
    """

    provider: str
    host: str = ""
    entered_for: str = ""
    variable: str = ""
    own_hosts: tuple[str, ...] = ()
    address_variables: tuple[str, ...] = ()
    is_optional: bool = False

    def __post_init__(self) -> None:
        if _NAMES_OF_OTHER_SECRETS.fullmatch(self.provider):
            raise ActionRefused(
                f"A provider cannot be named {self.provider[:60]!r}.", remedy="Choose another name."
            )

    @property
    def keyring_name(self) -> str:
        return self.provider

    @property
    def environment_variables(self) -> tuple[str, str]:
        """The only secrets that are also read from the environment are provider keys,
        from these variables.
        """
        return (environment_variable_name(self.provider), self.variable)

    @property
    def is_for_another_host(self) -> bool:
        """Whether the address has changed since the key was entered."""
        return bool(self.entered_for) and self.entered_for != self.host

    def may_use_variable(self, variable: str) -> bool:
        """Whether this variable's key may go to the host, as far as keys entered here say."""
        is_for_own_hosts = variable == self.variable or not self.entered_for
        if not self.own_hosts or not is_for_own_hosts:
            return not self.is_for_another_host
        return any(_is_host_or_below(self.host, own_host) for own_host in self.own_hosts)


@dataclass(frozen=True, slots=True)
class McpServerSecret:
    """A secret of one MCP server, by its key in the configuration. `binding`: for pasted servers, a
    digest of the workspace and of the server's host or command line, which must not change.
    """

    server: str
    key: str
    binding: str = ""

    def __post_init__(self) -> None:
        if "/" in self.server or "#" in self.key or not self.key:
            raise ActionRefused(
                f"The server {self.server[:60]!r} cannot have a secret named {self.key[:60]!r}."
            )

    @property
    def keyring_name(self) -> str:
        return _with_binding(f"mcp/{self.server}/{self.key}", self.binding)


@dataclass(frozen=True, slots=True)
class McpSignIn:
    """The tokens from signing in to one MCP server. `binding`: as in `McpServerSecret`."""

    server: str
    binding: str = ""

    @property
    def keyring_name(self) -> str:
        return _with_binding(f"mcp.{self.server}.sign-in", self.binding)


@dataclass(frozen=True, slots=True)
class SharedStoreKey:
    """The key that encrypts a shared workspace's content; the program never sends it anywhere."""

    workspace: str

    @property
    def keyring_name(self) -> str:
        return f"shared-{self.workspace}"


@dataclass(frozen=True, slots=True)
class SharedStoreLogin:
    """The login for a shared workspace's store. `address` is the store's address
    without a login; under a changed address there is no login. It is empty for logins
    that versions up to 0.2 stored.
    """

    workspace: str
    address: str = ""

    @property
    def keyring_name(self) -> str:
        binding = ""
        if self.address:
            binding = hashlib.sha256(self.address.encode()).hexdigest()[:16]
        return _with_binding(f"shared-login-{self.workspace}", binding)


@dataclass(frozen=True, slots=True)
class WebhookToken:
    """The token for the address to which notices for the user's phone are sent. Under a changed
    address there is no token.
    """

    address: str

    @property
    def keyring_name(self) -> str:
        binding = hashlib.sha256(self.address.encode()).hexdigest()[:16]
        return _with_binding("webhook", binding)


def _with_binding(name: str, binding: str) -> str:
    """A secret that is bound to something has another name when that changes, and is not found."""
    if not binding:
        return name
    return f"{name}#{binding}"


def _is_host_or_below(host: str, parent: str) -> bool:
    return host == parent or host.endswith(f".{parent}")


Addressee: TypeAlias = (
    ProviderKey | McpServerSecret | McpSignIn | SharedStoreKey | SharedStoreLogin | WebhookToken
)


def host_of_address(address: str) -> str:
    """Returns the host of an address to which a key is sent, with an unusual port.
    Empty if the address is invalid.
    """
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return ""
    host = parts.hostname or ""
    if port in (None, _PORTS.get(parts.scheme)):
        return host
    return f"{host}:{port}"


class SecretKeeper(Enum):
    KEYRING = "the system's keyring"
    SESSION = "this session only"
    ENVIRONMENT = "an environment variable"
    FILE = "a file that only you can read"


class KeyringState(Enum):
    """Whether the keyring answers without asking for a password."""

    OPEN = auto()
    LOCKED = auto()
    # It is created with the first key, and the user chooses its password then.
    NOT_CREATED = auto()


class Keyring(Protocol):
    """The part of a keyring backend that we use."""

    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...
    def delete_password(self, service: str, username: str) -> None: ...


def system_keyring() -> Keyring:
    """Returns the system's keyring. NoUsableKeyring if there is none, or if it stores
    plain text.
    """
    import keyring

    backend = keyring.get_keyring()
    if "plaintext" in type(backend).__name__.lower():
        raise NoUsableKeyring(
            "The only keyring on this system stores keys as plain text.",
            remedy=OTHER_PLACES_FOR_KEYS,
        )
    return backend


class SecretStorage:
    """Named secrets. `consent` is asked before the file is used. `seen` gets every
    secret, for redaction.
    """

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
        self._key_file = key_file
        self._service = service
        self._allows_file = consent
        self._note_for_redaction = seen
        self._open_keyring = keyring
        self._environment = environ
        self._limit_seconds = limit
        self._secrets_of_session: dict[str, str] = {}
        self._hanging_call: asyncio.Future[Any] | None = None
        self._is_refused = False  # True if the user was asked to unlock the keyring, but did not.
        # Otherwise the keyring could ask for its password several times at once.
        self._keyring_lock = asyncio.Lock()
        keep_keys_out_of_core_dumps()

    async def read_secret(self, secret: Addressee) -> str | None:
        """Returns the secret, or None. NoUsableKeyring if a keyring that may have it does not
        answer. ActionRefused if a provider's key belongs to another host than its current address.
        """
        name = keyring_name_of(secret)
        stored = self._secrets_of_session.get(name)
        if not stored:
            environment_value = self._read_from_environment(secret)
            if environment_value:
                self._note_for_redaction(environment_value)
                return environment_value
        if stored is None and self._allows_file():
            stored = self._read_key_file().get(name)
        if stored is None:
            stored = await self._read_from_keyring(name)
        if not stored:
            self._refuse_key_of_other_host(secret)
            return None
        self._note_for_redaction(stored)
        if isinstance(secret, ProviderKey) and secret.is_for_another_host:
            raise ActionRefused(
                f"The key for {secret.provider} was entered for {secret.entered_for} and was not sent to {secret.host}.",
                remedy="Enter the key again for the new address.",
            )
        return stored

    def _read_from_environment(self, secret: Addressee) -> str | None:
        if not isinstance(secret, ProviderKey):
            return None
        secret_for_named_host = self._with_named_host(secret)
        for variable in secret.environment_variables:
            value = self._environment.get(variable)
            if value and secret_for_named_host.may_use_variable(variable):
                return value
        return None

    def is_in_environment(self, secret: ProviderKey) -> bool:
        return bool(self._read_from_environment(secret))

    def find_address_in_environment(self, secret: ProviderKey) -> tuple[str, str]:
        """Returns the variable that names an address in the environment, and the
        address. Empty if there is none.
        """
        for variable in secret.address_variables:
            address = self._environment.get(variable)
            if address:
                return variable, address
        return "", ""

    def _with_named_host(self, secret: ProviderKey) -> ProviderKey:
        _, address = self.find_address_in_environment(secret)
        if not address:
            return secret
        return replace(secret, own_hosts=(host_of_address(address),))

    def _refuse_key_of_other_host(self, secret: Addressee) -> None:
        if not isinstance(secret, ProviderKey) or secret.is_optional:
            return
        variables_with_key = [
            name for name in secret.environment_variables if self._environment.get(name)
        ]
        if not variables_with_key:
            return
        hosts = " or ".join(self._with_named_host(secret).own_hosts) or secret.entered_for
        raise ActionRefused(
            f"The key in {variables_with_key[0]} is for {hosts} and was not sent to {secret.host}.",
            remedy=f"Enter a key for this address: run `helix-desktop provider add {secret.provider} --key`.",
        )

    async def store_secret_at(
        self, secret: Addressee, value: str, *, where: SecretKeeper = SecretKeeper.KEYRING
    ) -> None:
        """Stores a secret in this place only. NoUsableKeyring, and nothing is stored,
        if there is none.
        """
        name = keyring_name_of(secret)
        self._note_for_redaction(value)
        if where is SecretKeeper.ENVIRONMENT:
            raise ActionRefused(
                f"Set {environment_variable_name(name)} before you start the program. The program cannot set environment variables itself."
            )
        if where is SecretKeeper.FILE and not self._allows_file():
            raise ActionRefused(
                "Keys are stored in a file only if you allow this in the settings.",
                remedy=f"To allow a key file, set file = true under [keys] in {self._key_file.with_name('settings.toml')}.",
            )  # fmt: skip
        if where is SecretKeeper.KEYRING:
            self.allow_asking_keyring()
            await self._call_keyring(
                lambda keyring: _store_in_keyring(keyring, self._service, name, value)
            )
        # A secret is in one place only.
        if where is SecretKeeper.FILE:
            self._change_key_file(name, value)
        elif self._key_file.exists():
            self._change_key_file(name, None)
        self._secrets_of_session.pop(name, None)
        if where is SecretKeeper.SESSION:
            self._secrets_of_session[name] = value

    async def store_secret(self, secret: Addressee, value: str) -> None:
        """Stores a secret in the keyring, or in the file if that is allowed, or raises
        NoUsableKeyring.
        """
        try:
            await self.store_secret_at(secret, value)
        except NoUsableKeyring:
            if not self._allows_file():
                raise
            await self.store_secret_at(secret, value, where=SecretKeeper.FILE)

    async def delete_secret(self, secret: Addressee) -> None:
        """Deletes a secret everywhere but in the environment. A missing keyring is ignored."""
        name = keyring_name_of(secret)
        self._secrets_of_session.pop(name, None)
        if name in self._read_key_file():
            self._change_key_file(name, None)
        with contextlib.suppress(NoUsableKeyring):
            await self._call_keyring(
                lambda keyring: _delete_from_keyring(keyring, self._service, name)
            )

    async def find_secret_keeper(self, secret: Addressee) -> SecretKeeper | None:
        """Returns who stores a secret now, or None. Nobody is asked to unlock the keyring."""
        name = keyring_name_of(secret)
        if name in self._secrets_of_session:
            return SecretKeeper.SESSION
        if self._read_from_environment(secret):
            return SecretKeeper.ENVIRONMENT
        if self._allows_file() and name in self._read_key_file():
            return SecretKeeper.FILE
        is_in_keyring = await self._ask_keyring(
            lambda keyring: _is_stored(keyring, self._service, name)
        )
        if is_in_keyring:
            return SecretKeeper.KEYRING
        return None

    async def check_keyring(self) -> KeyringState:
        """Returns whether the keyring is open. Raises NoUsableKeyring, with the reason, unless one
        answers. Nobody is asked for a password.
        """
        return await self._call_keyring(lambda keyring: _find_keyring_state(keyring, self._service))

    async def _read_from_keyring(self, name: str) -> str | None:
        return await self._ask_keyring(
            lambda keyring: _read_if_stored(keyring, self._service, name)
        )

    async def _ask_keyring(self, work: Callable[[Keyring], T]) -> T | None:
        """Calls the keyring. Returns None if there is none."""
        try:
            return await self._call_keyring(work)
        except NoUsableKeyring as error:
            # One that is there and does not answer may have it.
            is_silent = isinstance(error.__cause__, TimeoutError) or self._hanging_call is not None
            if is_silent or self._is_refused:
                raise
            return None

    def allow_asking_keyring(self) -> None:
        """Lets the keyring be asked again after the user refused to unlock it."""
        self._is_refused = False

    async def _call_keyring(self, work: Callable[[Keyring], T]) -> T:
        """Calls the keyring on a thread, one call at a time, unless a call hangs or the
        user refused.
        """
        async with self._keyring_lock:
            return await self._call_keyring_on_thread(work)

    async def _call_keyring_on_thread(self, work: Callable[[Keyring], T]) -> T:
        if self._hanging_call is not None and not self._hanging_call.done():
            raise NoUsableKeyring(
                "The system's keyring has not responded yet; it may be waiting to be unlocked.",
                remedy=OTHER_PLACES_FOR_KEYS,
            )
        if self._hanging_call is not None:
            self._remember_keyring_refusal(self._hanging_call.exception())
        self._hanging_call = None
        if self._is_refused:
            raise NoUsableKeyring(STILL_LOCKED, remedy=OTHER_PLACES_FOR_KEYS)
        timeout_message = f"The system's keyring did not respond within {self._limit_seconds:.0f} s; it may be waiting to be unlocked."
        keyring_call = concurrency.run_on_detached_thread(
            lambda: work(self._open_keyring()), name="keyring"
        )
        keyring_call.add_done_callback(_read_error_of_call)
        try:
            async with asyncio.timeout(self._limit_seconds):
                return await asyncio.shield(keyring_call)
        except TimeoutError as error:
            self._hanging_call = keyring_call
            raise NoUsableKeyring(timeout_message, remedy=OTHER_PLACES_FOR_KEYS) from error
        except NoUsableKeyring:
            raise
        except Exception as error:  # Keyring backends raise any kind of error, even D-Bus errors.
            self._remember_keyring_refusal(error)
            if self._is_refused:
                raise NoUsableKeyring(STILL_LOCKED, remedy=OTHER_PLACES_FOR_KEYS) from error
            problem = f"The system's keyring cannot be used ({type(error).__name__})."
            # Compared by name, because the keyring library is imported only when needed.
            if type(error).__name__ == "NoKeyringError":
                problem = "This system has no keyring."
            raise NoUsableKeyring(problem, remedy=OTHER_PLACES_FOR_KEYS) from error
        finally:
            # The call's error refers to this frame, so they would keep each other alive.
            del keyring_call

    def _remember_keyring_refusal(self, error: BaseException | None) -> None:
        self._is_refused = self._is_refused or type(error).__name__ in REFUSALS

    def _read_key_file(self) -> dict[str, str]:
        try:
            content = json.loads(_read_private_file(self._key_file))
        except FileNotFoundError:
            return {}
        except (ValueError, OSError, RecursionError, HelixError) as error:
            raise ConfigFileMistake(
                f"The key file {self._key_file} cannot be read.", remedy="Fix or remove the file."
            ) from error
        if not isinstance(content, dict):
            return {}
        return {str(name): str(value) for name, value in content.items()}

    def _change_key_file(self, name: str, value: str | None) -> None:
        """Sets a secret in the key file, or removes it if `value` is None."""
        with atomic_files.hold_for_change(self._key_file):
            content = self._read_key_file()
            content.pop(name, None)
            if value is not None:
                content[name] = value
            atomic_files.write_file_atomically(
                self._key_file, json.dumps(content, indent=1), private=True
            )


def keyring_name_of(secret: Addressee) -> str:
    if not isinstance(secret, Addressee):
        raise TypeError(f"a secret is asked for by its addressee, not by {type(secret).__name__}")
    return secret.keyring_name


def _read_private_file(path: Path) -> bytes:
    """Reads a file with keys. Others lose the right to read it, such as after a copy from a
    backup. A file of somebody else's is not read: its keys would be theirs.
    """
    content = atomic_files.read_small_file(path)
    real_path = path.resolve()
    if os.name != "nt" and real_path.stat().st_uid not in (os.getuid(), 0):
        raise ActionRefused(f"{path} belongs to another user.")
    atomic_files.make_path_private(real_path)
    return content


def keep_keys_out_of_core_dumps() -> None:
    """Lets a crash of this process leave none of its memory in a file, where a backup or
    another program would find the keys.

    The limit makes the system write no core file. Crash reporters get the memory in spite of
    it, so that there must be none in it, either. Making the process undumpable would do both,
    but desktop portals refuse such a process.
    """
    if sys.platform == "linux":
        _, highest = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, highest))
        with contextlib.suppress(OSError):
            Path("/proc/self/coredump_filter").write_bytes(b"0")


def environment_variable_name(name: str) -> str:
    return f"HELIX_KEY_{re.sub('[^A-Z0-9]+', '_', name.upper()).strip('_')}"


def _read_error_of_call(call: asyncio.Future[Any]) -> None:
    """Reads the error, because asyncio logs errors that nobody reads."""
    if not call.cancelled():
        call.exception()


def _store_in_keyring(keyring: Keyring, service: str, name: str, value: str) -> None:
    keyring.set_password(service, name, value)
    if keyring.get_password(service, name) != value:  # keyring's null backend stores nothing.
        raise NoUsableKeyring(
            "The system's keyring accepted the key but didn't store it.",
            remedy=OTHER_PLACES_FOR_KEYS,
        )


def _delete_from_keyring(keyring: Keyring, service: str, name: str) -> None:
    if _read_if_stored(keyring, service, name) is not None:
        keyring.delete_password(service, name)


def _read_if_stored(keyring: Keyring, service: str, name: str) -> str | None:
    """Reads a key if it exists. A Secret Service is asked that first, so that nobody
    enters a password in vain.
    """
    for backend in _backends_of(keyring):
        if _is_secret_service(backend) and not _is_in_secret_service(backend, service, name):
            continue
        stored = backend.get_password(service, name)
        if stored is not None:
            return stored
    return None


def _is_stored(keyring: Keyring, service: str, name: str) -> bool:
    """Whether a key exists. A Secret Service says so while it is locked, too."""
    for backend in _backends_of(keyring):
        if _is_secret_service(backend):
            is_there = _is_in_secret_service(backend, service, name)
        else:
            is_there = backend.get_password(service, name) is not None
        if is_there:
            return True
    return False


def _find_keyring_state(keyring: Keyring, service: str) -> KeyringState:
    """Finds it out without a call for which a Secret Service would ask for a password."""
    backend = _backends_of(keyring)[0]
    if not _is_secret_service(backend):
        backend.get_password(service, "is anybody there")
        return KeyringState.OPEN
    with _open_default_collection(backend) as collection:
        if collection is None:
            return KeyringState.NOT_CREATED
        if collection.is_locked():
            return KeyringState.LOCKED
        return KeyringState.OPEN


def _backends_of(keyring: Keyring) -> Sequence[Keyring]:
    """Returns the keyrings that one asks, or the keyring itself."""
    return list(getattr(keyring, "backends", ())) or [keyring]


def _is_secret_service(backend: Keyring) -> bool:
    return type(backend).__module__ == "keyring.backends.SecretService"


def _is_in_secret_service(backend: Keyring, service: str, name: str) -> bool:
    """Looks where `get_password` would: for a key elsewhere, it would ask in vain."""
    attributes = {"service": service, "username": name}
    with _open_default_collection(backend) as collection:
        if collection is None:
            return False
        return next(collection.search_items(attributes), None) is not None


@contextlib.contextmanager
def _open_default_collection(backend: Keyring) -> Iterator["secretstorage.Collection | None"]:
    """Opens the collection that holds the keys, or None if it does not exist. The library's own
    function creates it, for which the user is asked for a new password.
    """
    import secretstorage
    from secretstorage.collection import DEFAULT_COLLECTION

    path = getattr(backend, "preferred_collection", DEFAULT_COLLECTION)
    with contextlib.closing(secretstorage.dbus_init()) as connection:
        try:
            collection = secretstorage.Collection(connection, path)
        except secretstorage.ItemNotFoundException:
            collection = None
        yield collection
