"""Fetches single JSON documents from a provider: lists of models, and what servers say of
themselves.
"""

import asyncio

from helix_desktop import json_values
from helix_desktop.errors import ModelFailed, ProviderUnreachable
from helix_desktop.protocols.provider_failures import (
    ProviderRefusal,
    failure_of_refusal,
    read_refusal_body,
)
from helix_desktop.providers.http_transport import HttpAnswer, ProviderTransport


async def fetch_json(transport: ProviderTransport, path: str, seconds: float) -> json_values.Object:
    """Fetch a JSON document. Raises ModelFailed if it is refused or is none."""
    try:
        async with asyncio.timeout(seconds), transport.open_get(path, seconds) as answer:
            return await _read_json_answer(transport, answer)
    except TimeoutError:
        raise _no_answer(transport, seconds) from None


async def fetch_json_by_post(
    transport: ProviderTransport, path: str, body: json_values.Object, seconds: float
) -> json_values.Object:
    """Send a JSON document and return the answer. Raises ModelFailed as `fetch_json` does."""
    content = json_values.dump_json(body)
    try:
        async with asyncio.timeout(seconds), transport.open_post(path, content, {}) as answer:
            return await _read_json_answer(transport, answer)
    except TimeoutError:
        raise _no_answer(transport, seconds) from None


async def _read_json_answer(transport: ProviderTransport, answer: HttpAnswer) -> json_values.Object:
    """Return the document in an answer. Raises ModelFailed for a refusal, and for what is no
    object.
    """
    content = await answer.read_whole_body()
    if answer.status_code != 200:
        body = read_refusal_body(content)
        headers = dict(answer.response_headers)
        raise failure_of_refusal(
            ProviderRefusal(transport.where, answer.status_code, body, headers)
        )
    document = json_values.parse_object(content)
    if document is None:
        raise ModelFailed(
            f"{transport.where} did not return a list of models.", remedy="Check the address."
        )
    return document


def _no_answer(transport: ProviderTransport, seconds: float) -> ProviderUnreachable:
    return ProviderUnreachable(f"{transport.where} did not respond within {seconds:.0f} seconds.")
