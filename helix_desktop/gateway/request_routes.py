"""Recognises requests by path, and chooses the provider address for them."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import CODEX_SUBSCRIPTION_PATH
from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gemini import gemini_gateway
from helix_desktop.protocols.openai_chat import chat_gateway
from helix_desktop.protocols.protocol_table import PROTOCOLS
from helix_desktop.resources import read_word_lists

STATUS = "/.helix/status"
UPSTREAMS = {name: protocol.provider_address for name, protocol in PROTOCOLS.items()}
_GEMINI = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)$")
_PROTOCOL_BY_ENDING = {
    ending: protocol.name for protocol in PROTOCOLS.values() for ending in protocol.path_endings
}
_PREFIX = re.compile(
    r"^(?:/t/(?P<token>[^/]+)|/w/(?P<workspace>[^/]+)|/a/(?P<agent>[^/]+))*(?=/|$)"
)
_FORWARDED = read_word_lists("forwarded_headers")
_FORWARDED_TO_ALL = _FORWARDED["every"] + _FORWARDED["sessions"] + _FORWARDED["services"]
_SLASHES = re.compile(r"[/\\]")
MOST_UNQUOTINGS = 3
SHORTEST_TOKEN = 16
CONNECTION_HEADERS = frozenset(_FORWARDED["connection"])
OWN_PREFIX = "x-helix-"  # Headers for the gateway itself.
# In place of the names of headers that an agent's settings add, where nobody knows its settings.
ANY_OWN_NAME = "x-*"
NO_KEY = b"Bearer acp-proxy"  # Claude Code over ACP sends it besides the key from `providers/set`.


@dataclass(frozen=True, slots=True)
class RequestRoute:
    """`wire`: the protocol; empty for what is passed through. `counts_tokens`: it only
    asks to count tokens.
    """

    path: str
    wire: str = ""
    counts_tokens: bool = False
    model: str = ""
    streams: bool | None = None
    token: str = ""
    workspace: str = ""
    agent: str = ""


def parse_route(raw_path: str) -> RequestRoute:
    """Parse a path, which may begin with `/t/TOKEN`, `/w/WORKSPACE` or `/a/AGENT`. Quotes stay."""
    path = raw_path
    named_parts: dict[str, Any] = {}  # The token, the workspace and the agent.
    prefix = _PREFIX.match(raw_path)
    if prefix is not None:
        path = raw_path[prefix.end() :]
        for name, value in prefix.groupdict(default="").items():
            named_parts[name] = unquote(value)
    path = path or "/"

    for ending, protocol in _PROTOCOL_BY_ENDING.items():
        if path.endswith(ending):
            counts_tokens = ending.endswith("/count_tokens")
            return RequestRoute(path, protocol, counts_tokens=counts_tokens, **named_parts)

    # Gemini's paths name the model, and what is to be done with it.
    gemini = _GEMINI.search(path)
    if gemini is None:
        return RequestRoute(path, **named_parts)
    model, method = gemini.groups()
    return RequestRoute(
        path,
        gemini_gateway.NAME,
        counts_tokens=method == "countTokens",
        model=model,
        streams=method == "streamGenerateContent",
        **named_parts,
    )


def guess_protocol(path: str, headers: Mapping[str, str]) -> str:
    """Return whose API a request that is passed through is meant for."""
    if "anthropic-version" in headers or "x-api-key" in headers:
        return anthropic_gateway.NAME
    if "x-goog-api-key" in headers or "/v1beta" in path or "/v1alpha" in path:
        return gemini_gateway.NAME
    return chat_gateway.NAME


def headers_to_forward(
    headers: Sequence[tuple[bytes, bytes]],
    protocol: str,
    own_names: Collection[str] = (),
    token: str = "",
) -> list[tuple[bytes, bytes]]:
    """Return the headers that the protocol's providers know, and those of the agent's settings.

    What else came along stays here, such as a cookie, what a proxy noted about this
    computer, or a page's address with the gateway's token. `own_names` are in lower case.
    `token`: of the gateway's address; a header that has it is not sent on, whatever its name.
    """
    connection_names = _headers_of_this_connection(headers)
    forwarded: list[tuple[bytes, bytes]] = []
    for raw_name, value in headers:
        name = raw_name.decode("latin-1").lower()
        if has_token(value.decode("latin-1"), token):
            continue
        is_wanted = is_known_header(name, protocol) or _is_own_header(name, own_names)
        if is_wanted and name not in connection_names and value != NO_KEY:
            forwarded.append((raw_name, value))
    return forwarded


def has_token(text: str, token: str) -> bool:
    """Whether a text has the token of an address. Shorter ones than ours could be in any word."""
    return len(token) >= SHORTEST_TOKEN and token in text


def is_known_header(name: str, protocol: str) -> bool:
    """Whether providers of this protocol know a header. A known name may end with an asterisk,
    which stands for any ending.
    """
    return _is_among(name, _FORWARDED_TO_ALL + _FORWARDED[protocol])


def _is_among(name: str, known_names: Sequence[str]) -> bool:
    for known_name in known_names:
        if name == known_name:
            return True
        if known_name.endswith("*") and name.startswith(known_name.removesuffix("*")):
            return True
    return False


def _is_own_header(name: str, own_names: Collection[str]) -> bool:
    """Whether the agent's settings add this header, and it is not meant for the gateway."""
    if name in CONNECTION_HEADERS or name.startswith(OWN_PREFIX):
        return False
    if name in own_names:
        return True
    if ANY_OWN_NAME not in own_names or _is_among(name, _FORWARDED["notes"]):
        return False
    return name.startswith(ANY_OWN_NAME.removesuffix("*"))


def _headers_of_this_connection(headers: Sequence[tuple[bytes, bytes]]) -> set[str]:
    """Return the headers that `Connection` names: they are meant for the next program only."""
    names = set[str]()
    for name, value in headers:
        if name.lower() == b"connection":
            named = value.decode("latin-1").lower().split(",")
            names.update(word.strip() for word in named)
    return names


def join_provider_address(upstream: str, path: str, query: str) -> str:
    """Return where the request goes. A version that ends the address and begins the
    path is used once.
    """
    # The window imports this module before it is complete, and sends nothing.
    import httpx

    if not path.startswith("/"):  # `*@other.example` would become a host name.
        raise httpx.InvalidURL("the path does not begin with a slash")
    if _leaves_its_folder(path):  # A registration names an address, not the whole server.
        raise httpx.InvalidURL("the path leads out of the provider's address")
    base_url = upstream.rstrip("/")
    version = urlsplit(base_url).path.rpartition("/")[2]
    path_behind_version = path
    if version and path.startswith(f"/{version}/"):
        path_behind_version = path.removeprefix(f"/{version}")
    elif base_url.endswith(CODEX_SUBSCRIPTION_PATH):
        # Codex asks ChatGPT without a version, but our address for it has one.
        path_behind_version = path.removeprefix("/v1")
    if not query:
        return f"{base_url}{path_behind_version}"
    return f"{base_url}{path_behind_version}?{query}"


def _leaves_its_folder(path: str) -> bool:
    """Whether a server could take the path for one that goes up by `..`, as it is or quoted.

    Servers behind each other may unquote a path more than once.
    """
    read_path = path
    for _ in range(MOST_UNQUOTINGS + 1):
        for segment in _SLASHES.split(read_path):
            # Some servers ignore what stands behind a semicolon.
            if segment.partition(";")[0] == "..":
                return True
        read_path = unquote(read_path)
    return False
