"""A provider for agents, in all four protocols: it answers from a script, streams, and
refuses what a real one refuses.

It reads the bytes it gets and nothing else, so that what it holds against a request is
true of what arrived.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import zstandard

from tests.peers.serving import serve_in_thread

Json = Any


@dataclass(frozen=True)
class Says:
    text: str


@dataclass(frozen=True)
class Thinks:
    text: str


@dataclass(frozen=True)
class Calls:
    name: str
    arguments: Mapping[str, Json]
    id: str = ""


@dataclass(frozen=True)
class Compacts:
    """The provider's own summary of what was before, which only it can read (Responses)."""

    text: str


Block = Says | Thinks | Calls | Compacts


@dataclass(frozen=True)
class Raw:
    """A reply as bytes: what a provider that means harm, or that is broken, sends."""

    content: bytes
    encoding: str = ""
    status: int = 200
    media_type: str = "application/json"
    chunk_bytes: int = 0  # of a chunk of the transfer; 0: with a length instead


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    protocol: str = ""

    @property
    def body(self) -> dict[str, Json]:
        found: dict[str, Json] = json.loads(self.raw)
        return found


@dataclass(frozen=True)
class CutOff:
    """A reply whose connection ends after so many bytes of its stream."""

    blocks: Sequence[Block]
    after: int


Script = Callable[[Asked], Sequence[Block] | int | Raw | CutOff]


def signature(text: str) -> str:
    """What the provider signs its reasoning with."""
    return hashlib.sha256(f"signed:{text}".encode()).hexdigest()[:32]


def protocol_of(path: str) -> str:
    """Which of the four a path is of."""
    bare = path.partition("?")[0]
    if bare.endswith("/messages"):
        return "anthropic"
    if bare.endswith("/chat/completions"):
        return "openai-chat"
    if bare.endswith("/responses"):
        return "openai-responses"
    return "gemini" if "enerateContent" in bare else ""


