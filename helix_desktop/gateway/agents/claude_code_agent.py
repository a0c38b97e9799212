"""Claude Code: its settings files take precedence over the environment."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.commented_json import parse_commented_json, set_commented_json
from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import (
    AgentSurroundings,
    AgentUpstream,
    checked_address_in_settings,
    first_value_of_option,
    locate_in_file,
    names_any_variable,
    read_json_settings,
    refuse_agent,
    upstream_of_variable,
    values_of_option,
)
from helix_desktop.gateway.known_agent import (
    NO_PROXY,
    AgentLaunch,
    AgentStart,
    KnownAgent,
    NoProxyInSettings,
    except_from_proxy,
)
from helix_desktop.histories.program_names import title_of_command
from helix_desktop.json_values import object_at

CLAUDE_MANAGED_SETTINGS = Path("/etc/claude-code/managed-settings.json")
# Unless this is set, Claude Code sends all MCP schemas to a foreign address.
TOOL_SEARCH = "ENABLE_TOOL_SEARCH"
# With these, Claude Code works in another process, which `wrap` does not start.
_RUNS_ELSEWHERE = frozenset(
    ("--bg", "--background", "--cloud", "--remote", "--teleport", "--desktop")
)
# By the end of `CLAUDE_CODE_USE_…`: providers to which Claude Code signs its requests.
_SIGNED_FOR = {
    "BEDROCK": "Amazon Bedrock",
    "MANTLE": "Amazon Bedrock",
    "ANTHROPIC_AWS": "Claude Platform on AWS",
    "ANTHROPIC_GOOGLE_CLOUD": "Claude Platform on Google Cloud",
    "VERTEX": "Vertex AI",
    "FOUNDRY": "Microsoft Foundry",
}
# With these, it pays by the token, whatever its files say.
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


def _claude_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "settings.json"


def _claude_folder(where: AgentSurroundings) -> Path:
    return Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home / ".claude")


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


@dataclass(frozen=True, slots=True)
class FoundVariable:
    """A variable's value, and the file that sets it (None: the environment or an argument)."""

    value: str
    file: Path | None = None


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
    chosen_sources = values_of_option(where.arguments, "--setting-sources")
    if chosen_sources:
        names = chosen_sources[0].split(",")
        return [source for source in usual if source in names]
    if "--restricted" in where.arguments:
        return []
    return list(usual)


def _claude_settings_in_arguments(where: AgentSurroundings) -> dict[str, Any]:
    """Return the settings that `--settings` gives Claude Code, as JSON or in a file."""
    json_or_file = first_value_of_option(where.arguments, "--settings").strip()
    if json_or_file and not json_or_file.startswith("{"):
        return read_json_settings(where.folder / json_or_file)
    return parse_commented_json(json_or_file, "--settings")


def read_claude_environment(where: AgentSurroundings) -> Mapping[str, str]:
    """Return the environment with the variables that Claude Code's settings add. Those of a
    project's folder count only if the user has trusted it.
    """
    environ = dict(where.environ)
    is_trusted = where.folder == where.home or _is_folder_trusted(where)
    layers: list[dict[str, Any]] = []
    for file in reversed(claude_settings_files(where)):  # The strongest comes last, and wins.
        is_of_project = file.parent.parent == where.folder
        if is_trusted or not is_of_project:
            layers.append(read_json_settings(file))
    layers.append(_claude_settings_in_arguments(where))
    for settings in layers:
        for name, value in object_at(settings, "env").items():
            environ[name] = str(value)
    return environ


