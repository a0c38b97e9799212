"""A recorded session of an agent, whoever recorded it: its messages in order, branches and compactions."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.fast_dataclass import dataclass

Speaker = Literal["system", "user", "assistant", "tool", "failure"]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """`arguments`: JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class RecordedPicture:
    """A picture or another file in a message."""

    media_type: str
    data: bytes
    name: str = ""


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message. `answers`: a tool result's call id. `ok`: False if the recorder says that it failed.

    `parts`: a reply's parts in order, reasoning as signed; without them: reasoning, text, calls.
    `shown`: what the model saw of a tool's output, if not `text`. `beside`: not a person's own
    words, or said while the agent worked. A `failure` is a recorder's note that a request
    failed, and no message. `is_summary`: a compaction's, whose originals are not in the file.
    """

    role: Speaker
    text: str
    calls: tuple[RecordedCall, ...] = ()
    answers: str = ""
    ok: bool = True
    reasoning: str = ""
    parts: tuple[ReplyPart, ...] = ()
    time: float = 0.0
    model: str = ""
    usage: Usage = Usage()
    pictures: tuple[RecordedPicture, ...] = ()
    shown: str = ""
    child: str = ""
    beside: bool = False
    is_summary: bool = False
    seconds: float = 0.0  # How many seconds the reply took; 0 if unknown.


@dataclass(frozen=True, slots=True)
class RecordedCompaction:
    """The recorder's program put `text`, before message `at`, in place of what came before message `keep`."""

    at: int
    keep: int
    text: str
    time: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """`name` says where it comes from: the file, and a number if a file has several sessions.

    `kind` and `session` identify it; `forked_from` shares its first `forked_at`
    messages; for a sub-agent, `parent_call` of `parent` created it.
    """

    name: str
    messages: tuple[RecordedMessage, ...]
    kind: str = ""
    session: str = ""
    title: str = ""
    folder: str = ""
    version: str = ""
    compactions: tuple[RecordedCompaction, ...] = ()
    forked_from: str = ""
    forked_at: int = 0
    parent: str = ""
    parent_call: str = ""

    @property
    def identity_of_session(self) -> tuple[str, str]:
        return self.kind, self.session


def message_texts(message: RecordedMessage) -> Sequence[str]:
    """Return what the message says: its text and its calls' arguments."""
    return (message.text, *(call.arguments for call in message.calls))


def texts_to_count(message: RecordedMessage) -> Sequence[str]:
    """Return the texts to count, each separately."""
    names = (part for call in message.calls for part in (call.name, call.arguments))
    sealed_too = (part.text for part in message.parts if not isinstance(part, ToolCall))
    return [text for text in (message.text, message.reasoning, *names, *sealed_too) if text]


def texts_in_context(session: RecordedSession) -> Iterator[str]:
    """Yield what the agent sends: the last compaction's text, and everything since."""
    last = session.compactions[-1] if session.compactions else RecordedCompaction(0, 0, "")
    yield last.text
    for message in session.messages[last.keep :]:
        yield from texts_to_count(message)


def build_recorded_reply(
    parts: Iterable[ReplyPart], *, model: str = "", time: float = 0.0, usage: Usage | None = None
) -> RecordedMessage:
    parts = tuple(part for part in parts if not isinstance(part, Text) or part.text)
    return RecordedMessage(
        "assistant",
        "\n".join(part.text for part in parts if isinstance(part, Text)),
        tuple(RecordedCall(part.id, part.name, part.arguments) for part in parts if isinstance(part, ToolCall)),
        reasoning="\n".join(part.text for part in parts if isinstance(part, Reasoning) and part.text),
        parts=parts,
        model=model,
        time=time,
        usage=usage or Usage(),
    )


def format_opaque_json(**fields: object) -> str:
    """Return what a provider needs back as compact JSON for `Reasoning.opaque`."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
