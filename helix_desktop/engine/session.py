"""The commands of one conversation. A window, a command line and a parent agent all use these.

`send_message` returns at once; the turn runs in a task of its own and reports everything as events.
A command that changes the past is refused while a turn runs, with a sentence that says so.
"""

import asyncio
import itertools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from helix_desktop.engine import collaborators, facts, legal_messages, token_budget, turn_loop
from helix_desktop.engine.ask_model import request_one_token
from helix_desktop.engine.blocks import Request
from helix_desktop.engine.conversation import Conversation, resolve_relative_cover
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.fold_steward import TO_WRITE, FoldSteward
from helix_desktop.engine.history.request_digest import digest_of_request
from helix_desktop.engine.history.token_ledger import newest_fact_seen_by
from helix_desktop.engine.ports import CallContext, CallOutcome, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.request_costs import RequestCost, explain_last_turn
from helix_desktop.engine.session_events import (
    CLOSED,
    ActivityChanged,
    ConversationActivity,
    Event,
    MessagesQueued,
    MeterChanged,
    QuestionAnswered,
    QuestionAsked,
)
from helix_desktop.engine.token_budget import NextMessageCost, PendingRewrite, WindowMeter
from helix_desktop.engine.view_contents import SAMPLE, ViewContents, estimate_entry_tokens
from helix_desktop.errors import ActionRefused, HelixError, NotFound
from helix_desktop.fast_dataclass import dataclass

