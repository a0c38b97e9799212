"""Tells how old stored contents are, without trusting a clock that may have been set.

Computers start with a wrong clock: an empty battery, another system on the same disk, a machine
that was restored. If the clock is a year ahead, all that was stored yesterday looks a year old,
and if it was a year behind, so does all that was stored before it was corrected.
"""

from dataclasses import field

from helix_desktop.fast_dataclass import dataclass

# A pause of more than so many seconds between two entries may be a clock that was set.
LONGEST_CERTAIN_PAUSE = 7 * 86_400.0
# So many pauses since a content was stored are taken for a clock that was set. With more of them,
# the workspace is just used rarely, and its contents must not stay forever.
DOUBTED_PAUSES = 3


@dataclass(frozen=True, slots=True)
class _LongPause:
    begin: float
    seconds: float


@dataclass(slots=True)
class EntryTimes:
    """The times at which a cache's entries were stored, noted in the order of their numbers."""

    now: float
    latest: float | None = None
    _long_pauses: list[_LongPause] = field(default_factory=list)

    def note_entry_time(self, recorded_time: float) -> float:
        """Return when this entry was stored at the earliest.

        Entries are noted by their numbers, so none was stored before one with a lower number. If its
        recorded time is earlier than that of a lower number, the clock was behind, and the other
        entry's time counts.
        """
        if recorded_time > self.now:
            # The clock was ahead, or is behind now.
            return recorded_time
        if self.latest is None:
            self.latest = recorded_time
        elif recorded_time > self.latest:
            self._note_if_long_pause(self.latest, recorded_time)
            self.latest = recorded_time
        return self.latest

    def end_with_present(self) -> None:
        """Note the pause since the last entry."""
        if self.latest is not None:
            self._note_if_long_pause(self.latest, self.now)

    def _note_if_long_pause(self, begin: float, end: float) -> None:
        seconds = end - begin
        if seconds > LONGEST_CERTAIN_PAUSE:
            self._long_pauses.append(_LongPause(begin, seconds))

    def certain_age_seconds(self, stored_time: float) -> float:
        """Return how old an entry of this time is at least, in seconds.

        A long pause between two entries may be a clock that was set forward, and no time that
        really passed. The longest such pauses since the entry was stored are therefore not counted.
        """
        later_pauses: list[float] = []
        for pause in self._long_pauses:
            if pause.begin >= stored_time:
                later_pauses.append(pause.seconds)
        later_pauses.sort(reverse=True)
        doubted_seconds = sum(later_pauses[:DOUBTED_PAUSES])
        return self.now - stored_time - doubted_seconds
