"""One configured model: sends requests, retries if that helps, and reads the streamed reply.

A retry only happens while nothing of the reply was shown. A stream that breaks later, or
ends without a reason, becomes a Reply with CUT and what came, never a complete answer.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Reasoning, ReplyPart, Stop, Text, ToolCall
from helix_desktop.engine.messages import Delta, Reply, Request, RetryDelay
from helix_desktop.engine.ports import Clock
from helix_desktop.errors import (
    ModelFailed,
    ModelOverloaded,
    ProviderKeyRefused,
    ProviderUnreachable,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import dump_json_body
from helix_desktop.protocols.event_stream import (
    EventStreamParser,
    EventTooLong,
    LineStreamParser,
    ServerSentEvent,
)
from helix_desktop.protocols.protocol_dialect import OutgoingRequest, ProtocolDialect
from helix_desktop.protocols.provider_failures import (
    ProviderRefusal,
    failure_of_refusal,
    read_refusal_body,
)
from helix_desktop.protocols.reply_draft import ReplyTooLong
from helix_desktop.protocols.reply_reader import ReplyReaderBase
from helix_desktop.protocols.request_parts import without_foreign_reasoning
from helix_desktop.providers import http_transport
from helix_desktop.providers.calls_in_text import (
    TextWithCalls,
    find_calls_in_text,
    looks_like_a_call,
    remove_template_marks,
    split_off_thoughts,
)
from helix_desktop.providers.model_prices import ModelInfo, fill_in_cost

SHORTEST_KEY = 8  # Keys with fewer characters are placeholders for servers that need none.
CALL_AS_TEXT = (
    "The model wrote a tool call as text, so nothing was run. A model that cannot call "
    "tools can work with files that you attach."
)
EVENTS_AT_ONCE = 30  # With what listeners do, they take one or two milliseconds.
MOST_RELAXED = 4  # The most optional parameters that a refused request may lose in turn.
# A reply that has this share of its limit was ended by it.
REACHED_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class HttpModelClient:
    """A ModelClient over HTTP. `info` has the window and prices; `key` is removed from messages."""

    info: ModelInfo
    dialect: ProtocolDialect
    transport: http_transport.ProviderTransport
    clock: Clock
    key: str = ""
    spread: Callable[[], float] = random.random

    @property
    def model_name(self) -> str:
        return self.info.name

    async def stream_reply(self, request: Request) -> AsyncGenerator[Delta]:
        """Send a request, and yield its reply piece by piece, with the whole `Reply` at the end.

        After a failure it is sent again: at once if the provider named an optional parameter
        that it refuses, without that one; otherwise after a pause, which is yielded as a
        `RetryDelay`. Raises ModelFailed once there is no further try.
        """
        post = await asyncio.to_thread(self._compile_request, request)
        attempt = 1
        relaxed_count = 0
        while True:
            try:
                async with aclosing(self._try_once(post, request)) as deltas:
                    async for delta in deltas:
                        yield delta
            except ModelFailed as error:
                failure = error
            else:
                return

            if relaxed_count < MOST_RELAXED:
                relaxed_body = self.dialect.relax_request(post.body, failure)
                if relaxed_body is not None:
                    post = replace(post, body=relaxed_body)
                    relaxed_count += 1
                    continue

            pause_seconds = self._seconds_until_retry(failure, attempt)
            shown_seconds = round(pause_seconds, 1)
            pause_is_over = asyncio.Event()
            is_overloaded = isinstance(failure, ModelOverloaded)
            yield RetryDelay(failure.what, shown_seconds, pause_is_over.set, is_overloaded)
            await self._pause_before_retry(pause_seconds, pause_is_over)
            attempt += 1

    async def _pause_before_retry(self, seconds: float, pause_is_over: asyncio.Event) -> None:
        """Wait for the pause, or until somebody cuts it short."""

        def end_pause(_: object) -> None:
            pause_is_over.set()

        async with aclosing(OwnedTasks("waiting")) as tasks:
            sleeping = tasks.spawn_task(self.clock.sleep_seconds(seconds), name="pause")
            sleeping.add_done_callback(end_pause)
            await pause_is_over.wait()

    def _describe_reached_limit(self, request: Request, reply: Reply) -> str:
        """Return why a reply that was cut at its length cannot go on, or an empty string.

        That is so if the limit was the user's for this model, or the room in its window. Where
        the caller asked for a short reply, it is no failure.
        """
        limit = limit_reply(request, self.info).max_output
        if reply.stop is not Stop.LENGTH or request.max_output or not limit:
            return ""
        # A server may have a lower limit of its own. After that one, the model can go on.
        output = reply.usage.output  # 0: the server did not count it.
        if output and output < REACHED_SHARE * limit:
            return ""
        if limit == self.info.reply_limit:
            return f"The reply reached the limit of {limit:,} tokens that you set for this model."
        return "The reply filled the model's context window, so it was not continued."

    def _compile_request(self, request: Request) -> OutgoingRequest:
        """Return the request as this model's protocol has it."""
        limited_request = limit_reply(request, self.info)
        # The provider knows the model by its own id, without the provider's name.
        named_request = replace(limited_request, model=self.info.id)
        own_request = without_foreign_reasoning(named_request)
        return self.dialect.compile_request(own_request, self.info.abilities)

    async def _try_once(self, post: OutgoingRequest, request: Request) -> AsyncGenerator[Delta]:
        """Send the request once, and yield the reply's pieces and then the whole `Reply`.

        A failure is raised only while nothing was shown, as the request can then be sent
        again. Later, the reply ends with what has come, and says why it was cut.
        """
        reader = self.dialect.build_reply_reader(request)
        content = await asyncio.to_thread(dump_json_body, post.body)
        has_shown_something = False
        reason_of_cut = ""
        try:
            async with self.transport.open_post(post.path, content, post.headers) as answer:
                await self._raise_for_refusal(answer)
                async with aclosing(self._read_deltas(answer, reader)) as deltas:
                    async for delta in deltas:
                        has_shown_something = True
                        yield delta
        except ModelFailed as failure:
            failure = self._remove_key_from_error(failure)
            if not has_shown_something and not reader.is_reply_complete:
                raise failure from None
            reason_of_cut = failure.what

        if reader.is_reply_complete:
            reason_of_cut = ""  # What failed came behind the reply.
        elif not reason_of_cut:  # The stream ended without saying that the reply is complete.
            reason_of_cut = reader.reply_so_far().why
            if not has_shown_something:
                raise ProviderUnreachable(reason_of_cut)
        yield self._finish_reply(reader, request, reason_of_cut)

    async def _read_deltas(
        self, answer: http_transport.HttpAnswer, reader: ReplyReaderBase
    ) -> AsyncGenerator[Delta]:
        """Yield what the answer adds to the reply, until nothing more will come.

        After a reply, only its token counts may follow, for which no server needs long.
        """
        async with aclosing(_events_of_answer(answer)) as events:
            async for event in events:
                for delta in self._feed_event(reader, event):
                    yield delta
                if reader.is_reply_complete:
                    answer.shorten_wait_for_rest()
                if reader.is_stream_over:
                    await answer.read_to_end_briefly(events)
                    return

    def _finish_reply(self, reader: ReplyReaderBase, request: Request, reason_of_cut: str) -> Reply:
        """Return the whole reply, or what came of it and why it was cut."""
        reply = reader.reply_so_far(reason_of_cut)
        if reply.stop is Stop.END and self.info.is_free:
            reply = _read_template_marks(reply)
        if reply.stop is Stop.END and request.tools:
            reply = self._read_calls_in_text(reply, request)
        usage = fill_in_cost(reply.usage, self.info)
        why = reply.why
        if not why:
            why = self._describe_reached_limit(request, reply)
        # The model keeps the name under which the user configured it.
        return replace(reply, model=self.info.name, usage=usage, why=why)

    def _read_calls_in_text(self, reply: Reply, request: Request) -> Reply:
        """Return the reply with the calls that the model wrote as text, if there are any.

        A local model writes so if its server does not know its form of calls. Elsewhere, and
        where the text cannot be read, the reply says that nothing was run.
        """
        text = ""
        parts: list[ReplyPart] = []
        for part in reply.parts:
            if isinstance(part, Text):
                text += part.text
            elif isinstance(part, Reasoning):
                parts.append(part)

        text_with_calls: TextWithCalls | None = None
        if self.info.is_free:
            tool_names = {tool.name for tool in request.tools}
            text_with_calls = find_calls_in_text(text, tool_names)
        if text_with_calls is None and looks_like_a_call(text):
            return replace(reply, why=CALL_AS_TEXT)
        if text_with_calls is None:
            return reply

        if text_with_calls.text:
            parts.append(Text(text_with_calls.text))
        for call in text_with_calls.calls:
            call_id = f"text_{secrets.token_hex(8)}"
            parts.append(ToolCall(call_id, call.name, call.arguments))
        return replace(reply, parts=tuple(parts), stop=Stop.CALLS)

    async def _raise_for_refusal(self, answer: http_transport.HttpAnswer) -> None:
        """Raise ModelFailed, with what the user can do, unless the answer is a reply."""
        is_accepted = answer.status_code == 200
        if is_accepted and not answer.is_web_page:
            return
        if is_accepted:
            raise http_transport.UnmendableFailure(
                f"{self.transport.where} returned a web page instead of a reply.",
                remedy="Check the address.",
            )
        content = await answer.read_whole_body(http_transport.LONGEST_REFUSAL)
        refusal = ProviderRefusal(
            where=self.transport.where,
            status=answer.status_code,
            body=read_refusal_body(content),
            headers=answer.response_headers,
            model=self.info.id,
        )
        failure = failure_of_refusal(refusal)
        if isinstance(failure, ProviderKeyRefused) and not self.key:
            raise ProviderKeyRefused(
                failure.what, remedy="No key was sent. Enter a key for this provider."
            )
        raise failure

    def _feed_event(self, reader: ReplyReaderBase, event: ServerSentEvent) -> list[Delta]:
        """Return what an event adds to the reply. Raises ModelFailed for one that cannot be read."""
        try:
            return reader.feed_event(event)
        except ReplyTooLong as error:
            raise ModelFailed(
                f"{self.transport.where} sent a reply of more than {error.most_characters:,} characters."
            ) from error
        except ValueError as error:
            raise ProviderUnreachable(
                f"{self.transport.where} sent data that could not be read."
            ) from error

    def _seconds_until_retry(self, failure: ModelFailed, attempt: int) -> float:
        """Return the seconds before the next try: what the provider asked for, or else a pause
        that doubles each time. Raises the failure if it was the last try.
        """
        patience = self.transport.patience
        failure = self._remove_key_from_error(failure)
        is_local = http_transport.is_loopback(self.transport.base_url)
        if attempt >= _most_tries(failure, patience, local=is_local):
            raise failure

        # `spread` is between 0 and 1, so that not all programs ask again at the same moment.
        if isinstance(failure, ModelOverloaded) and failure.retry_after is not None:
            asked_seconds = failure.retry_after
            if asked_seconds > patience.longest_wait:
                raise ModelOverloaded(
                    f"{failure.what} The provider asks you to wait {asked_seconds / 60:.0f} min.",
                    remedy="Continue later, or use another model.",
                )
            most_added_seconds = 0.1 + 0.1 * asked_seconds  # Never less than what was asked for.
            return asked_seconds + most_added_seconds * self.spread()

        doubled_pause = patience.first_pause * 2.0 ** (attempt - 1)
        pause = min(patience.longest_pause, doubled_pause)
        share_of_pause = 0.75 + 0.5 * self.spread()
        return float(pause * share_of_pause)

    def _remove_key_from_error(self, failure: ModelFailed) -> ModelFailed:
        """Return the failure without the key, which some providers quote."""
        if len(self.key) >= SHORTEST_KEY and self.key in failure.what:
            failure.what = failure.what.replace(self.key, "•••")
            failure.args = (failure.what,)
        return failure


