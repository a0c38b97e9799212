"""What a task asks for, exactly, as the card in a chat shows it."""

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.ports import AskedProgram
from helix_desktop.engine.tool_names import EDITS
from helix_desktop.gui.chat.consent_difference_view import ExactDifferenceView, build_exact_preview
from helix_desktop.gui.common.consent_text_view import ExactTextView
from helix_desktop.gui.common.programs_row import build_programs_row, describe_command_access
from helix_desktop.gui.common.widgets import build_plain_label, build_surface
from helix_desktop.gui.fleet.fleet_rows import Figures, split_task_question
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import Theme

HIGHEST = 280  # Pixels. The list above it stays in sight.


class TaskQuestionView(QWidget):
    """Shows exactly what a task asks a person to allow, and whether it was read to its end.

    `reading_state_changed`: another question is shown, or the end of it has been seen.
    """

    reading_state_changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._shown: list[object] = []
        self._exact: ExactTextView | ExactDifferenceView | None = None
        self._programs: QWidget | None = None
        self._length = build_plain_label("", "faint", self)
        self._column = build_column(self._length, owner=self, margins=0, spacing=4)
        self.hide()

    @property
    def is_read_to_end(self) -> bool:
        return self._exact is None or self._exact.is_end_seen

    def show_task_request(self, task: Figures, programs: Sequence[AskedProgram] = ()) -> None:
        """Shows what this task asks for. Empty: it asks for nothing. What is shown stays
        as it is read. `programs`: what its command line starts, if that is known.
        """
        access = task.get("access", "")
        question = [
            task.get("id", ""),
            task.get("why", ""),
            task.get("asked", ""),
            access,
            programs,
        ]
        if question == self._shown:
            return
        self._shown = question
        self._remove_shown_question()
        sentence = ""
        exact_request = ""
        if task:
            sentence, exact_request = split_task_question(task)
        self.setVisible(bool(exact_request))
        if exact_request:
            # A command may look like a change of a file. Only what edits files is shown as one.
            is_command = task["asked"] not in EDITS
            title = sentence.removesuffix(".")
            self._exact = build_exact_preview(
                self._theme,
                exact_request,
                title,
                self,
                is_command=is_command,
                programs=[program.name for program in programs],
            )
            self._exact.setMaximumHeight(self._theme.zoomed_pixels(HIGHEST))
            self._exact.reading_state_changed.connect(self._update_as_it_is_read)
            self._column.insertWidget(0, self._exact)
        if exact_request and programs:
            self._programs = build_surface(self, "plain")
            row = build_programs_row(programs, self._programs, access)
            row.setContentsMargins(0, 0, 0, 0)
            self._programs.setLayout(row)
        elif exact_request and access:
            self._programs = build_plain_label(describe_command_access(access), "small", self)
        if self._programs is not None:
            self._column.addWidget(self._programs)
        self._update_as_it_is_read()

    def _remove_shown_question(self) -> None:
        for widget in (self._exact, self._programs):
            if widget is not None:
                self._column.removeWidget(widget)
                widget.hide()
                widget.deleteLater()
        self._exact = None
        self._programs = None

    def _update_as_it_is_read(self) -> None:
        description = ""
        if self._exact is not None:
            description = self._exact.describe_length_and_warnings()
        self._length.setText(description)
        self._length.setVisible(bool(description))
        self.reading_state_changed.emit()
