"""Shows what the model is sent at any step, with its tokens and cost, and records the
user's decisions about it.
"""

import asyncio
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from helix_desktop.engine import context_usage, facts, request_building
from helix_desktop.engine.automatic_folding import WRITING_SECONDS, ConversationFolding
from helix_desktop.engine.context_usage import NextMessageCost, PendingRewrite, WindowMeter
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.message_queue import with_text_tokens
from helix_desktop.engine.messages import Request
from helix_desktop.engine.request_costs import RequestCost, explain_costs_of_last_turn
from helix_desktop.engine.session_events import MeterChanged
from helix_desktop.engine.session_setup import SessionServices
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.request_digest import digest_of_request
from helix_desktop.engine.state.token_ledger import newest_fact_seen_by
from helix_desktop.engine.view_contents import SAMPLE_BYTES, ViewContents, estimate_entry_tokens
from helix_desktop.errors import ActionRefused, HelixError, NotFound
from helix_desktop.fast_dataclass import dataclass

# "Fold first" is offered only if it frees at least this share of the next request.
FOLD_SHARE = 0.1


# Fewer requests are what every long conversation makes now and then, and are not asked about.
FEWEST_SUMMARY_REQUESTS = 3
_USUAL_SUMMARY = 1_500  # Tokens of a summary of a piece.
_ROOM_FOR_QUESTION = 600  # Tokens of a question about a piece of the history.


@dataclass(frozen=True, slots=True)
class NeededSummary:
    """What has to be summarized before a conversation can go on, such as an imported one. `dollars`
    is None where the price is not known.
    """

    used_tokens: int
    window_tokens: int
    requests: int
    dollars: float | None


