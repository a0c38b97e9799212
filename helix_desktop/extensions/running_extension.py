"""An extension whose code runs in this process, and when its failures switch it off."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TypeVar

from helix_desktop.extensions.extension_interfaces import Extension
from helix_desktop.extensions.installed_extensions import (
    AllowedExtensions,
    InstalledExtension,
    describe_failed_extension,
)
from helix_desktop.extensions.limited_calls import (
    ExtensionFailed,
    ExtensionHung,
    run_with_limit,
)
from helix_desktop.fast_dataclass import dataclass

MOST_FAILURES = 3  # So many failed calls in a row switch an extension off until the next start.
T = TypeVar("T")
Withdraw = Callable[[], None]


@dataclass(slots=True)
class RunningExtension:
    """An extension whose code was loaded. `stopped_because`: why it is not used any more.

    `complaints`: what the user is told of all extensions. `failures`: for each of its functions,
    how many calls in a row have failed.
    """

    installed: InstalledExtension
    declared: Extension
    decisions: AllowedExtensions
    complaints: list[str]
    withdraws: Sequence[Withdraw] = ()
    stopped_because: str = ""
    failures: Counter[str] = field(default_factory=Counter)

    def run_and_count(self, work: Callable[[], T], seconds: float, function: str) -> T:
        """Return what a function of the extension returns. Raises ExtensionFailed if it raises or
        does not return in time, and counts that.
        """
        try:
            result = run_with_limit(work, seconds, function)
        except ExtensionHung as error:
            self.note_hanging(error.what)
            raise
        except ExtensionFailed as error:
            self.note_failure(function, error.what)
            raise
        self.note_success(function)
        return result

    def note_success(self, function: str) -> None:
        del self.failures[function]

    def note_failure(self, function: str, why: str) -> None:
        """Count a failed call. Several in a row switch the extension off until the next start."""
        self.failures[function] += 1
        if self.failures[function] >= MOST_FAILURES:
            self._stop_using_it(why)

    def note_hanging(self, why: str) -> None:
        """Switch off an extension that would hang again after the next start."""
        self.decisions.switch_off_failed(self.installed, why)
        self._stop_using_it(why)

    def _stop_using_it(self, why: str) -> None:
        if self.stopped_because:
            return
        self.stopped_because = why
        self.complaints.append(describe_failed_extension(self.installed, why))
