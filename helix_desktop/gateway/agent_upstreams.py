"""Finds where an agent sends its requests, by reading its settings as the agent does.

An address of the user's own becomes the upstream in the agent's registration. If the
gateway can't stand in front of it, it is refused with a sentence before the agent starts.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from helix_desktop.commented_json import parse_commented_json
from helix_desktop.errors import ActionRefused, ConfigFileMistake, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.codex_workspace import CODEX_SUBSCRIPTION_PATH, CODEX_SUBSCRIPTION_URL
from helix_desktop.json_values import object_at, objects_at
from helix_desktop.providers.provider_catalog import is_provider_address
from helix_desktop.resources import read_table, read_word_lists

CLAUDE_MANAGED_SETTINGS = Path("/etc/claude-code/managed-settings.json")
# Providers of opencode and pi that every address of the gateway serves.
USUAL_PROVIDERS = frozenset(("anthropic", "openai", "google"))
# By protocol: variables, and the path to append.
ADDRESSES = read_table("known_agents")["addresses"]
CODEX_SYSTEM_FOLDER = Path("/etc/codex")
OPENCODE_MANAGED_FOLDER = Path("/etc/opencode")
_GEMINI_SIGN_INS = {
    "gemini-api-key": "",
    "oauth-personal": "a Google account",
    "vertex-ai": "Vertex AI",
}
# A line of an `.env` file, with the name of a variable to fill in.
_ENV_FILE_LINE = (
    r"^[ \t]*(?:export[ \t]+)?%s(?:[ \t]*=|:[ \t])[ \t]*"
    r"(?:\"(?P<in_double>[^\"]*)\"|'(?P<in_single>[^']*)'|(?P<plain>[^#\r\n]*))"
)
# By agent: the variables with which it pays by the token, whatever its files say.
_KEYS_OF_AGENTS = {
    "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "codex": ("OPENAI_API_KEY", "CODEX_API_KEY"),
}


@dataclass(frozen=True, slots=True)
class AgentUpstream:
    """Where the requests for one of an agent's providers go. `provider`: the agent's
    name for it; empty: its usual ones. `address`: empty for the provider's own.
    `source`: what names the address.
    """

    provider: str = ""
    address: str = ""
    source: str = ""

    @property
    def is_from_file(self) -> bool:
        """Whether a settings file names the address, which may override the environment."""
        return bool(self.source) and "environment" not in self.source

    def describe_route(self) -> str:
        """Say in a line where these requests go, and what says so."""
        what_is_sent = "requests"
        if self.provider:
            what_is_sent = f"the provider {self.provider}"
        if self.address:
            return f"{what_is_sent}: to {self.address}, as {self.source} says"
        return f"{what_is_sent}: to their usual provider; no setting names another address"


@dataclass(frozen=True, slots=True)
class AgentSurroundings:
    """What determines the address that an agent started here uses."""

    environ: Mapping[str, str]
    home: Path
    folder: Path
    arguments: Sequence[str] = ()

    @property
    def folder_and_above(self) -> list[Path]:
        folders = [self.folder]
        folders.extend(self.folder.parents)
        return folders


@dataclass(frozen=True, slots=True)
class FoundVariable:
    """A variable's value, and the file that sets it (None: the environment or an argument)."""

    value: str
    file: Path | None = None


def check_upstream_address(address: str) -> None:
    """Refuses what is no address of a provider, and an address with a user name or a query."""
    if not address:
        return
    has_more_than_path = bool(urlsplit(address).username) or "?" in address
    if has_more_than_path or not is_provider_address(address):
        raise InvalidInput(
            f"{address} is not the address of a provider.",
            remedy="For example: https://api.anthropic.com.",
        )


def find_agent_upstreams(agent: str, where: AgentSurroundings) -> list[AgentUpstream]:
    """Return the upstream of the usual providers, then one per provider with its own address."""
    return _FINDERS[agent](where)


def find_protocol_upstream(protocol: str, environ: Mapping[str, str]) -> AgentUpstream:
    """Return the upstream of an unknown agent, guessed by its protocol's variables."""
    for name in ADDRESSES[protocol]["variables"]:
        if environ.get(name):
            return _upstream_of_variable(name, environ)
    return AgentUpstream()


