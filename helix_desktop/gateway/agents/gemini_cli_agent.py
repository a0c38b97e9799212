"""Gemini CLI: its environment or the first `.env` file names the address."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.gateway.agent_upstreams import (
    AgentSurroundings,
    AgentUpstream,
    checked_address_in_settings,
    locate_in_file,
    read_json_settings,
    read_text_or_empty,
    refuse_agent,
    upstream_of_variable,
)
from helix_desktop.gateway.env_file_variables import (
    read_env_file_variable,
    set_env_file_variables,
)
from helix_desktop.gateway.known_agent import (
    AgentLaunch,
    AgentStart,
    KnownAgent,
    NoProxyInSettings,
    except_from_proxy,
    only_url_of_start,
)
from helix_desktop.gateway.own_headers import names_of_custom_headers
from helix_desktop.histories.program_names import title_of_command
from helix_desktop.json_values import object_at

_GEMINI_SIGN_INS = {
    "gemini-api-key": "",
    "oauth-personal": "a Google account",
    "vertex-ai": "Vertex AI",
}


def _gemini_settings_file(home: Path, _: Mapping[str, str]) -> Path:
    return home / ".gemini" / ".env"


def _build_gemini_launch(start: AgentStart) -> AgentLaunch:
    """Return how to launch Gemini CLI: with the gateway's address in its environment.

    Behind such an address, it signs in with a key only if its settings say so. If the user has
    not chosen otherwise, its weakest settings, a file of this run, say so.
    """
    environment = {"GOOGLE_GEMINI_BASE_URL": only_url_of_start(start)}
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


def _change_gemini_settings(text: str, url: str, environ: Mapping[str, str]) -> str:
    """Set the variables in Gemini CLI's `.env` file, a line each. Other lines stay."""
    # What the file already excepts from the proxy stays excepted.
    environ_with_file = dict(environ)
    environ_with_file.update(re.findall(r"(?im)^(?:export )?(no_proxy)=[\"']?([^\"'\n]*)", text))
    own_variables = {"GOOGLE_GEMINI_BASE_URL": url}
    own_variables.update(except_from_proxy(environ_with_file))

    return set_env_file_variables(text, own_variables)


def _find_gemini_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where Gemini CLI sends its requests, by its environment or the first `.env` file."""
    settings_file = where.home / ".gemini" / "settings.json"
    sign_in_settings = object_at(read_json_settings(settings_file), "security", "auth")
    sign_in = _GEMINI_SIGN_INS.get(str(sign_in_settings.get("selectedType")), "")
    if sign_in:
        location = locate_in_file(settings_file, "selectedType")
        raise refuse_agent("Gemini CLI", f"it signs in with {sign_in} ({location})")

    variable = "GOOGLE_GEMINI_BASE_URL"
    if where.environ.get(variable):
        return [upstream_of_variable(variable, where.environ)]
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
            if read_text_or_empty(file):
                return file
    return None


def _upstream_of_env_file(file: Path, variable: str, where: AgentSurroundings) -> AgentUpstream:
    """Return the address in an `.env` file. One in a project's folder is refused."""
    address = read_env_file_variable(file, variable)
    if not address:
        return AgentUpstream()
    location = locate_in_file(file, variable)
    if file.parent not in (where.home, where.home / ".gemini"):
        reason = f"{location} names an address. Set {variable} in your shell to use it"
        raise refuse_agent("Gemini CLI", reason)
    return AgentUpstream(address=checked_address_in_settings(address, location), source=location)


def _names_in_gemini_env_file(where: AgentSurroundings) -> set[str]:
    """Return the names of headers in the `.env` file that Gemini CLI reads into its environment."""
    file = find_gemini_env_file(where)
    if file is None:
        return set()
    headers = read_env_file_variable(file, "GEMINI_CLI_CUSTOM_HEADERS")
    return names_of_custom_headers(headers)


AGENT = KnownAgent(
    name="gemini",
    title=title_of_command("gemini"),
    program="gemini",
    npm_package="@google/gemini-cli",
    launch=_build_gemini_launch,
    file=_gemini_settings_file,
    change=_change_gemini_settings,
    find_upstreams=_find_gemini_upstreams,
    recognized_by="gemini-?cli",
    shell_variables=("GOOGLE_GEMINI_BASE_URL",),
    no_proxy=NoProxyInSettings.IF_UNSET,
    find_header_names=_names_in_gemini_env_file,
)
