"""The base of the sharing dialogs: rows, buttons, a status line, and work that may fail."""

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import quote, unquote

from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import TransientDialog, build_line_edit, build_plain_label
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import tr

EXAMPLE_ADDRESS = "postgresql://user@host/database"
# An address with a password, as in `postgresql://user:password@host/database`. The password may have
# an @ itself, so it goes up to the last one.
_ADDRESS_WITH_PASSWORD = re.compile(r"(?P<user>\w+://[^:/@]+):(?P<password>.+)(?P<host>@[^@]*)")


class SharingFormDialog(TransientDialog):
    """The base of a dialog about sharing. `status_label` says what happened last."""

    def __init__(self, runner: BackgroundRunner, title: str, parent: QWidget) -> None:
        super().__init__(title, parent, 560)
        self._runner = runner
        self.address = build_line_edit(tr("Address of the shared store"), EXAMPLE_ADDRESS, self)
        self.password = build_line_edit(
            tr("Password of the shared store"),
            tr("Password"),
            self,
            echoMode=QLineEdit.EchoMode.Password,
        )
        self.address.textChanged.connect(self._move_password_into_its_field)
        self.status_label = build_plain_label()
        self.status_label.hide()

    def _lay_out_sharing_form(self, widgets: Sequence[QWidget], buttons: QHBoxLayout) -> None:
        """Lays out the form, with the row of buttons at the bottom."""
        build_column(
            *widgets,
            self.status_label,
            1,
            buttons,
            owner=self,
            margins=(20, 20, 20, 16),
            spacing=12,
        )

    def _move_password_into_its_field(self, address: str) -> None:
        """Hides a password that was typed or pasted within the address."""
        found = _ADDRESS_WITH_PASSWORD.fullmatch(address.strip())
        if found is not None:
            self.password.setText(unquote(found["password"]))
            self.address.setText(found["user"] + found["host"])

    def _address_with_password(self) -> str:
        address = self.address.text().strip()
        user, at_sign, host = address.partition("@")
        if not self.password.text() or not at_sign:
            return address
        quoted_password = quote(self.password.text(), safe="")
        return f"{user}:{quoted_password}@{host}"

    def _build_widget_row(self, field: QWidget, button: QWidget) -> QWidget:
        row = QWidget(self)
        build_row((field, 1), button, owner=row, margins=0)
        return row

    def _update_enabled_buttons(self, *, idle: bool = True) -> None:
        """Enables the buttons that can be used now."""

    def _show_sharing_status(self, text: str) -> None:
        self.status_label.setText(text)
        self.status_label.setVisible(bool(text))

    def _run_sharing_work(
        self, work: Coroutine[Any, Any, Any], meanwhile: str, then: Callable[[Any], object]
    ) -> None:
        # Qt takes the focus away from a disabled button, so it is restored afterwards.
        focused = self.focusWidget()

        def pass_on_result(result: Any) -> None:
            self._enable_and_restore_focus(focused)
            then(result)

        def show_error(error: HelixError) -> None:
            self._enable_and_restore_focus(focused)
            self._show_sharing_status(translate_sentences(str(error)))

        self._show_sharing_status(meanwhile)
        self._update_enabled_buttons(idle=False)
        self._runner.run_in_background(work, then=pass_on_result, failed=show_error, owner=self)

    def _enable_and_restore_focus(self, focused: QWidget | None) -> None:
        self._update_enabled_buttons()
        if focused is not None and focused.isVisible():
            focused.setFocus()


def stack_widgets(*widgets: QWidget, spacing: int = 12) -> QWidget:
    stack = QWidget()
    build_column(*widgets, owner=stack, margins=0, spacing=spacing)
    return stack
