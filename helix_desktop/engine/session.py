"""The commands of one conversation. A window, a command line and a parent agent all work through these.

`send` returns at once; the turn runs in a task of its own and everything that happens arrives as events. A command
that changes the past is refused while a turn runs, with a sentence that says so.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from helix_desktop.engine import budget, laws
from helix_desktop.engine.blocks import Request, View
from helix_desktop.engine.budget import Meter, NextMessage
from helix_desktop.engine.collaborators import Crew, Note, Restored, Setup
from helix_desktop.engine.contents import SAMPLE, Contents, tokens_in
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import Answered, Asked, Event, Measured, Queued, Running, StateChanged
from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    FilesChanged,
    FoldKind,
    Included,
    ModelReplied,
    Pinned,
    Recorded,
    Rewound,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unpinned,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.history.ledger import Savings, saw_of
from helix_desktop.engine.history.sent import digest_of
from helix_desktop.engine.ports import Answer, CallContext, Outcome, Question
from helix_desktop.engine.steward import Steward
from helix_desktop.engine.turn import Talk, Turn, Words, failed, look_ahead, noted, take_up
from helix_desktop.errors import HelixError, NotThere, Refused
from helix_desktop.values import dataclass

TITLE = 60
MOST_SENT_ON = 3
FOLD_SHARE = 0.1  # of the next request: below it "Fold first" is not worth a thought
PLAN = "[The plan the user approved, word for word. Work on it now.]\n\n"
BUG = "This is a bug in Helix Desktop. Details are in the log. Nothing you wrote is lost, and you can continue."


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits for the next step (`steer`) or for the end of the turn."""

    parts: tuple[UserPart, ...]
    steer: bool
    by: str = ""  # see UserSaid


