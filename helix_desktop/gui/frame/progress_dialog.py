"""A small window for work that takes a while: it shows the progress and can stop the
work. The user can go on working.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QProgressBar, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.translation import tr

T = TypeVar("T")
SHOW_DELAY_MS = 300  # The dialog appears only if the work takes longer than this.


class ProgressDialog(TransientDialog):
    """Shows one piece of work. Closing it stops the work; it closes by itself at the end."""

    def __init__(self, words: str, parent: QWidget) -> None:
        super().__init__(words, parent, 380)
        self._words = build_plain_label(words, parent=self, wraps=False)
        self._bar = QProgressBar(self, textVisible=False)
        self._bar.setRange(0, 0)
        self._bar.setAccessibleName(words)
        self._progress_label = build_plain_label("", "small", self, wraps=False)
        line = build_row(
            (self._progress_label, 1), build_push_button(tr("Stop"), self, self.reject)
        )
        build_column(self._words, self._bar, line, owner=self)
        self._show_timer = QTimer(self, singleShot=True, interval=SHOW_DELAY_MS)
        self._show_timer.timeout.connect(self.show)
        self._show_timer.start()

    def show_byte_progress(self, done: int, total: int) -> None:
        self._bar.setRange(0, 1000)
        self._bar.setValue(min(done * 1000 // max(total, 1), 1000))
        self._progress_label.setText(
            tr("{done} of {total}", done=format_byte_size(done), total=format_byte_size(total))
        )

    def done(self, result: int) -> None:
        self._show_timer.stop()
        super().done(result)

    def run_with_progress(
        self, doing: BackgroundRunner, work: Coroutine[Any, Any, T], then: Callable[[T], object]
    ) -> None:
        def close_with_result(result: T) -> None:
            self.accept()
            then(result)

        def close_with_error(error: HelixError) -> None:
            self.accept()
            doing.failed.emit(error)

        running = doing.run_in_background(
            work, then=close_with_result, owner=self, failed=close_with_error
        )
        self.rejected.connect(running.cancel)
