"""A stand-in for llama.cpp's server: its addresses, its refusal of a request that is too long,
and SmolLM2's template. What it answers is scripted.

Tokens are counted by `count_tokens`: SmolLM2's own tokenizer where one runs (`RealTokenizer`),
else an estimate of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx

from tests.peers import chat_server
from tests.peers.peer import Answer, Peer, Seen, json_answer

TokenCount = Callable[[str], int]
USUAL_SYSTEM_PROMPT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHARACTERS_PER_TOKEN = 4
TOKENS_PER_CHINESE_CHARACTER = 4 / 3


def estimate_tokens(text: str) -> int:
    """Estimate what SmolLM2's tokenizer counts, where it cannot be had."""
    chinese = len(re.findall("[\u4e00-\u9fff]", text))
    others = len(text) - chinese
    return round(chinese * TOKENS_PER_CHINESE_CHARACTER + others / CHARACTERS_PER_TOKEN) + 1


class RealTokenizer:
    """Counts with a llama.cpp server that has SmolLM2 in memory."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, text: str) -> int:
        body = json.dumps({"content": text, "add_special": True, "parse_special": True})
        answer = httpx.post(f"{self.url}/tokenize", content=body, timeout=60)
        return len(answer.json()["tokens"])


def write_prompt(body: dict[str, Any]) -> str:
    """Write what the model reads of a request, as SmolLM2's template does. Tools stand in the
    system prompt as JSON, as templates of larger models have them.
    """
    turns: list[tuple[str, str]] = []
    for message in body["messages"]:
        words = str(message.get("content") or "")
        if message.get("tool_calls"):
            words += json.dumps(message["tool_calls"], ensure_ascii=False)
        turns.append((message["role"], words))
    if turns[0][0] != "system":
        turns.insert(0, ("system", USUAL_SYSTEM_PROMPT))
    if body.get("tools"):
        role, words = turns[0]
        tools = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in body["tools"])
        turns[0] = (role, f"{words}\n\n# Tools\n{tools}")
    written = "".join(f"<|im_start|>{role}\n{words}<|im_end|>\n" for role, words in turns)
    return f"{written}<|im_start|>assistant\n"


class LlamaServer(Peer):
    """`says` returns the model's reply to a request's body: text, or calls of tools."""

    base_path = "/v1"
    model = "SmolLM2-135M-Instruct.Q4_1.gguf"

    def __init__(
        self,
        says: Callable[[dict[str, Any]], str | chat_server.Calls],
        *,
        window: int,
        has_tools: bool,
        count_tokens: TokenCount = estimate_tokens,
    ) -> None:
        super().__init__()
        self.says = says
        self.window = window
        self.has_tools = has_tools
        self.count_tokens = count_tokens
        self.prompt_tokens: list[int] = []  # Of each request for a reply, also a refused one.
        self.refused = 0

    def listing(self, seen: Seen) -> Answer:
        path = seen.path.partition("?")[0]
        if path == "/v1/models":
            return json_answer({"object": "list", "data": [{"id": self.model, "object": "model"}]})
        if path == "/props":
            return json_answer(
                {
                    "default_generation_settings": {"n_ctx": self.window},
                    "chat_template_caps": {"supports_tools": self.has_tools},
                    "modalities": {"vision": False},
                }
            )
        return super().listing(seen)

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        if seen.path == "/apply-template":
            return json_answer({"prompt": write_prompt(seen.body)})
        if seen.path == "/tokenize":
            tokens = self.count_tokens(seen.body["content"])
            return json_answer({"tokens": [0] * tokens})
        if seen.path == "/v1/chat/completions":
            return self._complete(seen.body)
        return super().listing(seen)

    def _complete(self, body: dict[str, Any]) -> Answer:
        prompt_tokens = self.count_tokens(write_prompt(body))
        self.prompt_tokens.append(prompt_tokens)
        if prompt_tokens >= self.window:
            self.refused += 1
            message = f"request ({prompt_tokens} tokens) exceeds the available context size ({self.window} tokens), try increasing it"
            return chat_server.refused(400, message, kind="exceed_context_size_error")
        said = self.says(body)
        if not isinstance(said, str):
            usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 40}
            return chat_server.reply(calls=said, usage=usage)
        room = self.window - prompt_tokens
        limit = min(body.get("max_tokens", room), room)
        return self._reply_within(said, limit, prompt_tokens)

    def _reply_within(self, said: str, limit: int, prompt_tokens: int) -> Answer:
        """Reply with as much of what the model says as the limit allows."""
        words = re.findall(r"\s*\S+", said)
        tokens = self.count_tokens(said)
        finish = "stop"
        if tokens > limit:
            words = words[: len(words) * limit // tokens]
            tokens = limit
            finish = "length"
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}
        return chat_server.reply("".join(words), finish=finish, usage=usage)