def _find_claude_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where Claude Code sends its requests: the address in its settings, or its usual one.

    Raises ActionRefused if the gateway could not stand in front of that address.
    """
    for argument in where.arguments:
        if argument.partition("=")[0] in _RUNS_ELSEWHERE:
            raise refuse_agent("Claude Code", f"with {argument} it does not run in this terminal")

    variable = "ANTHROPIC_BASE_URL"
    variables_in_arguments = object_at(_claude_settings_in_arguments(where), "env")
    if variables_in_arguments.get(variable):
        raise refuse_agent("Claude Code", "its arguments name an address (--settings)")
    _refuse_signed_requests(where)

    address = _find_claude_variable(variable, where)
    if address.file is not None:
        location = locate_in_file(address.file, variable)
        _refuse_address_that_stays(address.file, location, where)
        checked_address = checked_address_in_settings(address.value, location)
        return [AgentUpstream(address=checked_address, source=f"{variable} in {location}")]
    if address.value:
        return [upstream_of_variable(variable, {variable: address.value})]
    return [AgentUpstream()]


def _find_claude_variable(name: str, where: AgentSurroundings) -> FoundVariable:
    """Return a variable as Claude Code finds it: its files are stronger than its arguments, and
    these are stronger than the environment.
    """
    for file in claude_settings_files(where):
        value = object_at(read_json_settings(file), "env").get(name)
        if value:
            return FoundVariable(str(value), file)
    value_in_arguments = object_at(_claude_settings_in_arguments(where), "env").get(name)
    if value_in_arguments:
        return FoundVariable(str(value_in_arguments))
    return FoundVariable(where.environ.get(name, ""))


def _refuse_signed_requests(where: AgentSurroundings) -> None:
    """Raise if requests are signed: a changed one would be refused."""
    for name, title in _SIGNED_FOR.items():
        variable = _find_claude_variable(f"CLAUDE_CODE_USE_{name}", where)
        if variable.value.casefold() in ("", "0", "false"):
            continue
        location = ""
        if variable.file is not None:
            location = f" in {locate_in_file(variable.file, name)}"
        reason = f"it uses {title}, whose requests are signed (CLAUDE_CODE_USE_{name}{location})"
        raise refuse_agent("Claude Code", reason)


def _refuse_address_that_stays(file: Path, location: str, where: AgentSurroundings) -> None:
    """Raise if wrap cannot replace an address in a settings file, or must not follow it."""
    if file.is_relative_to(CLAUDE_MANAGED_SETTINGS.parent):
        raise refuse_agent("Claude Code", f"your organization sets its address ({location})")
    is_of_project = file.parent.parent == where.folder and where.folder != where.home
    if is_of_project and not _is_folder_trusted(where):
        reason = f"{location} names an address, and you have not trusted this folder in Claude Code"
        raise refuse_agent("Claude Code", reason)
    for argument in where.arguments:
        if argument.partition("=")[0] == "--settings":
            reason = f"{location} names an address, which wrap replaces with --settings, as you do"
            raise refuse_agent("Claude Code", reason)


def _is_folder_trusted(where: AgentSurroundings) -> bool:
    """Whether the user has trusted the folder, or one above it, in Claude Code."""
    file = Path(where.environ.get("CLAUDE_CONFIG_DIR") or where.home) / ".claude.json"
    projects = object_at(read_json_settings(file), "projects")
    for folder in where.folder_and_above:
        if object_at(projects, str(folder)).get("hasTrustDialogAccepted"):
            return True
    return False


def _uses_claude_subscription(where: AgentSurroundings) -> bool:
    if names_any_variable(_KEYS, read_claude_environment(where)):
        return False
    all_settings = [_claude_settings_in_arguments(where)]
    for file in claude_settings_files(where):
        all_settings.append(read_json_settings(file))
    for settings in all_settings:
        if settings.get("apiKeyHelper"):  # A program that prints a key to pay with.
            return False
    if read_claude_environment(where).get("CLAUDE_CODE_OAUTH_TOKEN"):
        return True
    credentials = read_json_settings(_claude_folder(where) / ".credentials.json")
    return bool(credentials.get("claudeAiOauth"))


AGENT = KnownAgent(
    name="claude",
    title=title_of_command("claude"),
    program="claude",
    npm_package="@anthropic-ai/claude-code",
    launch=_build_claude_launch,
    file=_claude_settings_file,
    change=_change_claude_settings,
    find_upstreams=_find_claude_upstreams,
    recognized_by="claude-cli|claude-code",
    shell_variables=(
        "ANTHROPIC_BASE_URL",
        *(f"CLAUDE_CODE_USE_{name}" for name in _SIGNED_FOR),
        "CLAUDE_CONFIG_DIR",
    ),
    no_proxy=NoProxyInSettings.ALWAYS,
    read_environment=read_claude_environment,
    uses_subscription=_uses_claude_subscription,
)
