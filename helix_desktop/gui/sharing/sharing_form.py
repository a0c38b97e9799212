"""The base of the sharing dialogs: rows, buttons, a status line, and work that may fail."""

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtWidgets import QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import TransientDialog, build_line_edit, build_plain_label
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import tr

EXAMPLE_ADDRESS = "postgresql://user:password@host/database"


class SharingFormDialog(TransientDialog):
    """The base of a dialog about sharing. `status_label` says what happened last."""

    def __init__(self, runner: BackgroundRunner, title: str, parent: QWidget) -> None:
        super().__init__(title, parent, 560)
        self._runner = runner
        self.address = build_line_edit(tr("Address of the shared store"), EXAMPLE_ADDRESS, self)
        self.status_label = build_plain_label()
        self.status_label.hide()

    def _lay_out_sharing_form(
        self, widgets: tuple[QWidget, ...], left: tuple[QWidget, ...], right: tuple[QWidget, ...]
    ) -> None:
        """Lays out the form. `left` and `right` are buttons at the bottom."""
        buttons = build_row(*left, 1, *right)
        build_column(
            *widgets,
            self.status_label,
            1,
            buttons,
            owner=self,
            margins=(20, 20, 20, 16),
            spacing=12,
        )

    def _build_widget_row(self, *widgets: QWidget) -> QWidget:
        row = QWidget(self)
        build_row((widgets[0], 1), *widgets[1:], owner=row, margins=0)
        return row

    def _update_enabled_buttons(self, *, idle: bool = True) -> None:
        """Enables the buttons that can be used now."""

    def _show_sharing_status(self, text: str) -> None:
        self.status_label.setText(text)
        self.status_label.setVisible(bool(text))

    def _run_sharing_work(
        self, work: Coroutine[Any, Any, Any], meanwhile: str, then: Callable[[Any], object]
    ) -> None:
        focused = (
            self.focusWidget()
        )  # Qt takes the focus away from a disabled button, so we restore it afterwards.

        def enable_and_restore_focus() -> None:
            self._update_enabled_buttons()
            if focused is not None and focused.isVisible():
                focused.setFocus()

        def show_sharing_error(error: HelixError) -> None:
            enable_and_restore_focus()
            self._show_sharing_status(translate_sentences(str(error)))

        def pass_on_result(result: Any) -> None:
            enable_and_restore_focus()
            then(result)

        self._show_sharing_status(meanwhile)
        self._update_enabled_buttons(idle=False)
        self._runner.run_in_background(
            work, then=pass_on_result, failed=show_sharing_error, owner=self
        )


def stack_widgets(*widgets: QWidget, spacing: int = 12) -> QWidget:
    made = QWidget()
    build_column(*widgets, owner=made, margins=0, spacing=spacing)
    return made
