"""The dialog that pairs a phone or browser: a QR code, and the same as an address and a code."""

from collections.abc import Sequence
from ipaddress import ip_address

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtGui import QImage, QPixmap
from PySide6.QtWidgets import QCheckBox, QLabel, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_combo_box,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import PairingInvitation, PhoneDevices
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.program_settings import PAGE_ADDRESS, PAGE_ON, ProgramSettings

MODULE_PIXELS = 6
DARK = 0xFF000000
LIGHT = 0xFFFFFFFF


class PairDeviceDialog(TransientDialog):
    """Each code pairs one device. Another right of the device needs another code.

    The user chooses at which of this computer's addresses the page answers. A code is shown only
    while the page answers at the chosen one, and a picture for a camera only if a phone can get there.
    """

    def __init__(
        self,
        parent: QWidget,
        settings: ProgramSettings,
        devices: PhoneDevices,
        doing: BackgroundRunner,
    ) -> None:
        super().__init__(tr("Pair a device"), parent, 440)
        self._settings = settings
        self._devices = devices
        self._doing = doing
        self._address = build_combo_box(tr("Address of the page"), self)
        self._address.currentIndexChanged.connect(self._show_chosen_address)
        self._reach = build_plain_label("", "", self)
        lasting = tr("It also answers after you quit Helix Desktop, until you turn it off in the settings or shut down this computer.")  # fmt: skip
        self._lasting = build_plain_label(lasting, "small", self)
        self._turn_on = build_push_button("", self, self._turn_page_on, "primary")
        self._only_looks = QCheckBox(tr("The device may only look"), self)
        self._only_looks.toggled.connect(self._request_code)
        self._picture = QLabel(self, alignment=Qt.AlignmentFlag.AlignCenter)
        self._picture.setAccessibleName(tr("QR code with the address and the code"))
        self._code = build_plain_label("", "large", self, wraps=False)
        self._code.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._code.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._instruction = build_plain_label("", "", self)
        self._instruction.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._certificate = build_plain_label("", "small", self)
        self._certificate.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._trouble = build_plain_label("", "danger", self)
        turn_on_row = build_row(self._turn_on, 1)
        close_button = build_push_button(tr("Close"), self, self.accept)
        close_row = build_row(1, close_button)
        build_column(
            self._address,
            self._reach,
            self._lasting,
            turn_on_row,
            self._only_looks,
            self._picture,
            self._code,
            self._instruction,
            self._certificate,
            self._trouble,
            close_row,
            owner=self,
            spacing=10,
        )
        self._hide_code()
        self._trouble.hide()
        self._turn_on.hide()
        listing = devices.list_own_addresses()
        self._doing.run_in_background(
            listing, then=self._show_addresses, failed=self._show_failure, owner=self
        )

    def _show_addresses(self, own_addresses: Sequence[str]) -> None:
        """Offers this computer's addresses, and the one at which the page answers now."""
        saved_address = self._settings[PAGE_ADDRESS]
        offered = list(own_addresses)
        for address in (saved_address, PAGE_ADDRESS.default):
            if address not in offered:
                offered.append(address)
        chosen = saved_address
        if not self._settings[PAGE_ON]:
            # Who pairs a phone needs an address that the phone can reach.
            chosen = offered[0]
        with QSignalBlocker(self._address):
            self._address.clear()
            for address in offered:
                label = tr("{address} (devices in the same network)", address=address)
                if _is_only_for_this_computer(address):
                    label = tr("{address} (this computer only)", address=address)
                self._address.addItem(label, address)
            self._address.setCurrentIndex(offered.index(chosen))
        self._show_chosen_address()

    def _show_chosen_address(self) -> None:
        self._hide_code()
        self._trouble.hide()
        chosen = self._address.currentData()
        reach = tr(
            "Devices that reach this address can open the page. It is encrypted, and only paired devices are let in."
        )
        if _is_only_for_this_computer(chosen):
            reach = tr(
                "Only this computer can open this address, or a device through an SSH tunnel. For a phone, choose another address."
            )
        self._reach.setText(reach)
        is_page_there = self._settings[PAGE_ON] and chosen == self._settings[PAGE_ADDRESS]
        turn_on = tr("Turn the page on at this address")
        if self._settings[PAGE_ON]:
            turn_on = tr("Move the page to this address")
        self._turn_on.setText(turn_on)
        self._turn_on.setEnabled(True)
        self._turn_on.setVisible(not is_page_there)
        if is_page_there:
            self._request_code()
        self.adjustSize()

    def _turn_page_on(self) -> None:
        chosen = self._address.currentData()
        # On a busy computer, the page may need many seconds until it answers.
        self._turn_on.setText(tr("The page is starting…"))
        self._turn_on.setEnabled(False)
        try:
            # While the page is off, another address starts nothing.
            if chosen != self._settings[PAGE_ADDRESS]:
                self._settings.change_setting(PAGE_ADDRESS, chosen)
            if not self._settings[PAGE_ON]:
                self._settings.change_setting(PAGE_ON, True)
        except HelixError as error:
            self._show_failure(error)
            return
        self._doing.run_in_background(
            self._devices.restart_page(),
            then=lambda _done: self._show_chosen_address(),
            owner=self,
            failed=self._show_failure,
        )

    def _hide_code(self) -> None:
        for widget in (
            self._only_looks,
            self._picture,
            self._code,
            self._instruction,
            self._certificate,
        ):
            widget.hide()

    def _request_code(self) -> None:
        may_allow = not self._only_looks.isChecked()
        inviting = self._devices.invite_device(may_allow=may_allow)
        self._doing.run_in_background(
            inviting, then=self._show_invitation, failed=self._show_failure, owner=self
        )

    def _show_invitation(self, invitation: PairingInvitation) -> None:
        if self._address.currentData() != self._settings[PAGE_ADDRESS]:
            return  # Another address was chosen meanwhile.
        is_reached_by_phone = not _is_only_for_this_computer(self._address.currentData())
        self._picture.setPixmap(draw_modules(invitation.modules))
        self._code.setText(invitation.code)
        instruction = tr(
            "Open {url} and enter the code. It works once, for ten minutes.", url=invitation.url
        )
        if is_reached_by_phone:
            instruction = tr(
                "Point the camera of the device at the picture, or open {url} on it and enter the code. It works once, for ten minutes.",
                url=invitation.url,
            )
        self._instruction.setText(instruction)
        if invitation.fingerprint:
            self._certificate.setText(
                tr(
                    "The browser warns that it does not know the certificate. Continue only if its SHA-256 fingerprint is {fingerprint}",
                    fingerprint=invitation.fingerprint,
                )
            )
        self._turn_on.hide()
        self._trouble.hide()
        self._only_looks.show()
        self._picture.setVisible(is_reached_by_phone)
        self._code.show()
        self._instruction.show()
        self._certificate.setVisible(bool(invitation.fingerprint))
        self.adjustSize()

    def show_paired_device(self, name: str) -> None:
        """Says that the shown code was used, instead of the code."""
        self._hide_code()
        self._instruction.setText(tr("{name} is paired now.", name=make_safe_text(name)))
        self._instruction.show()
        self.adjustSize()

    def _show_failure(self, error: HelixError) -> None:
        """Says why there is no code, and offers to start the page again."""
        self._hide_code()
        self._trouble.setText(translate_sentences(str(error)))
        self._trouble.show()
        self._turn_on.setText(tr("Turn the page on at this address"))
        self._turn_on.setEnabled(True)
        self._turn_on.show()
        self.adjustSize()


def _is_only_for_this_computer(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:  # The settings file has something else.
        return False


def draw_modules(modules: Sequence[Sequence[bool]]) -> QPixmap:
    """Draws a QR code: always dark on light, because many cameras read it only so."""
    size = len(modules)
    image = QImage(size, size, QImage.Format.Format_RGB32)
    for row_number, row in enumerate(modules):
        for column_number, is_dark in enumerate(row):
            colour = LIGHT
            if is_dark:
                colour = DARK
            image.setPixel(column_number, row_number, colour)
    return QPixmap.fromImage(image.scaled(size * MODULE_PIXELS, size * MODULE_PIXELS))
