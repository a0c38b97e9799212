"""Defines what a view consists of and what a model is asked: plain values, the same for
every provider.

A `View` is computed from facts (view.py) and refers to stored content. A `Request` has
that content, in messages that every provider accepts (request_building.py). A provider
only translates it.
"""

from collections.abc import Callable
from dataclasses import field
from enum import StrEnum

from helix_desktop.engine.facts import (
    Cover,
    Purpose,
    ReplyPart,
    Stop,
    Stored,
    ToolSpec,
    Usage,
    UserPart,
)
from helix_desktop.fast_dataclass import dataclass


class ContextKind(StrEnum):
    """The kind of context a block holds. The window's colours follow it."""

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
    """One part of the view. `source`: the part it shows, or what the fold `fold` replaces."""

    kind: ContextKind
    role: Role
    source: Cover
    content: UserPart | ReplyPart | Stored
    tokens: int
    fold: str = ""  # The id of the live fold whose text is in this block.
    call: str = ""  # The id of the call that this output answers.
    ok: bool = True  # Whether an output's call succeeded, or the model finished its reply.
    pinned: bool = False
    cached: tuple[Stored, ...] = ()  # The originals that a fold replaces. They can be recalled.


@dataclass(frozen=True, slots=True)
class View:
    """What the model is sent at one moment. `seq` is the newest fact in it."""

    blocks: tuple[Block, ...]
    tools: tuple[ToolSpec, ...] = ()
    tools_tokens: int = 0
    stable: int = 0
    effort: str = ""  # See `ModelSet`, also for `temperature` and `top_p`.
    seq: int = field(default=0, compare=False)
    temperature: float | None = None
    top_p: float | None = None


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
    """`role` is ASSISTANT or USER. The user's messages also contain the results of calls."""

    role: Role
    parts: tuple[MessagePart, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A view ready to be sent.

    `stable`: how many first messages the last request had, too. `settled`: how many
    there are up to the last one that a fold changed. A cache mark follows each of these
    places (prompt_cache_marks.py).
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    stable: int = 0
    max_output: int = 0  # Tokens; 0 means the provider's own limit.
    settled: int = 0
    purpose: Purpose = Purpose.STEP
    reasoning: str = (
        ""  # "", "low", "medium" or "high". Each provider is sent its own form, or nothing.
    )
    temperature: float | None = None  # None: the provider's default, and for models that refuse it.
    top_p: float | None = None
    # The tokens that the window has left for the reply, if the model may fill it; or 0.
    room: int = 0


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """Part of the arguments of the reply's `index`-th call. The first has `id` and `name`."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """A wait before a retry, shown to the user. `wake` ends it."""

    why: str
    seconds: float
    wake: Callable[[], object] | None = field(default=None, compare=False)
    is_overload: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The end of a stream. With `stop` CUT, the stream broke here."""

    parts: tuple[ReplyPart, ...]
    stop: Stop
    usage: Usage = Usage()
    model: str = ""
    # A sentence that says what happened if `stop` is CUT or FILTERED, or why a reply that
    # is too long cannot go on.
    why: str = ""


Delta = TextDelta | ReasoningDelta | CallDelta | RetryDelay | Reply
