"""The dialog of the replay lab: replays conversations with other policies, compares the results and
can adopt one policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFrame,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QWidget,
)

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner, CancellableWork
from helix_desktop.gui.chat.attachment_chips import FlowLayout
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.engine_sentences import translate_sentences
from helix_desktop.gui.lab.replay_lab_port import ReplayOutcome, ReplaySelection, RunReplay
from helix_desktop.gui.lab.replay_results import ReplayResultsPanel
from helix_desktop.gui.layouts import build_column
from helix_desktop.gui.question_dialogs import ask_files, ask_new_file
from helix_desktop.gui.shared.plain_widgets import TransientDialog, build_plain_label
from helix_desktop.gui.text_file_saving import save_text_file
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_ports import WorkbenchPort

HEIGHT_WITH_RESULTS, LIST_LINES, LIST_LINES_WITH_RESULTS = 720, 6, 3
USUAL_WINDOW = 128_000
WINDOWS = (32_000, 64_000, 128_000, 200_000, 1_000_000)


class ReplayLabDialog(TransientDialog):
    """`policies`: names with their titles. `took` is called when the workspace has adopted another policy."""

    def __init__(
        self,
        bench: WorkbenchPort,
        policies: Sequence[tuple[str, str]],
        play: RunReplay,
        doing: BackgroundRunner,
        took: Callable[[str], object],
        theme: Theme,
        parent: QWidget,
    ) -> None:
        super().__init__(tr("What would other settings have cost here?"), parent)
        self._bench, self._play, self._doing, self._on_policy_adopted = bench, play, doing, took
        self._theme = theme
        self._names = dict(policies)
        self._working: CancellableWork | None = None
        room = self.screen().availableGeometry().size() * 0.95
        self.resize(QSize(theme.zoomed_pixels(840), theme.zoomed_pixels(380)).boundedTo(room))
        self.list = self._build_conversation_list()
        self.checks = {name: QCheckBox(words, self) for name, words in policies}
        self.window_ = QComboBox(self)
        self.run_ = QPushButton(tr("Run"), self)
        self._bar = QProgressBar(self)
        self._status_label = QLabel(self)
        self.results: ReplayResultsPanel | None = None
        self._results_area = QScrollArea(self)
        self._lay_out_replay_lab()

    def _build_conversation_list(self) -> QListWidget:
        found = QListWidget(self)
        found.setAccessibleName(tr("Conversations to replay"))
        # only the newest is checked: replaying all conversations of an old workspace takes minutes
        for row in self._bench.list_conversations():
            if not row.trashed and not row.parent:
                self._add_checkable_row(found, row.title or tr("New conversation"), row.id, chosen=not found.count())
        return found

    @staticmethod
    def _add_checkable_row(into: QListWidget, words: str, value: object, *, chosen: bool = True) -> None:
        item = QListWidgetItem(words, into)
        item.setData(Qt.ItemDataRole.UserRole, value)
        item.setCheckState(Qt.CheckState.Checked if chosen else Qt.CheckState.Unchecked)

    def _lay_out_replay_lab(self) -> None:
        words = build_plain_label(
            tr("Replays conversations with other policies. Nothing is sent anywhere: placeholder summaries are used."),
            "muted",
            self,
        )
        files = QPushButton(tr("Add recorded sessions…"), self)
        files.setProperty("look", "link")
        files.clicked.connect(self._ask_recorded_sessions)
        own = self._window_of_newest_model()
        for window in sorted({*WINDOWS, own}):
            self.window_.addItem(tr("{n}-token window", n=format_token_count(window)), window)
        self.window_.setCurrentIndex(self.window_.findData(own))
        self.window_.setAccessibleName(tr("Window"))
        for check in self.checks.values():
            check.setChecked(True)
        self._bar.setTextVisible(False)
        self._bar.hide()
        self._status_label.setProperty("look", "small")
        self._status_label.hide()
        self._status_label.setWordWrap(True)
        self._status_label.setTextFormat(Qt.TextFormat.PlainText)
        self.run_.setProperty("look", "primary")
        self.run_.clicked.connect(self._start_or_stop_replay)
        choices = FlowLayout(gap=12)
        for widget in (*self.checks.values(), self.window_, self.run_):
            choices.addWidget(widget)
        self._set_visible_rows(LIST_LINES)
        self._results_area.setWidgetResizable(True)
        self._results_area.setFrameShape(QFrame.Shape.NoFrame)
        self._results_area.hide()
        build_column(
            words,
            self.list,
            files,
            choices,
            self._bar,
            self._status_label,
            (self._results_area, 1),
            0,
            owner=self,
            margins=(20, 20, 20, 20),
        )

    def _set_visible_rows(self, most: int) -> None:
        """Makes the list exactly as high as whole rows."""
        lines = min(max(self.list.count(), 1), most)
        self.list.setFixedHeight(lines * self.list.sizeHintForRow(0) + 2 * self.list.frameWidth() + 8)

    def _window_of_newest_model(self) -> int:
        """Returns the model's window of the first conversation that has one, otherwise the usual size."""
        rows = [row for row in self._bench.list_conversations() if not row.trashed and not row.parent and row.window]
        return rows[0].window if rows else USUAL_WINDOW

    def _show_replay_status(self, words: str) -> None:
        self._status_label.setText(words)
        self._status_label.setVisible(bool(words))

    def _ask_recorded_sessions(self) -> None:
        ask_files(
            self,
            tr("Recorded sessions"),
            lambda paths: [self._add_checkable_row(self.list, each.name, each) for each in paths],
        )

    def _start_or_stop_replay(self) -> None:
        if self._working is not None:
            self._working.cancel()
            self._end_replay(tr("Stopped."))
            return
        wanted = self._build_replay_selection()
        if not (wanted.conversations or wanted.files) or not wanted.policies:
            self._show_replay_status(tr("Choose a conversation and a policy."))
            return
        self.run_.setText(tr("Stop"))
        self._bar.setRange(0, 0)
        self._bar.show()
        self._show_replay_status(tr("Replaying…"))
        self._working = self._doing.run_in_background(
            self._play(self._bench, wanted, self._show_replay_progress), then=self._show_replay_results, owner=self, failed=self._show_replay_error
        )  # fmt: skip

    def _build_replay_selection(self) -> ReplaySelection:
        items = [self.list.item(at) for at in range(self.list.count())]
        chosen = [item.data(Qt.ItemDataRole.UserRole) for item in items if item.checkState() is Qt.CheckState.Checked]
        return ReplaySelection(
            [each for each in chosen if isinstance(each, str)],
            [each for each in chosen if isinstance(each, Path)],
            [name for name, check in self.checks.items() if check.isChecked()],
            int(self.window_.currentData()),
        )

    def _show_replay_progress(self, done: int, total: int) -> None:
        self._bar.setRange(0, total)
        self._bar.setValue(done)

    def _show_replay_error(self, error: HelixError) -> None:
        self._end_replay(translate_sentences(str(error)))

    def _end_replay(self, words: str) -> None:
        self._working = None
        self._bar.hide()
        self._show_replay_status(words)
        self.run_.setText(tr("Run"))

    def done(self, result: int) -> None:
        if self._working is not None:
            self._working.cancel()
        super().done(result)

    def _show_replay_results(self, outcome: ReplayOutcome) -> None:
        self._end_replay("")
        results = ReplayResultsPanel(
            outcome, self._names, self._theme, self._adopt_policy, lambda: self._save_replay_page(outcome.page), self
        )
        self._results_area.setWidget(results)
        self._results_area.show()
        self.results = results
        self._set_visible_rows(LIST_LINES_WITH_RESULTS)
        self._grow_to_height(max(self.height(), self._theme.zoomed_pixels(HEIGHT_WITH_RESULTS)))

    def _grow_to_height(self, height: int) -> None:
        """Grows as far as the screen allows; the rest can be scrolled to."""
        room, frame = self.screen().availableGeometry(), self.frameGeometry().height() - self.height()
        self.resize(self.width(), min(height, room.height() - frame))
        lowest = room.bottom() + 1 - self.height() - frame
        self.move(self.frameGeometry().left(), max(room.top(), min(self.frameGeometry().top(), lowest)))

    def _adopt_policy(self, policy: str) -> None:
        def report_adopted_policy(_done: None) -> None:
            self._show_replay_status(tr("This workspace now uses: {policy}.", policy=self._names.get(policy, policy)))
            self._on_policy_adopted(policy)

        work = self._bench.choose_context_policy(policy)
        self._doing.run_in_background(work, then=report_adopted_policy, owner=self, failed=self._show_replay_error)

    def _save_replay_page(self, page: str) -> None:
        def report_saved_page(file: Path) -> None:
            self._show_replay_status(tr("Saved as {file}.", file=file.name))

        def write_page_file(file: Path) -> None:
            self._doing.run_in_background(
                save_text_file(file, lambda: page),
                then=lambda _done: report_saved_page(file),
                owner=self,
                failed=self._show_replay_error,
            )

        ask_new_file(self, tr("Save replay as web page"), tr("Replay") + ".html", write_page_file)
