"""Runs the calls of one reply and records their results. No call stays without a result."""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import partial
from typing import NamedTuple

from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.engine import content_recall
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Decided,
    Fact,
    ModelReplied,
    Rewound,
    Stop,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.message_blocks import is_json_object
from helix_desktop.engine.messages import Reply
from helix_desktop.engine.ports import (
    NOT_RUN,
    CallContext,
    CallOutcome,
    EntryOrigin,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.session_events import CallStage, CallStageChanged, ToolPrinted
from helix_desktop.engine.session_setup import SessionServices
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, SKIPPED, UNREAD
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import SAMPLE_BYTES, estimate_entry_tokens
from helix_desktop.fast_dataclass import dataclass

LATEST_CALLS = 12  # Repeated calls are detected among this many of the latest ones.
# A result's fact keeps up to this many characters of its output for display.
HEAD_CHARACTERS = 2_000
MOST_BYTES_OF_A_LETTER = 4  # In UTF-8.
MOST_BYTES_COUNTED_HERE = 1 << 15  # The tokens of more bytes are counted in a thread.
TORN = (
    "Your reply met its length limit in the middle of this call, so it was not run. Write less at once: a long file in "
    "several parts, the first with write_file and the others with edit_file."
)


class CallResult(NamedTuple):
    """A call's result, further facts to record with it, and what the call asked to keep."""

    returned: ToolReturned
    beside: Sequence[Fact]
    keep: str


class _CallAndResult(NamedTuple):
    """What is the same when a call is repeated and has brought nothing new."""

    tool: str
    arguments: str
    output: str


@dataclass(eq=False)
class ToolCallRunner:
    """Runs the calls of one conversation's replies."""

    conversation: Conversation
    services: SessionServices
    folding: ConversationFolding
    ask: Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
    # The ids of calls that have actually started to run.
    _started_calls: set[str] = field(default_factory=set, init=False)
    # Oldest first.
    _latest_calls: deque[_CallAndResult] = field(
        default_factory=lambda: deque(maxlen=LATEST_CALLS), init=False
    )

    async def run_reply_calls(self, reply: Reply) -> None:
        """Run a reply's calls and record their results.

        Calls that may run at the same time form a group; the groups run one after another. The
        results of a group are recorded before the next group begins. Those of the last group
        come at the end, where the large outputs of all groups are shortened together. If the
        user refuses a call, the groups after it are not run, and their calls get a result that
        says so. If the turn is stopped, the calls without a result get one, too.
        """
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        torn_call = _find_torn_call(reply)
        groups = self._group_parallel_calls(calls)
        waiting = list(calls)
        tasks: list[asyncio.Task[CallResult]] = []
        results: list[CallResult] = []
        recorded_seqs: list[int] = []
        self._notify_stage(calls[len(groups[0]) :], CallStage.IN_LINE)
        try:
            for group in groups:
                # The last group's results are recorded at the end, with the excerpts of all.
                unrecorded = results[len(recorded_seqs) :]
                recorded_seqs += await self._record_results_and_return_seqs(unrecorded)
                self._notify_stage(group, CallStage.RUNNING)
                for call in group:
                    run = self._run_and_time_call(call, torn_call)
                    tasks.append(self.services.spawn(run, name=f"tool {call.name}"))
                await asyncio.gather(*tasks)
                group_results = [task.result() for task in tasks]
                results += group_results
                tasks = []
                del waiting[: len(group)]
                # Later calls of a reply may rely on a refused one, so they are not run.
                if _user_refused_any(group_results):
                    recorded_seqs += await self._record_results_and_return_seqs(
                        results[len(recorded_seqs) :]
                    )
                    for call in waiting:
                        results.append(await self._result_in_words(call, SKIPPED, NOT_RUN))
                    waiting = []
                    break
            await self._record_remaining_results(results, recorded_seqs)
        # Even if the user stops the turn or a tool fails, all calls are answered.
        except BaseException:
            for task in tasks:
                task.cancel()
            await finish_even_if_cancelled(self.record_stopped_calls(waiting, tasks))
            raise

    def _group_parallel_calls(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Group calls that can run in parallel. A call that changes files is a group of its own."""
        groups: list[list[ToolCall]] = []
        begins_group = True
        for call in calls:
            runs_alone = self.services.tools.runs_alone(call.name)
            if begins_group or runs_alone:
                groups.append([])
            groups[-1].append(call)
            begins_group = runs_alone
        return groups

    def _notify_stage(self, calls: Sequence[ToolCall], stage: CallStage) -> None:
        for call in calls:
            self.conversation.notify_listeners(
                CallStageChanged(self.conversation.id, call.id, stage)
            )

    async def _run_and_time_call(self, call: ToolCall, torn_call: ToolCall | None) -> CallResult:
        """Run a call and time it, without the time the user took for an answer. The call that
        was broken off in the middle (`torn_call`) is not run.
        """
        start_time = self.services.clock.steady_time()
        seconds_of_questions: list[float] = []  # One for each question that the user was asked.
        if call is torn_call:
            output = await self.services.cache.store_content(TORN.encode(), NOT_RUN)
            outcome = CallOutcome(output, ok=False)
        else:
            context = self._build_call_context(call, seconds_of_questions.append)
            outcome = await self.services.tools.run_tool_call(call, context)
        elapsed_seconds = self.services.clock.steady_time() - start_time
        running_seconds = max(0.0, elapsed_seconds - sum(seconds_of_questions))
        returned = await self._result_fact(call, outcome, running_seconds)
        call_and_result = _CallAndResult(call.name, call.arguments, outcome.output.digest.hex)
        self._latest_calls.append(call_and_result)
        self._notify_stage([call], CallStage.DONE)
        return CallResult(returned, _facts_of_outcome(call, outcome), outcome.keep)

    def _build_call_context(
        self, call: ToolCall, note_wait: Callable[[float], None]
    ) -> CallContext:
        """Return what a tool may use. `note_wait` is told how long the user took for an answer."""
        conversation = self.conversation
        steady_time = self.services.clock.steady_time

        def show(text: str) -> None:
            conversation.notify_listeners(ToolPrinted(conversation.id, call.id, text))

        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            time_asked = steady_time()
            try:
                return await self.ask(question)
            finally:
                note_wait(steady_time() - time_asked)

        state = conversation.state
        whole_tokens = content_recall.most_tokens_recalled_whole(state, conversation.policy)
        note_begun = partial(self._started_calls.add, call.id)
        note_waiting = partial(self._started_calls.discard, call.id)
        return CallContext(
            conversation.id,
            ask,
            show,
            whole_tokens,
            note_begun,
            note_waiting,
            state.is_shown_whole,
        )

    async def _result_fact(
        self, call: ToolCall, outcome: CallOutcome, seconds: float
    ) -> ToolReturned:
        """Return the fact that records a call's outcome. `seconds`: how long the call ran."""
        head, tokens = await self._head_and_token_count(outcome)
        repeat_of = 0
        if outcome.repeated:
            state = self.conversation.state
            repeat_of = state.seq_of_last_output_with_content(outcome.output.digest)
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
            repeat_of=repeat_of,
            child=outcome.child,
            stopped=outcome.stopped,
        )

    async def _head_and_token_count(self, outcome: CallOutcome) -> tuple[str, int]:
        """Return an output's text if it is short, or else an empty text, and its tokens.

        Of an output that is not in memory, only a sample is read, from which the tokens are estimated.
        """
        size = outcome.output.size
        content = outcome.content
        if content is None:
            sample_size = min(size, SAMPLE_BYTES)
            content = await self.services.cache.read_range(outcome.output.digest, 0, sample_size)
        count_tokens = self.services.tokens.count_tokens
        # Counting more would block the event loop, and with it every other conversation.
        if len(content) > MOST_BYTES_COUNTED_HERE:
            tokens = await asyncio.to_thread(estimate_entry_tokens, size, content, count_tokens)
        else:
            tokens = estimate_entry_tokens(size, content, count_tokens)
        if len(content) > MOST_BYTES_OF_A_LETTER * HEAD_CHARACTERS:
            return "", tokens
        head = content.decode("utf-8", "replace")
        if len(head) > HEAD_CHARACTERS:
            return "", tokens
        return head, tokens

    async def _record_results_and_return_seqs(
        self, results: Sequence[CallResult], folds: Sequence[Fact] = ()
    ) -> list[int]:
        new_facts: list[Fact] = [result.returned for result in results]
        new_facts += folds
        for result in results:
            new_facts += result.beside
        recorded_facts = await self.conversation.append_facts(*new_facts)
        return [recorded.seq for recorded in recorded_facts[: len(results)]]

    async def _record_remaining_results(
        self, results: Sequence[CallResult], recorded_seqs: Sequence[int]
    ) -> None:
        """Record the other results and all excerpts together. After a stop, none is shortened."""
        unrecorded = results[len(recorded_seqs) :]
        returned = [result.returned for result in results]
        keeps = {result.returned.call: result.keep for result in results}
        try:
            folds = await self.folding.excerpt_large_results(returned, keeps, recorded_seqs)
        except asyncio.CancelledError:
            await finish_even_if_cancelled(self._record_results_and_return_seqs(unrecorded))
            raise
        await self._record_results_and_return_seqs(unrecorded, folds)

    async def record_stopped_calls(
        self, calls: Sequence[ToolCall], tasks: Sequence[asyncio.Task[CallResult]]
    ) -> None:
        """Record finished results. Other calls get a result that says they were stopped."""
        await asyncio.gather(*tasks, return_exceptions=True)
        results: list[CallResult] = []
        for call, task in itertools.zip_longest(calls, tasks):
            if task is not None and not task.cancelled() and not task.exception():
                results.append(task.result())
                continue
            if call.id in self._started_calls:
                origin = EntryOrigin(call.name, describe_call_as_source(call.arguments))
                results.append(await self._result_in_words(call, UNREAD, origin))
            else:
                results.append(await self._result_in_words(call, NOT_BEGUN, NOT_RUN))
        await self._record_results_and_return_seqs(results)

    async def _result_in_words(self, call: ToolCall, words: str, origin: EntryOrigin) -> CallResult:
        """Return the result of a call that has no output."""
        stored = await self.services.cache.store_content(words.encode(), origin)
        tokens = self.services.tokens.count_tokens(words)
        returned = ToolReturned(call.id, stored, tokens, ok=False, head=words, stopped=True)
        return CallResult(returned, beside=(), keep="")

    def most_repeated_tool_and_count(self) -> tuple[str, int]:
        """Return the tool whose call was repeated most often with the same result, and how often,
        or 0 if something else was done meanwhile, as the agent may make progress then.
        """
        if not self._latest_calls:
            return "", 0
        most_repeated, count = Counter(self._latest_calls).most_common(1)[0]
        # A call that was made only once since then may be progress, such as an edit between
        # two runs of the tests.
        first_index = self._latest_calls.index(most_repeated)
        calls_since_first = itertools.islice(self._latest_calls, first_index, None)
        counts_since_first = Counter(calls_since_first)
        if min(counts_since_first.values()) == 1:
            return most_repeated.tool, 0
        return most_repeated.tool, count


def facts_that_take_back_unstarted_calls(state: ConversationState) -> list[Fact]:
    """Return the facts after which the calls that a stop kept from beginning wait again, as if
    they had just been made, or nothing if there are none.
    """
    results = _results_of_last_reply(state)
    first_unstarted = 0
    for seq, result in results.items():
        if result.head == NOT_BEGUN:
            first_unstarted = seq
            break
    if first_unstarted == 0:
        return []
    # A rewind takes back all results from there on, so those of calls that ran are appended again.
    new_facts: list[Fact] = [Rewound(first_unstarted - 1)]
    for seq, result in results.items():
        if seq > first_unstarted and result.head != NOT_BEGUN:
            new_facts.append(result)
    return new_facts


def asks_again_about_unstarted_calls(state: ConversationState) -> bool:
    """Whether the last reply has calls that a kill kept from beginning while the user was asked
    about them. If the user stopped the turn, its end is recorded behind them.
    """
    for recorded in reversed(state.facts_on_path()):
        fact = recorded.fact
        if isinstance(fact, TurnEnded | ModelReplied | UserSaid):
            return False
        if isinstance(fact, ToolReturned) and fact.head == NOT_BEGUN:
            return True
    return False


def _results_of_last_reply(state: ConversationState) -> dict[int, ToolReturned]:
    """Return the results after the last message or reply, by their numbers and in order."""
    newest_first: list[tuple[int, ToolReturned]] = []
    for recorded in reversed(state.facts_on_path()):
        if isinstance(recorded.fact, ModelReplied | UserSaid):
            break
        if isinstance(recorded.fact, ToolReturned):
            newest_first.append((recorded.seq, recorded.fact))
    return dict(reversed(newest_first))


def _user_refused_any(results: Sequence[CallResult]) -> bool:
    for result in results:
        for fact in result.beside:
            if isinstance(fact, Decided) and fact.by == "user" and not fact.allowed:
                return True
    return False


def _find_torn_call(reply: Reply) -> ToolCall | None:
    """Return the call whose arguments were cut off as the reply reached its length limit."""
    if reply.stop is not Stop.LENGTH or not reply.parts:
        return None
    last_part = reply.parts[-1]
    if isinstance(last_part, ToolCall) and not is_json_object(last_part.arguments):
        return last_part
    return None


def _facts_of_outcome(call: ToolCall, outcome: CallOutcome) -> Sequence[Fact]:
    """Return other facts of a call: who decided, a new to-do list, changed files."""
    facts: list[Fact] = []
    if outcome.decided_by:
        facts.append(outcome.decision_on_call(call.id))
    if outcome.todo is not None:
        facts.append(TodoSet(outcome.todo))
    if outcome.files is not None:
        facts.append(outcome.files)
    return facts
