"""Speaks Ollama's own protocol, because only it says with which window a model is to run.

Over Chat Completions Ollama loads every model with its usual window of 4,096 tokens and
silently cuts the beginning of a longer request. Here each request names its window, asks
not to be cut, and the reply says how long the prompt took to read.
"""

import re

from helix_desktop import json_values
from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, Usage
from helix_desktop.engine.messages import Delta, Image, Message, Request, Role, ToolResult
from helix_desktop.errors import ModelFailed
from helix_desktop.json_values import Json, Object
from helix_desktop.protocols import protocol_dialect, request_parts
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.reply_reader import ReplyReaderBase

_OPTIONAL = ("think", "truncate", "shift")
_STOPS = {"stop": Stop.END, "length": Stop.LENGTH}
_NO_THINKING = re.compile(r"does not support thinking", re.IGNORECASE)


class OllamaChat(protocol_dialect.ProtocolDialect):
    kind = "ollama"

    def compile_request(
        self, request: Request, abilities: protocol_dialect.ModelAbilities
    ) -> protocol_dialect.OutgoingRequest:
        """Write a request as Ollama's own protocol has it.

        It names the context window with which the model is to run. Without that, Ollama would
        run it with a small one and cut the request.
        """
        options: Object = protocol_dialect.sampling_options(request, abilities)
        if abilities.window:
            options["num_ctx"] = abilities.window
        if request.max_output:
            options["num_predict"] = request.max_output
        body: Object = {
            "model": request.model,
            "messages": self._write_ollama_messages(request, abilities),
            "stream": True,
            "options": options,
            # Refuse what does not fit instead of leaving out its beginning.
            "truncate": False,
            "shift": False,
        }
        if request.tools and abilities.tools:
            tools: list[Json] = []
            for tool in request.tools:
                function = request_parts.function_of_tool(tool)
                tools.append({"type": "function", "function": function})
            body["tools"] = tools
        if request.reasoning and abilities.reasoning:
            body["think"] = request.reasoning
        return protocol_dialect.OutgoingRequest("/api/chat", body)

    def build_reply_reader(self, request: Request) -> "OllamaReplyReader":
        return OllamaReplyReader(self.reasoning_owner, self.where, request.model)

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        """Return a refused request without the option that was refused, or None if it was none."""
        if "think" in body and _NO_THINKING.search(failure.what):
            return json_values.without_fields(body, "think")
        return protocol_dialect.without_refused_option(body, failure, _OPTIONAL)

    def _write_ollama_messages(
        self, request: Request, abilities: protocol_dialect.ModelAbilities
    ) -> list[Json]:
        """Write the messages. A result follows as a message of its own."""
        written: list[Json] = []
        if request.system:
            written.append({"role": "system", "content": request.system})
        tool_names: dict[str, str] = {}
        for message in request.messages:
            if message.role is Role.ASSISTANT:
                for part in message.parts:
                    if isinstance(part, ToolCall):
                        tool_names[part.id] = part.name
                written.append(self._write_earlier_reply(message))
            else:
                written.extend(self._write_tool_results(message, tool_names))
                written.extend(self._write_users_words(message, abilities))
        return written

    def _write_earlier_reply(self, message: Message) -> Object:
        """Write a reply: its words, its own thoughts and its calls, each together."""
        text = ""
        own_thoughts = ""
        calls: list[Json] = []
        for part in message.parts:
            if isinstance(part, Text):
                text += part.text
            elif isinstance(part, Reasoning) and part.provider == self.reasoning_owner:
                own_thoughts += part.text
            elif isinstance(part, ToolCall):
                arguments = request_parts.arguments_as_object(part)
                calls.append({"function": {"name": part.name, "arguments": arguments}})

        written: Object = {"role": "assistant", "content": text}
        if own_thoughts:
            written["thinking"] = own_thoughts
        if calls:
            written["tool_calls"] = calls
        return written

    def _write_tool_results(self, message: Message, tool_names: dict[str, str]) -> list[Json]:
        """Write each result as a message. Ollama knows a result by its tool's name."""
        written: list[Json] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                name = tool_names.get(part.call, "")
                written.append({"role": "tool", "tool_name": name, "content": part.text})
        return written

    def _write_users_words(
        self, message: Message, abilities: protocol_dialect.ModelAbilities
    ) -> list[Json]:
        """Write what the user said, with the images of tool results, which are texts in Ollama.

        A message of results alone says nothing here, as each of them is a message of its own.
        """
        texts: list[str] = []
        has_results = False
        for part in message.parts:
            if isinstance(part, Text) and part.text:
                texts.append(part.text)
            elif isinstance(part, ToolResult):
                has_results = True
        encoded_images: list[Json] = []
        for image in _images_of_message(message):
            if abilities.images:
                encoded_images.append(request_parts.base64_text(image))
            else:
                texts.append(request_parts.text_for_omitted_image(image))

        says_something = bool(texts or encoded_images)
        if has_results and not says_something:
            return []
        written: Object = {"role": "user", "content": "\n\n".join(texts) or "(empty)"}
        if encoded_images:
            written["images"] = encoded_images
        return [written]


