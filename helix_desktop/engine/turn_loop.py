"""The loop of a turn: ask the model, run its calls, send it the results, until nothing
is left to do.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace

from helix_desktop import errors
from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.engine import context_usage, facts, request_building
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.changes.undo_notes_for_model import UNDO, read_undone_files
from helix_desktop.engine.conversation import Conversation, resolve_relative_cover
from helix_desktop.engine.messages import Delta, Image, Reply, Request, RetryDelay, View
from helix_desktop.engine.ports import CountingModelClient, CuttingModelClient, ModelClient
from helix_desktop.engine.repeated_text import RepetitionWatch
from helix_desktop.engine.session_events import (
    TEXT_CAUSE,
    ConversationActivity,
    MeterChanged,
    ReplyStreamed,
)
from helix_desktop.engine.session_setup import (
    ConversationSetup,
    SessionServices,
    StandingNote,
    TurnCallbacks,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.request_digest import digest_of_request
from helix_desktop.engine.tool_call_execution import ToolCallRunner
from helix_desktop.engine.tool_call_parsing import match_tool_name, unwrap_call
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.fast_dataclass import dataclass

CUTS_IN_A_ROW = 3
OVERFLOWS_IN_A_ROW = 3
MOST_COUNTS_BEFORE_REQUEST = 3  # After as many counts, what was shortened is not counted again.
LEAST_ROOM = 64  # A reply may have this many tokens, even where the window seems to be full.
FULL_SHARE = 0.97  # A reply with which this share of the window is full has filled it.
REPEATED_ITSELF = "The model repeated the same text again and again, so its reply was stopped."
FILLED_WINDOW = "The reply filled the model's context window, so it was not continued."
# What ended a turn without an error; see `TurnEnded.cause`.
LENGTH_CAUSE = "length"
_CAUSES: Mapping[type[errors.HelixError], str] = {
    errors.ProviderKeyRefused: "key",
    errors.NoCreditLeft: "credit",
    errors.UnknownModel: "model",
    errors.ContextTooLong: "window",
    errors.ModelOverloaded: "busy",
    errors.ProviderUnreachable: "connection",
    errors.StoreFailed: "store",
}


@dataclass(frozen=True, slots=True)
class _BuiltRequest:
    """A request, its digest, and a number by message, which later shows what changed."""

    request: Request
    digest: Digest
    message_hashes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _PreparedRequest:
    """A request, the newest fact in its view, and its digest."""

    request: Request
    newest_seq: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class _TimedReply:
    """A reply, and how long its first word took, which is 0 if there was none."""

    reply: Reply
    first_word_seconds: float


async def record_changed_settings(services: SessionServices, conversation: Conversation) -> None:
    """Record what the next request depends on besides messages, if it has changed."""
    setup = await services.setup()
    conversation.set_expected_settings(setup.settings_facts)
    new_facts: list[facts.Fact] = []
    for fact in (*setup.settings_facts, _build_tools_offered(services, setup)):
        if not conversation.state.has_settings_of_fact(fact):
            new_facts.append(fact)
    new_facts += build_note_facts(setup.notes, services, conversation, len(new_facts))
    await conversation.append_facts(*new_facts)


async def append_note_on_undone_files(
    services: SessionServices, conversation: Conversation
) -> None:
    """Say at the end what the user undid or redid since the model was last told, and
    which changes a rewind has left.
    """
    state = conversation.state
    rewinds = state.record.rewinds
    last_undo = state.last_undo
    newest_undo_or_rewind = last_undo
    if rewinds:
        newest_undo_or_rewind = max(last_undo, rewinds[-1])
    last_note_seq, _ = state.branch.notes.get(UNDO, (0, ""))
    # Reading the files' versions takes long, so it is done once for each undo and rewind.
    undo_and_rewinds = (last_undo, len(rewinds))
    was_told = newest_undo_or_rewind <= last_note_seq
    if was_told or undo_and_rewinds == conversation.examined_undo:
        return
    undone_files = await read_undone_files(state, services.cache)
    news = undone_files.describe_news()
    note: tuple[facts.Fact, ...] = ()
    if news:
        text = facts.Text(f"[{news}]", services.tokens.count_tokens(news))
        note = (facts.UserSaid((text,), steering=True, by=UNDO),)

    def note_if_still_true(_: object) -> tuple[facts.Fact, ...]:
        # An undo made meanwhile is told with the next request.
        if state.last_undo != last_undo:
            return ()
        return note

    await conversation.append_facts_from(note_if_still_true)
    conversation.examined_undo = undo_and_rewinds


def set_expected_request_settings(
    services: SessionServices, conversation: Conversation, setup: ConversationSetup
) -> None:
    """Set, without recording it, what the next request has besides its messages."""
    conversation.set_expected_settings(setup.settings_facts)
    tools_offered = _build_tools_offered(services, setup)
    conversation.set_expected_settings(setup.settings_facts + (tools_offered,))


def _build_tools_offered(services: SessionServices, setup: ConversationSetup) -> facts.ToolsOffered:
    """Return the tools with their tokens. A model that cannot call any is offered none:
    its server leaves them out, and they would be counted.
    """
    for model in setup.models:
        if model.role is facts.ModelRole.MAIN and not model.can_call_tools:
            return facts.ToolsOffered((), 0)
    tools = services.tools.offered_specs()
    tokens = 0
    for tool in tools:
        tokens += services.tokens.count_tokens(tool.name + tool.description + tool.schema)
    return facts.ToolsOffered(tools, tokens, *services.withheld())


def build_note_facts(
    wanted: Iterable[StandingNote],
    services: SessionServices,
    conversation: Conversation,
    before: int = 0,
) -> list[facts.Fact]:
    """Return the facts for notes that are new or have changed since the model was told them.

    A note is a text that holds from now on, such as a folder's rules. It becomes a message at the
    end, so that what was sent before stays in the provider's cache. `before`: how many facts are
    appended together with these, before them.
    """
    notes_in_view = conversation.state.branch.notes
    new_facts: list[facts.Fact] = []
    for note in wanted:
        old_seq, old_text = notes_in_view.get(note.by, (0, ""))
        text = note.text
        if not text and old_seq:
            text = facts.NO_LONGER
        if text == old_text:
            continue
        if old_seq and note.pinned:
            old_note = facts.PartRef(old_seq)
            new_facts.append(facts.Unpinned(old_note))
        facts_before_note = before + len(new_facts)
        token_count = services.tokens.count_tokens(text)
        text_part = facts.Text(text, token_count)
        new_facts.append(facts.UserSaid((text_part,), steering=True, by=note.by))
        if note.pinned:
            # The message has no number yet: 0 and below count the facts appended together.
            new_note = facts.PartRef(-facts_before_note)
            new_facts.append(facts.Pinned(new_note))
    return new_facts


class TurnLoop:
    """One turn. `run_turn` also records its end, and leaves no call without a result."""

    def __init__(
        self,
        conversation: Conversation,
        services: SessionServices,
        folding: ConversationFolding,
        contents: ViewContents,
        callbacks: TurnCallbacks,
    ) -> None:
        self._conversation = conversation
        self._services = services
        self._folding = folding
        self._contents = contents
        self._callbacks = callbacks
        # The pause before a failed request is sent again. It is over when something comes.
        self._retry: RetryDelay | None = None
        self._retry_time = 0.0
        # While a reply is written: its end, which comes at once if the user sends something now.
        self._end_of_streaming: asyncio.Timeout | None = None
        self._step_count = 0
        self._cut_replies = 0  # How many broken or empty replies there were in a row.
        self._room = 0  # The tokens that the last reply might have; 0: as many as it liked.
        # After a reply was stopped as repeating itself, the user can have the turn go on.
        self._goes_on_repeating = _was_stopped_as_repeating(conversation)
        folding.spending.begin_turn()
        self._call_runner = ToolCallRunner(conversation, services, folding, callbacks.ask)

    async def run_turn(self, *, runs_waiting_calls: bool = False) -> facts.TurnEnded:
        """Run steps until the turn ends. Record and return its end.
        `runs_waiting_calls`: those of the last reply first.
        """
        # No turn begins once a spending limit is reached.
        end = self._folding.spending.find_turn_end_at_limit()
        try:
            if runs_waiting_calls and end is None:
                await self._run_waiting_calls()
            while end is None:
                end = await self._run_turn_step()
        except errors.HelixError as error:
            end = turn_end_of_error(error)
        except asyncio.CancelledError:
            await finish_even_if_cancelled(self._record_stop())
            raise
        await self._record_end(end)
        return end

    def interrupt_reply(self) -> None:
        """Stop the reply that is being written, if there is one. The turn goes on with what the
        user says instead.
        """
        ending = self._end_of_streaming
        # An earlier message may have stopped it already, and the reply has yet to hear of it.
        if ending is not None and not ending.expired():
            ending.reschedule(asyncio.get_running_loop().time())

    async def _run_waiting_calls(self) -> None:
        self._callbacks.running(ConversationActivity.TOOLS)
        running_calls = self._conversation.state.branch.running_calls
        calls = tuple(pending.call for pending in running_calls)
        await self._call_runner.run_reply_calls(Reply(calls, facts.Stop.CALLS))

    async def _run_turn_step(self) -> facts.TurnEnded | None:
        """Ask the model once and run its calls. Return the turn's end, or None if it goes on.

        Before that, what has changed is recorded, and the conversation is shortened if that is
        due. Messages that the user sent meanwhile come after the results of the calls.
        """
        self._callbacks.running(ConversationActivity.THINKING)
        await record_changed_settings(self._services, self._conversation)
        await append_note_on_undone_files(self._services, self._conversation)
        await self._shorten_until_counted_request_fits()
        self._refuse_pins_over_window()
        self._refuse_request_that_server_would_cut()
        reply = await self._ask_until_answered()
        has_calls = any(isinstance(part, facts.ToolCall) for part in reply.parts)
        if has_calls:
            self._callbacks.running(ConversationActivity.TOOLS)
            await self._call_runner.run_reply_calls(reply)
        was_steered = await self._record_steering(within=has_calls)
        end = self._turn_end_after_reply(reply, going_on=has_calls or was_steered)
        if end is None and self._cut_replies:
            await self._exclude_broken_reply_and_wait(reply)
        return end

    async def _record_stop(self) -> None:
        # The user may stop the turn while the reply with these calls is being recorded.
        running_calls = self._conversation.state.branch.running_calls
        if running_calls:
            calls = [pending.call for pending in running_calls]
            await self._call_runner.record_stopped_calls(calls, ())
        await self._record_end(self._callbacks.end_when_stopped())

    async def _record_end(self, end: facts.TurnEnded) -> None:
        """Record the end, and files that a stopped step has changed."""
        file_changes = await self._services.collect_file_changes(self._conversation.id)
        await self._conversation.append_facts(*file_changes, end)

    # --- Before a step: preparing and sending the request

    async def _shorten_until_counted_request_fits(self) -> None:
        """Make the folds that are due, by the count of the model's own tokenizer.

        What folds leave is counted again, because it may have more tokens for each one that we
        count: German text without the code that stood between it.
        """
        for _ in range(MOST_COUNTS_BEFORE_REQUEST):
            was_counted = await self._count_with_own_tokenizer()
            seq_before = self._conversation.state.seq
            await self._folding.apply_due_folds()
            was_shortened = self._conversation.state.seq != seq_before
            if not was_counted or not was_shortened:
                return

    async def _count_with_own_tokenizer(self) -> bool:
        """Let the model's server count the next request, if it can, so that folds and the
        meter go by its tokens. Our own count may be short by half. Where no server counts,
        an estimate for the model's vocabulary comes closer than our own count.

        Return whether there is such a count or estimate.
        """
        client = self._services.models(facts.ModelRole.MAIN)
        if not isinstance(client, CountingModelClient):
            return False
        meter = self._conversation.current_meter()
        view = self._conversation.current_view()
        contents = await self._contents.read_view_contents(view)
        request = await asyncio.to_thread(request_building.build_request, view, contents)
        if not meter.used:
            return False
        counted_here = sum(meter.counted.values())
        ledger = self._conversation.state.record.ledger
        seq = self._conversation.state.seq
        tokens_of_server = await client.count_request_tokens(request)
        if tokens_of_server:
            ledger.set_measured_factor(meter.model, seq, tokens_of_server / counted_here)
            self._tell_that_meter_changed()
            return True
        estimated_tokens = await client.estimate_request_tokens(request)
        if not estimated_tokens:
            return False
        ledger.set_estimated_factor(meter.model, seq, estimated_tokens / counted_here)
        self._tell_that_meter_changed()
        return True

    def _tell_that_meter_changed(self) -> None:
        """No fact is appended, so whoever shows the meter would go on showing the figure from before."""
        self._conversation.notify_listeners(MeterChanged(self._conversation.id))

    def _refuse_pins_over_window(self) -> None:
        """Refuse a request if pinned parts, which are never folded, exceed the window."""
        state = self._conversation.state
        meter = self._conversation.current_meter()
        if meter.used <= meter.window or not state.branch.pins:
            return
        unfoldable_tokens = context_usage.count_unfoldable_tokens(state)
        raise errors.ActionRefused(
            f"The next request would take up {meter.used:,} tokens, but the context window of {meter.model or 'the model'} holds only {meter.window:,}: the system prompt, tools, rules and pins alone take up {unfoldable_tokens:,}. Nothing was sent.",
            remedy="Unpin something, or choose a model with a larger context window.",
        )

    def _refuse_request_that_server_would_cut(self) -> None:
        """Refuse a request that may still be over the window after the last measure, if the server
        would leave out its beginning without a word. Other servers refuse it themselves, by
        their own count.
        """
        client = self._services.models(facts.ModelRole.MAIN)
        if not isinstance(client, CuttingModelClient) or not client.may_cut_silently:
            return
        meter = self._conversation.current_meter()
        if meter.most_used <= meter.window:
            return
        size = f"{meter.used:,}"
        if meter.may_lack:
            size = f"{meter.used:,}–{meter.most_used:,}"
        raise errors.ActionRefused(
            f"The next request would take up about {size} tokens, but the context window of {meter.model} holds only {meter.window:,}, and its server would leave out the beginning without a word. Nothing was sent.",
            remedy="Choose a larger window for the model, or make your rules or your message shorter.",
        )

    async def _build_request_and_mark_sent(self) -> _PreparedRequest:
        """Build the next request. Facts appended meanwhile are not in it."""
        room = self._room_for_reply()
        self._room = room
        view = self._conversation.current_view()
        contents = await self._contents.read_view_contents(view)
        built = await asyncio.to_thread(_build_and_digest_request, view, contents)
        sent_before = self._conversation.sent
        sent_now = sent_before.mark_next_request(built.message_hashes)
        self._conversation.sent = sent_now
        # The first request has none before it to compare with.
        stable = built.request.stable
        if sent_before.blocks:
            stable = sent_now.stable
        request = replace(
            built.request,
            model=self._main_model_client().model_name,
            stable=stable,
            settled=sent_now.settled,
            room=room,
        )
        return _PreparedRequest(request, view.seq, built.digest)

    def _room_for_reply(self) -> int:
        """Return the tokens that a local model may write. A provider ends replies itself."""
        chosen = self._conversation.state.settings.model_for_role(facts.ModelRole.MAIN)
        if chosen is None or not chosen.is_free:
            return 0
        meter = self._conversation.current_meter()
        return max(meter.window - meter.most_used, LEAST_ROOM)

    def _main_model_client(self) -> ModelClient:
        client = self._services.models(facts.ModelRole.MAIN)
        if client is None:
            raise errors.ModelFailed(
                "No model has been chosen for this workspace.",
                remedy="Choose a model at the top right.",
            )
        return client

    async def _ask_until_answered(self) -> Reply:
        """Return a recorded reply. If the provider refuses the request as too long, shorten the
        conversation, and ask again if that helped, but only a few times.
        """
        refusals = 0
        while True:
            try:
                return await self._stream_and_record_reply()
            except errors.ContextTooLong:
                refusals += 1
                has_helped = await self._shorten_after_refusal()
                if refusals == OVERFLOWS_IN_A_ROW or not has_helped:
                    raise

    async def _shorten_after_refusal(self) -> bool:
        """Shorten the conversation. Return whether another request may fit better: it is shorter,
        or the refusal has revealed another size of the model's window.
        """
        meter_before = self._conversation.current_meter()
        await record_changed_settings(self._services, self._conversation)
        await self._folding.apply_due_folds(overflowed=True)
        meter_after = self._conversation.current_meter()
        is_shorter = meter_after.used < meter_before.used
        return is_shorter or meter_after.window != meter_before.window

    async def _stream_and_record_reply(self) -> Reply:
        """Send the request, show the reply as it arrives, and record it.

        If the user stops the turn, what was written so far is recorded before the cancellation
        goes on. If the user interrupts the reply with a message, that is the reply.
        """
        if self._callbacks.is_interrupted():
            return _reply_of_text("")  # Nothing was sent. The next request has the message.
        prepared = await self._build_request_and_mark_sent()
        start_time = self._services.clock.steady_time()
        watch = RepetitionWatch()
        interruption = asyncio.timeout(None)
        try:
            async with interruption:
                self._end_of_streaming = interruption
                # The message may have been sent while the request was built.
                if self._callbacks.is_interrupted():
                    self.interrupt_reply()
                try:
                    streamed = await self._stream_reply(prepared.request, watch, start_time)
                finally:
                    # What was written is recorded next, and cannot be stopped any more.
                    self._end_of_streaming = None
        except asyncio.CancelledError:
            partial_reply = _reply_of_text(watch.written_text())
            await finish_even_if_cancelled(self._record_reply(partial_reply, prepared, start_time))
            raise
        except TimeoutError:
            if not interruption.expired():
                raise
            partial_reply = _reply_of_text(watch.written_text())
            return await self._record_reply(partial_reply, prepared, start_time)
        reply = streamed.reply
        self._conversation.speed.measure_reply(
            read_tokens=reply.usage.input - reply.usage.cache_read,
            first_word_seconds=streamed.first_word_seconds,
            written_tokens=reply.usage.output,
            seconds=self._services.clock.steady_time() - start_time,
        )
        return await self._record_reply(reply, prepared, start_time)

    async def _stream_reply(
        self, request: Request, watch: RepetitionWatch, start_time: float
    ) -> _TimedReply:
        """Show a reply as it arrives, piece by piece, and return it.

        The stream ends with a whole `Reply`, or is cut without one. If the text repeats itself,
        which `watch` notices, it is stopped here.
        """
        first_word_seconds = 0.0
        reply = Reply((), facts.Stop.CUT)
        stream = self._main_model_client().stream_reply(request)
        async with AsyncExitStack() as until_over:
            until_over.callback(
                self._note_or_end_pause, None
            )  # Whatever ends it, no pause is left.
            deltas = await until_over.enter_async_context(aclosing(stream))  # type: ignore[type-var]
            async for delta in deltas:
                self._note_or_end_pause(delta)
                self._conversation.notify_listeners(ReplyStreamed(self._conversation.id, delta))
                if isinstance(delta, RetryDelay):
                    continue
                if isinstance(delta, Reply):
                    reply = delta
                    continue
                if not first_word_seconds:
                    first_word_seconds = self._services.clock.steady_time() - start_time
                if watch.is_repeating(delta) and not self._goes_on_repeating:
                    reply = _reply_without_repetitions(watch)
                    break
        return _TimedReply(reply, first_word_seconds)

    def _note_or_end_pause(self, delta: Delta | None) -> None:
        self._retry = None
        if isinstance(delta, RetryDelay):
            self._retry = delta
            self._retry_time = self._services.clock.steady_time() + delta.seconds

    @property
    def next_try_after_pause(self) -> RetryDelay | None:
        """Return why the model is asked again, and what is left of the pause before it."""
        if self._retry is None:
            return None
        seconds_left = self._retry_time - self._services.clock.steady_time()
        return replace(self._retry, seconds=max(0.0, seconds_left))

    async def _record_reply(
        self, reply: Reply, prepared: _PreparedRequest, start_time: float
    ) -> Reply:
        """Record a reply. A broken one keeps its words, but not its calls, which may be cut off."""
        is_broken = reply.stop in (facts.Stop.CUT, facts.Stop.STOPPED)
        recorded_parts: list[facts.ReplyPart] = []
        for part in reply.parts:
            if isinstance(part, facts.Text) or not is_broken:
                recorded_parts.append(self._normalise_and_count_reply_part(part))
        parts = tuple(recorded_parts)
        self._step_count += 1
        seconds = self._services.clock.steady_time() - start_time
        model = reply.model or self._main_model_client().model_name
        # An empty reply that was billed is recorded for its cost.
        if parts or reply.usage.input:
            request = prepared.request
            fact = facts.ModelReplied(
                parts,
                model,
                reply.stop,
                reply.usage,
                saw=prepared.newest_seq,
                seconds=seconds,
                request=prepared.digest,
                stable=request.stable,
                settled=request.settled,
                room=request.room,
            )
            await self._conversation.append_facts(fact)
        return replace(reply, parts=parts)

    def _normalise_and_count_reply_part(self, part: facts.ReplyPart) -> facts.ReplyPart:
        """Return a part with its tokens counted, and a call as one of a tool that was offered."""
        match part:
            case facts.Text(text) | facts.Reasoning(text):
                return replace(part, tokens=self._services.tokens.count_tokens(text))
            case facts.ToolCall():
                offered = self._conversation.state.settings.tools.tools
                name = match_tool_name(part.name, [spec.name for spec in offered])
                tokens = self._services.tokens.count_tokens(name + part.arguments)
                return unwrap_call(replace(part, name=name, tokens=tokens))

    async def _exclude_broken_reply_and_wait(self, reply: Reply) -> None:
        """Take the words of a broken stream out of the view, and pause. A reply cut at
        its length stays.
        """
        if reply.stop is facts.Stop.CUT and reply.parts:
            seq_of_reply = self._conversation.state.branch.steps[-1]
            broken_reply = facts.Span(seq_of_reply, seq_of_reply)
            await self._conversation.append_facts(facts.Excluded(broken_reply))
        pause_seconds = 2 ** (self._cut_replies - 1)
        spread = random.uniform(0.75, 1.25)  # noqa: S311  # Many turns must not retry at once.
        await self._services.clock.sleep_seconds(pause_seconds * spread)

    # --- After a step: continuing or ending the turn

    async def _record_steering(self, *, within: bool) -> bool:
        """Record messages sent meanwhile, after all results of the reply."""
        messages = self._callbacks.steering()
        if not messages:
            return False
        new_facts: list[facts.Fact] = []
        try:
            for message in messages:
                said = facts.UserSaid(
                    message.parts, steering=within, by=message.by, command=message.command_id
                )
                message_and_folds = await self._folding.excerpt_large_message(said)
                # The folds of a message do not count the messages before it.
                place_of_message = -len(new_facts)
                for fact in message_and_folds:
                    new_facts.append(resolve_relative_cover(fact, place_of_message))
        except BaseException:
            self._callbacks.steer_again(messages)
            raise
        try:
            await self._conversation.append_facts(*new_facts)
        except errors.HelixError:
            # They go back to the queue, so that none is lost.
            self._callbacks.steer_again(messages)
            raise
        return True

    def _turn_end_after_reply(self, reply: Reply, *, going_on: bool) -> facts.TurnEnded | None:
        """Return how a reply ends the turn, or None if another step follows. `going_on`: it
        made calls, or the user has said something meanwhile.
        """
        end_of_endless = self._turn_end_of_endless_reply(reply, going_on=going_on)
        if end_of_endless is not None:
            return end_of_endless
        is_silent = reply.stop is facts.Stop.END and not _says_or_calls_anything(reply)
        is_broken = is_silent or reply.stop in (facts.Stop.CUT, facts.Stop.LENGTH)
        if is_broken and not going_on:
            self._cut_replies += 1
            return self._turn_end_after_cuts(reply, silent=is_silent)
        self._cut_replies = 0
        if reply.stop is facts.Stop.FILTERED:
            why = reply.why or "The provider withheld the reply."
            return facts.TurnEnded(facts.TurnEnd.FAILED, why)
        if going_on:
            return self._turn_end_at_limit()
        return facts.TurnEnded(facts.TurnEnd.DONE, reply.why)

    def _turn_end_after_cuts(self, reply: Reply, *, silent: bool) -> facts.TurnEnded | None:
        """End the turn after several broken or empty replies. Before, the model is asked again."""
        if self._cut_replies <= CUTS_IN_A_ROW:
            return None
        if silent:
            why = reply.why or "The model sent several empty replies in a row."
            return facts.TurnEnded(facts.TurnEnd.FAILED, why)
        why = reply.why or "The reply was cut off several times in a row."
        return facts.TurnEnded(facts.TurnEnd.FAILED, why, "connection")

    def _turn_end_of_endless_reply(self, reply: Reply, *, going_on: bool) -> facts.TurnEnded | None:
        """End the turn after a reply that repeats itself, and after one that has reached
        the user's limit or the window's end: continued, it would only grow.
        """
        if reply.stop is facts.Stop.STOPPED and reply.why:
            return facts.TurnEnded(facts.TurnEnd.REPEATING, reply.why, TEXT_CAUSE)
        if reply.stop is facts.Stop.STOPPED and not going_on:
            # The message for which the reply was stopped was taken back in the same moment.
            return facts.TurnEnded(facts.TurnEnd.STOPPED)
        if reply.stop is not facts.Stop.LENGTH or going_on:
            return None
        # A reason is given if the user's own limit ended the reply.
        if reply.why:
            return facts.TurnEnded(facts.TurnEnd.FAILED, reply.why, LENGTH_CAUSE)
        used = reply.usage.input + reply.usage.output
        has_filled_window = used >= FULL_SHARE * self._conversation.current_meter().window
        has_filled_room = 0 < self._room <= reply.usage.output
        if has_filled_window or has_filled_room:
            return facts.TurnEnded(facts.TurnEnd.FAILED, FILLED_WINDOW, LENGTH_CAUSE)
        return None

    def _turn_end_at_limit(self) -> facts.TurnEnded | None:
        """Return the turn's end if it has made too many steps, repeats the same call without
        anything new, or has cost too much.
        """
        limits = self._services.limits()
        if limits.steps and self._step_count >= limits.steps:
            why = f"This turn reached its step limit ({self._step_count})."
            return facts.TurnEnded(facts.TurnEnd.STEP_LIMIT, why)
        name, count = self._call_runner.most_repeated_tool_and_count()
        if limits.repeats and count >= limits.repeats:
            why = f"{name} was called {count} times with the same arguments and the same result."
            return facts.TurnEnded(facts.TurnEnd.REPEATING, why)
        return self._folding.spending.find_turn_end_at_limit()


def _says_or_calls_anything(reply: Reply) -> bool:
    for part in reply.parts:
        if isinstance(part, facts.ToolCall):
            return True
        if isinstance(part, facts.Text) and part.text.strip():
            return True
    return False


def _was_stopped_as_repeating(conversation: Conversation) -> bool:
    if not conversation.state.facts:
        return False
    last_fact = conversation.state.facts[-1].fact
    return isinstance(last_fact, facts.TurnEnded) and last_fact.cause == TEXT_CAUSE


def _reply_without_repetitions(watch: RepetitionWatch) -> Reply:
    return _reply_of_text(watch.text_without_repetitions(), why=REPEATED_ITSELF)


def _reply_of_text(text: str, why: str = "") -> Reply:
    """Return what was written until the reply was stopped."""
    parts: tuple[facts.ReplyPart, ...] = ()
    if text:
        parts = (facts.Text(text),)
    return Reply(parts, facts.Stop.STOPPED, why=why)


def turn_end_of_error(error: errors.HelixError) -> facts.TurnEnded:
    cause = ""
    for kind, name in _CAUSES.items():
        if isinstance(error, kind):
            cause = name
            break
    return facts.TurnEnded(facts.TurnEnd.FAILED, str(error), cause)


def _build_and_digest_request(
    view: View, contents: Mapping[facts.Stored, str | Image]
) -> _BuiltRequest:
    request = request_building.build_request(view, contents)
    message_hashes = tuple(map(hash, request.messages))
    return _BuiltRequest(request, digest_of_request(request), message_hashes)