def _read_template_marks(reply: Reply) -> Reply:
    """Return the reply of a local model without the marks of its chat template, which some
    servers leave in the text. What stands between the marks of thinking becomes reasoning.
    """
    parts: list[ReplyPart] = []
    for part in reply.parts:
        if not isinstance(part, Text):
            parts.append(part)
            continue
        thoughts_and_text = split_off_thoughts(remove_template_marks(part.text))
        if thoughts_and_text.thoughts:
            parts.append(Reasoning(thoughts_and_text.thoughts))
        if thoughts_and_text.text:
            parts.append(Text(thoughts_and_text.text))
    return replace(reply, parts=tuple(parts))


def limit_reply(request: Request, info: ModelInfo) -> Request:
    """Return the request with a limit for its reply's length, if it needs one and has none.

    `info.reply_limit` is the user's limit for this model. `request.room` is what is left of
    the window, given for a model on this computer: one that does not end would fill it. 0
    means that there is no such limit.
    """
    if request.max_output:
        return request
    limits = [limit for limit in (info.reply_limit, request.room) if limit]
    if not limits:
        return request
    return replace(request, max_output=min(limits))


def _most_tries(
    failure: ModelFailed, patience: http_transport.ProviderPatience, *, local: bool
) -> int:
    """Return how often a request is sent at most after a failure of this kind."""
    if isinstance(failure, http_transport.UnmendableFailure):
        return 1
    if isinstance(failure, ModelOverloaded):
        return patience.attempts
    if isinstance(failure, http_transport.NoConnection) and local:
        return patience.attempts_local
    if isinstance(failure, ProviderUnreachable):
        return patience.attempts_unreachable
    return 1


async def _events_of_answer(answer: http_transport.HttpAnswer) -> AsyncGenerator[ServerSentEvent]:
    """Yield the events of an answer as they come.

    A server that does not stream sends a single JSON document, which counts as one event.
    Ollama sends a document on each line, others server-sent events.
    """
    if not answer.is_stream:
        body = await answer.read_whole_body()
        yield ServerSentEvent(body.decode("utf-8", errors="replace"))
        return

    parser: LineStreamParser | EventStreamParser = EventStreamParser()
    if answer.has_a_document_on_each_line:
        parser = LineStreamParser()
    event_count = 0
    async with aclosing(answer.body_chunks()) as chunks:
        async for chunk in chunks:
            try:
                events = parser.feed_bytes(chunk)
            except EventTooLong as error:
                raise ProviderUnreachable(f"The server's response: {error}.") from error
            for event in events:
                yield event
                event_count += 1
                # Of a fast server, hundreds may have come at once. The window must paint between.
                if event_count % EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
