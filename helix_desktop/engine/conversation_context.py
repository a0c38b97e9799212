"""Shows what the model is sent at any step, with its tokens and cost, and records the
user's decisions about it.
"""

import asyncio
import math
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from helix_desktop.engine import context_usage, facts, rebuilt_request
from helix_desktop.engine.automatic_folding import WRITING_SECONDS, ConversationFolding
from helix_desktop.engine.context_usage import NextMessageCost, PendingRewrite, WindowMeter
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.fold_kinds import KINDS_OF_SUMMARIES
from helix_desktop.engine.message_cost_forecast import (
    MessageCostForecast,
    NextMessageEstimate,
    estimate_next_message,
    forecast_message_cost,
)
from helix_desktop.engine.message_queue import with_text_tokens
from helix_desktop.engine.messages import Request
from helix_desktop.engine.request_costs import RequestCost, explain_costs_of_last_turn
from helix_desktop.engine.session_events import MeterChanged
from helix_desktop.engine.session_setup import SessionServices
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view_contents import SAMPLE_BYTES, estimate_entry_tokens
from helix_desktop.errors import ActionRefused, HelixError, NotFound
from helix_desktop.fast_dataclass import dataclass

# "Fold first" is offered only if it frees at least this share of the next request.
FOLD_SHARE = 0.1
# Fewer requests are what every long conversation makes now and then, and are not asked about.
FEWEST_SUMMARY_REQUESTS = 3
_USUAL_SUMMARY_TOKENS = 1_500  # Of a summary of a piece of the history.
_QUESTION_TOKENS = 600  # Of a question about a piece of the history.


@dataclass(frozen=True, slots=True)
class NeededSummary:
    """What has to be summarized before a conversation can go on, such as an imported one. `dollars`
    is None where the price is not known.
    """

    used_tokens: int
    window_tokens: int
    reserved_tokens: int  # What stays free of the window.
    requests: int
    dollars: float | None
    shortens_outputs_first: bool = False


