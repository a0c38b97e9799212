"""When each conversation was last used, so that their order is the order in which it happened.

The times in the journal are what the computer's clock said, and it may have been set in between:
what was used while it was a year ahead would stand above everything for a year. The numbers of the
journal's facts only grow, whatever the clock says.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass

# A use that is further in the future than this was dated by a clock that was ahead.
TOLERATED_SECONDS = 60.0
# If the clock and the monotonic one differ by so much more than before, the clock was set.
NOTICED_SECONDS = 2.0
# Uses without a believable time follow those before them by so much, so that they stay in order.
STEP_SECONDS = 1e-4


@dataclass(frozen=True, slots=True)
class Use:
    """The last use of a conversation: its number in the order of all uses, and its recorded time."""

    number: int
    time: float


def believable_times(uses: Mapping[str, Use], now: float) -> dict[str, float]:
    """Return a time for each last use, so that a later use has a later time.

    Most recorded times are believed: as many as are in the order of their numbers, and not in the
    future. A use with another time, while the clock was ahead or behind, happened right after the
    one before it, as far as anybody knows.
    """
    ordered = sorted(uses, key=lambda name: uses[name].number)
    believed = _longest_in_order(ordered, uses, now + TOLERATED_SECONDS)
    times: dict[str, float] = {}
    undated: list[str] = []  # Before the first use that is believed.
    latest: float | None = None
    for name in ordered:
        if name in believed:
            recorded_time = uses[name].time
            if latest is None or recorded_time > latest:
                latest = recorded_time
            else:
                latest += STEP_SECONDS
        elif latest is None:
            undated.append(name)
            continue
        else:
            latest += STEP_SECONDS
        times[name] = latest

    earliest = now
    if times:
        earliest = min(times.values())
    for steps, name in enumerate(reversed(undated), 1):
        times[name] = earliest - steps * STEP_SECONDS
    return times


def _longest_in_order(
    ordered: Sequence[str], uses: Mapping[str, Use], latest_possible: float
) -> set[str]:
    """Return the most uses whose times do not decrease, and that are not in the future.

    Of two series of the same length, the later times are believed: a clock that lost its battery
    is decades behind.
    """
    # From the last use to the first, so that what is older has a higher age. For each length, the
    # lowest age with which a series of this length ends, and whose it is.
    last_ages: list[float] = []
    last_names: list[str] = []
    next_name: dict[str, str] = {}
    for name in reversed(ordered):
        age = latest_possible - uses[name].time
        if age < 0:
            continue
        length = bisect_right(last_ages, age)
        if length:
            next_name[name] = last_names[length - 1]
        if length == len(last_ages):
            last_ages.append(age)
            last_names.append(name)
        else:
            last_ages[length] = age
            last_names[length] = name

    believed: set[str] = set()
    if last_names:
        believed_name: str | None = last_names[-1]
        while believed_name is not None:
            believed.add(believed_name)
            believed_name = next_name.get(believed_name)
    return believed


@dataclass(slots=True)
class TimesOfLastUse:
    """The times of the conversations that are written here, by this computer's clock."""

    read_clock: Callable[[], float] = time.time
    read_steady_clock: Callable[[], float] = time.monotonic
    _uses: dict[str, Use] = field(default_factory=dict)
    _last_number: int = 0
    _latest: float = 0.0  # The latest time that a conversation was given.
    _seconds_between_clocks: float = 0.0

    def set_all_uses(self, uses: Mapping[str, Use]) -> dict[str, float]:
        """Replace what is known, and return the times."""
        self._uses = dict(uses)
        self._last_number = max((use.number for use in uses.values()), default=0)
        return self._date_all_uses()

    def note_use(self, conversation: str, recorded_time: float) -> dict[str, float]:
        """Return the time of the newest use of all, and those of other conversations where the
        clock was set since.
        """
        self._last_number += 1
        self._uses[conversation] = Use(self._last_number, recorded_time)
        seconds_between = self.read_clock() - self.read_steady_clock()
        was_set = abs(seconds_between - self._seconds_between_clocks) > NOTICED_SECONDS
        if was_set or recorded_time <= self._latest:
            return self._date_all_uses()
        self._latest = recorded_time
        return {conversation: recorded_time}

    def forget_conversations(self, conversations: Iterable[str]) -> None:
        for conversation in conversations:
            self._uses.pop(conversation, None)

    def _date_all_uses(self) -> dict[str, float]:
        now = self.read_clock()
        self._seconds_between_clocks = now - self.read_steady_clock()
        times = believable_times(self._uses, now)
        self._latest = max(times.values(), default=0.0)
        return times
