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
ADDRESSES = read_table("known_agents")[
    "addresses"
]  # By protocol: variables, and the path to append.
CODEX_SYSTEM_FOLDER, OPENCODE_MANAGED_FOLDER = Path("/etc/codex"), Path("/etc/opencode")
_GEMINI_SIGN_INS = {
    "gemini-api-key": "",
    "oauth-personal": "a Google account",
    "vertex-ai": "Vertex AI",
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
        return f"{named}: to {self.address}, as {self.source} says" if self.address else f"{named}: to their usual provider; no setting names another address"  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentSurroundings:
    """What determines the address that an agent started here uses."""

    environ: Mapping[str, str]
    home: Path
    folder: Path
    arguments: Sequence[str] = ()


def find_agent_upstreams(agent: str, where: AgentSurroundings) -> list[AgentUpstream]:
    """Return the upstream of the usual providers, then one per provider with its own address."""
    return _FINDERS[agent](where)


def find_protocol_upstream(protocol: str, environ: Mapping[str, str]) -> AgentUpstream:
    """Return the upstream of an unknown agent, guessed by its protocol's variables."""
    named = (
        (name, environ[name]) for name in ADDRESSES[protocol]["variables"] if environ.get(name)
    )
    name, address = next(named, ("", ""))
    return AgentUpstream("", _checked_address(address, name), f"{name} in the environment") if address else AgentUpstream()  # fmt: skip


def _read_text_or_empty(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigFileMistake(f"{file} cannot be read, so Helix Desktop cannot tell where the agent sends its requests: {error}.") from None  # fmt: skip


def _read_json_settings(file: Path) -> dict[str, Any]:
    return parse_commented_json(_read_text_or_empty(file), str(file))


def _locate_in_file(file: Path, words: str) -> str:
    lines = _read_text_or_empty(file).splitlines()
    number = next((at for at, line in enumerate(lines, 1) if words in line), 0)
    return f"{file}, line {number}" if number else str(file)


def _checked_address(address: Any, source: str) -> str:
    if not isinstance(address, str) or not is_provider_address(address):
        raise ActionRefused(f"{source} contains an address that cannot be used. Nothing was sent.", remedy="Correct the address.")  # fmt: skip
    return address


def _refusal(title: str, reason: str) -> ActionRefused:
    return ActionRefused(
        f"{title} cannot use the gateway: {reason}. Nothing was sent.",
        remedy="Start the agent without wrap, or change the agent setting that prevents this.",
    )


# --- Claude Code: settings files take precedence over the environment


def claude_settings_files(where: AgentSurroundings) -> list[Path]:
    """Return the files that Claude Code reads, strongest first."""
    user = Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home / ".claude")
    project = where.folder / ".claude"
    managed = [
        CLAUDE_MANAGED_SETTINGS,
        *sorted(CLAUDE_MANAGED_SETTINGS.with_suffix(".d").glob("*.json")),
    ]
    files = {
        "local": project / "settings.local.json",
        "project": project / "settings.json",
        "user": user / "settings.json",
    }
    usual = "" if "--restricted" in where.arguments else ",".join(files)
    chosen = next(_option_values(where.arguments, "--setting-sources"), usual).split(",")
    return list(
        dict.fromkeys(
            (*reversed(managed), *(file for name, file in files.items() if name in chosen))
        )
    )


def _claude_settings_in_arguments(where: AgentSurroundings) -> dict[str, Any]:
    """Return the settings that `--settings` gives Claude Code, as JSON or in a file."""
    given = next(_option_values(where.arguments, "--settings"), "").strip()
    return parse_commented_json(given, "--settings") if given[:1] in ("", "{") else _read_json_settings(where.folder / given)  # fmt: skip


def read_agent_environment(agent: str, where: AgentSurroundings) -> Mapping[str, str]:
    """Return an agent's environment with what its settings, and those of a trusted folder, add."""
    files = claude_settings_files(where) if agent == "claude" else []
    trusts = where.folder == where.home or _is_folder_trusted(where)
    used = [file for file in reversed(files) if trusts or file.parent.parent != where.folder]
    named = [object_at(_read_json_settings(file), "env") for file in used]
    named += [object_at(_claude_settings_in_arguments(where), "env")] if agent == "claude" else []
    return {
        **where.environ,
        **{name: str(value) for settings in named for name, value in settings.items()},
    }


def _find_claude_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    files = claude_settings_files(where)
    elsewhere = read_word_lists("known_agents")["claude_elsewhere"]
    if moved := next((one for one in where.arguments if one.partition("=")[0] in elsewhere), ""):
        raise _refusal("Claude Code", f"with {moved} it does not run in this terminal")
    given = object_at(_claude_settings_in_arguments(where), "env")
    if given.get("ANTHROPIC_BASE_URL"):
        raise _refusal("Claude Code", "its arguments name an address (--settings)")

    def find_variable(name: str) -> tuple[str, Path | None]:
        named = (
            (str(object_at(_read_json_settings(file), "env").get(name) or ""), file)
            for file in files
        )
        return next(
            (one for one in named if one[0]),
            (str(given.get(name) or where.environ.get(name, "")), None),
        )

    for name, title in read_table("known_agents")["claude_signs_for"].items():
        value, file = find_variable(f"CLAUDE_CODE_USE_{name}")
        if value.casefold() not in ("", "0", "false"):
            place = f" in {_locate_in_file(file, name)}" if file else ""
            raise _refusal(
                "Claude Code",
                f"it uses {title}, whose requests are signed (CLAUDE_CODE_USE_{name}{place})",
            )
    address, file = find_variable("ANTHROPIC_BASE_URL")
    if file is None:
        return [AgentUpstream("", _checked_address(address, "ANTHROPIC_BASE_URL"), "ANTHROPIC_BASE_URL in the environment") if address else AgentUpstream()]  # fmt: skip
    place = _locate_in_file(file, "ANTHROPIC_BASE_URL")
    if file.is_relative_to(CLAUDE_MANAGED_SETTINGS.parent):
        raise _refusal("Claude Code", f"your organization sets its address ({place})")
    if file.parent.parent == where.folder != where.home and not _is_folder_trusted(where):
        raise _refusal(
            "Claude Code",
            f"{place} names an address, and you have not trusted this folder in Claude Code",
        )
    if any(one.partition("=")[0] == "--settings" for one in where.arguments):
        raise _refusal(
            "Claude Code",
            f"{place} names an address, which wrap replaces with --settings, as you do",
        )
    return [AgentUpstream("", _checked_address(address, place), f"ANTHROPIC_BASE_URL in {place}")]


def _is_folder_trusted(where: AgentSurroundings) -> bool:
    file = Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home) / ".claude.json"
    projects = object_at(_read_json_settings(file), "projects")
    above = (where.folder, *where.folder.parents)
    return any(object_at(projects, str(each)).get("hasTrustDialogAccepted") for each in above)


