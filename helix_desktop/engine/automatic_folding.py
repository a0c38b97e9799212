"""Decides, by the policy, what to fold in one conversation and when, and folds it.

A fold is a shorter text that the model is shown in place of older messages or a long output.

Every strategy has three phases: it reads without a pause, asks a model while work goes
on, and appends the fold if the covered facts are unchanged. One fold is made at a time,
and several failures in a row pause a strategy. No failure here ends a turn: errors are
recorded as `FoldFailed`. Before a pause in which the provider's cache would expire,
folds that pay are made, or the cache is kept alive.
"""

import asyncio
import itertools
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from helix_desktop.engine import context_usage, facts, fold_document_writer, fold_economics
from helix_desktop.engine.context_usage import FoldForecast
from helix_desktop.engine.conversation import Conversation, ConversationDraft
from helix_desktop.engine.conversation_spending import ConversationSpending
from helix_desktop.engine.failed_fold_attempts import FailedFoldAttempts
from helix_desktop.engine.fold_document_writer import EVERY_WAY
from helix_desktop.engine.fold_kinds import FOLD_KINDS
from helix_desktop.engine.large_output_shortener import (
    LargeOutputShortener,
    most_tokens_always_shown_whole,
)
from helix_desktop.engine.marker_folding import PartShortener
from helix_desktop.engine.prompt_cache_terms import cache_lifetime_seconds
from helix_desktop.engine.request_shortening import (
    RequestShortener,
    ShortenerSupport,
    estimate_tokens_left_without_model,
)
from helix_desktop.engine.session_events import FoldProgress
from helix_desktop.engine.session_setup import FoldServices
from helix_desktop.engine.strategies import added_strategies, handover, markers
from helix_desktop.engine.strategies.added_strategies import (
    AddedFoldStrategy,
    ChosenFold,
    FoldableContext,
)
from helix_desktop.engine.strategies.all_strategies import STRATEGIES
from helix_desktop.engine.strategies.fold_strategy import FoldPlan, FoldSituation, first_seq_of_tail
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import ActionRefused, HelixError, NotFound, StoppedByUser

log = logging.getLogger(__name__)
T = TypeVar("T")
ASKED = "requested by the user"
CHANGED_MEANWHILE = "the messages changed while the text was written"
WRITING_SECONDS = 45.0  # A fold for a pause begins this many seconds before the cache expires.