class ConversationContext:
    """Shows and changes what the next request will contain, with choices made since the last."""

    def __init__(
        self, conversation: Conversation, services: SessionServices, folding: ConversationFolding
    ) -> None:
        self._conversation = conversation
        self._services = services
        self._folding = folding
        folding.keep_cache_alive = weakref.WeakMethod(self._keep_cache_alive)

    def next_request_meter(self, instead_of: int = 0) -> WindowMeter:
        """Measure the next request. `instead_of`: the message that the next one replaces."""
        expected_state = self._conversation.expected_state
        policy = self._conversation.policy_at(expected_state)
        return context_usage.measure_window_without_end(expected_state, policy, instead_of)

    def next_message_cost(self, instead_of: int = 0) -> NextMessageCost | None:
        """Return the approximate cost of sending now, or None without prices."""
        expected_state = self._conversation.expected_state
        policy = self._conversation.policy_at(expected_state)
        return context_usage.estimate_next_message_cost(expected_state, policy, before=instead_of)

    def message_cost_forecast(self) -> MessageCostForecast | None:
        """Return what the next message will probably cost with all its requests, or None."""
        return forecast_message_cost(self._conversation.expected_state)

    def cost_of_agents(self) -> float:
        return self._services.agents_spent().below

    def model_whose_cost_cannot_be_limited(self) -> str:
        """Return the main model's name if there is a cost limit but no known price."""
        limits = self._services.limits()
        has_cost_limit = any(
            (
                limits.turn_cost,
                limits.conversation_cost,
                limits.day_cost,
                limits.workspace_cost,
                limits.agents_cost,
            )
        )
        chosen = self._conversation.expected_state.settings.model_for_role(facts.ModelRole.MAIN)
        if not has_cost_limit or chosen is None or chosen.price_input > 0:
            return ""
        spending = self._conversation.state.spent
        is_cost_reported = bool(spending) and spending[-1].usage.cost > 0
        if is_cost_reported:
            return ""
        return chosen.model

    def estimate_next_message(
        self, parts: Sequence[facts.UserPart], *, instead_of: int = 0
    ) -> NextMessageEstimate:
        """Return what sending these parts now takes. `instead_of`: the message they replace."""
        expected_state = self._conversation.expected_state
        counted_tokens = 0
        for part in parts:
            counted_tokens += with_text_tokens(part, self._services.tokens).tokens
        return estimate_next_message(
            expected_state,
            self._conversation.policy_at(expected_state),
            counted_tokens,
            self._services.clock.current_time(),
            before=instead_of,
        )

    def estimate_cost_of_sending(
        self, parts: Sequence[facts.UserPart], *, instead_of: int = 0
    ) -> float:
        """Return the approximate cost of sending these parts now, or 0.0. `instead_of`:
        the message they replace. It is at least what messages of this conversation usually cost.
        """
        return self.estimate_next_message(parts, instead_of=instead_of).dollars

    async def count_sent_tokens(
        self,
        attachment: facts.Attachment,
        parts: Sequence[facts.UserPart],
        *,
        instead_of: int = 0,
    ) -> int:
        """Return how many tokens of an attachment are sent with a message of these parts.
        `instead_of`: the message they replace.
        """
        counted_parts = [with_text_tokens(part, self._services.tokens) for part in parts]
        return await self._folding.count_sent_tokens(attachment, counted_parts, instead_of)

    def estimate_needed_summary(self) -> NeededSummary | None:
        """Return what must be summarized before the next message, if that takes many requests.

        That is so if a long conversation was imported, or a model with a smaller window was
        chosen. The user is asked before so much is spent. None if it is enough to shorten outputs,
        which takes no request, or if a summary is being written already: the message waits for it.
        """
        expected_state = self._conversation.expected_state
        policy = self._conversation.policy_at(expected_state)
        meter = context_usage.measure_window(expected_state, policy)
        if policy.handover == "off" or meter.window <= 0 or meter.request_fits:
            return None
        if self._folding.kind_in_progress in KINDS_OF_SUMMARIES:
            return None
        tokens_left = self._folding.tokens_left_without_summary()
        if tokens_left <= meter.window - meter.reserve:
            return None
        free_tokens = meter.window - meter.reserve - _QUESTION_TOKENS
        piece_tokens = max(free_tokens, _QUESTION_TOKENS)
        requests = _count_summary_requests(tokens_left, piece_tokens)
        if requests < FEWEST_SUMMARY_REQUESTS:
            return None
        dollars = None
        chosen = expected_state.settings.model_for_role(facts.ModelRole.MAIN)
        if chosen is not None and chosen.price_input > 0:
            reading = requests * piece_tokens * chosen.price_input
            writing = requests * _USUAL_SUMMARY_TOKENS * chosen.price_output
            dollars = (reading + writing) / context_usage.PER_MILLION
        return NeededSummary(
            used_tokens=meter.used,
            window_tokens=meter.window,
            reserved_tokens=meter.reserve,
            requests=requests,
            dollars=dollars,
            shortens_outputs_first=tokens_left < meter.used,
        )

    def estimate_saving_of_markers(self) -> float:
        """Return the dollars that markers would save, or 0.0 if they would free too little, or if
        another agent works here, which alone decides what it sends.
        """
        if self._conversation.state.acp_agent:
            return 0.0
        next_message = self.next_message_cost()
        if next_message is None:
            return 0.0
        if next_message.is_cache_warm(self._services.clock.current_time()):
            return 0.0
        freed_tokens = self._folding.tokens_freed_by_markers_on_demand()
        if freed_tokens < FOLD_SHARE * self.next_request_meter().used:
            return 0.0
        return freed_tokens * next_message.per_token

    def pending_rewrite(self) -> PendingRewrite | None:
        """Return what the choices made since the last request make the provider cache again."""
        expected_state = self._conversation.expected_state
        rewrite = context_usage.estimate_pending_rewrite(expected_state, self._conversation.state)
        if rewrite is None:
            return None
        # If the cache has expired, all is written again whatever was chosen.
        if rewrite.has_expired(self._services.clock.current_time()):
            return None
        return rewrite

    async def explain_costs_of_last_turn(self) -> Sequence[RequestCost]:
        return await asyncio.to_thread(explain_costs_of_last_turn, self._conversation.state)

    async def rebuild_request(self, seq: int | None = None) -> Request:
        """Return the request as sent for the ModelReplied `seq`, or the next one for None."""
        return await rebuilt_request.rebuild_request(self._conversation, self._services.cache, seq)

    async def _keep_cache_alive(self) -> None:
        """Send the last request again. If that fails, the cache expires, as it would
        have anyway.
        """
        client = self._services.models(facts.ModelRole.MAIN)
        if client is not None:
            last_step = self._conversation.state.branch.steps[-1]
            inquiry = self._folding.spending.build_model_inquiry()
            with suppress(HelixError, TimeoutError):
                last_request = await self.rebuild_request(last_step)
                await inquiry.send_keep_alive_request(client, last_request, WRITING_SECONDS)
        self._folding.schedule_fold_before_cache_expires()
        self._conversation.notify_listeners(MeterChanged(self._conversation.id))

    def matches_sent_request(self, seq: int, request: Request) -> bool | None:
        """Whether the reply `seq` answered this request; None if nobody recorded that."""
        state = self._conversation.state
        return rebuilt_request.matches_sent_request(state, seq, request)

    async def edit_fold_text(self, fold: str, text: str) -> None:
        """Replace the text of a handover or of observations by the user's own."""
        if self._conversation.state.find_fold(fold) is None:
            raise NotFound(f"There is no shortened part {fold} in this conversation.")
        tokens = self._services.tokens.count_tokens(text)
        await self._conversation.append_facts(facts.DocumentEdited(fold, text, tokens))

    async def pin_part(self, ref: facts.Cover) -> None:
        """Show a part word for word in every request. Refuses, with figures, what does not fit."""
        meter = self.next_request_meter()
        tokens = context_usage.count_unfoldable_tokens(self._conversation.expected_state, ref)
        if tokens + meter.reserve > meter.window:
            raise ActionRefused(
                f"If this were pinned, the system prompt, tools, rules and pins would take up {tokens:,} tokens in every request. The context window has {meter.window:,} tokens, and {meter.reserve:,} of them are reserved for the reply and a summary.",
                remedy="Unpin something, or choose a model with a larger context window.",
            )
        await self._conversation.append_facts(facts.Pinned(ref))

    async def unpin_part(self, ref: facts.Cover) -> None:
        await self._conversation.append_facts(facts.Unpinned(ref))

    async def exclude_part(self, ref: facts.Cover) -> None:
        await self._conversation.append_facts(facts.Excluded(ref))

    async def include_part(self, ref: facts.Cover) -> None:
        await self._conversation.append_facts(facts.Included(ref))

    async def recall_as_attachment(
        self, digest: Digest, *, lines: tuple[int, int] | None = None
    ) -> facts.Attachment:
        """Return a stored entry as an attachment for the next message. `lines`: the first and the
        last line if only some are wanted, which then become an entry of their own.
        """
        cache = self._services.cache
        entry = await cache.describe_entry(digest)
        stored = entry.stored
        name = entry.about.source or digest.short_hex
        if lines is not None:
            first, last = lines
            content = await cache.read_content(digest)
            all_lines = content.decode("utf-8", "replace").splitlines(keepends=True)
            chosen_text = "".join(all_lines[first - 1 : last])
            name = f"{name}:{first}-{last}"
            origin = replace(entry.about, source=name)
            stored = await cache.store_content(chosen_text.encode(), origin)
        sample = await cache.read_range(stored.digest, 0, min(stored.size, SAMPLE_BYTES))
        count_tokens = self._services.tokens.count_tokens
        tokens = await asyncio.to_thread(estimate_entry_tokens, stored.size, sample, count_tokens)
        return facts.Attachment(name, stored, tokens)


def _count_summary_requests(tokens: int, piece_tokens: int) -> int:
    """Return how many requests it takes to summarize a history.

    It is summarized in pieces, and two summaries at a time become one.
    """
    summaries = math.ceil(tokens / piece_tokens)
    requests = summaries
    while summaries > 1:
        summaries = math.ceil(summaries / 2)
        requests += summaries
    return requests
