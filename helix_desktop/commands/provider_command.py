"""`provider`: adds, lists, tests and removes providers. Keys are never arguments."""

import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from helix_desktop.commands import workspace_access
from helix_desktop.commands.option_parsing import Subparsers, add_command, add_json_option
from helix_desktop.commands.workspace_access import print_result
from helix_desktop.console import Terminal
from helix_desktop.engine.facts import Purpose, Text
from helix_desktop.engine.messages import Message, Reply, Request, RetryDelay, Role
from helix_desktop.errors import InvalidInput, ModelFailed, NotFound, NoUsableKeyring, format_things
from helix_desktop.extensions.extension_loading import load_extensions_once
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.providers import local_servers, provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections, strip_and_check_key
from helix_desktop.providers.model_listing import check_provider_address, list_and_save_models
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig, SystemClock
from helix_desktop.secrets import (
    ProviderKey,
    SecretKeeper,
    SecretStorage,
    environment_variable_name,
)


@dataclass(frozen=True, slots=True)
class ProviderTools:
    """The provider file, keys, connections and console that the provider and model commands use."""

    configured: ConfiguredProviders
    secrets: SecretStorage
    connections: ProviderConnections
    console: Terminal


ProviderWork = Callable[[Namespace, ProviderTools], Awaitable[int]]


async def run_with_provider_tools(arguments: Namespace, work: ProviderWork | None = None) -> int:
    """Runs the work, or that of the command, with tools that are opened and closed for it."""
    await load_extensions_once(arguments.places)  # One may bring the provider that is meant.
    secrets = workspace_access.open_secrets(arguments.places)
    async with aclosing(ProviderConnections()) as connections:
        desk = ProviderTools(
            ConfiguredProviders(arguments.places.providers_file), secrets, connections, Terminal()
        )
        return await (work or arguments.work)(arguments, desk)


# --- Adding and removing providers ---


async def add_or_change_provider(arguments: Namespace, desk: ProviderTools) -> int:
    """Saves a provider, with its key if `--key` is given, and says whether it needs one."""
    config = await _provider_from_arguments(arguments, desk)
    if arguments.key:
        # The key is stored before the provider, so that nothing changes if storing it fails.
        await _ask_for_key_and_store_it(config, arguments, desk)
        config = replace(config, key_host=config.host)
    saved_config = desk.configured.save_provider(config)

    described = await _provider_as_json(desk, saved_config)
    lines = [_format_provider_line(described)]
    if saved_config.needs_key and not described["key"]:
        lines.append(
            f"This provider needs a key. Run `helix-desktop provider add {saved_config.name} --key`, or set {saved_config.variable}."
        )
    return await print_result(arguments, desk.console, described, *lines)


async def _ask_for_key_and_store_it(
    config: ProviderConfig, arguments: Namespace, desk: ProviderTools
) -> None:
    """Checks the provider's address, asks for the key, and stores it where `--keep` says."""
    try:
        await check_provider_address(config, desk.connections)
    except ModelFailed as error:  # The provider does not answer now, but it may do so later.
        await desk.console.print_error(str(error))
    key = strip_and_check_key(ask_for_key(config.name), config.name)
    keeper = SecretKeeper.KEYRING
    if arguments.keep == "file":
        keeper = SecretKeeper.FILE
    try:
        await desk.secrets.store_secret_at(config.provider_key, key, where=keeper)
    except NoUsableKeyring as error:
        variable = environment_variable_name(config.name)
        remedy = f"Set the key as the environment variable {variable}, or add --keep file."
        raise NoUsableKeyring(error.what, remedy=remedy) from error


async def _provider_from_arguments(arguments: Namespace, desk: ProviderTools) -> ProviderConfig:
    """Returns the provider with the arguments' changes. A new well-known one gets the
    address from the environment.
    """
    try:
        config = desk.configured.find_provider(arguments.name)
    except NotFound:
        config = ProviderConfig(arguments.name)
    variable, address = desk.secrets.find_address_in_environment(config.provider_key)
    saved_names = {saved.name for saved in desk.configured.list_providers()}
    is_new = config.name not in saved_names
    if address and is_new and not arguments.base_url:
        config = provider_catalog.with_base_url(config, address)
        await desk.console.print_error(
            f"Using the address {address} from {variable}. For another address, add --base-url."
        )
    if arguments.base_url:
        config = provider_catalog.with_base_url(config, arguments.base_url)
    config = _with_given_values(config, arguments)
    if not config.base_url and config.kind != "demo":
        raise InvalidInput(
            f"{arguments.name} is not a known provider, so you need to specify its address.",
            remedy="Add --base-url.",
        )
    return config


