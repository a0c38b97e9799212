"""Keeps the page for phones running, in a process of its own that the network can reach."""

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

from helix_desktop import concurrency
from helix_desktop.processes.starter import (
    PIPE,
    ChildProcess,
    CommandAuthor,
    ProcessLaunch,
    close_or_kill_process,
    open_process,
)

START_SECONDS = 30.0
RESTART_PAUSE_SECONDS = 5.0
END_SECONDS = 5.0
LONGEST_TROUBLE = 1_000


class PageKeeper:
    """`command` starts this program. The page ends with its input, so also if we are killed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._argv = list(command) + ["resident", "page", "serve"]
        self._process: ChildProcess | None = None
        self._is_ending = threading.Event()
        self._has_ended = threading.Event()
        self._has_ended.set()
        self.is_wanted = False
        self.url = ""
        self.trouble = ""

    def page_status_as_json(self) -> dict[str, Any] | None:
        if not self.is_wanted:
            return None
        pid = 0
        if self._process is not None:
            pid = self._process.pid
        return {"pid": pid, "url": self.url, "trouble": self.trouble}

    def start_page(self) -> None:
        """Returns once the page answers, or has said why it cannot."""
        self.is_wanted = True
        self._is_ending = threading.Event()
        has_begun = threading.Event()
        self._has_ended.clear()
        concurrency.start_thread(
            lambda: self._run_page_again_and_again(self._is_ending, has_begun),
            name="keep the page for phones",
            daemon=True,
        )
        has_begun.wait(START_SECONDS)

    def stop_page(self) -> None:
        self.is_wanted = False
        self._is_ending.set()
        process = self._process
        if process is not None:
            close_or_kill_process(process, END_SECONDS)
        # The next page listens at the same place, so it cannot start before this one has left it.
        self._has_ended.wait(END_SECONDS)
        self._process = None
        self.url = ""
        self.trouble = ""

    def _run_page_again_and_again(
        self, is_ending: threading.Event, has_begun: threading.Event
    ) -> None:
        while not is_ending.is_set():
            self._run_page_once(is_ending, has_begun)
            has_begun.set()
            is_ending.wait(RESTART_PAUSE_SECONDS)
        self._has_ended.set()

    def _run_page_once(self, is_ending: threading.Event, has_begun: threading.Event) -> None:
        launch = ProcessLaunch(CommandAuthor.PROGRAM, self._argv, has_own_session=True)
        try:
            process = open_process(launch, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        except OSError as error:
            self.trouble = f"The page could not be started: {error.strerror}."
            return
        self._process = process
        if is_ending.is_set():
            close_or_kill_process(process, END_SECONDS)
            return
        printed_url = _read_printed_line(process.stdout)
        if printed_url:
            self.url = printed_url
            self.trouble = ""
            has_begun.set()
        process.wait()
        if not is_ending.is_set():
            self.url = ""
            self.trouble = _read_printed_line(process.stderr) or "The page ended."
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _read_printed_line(stream: Any) -> str:
    """Returns the first line of what a process printed, or an empty string at its end."""
    if stream is None:
        return ""
    try:
        line = stream.readline(LONGEST_TROUBLE)
    except (OSError, ValueError):  # It was closed meanwhile.
        return ""
    if isinstance(line, bytes):
        line = line.decode("utf-8", "replace")
    return str(line).strip()