def _upstream_of_variable(
    name: str, environ: Mapping[str, str], provider: str = ""
) -> AgentUpstream:
    address = _checked_address(environ[name], name)
    return AgentUpstream(provider, address, f"{name} in the environment")


def _read_text_or_empty(file: Path) -> str:
    try:
        # Agents leave out the byte order mark that editors of Windows write.
        return file.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigFileMistake(
            f"{file} cannot be read, so Helix Desktop cannot tell where the agent sends its requests: {error}."
        ) from None


def _read_json_settings(file: Path) -> dict[str, Any]:
    return parse_commented_json(_read_text_or_empty(file), str(file))


def _locate_in_file(file: Path, words: str) -> str:
    for number, line in enumerate(_read_text_or_empty(file).splitlines(), 1):
        if words in line:
            return f"{file}, line {number}"
    return str(file)


def _checked_address(address: Any, source: str) -> str:
    if not isinstance(address, str) or not is_provider_address(address):
        raise ActionRefused(
            f"{source} contains an address that cannot be used. Nothing was sent.",
            remedy="Correct the address.",
        )
    return address


def _refusal(title: str, reason: str) -> ActionRefused:
    return ActionRefused(
        f"{title} cannot use the gateway: {reason}. Nothing was sent.",
        remedy="Start the agent without wrap, or change the agent setting that prevents this.",
    )


def _option_values(arguments: Sequence[str], *names: str) -> list[str]:
    """Return all values that a command line gives to an option with these names."""
    values: list[str] = []
    for position, argument in enumerate(arguments):
        name, _, value_behind_sign = argument.partition("=")
        if argument in names:
            if position + 1 < len(arguments):
                values.append(arguments[position + 1])
        elif name in names:
            values.append(value_behind_sign)
        elif argument[:2] in names:  # A short option with its value behind it.
            values.append(argument[2:])
    return values


def _first_option_value(arguments: Sequence[str], *names: str) -> str:
    """Return the first value of an option, or an empty string if it is not given."""
    values = _option_values(arguments, *names)
    if not values:
        return ""
    return values[0]


# --- Claude Code: settings files take precedence over the environment


def _claude_folder(where: AgentSurroundings) -> Path:
    return Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home / ".claude")


def claude_settings_files(where: AgentSurroundings) -> list[Path]:
    """Return the settings files that Claude Code reads, strongest first: those of the
    organization, and then of the project and the user, as far as its arguments allow.
    """
    files = sorted(CLAUDE_MANAGED_SETTINGS.with_suffix(".d").glob("*.json"), reverse=True)
    files.append(CLAUDE_MANAGED_SETTINGS)
    files_by_source = {
        "local": where.folder / ".claude" / "settings.local.json",
        "project": where.folder / ".claude" / "settings.json",
        "user": _claude_folder(where) / "settings.json",
    }
    for source in _claude_setting_sources(where, usual=list(files_by_source)):
        file = files_by_source[source]
        if file not in files:  # In the home folder, the project's are the user's.
            files.append(file)
    return files


def _claude_setting_sources(where: AgentSurroundings, usual: Sequence[str]) -> list[str]:
    """Return which of the usual sources Claude Code reads, in their order."""
    chosen_sources = _option_values(where.arguments, "--setting-sources")
    if chosen_sources:
        names = chosen_sources[0].split(",")
        return [source for source in usual if source in names]
    if "--restricted" in where.arguments:
        return []
    return list(usual)


def _claude_settings_in_arguments(where: AgentSurroundings) -> dict[str, Any]:
    """Return the settings that `--settings` gives Claude Code, as JSON or in a file."""
    json_or_file = _first_option_value(where.arguments, "--settings").strip()
    if json_or_file and not json_or_file.startswith("{"):
        return _read_json_settings(where.folder / json_or_file)
    return parse_commented_json(json_or_file, "--settings")


def read_agent_environment(agent: str, where: AgentSurroundings) -> Mapping[str, str]:
    """Return an agent's environment with the variables that its settings add.

    Only Claude Code's can. Those of a project's folder count only if the user has trusted it.
    """
    environ = dict(where.environ)
    if agent != "claude":
        return environ
    is_trusted = where.folder == where.home or _is_folder_trusted(where)
    layers: list[dict[str, Any]] = []
    for file in reversed(claude_settings_files(where)):  # The strongest comes last, and wins.
        is_of_project = file.parent.parent == where.folder
        if is_trusted or not is_of_project:
            layers.append(_read_json_settings(file))
    layers.append(_claude_settings_in_arguments(where))
    for settings in layers:
        for name, value in object_at(settings, "env").items():
            environ[name] = str(value)
    return environ


