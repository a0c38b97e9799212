from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from helix_desktop.errors import InvalidInput, NoUsableKeyring, ProviderKeyRefused
from helix_desktop.providers import provider_catalog
from helix_desktop.providers.demo_model import DEMO, DemoModel
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.model_prices import ModelInfo
from helix_desktop.providers.provider_catalog import (
    DIALECTS,
    KINDS,
    PRESETS,
    ProviderConfig,
    SystemClock,
    check_provider_config,
    connect_model_client,
    dialect_of_provider,
    find_provider_key,
    may_carry_key,
    request_body_of,
)
from helix_desktop.secrets import ProviderKey
from tests.peers.chat_server import ChatServer, reply
from tests.providers.asking import Instant, asking, heard

WORK = ProviderConfig("work", base_url="https://llm.example.org/v1")


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_the_well_known_ones_are_sound(config: ProviderConfig) -> None:
    assert check_provider_config(config) == config
    assert config.kind in KINDS
    assert config.needs_key is not config.is_local


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (replace(WORK, kind="openai"), "Unknown provider type"),
        (replace(WORK, base_url=""), "must start with https"),
        (replace(WORK, base_url="llm.example.org"), "must start with https"),
        (replace(WORK, base_url="http://[broken/v1"), "must start with https"),
        (replace(WORK, base_url="https://host:port/v1"), "must start with https"),
        (replace(WORK, base_url="https://me:secret@llm.example.org"), "contains a password"),
        (replace(WORK, base_url="https://llm.example.org?key=secret"), "contains a password"),
        (replace(WORK, headers=(("Authorization", "Bearer secret"),)), "would store a key"),
        (replace(WORK, headers=(("X-API-Key", "secret"),)), "would store a key"),
        (replace(WORK, headers=(("x-tëam", "7"),)), "cannot be used as a header"),
        (replace(WORK, headers=(("x-team", "7\r\nx: y"),)), "cannot be used as a header"),
        (replace(WORK, headers=(("x team", "7"),)), "cannot be used as a header"),
        (replace(WORK, key_header="api:key"), "cannot be used as a header"),
    ],
)
def test_what_is_wrong_is_said_without_quoting_a_secret(config: ProviderConfig, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        check_provider_config(config)
    assert "secret" not in str(caught.value)


def test_a_bare_address_gets_the_version_only_where_it_belongs() -> None:
    assert (
        check_provider_config(replace(WORK, base_url="http://127.0.0.1:11434/")).base_url
        == "http://127.0.0.1:11434/v1"
    )
    assert (
        check_provider_config(replace(WORK, base_url="https://x.org/openai")).base_url
        == "https://x.org/openai"
    )
    assert (
        check_provider_config(replace(WORK, kind="anthropic", base_url="https://x.org")).base_url
        == "https://x.org"
    )


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("https://llm.example.org", True),
        ("http://llm.example.org", False),
        ("http://8.8.8.8/v1", False),
        ("http://127.0.0.1/v1", True),
        ("http://192.168.1.5:8000", True),
        ("http://workstation:8000", True),
        ("http://workstation.local", True),
    ],
)
def test_where_a_key_may_go(url: str, may: bool) -> None:
    assert may_carry_key(url) is may


def test_without_its_key_a_provider_says_how_to_give_it() -> None:
    with pytest.raises(ProviderKeyRefused) as caught:
        connect_model_client(PRESETS["openai"], "gpt-5-mini")
    assert "provider add openai" in caught.value.remedy
    assert "OPENAI_API_KEY" in caught.value.remedy


def test_a_key_is_not_sent_in_the_open() -> None:
    with pytest.raises(ProviderKeyRefused, match="not sent"):
        connect_model_client(replace(WORK, base_url="http://llm.example.org/v1"), "m", "sk-1")


def test_the_demonstration_needs_nothing() -> None:
    client = connect_model_client(PRESETS["demo"], "demo")
    assert isinstance(client, DemoModel)
    assert client.model_name == "demo/demo"


async def test_a_key_on_this_machine_is_sent_when_there_is_one(
    connections: ProviderConnections, clock: Instant
) -> None:
    with ChatServer([reply("Hi"), reply("Hi")]) as peer:
        config = ProviderConfig("vllm", base_url=peer.base_url)
        for key in (None, "local-key"):
            await heard(
                connect_model_client(config, "m", key, connections=connections, clock=clock),
                asking(),
            )
        assert [seen.headers.get("authorization") for seen in peer.requests] == [
            None,
            "Bearer local-key",
        ]


