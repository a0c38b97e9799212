"""Qwen Code: its environment, `.env` files and settings name the address. Tested with 0.24.4.

The environment is stronger than its files, but a model that its settings declare with an address of
its own goes there.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import (
    AgentSurroundings,
    AgentUpstream,
    checked_address_in_settings,
    locate_in_file,
    read_json_settings,
    read_text_or_empty,
    refuse_agent,
    upstream_of_variable,
    values_of_option,
)
from helix_desktop.gateway.env_file_variables import (
    read_env_file_variable,
    set_env_file_variables,
)
from helix_desktop.gateway.known_agent import (
    AgentLaunch,
    AgentStart,
    KnownAgent,
    only_url_of_start,
)
from helix_desktop.histories.program_names import title_of_command
from helix_desktop.json_values import object_at, objects_at, text_at

TITLE = title_of_command("qwen")
_ADDRESS_OPTION = "--openai-base-url"
_PROXY_OPTION = "--proxy"
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")


@dataclass(frozen=True, slots=True)
class QwenSignIn:
    """How Qwen Code signs in: the variable with the address, and what stands behind it."""

    variable: str
    version: str


_SIGN_INS = {
    "": QwenSignIn("OPENAI_BASE_URL", "/v1"),
    "openai": QwenSignIn("OPENAI_BASE_URL", "/v1"),
    "openai-responses": QwenSignIn("OPENAI_BASE_URL", "/v1"),
    "anthropic": QwenSignIn("ANTHROPIC_BASE_URL", ""),
}


def _qwen_folder(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("QWEN_HOME") or home / ".qwen")


def _qwen_env_file(home: Path, environ: Mapping[str, str]) -> Path:
    return _qwen_folder(home, environ) / ".env"


def _find_qwen_settings_files(where: AgentSurroundings) -> list[Path]:
    """Return its settings files, the strongest first: the project's and the user's."""
    files = [where.folder / ".qwen" / "settings.json"]
    user_file = _qwen_folder(where.home, where.environ) / "settings.json"
    if user_file not in files:
        files.append(user_file)
    return files


def _read_qwen_sign_in(files: Sequence[Path]) -> str:
    for file in files:
        chosen_type = text_at(read_json_settings(file), "security", "auth", "selectedType")
        if chosen_type:
            return chosen_type
    return ""


def _build_qwen_launch(start: AgentStart) -> AgentLaunch:
    """Return how to launch Qwen Code: with the gateway's address in its environment."""
    where = AgentSurroundings(start.environ, Path.home(), Path.cwd())
    files = _find_qwen_settings_files(where)
    sign_in = _SIGN_INS[_read_qwen_sign_in(files)]
    address = only_url_of_start(start) + sign_in.version
    environment = {sign_in.variable: address}
    return AgentLaunch(("qwen", *start.arguments), environment)


def _change_qwen_env_file(text: str, url: str, _: Mapping[str, str]) -> str:
    """Set the address in the user's `.env` file, for both ways to sign in."""
    variables: dict[str, str] = {}
    for sign_in in _SIGN_INS.values():
        variables[sign_in.variable] = url + sign_in.version
    return set_env_file_variables(text, variables)


def _find_qwen_upstreams(where: AgentSurroundings) -> list[AgentUpstream]:
    """Return where Qwen Code sends its requests: its environment is stronger than `.env` files, and
    these are stronger than its settings.
    """
    if values_of_option(where.arguments, _ADDRESS_OPTION):
        raise refuse_agent(TITLE, f"its arguments name an address ({_ADDRESS_OPTION})")
    files = _find_qwen_settings_files(where)
    proxy_source = _find_source_of_proxy(where, files)
    if proxy_source:
        raise refuse_agent(
            TITLE,
            f"it sends all requests to the HTTP proxy in {proxy_source}, whatever NO_PROXY says, so the proxy would get its key and the conversation",
        )
    sign_in_name = _read_qwen_sign_in(files)
    if sign_in_name not in _SIGN_INS:
        raise refuse_agent(TITLE, f"it signs in with {sign_in_name}")
    return [_find_address_of_user(where, files, _SIGN_INS[sign_in_name].variable)]


