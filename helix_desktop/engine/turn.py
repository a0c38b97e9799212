"""The loop of a turn: ask the model, run what it calls, show it the results, until it has nothing more to do."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine import budget, laws
from helix_desktop.engine.blocks import Delta, Image, Reply, Request, TextDelta, View, Waiting
from helix_desktop.engine.calls import UNREAD, meant, unwrapped
from helix_desktop.engine.collaborators import Crew, Note, Setup
from helix_desktop.engine.contents import SAMPLE, Contents, tokens_in
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import CallMoved, Running, Stage, Streamed, ToolShowed
from helix_desktop.engine.facts import (
    NO_LONGER,
    Decided,
    Excluded,
    Fact,
    ModelReplied,
    ModelRole,
    PartRef,
    Pinned,
    Reasoning,
    ReplyPart,
    Span,
    Stop,
    Stored,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    TurnEnd,
    TurnEnded,
    Unpinned,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.history.sent import digest_of
from helix_desktop.engine.parts import is_object
from helix_desktop.engine.ports import About, Answer, CallContext, ModelClient, Outcome, Question
from helix_desktop.engine.steward import Steward
from helix_desktop.errors import (
    BadKey,
    ContextTooLong,
    HelixError,
    ModelFailed,
    Overloaded,
    Refused,
    StoreFailed,
    UnknownModel,
    Unreachable,
)
from helix_desktop.values import dataclass

CUTS_IN_A_ROW = 3
OVERFLOWS_IN_A_ROW = 3
LATELY = 12
HEAD = 2_000
_CAUSES: Mapping[type[HelixError], str] = {
    BadKey: "key",
    UnknownModel: "model",
    ContextTooLong: "window",
    Overloaded: "busy",
    Unreachable: "connection",
    StoreFailed: "store",
}
Result = tuple[ToolReturned, Sequence[Fact], str]  # with what else to record, and what the call asked to keep
SKIPPED = "This call was not run: the user refused one before it in the same reply."
TORN = (
    "Your reply met its length limit in the middle of this call, so it was not run. Write less at once: a long file in "
    "several parts, the first with write_file and the others with edit_file."
)


Words = tuple[tuple[UserPart, ...], str]  # what is said, and on whose behalf (UserSaid.by)


@dataclass(frozen=True, slots=True)
class Talk:
    """The turn's line to the user: questions and its state out, steering messages in, and back where they found no room."""

    ask: Callable[[Question], Awaitable[Answer]]
    steering: Callable[[], Sequence[Words]]
    steer_again: Callable[[Sequence[Words]], None]
    running: Callable[[Running], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, the newest fact in the view it was made from, and its digest."""

    request: Request
    saw: int
    digest: Digest


async def take_up(crew: Crew, conversation: Conversation) -> None:
    """What a request depends on besides the messages becomes facts, as far as the conversation has it otherwise. The
    tools come behind the model and the policy, by which it is decided how many of them are sent.
    """
    setup = await crew.setup()
    await conversation.append(*(fact for fact in setup.settings if not conversation.state.holds(fact)))
    offered = _offered(crew)
    facts = [] if conversation.state.holds(offered) else [offered]
    await conversation.append(*facts, *noted(setup.notes, crew, conversation, len(facts)))


def look_ahead(crew: Crew, conversation: Conversation, setup: Setup) -> None:
    """The same, worked out and not recorded: what the next request will have besides the messages."""
    conversation.expect(setup.settings)
    conversation.expect((*setup.settings, _offered(crew)))


def _offered(crew: Crew) -> ToolsOffered:
    tools = crew.tools.specs()
    counted = sum(crew.tokens.count(t.name + t.description + t.schema) for t in tools)
    return ToolsOffered(tools, counted, *crew.withheld())


def noted(wanted: Iterable[Note], crew: Crew, conversation: Conversation, before: int = 0) -> list[Fact]:
    """Notes that are new or have changed, said at the end and pinned: the prefix stays, and no fold shortens them.
    `before`: how many facts are appended in front of these.
    """
    notes, facts = conversation.state.branch.notes, list[Fact]()
    for note in wanted:
        seq, said = notes.get(note.by, (0, ""))
        text = note.text or (NO_LONGER if seq else "")
        if text == said:
            continue
        if seq and note.pinned:
            facts.append(Unpinned(PartRef(seq)))
        facts.append(UserSaid((Text(text, crew.tokens.count(text)),), steering=True, by=note.by))
        if note.pinned:
            facts.append(Pinned(PartRef(-(before + len(facts) - 1))))
    return facts


class Turn:
    """One turn of one conversation. `run` records everything, its own end too, and never leaves a call open."""

    def __init__(
        self, conversation: Conversation, crew: Crew, steward: Steward, contents: Contents, talk: Talk
    ) -> None:
        self._conversation = conversation
        self._crew = crew
        self._steward = steward
        self._contents = contents
        self._talk = talk
        self.wake: Callable[[], object] | None = None  # ends a pause before another try
        self._steps = 0
        self._cuts = 0
        self._paid_before = len(conversation.state.spent)
        self._lately: deque[tuple[str, str, str]] = deque(maxlen=LATELY)

    async def run(self) -> TurnEnded:
        """Steps until there is an end, which is recorded and returned."""
        end = self._spent()  # a day's limit that is reached lets no turn begin
        try:
            while end is None:
                await take_up(self._crew, self._conversation)
                await self._steward.before_step()
                self._refuse_what_cannot_fit()
                reply = await self._ask_model()
                calls = [part for part in reply.parts if isinstance(part, ToolCall)]
                if calls:
                    await self._run_batch(calls, torn=_torn(reply))
                steered = await self._take_steering(within=bool(calls))
                end = self._end(reply, going_on=bool(calls) or steered)
                if end is None and self._cuts:
                    await self._prepare_again(reply)
        except HelixError as error:
            end = failed(error)
        except asyncio.CancelledError:
            await asyncio.shield(self._record_end(TurnEnded(TurnEnd.STOPPED)))
            raise
        await self._record_end(end)
        return end

    async def _record_end(self, end: TurnEnded) -> None:
        """With the files that a stopped step has changed."""
        await self._conversation.append(*await self._crew.settle(self._conversation.id), end)

    # --- before a step

    def _refuse_what_cannot_fit(self) -> None:
        """Pins are never folded: where they are why the request is larger than the window, it is not sent."""
        state, meter = self._conversation.state, self._conversation.meter()
        if meter.used <= meter.window or not state.branch.pins:
            return
        kept = budget.kept_whole(state)
        raise Refused(
            f"The next request would take up {meter.used:,} tokens, but the window of {meter.model or 'the model'} holds only {meter.window:,}: the system prompt, tools, rules and pins alone take up {kept:,}. Nothing was sent.",
            remedy="Unpin something, or choose a model with a larger window.",
        )

    async def _request(self) -> _Asked:
        """The next request. What is appended while it is prepared is not in it, and `saw` says so."""
        view = self._conversation.view()
        contents = await self._contents.of(view)
        request, digest, blocks = await asyncio.to_thread(_sealed, view, contents)
        before = self._conversation.sent
        now = self._conversation.sent = before.then(blocks)
        stable = now.stable if before.blocks else request.stable
        return _Asked(replace(request, model=self._main().model, stable=stable, settled=now.settled), view.seq, digest)

    def _main(self) -> ModelClient:
        client = self._crew.models(ModelRole.MAIN)
        if client is None:
            raise ModelFailed("No model has been chosen for this workspace.", remedy="Choose a model at the top right.")
        return client

    # --- the model

    async def _ask_model(self) -> Reply:
        """One reply, recorded. A request that is too long is folded and asked again, unless that changed nothing."""
        self._talk.running(Running.THINKING)
        for _ in range(OVERFLOWS_IN_A_ROW):
            try:
                return await self._stream()
            except ContextTooLong as error:
                before = self._conversation.meter()
                await take_up(self._crew, self._conversation)  # the refusal may have named the model's real window
                await self._steward.before_step(overflowed=True)
                failed, now = error, self._conversation.meter()
                if now.used >= before.used and now.window == before.window:
                    break
        raise failed

    async def _stream(self) -> Reply:
        asked = await self._request()
        started, written, reply = self._crew.clock.now(), "", None
        try:
            async for delta in self._main().stream(asked.request):
                self._show(delta)
                if isinstance(delta, TextDelta):
                    written += delta.text
                elif isinstance(delta, Reply):
                    reply = delta
        except asyncio.CancelledError:
            partial = Reply((Text(written),) if written else (), Stop.STOPPED)
            await asyncio.shield(self._record_reply(partial, asked, started))
            raise
        return await self._record_reply(reply or Reply((), Stop.CUT), asked, started)

    def _show(self, delta: Delta) -> None:
        self.wake = delta.wake if isinstance(delta, Waiting) else None
        self._conversation.tell(Streamed(self._conversation.id, delta))

    async def _record_reply(self, reply: Reply, asked: _Asked, started: float) -> Reply:
        """A broken reply keeps its words; its calls may be torn and are left out."""
        parts = reply.parts
        if reply.stop in (Stop.CUT, Stop.STOPPED):
            parts = tuple(part for part in parts if isinstance(part, Text))
        parts = tuple(self._counted(part) for part in parts)
        self._steps += 1
        seconds = self._crew.clock.now() - started
        model = reply.model or self._main().model
        if parts or reply.usage.input:
            stable, settled = asked.request.stable, asked.request.settled
            fact = ModelReplied(
                parts, model, reply.stop, reply.usage, asked.saw, seconds, asked.digest, stable=stable, settled=settled
            )
            await self._conversation.append(fact)
        return replace(reply, parts=parts)

    def _counted(self, part: ReplyPart) -> ReplyPart:
        match part:
            case Text(text) | Reasoning(text):
                return replace(part, tokens=self._crew.tokens.count(text))
            case ToolCall(_, said, arguments):
                offered = self._conversation.state.settings.tools.tools
                name = meant(said, [spec.name for spec in offered])
                tokens = self._crew.tokens.count(name + arguments)
                return unwrapped(replace(part, name=name, tokens=tokens))

    async def _prepare_again(self, reply: Reply) -> None:
        """Ask again after a pause. Words of a broken stream stay in the journal and leave the view, so that the request
        is the one that failed; a reply that met its length limit is continued instead.
        """
        if reply.stop is Stop.CUT and reply.parts:
            partial = self._conversation.state.branch.steps[-1]
            await self._conversation.append(Excluded(Span(partial, partial)))
        spread = random.uniform(0.75, 1.25)  # noqa: S311  # so that many do not come back together
        await self._crew.clock.sleep(2 ** (self._cuts - 1) * spread)

    # --- its calls

    async def _run_batch(self, calls: Sequence[ToolCall], torn: ToolCall | None) -> None:
        """All calls of a reply, some side by side, some one after another. What is done is recorded before the next
        begins; what is shown of the outputs is decided of all together.
        """
        self._talk.running(Running.TOOLS)
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
                if _refused(done[-len(group) :]):  # what stands behind it was meant to come after it
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
        """What may run side by side; a change of files stands in order with the calls around it."""
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
                return await self._talk.ask(question)
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

    def _count(self, text: str) -> int:
        return self._crew.tokens.count(text)

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
        """Results that were there stay; for the rest, begun or not, the model is told that they are not there."""
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
        return ToolReturned(call.id, stored, self._count(why), ok=False, head=why, stopped=True), (), ""

    # --- after a step

    async def _take_steering(self, *, within: bool) -> bool:
        """Messages sent meanwhile stand after the whole batch of results."""
        steering = self._talk.steering()
        if steering:
            try:
                await self._conversation.append(*(UserSaid(parts, steering=within, by=by) for parts, by in steering))
            except HelixError:
                self._talk.steer_again(steering)
                raise
        return bool(steering)

    def _end(self, reply: Reply, *, going_on: bool) -> TurnEnded | None:
        """Why the turn ends here, or None."""
        silent = reply.stop is Stop.END and not _says_something(reply)
        broken = silent or reply.stop in (Stop.CUT, Stop.LENGTH)
        if broken and not going_on:
            self._cuts += 1
            if self._cuts <= CUTS_IN_A_ROW:
                return None
            happened = (
                "The model sent several empty replies in a row."
                if silent
                else "The reply was cut off several times in a row."
            )
            return TurnEnded(TurnEnd.FAILED, reply.why or happened, "" if silent else "connection")
        self._cuts = 0
        if reply.stop is Stop.FILTERED:
            return TurnEnded(TurnEnd.FAILED, reply.why or "The provider withheld the reply.")
        if not going_on:
            return TurnEnded(TurnEnd.DONE)
        return self._limit()

    def _limit(self) -> TurnEnded | None:
        limits = self._crew.limits()
        if self._steps >= limits.steps:
            return TurnEnded(TurnEnd.STEP_LIMIT, f"This turn reached its limit of {self._steps} steps.")
        name, count = _repeated(self._lately)
        if count >= limits.repeats:
            return TurnEnded(
                TurnEnd.REPEATING, f"{name} was called {count} times with the same arguments and the same result."
            )
        return self._spent()

    def _spent(self) -> TurnEnded | None:
        limits = self._crew.limits()
        day, ever = self._crew.spent()
        turn = sum(paid.usage.cost for paid in self._conversation.state.spent[self._paid_before :])
        for what, spent, limit in (
            ("This turn", turn, limits.turn_cost),
            ("Today", day, limits.day_cost),
            ("This workspace", ever, limits.workspace_cost),
            ("All agents of this conversation", *self._crew.agents_spent()),
        ):
            if limit and spent >= limit:
                return TurnEnded(TurnEnd.SPENDING_LIMIT, f"{what} has cost ${spent:.2f}; the limit is ${limit:.2f}.")
        return None


def failed(error: HelixError) -> TurnEnded:
    """The end of a turn that met this."""
    cause = next((name for kind, name in _CAUSES.items() if isinstance(error, kind)), "")
    return TurnEnded(TurnEnd.FAILED, str(error), cause)


def _sealed(view: View, contents: Mapping[Stored, str | Image]) -> tuple[Request, Digest, tuple[int, ...]]:
    """The request, its digest, and a number for each message by which the next request tells what changed."""
    request = laws.request(view, contents)
    return request, digest_of(request), tuple(map(hash, request.messages))


def _says_something(reply: Reply) -> bool:
    """Whether there is more than thinking and empty lines."""
    return any(isinstance(part, ToolCall) or (isinstance(part, Text) and part.text.strip()) for part in reply.parts)


def _refused(results: Sequence[Result]) -> bool:
    """Whether the user said no to one of them."""
    beside = (fact for _, facts, _ in results for fact in facts)
    return any(isinstance(fact, Decided) and fact.by == "user" and not fact.allowed for fact in beside)


def _torn(reply: Reply) -> ToolCall | None:
    """The call in whose arguments the reply met its length limit."""
    last = reply.parts[-1] if reply.parts and reply.stop is Stop.LENGTH else None
    return last if isinstance(last, ToolCall) and not is_object(last.arguments) else None


def _repeated(lately: deque[tuple[str, str, str]]) -> tuple[str, int]:
    """The tool that was called alike most often, and how often; never, where something else was new in between: a check
    after each step of work is no repetition.
    """
    if not lately:
        return "", 0
    most, count = Counter(lately).most_common(1)[0]
    since = Counter(itertools.islice(lately, lately.index(most), None))
    return most[0], count if min(since.values()) > 1 else 0


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
