"""Replaces parts by markers. Their content is stored first, and all folds of a batch
are appended together.

A marker is the short note that a model sees in place of an old output or a long argument:
the hash by which the original can be recalled, and a line that says what it is.
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

# Above this many tokens, the marker tells the agent how to ask for a piece.
LONG_ORIGINAL_TOKENS = 500


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
        parts: list[ShortenedPart] = []
        replaced_tokens = 0
        for ref in refs:
            block = self.find_block(ref)
            if block is not None:
                parts.append(await self.build_marker(ref, block))
                replaced_tokens += block.tokens
        if len(parts) > 1:
            reason = f"{why}: {len(parts)} parts, {replaced_tokens:,} tokens in total"
        else:
            reason = f"{why}: 1 part, {replaced_tokens:,} tokens"
        batch_name = batch or self.conversation.new_fold_name(facts.FoldKind.MARKER)
        return await self.append_folds_of_unchanged_parts(parts, batch_name, reason, panic=panic)

    async def shorten_to_excerpt_or_marker(
        self, ref: facts.PartRef, why: str, tokens: int
    ) -> tuple[facts.Recorded, ...]:
        """Show an excerpt of a part, even of a user's text, or a marker for a call."""
        block = self.find_block(ref)
        if block is None:
            return ()
        if isinstance(block.content, facts.ToolCall):
            part = await self.build_marker(ref, block)
        else:
            part = await self._build_excerpt(ref, block, tokens)
        batch = self.conversation.new_fold_name(part.kind)
        return await self.append_folds_of_unchanged_parts([part], batch, why, panic=True)

    def find_block(self, ref: facts.PartRef) -> Block | None:
        """Return what the view shows of a part now, or None if it shows nothing of it."""
        branch = self.conversation.state.branch
        if not branch.has_message(ref.seq):
            return None
        for block in branch.item_at(ref.seq).blocks:
            if block.source == ref:
                return block
        return None

    async def build_marker(self, ref: facts.PartRef, block: Block) -> ShortenedPart:
        """Build the marker that stands in place of a part, such as an output.

        Its original must be in the cache before, as the marker says how to recall it.
        """
        if isinstance(block.content, facts.ToolCall):
            return await self._store_arguments_and_build_marker(ref, block, block.content)
        stored = self._stored_content_of(ref)
        description = markers.describe_output(self.conversation.state.branch, ref.seq)
        marker = _format_marker(stored, description, block)
        tokens = self.tokens.count_tokens(marker)
        kind = facts.FoldKind.MARKER
        return ShortenedPart(ref, block, kind, marker, tokens, (stored.digest,))

    async def _store_arguments_and_build_marker(
        self, ref: facts.PartRef, block: Block, call: facts.ToolCall
    ) -> ShortenedPart:
        """Build the marker of a call's long arguments, after storing them in the cache."""
        content = markers.content_to_store(call.arguments).encode("utf-8", "replace")
        summary = markers.summarise_arguments(call.arguments)
        stored = await self.cache.store_content(content, EntryOrigin(call.name, summary))
        description = [f"argument of {call.name} {summary}"]
        if stored.lines:
            description.append(format_things(stored.lines, "line", "lines"))
        description.append(markers.format_size(stored))
        marker = _format_marker(stored, " · ".join(description), block)
        # The call stays; only its long values give way to the marker.
        arguments = message_blocks.replace_long_argument_values(call.arguments, marker)
        tokens = self.tokens.count_tokens(call.name + arguments)
        kind = facts.FoldKind.MARKER
        return ShortenedPart(ref, block, kind, marker, tokens, (stored.digest,))

    async def _build_excerpt(self, ref: facts.PartRef, block: Block, tokens: int) -> ShortenedPart:
        """Build an excerpt of about so many tokens. Its original must be in the cache before."""
        if isinstance(block.content, facts.Text) and not block.fold:
            # A user's text is stored nowhere but in its fact, so it could not be recalled.
            content = block.content.text.encode("utf-8", "replace")
            stored = await self.cache.store_content(content, EntryOrigin("user", "message"))
        else:
            stored = self._stored_content_of(ref)
        original = await read_stored_text(self.cache, stored)
        preview = await build_preview_in_thread(original, tokens)
        text = format_excerpt(stored, block.tokens, preview)
        kind = facts.FoldKind.EXCERPT
        shown_tokens = self.tokens.count_tokens(text)
        return ShortenedPart(ref, block, kind, text, shown_tokens, (stored.digest,))

    def _stored_content_of(self, ref: facts.PartRef) -> facts.Stored:
        """Return the stored content of an output or attachment, even if it is folded now."""
        recorded = self.conversation.state.branch.message_at(ref.seq)
        message = message_blocks.require_message(recorded)
        part = message_blocks.parts_of(message)[ref.part]
        if isinstance(part, facts.Attachment):
            return part.stored
        if isinstance(part, facts.Stored):
            return part
        raise NotFound(f"Part {ref.part} of record {ref.seq} is not in the cache.")

    async def append_folds_of_unchanged_parts(
        self, parts: Sequence[ShortenedPart], batch: str, why: str, *, panic: bool
    ) -> tuple[facts.Recorded, ...]:
        """Append the folds in one transaction, if every part still shows what it showed."""
        return await self.conversation.append_facts_from(
            lambda _: list(self._folds_of_unchanged_parts(parts, batch, why, panic=panic))
        )

    def _folds_of_unchanged_parts(
        self, parts: Sequence[ShortenedPart], batch: str, why: str, *, panic: bool
    ) -> Iterator[facts.Folded]:
        """Yield a fold of each part that is still shown as it was and would get shorter."""
        for part in parts:
            # The user or another fold may have changed it while its content was being stored.
            if self.find_block(part.ref) != part.block:
                continue
            if part.tokens >= part.block.tokens:
                continue
            yield facts.Folded(
                fold=self.conversation.new_fold_name(part.kind),
                kind=part.kind,
                cover=part.ref,
                text=part.text,
                tokens=part.tokens,
                tokens_before=part.block.tokens,
                batch=batch,
                entries=part.entries,
                why=why,
                panic=panic,
            )


def _format_marker(stored: facts.Stored, description: str, block: Block) -> str:
    is_long = block.tokens > LONG_ORIGINAL_TOKENS
    return markers.format_marker(stored.digest, description, part=is_long)
