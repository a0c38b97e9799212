"""The dialog with the code that pairs a phone."""

from __future__ import annotations

from PySide6.QtGui import QImage
from PySide6.QtWidgets import QCheckBox, QComboBox, QLabel

from helix_desktop.gui.settings.installation_port import PhoneDevice
from helix_desktop.gui.settings.pair_device_dialog import MODULE_PIXELS
from helix_desktop.gui.settings.phone_settings_page import PhoneSettingsPage
from helix_desktop.program_settings import PAGE_ADDRESS, PAGE_ON, ProgramSettings
from tests.gui.fake_setup import FakePhoneDevices
from tests.gui.settings.test_phone_settings_page import devices, open_dialog, page, press, texts

__all__ = ["devices", "page"]


def test_a_device_is_paired_with_a_picture_or_a_code(
    page: PhoneSettingsPage, devices: FakePhoneDevices, settings: ProgramSettings
) -> None:
    settings.change_setting(PAGE_ADDRESS, "192.168.1.20")
    settings.change_setting(PAGE_ON, True)
    dialog = open_dialog(page)
    shown = texts(dialog)
    assert "ABCDE-FGHJ1" in shown
    assert "https://192.168.1.20:4357/pair" in shown
    assert "AB:CD:EF" in shown
    assert devices.invited == [True]
    (picture_label,) = [each for each in dialog.findChildren(QLabel) if not each.pixmap().isNull()]
    assert not picture_label.isHidden()
    picture = picture_label.pixmap().toImage()
    assert picture.width() == 33 * MODULE_PIXELS
    assert dark_at(picture, 0, 0)
    assert not dark_at(picture, 0, 1)
    assert "Only this computer can open this address." not in shown


def test_the_dialog_says_when_a_device_has_used_its_code(
    page: PhoneSettingsPage, devices: FakePhoneDevices, settings: ProgramSettings
) -> None:
    """The used code stood there until the dialog was closed, and the switch behind it was off."""
    dialog = open_dialog(page)
    press(dialog, "Turn the page on at this address")
    assert "ABCDE-FGHJ1" in texts(dialog)
    devices.devices = [
        *devices.devices,
        PhoneDevice("new", "My phone", may_allow=True, last_used=0),
    ]
    page._fetch_devices()
    assert "My phone is paired now." in texts(dialog)
    assert "ABCDE-FGHJ1" not in texts(dialog)
    (switch,) = page.page_content.findChildren(QCheckBox, PAGE_ON.key)
    assert not switch.isChecked()
    dialog.accept()
    assert switch.isChecked()


def test_no_picture_is_shown_that_would_lead_a_phone_to_itself(
    page: PhoneSettingsPage, devices: FakePhoneDevices, settings: ProgramSettings
) -> None:
    """A phone that read the picture was sent to its own 127.0.0.1."""
    devices.page_address = "http://127.0.0.1:4357/pair"
    devices.fingerprint = ""
    settings.change_setting(PAGE_ON, True)
    dialog = open_dialog(page)
    shown = texts(dialog)
    assert "http://127.0.0.1:4357/pair" in shown
    assert "Only this computer can open this address" in shown
    (picture,) = [each for each in dialog.findChildren(QLabel) if not each.pixmap().isNull()]
    assert picture.isHidden()

    (address,) = dialog.findChildren(QComboBox)
    address.setCurrentIndex(1)
    assert "ABCDE-FGHJ1" not in texts(dialog)
    press(dialog, "Move the page to this address")
    assert settings[PAGE_ADDRESS] == "10.8.0.2"
    assert not picture.isHidden()


def test_a_page_that_cannot_answer_has_no_code(
    page: PhoneSettingsPage, devices: FakePhoneDevices, settings: ProgramSettings
) -> None:
    devices.trouble = (
        "The page cannot answer at https://192.168.1.20:4357/: Address already in use."
    )
    dialog = open_dialog(page)
    press(dialog, "Turn the page on at this address")
    assert "Address already in use" in texts(dialog)
    assert devices.invited == []
    devices.trouble = ""
    press(dialog, "Turn the page on at this address")
    assert "ABCDE-FGHJ1" in texts(dialog)


def dark_at(picture: QImage, row: int, column: int) -> bool:
    middle = MODULE_PIXELS // 2
    return (
        picture.pixelColor(
            column * MODULE_PIXELS + middle, row * MODULE_PIXELS + middle
        ).lightness()
        < 128
    )


def test_another_right_needs_another_code(
    page: PhoneSettingsPage, devices: FakePhoneDevices, settings: ProgramSettings
) -> None:
    settings.change_setting(PAGE_ADDRESS, "192.168.1.20")
    settings.change_setting(PAGE_ON, True)
    dialog = open_dialog(page)
    (only_looks,) = dialog.findChildren(QCheckBox)
    only_looks.setChecked(True)
    assert devices.invited == [True, False]
    assert "ABCDE-FGHJ2" in texts(dialog)
