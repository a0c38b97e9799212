"""What holds for every test: a home of its own, no network beyond this machine, and no surprises.

The login shell is `sh`: what a developer's own shell reads first may take seconds each
time, or never end.

A test fails on a log record of WARNING or above, and on a warning of Qt, that it did
not announce with `expect`; without one that it announced; and on any attempt to reach
another machine. Random examples are the same on every run.
"""

from __future__ import annotations

import gc
import ipaddress
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from helix_desktop.phone_page.own_addresses import list_own_addresses

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["PYTHON_KEYRING_BACKEND"] = (
    "keyring.backends.fail.Keyring"  # the developer's own keys are out of reach
)
# The developer's own bus is out of reach, too. Without an address, each screen would
# start a bus that stays.
os.environ["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nowhere"
os.environ["SHELL"] = "/bin/sh"
for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
    os.environ.pop(variable, None)
    os.environ.pop(variable.lower(), None)
# Constants of the modules that happen to be loaded would be tried as well: other ones
# with every order of the tests.
vars(providers)["_get_local_constants"] = lambda: providers._local_constants
settings.register_profile(
    "same on every run",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same on every run")

# These wait for kills, screens and other computers more than they use the processor.
WAITING = (
    "tests/faults/",
    "tests/gateway/test_killed_gateway.py",
    "tests/gui/test_walk_",
    "tests/resident/test_history_recorder.py",
    "tests/resident/test_resident_process.py",
    "tests/workspace_host/test_ssh_host.py",
)

# What Qt says on the offscreen platform whatever a program does.
QT_ALWAYS_SAYS = re.compile(
    r"does not support propagateSizeHints|does not support raise\(\)|does not support grabbing"
)


class Surprises(logging.Handler):
    """What was said in a test that nobody expected, in words."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.expected: list[re.Pattern[str]] = []
        self.certain: list[re.Pattern[str]] = []
        self.reached: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.hear(f"{record.levelname} {record.name}: {record.getMessage()}")

    def hear(self, words: str) -> None:
        self.said.append(words)

    def unexpected(self) -> list[str]:
        return [
            words
            for words in self.said
            if not any(pattern.search(words) for pattern in self.expected)
        ]

    def unheard(self) -> list[str]:
        """What was announced as certain, and never said."""
        return [
            pattern.pattern
            for pattern in self.certain
            if not any(pattern.search(words) for words in self.said)
        ]


SURPRISES = Surprises()


class Expect(Protocol):
    """`may_be_missing`: it depends on the machine, or on chance, whether it is said."""

    def __call__(self, pattern: str, *, may_be_missing: bool = False) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seconds",
        type=float,
        help="start no further test after so long, and say how many were left",
    )


class TimeBox:
    """Leaves out the tests that would begin too late, and says at the end how many those were."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.left_out = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        late = time.monotonic() > self.end
        self.left_out += late
        return True if late else None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.left_out:
            terminalreporter.write_line(f"Not run, for lack of time: {self.left_out} tests")


def pytest_configure(config: pytest.Config) -> None:
    if seconds := config.getoption("--seconds"):
        config.pluginmanager.register(TimeBox(seconds))
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored where the tests run in the background: children too
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    logging.getLogger().addHandler(SURPRISES)
    sys.addaudithook(_stay_here)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits long is begun first, so that the others fill the processors meanwhile. At
    the end, one worker would wait alone.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing of the tests is garbage while they are collected, which each worker does
    anew for all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """The modules and all tests stay to the end: no collection of garbage needs to look
    through them, not even once.
    """
    gc.freeze()


def pytest_unconfigure() -> None:
    """What Qt says after Python has ended would crash it."""
    if "PySide6.QtCore" in sys.modules:
        from PySide6.QtCore import qInstallMessageHandler

        qInstallMessageHandler(None)


def _stay_here(event: str, arguments: tuple[object, ...]) -> None:
    """Refuse connections and look-ups that leave this machine, in whatever library they begin."""
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else ""
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if not _is_agent_present(host):
        SURPRISES.reached.append(f"{event} {host!r}")
        raise ConnectionRefusedError(f"a test tried to reach {host!r}")


def _is_agent_present(host: object) -> bool:
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        is_loopback = ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
    return is_loopback or name in list_own_addresses()


@pytest.fixture
def clocks_changed_today() -> Iterator[None]:
    """It is about one o'clock in the afternoon, and in the night the clocks went an hour ahead."""
    ahead = 12 - time.gmtime().tm_hour
    day = time.gmtime(time.time() + ahead * 3_600).tm_yday - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", f"AAA{-ahead}BBB,{day}/1,{(day + 100) % 365}/1")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """For tests that parse hundreds of files, which are looked through for garbage again and
    again: up to half of the processor's time that they take.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def expect() -> Expect:
    """`expect(pattern)`: a log record or a warning of Qt that matches belongs to this test, which
    fails without it.
    """

    def announce(pattern: str, *, may_be_missing: bool = False) -> None:
        compiled = re.compile(pattern)
        SURPRISES.expected.append(compiled)
        if not may_be_missing:
            SURPRISES.certain.append(compiled)

    return announce


@pytest.fixture(autouse=True)
def _guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    SURPRISES.said.clear()
    SURPRISES.expected.clear()
    SURPRISES.certain.clear()
    SURPRISES.reached.clear()
    monkeypatch.setenv("HELIX_HOME", str(tmp_path / "helix home"))
    _listen_to_qt()
    yield
    if SURPRISES.reached:
        pytest.fail(f"reached beyond this machine: {SURPRISES.reached}")
    if unexpected := SURPRISES.unexpected():
        pytest.fail("said without being expected:\n" + "\n".join(unexpected))
    if unheard := SURPRISES.unheard():
        pytest.fail("expected and never said:\n" + "\n".join(unheard))


def _listen_to_qt() -> None:
    if "PySide6.QtCore" not in sys.modules:
        return
    from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

    def hear(kind: QtMsgType, _context: QMessageLogContext, words: str) -> None:
        if kind not in {QtMsgType.QtDebugMsg, QtMsgType.QtInfoMsg} and not QT_ALWAYS_SAYS.search(
            words
        ):
            SURPRISES.hear(f"Qt: {words}")

    qInstallMessageHandler(hear)