@dataclass
class Provider:
    """`asked`: every request; `refused`: why some were refused. `port` is known once it
    is entered. `paid_tokens`: of all that was answered, also where the answer was cut.
    """

    script: Script
    asked: list[Asked] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    refused_requests: list[tuple[str, Asked]] = field(default_factory=list)
    usage: Callable[[Asked], Mapping[str, int]] = lambda _: {"input": 100, "read": 0, "write": 0}
    cut_after: int = 0  # bytes of a stream after which the connection is cut, once
    cuts: dict[int, int] = field(default_factory=dict)  # the same for requests by their number
    strict: bool = True
    accepted: str = ""  # complaints with these words are none
    in_stream: Callable[[], object] = lambda: None  # called behind each event of a stream
    paid_tokens: int = 0

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._numbers = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Each event leaves at once, as from a real provider, and not when the last one is confirmed.
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with suppress(
                    ConnectionError
                ):  # an agent that is killed hangs up in the midst of anything
                    super().handle()

            def do_POST(self) -> None:
                if self.headers.get("upgrade") == "websocket":
                    _send(self, 426, {"error": {"message": "WebSockets are not spoken here"}})
                    return
                provider._post(self)

            do_GET = do_POST  # noqa: N815 -- the library's name

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        serve_in_thread(self._server, "provider")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def id(self) -> str:
        with self._lock:
            self._numbers += 1
            return f"{self._numbers:06d}"

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        raw = handler.rfile.read(size)
        if len(raw) < size:  # whoever sent it is gone
            handler.close_connection = True
            return
        asked = Asked(
            handler.path,
            {k.lower(): v for k, v in handler.headers.items()},
            _decompress(raw, handler.headers.get("content-encoding", "")),
            protocol_of(handler.path),
        )
        with self._lock:
            self.asked.append(asked)
        with suppress(BrokenPipeError, ConnectionResetError):
            self._answer(handler, asked)

    def _answer(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        if not asked.protocol:
            _send(handler, 200, {"passed": True, "path": handler.path})
            return
        why = complaint(asked, self.accepted) if self.strict else ""
        if why:
            self.refused.append(why)
            self.refused_requests.append((why, asked))
            _send_error(handler, 400, "invalid_request_error", why)
            return
        said = self.script(asked)
        if isinstance(said, Raw):
            _send_raw(handler, said)
        elif isinstance(said, int):
            words = "prompt is too long" if said == 400 else "busy"
            _send_error(handler, said, "overloaded_error", words)
        elif isinstance(said, CutOff):
            self._reply(handler, asked, said.blocks, said.after)
        else:
            self.cut_after = self.cuts.pop(len(self.asked), self.cut_after)
            self._reply(handler, asked, said, self.cut_after)

    def _reply(
        self, handler: BaseHTTPRequestHandler, asked: Asked, said: Sequence[Block], cut_after: int
    ) -> None:
        blocks: list[Block] = []
        for block in said:
            if isinstance(block, Calls) and not block.id:
                blocks.append(Calls(block.name, block.arguments, f"call_{self.id()}"))
            else:
                blocks.append(block)
        writer = WRITERS[asked.protocol]
        usage = self.usage(asked)
        self.paid_tokens += usage["input"]
        if asked.body.get("stream") is True or "streamGenerate" in asked.path:
            self._stream(handler, writer.events(blocks, usage, self.id()), cut_after)
        elif cut_after:
            self.cut_after = 0
            handler.send_response(200)
            handler.send_header("content-length", "1000")
            handler.end_headers()
            handler.close_connection = True
        else:
            _send(handler, 200, writer.whole(blocks, usage, self.id()))

    def _stream(
        self, handler: BaseHTTPRequestHandler, events: Iterator[bytes], cut_after: int
    ) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        sent = 0
        for event in events:
            if cut_after and sent > cut_after:
                self.cut_after = 0
                handler.close_connection = True
                return
            handler.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            handler.wfile.flush()
            sent += len(event)
            self.in_stream()
        handler.wfile.write(b"0\r\n\r\n")


def _decompress(raw: bytes, encoding: str) -> bytes:
    """Codex compresses its requests if it is signed in with an account. A damaged body stays as it
    came: a provider that died of it would look like one that the gateway did not reach.
    """
    if encoding == "zstd":
        with suppress(zstandard.ZstdError):
            return zstandard.ZstdDecompressor().decompressobj().decompress(raw)
    return raw


def _send(handler: BaseHTTPRequestHandler, status: int, value: Json) -> None:
    content = json.dumps(value).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _send_raw(handler: BaseHTTPRequestHandler, reply: Raw) -> None:
    handler.send_response(reply.status)
    handler.send_header("content-type", reply.media_type)
    if reply.encoding:
        handler.send_header("content-encoding", reply.encoding)
    content = reply.content
    step = reply.chunk_bytes
    if not step:
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
        return
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    lines = (
        b"%x\r\n%b\r\n" % (len(p), p)
        for p in (content[at : at + step] for at in range(0, len(content), step))
    )
    handler.wfile.write(b"".join(lines) + b"0\r\n\r\n")


def _event(value: Json, name: str = "") -> bytes:
    return (
        (f"event: {name}\n" if name else "").encode()
        + b"data: "
        + json.dumps(value).encode()
        + b"\n\n"
    )


def _pieces(text: str) -> list[str]:
    third = max(1, len(text) // 3)
    return [text[at : at + third] for at in range(0, len(text), third)] or [""]


class AnthropicWriter:
    @staticmethod
    def _usage(usage: Mapping[str, int], output: int) -> Json:
        fresh = usage["input"] - usage["read"] - usage["write"]
        return {
            "input_tokens": fresh,
            "cache_read_input_tokens": usage["read"],
            "cache_creation_input_tokens": usage["write"],
            "output_tokens": output,
        }

    @classmethod
    def whole(cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str) -> Json:
        content: list[Json] = []
        for block in blocks:
            match block:
                case Says(text):
                    content.append({"type": "text", "text": text})
                case Thinks(text):
                    content.append(
                        {"type": "thinking", "thinking": text, "signature": signature(text)}
                    )
                case Calls(name, arguments, call):
                    content.append(
                        {"type": "tool_use", "id": call, "name": name, "input": dict(arguments)}
                    )
        stop = "tool_use" if any(isinstance(b, Calls) for b in blocks) else "end_turn"
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": cls._usage(usage, 10),
        }

    @classmethod
    def events(
        cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str
    ) -> Iterator[bytes]:
        whole = cls.whole(blocks, usage, number)
        start = {**whole, "content": [], "stop_reason": None, "usage": cls._usage(usage, 1)}
        yield _event({"type": "message_start", "message": start}, "message_start")
        yield _event({"type": "ping"}, "ping")
        for index, block in enumerate(whole["content"]):
            empty = {**block, "text": ""} if block["type"] == "text" else dict(block)
            deltas: list[Json] = []
            if block["type"] == "text":
                deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            elif block["type"] == "thinking":
                empty = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": piece}
                    for piece in _pieces(block["thinking"])
                ]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            else:
                empty["input"] = {}
                deltas = [
                    {"type": "input_json_delta", "partial_json": p}
                    for p in _pieces(json.dumps(block["input"]))
                ]
            yield _event(
                {"type": "content_block_start", "index": index, "content_block": empty},
                "content_block_start",
            )
            for delta in deltas:
                yield _event(
                    {"type": "content_block_delta", "index": index, "delta": delta},
                    "content_block_delta",
                )
            yield _event({"type": "content_block_stop", "index": index}, "content_block_stop")
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _event(
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 10}},
            "message_delta",
        )
        yield _event({"type": "message_stop"}, "message_stop")


