"""Observes a conversation during its replay: what was shown, folded, recalled or lost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from helix_desktop.engine import facts, request_building
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.fold_kinds import KINDS_OF_PARTS, KINDS_OF_SUMMARIES
from helix_desktop.engine.messages import Block, Image, Request, View
from helix_desktop.engine.ports import ContentCache, TokenCounter
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.histories.recorded_session import RecordedMessage
from helix_desktop.replay import lost_details, simulated_recalls
from helix_desktop.replay.replay_figures import FoldMark, ReplayFigures
from helix_desktop.replay.retention import SUMMARIES, ReferenceRetention


class ReplayObserver:
    """Collects what a replay shows, from the player's steps and the conversation's facts."""

    def __init__(
        self,
        conversation: Conversation,
        cache: ContentCache,
        usual_models: Sequence[str],
        tokens: TokenCounter,
        public_names: simulated_recalls.PublicNames | None = None,
    ) -> None:
        conversation.listeners.append(self._observe_event)
        self._conversation = conversation
        self._cache = cache
        self._usual_models = frozenset(usual_models)
        self._contents = ViewContents(cache)
        self._texts: dict[Digest, str] = {}
        self._retention = ReferenceRetention(self._text_of_stored)
        self._misses = simulated_recalls.MissedReferences(tokens, public_names)
        self._details: dict[str, None] = {}
        self._folds: list[facts.Folded] = []
        self._marks: list[FoldMark] = []
        self._step_count = 0
        self._illegal_count = 0
        # Each hash that was recalled, and whether it gave back the original.
        self._came_back_by_digest: dict[Digest, bool] = {}
        # Hashes that the recording itself names. The cache may never have had their contents.
        self._foreign: set[Digest] = set()
        self._verified_blocks: dict[int, Block] = {}
        self._lost_details: set[str] = set()
        self._document_is_new = False
        self._tokens_of_outputs = 0  # Of all outputs so far.
        self._output_tokens = 0  # Of the outputs before each step, summed over all steps.

    def observe_recorded_message(self, message: RecordedMessage, tokens: int) -> None:
        """Remember a recorded message that has become facts. `tokens` is its size."""
        self._retention.remember_identifiers_of(message)
        self._misses.add_earlier_message(message)
        details = lost_details.details_of_recorded_message(message)
        self._details.update(dict.fromkeys(details))
        digests = lost_details.digests_in_message(message)
        self._foreign.update(digests)
        if message.role == "tool":
            self._tokens_of_outputs += tokens

    def remember_output_text(self, stored: facts.Stored, text: str) -> None:
        """Remember an output's text, so that it need not be read again."""
        self._texts[stored.digest] = text

    async def observe_step(self, view: View, request: Request, reply: RecordedMessage) -> None:
        """Observe a step's request, and what its reply uses that the view shows."""
        self._step_count += 1
        await self.observe_request(view, request)
        self._retention.set_current_view(view.blocks)
        self._retention.count_known_identifiers_in(reply)
        self._output_tokens += self._tokens_of_outputs
        await self._verify_new_hashes(view.blocks)
        if self._document_is_new:
            self._document_is_new = False
            await self._record_unreachable_details(view.blocks)

    async def observe_request(self, view: View, request: Request) -> None:
        if request_building.find_violations(request):
            self._illegal_count += 1
        await self._remember_block_texts(view.blocks)

    async def pages_recalled_before_reply(
        self, view: View, reply: RecordedMessage, recall_mode: simulated_recalls.RecallMode
    ) -> list[simulated_recalls.RecalledPage]:
        """Return the pages to fetch back before a reply: with what it uses but was not shown.

        The view is what the model was sent. An agent that really worked with it would have
        asked for these pages, which costs something.
        """
        self._misses.set_shown_view(view.blocks, self._text_in_block)
        view_texts = [self._text_in_block(block) for block in view.blocks]
        used_references = self._misses.references_used_but_not_in_view(reply)
        missed = simulated_recalls.missing_from_view(used_references, view_texts)
        if not missed or recall_mode is simulated_recalls.RecallMode.NONE:
            return []
        named_entries = await self._entries_named_in_view(view, view_texts)
        has_summary = any(block.kind in SUMMARIES for block in view.blocks)
        return self._misses.pages_to_recall(
            missed,
            reply,
            named_entries,
            view_texts,
            has_summary=has_summary,
            recall_mode=recall_mode,
        )

    async def _entries_named_in_view(
        self, view: View, view_texts: Sequence[str]
    ) -> list[simulated_recalls.ShownEntry]:
        """Return the entries that the view names and that can still be read."""
        # An index only lists contents, so reading it answers no recall.
        index_digests: set[Digest] = set()
        for block in view.blocks:
            if block.kind in SUMMARIES:
                index_digests.update(stored.digest for stored in block.cached)
        entries: list[simulated_recalls.ShownEntry] = []
        for digest in self._digests_in_view(view.blocks):
            if digest in index_digests:
                continue
            text = await self._recall_text(digest)
            if text is not None:
                entries.append(simulated_recalls.build_shown_entry(digest.hex, text, view_texts))
        return entries

    def _digests_in_view(self, blocks: Sequence[Block]) -> list[Digest]:
        """Return each digest that these blocks name, once."""
        digests = lost_details.digests_in_view(blocks, self._text_in_block)
        return list(dict.fromkeys(digests))

    async def _recall_text(self, digest: Digest) -> str | None:
        """Return the text behind a digest, or None if the original does not come back."""
        content = await lost_details.recall_and_verify(digest, self._cache.read_content)
        if content is None:
            return None
        return content.decode("utf-8", "replace")

    async def complete_figures(self, billing_figures: ReplayFigures) -> ReplayFigures:
        """Make the last observations, and add all of them to the figures."""
        blocks = self._conversation.current_view().blocks
        await self._remember_block_texts(blocks)
        await self._verify_new_hashes(blocks)
        await self._record_unreachable_details(blocks)
        folds_by_kind = Counter(str(fold.kind) for fold in self._folds)
        fallback_count = sum(self._is_fallback(fold) for fold in self._folds)
        failed_recalls = [
            digest for digest, came_back in self._came_back_by_digest.items() if not came_back
        ]
        undo_is_exact = is_undo_exact(self._conversation.state.facts)
        return replace(
            billing_figures,
            folds=folds_by_kind,
            marks=self._marks,
            illegal_requests=self._illegal_count,
            recalls=len(self._came_back_by_digest),
            recalls_failed=len(failed_recalls),
            details=self._count_details(),
            fallbacks=fallback_count,
            used=self._retention.used,
            standing=self._retention.standing,
            standing_plain=self._retention.standing_plain,
            undo_identical=undo_is_exact,
            output_tokens=self._output_tokens,
        )

    def _count_details(self) -> Counter[str]:
        """Return how many details the summaries found, kept and added, and how many were lost."""
        details = Counter(lost=len(self._lost_details))
        for fold in self._folds:
            if fold.kind in KINDS_OF_SUMMARIES:
                counts = fold.details
                details.update(
                    found=counts.found, kept=counts.kept, added=counts.added, entry=counts.entry
                )
        return details

    def _is_fallback(self, fold: facts.Folded) -> bool:
        if fold.kind is facts.FoldKind.TRUNCATION:
            return True
        # Another model than usual wrote it.
        return bool(fold.model) and fold.model not in self._usual_models

    # --- Observing facts and events

    def _observe_event(self, event: Event) -> None:
        """Note each fold that the engine makes. The conversation calls this for all events."""
        if not isinstance(event, FactAppended):
            return
        fact = event.recorded.fact
        if isinstance(fact, facts.Folded):
            self._folds.append(fact)
            self._marks.append(FoldMark(self._step_count, str(fact.kind)))
            # Markers and excerpts are no documents.
            if fact.kind not in KINDS_OF_PARTS:
                self._document_is_new = True

    async def _remember_block_texts(self, blocks: Iterable[Block]) -> None:
        """Read the text of each block whose content is in the cache. An image has none."""
        for block in blocks:
            stored = _stored_of_block(block)
            if stored is None or stored.digest in self._texts:
                continue
            contents = await self._contents.read_view_contents(View((block,)))
            content = contents.get(stored, "")
            if isinstance(content, Image):
                content = ""
            self._texts[stored.digest] = content

    def _text_of_stored(self, stored: facts.Stored) -> str:
        return self._texts.get(stored.digest, "")

    def _text_in_block(self, block: Block) -> str:
        """Return what a block says to the model. What is stored must have been read before."""
        match block.content:
            case facts.Text(text=text) | facts.Reasoning(text=text):
                return text
            case facts.ToolCall(arguments=arguments):
                return lost_details.text_or_json_values(arguments)
            case _:
                stored = _stored_of_block(block)
                if stored is None:
                    return ""
                return self._text_of_stored(stored)

    async def _verify_new_hashes(self, blocks: Sequence[Block]) -> None:
        """Fetch every hash that is new in the view, to find out whether it gives the original.

        The recording may name hashes of its own, which our cache never had.
        """
        new_blocks = [block for block in blocks if id(block) not in self._verified_blocks]
        # The blocks are kept, too, so that no new one is given the id of an old one.
        self._verified_blocks = {id(block): block for block in blocks}
        for digest in lost_details.digests_in_view(new_blocks, self._text_in_block):
            if digest in self._came_back_by_digest:
                continue
            content = await lost_details.recall_and_verify(digest, self._cache.read_content)
            came_back = content is not None
            if came_back or digest not in self._foreign:
                self._came_back_by_digest[digest] = came_back

    async def _record_unreachable_details(self, view_blocks: Sequence[Block]) -> None:
        """Note the details that stand neither in the view nor in an entry that it names."""
        reachable_texts = [self._text_in_block(block) for block in view_blocks]
        for digest in self._digests_in_view(view_blocks):
            text = await self._recall_text(digest)
            if text is not None:
                reachable_texts.append(lost_details.text_or_json_values(text))
        reachable = lost_details.ReachableText(reachable_texts)
        self._lost_details |= reachable.unreachable_details(self._details)


