"""`provider` and its keys: what is kept where, and that no key is anywhere else."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import pytest

from helix_desktop import cli, program_folders, program_settings
from helix_desktop.commands import provider_command
from helix_desktop.providers import local_servers
from tests.peers.chat_server import ChatServer, refused, reply

KEY = "sk-planted-4f9c81d27ab3e650"


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Helix = Callable[..., Said]


class MemoryKeyring(keyring.backend.KeyringBackend):
    """A keyring that forgets when the test ends."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    before = keyring.get_keyring()
    made = MemoryKeyring()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


@pytest.fixture
def helix(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Helix:
    monkeypatch.setattr(local_servers, "USUAL", ())
    monkeypatch.setattr(local_servers.detect_local_servers, "__defaults__", ((), 0.2))
    for name in (
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENROUTER_API_KEY",
        "DEEPSEEK_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object, typed: str = "") -> Said:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capfdbinary.readouterr()
        return Said(code, out.decode(), err.decode())

    return run


def added(helix: Helix, server: ChatServer, *more: object, typed: str = "") -> Said:
    return helix("provider", "add", "work", "--base-url", server.base_url, *more, typed=typed)


def test_add_list_test_remove(helix: Helix, ring: MemoryKeyring) -> None:
    with ChatServer([reply("ready")]) as server:
        assert added(helix, server).code == 0
        (work, demo) = helix("provider", "list", "--json").json
        assert (work["name"], work["base_url"], work["key"], demo["name"]) == (
            "work",
            server.base_url,
            "",
            "demo",
        )
        tested = helix("provider", "test", "work", "--model", "scripted", "--json").json
        assert (tested["models"], tested["said"]) == (1, "ready")
        assert helix("provider", "remove", "work").code == 0
        assert [one["name"] for one in helix("provider", "list", "--json").json] == ["demo"]
        assert helix("provider", "remove", "work").code == 1


def test_a_key_comes_from_standard_input_and_goes_to_the_keyring_alone(
    helix: Helix, ring: MemoryKeyring
) -> None:
    with ChatServer([reply("ready")]) as server:
        said = added(helix, server, "--key", typed=f"{KEY}\n")
        assert "key in the system's keyring" in said.out
        assert ring.kept == {("helix-desktop", "work"): KEY}
        helix("provider", "test", "work", "--model", "scripted")
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        helix("provider", "remove", "work")
    assert ring.kept == {}


def test_the_planted_key_is_in_no_file_and_no_output(helix: Helix, ring: MemoryKeyring) -> None:
    """Set, used, refused by a provider that quotes it, listed, diagnosed: it is nowhere."""
    quoting = refused(
        401, f"Incorrect API key provided: {KEY}. You can find yours…", code="invalid_api_key"
    )
    with ChatServer([reply("ready"), quoting]) as server:
        outputs = [added(helix, server, "--key", typed=f"{KEY}\n")]
        outputs += [
            helix("provider", "test", "work", "--model", "scripted", "--json") for _ in range(2)
        ]
        outputs += [
            helix("model", "list"),
            helix("provider", "list"),
            helix("doctor", "--output", "diagnostics.json"),
        ]
        home = program_folders.find_program_folders()
    Path("diagnostics.json").unlink()
    assert (outputs[1].code, outputs[2].code) == (0, 1)
    assert "•••" in outputs[2].err
    assert not any(KEY in said.out + said.err for said in outputs)
    files = [file for file in home.config.rglob("*") if file.is_file()]
    assert home.providers_file in files
    assert not [
        file
        for file in files
        if KEY.encode() in file.read_bytes() or KEY[3:15].encode() in file.read_bytes()
    ]


def test_without_a_keyring_nothing_is_written_and_the_choices_are_said(helix: Helix) -> None:
    with ChatServer() as server:
        said = added(helix, server, "--key", typed=f"{KEY}\n")
    assert (said.code, KEY in said.err) == (1, False)
    assert "as the environment variable HELIX_KEY_WORK, or add --keep file." in said.err
    assert not program_folders.find_program_folders().providers_file.exists()


def test_a_file_keeps_a_key_only_with_consent(helix: Helix) -> None:
    where = program_folders.find_program_folders()
    with ChatServer() as server:
        said = added(helix, server, "--key", "--keep", "file", typed=KEY)
        assert (said.code, f"under [keys] in {where.settings_file}." in said.err) == (1, True)
        assert not where.key_file.exists()
        program_settings.ProgramSettings(where.settings_file).change_setting(
            program_settings.KEYS_IN_FILE, value=True
        )
        assert (
            "a file that only you can read"
            in added(helix, server, "--key", "--keep", "file", typed=KEY).out
        )
    assert where.key_file.stat().st_mode & 0o077 == 0


def test_a_key_in_the_environment_is_enough(
    helix: Helix, ring: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    openai = helix("provider", "list", "--json").json[0]
    assert (openai["name"], openai["key"]) == ("openai", "an environment variable")


def test_the_address_that_the_environment_names_is_used(
    helix: Helix, ring: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        said = helix("provider", "add", "openai", "--kind", "openai-chat")
        assert f"Using the address {server.base_url} from OPENAI_BASE_URL." in said.err
        assert helix("provider", "test", "openai").code == 0
        assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
        assert (
            "Using"
            not in helix("provider", "add", "openai", "--base-url", "https://api.openai.com/v1").err
        )
        refused = helix("provider", "test", "openai")
    assert (refused.code, KEY in refused.err) == (1, False)
    assert "The key in OPENAI_API_KEY is for 127.0.0.1" in refused.err


def test_no_key_is_sent_while_an_address_is_checked(helix: Helix, ring: MemoryKeyring) -> None:
    with ChatServer() as server:
        added(helix, server, "--key", typed=KEY)
        assert [seen.headers.get("authorization") for seen in server.requests] == [None]


def test_azure_as_it_is_set_up(helix: Helix, ring: MemoryKeyring) -> None:
    with ChatServer() as server:
        more = (
            "--key",
            "--key-header",
            "api-key",
            "--query",
            "api-version=2024-10-21",
            "--header",
            "x-team=7",
        )
        added(helix, server, *more, typed=KEY)
        helix("provider", "test", "work")
        seen = server.requests[1]
    assert (seen.path, seen.headers["api-key"], seen.headers["x-team"]) == (
        "/v1/models?api-version=2024-10-21",
        KEY,
        "7",
    )


@pytest.mark.parametrize(
    ("arguments", "typed", "code", "words"),
    [
        (("add", "work"), "", 2, "specify its address"),
        (("add", "work", "--base-url", "nowhere"), "", 2, "must start with https"),
        (
            ("add", "work", "--base-url", "https://x.org", "--kind", "odd"),
            "",
            2,
            "Unknown provider type",
        ),
        (("add", "work", "--base-url", "https://me:pw@x.org"), "", 2, "contains a password"),
        (("add", "work", "--base-url", "https://x.org", "--header", "x"), "", 2, "NAME=VALUE"),
        (
            ("add", "work", "--base-url", "http://127.0.0.1:9", "--key"),
            "\n",
            2,
            "No key was entered",
        ),
        (
            ("add", "work", "--base-url", "http://127.0.0.1:9", "--key"),
            "\n",
            2,
            "connection refused",
        ),
        (
            ("add", "work", "--base-url", "http://llm.example.org", "--key"),
            KEY,
            2,
            "anyone on the network could read it",
        ),
        (
            ("add", "work", "--base-url", "http://127.0.0.1:9", "--key"),
            "a b\n",
            1,
            "cannot be part of a key",
        ),
        (("add", "A B", "--base-url", "https://x.org"), "", 2, "not a valid provider name"),
        (("test", "nobody"), "", 1, "There is no provider"),
        (("test", "openai"), "", 1, "There is no key for openai"),
        (("test", "ollama"), "", 1, "No connection to Ollama"),
    ],
)
def test_mistakes_are_a_sentence_with_a_way_on(
    helix: Helix,
    ring: MemoryKeyring,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    typed: str,
    code: int,
    words: str,
) -> None:
    said = helix("provider", *arguments, typed=typed)
    assert (said.code, words in said.err) == (code, True), said.err
    assert "pw" not in said.err


def test_changing_an_address_keeps_the_rest(helix: Helix, ring: MemoryKeyring) -> None:
    with ChatServer() as server, ChatServer() as other:
        added(helix, server, "--variable", "WORK_KEY", "--header", "x-team=7")
        helix("provider", "add", "work", "--base-url", other.base_url)
        text = program_folders.find_program_folders().providers_file.read_text()
    assert (
        "WORK_KEY" in text,
        "x-team" in text,
        other.base_url in text,
        server.base_url in text,
    ) == (
        True,
        True,
        True,
        False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="this terminal is one of Unix")
def test_ctrl_d_where_a_key_is_asked_for_is_no_error_of_the_program() -> None:
    program = "from helix_desktop.commands.provider_command import ask_for_key; ask_for_key('peer')"
    terminal, terminal_of_program = os.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=terminal_of_program,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Otherwise it would ask in the terminal of the tests.
    )
    assert running.stderr is not None
    prompt = running.stderr.read(len("Key of peer (not shown): "))
    os.write(terminal, b"\x04")
    _, errors = running.communicate(timeout=60)
    os.close(terminal)
    os.close(terminal_of_program)
    assert prompt == b"Key of peer (not shown): "
    assert b"InvalidInput: No key was entered." in errors


@pytest.mark.parametrize(("count", "words"), [(1, "with 1 model"), (3, "with 3 models")])
def test_a_server_that_was_found_is_listed_with_the_number_of_its_models(
    count: int, words: str
) -> None:
    found = {
        "name": "llamacpp",
        "kind": "openai-chat",
        "base_url": "http://127.0.0.1:8080/v1",
        "key": "",
        "needs_key": False,
        "found": True,
        "models": count,
    }
    line = provider_command._format_provider_line(found)
    assert line.endswith(f"found on this computer {words}")