def _with_given_values(config: ProviderConfig, arguments: Namespace) -> ProviderConfig:
    """Returns the provider with what was given. An option that was left out changes nothing."""
    headers = _parse_name_value_pairs(arguments.header or [])
    query = _parse_name_value_pairs(arguments.query or [])
    options: dict[str, Any] = {
        "kind": arguments.kind,
        "variable": arguments.variable,
        "key_header": arguments.key_header,
        "headers": headers,
        "query": query,
    }
    given_options: dict[str, Any] = {}
    for name, value in options.items():
        if value:
            given_options[name] = value
    return replace(config, **given_options)


def _parse_name_value_pairs(texts: list[str]) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InvalidInput("Specify headers and query parameters as NAME=VALUE.")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


def ask_for_key(name: str) -> str:
    """Reads a key without echoing it, or the first line if standard input is a pipe."""
    if sys.stdin is not None and sys.stdin.isatty():
        import getpass

        try:
            key = getpass.getpass(f"Key of {name} (not shown): ")
        except EOFError:  # The user pressed Ctrl+D.
            key = ""
    elif sys.stdin:
        key = sys.stdin.readline()
    else:
        key = ""
    if not key.strip():
        raise InvalidInput("No key was entered.", remedy="Enter the key when you are asked for it, or pass the key on standard input.")  # fmt: skip
    return key


async def run_remove_provider(arguments: Namespace, desk: ProviderTools) -> int:
    desk.configured.remove_provider(arguments.name)
    await desk.secrets.delete_secret(ProviderKey(arguments.name))
    line = f"{arguments.name} and its key were removed."
    return await print_result(arguments, desk.console, {"removed": arguments.name}, line)


async def print_provider_list(arguments: Namespace, desk: ProviderTools) -> int:
    """Lists the saved providers, those that could be used at once, and the demonstration."""
    configs = desk.configured.list_providers()
    names = {config.name for config in configs}
    described = [await _provider_as_json(desk, config) for config in configs]
    # A well-known provider that was not added is listed if it needs a key and one is stored or set.
    for preset in PRESETS.values():
        if preset.name in names:
            continue
        provider = await _provider_as_json(desk, preset)
        if provider["needs_key"] and provider["key"]:
            described.append(provider)
    for server in await local_servers.detect_local_servers(desk.connections):
        if server.config.name in names:
            continue
        provider = await _provider_as_json(desk, server.config)
        provider["found"] = True
        provider["models"] = len(server.models)
        described.append(provider)
    if "demo" not in names:
        described.append(await _provider_as_json(desk, PRESETS["demo"]))
    lines = [_format_provider_line(provider) for provider in described]
    return await print_result(arguments, desk.console, described, *lines)


async def _provider_as_json(desk: ProviderTools, config: ProviderConfig) -> dict[str, Any]:
    """Returns a provider as `--json` prints it, with where its key is, but never the key."""
    key_place = ""
    with suppress(NoUsableKeyring):
        keeper = await desk.secrets.find_secret_keeper(config.provider_key)
        if keeper:
            key_place = keeper.value
    return {
        "name": config.name,
        "kind": config.kind,
        "base_url": config.base_url,
        "local": config.is_local,
        "key": key_place,
        "needs_key": config.needs_key,
    }


def _format_provider_line(provider: dict[str, Any]) -> str:
    """Returns a line with the provider's name, protocol and address, and where its key is."""
    if provider["kind"] == "demo":
        description = "built in: a script instead of a model; needs no key and no network"
    elif provider["key"]:
        description = f"key in {provider['key']}"
    elif provider["needs_key"]:
        description = "no key yet"
    else:
        description = "no key needed"
    if provider.get("found"):
        models = f"{provider['models']} models"
        if provider["models"] == 1:
            models = "1 model"
        description += f", found on this computer with {models}"
    address = provider["base_url"] or "-"
    return f"{provider['name']:<16} {provider['kind']:<17} {address:<44} {description}"


