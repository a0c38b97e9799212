"""A recorded session of an agent, whoever recorded it: the messages in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Speaker = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """`arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """One message. `answers`: for a tool's, the id of the call; `ok`: False where the recorder says it failed."""

    role: Speaker
    text: str
    calls: tuple[RecordedCall, ...] = ()
    answers: str = ""
    ok: bool = True
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """`name` says where it comes from: the file, and a number where one file holds several sessions."""

    name: str
    messages: tuple[RecordedMessage, ...]

    @property
    def steps(self) -> int:
        """How many requests were made: one for each message of the assistant."""
        return sum(message.role == "assistant" for message in self.messages)


def texts(message: RecordedMessage) -> Sequence[str]:
    """What the message says: its text and the arguments of its calls."""
    return (message.text, *(call.arguments for call in message.calls))