class FoldPlanner:
    """Finds the fold that is due. A strategy that failed is paused, and stopped in the end."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.failed = FailedFoldAttempts(conversation)

    def find_due_fold(
        self, situation: FoldSituation
    ) -> fold_document_writer.DocumentMaterial | None:
        """Return the material of the first fold that a strategy wants to be made now, or None.

        A strategy that failed a short time ago has to wait, and one that failed too often is
        not asked for any more.
        """
        for strategy in STRATEGIES.values():
            plan = strategy.due(situation)
            if plan is None or not self._may_be_tried(plan.kind, situation):
                continue
            # A document that cannot be shorter would count as a failure of a model that was
            # never asked, and after three of them no summary is tried any more.
            material = fold_document_writer.gather_material(plan, situation)
            if not fold_document_writer.reason_not_to_fold(material):
                return material
        return None

    def may_plan_handover(self, situation: FoldSituation) -> bool:
        """Whether the policy wants summaries, and there was none a short time ago."""
        if not handover.is_handover_allowed(situation):
            return False
        return self._may_be_tried(facts.FoldKind.HANDOVER, situation)

    def is_handover_stopped_and_due(self, situation: FoldSituation) -> bool:
        """Whether the context is as full as a handover allows, and none can be written."""
        policy = situation.policy
        if policy.handover == "off" or not self.failed.is_over(facts.FoldKind.HANDOVER):
            return False
        tokens_allowed = context_usage.tokens_at_which_handover_must_start(situation.meter, policy)
        return situation.meter.used >= tokens_allowed

    def _may_be_tried(self, kind: facts.FoldKind, situation: FoldSituation) -> bool:
        if self.failed.is_over(kind):
            return False
        return not self.failed.is_waiting(kind, situation.now)

    async def record_failure(self, kind: facts.FoldKind, reason: str) -> None:
        described = self.failed.describe_failure(kind, reason)
        await self._conversation.append_facts(facts.FoldFailed(kind, described))


class ConversationFolding:
    """Folds one conversation. A turn waits only for due folds and excerpts.

    A fold is a shorter text that the model is shown instead of what it covers: a marker (one
    line) or an excerpt instead of one output, a document written by a model, such as a handover,
    instead of many messages.
    """

    def __init__(
        self,
        conversation: Conversation,
        services: FoldServices,
        list_added_strategies: Callable[
            [], Sequence[AddedFoldStrategy]
        ] = added_strategies.no_added_strategies,
    ) -> None:
        """`list_added_strategies`: the ways of saving context that extensions bring."""
        self.conversation = conversation
        self._services = services
        self._list_added_strategies = list_added_strategies
        # The task that asks these, in the background.
        self._asking_task: asyncio.Task[None] | None = None
        self._clock = services.clock
        self._spawn = services.spawn
        self._contents = ViewContents(services.cache)
        self.spending = ConversationSpending(conversation, services)
        self._writer = fold_document_writer.FoldDocumentWriter(
            conversation,
            services.cache,
            services.tokens,
            self._clock,
            services.models,
            self._contents,
            self.spending,
            list_added_strategies,
            self._update_progress,
        )
        self._shortener = PartShortener(conversation, services.cache, services.tokens)
        self._large_outputs = LargeOutputShortener(
            conversation,
            services.cache,
            services.tokens,
            services.models,
            self._contents,
            self.spending,
        )
        # The task that writes a fold's document in the background, and what it is to write.
        self._writing_task: asyncio.Task[object] | None = None
        self._plan_in_work: FoldPlan | None = None
        # What listeners were told last of the fold that is being written.
        self._told_progress: FoldProgress | None = None
        # A document that is written, and waits until a step adopts it.
        self._written_document: fold_document_writer.WrittenDocument | None = None
        # Held while a document is appended, so that who waits for it sees the result.
        self._adoption = asyncio.Lock()
        # Rings before the provider's cache expires.
        self._pause_timer: asyncio.TimerHandle | None = None
        self._planner = FoldPlanner(conversation)
        # False for a command that ends with the turn, because nobody would wait for a
        # summary that is begun afterwards.
        self.prepares_next_turn = True
        # Set by the session. The reference is weak because the session holds this object.
        self.keep_cache_alive: (
            weakref.WeakMethod[Callable[[], Coroutine[Any, Any, None]]] | None
        ) = None

    def folding_for_draft(self, draft: ConversationDraft) -> "DraftFolding":
        services_without_models = replace(
            self._services, models=lambda _: None, spawn=_refuse_to_spawn
        )
        return DraftFolding(draft, services_without_models)

    async def excerpt_large_results(
        self,
        batch: Sequence[facts.ToolReturned],
        keeps: Mapping[str, str] | None = None,
        seqs: Sequence[int] = (),
    ) -> tuple[facts.Fact, ...]:
        """Return the facts that make the model see only an excerpt of each large result.

        `keeps`: by call, what the agent asked to keep of its result. `seqs`: the numbers of
        results that are recorded already. A failure is returned as a fact, because the results
        themselves must be recorded all the same.
        """
        try:
            return await self._large_outputs.excerpt_large_outputs(batch, keeps or {}, seqs)
        except HelixError as error:
            # The message may quote the provider, so only the kind of error is logged.
            log.info("excerpting failed: %s", type(error).__name__)
            return (facts.FoldFailed(facts.FoldKind.EXCERPT, error.what),)

    async def excerpt_large_message(
        self, message: facts.UserSaid, replaced_message: int = 0
    ) -> tuple[facts.Fact, ...]:
        """Return the facts to append for a message: with excerpts, if parts of it are large.

        `replaced_message`: an earlier message in whose place it is sent.
        """
        try:
            return await self._large_outputs.excerpt_large_parts(message, replaced_message)
        except HelixError as error:
            log.info("storing a large message failed: %s", error.what)
            return (message, facts.FoldFailed(facts.FoldKind.EXCERPT, error.what))

    async def count_sent_tokens(
        self,
        attachment: facts.Attachment,
        parts: Sequence[facts.UserPart],
        replaced_message: int = 0,
    ) -> int:
        """Return how many tokens of an attachment would be sent with a message of these parts."""
        return await self._large_outputs.count_sent_tokens(attachment, parts, replaced_message)

    async def apply_due_folds(self, *, overflowed: bool = False) -> None:
        """Shorten what is due before the next request, and make sure that the request fits.

        First, a document that was written in the background is adopted, that is, appended to
        the conversation. If the request would still not fit, stronger measures follow. Otherwise
        old outputs are cleared, that is, replaced with one line each, but not while a document is
        being written: its adoption clears them, too, so that the provider must cache the
        beginning of the request again only once. `overflowed`: the provider refused a request as
        too long.
        """
        await self._run_and_record_failure(facts.FoldKind.HANDOVER, self.adopt_ready_fold)
        if overflowed or not self.conversation.current_meter().request_fits:
            shorten = partial(self._shorten_until_request_fits, overflowed=overflowed)
            await self._run_and_record_failure(facts.FoldKind.TRUNCATION, shorten)
        elif self._writing_task is None:
            await self._run_and_record_failure(facts.FoldKind.MARKER, self._clear_due_parts)
            if self._planner.is_handover_stopped_and_due(self.current_situation()):
                await self._run_and_record_failure(
                    facts.FoldKind.TRUNCATION, self._shorten_without_model
                )
        self._start_due_fold()
        self.schedule_fold_before_cache_expires()

    def start_folds_after_turn(self) -> None:
        """Start, in the background, what is due between turns."""
        if not self.prepares_next_turn:
            return
        self._start_due_fold()
        self.schedule_fold_before_cache_expires()

    def schedule_fold_before_cache_expires(self) -> None:
        """Fold what pays if no request follows before the provider's cache expires (the
        user leaves, or a question waits), while the cache can still be read. Otherwise,
        the cache may be kept alive.
        """
        if self.conversation.state.acp_agent:
            return  # Its own program sends the requests, and the timer would keep it in memory.
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        wait_seconds = cache_lifetime_seconds(self.conversation.state) - WRITING_SECONDS
        loop = asyncio.get_running_loop()
        self._pause_timer = loop.call_later(wait_seconds, self._fold_or_keep_cache_alive)

    def _fold_or_keep_cache_alive(self) -> None:
        """Do what pays in a pause. The timer calls this shortly before the cache expires."""
        situation = replace(self.current_situation(), is_pausing=True)
        seconds_left = context_usage.seconds_until_cold(situation.state, situation.now)
        if seconds_left <= 0:
            return  # Too late: the provider has forgotten the conversation.
        if seconds_left > 2 * WRITING_SECONDS:
            # A newer step has renewed the provider's cache.
            self.schedule_fold_before_cache_expires()
            return
        self._start_due_fold(situation)
        if self.has_no_fold_in_work:
            self._keep_cache_alive_if_that_pays(situation)

    def _keep_cache_alive_if_that_pays(self, situation: FoldSituation) -> None:
        """Send the last request again as a task, so that the provider keeps what it has cached."""
        if self.keep_cache_alive is None:
            return
        keep_alive = self.keep_cache_alive()
        # The session may be gone, since the reference to it is weak.
        if keep_alive is None or not _pays_to_send_keep_alive_request(situation):
            return
        name = f"keep the cache of {self.conversation.id} alive"
        with suppress(StoppedByUser):  # The workspace is closing.
            self._spawn(keep_alive(), name=name)

    async def fold_on_demand(
        self, kind: facts.FoldKind, wish: str = ""
    ) -> tuple[facts.Recorded, ...]:
        """Fold because the user asked for it, and return the facts that were appended.

        `wish`: what the user wants the text to say. Raises ActionRefused, with the reason, if
        there is nothing to fold, a fold is being made, or a cost limit is reached.
        """
        if kind is facts.FoldKind.MARKER:
            return await self._replace_old_outputs_on_demand()
        plan = self._plan_on_demand(kind, wish)
        if plan is None:
            raise ActionRefused(context_usage.NOTHING_TO_FOLD)
        if self._writing_task is not None:
            raise ActionRefused(
                "The conversation is already being shortened.",
                remedy="Wait until that is done, or stop it.",
            )
        material = fold_document_writer.gather_material(plan, self.current_situation())
        if kind is facts.FoldKind.TRUNCATION:
            name = self.conversation.new_fold_name(kind)
            truncation = await self._writer.write_truncation(material, name)
            return await self.append_fold_if_still_current(truncation)
        reason = fold_document_writer.reason_not_to_fold(material)
        if reason:
            raise ActionRefused(reason)
        self.spending.refuse_past_limit()
        # What was asked for takes the place of a document that waits to be adopted.
        self._written_document = None
        self._start_fold(material)
        return await self._wait_for_fold_and_adopt_or_raise(kind)

    async def _replace_old_outputs_on_demand(self) -> tuple[facts.Recorded, ...]:
        situation = replace(self.current_situation(), is_asked=True)
        clearing = markers.plan_clearing_of_all_before(situation, first_seq_of_tail(situation))
        if clearing is None:
            raise ActionRefused("One line each would not be shorter than the old outputs.")
        parts = clearing.parts_to_clear(situation)
        return await self._shortener.replace_with_markers(parts, ASKED)

    async def unfold(self, fold: str) -> tuple[facts.Recorded, ...]:
        """Undo a fold: the model is sent the original again instead of the shorter text.

        Raises ActionRefused, with figures, if the original would not fit into the window.
        """
        state = self.conversation.state
        folded = state.find_fold(fold)
        if folded is None:
            raise NotFound(f"There is no shortened part {fold!r} in this conversation.")
        if fold not in state.branch.live:
            raise ActionRefused("This shortening has already been undone.")
        if state.is_output_forgotten(folded):
            raise ActionRefused(
                "The output was permanently removed at your request, so it cannot be restored."
            )
        meter = self.current_situation(self.conversation.expected_state).meter
        put_back = state.branch.view_tokens_without_fold(fold) - state.branch.total_tokens
        used_now = context_usage.count_tokens_after_undo(state, meter, put_back=0)
        used_then = context_usage.count_tokens_after_undo(state, meter, put_back)
        added_tokens = used_then - used_now
        free_tokens = max(meter.window - meter.reserve - used_now, 0)
        if added_tokens > free_tokens:
            raise ActionRefused(
                f"Undoing this would add {added_tokens:,} tokens, but only {free_tokens:,} are free: {meter.format_meter()}.",
                remedy="Shorten something else first, or recall only the part you need.",
            )
        return await self.conversation.append_facts(facts.Unfolded(fold))

    async def refold(self, fold: str) -> tuple[facts.Recorded, ...]:
        """Put a fold that was undone into effect again. Raises ActionRefused if another fold
        now stands for some of the same messages.
        """
        branch = self.conversation.state.branch
        folded = branch.folds.get(fold)
        if folded is None:
            raise NotFound(f"There is no shortened part {fold!r} in this conversation.")
        if fold in branch.live:
            raise ActionRefused("This part is already shortened.")
        if not branch.would_fold_nest(folded.cover):
            raise ActionRefused(
                "Some of the same messages are now shortened in another way.",
                remedy="Undo the other shortening first.",
            )
        return await self.conversation.append_facts(facts.Refolded(fold))

    def ask_writer_again_now(self) -> None:
        """End the pause before a failed request for a fold's text is sent again."""
        self._writer.end_pauses_between_tries()

    def cancel_fold_in_work(self) -> None:
        if self._writing_task is not None:
            self._writing_task.cancel()

    def can_skip_folding(self, tokens: int) -> bool:
        """Whether so many new tokens fit whole, no fold waits, and the provider's cache is warm."""
        situation = self.current_situation()
        meter = situation.meter
        if self._written_document is not None or context_usage.is_cache_cold(
            situation.state, situation.now
        ):
            return False
        most_shown_whole = most_tokens_always_shown_whole(situation.policy, meter.window)
        return tokens * meter.factor <= min(most_shown_whole, meter.free_tokens)

    @property
    def kind_in_progress(self) -> facts.FoldKind | None:
        """Return the kind of the fold being written, which `cancel_fold_in_work` stops."""
        if self._plan_in_work is None:
            return None
        return self._plan_in_work.kind

    @property
    def progress(self) -> FoldProgress | None:
        """Return how the fold that is being written goes on, as of now."""
        if self._told_progress is None:
            return None
        why, seconds = self._writer.describe_next_try()
        return replace(self._told_progress, retry_why=why, retry_seconds=seconds)

    @property
    def has_no_fold_in_work(self) -> bool:
        """Whether no fold is being made or waits to be adopted."""
        return self._writing_task is None and self._written_document is None

    async def wait_for_fold_in_work(self) -> None:
        """Wait until the fold that is being made is finished, and adopt it."""
        if self._writing_task is not None:
            await asyncio.wait([self._writing_task])
            await self.adopt_ready_fold()

    async def aclose(self) -> None:
        """Stop, and release what was read. Only the fold being made is lost."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        for task in (self._asking_task, self._writing_task):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        with suppress(HelixError):  # The workspace is closing, so nobody could be told.
            await self.adopt_ready_fold()
        self._written_document = None
        self._writer.contents.clear_read_contents()

    def describe_next_fold(self) -> str:
        """Say in a line what is being shortened, what is next, or what the policy will do.

        How full the window was when a fold began is not said: it stands beside how full it is.
        """
        if self._plan_in_work is not None:
            return f"Being shortened: {FOLD_KINDS[self._plan_in_work.kind].plain_name}."
        situation = self.current_situation(self.conversation.expected_state)
        due_fold = self._planner.find_due_fold(situation)
        if due_fold is not None:
            return f"Next: {FOLD_KINDS[due_fold.plan.kind].plain_name}."
        if markers.find_due_clearing(situation) is not None:
            return "Next: old outputs become one line each."
        if not situation.meter.request_fits:
            return _describe_request_that_does_not_fit(situation)
        return describe_policy_outlook(situation)

    def tokens_left_without_summary(self) -> int:
        """Return how many tokens the next request has once it is shortened as far as is tried
        before a model is asked for a summary.
        """
        situation = self.current_situation(self.conversation.expected_state)
        return estimate_tokens_left_without_model(situation)

    def tokens_freed_by_markers_on_demand(self) -> int:
        """Return the tokens that markers would free, or 0 if the policy makes them at
        the next step.
        """
        situation = self.current_situation(self.conversation.expected_state)
        clearing = markers.plan_clearing_of_all_before(situation, first_seq_of_tail(situation))
        if clearing is None or markers.find_due_clearing(situation) is not None:
            return 0
        freed_tokens = markers.count_freed_tokens(situation, clearing)
        return round(freed_tokens * situation.meter.factor)

    def current_situation(self, state: ConversationState | None = None) -> FoldSituation:
        """Return all that decides about folds now, in the conversation's state or a given one."""
        current_state = state or self.conversation.state
        policy = self.conversation.policy_at(current_state)
        meter = context_usage.measure_window(current_state, policy)
        return FoldSituation(current_state, policy, meter, self._clock.current_time())

    def forecast_fold_on_demand(self, kind: facts.FoldKind) -> FoldForecast | None:
        """Return what a fold on demand takes and brings, or None if there is nothing to fold.

        What its shorter context costs later, cached anew, is part of the next message.
        """
        if kind is facts.FoldKind.MARKER:
            return self._forecast_markers()
        plan = self._plan_on_demand(kind, "")
        if plan is None:
            return None
        situation = self.current_situation()
        material = fold_document_writer.gather_material(plan, situation)
        if fold_document_writer.reason_not_to_fold(material):
            return None  # No model is asked for a text that could not be shorter.
        most_tokens = fold_document_writer.document_limit_tokens(material)
        is_behind_history = kind is facts.FoldKind.HANDOVER and handover.should_main_model_write(
            situation, plan.span
        )
        read_tokens = round(material.shown * situation.meter.factor)
        if is_behind_history:
            read_tokens = situation.meter.used
        longest_document = most_tokens + fold_document_writer.FRAME_TOKENS
        # A text is rarely as long as it may be: with the longest one, "235 less" were 1,100.
        document_tokens = min(handover.expected_document_tokens(situation), longest_document)
        expected_freed = (material.leaving - document_tokens) * situation.meter.factor
        return FoldForecast(
            sent=read_tokens + fold_economics.QUESTION_TOKENS,
            freed=max(0, round(expected_freed)),
            dollars=self._estimate_writing_dollars(kind, plan, most_tokens),
        )

    def _forecast_markers(self) -> FoldForecast | None:
        """Return what it brings to show one line in place of each old output. No model is asked."""
        situation = replace(self.current_situation(), is_asked=True)
        clearing = markers.plan_clearing_of_all_before(situation, first_seq_of_tail(situation))
        if clearing is None:
            return None
        freed_tokens = markers.count_freed_tokens(situation, clearing)
        return FoldForecast(sent=0, freed=round(freed_tokens * situation.meter.factor), dollars=0.0)

    def _estimate_writing_dollars(
        self, kind: facts.FoldKind, plan: FoldPlan, most_tokens: int
    ) -> float | None:
        """Return about how many dollars a document costs at most, or None without a price."""
        situation = self.current_situation()
        chosen = situation.state.settings.model_for_role(facts.ModelRole.MAIN)
        if chosen is None or chosen.price_input <= 0:
            return None
        cached_tokens = context_usage.count_cached_tokens(
            self.conversation.expected_state, chosen.model
        )
        is_cold = not cached_tokens or context_usage.is_cache_cold(situation.state, situation.now)
        cost_in_input_tokens = handover.most_expected_writing_cost(
            situation,
            plan.span,
            most_tokens,
            of_transcript=kind is not facts.FoldKind.HANDOVER,
            is_cold=is_cold,
        )
        return cost_in_input_tokens * chosen.price_input / context_usage.PER_MILLION

    def _plan_on_demand(self, kind: facts.FoldKind, wish: str) -> FoldPlan | None:
        """Return which messages a fold that the user asks for would replace, or None for none."""
        if kind not in STRATEGIES:
            raise ActionRefused(
                "Only new outputs can be shortened to excerpts.",
                remedy="Old outputs can be shortened to one line instead.",
            )
        situation = replace(self.current_situation(), is_asked=True)
        span = STRATEGIES[kind].span(situation)
        if span is None:
            return None
        return FoldPlan(kind, span, ASKED, wish=wish, is_asked=True)

    def _start_due_fold(self, situation: FoldSituation | None = None) -> None:
        """Begin the fold that is due, if there is one, no other is under way, and no cost limit
        is reached.
        """
        if not self.has_no_fold_in_work or self.spending.find_turn_end_at_limit():
            return
        due_fold = self._planner.find_due_fold(situation or self.current_situation())
        if due_fold is not None:
            self._start_fold(due_fold)
        elif self._asking_task is None:
            self._ask_added_strategies()

    def _ask_added_strategies(self) -> None:
        """Ask the strategies of extensions, in the background, what is to become a summary."""
        choosing_strategies = [one for one in self._list_added_strategies() if one.chooses]
        situation = self.current_situation()
        if not choosing_strategies or not self._planner.may_plan_handover(situation):
            return
        context = added_strategies.find_foldable_context(situation)
        if context is None:
            return
        asking = self._fold_what_a_strategy_chooses(choosing_strategies, context)
        with suppress(StoppedByUser):  # The workspace is closing.
            self._asking_task = self._spawn(
                asking, name=f"ask extensions about {self.conversation.id}"
            )

    async def _fold_what_a_strategy_chooses(
        self, strategies: Sequence[AddedFoldStrategy], context: FoldableContext
    ) -> None:
        """Start the fold that the first strategy chooses, unless another one was begun meanwhile."""
        try:
            for strategy in strategies:
                chosen = await strategy.choose_fold(context)
                if chosen is None:
                    continue
                self._start_chosen_fold(chosen)
                return
        except Exception:
            log.exception("asking extensions what to fold failed")
        finally:
            self._asking_task = None

    def _start_chosen_fold(self, chosen: ChosenFold) -> None:
        if not self.has_no_fold_in_work or self.spending.find_turn_end_at_limit():
            return
        situation = self.current_situation()
        plan = added_strategies.plan_chosen_fold(situation, chosen)
        if plan is None:
            return
        # A fold that cannot be written would count as a failure of the program's own summaries.
        material = fold_document_writer.gather_material(plan, situation)
        if not fold_document_writer.reason_not_to_fold(material):
            self._start_fold(material)

    def _start_fold(self, material: fold_document_writer.DocumentMaterial) -> None:
        """Begin to write a fold's document in the background, and tell listeners."""
        plan = material.plan
        writing = self._write_fold_document_in_background(material)
        task_name = f"{plan.kind.value} of {self.conversation.id}"
        try:
            self._writing_task = self._spawn(writing, name=task_name)
        except StoppedByUser:
            return  # The workspace is closing.
        self._plan_in_work = plan
        self._tell_progress(FoldProgress(self.conversation.id, plan.kind, plan.why))

    def _tell_progress(self, progress: FoldProgress) -> None:
        self._told_progress = progress
        if progress.done:
            self._told_progress = None
            self._writer.forget_failed_tries()
        self.conversation.notify_listeners(progress)

    def _update_progress(self, *, is_waited_for: bool | None = None) -> None:
        """Tell listeners how the fold that is being written goes on, if there is one."""
        progress = self.progress
        if progress is None:
            return
        if is_waited_for is not None:
            progress = replace(progress, is_waited_for=is_waited_for)
        self._tell_progress(replace(progress, is_update=True))

    async def _write_fold_document_in_background(
        self, material: fold_document_writer.DocumentMaterial
    ) -> None:
        """Write the document of a fold, as a task. Its end is reported in any case."""
        plan = material.plan
        try:
            usual_seconds = material.situation.policy.summary_wait
            most_seconds = usual_seconds + self._writer.seconds_added_for_document()
            if plan.is_asked:
                ways = EVERY_WAY
            else:
                # One way to write it for each attempt, so that a failure costs one request.
                ways = self._planner.failed.next_way(plan.kind)
            name = self.conversation.new_fold_name(plan.kind)
            self._written_document = await self._writer.write_document(
                material, name, most_seconds, ways
            )
        except ActionRefused as error:
            # A reached limit is one reason, and "; " would separate it into several attempts.
            reason = error.what.replace(";", ",")
            await self._planner.record_failure(plan.kind, reason)
        except HelixError as error:
            await self._planner.record_failure(plan.kind, error.what)
        except Exception:
            log.exception("a %s could not be written", plan.kind.value)
            await self._planner.record_failure(plan.kind, "a bug in Helix Desktop (see the log)")
        finally:
            self._writing_task = None
            self._plan_in_work = None
            self._tell_progress(FoldProgress(self.conversation.id, plan.kind, plan.why, done=True))

    async def _wait_for_fold_and_adopt_or_raise(
        self, kind: facts.FoldKind
    ) -> tuple[facts.Recorded, ...]:
        """Wait for the fold that the user asked for, and return the facts that were appended.

        They are none if the document has to wait for the end of the turn. Raises
        NoDocumentWritten, with the reason, if nothing was shortened.
        """
        seq_before_waiting = self.conversation.state.seq
        if self._writing_task is not None:
            await asyncio.wait([self._writing_task])
        if self._written_document is None:
            # A turn that somebody began meanwhile may have taken the document, and appends it now.
            async with self._adoption:
                pass
            recorded_by_turn = self._folds_recorded_after(seq_before_waiting, kind)
            if recorded_by_turn:
                return recorded_by_turn
            reason = self._reason_of_newest_failure(seq_before_waiting)
            raise fold_document_writer.NoDocumentWritten(f"Nothing was shortened: {reason}")
        recorded = await self.adopt_ready_fold()
        if not recorded and self._written_document is None:
            raise fold_document_writer.NoDocumentWritten(
                "Nothing was shortened: the messages changed in the meantime"
            )
        return recorded

    def _folds_recorded_after(self, seq: int, kind: facts.FoldKind) -> tuple[facts.Recorded, ...]:
        recorded_folds: list[facts.Recorded] = []
        for recorded in self.conversation.state.facts[seq:]:
            if isinstance(recorded.fact, facts.Folded) and recorded.fact.kind is kind:
                recorded_folds.append(recorded)
        return tuple(recorded_folds)

    def _reason_of_newest_failure(self, after_seq: int) -> str:
        """Return why no fold was written after the fact `after_seq`."""
        for recorded in reversed(self.conversation.state.facts[after_seq:]):
            if isinstance(recorded.fact, facts.FoldFailed):
                # Each attempt adds a reason. The fact keeps them all, and whoever waits
                # is told the first.
                first_reason, _, _ = recorded.fact.why.partition("; ")
                return first_reason
        # A fold that is stopped records no failure.
        return "you stopped it"

    async def adopt_ready_fold(self) -> tuple[facts.Recorded, ...]:
        """Append the fold whose document is ready, and replace old outputs with markers as well.

        It is dropped if the messages that it stands for have changed since they were read. If
        one of them is among the last steps, which stay whole, it waits until they are older.
        Returns the appended facts.
        """
        async with self._adoption:
            return await self._adopt_written_document()

    async def _adopt_written_document(self) -> tuple[facts.Recorded, ...]:
        document = self._written_document
        if document is None:
            return ()
        plan = document.material.plan
        is_current = fold_document_writer.is_material_current(
            document.material, self.conversation.state
        )
        covers_last_turn = plan.span.last >= first_seq_of_tail(self.current_situation())
        if is_current and covers_last_turn:
            return ()
        self._written_document = None
        recorded = await self.append_fold_if_still_current(document)
        if not recorded and not plan.is_asked:
            await self._planner.record_failure(plan.kind, CHANGED_MEANWHILE)
        if recorded and self.conversation.policy.caching != "off":
            await self._clear_along_with_fold(document.fold.fold)
        return recorded

    async def _clear_along_with_fold(self, fold: str) -> None:
        """Clear all old parts, since the provider must cache the prefix again anyway."""
        situation = self.current_situation()
        clearing = markers.plan_clearing_of_all_before(situation, first_seq_of_tail(situation))
        if clearing is not None:
            parts = clearing.parts_to_clear(situation)
            await self._shortener.replace_with_markers(parts, clearing.why, batch=fold)

    async def append_fold_if_still_current(
        self, written: fold_document_writer.WrittenDocument
    ) -> tuple[facts.Recorded, ...]:
        """Append a fold, unless the messages that it covers have changed in the meantime."""

        def build_facts(seq: int) -> tuple[facts.Fact, ...]:
            state = self.conversation.state
            if not fold_document_writer.is_material_current(written.material, state):
                return ()
            if not state.branch.is_valid_fold(seq, written.fold):
                return ()
            return (written.fold,)

        return await self.conversation.append_facts_from(build_facts)

    # --- Clearing old parts, and stronger measures if the next request does not fit

    async def _clear_due_parts(self) -> None:
        situation = self.current_situation()
        clearing = markers.find_due_clearing(situation)
        if clearing is not None:
            parts = clearing.parts_to_clear(situation)
            await self._shortener.replace_with_markers(parts, clearing.why)

    async def _shorten_until_request_fits(self, *, overflowed: bool) -> None:
        await self._build_request_shortener().reduce_until_it_fits(overflowed=overflowed)

    async def _shorten_without_model(self) -> None:
        situation = self.current_situation()
        target_tokens = context_usage.tokens_at_which_handover_must_start(
            situation.meter, situation.policy
        )
        await self._build_request_shortener().reduce_without_model(int(target_tokens))

    def _build_request_shortener(self) -> RequestShortener:
        """Build what takes stronger measures, with the methods of this object that it needs."""
        support = ShortenerSupport(
            self.current_situation,
            self._spawn,
            self.append_fold_if_still_current,
            self.adopt_fold_in_time_or_cancel,
            self._planner.failed,
            self._planner.record_failure,
            self._show_writing,
        )
        return RequestShortener(self.conversation, self._writer, self._shortener, support)

    @contextmanager
    def _show_writing(
        self, plan: FoldPlan, writing_task: asyncio.Task[fold_document_writer.WrittenDocument]
    ) -> Iterator[None]:
        """Tell listeners that a fold is being written, until this is closed. It is the one in work
        meanwhile: it can be stopped, and no other is begun beside it.
        """
        self._writing_task = writing_task
        self._plan_in_work = plan
        progress = FoldProgress(self.conversation.id, plan.kind, plan.why, is_waited_for=True)
        self._tell_progress(progress)
        try:
            yield
        finally:
            self._writing_task = None
            self._plan_in_work = None
            self._tell_progress(FoldProgress(self.conversation.id, plan.kind, plan.why, done=True))

    async def adopt_fold_in_time_or_cancel(self, seconds: float) -> bool:
        """Return False if the fold was cancelled, because it took too long or the user stopped it."""
        writing_task = self._writing_task
        plan = self._plan_in_work
        if writing_task is None or plan is None:
            return True
        self._update_progress(is_waited_for=True)
        try:
            reason_given_up = await self._writer.wait_and_return_why_given_up(
                writing_task, self.conversation.policy, seconds
            )
        except asyncio.CancelledError:
            # The turn was stopped. The fold is written on, but nothing waits for it.
            self._update_progress(is_waited_for=False)
            raise
        if writing_task.cancelled():
            return False
        if reason_given_up:
            self.cancel_fold_in_work()
            await self._planner.record_failure(plan.kind, reason_given_up)
            return False
        await self.adopt_ready_fold()
        return True

    async def _run_and_record_failure(
        self, kind: facts.FoldKind, work: Callable[[], Awaitable[object]]
    ) -> None:
        """Do some work of folding. A failure is recorded, so that the turn goes on unshortened."""
        try:
            await work()
        except HelixError as error:
            # The message may quote the provider, so only the kind of error is logged.
            log.info("%s failed: %s", kind.value, type(error).__name__)
            await self._planner.record_failure(kind, error.what)
        except Exception:
            log.exception("a %s failed", kind.value)
            await self._planner.record_failure(kind, "a bug in Helix Desktop (see the log)")


