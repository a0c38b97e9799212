"""secrets.py: the keyring, and the three choices where there is none."""

from __future__ import annotations

import ast
import asyncio
import errno
import json
import os
import random
import re
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import helix_desktop
from helix_desktop.errors import ActionRefused, ConfigFileMistake, NoUsableKeyring, StoreFailed
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig, with_base_url
from helix_desktop.secrets import (
    SERVICE,
    Keyring,
    McpServerSecret,
    McpSignIn,
    ProviderKey,
    SecretKeeper,
    SecretStorage,
    SharedStoreKey,
    SharedStoreLogin,
    environment_variable_name,
)
from helix_desktop.store import workspace_link
from helix_desktop.store.shared import row_encryption, store_address
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.store_address import StoreAddress
from tests.secret_places import KEPT, PLANTED, given, pairs

KEY = "sk-test-0123456789abcdef"


class MemoryKeyring:
    """A keyring that works."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


class NullKeyring(MemoryKeyring):
    """Takes everything, keeps nothing; keyring has one like it."""

    def set_password(self, service: str, username: str, password: str) -> None:
        pass


class SilentKeyring(MemoryKeyring):
    """Answers only when released, like a secret service that waits to be unlocked."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.calls = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.calls += 1
        self.release.wait()
        return super().get_password(service, username)


def no_keyring() -> Keyring:
    raise RuntimeError("No recommended backend was available")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "keys.json"


Make = Callable[..., SecretStorage]


@pytest.fixture
def make(key_file: Path) -> Make:
    def made(keyring: Callable[[], Keyring] = no_keyring, **options: object) -> SecretStorage:
        return SecretStorage(key_file, keyring=keyring, **{"environ": {}, "limit": 0.05, **options})  # type: ignore[arg-type]

    return made


async def test_a_keyring_keeps_gives_back_and_forgets(make: Make, key_file: Path) -> None:
    backend = MemoryKeyring()
    secrets = make(lambda: backend)
    assert await secrets.read_secret(ProviderKey("openai")) is None
    await secrets.store_secret_at(ProviderKey("openai"), KEY)
    assert (
        await secrets.read_secret(ProviderKey("openai")),
        await secrets.find_secret_keeper(ProviderKey("openai")),
    ) == (
        KEY,
        SecretKeeper.KEYRING,
    )
    await secrets.delete_secret(ProviderKey("openai"))
    await secrets.delete_secret(ProviderKey("openai"))
    assert await secrets.read_secret(ProviderKey("openai")) is None
    assert (backend.kept, key_file.exists()) == ({}, False)


async def test_every_value_is_announced_for_redaction(make: Make) -> None:
    seen: list[str] = []
    secrets = make(seen=seen.append, environ={"HELIX_KEY_A": "from outside"})
    await secrets.store_secret_at(ProviderKey("b"), KEY, where=SecretKeeper.SESSION)
    await secrets.read_secret(ProviderKey("a"))
    assert seen == [KEY, "from outside"]


@pytest.mark.parametrize("backend", [no_keyring, NullKeyring])
async def test_without_a_keyring_nothing_is_stored_and_the_choices_are_named(
    make: Make, backend: Callable[[], Keyring], key_file: Path
) -> None:
    secrets = make(backend)
    with pytest.raises(NoUsableKeyring, match=r"this session only.*environment variable.*file"):
        await secrets.store_secret_at(ProviderKey("openai"), KEY)
    assert await secrets.read_secret(ProviderKey("openai")) is None
    assert not key_file.exists()


async def test_for_this_session_only(make: Make, key_file: Path) -> None:
    secrets = make()
    await secrets.store_secret_at(ProviderKey("openai"), KEY, where=SecretKeeper.SESSION)
    assert (
        await secrets.read_secret(ProviderKey("openai")),
        await secrets.find_secret_keeper(ProviderKey("openai")),
    ) == (
        KEY,
        SecretKeeper.SESSION,
    )
    assert await make().read_secret(ProviderKey("openai")) is None
    assert not key_file.exists()


