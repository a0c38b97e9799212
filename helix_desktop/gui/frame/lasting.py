"""What lasts: how far it is, and a way to stop it, in a small window beside what the user goes on doing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.words import tr

T = TypeVar("T")
SHOWN_AFTER = 300  # milliseconds; what is over before needs no window
WIDTH = 380


class Lasting(QDialog):
    """One piece of work that lasts. Closing it stops the work; it closes itself at the end."""

    def __init__(self, words: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(words)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumWidth(WIDTH)
        self._words = QLabel(words, self)
        self._words.setTextFormat(Qt.TextFormat.PlainText)
        self._bar = QProgressBar(self)
        self._bar.setRange(0, 0)
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName(words)
        self._far = QLabel(self)
        self._far.setProperty("look", "small")
        stop = QPushButton(tr("Stop"), self)
        stop.clicked.connect(self.reject)
        line = QHBoxLayout()
        line.addWidget(self._far, 1)
        line.addWidget(stop)
        column = QVBoxLayout(self)
        for widget in (self._words, self._bar):
            column.addWidget(widget)
        column.addLayout(line)
        self._later = QTimer(self, singleShot=True, interval=SHOWN_AFTER)
        self._later.timeout.connect(self.show)
        self._later.start()

    def report(self, done: int, total: int) -> None:
        """Bytes done, and of how many."""
        self._bar.setRange(0, 1000)
        self._bar.setValue(min(done * 1000 // max(total, 1), 1000))
        self._far.setText(tr("{done} of {total}", done=size(done), total=size(total)))

    def done(self, result: int) -> None:
        self._later.stop()
        super().done(result)

    def follow(
        self,
        doing: Doing,
        work: Coroutine[Any, Any, T],
        then: Callable[[T], object],
        failed: Callable[[HelixError], object],
    ) -> None:
        """Do `work` and close at its end; `failed` gets an error."""

        def done(result: T) -> None:
            self.accept()
            then(result)

        def not_done(error: HelixError) -> None:
            self.accept()
            failed(error)

        running = doing.do(work, name=self.windowTitle(), then=done, owner=self, failed=not_done)
        self.rejected.connect(running.cancel)