# --- Codex: the provider's address in the settings


def read_codex_settings(where: AgentSurroundings) -> list[tuple[Path, dict[str, Any]]]:
    """Return what Codex reads, weakest first, each with its file."""
    file = Path(where.environ.get("CODEX_HOME") or where.home / ".codex") / "config.toml"
    system = CODEX_SYSTEM_FOLDER / "config.toml"
    profile = next(_option_values(where.arguments, "-p", "--profile"), "")
    whole = _read_toml(file)
    layers = [(system, _read_toml(system)), (file, whole)]
    layers.append((file, object_at(whole, "profiles", profile or whole.get("profile", ""))))
    if profile:
        profile_file = file.with_name(f"{profile}.config.toml")
        layers.append((profile_file, _read_toml(profile_file)))
    return layers


def _find_codex_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    layers = read_codex_settings(where)
    given = [one.partition("=") for one in _option_values(where.arguments, "-c", "--config")]
    if "--oss" in where.arguments or any("base_url" in name + value for name, _, value in given):
        raise _refusal("Codex", "its arguments name an address")
    managed = CODEX_SYSTEM_FOLDER / "managed_config.toml"
    if not {"model_provider", "model_providers", "openai_base_url"}.isdisjoint(_read_toml(managed)):
        raise _refusal("Codex", f"your organization sets its provider ({managed})")
    chosen = [str(layer["model_provider"]) for _, layer in layers if layer.get("model_provider")]
    chosen += [value.strip(" \"'") for name, _, value in given if name.strip() == "model_provider"]
    provider = chosen[-1] if chosen else "openai"
    for path, layer in reversed(layers):
        table = object_at(layer, "model_providers", provider)
        address = table.get("base_url") or (
            layer.get("openai_base_url") if provider == "openai" else ""
        )
        if address:
            place = _locate_in_file(path, str(address))
            return [
                AgentUpstream(
                    "" if provider == "openai" else provider,
                    _checked_address(address, place),
                    place,
                )
            ]
    if provider != "openai":
        raise _refusal(
            "Codex", f"its provider {provider!r} is built in, and its address cannot be changed"
        )
    if uses_subscription_by_settings("codex", where):
        return [_find_chatgpt_upstream(layers)]
    address = where.environ.get("OPENAI_BASE_URL", "")
    if not address:
        return [AgentUpstream()]
    checked = _checked_address(address, "OPENAI_BASE_URL")
    return [AgentUpstream("", checked, "OPENAI_BASE_URL in the environment")]


