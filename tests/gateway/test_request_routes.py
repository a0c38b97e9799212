"""What a path and the headers of a request say of where it goes."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.gateway import request_routes
from helix_desktop.gateway.registration import new_token
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
        (
            "https://chatgpt.com/backend-api/codex",
            "/v1/responses",
            "",
            "https://chatgpt.com/backend-api/codex/responses",
        ),
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
    "path",
    [
        "/../other/v1/messages",
        "/v1/../../other/v1/messages",
        "/%2e%2e/other/v1/messages",
        "/.%2E/other/v1/messages",
        "/..%2fother/v1/messages",
        "/..%5Cother/v1/messages",
        "/..\\other/v1/messages",
        "/%252e%252e/other/v1/messages",
        "/%25252e./other/v1/messages",
        "/..;a=b/other/v1/messages",
        "/v1/messages/..",
    ],
)
def test_a_path_does_not_leave_the_address_that_the_registration_names(path: str) -> None:
    """The defect: an agent with a token reached all of the provider's server with the stored key."""
    with pytest.raises(httpx.InvalidURL):
        join_provider_address("https://company.example/for-this-team", path, "")


def test_names_with_dots_are_no_way_out() -> None:
    for path in ("/v1beta/models/a..b:countTokens", "/v1/files/...", "/v1/./x", "/.helix/x"):
        assert (
            join_provider_address("https://a.example/b", path, "") == f"https://a.example/b{path}"
        )


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


# What each agent's requests had, as captured on this computer or as its source says.
SENT_BY_AGENTS = {
    "anthropic": "x-api-key authorization anthropic-version anthropic-beta anthropic-dangerous-direct-browser-access "
    "x-app x-claude-code-session-id x-claude-code-agent-id x-stainless-lang x-stainless-retry-count user-agent accept",
    "openai-chat": "authorization openai-organization openai-project http-referer x-title x-session-affinity "
    "x-stainless-os idempotency-key accept-language x-dashscope-cachecontrol copilot-integration-id editor-version",
    "openai-responses": "authorization chatgpt-account-id originator version session_id session-id thread-id "
    "conversation_id openai-beta x-codex-turn-metadata x-codex-beta-features x-openai-subagent x-client-request-id "
    "x-responsesapi-include-timing-metrics x-codex-parent-thread-id content-encoding",
    "gemini": "x-goog-api-key x-goog-api-client x-goog-user-project x-server-timeout user-agent content-type",
}
# What other programs between agent and gateway add, and what is for the gateway alone.
NOT_FOR_PROVIDERS = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "proxy-authorization",
    "proxy-authenticate",
    "cookie",
    "cookie2",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-forwarded-server",
    "x-forwarded-prefix",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-ipcountry",
    "fastly-client-ip",
    "expect",
    "http2-settings",
    "referer",
    "origin",
    "from",
    "date",
    "alt-used",
    "early-data",
    "sec-websocket-key",
    "sec-fetch-mode",
    "sec-ch-ua",
    "dnt",
    "authentication-info",
    "www-authenticate",
    "x-csrf-token",
    "traceparent",
    "tracestate",
    "baggage",
    "sentry-trace",
    "x-amzn-trace-id",
    "x-b3-traceid",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method-override",
    "x-remote-user",
    "x-helix-token",
    "x-helix-agent",
    "x-helix-conversation",
    "x-helix-parent",
    "x-helix-upstream",
    "x-helix-of-tomorrow",
    "anthropic",
    "openai",
    "x-stainless",
    "x-unheard-of",
]


@pytest.mark.parametrize("protocol", SENT_BY_AGENTS)
def test_what_agents_send_to_their_provider_goes_on(protocol: str) -> None:
    names = SENT_BY_AGENTS[protocol].split()
    headers = [(name.title().encode(), b"a") for name in names]
    assert request_routes.headers_to_forward(headers, protocol) == headers


@settings(max_examples=150)
@given(st.data())
def test_no_provider_gets_what_it_does_not_know(data: st.DataObject) -> None:
    """In any order, writing and number, and among those that it knows."""
    protocol = data.draw(st.sampled_from(sorted(SENT_BY_AGENTS)))
    known = data.draw(st.lists(st.sampled_from(SENT_BY_AGENTS[protocol].split()), unique=True))
    strange = data.draw(st.lists(st.sampled_from(NOT_FOR_PROVIDERS)))
    made_up = [f"x-my-{word}" for number, word in enumerate(strange) if number % 3 == 0]
    nominated = data.draw(st.sets(st.sampled_from(known))) if known else set()
    headers = [(name.encode(), b"known") for name in known]
    headers += [(name.title().encode(), b"strange") for name in strange + made_up]
    if nominated:
        headers.append((b"Connection", ", ".join(sorted(nominated)).upper().encode()))
    mixed = data.draw(st.permutations(headers))
    forwarded = request_routes.headers_to_forward(mixed, protocol)
    assert {name.decode() for name, _ in forwarded} == set(known) - nominated


def test_headers_of_the_agents_settings_go_on_but_never_those_of_the_connection() -> None:
    headers = [(b"X-Company-Key", b"k"), (b"X-Helix-Token", b"t"), (b"Host", b"h"), (b"X-B", b"b")]
    own = ("x-company-key", "x-helix-token", "host")
    assert request_routes.headers_to_forward(headers, "anthropic", own) == headers[:1]


def test_of_an_agent_whose_settings_nobody_knows_its_own_headers_go_on_and_no_notes_of_proxies() -> (
    None
):
    """The defect: aider and Cline sent a company's header from a file of their own, and it stayed here."""
    own = [(b"X-Company-Tenant", b"t"), (b"x-unheard-of", b"b")]
    others = [
        (name.encode(), b"a")
        for name in NOT_FOR_PROVIDERS
        if name not in ("x-unheard-of", "x-stainless")
    ]
    names = (request_routes.ANY_OWN_NAME,)
    assert request_routes.headers_to_forward([*own, *others], "openai-chat", names) == own


def test_the_key_that_is_none_is_left_out_whatever_header_has_it() -> None:
    headers = [
        (b"authorization", request_routes.NO_KEY),
        (b"x-api-key", b"k"),
        (b"authorization", b"Bearer other"),
    ]
    assert request_routes.headers_to_forward(headers, "anthropic") == headers[1:]
    given_by_settings = [(b"x-other", request_routes.NO_KEY)]
    assert request_routes.headers_to_forward(given_by_settings, "anthropic", ("x-other",)) == []


def test_a_header_with_the_token_of_the_address_stays_here_whatever_its_name() -> None:
    token = new_token()
    headers = [
        (b"HTTP-Referer", f"http://127.0.0.1:4356/t/{token}/".encode()),
        (b"Authorization", f"Bearer {token}".encode()),
        (b"X-Title", b"mine"),
    ]
    assert request_routes.headers_to_forward(headers, "openai-chat", (), token) == headers[2:]
