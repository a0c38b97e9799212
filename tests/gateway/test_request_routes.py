"""What a path and the headers of a request say of where it goes."""

from __future__ import annotations

import httpx
import pytest

from helix_desktop.gateway import request_routes
from helix_desktop.gateway.request_routes import RequestRoute, join_provider_address


@pytest.mark.parametrize(
    ("upstream", "path", "query", "address"),
    [
        ("https://api.example", "/v1/messages", "", "https://api.example/v1/messages"),
        (
            "https://api.example/",
            "/v1/messages",
            "beta=true",
            "https://api.example/v1/messages?beta=true",
        ),
        ("https://api.example/v1", "/v1/messages", "", "https://api.example/v1/messages"),
        ("https://api.example/v1/", "/v1/responses", "", "https://api.example/v1/responses"),
        ("https://api.example/v1", "/v1beta/models", "", "https://api.example/v1/v1beta/models"),
        (
            "https://api.example/openai/v1",
            "/responses",
            "",
            "https://api.example/openai/v1/responses",
        ),
        ("https://api.example/proxy", "/v1/messages", "", "https://api.example/proxy/v1/messages"),
    ],
)
def test_a_version_stands_once_in_the_providers_address(
    upstream: str, path: str, query: str, address: str
) -> None:
    assert join_provider_address(upstream, path, query) == address


@pytest.mark.parametrize(
    "target", ["*@other.example/v1/messages", "*.other.example/v1/messages", "/t/token*@b", "*"]
)
def test_a_target_never_becomes_a_part_of_the_hosts_name(target: str) -> None:
    """The user's stored key went to the other host."""
    path = request_routes.parse_route(target).path
    try:
        address = join_provider_address("https://api.example", path, "")
    except httpx.InvalidURL:
        return
    assert httpx.URL(address).netloc == b"api.example"


@pytest.mark.parametrize(
    ("path", "headers", "protocol"),
    [
        ("/v1/models", {"anthropic-version": "2023-06-01"}, "anthropic"),
        ("/v1/models", {"x-api-key": "k"}, "anthropic"),
        ("/v1/models", {"x-goog-api-key": "k"}, "gemini"),
        ("/v1beta/models", {}, "gemini"),
        ("/v1alpha/models", {"authorization": "Bearer k"}, "gemini"),
        ("/v1/models", {"authorization": "Bearer k"}, "openai-chat"),
    ],
)
def test_what_only_passes_through_goes_to_whose_api_it_looks_like(
    path: str, headers: dict[str, str], protocol: str
) -> None:
    assert request_routes.guess_protocol(path, headers) == protocol


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/messages", RequestRoute("/v1/messages", "anthropic")),
        (
            "/v1/messages/count_tokens",
            RequestRoute("/v1/messages/count_tokens", "anthropic", counts_tokens=True),
        ),
        ("/v1/chat/completions", RequestRoute("/v1/chat/completions", "openai-chat")),
        ("/v1/responses", RequestRoute("/v1/responses", "openai-responses")),
        ("/v1/responses/r1", RequestRoute("/v1/responses/r1")),
        ("/v1/models", RequestRoute("/v1/models")),
        ("", RequestRoute("/")),
        ("/t/secret", RequestRoute("/", token="secret")),
        (
            "/t/a%2Fb/w/W%20X/a/codex/v1/m%20n",
            RequestRoute("/v1/m%20n", token="a/b", workspace="W X", agent="codex"),
        ),
        (
            "/a/codex/t/x/v1/messages",
            RequestRoute("/v1/messages", "anthropic", token="x", agent="codex"),
        ),
    ],
)
def test_a_path_says_protocol_and_registration(path: str, route: RequestRoute) -> None:
    assert request_routes.parse_route(path) == route


@pytest.mark.parametrize(
    ("kind", "counts", "streams"),
    [
        ("generateContent", False, False),
        ("streamGenerateContent", False, True),
        ("countTokens", True, False),
    ],
)
def test_geminis_path_names_model_and_stream(kind: str, counts: bool, streams: bool) -> None:
    path = f"/v1beta/models/g-1:{kind}"
    assert request_routes.parse_route(path) == RequestRoute(path, "gemini", counts, "g-1", streams)
    assert request_routes.parse_route(f"{path}/more") == RequestRoute(f"{path}/more")


def test_headers_go_on_without_those_of_this_connection_and_of_the_gateway() -> None:
    forwarded = [
        (b"Authorization", b"Bearer k"),
        (b"X-Custom", b"a"),
        (b"x-custom", b"b"),
        (b"accept", b"*/*"),
    ]
    connection = [
        (b"Host", b"127.0.0.1"), (b"Connection", b"keep-alive"), (b"Keep-Alive", b"5"), (b"Proxy-Connection", b"x"),
        (b"TE", b"trailers"), (b"Trailer", b"x"), (b"Transfer-Encoding", b"chunked"), (b"upgrade", b"h2c"),
        (b"content-length", b"3"),
    ]  # fmt: skip
    helix = [(name.encode(), b"x") for name in request_routes.HELIX_HEADERS]
    helix += [(name.upper(), value) for name, value in helix]
    assert len(connection) == len(request_routes.CONNECTION_HEADERS)
    for kept_here in (connection, helix):
        assert request_routes.headers_to_forward(kept_here) == []
        assert (
            request_routes.headers_to_forward([*forwarded[:2], *kept_here, *forwarded[2:]])
            == forwarded
        )


def test_the_key_that_is_none_is_left_out_whatever_header_has_it() -> None:
    headers = [
        (b"authorization", request_routes.NO_KEY),
        (b"x-api-key", b"k"),
        (b"authorization", b"Bearer other"),
    ]
    assert request_routes.headers_to_forward(headers) == headers[1:]
    assert request_routes.headers_to_forward([(b"x-other", request_routes.NO_KEY)]) == []