def _find_claude_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where Claude Code sends its requests: the address in its settings, or its usual one.

    Raises ActionRefused if the gateway could not stand in front of that address.
    """
    elsewhere = read_word_lists("known_agents")["claude_elsewhere"]
    for argument in where.arguments:
        if argument.partition("=")[0] in elsewhere:
            raise _refusal("Claude Code", f"with {argument} it does not run in this terminal")

    variable = "ANTHROPIC_BASE_URL"
    variables_in_arguments = object_at(_claude_settings_in_arguments(where), "env")
    if variables_in_arguments.get(variable):
        raise _refusal("Claude Code", "its arguments name an address (--settings)")
    _refuse_signed_requests(where)

    address = _find_claude_variable(variable, where)
    if address.file is not None:
        location = _locate_in_file(address.file, variable)
        _refuse_address_that_stays(address.file, location, where)
        checked_address = _checked_address(address.value, location)
        return [AgentUpstream(address=checked_address, source=f"{variable} in {location}")]
    if address.value:
        return [_upstream_of_variable(variable, {variable: address.value})]
    return [AgentUpstream()]


def _find_claude_variable(name: str, where: AgentSurroundings) -> FoundVariable:
    """Return a variable as Claude Code finds it: its files are stronger than its arguments, and
    these are stronger than the environment.
    """
    for file in claude_settings_files(where):
        value = object_at(_read_json_settings(file), "env").get(name)
        if value:
            return FoundVariable(str(value), file)
    value_in_arguments = object_at(_claude_settings_in_arguments(where), "env").get(name)
    if value_in_arguments:
        return FoundVariable(str(value_in_arguments))
    return FoundVariable(where.environ.get(name, ""))


def _refuse_signed_requests(where: AgentSurroundings) -> None:
    """Raise if requests are signed: a changed one would be refused."""
    for name, title in read_table("known_agents")["claude_signs_for"].items():
        variable = _find_claude_variable(f"CLAUDE_CODE_USE_{name}", where)
        if variable.value.casefold() in ("", "0", "false"):
            continue
        location = ""
        if variable.file is not None:
            location = f" in {_locate_in_file(variable.file, name)}"
        reason = f"it uses {title}, whose requests are signed (CLAUDE_CODE_USE_{name}{location})"
        raise _refusal("Claude Code", reason)


def _refuse_address_that_stays(file: Path, location: str, where: AgentSurroundings) -> None:
    """Raise if wrap cannot replace an address in a settings file, or must not follow it."""
    if file.is_relative_to(CLAUDE_MANAGED_SETTINGS.parent):
        raise _refusal("Claude Code", f"your organization sets its address ({location})")
    is_of_project = file.parent.parent == where.folder and where.folder != where.home
    if is_of_project and not _is_folder_trusted(where):
        reason = f"{location} names an address, and you have not trusted this folder in Claude Code"
        raise _refusal("Claude Code", reason)
    for argument in where.arguments:
        if argument.partition("=")[0] == "--settings":
            reason = f"{location} names an address, which wrap replaces with --settings, as you do"
            raise _refusal("Claude Code", reason)


def _is_folder_trusted(where: AgentSurroundings) -> bool:
    """Whether the user has trusted the folder, or one above it, in Claude Code."""
    file = Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home) / ".claude.json"
    projects = object_at(_read_json_settings(file), "projects")
    for folder in where.folder_and_above:
        if object_at(projects, str(folder)).get("hasTrustDialogAccepted"):
            return True
    return False


# --- Codex: the provider's address in the settings


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """One of the files or tables that an agent reads. Later ones are stronger."""

    file: Path
    settings: dict[str, Any]


def _codex_folder(where: AgentSurroundings) -> Path:
    return Path(where.environ.get("CODEX_HOME") or where.home / ".codex")


def read_codex_settings(where: AgentSurroundings) -> list[SettingsLayer]:
    """Return what Codex reads, weakest first."""
    system_file = CODEX_SYSTEM_FOLDER / "config.toml"
    user_file = _codex_folder(where) / "config.toml"
    user_settings = _read_toml(user_file)
    layers = [
        SettingsLayer(system_file, _read_toml(system_file)),
        SettingsLayer(user_file, user_settings),
    ]

    # A profile is a table of the user's file, and may have a file of its own if it is an argument.
    profile_in_arguments = _first_option_value(where.arguments, "-p", "--profile")
    profile = profile_in_arguments or user_settings.get("profile", "")
    profile_settings = object_at(user_settings, "profiles", profile)
    layers.append(SettingsLayer(user_file, profile_settings))
    if profile_in_arguments:
        profile_file = user_file.with_name(f"{profile_in_arguments}.config.toml")
        layers.append(SettingsLayer(profile_file, _read_toml(profile_file)))
    return layers


def _find_codex_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where Codex sends its requests: to the provider that its settings choose."""
    layers = read_codex_settings(where)
    settings_in_arguments = _option_values(where.arguments, "-c", "--config")
    _refuse_codex_address_that_stays(where, settings_in_arguments)
    provider = _choose_codex_provider(layers, settings_in_arguments)
    for layer in reversed(layers):
        address = _codex_address_in_settings(layer.settings, provider)
        if address:
            location = _locate_in_file(layer.file, str(address))
            provider_name = provider
            if provider == "openai":  # The usual one has no name here.
                provider_name = ""
            return [AgentUpstream(provider_name, _checked_address(address, location), location)]
    if provider != "openai":
        reason = f"its provider {provider!r} is built in, and its address cannot be changed"
        raise _refusal("Codex", reason)
    if uses_subscription_by_settings("codex", where):
        return [_find_chatgpt_upstream(layers)]
    if where.environ.get("OPENAI_BASE_URL"):
        return [_upstream_of_variable("OPENAI_BASE_URL", where.environ)]
    return [AgentUpstream()]


