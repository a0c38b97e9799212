"""A conversation with folds of all kinds, and the pages that show them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import (
    ConversationStarted,
    DetailsKept,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    PolicySet,
    Recorded,
    Span,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.timeline import timeline_page
from tests.gui import story
from tests.gui.fake_desk import FakeSession

HASH = Digest.of_content(b"source").hex


class Written:
    """Facts, one after another, with the figures a provider would report."""

    def __init__(self) -> None:
        self.facts: list[Recorded] = []

    def add(self, fact: Fact) -> int:
        self.facts.append(
            Recorded("c", len(self.facts) + 1, 1_795_100_000.0 + 60 * len(self.facts), fact)
        )
        return len(self.facts)

    def step(self, tokens: int, *calls: ToolCall) -> int:
        stop = Stop.CALLS if calls else Stop.END
        usage = Usage(input=tokens, cache_read=tokens * 9 // 10, cost=0.01)
        return self.add(ModelReplied((Text("words", 20), *calls), story.MODEL, stop, usage))

    def output(self, number: int, tokens: int = 5_000) -> int:
        call = ToolCall(f"c{number}", "read_file", f'{{"path": "src/{number}.rs"}}', 10)
        self.step(20_000 + number * 1_000, call)
        return self.add(
            ToolReturned(
                call.id, Stored(Digest.of_content(b"%d" % number), 20_000, 400), tokens, head="head"
            )
        )

    def handover(self, number: int, text: str = story.DOCUMENT) -> int:
        return self.add(
            Folded(
                f"h{number}",
                FoldKind.HANDOVER,
                Span(5, len(self.facts)),
                text,
                60,
                108_900,
                number=number,
                details=DetailsKept(42, 38, 3, 1),
                model="fast",
                seconds=9.8,
                why="at 85 % of the window",
            )
        )


@pytest.fixture
def written() -> Written:
    made = Written()
    made.add(ConversationStarted("Extract"))
    made.add(PolicySet("layered"))
    made.add(ModelSet(ModelRole.MAIN, story.MODEL, 128_000, 8_000, 3.0, 15.0, 0.3, 3.75))
    made.add(SystemSet("You are Helix.", 5_000))
    made.add(UserSaid((Text("go", 10),)))
    outputs = [made.output(number) for number in range(3)]
    for number, seq in enumerate(outputs):
        digest = Digest.of_content(b"%d" % number)
        made.add(
            Folded(
                f"m{number}",
                FoldKind.MARKER,
                PartRef(seq),
                "[CACHED]",
                30,
                5_000,
                "batch",
                (digest,),
            )
        )
    made.step(40_000)
    made.handover(1, story.DOCUMENT.replace("61 call sites", "12 call sites"))
    made.step(22_000)
    made.handover(
        2, story.DOCUMENT.replace("re-enters the shard.", f"re-enters the shard [7], see {HASH}.")
    )
    made.step(23_000)
    return made


@pytest.fixture
def session(written: Written) -> FakeSession:
    return FakeSession("c", written.facts)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list does not wait for a frame."""
    monkeypatch.setattr(timeline_page, "FRAME_MS", 0)


@pytest.fixture
def settle() -> Callable[[], None]:
    def run() -> None:
        for _ in range(40):
            QApplication.processEvents()

    return run
