"""Lists the agents the gateway knows, and how to point each at it: for one run, or in
its settings file.
"""

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import tomlkit

from helix_desktop.atomic_files import create_folders, create_private_folder
from helix_desktop.commented_json import parse_commented_json, set_commented_json
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway import agent_identity
from helix_desktop.gateway.agent_identity import title_of_known_agent
from helix_desktop.gateway.agent_upstreams import ADDRESSES, AgentUpstream
from helix_desktop.gateway.registration import TOKEN_HEADER
from helix_desktop.json_values import object_at
from helix_desktop.tools.command_lines import command_analysis

CODEX_TOKEN = "HELIX_GATEWAY_TOKEN"  # noqa: S105 -- the variable from which Codex reads the token
NO_PROXY = ("NO_PROXY", "no_proxy")
# Unless this is set, Claude Code sends all MCP schemas to a foreign address.
TOOL_SEARCH = "ENABLE_TOOL_SEARCH"


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How to start an agent for one run: its command line, and variables to add to the environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AgentStart:
    """What a launch needs: the address for each upstream, the user's arguments and
    environment, and a private folder.
    """

    urls: Mapping[AgentUpstream, str]
    arguments: Sequence[str]
    environ: Mapping[str, str]
    scratch: Path


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """`program`: the agent's command. `file`: the configuration to change. `change`:
    adds the address to its content.
    """

    name: str
    title: str
    program: str
    launch: Callable[[AgentStart], AgentLaunch]
    file: Callable[[Path, Mapping[str, str]], Path]
    change: Callable[[str, str, Mapping[str, str]], str]


def except_from_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to the gateway from an HTTP proxy, beside
    what they except already.

    The agents use a proxy for 127.0.0.1 too, which would get the key and the
    conversation in plain text.
    """
    hosts: list[str] = []
    for variable in NO_PROXY:
        hosts.extend(re.split(r"[,\s]+", environ.get(variable, "")))
    hosts.extend(("127.0.0.1", "localhost"))

    hosts_once: list[str] = []
    for host in hosts:
        if host and host not in hosts_once:
            hosts_once.append(host)
    if "*" in hosts_once:
        # An asterisk excepts everything, but only where it stands alone.
        return dict.fromkeys(NO_PROXY, "*")
    return dict.fromkeys(NO_PROXY, ",".join(hosts_once))


def find_known_agent(name: str) -> KnownAgent:
    """Return the agent with this name. Raises InvalidInput if there is none."""
    if name not in KNOWN_AGENTS:
        raise InvalidInput(
            f"{name!r} is not a known agent. Choose one of {', '.join(KNOWN_AGENTS)}."
        )
    return KNOWN_AGENTS[name]


def build_agent_of_command(command: Sequence[str], protocol: str) -> KnownAgent:
    """Describe an unknown agent, which gets its address by its protocol's usual
    variables, or in place of `{url}`.
    """
    name = _name_of_started_agent(command)
    return KnownAgent(
        name=name,
        title=title_of_known_agent(name),
        program=command[0],
        launch=partial(_build_launch_of_command, command, protocol),
        file=_no_settings_file,
        change=_leave_settings_unchanged,
    )


def _build_launch_of_command(
    command: Sequence[str], protocol: str, start: AgentStart
) -> AgentLaunch:
    """Launch an unknown agent by the user's own command."""
    address = ADDRESSES[protocol]
    url = _only_url(start) + address["path"]
    words = [word.replace("{url}", url) for word in command]
    words.extend(start.arguments)
    environment = dict.fromkeys(address["variables"], url)
    return AgentLaunch(tuple(words), environment)


def _only_url(start: AgentStart) -> str:
    """Return the address of an agent that has one upstream only."""
    (url,) = start.urls.values()
    return url


def _no_settings_file(home: Path, _: Mapping[str, str]) -> Path:
    """Return the home folder, as nobody knows where an unknown agent has its settings."""
    return home


def _leave_settings_unchanged(text: str, _url: str, _environ: Mapping[str, str]) -> str:
    return text


def _name_of_started_agent(command: Sequence[str]) -> str:
    """Return the name of the program that a command line starts in the end."""
    analysis = command_analysis.find_started_programs(shlex.join(command))
    if isinstance(analysis, command_analysis.KnownPrograms):
        # The last one, as a program such as `env` only starts the agent.
        for program in reversed(analysis.all_programs):
            if program.is_certain:
                return program.program_name
    return Path(command[0]).name


def _build_claude_launch(start: AgentStart) -> AgentLaunch:
    """Return how to launch Claude Code: with the gateway's address in its environment, or in a
    settings file of this run, where the user's own settings are stronger than the environment.
    """
    ((upstream, url),) = start.urls.items()
    settings_set_no_proxy = False
    for variable in NO_PROXY:
        if start.environ.get(variable) != os.environ.get(variable):
            settings_set_no_proxy = True

    command = ["claude"]
    if upstream.is_from_file or settings_set_no_proxy:
        # Claude Code's settings files override the environment; this file overrides them.
        settings_file = _write_claude_settings(start, url)
        command.extend(("--settings", str(settings_file)))
    command.extend(start.arguments)
    environment = {
        "ANTHROPIC_BASE_URL": url,
        TOOL_SEARCH: start.environ.get(TOOL_SEARCH, "true"),
    }
    return AgentLaunch(tuple(command), environment)