def _refuse_codex_address_that_stays(
    where: AgentSurroundings, settings_in_arguments: Sequence[str]
) -> None:
    """Raise if wrap cannot replace the address: arguments and the organization's file are
    stronger than what it sets.
    """
    names_address = any("base_url" in setting for setting in settings_in_arguments)
    if names_address or "--oss" in where.arguments:
        raise _refusal("Codex", "its arguments name an address")
    managed_file = CODEX_SYSTEM_FOLDER / "managed_config.toml"
    managed_settings = _read_toml(managed_file)
    for name in ("model_provider", "model_providers", "openai_base_url"):
        if name in managed_settings:
            raise _refusal("Codex", f"your organization sets its provider ({managed_file})")


def _codex_address_in_settings(settings: Mapping[str, Any], provider: str) -> Any:
    address = object_at(settings, "model_providers", provider).get("base_url")
    if not address and provider == "openai":
        address = settings.get("openai_base_url")
    return address


def _choose_codex_provider(
    layers: Sequence[SettingsLayer], settings_in_arguments: Sequence[str]
) -> str:
    """Return the provider that Codex uses. The last one that names it is the strongest."""
    provider = "openai"
    for layer in layers:
        if layer.settings.get("model_provider"):
            provider = str(layer.settings["model_provider"])
    for setting in settings_in_arguments:
        name, _, value = setting.partition("=")
        if name.strip() == "model_provider":
            provider = value.strip(" \"'")
    return provider


def _find_chatgpt_upstream(layers: Sequence[SettingsLayer]) -> AgentUpstream:
    """Return where a Codex goes that is signed in with ChatGPT. Its backend may be another one."""
    for layer in reversed(layers):
        backend = layer.settings.get("chatgpt_base_url")
        if not backend:
            continue
        location = _locate_in_file(layer.file, "chatgpt_base_url")
        parts = urlsplit(_checked_address(backend, location))
        address = f"{parts.scheme}://{parts.netloc}{CODEX_SUBSCRIPTION_PATH}"
        if address == CODEX_SUBSCRIPTION_URL:  # That is where it goes without the setting, too.
            return AgentUpstream()
        return AgentUpstream(address=address, source=location)
    return AgentUpstream()


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_text_or_empty(file))
    except tomllib.TOMLDecodeError as error:
        raise ConfigFileMistake(f"{file} is not valid TOML ({error}). Nothing was sent.") from None


# --- opencode, Gemini CLI and pi: the providers' addresses in the settings


