"""Allowing everything for one hour.

It is kept in memory alone: when the program or the workspace's host ends, the hour is over.
"""

import time
from collections.abc import Callable

ALLOW_ALL_FOR_AN_HOUR = "allow all for an hour"  # How the user's choice is called.
SECONDS_OF_ALLOWANCE = 3600.0


class TimedAllowance:
    """Whether the user allowed everything less than an hour ago.

    The hour is measured by two clocks, and the first that reaches its end ends it. The steady
    clock stands still while the computer sleeps. The clock of the date can be set back.
    """

    def __init__(
        self,
        read_date_clock: Callable[[], float] = time.time,
        read_steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_date_clock = read_date_clock
        self._read_steady_clock = read_steady_clock
        self.end_date = 0.0  # In seconds since 1970. 0: nothing is allowed.
        self._steady_end = 0.0

    def begin_hour(self) -> None:
        self.end_date = self._read_date_clock() + SECONDS_OF_ALLOWANCE
        self._steady_end = self._read_steady_clock() + SECONDS_OF_ALLOWANCE

    def end_hour(self) -> None:
        self.end_date = 0.0

    def is_hour_running(self) -> bool:
        """Say whether the hour still lasts. Once it is over, no clock that is set back revives it."""
        if self.end_date == 0.0:
            return False
        is_over_by_date = self._read_date_clock() >= self.end_date
        is_over_by_steady_clock = self._read_steady_clock() >= self._steady_end
        if is_over_by_date or is_over_by_steady_clock:
            self.end_hour()
            return False
        return True
