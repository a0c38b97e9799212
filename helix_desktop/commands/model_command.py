"""`model`: lists models, and sets the main, fast and long-window model of a workspace."""

import asyncio
import math
from argparse import Namespace
from typing import Any

from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    add_workspace_option,
)
from helix_desktop.commands.provider_command import ProviderTools, run_with_provider_tools
from helix_desktop.commands.workspace_access import print_result, run_on_workspace
from helix_desktop.console import Console
from helix_desktop.engine.facts import ModelRole
from helix_desktop.errors import HelixError, InvalidInput, ModelFailed, NoUsableKeyring
from helix_desktop.providers import local_servers, model_listing
from helix_desktop.providers.model_prices import ModelInfo
from helix_desktop.providers.provider_catalog import (
    PRESETS,
    ProviderConfig,
    describe_model,
    find_provider_key,
)
from helix_desktop.store.stored_workspace import StoredWorkspace

FIGURES = ("window", "max_output", "input", "output", "cache_read", "cache_write")


async def print_model_list(arguments: Namespace, desk: ProviderTools) -> int:
    """Lists models. A provider that cannot be reached is reported on standard error,
    and the others are listed.
    """
    if arguments.provider:
        configs = [desk.configured.find_provider(arguments.provider)]
    else:
        configs = await _list_usable_providers(desk)
    # All providers are asked at the same time. Each gives its models or an error.
    requests = [_list_models_of_provider(desk, config) for config in configs]
    results = await asyncio.gather(*requests, return_exceptions=True)
    models: list[ModelInfo] = []
    for result in results:
        if isinstance(result, HelixError):
            await desk.console.print_error(str(result))
        elif isinstance(result, BaseException):
            raise result
        else:
            models += result

    as_json = [_model_as_json(model) for model in models]
    lines = [_format_model_line(model) for model in models]
    await print_result(arguments, desk.console, as_json, *lines)
    if arguments.provider and not models:
        return 1
    return 0


async def _list_usable_providers(desk: ProviderTools) -> list[ProviderConfig]:
    """Returns the configured providers, well-known ones whose key is known, local
    servers, and the demonstration.
    """
    configs = {config.name: config for config in desk.configured.list_providers()}
    for preset in PRESETS.values():
        if preset.name in configs or not preset.needs_key:
            continue
        try:
            if await desk.secrets.find_secret_keeper(preset.provider_key):
                configs[preset.name] = desk.configured.find_provider(preset.name)
        except NoUsableKeyring:
            break
    for server in await local_servers.detect_local_servers(desk.connections):
        configs.setdefault(server.config.name, server.config)
    configs.setdefault("demo", PRESETS["demo"])
    return list(configs.values())


async def _list_models_of_provider(
    desk: ProviderTools, config: ProviderConfig
) -> tuple[ModelInfo, ...]:
    key = await find_provider_key(config, desk.secrets)
    return await model_listing.list_and_save_models(
        desk.configured, config.name, key, desk.connections
    )


def _model_as_json(model: ModelInfo) -> dict[str, Any]:
    """Returns a model as `--json` prints it."""
    return {
        "name": model.name,
        "window": model.window,
        "max_output": model.abilities.max_output,
        "input": model.prices.input,
        "output": model.prices.output,
        "cache_read": model.prices.cache_read,
        "cache_write": model.prices.cache_write,
        "images": model.abilities.images,
        "tools": model.abilities.tools,
        "reasoning": model.abilities.reasoning,
        "note": model.note,
    }


def _format_model_line(model: ModelInfo) -> str:
    """Returns a line with the model's name, its window in tokens, its price, and what it cannot
    do.
    """
    price = "price unknown"
    if model.prices.input:
        price = f"${model.prices.input:g} in, ${model.prices.output:g} out"
    elif model.is_free:
        price = "assumed free"
    remarks: list[str] = []
    if not model.abilities.tools:
        remarks.append("no tools")
    if not model.abilities.images:
        remarks.append("no images")
    remarks.append(model.note)
    return f"{model.name:<48}{model.window:>10,}  {price:<24}{', '.join(remarks)}"


def choose_model_for_workspace(arguments: Namespace) -> int:
    """Looks the model up first, and then saves it as the workspace's choice."""
    code = asyncio.run(run_with_provider_tools(arguments, _check_chosen_model))
    if code or _changes_figures_only(arguments):
        return code
    return run_on_workspace(arguments)


