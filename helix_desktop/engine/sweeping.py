"""Clearing carried out: parts become markers, all of a batch in one transaction, their content stored before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from helix_desktop.engine import parts
from helix_desktop.engine.blocks import Block
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    Attachment,
    Fact,
    Folded,
    FoldKind,
    PartRef,
    Recorded,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
)
from helix_desktop.engine.ports import About, Cache, Tokens
from helix_desktop.engine.strategies import caching
from helix_desktop.engine.strategies.admission import excerpt
from helix_desktop.engine.strategies.preview import preview
from helix_desktop.engine.transcript import stored_text


@dataclass(frozen=True, slots=True)
class Shown:
    """A part that is to be shown shorter: its block now, and the text that will stand for it."""

    block: Block
    kind: FoldKind
    text: str
    tokens: int
    entries: tuple[Digest, ...]


@dataclass(slots=True)
class Sweeping:
    """Makes markers, and in panic excerpts, of single parts of one conversation."""

    conversation: Conversation
    cache: Cache
    tokens: Tokens
    new_fold: Callable[[FoldKind], str]

    async def sweep(
        self, refs: Sequence[PartRef], why: str, *, batch: str = "", panic: bool = False
    ) -> tuple[Recorded, ...]:
        """Show the parts as markers. One that has changed meanwhile, or would not get shorter, is left out."""
        blocks = [block for ref in refs if (block := self._block(ref)) is not None]
        made = [await self._marked(block) for block in blocks]
        why = f"{why}: {len(made)} parts of {sum(one.block.tokens for one in made):,} tokens"
        return await self._append(made, batch or self.new_fold(FoldKind.MARKER), why, panic=panic)

    async def excerpt(self, ref: PartRef, why: str, tokens: int) -> tuple[Recorded, ...]:
        """Show one part as an excerpt, in panic: of a user's text too, which is stored first."""
        block = self._block(ref)
        if block is None:
            return ()
        made = await self._marked(block) if isinstance(block.content, ToolCall) else await self._excerpted(block, tokens)
        return await self._append([made], self.new_fold(made.kind), why, panic=True)

    def _block(self, ref: PartRef) -> Block | None:
        """The part's block where it stands by itself in the view."""
        line = self.conversation.state.line
        if ref.seq not in line.messages:
            return None
        item = line.item_at(ref.seq)
        return next((block for block in item.blocks if block.source == ref), None)

    async def _marked(self, block: Block) -> Shown:
        if isinstance(block.content, ToolCall):
            return await self._marked_call(block, block.content)
        assert isinstance(block.source, PartRef)
        stored = self._stored(block)
        about = caching.about_output(self.conversation.state.line, block.source.seq)
        text = caching.marker(stored.digest, about, await stored_text(self.cache, stored))
        return Shown(block, FoldKind.MARKER, text, self.tokens.count(text), (stored.digest,))

    async def _marked_call(self, block: Block, call: ToolCall) -> Shown:
        content = caching.long_value(call.arguments)
        short = caching.short_arguments(call.arguments)
        stored = await self.cache.put(content.encode("utf-8", "replace"), About(call.name, short))
        lines = f"{stored.lines:,} lines · " if stored.lines else ""
        text = caching.marker(stored.digest, f"argument of {call.name} {short} · {lines}{caching.size(stored)}", content)
        tokens = self.tokens.count(call.name + parts.cleared_arguments(call.arguments, text))
        return Shown(block, FoldKind.MARKER, text, tokens, (stored.digest,))

    async def _excerpted(self, block: Block, tokens: int) -> Shown:
        if isinstance(block.content, Text) and not block.fold:
            stored = await self.cache.put(block.content.text.encode("utf-8", "replace"), About("user", "message"))
        else:
            stored = self._stored(block)
        text = excerpt(stored, block.tokens, preview(await stored_text(self.cache, stored), tokens))
        return Shown(block, FoldKind.EXCERPT, text, self.tokens.count(text), (stored.digest,))

    def _stored(self, block: Block) -> Stored:
        """The entry behind an output or an attachment, whatever stands for it now."""
        assert isinstance(block.source, PartRef)
        fact = self.conversation.state.line.messages[block.source.seq].fact
        original = parts.parts_of(parts.message(self.conversation.state.line.messages[block.source.seq]))
        part = original[block.source.part]
        if isinstance(part, Attachment):
            return part.stored
        assert isinstance(part, Stored) and isinstance(fact, ToolReturned)
        return part

    async def _append(self, made: Sequence[Shown], batch: str, why: str, *, panic: bool) -> tuple[Recorded, ...]:
        """One transaction; under the lock every part must still show what it showed."""

        def facts(_: int) -> Sequence[Fact]:
            return list(self._folds(made, batch, why, panic=panic))

        return await self.conversation.append_made(facts)

    def _folds(self, made: Sequence[Shown], batch: str, why: str, *, panic: bool) -> Iterator[Folded]:
        for one in made:
            assert isinstance(one.block.source, PartRef)
            if self._block(one.block.source) == one.block and one.tokens < one.block.tokens:
                yield Folded(
                    fold=self.new_fold(one.kind),
                    kind=one.kind,
                    cover=one.block.source,
                    text=one.text,
                    tokens=one.tokens,
                    tokens_before=one.block.tokens,
                    batch=batch,
                    entries=one.entries,
                    why=why,
                    panic=panic,
                )
