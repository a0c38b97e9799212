"""Conversations written down by hand: facts with their numbers, without a journal."""

from __future__ import annotations

from helix_desktop.engine.facts import (
    Cover,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    Recorded,
    ReplyPart,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import Request, View
from helix_desktop.engine.request_building import build_legal_messages
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import ConversationState


def stored(text: str) -> Stored:
    """What a cache would say of this text."""
    content = text.encode()
    return Stored(Digest.of_content(content), len(content), text.count("\n") + 1)


class Talk:
    """A state and the facts that led to it, five seconds between them."""

    def __init__(self) -> None:
        self.state = ConversationState()

    @property
    def facts(self) -> list[Recorded]:
        return self.state.facts

    def add(self, fact: Fact, *, after: float = 5.0) -> int:
        """Append a fact; its number."""
        seq = self.state.seq + 1
        self.state.advance_state(Recorded("talk", seq, self.state.time_of_moment + after, fact))
        return seq

    def user(self, text: str, *, tokens: int = 10, steering: bool = False) -> int:
        return self.add(UserSaid((Text(text, tokens),), steering))

    def reply(
        self, text: str = "", *calls: str, model: str = "m", tokens: int = 20, billed: int = 0
    ) -> int:
        """A reply that says `text` and calls: `id:tool` or `id`."""
        parts: list[ReplyPart] = [Text(text, tokens)] if text else []
        for call in calls:
            name, _, tool = call.partition(":")
            parts.append(ToolCall(name, tool or "read", '{"path": "a.py"}', 10))
        stop = Stop.CALLS if calls else Stop.END
        return self.add(ModelReplied(tuple(parts), model, stop, Usage(input=billed)))

    def output(self, call: str, text: str = "", *, tokens: int = 500, ok: bool = True) -> int:
        return self.add(ToolReturned(call, stored(text or f"output of {call}"), tokens, ok))

    def step(self, call: str, *, tokens: int = 500, text: str = "") -> int:
        """A reply with one call, and its output, whose number is returned."""
        self.reply("", call)
        return self.output(call, text, tokens=tokens)

    def steps(self, count: int, *, tokens: int = 500) -> list[int]:
        start = self.state.seq
        return [self.step(f"c{start}-{index}", tokens=tokens) for index in range(count)]

    def fold(
        self, name: str, cover: Cover, *, kind: FoldKind = FoldKind.HANDOVER, tokens: int = 5
    ) -> int:
        return self.add(Folded(name, kind, cover, f"text of {name}", tokens, 1_000))

    def view(self) -> View:
        return self.state.get_view()

    def request(self) -> Request:
        return request_of(self.view())


def request_of(view: View) -> Request:
    """The view as it would be sent, every stored content being its digest."""
    pieces = build_legal_messages(view, lambda content: f"content {content.digest.short_hex}")
    return Request("m", pieces.system, pieces.messages, view.tools, pieces.stable)


def said(request: Request) -> str:
    """Everything a request says, for a test to look into."""
    return "\n".join(str(part) for message in request.messages for part in message.parts)
