"""Shows what a question asks for in a dialog as large as the screen."""

from collections.abc import Callable

from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.gui.chat.consent_difference_view import build_exact_preview
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr

SHARE_OF_SCREEN = 0.9


class FullSizeDialog(TransientDialog):
    """`end_seen` is called once the end has been in sight here."""

    def __init__(
        self,
        theme: Theme,
        question: PermissionQuestion,
        parent: QWidget,
        end_seen: Callable[[], object],
        *,
        is_command: bool,
    ) -> None:
        """Shows all of what a permission question is about. `end_seen` is called once
        its end has been in sight, so that the card need not be scrolled as well.
        """
        size = parent.screen().availableSize() * SHARE_OF_SCREEN
        title = mark_on_one_line(question.title)
        super().__init__(title, parent, size.width(), size.height())
        self._end_seen = end_seen
        self._preview = build_exact_preview(
            theme,
            question.preview,
            question.title,
            self,
            is_command=is_command,
            programs=question.program_names,
        )
        self._preview.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._preview.setAccessibleName(tr("Exactly what will run"))
        self._preview.reading_state_changed.connect(self._update_length_and_note_end)
        self._length = build_plain_label("", "faint", self)
        close_button = build_push_button(tr("Close"), self, self.accept)
        foot = build_row((self._length, 1), close_button)
        build_column((self._preview, 1), foot, owner=self, margins=20, spacing=12)
        self._update_length_and_note_end()

    def _update_length_and_note_end(self) -> None:
        self._length.setText(self._preview.describe_length_and_warnings())
        if self._preview.is_end_seen:
            self._end_seen()
