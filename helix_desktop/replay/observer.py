"""Watches a conversation while it is replayed: what stood in the views, what was folded, what came back, what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from helix_desktop.engine import laws
from helix_desktop.engine.blocks import Block, Image, Kind, Request, View
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import Event, FactAppended
from helix_desktop.engine.facts import (
    Attachment,
    BreakerClosed,
    Folded,
    FoldFailed,
    FoldKind,
    Reasoning,
    Recorded,
    Stored,
    Text,
    ToolCall,
    Unfolded,
)
from helix_desktop.engine.ports import Cache, Tokens
from helix_desktop.engine.view import State, state_of
from helix_desktop.histories.recording import RecordedMessage
from helix_desktop.replay import legality, losses
from helix_desktop.replay.figures import Mark
from helix_desktop.replay.misses import Misses, Page, Recalls, unseen
from helix_desktop.replay.retention import SUMMARIES, Retention
from helix_desktop.values import dataclass

DOCUMENTS = (FoldKind.HANDOVER, FoldKind.TRUNCATION)


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen; `figures.Figures` has what the names mean."""

    folds: Sequence[Folded]
    marks: Sequence[Mark]
    illegal: int
    recalls: int
    recalls_failed: int
    details: Mapping[str, int]
    fallbacks: int
    failed: int
    used: int
    standing: int
    standing_plain: int
    undo_identical: bool
    output_tokens: int
    output_shown: int