class DraftFolding(ConversationFolding):
    """Makes excerpts of large outputs in a draft, without asking models or starting folds."""

    def start_folds_after_turn(self) -> None:
        """Do nothing. In a long history, a search after each turn would read all
        earlier turns again.
        """


def _refuse_to_spawn(coroutine: Coroutine[Any, Any, T], /, *, name: str) -> asyncio.Task[T]:
    coroutine.close()
    raise StoppedByUser(f"{name} is not available yet.")


def _pays_to_send_keep_alive_request(situation: FoldSituation) -> bool:
    """Whether a keep-alive request should save more than it costs.

    Such a request sends what the provider has cached once more, so that it stays cached. It pays
    if the user is likely enough to come back before it expires again. It is never sent with
    thinking or for connected agents.
    """
    state = situation.state
    steps = situation.branch.steps
    chosen = state.settings.model_for_role(facts.ModelRole.MAIN)
    next_message = context_usage.estimate_next_message_cost(state, situation.policy)
    if chosen is None or next_message is None or not steps:
        return False
    if chosen.effort or state.agent or state.acp_agent:
        return False
    if _was_last_keep_alive_request_useless(situation):
        return False

    _, cached_tokens = state.record.ledger.last_billed_reply(chosen.model, state.seq)
    usage = facts.Usage(input=cached_tokens, cache_read=cached_tokens, output=1)
    request_cost = context_usage.compute_cost(usage, chosen)
    cost_since_last_step = next_message.kept + request_cost
    if request_cost <= 0 or cost_since_last_step > situation.policy.keep_alive_dollars:
        return False
    expected_saving = _chance_of_next_message(situation) * (next_message.cold - next_message.warm)
    return expected_saving > request_cost


