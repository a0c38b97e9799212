"""The dialog that pairs a phone or browser: a QR code, and the same as an address and a code."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QPixmap
from PySide6.QtWidgets import QCheckBox, QLabel, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import PairingInvitation, PhoneDevices
from helix_desktop.gui.translation import tr

MODULE_PIXELS = 6
DARK = 0xFF000000
LIGHT = 0xFFFFFFFF


class PairDeviceDialog(TransientDialog):
    """Each code pairs one device. Another right of the device needs another code."""

    def __init__(
        self, parent: QWidget, devices: PhoneDevices, doing: BackgroundRunner, *, is_page_on: bool
    ) -> None:
        super().__init__(tr("Pair a device"), parent, 440)
        self._devices = devices
        self._doing = doing
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
        self._certificate.hide()
        self._only_here = build_plain_label(
            tr(
                "Only this computer can open this address. For a phone, turn the page on with an address of this computer that the phone can reach, such as the one in your home network: helix-desktop resident page on --address ADDRESS"
            ),
            "",
            self,
        )
        self._only_here.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._only_here.hide()
        page_is_off = build_plain_label(tr("The page is off. Turn it on first."), "danger", self)
        page_is_off.setVisible(not is_page_on)
        build_column(
            self._only_looks,
            self._picture,
            self._code,
            self._instruction,
            self._only_here,
            self._certificate,
            page_is_off,
            build_row(1, build_push_button(tr("Close"), self, self.accept)),
            owner=self,
            spacing=10,
        )
        if is_page_on:
            self._request_code()
        else:
            # A code would lead nowhere.
            self._only_looks.hide()
            self._picture.hide()
            self._code.hide()
            self._instruction.hide()

    def _request_code(self) -> None:
        self._doing.run_in_background(
            self._devices.invite_device(may_allow=not self._only_looks.isChecked()),
            then=self._show_invitation,
            owner=self,
            failed=self._show_failure,
        )

    def _show_invitation(self, invitation: PairingInvitation) -> None:
        self._picture.setPixmap(draw_modules(invitation.modules))
        self._code.setText(invitation.code)
        self._instruction.setText(
            tr(
                "Point the camera of the device at the picture, or open {url} on it and enter the code. It works once, for ten minutes.",
                url=invitation.url,
            )
        )
        # On every other address than this computer's own, the page has a certificate.
        self._only_here.setVisible(not invitation.fingerprint)
        if invitation.fingerprint:
            self._certificate.setText(
                tr(
                    "The browser warns that it does not know the certificate. Continue only if its SHA-256 fingerprint is {fingerprint}",
                    fingerprint=invitation.fingerprint,
                )
            )
        self._certificate.setVisible(bool(invitation.fingerprint))
        self.adjustSize()

    def _show_failure(self, error: HelixError) -> None:
        self._instruction.setText(translate_sentences(str(error)))


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