def _find_chatgpt_upstream(layers: Sequence[tuple[Path, dict[str, Any]]]) -> AgentUpstream:
    """Return where a Codex goes that is signed in with ChatGPT. Its backend may be another one."""
    for path, layer in reversed(layers):
        backend = layer.get("chatgpt_base_url")
        if backend:
            place = _locate_in_file(path, "chatgpt_base_url")
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


def _option_values(arguments: Sequence[str], *names: str) -> Iterator[str]:
    for at, one in enumerate(arguments):
        if one in names:
            yield from arguments[at + 1 : at + 2]
        elif one.partition("=")[0] in names:
            yield one.partition("=")[2]
        elif one[:2] in names:
            yield one[2:]


# --- opencode, Gemini CLI and pi: the providers' addresses in the settings


def read_opencode_settings(where: AgentSurroundings) -> list[tuple[Path, dict[str, Any]]]:
    """Return what opencode reads, weakest first. The settings in its environment have
    the variable as their file.
    """
    names, environ = ("config.json", "opencode.json", "opencode.jsonc"), where.environ
    files = [
        Path(environ.get("XDG_CONFIG_HOME") or where.home / ".config") / "opencode" / name
        for name in names
    ]
    files += [Path(given)] if (given := environ.get("OPENCODE_CONFIG")) else []
    above = (where.folder, *where.folder.parents)
    inside = next((at for at, each in enumerate(above) if (each / ".git").exists()), len(above))
    folders = [
        *reversed(above[: inside + 1]),
        *(each / ".opencode" for each in above[: inside + 1]),
    ]
    folders += [where.home / ".opencode"]
    folders += [Path(given)] if (given := environ.get("OPENCODE_CONFIG_DIR")) else []
    files += [folder / name for folder in folders for name in names[1:]]
    name = "OPENCODE_CONFIG_CONTENT"
    in_environment = parse_commented_json(environ.get(name, ""), name)
    return [*((file, _read_json_settings(file)) for file in files), (Path(name), in_environment)]


def _find_opencode_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    for file in (OPENCODE_MANAGED_FOLDER / name for name in ("opencode.json", "opencode.jsonc")):
        if object_at(_read_json_settings(file), "provider"):
            raise _refusal("opencode", f"your organization sets its providers ({file})")
    named = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
    found = {
        provider: AgentUpstream(provider, _checked_address(where.environ[name], name), f"{name} in the environment")
        for provider, name in named.items() if where.environ.get(name)
    }  # fmt: skip
    for file, settings in read_opencode_settings(where):
        for name, provider in object_at(settings, "provider").items():
            if address := object_at(provider, "options").get("baseURL"):
                known = re.sub(
                    r"\{env:([^}]*)\}", lambda one: where.environ.get(one[1], ""), str(address)
                )
                place = _locate_in_file(file, str(address))
                found[name] = AgentUpstream(name, _checked_address(known, place), place)
    return [AgentUpstream(), *found.values()]


