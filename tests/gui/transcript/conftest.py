"""A chat on the screen without a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, NotFound
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import transcript_canvas
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from tests.gui.fake_desk import now


class MemorySource:
    """Contents by digest. What is not there is NotThere; `broken` is raised instead
    where it is set.
    """

    def __init__(self) -> None:
        self.contents: dict[Digest, bytes] = {}
        self.children: dict[str, Sequence[Recorded]] = {}
        self.running: dict[str, ConversationActivity] = {}
        self.read_digests: list[Digest] = []
        self.broken: HelixError | None = None

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        self.read_digests.append(digest)
        if self.broken is not None:
            raise self.broken
        if digest not in self.contents:
            raise NotFound("This entry is not in the cache any more.")
        return self.contents[digest][start : start + length]

    async def read_subagent_facts(self, conversation: str) -> Sequence[Recorded]:
        return self.children[conversation]

    def running_state_of_subagent(self, conversation: str) -> ConversationActivity:
        return self.running.get(conversation, ConversationActivity.IDLE)


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def pane(
    theme: Theme, source: MemorySource, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TranscriptPane]:
    monkeypatch.setattr(
        transcript_canvas, "BUDGET", 600.0
    )  # all of a frame is in it, on a busy machine as well
    made = TranscriptPane(theme, BackgroundRunner(now), source)
    made.resize(820, 600)
    made.show()
    QApplication.processEvents()
    yield made
    made.close()


@pytest.fixture
def settle() -> Callable[[], None]:
    def run() -> None:
        for _ in range(40):
            QApplication.processEvents()

    return run
