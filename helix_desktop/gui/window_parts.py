"""What every part of the window works with, and what the parts ask of each other."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner, CancellableWork
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.shown_state import ShownState
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.window_actions import ActionRegistry
from helix_desktop.program_settings import ProgramSettings

T = TypeVar("T")


class WindowRequests(QObject):
    """What one part of the window asks for without knowing which part will do it.

    `settings_wanted` carries a page's name, `place_wanted` a place to show, and `page_wanted` a
    page to switch to. `model_setup_wanted`: a model is needed before a message can be sent.
    `retry_wanted`: the user tries again, so what was refused before may be asked for once more.
    `file_wanted` carries the path of a file of the shown workspace, to be shown in the preview.
    `choices_changed`: the model, the policy or the permissions are others now.
    """

    settings_wanted = Signal(str)
    restart_wanted = Signal()
    place_wanted = Signal(object)
    page_wanted = Signal(str)
    file_wanted = Signal(str)
    model_setup_wanted = Signal()
    retry_wanted = Signal()
    conversation_list_changed = Signal()
    choices_changed = Signal()

    def request_conversation(self, workspace: str, conversation: str, seq: int = 0) -> None:
        self.place_wanted.emit(WindowPlace("conversation", workspace, conversation, seq))


@dataclass(frozen=True, eq=False)
class WindowParts:
    """Made once by the window and given to each of its parts. `widget` is the parent of dialogs."""

    widget: QWidget
    theme: Theme
    state_file: WindowStateFile
    settings: ProgramSettings
    runner: BackgroundRunner
    showing: ShownState
    notices: Notices
    actions: ActionRegistry
    requests: WindowRequests

    def run_for_window(
        self,
        work: Coroutine[Any, Any, T],
        *,
        then: Callable[[T], object] | None = None,
        failed: Callable[[Any], object] | None = None,
    ) -> CancellableWork:
        """Runs `work` in the background. `then` is called only while the window exists."""
        return self.runner.run_in_background(work, then=then, failed=failed, owner=self.widget)
