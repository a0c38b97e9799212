"""Codex: the provider's address is in its settings."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tomlkit

from helix_desktop.gateway.agent_upstreams import (
    CODEX_SUBSCRIPTION_PATH,
    CODEX_SUBSCRIPTION_URL,
    AgentSurroundings,
    AgentUpstream,
    SettingsLayer,
    checked_address_in_settings,
    first_value_of_option,
    locate_in_file,
    read_json_settings,
    read_toml_settings,
    refuse_agent,
    upstream_of_variable,
    values_of_option,
)
from helix_desktop.gateway.env_file_variables import read_env_file_variables
from helix_desktop.gateway.known_agent import (
    AgentLaunch,
    AgentStart,
    KnownAgent,
    find_exceptions_without_gateway,
    find_proxy_variable,
)
from helix_desktop.gateway.registration import TOKEN_HEADER, add_token_to_project
from helix_desktop.histories.program_names import title_of_command
from helix_desktop.json_values import object_at, parse_json_or_none, text_at

CODEX_SYSTEM_FOLDER = Path("/etc/codex")
CODEX_TOKEN = "HELIX_GATEWAY_TOKEN"  # noqa: S105 -- the variable from which Codex reads the token
# Of the headers that Codex sends to its usual provider, this variable's can carry the token.
CODEX_PROJECT = "OPENAI_PROJECT"
# With this variable, it pays by the token. If it is signed in, it does not use OPENAI_API_KEY.
_KEY_OF_RUN = "CODEX_API_KEY"
_PROVIDER_OF_GATEWAY = "helix"
_RESUMING_COMMANDS = frozenset(("resume", "fork"))
_ID_OF_SESSION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# The first line of a session's file, which has the instructions too, is no longer than this.
MOST_BYTES_OF_DESCRIPTION = 1 << 20


def _codex_settings_file(home: Path, environ: Mapping[str, str]) -> Path:
    return _codex_folder(environ, home) / "config.toml"


def _codex_folder(environ: Mapping[str, str], home: Path) -> Path:
    return Path(environ.get("CODEX_HOME") or home / ".codex")


def _codex_env_file(where: AgentSurroundings) -> Path:
    return _codex_folder(where.environ, where.home) / ".env"


def _read_codex_environment(where: AgentSurroundings) -> dict[str, str]:
    """Return the environment with the variables of Codex's own `.env` file, which are stronger."""
    environ = dict(where.environ)
    for name, value in read_env_file_variables(_codex_env_file(where)).items():
        if not name.startswith("CODEX_"):  # Codex takes none of these from there.
            environ[name] = value
    return environ


def _is_codex_signed_in(environ: Mapping[str, str]) -> bool:
    """Whether Codex has a sign-in of its own, with an account or a key, or a key for one run."""
    if environ.get(_KEY_OF_RUN):
        return True
    return (_codex_folder(environ, Path.home()) / "auth.json").exists()


def _needs_provider_of_gateway(environ: Mapping[str, str], arguments: Sequence[str]) -> bool:
    """Whether Codex must be given a provider named `helix`. Its usual one ignores OPENAI_API_KEY,
    which `codex exec` can be given by another variable.

    Codex resumes a session with no other provider than the one that began it.
    """
    if not environ.get("OPENAI_API_KEY") or _is_codex_signed_in(environ):
        return False
    provider_of_session = _provider_of_resumed_session(environ, arguments)
    if provider_of_session:
        return provider_of_session == _PROVIDER_OF_GATEWAY
    return not _runs_without_window(arguments)


def _runs_without_window(arguments: Sequence[str]) -> bool:
    return "exec" in arguments or "e" in arguments


