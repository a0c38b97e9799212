"""`provider`: add, list, test, remove. Keys are asked for or read from standard input, never taken from arguments:
those stand in the shell's history and in the list of processes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helix_desktop import places
from helix_desktop.commands import as_json
from helix_desktop.commands.open_workspace import say_json
from helix_desktop.console import Terminal
from helix_desktop.engine.facts import Purpose
from helix_desktop.errors import WrongUse
from helix_desktop.values import dataclass

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.providers.catalog import ProviderConfig
    from helix_desktop.providers.configured import Configured
    from helix_desktop.providers.transport import Connections
    from helix_desktop.secrets import Secrets

KEEP = ("keyring", "file")


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("provider", help="set up services and local servers that provide models")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    one = _verb(verbs, "add", "set up or change a provider", set_up)
    one.add_argument(
        "name", metavar="NAME", help="openai, anthropic, gemini, openrouter, ollama, ... or any other name"
    )
    one.add_argument(
        "--kind", default="", help="openai-chat (default for other names), openai-responses, anthropic or gemini"
    )
    one.add_argument(
        "--base-url", default="", metavar="URL", help="the provider's address, such as https://llm.example.org/v1"
    )
    one.add_argument("--key", action="store_true", help="ask for the provider's key, or read it from standard input")
    one.add_argument("--keep", choices=KEEP, default="keyring", help="where to store the key")
    one.add_argument("--variable", default="", metavar="NAME", help="the environment variable to read the key from")
    one.add_argument(
        "--key-header", default="", metavar="NAME", help="the header that contains the key, such as api-key (Azure)"
    )
    one.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="an additional header")
    one.add_argument(
        "--query",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an additional query parameter, such as api-version=2024-10-21",
    )
    _verb(verbs, "list", "list the providers that are set up, and the servers found on this computer", list_all)
    one = _verb(verbs, "test", "list a provider's models, and send one of them a test request", test)
    one.add_argument("name", metavar="NAME")
    one.add_argument("--model", default="", metavar="M", help="the model to send a test request to (default: none)")
    one = _verb(verbs, "remove", "remove a provider and its key", remove)
    one.add_argument("name", metavar="NAME")


def _verb(
    verbs: Subparsers, name: str, sentence: str, work: Callable[[argparse.Namespace, Desk], Awaitable[int]]
) -> argparse.ArgumentParser:
    one = verbs.add_parser(name, help=sentence, description=f"{sentence[:1].upper()}{sentence[1:]}.")
    as_json(one)
    one.set_defaults(run=lambda arguments: asyncio.run(at_desk(arguments, work)))
    return one


@dataclass(frozen=True, slots=True)
class Desk:
    """What these commands work with."""

    configured: Configured
    secrets: Secrets
    connections: Connections
    console: Terminal

    async def key(self, config: ProviderConfig) -> str | None:
        """The key of a provider, from wherever it is kept."""
        from helix_desktop.providers.catalog import key_for

        return await key_for(config, self.secrets)


async def at_desk(arguments: argparse.Namespace, work: Callable[[argparse.Namespace, Desk], Awaitable[int]]) -> int:
    """Run the work with everything it needs, and close that."""
    from helix_desktop import settings
    from helix_desktop.providers.configured import Configured
    from helix_desktop.providers.transport import Connections
    from helix_desktop.secrets import Secrets

    where = places.find(arguments.home)
    consent = settings.Settings(where.settings)[settings.KEYS_IN_FILE]
    connections = Connections()
    secrets = Secrets(where.key_file, consent=lambda: consent)
    try:
        return await work(arguments, Desk(Configured(where.providers), secrets, connections, Terminal()))
    finally:
        await connections.aclose()


# --- add and remove --------------------------------------------------------------------------------------------------


async def set_up(arguments: argparse.Namespace, desk: Desk) -> int:
    from helix_desktop.providers.transport import checked_key
    from helix_desktop.secrets import Where

    config = _wanted(arguments, desk.configured)
    key = checked_key(_asked_key(config.name), config.name) if arguments.key else ""
    if key:  # first, so that a key that cannot be kept changes nothing
        config = replace(config, key_host=config.host)
        await desk.secrets.set(config.key, key, where=Where.FILE if arguments.keep == "file" else Where.KEYRING)
    config = desk.configured.put(config)
    return await _tell(arguments, desk, config)


def _wanted(arguments: argparse.Namespace, configured: Configured) -> ProviderConfig:
    """What is there under this name, or usual for it, with what the arguments change."""
    from helix_desktop.errors import NotThere
    from helix_desktop.providers.catalog import ProviderConfig, moved

    try:
        config = configured.get(arguments.name)
    except NotThere:
        config = ProviderConfig(arguments.name)
    changes: dict[str, Any] = {
        name: value for name in ("kind", "variable", "key_header") if (value := getattr(arguments, name))
    }
    changes |= {
        field: pairs
        for field, pairs in (("headers", _pairs(arguments.header)), ("query", _pairs(arguments.query)))
        if pairs
    }
    if arguments.base_url:
        config = moved(config, arguments.base_url)
    config = replace(config, **changes)
    if not config.base_url and config.kind != "demo":
        raise WrongUse(
            f"{arguments.name} is not a known provider, so you need to specify its address.",
            remedy="Give --base-url.",
        )
    return config


def _pairs(given: list[str]) -> tuple[tuple[str, str], ...]:
    split = [one.partition("=") for one in given]
    if not all(name.strip() and equals for name, equals, _ in split):
        raise WrongUse("Specify headers and query parameters as NAME=VALUE.")
    return tuple((name.strip(), value.strip()) for name, _, value in split)


def _asked_key(name: str) -> str:
    """From a person without showing it, from a pipe as its first line."""
    if sys.stdin is not None and sys.stdin.isatty():
        import getpass

        key = getpass.getpass(f"Key of {name} (not shown): ")
    else:
        key = sys.stdin.readline() if sys.stdin else ""
    if not key.strip():
        raise WrongUse("No key was given.", remedy="Type the key when you are asked for it, or pipe it in.")
    return key


async def _tell(arguments: argparse.Namespace, desk: Desk, config: ProviderConfig) -> int:
    described = await _described(desk, config)
    if arguments.json:
        await say_json(desk.console, described)
    else:
        await desk.console.say(_line(described))
        if config.needs_key and not described["key"]:
            await desk.console.say(
                f"This provider needs a key. Run `helix-desktop provider add {config.name} --key`, or set {config.variable}."
            )
    return 0


async def remove(arguments: argparse.Namespace, desk: Desk) -> int:
    from helix_desktop.secrets import ProviderKey

    desk.configured.remove(arguments.name)
    await desk.secrets.delete(ProviderKey(arguments.name))
    if arguments.json:
        await say_json(desk.console, {"removed": arguments.name})
    else:
        await desk.console.say(f"{arguments.name} and its key were removed.")
    return 0


# --- list ------------------------------------------------------------------------------------------------------------


async def list_all(arguments: argparse.Namespace, desk: Desk) -> int:
    from helix_desktop.providers import local
    from helix_desktop.providers.catalog import PRESETS

    known = desk.configured.list()
    names = {config.name for config in known}
    described = [await _described(desk, config) for config in known]
    # A key in the environment is enough to use a well-known provider.
    others = [await _described(desk, preset) for preset in PRESETS.values() if preset.name not in names]
    described += [one for one in others if one["needs_key"] and one["key"]]
    found = [one for one in await local.detect(desk.connections) if one.config.name not in names]
    described += [await _described(desk, one.config) | {"found": True, "models": len(one.models)} for one in found]
    if "demo" not in names:
        described.append(await _described(desk, PRESETS["demo"]))
    if arguments.json:
        await say_json(desk.console, described)
        return 0
    for one in described:
        await desk.console.say(_line(one))
    return 0


async def _described(desk: Desk, config: ProviderConfig) -> dict[str, Any]:
    from helix_desktop.errors import NoKeyring

    try:
        kept = await desk.secrets.where(config.key)
    except NoKeyring:
        kept = None
    described = {"name": config.name, "kind": config.kind, "base_url": config.base_url, "local": config.is_local}
    return described | {"key": kept.value if kept else "", "needs_key": config.needs_key}


def _line(one: dict[str, Any]) -> str:
    if one["kind"] == "demo":
        words = "built in: a script instead of a model; needs no key and no network"
    elif one["key"]:
        words = f"key in {one['key']}"
    else:
        words = "no key yet" if one["needs_key"] else "no key needed"
    found = f", found on this computer with {one['models']} models" if one.get("found") else ""
    return f"{one['name']:<16} {one['kind']:<17} {one['base_url'] or '-':<44} {words}{found}"


# --- test ------------------------------------------------------------------------------------------------------------


async def test(arguments: argparse.Namespace, desk: Desk) -> int:
    """Two questions: the list of models, which checks the address and the key; and one short reply."""
    from helix_desktop.providers import listing

    config = desk.configured.get(arguments.name)
    key = await desk.key(config)
    models = await listing.refreshed(desk.configured, arguments.name, key, desk.connections)
    result: dict[str, Any] = {"name": config.name, "models": len(models)}
    lines = [f"{config.name} responds and has {len(models)} models."]
    if arguments.model:
        result |= await _one_word(config, arguments.model, key, desk)
        lines.append(f"{arguments.model} said {result['said']!r} after {result['seconds']:.1f} s.")
    if arguments.json:
        await say_json(desk.console, result)
    else:
        await desk.console.say("\n".join(lines))
    return 0


async def _one_word(config: ProviderConfig, model: str, key: str | None, desk: Desk) -> dict[str, Any]:
    from helix_desktop.engine.blocks import Message, Reply, Request, Role, Waiting
    from helix_desktop.engine.facts import Text
    from helix_desktop.providers.catalog import SystemClock, connect

    clock = SystemClock()
    client = connect(config, model, key, connections=desk.connections, clock=clock)
    asked = Message(Role.USER, (Text("Answer with the single word: ready"),))
    request = Request(model, "", (asked,), max_output=1024, purpose=Purpose.TEST)
    started, reply = clock.now(), None
    async with aclosing(client.stream(request)) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            if isinstance(delta, Waiting):
                await desk.console.complain(f"{delta.why} Trying again in {delta.seconds:.0f} s.")
            if isinstance(delta, Reply):
                reply = delta
    said = " ".join(part.text for part in reply.parts if isinstance(part, Text)) if reply else ""
    return {
        "model": model,
        "said": said.strip()[:80],
        "seconds": clock.now() - started,
        "stop": reply.stop if reply else "",
    }