class Watching:
    """Told of every step by the player, and of every fact by the conversation."""

    def __init__(self, conversation: Conversation, cache: Cache, usual: Sequence[str], tokens: Tokens) -> None:
        conversation.listeners.append(self._noted)
        self._conversation = conversation
        self._cache = cache
        self._usual = frozenset(usual)
        self._contents = Contents(cache)
        self._texts: dict[Digest, str] = {}
        self._retention = Retention(self._text)
        self._misses = Misses(tokens)
        self._details: dict[str, None] = {}
        self._folds: list[Folded] = []
        self._marks: list[Mark] = []
        self._failed = 0
        self._steps = 0
        self._illegal = 0
        self._proved: dict[Digest, bool] = {}
        self._foreign: set[Digest] = set()
        self._seen: dict[int, Block] = {}
        self._lost: set[str] = set()
        self._document_is_new = False
        self._outputs = 0
        self._output_tokens = 0
        self._output_shown = 0

    def heard(self, message: RecordedMessage, tokens: int) -> None:
        """A message of the recording has become facts; `tokens` is what it counts."""
        self._retention.heard(message)
        self._misses.heard(message)
        self._details.update(dict.fromkeys(losses.details(message)))
        self._foreign.update(losses.named(message))
        if message.role == "tool":
            self._outputs += tokens

    def put(self, stored: Stored, text: str) -> None:
        """An output's text, so that it need not be read again."""
        self._texts[stored.digest] = text

    async def step(self, view: View, request: Request, reply: RecordedMessage) -> None:
        """One request, and the recorded reply to it."""
        self._steps += 1
        await self.sees(view, request)
        self._retention.show(view.blocks)
        self._retention.uses(reply)
        self._output_tokens += self._outputs
        self._output_shown += sum(block.tokens for block in view.blocks if block.kind is Kind.OUTPUT)
        await self._recall(view.blocks)
        if self._document_is_new:
            self._document_is_new = False
            await self._look_for_losses(view.blocks)

    async def sees(self, view: View, request: Request) -> None:
        """A request that is sent, whatever for."""
        self._illegal += bool(laws.violations(request) or legality.complaints(request))
        await self._read(view.blocks)

    async def missed(self, view: View, reply: RecordedMessage, recalls: Recalls) -> list[Page]:
        """The pages an agent would have recalled from this view before it wrote the reply."""
        self._misses.show(view.blocks, self._says)
        missed = unseen(self._misses.of(reply), map(self._says, view.blocks))
        if not missed or recalls is Recalls.NONE:
            return []
        summarised = any(block.kind in SUMMARIES for block in view.blocks)
        entries = []
        indexes = {stored.digest for block in view.blocks if block.kind in SUMMARIES for stored in block.cached}
        for digest in dict.fromkeys(losses.hashes(view.blocks, self._says)):
            if digest not in indexes:  # which name what was there, and do not say it
                content = await losses.recalled(digest, self._cache.get)
                entries += [(digest.hex, content.decode("utf-8", "replace"))] if content is not None else []
        said = (self._says(block) for block in view.blocks)
        return self._misses.pages(missed, reply, entries, said, summarised=summarised, recalls=recalls)

    async def closed(self) -> Watched:
        """The last looks, and all that was seen."""
        blocks = self._conversation.view().blocks
        await self._read(blocks)
        await self._recall(blocks)
        await self._look_for_losses(blocks)
        details = Counter(lost=len(self._lost))
        for fold in self._folds:
            if fold.kind in DOCUMENTS:
                kept = fold.details
                details.update(found=kept.found, kept=kept.kept, added=kept.added, entry=kept.entry)
        return Watched(
            folds=self._folds,
            marks=self._marks,
            illegal=self._illegal,
            recalls=len(self._proved),
            recalls_failed=sum(not back for back in self._proved.values()),
            details=details,
            fallbacks=sum(self._is_fallback(fold) for fold in self._folds),
            failed=self._failed,
            used=self._retention.used,
            standing=self._retention.standing,
            standing_plain=self._retention.standing_plain,
            undo_identical=undo_is_exact(self._conversation.state.facts),
            output_tokens=self._output_tokens,
            output_shown=self._output_shown,
        )

    # --- facts

    def _noted(self, event: Event) -> None:
        if not isinstance(event, FactAppended):
            return
        fact = event.recorded.fact
        if isinstance(fact, Folded):
            self._folds.append(fact)
            self._marks.append(Mark(self._steps, str(fact.kind)))
            self._document_is_new |= fact.kind not in (FoldKind.MARKER, FoldKind.EXCERPT)
        self._failed += isinstance(fact, FoldFailed)

    def _is_fallback(self, fold: Folded) -> bool:
        """Truncation, or a writer that is not one of the usual ones."""
        return fold.kind is FoldKind.TRUNCATION or bool(fold.model and fold.model not in self._usual)

    # --- what stands in the view

    async def _read(self, blocks: Iterable[Block]) -> None:
        """Read the content the blocks refer to, once."""
        for block in blocks:
            stored = _stored(block)
            if stored is not None and stored.digest not in self._texts:
                shown = (await self._contents.of(View((block,)))).get(stored, "")
                self._texts[stored.digest] = "" if isinstance(shown, Image) else shown

    def _text(self, stored: Stored) -> str:
        return self._texts.get(stored.digest, "")

    def _says(self, block: Block) -> str:
        match block.content:
            case Text(text=text) | Reasoning(text=text):
                return text
            case ToolCall(arguments=arguments):
                return losses.plain(arguments)
            case _:
                stored = _stored(block)
                return self._text(stored) if stored else ""

    async def _recall(self, blocks: Sequence[Block]) -> None:
        """Bring back the original behind every hash that stands anywhere, the first time it does. One that the recording
        speaks of and the cache does not have is no promise of ours.
        """
        fresh = [block for block in blocks if id(block) not in self._seen]
        self._seen = {id(block): block for block in blocks}
        for digest in losses.hashes(fresh, self._says):
            if digest not in self._proved:
                back = await losses.recalled(digest, self._cache.get) is not None
                if back or digest not in self._foreign:
                    self._proved[digest] = back

    async def _look_for_losses(self, blocks: Sequence[Block]) -> None:
        named = [
            await losses.recalled(digest, self._cache.get)
            for digest in dict.fromkeys(losses.hashes(blocks, self._says))
        ]
        entries = [losses.plain(entry.decode("utf-8", "replace")) for entry in named if entry is not None]
        standing = losses.Standing([*map(self._says, blocks), *entries])
        self._lost |= standing.lost(self._details)


def undo_is_exact(facts: Sequence[Recorded]) -> bool:
    """Whether undoing every fold gives the view that would have been without any."""
    undone = state_of(facts)
    while undone.live_folds:
        before = len(undone.live_folds)
        for fold in reversed(undone.live_folds):
            undone.advance(Recorded("", undone.last_seq + 1, undone.time, Unfolded(fold.fold)))
        if len(undone.live_folds) >= before:
            return False
    return undone.view() == _without_folds(facts).view()


def _without_folds(facts: Sequence[Recorded]) -> State:
    """The state without folds; what they were keeps its number, as a fact that does nothing."""
    kept = (
        Recorded(each.conversation, each.seq, each.time, BreakerClosed(FoldKind.MARKER))
        if isinstance(each.fact, Folded | Unfolded | FoldFailed)
        else each
        for each in facts
    )
    return state_of(kept)


def _stored(block: Block) -> Stored | None:
    match block.content:
        case Stored() as stored:
            return stored
        case Attachment(stored=stored):
            return stored
        case _:
            return None
