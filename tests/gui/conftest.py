"""The tests of the window run without a screen. One application for all of them, as Qt wants it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QEvent, QLocale, Qt
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.program_settings import ProgramSettings
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench, now

QLocale.setDefault(QLocale("en_GB"))  # as the window does before anything is shown


@pytest.fixture(scope="session")
def application() -> QApplication:
    found = QApplication.instance()
    return found if isinstance(found, QApplication) else QApplication(["helix-tests"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Cycles with Qt objects in them go here, on their own thread: a later test's
    thread may not end their timers.

    After the last test of a file, when pytest has let go of what that test was given as well.
    What is left then stays to the end: no later collection looks through it again.
    """
    done = yield
    if item.path.is_relative_to(Path(__file__).parent) and (
        nextitem is None or nextitem.path != item.path
    ):
        gc.collect()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        gc.collect()
        gc.freeze()
    return done


@pytest.fixture(autouse=True)
def _slots_succeed() -> Iterator[None]:
    """What is raised in a slot goes to the hook and nowhere else; here it fails the test."""
    raised: list[BaseException] = []
    before = sys.excepthook
    sys.excepthook = lambda _kind, error, _trace: raised.append(error)
    yield
    sys.excepthook = before
    if raised:
        raise raised[0]


@pytest.fixture
def theme(application: QApplication) -> Iterator[Theme]:
    made = Theme(scheme="light")
    made.apply_to_application()
    yield made
    for widget in QApplication.topLevelWidgets():
        widget.close()
        # A completer deletes its list itself, and fails if somebody else has.
        if widget.windowType() is not Qt.WindowType.Popup:
            widget.deleteLater()
    made.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@pytest.fixture
def state_file(tmp_path: Path, application: QApplication) -> Iterator[WindowStateFile]:
    """Gone with its timer on this thread, and not when a later test's thread collects it."""
    made = WindowStateFile(tmp_path / "window.json")
    yield made
    made.deleteLater()


@pytest.fixture
def settings(tmp_path: Path) -> ProgramSettings:
    return ProgramSettings(tmp_path / "settings.toml")


@pytest.fixture
def doing(application: QApplication) -> BackgroundRunner:
    return BackgroundRunner(now)


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk()


@pytest.fixture
def window(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    desk: FakeDesk,
) -> MainWindow:
    """The whole window on the desk in memory, the conversation of the pictures open."""
    state_file.remember_value("conversation", "storage-engine", value=story.CONVERSATION)
    made = MainWindow(theme, state_file, settings, doing)
    made.workspaces.set_workspaces_and_start(desk)
    made.resize(1440, 900)
    made.show()
    return made


@pytest.fixture
def bench(desk: FakeDesk) -> FakeWorkbench:
    return desk.benches["storage-engine"]


@pytest.fixture
def session(window: MainWindow, bench: FakeWorkbench) -> FakeSession:
    return bench.sessions[story.CONVERSATION]