class ConversationContext:
    """Shows and changes what the next request will contain, with choices made since the last."""

    def __init__(
        self, conversation: Conversation, services: SessionServices, folding: ConversationFolding
    ) -> None:
        self._conversation = conversation
        self._services = services
        self._folding = folding
        folding.keep_cache_alive = weakref.WeakMethod(self._keep_cache_alive)

    def next_request_meter(self) -> WindowMeter:
        ahead = self._conversation.expected_state
        return context_usage.measure_window(ahead, self._conversation.policy_at(ahead))

    def next_message_cost(self, instead_of: int = 0) -> NextMessageCost | None:
        """Return the approximate cost of sending now, or None without prices."""
        ahead = self._conversation.expected_state
        return context_usage.estimate_next_message_cost(
            ahead, self._conversation.policy_at(ahead), before=instead_of
        )

    def cost_of_agents(self) -> float:
        return self._services.agents_spent()[0]

    def model_whose_cost_cannot_be_limited(self) -> str:
        """Return the main model's name if there is a cost limit but no known price."""
        limits = self._services.limits()
        paid = self._conversation.state.spent
        costs = limits.turn_cost + limits.conversation_cost + limits.day_cost
        costs += limits.workspace_cost + limits.agents_cost
        chosen = self._conversation.expected_state.settings.model_for_role(facts.ModelRole.MAIN)
        is_cost_reported = bool(paid) and paid[-1].usage.cost > 0
        if not costs or chosen is None or chosen.price_input > 0 or is_cost_reported:
            return ""
        return chosen.model

    def estimate_cost_of_sending(
        self, parts: Sequence[facts.UserPart], *, instead_of: int = 0
    ) -> float:
        """Return the approximate cost of sending these parts now, or 0.0. `instead_of`:
        the message they replace.
        """
        price = self.next_message_cost(instead_of)
        if price is None:
            return 0.0
        tokens = sum(with_text_tokens(part, self._services.tokens).tokens for part in parts)
        added = context_usage.estimate_billed_tokens(tokens, self._conversation.expected_state)
        return price.cost_when_sent(self._services.clock.current_time()) + added * price.per_token

    def estimate_needed_summary(self) -> NeededSummary | None:
        """Return what must be summarized before the next message, if that takes many requests."""
        ahead = self._conversation.expected_state
        policy = self._conversation.policy_at(ahead)
        meter = context_usage.measure_window(ahead, policy)
        if policy.handover == "off" or meter.window <= 0 or meter.request_fits:
            return None
        piece = max(meter.window - meter.reserve - _ROOM_FOR_QUESTION, _ROOM_FOR_QUESTION)
        # The history is summarized in pieces, and two summaries at a time become one.
        pieces = -(-meter.used // piece)
        requests = pieces
        while pieces > 1:
            pieces = -(-pieces // 2)
            requests += pieces
        if requests < FEWEST_SUMMARY_REQUESTS:
            return None
        dollars = None
        chosen = ahead.settings.model_for_role(facts.ModelRole.MAIN)
        if chosen is not None and chosen.price_input > 0:
            read_price = requests * piece * chosen.price_input
            written_price = requests * _USUAL_SUMMARY * chosen.price_output
            dollars = (read_price + written_price) / context_usage.PER_MILLION
        return NeededSummary(meter.used, meter.window, requests, dollars)

    def estimate_saving_of_markers(self) -> float:
        """Return the dollars that markers would save, or 0.0 if they would free too little."""
        price = self.next_message_cost()
        if price is None or price.is_cache_warm(self._services.clock.current_time()):
            return 0.0
        freed = self._folding.tokens_freed_by_markers_on_demand()
        if freed < FOLD_SHARE * self.next_request_meter().used:
            return 0.0
        return freed * price.per_token

    def pending_rewrite(self) -> PendingRewrite | None:
        """Return what the choices made since the last request make the provider cache again."""
        now = self._conversation.expected_state
        rewrite = context_usage.estimate_pending_rewrite(now, self._conversation.state)
        if rewrite is None:
            return None
        is_cold = 0 < rewrite.until <= self._services.clock.current_time()
        return None if is_cold else rewrite

    async def explain_costs_of_last_turn(self) -> Sequence[RequestCost]:
        return await asyncio.to_thread(explain_costs_of_last_turn, self._conversation.state)

    async def rebuild_request(self, seq: int | None = None) -> Request:
        """Return the request as sent for the ModelReplied `seq`, or the next one for None."""
        state = self._conversation.expected_state
        reply = None
        if seq is None:
            view = state.get_view()
        else:
            reply = self._require_reply(seq)
            saw = newest_fact_seen_by(state.facts[seq - 1])
            view = (await self._conversation.moment_at(saw)).get_view()
        contents = await ViewContents(self._services.cache).read_view_contents(view)
        request = await asyncio.to_thread(request_building.build_request, view, contents)
        if reply is None or reply.stable is None:
            return request
        return replace(request, stable=reply.stable, settled=reply.settled, room=reply.room)

    async def _keep_cache_alive(self) -> None:
        """Send the last request again. If that fails, the cache expires, as it would
        have anyway.
        """
        client = self._services.models(facts.ModelRole.MAIN)
        if client is not None:
            with suppress(HelixError, TimeoutError):
                last = await self.rebuild_request(self._conversation.state.branch.steps[-1])
                asking = self._folding.spending.build_model_inquiry()
                await asking.send_keep_alive_request(client, last, WRITING_SECONDS)
        self._folding.schedule_fold_before_cache_expires()
        self._conversation.notify_listeners(MeterChanged(self._conversation.id))

    def matches_sent_request(self, seq: int, request: Request) -> bool | None:
        """Whether the reply `seq` answered this request, by its stored digest; None without one."""
        known = self._require_reply(seq).request
        return None if known is None else digest_of_request(request) == known

    def _require_reply(self, seq: int) -> facts.ModelReplied:
        fact = self._conversation.fact_at(seq)
        if not isinstance(fact, facts.ModelReplied):
            raise NotFound(f"Record {seq} of this conversation is not a reply from the model.")
        return fact

    async def edit_fold_text(self, fold: str, text: str) -> None:
        """Replace the text of a handover or of observations by the user's own."""
        if self._conversation.state.find_fold(fold) is None:
            raise NotFound(f"There is no shortened part {fold} in this conversation.")
        tokens = self._services.tokens.count_tokens(text)
        await self._conversation.append_facts(facts.DocumentEdited(fold, text, tokens))

    async def pin_part(self, ref: facts.Cover) -> None:
        """Show a part word for word in every request. Refuses, with figures, what does not fit."""
        meter = self.next_request_meter()
        kept = context_usage.count_unfoldable_tokens(self._conversation.expected_state, ref)
        if kept + meter.reserve > meter.window:
            raise ActionRefused(
                f"If this were pinned, the system prompt, tools, rules and pins would take up {kept:,} tokens in every request. The context window has {meter.window:,} tokens, and {meter.reserve:,} of them are reserved for the reply and a summary.",
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
        """Return an entry, or some of its lines, as an attachment for the next message."""
        cache = self._services.cache
        entry = await cache.describe_entry(digest)
        stored = entry.stored
        name = entry.about.source or digest.short_hex
        if lines is not None:
            first, last = lines
            text = (await cache.read_content(digest)).decode("utf-8", "replace")
            piece = "".join(text.splitlines(keepends=True)[first - 1 : last])
            name = f"{name}:{first}-{last}"
            stored = await cache.store_content(piece.encode(), replace(entry.about, source=name))
        sample = await cache.read_range(stored.digest, 0, min(stored.size, SAMPLE_BYTES))
        count = self._services.tokens.count_tokens
        tokens = await asyncio.to_thread(estimate_entry_tokens, stored.size, sample, count)
        return facts.Attachment(name, stored, tokens)
