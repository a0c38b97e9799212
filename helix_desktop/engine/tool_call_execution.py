"""Runs the calls of one reply and records their results. No call stays without a result."""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import NamedTuple

from helix_desktop.engine import content_recall
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Decided,
    Fact,
    ModelReplied,
    Recorded,
    Rewound,
    Stop,
    Stored,
    TodoSet,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.message_blocks import is_json_object
from helix_desktop.engine.messages import Reply
from helix_desktop.engine.ports import (
    CallContext,
    CallOutcome,
    EntryOrigin,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.session_events import CallStage, CallStageChanged, ToolPrinted
from helix_desktop.engine.session_setup import SessionServices
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, UNREAD
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import SAMPLE_BYTES, estimate_entry_tokens
from helix_desktop.fast_dataclass import dataclass

LATEST_CALLS = 12  # Repeated calls are detected among this many of the latest ones.
HEAD_CHARACTERS = (
    2_000  # A result's fact keeps up to this many characters of its output for display.
)
SKIPPED = "This call was not run: the user refused one before it in the same reply."
TORN = (
    "Your reply met its length limit in the middle of this call, so it was not run. Write less at once: a long file in "
    "several parts, the first with write_file and the others with edit_file."
)


class CallResult(NamedTuple):
    """A call's result, further facts to record with it, and what the call asked to keep."""

    returned: ToolReturned
    beside: Sequence[Fact]
    keep: str


@dataclass(eq=False)
class ToolCallRunner:
    conversation: Conversation
    services: SessionServices
    folding: ConversationFolding
    ask: Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
    # The ids of calls that have actually started to run.
    _begun: set[str] = field(default_factory=set, init=False)
    _lately: deque[tuple[str, str, str]] = field(
        default_factory=lambda: deque(maxlen=LATEST_CALLS), init=False
    )

    async def run_reply_calls(self, reply: Reply) -> None:
        """Run the calls and record results group by group. Large outputs are shortened
        for all together.
        """
        calls, torn = (
            [part for part in reply.parts if isinstance(part, ToolCall)],
            _find_torn_call(reply),
        )
        groups, waiting, tasks = (
            self._group_parallel_calls(calls),
            list(calls),
            list[asyncio.Task[CallResult]](),
        )
        done: list[CallResult] = []
        seqs: list[int] = []
        self._notify_stage(calls[len(groups[0]) :], CallStage.IN_LINE)
        try:
            for group in groups:
                seqs += await self._record_results_and_return_seqs(done[len(seqs) :])
                self._notify_stage(group, CallStage.RUNNING)
                tasks = [
                    self.services.spawn(
                        self._run_and_time_call(call, torn), name=f"tool {call.name}"
                    )
                    for call in group
                ]
                await asyncio.gather(*tasks)
                done += [task.result() for task in tasks]
                tasks = []
                del waiting[: len(group)]
                # Later calls of a reply may rely on a refused one, so they are not run.
                if _user_refused_any(done[-len(group) :]):
                    seqs += await self._record_results_and_return_seqs(done[len(seqs) :])
                    done += [await self._result_of_unrun_call(call, SKIPPED) for call in waiting]
                    waiting.clear()
                    break
            await self._record_remaining_results(done, seqs)
        except (
            BaseException
        ):  # Even if the user stops the turn or a tool fails, all calls are answered.
            for task in tasks:
                task.cancel()
            await asyncio.shield(self._record_stopped_calls(waiting, tasks))
            raise

    def _group_parallel_calls(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Group calls that can run in parallel. A call that changes files is a group of its own."""
        groups: list[list[ToolCall]] = []
        alone = True
        for call in calls:
            before, alone = alone, self.services.tools.runs_alone(call.name)
            if before or alone:
                groups.append([])
            groups[-1].append(call)
        return groups

    def _notify_stage(self, calls: Sequence[ToolCall], stage: CallStage) -> None:
        for call in calls:
            self.conversation.notify_listeners(
                CallStageChanged(self.conversation.id, call.id, stage)
            )

    async def _run_and_time_call(self, call: ToolCall, torn: ToolCall | None) -> CallResult:
        """Run a call and time it, without the time the user took for an answer."""
        now, waits = self.services.clock.current_time, list[float]()
        started = now()
        outcome = (
            CallOutcome(await self._store_words_instead_of_output(call, TORN), ok=False)
            if call is torn
            else await self.services.tools.run_tool_call(
                call, self._build_call_context(call, waits)
            )
        )
        returned = await self._result_fact(call, outcome, max(0.0, now() - started - sum(waits)))
        self._lately.append((call.name, call.arguments, outcome.output.digest.hex))
        self._notify_stage([call], CallStage.DONE)
        return CallResult(returned, _facts_of_outcome(call, outcome), outcome.keep)

    async def _store_words_instead_of_output(self, call: ToolCall, words: str) -> Stored:
        origin = EntryOrigin(call.name, describe_call_as_source(call.arguments))
        return await self.services.cache.store_content(words.encode(), origin)

    def _build_call_context(self, call: ToolCall, waits: list[float]) -> CallContext:
        here, now = self.conversation, self.services.clock.current_time

        def show(text: str) -> None:
            here.notify_listeners(ToolPrinted(here.id, call.id, text))

        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            asked = now()
            try:
                return await self.ask(question)
            finally:
                waits.append(now() - asked)

        whole_tokens = content_recall.most_tokens_recalled_whole(here.state, here.policy)
        notes = partial(self._begun.add, call.id), partial(self._begun.discard, call.id)
        return CallContext(here.id, ask, show, whole_tokens, *notes, here.state.is_shown_whole)

    async def _result_fact(
        self, call: ToolCall, outcome: CallOutcome, seconds: float
    ) -> ToolReturned:
        head, tokens = await self._head_and_token_count(outcome)
        find_earlier = self.conversation.state.seq_of_last_output_with_content
        return ToolReturned(
            call=call.id,
            output=outcome.output,
            tokens=tokens,
            ok=outcome.ok,
            exit_code=outcome.exit_code,
            seconds=seconds,
            head=head,
            images=outcome.images,
            changes=outcome.changes,
            repeat_of=find_earlier(outcome.output.digest) if outcome.repeated else 0,
            child=outcome.child,
            stopped=outcome.stopped,
        )

    async def _head_and_token_count(self, outcome: CallOutcome) -> tuple[str, int]:
        size, content = outcome.output.size, outcome.content
        if content is None:
            content = await self.services.cache.read_range(
                outcome.output.digest, 0, min(size, SAMPLE_BYTES)
            )
        given = size, content, self.services.tokens.count_tokens
        if len(content) > 1 << 15:
            tokens = await asyncio.to_thread(estimate_entry_tokens, *given)
        else:
            tokens = estimate_entry_tokens(*given)
        head = content.decode("utf-8", "replace") if len(content) <= 4 * HEAD_CHARACTERS else ""
        return head if len(head) <= HEAD_CHARACTERS else "", tokens

    async def _record_results_and_return_seqs(
        self, results: Sequence[CallResult], folds: Sequence[Fact] = ()
    ) -> list[int]:
        beside = [fact for _, more, _ in results for fact in more]
        recorded = await self.conversation.append_facts(
            *(result for result, _, _ in results), *folds, *beside
        )
        return [one.seq for one in recorded[: len(results)]]

    async def _record_remaining_results(
        self, results: Sequence[CallResult], recorded_seqs: Sequence[int]
    ) -> None:
        """Record the other results and all excerpts together. After a stop, none is shortened."""
        last, keeps = (
            results[len(recorded_seqs) :],
            {result.call: keep for result, _, keep in results},
        )
        try:
            folds = await self.folding.excerpt_large_results(
                [result for result, _, _ in results], keeps, recorded_seqs
            )
        except asyncio.CancelledError:
            await asyncio.shield(self._record_results_and_return_seqs(last))
            raise
        await self._record_results_and_return_seqs(last, folds)

    async def _record_stopped_calls(
        self, calls: Sequence[ToolCall], tasks: Sequence[asyncio.Task[CallResult]]
    ) -> None:
        """Record finished results. Other calls get a result that says they were stopped."""
        await asyncio.gather(*tasks, return_exceptions=True)
        results: list[CallResult] = []
        for call, task in itertools.zip_longest(calls, tasks):
            if task is None or task.cancelled() or task.exception():
                why = UNREAD if call.id in self._begun else NOT_BEGUN
                results.append(await self._result_of_unrun_call(call, why))
            else:
                results.append(task.result())
        await self._record_results_and_return_seqs(results)

    async def _result_of_unrun_call(self, call: ToolCall, why: str) -> CallResult:
        stored = await self._store_words_instead_of_output(call, why)
        tokens = self.services.tokens.count_tokens(why)
        return CallResult(
            ToolReturned(call.id, stored, tokens, ok=False, head=why, stopped=True), (), ""
        )

    def most_repeated_tool_and_count(self) -> tuple[str, int]:
        """Return the tool repeated most often with equal results, without other calls between."""
        if not self._lately:
            return "", 0
        most, count = Counter(self._lately).most_common(1)[0]
        since = Counter(itertools.islice(self._lately, self._lately.index(most), None))
        return most[0], count if min(since.values()) > 1 else 0


def facts_that_take_back_unstarted_calls(state: ConversationState) -> list[Fact]:
    """Return the facts after which the calls that a stop kept from beginning wait
    again, or nothing if there are none.
    """
    results: list[Recorded] = []
    for one in reversed(state.facts_on_path()):
        if isinstance(one.fact, ModelReplied | UserSaid):
            break
        if isinstance(one.fact, ToolReturned):
            results.insert(0, one)
    heads = {one.seq: one.fact.head for one in results if isinstance(one.fact, ToolReturned)}
    first = next((seq for seq, head in heads.items() if head == NOT_BEGUN), 0)
    kept = [one.fact for one in results if one.seq > first and heads[one.seq] != NOT_BEGUN]
    return [Rewound(first - 1), *kept] if first else []


def _user_refused_any(results: Sequence[CallResult]) -> bool:
    beside = (fact for _, facts, _ in results for fact in facts)
    return any(
        isinstance(fact, Decided) and fact.by == "user" and not fact.allowed for fact in beside
    )


def _find_torn_call(reply: Reply) -> ToolCall | None:
    """Return the call whose arguments were cut off as the reply reached its length limit."""
    last = reply.parts[-1] if reply.parts and reply.stop is Stop.LENGTH else None
    return last if isinstance(last, ToolCall) and not is_json_object(last.arguments) else None


def _facts_of_outcome(call: ToolCall, outcome: CallOutcome) -> Sequence[Fact]:
    """Return other facts of a call: who decided, a new to-do list, changed files."""
    facts: list[Fact] = []
    if outcome.decided_by:
        facts.append(
            Decided(call.id, not outcome.refused, outcome.decided_by, outcome.decided_scope)
        )
    if outcome.todo is not None:
        facts.append(TodoSet(outcome.todo))
    if outcome.files is not None:
        facts.append(outcome.files)
    return facts
