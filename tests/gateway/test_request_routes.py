"""What a path and the headers of a request say of where it goes."""

from __future__ import annotations

import pytest

from helix_desktop.gateway import request_routes
from helix_desktop.gateway.request_routes import join_provider_address


@pytest.mark.parametrize(
    ("upstream", "path", "query", "address"),
    [
        ("https://api.example", "/v1/messages", "", "https://api.example/v1/messages"),
        ("https://api.example/", "/v1/messages", "beta=true", "https://api.example/v1/messages?beta=true"),
        ("https://api.example/v1", "/v1/messages", "", "https://api.example/v1/messages"),
        ("https://api.example/v1/", "/v1/responses", "", "https://api.example/v1/responses"),
        ("https://api.example/v1", "/v1beta/models", "", "https://api.example/v1/v1beta/models"),
        ("https://api.example/openai/v1", "/responses", "", "https://api.example/openai/v1/responses"),
        ("https://api.example/proxy", "/v1/messages", "", "https://api.example/proxy/v1/messages"),
    ],
)
def test_a_version_stands_once_in_the_providers_address(upstream: str, path: str, query: str, address: str) -> None:
    assert join_provider_address(upstream, path, query) == address


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
