"""pi: the providers' addresses are in its file of models."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.atomic_files import create_folders
from helix_desktop.commented_json import parse_commented_json
from helix_desktop.gateway.agent_upstreams import (
    AgentSurroundings,
    AgentUpstream,
    checked_address_in_settings,
    first_value_of_option,
    list_unserved_providers,
    locate_in_file,
    provider_of_model_argument,
    read_json_settings,
)
from helix_desktop.gateway.known_agent import (
    AgentLaunch,
    AgentStart,
    KnownAgent,
)
from helix_desktop.gateway.own_headers import names_of_model_headers
from helix_desktop.gateway.provider_addresses import SettingsOfProviders, set_provider_addresses
from helix_desktop.histories.program_names import title_of_command
from helix_desktop.json_values import object_at, objects_at, text_at

# It adds the version to Anthropic's address itself.
_SETTINGS = SettingsOfProviders(
    "models.json",
    path_of_address=lambda provider: ("providers", provider, "baseUrl"),
    anthropic_version="",
)


def _pi_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent") / "models.json"


def _build_pi_launch(start: AgentStart) -> AgentLaunch:
    """Return how to launch pi: with a folder of its own for this run, in which only the models'
    addresses differ.

    All else in that folder is a link to the user's, also the files that pi has yet to write.
    """
    folder = Path(start.environ.get("PI_CODING_AGENT_DIR") or Path.home() / ".pi" / "agent")
    models = folder / "models.json"
    for needed_folder in (start.scratch, folder / "sessions", folder / "bin"):
        create_folders(needed_folder)

    linked_files = set(folder.iterdir())
    linked_files.update((folder / "auth.json", folder / "settings.json"))
    linked_files.discard(models)
    for linked_file in linked_files:
        (start.scratch / linked_file.name).symlink_to(linked_file)

    users_models = ""
    if models.exists():
        users_models = models.read_text("utf-8")
    settings = set_provider_addresses(users_models, start.urls, _SETTINGS)
    settings_without_comments = json.dumps(parse_commented_json(settings, ""))
    (start.scratch / "models.json").write_text(settings_without_comments, "utf-8")
    return AgentLaunch(("pi", *start.arguments), {"PI_CODING_AGENT_DIR": str(start.scratch)})


def _change_pi_settings(text: str, url: str, _: Mapping[str, str]) -> str:
    return set_provider_addresses(text, {AgentUpstream(): url}, _SETTINGS)


def _read_pi_environment(where: AgentSurroundings) -> dict[str, str]:
    """Return the environment with the proxy of pi's settings, which a variable overrules."""
    environ = dict(where.environ)
    proxy = text_at(read_json_settings(_pi_folder(where) / "settings.json"), "httpProxy").strip()
    if proxy:
        for variable in ("HTTP_PROXY", "HTTPS_PROXY"):
            environ.setdefault(variable, proxy)
    return environ


def _pi_folder(where: AgentSurroundings) -> Path:
    return Path(where.environ.get("PI_CODING_AGENT_DIR") or where.home / ".pi" / "agent")


def read_pi_providers(where: AgentSurroundings) -> dict[str, Any]:
    return object_at(read_json_settings(_pi_folder(where) / "models.json"), "providers")


def _find_pi_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where pi sends its requests: the usual providers first, then those in its models
    file.
    """
    upstreams = [AgentUpstream()]
    for name, provider in read_pi_providers(where).items():
        address = str(object_at(provider).get("baseUrl") or "")
        if address:
            location = locate_in_file(_pi_folder(where) / "models.json", address)
            upstreams.append(
                AgentUpstream(name, checked_address_in_settings(address, location), location)
            )
    return upstreams


def _list_bypassing_pi_providers(
    where: AgentSurroundings, upstreams: Sequence[AgentUpstream]
) -> list[str]:
    used_providers = set(read_json_settings(_pi_folder(where) / "auth.json"))
    chosen_provider = _choose_pi_provider(where)
    if chosen_provider:
        used_providers.add(chosen_provider)
    bypassing = list_unserved_providers(used_providers, upstreams)
    for name in read_pi_providers(where):
        if _has_models_with_addresses(name, where):
            bypassing.add(name)
    return sorted(bypassing)


def _choose_pi_provider(where: AgentSurroundings) -> str:
    """Return the provider that pi will use: an argument is stronger than the settings."""
    provider_argument = first_value_of_option(where.arguments, "--provider").partition("/")[0]
    if provider_argument:
        return provider_argument
    provider_of_model = provider_of_model_argument(where)
    if provider_of_model:
        return provider_of_model
    settings = read_json_settings(_pi_folder(where) / "settings.json")
    return str(settings.get("defaultProvider") or "").partition("/")[0]


def _has_models_with_addresses(provider: str, where: AgentSurroundings) -> bool:
    """Whether a provider's models have addresses of their own, which wrap does not replace."""
    models = objects_at(read_pi_providers(where), provider, "models")
    return any(model.get("baseUrl") for model in models)


def _names_in_pi_settings(where: AgentSurroundings) -> set[str]:
    names = set[str]()
    for provider in read_pi_providers(where).values():
        names.update(object_at(provider, "headers"))
        names.update(names_of_model_headers(objects_at(provider, "models")))
    return names


AGENT = KnownAgent(
    name="pi",
    title=title_of_command("pi"),
    program="pi",
    npm_package="@earendil-works/pi-coding-agent",
    launch=_build_pi_launch,
    file=_pi_settings_file,
    change=_change_pi_settings,
    find_upstreams=_find_pi_upstreams,
    recognized_by=r"\bpi[/ (]|pi-coding-agent",
    shell_variables=("PI_CODING_AGENT_DIR",),
    read_environment=_read_pi_environment,
    find_header_names=_names_in_pi_settings,
    list_bypassing_providers=_list_bypassing_pi_providers,
)
