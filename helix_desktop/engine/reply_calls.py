"""The calls of one reply: run, recorded, and none left open."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence

from helix_desktop.engine.blocks import Reply
from helix_desktop.engine.calls import UNREAD
from helix_desktop.engine.collaborators import Crew
from helix_desktop.engine.contents import SAMPLE, tokens_in
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.events import CallMoved, Stage, ToolShowed
from helix_desktop.engine.facts import Decided, Fact, Stop, TodoSet, ToolCall, ToolReturned
from helix_desktop.engine.parts import is_object
from helix_desktop.engine.ports import About, Answer, CallContext, Outcome, Question
from helix_desktop.engine.steward import Steward

LATELY = 12  # calls among which repeated ones are counted
HEAD = 2_000  # characters of an output that its fact has for display
Result = tuple[ToolReturned, Sequence[Fact], str]  # with what else to record, and what the call asked to keep
SKIPPED = "This call was not run: the user refused one before it in the same reply."
TORN = (
    "Your reply met its length limit in the middle of this call, so it was not run. Write less at once: a long file in "
    "several parts, the first with write_file and the others with edit_file."
)


class ReplyCalls:
    """Used by one turn for each of its replies."""

    def __init__(
        self, conversation: Conversation, crew: Crew, steward: Steward, ask: Callable[[Question], Awaitable[Answer]]
    ) -> None:
        self._conversation = conversation
        self._crew = crew
        self._steward = steward
        self._ask = ask
        self._lately: deque[tuple[str, str, str]] = deque(maxlen=LATELY)

    async def run(self, reply: Reply) -> None:
        """Some side by side, some one after another. What is done is recorded before the next begins; what is shown of
        the outputs is decided of all together.
        """
        calls, torn = [part for part in reply.parts if isinstance(part, ToolCall)], _torn(reply)
        groups, waiting, tasks = self._groups(calls), list(calls), list[asyncio.Task[Result]]()
        done: list[Result] = []
        seqs: list[int] = []
        self._moved(calls[len(groups[0]) :], Stage.IN_LINE)
        try:
            for group in groups:
                seqs += await self._record(done[len(seqs) :])
                self._moved(group, Stage.RUNNING)
                tasks = [self._crew.spawn(self._run_one(call, torn), name=f"tool {call.name}") for call in group]
                await asyncio.gather(*tasks)
                done += [task.result() for task in tasks]
                tasks = []
                del waiting[: len(group)]
                if _refused(done[-len(group) :]):  # the calls after it may rely on it
                    seqs += await self._record(done[len(seqs) :])
                    done += [await self._left(call, SKIPPED) for call in waiting]
                    waiting.clear()
                    break
            await self._record_last(done, seqs)
        except BaseException:  # the user's stop, and a bug of a tool: no call stays open, no tool runs on
            for task in tasks:
                task.cancel()
            await asyncio.shield(self._record_stopped(waiting, tasks))
            raise

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """The calls that may run side by side, group after group. A change of files is a group of its own."""
        groups: list[list[ToolCall]] = []
        alone = True
        for call in calls:
            before, alone = alone, self._crew.tools.alone(call.name)
            if before or alone:
                groups.append([])
            groups[-1].append(call)
        return groups

    def _moved(self, calls: Sequence[ToolCall], stage: Stage) -> None:
        for call in calls:
            self._conversation.tell(CallMoved(self._conversation.id, call.id, stage))

    async def _run_one(self, call: ToolCall, torn: ToolCall | None) -> Result:
        """The call's own time: not how long the user thought about it."""
        now, waits = self._crew.clock.now, list[float]()
        started = now()
        outcome = await (
            self._not_run(call) if call is torn else self._crew.tools.run(call, self._context(call, waits))
        )
        returned = await self._returned(call, outcome, max(0.0, now() - started - sum(waits)))
        self._lately.append((call.name, call.arguments, outcome.output.digest.hex))
        self._moved([call], Stage.DONE)
        return returned, _beside(call, outcome), outcome.keep

    async def _not_run(self, call: ToolCall) -> Outcome:
        return Outcome(await self._crew.cache.put(TORN.encode(), About(call.name)), ok=False)

    def _context(self, call: ToolCall, waits: list[float]) -> CallContext:
        here, now = self._conversation, self._crew.clock.now

        def show(text: str) -> None:
            here.tell(ToolShowed(here.id, call.id, text))

        async def ask(question: Question) -> Answer:
            asked = now()
            try:
                return await self._ask(question)
            finally:
                waits.append(now() - asked)

        return CallContext(here.id, ask, show)

    async def _returned(self, call: ToolCall, outcome: Outcome, seconds: float) -> ToolReturned:
        head, tokens = await self._measured(outcome)
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
            repeat_of=self._conversation.state.last_return_of(outcome.output.digest) if outcome.repeated else 0,
            child=outcome.child,
            stopped=outcome.stopped,
        )

    async def _measured(self, outcome: Outcome) -> tuple[str, int]:
        """The head for display, and the tokens."""
        size, content = outcome.output.size, outcome.content
        if content is None:
            content = await self._crew.cache.read(outcome.output.digest, 0, min(size, SAMPLE))
        given = size, content, self._crew.tokens.count
        tokens = await asyncio.to_thread(tokens_in, *given) if len(content) > 1 << 15 else tokens_in(*given)
        head = content.decode("utf-8", "replace") if len(content) <= 4 * HEAD else ""
        return head if len(head) <= HEAD else "", tokens

    async def _record(self, results: Sequence[Result], folds: Sequence[Fact] = ()) -> list[int]:
        """The seqs of the results."""
        beside = [fact for _, more, _ in results for fact in more]
        recorded = await self._conversation.append(*(result for result, _, _ in results), *folds, *beside)
        return [one.seq for one in recorded[: len(results)]]

    async def _record_last(self, results: Sequence[Result], seqs: Sequence[int]) -> None:
        """Those that have no seq yet and the excerpts of all, in one transaction; a stop while excerpts are made leaves
        the results whole.
        """
        last, keeps = results[len(seqs) :], {result.call: keep for result, _, keep in results}
        try:
            folds = await self._steward.admit([result for result, _, _ in results], keeps, seqs)
        except asyncio.CancelledError:
            await asyncio.shield(self._record(last))
            raise
        await self._record(last, folds)

    async def _record_stopped(self, calls: Sequence[ToolCall], tasks: Sequence[asyncio.Task[Result]]) -> None:
        """Results that are there stay; of the other calls, begun or not, the model is told that there is no result."""
        await asyncio.gather(*tasks, return_exceptions=True)
        results: list[Result] = []
        for call, task in itertools.zip_longest(calls, tasks):
            if task is None or task.cancelled() or task.exception():
                results.append(await self._left(call, UNREAD))
            else:
                results.append(task.result())
        await self._record(results)

    async def _left(self, call: ToolCall, why: str) -> Result:
        """A call that came to nothing."""
        stored = await self._crew.cache.put(why.encode(), About(call.name))
        return ToolReturned(call.id, stored, self._crew.tokens.count(why), ok=False, head=why, stopped=True), (), ""

    def repeated(self) -> tuple[str, int]:
        """The tool that was called alike most often, and how often; never, where something else was new in between: a check
        after each step of work is no repetition.
        """
        if not self._lately:
            return "", 0
        most, count = Counter(self._lately).most_common(1)[0]
        since = Counter(itertools.islice(self._lately, self._lately.index(most), None))
        return most[0], count if min(since.values()) > 1 else 0


def _refused(results: Sequence[Result]) -> bool:
    """Whether the user said no to one of them."""
    beside = (fact for _, facts, _ in results for fact in facts)
    return any(isinstance(fact, Decided) and fact.by == "user" and not fact.allowed for fact in beside)


def _torn(reply: Reply) -> ToolCall | None:
    """The call in whose arguments the reply met its length limit."""
    last = reply.parts[-1] if reply.parts and reply.stop is Stop.LENGTH else None
    return last if isinstance(last, ToolCall) and not is_object(last.arguments) else None


def _beside(call: ToolCall, outcome: Outcome) -> Sequence[Fact]:
    """What else a call leaves in the journal: who decided, a new list of what is to do, the files it changed."""
    facts: list[Fact] = []
    if outcome.decided_by:
        facts.append(Decided(call.id, not outcome.refused, outcome.decided_by, outcome.decided_scope))
    if outcome.todo is not None:
        facts.append(TodoSet(outcome.todo))
    if outcome.files is not None:
        facts.append(outcome.files)
    return facts