async def test_from_the_environment(make: Make) -> None:
    secrets = make(environ={"HELIX_KEY_OPEN_AI_2": KEY, "ANTHROPIC_API_KEY": "theirs-123456"})
    assert await secrets.read_secret(ProviderKey("open-ai/2")) == KEY
    assert (
        await secrets.read_secret(ProviderKey("claude", variable="ANTHROPIC_API_KEY"))
        == "theirs-123456"
    )
    assert (
        await secrets.find_secret_keeper(ProviderKey("claude", variable="ANTHROPIC_API_KEY"))
        is SecretKeeper.ENVIRONMENT
    )
    with pytest.raises(ActionRefused, match="HELIX_KEY_X"):
        await secrets.store_secret_at(ProviderKey("x"), KEY, where=SecretKeeper.ENVIRONMENT)


async def test_a_file_only_with_consent_and_only_for_the_user(make: Make, key_file: Path) -> None:
    with pytest.raises(ActionRefused, match="only if you allow this"):
        await make().store_secret_at(ProviderKey("openai"), KEY, where=SecretKeeper.FILE)
    assert not key_file.exists()
    secrets = make(consent=lambda: True)
    await secrets.store_secret_at(ProviderKey("openai"), KEY, where=SecretKeeper.FILE)
    assert (
        await secrets.read_secret(ProviderKey("openai")),
        await secrets.find_secret_keeper(ProviderKey("openai")),
    ) == (KEY, SecretKeeper.FILE)
    if sys.platform != "win32":
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert await make().read_secret(ProviderKey("openai")) is None, (
        "consent taken back: the file is not read"
    )


async def test_a_key_that_moves_leaves_no_copy_behind(make: Make, key_file: Path) -> None:
    backend = MemoryKeyring()
    secrets = make(lambda: backend, consent=lambda: True)
    await secrets.store_secret_at(ProviderKey("openai"), KEY, where=SecretKeeper.FILE)
    await secrets.store_secret_at(ProviderKey("other"), "kept-123", where=SecretKeeper.FILE)
    await secrets.store_secret_at(ProviderKey("openai"), KEY)
    assert json.loads(key_file.read_text()) == {"other": "kept-123"}


async def test_a_damaged_key_file_is_named_and_left_alone(make: Make, key_file: Path) -> None:
    key_file.parent.mkdir()
    key_file.write_text("{")
    secrets = make(consent=lambda: True)
    with pytest.raises(ConfigFileMistake, match=r"keys\.json cannot be read"):
        await secrets.store_secret_at(ProviderKey("openai"), KEY, where=SecretKeeper.FILE)
    assert key_file.read_text() == "{"


