"""Replaces parts by markers. Their content is stored first, and all folds of a batch
are appended together.
"""

from collections.abc import Iterator, Sequence

from helix_desktop.engine import facts, message_blocks
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.messages import Block
from helix_desktop.engine.ports import ContentCache, EntryOrigin, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.span_text_and_detail_sources import read_stored_text
from helix_desktop.engine.strategies import markers
from helix_desktop.engine.strategies.large_output_choice import format_excerpt
from helix_desktop.engine.strategies.text_preview import build_preview_in_thread
from helix_desktop.errors import NotFound, format_things
from helix_desktop.fast_dataclass import dataclass

LONG_ORIGINAL_TOKENS = (
    500  # Above this many tokens, the marker tells the agent how to ask for a piece.
)


@dataclass(frozen=True, slots=True)
class ShortenedPart:
    """A part to be shortened, with its present block and its new text."""

    ref: facts.PartRef
    block: Block
    kind: facts.FoldKind
    text: str
    tokens: int
    entries: tuple[Digest, ...]


@dataclass(slots=True)
class PartShortener:
    """Replaces single parts by markers or, in panic, by excerpts."""

    conversation: Conversation
    cache: ContentCache
    tokens: TokenCounter

    async def replace_with_markers(
        self, refs: Sequence[facts.PartRef], why: str, *, batch: str = "", panic: bool = False
    ) -> tuple[facts.Recorded, ...]:
        """Replace parts by markers, unless they have changed or would not get shorter."""
        made = [
            await self.build_marker(ref, block)
            for ref in refs
            if (block := self.find_block(ref)) is not None
        ]
        n, total = len(made), sum(one.block.tokens for one in made)
        reason = (
            f"{why}: {n} parts, {total:,} tokens in total"
            if n > 1
            else f"{why}: 1 part, {total:,} tokens"
        )
        return await self.append_folds_of_unchanged_parts(
            made,
            batch or self.conversation.new_fold_name(facts.FoldKind.MARKER),
            reason,
            panic=panic,
        )

    async def shorten_to_excerpt_or_marker(
        self, ref: facts.PartRef, why: str, tokens: int
    ) -> tuple[facts.Recorded, ...]:
        """Show an excerpt of a part, even of a user's text, or a marker for a call."""
        if (block := self.find_block(ref)) is None:
            return ()
        is_call = isinstance(block.content, facts.ToolCall)
        made = (
            await self.build_marker(ref, block)
            if is_call
            else await self._build_excerpt(ref, block, tokens)
        )
        return await self.append_folds_of_unchanged_parts(
            [made], self.conversation.new_fold_name(made.kind), why, panic=True
        )

    def find_block(self, ref: facts.PartRef) -> Block | None:
        branch = self.conversation.state.branch
        if not branch.has_message(ref.seq):
            return None
        return next(
            (block for block in branch.item_at(ref.seq).blocks if block.source == ref), None
        )

    async def build_marker(self, ref: facts.PartRef, block: Block) -> ShortenedPart:
        """Build a part's marker, after storing what it refers to."""
        if isinstance(block.content, facts.ToolCall):
            return await self._store_arguments_and_build_marker(ref, block, block.content)
        stored = self._stored_content_of(ref)
        about = markers.describe_output(self.conversation.state.branch, ref.seq)
        text = markers.format_marker(stored.digest, about, part=block.tokens > LONG_ORIGINAL_TOKENS)
        return ShortenedPart(
            ref,
            block,
            facts.FoldKind.MARKER,
            text,
            self.tokens.count_tokens(text),
            (stored.digest,),
        )

    async def _store_arguments_and_build_marker(
        self, ref: facts.PartRef, block: Block, call: facts.ToolCall
    ) -> ShortenedPart:
        content = markers.content_to_store(call.arguments)
        short = markers.summarise_arguments(call.arguments)
        stored = await self.cache.store_content(
            content.encode("utf-8", "replace"), EntryOrigin(call.name, short)
        )
        lines = f"{format_things(stored.lines, 'line', 'lines')} · " if stored.lines else ""
        about = f"argument of {call.name} {short} · {lines}{markers.format_size(stored)}"
        text = markers.format_marker(stored.digest, about, part=block.tokens > LONG_ORIGINAL_TOKENS)
        tokens = self.tokens.count_tokens(
            call.name + message_blocks.replace_long_argument_values(call.arguments, text)
        )
        return ShortenedPart(ref, block, facts.FoldKind.MARKER, text, tokens, (stored.digest,))

    async def _build_excerpt(self, ref: facts.PartRef, block: Block, tokens: int) -> ShortenedPart:
        if isinstance(block.content, facts.Text) and not block.fold:
            stored = await self.cache.store_content(
                block.content.text.encode("utf-8", "replace"), EntryOrigin("user", "message")
            )
        else:
            stored = self._stored_content_of(ref)
        text = format_excerpt(
            stored,
            block.tokens,
            await build_preview_in_thread(await read_stored_text(self.cache, stored), tokens),
        )
        return ShortenedPart(
            ref,
            block,
            facts.FoldKind.EXCERPT,
            text,
            self.tokens.count_tokens(text),
            (stored.digest,),
        )

    def _stored_content_of(self, ref: facts.PartRef) -> facts.Stored:
        """Return the stored content of an output or attachment, even if it is folded now."""
        recorded = self.conversation.state.branch.message_at(ref.seq)
        part = message_blocks.parts_of(message_blocks.require_message(recorded))[ref.part]
        if isinstance(part, facts.Attachment):
            return part.stored
        if isinstance(part, facts.Stored):
            return part
        raise NotFound(f"Part {ref.part} of record {ref.seq} is not in the cache.")

    async def append_folds_of_unchanged_parts(
        self, made: Sequence[ShortenedPart], batch: str, why: str, *, panic: bool
    ) -> tuple[facts.Recorded, ...]:
        """Append the folds in one transaction, if every part still shows what it showed."""
        return await self.conversation.append_facts_from(
            lambda _: list(self._folds_of_unchanged_parts(made, batch, why, panic=panic))
        )

    def _folds_of_unchanged_parts(
        self, made: Sequence[ShortenedPart], batch: str, why: str, *, panic: bool
    ) -> Iterator[facts.Folded]:
        for one in made:
            if self.find_block(one.ref) == one.block and one.tokens < one.block.tokens:
                yield facts.Folded(
                    fold=self.conversation.new_fold_name(one.kind),
                    kind=one.kind,
                    cover=one.ref,
                    text=one.text,
                    tokens=one.tokens,
                    tokens_before=one.block.tokens,
                    batch=batch,
                    entries=one.entries,
                    why=why,
                    panic=panic,
                )
