"""Finds where an agent sends its requests, by reading its settings as the agent does.

An address of the user's own becomes the upstream in the agent's registration. If the
gateway can't stand in front of it, it is refused with a sentence before the agent starts.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from helix_desktop.commented_json import parse_commented_json
from helix_desktop.errors import ActionRefused, ConfigFileMistake
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
        named = f"the provider {self.provider}" if self.provider else "requests"
        if self.address:
            return f"{named}: to {self.address}, as {self.source} says"
        return f"{named}: to their usual provider; no setting names another address"


@dataclass(frozen=True, slots=True)
class AgentSurroundings:
    """What determines the address that an agent started here uses."""

    environ: Mapping[str, str]
    home: Path
    folder: Path
    arguments: Sequence[str] = ()

    @property
    def folder_and_above(self) -> tuple[Path, ...]:
        return (self.folder, *self.folder.parents)


@dataclass(frozen=True, slots=True)
class FoundVariable:
    """A variable's value, and the file that sets it (None: the environment or an argument)."""

    value: str
    file: Path | None = None


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
        return file.read_text("utf-8")
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


def _option_values(arguments: Sequence[str], *names: str) -> Iterator[str]:
    for position, argument in enumerate(arguments):
        if argument in names:
            yield from arguments[position + 1 : position + 2]
        elif argument.partition("=")[0] in names:
            yield argument.partition("=")[2]
        elif argument[:2] in names:  # A short option with its value behind it.
            yield argument[2:]


def _first_option_value(arguments: Sequence[str], *names: str) -> str:
    return next(_option_values(arguments, *names), "")


# --- Claude Code: settings files take precedence over the environment


def _claude_folder(where: AgentSurroundings) -> Path:
    return Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home / ".claude")


def claude_settings_files(where: AgentSurroundings) -> list[Path]:
    """Return the files that Claude Code reads, strongest first."""
    files = sorted(CLAUDE_MANAGED_SETTINGS.with_suffix(".d").glob("*.json"), reverse=True)
    files.append(CLAUDE_MANAGED_SETTINGS)
    own_files = {
        "local": where.folder / ".claude" / "settings.local.json",
        "project": where.folder / ".claude" / "settings.json",
        "user": _claude_folder(where) / "settings.json",
    }
    usual = ",".join(own_files)
    if "--restricted" in where.arguments:
        usual = ""
    chosen = next(_option_values(where.arguments, "--setting-sources"), usual).split(",")
    files.extend(file for name, file in own_files.items() if name in chosen)
    return list(dict.fromkeys(files))  # In the home folder, the project's are the user's.


def _claude_settings_in_arguments(where: AgentSurroundings) -> dict[str, Any]:
    """Return the settings that `--settings` gives Claude Code, as JSON or in a file."""
    json_or_file = _first_option_value(where.arguments, "--settings").strip()
    if json_or_file and not json_or_file.startswith("{"):
        return _read_json_settings(where.folder / json_or_file)
    return parse_commented_json(json_or_file, "--settings")


def read_agent_environment(agent: str, where: AgentSurroundings) -> Mapping[str, str]:
    """Return an agent's environment with what its settings, and those of a trusted folder, add."""
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
        place = _locate_in_file(address.file, variable)
        _refuse_address_that_stays(address.file, place, where)
        checked_address = _checked_address(address.value, place)
        return [AgentUpstream(address=checked_address, source=f"{variable} in {place}")]
    if address.value:
        return [_upstream_of_variable(variable, {variable: address.value})]
    return [AgentUpstream()]


def _find_claude_variable(name: str, where: AgentSurroundings) -> FoundVariable:
    for file in claude_settings_files(where):
        value = object_at(_read_json_settings(file), "env").get(name)
        if value:
            return FoundVariable(str(value), file)
    variables_in_arguments = object_at(_claude_settings_in_arguments(where), "env")
    return FoundVariable(str(variables_in_arguments.get(name) or where.environ.get(name, "")))