async def test_provider_connection(arguments: Namespace, desk: ProviderTools) -> int:
    """Sends two requests: a list of models, which checks address and key, and one short prompt."""
    config = desk.configured.find_provider(arguments.name)
    key = await provider_catalog.find_provider_key(config, desk.secrets)
    models = await list_and_save_models(desk.configured, arguments.name, key, desk.connections)
    result: dict[str, Any] = {"name": config.name, "models": len(models)}
    lines = [f"{config.name} responds and has {format_things(len(models), 'model', 'models')}."]
    if arguments.model:
        result |= await _request_test_reply(config, arguments.model, key, desk)
        lines.append(f"{arguments.model} said {result['said']!r} after {result['seconds']:.1f} s.")
    return await print_result(arguments, desk.console, result, *lines)


async def _request_test_reply(
    config: ProviderConfig, model: str, key: str | None, desk: ProviderTools
) -> dict[str, Any]:
    """Sends one short prompt to a model, and returns what it answered and how long that took."""
    clock = SystemClock()
    client = provider_catalog.connect_model_client(
        config, model, key, connections=desk.connections, clock=clock
    )
    asked = Message(Role.USER, (Text("Answer with the single word: ready"),))
    request = Request(model, "", (asked,), max_output=1024, purpose=Purpose.TEST)
    started = clock.steady_time()
    reply = None
    async with aclosing(client.stream_reply(request)) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            if isinstance(delta, RetryDelay):
                await desk.console.print_error(f"{delta.why} Retrying in {delta.seconds:.0f} s.")
            if isinstance(delta, Reply):
                reply = delta
    seconds = clock.steady_time() - started
    text = ""
    stop = ""
    if reply:
        text = " ".join(part.text for part in reply.parts if isinstance(part, Text))
        stop = reply.stop
    return {"model": model, "said": text.strip()[:80], "seconds": seconds, "stop": stop}


def add_provider_commands(nouns: Subparsers) -> None:
    noun = add_command(nouns, "provider", "set up services and local servers that provide models")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_provider_add(verbs)
    _add_provider_list(verbs)
    _add_provider_test(verbs)
    _add_provider_remove(verbs)


def _add_provider_add(verbs: Subparsers) -> None:
    """Declares `provider add`."""
    command = add_command(verbs, "add", "set up or change a provider")
    command.add_argument(
        "name",
        metavar="NAME",
        help="openai, anthropic, gemini, openrouter, ollama, ... or any other name",
    )
    command.add_argument(
        "--kind",
        metavar="KIND",
        default="",
        help="openai-chat (default for other names), openai-responses, anthropic or gemini",
    )
    command.add_argument(
        "--base-url",
        metavar="URL",
        default="",
        help="the provider's address, such as https://llm.example.org/v1",
    )
    command.add_argument(
        "--key",
        action="store_true",
        help="ask for the provider's key, or read it from standard input",
    )
    command.add_argument(
        "--keep", choices=["keyring", "file"], default="keyring", help="where to store the key"
    )
    command.add_argument(
        "--variable",
        metavar="NAME",
        default="",
        help="the environment variable to read the key from",
    )
    command.add_argument(
        "--key-header",
        metavar="NAME",
        default="",
        help="the header that contains the key, such as api-key (Azure)",
    )
    command.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="an additional header"
    )
    command.add_argument(
        "--query",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an additional query parameter, such as api-version=2024-10-21",
    )
    add_json_option(command)
    command.set_defaults(run=run_with_provider_tools, work=add_or_change_provider)


def _add_provider_list(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "list", "list the providers that are set up, and the servers found on this computer"
    )
    add_json_option(command)
    command.set_defaults(run=run_with_provider_tools, work=print_provider_list)


def _add_provider_test(verbs: Subparsers) -> None:
    """Declares `provider test`."""
    command = add_command(
        verbs, "test", "list a provider's models, and send one of them a test request"
    )
    command.add_argument("name", metavar="NAME", help="")
    command.add_argument(
        "--model",
        metavar="M",
        default="",
        help="the model to send a test request to (default: none)",
    )
    add_json_option(command)
    command.set_defaults(run=run_with_provider_tools, work=test_provider_connection)


def _add_provider_remove(verbs: Subparsers) -> None:
    command = add_command(verbs, "remove", "remove a provider and its key")
    command.add_argument("name", metavar="NAME", help="")
    add_json_option(command)
    command.set_defaults(run=run_with_provider_tools, work=run_remove_provider)
