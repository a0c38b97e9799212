"""Clearing carried out: parts become markers, all of a batch in one transaction, their content stored before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
)
from helix_desktop.engine.ports import About, Cache, Tokens
from helix_desktop.engine.strategies import caching
from helix_desktop.engine.strategies.admission import excerpt
from helix_desktop.engine.strategies.preview import made_preview
from helix_desktop.engine.transcript import stored_text
from helix_desktop.errors import NotThere
from helix_desktop.values import dataclass

LONG = 500  # tokens from which on a marker says that a part can be asked for


@dataclass(frozen=True, slots=True)
class Shown:
    """A part that is to be shown shorter: its block now, and the text that will stand for it."""

    ref: PartRef
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

    async def sweep(
        self, refs: Sequence[PartRef], why: str, *, batch: str = "", panic: bool = False
    ) -> tuple[Recorded, ...]:
        """Show the parts as markers. One that has changed meanwhile, or would not get shorter, is left out."""
        made = [await self.marked(ref, block) for ref in refs if (block := self.block(ref)) is not None]
        why = f"{why}: {len(made)} parts of {sum(one.block.tokens for one in made):,} tokens"
        return await self.append(made, batch or self.conversation.new_fold(FoldKind.MARKER), why, panic=panic)

    async def excerpt(self, ref: PartRef, why: str, tokens: int) -> tuple[Recorded, ...]:
        """Show one part as an excerpt, in panic: of a user's text too, which is stored first."""
        block = self.block(ref)
        if block is None:
            return ()
        is_call = isinstance(block.content, ToolCall)
        made = await self.marked(ref, block) if is_call else await self._excerpted(ref, block, tokens)
        return await self.append([made], self.conversation.new_fold(made.kind), why, panic=True)

    def block(self, ref: PartRef) -> Block | None:
        """The part's block where it stands in the view."""
        branch = self.conversation.state.branch
        if not branch.has(ref.seq):
            return None
        return next((block for block in branch.item_at(ref.seq).blocks if block.source == ref), None)

    async def marked(self, ref: PartRef, block: Block) -> Shown:
        """The part as a marker; what it names is stored by now."""
        if isinstance(block.content, ToolCall):
            return await self._marked_call(ref, block, block.content)
        stored = self._stored(ref)
        about = caching.about_output(self.conversation.state.branch, ref.seq)
        text = caching.marker(stored.digest, about, part=block.tokens > LONG)
        return Shown(ref, block, FoldKind.MARKER, text, self.tokens.count(text), (stored.digest,))

    async def _marked_call(self, ref: PartRef, block: Block, call: ToolCall) -> Shown:
        content = caching.long_value(call.arguments)
        short = caching.short_arguments(call.arguments)
        stored = await self.cache.put(content.encode("utf-8", "replace"), About(call.name, short))
        lines = f"{stored.lines:,} lines · " if stored.lines else ""
        about = f"argument of {call.name} {short} · {lines}{caching.size(stored)}"
        text = caching.marker(stored.digest, about, part=block.tokens > LONG)
        tokens = self.tokens.count(call.name + parts.cleared_arguments(call.arguments, text))
        return Shown(ref, block, FoldKind.MARKER, text, tokens, (stored.digest,))

    async def _excerpted(self, ref: PartRef, block: Block, tokens: int) -> Shown:
        if isinstance(block.content, Text) and not block.fold:
            stored = await self.cache.put(block.content.text.encode("utf-8", "replace"), About("user", "message"))
        else:
            stored = self._stored(ref)
        text = excerpt(stored, block.tokens, await made_preview(await stored_text(self.cache, stored), tokens))
        return Shown(ref, block, FoldKind.EXCERPT, text, self.tokens.count(text), (stored.digest,))

    def _stored(self, ref: PartRef) -> Stored:
        """The entry behind an output or an attachment, whatever stands for it now."""
        recorded = self.conversation.state.branch.message(ref.seq)
        part = parts.parts_of(parts.message(recorded))[ref.part]
        if isinstance(part, Attachment):
            return part.stored
        if isinstance(part, Stored):
            return part
        raise NotThere(f"Part {ref.part} of fact {ref.seq} is not in the cache.")

    async def append(self, made: Sequence[Shown], batch: str, why: str, *, panic: bool) -> tuple[Recorded, ...]:
        """One transaction; under the lock every part must still show what it showed."""

        def facts(_: int) -> Sequence[Fact]:
            return list(self._folds(made, batch, why, panic=panic))

        return await self.conversation.append_made(facts)

    def _folds(self, made: Sequence[Shown], batch: str, why: str, *, panic: bool) -> Iterator[Folded]:
        for one in made:
            if self.block(one.ref) == one.block and one.tokens < one.block.tokens:
                yield Folded(
                    fold=self.conversation.new_fold(one.kind),
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