def _write_claude_settings(start: AgentStart, url: str) -> Path:
    """Write a settings file for this run. ActionRefused if the user gives one: it has one only."""
    for argument in start.arguments:
        if argument.partition("=")[0] == "--settings":
            raise ActionRefused(
                "Start Claude Code without --settings: wrap needs it to override its setting NO_PROXY."
            )
    variables = {"ANTHROPIC_BASE_URL": url}
    variables.update(except_from_proxy(start.environ))
    create_private_folder(start.scratch)
    file = start.scratch / "settings.json"
    file.write_text(json.dumps({"env": variables}), "utf-8")
    return file


def _build_codex_launch(start: AgentStart) -> AgentLaunch:
    """Return how to launch Codex: the gateway's address as settings in its command line.

    All users of a computer can read command lines, so the token of the address is in the
    environment, and Codex sends it as a header.
    """
    ((upstream, url),) = start.urls.items()
    base_url, _, token = url.partition("/t/")
    if upstream.provider:
        settings = _codex_settings_of_own_provider(upstream.provider, base_url)
    else:
        has_key = bool(start.environ.get("OPENAI_API_KEY"))
        settings = _codex_settings_of_gateway(base_url, has_key=has_key)

    command = ["codex"]
    for setting in settings:
        command.extend(("-c", setting))
    command.extend(start.arguments)
    return AgentLaunch(tuple(command), {CODEX_TOKEN: token})


def _codex_settings_of_own_provider(provider: str, base_url: str) -> list[str]:
    """Return the settings that change only the address of a provider which the user has set."""
    table = f"model_providers.{provider}"
    return [
        f'{table}.base_url="{base_url}"',
        f'{table}.env_http_headers.{TOKEN_HEADER}="{CODEX_TOKEN}"',
    ]


def _codex_settings_of_gateway(base_url: str, *, has_key: bool) -> list[str]:
    """Return the settings that add the gateway as a provider and choose it. Without a key, Codex
    signs in as with its usual provider.
    """
    key = "requires_openai_auth=true"
    if has_key:
        key = 'env_key="OPENAI_API_KEY"'
    headers = f'env_http_headers={{"{TOKEN_HEADER}"="{CODEX_TOKEN}"}}'
    provider = f'{{name="Helix",base_url="{base_url}/v1",wire_api="responses",{key},{headers}}}'
    return ['model_provider="helix"', f"model_providers.helix={provider}"]


def _build_opencode_launch(start: AgentStart) -> AgentLaunch:
    """Launch opencode with its settings in a variable, which overrides its files."""
    variable = "OPENCODE_CONFIG_CONTENT"
    users_settings = start.environ.get(variable, "")
    settings = _set_addresses(users_settings, start.urls, variable)
    settings_without_comments = json.dumps(parse_commented_json(settings, variable))
    command = ("opencode", *start.arguments)
    return AgentLaunch(command, {variable: settings_without_comments})


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
    settings = _set_addresses(users_models, start.urls, models.name)
    settings_without_comments = json.dumps(parse_commented_json(settings, ""))
    (start.scratch / "models.json").write_text(settings_without_comments, "utf-8")
    return AgentLaunch(("pi", *start.arguments), {"PI_CODING_AGENT_DIR": str(start.scratch)})


def _build_gemini_launch(start: AgentStart) -> AgentLaunch:
    """Return how to launch Gemini CLI: with the gateway's address in its environment.

    Behind such an address, it signs in with a key only if its settings say so. If the user has
    not chosen otherwise, its weakest settings, a file of this run, say so.
    """
    environment = {"GOOGLE_GEMINI_BASE_URL": _only_url(start)}
    variable = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"  # Names the settings that are the weakest.
    defaults_file = Path(start.environ.get(variable, "/etc/gemini-cli/system-defaults.json"))
    chooses_sign_in = any(name.startswith("GOOGLE_GENAI_USE_") for name in start.environ)
    if not defaults_file.exists() and not chooses_sign_in:
        own_defaults_file = start.scratch / "settings.json"
        own_defaults = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        create_private_folder(start.scratch)
        own_defaults_file.write_text(json.dumps(own_defaults), "utf-8")
        environment[variable] = str(own_defaults_file)
    return AgentLaunch(("gemini", *start.arguments), environment)


def _change_claude_settings(text: str, url: str, environ: Mapping[str, str]) -> str:
    """Set the gateway's address among the variables of Claude Code's settings."""
    users_variables = object_at(parse_commented_json(text, "settings.json"), "env")
    own_variables = {"ANTHROPIC_BASE_URL": url}
    if TOOL_SEARCH not in users_variables:
        own_variables[TOOL_SEARCH] = "true"
    own_variables.update(except_from_proxy(environ))

    changed_text = text
    for name, value in own_variables.items():
        changed_text = set_commented_json(changed_text, ("env", name), value)
    return changed_text