def _provider_of_resumed_session(environ: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Return the provider of the session that the arguments name, as its file says, or an empty
    text.
    """
    if not _RESUMING_COMMANDS.intersection(arguments):
        return ""
    folder = _codex_folder(environ, Path.home()) / "sessions"
    if "--last" in arguments:
        # The newest in this folder: their names begin with the time.
        for file in sorted(folder.rglob("rollout-*.jsonl"), reverse=True):
            description = _read_description_of_session(file)
            if description.get("cwd") == str(Path.cwd()):
                return text_at(description, "model_provider")
        return ""
    for word in arguments:
        if _ID_OF_SESSION.fullmatch(word):
            for file in folder.rglob(f"rollout-*{word}.jsonl"):
                return text_at(_read_description_of_session(file), "model_provider")
    return ""


def _read_description_of_session(file: Path) -> Mapping[str, Any]:
    with suppress(OSError), file.open("rb") as lines:
        first_line = parse_json_or_none(lines.readline(MOST_BYTES_OF_DESCRIPTION))
        return object_at(object_at(first_line), "payload")
    return {}


def _notice_of_codex(where: AgentSurroundings) -> str:
    """Return what is said before a session that only this program can resume, and before a server
    that cannot pay for the others.
    """
    environ = _read_codex_environment(where)
    if not _needs_provider_of_gateway(environ, where.arguments):
        return ""
    if "app-server" in where.arguments:
        return "Codex is not signed in and has nothing but OPENAI_API_KEY. So sessions that are begun with its app-server can be resumed with “helix-desktop wrap codex” only. For sessions that “codex exec” has begun, the app-server sends no key, so the provider refuses their requests. Sign in with “codex login --with-api-key” to use both."
    return "Codex is not signed in and has nothing but OPENAI_API_KEY. So this session can be resumed with “helix-desktop wrap codex” only. Sign in with “codex login --with-api-key” to begin sessions that Codex resumes without it, too."


def _notice_of_codex_settings() -> str:
    if _is_codex_signed_in(os.environ):
        return ""
    return "Codex is not signed in, and then sends no key there, not even OPENAI_API_KEY. Sign in with “codex login”, or start it with “helix-desktop wrap codex”."


def _build_codex_launch(start: AgentStart) -> AgentLaunch:
    """Return how to launch Codex: the gateway's address as settings in its command line.

    All users of a computer can read command lines, so the token of the address is in the
    environment, and Codex sends it as a header.
    """
    ((upstream, url),) = start.urls.items()
    base_url, _, token = url.partition("/t/")
    environment = {CODEX_TOKEN: token}
    if upstream.provider:
        settings = _codex_settings_of_own_provider(upstream.provider, base_url)
    else:
        # Codex resumes a session only with the provider that began it. So its usual provider
        # stays, and a session can be begun here and resumed without the gateway, or the reverse.
        # Where it cannot stay, its address is changed all the same: its window and its server
        # for editors resume sessions of it as well, which would go around the gateway.
        needs_provider = _needs_provider_of_gateway(start.environ, start.arguments)
        settings = [
            f'openai_base_url="{base_url}/v1"',
            _codex_setting_of_gateway(base_url, has_key=needs_provider),
        ]
        own_project = start.environ.get(CODEX_PROJECT, "")
        environment[CODEX_PROJECT] = add_token_to_project(own_project, token)
        key = start.environ.get("OPENAI_API_KEY")
        if needs_provider:
            settings.append('model_provider="helix"')
        elif key and not _is_codex_signed_in(start.environ):
            environment[_KEY_OF_RUN] = key  # Its usual provider finds this one.

    command = ["codex"]
    for setting in settings:
        command.extend(("-c", setting))
    command.extend(start.arguments)
    return AgentLaunch(tuple(command), environment)


def _codex_settings_of_own_provider(provider: str, base_url: str) -> list[str]:
    """Return the settings that change only the address of a provider which the user has set."""
    table = f"model_providers.{provider}"
    return [
        f'{table}.base_url="{base_url}"',
        f'{table}.env_http_headers.{TOKEN_HEADER}="{CODEX_TOKEN}"',
    ]


def _codex_setting_of_gateway(base_url: str, *, has_key: bool = False) -> str:
    """Return the setting that adds the gateway as a provider. Sessions name it that were begun
    with nothing but a key in the environment, for which Codex's usual provider does not look, or
    by earlier versions of this program.
    """
    key = "requires_openai_auth=true"
    if has_key:
        key = 'env_key="OPENAI_API_KEY"'
    headers = f'env_http_headers={{"{TOKEN_HEADER}"="{CODEX_TOKEN}"}}'
    provider = f'{{name="Helix",base_url="{base_url}/v1",wire_api="responses",{key},{headers}}}'
    return f"model_providers.helix={provider}"


def _change_codex_settings(text: str, url: str, _: Mapping[str, str]) -> str:
    """Set the gateway's address for Codex's usual provider, which stays the provider of its
    sessions, so that they can be resumed with and without the gateway.
    """
    document = tomlkit.parse(text)
    document["openai_base_url"] = f"{url}/v1"
    return tomlkit.dumps(document)


def read_codex_settings(where: AgentSurroundings) -> list[SettingsLayer]:
    """Return what Codex reads, weakest first."""
    system_file = CODEX_SYSTEM_FOLDER / "config.toml"
    user_file = _codex_folder(where.environ, where.home) / "config.toml"
    user_settings = read_toml_settings(user_file)
    layers = [
        SettingsLayer(system_file, read_toml_settings(system_file)),
        SettingsLayer(user_file, user_settings),
    ]

    # A profile is a table of the user's file, and may have a file of its own if it is an argument.
    profile_in_arguments = first_value_of_option(where.arguments, "-p", "--profile")
    profile = profile_in_arguments or user_settings.get("profile", "")
    profile_settings = object_at(user_settings, "profiles", profile)
    layers.append(SettingsLayer(user_file, profile_settings))
    if profile_in_arguments:
        profile_file = user_file.with_name(f"{profile_in_arguments}.config.toml")
        layers.append(SettingsLayer(profile_file, read_toml_settings(profile_file)))
    return layers


def _find_codex_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where Codex sends its requests: to the provider that its settings choose."""
    layers = read_codex_settings(where)
    settings_in_arguments = values_of_option(where.arguments, "-c", "--config")
    _refuse_codex_address_that_stays(where, settings_in_arguments)
    _refuse_proxy_for_gateway(where)
    provider = _choose_codex_provider(layers, settings_in_arguments)
    if provider == "openai":
        _refuse_project_in_env_file(where)
    for layer in reversed(layers):
        address = _codex_address_in_settings(layer.settings, provider)
        if address:
            location = locate_in_file(layer.file, str(address))
            provider_name = provider
            if provider == "openai":  # The usual one has no name here.
                provider_name = ""
            return [
                AgentUpstream(
                    provider_name, checked_address_in_settings(address, location), location
                )
            ]
    if provider != "openai":
        reason = f"its provider {provider!r} is built in, and its address cannot be changed"
        raise refuse_agent("Codex", reason)
    if _uses_codex_subscription(where):
        return [_find_chatgpt_upstream(layers)]
    environ = _read_codex_environment(where)
    if environ.get("OPENAI_BASE_URL"):
        return [upstream_of_variable("OPENAI_BASE_URL", environ)]
    return [AgentUpstream()]


def _refuse_codex_address_that_stays(
    where: AgentSurroundings, settings_in_arguments: Sequence[str]
) -> None:
    """Raise if wrap cannot replace the address: arguments and the organization's file are
    stronger than what it sets.
    """
    names_address = any("base_url" in setting for setting in settings_in_arguments)
    if names_address or "--oss" in where.arguments:
        raise refuse_agent("Codex", "its arguments name an address")
    managed_file = CODEX_SYSTEM_FOLDER / "managed_config.toml"
    managed_settings = read_toml_settings(managed_file)
    for name in ("model_provider", "model_providers", "openai_base_url"):
        if name in managed_settings:
            raise refuse_agent("Codex", f"your organization sets its provider ({managed_file})")


def _refuse_proxy_for_gateway(where: AgentSurroundings) -> None:
    """Raise if Codex would ask a proxy for the gateway: its `.env` file is stronger than what `wrap`
    sets. Seen with 0.171: the proxy got the key and the conversation.
    """
    env_file = _codex_env_file(where)
    exceptions_name = find_exceptions_without_gateway(read_env_file_variables(env_file))
    proxy_name = find_proxy_variable(_read_codex_environment(where))
    if exceptions_name and proxy_name:
        reason = f"{exceptions_name} in {env_file} does not contain 127.0.0.1, so the HTTP proxy in {proxy_name} would get its key and the conversation"
        raise refuse_agent("Codex", reason)


def _refuse_project_in_env_file(where: AgentSurroundings) -> None:
    """Raise if Codex's `.env` file names a project: it would take the place of the gateway's token,
    and the gateway would refuse each request.
    """
    env_file = _codex_env_file(where)
    names_project = bool(read_env_file_variables(env_file).get(CODEX_PROJECT))
    environ = _read_codex_environment(where)
    sends_own_header = _needs_provider_of_gateway(environ, where.arguments)
    if names_project and not sends_own_header:
        reason = f"{CODEX_PROJECT} in {env_file} would take the place of the gateway's token. Set it in your shell, and remove it there"
        raise refuse_agent("Codex", reason)


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
        location = locate_in_file(layer.file, "chatgpt_base_url")
        parts = urlsplit(checked_address_in_settings(backend, location))
        address = f"{parts.scheme}://{parts.netloc}{CODEX_SUBSCRIPTION_PATH}"
        if address == CODEX_SUBSCRIPTION_URL:  # That is where it goes without the setting, too.
            return AgentUpstream()
        return AgentUpstream(address=address, source=location)
    return AgentUpstream()


def _uses_codex_subscription(where: AgentSurroundings) -> bool:
    if where.environ.get(_KEY_OF_RUN):
        return False
    sign_in = read_json_settings(_codex_folder(where.environ, where.home) / "auth.json")
    return bool(sign_in.get("tokens"))


def _names_in_codex_settings(where: AgentSurroundings) -> set[str]:
    """Return the names of headers that Codex's providers set."""
    names = set[str]()
    for layer in read_codex_settings(where):
        for provider in object_at(layer.settings, "model_providers").values():
            names.update(object_at(provider, "http_headers"))
            names.update(object_at(provider, "env_http_headers"))
    return names


AGENT = KnownAgent(
    name="codex",
    title=title_of_command("codex"),
    program="codex",
    npm_package="@openai/codex",
    launch=_build_codex_launch,
    file=_codex_settings_file,
    change=_change_codex_settings,
    notice=_notice_of_codex,
    notice_of_settings=_notice_of_codex_settings,
    find_upstreams=_find_codex_upstreams,
    recognized_by="codex",
    shell_variables=("OPENAI_BASE_URL", "CODEX_HOME"),
    read_environment=_read_codex_environment,
    find_header_names=_names_in_codex_settings,
    uses_subscription=_uses_codex_subscription,
)
