"""Paired devices in the settings: who may use the page, revoking one, and pairing another."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import (
    QComboBox,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QWidget,
)

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.pair_device_dialog import PairDeviceDialog
from helix_desktop.gui.settings.phone_notices_dialog import PhoneNoticesDialog
from helix_desktop.gui.settings.phone_settings_page import PhoneSettingsPage
from helix_desktop.program_settings import PAGE_ADDRESS, PAGE_ON, PAGE_WEBHOOK, ProgramSettings
from tests.gui.fake_setup import FakePhoneDevices


@pytest.fixture
def devices() -> FakePhoneDevices:
    return FakePhoneDevices()


@pytest.fixture
def page(
    window: MainWindow, settings: ProgramSettings, devices: FakePhoneDevices
) -> PhoneSettingsPage:
    made = PhoneSettingsPage(settings, devices, window.background_runner)
    made.setParent(window)
    return made


def texts(shown: QWidget) -> str:
    labels = shown.findChildren(QLabel)
    return "\n".join(label.text() for label in labels if not label.isHidden())


def press(shown: QWidget, name: str) -> None:
    (button,) = [
        each
        for each in shown.findChildren(QPushButton)
        if name in (each.text(), each.accessibleName())
    ]
    button.click()


def open_dialog(page: PhoneSettingsPage) -> PairDeviceDialog:
    press(page.page_content, "Pair a device…")
    (dialog,) = page.findChildren(PairDeviceDialog)
    return dialog


def test_devices_are_listed_with_what_they_may_do(page: PhoneSettingsPage) -> None:
    shown = texts(page.page_content)
    assert "Pixel" in shown
    assert "may look, allow once, and send messages" in shown
    assert "may only look" in shown


def test_a_revoked_device_is_gone_after_a_question(
    page: PhoneSettingsPage, devices: FakePhoneDevices
) -> None:
    press(page.page_content, "Revoke Pixel")
    (question,) = page.findChildren(QMessageBox)
    assert [device.name for device in devices.devices] == ["Pixel", "Kitchen tablet"]
    press(question, "Revoke")
    assert [device.name for device in devices.devices] == ["Kitchen tablet"]
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert "Pixel" not in texts(page.page_content)


def test_the_page_is_turned_on_where_a_phone_reaches_it(
    page: PhoneSettingsPage, devices: FakePhoneDevices, settings: ProgramSettings
) -> None:
    """The dialog showed a code for a page that was off, and had no way to turn it on."""
    dialog = open_dialog(page)
    (address,) = dialog.findChildren(QComboBox)
    offered = [address.itemText(row) for row in range(address.count())]
    assert offered == [
        "192.168.1.20 (devices in the same network)",
        "10.8.0.2 (devices in the same network)",
        "127.0.0.1 (this computer only)",
    ]
    assert address.currentData() == "192.168.1.20"
    assert devices.invited == []
    assert not settings[PAGE_ON]
    press(dialog, "Turn the page on at this address")
    assert settings[PAGE_ON]
    assert settings[PAGE_ADDRESS] == "192.168.1.20"
    assert devices.restarts == 1
    assert "ABCDE-FGHJ1" in texts(dialog)


def test_notices_are_set_up_and_tried(page: PhoneSettingsPage, settings: ProgramSettings) -> None:
    press(page.page_content, "Notices on your phone…")
    (dialog,) = page.findChildren(PhoneNoticesDialog)
    address = dialog.findChild(QLineEdit, PAGE_WEBHOOK.key)
    assert isinstance(address, QLineEdit)
    address.setText("https://ntfy.sh/a-name")
    address.editingFinished.emit()
    assert settings[PAGE_WEBHOOK] == "https://ntfy.sh/a-name"
    press(dialog, "Send a test")
    assert "The test was taken." in texts(dialog)
    press(dialog, "Send a test")
    assert "did not take the notice" in texts(dialog)
