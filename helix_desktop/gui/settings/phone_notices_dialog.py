"""The dialog for notices on the phone: to which address they are sent, what they say, and a test."""

from PySide6.QtWidgets import QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_plain_label,
    build_push_button,
    set_surface_look,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import PhoneDevices
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.translation import tr
from helix_desktop.program_settings import PAGE_WEBHOOK, ProgramSettings

SECTION = "Notices on your phone"


class PhoneNoticesDialog(TransientDialog):
    def __init__(
        self,
        parent: QWidget,
        settings: ProgramSettings,
        devices: PhoneDevices,
        doing: BackgroundRunner,
    ) -> None:
        super().__init__(tr("Notices on your phone"), parent, 560)
        self._devices = devices
        self._doing = doing
        rows = ProgramSettingsPage(tr("Notices on your phone"), settings, [SECTION])
        rows.become_section(hides_title=True)
        content = rows.takeWidget()
        set_surface_look(content, "")  # As the rest of the dialog.
        rows.setParent(self)  # It answers what is changed.
        rows.hide()
        self._result = build_plain_label("", "small", self)
        buttons = build_row(
            build_push_button(tr("Send a test"), self, self._send_test),
            1,
            build_push_button(tr("Close"), self, self.accept),
        )
        build_column(content, self._result, buttons, owner=self, spacing=10)
        address_field = content.findChild(QWidget, PAGE_WEBHOOK.key)
        if address_field is not None:
            address_field.setFocus()

    def _send_test(self) -> None:
        self._result.setText(tr("Sending…"))
        sending = self._devices.send_test_notice()
        self._doing.run_in_background(
            sending, then=self._say_that_test_was_taken, failed=self._show_failure, owner=self
        )

    def _say_that_test_was_taken(self, _done: object) -> None:
        self._result.setText(tr("The test was taken."))

    def _show_failure(self, error: HelixError) -> None:
        self._result.setText(translate_sentences(str(error)))