def _was_last_keep_alive_request_useless(situation: FoldSituation) -> bool:
    """Whether the provider did not keep what the last keep-alive request since the last step was
    to keep: at most half of it was read from its cache.
    """
    last_step = situation.branch.steps[-1]
    requests = context_usage.keep_alive_times_and_usages_since(situation.state, last_step)
    if not requests:
        return False
    _, last_usage = requests[-1]
    return last_usage.cache_read <= last_usage.input / 2


def _chance_of_next_message(situation: FoldSituation) -> float:
    """Return how likely the user writes within the lifetime of the cache, by earlier pauses."""
    step_times = situation.branch.step_times
    pauses = [later - earlier for earlier, later in itertools.pairwise(step_times)]
    seconds_away = situation.now - step_times[-1]
    return fold_economics.chance_of_return(
        away=seconds_away, life=cache_lifetime_seconds(situation.state), pauses=pauses
    )


def _describe_request_that_does_not_fit(situation: FoldSituation) -> str:
    """Say what happens before the next request, though no strategy has a fold due: a conversation
    of few, long messages is shortened only once the next message is sent.
    """
    figures = situation.meter.format_meter()
    policy = situation.policy
    if policy.handover == "off" and policy.caching == "off" and not policy.truncation:
        return f"The next request does not fit: {figures}."
    return f"The next message needs shortening first: {figures}."


def describe_policy_outlook(situation: FoldSituation) -> str:
    """Describe what the policy will do later, and how full the window is by then."""
    policy = situation.policy
    sentences = []
    if policy.caching == "steps":
        sentences.append(f"Outputs become one line each after {policy.caching_steps} steps.")
    if policy.observation:
        sentences.append(
            f"Dated notes when older messages fill {policy.observation_share:.0%} of the window."
        )
    if policy.handover in ("share", "pays"):
        tokens = context_usage.tokens_at_which_handover_must_start(situation.meter, policy)
        share = f"{tokens / max(1, situation.meter.window):.0%}"
        if policy.handover == "pays":
            sentences.append(
                f"A summary when the window is {share} full, or earlier if that saves money."
            )
        else:
            sentences.append(f"A summary when the window is {share} full.")
    if sentences:
        return " ".join(sentences)
    if policy.caching == "pays":
        return "Old outputs become one line each if that saves money."
    return "This setting never shortens anything."
