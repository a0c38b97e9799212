"""The tests of the window run without a screen. One application for all of them, as Qt wants it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui.theme import Theme


@pytest.fixture(scope="session")
def application() -> QApplication:
    found = QApplication.instance()
    return found if isinstance(found, QApplication) else QApplication(["helix-tests"])


@pytest.fixture
def theme(application: QApplication) -> Iterator[Theme]:
    made = Theme(scheme="light")
    made.apply()
    yield made
    for widget in QApplication.topLevelWidgets():
        _dispose(widget)
    made.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def _dispose(widget: QWidget) -> None:
    widget.close()
    widget.deleteLater()
