"""Before files will be restored: what will be done, and what the user wants where somebody else has changed something since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.changes.hunks import binary
from helix_desktop.engine.changes.story import FileChange, How, Planned, written
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.views.line_view import LineView
from helix_desktop.gui.words import count, tr

SHOWN = 12  # names of files that are put back
Compare = Callable[[Planned], object]


class TakingBack(QDialog):
    """`choices` after it was accepted: by path, what is to become of what somebody else has changed."""

    def __init__(
        self,
        theme: Theme,
        title: str,
        files: Sequence[FileChange],
        planned: Sequence[Planned],
        compare: Compare,
        parent: QWidget | None = None,
        *,
        redo: bool = False,
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self._redo = redo
        self._places = {file.path: file.place for file in files}
        self._boxes: dict[str, QComboBox] = {}
        column = QVBoxLayout(self)
        column.setSpacing(theme.px(10))
        conflicts = [one for one in planned if one.how is How.CONFLICT]
        for words in self._sentences(planned):
            column.addWidget(plain_label(words, parent=self))
        if conflicts:
            column.addWidget(self._conflicts(conflicts, compare), 1)
        note = QLabel(tr("Git's HEAD and index are not changed. You can undo this restore on this page."), self)
        note.setWordWrap(True)
        set_look(note, "small")
        column.addWidget(note)
        column.addStretch(0 if conflicts else 1)
        buttons = QDialogButtonBox(self)
        self.yes = buttons.addButton(tr("Redo") if redo else tr("Undo"), QDialogButtonBox.ButtonRole.AcceptRole)
        set_look(self.yes, "primary")
        buttons.addButton(QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        column.addWidget(buttons)
        self.resize(theme.px(620), min(theme.px(360), self.sizeHint().height()))

    @property
    def choices(self) -> dict[str, str]:
        return {path: str(box.currentData()) for path, box in self._boxes.items()}

    def _sentences(self, planned: Sequence[Planned]) -> list[str]:
        found = []
        done = [one for one in planned if one.how is How.RESTORE]
        back = [self._place(one) for one in done if one.before is not None]
        gone = [self._place(one) for one in done if one.before is None]
        already = sum(one.how is How.ALREADY for one in planned)
        if back:
            words = count(len(back), "{n} file will be restored: ", "{n} files will be restored: ")
            found.append(words + _names(back))
        if gone:
            words = count(len(gone), "{n} file will be deleted: ", "{n} files will be deleted: ")
            found.append(words + _names(gone))
        if already:
            found.append(count(already, "{n} file needed no change.", "{n} files needed no change."))
        if any(one.how is How.CONFLICT for one in planned):
            found.append(tr("You or another program changed these files later. Choose what to do with each:"))
        return found or [tr("There is nothing to redo.") if self._redo else tr("There is nothing to undo.")]

    def _place(self, one: Planned) -> str:
        return written(self._places.get(one.path, one.path.partition("/")[2]))

    def _words(self) -> tuple[str, str, str]:
        leave = tr("Leave the file as it is now")
        if self._redo:
            return leave, tr("Restore the file to its state before the undo"), tr("Redo only the agent's lines")
        return leave, tr("Restore the file to its state before the agent's changes"), tr("Undo only the agent's lines")

    def _conflicts(self, planned: Sequence[Planned], compare: Compare) -> QScrollArea:
        inner = QWidget()
        grid = QGridLayout(inner)
        grid.setContentsMargins(0, 0, 0, 0)
        for row, one in enumerate(planned):
            name = plain_label(self._place(one), "mono", inner, wraps=False)
            box = QComboBox(inner)
            box.setAccessibleName(self._place(one))
            for words, choice in zip(self._words(), ("now", "before", "merge"), strict=True):
                box.addItem(words, choice)
            look = push_button(tr("Compare…"), inner, partial(compare, one))
            self._boxes[one.path] = box
            for column, widget in enumerate((name, box, look)):
                grid.addWidget(widget, row, column)
        grid.setColumnStretch(0, 1)
        grid.setRowStretch(len(planned), 1)
        area = QScrollArea(self)
        area.setWidgetResizable(True)
        area.setWidget(inner)
        return area


def _names(places: Sequence[str]) -> str:
    return ", ".join(places[:SHOWN]) + ("…" if len(places) > SHOWN else "")


class ThreeVersions(QDialog):
    """Before the agent, after it, and now, beside each other."""

    def __init__(
        self,
        theme: Theme,
        place: str,
        versions: tuple[bytes, bytes, bytes],
        parent: QWidget | None = None,
        *,
        redo: bool = False,
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(written(place))
        self.resize(theme.px(1200), theme.px(640))
        row = QHBoxLayout(self)
        self.views: list[LineView] = []
        first = (
            (tr("Before the undo"), tr("After the undo")) if redo else (tr("Before the agent"), tr("After the agent"))
        )
        titles = (*first, tr("Now"))
        for title, content in zip(titles, versions, strict=True):
            side = QVBoxLayout()
            label = QLabel(title, self)
            set_look(label, "heading")
            view = LineView(theme, self)
            view.setAccessibleName(title)
            shown = size(len(content)) if binary(content) else content.decode("utf-8", "replace")
            view.show_lines(shown.split("\n"))
            self.views.append(view)
            side.addWidget(label)
            side.addWidget(view, 1)
            row.addLayout(side)
        for view in self.views:
            for other in self.views:
                if other is not view:
                    view.verticalScrollBar().valueChanged.connect(other.verticalScrollBar().setValue)
