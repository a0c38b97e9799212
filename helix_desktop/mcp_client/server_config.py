"""The configuration of MCP servers, in the forms that people paste and as the workspace stores it.

Accepted are `{"mcpServers": {…}}` (Claude, Cursor), `{"servers": {…}, "inputs": […]}`
(VS Code), `{"context_servers": {…}}` (Zed), a table of servers, a single server, an
address or a command line, with comments and trailing commas. Secrets are moved to the
keyring, and a server can use only its own. `autoApprove` and its like are shown, but
never obeyed.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any
from urllib.parse import urlsplit

from helix_desktop.commented_json import blank_comments
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import list_at, object_at, text_at
from helix_desktop.secrets import McpServerSecret, McpSignIn

START_SECONDS = 60.0
CALL_SECONDS = 600.0
_WRAPPERS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp.servers")
_APPROVALS = ("autoApprove", "alwaysAllow", "auto_approve", "trust")
_SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth|cookie|\bpat\b|_pat$|dsn|private")
_LOOKS_SECRET = re.compile(
    r"(?i)^(bearer |basic |token )|^(sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|AIza)|://[^/@:\s]+:[^/@\s]+@"
)
# What documentation writes where a key belongs: <your token>, YOUR_API_KEY, sk-..., xxxx.
_PLACEHOLDER = re.compile(
    r"(?i)<[^<>]*>|\[[^\]]*\]|(?:.*[_ -])?your[_ -].*|.*[_-]here|(?:\w+[_-])?(?:x{3,}|\*{3,}|\.{3}|…)|change[_-]?me"
)
_REFERENCE = re.compile(r"\$\{(?:(env|input|secret|config):)?([^{}:]+)(?::-([^{}]*))?\}")
_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NAMED = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)(=|: *)(.+)", re.DOTALL)
_PARAMETER = re.compile(r"([?&])([^=&#?]+)=([^&#]+)")
# A password may have an @ itself, so it goes up to the last one before a slash. What stands alone
# before the host of a web address is a token. A $ begins a reference, which is no secret.
_PASSWORD = re.compile(r"^(\w+://[^/@:\s]+:|https?://(?=[^/:\s]*@))([^/\s$]+)@", re.IGNORECASE)
_INTERPRETER = re.compile(r"(python[\d.]*|node|bun|deno|ruby|php|bash|sh|java)(\.exe)?")
# These run the package that is their first word.
_PACKAGE_RUNNERS = frozenset(("npx", "bunx", "pnpx", "uvx"))
_RUNNER_OPTIONS_WITH_VALUE = frozenset(
    ("-p", "--package", "--from", "--with", "--python", "--index-url", "--registry")
)
_PATH_OR_OPTION = ("-", "/", ".", "~", "$")
_SCRIPT_SUFFIXES = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".php", ".sh", ".jar")
_GENERAL_SCRIPT_NAMES = frozenset(
    (
        "index",
        "main",
        "__main__",
        "mcp",
        "mcp_server",
        "server",
        "cli",
        "app",
        "dist",
        "build",
        "src",
        "lib",
        "bin",
    )
)
_LISTS = ("args", "off", "reading", "approvals")
_LONGEST_MILLISECONDS = 7 * 86_400_000
_SHORTEST = 8
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server. `kind`: stdio, http or sse. `${secret:…}` and `${env:…}` are filled
    in when it starts.

    `off`: tools that the user turned off. `reading`: tools that the user marked as only
    reading, so that they run in plan mode, too. `approvals`: what the pasted text
    wanted to be approved unseen; it is shown, but never obeyed. `other`: keys without a
    meaning here. `bound`: the workspace it was pasted into, whose secrets it may use;
    empty if written by hand.
    """

    name: str
    kind: str = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    start_seconds: float = START_SECONDS
    call_seconds: float = CALL_SECONDS
    off: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()
    other: Mapping[str, Any] = field(default_factory=dict)
    bound: str = ""

    def as_settings_table(self) -> dict[str, Any]:
        """Return a table for the workspace's settings, which `parse_server_table` reads."""
        other = ""
        if self.other:
            # Settings are TOML, which cannot hold every JSON value.
            other = json.dumps(dict(self.other), ensure_ascii=False)
        values: dict[str, Any] = {
            "kind": self.kind,
            "command": self.command,
            "args": list(self.args),
            "env": dict(self.env),
            "folder": self.folder,
            "url": self.url,
            "headers": dict(self.headers),
            "start_seconds": self.start_seconds,
            "call_seconds": self.call_seconds,
            "off": list(self.off),
            "reading": list(self.reading),
            "approvals": list(self.approvals),
            "other": other,
            "bound": self.bound,
        }
        table: dict[str, Any] = {}
        for key, value in values.items():
            if value not in ("", [], {}):
                table[key] = value
        table["enabled"] = self.enabled  # A server that is turned off stays so.
        return table

    @property
    def registered_client(self) -> Mapping[str, str]:
        """Return a client that the user registered: `clientId`, `clientSecret`, `callbackPort`."""
        return _get_text_table(self.other, "oauth")

    @property
    def description_without_secrets(self) -> str:
        """Return what it runs or reaches on one line, without secrets."""
        if self.kind != "stdio":
            return self.url
        words = [self.command]
        words.extend(self.args)
        return shlex.join(words)

    @property
    def texts_with_references(self) -> tuple[tuple[str, str], ...]:
        """Return every text that may contain a reference, each with a description of its place."""
        texts = [("command", self.command)]
        for number, value in enumerate(self.args, 1):
            texts.append((f"argument {number}", value))
        for name, value in self.env.items():
            texts.append((f"environment variable {name}", value))
        texts.append(("address", self.url))
        for name, value in self.headers.items():
            texts.append((f"header {name}", value))
        for name, value in self.registered_client.items():
            texts.append((f"sign-in setting {name}", value))
        return tuple(texts)

    @property
    def full_description_without_secrets(self) -> str:
        """Describe it with every header and variable, a line each. Secrets are shown as dots.

        Nothing is shortened: the user agrees to this text.
        """
        lines = [self.description_without_secrets]
        for name, value in self.env.items():
            lines.append(f"{name}={value}")
        for name, value in self.headers.items():
            lines.append(f"{name}: {value}")
        for name, value in self.registered_client.items():
            lines.append(f"{name}: {value}")
        return "\n".join(_REFERENCE.sub(_dots_for_secret, line) for line in lines)

    @property
    def _secret_binding(self) -> str:
        """Return what the server's secrets are bound to: a server that reaches another address or
        runs another command gets none of them.
        """
        if not self.bound:
            return ""
        if self.kind == "stdio":
            target = self.description_without_secrets
        else:
            target = self.url_origin
        bound_to = f"{self.bound}\0{self.kind}\0{target}"
        return hashlib.sha256(bound_to.encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def url_origin(self) -> str:
        """Return the origin of the server's address, which decides which secrets may be
        sent there.
        """
        try:
            parts = urlsplit(_REFERENCE.sub("", self.url))
        except ValueError:
            return self.url
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()

    @property
    def sign_in_secret(self) -> McpSignIn:
        """Return the secret under which tokens from signing in are stored."""
        return McpSignIn(self.name, self._secret_binding)

    def referenced_secret(self, reference: str) -> McpServerSecret:
        """Return the secret that `${secret:…}` names. ActionRefused: it belongs to
        another server.
        """
        own_prefix = f"mcp/{self.name}/"
        if not reference.startswith(own_prefix):
            location = self._place_of_reference(reference)
            raise ActionRefused(
                f"The MCP server {self.name} asks for the secret {reference[:60]!r} in its {location}, but this secret does not belong to this server. The secret was not sent.",
                remedy="Enter the secret's value, not a reference to it.",
            )
        return McpServerSecret(self.name, reference.removeprefix(own_prefix), self._secret_binding)

    def _place_of_reference(self, reference: str) -> str:
        """Say in which setting a secret is referred to."""
        for location, text in self.texts_with_references:
            if f"secret:{reference}" in text:
                return location
        return "configuration"


def _dots_for_secret(reference: re.Match[str]) -> str:
    if reference[1] in ("secret", "input"):
        return "••••••"
    return reference.group()


@dataclass(frozen=True, slots=True)
class PastedServers:
    """A pasted text's content: servers without their secrets, and secrets by the name
    to store them under.
    """

    servers: tuple[ServerConfig, ...]
    secrets: Mapping[str, str]


def parse_server_table(name: str, table: Mapping[str, Any]) -> ServerConfig:
    """Return a server that stands in a workspace's settings.

    What the program wrote there has a `kind`. One written by hand may be of any pasted form.
    """
    if "kind" not in table:
        return replace(_build_server_config(name, table), name=name)
    values: dict[str, Any] = {}
    for key in ("kind", "command", "folder", "url", "bound"):
        values[key] = text_at(table, key)
    for key in _LISTS:
        values[key] = _get_text_list(table, key)
    for key in ("env", "headers"):
        values[key] = _get_text_table(table, key)
    other_as_json = text_at(table, "other")
    values["other"] = {}
    if other_as_json:
        values["other"] = json.loads(other_as_json)
    values["enabled"] = table.get("enabled", True) is True
    values["start_seconds"] = float(table.get("start_seconds", START_SECONDS))
    values["call_seconds"] = float(table.get("call_seconds", CALL_SECONDS))
    return ServerConfig(name, **values)


def parse_pasted_text(text: str, *, name: str = "") -> PastedServers:
    """Return the servers in a text that the user pasted, with their secrets apart.

    It is JSON in the form of some program, an address, or a command line. `name` is for forms
    without one. Raises InvalidInput, which says what is wrong.
    """
    if len(text) > _LONGEST:
        raise InvalidInput("This text is too long for an MCP server configuration.")
    pasted = text.strip()
    is_json = pasted.startswith(("{", '"', "["))
    if not is_json:
        return _separate_secrets([_parse_bare_server(pasted, name)])

    tables = _find_server_tables(_parse_lenient_json(pasted), name)
    if not tables:
        raise InvalidInput(
            "This text doesn't contain an MCP server configuration.",
            remedy='An MCP server needs a "command" or a "url".',
        )
    servers = [_build_server_config(own_name, table) for own_name, table in tables.items()]
    return _separate_secrets(servers)


def _parse_bare_server(text: str, name: str) -> ServerConfig:
    """Parse an address, or a command line as its documentation prints it."""
    if re.match(r"https?://\S+$", text):
        name_of_address = legal_server_name(name or _name_of_host(text))
        return ServerConfig(name_of_address, "http", url=text)
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if not words or "\n" in text:
        raise InvalidInput("No MCP server was found in this text.", remedy="Enter the server's command line, address or JSON configuration.")  # fmt: skip
    server_name = legal_server_name(name or _name_of_package(words))
    return ServerConfig(server_name, command=words[0], args=tuple(words[1:]))


def _name_of_package(words: Sequence[str]) -> str:
    """Return a name for a server, from its command line.

    Most are started by another program: `npx -y @scope/server@latest` is named `server`.
    """
    if _INTERPRETER.fullmatch(words[0].rpartition("/")[2]):
        for word in words[1:]:
            if word.endswith(_SCRIPT_SUFFIXES):
                return _name_of_script(word)
    package = _find_package_for_runner(words) or words[0]
    if package == words[0]:
        for word in words:
            if not word.startswith(_PATH_OR_OPTION):
                package = word  # The last one that is neither an option nor a path.
    if package.endswith(_SCRIPT_SUFFIXES):
        return _name_of_script(package)
    name_and_version = package.rpartition("/")[2]
    return name_and_version.partition("@")[0]


def _find_package_for_runner(words: Sequence[str]) -> str:
    """Return the package that a program such as npx runs, or nothing if it is no such program.

    What follows the package are the server's own words, such as the folders that it may read.
    """
    if words[0].rpartition("/")[2].partition(".")[0] not in _PACKAGE_RUNNERS:
        return ""
    is_value_of_option = False
    for word in words[1:]:
        if is_value_of_option or word.startswith("-"):
            is_value_of_option = not is_value_of_option and word in _RUNNER_OPTIONS_WITH_VALUE
        else:
            return word
    return ""


def _name_of_script(script: str) -> str:
    """Return a name for a server, from its script: `weather` for `weather.py`.

    A general name says nothing, so `weather/build/index.js` is named by its folder, too.
    """
    parts = script.replace("\\", "/").split("/")
    file_stem = parts[-1].rpartition(".")[0]
    for part in [file_stem] + parts[-2::-1]:
        if part.strip(".") and part not in _GENERAL_SCRIPT_NAMES:
            return part
    return file_stem


def _name_of_host(address: str) -> str:
    """Return a name for a server, from its address: `example` for `https://mcp.example.org/`."""
    try:
        host = urlsplit(address).hostname or "server"
    except ValueError as error:
        raise InvalidInput(
            f"This address isn't valid: {error}.", remedy="Check the brackets in the address."
        ) from None
    parts = host.split(".")
    if len(parts) == 1:
        return host
    return parts[-2]


def _parse_lenient_json(text: str) -> dict[str, Any]:
    """Return the object in a JSON text, which may have comments and trailing commas.

    Raises InvalidInput for anything else.
    """
    whole_text = text
    if text.startswith('"'):  # The user may paste a part without braces: "github": {…}
        whole_text = "{" + text.rstrip().rstrip(",") + "}"
    try:
        value = json.loads(blank_comments(whole_text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"This text is not valid JSON: {error}.",
            remedy="Paste the whole configuration, from the first brace to the last.",
        ) from None
    if not isinstance(value, dict):
        raise InvalidInput("This JSON value is not an object.")
    return value


def _find_server_tables(pasted: Mapping[str, Any], name: str) -> dict[str, Mapping[str, Any]]:
    """Return the settings of each server by its name, in whichever form programs write them.

    Most programs have them in a table under a name such as `mcpServers`. A single server has
    no name but what it says itself, or the given one.
    """
    settings = pasted
    if isinstance(pasted.get("mcp"), dict):  # VS Code's settings have servers under "mcp".
        settings = pasted["mcp"]
    for wrapper in _WRAPPERS:
        if isinstance(settings.get(wrapper), dict):
            return _tables_in(settings[wrapper])
    if _is_single_server(settings):
        server_name = str(settings.get("name") or name or "server")
        return {server_name: settings}
    return _tables_in(settings)


def _is_single_server(pasted: Mapping[str, Any]) -> bool:
    """Whether these are the settings of one server, and not a table of servers."""
    has_server_key = any(key in pasted for key in ("command", "url", "serverUrl", "httpUrl"))
    if not has_server_key:
        return False
    if "args" in pasted:
        return True
    # A server may itself be called "url", and Zed writes a table under "command".
    has_only_tables = all(isinstance(value, dict) for value in pasted.values())
    return not has_only_tables


def _tables_in(values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    tables: dict[str, Mapping[str, Any]] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            tables[str(key)] = value
    return tables


# The keys of a pasted server that are understood. All others are kept as they are.
_KNOWN_KEYS = frozenset((
    "command", "args", "env", "url", "serverUrl", "httpUrl", "headers", "cwd", "disabled", "enabled", "type",
    "timeout", "name", "transport", "path", "autoApprove", "alwaysAllow", "auto_approve", "trust",
))  # fmt: skip


def _build_server_config(name: str, table: Mapping[str, Any]) -> ServerConfig:
    """Return a server from its pasted settings, in whichever form they are.

    It is a program to start, or an address to connect to. Raises InvalidInput if it is neither.
    """
    settings = _without_zeds_nesting(table)
    words = _read_command_words(name, settings)
    url = _find_server_address(settings)
    if not words and not url:
        raise InvalidInput(f"The server {name[:60]!r} has neither a command nor a url.")
    is_turned_off = settings.get("disabled") is True or settings.get("enabled") is False
    environment = _get_text_table(settings, "env")
    headers = _get_text_table(settings, "headers")
    call_seconds = _parse_timeout_seconds(settings.get("timeout"))
    other_settings = {key: value for key, value in settings.items() if key not in _KNOWN_KEYS}
    server = ServerConfig(
        legal_server_name(name),
        env=environment,
        folder=text_at(settings, "cwd"),
        headers=headers,
        enabled=not is_turned_off,
        call_seconds=call_seconds,
        approvals=_parse_approvals(settings),
        other=other_settings,
    )
    if words:
        return replace(server, kind="stdio", command=words[0], args=tuple(words[1:]))

    kind = "http"
    transport = str(settings.get("type") or settings.get("transport") or "")
    if transport.lower() == "sse":
        kind = "sse"
    args = _get_text_list(settings, "args")
    return replace(server, kind=kind, url=url, args=args)


def _without_zeds_nesting(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings with program and arguments side by side. Zed writes
    {"command": {"path": …, "args": …, "env": …}}.
    """
    command = table.get("command")
    if not isinstance(command, dict):
        return table
    flat_table = dict(table)
    flat_table.update(command)
    flat_table["command"] = command.get("path", "")
    flat_table["args"] = command.get("args")
    return flat_table


def _read_command_words(name: str, table: Mapping[str, Any]) -> list[str]:
    """Return the program and its arguments, or nothing if the server has no program."""
    command = table.get("command", "")
    if isinstance(command, list):
        words = [str(word) for word in command]
    elif isinstance(command, str):
        words = [command]
    else:
        raise InvalidInput(f"The server {name[:60]!r} has neither a command nor a url.")
    if not words or not words[0]:
        return []
    words.extend(_get_text_list(table, "args"))
    return words


def _find_server_address(table: Mapping[str, Any]) -> str:
    for key in ("url", "serverUrl", "httpUrl"):
        if table.get(key):
            return str(table[key])
    return ""


def _parse_approvals(table: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the settings want to be allowed without a question."""
    approvals: list[str] = []
    for key in _APPROVALS:
        value = table.get(key)
        if isinstance(value, list):
            approvals.extend(map(str, value))
        elif value is True:
            approvals.append("everything")
    return tuple(approvals)


def _parse_timeout_seconds(value: object) -> float:
    """Return a timeout, which some programs give in milliseconds. Nobody waits for an hour."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return CALL_SECONDS
    if value > _LONGEST_MILLISECONDS:
        return _LONGEST_MILLISECONDS / 1000
    if value > 3600:
        return value / 1000
    if value > 0:
        return float(value)
    return CALL_SECONDS  # Nothing, less, or what is no number (NaN).


def legal_server_name(name: str) -> str:
    """Return a name that can be in tools' names."""
    return _NAME.sub("-", name).strip("-")[:40] or "server"


# --- Moving secrets from a server's settings into the keyring


def _separate_secrets(servers: list[ServerConfig]) -> PastedServers:
    """Return the servers with `${secret:…}` in place of each secret, and the secrets.

    Raises ActionRefused for a pasted reference to a secret of another server.
    """
    secrets: dict[str, str] = {}
    servers_without_secrets = []
    for server in servers:
        name = server.name
        for reference in secret_references(server):  # Pasted references. Our own are added below.
            server.referenced_secret(reference)
        environment = _hide_secrets_in_table(name, server.env, secrets)
        headers = _hide_secrets_in_table(name, server.headers, secrets)
        arguments = _hide_secrets_in_args(name, server.args, secrets)
        url = _hide_secrets_in_url(name, server.url, secrets)
        other = _hide_secrets_inside(name, "other", dict(server.other), secrets)
        server_without_secrets = replace(
            server, env=environment, headers=headers, args=arguments, url=url, other=other
        )
        servers_without_secrets.append(server_without_secrets)
    return PastedServers(tuple(servers_without_secrets), secrets)


def _hide_secrets_in_table(
    server: str, table: Mapping[str, str], secrets: dict[str, str]
) -> dict[str, str]:
    """Return the table with references for its secrets, which are added to `secrets`."""
    hidden: dict[str, str] = {}
    for key, value in table.items():
        hidden[key] = _hide_secret_value(server, key, value, secrets)
    return hidden


def _hide_secrets_in_args(
    server: str, args: Sequence[str], secrets: dict[str, str]
) -> tuple[str, ...]:
    """Return a program's arguments with references for the secrets, which are added to `secrets`.

    They are found in `--api-key X`, `--api-key=X` and `--header "Authorization: Bearer X"`, and
    where an argument looks like a key.
    """
    args_without_secrets: list[str] = []
    previous_argument = ""
    for number, argument in enumerate(args, 1):
        option = ""
        if previous_argument.startswith("-") and "=" not in previous_argument:
            option = previous_argument
        previous_argument = argument

        named_value = _NAMED.match(argument)
        if named_value is not None:
            name, sign, value = named_value.groups()
            if _may_be_secret(name, value):
                hidden = _hide_secret_value(server, name.lstrip("-"), value, secrets)
                args_without_secrets.append(f"{name}{sign}{hidden}")
                continue

        key = f"argument {number}"
        if _may_be_secret(option, argument):
            key = option.lstrip("-")
        args_without_secrets.append(_hide_secret_value(server, key, argument, secrets))
    return tuple(args_without_secrets)


def _may_be_secret(option: str, value: str) -> bool:
    """Whether an option's name says that its value is a secret. Short words are an option's
    choices, and paths only point to secrets.
    """
    if not _SECRET.search(option) or len(value) < _SHORTEST:
        return False
    return not value.startswith(("/", "./", "../", "~", "-", "http:", "https:"))


def _hide_secrets_in_url(server: str, url: str, secrets: dict[str, str]) -> str:
    """Return an address with references for its secrets, which are added to `secrets`.

    They may be in its parameters, or be a password before its host.
    """

    def hide_parameter(parameter: re.Match[str]) -> str:
        """Return a parameter of the address with a reference for its value, if this is a secret."""
        sign, name, value = parameter.groups()
        if not _SECRET.search(name) or _REFERENCE.search(value):
            return parameter.group()
        return f"{sign}{name}={_add_secret(server, name, value, secrets)}"

    def hide_password(password: re.Match[str]) -> str:
        before_password, value = password.groups()
        return f"{before_password}{_add_secret(server, 'password', value, secrets)}@"

    url_without_password = _PASSWORD.sub(hide_password, url)
    return _PARAMETER.sub(hide_parameter, url_without_password)


def _hide_secrets_inside(server: str, key: str, value: Any, secrets: dict[str, str]) -> Any:
    """Hide secrets at any depth in keys that are only stored, not used."""
    if isinstance(value, str):
        return _hide_secret_value(server, key, value, secrets)
    if isinstance(value, list):
        return [_hide_secrets_inside(server, key, item, secrets) for item in value]
    if isinstance(value, dict):
        return {
            name: _hide_secrets_inside(server, str(name), item, secrets)
            for name, item in value.items()
        }
    return value


def _hide_secret_value(server: str, key: str, value: str, secrets: dict[str, str]) -> str:
    """Return a reference for a value that seems to be a secret, which is added to `secrets`.
    Other values stay. Raises InvalidInput for an example that documentation has in its place.
    """
    if _SECRET.search(key) and _PLACEHOLDER.fullmatch(value.strip()):
        raise InvalidInput(
            f"{key} still has the example “{value}”.",
            remedy="Replace it with your own value.",
        )
    if _REFERENCE.search(value):
        return _replace_input_references(server, value)
    is_secret = _SECRET.search(key) or _LOOKS_SECRET.search(value)
    if not value or not is_secret:
        return value
    return _add_secret(server, key, value, secrets)


def _add_secret(server: str, key: str, value: str, secrets: dict[str, str]) -> str:
    """Add a secret of the server to `secrets`, and return a reference to it.

    A second secret with the same key, as in `--token X --token Y`, gets a number. Otherwise both
    places would get the last one.
    """
    name = f"mcp/{server}/{key}"
    number = 1
    while secrets.get(name, value) != value:
        number += 1
        name = f"mcp/{server}/{key} {number}"
    secrets[name] = value
    return f"${{secret:{name}}}"


def _replace_input_references(server: str, value: str) -> str:
    """Replace VS Code's `${input:token}` by a secret to ask for."""

    def replace_reference(reference: re.Match[str]) -> str:
        if reference[1] != "input":
            return reference.group()
        return f"${{secret:mcp/{server}/{reference[2]}}}"

    return _REFERENCE.sub(replace_reference, value)


def secret_references(server: ServerConfig) -> tuple[str, ...]:
    """Return the names of the secrets that a server refers to, each once."""
    names: list[str] = []
    for _, text in server.texts_with_references:
        for reference in _REFERENCE.finditer(text):
            kind, name, _default = reference.groups()
            if kind == "secret" and name not in names:
                names.append(name)
    return tuple(names)


def fill_in_references(
    server: ServerConfig, secrets: Mapping[str, str], environment: Mapping[str, str]
) -> ServerConfig:
    """Return a server with values in place of its references, just before it is started.

    `${secret:…}` stands for a secret of its own, `${env:…}` and `${…}` for a variable. Raises
    InvalidInput for a missing secret.
    """

    def value_of_reference(reference: re.Match[str]) -> str:
        """Return the value that a reference stands for."""
        kind, name, default = reference.groups()
        if kind == "secret":
            if name not in secrets:
                raise InvalidInput(
                    f"The secret {name} for the server {server.name} is missing.",
                    remedy="Enter the value of the missing secret.",
                )
            return secrets[name]
        if kind in (None, "env"):
            return environment.get(name, default or "")
        return reference.group()

    def fill_in_text(text: str) -> str:
        return _REFERENCE.sub(value_of_reference, text)

    def fill_in_values(table: Mapping[str, str]) -> dict[str, str]:
        return {key: fill_in_text(value) for key, value in table.items()}

    environment_of_server = fill_in_values(server.env)
    headers = fill_in_values(server.headers)
    arguments = [fill_in_text(argument) for argument in server.args]
    url = fill_in_text(server.url)
    other = dict(server.other)
    other["oauth"] = fill_in_values(server.registered_client)
    return replace(
        server,
        env=environment_of_server,
        headers=headers,
        args=tuple(arguments),
        url=url,
        other=other,
    )


def _get_text_list(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(map(str, list_at(table, key)))


def _get_text_table(table: Mapping[str, Any], key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in object_at(table, key).items()}
