"""Lists, opens, creates and reopens workspaces, and follows what happens in the open ones."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from helix_desktop.engine.ports import ClosedSearchResult
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.gui.colours import WORKSPACE_COLOURS
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.frame.welcome_page import WelcomePage
from helix_desktop.gui.frame.workspace_rail import WorkspaceRail
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import (
    RememberedWorkspace,
    ShownWorkspace,
    WorkspaceConnections,
    client_of_host,
)
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import KnownWorkspace, Workbenches
from helix_desktop.gui.workspace_activity import WorkspaceActivity
from helix_desktop.json_values import text_at

LONGEST_NAME_LENGTH = 80  # A longer suggested name of a workspace is cut to this many characters.


def describe_opening(name: str) -> str:
    """Says that a workspace is being opened. `name` may be unknown."""
    if not name:
        return tr("Opening the workspace…")
    return tr("Opening {name}…", name=name)


class OpenWorkspaces(QObject):
    """`opened` carries a workspace that is to be shown now. `left`: the shown one was closed.

    `list_changed` and `settings_changed` carry the workspace, `state_changed` the activity of a
    workspace, a conversation and its new state, and `activity_ended` a workspace, a conversation,
    its state and why.
    """

    opened = Signal(object)
    left = Signal()
    list_changed = Signal(object)
    settings_changed = Signal(object)
    state_changed = Signal(object, str, object)
    activity_ended = Signal(str, str, object, str)

    def __init__(self, parts: WindowParts, rail: WorkspaceRail, welcome: WelcomePage) -> None:
        super().__init__(parts.widget)
        self._parts = parts
        self._rail = rail
        self._welcome = welcome
        self._desk: Workbenches | None = None
        self._connections: WorkspaceConnections | None = None
        # Called once the stores are open: the window is painted and used before that.
        self._startup_queue: list[Callable[[], object]] = []
        self._blocking_error: HelixError | None = None  # Why the stores cannot be opened.
        # The result of the last listing, kept because listing reads a file for each workspace.
        self.listed: Sequence[KnownWorkspace] = ()
        self.activity_by_workspace: dict[str, WorkspaceActivity] = {}
        # The workspace requested last. Results for other workspaces are ignored.
        self._wanted_workspace = ""

    @property
    def workbenches(self) -> Workbenches:
        """Available after `set_workspaces_and_start`; the window is painted before that."""
        if self._desk is None:
            raise ActionRefused(tr("Helix Desktop is still starting. Try again in a moment."))
        return self._desk

    @property
    def name_of_wanted_workspace(self) -> str:
        """Returns the name of the workspace that is being opened, as far as it is known."""
        row = self.row_of(self._wanted_workspace)
        if row is not None:
            return row.name
        # A folder stands for a workspace that is new, and before the listing there is only what
        # the window remembers of the last one.
        if Path(self._wanted_workspace).is_absolute():
            return Path(self._wanted_workspace).name
        return text_at(self._parts.state_file.get_remembered("box", default={}), "name")

    @property
    def is_started(self) -> bool:
        return self._desk is not None

    def set_workspaces_and_start(
        self, desk: Workbenches, connections: WorkspaceConnections | None = None
    ) -> None:
        """Without `connections`, workspaces are opened in this process alone."""
        self._desk = desk
        self._connections = connections
        self._welcome.enable_first_steps(ready=True)
        waiting_actions = self._startup_queue
        self._startup_queue = []
        for action in waiting_actions:
            action()
        self.open_last_workspace()

    def show_startup_error_and_block_actions(self, error: HelixError) -> None:
        """Shows why nothing can be opened, instead of the first steps."""
        self._blocking_error = error
        self._parts.requests.page_wanted.emit("welcome")
        sentences = translate_sentences(str(error))
        self._welcome.show_startup_problem(sentences)

    def run_unless_blocked(self, action: Callable[[], object]) -> None:
        """Calls `action`, or shows why the stores cannot be opened."""
        if self._blocking_error is not None:
            self._parts.notices.show_error_notice(self._blocking_error)
        else:
            action()

    # --- The list of all workspaces

    def refresh_workspaces(self, then: Callable[[], object] = lambda: None) -> None:
        """Lists all workspaces again, and calls `then` when they are shown."""
        listing = asyncio.to_thread(self.workbenches.list_workspaces)
        self._parts.run_for_window(listing, then=partial(self._show_listed_workspaces, then))

    def _show_listed_workspaces(
        self, then: Callable[[], object], rows: Sequence[KnownWorkspace]
    ) -> None:
        all_rows = list(rows)
        if self._connections is not None:
            all_rows += self._connections.list_remembered(self.read_remembered())
        self.listed = self._sort_workspaces_and_save_order(all_rows)
        self._rail.show_workspace_buttons(self.listed, self._parts.showing.workspace_id)
        for name, activity in self.activity_by_workspace.items():
            self._rail.show_workspace_state(name, activity.most_urgent_state)
        self._welcome.trash.hide()
        if not all_rows:
            self._offer_trashed_workspaces()
        then()

    def _offer_trashed_workspaces(self) -> None:
        """Whoever moved the last workspace to the trash would think that everything is gone."""
        listing = asyncio.to_thread(self.workbenches.list_workspaces, trashed=True)
        self._parts.run_for_window(listing, then=self._show_trash_if_not_empty)

    def _show_trash_if_not_empty(self, trashed: Sequence[KnownWorkspace]) -> None:
        self._welcome.trash.setVisible(bool(trashed))

    def _sort_workspaces_and_save_order(
        self, rows: Sequence[KnownWorkspace]
    ) -> Sequence[KnownWorkspace]:
        """Puts new workspaces last, so that Ctrl+1 to Ctrl+9 keep their meaning."""
        state_file = self._parts.state_file
        order: list[str] = list(state_file.get_remembered_in_any_window("rail", default=[]))
        for row in rows:
            if row.id not in order:
                order.append(row.id)
        listed_ids = {row.id for row in rows}
        state_file.remember_value("rail", value=[name for name in order if name in listed_ids])
        return sorted(rows, key=lambda row: order.index(row.id))

    def save_workspace_order(self, order: Sequence[str]) -> None:
        self._parts.state_file.remember_in_all_windows("rail", value=list(order))
        self.listed = self._sort_workspaces_and_save_order(self.listed)

    def row_of(self, workspace: str) -> KnownWorkspace | None:
        for row in self.listed:
            if row.id == workspace:
                return row
        return None

    def rows_of_others(self) -> list[KnownWorkspace]:
        """Returns the workspaces that are not shown."""
        return [row for row in self.listed if row.id != self._parts.showing.workspace_id]

    # --- Opening

    def go_to_workspace(self, workspace: str, then: Callable[[], object] = lambda: None) -> None:
        """Switches to a workspace; the others keep running. The last request wins."""
        self._wanted_workspace = workspace
        showing = self._parts.showing
        if showing.workspace is not None and showing.workspace_id == workspace:
            then()
            return
        if self._desk is None:
            self._do_after_start(partial(self.go_to_workspace, workspace, then))
            return
        self._parts.run_for_window(
            self._open_wherever_it_is(workspace),
            then=partial(self._show_workspace_if_wanted, workspace, then),
            failed=self._report_workspace_not_opened,
        )

    async def _open_wherever_it_is(self, workspace: str) -> ShownWorkspace:
        if self._connections is None:
            return await self.workbenches.open_workspace(workspace)
        remembered = self.find_remembered(workspace)
        if remembered is not None:
            return await self._connections.open_remembered(remembered)
        return await self._connections.open_workspace(workspace)

    async def search_workspace_not_shown(self, workspace: str, words: str) -> ClosedSearchResult:
        if self._connections is None:
            return await self.workbenches.search_closed_workspace(workspace, words)
        return await self._connections.search_workspace(workspace, words)

    def _show_workspace_if_wanted(
        self, workspace: str, then: Callable[[], object], bench: ShownWorkspace
    ) -> None:
        """Shows an opened workspace, unless the user has asked for another one meanwhile."""
        if self._wanted_workspace == workspace:
            self.bring_to_front(bench)
            then()

    def run_once_started(self, action: Callable[[], object]) -> None:
        """Calls `action` now, or once the stores are open."""
        if self._desk is None:
            self._do_after_start(action)
        else:
            action()

    def _do_after_start(self, action: Callable[[], object]) -> None:
        self.run_unless_blocked(partial(self._startup_queue.append, action))

    def bring_to_front(self, bench: ShownWorkspace) -> None:
        """Shows a workspace that is open, instead of any that is still being opened."""
        self._wanted_workspace = bench.id
        self.opened.emit(bench)

    def create_workspace_for_folder(self, folder: Path) -> None:
        # A folder stands for its workspace, which has no id yet.
        self._wanted_workspace = str(folder)
        if self._desk is None:
            self._do_after_start(partial(self.create_workspace_for_folder, folder))
            return
        self._parts.run_for_window(
            self._open_or_create_for_folder(folder),
            then=partial(self._show_workspace_of_folder, folder),
            failed=self._report_workspace_not_opened,
        )

    def _show_workspace_of_folder(self, folder: Path, bench: ShownWorkspace) -> None:
        if self._wanted_workspace == str(folder):
            self.bring_to_front(bench)
        else:
            self.refresh_workspaces()

    def _report_workspace_not_opened(self, error: HelixError) -> None:
        self._wanted_workspace = ""
        self._rail.mark_open_workspace(self._parts.showing.workspace_id)
        self._parts.notices.show_error_notice(error)
        if self._parts.showing.workspace is None:
            self._parts.requests.page_wanted.emit("welcome")

    async def _open_or_create_for_folder(self, folder: Path) -> ShownWorkspace:
        rows = await asyncio.to_thread(self.workbenches.list_workspaces)
        for row in rows:
            if row.first_folder == folder:
                return await self._open_wherever_it_is(row.id)
        colour = WORKSPACE_COLOURS[len(self.listed) % len(WORKSPACE_COLOURS)]
        bench = await self.workbenches.create_workspace(self.suggest_workspace_name(folder), folder)
        await self.workbenches.recolour_workspace(bench.id, colour)
        return bench

    # --- Folders on other computers

    @property
    def connections(self) -> WorkspaceConnections:
        if self._connections is None:
            raise ActionRefused(tr("Helix Desktop is still starting. Try again in a moment."))
        return self._connections

    def read_remembered(self) -> list[RememberedWorkspace]:
        """Returns the folders on other computers that the user has opened."""
        remembered: list[RememberedWorkspace] = []
        for entry in self._parts.state_file.get_remembered("elsewhere", default=list[object]()):
            if not isinstance(entry, dict):
                continue
            texts = [entry.get(key, "") for key in ("id", "address", "name", "colour")]
            # Anything else in the file is no such folder.
            if all(isinstance(text, str) for text in texts) and entry.get("id"):
                remembered.append(RememberedWorkspace(*texts))
        return remembered

    def find_remembered(self, workspace: str) -> RememberedWorkspace | None:
        for remembered in self.read_remembered():
            if remembered.id == workspace:
                return remembered
        return None

    def save_remembered(self, changed: RememberedWorkspace) -> None:
        """Adds a folder on another computer to the list, or replaces what is remembered of it."""
        kept = [entry for entry in self.read_remembered() if entry.id != changed.id]
        kept.append(changed)
        self._write_remembered(kept)

    def forget_remembered(self, workspace: str) -> None:
        """Takes a folder on another computer out of the list. Nothing changes over there."""
        kept = [entry for entry in self.read_remembered() if entry.id != workspace]
        self._write_remembered(kept)
        self.leave_trashed_workspace(workspace)
        self._parts.run_for_window(self.connections.close_client(workspace))

    def _write_remembered(self, remembered: Sequence[RememberedWorkspace]) -> None:
        values: list[dict[str, str]] = []
        for entry in remembered:
            values.append(
                {
                    "id": entry.id,
                    "address": entry.address,
                    "name": entry.name,
                    "colour": entry.colour,
                }
            )
        self._parts.state_file.remember_value("elsewhere", value=values)

    async def open_folder_elsewhere(self, address: str) -> ShownWorkspace:
        """Connects to a folder on another computer, and adds it to the list if that works."""
        new = self.connections.remember_address(address)
        remembered = self.find_remembered(new.id)
        if remembered is None:
            colour = WORKSPACE_COLOURS[len(self.listed) % len(WORKSPACE_COLOURS)]
            remembered = replace(new, colour=colour)
        workspace = await self.connections.open_remembered(remembered)
        self.save_remembered(replace(remembered, name=workspace.name or new.name))
        return workspace

    def open_again(self, workspace: str) -> None:
        """Opens a workspace of this computer here, because the process that had it has ended."""
        is_shown = self._parts.showing.workspace_id == workspace
        activity = self.activity_by_workspace.get(workspace)
        if activity is not None:  # What that process did, nobody does any more.
            for conversation in activity.conversations_in(*WORKING_STATES):
                self.state_changed.emit(activity, conversation, ConversationActivity.IDLE)
        self._rail.show_workspace_state(workspace, ConversationActivity.IDLE)
        self.stop_following_workspace(workspace)
        self._parts.run_for_window(self._close_client_and_open(workspace, is_shown=is_shown))

    async def _close_client_and_open(self, workspace: str, *, is_shown: bool) -> None:
        await self.connections.close_client(workspace)
        if is_shown:
            self.go_to_workspace(workspace)

    def suggest_workspace_name(self, folder: Path) -> str:
        """Returns the folder's name, with its parent folder if another workspace has that name."""
        used_names = {row.name.casefold() for row in self.listed}
        name = folder.name[:LONGEST_NAME_LENGTH] or str(folder)
        if name.casefold() not in used_names:
            return name
        name_with_parent = f"{name} ({folder.parent.name})"[:LONGEST_NAME_LENGTH]
        if name_with_parent.casefold() not in used_names:
            return name_with_parent
        number = f" ({len(used_names) + 1})"
        short_name = name[: LONGEST_NAME_LENGTH - len(number)]
        return f"{short_name}{number}"

    def open_last_workspace(self) -> None:
        """Opens the last workspace, or any other. Without one, shows the welcome page."""
        self.refresh_workspaces(self._open_last_or_first)

    def _open_last_or_first(self) -> None:
        # A workspace may have been requested meanwhile, as by the link the program started with.
        if self._wanted_workspace:
            return
        last_workspace = self._parts.state_file.get_remembered("workspace", default="")
        if self.row_of(last_workspace) is not None:
            self.go_to_workspace(last_workspace)
        elif self.listed:
            self.go_to_workspace(self.listed[0].id)
        else:
            self._parts.requests.page_wanted.emit("welcome")
            self._parts.actions.update_enabled()

    def change_and_reopen_workspace(
        self,
        workspace: str,
        change: Coroutine[Any, Any, ShownWorkspace],
        then: Callable[[ShownWorkspace], object] = lambda _bench: None,
    ) -> None:
        """Shows a workspace that `change` has changed and reopened. If that fails, reopens it
        unchanged.
        """
        self.stop_following_workspace(workspace)
        self._parts.run_for_window(
            change,
            then=partial(self._show_reopened, then),
            failed=partial(self._reopen_unchanged, workspace),
        )

    def _show_reopened(
        self, then: Callable[[ShownWorkspace], object], bench: ShownWorkspace
    ) -> None:
        if self._parts.showing.workspace is None:
            self.bring_to_front(bench)
        then(bench)

    def _reopen_unchanged(self, workspace: str, error: HelixError) -> None:
        if self._parts.showing.workspace is None:
            self.go_to_workspace(workspace)
        self._parts.notices.show_error_notice(error)

    def leave_trashed_workspace(self, workspace: str) -> None:
        """Shows another workspace or the welcome page, because this one was moved to the trash."""
        self.stop_following_workspace(workspace)
        if self._parts.showing.workspace is None:
            self.open_last_workspace()
        else:
            self.refresh_workspaces()

    # --- What happens in the open workspaces

    def follow_workspace(self, bench: ShownWorkspace) -> None:
        if bench.id in self.activity_by_workspace:
            return
        activity = WorkspaceActivity(bench, self._parts.state_file, self)
        self.activity_by_workspace[bench.id] = activity
        activity.list_changed.connect(partial(self.list_changed.emit, bench))
        activity.settings_changed.connect(partial(self._pass_on_changed_settings, bench))
        activity.state_changed.connect(partial(self._show_conversation_state, activity))
        activity.activity_ended.connect(partial(self.activity_ended.emit, bench.id))
        # These failed before the program was started, or run in another process.
        for running in WORKING_STATES | {ConversationActivity.FAILED}:
            for conversation in activity.conversations_in(running):
                self._show_conversation_state(activity, conversation, running)

    def stop_following_workspace(self, workspace: str) -> None:
        activity = self.activity_by_workspace.pop(workspace, None)
        if activity is not None:
            activity.stop_watching_workspace()
            activity.deleteLater()
        if self._wanted_workspace == workspace:
            self._wanted_workspace = ""
        if self._parts.showing.workspace_id == workspace:
            self.left.emit()

    def _pass_on_changed_settings(self, bench: ShownWorkspace) -> None:
        self.settings_changed.emit(bench)
        self.refresh_workspaces()

    def _show_conversation_state(
        self, activity: WorkspaceActivity, conversation: str, running: ConversationActivity
    ) -> None:
        self._rail.show_workspace_state(activity.bench.id, activity.most_urgent_state)
        self.state_changed.emit(activity, conversation, running)

    @property
    def shown_activity(self) -> WorkspaceActivity:
        return self.activity_by_workspace[self._parts.showing.workspace_id]

    def title_of_conversation(self, workspace: str, conversation: str) -> str:
        activity = self.activity_by_workspace.get(workspace)
        if activity is None:
            return ""
        row = activity.bench.conversation_row(conversation)
        if row is None:
            return ""
        return row.title

    def go_to_next_waiting_conversation(self) -> None:
        """Shows the conversation after the shown one that waits for the user, or else the first."""
        # Each with its workspace and its id.
        waiting_conversations: list[tuple[str, str]] = []
        for workspace, activity in self.activity_by_workspace.items():
            for conversation in activity.conversations_in(ConversationActivity.ASKING):
                waiting_conversations.append((workspace, conversation))
        if not waiting_conversations:
            return
        showing = self._parts.showing
        shown_conversation = (showing.workspace_id, showing.conversation_id)
        index = 0
        if shown_conversation in waiting_conversations:
            # After the last one comes the first one again.
            index = waiting_conversations.index(shown_conversation) + 1
            index %= len(waiting_conversations)
        workspace, conversation = waiting_conversations[index]
        self._parts.requests.request_conversation(workspace, conversation)

    def note_stop_in_shown_workspace(self, conversation: str) -> None:
        activity = self.activity_by_workspace.get(self._parts.showing.workspace_id)
        if activity is not None:
            activity.note_stop(conversation)

    def count_working_agents(self) -> int:
        count = 0
        for activity in self.activity_by_workspace.values():
            # Agents of another process go on without this window.
            if client_of_host(activity.bench) is None:
                count += len(activity.working_agents())
        return count