def _refuse_signed_requests(where: AgentSurroundings) -> None:
    """Raise if requests are signed: a changed one would be refused."""
    for name, title in read_table("known_agents")["claude_signs_for"].items():
        variable = _find_claude_variable(f"CLAUDE_CODE_USE_{name}", where)
        if variable.value.casefold() not in ("", "0", "false"):
            place = ""
            if variable.file is not None:
                place = f" in {_locate_in_file(variable.file, name)}"
            reason = f"it uses {title}, whose requests are signed (CLAUDE_CODE_USE_{name}{place})"
            raise _refusal("Claude Code", reason)


def _refuse_address_that_stays(file: Path, place: str, where: AgentSurroundings) -> None:
    """Raise if wrap cannot replace an address in a settings file, or must not follow it."""
    if file.is_relative_to(CLAUDE_MANAGED_SETTINGS.parent):
        raise _refusal("Claude Code", f"your organization sets its address ({place})")
    is_of_project = file.parent.parent == where.folder != where.home
    if is_of_project and not _is_folder_trusted(where):
        reason = f"{place} names an address, and you have not trusted this folder in Claude Code"
        raise _refusal("Claude Code", reason)
    if any(argument.partition("=")[0] == "--settings" for argument in where.arguments):
        reason = f"{place} names an address, which wrap replaces with --settings, as you do"
        raise _refusal("Claude Code", reason)


def _is_folder_trusted(where: AgentSurroundings) -> bool:
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
    file = _codex_folder(where) / "config.toml"
    system = CODEX_SYSTEM_FOLDER / "config.toml"
    profile = _first_option_value(where.arguments, "-p", "--profile")
    settings = _read_toml(file)
    layers = [SettingsLayer(system, _read_toml(system)), SettingsLayer(file, settings)]
    chosen_profile = profile or settings.get("profile", "")
    profile_settings = object_at(settings, "profiles", chosen_profile)
    layers.append(SettingsLayer(file, profile_settings))
    if profile:
        profile_file = file.with_name(f"{profile}.config.toml")
        layers.append(SettingsLayer(profile_file, _read_toml(profile_file)))
    return layers


def _find_codex_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    layers = read_codex_settings(where)
    given = list(_option_values(where.arguments, "-c", "--config"))
    _refuse_codex_address_that_stays(where, given)
    provider = _choose_codex_provider(layers, given)
    for layer in reversed(layers):
        address = _codex_address_in_settings(layer.settings, provider)
        if address:
            place = _locate_in_file(layer.file, str(address))
            provider_name = provider
            if provider == "openai":  # The usual one has no name here.
                provider_name = ""
            return [AgentUpstream(provider_name, _checked_address(address, place), place)]
    if provider != "openai":
        reason = f"its provider {provider!r} is built in, and its address cannot be changed"
        raise _refusal("Codex", reason)
    if uses_subscription_by_settings("codex", where):
        return [_find_chatgpt_upstream(layers)]
    if where.environ.get("OPENAI_BASE_URL"):
        return [_upstream_of_variable("OPENAI_BASE_URL", where.environ)]
    return [AgentUpstream()]


def _refuse_codex_address_that_stays(where: AgentSurroundings, given: Sequence[str]) -> None:
    """Raise if wrap cannot replace the address: arguments and the organization's file are
    stronger than what it sets.
    """
    if "--oss" in where.arguments or any("base_url" in setting for setting in given):
        raise _refusal("Codex", "its arguments name an address")
    managed = CODEX_SYSTEM_FOLDER / "managed_config.toml"
    if not {"model_provider", "model_providers", "openai_base_url"}.isdisjoint(_read_toml(managed)):
        raise _refusal("Codex", f"your organization sets its provider ({managed})")


def _codex_address_in_settings(settings: Mapping[str, Any], provider: str) -> Any:
    address = object_at(settings, "model_providers", provider).get("base_url")
    if not address and provider == "openai":
        address = settings.get("openai_base_url")
    return address


def _choose_codex_provider(layers: Sequence[SettingsLayer], given: Sequence[str]) -> str:
    provider = "openai"
    for layer in layers:
        provider = str(layer.settings.get("model_provider") or provider)
    for setting in given:
        name, _, value = setting.partition("=")
        if name.strip() == "model_provider":
            provider = value.strip(" \"'")
    return provider


