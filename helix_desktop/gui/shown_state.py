"""Holds which workspace, conversation, page and moment the window shows, and notifies listeners of
changes.

The signals carry no values; listeners read the new state. `about_to_change` is emitted before the
workspace or conversation changes, to save what belongs to the old one.
"""

from PySide6.QtCore import QObject, Signal

from helix_desktop.gui.shown_workspace import (
    ShownSession,
    ShownWorkspace,
    session_of_this_process,
    workbench_of_shown,
)
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Session, Workbench


class ShownState(QObject):
    """Changed only through its methods. `moment`: the newest fact that is shown, or
    None for the present.
    """

    about_to_change = Signal()
    workspace_changed = Signal()
    conversation_changed = Signal()
    page_changed = Signal()
    moment_changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.workspace: ShownWorkspace | None = None
        self.conversation: ShownSession | None = None
        self.page = "chat"
        self.moment: int | None = None

    @property
    def bench(self) -> Workbench | None:
        """The shown workspace, if it is open in this process. Most pages can show no other."""
        return workbench_of_shown(self.workspace)

    @property
    def session(self) -> Session | None:
        """The shown conversation, if its workspace is open in this process."""
        return session_of_this_process(self.workspace, self.conversation)

    @property
    def workspace_id(self) -> str:
        if self.workspace is None:
            return ""
        return self.workspace.id

    def has_workspace(self) -> bool:
        return self.workspace is not None

    def has_workbench(self) -> bool:
        """Whether the shown workspace is open in this process."""
        return self.bench is not None

    @property
    def conversation_id(self) -> str:
        if self.conversation is None:
            return ""
        return self.conversation.id

    def has_conversation(self) -> bool:
        return self.conversation is not None

    def sends_its_requests(self) -> bool:
        """Whether a conversation is shown whose requests this program sends, and can shorten. What
        another agent sends is its own affair.
        """
        return self.conversation is not None and not self.foreign_agent

    def has_own_session(self) -> bool:
        """Whether a conversation is shown, of a workspace that is open in this process."""
        return self.session is not None

    def describe_missing_workspace(self) -> str:
        return tr("Open a folder as a workspace first.")

    def describe_missing_workbench(self) -> str:
        if self.workspace is None:
            return self.describe_missing_workspace()
        return tr("This is done where the workspace was opened first: in another window, or on the other computer.")  # fmt: skip

    def describe_missing_conversation(self) -> str:
        if self.workspace is None:
            return self.describe_missing_workspace()
        return tr("Open a conversation first, or begin one with a message.")

    def describe_missing_session(self) -> str:
        if self.bench is None:
            return self.describe_missing_workbench()
        return self.describe_missing_conversation()

    def describe_who_sends_requests(self) -> str:
        if self.conversation is None:
            return self.describe_missing_conversation()
        return tr("Another agent works in this conversation, and decides itself what it sends.")

    @property
    def main_model(self) -> str:
        """The main model of the shown conversation, or of the workspace."""
        if self.workspace is None:
            return ""
        return self.workspace.model_of_conversation(self.conversation_id)

    @property
    def foreign_agent(self) -> str:
        """The other agent that works in the shown conversation, or an empty text."""
        if self.conversation is None:
            return ""
        return self.conversation.conversation.state.acp_agent

    def set_shown_workspace(self, workspace: ShownWorkspace | None) -> None:
        """Sets the workspace, or none, without a conversation."""
        self.about_to_change.emit()
        self.workspace = workspace
        self.conversation = None
        self.moment = None
        self.workspace_changed.emit()

    def set_shown_conversation(self, conversation: ShownSession | None) -> None:
        self.about_to_change.emit()
        self.conversation = conversation
        self.moment = None
        self.conversation_changed.emit()

    def set_shown_page(self, page: str) -> None:
        self.page = page
        self.page_changed.emit()

    def set_shown_moment(self, seq: int | None) -> None:
        """Sets an earlier moment of the conversation, or None for the present."""
        if seq != self.moment:
            self.moment = seq
            self.moment_changed.emit()