async def test_what_the_catalogue_knows_of_a_model_decides_what_is_sent(
    connections: ProviderConnections, clock: Instant
) -> None:
    with ChatServer([reply("Hi")]) as peer:
        config = ProviderConfig(
            "peer", base_url=peer.base_url, corrections={"m": {"tools": False, "input": 3.0}}
        )
        client = connect_model_client(config, "m", connections=connections, clock=clock)
        _, answered = await heard(client, asking())
        assert "tools" not in peer.bodies[0]
    usage = answered.usage
    assert usage.cost == pytest.approx((100 + 5 * usage.output) * 3.0 / 1e6), (
        "output of no known price is not free"
    )


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "ollama", "demo"])
def test_what_the_model_saw_can_be_shown_without_a_key(name: str) -> None:
    body = request_body_of(PRESETS[name], ModelInfo(name, "big"), asking())
    assert ("Be brief." in str(body), "Hello" in str(body)) == (True, True)
    assert name == "gemini" or body["model"] == "big"


async def test_the_real_clock_sleeps_and_tells_the_time() -> None:
    clock = SystemClock()
    before = clock.current_time()
    await clock.sleep_seconds(0.01)
    assert clock.current_time() - before >= 0.009


def test_every_kind_has_a_dialect_with_a_tag_of_its_own() -> None:
    tags = {dialect_of_provider(replace(WORK, kind=kind)).reasoning_owner for kind in DIALECTS}
    assert len(tags) == len(DIALECTS)
    assert all("llm.example.org" in tag for tag in tags)


class Silent:
    """A keyring that waits to be unlocked."""

    async def read_secret(self, secret: ProviderKey) -> str | None:
        raise NoUsableKeyring("The keyring did not respond.", remedy="Unlock it.")


async def test_a_silent_keyring_matters_only_where_a_key_is_needed() -> None:
    assert await find_provider_key(PRESETS["ollama"], Silent()) is None


async def test_a_silent_keyring_says_so_where_a_key_was_entered() -> None:
    """The request went out without it, and the server's answer was shown: the key does not work."""
    keyed = ProviderConfig(
        "work", base_url="https://llm.example.org/v1", key_host="llm.example.org"
    )
    with pytest.raises(ProviderKeyRefused, match="did not respond"):
        await find_provider_key(keyed, Silent())


async def test_the_demonstration_asks_no_keyring() -> None:
    class Asked:
        async def read_secret(self, secret: ProviderKey) -> str | None:
            raise AssertionError(secret)

    assert await find_provider_key(ProviderConfig("demo", kind=DEMO), Asked()) is None


async def test_a_silent_keyring_says_so_where_a_key_is_needed() -> None:
    with pytest.raises(ProviderKeyRefused, match="did not respond"):
        await find_provider_key(PRESETS["openai"], Silent())


@pytest.mark.parametrize(
    ("address", "is_here"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://[::1]:8080/v1", True),
        ("http://ollama.localhost/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://localhost.example.org", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_an_address_of_this_computer_is_known_by_its_host(address: str, is_here: bool) -> None:
    config = ProviderConfig("x", base_url=address)
    assert provider_catalog.has_address_of_this_computer(config) is is_here


def test_describing_a_model_does_not_load_the_library_for_requests() -> None:
    """It takes 9 MB and 60 ms, which the window would wait for when a workspace opens."""
    code = (
        "import sys; from helix_desktop.providers.provider_catalog import PRESETS, describe_model;"
        "[describe_model(config, 'm') for config in PRESETS.values()];"
        "sys.exit('httpx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_local_server_has_a_name_that_people_would_give_it() -> None:
    """Sentences began with "local-8877 says"."""
    names = ["local-8877", "openai", "mine", "local-mine"]
    shown = [provider_catalog.name_provider_in_sentences(name) for name in names]
    assert shown == ["Local server on port 8877", "OpenAI", "mine", "local-mine"]


@pytest.mark.parametrize(
    ("address", "is_possible"),
    [
        ("http://127.0.0.1:8123/v1", True),
        ("https://models.example", True),
        ("https://two words.example", False),
        ("https://models.example/\tv1", False),
        ("https://models.example\u00a0", False),
        ("https://models.example:0/v1", False),
        ("https://models.example:70000/v1", False),
        ("file:///etc/passwd", False),
        ("https:///v1", False),
    ],
)
def test_requests_are_sent_only_where_a_server_can_be(address: str, is_possible: bool) -> None:
    assert provider_catalog.is_provider_address(address) is is_possible