def read_opencode_settings(where: AgentSurroundings) -> list[SettingsLayer]:
    """Return what opencode reads, weakest first. The settings in its environment have
    the variable as their file.
    """
    layers: list[SettingsLayer] = []
    for file in _opencode_settings_files(where):
        layers.append(SettingsLayer(file, _read_json_settings(file)))
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
        if object_at(_read_json_settings(file), "provider"):
            raise _refusal("opencode", f"your organization sets its providers ({file})")

    # What stands in a file replaces what a variable says.
    upstreams: dict[str, AgentUpstream] = {}
    for provider, variable in (("anthropic", "ANTHROPIC_BASE_URL"), ("openai", "OPENAI_BASE_URL")):
        if where.environ.get(variable):
            upstreams[provider] = _upstream_of_variable(variable, where.environ, provider)
    for layer in read_opencode_settings(where):
        for name, settings in object_at(layer.settings, "provider").items():
            address = object_at(settings, "options").get("baseURL")
            if not address:
                continue
            location = _locate_in_file(layer.file, str(address))
            filled_in_address = _fill_in_variables(str(address), where.environ)
            checked_address = _checked_address(filled_in_address, location)
            upstreams[name] = AgentUpstream(name, checked_address, location)

    all_upstreams = [AgentUpstream()]
    all_upstreams.extend(upstreams.values())
    return all_upstreams


def _fill_in_variables(text: str, environ: Mapping[str, str]) -> str:
    """Replace opencode's references to variables, such as `{env:NAME}`."""

    def value_of_variable(reference: re.Match[str]) -> str:
        return environ.get(reference[1], "")

    return re.sub(r"\{env:([^}]*)\}", value_of_variable, text)


def _find_gemini_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where Gemini CLI sends its requests, by its environment or the first `.env` file."""
    settings_file = where.home / ".gemini" / "settings.json"
    sign_in_settings = object_at(_read_json_settings(settings_file), "security", "auth")
    sign_in = _GEMINI_SIGN_INS.get(str(sign_in_settings.get("selectedType")), "")
    if sign_in:
        location = _locate_in_file(settings_file, "selectedType")
        raise _refusal("Gemini CLI", f"it signs in with {sign_in} ({location})")

    variable = "GOOGLE_GEMINI_BASE_URL"
    if where.environ.get(variable):
        return [_upstream_of_variable(variable, where.environ)]
    file = find_gemini_env_file(where)
    if file is None:
        return [AgentUpstream()]
    return [_upstream_of_env_file(file, variable, where)]


def find_gemini_env_file(where: AgentSurroundings) -> Path | None:
    """Return the first `.env` file with anything in it: Gemini CLI reads that one alone."""
    folders = list(where.folder_and_above)
    folders.append(where.home)
    for folder in folders:
        for file in (folder / ".gemini" / ".env", folder / ".env"):
            if _read_text_or_empty(file):
                return file
    return None


def read_env_file_variable(file: Path, variable: str) -> str:
    """Return the value of a variable in an `.env` file, without its quotes, or an empty text.

    Agents read such a file with the library dotenv: there may be blanks around the sign, a
    comment behind the value, and of several lines the last one counts.
    """
    text = _read_text_or_empty(file)
    value = ""
    for line in re.finditer(_ENV_FILE_LINE % re.escape(variable), text, re.MULTILINE):
        quoted_value = line["in_double"] or line["in_single"]
        value = quoted_value or (line["plain"] or "").strip()
    return value


def _upstream_of_env_file(file: Path, variable: str, where: AgentSurroundings) -> AgentUpstream:
    """Return the address in an `.env` file. One in a project's folder is refused."""
    address = read_env_file_variable(file, variable)
    if not address:
        return AgentUpstream()
    location = _locate_in_file(file, variable)
    if file.parent not in (where.home, where.home / ".gemini"):
        reason = f"{location} names an address. Set {variable} in your shell to use it"
        raise _refusal("Gemini CLI", reason)
    return AgentUpstream(address=_checked_address(address, location), source=location)


def _pi_folder(where: AgentSurroundings) -> Path:
    return Path(where.environ.get("PI_CODING_AGENT_DIR") or where.home / ".pi" / "agent")


def read_pi_providers(where: AgentSurroundings) -> dict[str, Any]:
    return object_at(_read_json_settings(_pi_folder(where) / "models.json"), "providers")