def _find_chatgpt_upstream(layers: Sequence[SettingsLayer]) -> AgentUpstream:
    """Return where a Codex goes that is signed in with ChatGPT. Its backend may be another one."""
    for layer in reversed(layers):
        backend = layer.settings.get("chatgpt_base_url")
        if backend:
            place = _locate_in_file(layer.file, "chatgpt_base_url")
            parts = urlsplit(_checked_address(backend, place))
            address = f"{parts.scheme}://{parts.netloc}{CODEX_SUBSCRIPTION_PATH}"
            if address == CODEX_SUBSCRIPTION_URL:
                return AgentUpstream()
            return AgentUpstream("", address, place)
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
    environ = where.environ
    names = ("opencode.json", "opencode.jsonc")
    user = Path(environ.get("XDG_CONFIG_HOME") or where.home / ".config") / "opencode"
    files = [user / name for name in ("config.json", *names)]
    if environ.get("OPENCODE_CONFIG"):
        files.append(Path(environ["OPENCODE_CONFIG"]))
    project = _folders_up_to_repository(where)
    folders = list(reversed(project))
    folders.extend(folder / ".opencode" for folder in project)
    folders.append(where.home / ".opencode")
    if environ.get("OPENCODE_CONFIG_DIR"):
        folders.append(Path(environ["OPENCODE_CONFIG_DIR"]))
    files.extend(folder / name for folder in folders for name in names)
    layers = [SettingsLayer(file, _read_json_settings(file)) for file in files]
    variable = "OPENCODE_CONFIG_CONTENT"
    in_environment = parse_commented_json(environ.get(variable, ""), variable)
    layers.append(SettingsLayer(Path(variable), in_environment))
    return layers


def _folders_up_to_repository(where: AgentSurroundings) -> list[Path]:
    """Return the folder and those above it, up to the one of the repository."""
    folders = []
    for folder in where.folder_and_above:
        folders.append(folder)
        if (folder / ".git").exists():
            break
    return folders


def _find_opencode_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    for name in ("opencode.json", "opencode.jsonc"):
        file = OPENCODE_MANAGED_FOLDER / name
        if object_at(_read_json_settings(file), "provider"):
            raise _refusal("opencode", f"your organization sets its providers ({file})")
    upstreams: dict[str, AgentUpstream] = {}
    for provider, variable in (("anthropic", "ANTHROPIC_BASE_URL"), ("openai", "OPENAI_BASE_URL")):
        if where.environ.get(variable):
            upstreams[provider] = _upstream_of_variable(variable, where.environ, provider)
    for layer in read_opencode_settings(where):
        for name, provider in object_at(layer.settings, "provider").items():
            address = object_at(provider, "options").get("baseURL")
            if address:
                known = _fill_in_variables(str(address), where.environ)
                place = _locate_in_file(layer.file, str(address))
                upstreams[name] = AgentUpstream(name, _checked_address(known, place), place)
    return [AgentUpstream(), *upstreams.values()]


def _fill_in_variables(text: str, environ: Mapping[str, str]) -> str:
    """Replace opencode's references to variables."""
    return re.sub(r"\{env:([^}]*)\}", lambda found: environ.get(found[1], ""), text)


def _find_gemini_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    name = "GOOGLE_GEMINI_BASE_URL"
    settings = where.home / ".gemini" / "settings.json"
    chosen = object_at(_read_json_settings(settings), "security", "auth").get("selectedType")
    sign_in = _GEMINI_SIGN_INS.get(str(chosen), "")
    if sign_in:
        place = _locate_in_file(settings, "selectedType")
        raise _refusal("Gemini CLI", f"it signs in with {sign_in} ({place})")
    if where.environ.get(name):
        return [_upstream_of_variable(name, where.environ)]
    for folder in dict.fromkeys((*where.folder_and_above, where.home)):
        for file in (folder / ".gemini" / ".env", folder / ".env"):
            text = _read_text_or_empty(file)
            if text:  # Gemini CLI reads the first of these files alone.
                return [_upstream_of_env_file(file, text, name, where)]
    return [AgentUpstream()]


