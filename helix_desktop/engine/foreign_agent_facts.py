"""Records what a foreign agent says and receives as facts, so that its context can be folded.

A replay follows a recording and the gateway follows a live client. Both call the same methods in
the same order. This module must not know where the messages come from.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import OUTPUT_WITHOUT_CALL
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation, ConversationDraft
from helix_desktop.engine.messages import View
from helix_desktop.engine.ports import ContentCache, EntryOrigin, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.fast_dataclass import dataclass

HEAD = 2_000  # The fact contains the text of an output of up to so many characters.
# A text of more characters is encoded in slices of this size, so that other tasks can run.
SLICE = 1 << 20
FREED_TOGETHER = 4_000  # Items of a view that are let go before other tasks run.
Part = TypeVar("Part", bound=facts.UserPart | facts.ReplyPart)


@dataclass(frozen=True, slots=True)
class AgentOutput:
    """What a call of a foreign agent returned. `call`: the id of the call."""

    call: str
    text: str
    ok: bool = True
    images: tuple[facts.Stored, ...] = ()
    stored: facts.Stored | None = None  # Set if the content is already in the cache.


@dataclass(eq=False)
class AgentFollower:
    """Records an agent. `waiting` wraps waits that delay it, so that a replay measures
    them; `stored` is told of each output.
    """

    conversation: Conversation
    folding: ConversationFolding
    cache: ContentCache
    tokens: TokenCounter
    waiting: Callable[[Awaitable[Any]], Awaitable[Any]] = lambda work: work
    stored: Callable[[facts.Stored, str], object] = lambda _stored, _text: None
    # The name and arguments of each call that returned content seen before, with the
    # content's hash.
    _reads: set[tuple[str, str, bytes]] = field(default_factory=set, init=False)
    repeats: int = field(default=0, init=False)  # How many outputs were equal to an earlier one.

    def follower_for_draft(self, draft: ConversationDraft) -> "AgentFollower":
        """Return what records the same agent in a draft: many facts that are written at once.

        Both know the same earlier reads, so that repetitions are found across the two.
        """
        draft_follower = AgentFollower(
            draft,
            self.folding.folding_for_draft(draft),
            self.cache,
            self.tokens,
            stored=self.stored,
        )
        draft_follower._reads = self._reads
        return draft_follower

    async def record_user_message(
        self, parts: tuple[facts.UserPart, ...], *, steering: bool = False
    ) -> None:
        """Record a user's message. It ends the last turn, unless sent while the agent worked."""
        if not steering:
            await self.end_agent_turn()
        counted_parts = tuple(self.with_token_count(part) for part in parts)
        message = facts.UserSaid(counted_parts, steering=steering)
        message_and_folds = await self.folding.excerpt_large_message(message)
        await self.conversation.append_facts(*message_and_folds)

    async def end_agent_turn(self) -> bool:
        """Record that the agent has done what the user's last message asked for, or was stopped
        if its last reply made calls. Return whether there was anything to end.
        """
        branch = self.conversation.state.branch
        if not branch.turn.running or not branch.steps:
            return False
        last_reply = self.conversation.fact_at(branch.steps[-1])
        reason = facts.TurnEnd.DONE
        if isinstance(last_reply, facts.ModelReplied) and last_reply.stop is facts.Stop.CALLS:
            reason = facts.TurnEnd.STOPPED
        await self.conversation.append_facts(facts.TurnEnded(reason))
        self.folding.start_folds_after_turn()
        return True

    async def apply_folds_and_get_view(self) -> View:
        """Shorten what is due, and return what the agent's next request should contain."""
        # Held until they are let go in parts: freed at once, what a fold covers would delay
        # other tasks.
        items_before_folds = list(self.conversation.state.branch.items)
        await self.waiting(self.folding.apply_due_folds())
        self.conversation.current_view()
        while len(items_before_folds) > FREED_TOGETHER:
            del items_before_folds[-FREED_TOGETHER:]
            await asyncio.sleep(0)
        return self.conversation.current_view()

    async def record_reply(self, written: facts.ModelReplied, newest_seq: int) -> facts.Recorded:
        """Record a reply, with the tokens of its parts. `newest_seq`: the newest fact
        in the view it answers.
        """
        reply = self.complete_reply(written, newest_seq)
        recorded_facts = await self.conversation.append_facts(reply)
        return recorded_facts[0]

    def complete_reply(self, written: facts.ModelReplied, newest_seq: int) -> facts.ModelReplied:
        """Return a reply with the tokens of its parts and the newest fact in the view it answers,
        for a caller that records it together with other facts.
        """
        parts = tuple(self.with_token_count(part) for part in written.parts)
        return replace(written, parts=parts, saw=newest_seq)

    async def record_outputs(self, outputs: Sequence[AgentOutput]) -> None:
        """Record what the calls of the last reply returned, and excerpts of what is too large.

        An output that answers none of these calls is recorded as a message of the user, so that
        nothing the agent has sent is lost.
        """
        running_calls = self.conversation.state.branch.running_calls
        calls_without_result = {pending.id: pending.call for pending in running_calls}
        results: list[facts.ToolReturned] = []
        outputs_without_call: list[AgentOutput] = []
        for output in outputs:
            call = calls_without_result.pop(output.call, None)
            if call is None:
                outputs_without_call.append(output)
            else:
                results.append(await self._build_tool_result(output, call))
        if results:
            folds = await self.waiting(self.folding.excerpt_large_results(results, {}))
            await self.conversation.append_facts(*results, *folds)
        for output in outputs_without_call:
            text = facts.Text(f"{OUTPUT_WITHOUT_CALL}\n{output.text}")
            await self.record_user_message((text,), steering=True)

    async def store_output(self, text: str, call: facts.ToolCall) -> facts.Stored:
        """Store an output's text in the cache, with the call as its source."""
        origin = EntryOrigin(call.name, describe_call_as_source(call.arguments))
        if len(text) > SLICE:
            return await self.cache.store_content(_encode_in_slices(text), origin)
        content = text.encode("utf-8", "surrogatepass")
        return await self.cache.store_content(content, origin)

    async def _build_tool_result(
        self, output: AgentOutput, call: facts.ToolCall
    ) -> facts.ToolReturned:
        """Store an output, and return the fact that records it as the call's result."""
        stored = output.stored
        if stored is None:
            stored = await self.store_output(output.text, call)
        self.stored(stored, output.text)
        seq_of_same_output = self._remember_read_and_find_earlier(call, stored.digest)
        if seq_of_same_output > 0:
            self.repeats += 1
        head = ""
        if len(output.text) <= HEAD:
            head = output.text
        return facts.ToolReturned(
            call=call.id,  # Equal to the output's text, so that it is held in memory only once.
            output=stored,
            tokens=self.tokens.count_tokens(output.text),
            ok=output.ok,
            head=head,
            images=output.images,
            repeat_of=seq_of_same_output,
        )

    def _remember_read_and_find_earlier(self, call: facts.ToolCall, digest: Digest) -> int:
        """Return the number of the last output with this content if the agent has read the same
        thing before by an equal call, or else 0.
        """
        state = self.conversation.state
        earlier_seq = state.seq_of_last_output_with_content(digest)
        if not earlier_seq:
            return 0
        earlier_call = state.branch.answered[earlier_seq].call
        self._reads.add((earlier_call.name, earlier_call.arguments, digest.raw))
        this_read = (call.name, call.arguments, digest.raw)
        if this_read in self._reads:
            return earlier_seq
        # Another call has happened to return the same, so this is no repetition yet.
        self._reads.add(this_read)
        return 0

    def with_token_count(self, part: Part) -> Part:
        """Return a part of a message or reply with its tokens, counted if they are not known."""
        if isinstance(part, facts.ToolCall):
            name_tokens = self.tokens.count_tokens(part.name)
            argument_tokens = self.tokens.count_tokens(part.arguments)
            return replace(part, tokens=name_tokens + argument_tokens)
        if isinstance(part, facts.Attachment) or part.tokens or not part.text:
            return part
        return replace(part, tokens=self.tokens.count_tokens(part.text))


async def _encode_in_slices(text: str) -> AsyncIterator[bytes]:
    """Encode a long text in pieces, letting other tasks run."""
    for slice_start in range(0, len(text), SLICE):
        text_slice = text[slice_start : slice_start + SLICE]
        yield text_slice.encode("utf-8", "surrogatepass")