class ChatWriter:
    @staticmethod
    def _usage(usage: Mapping[str, int]) -> Json:
        return {
            "prompt_tokens": usage["input"],
            "completion_tokens": 10,
            "total_tokens": usage["input"] + 10,
            "prompt_tokens_details": {"cached_tokens": usage["read"]},
        }

    @classmethod
    def whole(cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str) -> Json:
        message: dict[str, Json] = {
            "role": "assistant",
            "content": "".join(b.text for b in blocks if isinstance(b, Says)) or None,
        }
        thought = "".join(b.text for b in blocks if isinstance(b, Thinks))
        if thought:
            message["reasoning_content"] = thought
        calls = [b for b in blocks if isinstance(b, Calls)]
        if calls:
            message["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": json.dumps(c.arguments)},
                }
                for c in calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if calls else "stop",
        }
        return {
            "id": f"chat-{number}",
            "object": "chat.completion",
            "model": "gpt-test",
            "choices": [choice],
            "usage": cls._usage(usage),
        }

    @classmethod
    def events(
        cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str
    ) -> Iterator[bytes]:
        base = {
            "id": f"chat-{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-test",
        }

        def chunk(delta: Json, finish: str | None = None) -> bytes:
            return _event(
                {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            )

        yield chunk({"role": "assistant", "content": ""})
        index = 0
        for block in blocks:
            match block:
                case Says(text):
                    yield from (chunk({"content": piece}) for piece in _pieces(text))
                case Thinks(text):
                    yield from (chunk({"reasoning_content": piece}) for piece in _pieces(text))
                case Calls(name, arguments, call):
                    head = {
                        "index": index,
                        "id": call,
                        "type": "function",
                        "function": {"name": name, "arguments": ""},
                    }
                    yield chunk({"tool_calls": [head]})
                    for piece in _pieces(json.dumps(arguments)):
                        yield chunk(
                            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                        )
                    index += 1
        yield chunk({}, "tool_calls" if index else "stop")
        yield _event({**base, "choices": [], "usage": cls._usage(usage)})
        yield b"data: [DONE]\n\n"


class ResponsesWriter:
    @staticmethod
    def _items(blocks: Sequence[Block], number: str) -> list[Json]:
        items: list[Json] = []
        for at, block in enumerate(blocks):
            match block:
                case Says(text):
                    content = [{"type": "output_text", "text": text, "annotations": []}]
                    items.append(
                        {
                            "type": "message",
                            "id": f"m_{number}_{at}",
                            "role": "assistant",
                            "status": "completed",
                            "content": content,
                        }
                    )
                case Thinks(text):
                    items.append(
                        {
                            "type": "reasoning",
                            "id": f"r_{number}_{at}",
                            "summary": [],
                            "encrypted_content": signature(text),
                        }
                    )
                case Compacts(text):
                    items.append(
                        {
                            "type": "compaction",
                            "id": f"cmp_{number}_{at}",
                            "encrypted_content": text,
                        }
                    )
                case Calls(name, arguments, call):
                    space, _, name = name.rpartition("/")
                    items.append(
                        {
                            "type": "function_call",
                            **({"namespace": space} if space else {}),
                            "id": f"f_{number}_{at}",
                            "call_id": call,
                            "name": name,
                            "arguments": json.dumps(arguments),
                            "status": "completed",
                        }
                    )
        return items

    @classmethod
    def whole(cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str) -> Json:
        told = {
            "input_tokens": usage["input"],
            "input_tokens_details": {"cached_tokens": usage["read"]},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["input"] + 10,
        }
        return {
            "id": f"resp_{number}",
            "object": "response",
            "status": "completed",
            "model": "gpt-test",
            "output": cls._items(blocks, number),
            "usage": told,
        }

    @classmethod
    def events(
        cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str
    ) -> Iterator[bytes]:
        whole = cls.whole(blocks, usage, number)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        count = iter(range(10_000))

        def event(kind: str, **values: Json) -> bytes:
            return _event({"type": kind, "sequence_number": next(count), **values}, kind)

        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        for index, item in enumerate(whole["output"]):
            yield event(
                "response.output_item.added",
                output_index=index,
                item={**item, "status": "in_progress"},
            )
            if item["type"] == "message":
                text = item["content"][0]["text"]
                part = {"type": "output_text", "text": "", "annotations": []}
                where = {"item_id": item["id"], "output_index": index, "content_index": 0}
                yield event("response.content_part.added", **where, part=part)
                for piece in _pieces(text):
                    yield event("response.output_text.delta", **where, delta=piece)
                yield event("response.output_text.done", **where, text=text)
                yield event("response.content_part.done", **where, part=item["content"][0])
            elif item["type"] == "function_call":
                where = {"item_id": item["id"], "output_index": index}
                for piece in _pieces(item["arguments"]):
                    yield event("response.function_call_arguments.delta", **where, delta=piece)
                yield event(
                    "response.function_call_arguments.done", **where, arguments=item["arguments"]
                )
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=whole)


