from __future__ import annotations

import inspect

import shiboken6
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import HelixError, NotFound, StoppedByUser
from helix_desktop.gui.background_runner import BackgroundRunner
from tests.gui.fake_desk import now


async def gives(value: int) -> int:
    return value


async def fails(error: Exception) -> int:
    raise error


def test_the_result_goes_on_and_an_error_becomes_a_notice(application: QApplication) -> None:
    doing = BackgroundRunner(now)
    results: list[int] = []
    errors: list[HelixError] = []
    doing.failed.connect(errors.append)
    doing.run_in_background(gives(7), then=results.append)
    doing.run_in_background(fails(NotFound("gone")), then=results.append)
    assert results == [7]
    assert [error.what for error in errors] == ["gone"]


def test_an_error_goes_to_the_place_it_belongs_to(application: QApplication) -> None:
    doing = BackgroundRunner(now)
    here: list[HelixError] = []
    everywhere: list[HelixError] = []
    doing.failed.connect(everywhere.append)
    doing.run_in_background(fails(NotFound("gone")), failed=here.append)
    assert len(here) == 1
    assert not everywhere


def test_nothing_is_said_of_what_the_user_stopped(application: QApplication) -> None:
    doing = BackgroundRunner(now)
    errors: list[HelixError] = []
    doing.failed.connect(errors.append)
    doing.run_in_background(fails(StoppedByUser("stopped")))
    assert not errors


async def test_while_the_window_closes_nothing_is_begun_and_nothing_breaks(
    application: QApplication,
) -> None:
    owner = OwnedTasks("window")
    await owner.aclose(limit=1)
    doing = BackgroundRunner(owner.spawn_task)
    results: list[int] = []
    work = gives(7)
    assert not doing.run_in_background(work, then=results.append).cancel()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    assert not results


async def test_work_that_is_stopped_before_its_first_step_is_closed(
    application: QApplication,
) -> None:
    owner = OwnedTasks("window")
    doing = BackgroundRunner(owner.spawn_task)
    work = gives(7)
    doing.run_in_background(work)
    await owner.aclose(limit=1)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_a_widget_that_is_gone_hears_nothing(application: QApplication) -> None:
    doing = BackgroundRunner(now)
    results: list[int] = []
    owner = QObject()
    shiboken6.delete(owner)
    doing.run_in_background(gives(7), then=results.append, owner=owner)
    assert not results


def test_an_error_is_heard_of_though_its_place_is_gone(application: QApplication) -> None:
    doing = BackgroundRunner(now)
    here: list[HelixError] = []
    everywhere: list[HelixError] = []
    owner = QObject()
    doing.failed.connect(everywhere.append)
    shiboken6.delete(owner)
    doing.run_in_background(fails(NotFound("gone")), owner=owner, failed=here.append)
    assert not here
    assert [error.what for error in everywhere] == ["gone"]
