"""Conversations from other programs: what was found, what of it to take, how far it is, what came, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QHBoxLayout,
    QProgressBar,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.bring_in.port import Group, Histories, Outcome
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.sidebar import folder_words
from helix_desktop.gui.layouts import clear
from helix_desktop.gui.questions import ask_yes, tell_text
from helix_desktop.gui.shared.figures import date, size
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.words import count, tr

WIDTH, HEIGHT = 720, 560
SHOWN = 200  # sentences about what was left out


class BringInDialog(QDialog):
    """`brought` gets what came, as soon as it is there; `changed` is called when it was taken back."""

    def __init__(
        self,
        parent: QWidget,
        doing: Doing,
        histories: Histories,
        brought: Callable[[Outcome], object],
        changed: Callable[[], object],
    ) -> None:
        super().__init__(parent)
        self._doing, self._histories, self._brought, self._changed = doing, histories, brought, changed
        self._boxes: list[tuple[QCheckBox, Group]] = []
        self._at_once = self._going = False
        self._outcome = Outcome()
        self.setWindowTitle(tr("Import conversations"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(WIDTH, HEIGHT)
        self._words = plain_label("", "")
        self._rows = QVBoxLayout()
        self._rows.setSpacing(2)
        self._bar = QProgressBar(self)
        self._bar.setRange(0, 1000)
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName(tr("Import conversations"))
        self._far = plain_label("", "small")
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 16)
        column.setSpacing(10)
        column.addWidget(plain_label(tr("Conversations from other programs"), "title"))
        column.addWidget(self._words)
        column.addWidget(self._list(), 1)
        column.addWidget(self._watching())
        column.addWidget(self._bar)
        column.addWidget(self._far)
        column.addLayout(self._buttons())
        self._show_going(going=False)

    def _list(self) -> QScrollArea:
        inner = QWidget(self)
        inner.setProperty("look", "plain")
        whole = QVBoxLayout(inner)
        whole.setContentsMargins(0, 0, 8, 0)
        whole.addLayout(self._rows)
        whole.addStretch(1)
        area = QScrollArea(self)
        area.setWidgetResizable(True)
        area.setWidget(inner)
        return area

    def _watching(self) -> QCheckBox:
        self._watch = QCheckBox(tr("Keep importing new messages until Helix Desktop is closed"), self)
        self._watch.setChecked(self._histories.watching)
        self._watch.toggled.connect(
            lambda on: self._histories.watch(self._chosen() if on else (), lambda _outcome: self._changed())
        )
        return self._watch

    def _buttons(self) -> QHBoxLayout:
        self._undo = push_button(tr("Undo"), self, self._take_back, "link")
        self._keys = push_button("", self, self._ask_keys, "link")
        self._left_out = push_button(tr("What was left out"), self, self._tell_left_out, "link")
        self._close = push_button(tr("Close"), self, self.reject, "")
        self._stop = push_button(tr("Stop"), self, self._stop_it, "")
        self.begin_ = push_button(tr("Import"), self, self.begin, "primary")
        line = QHBoxLayout()
        for button in (self._undo, self._keys, self._left_out):
            button.hide()
            line.addWidget(button)
        line.addStretch(1)
        for button in (self._close, self._stop, self.begin_):
            line.addWidget(button)
        return line

    # --- what there is

    def look(self, *, at_once: bool = False) -> None:
        """Look for them; `at_once`: and bring in all of them."""
        self._at_once = at_once
        self._words.setText(tr("Loading…"))
        self._doing.do(self._histories.find(), name="find conversations", then=self._found, owner=self)

    def _found(self, groups: Sequence[Group]) -> None:
        clear(self._rows)
        self._boxes = []
        for group in groups:
            self._rows.addWidget(self._row(group))
        whole = sum(group.conversations for group in groups)
        amount = size(sum(group.size for group in groups))
        words = count(
            whole, "{n} conversation was found on this computer", "{n} conversations were found on this computer"
        )
        told = tr("{found} ({size}). The conversations are copied; the other programs' files are not changed.", found=words, size=amount)  # fmt: skip
        self._words.setText(told if groups else tr("No conversations from other programs were found on this computer."))
        self._choose()
        self._watch.setVisible(bool(groups))
        if not groups:
            self.resize(self.width(), self.minimumSizeHint().height())
        if self._at_once and groups:
            self.begin()

    def _row(self, group: Group) -> QWidget:
        row = QWidget(self)
        folder = folder_words(Path(group.folder)) if group.folder else tr("no folder")
        box = QCheckBox(f"{group.program}  ·  {folder}", row)
        box.setChecked(True)
        box.toggled.connect(lambda _on: self._ticked())
        if not group.there:
            box.setToolTip(
                tr(
                    "This folder is not on this computer. Its conversations go into the workspace “Imported conversations”."
                )
            )
        self._boxes.append((box, group))
        words = count(group.conversations, "{n} conversation", "{n} conversations")
        days = f"{date(group.first)} – {date(group.last)}"
        line = QHBoxLayout(row)
        line.setContentsMargins(4, 3, 4, 3)
        line.addWidget(box, 1)
        line.addWidget(plain_label(f"{words}  ·  {size(group.size)}  ·  {days}", "small", wraps=False))
        return row

    def _chosen(self) -> list[Group]:
        return [group for box, group in self._boxes if box.isChecked()]

    def _ticked(self) -> None:
        self.begin_.setVisible(not self._going)
        self._choose()

    def _choose(self) -> None:
        chosen = sum(group.conversations for group in self._chosen())
        self.begin_.setEnabled(chosen > 0 and not self._going)
        self.begin_.setText(
            count(chosen, "Import {n} conversation", "Import {n} conversations") if chosen else tr("Import")
        )

    # --- while it goes on

    def begin(self) -> None:
        """Bring in what is ticked."""
        self._show_going(going=True)
        self._words.setText(tr("Importing…"))
        for button in (self._undo, self._keys, self._left_out):
            button.hide()
        work = self._histories.bring_in(self._chosen(), self._report)
        self._doing.do(work, name="bring in conversations", then=self._done, owner=self, failed=self._failed)

    def _report(self, done: int, total: int) -> None:
        self._bar.setValue(min(1000, done * 1000 // max(1, total)))
        self._far.setText(tr("{done} of {total}", done=size(done), total=size(total)))

    def _stop_it(self) -> None:
        self._stop.setEnabled(False)
        self._histories.stop()

    def _failed(self, error: HelixError) -> None:
        self._show_going(going=False)
        self._far.setText(said(str(error)))
        self._far.show()

    def _show_going(self, *, going: bool) -> None:
        self._going = going
        for widget in (self._bar, self._far, self._stop):
            widget.setVisible(going)
        self._stop.setEnabled(True)
        self.begin_.setVisible(not going)
        self._close.setVisible(not going)
        for box, _ in self._boxes:
            box.setEnabled(not going)
        self._choose()

    def reject(self) -> None:
        """Closing the window stops the work; what came until then stays."""
        if self._going:
            self._histories.stop()
        super().reject()

    # --- what came

    def _done(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._show_going(going=False)
        self.begin_.setVisible(outcome.stopped)
        self._close.setProperty("look", "" if outcome.stopped else "primary")
        self._close.style().polish(self._close)
        self._close.setFocus()
        words = [count(outcome.new, "{n} conversation was imported.", "{n} conversations were imported.")]
        if outcome.workspaces:
            words.append(tr("Workspaces: {names}.", names=", ".join(outcome.workspaces)))
        if outcome.grown:
            words.append(
                count(outcome.grown, "{n} conversation has new messages.", "{n} conversations have new messages.")
            )
        if outcome.unchanged:
            words.append(
                count(
                    outcome.unchanged,
                    "{n} conversation had already been imported.",
                    "{n} conversations had already been imported.",
                )
            )
        if outcome.stopped:
            words.append(tr("Stopped. Conversations imported so far are kept. Import again to add the rest."))
        if outcome.keys:
            words.append(
                tr("The imported conversations contain what looks like keys: {keys}", keys=", ".join(outcome.keys[:5]))
            )
        self._words.setText(" ".join(words))
        self._undo.setVisible(bool(outcome.new or outcome.grown))
        self._keys.setText(count(len(outcome.keys), "Forget the key…", "Forget the {n} keys…"))
        self._keys.setVisible(bool(outcome.keys))
        self._left_out.setVisible(bool(outcome.complaints))
        self._brought(outcome)

    def _take_back(self) -> None:
        self._undo.setEnabled(False)
        self._doing.do(self._histories.undo(), name="undo an import", then=self._taken_back, owner=self)

    def _taken_back(self, stayed: Sequence[str]) -> None:
        self._undo.hide()
        self._undo.setEnabled(True)
        words = [tr("The import was undone. Its conversations are in the trash of their workspace.")]
        if stayed:
            words.append(
                count(
                    len(stayed),
                    "{n} conversation was kept because you continued it here.",
                    "{n} conversations were kept because you continued them here.",
                )
            )
        self._words.setText(" ".join(words))
        self._changed()

    def _ask_keys(self) -> None:
        text = tr(
            "These keys will be permanently removed from the conversations, outputs and backups of all workspaces. The other programs' files will still contain them:\n\n{keys}",
            keys="\n".join(self._outcome.keys[:20]),
        )
        ask_yes(self, tr("Forget keys"), text, tr("Forget them"), self._forget)

    def _forget(self) -> None:
        self._keys.setEnabled(False)
        self._doing.do(self._histories.forget_keys(), name="forget keys", then=self._forgotten, owner=self)

    def _forgotten(self, number: int) -> None:
        self._keys.hide()
        self._words.setText(count(number, "{n} key was forgotten.", "{n} keys were forgotten."))
        self._changed()

    def _tell_left_out(self) -> None:
        tell_text(self, tr("What was left out"), "\n".join(map(said, self._outcome.complaints[:SHOWN])))
