"""Types of the program behind the window: workspaces, an open workspace, a conversation. For
annotations only.

At run time they are `object`, so that the window does not wait for the workbench's
modules. No other module of the window names the workbench.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helix_desktop.acp_client.acp_agents import ListedAcpAgent
    from helix_desktop.acp_client.foreign_conversation import ForeignConversation
    from helix_desktop.doctor_findings import DoctorFinding
    from helix_desktop.engine.conversation import Conversation
    from helix_desktop.engine.conversation_context import NeededSummary
    from helix_desktop.engine.message_queue import MessageQueue
    from helix_desktop.engine.request_costs import CauseCost, RequestCost
    from helix_desktop.engine.session import Session
    from helix_desktop.mcp_client.hosted_server import McpConnectionStatus
    from helix_desktop.mcp_client.server_config import ServerConfig
    from helix_desktop.project.project_files import ProjectItems
    from helix_desktop.project.project_item import ProjectItem
    from helix_desktop.resident.connected_agents import ConnectedAgents
    from helix_desktop.store.all_workspaces import KnownWorkspace
    from helix_desktop.store.imported_proposals import ImportedQuestion
    from helix_desktop.store.stored_workspace import StoredWorkspace
    from helix_desktop.tools.changes.checkpoints import CheckpointProgress
    from helix_desktop.tools.home_access import HomeOpening
    from helix_desktop.workbench.all_workbenches import Workbenches
    from helix_desktop.workbench.branch_publishing import BranchCheck, BranchState, PullRequest
    from helix_desktop.workbench.conversation_sharing import SharingStatus
    from helix_desktop.workbench.copy_files import FolderCopy
    from helix_desktop.workbench.file_preview import PreviewedFile
    from helix_desktop.workbench.open_workbench import Workbench
    from helix_desktop.workbench.undo_and_change_list import FileChanges, FileUndoResult
else:

    def __getattr__(name: str) -> type:
        if name not in __all__:
            raise AttributeError(name)
        return object


__all__ = [
    "BranchCheck",
    "BranchState",
    "CauseCost",
    "CheckpointProgress",
    "ConnectedAgents",
    "Conversation",
    "DoctorFinding",
    "FileChanges",
    "FileUndoResult",
    "FolderCopy",
    "ForeignConversation",
    "HomeOpening",
    "ImportedQuestion",
    "KnownWorkspace",
    "ListedAcpAgent",
    "McpConnectionStatus",
    "MessageQueue",
    "NeededSummary",
    "PreviewedFile",
    "ProjectItem",
    "ProjectItems",
    "PullRequest",
    "RequestCost",
    "ServerConfig",
    "Session",
    "SharingStatus",
    "StoredWorkspace",
    "Workbench",
    "Workbenches",
]