def _upstream_of_env_file(
    file: Path, text: str, name: str, where: AgentSurroundings
) -> AgentUpstream:
    found = re.search(rf"^(?:export )?{name}=[\"']?([^\"'\s]+)", text, re.MULTILINE)
    if found is None:
        return AgentUpstream()
    place = _locate_in_file(file, name)
    if file.parent not in (where.home, where.home / ".gemini"):
        reason = f"{place} names an address. Set {name} in your shell to use it"
        raise _refusal("Gemini CLI", reason)
    return AgentUpstream("", _checked_address(found[1], place), place)


def _pi_folder(where: AgentSurroundings) -> Path:
    return Path(where.environ.get("PI_CODING_AGENT_DIR") or where.home / ".pi" / "agent")


def read_pi_providers(where: AgentSurroundings) -> dict[str, Any]:
    return object_at(_read_json_settings(_pi_folder(where) / "models.json"), "providers")


def _find_pi_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    upstreams = [AgentUpstream()]
    for name, provider in read_pi_providers(where).items():
        address = str(object_at(provider).get("baseUrl") or "")
        if address:
            place = _locate_in_file(_pi_folder(where) / "models.json", address)
            upstreams.append(AgentUpstream(name, _checked_address(address, place), place))
    return upstreams


# --- What does not go through the gateway, or is not folded there


def list_bypassing_providers(
    agent: str, where: AgentSurroundings, upstreams: Sequence[AgentUpstream]
) -> list[str]:
    """Return the signed-in or chosen providers whose requests bypass the gateway."""
    if agent == "pi":
        folder = _pi_folder(where)
    elif agent == "opencode":
        data = where.environ.get("XDG_DATA_HOME") or where.home / ".local" / "share"
        folder = Path(data) / "opencode"
    else:
        return []
    if agent == "pi":
        chosen = _choose_pi_provider(where)
    else:
        chosen = _choose_opencode_provider(where)
    served = {upstream.provider for upstream in upstreams}
    served.update(USUAL_PROVIDERS)
    served.add("")
    bypassing = set(_read_json_settings(folder / "auth.json"))  # Those signed in.
    bypassing.add(chosen)
    bypassing -= served
    if agent == "pi":
        for name in read_pi_providers(where):
            if _has_models_with_addresses(name, where):
                bypassing.add(name)
    return sorted(bypassing)


def _provider_of_model_argument(where: AgentSurroundings) -> str:
    for model in _option_values(where.arguments, "-m", "--model"):
        if "/" in model:
            return model.partition("/")[0]
    return ""


def _choose_pi_provider(where: AgentSurroundings) -> str:
    usual = _read_json_settings(_pi_folder(where) / "settings.json").get("defaultProvider")
    given = _first_option_value(where.arguments, "--provider").partition("/")[0]
    return given or _provider_of_model_argument(where) or str(usual or "").partition("/")[0]


def _choose_opencode_provider(where: AgentSurroundings) -> str:
    given = _provider_of_model_argument(where)
    if given:
        return given
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
    if any(environ.get(name) for name in _KEYS_OF_AGENTS[agent]):
        return False
    if agent == "codex":
        return bool(_read_json_settings(_codex_folder(where) / "auth.json").get("tokens"))
    layers = [_claude_settings_in_arguments(where)]
    layers += map(_read_json_settings, claude_settings_files(where))
    if any(settings.get("apiKeyHelper") for settings in layers):
        return False
    credentials = _read_json_settings(_claude_folder(where) / ".credentials.json")
    return bool(environ.get("CLAUDE_CODE_OAUTH_TOKEN") or credentials.get("claudeAiOauth"))


_FINDERS: Mapping[str, Callable[[AgentSurroundings], list[AgentUpstream]]] = {
    "claude": _find_claude_upstreams,
    "codex": _find_codex_upstreams,
    "opencode": _find_opencode_upstreams,
    "gemini": _find_gemini_upstreams,
    "pi": _find_pi_upstreams,
}