def _find_pi_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where pi sends its requests: the usual providers first, then those in its models
    file.
    """
    upstreams = [AgentUpstream()]
    for name, provider in read_pi_providers(where).items():
        address = str(object_at(provider).get("baseUrl") or "")
        if address:
            location = _locate_in_file(_pi_folder(where) / "models.json", address)
            upstreams.append(AgentUpstream(name, _checked_address(address, location), location))
    return upstreams


# --- What does not go through the gateway, or is not folded there


def list_bypassing_providers(
    agent: str, where: AgentSurroundings, upstreams: Sequence[AgentUpstream]
) -> list[str]:
    """Return the providers whose requests an agent does not send through the gateway: it is signed
    in there, or would use them, but nothing replaces their addresses.
    """
    if agent == "pi":
        folder = _pi_folder(where)
        chosen_provider = _choose_pi_provider(where)
    elif agent == "opencode":
        data_folder = where.environ.get("XDG_DATA_HOME") or where.home / ".local" / "share"
        folder = Path(data_folder) / "opencode"
        chosen_provider = _choose_opencode_provider(where)
    else:
        return []

    signed_in_providers = _read_json_settings(folder / "auth.json")
    providers = set(signed_in_providers)
    if chosen_provider:
        providers.add(chosen_provider)
    served_providers = {upstream.provider for upstream in upstreams}
    served_providers.update(USUAL_PROVIDERS)
    bypassing = providers - served_providers
    if agent == "pi":
        for name in read_pi_providers(where):
            if _has_models_with_addresses(name, where):
                bypassing.add(name)
    return sorted(bypassing)


def _provider_of_model_argument(where: AgentSurroundings) -> str:
    """Return the provider in an argument such as `--model anthropic/claude`, or an empty string."""
    for model in _option_values(where.arguments, "-m", "--model"):
        if "/" in model:
            return model.partition("/")[0]
    return ""


def _choose_pi_provider(where: AgentSurroundings) -> str:
    """Return the provider that pi will use: an argument is stronger than the settings."""
    provider_argument = _first_option_value(where.arguments, "--provider").partition("/")[0]
    if provider_argument:
        return provider_argument
    provider_of_model = _provider_of_model_argument(where)
    if provider_of_model:
        return provider_of_model
    settings = _read_json_settings(_pi_folder(where) / "settings.json")
    return str(settings.get("defaultProvider") or "").partition("/")[0]


def _choose_opencode_provider(where: AgentSurroundings) -> str:
    """Return the provider that opencode will use: an argument is stronger than the settings."""
    provider_of_model = _provider_of_model_argument(where)
    if provider_of_model:
        return provider_of_model
    for layer in reversed(read_opencode_settings(where)):
        model = layer.settings.get("model")
        if model:
            return str(model).partition("/")[0]
    return ""


def _has_models_with_addresses(provider: str, where: AgentSurroundings) -> bool:
    """Whether a provider's models have addresses of their own, which wrap does not replace."""
    models = objects_at(read_pi_providers(where), provider, "models")
    return any(model.get("baseUrl") for model in models)


def uses_subscription_by_settings(agent: str, where: AgentSurroundings) -> bool:
    """Whether the agent is signed in with a subscription, as far as its files say."""
    if agent not in _KEYS_OF_AGENTS:
        return False
    environ = read_agent_environment(agent, where)
    for name in _KEYS_OF_AGENTS[agent]:
        if environ.get(name):
            return False
    if agent == "codex":
        sign_in = _read_json_settings(_codex_folder(where) / "auth.json")
        return bool(sign_in.get("tokens"))

    all_settings = [_claude_settings_in_arguments(where)]
    for file in claude_settings_files(where):
        all_settings.append(_read_json_settings(file))
    for settings in all_settings:
        if settings.get("apiKeyHelper"):  # A program that prints a key to pay with.
            return False
    if environ.get("CLAUDE_CODE_OAUTH_TOKEN"):
        return True
    credentials = _read_json_settings(_claude_folder(where) / ".credentials.json")
    return bool(credentials.get("claudeAiOauth"))


_FINDERS: Mapping[str, Callable[[AgentSurroundings], list[AgentUpstream]]] = {
    "claude": _find_claude_upstreams,
    "codex": _find_codex_upstreams,
    "opencode": _find_opencode_upstreams,
    "gemini": _find_gemini_upstreams,
    "pi": _find_pi_upstreams,
}
