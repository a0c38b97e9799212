"""What the replay lab asks for and what comes back; see `desktop/replay_process.py`."""

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
    """What one policy would have cost in some conversations. `billed` counts tokens at the input price, including recalls and
    tools; `plain_billed` is the same without folding; `in_view`: the share of what was used again that still stood there.
    """

    policy: str
    billed: int
    plain_billed: int
    peak: float
    in_view: float

    @property
    def cost_share(self) -> float:
        """The cost as a share of sending everything each time."""
        return self.billed / self.plain_billed if self.plain_billed else 1.0