TITLE = 60
MOST_SENT_ON = 3
FOLD_SHARE = 0.1  # "Fold first" is offered only if it frees at least this share of the next request.
PLAN = "[The plan the user approved, word for word. Work on it now.]\n\n"
BUG = "This is a bug in Helix Desktop. Details are in the log. Nothing you wrote is lost, and you can continue."


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that waits for the next step (`steer`) or for the end of the turn."""

    parts: tuple[facts.UserPart, ...]
    steer: bool
    by: str = ""  # Who wrote it: see `UserSaid.by`.


class Session:
    """One open conversation: its state, its turn, its queue and its open questions."""

    def __init__(
        self, conversation: Conversation, crew: collaborators.SessionCollaborators, steward: FoldSteward
    ) -> None:
        self.conversation = conversation
        self.running = ConversationActivity.IDLE
        self.why = ""  # Explains the current activity: what failed, or what the user is being asked.
        self.queue: list[QueuedMessage] = []
        self.questions: dict[int, PermissionQuestion] = {}
        self._crew = crew
        self.steward = steward
        steward.keep_cache_alive = weakref.WeakMethod(self._keep_cache_alive)
        self._contents = ViewContents(crew.cache)
        self._answers: dict[int, asyncio.Future[PermissionAnswer]] = {}
        self._numbers = itertools.count(1)
        self._turn: asyncio.Task[None] | None = None
        self.last_end: facts.TurnEnded | None = None  # How the last turn ended, even if not recorded.
        self._why_stopped = CLOSED
        self._talking: turn_loop.TurnLoop | None = None
        self._is_held = False
        self._begun = False  # True once hooks have been told that the session is open.
        # How many times hooks have made the agent continue since the user's last message.
        self._sent_on = 0
        self._elsewhere: Callable[[PermissionQuestion], Awaitable[PermissionAnswer]] | None = None

    @property
    def id(self) -> str:
        return self.conversation.id

    @property
    def agent(self) -> str:
        """The connected agent that writes here; empty: this program's own."""
        return self.conversation.state.agent

    @property
    def all_facts(self) -> Sequence[facts.Recorded]:
        """Everything that ever happened here, oldest first."""
        return self.conversation.state.facts

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits here, so that closing the session loses nothing."""
        return self._turn is None and not self.queue and not self.questions and self.steward.has_no_fold_in_work

    def subscribe_to_events(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Hear everything from now on; call what is returned to stop."""
        self.conversation.listeners.append(listener)
        return lambda: self.conversation.listeners.remove(listener)

    def send_message(self, parts: tuple[facts.UserPart, ...], *, steer: bool = False) -> None:
        """Sends a message: now, or when the turn is over (`steer`: after its current step)."""
        if self.agent:
            raise ActionRefused(
                f"{self.agent} is working in this conversation.",
                remedy="Choose “Continue here” to continue a copy of the conversation with Helix Desktop's own agent.",
            )
        if not parts:
            return
        self.queue.append(QueuedMessage(tuple(self._with_text_tokens(part) for part in parts), steer))
        self._notify_queue()
        self._start_turn_if_due()

    def send_on_behalf(self, by: str, text: str) -> None:
        """Send a message that is not the user's, but `by` somebody else: at the next step, or now if no turn runs."""
        self.queue.append(QueuedMessage((self._with_text_tokens(facts.Text(text)),), steer=True, by=by))
        self._notify_queue()
        self._start_turn_if_due()

    def resume_turn(self) -> None:
        """Continue a turn that was interrupted or met a limit."""
        self._refuse_while_held("go on")
        self._start_turn_if_due(even_without_words=True)

    def stop_turn(self, why: str = "") -> None:
        """Stop the turn, its tools and its questions. What happened is kept, the queue waits. `why`: empty for the user."""
        self._why_stopped = self._why_stopped and why  # A stop by the user has no reason, and none is added.
        for future in list(self._answers.values()):
            future.cancel()
        if self._turn is not None:
            self._turn.cancel()

    def retry_immediately(self) -> None:
        """Do not wait any longer before the model is asked again."""
        if self._talking is not None and self._talking.wake is not None:
            self._talking.wake()

    def take_back_queued(self, index: int) -> tuple[facts.UserPart, ...]:
        """Take a waiting message back, to edit or drop it."""
        taken = self.queue.pop(index)
        self._notify_queue()
        return taken.parts

    def answer_question(self, number: int, answer: PermissionAnswer) -> None:
        """Answer a permission question. If it is no longer open, nothing happens."""
        future = self._answers.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    async def run_user_call(self, command: str, call: facts.ToolCall) -> CallOutcome:
        """A call of the user's slash command: it asks as the agent's calls do, and nothing of it is recorded."""

        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            return await self._ask_user(replace(question, command=command))

        return await self._crew.tools.run_tool_call(call, CallContext(self.id, ask, lambda _: None))

    async def read_entry_beginning(self, stored: facts.Stored, most: int) -> str:
        return (await self._crew.cache.read_range(stored.digest, 0, min(stored.size, most))).decode("utf-8", "replace")

    def redirect_questions(self, ask: Callable[[PermissionQuestion], Awaitable[PermissionAnswer]] | None) -> None:
        """Ask there what this conversation would ask: a sub-agent's questions go to the one who waits for it."""
        self._elsewhere = ask

    async def wait_until_idle(self) -> None:
        while self._turn is not None:
            await asyncio.wait([self._turn])

    async def aclose(self) -> None:
        """Stop what runs and wait until it is recorded."""
        self.queue.clear()
        self.stop_turn(CLOSED)
        await self.wait_until_idle()
        self.queue.clear()  # Messages that were stopped before they were recorded are back in the queue.
        await self.steward.aclose()
        await self.conversation.wait_until_recorded()

    def next_request_meter(self) -> WindowMeter:
        ahead = self.conversation.expected_state
        return token_budget.measure_window(ahead, self.conversation.policy_at(ahead))

    def next_message_cost(self, instead_of: int = 0) -> NextMessageCost | None:
        """About what sending now costs; None where the model's prices are not known."""
        ahead = self.conversation.expected_state
        return token_budget.estimate_next_message(ahead, self.conversation.policy_at(ahead), before=instead_of)

    def preview_setup(self, setup: collaborators.ConversationSetup) -> None:
        """Its next request will depend on this: what is shown of it goes by that, and nothing is recorded."""
        if self.agent or self.conversation.state.acp_agent or not self.is_idle:
            return
        turn_loop.set_expected_request_settings(self._crew, self.conversation, setup)
        self.conversation.notify_listeners(MeterChanged(self.id))

    def estimate_cost_with(self, parts: Sequence[facts.UserPart], *, instead_of: int = 0) -> float:
        """About what these words would cost if they were sent now, in dollars; 0.0: not known. `instead_of`: a message they replace."""
        price = self.next_message_cost(instead_of)
        if price is None:
            return 0.0
        tokens = sum(self._with_text_tokens(part).tokens for part in parts)
        added = token_budget.estimate_billed_tokens(tokens, self.conversation.expected_state)
        return price.cost_when_sent(self._crew.clock.current_time()) + added * price.per_token

    def estimate_saving_of_markers(self) -> float:
        """What making markers of old outputs now would save of the next message, in dollars, where
        its provider's cache is cold and the policy would not do it by itself; 0.0: nothing worth it.
        """
        price = self.next_message_cost()
        if price is None or price.is_cache_warm(self._crew.clock.current_time()):
            return 0.0
        freed = self.steward.tokens_freed_by_markers()
        return freed * price.per_token if freed >= FOLD_SHARE * self.next_request_meter().used else 0.0

    def pending_rewrite(self) -> PendingRewrite | None:
        """What the choices made since the last request would have written to the provider's cache again."""
        now = self.conversation.expected_state
        found = token_budget.estimate_pending_rewrite(now, self.conversation.state)
        is_cold = found is not None and 0 < found.until <= self._crew.clock.current_time()
        return None if is_cold else found

    async def explain_last_turn(self) -> Sequence[RequestCost]:
        return await asyncio.to_thread(explain_last_turn, self.conversation.state)

    def describe_next_fold(self) -> str:
        return self.steward.forecast_folds()

    async def rebuild_request(self, seq: int | None = None) -> Request:
        """The request as it was, or would be, sent: `seq` of a ModelReplied, or None for the next one."""
        state = self.conversation.expected_state
        reply = None if seq is None else self._require_reply(seq)
        saw = state.seq if seq is None else newest_fact_seen_by(state.facts[seq - 1])
        view = (await self.conversation.moment_at(saw)).get_view() if seq is not None else state.get_view()
        contents = await ViewContents(self._crew.cache).read_view_contents(view)
        request = await asyncio.to_thread(legal_messages.build_request, view, contents)
        if reply is None or reply.stable is None:
            return request
        return replace(request, stable=reply.stable, settled=reply.settled)

    async def _keep_cache_alive(self) -> None:
        """Sends the last request again. If that fails, the cache expires, as it would have anyway."""
        client, state = self._crew.models(facts.ModelRole.MAIN), self.conversation.state
        end = turn_loop.turn_end_at_spending_limit(self._crew, self.conversation, len(state.spent))
        if client is not None and end is None:
            with suppress(HelixError, TimeoutError):
                last = await self.rebuild_request(state.branch.steps[-1])
                await self.conversation.append_facts(*await request_one_token(client, last, TO_WRITE))
        self.steward.watch_for_pause()
        self.conversation.notify_listeners(MeterChanged(self.id))

    def matches_sent_request(self, seq: int, request: Request) -> bool | None:
        """Whether this is what the reply `seq` answered, by the digest stored with it; None where none was stored."""
        known = self._require_reply(seq).request
        return None if known is None else digest_of_request(request) == known

    def _require_reply(self, seq: int) -> facts.ModelReplied:
        fact = self.conversation.fact_at(seq)
        if not isinstance(fact, facts.ModelReplied):
            raise NotFound(f"Record {seq} of this conversation is not a reply from the model.")
        return fact

    async def start_fold(self, kind: facts.FoldKind, *, wish: str = "") -> None:
        self._refuse_while_held("fold")
        await self._crew.run_hooks("PreCompact", self.id, {"trigger": "manual", "custom_instructions": wish})
        await self.steward.fold_on_demand(kind, wish)

    async def undo_fold(self, fold: str) -> None:
        await self.steward.unfold(fold)

    async def redo_fold(self, fold: str) -> None:
        await self.steward.refold(fold)

    async def edit_fold_text(self, fold: str, text: str) -> None:
        """The user's own wording of a handover or of observations."""
        if self.conversation.state.find_fold(fold) is None:
            raise NotFound(f"There is no fold {fold} in this conversation.")
        await self.conversation.append_facts(facts.DocumentEdited(fold, text, self._crew.tokens.count_tokens(text)))

    async def pin_part(self, ref: facts.Cover) -> None:
        """Show it word for word in every request. Refused, with the figures, where that would not fit."""
        state, meter = self.conversation.expected_state, self.next_request_meter()
        kept = token_budget.count_unfoldable_tokens(state, ref)
        if kept + meter.reserve > meter.window:
            raise ActionRefused(
                f"With this pinned, the system prompt, tools, rules and pins would take up {kept:,} tokens in every request. The window has {meter.window:,} tokens, and {meter.reserve:,} of them are reserved for the reply.",
                remedy="Unpin something, or choose a model with a larger window.",
            )
        await self.conversation.append_facts(facts.Pinned(ref))

    async def unpin_part(self, ref: facts.Cover) -> None:
        await self.conversation.append_facts(facts.Unpinned(ref))

    async def exclude_part(self, ref: facts.Cover) -> None:
        await self.conversation.append_facts(facts.Excluded(ref))

    async def include_part(self, ref: facts.Cover) -> None:
        await self.conversation.append_facts(facts.Included(ref))

    async def recall_as_attachment(self, digest: Digest, *, lines: tuple[int, int] | None = None) -> facts.Attachment:
        """An entry, or some of its lines, as an attachment for the next message."""
        entry = await self._crew.cache.describe_entry(digest)
        stored, name = entry.stored, entry.about.source or digest.short_hex
        if lines is not None:
            first, last = lines
            text = (await self._crew.cache.read_content(digest)).decode("utf-8", "replace").splitlines(keepends=True)
            piece = "".join(text[first - 1 : last]).encode()
            stored = await self._crew.cache.store_content(piece, replace(entry.about, source=f"{name}:{first}-{last}"))
            name = f"{name}:{first}-{last}"
        sample = await self._crew.cache.read_range(stored.digest, 0, min(stored.size, SAMPLE))
        count = self._crew.tokens.count_tokens
        return facts.Attachment(
            name, stored, await asyncio.to_thread(estimate_entry_tokens, stored.size, sample, count)
        )

    async def rewind_to(self, seq: int, *, restore_files: bool = False) -> Sequence[str]:
        """Go on from `seq`. The rest stays in the journal. Returns what was done to files, a sentence each."""
        self._refuse_while_running("rewind")
        # All later results and file changes, even those on abandoned branches, because a rewind does not restore files.
        kinds = facts.ToolReturned | facts.FilesChanged
        done = [one for one in self.all_facts if one.seq > seq and isinstance(one.fact, kinds)]
        restored = await self._crew.restore(done) if restore_files else collaborators.FileRestoration()
        new_facts = () if restored.fact is None else (restored.fact,)
        await self.conversation.append_facts(*new_facts, facts.Rewound(seq))
        return restored.said

    async def edit_and_resend(self, seq: int, parts: tuple[facts.UserPart, ...]) -> None:
        self._refuse_while_running("edit and resend")
        said = self.conversation.fact_at(seq)
        if not isinstance(said, facts.UserSaid) or said.by:
            raise NotFound(f"Record {seq} of this conversation is not one of your messages.")
        await self.conversation.append_facts(facts.Rewound(seq - 1))
        self.send_message(parts)

    async def ask_again(self, seq: int = 0) -> None:
        """Ask again for the answer at `seq`, or for the last one: rewind to the message before it and continue. Earlier answers are kept."""
        self._refuse_while_running("ask again")
        present = self.conversation.state.facts_on_path()
        said = (each for each in present if isinstance(each.fact, facts.UserSaid) and not each.fact.by)
        before = [each for each in said if not seq or each.seq < seq]
        if not before:
            raise NotFound("This conversation contains no message of yours that can be answered again.")
        await self.conversation.append_facts(facts.Rewound(before[-1].seq, again=True))
        self.resume_turn()

    async def switch_to_answer(self, end: int) -> None:
        """Go on with another answer to the same message: the one that ends with the fact `end`."""
        self._refuse_while_running("choose another answer")
        self.conversation.fact_at(end)
        await self.conversation.append_facts(facts.Rewound(end, again=True))

    @asynccontextmanager
    async def pause_session(self) -> AsyncIterator[None]:
        """Inside, no turn runs and no fact is added, so that recorded facts may be changed. New messages wait."""
        self._refuse_while_running("forget")
        self._is_held = True
        try:
            await self.steward.aclose()
            async with self.conversation.block_appending():
                yield
        finally:
            self._is_held = False
            self._contents.clear_read_contents()
            self._start_turn_if_due()

    async def finish_new_fork(self, title: str = "") -> None:
        """A copy that ends within a turn is closed: it has not failed. Its meter is corrected."""
        is_running = self.conversation.state.branch.turn.running
        new_facts: list[facts.Fact] = [facts.TurnEnded(facts.TurnEnd.DONE)] if is_running else []
        new_facts += [facts.ConversationChanged(title=title)] if title else []
        await self.conversation.append_facts(*new_facts)
        await turn_loop.record_changed_settings(self._crew, self.conversation)

    async def set_own_model(self, name: str) -> None:
        """A main model of this conversation alone; empty: the workspace's."""
        await self.conversation.append_facts(facts.ConversationChanged(model=name))

    async def set_title(self, title: str) -> None:
        await self.conversation.append_facts(facts.ConversationChanged(title=title.strip() or "Untitled"))

    async def set_archived(self, *, archived: bool = True) -> None:
        await self.conversation.append_facts(facts.ConversationChanged(archived=archived))

    async def set_trashed(self, *, trashed: bool = True) -> None:
        """To the trash, or back. What runs is stopped first."""
        if trashed:
            self.stop_turn()
            await self.wait_until_idle()
        await self.conversation.append_facts(facts.ConversationChanged(trashed=trashed))

    async def set_pinned(self, *, pinned: bool = True) -> None:
        await self.conversation.append_facts(facts.ConversationChanged(pinned=pinned))

    def _start_turn_if_due(self, *, even_without_words: bool = False) -> None:
        if self._turn is None and not self._is_held and (self.queue or even_without_words):
            self._why_stopped = CLOSED  # The reason if the event loop ends and cancels the turn.
            self._turn = self._crew.spawn(self._run_turns(), name=f"turn of {self.id}")
            self._turn.add_done_callback(self._reset_unstarted_turn)

    def _reset_unstarted_turn(self, turn: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step runs nothing, not even what it would do at its end."""
        if self._turn is turn:
            self._turn, self.last_end = None, self._build_stopped_end()
            self._set_activity(ConversationActivity.IDLE)

    def _build_stopped_end(self) -> facts.TurnEnded:
        return facts.TurnEnded(facts.TurnEnd.STOPPED, self._why_stopped)

    async def _run_turns(self) -> None:
        """Turn after turn until the queue is empty. A bug ends the turn with a sentence and is reported by its task."""
        ended = facts.TurnEnded(facts.TurnEnd.FAILED, BUG)
        try:
            while True:
                ended = await self._run_one_turn()
                self.steward.start_folds_after_turn()
                if ended.reason is facts.TurnEnd.DONE:
                    await self._ask_stop_hooks()
                if not self.queue or ended.reason is not facts.TurnEnd.DONE:
                    break
        except asyncio.CancelledError:
            ended = self._build_stopped_end()
            raise
        finally:
            self._turn, self.last_end = None, ended
            failed = ended.reason not in (facts.TurnEnd.DONE, facts.TurnEnd.STOPPED)
            self._set_activity(ConversationActivity.FAILED if failed else ConversationActivity.IDLE, ended.why)

    async def _run_one_turn(self) -> facts.TurnEnded:
        """The next message and the turn that answers it. An error that cannot be recorded becomes the reason of its end."""
        try:
            async with self._crew.turn_lease(self.id):
                await self._record_next_message()
                steering = self._take_steering, self._requeue_steering
                talk = collaborators.TurnCallbacks(
                    self._ask_user, *steering, self._set_activity, self._build_stopped_end
                )
                if self._crew.run_foreign_turn is not None:
                    return await self._crew.run_foreign_turn(talk)
                self._talking = turn_loop.TurnLoop(self.conversation, self._crew, self.steward, self._contents, talk)
                return await self._talking.run_turn()
        except HelixError as error:
            return turn_loop.turn_end_of_error(error)
        except Exception:
            with suppress(HelixError):
                await self.conversation.append_facts(facts.TurnEnded(facts.TurnEnd.FAILED, BUG))
            raise
        finally:
            self._talking = None

    async def _record_next_message(self) -> None:
        """A message that is stopped before it is recorded, or does not fit, is queued again."""
        if not self.queue:
            return
        waiting = self.queue.pop(0)
        said = facts.UserSaid(waiting.parts, by=waiting.by)
        self._notify_queue()
        try:
            heard = await self._ask_prompt_hooks(waiting)
            new_facts = (*await self.steward.excerpt_large_message(said), *heard)
        except BaseException:
            self._requeue_messages([waiting])
            raise
        try:
            await self.conversation.append_facts_from(lambda first: self._prepend_title_fact(said, new_facts, first))
        except HelixError:  # A stop by the user is no HelixError, and the append is still completed.
            self._requeue_messages([waiting])
            raise

    async def _ask_prompt_hooks(self, waiting: QueuedMessage) -> list[facts.UserSaid]:
        """What hooks add to a message. Raises ActionRefused if a hook rejects the message."""
        if waiting.by:
            return []
        found: list[facts.UserSaid] = []
        words = "\n".join(part.text for part in waiting.parts if isinstance(part, facts.Text))
        events = [("UserPromptSubmit", {"prompt": words})]
        if not self._begun:
            events.insert(0, ("SessionStart", {"source": "resume" if len(self.all_facts) > 1 else "startup"}))
        for event, values in events:
            heard = await self._crew.run_hooks(event, self.id, values)
            if heard.blocks and event == "UserPromptSubmit":
                raise ActionRefused(
                    f"A hook blocked this message: {heard.blocks}", remedy="Your message is still queued."
                )
            if heard.says:
                text = self._with_text_tokens(facts.Text(f"[A hook for {event} says:]\n{heard.says}"))
                found.append(facts.UserSaid((text,), steering=True, by=f"hook:{event}"))
        self._begun, self._sent_on = True, 0
        return found

    async def _ask_stop_hooks(self) -> None:
        """Hooks may send the agent on, a few times at the most."""
        if self.queue or self._sent_on >= MOST_SENT_ON:
            return
        heard = await self._crew.run_hooks("Stop", self.id, {"stop_hook_active": self._sent_on > 0})
        if heard.blocks:
            self._sent_on += 1
            text = self._with_text_tokens(facts.Text(f"[A hook sends you on: {heard.blocks}]"))
            self.queue.append(QueuedMessage((text,), steer=False, by="hook:Stop"))

    def _requeue_messages(self, waiting: Sequence[QueuedMessage]) -> None:
        self.queue[:0] = waiting
        self._notify_queue()

    def _prepend_title_fact(
        self, said: facts.UserSaid, new_facts: Sequence[facts.Fact], number: int
    ) -> Sequence[facts.Fact]:
        """The facts of a message, the next of which has this number; the first message of all gives the conversation its title."""
        if self.conversation.state.title:
            return new_facts
        text = " ".join(part.text for part in said.parts if isinstance(part, facts.Text)).strip()
        first = text.splitlines()[0] if text else "Untitled"
        short = first if len(first) <= TITLE else first[: TITLE - 1].rstrip() + "…"
        moved = (resolve_relative_cover(fact, number + 1) for fact in new_facts)
        return facts.ConversationChanged(title=short), *moved

    def _take_steering(self) -> Sequence[collaborators.Words]:
        steering = [(waiting.parts, waiting.by) for waiting in self.queue if waiting.steer]
        if steering:
            self.queue = [waiting for waiting in self.queue if not waiting.steer]
            self._notify_queue()
        return steering

    def _requeue_steering(self, steering: Sequence[collaborators.Words]) -> None:
        self._requeue_messages([QueuedMessage(parts, steer=True, by=by) for parts, by in steering])

    async def _ask_user(self, question: PermissionQuestion) -> PermissionAnswer:
        if self._elsewhere is not None:
            return await self._elsewhere(replace(question, by=question.by or self.conversation.state.title))
        number = next(self._numbers)
        future: asyncio.Future[PermissionAnswer] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        self.questions[number] = question
        self.conversation.notify_listeners(QuestionAsked(self.id, number, question))
        self._set_activity(ConversationActivity.ASKING, question.title)
        try:
            answer = await future
            if question.plan and answer.allowed:  # Record the plan before anything reacts to the user's answer.
                plan = collaborators.StandingNote("plan", PLAN + (answer.values.strip() or question.preview))
                await self.conversation.append_facts(*turn_loop.build_note_facts([plan], self._crew, self.conversation))
            return answer
        finally:
            del self._answers[number], self.questions[number]
            self.conversation.notify_listeners(QuestionAnswered(self.id, number))
            if not self.questions:
                self._set_activity(ConversationActivity.TOOLS if self._turn is not None else ConversationActivity.IDLE)

    def _refuse_while_running(self, what: str) -> None:
        self._refuse_while_held(what)
        if self._turn is not None:
            raise ActionRefused(f"Cannot {what} while the agent is working.", remedy="Stop the agent first (Esc).")

    def _refuse_while_held(self, what: str) -> None:
        if self._is_held:
            raise ActionRefused(
                f"Cannot {what} while content is being permanently removed.", remedy="Try again in a few minutes."
            )

    def _with_text_tokens(self, part: facts.UserPart) -> facts.UserPart:
        return replace(part, tokens=self._crew.tokens.count_tokens(part.text)) if isinstance(part, facts.Text) else part

    def _set_activity(self, running: ConversationActivity, why: str = "") -> None:
        self.running, self.why = running, why
        self.conversation.notify_listeners(ActivityChanged(self.id, running, why))

    def _notify_queue(self) -> None:
        self.conversation.notify_listeners(MessagesQueued(self.id, tuple(waiting.parts for waiting in self.queue)))
