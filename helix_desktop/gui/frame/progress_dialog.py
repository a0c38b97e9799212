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

    def __init__(self, title: str, parent: QWidget) -> None:
        super().__init__(title, parent, 380)
        title_label = build_plain_label(title, parent=self, wraps=False)
        self._bar = QProgressBar(self, textVisible=False)
        self._bar.setRange(0, 0)
        self._bar.setAccessibleName(title)
        self._progress_label = build_plain_label("", "small", self, wraps=False)
        stop_button = build_push_button(tr("Stop"), self, self.reject)
        progress_row = build_row((self._progress_label, 1), stop_button)
        build_column(title_label, self._bar, progress_row, owner=self)
        self._show_timer = QTimer(self, singleShot=True, interval=SHOW_DELAY_MS)
        self._show_timer.timeout.connect(self.show)
        self._show_timer.start()

    def show_byte_progress(self, done: int, total: int) -> None:
        # The bar counts in thousandths, because Qt's numbers are too small for bytes. A file that
        # grows meanwhile may be more than `total`.
        thousandths = done * 1000 // max(total, 1)
        self._bar.setRange(0, 1000)
        self._bar.setValue(min(thousandths, 1000))
        done_size = format_byte_size(done)
        total_size = format_byte_size(total)
        self._progress_label.setText(tr("{done} of {total}", done=done_size, total=total_size))

    def done(self, result: int) -> None:
        self._show_timer.stop()
        super().done(result)

    def run_with_progress(
        self, runner: BackgroundRunner, work: Coroutine[Any, Any, T], then: Callable[[T], object]
    ) -> None:
        def close_with_result(result: T) -> None:
            self.accept()
            then(result)

        def close_with_error(error: HelixError) -> None:
            self.accept()
            runner.failed.emit(error)

        started_work = runner.run_in_background(
            work, then=close_with_result, failed=close_with_error, owner=self
        )
        self.rejected.connect(started_work.cancel)