def _find_address_of_user(
    where: AgentSurroundings, settings_files: Sequence[Path], variable: str
) -> AgentUpstream:
    if where.environ.get(variable):
        return upstream_of_variable(variable, where.environ)
    for env_file in _find_qwen_env_files(where):
        address = read_env_file_variable(env_file, variable)
        if address:
            return _upstream_of_qwen_file(env_file, variable, address, where)
    for file in settings_files:
        address = text_at(read_json_settings(file), "env", variable)
        if address:
            return _upstream_of_qwen_file(file, variable, address, where)
    for file in settings_files:
        address = text_at(read_json_settings(file), "security", "auth", "baseUrl")
        if address:
            return _upstream_of_qwen_file(file, "baseUrl", address, where)
    return AgentUpstream()


def _find_source_of_proxy(where: AgentSurroundings, settings_files: Sequence[Path]) -> str:
    """Return what names an HTTP proxy for it, or an empty text. Its version 0.24.4 asks the proxy
    for this computer's own addresses, too.
    """
    if values_of_option(where.arguments, _PROXY_OPTION):
        return f"its arguments ({_PROXY_OPTION})"
    for file in settings_files:
        settings = read_json_settings(file)
        if text_at(settings, "proxy"):
            return f"its setting `proxy` in {file}"
        for variable in _PROXY_VARIABLES:
            if text_at(settings, "env", variable):
                return f"{variable} in {file}"
    for variable in _PROXY_VARIABLES:
        if where.environ.get(variable):
            return variable
        for env_file in _find_qwen_env_files(where):
            if read_env_file_variable(env_file, variable):
                return f"{variable} in {env_file}"
    return ""


def _find_qwen_env_files(where: AgentSurroundings) -> list[Path]:
    """Return the `.env` files that Qwen Code reads, the strongest first: the nearest one of the
    project, and those in the user's folders.
    """
    files: list[Path] = []
    for folder in where.folder_and_above:
        if folder == where.home:
            break
        candidates = [folder / ".qwen" / ".env", folder / ".env"]
        of_project = [file for file in candidates if read_text_or_empty(file)]
        if of_project:
            files.append(of_project[0])
            break
    files.append(_qwen_env_file(where.home, where.environ))
    files.append(where.home / ".env")
    return files


def _upstream_of_qwen_file(
    file: Path, words: str, address: str, where: AgentSurroundings
) -> AgentUpstream:
    """Return the address in a file of the user's. One in a project's folder is refused: the key
    would go to whoever wrote the project.
    """
    location = locate_in_file(file, words)
    users_folders = (where.home, _qwen_folder(where.home, where.environ))
    if file.parent not in users_folders:
        raise refuse_agent(TITLE, f"{location} names an address. Set it in your shell to use it")
    return AgentUpstream(address=checked_address_in_settings(address, location), source=location)


def _list_bypassing_qwen_providers(
    where: AgentSurroundings, _upstreams: Sequence[AgentUpstream]
) -> list[str]:
    """Return the models that its settings declare with an address of their own, which is stronger
    than its environment.
    """
    names = set[str]()
    for file in _find_qwen_settings_files(where):
        settings = read_json_settings(file)
        providers = object_at(settings, "modelProviders")
        for provider in providers:
            models = objects_at(providers, provider)
            bypassing_models = [model for model in models if model.get("baseUrl")]
            for model in bypassing_models:
                names.add(text_at(model, "id") or provider)
    return sorted(names)


def _names_in_qwen_settings(where: AgentSurroundings) -> set[str]:
    names = set[str]()
    for file in _find_qwen_settings_files(where):
        settings = read_json_settings(file)
        names.update(object_at(settings, "model", "generationConfig", "customHeaders"))
        providers = object_at(settings, "modelProviders")
        for provider in providers:
            for model in objects_at(providers, provider):
                names.update(object_at(model, "generationConfig", "customHeaders"))
    return names


AGENT = KnownAgent(
    name="qwen",
    title=TITLE,
    program="qwen",
    npm_package="@qwen-code/qwen-code",
    launch=_build_qwen_launch,
    file=_qwen_env_file,
    change=_change_qwen_env_file,
    find_upstreams=_find_qwen_upstreams,
    recognized_by="qwen-?code",
    shell_variables=("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "QWEN_HOME"),
    find_header_names=_names_in_qwen_settings,
    list_bypassing_providers=_list_bypassing_qwen_providers,
)
