"""A scripted server that speaks Google's Gemini."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.peers.peer import Answer, Peer, Seen, json_answer, sse

USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 15,
    "thoughtsTokenCount": 5,
}


def response(parts: Sequence[dict[str, Any]] = (), finish: str = "", **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {
        "candidates": [candidate | ({"finishReason": finish} if finish else {})],
        "modelVersion": "scripted",
        **more,
    }


def chunks(
    text: str = "",
    *,
    thought: str = "",
    calls: Sequence[tuple[str, Any]] = (),
    signature: str = "",
    finish: str = "STOP",
) -> list[dict[str, Any]]:
    """Thoughts, text in pieces, all calls in one chunk with the signature on the first,
    and the reason with the figures.
    """
    made = [response([{"text": thought, "thought": True}])] if thought else []
    made += [response([{"text": text[at : at + 7]}]) for at in range(0, len(text), 7)]
    parts: list[dict[str, Any]] = [
        {"functionCall": {"name": name, "args": arguments}} for name, arguments in calls
    ]
    if parts and signature:
        parts[0]["thoughtSignature"] = signature
    if parts:
        made.append(response(parts))
    return [*made, response((), finish, usageMetadata=USAGE)]


def reply(text: str = "", **more: Any) -> Answer:
    return Answer(pieces=sse(*chunks(text, **more)))


def refused(
    status: int,
    message: str = "refused",
    *,
    state: str = "INVALID_ARGUMENT",
    details: Sequence[Any] = (),
) -> Answer:
    return json_answer(
        {"error": {"code": status, "message": message, "status": state, "details": list(details)}},
        status,
    )


class GeminiServer(Peer):
    models: Sequence[dict[str, Any]] = (
        {"name": "models/scripted", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536},
    )

    def listing(self, seen: Seen) -> Answer:
        if seen.path.partition("?")[0] == "/v1beta/models":
            return json_answer({"models": list(self.models)})
        return super().listing(seen)
