"""Facts of a conversation, made short, for the tests of the chat."""

from __future__ import annotations

from collections.abc import Sequence

from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Recorded,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest

OUTPUT = Stored(Digest.of_content(b"one\ntwo\n"), 8, 2)


class Told:
    """A conversation that grows: each call returns the Recorded."""

    def __init__(self) -> None:
        self.facts: list[Recorded] = []

    def add(self, fact: Fact) -> Recorded:
        self.facts.append(Recorded("c", len(self.facts) + 1, 1_000.0 + len(self.facts), fact))
        return self.facts[-1]

    def user(self, text: str) -> Recorded:
        return self.add(UserSaid((Text(text, 5),)))

    def reply(self, text: str = "", *calls: ToolCall, stop: Stop | None = None) -> Recorded:
        parts = (*((Text(text, 5),) if text else ()), *calls)
        return self.add(ModelReplied(parts, "m", stop or (Stop.CALLS if calls else Stop.END)))

    def returned(
        self, call: str, *, head: str = "one\ntwo\n", ok: bool = True, tokens: int = 4_800
    ) -> Recorded:
        return self.add(ToolReturned(call, OUTPUT, tokens, ok, head=head))

    def marker(self, seq: int, fold: str = "f", *, batch: str = "") -> Recorded:
        return self.add(
            Folded(fold, FoldKind.MARKER, PartRef(seq), "[CACHED]", 31, 4_800, batch=batch)
        )

    def handover(self, first: int, last: int, fold: str = "h") -> Recorded:
        return self.add(
            Folded(fold, FoldKind.HANDOVER, Span(first, last), "doc", 900, 9_000, number=1)
        )


def call(number: int, name: str = "read_file", arguments: str = '{"path": "src/a.rs"}') -> ToolCall:
    return ToolCall(f"c{number}", name, arguments)


def texts(facts: Sequence[Recorded]) -> list[str]:
    return [
        part.text for r in facts for part in getattr(r.fact, "parts", ()) if isinstance(part, Text)
    ]