def _changes_figures_only(arguments: Namespace) -> bool:
    return arguments.workspace is None and bool(_given_figures(arguments))


def _given_figures(arguments: Namespace) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in FIGURES:
        value = getattr(arguments, name)
        if value is not None:
            figures[name] = value
    return figures


async def _check_chosen_model(arguments: Namespace, desk: ProviderTools) -> int:
    """Asks the provider whether it has the model, and saves the user's figures for it."""
    provider, slash, name = arguments.model.partition("/")
    if not slash or not name:
        raise InvalidInput(
            "Specify the model as PROVIDER/MODEL.",
            remedy="To list all models, run `helix-desktop model list`.",
        )
    corrections = _given_figures(arguments)
    for value in corrections.values():
        if not 0 <= value < math.inf:
            raise InvalidInput(
                "The context window and prices must be 0 or greater.",
                remedy="Nothing was changed.",
            )
    config = desk.configured.find_provider(provider)
    await _check_provider_has_model(desk, config, name)
    if corrections:
        desk.configured.correct_model(provider, name, corrections)
    if _changes_figures_only(arguments):
        info = describe_model(desk.configured.find_provider(provider), name)
        await print_result(arguments, desk.console, _model_as_json(info), _format_model_line(info))
    return 0


async def _check_provider_has_model(desk: ProviderTools, config: ProviderConfig, name: str) -> None:
    """Refuses a model that the provider does not have. If the provider cannot be
    reached, prints a note.
    """
    try:
        key = await find_provider_key(config, desk.secrets)
        await model_listing.ask_provider_about_model(
            desk.configured, config.name, name, key, desk.connections
        )
    except ModelFailed as error:
        await desk.console.print_error(f"Not checked with the provider: {error}")


async def use_model_in_workspace(
    arguments: Namespace, workspace: StoredWorkspace, console: Console
) -> int:
    """Sets the model, here or in the process that has the workspace open."""
    workspace.change_settings({f"models.{arguments.role}": arguments.model})
    result = {"workspace": workspace.id, "role": arguments.role, "model": arguments.model}
    return await print_result(
        arguments, console, result, f"{workspace.name}: {arguments.role} model {arguments.model}"
    )


def _parse_model_name(text: str) -> str:
    """Returns a model's full name. `ask` accepts "demo" too."""
    if text == "demo":
        return "demo/demo"
    return text


def add_model_commands(nouns: Subparsers) -> None:
    noun = add_command(
        nouns, "model", "list models, choose models for a workspace, and override their limits"
    )
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    _add_model_list(verbs)
    _add_model_set(verbs)


def _add_model_list(verbs: Subparsers) -> None:
    command = add_command(verbs, "list", "list the models of all providers")
    command.add_argument(
        "--provider", metavar="P", default="", help="list only models from this provider"
    )
    add_json_option(command)
    command.set_defaults(run=run_with_provider_tools, work=print_model_list)


def _add_model_set(verbs: Subparsers) -> None:
    command = add_command(
        verbs, "set", "choose a model for a workspace, or override its limits and prices"
    )
    command.add_argument(
        "model",
        metavar="PROVIDER/MODEL",
        type=_parse_model_name,
        help="the model, as shown by `model list`",
    )
    add_workspace_option(command)
    command.add_argument(
        "--role",
        choices=[role.value for role in ModelRole],
        default="main",
        help="what the workspace uses the model for",
    )
    add_json_option(command)
    command.add_argument(
        "--window",
        metavar="N",
        type=int,
        default=None,
        help="override the model's window, in tokens",
    )
    command.add_argument(
        "--max-output",
        metavar="N",
        type=int,
        default=None,
        help="override the model's maximum output, in tokens",
    )
    command.add_argument(
        "--input",
        metavar="N",
        type=float,
        default=None,
        help="override the model's input price, in dollars per million tokens",
    )
    command.add_argument(
        "--output",
        metavar="N",
        type=float,
        default=None,
        help="override the model's output price, in dollars per million tokens",
    )
    command.add_argument(
        "--cache-read",
        metavar="N",
        type=float,
        default=None,
        help="override the model's cache read price, in dollars per million tokens",
    )
    command.add_argument(
        "--cache-write",
        metavar="N",
        type=float,
        default=None,
        help="override the model's cache write price, in dollars per million tokens",
    )
    command.set_defaults(run=choose_model_for_workspace, work=use_model_in_workspace)
