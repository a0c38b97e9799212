"""The page for phones: whether it is on, which devices may use it, and pairing another one."""

import time
from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QSignalBlocker
from PySide6.QtWidgets import QCheckBox, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_time_ago
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, build_surface
from helix_desktop.gui.question_dialogs import ask_to_confirm
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import PhoneDevice, PhoneDevices
from helix_desktop.gui.settings.pair_device_dialog import PairDeviceDialog
from helix_desktop.gui.settings.phone_notices_dialog import PhoneNoticesDialog
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.settings.settings_page import RefreshWhileShown
from helix_desktop.gui.translation import tr
from helix_desktop.program_settings import PAGE_ON, ProgramSettings

REFRESH_MS = 2_000  # A device that is being paired appears by itself.


class PhoneSettingsPage(ProgramSettingsPage):
    def __init__(
        self, settings: ProgramSettings, devices: PhoneDevices, doing: BackgroundRunner
    ) -> None:
        super().__init__(tr("Phone"), settings, ["Phone"])
        self._page_settings = settings
        self._devices = devices
        self._doing = doing
        self._shown_devices: Sequence[PhoneDevice] | None = None
        self._pairing: PairDeviceDialog | None = None  # While it is open.
        self.add_heading(tr("Paired devices"))
        self._rows = build_column(spacing=6)
        self.add_page_layout(self._rows)
        self._status_label = self.add_sentence("", "small")
        self.add_page_button(tr("Pair a device…"), self._show_pairing_dialog)
        self.add_page_button(tr("Notices on your phone…"), self._show_notices_dialog)
        # The content is shown within another page, and this page itself never is.
        self._watcher = RefreshWhileShown(self.page_content, REFRESH_MS, self._fetch_devices)
        self.add_page_widget(self._watcher)
        self._fetch_devices()

    def _fetch_devices(self) -> None:
        self._doing.run_in_background(
            self._devices.list_devices(),
            then=self._show_devices,
            owner=self,
            failed=self._show_failure,
        )

    def _show_devices(self, devices: Sequence[PhoneDevice]) -> None:
        if devices == self._shown_devices:
            return
        self._tell_dialog_of_new_device(devices)
        self._shown_devices = devices
        clear_layout(self._rows)
        for device in devices:
            self._rows.addWidget(self._build_device_row(device))
        text = ""
        if not devices:
            text = tr("No device is paired.")
        self._status_label.setText(text)
        self._status_label.setVisible(bool(text))

    def _tell_dialog_of_new_device(self, devices: Sequence[PhoneDevice]) -> None:
        if self._pairing is None or self._shown_devices is None:
            return
        known_ids = {device.id for device in self._shown_devices}
        for device in devices:
            if device.id not in known_ids:
                self._pairing.show_paired_device(device.name)

    def _build_device_row(self, device: PhoneDevice) -> QWidget:
        """Builds the card of a paired device: its name, what it may do, when it was last used, and
        the button that takes its access away.
        """
        card = build_surface(self.page_content, "card")
        right = tr("may only look")
        if device.may_allow:
            right = tr("may look, allow once, and send messages")
        last_use = format_time_ago(device.last_used, time.time())
        details = tr("{right}; last used: {time}", right=right, time=last_use)
        ask_to_revoke = partial(self._ask_to_revoke, device)
        revoke = build_push_button(tr("Revoke…"), card, ask_to_revoke, "link", wraps=True)
        revoke.setAccessibleName(tr("Revoke {name}", name=device.name))
        name_label = build_plain_label(device.name, "", card)
        details_label = build_plain_label(details, "small", card)
        # The button stands below, as there may be no room beside large text.
        revoke_row = build_row(revoke, 1)
        rows = (name_label, details_label, revoke_row)
        build_column(*rows, owner=card, margins=(12, 6, 6, 6), spacing=1)
        return card

    def _ask_to_revoke(self, device: PhoneDevice) -> None:
        text = tr(
            "{name} can no longer use the page at once. To use it again, the device must be paired again.",
            name=device.name,
        )
        revoke = partial(self._revoke_device, device)
        ask_to_confirm(self.page_content, tr("Revoke device"), text, tr("Revoke"), revoke)

    def _revoke_device(self, device: PhoneDevice) -> None:
        revoking = self._devices.revoke_device(device.id)
        self._doing.run_in_background(
            revoking,
            then=lambda _done: self._fetch_devices(),
            failed=self._show_failure,
            owner=self,
        )

    def _show_pairing_dialog(self) -> None:
        dialog = PairDeviceDialog(
            self.page_content, self._page_settings, self._devices, self._doing
        )
        self._pairing = dialog
        dialog.finished.connect(self._end_pairing)
        dialog.open()

    def _end_pairing(self) -> None:
        """Shows what the dialog may have changed: whether the page is on, and who may use it."""
        self._pairing = None
        switch = self.page_content.findChild(QCheckBox, PAGE_ON.key)
        if switch is not None:
            with QSignalBlocker(switch):
                switch.setChecked(self._page_settings[PAGE_ON])
        self._fetch_devices()

    def _show_notices_dialog(self) -> None:
        PhoneNoticesDialog(
            self.page_content, self._page_settings, self._devices, self._doing
        ).open()

    def _show_failure(self, error: HelixError) -> None:
        self._status_label.setText(translate_sentences(str(error)))
        self._status_label.show()
