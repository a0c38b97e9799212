"""What a check of the doctor says, in the program and in extensions."""

from enum import StrEnum

from helix_desktop.fast_dataclass import dataclass


class DoctorFindingState(StrEnum):
    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of a check: what was checked, its state, and what to do about it."""

    what: str
    state: DoctorFindingState
    says: str
    remedy: str = ""