class Session:
    """One open conversation: its state, its turn, its queue and its open questions."""

    def __init__(self, conversation: Conversation, crew: Crew, steward: Steward) -> None:
        self.conversation = conversation
        self.running = Running.IDLE
        self.why = ""  # of `running`: what failed, or what is asked
        self.queue: list[Waiting] = []
        self.questions: dict[int, Question] = {}
        self._crew = crew
        self.steward = steward
        self._contents = Contents(crew.cache)
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self._turn: asyncio.Task[None] | None = None
        self._talking: Turn | None = None
        self._is_held = False
        self._begun = False  # whether its hooks have heard that it is open
        self._sent_on = 0  # how often hooks have sent the agent on since the user spoke
        self._elsewhere: Callable[[Question], Awaitable[Answer]] | None = None

    @property
    def id(self) -> str:
        return self.conversation.id

    @property
    def agent(self) -> str:
        """The connected agent that writes here; empty: this program's own."""
        return self.conversation.state.agent

    @property
    def facts(self) -> Sequence[Recorded]:
        """Everything that ever happened here, oldest first."""
        return self.conversation.state.facts

    @property
    def at_rest(self) -> bool:
        """Whether nothing runs and nothing waits here, so that closing the session loses nothing."""
        return self._turn is None and not self.queue and not self.questions and self.steward.at_rest

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Hear everything from now on; call what is returned to stop."""
        self.conversation.listeners.append(listener)
        return lambda: self.conversation.listeners.remove(listener)

    # --- talking

    def send(self, parts: tuple[UserPart, ...], *, steer: bool = False) -> None:
        """Send a message: now, or when the running turn is over (`steer`: after its current step)."""
        if self.agent:
            raise Refused(
                f"{self.agent} is working in this conversation.",
                remedy="Choose Continue here to continue a copy with Helix Desktop's own agent.",
            )
        if not parts:
            return
        self.queue.append(Waiting(tuple(self._counted(part) for part in parts), steer))
        self._tell_queue()
        self._begin()

    def say_for(self, by: str, text: str) -> None:
        """Send a message that is not the user's, but `by` somebody else: at the next step, or now if no turn runs."""
        self.queue.append(Waiting((self._counted(Text(text)),), steer=True, by=by))
        self._tell_queue()
        self._begin()

    def resume(self) -> None:
        """Continue a turn that was interrupted or met a limit."""
        self._refuse_while_held("go on")
        self._begin(even_without_words=True)

    def stop(self) -> None:
        """Stop the turn, its tools and its open questions. What happened so far is kept, and the queue waits."""
        for future in list(self._answers.values()):
            future.cancel()
        if self._turn is not None:
            self._turn.cancel()

    def try_now(self) -> None:
        """Do not wait any longer before the model is asked again."""
        if self._talking is not None and self._talking.wake is not None:
            self._talking.wake()

    def unqueue(self, index: int) -> tuple[UserPart, ...]:
        """Take a waiting message back, to edit or drop it."""
        taken = self.queue.pop(index)
        self._tell_queue()
        return taken.parts

    def answer(self, number: int, answer: Answer) -> None:
        """Answer a permission question. If it is no longer open, nothing happens."""
        future = self._answers.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    async def run_for(self, command: str, call: ToolCall) -> Outcome:
        """A call of the user's slash command: it asks as the agent's calls do, and nothing of it is recorded."""

        async def ask(question: Question) -> Answer:
            return await self._ask(replace(question, command=command))

        return await self._crew.tools.run(call, CallContext(self.id, ask, lambda _: None))

    async def text_of(self, stored: Stored, most: int) -> str:
        """The beginning of an entry as text, `most` bytes of it."""
        return (await self._crew.cache.read(stored.digest, 0, min(stored.size, most))).decode("utf-8", "replace")

    def ask_instead(self, ask: Callable[[Question], Awaitable[Answer]] | None) -> None:
        """Ask there what this conversation would ask: a sub-agent's questions go to the one who waits for it."""
        self._elsewhere = ask

    async def idle(self) -> None:
        """Returns when no turn runs and nothing waits."""
        while self._turn is not None:
            await asyncio.wait([self._turn])

    async def aclose(self) -> None:
        """Stop what runs and wait until it is recorded."""
        self.queue.clear()
        self.stop()
        await self.idle()
        self.queue.clear()  # of what was stopped before it was recorded, too
        await self.steward.aclose()
        await self.conversation.recorded()

    # --- context

    def view(self) -> View:
        """What the model sees now."""
        return self.conversation.view()

    def meter(self) -> Meter:
        """How many tokens the next request has, by kind."""
        ahead = self.conversation.ahead
        return budget.meter(ahead, self.conversation.policy_of(ahead))

    def next_message(self) -> NextMessage | None:
        """About what sending now costs; None where the model's prices are not known."""
        ahead = self.conversation.ahead
        return budget.next_message(ahead, self.conversation.policy_of(ahead))

    def look_ahead(self, setup: Setup) -> None:
        """Its next request will depend on this: what is shown of it goes by that, and nothing is recorded."""
        if self.agent or not self.at_rest:
            return
        look_ahead(self._crew, self.conversation, setup)
        self.conversation.tell(Measured(self.id))

    def price_with(self, parts: Sequence[UserPart], *, instead_of: int = 0) -> float:
        """About what these words would cost if they were sent now, in dollars; 0.0: not known. `instead_of`: a message they replace."""
        ahead = self.conversation.ahead
        price = budget.next_message(ahead, self.conversation.policy_of(ahead), before=instead_of)
        if price is None:
            return 0.0
        tokens = sum(self._counted(part).tokens for part in parts)
        return price.price(self._crew.clock.now()) + budget.corrected(tokens, ahead) * price.per_token

    def fold_first(self) -> float:
        """What making markers of old outputs now would save of the next message, in dollars, where its provider's cache is cold and
        the policy would not do it by itself; 0.0: nothing worth it.
        """
        price = self.next_message()
        if price is None or price.is_warm(self._crew.clock.now()):
            return 0.0
        freed = self.steward.freed_by_markers()
        return freed * price.per_token if freed >= FOLD_SHARE * self.meter().used else 0.0

    def forecast(self) -> str:
        """What would be folded next, and why."""
        return self.steward.forecast()

    def savings(self) -> Savings:
        """What was sent and paid so far, compared with what it would have been without folds."""
        return budget.savings(self.conversation.state)

    async def request_at(self, seq: int | None = None) -> Request:
        """The request as it was, or would be, sent: `seq` of a ModelReplied, or None for the next one."""
        state = self.conversation.ahead
        saw = state.seq if seq is None else saw_of(state.facts[self._reply(seq)[0] - 1])
        view = (await self.conversation.moment(saw)).view() if seq is not None else state.view()
        contents = await Contents(self._crew.cache).of(view)
        request = await asyncio.to_thread(laws.request, view, contents)
        reply = None if seq is None else self._reply(seq)[1]
        if reply is None or reply.stable is None:
            return request
        return replace(request, stable=reply.stable, settled=reply.settled)

    def is_as_sent(self, seq: int, request: Request) -> bool | None:
        """Whether this is what the reply `seq` answered, by the digest stored with it; None where none was stored."""
        known = self._reply(seq)[1].request
        return None if known is None else digest_of(request) == known

    def _reply(self, seq: int) -> tuple[int, ModelReplied]:
        fact = self.conversation.fact(seq)
        if not isinstance(fact, ModelReplied):
            raise NotThere(f"Fact {seq} of this conversation is not a reply from the model.")
        return seq, fact

    async def fold_now(self, kind: FoldKind, *, wish: str = "") -> None:
        self._refuse_while_held("fold")
        await self._crew.happened("PreCompact", self.id, {"trigger": "manual", "custom_instructions": wish})
        await self.steward.fold_now(kind, wish)

    async def undo(self, fold: str) -> None:
        await self.steward.undo(fold)

    async def redo(self, fold: str) -> None:
        await self.steward.redo(fold)

    async def edit_document(self, fold: str, text: str) -> None:
        """The user's own wording of a handover or of observations."""
        if self.conversation.state.fold(fold) is None:
            raise NotThere(f"There is no fold {fold} in this conversation.")
        await self.conversation.append(DocumentEdited(fold, text, self._crew.tokens.count(text)))

    async def pin(self, ref: Cover) -> None:
        """Show it word for word in every request. Refused, with the figures, where that would not fit."""
        state, meter = self.conversation.ahead, self.meter()
        kept = budget.kept_whole(state, ref)
        if kept + meter.reserve > meter.window:
            raise Refused(
                f"With this pinned, the system prompt, tools, rules and pins would take up {kept:,} tokens in every request. The window has {meter.window:,} tokens, and {meter.reserve:,} of them are reserved for the reply.",
                remedy="Pin less, unpin something, or choose a model with a larger window.",
            )
        await self.conversation.append(Pinned(ref))

    async def unpin(self, ref: Cover) -> None:
        await self.conversation.append(Unpinned(ref))

    async def exclude(self, ref: Cover) -> None:
        await self.conversation.append(Excluded(ref))

    async def include(self, ref: Cover) -> None:
        await self.conversation.append(Included(ref))

    async def recall(self, digest: Digest, *, lines: tuple[int, int] | None = None) -> Attachment:
        """An entry, or some of its lines, as an attachment for the next message."""
        entry = await self._crew.cache.about(digest)
        stored, name = entry.stored, entry.about.source or digest.short
        if lines is not None:
            first, last = lines
            text = (await self._crew.cache.get(digest)).decode("utf-8", "replace").splitlines(keepends=True)
            piece = "".join(text[first - 1 : last]).encode()
            stored = await self._crew.cache.put(piece, replace(entry.about, source=f"{name}:{first}-{last}"))
            name = f"{name}:{first}-{last}"
        sample = await self._crew.cache.read(stored.digest, 0, min(stored.size, SAMPLE))
        return Attachment(
            name, stored, await asyncio.to_thread(tokens_in, stored.size, sample, self._crew.tokens.count)
        )

    # --- the past

    async def rewind(self, seq: int, *, restore_files: bool = False) -> Sequence[str]:
        """Go on from `seq`. The rest stays in the journal. Returns what was done to files, a sentence each."""
        self._refuse_while_running("rewind")
        restored = await self._crew.restore(self._changes_after(seq)) if restore_files else Restored()
        facts = () if restored.fact is None else (restored.fact,)
        await self.conversation.append(*facts, Rewound(seq))
        return restored.said

    async def edit_and_resend(self, seq: int, parts: tuple[UserPart, ...]) -> None:
        """Replace the message at `seq` and continue from there."""
        self._refuse_while_running("edit and resend")
        said = self.conversation.fact(seq)
        if not isinstance(said, UserSaid) or said.by:
            raise NotThere(f"Fact {seq} of this conversation is not one of your messages.")
        await self.conversation.append(Rewound(seq - 1))
        self.send(parts)

    async def regenerate(self, seq: int = 0) -> None:
        """Ask again for the answer at `seq`, or for the last one: rewind to the message before it and continue. Earlier answers are kept."""
        self._refuse_while_running("ask again")
        present = self.conversation.state.present()
        before = [r for r in present if isinstance(r.fact, UserSaid) and not r.fact.by and (not seq or r.seq < seq)]
        if not before:
            raise NotThere("This conversation contains no message from you that can be answered again.")
        await self.conversation.append(Rewound(before[-1].seq, again=True))
        self.resume()

    async def choose_answer(self, end: int) -> None:
        """Go on with another answer to the same message: the one that ends with the fact `end`."""
        self._refuse_while_running("choose another answer")
        self.conversation.fact(end)
        await self.conversation.append(Rewound(end, again=True))

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Inside, no turn runs and no fact is added, so that recorded facts may be changed. New messages wait."""
        self._refuse_while_running("forget")
        self._is_held = True
        try:
            await self.steward.aclose()
            async with self.conversation.still():
                yield
        finally:
            self._is_held = False
            self._contents.clear()
            self._begin()

    async def settle_fork(self, title: str = "") -> None:
        """A copy that ends in the middle of a turn is no broken answer, and its meter counts what its next request has."""
        facts: list[Fact] = [TurnEnded(TurnEnd.DONE)] if self.conversation.state.branch.turn.running else []
        facts += [ConversationChanged(title=title)] if title else []
        await self.conversation.append(*facts)
        await take_up(self._crew, self.conversation)

    async def own_model(self, name: str) -> None:
        """A main model of this conversation alone; empty: the workspace's."""
        await self.conversation.append(ConversationChanged(model=name))

    async def rename(self, title: str) -> None:
        await self.conversation.append(ConversationChanged(title=title.strip() or "Untitled"))

    async def archive(self, *, archived: bool = True) -> None:
        await self.conversation.append(ConversationChanged(archived=archived))

    async def trash(self, *, trashed: bool = True) -> None:
        """To the trash, or back. What runs is stopped first."""
        if trashed:
            self.stop()
            await self.idle()
        await self.conversation.append(ConversationChanged(trashed=trashed))

    async def pin_conversation(self, *, pinned: bool = True) -> None:
        await self.conversation.append(ConversationChanged(pinned=pinned))

    # --- the turn

    def _begin(self, *, even_without_words: bool = False) -> None:
        if self._turn is None and not self._is_held and (self.queue or even_without_words):
            self._turn = self._crew.spawn(self._work(), name=f"turn of {self.id}")
            self._turn.add_done_callback(self._never_begun)

    def _never_begun(self, turn: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step runs nothing, not even what it would do at its end."""
        if self._turn is turn:
            self._turn = None
            self._set(Running.IDLE)

    async def _work(self) -> None:
        """Turn after turn until the queue is empty. A bug ends the turn with a sentence and is reported by its task."""
        ended = TurnEnded(TurnEnd.FAILED, BUG)
        try:
            while True:
                ended = await self._one_turn()
                self.steward.after_turn()
                if ended.reason is TurnEnd.DONE:
                    await self._may_stop()
                if not self.queue or ended.reason is not TurnEnd.DONE:
                    break
        except asyncio.CancelledError:
            ended = TurnEnded(TurnEnd.STOPPED)
            raise
        finally:
            self._turn = None
            failed = ended.reason not in (TurnEnd.DONE, TurnEnd.STOPPED)
            self._set(Running.FAILED if failed else Running.IDLE, ended.why)

    async def _one_turn(self) -> TurnEnded:
        """The next message and the turn that answers it. An error that cannot be recorded becomes the reason of its end."""
        try:
            async with self._crew.turn_lease(self.id):
                await self._say_next()
                talk = Talk(self._ask, self._take_steering, self._steer_again, self._set)
                self._talking = Turn(self.conversation, self._crew, self.steward, self._contents, talk)
                return await self._talking.run()
        except HelixError as error:
            return failed(error)
        except Exception:
            with suppress(HelixError):
                await self.conversation.append(TurnEnded(TurnEnd.FAILED, BUG))
            raise
        finally:
            self._talking = None

    async def _say_next(self) -> None:
        """A message that is stopped, or does not fit, before it is recorded goes back to the queue."""
        if not self.queue:
            return
        waiting = self.queue.pop(0)
        said = UserSaid(waiting.parts, by=waiting.by)
        self._tell_queue()
        try:
            heard = await self._let_through(waiting)
            await self._title(said)
            facts = (*await self.steward.admit_message(said), *heard)
        except BaseException:
            self._put_back([waiting])
            raise
        try:
            await self.conversation.append(*facts)
        except HelixError:  # and not when it is stopped: what was begun is recorded
            self._put_back([waiting])
            raise

    async def _let_through(self, waiting: Waiting) -> list[UserSaid]:
        """What hooks say with a message; Refused where one does not let it through."""
        if waiting.by:
            return []
        found: list[UserSaid] = []
        words = "\n".join(part.text for part in waiting.parts if isinstance(part, Text))
        events = [("UserPromptSubmit", {"prompt": words})]
        if not self._begun:
            events.insert(0, ("SessionStart", {"source": "resume" if len(self.facts) > 1 else "startup"}))
        for event, values in events:
            heard = await self._crew.happened(event, self.id, values)
            if heard.blocks and event == "UserPromptSubmit":
                raise Refused(f"A hook blocked this message: {heard.blocks}", remedy="Your message is still queued.")
            if heard.says:
                text = self._counted(Text(f"[A hook for {event} says:]\n{heard.says}"))
                found.append(UserSaid((text,), steering=True, by=f"hook:{event}"))
        self._begun, self._sent_on = True, 0
        return found

    async def _may_stop(self) -> None:
        """Hooks may send the agent on, a few times at the most."""
        if self.queue or self._sent_on >= MOST_SENT_ON:
            return
        heard = await self._crew.happened("Stop", self.id, {"stop_hook_active": self._sent_on > 0})
        if heard.blocks:
            self._sent_on += 1
            text = self._counted(Text(f"[A hook sends you on: {heard.blocks}]"))
            self.queue.append(Waiting((text,), steer=False, by="hook:Stop"))

    def _put_back(self, waiting: Sequence[Waiting]) -> None:
        self.queue[:0] = waiting
        self._tell_queue()

    async def _title(self, said: UserSaid) -> None:
        if not self.conversation.state.title:
            text = " ".join(part.text for part in said.parts if isinstance(part, Text)).strip()
            first = text.splitlines()[0] if text else "Untitled"
            short = first if len(first) <= TITLE else first[: TITLE - 1].rstrip() + "…"
            await self.conversation.append(ConversationChanged(title=short))

    def _take_steering(self) -> Sequence[Words]:
        steering = [(waiting.parts, waiting.by) for waiting in self.queue if waiting.steer]
        if steering:
            self.queue = [waiting for waiting in self.queue if not waiting.steer]
            self._tell_queue()
        return steering

    def _steer_again(self, steering: Sequence[Words]) -> None:
        self._put_back([Waiting(parts, steer=True, by=by) for parts, by in steering])

    async def _ask(self, question: Question) -> Answer:
        if self._elsewhere is not None:
            return await self._elsewhere(replace(question, by=question.by or self.conversation.state.title))
        number = next(self._numbers)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self.questions[number] = question
        self.conversation.tell(Asked(self.id, number, question))
        self._set(Running.ASKING, question.title)
        try:
            answer = await future
            if question.plan and answer.allowed:  # it holds before anybody hears of the answer
                plan = Note("plan", PLAN + (answer.values.strip() or question.preview))
                await self.conversation.append(*noted([plan], self._crew, self.conversation))
            return answer
        finally:
            del self._answers[number], self.questions[number]
            self.conversation.tell(Answered(self.id, number))
            if not self.questions:
                self._set(Running.TOOLS if self._turn is not None else Running.IDLE)

    def _changes_after(self, seq: int) -> Sequence[Recorded]:
        """In the order they happened; rewound or not, the files are what they are."""
        return [r for r in self.facts if r.seq > seq and isinstance(r.fact, ToolReturned | FilesChanged)]

    def _refuse_while_running(self, what: str) -> None:
        self._refuse_while_held(what)
        if self._turn is not None:
            raise Refused(f"Cannot {what} while the agent is working.", remedy="Stop the agent first (Esc).")

    def _refuse_while_held(self, what: str) -> None:
        if self._is_held:
            raise Refused(f"Cannot {what} while content is being forgotten.", remedy="Try again when that is finished.")

    def _counted(self, part: UserPart) -> UserPart:
        return replace(part, tokens=self._crew.tokens.count(part.text)) if isinstance(part, Text) else part

    def _set(self, running: Running, why: str = "") -> None:
        self.running, self.why = running, why
        self.conversation.tell(StateChanged(self.id, running, why))

    def _tell_queue(self) -> None:
        self.conversation.tell(Queued(self.id, tuple(waiting.parts for waiting in self.queue)))