class GeminiWriter:
    @staticmethod
    def _parts(blocks: Sequence[Block]) -> list[Json]:
        parts: list[Json] = []
        signed = False
        for block in blocks:
            match block:
                case Says(text):
                    parts.append({"text": text})
                case Thinks(text):
                    parts.append({"text": text, "thought": True})
                case Calls(name, arguments, _):
                    part: dict[str, Json] = {
                        "functionCall": {"name": name, "args": dict(arguments)}
                    }
                    if not signed:
                        part["thoughtSignature"] = signature(name)
                        signed = True
                    parts.append(part)
        return parts

    @classmethod
    def whole(cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str) -> Json:
        told = {
            "promptTokenCount": usage["input"],
            "cachedContentTokenCount": usage["read"],
            "candidatesTokenCount": 10,
            "totalTokenCount": usage["input"] + 10,
        }
        content = {"role": "model", "parts": cls._parts(blocks)}
        candidate = {"index": 0, "content": content, "finishReason": "STOP"}
        return {
            "candidates": [candidate],
            "usageMetadata": told,
            "modelVersion": "gemini-test",
            "responseId": number,
        }

    @classmethod
    def events(
        cls, blocks: Sequence[Block], usage: Mapping[str, int], number: str
    ) -> Iterator[bytes]:
        whole = cls.whole(blocks, usage, number)
        parts = whole["candidates"][0]["content"]["parts"]
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            pieces = (
                [{**part, "text": piece} for piece in _pieces(part["text"])]
                if "text" in part
                else [part]
            )
            for place, piece in enumerate(pieces):
                candidate: dict[str, Json] = {
                    "index": 0,
                    "content": {"role": "model", "parts": [piece]},
                }
                if last and place == len(pieces) - 1:
                    candidate["finishReason"] = "STOP"
                value = {
                    "candidates": [candidate],
                    "modelVersion": "gemini-test",
                    "usageMetadata": whole["usageMetadata"],
                }
                yield b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


WRITERS: Mapping[str, Any] = {
    "anthropic": AnthropicWriter,
    "openai-chat": ChatWriter,
    "openai-responses": ResponsesWriter,
    "gemini": GeminiWriter,
}


# --- what a real provider refuses


def complaint(asked: Asked, accepted: str = "") -> str:
    """Why the request is refused; empty for a legal one. What has the words `accepted`
    in it does not count.
    """
    try:
        body = asked.body
    except ValueError:
        return "the body is no JSON"
    return next(
        (why for why in CHECKS[asked.protocol](body) if not accepted or accepted not in why), ""
    )


