"""A stand-in for Ollama that does what makes it dangerous: a request longer than the
window with which the model was loaded loses its beginning, without a word.

A token is a word here, unless the trial counts otherwise. Each model has a largest window;
who asks for none gets 4,096.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.peers.peer import Answer, Peer, Seen, json_answer

USUAL_WINDOW = 4_096


def count_words(messages: Iterable[dict[str, Any]]) -> int:
    return sum(len(str(message.get("content") or "").split()) for message in messages)


class OllamaServer(Peer):
    """`says` returns what the model answers to the messages that it was really shown."""

    base_path = "/v1"

    def __init__(
        self,
        model: str = "qwen3:4b",
        *,
        largest: int = 40_960,
        usual: int = USUAL_WINDOW,
        parameters: str = "",
        capabilities: tuple[str, ...] = ("completion", "tools"),
        says: Callable[[list[dict[str, Any]]], str] = lambda _shown: "Understood.",
        count_tokens: Callable[[Iterable[dict[str, Any]]], int] = count_words,
        counts_tools: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.largest = largest
        self.usual = usual
        self.parameters = parameters
        self.capabilities = capabilities
        self.says = says
        self.count_tokens = count_tokens
        self.counts_tools = counts_tools
        self.loaded = 0  # The window with which the model is in memory; 0: it is not.
        self.loads: list[int] = []
        self.shown: list[list[dict[str, Any]]] = []  # What the model saw of each request.
        self.cut = 0  # How many requests have lost their beginning.
        # Up to how many tokens each request and its reply take together.
        self.most_tokens: list[int] = []

    def listing(self, seen: Seen) -> Answer:
        path = seen.path.partition("?")[0]
        if path == "/v1/models":
            return json_answer({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        if path == "/api/version":
            return json_answer({"version": "0.13.0"})
        if path == "/api/ps":
            return json_answer({"models": self._loaded_models()})
        return super().listing(seen)

    def _loaded_models(self) -> list[dict[str, Any]]:
        if not self.loaded:
            return []
        size = 2_600_000_000 + self.loaded * 100_000
        return [{"name": self.model, "size": size, "context_length": self.loaded}]

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        if seen.path == "/api/show":
            return self._describe()
        if seen.path == "/api/generate":
            self._load(seen.body)
            return json_answer({"model": self.model, "done": True})
        if seen.path == "/api/chat":
            self._load(seen.body)
            return self._chat(seen.body)
        if seen.path == "/v1/chat/completions":
            self._load({})  # OpenAI's protocol has no word for the window.
            return self._completion(seen.body)
        return json_answer({"error": f"nothing at {seen.path}"}, 404)

    def _describe(self) -> Answer:
        information = {"general.architecture": "qwen3", "qwen3.context_length": self.largest}
        return json_answer(
            {
                "parameters": self.parameters,
                "capabilities": list(self.capabilities),
                "model_info": information,
            }
        )

    def _load(self, body: dict[str, Any]) -> None:
        asked = int(body.get("options", {}).get("num_ctx", self.usual))
        window = min(asked, self.largest)
        if window != self.loaded:
            self.loaded = window
            self.loads.append(window)

    def _show(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Keep the system prompt and as many of the last messages as fit, as Ollama does."""
        messages = body["messages"]
        shown = list(messages)
        room = self.loaded - self._count_tools(body)
        while len(shown) > 2 and self.count_tokens(shown) > room:
            del shown[1]
        if len(shown) < len(messages) or self.count_tokens(shown) > room:
            self.cut += 1
        self.shown.append(shown)
        return shown

    def _count_tools(self, body: dict[str, Any]) -> int:
        """Count the tools, if the model's template has a place for them."""
        if not self.counts_tools or not body.get("tools"):
            return 0
        return self.count_tokens([{"content": json.dumps(body["tools"], ensure_ascii=False)}])

    def _chat(self, body: dict[str, Any]) -> Answer:
        shown = self._show(body)
        limit = int(body.get("options", {}).get("num_predict", self.loaded))
        self.most_tokens.append(self.count_tokens(shown) + self._count_tools(body) + limit)
        words = self.says(shown).split(" ")
        written = words[:limit]
        lines = [
            {"model": self.model, "message": {"role": "assistant", "content": f"{word} "}}
            for word in written
        ]
        ending = {
            "model": self.model,
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop" if len(written) == len(words) else "length",
            "prompt_eval_count": self.count_tokens(shown) + self._count_tools(body),
            "prompt_eval_duration": 1_000_000_000,
            "eval_count": len(written),
        }
        pieces = tuple(json.dumps(line).encode() + b"\n" for line in [*lines, ending])
        return Answer(pieces=pieces, content_type="application/x-ndjson")

    def _completion(self, body: dict[str, Any]) -> Answer:
        from tests.peers import chat_server

        shown = self._show(body)
        said = self.says(shown)
        prompt_tokens = self.count_tokens(shown) + self._count_tools(body)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(said.split())}
        return chat_server.reply(said, usage=usage)