def is_undo_exact(recorded_facts: Sequence[facts.Recorded]) -> bool:
    """Return whether undoing every fold restores the view as it would be without folds."""
    state = build_state(recorded_facts)
    # Undoing a fold shows those that it covered, so there may be several rounds.
    while state.live_folds:
        folds_before = len(state.live_folds)
        for fold in reversed(state.live_folds):
            undo = facts.Recorded(
                conversation="",
                seq=state.seq + 1,
                time=state.time_of_moment,
                fact=facts.Unfolded(fold.fold),
            )
            state.advance_state(undo)
        if len(state.live_folds) >= folds_before:
            return False
    return state.get_view() == _state_without_folds(recorded_facts).get_view()


def _state_without_folds(recorded_facts: Sequence[facts.Recorded]) -> ConversationState:
    """Return the state as if nothing had been folded.

    A fact without effect stands for each fold, so that the other facts keep their numbers.
    """
    fact_without_effect = facts.BreakerClosed(facts.FoldKind.MARKER)
    facts_without_folds: list[facts.Recorded] = []
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.Folded | facts.Unfolded | facts.FoldFailed):
            facts_without_folds.append(replace(recorded, fact=fact_without_effect))
        else:
            facts_without_folds.append(recorded)
    return build_state(facts_without_folds)


def _stored_of_block(block: Block) -> facts.Stored | None:
    match block.content:
        case facts.Stored() as stored:
            return stored
        case facts.Attachment(stored=stored):
            return stored
        case _:
            return None