def _anthropic(body: Mapping[str, Json]) -> Iterator[str]:
    if _marks(body) > 4:
        yield "more than four cache_control marks"
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "the first message must be the user's"
    waiting: list[str] = []
    role_before = ""
    for place, message in enumerate(messages):
        blocks = _blocks_of(message)
        if message["role"] == role_before:
            yield f"messages {place - 1} and {place} have one role"
        role_before = message["role"]
        if not blocks and "output_config" not in message:  # Claude Code 2.1.331 sets the effort so
            yield f"message {place} is empty"
        for fault in _faults_of_results(blocks, waiting):
            yield f"message {place} {fault}"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(waiting)) != len(waiting):
            yield f"message {place} uses an id twice"
        for fault in _faults_of_blocks(blocks):
            yield f"message {place} {fault}"
    if waiting:
        yield "the last calls have no results"


def _blocks_of(message: Mapping[str, Json]) -> Sequence[Json]:
    content = message["content"]
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}]


def _send_error(handler: BaseHTTPRequestHandler, status: int, kind: str, words: str) -> None:
    _send(handler, status, {"type": "error", "error": {"type": kind, "message": words}})


def _faults_of_results(blocks: Sequence[Json], waiting: Sequence[str]) -> Iterator[str]:
    """Results answer exactly the calls that wait, and stand before everything else."""
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if sorted(results) != sorted(waiting):
        yield f"answers {results}, and {waiting} were called"
    is_result = [block["type"] == "tool_result" for block in blocks]
    if is_result != sorted(is_result, reverse=True):
        yield "says something before a result"


def _faults_of_blocks(blocks: Sequence[Json]) -> Iterator[str]:
    for block, next_block in itertools.pairwise(blocks):
        if block["type"] == next_block["type"] == "thinking":
            yield "has adjacent thinking blocks"
    for block in blocks:
        if block["type"] == "thinking" and block["signature"] != signature(block["thinking"]):
            yield "has a thinking block whose signature does not hold"
        if block["type"] == "text" and not block["text"].strip():
            yield "has an empty text"
    if blocks and blocks[-1]["type"] == "thinking":
        yield "ends with thinking"


def _marks(value: Json) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(_marks, value.values()))
    return sum(map(_marks, value)) if isinstance(value, list) else 0


def _chat(body: Mapping[str, Json]) -> Iterator[str]:
    waiting: list[str] = []
    for at, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"message {at} answers no call"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"message {at} stands before the results of {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    if waiting:
        yield "the last calls have no results"


def _responses(body: Mapping[str, Json]) -> Iterator[str]:
    items = body["input"]
    if isinstance(items, str):
        return
    called: list[str] = []
    answered: list[str] = []
    for place, item in enumerate(items):
        kind = item.get("type")
        if kind == "function_call":
            called.append(item["call_id"])
        if kind == "function_call_output":
            answered.append(item["call_id"])
            if item["call_id"] not in called:
                yield f"item {place} answers a call that comes later"
        if kind == "reasoning":
            after = items[place + 1] if place + 1 < len(items) else {}
            is_led_to = after.get("type") in ("function_call", "reasoning", "message")
            if not is_led_to and after.get("role") != "assistant":
                yield f"item {place} is reasoning without what it led to"
    if sorted(called) != sorted(answered):
        yield f"{sorted(called)} were called and {sorted(answered)} answered"


def _gemini(body: Mapping[str, Json]) -> Iterator[str]:
    contents = body["contents"]
    turn = 0  # Signatures are checked in the turn that goes on.
    for place, content in enumerate(contents):
        if _speaks(content):
            turn = place
    expected: list[str] = []
    for place, content in enumerate(contents):
        parts = content["parts"]
        if not parts:
            yield f"content {place} is empty"
        answers = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if sorted(answers) != sorted(expected):
            yield f"content {place} answers {answers}, and {expected} were called"
        calls = [part for part in parts if "functionCall" in part]
        expected = [call["functionCall"]["name"] for call in calls]
        if calls and place > turn and "thoughtSignature" not in calls[0]:
            yield f"content {place} has a call without a signature"


def _speaks(content: Mapping[str, Json]) -> bool:
    return content.get("role") == "user" and any(
        "functionResponse" not in part for part in content["parts"]
    )


CHECKS: Mapping[str, Callable[[Mapping[str, Json]], Iterator[str]]] = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
