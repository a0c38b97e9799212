"""The log: one JSON object on each line, in rotating files that only the user can read.

It says what happened and never what was said. As a second safeguard, every known secret, and
whatever looks like one, is removed from each line before it is written.
"""

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from helix_desktop.atomic_files import ensure_private_folder

BLOT = "█████"
KEPT_FILES = 4
LONGEST_MESSAGE = 2_000
# Shorter secrets, in characters, are not hidden, as this would also hide ordinary words.
SHORTEST_SECRET = 6
TALKATIVE = (
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "asyncio",
    "markdown_it",
    "qasync",
    "urllib3",
)
# Its warnings quote what a server sends, as often as it sends it: in seconds they would fill the log
# and take everything else out of it. The caller logs what fails.
QUOTING = ("mcp", "client")  # "client" is a name of the MCP SDK as well.

# Matches keys of well-known providers, bearer tokens, and passwords and tokens in URLs, up to the
# last @ before a slash.
LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|gh[opsur]|github_pat|AIza|hf|glpat|xox[abp])[-_A-Za-z0-9]{16,}"
    r"|(?<=[Bb]earer )[-\w.~+/]{8,}=*|(?<=://)[^/\s:@\"]*:[^/\s\"]+(?=@)"
    r"|(?<=https://)[^/\s:@\"]+(?=@)|(?<=[?&]key=)[^&\s\"]+"
)


class LogRedaction:
    """Removes known secrets and whatever looks like one."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def add_secret_to_redact(self, secret: str) -> None:
        if len(secret) >= SHORTEST_SECRET:
            self._known.add(secret)

    def __call__(self, text: str) -> str:
        for secret in self._known:
            text = text.replace(secret, BLOT).replace(json.dumps(secret)[1:-1], BLOT)
        return LOOKS_SECRET.sub(BLOT, text)


class JsonLogFormatter(logging.Formatter):
    def __init__(self, redaction: LogRedaction) -> None:
        super().__init__()
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "from": record.name.removeprefix("helix_desktop."),
            "says": record.getMessage()[:LONGEST_MESSAGE],
        }
        task = getattr(record, "taskName", None)  # Python 3.12 and newer set this.
        if task:
            said["task"] = task
        if record.threadName != threading.main_thread().name:
            said["thread"] = record.threadName
        if record.exc_info and record.exc_info[1] is not None:
            said |= _describe_trace(record.exc_info[1])
        return self._redaction(json.dumps(said, ensure_ascii=False))


def _describe_trace(error: BaseException) -> dict[str, Any]:
    """Returns the error's type and stack. Its message may quote the user, so it is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    words = ""
    if (
        isinstance(error, OSError) and error.strerror
    ):  # Words of the system, such as "No such file".
        words = error.strerror
    trace = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__qualname__, "words": words, "trace": trace}


class PrivateLogHandler(RotatingFileHandler):
    """A log file that only the user can read."""

    def _open(self) -> Any:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Says nothing about a full disk: it would be a traceback in the terminal. The
        log goes on when there is room.
        """
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def start_logging(
    folder: Path,
    redaction: LogRedaction,
    *,
    file: str = "helix",
    level: str = "info",
    megabytes: int = 5,
) -> Callable[[], None]:
    """Writes the log to a file of this process. Call the returned function to stop."""
    root = logging.getLogger()
    try:
        ensure_private_folder(folder)
        handler: logging.Handler = PrivateLogHandler(
            folder / f"{file}.log",
            maxBytes=megabytes * 1_000_000,
            backupCount=KEPT_FILES,
            encoding="utf-8",
        )
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(JsonLogFormatter(redaction))
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in QUOTING:
        logging.getLogger(name).setLevel(logging.CRITICAL)

    def stop_logging() -> None:
        root.removeHandler(handler)
        with suppress(OSError):  # What is left cannot be written on a full disk.
            handler.close()

    return stop_logging


def log_uncaught_errors() -> None:
    before = sys.excepthook

    def log_uncaught_in_main_thread(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            logging.getLogger("helix_desktop").critical("nobody caught this", exc_info=error)
        before(kind, error, trace)

    sys.excepthook = log_uncaught_in_main_thread
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_uncatchable


def _log_uncaught_in_thread(what: threading.ExceptHookArgs) -> None:
    thread = "a thread"
    if what.thread:
        thread = what.thread.name
    log = logging.getLogger("helix_desktop")
    log.critical("nobody caught this in %s", thread, exc_info=what.exc_value)


def _log_uncatchable(what: "sys.UnraisableHookArgs") -> None:
    """Logs an error that Python cannot raise, such as one in a destructor."""
    place = what.err_msg or "in a destructor"
    log = logging.getLogger("helix_desktop")
    log.error("nobody could catch this: %s", place, exc_info=what.exc_value)
