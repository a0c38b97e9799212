"""What a view is made of, and what a model is asked with: plain values, the same for every provider.

`View` is computed from facts (view.py) and holds references to stored content. A `Request` is a view whose
content has been read from the cache and put into legal messages (laws.py): all a provider has to do is translate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum

from helix_desktop.engine.facts import Cover, Purpose, ReplyPart, Stop, Stored, ToolSpec, Usage, UserPart
from helix_desktop.fast_dataclass import dataclass


class ContextKind(StrEnum):
    """What kind of context a block is; the colours of the interface follow it."""

    SYSTEM = "system and tools"
    HANDOVER = "handover"
    OBSERVATIONS = "observations"
    CONVERSATION = "conversation"
    OUTPUT = "tool outputs"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the view. `source`: the part it shows, or what the fold `fold` covers."""

    kind: ContextKind
    role: Role
    source: Cover
    content: UserPart | ReplyPart | Stored
    tokens: int
    fold: str = ""  # the live fold whose text this block shows
    call: str = ""  # for outputs: the id of the call answered
    ok: bool = True  # for outputs
    pinned: bool = False
    cached: tuple[Stored, ...] = ()  # originals behind a fold, recallable


@dataclass(frozen=True, slots=True)
class View:
    """`stable`: how many leading blocks cannot change but by a fold; cache breakpoints go behind them. `effort`,
    `temperature` and `top_p`: see ModelSet. `seq`: the newest fact it was taken from.
    """

    blocks: tuple[Block, ...]
    tools: tuple[ToolSpec, ...] = ()
    tools_tokens: int = 0
    stable: int = 0
    effort: str = ""
    seq: int = field(default=0, compare=False)
    temperature: float | None = None
    top_p: float | None = None


# --- a request ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Image:
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolResult:
    call: str
    text: str
    ok: bool = True
    images: tuple[Image, ...] = ()


MessagePart = ReplyPart | Image | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """`role` is USER (with TOOL results as its parts) or ASSISTANT; laws.py makes them legal."""

    role: Role
    parts: tuple[MessagePart, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """`stable`: how many leading messages the provider knows from the request before; `settled`: up to the last one that a fold
    changed. A mark of the cache goes behind both (marks.py).
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    stable: int = 0
    max_output: int = 0  # 0: the provider's own
    settled: int = 0
    purpose: Purpose = Purpose.STEP
    reasoning: str = ""  # "", "low", "medium", "high"; providers map it or leave it out
    temperature: float | None = None  # None: the provider's own; left out for models that do not take it
    top_p: float | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of the arguments of the `index`-th call of the reply; `id` and `name` come with the first piece."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """The client waits before it tries again; shown to the user, who may stop it. `wake` ends the waiting at once."""

    why: str
    seconds: float
    wake: Callable[[], object] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Reply:
    """The end of a stream. Its tokens are 0: the session counts. `stop` CUT: what came before the stream broke."""

    parts: tuple[ReplyPart, ...]
    stop: Stop
    usage: Usage = Usage()
    model: str = ""
    why: str = ""  # for CUT and FILTERED: what happened, in a sentence


Delta = TextDelta | ReasoningDelta | CallDelta | RetryDelay | Reply
