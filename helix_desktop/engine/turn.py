"""The loop of a turn: ask the model, run what it calls, show it the results, until it has nothing more to do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine import budget, laws
from helix_desktop.engine.blocks import Delta, Image, Reply, Request, TextDelta, View, Waiting
from helix_desktop.engine.calls import meant, unwrapped
from helix_desktop.engine.collaborators import Crew, Note, Setup
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import Running, Streamed
from helix_desktop.engine.facts import (
    NO_LONGER,
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
    ToolCall,
    ToolsOffered,
    TurnEnd,
    TurnEnded,
    Unpinned,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.history.sent import digest_of
from helix_desktop.engine.ports import Answer, ModelClient, Question
from helix_desktop.engine.reply_calls import ReplyCalls
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
_CAUSES: Mapping[type[HelixError], str] = {
    BadKey: "key",
    UnknownModel: "model",
    ContextTooLong: "window",
    Overloaded: "busy",
    Unreachable: "connection",
    StoreFailed: "store",
}
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
    """Record what a request depends on besides the messages, where it has changed. The tools come after the model and the
    policy, which decide how many of them are sent.
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
        self._calls = ReplyCalls(conversation, crew, steward, talk.ask)

    async def run(self) -> TurnEnded:
        """Steps until there is an end, which is recorded and returned."""
        end = self._spent()  # a day's limit that is reached lets no turn begin
        try:
            while end is None:
                await take_up(self._crew, self._conversation)
                await self._steward.before_step()
                self._refuse_what_cannot_fit()
                reply = await self._ask_model()
                called = any(isinstance(part, ToolCall) for part in reply.parts)
                if called:
                    self._talk.running(Running.TOOLS)
                    await self._calls.run(reply)
                steered = await self._take_steering(within=called)
                end = self._end(reply, going_on=called or steered)
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

    # --- after a step

    async def _take_steering(self, *, within: bool) -> bool:
        """Messages sent meanwhile come after all results of the reply."""
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
        name, count = self._calls.repeated()
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
