"""opencode: the providers' addresses are in its settings, which its environment can override."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.commented_json import parse_commented_json
from helix_desktop.gateway.agent_upstreams import (
    AgentSurroundings,
    AgentUpstream,
    SettingsLayer,
    checked_address_in_settings,
    list_unserved_providers,
    locate_in_file,
    provider_of_model_argument,
    read_json_settings,
    refuse_agent,
    upstream_of_variable,
)
from helix_desktop.gateway.known_agent import (
    AgentLaunch,
    AgentStart,
    KnownAgent,
)
from helix_desktop.gateway.own_headers import names_of_model_headers
from helix_desktop.gateway.provider_addresses import SettingsOfProviders, set_provider_addresses
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.opencode_history import is_opencode2_in_use
from helix_desktop.histories.program_names import title_of_command
from helix_desktop.json_values import object_at

OPENCODE_MANAGED_FOLDER = Path("/etc/opencode")


def _opencode_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    """Return the file to change: the user's own, which may allow comments."""
    folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    usual = folder / "opencode.json"
    with_comments = folder / "opencode.jsonc"
    if with_comments.exists() and not usual.exists():
        return with_comments
    return usual


def _settings_in(file_name: str) -> SettingsOfProviders:
    return SettingsOfProviders(
        file_name, path_of_address=lambda provider: ("provider", provider, "options", "baseURL")
    )


def _build_opencode_launch(start: AgentStart) -> AgentLaunch:
    """Launch opencode with its settings in a variable, which overrides its files."""
    variable = "OPENCODE_CONFIG_CONTENT"
    users_settings = start.environ.get(variable, "")
    settings = set_provider_addresses(users_settings, start.urls, _settings_in(variable))
    settings_without_comments = json.dumps(parse_commented_json(settings, variable))
    command = ("opencode", *start.arguments)
    return AgentLaunch(command, {variable: settings_without_comments})


def _change_opencode_settings(text: str, url: str, _: Mapping[str, str]) -> str:
    return set_provider_addresses(text, {AgentUpstream(): url}, _settings_in("opencode.json"))


def read_opencode_settings(where: AgentSurroundings) -> list[SettingsLayer]:
    """Return what opencode reads, weakest first. The settings in its environment have
    the variable as their file.
    """
    layers: list[SettingsLayer] = []
    for file in _opencode_settings_files(where):
        layers.append(SettingsLayer(file, read_json_settings(file)))
    variable = "OPENCODE_CONFIG_CONTENT"
    settings_in_environment = parse_commented_json(where.environ.get(variable, ""), variable)
    layers.append(SettingsLayer(Path(variable), settings_in_environment))
    return layers


def _opencode_settings_files(where: AgentSurroundings) -> list[Path]:
    """Return the files that opencode reads, weakest first, whether they exist or not."""
    environ = where.environ
    user_folder = Path(environ.get("XDG_CONFIG_HOME") or where.home / ".config") / "opencode"
    files = [user_folder / "config.json"]
    files.extend(_opencode_files_in(user_folder))
    if environ.get("OPENCODE_CONFIG"):
        files.append(Path(environ["OPENCODE_CONFIG"]))

    # opencode reads a project's plain files from the repository's folder down, and then all of
    # its `.opencode` folders from the project's folder up.
    project_folders = _folders_up_to_repository(where)
    folders = list(reversed(project_folders))
    for folder in project_folders:
        folders.append(folder / ".opencode")
    folders.append(where.home / ".opencode")
    if environ.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(environ["OPENCODE_CONFIG_DIR"]))
    for folder in folders:
        files.extend(_opencode_files_in(folder))
    return files


def _opencode_files_in(folder: Path) -> list[Path]:
    return [folder / "opencode.json", folder / "opencode.jsonc"]


def _folders_up_to_repository(where: AgentSurroundings) -> list[Path]:
    """Return the folder and those above it, up to the one of the repository."""
    folders: list[Path] = []
    for folder in where.folder_and_above:
        folders.append(folder)
        if (folder / ".git").exists():
            break
    return folders