def _change_codex_settings(text: str, url: str, _: Mapping[str, str]) -> str:
    """Add the gateway as a provider to Codex's settings, and choose it."""
    document = tomlkit.parse(text)
    provider = tomlkit.table()
    provider["name"] = "Helix"
    provider["base_url"] = f"{url}/v1"
    provider["wire_api"] = "responses"
    provider["requires_openai_auth"] = True

    document["model_provider"] = "helix"
    providers = document.setdefault("model_providers", tomlkit.table(is_super_table=True))
    providers["helix"] = provider
    return tomlkit.dumps(document)


def _change_gemini_settings(text: str, url: str, environ: Mapping[str, str]) -> str:
    """Set the variables in Gemini CLI's `.env` file, a line each. Other lines stay."""
    # What the file already excepts from the proxy stays excepted.
    environ_with_file = dict(environ)
    environ_with_file.update(re.findall(r"(?im)^(?:export )?(no_proxy)=[\"']?([^\"'\n]*)", text))
    own_variables = {"GOOGLE_GEMINI_BASE_URL": url}
    own_variables.update(except_from_proxy(environ_with_file))

    lines: list[str] = []
    for line in text.splitlines():
        name = line.removeprefix("export ").partition("=")[0]
        if name not in own_variables:
            lines.append(line)
    for name, value in own_variables.items():
        lines.append(f"{name}={value}")
    return "\n".join(lines) + "\n"


def _set_addresses(text: str, urls: Mapping[AgentUpstream, str], file_name: str) -> str:
    """Return the settings of pi (`models.json`) or opencode with the gateway's address for every
    provider.
    """
    parse_commented_json(text, file_name)  # Says which file has a mistake, if one has.
    is_pi = file_name == "models.json"
    changed_text = text
    for provider, url in _url_by_provider(urls, is_pi=is_pi).items():
        path: tuple[str, ...]
        if is_pi:
            path = ("providers", provider, "baseUrl")
        else:
            path = ("provider", provider, "options", "baseURL")
        changed_text = set_commented_json(changed_text, path, url)
    return changed_text


def _url_by_provider(urls: Mapping[AgentUpstream, str], *, is_pi: bool) -> dict[str, str]:
    """Return the address for each provider: the usual ones with their protocol's version, and
    those with an address of the user's, which contains the version already.
    """
    usual_url = ""
    custom_urls: dict[str, str] = {}
    for upstream, url in urls.items():
        if upstream.provider:
            custom_urls[upstream.provider] = url
        elif not usual_url:
            usual_url = url
    url_by_provider = {
        "anthropic": f"{usual_url}/v1",
        "openai": f"{usual_url}/v1",
        "google": f"{usual_url}/v1beta",
    }
    if is_pi:  # It adds the version to Anthropic's address itself.
        url_by_provider["anthropic"] = usual_url
    url_by_provider.update(custom_urls)
    return url_by_provider


def _opencode_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    """Return the file to change: the user's own, which may allow comments."""
    folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    usual = folder / "opencode.json"
    with_comments = folder / "opencode.jsonc"
    if with_comments.exists() and not usual.exists():
        return with_comments
    return usual


def _claude_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "settings.json"


def _codex_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml"


def _gemini_settings_file(home: Path, _: Mapping[str, str]) -> Path:
    return home / ".gemini" / ".env"


def _pi_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent") / "models.json"


def _change_opencode_settings(text: str, url: str, _: Mapping[str, str]) -> str:
    return _set_addresses(text, {AgentUpstream(): url}, "opencode.json")


def _change_pi_settings(text: str, url: str, _: Mapping[str, str]) -> str:
    return _set_addresses(text, {AgentUpstream(): url}, "models.json")


_ALL_KNOWN_AGENTS = (
    KnownAgent(
        name="claude",
        title=agent_identity.CLAUDE,
        program="claude",
        launch=_build_claude_launch,
        file=_claude_settings_file,
        change=_change_claude_settings,
    ),
    KnownAgent(
        name="codex",
        title=agent_identity.CODEX,
        program="codex",
        launch=_build_codex_launch,
        file=_codex_settings_file,
        change=_change_codex_settings,
    ),
    KnownAgent(
        name="opencode",
        title=agent_identity.OPENCODE,
        program="opencode",
        launch=_build_opencode_launch,
        file=_opencode_settings_file,
        change=_change_opencode_settings,
    ),
    KnownAgent(
        name="gemini",
        title=agent_identity.GEMINI,
        program="gemini",
        launch=_build_gemini_launch,
        file=_gemini_settings_file,
        change=_change_gemini_settings,
    ),
    KnownAgent(
        name="pi",
        title=agent_identity.PI,
        program="pi",
        launch=_build_pi_launch,
        file=_pi_settings_file,
        change=_change_pi_settings,
    ),
)
KNOWN_AGENTS: Mapping[str, KnownAgent] = {agent.name: agent for agent in _ALL_KNOWN_AGENTS}
