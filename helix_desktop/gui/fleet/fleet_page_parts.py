"""What every page of the fleet works with."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.workbench_types import Workbenches


class RunFleetWork(Protocol):
    """Runs work in the background, and shows an error of it above the pages. `then` gets what it
    returned.
    """

    def __call__(
        self, work: Coroutine[Any, Any, Any], then: Callable[[Any], object] | None = None, /
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class FleetPageParts:
    """`names` maps ids of workspaces to names. `open_conversation` and `open_changes` get a
    workspace and a conversation, and close the fleet's window.
    """

    desk: Workbenches
    names: Mapping[str, str]
    open_conversation: Callable[[str, str], object]
    open_changes: Callable[[str, str], object]
    run_work: RunFleetWork
