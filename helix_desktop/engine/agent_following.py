"""Somebody else's agent as a conversation here: what it says and gets back becomes facts, and the steward works on them.

A replay follows a recording, the gateway a live client; both are told the same things in the same order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from helix_desktop.engine.blocks import View
from helix_desktop.engine.conversation import Conversation, ConversationDraft
from helix_desktop.engine.facts import (
    ModelReplied,
    Recorded,
    ReplyPart,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.fold_steward import FoldSteward
from helix_desktop.engine.ports import ContentCache, EntryOrigin, TokenCounter
from helix_desktop.fast_dataclass import dataclass

HEAD = 2_000
SLICE = 1 << 20  # characters that are encoded at a stretch
STRAY = "[An output that answers no call]\n"


@dataclass(frozen=True, slots=True)
class AgentOutput:
    """What a call of the agent returned."""

    call: str
    text: str
    ok: bool = True
    images: tuple[Stored, ...] = ()
    stored: Stored | None = None  # where it is put already


@dataclass(frozen=True, slots=True)
class AgentReply:
    """A reply of the agent's model, its parts not counted yet."""

    parts: tuple[ReplyPart, ...]
    model: str
    stop: Stop
    usage: Usage = Usage()
    raw: str = ""
    seconds: float = 0.0


async def await_directly(work: Awaitable[Any]) -> Any:
    """How a turn waits for the steward, where nobody measures it."""
    return await work


class AgentFollower:
    """`waiting` awaits what the agent's turn waits for; `stored` hears every output that was put into the cache."""

    def __init__(
        self,
        conversation: Conversation,
        steward: FoldSteward,
        cache: ContentCache,
        tokens: TokenCounter,
        *,
        waiting: Callable[[Awaitable[Any]], Awaitable[Any]] = await_directly,
        stored: Callable[[Stored, str], object] = lambda _stored, _text: None,
    ) -> None:
        self.conversation = conversation
        self.steward = steward
        self._cache = cache
        self._tokens = tokens
        self._waiting = waiting
        self._stored = stored
        self._reads: set[tuple[str, str, bytes]] = set()
        self.repeats = 0  # outputs that an earlier call had returned alike

    def follow_draft(self, draft: ConversationDraft) -> AgentFollower:
        """The same on a copy of the conversation."""
        other = AgentFollower(
            draft, self.steward.steward_for_draft(draft), self._cache, self._tokens, stored=self._stored
        )
        other._reads = self._reads
        return other

    async def record_user_message(self, parts: tuple[UserPart, ...], *, steering: bool = False) -> None:
        """A message of the user's: it ends the turn before, unless it was said while the agent worked."""
        if not steering:
            await self.end_agent_turn()
        counted = tuple(self.with_token_count(part) for part in parts)
        said = UserSaid(counted, steering=steering)
        await self.conversation.append_facts(*await self.steward.admit_user_message(said))

    async def end_agent_turn(self) -> bool:
        """The turn is over; one whose last reply called something was interrupted. False where none ran."""
        branch = self.conversation.state.branch
        if not branch.turn.running or not branch.steps:
            return False
        last = self.conversation.fact_at(branch.steps[-1])
        calls = isinstance(last, ModelReplied) and last.stop is Stop.CALLS
        await self.conversation.append_facts(TurnEnded(TurnEnd.STOPPED if calls else TurnEnd.DONE))
        self.steward.start_folds_after_turn()
        return True

    async def prepare_next_view(self) -> View:
        """What the model is to be sent now, after everything that was due."""
        await self._waiting(self.steward.prepare_step())
        return self.conversation.current_view()

    async def record_reply(self, written: AgentReply, saw: int) -> Recorded:
        """A reply to the view that `saw` was the newest fact of."""
        parts = tuple(self.with_token_count(part) for part in written.parts)
        usage, seconds, raw = written.usage, written.seconds, written.raw
        reply = ModelReplied(parts, written.model, written.stop, usage, saw=saw, seconds=seconds, raw=raw)
        return (await self.conversation.append_facts(reply))[0]

    async def record_outputs(self, outputs: Sequence[AgentOutput]) -> None:
        """What the last reply's calls returned. What answers no call stands behind it, so that nothing is left out."""
        waiting = {call.id: call.call for call in self.conversation.state.branch.running_calls}
        batch, stray = [], []
        for output in outputs:
            call = waiting.pop(output.call, None)
            if call is None:
                stray.append(output)
            else:
                batch.append(await self._build_tool_result(output, call))
        if batch:
            folds = await self._waiting(self.steward.admit_results(batch, {}))
            await self.conversation.append_facts(*batch, *folds)
        for output in stray:
            await self.record_user_message((Text(STRAY + output.text),), steering=True)

    async def store_output(self, text: str, call: ToolCall) -> Stored:
        """What a call returned is in the cache."""
        content = text.encode("utf-8", "surrogatepass") if len(text) <= SLICE else _encode_in_slices(text)
        return await self._cache.store_content(content, EntryOrigin(call.name, call.arguments[:200]))

    async def _build_tool_result(self, output: AgentOutput, call: ToolCall) -> ToolReturned:
        stored = output.stored or await self.store_output(output.text, call)
        self._stored(stored, output.text)
        read = (call.name, call.arguments, stored.digest.raw)
        before = self.conversation.state.last_return_of(stored.digest) if read in self._reads else 0
        self.repeats += before > 0
        self._reads.add(read)
        return ToolReturned(
            call=output.call,
            output=stored,
            tokens=self._tokens.count_tokens(output.text),
            ok=output.ok,
            head=output.text if len(output.text) <= HEAD else "",
            images=output.images,
            repeat_of=before,
        )

    def with_token_count(self, part: Any) -> Any:
        """The part with its tokens, where they are not known."""
        if isinstance(part, ToolCall):
            tokens = self._tokens.count_tokens(part.name) + self._tokens.count_tokens(part.arguments)
            return ToolCall(part.id, part.name, part.arguments, tokens, part.keep)
        if getattr(part, "tokens", 1) or not getattr(part, "text", ""):
            return part
        return _set_part_tokens(part, self._tokens.count_tokens(part.text))


async def _encode_in_slices(text: str) -> AsyncIterator[bytes]:
    """A long text as bytes; others go on between."""
    for at in range(0, len(text), SLICE):
        yield text[at : at + SLICE].encode("utf-8", "surrogatepass")


def _set_part_tokens(part: Any, tokens: int) -> Any:
    if isinstance(part, Text):
        return Text(part.text, tokens)
    return type(part)(part.text, tokens, part.opaque, part.provider)
