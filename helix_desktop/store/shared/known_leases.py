"""Remembers which machine may write to which conversation, as far as this one knows."""

import sys
import time
from collections.abc import Callable

from helix_desktop.store.shared.sync_state import SharedProgress

_LONGEST_SECONDS = 3600.0


def seconds_since_start_of_computer() -> float:
    """Return seconds that also count sleep, unlike Python's monotonic clock on Linux and macOS."""
    if sys.platform == "win32":
        return time.monotonic()
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class KnownLeases:
    """`machine` is this one. `now` only measures how long ago the engine was asked."""

    def __init__(self, machine: bytes, now: Callable[[], float]) -> None:
        self._machine = machine
        self._now = now
        self._ends: dict[str, float] = {}  # When each lease ends, by the clock `now`.
        self._writers: dict[str, tuple[bytes, str]] = {}
        self.taken_over: set[str] = set()  # Conversations taken over here, but not leased yet.

    def find_machine_writing(self, conversation: str) -> str:
        """Return the other machine that writes there now, or an empty string if this one may."""
        if self.seconds_left(conversation) <= 0 or conversation in self.taken_over:
            return ""
        return self.last_other_machine(conversation)

    def conversations_written_elsewhere(self) -> dict[str, str]:
        """Return conversations to which other machines write now, and which machines."""
        now = self._now()
        self._ends = {name: end for name, end in self._ends.items() if end > now}
        written_elsewhere = {}
        for conversation in self._ends:
            machine = self.find_machine_writing(conversation)
            if machine:
                written_elsewhere[conversation] = machine
        return written_elsewhere

    def list_held(self) -> list[str]:
        """Return conversations with a current lease, whoever has it."""
        return [name for name in self._ends if self.seconds_left(name) > 0]

    def last_other_machine(self, conversation: str) -> str:
        """Return the other machine that wrote there last, or an empty string if this one did."""
        writer, machine = self._writers.get(conversation, (b"", ""))
        if writer == self._machine:
            return ""
        return machine

    def seconds_left(self, conversation: str) -> float:
        return self._ends.get(conversation, 0.0) - self._now()

    def holds_lease(self, conversation: str, seconds: float) -> bool:
        """Whether only this machine may write there for so long."""
        writer, _ = self._writers.get(conversation, (b"", ""))
        return writer == self._machine and self.seconds_left(conversation) > seconds

    def set_lease_end(
        self, conversation: str, seconds: float, asked_at: float | None = None
    ) -> None:
        """Set the lease's end, so many seconds after `asked_at`, or from now."""
        # No engine of ours gives a lease for longer. Not a number is none.
        if not 0 <= seconds <= _LONGEST_SECONDS:
            seconds = 0.0
        if asked_at is None:
            asked_at = self._now()
        self._ends[conversation] = asked_at + seconds

    def set_writer_from_head(self, progress: SharedProgress) -> None:
        machine = ""
        if progress.contents is not None:
            machine = progress.contents.machine
        self._writers[progress.conversation] = (progress.writer, machine)