async def test_a_key_that_cannot_be_saved_lies_nowhere(
    make: Make, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    secrets = make(consent=lambda: True)
    await secrets.store_secret_at(
        ProviderKey("openai"), "sk-first-0123456789", where=SecretKeeper.FILE
    )
    await secrets.store_secret_at(
        ProviderKey("groq"), "sk-third-0123456789", where=SecretKeeper.SESSION
    )
    monkeypatch.setattr(os, "fsync", full)
    for name in ("openai", "groq"):
        with pytest.raises(StoreFailed, match="No space"):
            await secrets.store_secret_at(
                ProviderKey(name), "sk-other-0123456789", where=SecretKeeper.FILE
            )
    assert await secrets.read_secret(ProviderKey("groq")) == "sk-third-0123456789"
    assert [each.name for each in key_file.parent.iterdir()] == [key_file.name]
    assert (
        await make(consent=lambda: True).read_secret(ProviderKey("openai")) == "sk-first-0123456789"
    )


async def test_a_silent_keyring_costs_its_limit_once_and_one_thread(make: Make) -> None:
    backend = SilentKeyring()
    backend.kept["helix-desktop", "openai"] = KEY
    secrets = make(lambda: backend)
    for _ in range(3):
        with pytest.raises(NoUsableKeyring, match=r"did not respond|has not responded"):
            await secrets.read_secret(ProviderKey("openai"))
    assert backend.calls == 1
    backend.release.set()
    while secrets._hanging_call is not None and not secrets._hanging_call.done():
        await asyncio.sleep(0)
    assert await secrets.read_secret(ProviderKey("openai")) == KEY


class KeyringLocked(Exception):
    """What the keyring library raises when its question for the password was dismissed."""


class LockedKeyring(MemoryKeyring):
    """Asks for its password at every call, and nobody enters it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.is_unlocked = False

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        if not self.is_unlocked:
            raise KeyringLocked
        return super().get_password(service, username)


async def test_a_refusal_to_unlock_the_keyring_is_remembered_until_the_user_wants_it_asked_again(
    make: Make,
) -> None:
    backend = LockedKeyring()
    backend.kept["helix-desktop", "openai"] = KEY
    secrets = make(lambda: backend)
    for _ in range(3):
        with pytest.raises(NoUsableKeyring, match="but is still locked"):
            await secrets.read_secret(ProviderKey("openai"))
    assert backend.asked == 1
    backend.is_unlocked = True
    secrets.allow_asking_keyring()
    assert await secrets.read_secret(ProviderKey("openai")) == KEY


async def test_two_who_ask_at_once_show_one_question_for_the_password(make: Make) -> None:
    backend = LockedKeyring()
    secrets = make(lambda: backend, limit=5.0)
    asked = await asyncio.gather(
        *(secrets.read_secret(ProviderKey(n)) for n in "abc"), return_exceptions=True
    )
    assert [type(each) for each in asked] == [NoUsableKeyring] * 3
    assert backend.asked == 1


async def test_while_the_keyring_has_not_answered_nobody_is_told_how_long_it_took(
    make: Make,
) -> None:
    backend = SilentKeyring()
    secrets = make(lambda: backend)
    with pytest.raises(NoUsableKeyring, match="did not respond within"):
        await secrets.read_secret(ProviderKey("openai"))
    with pytest.raises(NoUsableKeyring, match="has not responded yet"):
        await secrets.read_secret(ProviderKey("openai"))
    backend.release.set()


async def test_a_backend_that_raises_is_no_keyring(make: Make) -> None:
    def broken() -> Keyring:
        raise OSError("org.freedesktop.secrets is not activatable")

    with pytest.raises(NoUsableKeyring, match="cannot be used"):
        await make(broken).check_keyring()


@pytest.mark.parametrize(
    ("name", "variable"), [("openai", "HELIX_KEY_OPENAI"), ("open-ai.2", "HELIX_KEY_OPEN_AI_2")]
)
def test_the_variable_of_a_name(name: str, variable: str) -> None:
    assert environment_variable_name(name) == variable


async def test_kept_with_the_keyring_and_without_one_in_the_file_that_was_allowed(
    make: Make, key_file: Path
) -> None:
    """MCP settings with a token were refused without a keyring, although keys might be
    stored in a file.
    """
    with pytest.raises(NoUsableKeyring):
        await make(keyring=no_keyring).store_secret(McpServerSecret("github", "TOKEN"), KEY)
    allowed = make(keyring=no_keyring, consent=lambda: True)
    await allowed.store_secret(McpServerSecret("github", "TOKEN"), KEY)
    assert await allowed.find_secret_keeper(McpServerSecret("github", "TOKEN")) is SecretKeeper.FILE
    ring = MemoryKeyring()
    await make(keyring=lambda: ring, consent=lambda: True).store_secret(ProviderKey("other"), KEY)
    assert list(ring.kept.values()) == [KEY]


async def test_a_system_without_a_keyring_is_called_so(tmp_path: Path) -> None:
    from keyring.backends.fail import Keyring

    secrets = SecretStorage(tmp_path / "keys.json", keyring=Keyring)
    with pytest.raises(NoUsableKeyring, match=r"^This system has no keyring\."):
        await secrets.store_secret_at(ProviderKey("openai"), "sk-one")


async def test_a_bare_name_gets_nothing(make: Make) -> None:
    ring = MemoryKeyring()
    secrets = make(lambda: ring)
    await secrets.store_secret_at(ProviderKey("openai"), KEY)
    for name in ("openai", SimpleNamespace(name="openai")):
        with pytest.raises(TypeError, match="by its addressee"):
            await secrets.read_secret(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["mcp/github/TOKEN", "mcp.linear.sign-in", "shared-work-a1b2c3", "shared-login-work-a1b2c3"],
)
def test_a_provider_cannot_have_the_name_of_somebody_elses_secret(name: str) -> None:
    with pytest.raises(ActionRefused, match="cannot be named"):
        ProviderKey(name)
    assert ProviderKey("mcp-proxy").keyring_name == "mcp-proxy"
    assert ProviderKey("shared-models").keyring_name == "shared-models"


async def test_a_key_does_not_follow_an_address_that_has_changed(make: Make) -> None:
    ring = MemoryKeyring()
    secrets = make(lambda: ring, environ={"OPENAI_API_KEY": "from-outside-1"})
    await secrets.store_secret_at(ProviderKey("openai"), KEY)
    assert (
        await secrets.read_secret(ProviderKey("openai", "api.openai.com")) == KEY
    )  # of an older version: the address decides
    assert (
        await secrets.read_secret(ProviderKey("openai", "api.openai.com", "api.openai.com")) == KEY
    )
    with pytest.raises(
        ActionRefused, match=r"entered for api\.openai\.com and was not sent to evil\.example"
    ):
        await secrets.read_secret(ProviderKey("openai", "evil.example", "api.openai.com"))


async def test_a_providers_key_in_the_environment_goes_to_its_own_hosts_alone(make: Make) -> None:
    secrets = make(environ={config.variable: KEY for config in PRESETS.values() if config.variable})
    for config in PRESETS.values():
        if not config.variable:
            continue
        assert await secrets.read_secret(config.provider_key) == KEY
        for name, url in (
            (config.name, "https://evil.example/v1"),
            ("other", f"https://{config.host}.evil.example/v1"),
            ("other", f"https://evil{config.host}"),
        ):
            elsewhere = replace(config, name=name, base_url=url)
            with pytest.raises(
                ActionRefused, match=rf"{config.variable} is for {config.host} and was not sent to"
            ):
                await secrets.read_secret(elsewhere.provider_key)
            assert await secrets.find_secret_keeper(elsewhere.provider_key) is None
        at_home = replace(config, base_url="http://127.0.0.1:8000/v1")
        assert await secrets.read_secret(at_home.provider_key) is None, (
            "a server on this machine needs none"
        )
    assert await secrets.read_secret(
        replace(PRESETS["openai"], base_url="https://eu.api.openai.com/v1").provider_key
    )


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
async def test_a_key_in_the_environment_goes_to_the_address_that_the_environment_names_and_nowhere_else(
    make: Make, name: str
) -> None:
    config = PRESETS[name]
    variable = config.provider_key.address_variables[0]
    for address in ("https://proxy.example/v1", "http://127.0.0.1:4000"):
        secrets = make(
            environ={config.variable: KEY, f"HELIX_KEY_{name.upper()}": KEY, variable: address}
        )
        assert secrets.find_address_in_environment(config.provider_key) == (variable, address)
        named = replace(config, base_url=address)
        assert await secrets.read_secret(named.provider_key) == KEY
        assert secrets.is_in_environment(named.provider_key)
        host = re.escape(named.host)
        for elsewhere in (
            config,
            replace(config, base_url=address.replace("proxy", "evil").replace("4000", "4001")),
        ):
            if elsewhere.is_local:
                assert await secrets.read_secret(elsewhere.provider_key) is None
                continue
            if elsewhere.host != named.host:
                with pytest.raises(ActionRefused, match=rf"is for {host} and was not sent to"):
                    await secrets.read_secret(elsewhere.provider_key)


async def test_a_key_entered_for_another_host_is_sent_there_and_the_one_in_the_environment_is_not(
    make: Make,
) -> None:
    ring = MemoryKeyring()
    secrets = make(lambda: ring, environ={"OPENAI_API_KEY": "from-outside-1"})
    proxy = replace(
        PRESETS["openai"], base_url="https://proxy.example/v1", key_host="proxy.example"
    )
    await secrets.store_secret_at(proxy.provider_key, KEY)
    assert await secrets.read_secret(proxy.provider_key) == KEY
    assert await secrets.find_secret_keeper(proxy.provider_key) is SecretKeeper.KEYRING


async def test_our_own_variable_follows_the_host_a_key_was_entered_for(make: Make) -> None:
    secrets = make(environ={"HELIX_KEY_OPENAI": KEY, "HELIX_KEY_WORK": KEY, "WORK_KEY": KEY})
    proxy = replace(PRESETS["openai"], base_url="https://proxy.example/v1")
    work = ProviderConfig("work", base_url="https://llm.example.org/v1", variable="WORK_KEY")
    assert await secrets.read_secret(replace(proxy, key_host="proxy.example").provider_key) == KEY
    assert await secrets.read_secret(work.provider_key) == KEY
    for moved in (proxy, with_base_url(work, "https://evil.example/v1")):
        with pytest.raises(ActionRefused, match="and was not sent to"):
            await secrets.read_secret(moved.provider_key)


async def test_a_login_for_a_shared_store_is_bound_to_its_whole_address(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address stands in the workspace's settings: its host, and options that name
    another host or no encryption.
    """
    ring = MemoryKeyring()
    ring.kept[SERVICE, "shared-login-work-a1b2c3"] = KEY  # of version 0.2
    secrets = make(lambda: ring)
    own = "postgresql://anna@db.example/team"
    await secrets.store_secret(
        SharedStoreKey("work-a1b2c3"), row_encryption.format_key_line(bytes(32))
    )

    opened: list[StoreAddress] = []
    really = store_address.open_row_store

    def open_and_note(address: StoreAddress, space: bytes) -> RowStore:
        opened.append(address)
        return really(address, space)

    monkeypatch.setattr(store_address, "open_row_store", open_and_note)

    async def login_at(url: str) -> str:
        connected = await workspace_link.connect_with_key("work-a1b2c3", StoreAddress(url), secrets)
        await connected.remote.aclose()
        return opened[-1].login

    assert await login_at(own) == KEY
    assert await login_at(own) == KEY
    for changed in (
        own.replace("db.", "evil."),
        f"{own}?host=evil.example",
        f"{own}?sslmode=disable",
    ):
        assert await login_at(changed) == ""
    await workspace_link.delete_link_secrets("work-a1b2c3", own, secrets)
    assert ring.kept == {}


async def test_the_environment_has_keys_of_providers_and_no_others(make: Make) -> None:
    secrets = make(environ={"HELIX_KEY_MCP_GITHUB_TOKEN": KEY, "HELIX_KEY_SHARED_A1B2C3": KEY})
    assert await secrets.read_secret(McpServerSecret("github", "TOKEN")) is None
    assert await secrets.read_secret(SharedStoreKey("a1b2c3")) is None


async def test_what_an_older_version_kept_is_found(make: Make) -> None:
    ring = MemoryKeyring()
    names = (
        "openai",
        "mcp/github/TOKEN",
        "mcp.linear.sign-in",
        "shared-work-a1b2c3",
        "shared-login-work-a1b2c3",
    )
    ring.kept = {("helix-desktop", name): f"value of {name}" for name in names}
    secrets = make(lambda: ring)
    wanted = (
        ProviderKey("openai", "api.openai.com"),
        McpServerSecret("github", "TOKEN"),
        McpSignIn("linear"),
        SharedStoreKey("work-a1b2c3"),
        SharedStoreLogin("work-a1b2c3"),
    )
    assert [await secrets.read_secret(secret) for secret in wanted] == [
        f"value of {name}" for name in names
    ]


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_secret_named_in_any_place_of_a_configuration_is_given_to_nobody(
    make: Make, seed: int
) -> None:
    """All of them: `packaging/dev.py faults secrets`."""
    ring = MemoryKeyring()
    secrets = make(lambda: ring, environ={"HELIX_KEY_OPENAI": PLANTED, "OPENAI_API_KEY": PLANTED})
    for secret in KEPT.values():
        await secrets.store_secret_at(secret, PLANTED)
    for pair in random.Random(seed).sample(list(pairs()), 300):
        assert PLANTED not in await given(pair, secrets), pair


ADDRESSEES_MADE_IN = {
    "ProviderKey": {
        "providers/provider_catalog.py",
        "desktop/provider_administration.py",
        "commands/provider_command.py",
        "installation_checks.py",
    },
    "McpServerSecret": {"mcp_client/server_config.py"},
    "McpSignIn": {"mcp_client/server_config.py"},
    "SharedStoreKey": {
        "store/workspace_link.py",
        "workbench/shared_store_setup.py",
        "commands/sharing_commands.py",
    },
    "SharedStoreLogin": {"store/workspace_link.py"},
}


def test_nothing_else_reads_a_keyring_or_makes_up_a_name() -> None:
    """Over the syntax tree: `keyring` is imported by secrets.py alone, and an addressee
    of each kind is made where its purpose lives.
    """
    words = {"keyring", "get_password", "set_password", *ADDRESSEES_MADE_IN}
    package = Path(helix_desktop.__file__).parent
    wrong: list[str] = []
    for file in package.rglob("*.py"):
        source_text = file.read_text("utf-8")
        if not any(word in source_text for word in words):
            continue
        where = file.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(source_text)):
            if where != "secrets.py" and _reads_a_keyring(node):
                wrong.append(f"{where} reads a keyring")
            name = _name_of_called(node)
            if where not in ADDRESSEES_MADE_IN.get(name, {where}):
                wrong.append(f"{where} makes a {name}")
    assert wrong == []


