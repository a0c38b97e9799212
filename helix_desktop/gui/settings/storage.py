"""What a workspace keeps on the disk, and looking after it: limit, back up, verify, make room."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtWidgets import QPushButton, QWidget

from helix_desktop.gui.doing import Doing
from helix_desktop.gui.models.figures import size
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.settings.fields import Declared, Value, row
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Installation, Kept
from helix_desktop.gui.words import tr

MEGABYTE = 1_000_000


class StoragePage(Page):
    def __init__(self, bench: Workbench, program: Installation, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(tr("Storage"), parent)
        self._bench, self._program, self._doing = bench, program, doing
        self._figures = self.sentence(tr("Counting…"))
        self._folder = self.sentence("", "mono")
        limit = program.chosen(bench).limit // MEGABYTE
        declared = Declared("limit", tr("Limit"), tr("0: no limit."), limit, least=0, most=2_000_000, unit="MB")
        self.add(row(declared, self._set_limit, self.inside))
        self.heading(tr("Looking after it"))
        self._act(tr("Back up now"), tr("A copy of the journal beside it."), lambda: program.back_up(bench))
        self._act(
            tr("Verify every entry"),
            tr("Reads every byte and compares it with its hash."),
            lambda: program.verify(bench, self._say),
        )
        self._act(
            tr("Make room"),
            tr("Removes what no conversation uses, down to the limit. What they were stays known."),
            lambda: program.collect(bench),
        )
        self._said = self.sentence("")
        self.refresh()

    def refresh(self) -> None:
        work = self._program.kept(self._bench)
        self._doing.do(work, name="count what is kept", then=self._show, owner=self)

    def _show(self, kept: Kept) -> None:
        figures = tr(
            "{n} entries, {size} stored as {taken}", n=f"{kept.entries:,}", size=size(kept.size), taken=size(kept.taken)
        )
        last = kept.backups[-1] if kept.backups else tr("none")
        self._figures.setText(f"{figures}\n{tr('Last backup: {when}', when=last)}")
        self._folder.setText(str(kept.folder))

    def _act(self, text: str, sentence: str, work: Callable[[], Coroutine[Any, Any, str]]) -> QPushButton:
        button = self.button(text)
        self.sentence(sentence, "small")

        def run() -> None:
            button.setEnabled(False)
            self._say(tr("Working…"))
            self._doing.do(work(), name=text, then=done, owner=self, failed=lambda error: done(str(error)))

        def done(said: str) -> None:
            button.setEnabled(True)
            self._say(said)
            self.refresh()

        button.clicked.connect(run)
        return button

    def _say(self, text: str) -> None:
        self._said.setText(text)

    def _set_limit(self, value: Value) -> None:
        work = self._program.change(self._bench, {"limits.cache_bytes": int(value) * MEGABYTE})
        self._doing.do(work, name="set the limit", owner=self)