def _find_opencode_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where opencode sends its requests: the usual providers first, then those whose address
    a variable or a settings file names.
    """
    for file in _opencode_files_in(OPENCODE_MANAGED_FOLDER):
        if object_at(read_json_settings(file), "provider"):
            raise refuse_agent("opencode", f"your organization sets its providers ({file})")

    # What stands in a file replaces what a variable says.
    upstreams: dict[str, AgentUpstream] = {}
    for provider, variable in (("anthropic", "ANTHROPIC_BASE_URL"), ("openai", "OPENAI_BASE_URL")):
        if where.environ.get(variable):
            upstreams[provider] = upstream_of_variable(variable, where.environ, provider)
    for layer in read_opencode_settings(where):
        for name, settings in object_at(layer.settings, "provider").items():
            address = object_at(settings, "options").get("baseURL")
            if not address:
                continue
            location = locate_in_file(layer.file, str(address))
            filled_in_address = _fill_in_variables(str(address), where.environ)
            checked_address = checked_address_in_settings(filled_in_address, location)
            upstreams[name] = AgentUpstream(name, checked_address, location)

    all_upstreams = [AgentUpstream()]
    all_upstreams.extend(upstreams.values())
    return all_upstreams


def _fill_in_variables(text: str, environ: Mapping[str, str]) -> str:
    """Replace opencode's references to variables, such as `{env:NAME}`."""

    def value_of_variable(reference: re.Match[str]) -> str:
        return environ.get(reference[1], "")

    return re.sub(r"\{env:([^}]*)\}", value_of_variable, text)


def _list_bypassing_opencode_providers(
    where: AgentSurroundings, upstreams: Sequence[AgentUpstream]
) -> list[str]:
    data_folder = where.environ.get("XDG_DATA_HOME") or where.home / ".local" / "share"
    used_providers = set(read_json_settings(Path(data_folder) / "opencode" / "auth.json"))
    chosen_provider = _choose_opencode_provider(where)
    if chosen_provider:
        used_providers.add(chosen_provider)
    return sorted(list_unserved_providers(used_providers, upstreams))


def _choose_opencode_provider(where: AgentSurroundings) -> str:
    """Return the provider that opencode will use: an argument is stronger than the settings."""
    provider_of_model = provider_of_model_argument(where)
    if provider_of_model:
        return provider_of_model
    for layer in reversed(read_opencode_settings(where)):
        model = layer.settings.get("model")
        if model:
            return str(model).partition("/")[0]
    return ""


def _names_in_opencode_settings(where: AgentSurroundings) -> set[str]:
    """Return the names of headers that opencode's providers and models set."""
    names = set[str]()
    for layer in read_opencode_settings(where):
        for provider in object_at(layer.settings, "provider").values():
            names.update(object_at(provider, "options", "headers"))
            names.update(names_of_model_headers(object_at(provider, "models").values()))
    return names


def _notice_of_opencode2(_where: AgentSurroundings) -> str:
    if not is_opencode2_in_use(HistoryPlaces.of_this_user()):
        return ""
    return "opencode 2 works in a background service that this command can't set up yet: what it asks may not go through the gateway. The recorder records its conversations."


AGENT = KnownAgent(
    name="opencode",
    title=title_of_command("opencode"),
    program="opencode",
    npm_package="opencode-ai",
    launch=_build_opencode_launch,
    file=_opencode_settings_file,
    change=_change_opencode_settings,
    find_upstreams=_find_opencode_upstreams,
    recognized_by="opencode",
    shell_variables=(
        "ANTHROPIC_BASE_URL",
        "OPENAI_BASE_URL",
        "OPENCODE_CONFIG",
        "OPENCODE_CONFIG_DIR",
        "XDG_CONFIG_HOME",
    ),
    notice=_notice_of_opencode2,
    find_header_names=_names_in_opencode_settings,
    list_bypassing_providers=_list_bypassing_opencode_providers,
)
