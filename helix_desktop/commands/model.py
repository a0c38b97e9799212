"""`model`: list those that can be chosen, and set the main, fast and long-window model of a workspace."""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from helix_desktop.commands import as_json, open_workspace
from helix_desktop.commands.open_workspace import say_json
from helix_desktop.commands.provider import Desk, at_desk
from helix_desktop.engine.facts import ModelRole
from helix_desktop.errors import HelixError, ModelFailed, WrongUse

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.console import Console
    from helix_desktop.providers.catalog import ProviderConfig
    from helix_desktop.providers.models import ModelInfo
    from helix_desktop.store.workspace import Workspace

FIGURES = {"window": int, "max_output": int, "input": float, "output": float, "cache_read": float, "cache_write": float}


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("model", help="list models, choose models for a workspace, and override their limits")
    verbs = noun.add_subparsers(required=True, metavar="VERB")
    one = verbs.add_parser(
        "list", help="list the models of all providers", description="List the models of all providers."
    )
    one.add_argument("--provider", default="", metavar="P", help="list only models from this provider")
    as_json(one)
    one.set_defaults(run=_with_desk(list_all))
    one = verbs.add_parser(
        "set", help="choose a model for a workspace, or override its limits and prices", description="Choose a model."
    )
    one.add_argument("model", type=_named, metavar="PROVIDER/MODEL", help="the model, as shown by `model list`")
    one.add_argument("--workspace", "-w", default="", metavar="W", help="the workspace that should use the model")
    one.add_argument(
        "--role", choices=list(ModelRole), default=ModelRole.MAIN, help="what the workspace uses the model for"
    )
    for name, kind in FIGURES.items():
        words = ", in tokens" if kind is int else " price, in dollars per million tokens"
        one.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar="N",
            help=f"override the model's {name.replace('_', ' ').replace('max ', 'maximum ')}{words}",
        )
    as_json(one)
    one.set_defaults(run=choose, work=use)


def _named(text: str) -> str:
    return "demo/demo" if text == "demo" else text  # `ask` knows the built-in one by its name alone as well


def _with_desk(work: Callable[[argparse.Namespace, Desk], Awaitable[int]]) -> Callable[[argparse.Namespace], int]:
    return lambda arguments: asyncio.run(at_desk(arguments, work))


# --- list ------------------------------------------------------------------------------------------------------------


async def list_all(arguments: argparse.Namespace, desk: Desk) -> int:
    """A provider that cannot be asked is a line on standard error; the others are listed all the same."""
    configs = [desk.configured.get(arguments.provider)] if arguments.provider else await _usable(desk)
    answers = await asyncio.gather(*(_models(desk, config) for config in configs), return_exceptions=True)
    models: list[ModelInfo] = []
    for answer in answers:
        if isinstance(answer, HelixError):
            await desk.console.complain(str(answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            models += answer
    if arguments.json:
        await say_json(desk.console, [_described(model) for model in models])
    else:
        for model in models:
            await desk.console.say(_line(model))
    return 1 if arguments.provider and not models else 0


async def _usable(desk: Desk) -> list[ProviderConfig]:
    """Those set up, the well-known ones whose key is there, the servers on this machine, and the demonstration."""
    from helix_desktop.errors import NoKeyring
    from helix_desktop.providers import local
    from helix_desktop.providers.catalog import PRESETS

    configs = {config.name: config for config in desk.configured.list()}
    for preset in PRESETS.values():
        if preset.name in configs or not preset.needs_key:
            continue
        try:
            if await desk.secrets.where(preset.key):
                configs[preset.name] = desk.configured.get(preset.name)
        except NoKeyring:
            break
    for found in await local.detect(desk.connections):
        configs.setdefault(found.config.name, found.config)
    configs.setdefault("demo", PRESETS["demo"])
    return list(configs.values())


async def _models(desk: Desk, config: ProviderConfig) -> tuple[ModelInfo, ...]:
    from helix_desktop.providers import listing

    return await listing.refreshed(desk.configured, config.name, await desk.key(config), desk.connections)


def _described(model: ModelInfo) -> dict[str, Any]:
    prices, abilities = model.prices, model.abilities
    return {
        "name": model.name,
        "window": model.window,
        "max_output": abilities.max_output,
        "input": prices.input,
        "output": prices.output,
        "cache_read": prices.cache_read,
        "cache_write": prices.cache_write,
        "images": abilities.images,
        "tools": abilities.tools,
        "reasoning": abilities.reasoning,
        "note": model.note,
    }


def _line(model: ModelInfo) -> str:
    price = f"${model.prices.input:g} in, ${model.prices.output:g} out" if model.prices.input else "price unknown"
    lacks = [
        word
        for word, there in (("no tools", model.abilities.tools), ("no images", model.abilities.images))
        if not there
    ]
    return f"{model.name:<48}{model.window:>10,}  {price:<24}{', '.join([*lacks, model.note])}"


# --- set -------------------------------------------------------------------------------------------------------------


def choose(arguments: argparse.Namespace) -> int:
    """First what is known of the model, then the workspace's choice."""
    code = asyncio.run(at_desk(arguments, _check))
    if code or not arguments.workspace:
        return code
    return open_workspace.run(arguments)


async def _check(arguments: argparse.Namespace, desk: Desk) -> int:
    from helix_desktop.providers.catalog import model_info

    provider, slash, name = arguments.model.partition("/")
    if not slash or not name:
        raise WrongUse(
            "Specify the model as PROVIDER/MODEL.", remedy="To list all models, run `helix-desktop model list`."
        )
    corrections = {figure: value for figure in FIGURES if (value := getattr(arguments, figure)) is not None}
    if not all(0 <= value < math.inf for value in corrections.values()):
        raise WrongUse("A window size or price must be a number, 0 or greater.", remedy="Nothing was changed.")
    if not arguments.workspace and not corrections:
        raise WrongUse(
            "Nothing to set.",
            remedy="Use --workspace to choose the model for a workspace, or specify at least one setting to override.",
        )
    config = desk.configured.get(provider)
    await _known_there(desk, config, name)
    if corrections:
        desk.configured.correct(provider, name, corrections)
    if not arguments.workspace:
        info = model_info(desk.configured.get(provider), name)
        await (say_json(desk.console, _described(info)) if arguments.json else desk.console.say(_line(info)))
    return 0


async def _known_there(desk: Desk, config: ProviderConfig, name: str) -> None:
    """Ask the provider; what it does not have is refused, a provider that cannot be asked now is only said."""
    from helix_desktop.providers import listing

    try:
        await listing.learned(desk.configured, config.name, name, await desk.key(config), desk.connections)
    except ModelFailed as error:
        await desk.console.complain(f"Not checked with the provider: {error}")


async def use(arguments: argparse.Namespace, workspace: Workspace, console: Console) -> int:
    """Here, or in the program that has the workspace open."""
    workspace.change({f"models.{arguments.role}": arguments.model})
    if arguments.json:
        await say_json(console, {"workspace": workspace.id, "role": arguments.role, "model": arguments.model})
    else:
        await console.say(f"{workspace.name}: {arguments.role} model {arguments.model}")
    return 0