def _reads_a_keyring(node: ast.AST) -> bool:
    """It is imported, or one of its functions is named."""
    if isinstance(node, ast.Attribute):
        return node.attr in {"get_password", "set_password"}
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module != "helix_desktop":
        names = [alias.name for alias in node.names] + [node.module or ""]
    return "keyring" in [name.partition(".")[0] for name in names]


def _name_of_called(node: ast.AST) -> str:
    """The name of the function or class that a call is of, whatever it belongs to."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Name):
        return node.func.id
    return getattr(node.func, "attr", "")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")
@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "large", "somebody else's"])
async def test_a_key_file_that_is_none_is_refused_at_once(
    make: Make, key_file: Path, tmp_path: Path, kind: str
) -> None:
    key_file.parent.mkdir()
    if kind == "pipe":
        os.mkfifo(key_file)
    elif kind == "endless":
        key_file.symlink_to("/dev/zero")
    elif kind == "folder":
        key_file.mkdir()
    elif kind == "large":
        key_file.write_text(json.dumps({"openai": "x" * (5 << 20)}))
    else:
        if os.getuid():
            pytest.skip("only root can give files away")
        key_file.write_text(json.dumps({"openai": "planted"}))
        os.chown(key_file, 12345, 12345)
    secrets = make(consent=lambda: True)
    with pytest.raises(ConfigFileMistake, match=r"keys\.json"):
        await secrets.read_secret(ProviderKey("openai"))


@pytest.mark.skipif(sys.platform == "win32", reason="rights come from the folder there")
async def test_a_key_file_that_others_could_read_is_closed_when_it_is_read(
    make: Make, key_file: Path
) -> None:
    key_file.parent.mkdir()
    real = key_file.with_name("elsewhere.json")
    real.write_text(json.dumps({"openai": KEY}))
    real.chmod(0o664)
    key_file.symlink_to(real)
    assert await make(consent=lambda: True).read_secret(ProviderKey("openai")) == KEY
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


async def test_keys_stored_side_by_side_are_all_there(make: Make, key_file: Path) -> None:
    async def store(number: int) -> None:
        secrets = make(consent=lambda: True)
        name = ProviderKey(f"provider{number}")
        await asyncio.to_thread(
            lambda: asyncio.run(
                secrets.store_secret_at(name, f"key-{number}", where=SecretKeeper.FILE)
            )
        )

    await asyncio.gather(*(store(number) for number in range(20)))
    assert json.loads(key_file.read_text()) == {f"provider{n}": f"key-{n}" for n in range(20)}


_CRASHING = """
import os, resource, sys
from pathlib import Path
from helix_desktop.secrets import SecretStorage
resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
key = sys.stdin.readline()
SecretStorage(Path("keys.json"))
if sys.argv[1] == "raised":
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.abort()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="written for Linux")
@pytest.mark.parametrize("limit", ["as it is", "raised"])
def test_a_crash_leaves_no_key_in_a_file(tmp_path: Path, limit: str) -> None:
    """`raised`: a system's crash reporter does not heed the limit."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("no process here may leave a core file")
    subprocess.run(
        [sys.executable, "-c", _CRASHING, limit],
        input=f"{KEY}\n",
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        check=False,
        capture_output=True,
    )
    assert [file for file in tmp_path.iterdir() if KEY.encode() in file.read_bytes()] == []