def _images_of_message(message: Message) -> list[Image]:
    """Return a message's own pictures, and those of the results in it."""
    images: list[Image] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            images.extend(part.images)
        elif isinstance(part, Image):
            images.append(part)
    return images


class OllamaReplyReader(ReplyReaderBase):
    """Reads a reply of one JSON document a line."""

    def __init__(self, tag: str, where: str, model: str) -> None:
        super().__init__(tag, where, model)
        self._done_reason = ""
        self._runs = 0  # Counts changes between thinking and text: each run is a part.

    @property
    def is_reply_complete(self) -> bool:
        return bool(self._done_reason)

    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """Read one line of the stream and return what it adds to the reply."""
        line = json_values.require_object(json_values.parse_json(event.data))
        error = protocol_dialect.find_error_in(line)
        if error:
            raise self._failure_in_stream(500, {"error": error})
        self._model = json_values.text_at(line, "model") or self._model
        message = json_values.object_at(line, "message")
        deltas = self._add_to_run("reasoning", json_values.text_at(message, "thinking"))
        deltas += self._add_to_run("text", json_values.text_at(message, "content"))
        for call in json_values.list_at(message, "tool_calls"):
            deltas += self._read_whole_call(json_values.require_object(call))
        if json_values.value_at(line, "done") is True:
            self._read_ending(line)
        return deltas

    def _read_whole_call(self, call: Object) -> list[Delta]:
        """Read a call, which Ollama sends whole."""
        arguments = json_values.object_at(call, "function", "arguments")
        return self._draft.add_call_piece(
            ("call", self._draft.call_count),
            call_id=json_values.text_at(call, "id"),
            name=json_values.text_at(call, "function", "name"),
            arguments=json_values.format_json_value(arguments),
        )

    def _add_to_run(self, kind: str, piece: str) -> list[Delta]:
        """Add a piece of thinking or text, and return what can be shown of it now.

        Ollama does not say which part a piece continues. It is the last one if that is of the
        same kind, and a new one otherwise.
        """
        if not piece:
            return []
        continues_last_part = self._draft.last_key in (None, (kind, self._runs))
        if not continues_last_part:
            self._runs += 1
        key = (kind, self._runs)
        if kind == "text":
            return self._draft.add_text(key, piece)
        return self._draft.add_reasoning(key, piece)

    def _read_ending(self, line: Object) -> None:
        self._done_reason = json_values.text_at(line, "done_reason") or "stop"
        self.is_stream_over = True
        self._usage = Usage(
            input=json_values.number_at(line, "prompt_eval_count"),
            output=json_values.number_at(line, "eval_count"),
        )

    def _ending_so_far(self, cut: str) -> tuple[Stop, str]:
        if cut or not self._done_reason:
            return Stop.CUT, cut or self._describe_abrupt_end()
        return _STOPS.get(self._done_reason, Stop.END), ""
