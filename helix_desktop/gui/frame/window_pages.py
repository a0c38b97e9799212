"""Builds the pages of the window and passes on to them what happens. No other module
calls the pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.session_events import ConversationActivity, Event, FactAppended
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from helix_desktop.gui.answer_author import agent_of_conversation
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.shown_state import ShownState
from helix_desktop.gui.shown_workspace import ShownWorkspace
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr

if TYPE_CHECKING:
    from helix_desktop.gui.cache.cache_page import CachePage
    from helix_desktop.gui.changes.changes_page import ChangesPage
    from helix_desktop.gui.inspector.context_inspector import ContextInspector
    from helix_desktop.gui.preview.preview_pane import PreviewPane
    from helix_desktop.gui.timeline.timeline_page import TimelinePage


class OpenWorkspaceContents:
    """Reads contents from the open workspace. A hash means the same content in every workspace."""

    def __init__(self, workspace: Callable[[], ShownWorkspace | None]) -> None:
        self._workspace = workspace

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        return await self._require_workspace().contents.read_range(digest, start, length)

    async def read_subagent_facts(self, conversation: str) -> Sequence[Recorded]:
        return await self._require_workspace().read_conversation_facts(conversation)

    def running_state_of_subagent(self, conversation: str) -> ConversationActivity:
        return self._require_workspace().running_state_of(conversation)

    def _require_workspace(self) -> ShownWorkspace:
        workspace = self._workspace()
        if workspace is None:
            raise NotFound(tr("No workspace is open."))
        return workspace


class WindowPages(QObject):
    """The pages, each imported and built when first needed; `page_made` announces it."""

    wanted = Signal(object)
    page_made = Signal(str, object)

    def __init__(
        self,
        theme: Theme,
        runner: BackgroundRunner,
        showing: ShownState,
        state_file: WindowStateFile,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._runner = runner
        self._window = parent
        self._state_file = state_file
        self._showing = showing
        self._stop_watching_limit: Callable[[], object] = lambda: None
        showing.about_to_change.connect(self.save_page_layouts)
        showing.workspace_changed.connect(self._update_cache_page_for_workspace)
        showing.conversation_changed.connect(self._show_conversation_on_built_pages)

    @cached_property
    def inspector(self) -> ContextInspector:
        from helix_desktop.gui.inspector.context_inspector import ContextInspector

        panel = ContextInspector(self._theme, self._runner, self._window)
        panel.intent_requested.connect(self.wanted)
        panel.moment_shown.connect(self._showing.set_shown_moment)
        self.page_made.emit("inspector", panel)
        panel.inspect_conversation(self._showing.conversation, self._showing.workspace)
        return panel

    @cached_property
    def preview(self) -> PreviewPane:
        from helix_desktop.gui.preview.preview_pane import PreviewPane

        pane = PreviewPane(self._theme, self._runner, self._window)
        self.page_made.emit("preview", pane)
        return pane

    @cached_property
    def cache(self) -> CachePage:
        from helix_desktop.gui.cache.cache_page import CachePage

        page = CachePage(self._theme, self._runner, self._window)
        self._connect_and_announce_page("cache", page)
        self._show_workspace_cache(page)
        return page

    @cached_property
    def timeline(self) -> TimelinePage:
        from helix_desktop.gui.timeline.timeline_page import TimelinePage

        page = TimelinePage(self._theme, self._runner, self._window)
        self._connect_and_announce_page("timeline", page)
        page.show_timeline_of(self._showing.conversation, self._showing.workspace)
        return page

    @cached_property
    def changes(self) -> ChangesPage:
        from helix_desktop.gui.changes.changes_page import ChangesPage

        page = ChangesPage(self._theme, self._runner, self._window)
        has_two_columns = self._state_file.get_remembered("layout", "changes", default=False)
        page.show_columns(two=has_two_columns)
        page.columns_chosen.connect(self._remember_columns_of_changes)
        self._connect_and_announce_page("changes", page)
        self._show_conversation_changes(page)
        return page

    def _connect_and_announce_page(
        self, name: str, page: CachePage | TimelinePage | ChangesPage
    ) -> None:
        page.intent_wanted.connect(self.wanted)
        self.page_made.emit(name, page)

    def is_page_built(self, name: str) -> bool:
        return name in vars(self)

    def _show_workspace_cache(self, page: CachePage) -> None:
        """Shows the workspace's entries, with the columns as the user left them."""
        workspace = self._showing.workspace
        if workspace is None:
            return
        layout = self._state_file.get_remembered("layout", workspace.id, "cache", default="")
        page.restore_cache_layout(layout)
        self._stop_watching_limit()
        self._stop_watching_limit = lambda: None
        page.show_bytes_over_limit(0)
        bench = self._showing.bench
        if bench is not None:  # Only there can more room be made.
            size_limit = bench.size_limit
            self._stop_watching_limit = size_limit.watch_cache_size(page.show_bytes_over_limit)
            page.show_bytes_over_limit(size_limit.excess_bytes)

        def list_titles() -> list[tuple[str, str]]:
            return [(row.id, row.title) for row in workspace.list_conversations()]

        page.show_cache_of(workspace.catalogue, list_titles)

    def _show_conversation_changes(self, page: ChangesPage) -> None:
        workspace = self._showing.workspace
        conversation = self._showing.conversation
        if workspace is None:
            page.show_changes_of(None, "")
        elif conversation is None:
            page.show_changes_of(workspace.file_changes_of(""), "")
        else:
            agent = agent_of_conversation(conversation.conversation.state.facts)
            changes = workspace.file_changes_of(conversation.id)
            page.show_changes_of(changes, conversation.id, agent)

    def _update_cache_page_for_workspace(self) -> None:
        if self.is_page_built("cache"):
            self._show_workspace_cache(self.cache)

    def _show_conversation_on_built_pages(self) -> None:
        conversation = self._showing.conversation
        workspace = self._showing.workspace
        if self.is_page_built("inspector"):
            self.inspector.inspect_conversation(conversation, workspace)
        if self.is_page_built("timeline"):
            self.timeline.show_timeline_of(conversation, workspace)
        if self.is_page_built("changes"):
            self._show_conversation_changes(self.changes)

    def _remember_columns_of_changes(self, has_two_columns: bool) -> None:  # noqa: FBT001 - a slot
        self._state_file.remember_value("layout", "changes", value=has_two_columns)

    def save_page_layouts(self) -> None:
        workspace = self._showing.workspace
        if workspace is not None and self.is_page_built("cache"):
            layout = self.cache.encode_cache_layout()
            self._state_file.remember_value("layout", workspace.id, "cache", value=layout)

    def pass_events_to_pages(self, events: tuple[Event, ...]) -> None:
        if self.is_page_built("inspector"):
            self.inspector.update_inspector_from_events(events)
        if self.is_page_built("timeline"):
            self.timeline.update_timeline_from_events(events)
        if self.is_page_built("changes"):
            self.changes.reload_if_files_changed(events)
        if self.is_page_built("preview"):
            self.preview.read_again_if_files_changed(events)
        has_new_fact = any(isinstance(event, FactAppended) for event in events)
        if has_new_fact and self.is_page_built("cache"):
            self.cache.refresh_entries_soon()