def _find_gemini_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    name, settings = "GOOGLE_GEMINI_BASE_URL", where.home / ".gemini" / "settings.json"
    chosen = object_at(_read_json_settings(settings), "security", "auth").get("selectedType")
    if kind := _GEMINI_SIGN_INS.get(str(chosen), ""):
        raise _refusal(
            "Gemini CLI", f"it signs in with {kind} ({_locate_in_file(settings, 'selectedType')})"
        )
    if address := where.environ.get(name, ""):
        return [AgentUpstream("", _checked_address(address, name), f"{name} in the environment")]
    for folder in dict.fromkeys((where.folder, *where.folder.parents, where.home)):
        for file in (folder / ".gemini" / ".env", folder / ".env"):
            if not (text := _read_text_or_empty(file)):
                continue
            told = re.search(rf"^(?:export )?{name}=[\"']?([^\"'\s]+)", text, re.MULTILINE)
            if told is None:
                return [AgentUpstream()]
            place = _locate_in_file(file, name)
            if folder != where.home:
                raise _refusal(
                    "Gemini CLI", f"{place} names an address. Set {name} in your shell to use it"
                )
            return [AgentUpstream("", _checked_address(told[1], place), place)]
    return [AgentUpstream()]


def _pi_models_file(where: AgentSurroundings) -> Path:
    folder = where.environ.get("PI_CODING_AGENT_DIR") or where.home / ".pi" / "agent"
    return Path(folder) / "models.json"


def read_pi_providers(where: AgentSurroundings) -> dict[str, Any]:
    return object_at(_read_json_settings(_pi_models_file(where)), "providers")


def _find_pi_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    upstreams = [AgentUpstream()]
    for name, provider in read_pi_providers(where).items():
        address = str(object_at(provider).get("baseUrl") or "")
        if address:
            place = _locate_in_file(_pi_models_file(where), address)
            upstreams.append(AgentUpstream(name, _checked_address(address, place), place))
    return upstreams


def list_bypassing_providers(
    agent: str, where: AgentSurroundings, upstreams: Sequence[AgentUpstream]
) -> list[str]:
    """Return the signed-in or chosen providers whose requests bypass the gateway."""
    if agent not in ("opencode", "pi"):
        return []
    pi = Path(where.environ.get("PI_CODING_AGENT_DIR") or where.home / ".pi" / "agent")
    data = Path(where.environ.get("XDG_DATA_HOME") or where.home / ".local" / "share") / "opencode"
    choices = [one for one in _option_values(where.arguments, "-m", "--model") if "/" in one]
    bypassing: set[str] = set()
    if agent == "pi":
        choices[:0] = _option_values(where.arguments, "--provider")
        choices.append(str(_read_json_settings(pi / "settings.json").get("defaultProvider") or ""))
        named = object_at(_read_json_settings(pi / "models.json"), "providers")
        bypassing |= {
            name
            for name in named
            if any(one.get("baseUrl") for one in objects_at(named, name, "models"))
        }
    else:
        choices += [
            str(settings.get("model") or "")
            for _, settings in reversed(read_opencode_settings(where))
        ]
    chosen = next(filter(None, choices), "").partition("/")[0]
    known = {"", *USUAL_PROVIDERS, *(one.provider for one in upstreams)}
    signed_in = _read_json_settings((pi if agent == "pi" else data) / "auth.json")
    return sorted(bypassing | {*signed_in, chosen} - known)


def uses_subscription_by_settings(agent: str, where: AgentSurroundings) -> bool:
    """Whether the agent is signed in with a subscription, as far as its files say."""
    named = {
        "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "codex": ("OPENAI_API_KEY", "CODEX_API_KEY"),
    }
    environ = read_agent_environment(agent, where)
    if agent not in named or any(environ.get(name) for name in named[agent]):
        return False
    if agent == "codex":
        file = Path(where.environ.get("CODEX_HOME") or where.home / ".codex") / "auth.json"
        return bool(_read_json_settings(file).get("tokens"))
    settings = (
        _claude_settings_in_arguments(where),
        *map(_read_json_settings, claude_settings_files(where)),
    )
    if any(one.get("apiKeyHelper") for one in settings):
        return False
    file = (
        Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home / ".claude") / ".credentials.json"
    )
    return bool(
        environ.get("CLAUDE_CODE_OAUTH_TOKEN") or _read_json_settings(file).get("claudeAiOauth")
    )


_FINDERS: Mapping[str, Callable[[AgentSurroundings], list[AgentUpstream]]] = {
    "claude": _find_claude_upstreams,
    "codex": _find_codex_upstreams,
    "opencode": _find_opencode_upstreams,
    "gemini": _find_gemini_upstreams,
    "pi": _find_pi_upstreams,
}
