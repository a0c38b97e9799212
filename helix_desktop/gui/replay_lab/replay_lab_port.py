"""What the replay lab requests and receives; implemented by `desktop/replay_process.py`."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.workbench_types import Workbench

RunReplay = Callable[
    [Workbench, Sequence[str], Sequence[str], int, Callable[[int, int], None]],
    Coroutine[Any, Any, Sequence["PolicyOutcome"]],
]


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """What one policy would have cost, in tokens at the input price. `peak`: the window's share of
    the largest request, refused above 1. `in_view`: how much of what was needed again was in view.
    `sent`: the plain tokens of all its requests, which are compared if nothing has a price.
    `is_real`: the conversations were held with this policy, and this is what they really sent.
    `share_from_meter`: what it would have cost in proportion to what was paid, on the scale of the
    figures from which the meter says what was saved; 0 where only the simulation says something.
    """

    policy: str
    billed: int
    peak: float
    in_view: float
    sent: int = 0
    is_real: bool = False
    share_from_meter: float = 0.0
