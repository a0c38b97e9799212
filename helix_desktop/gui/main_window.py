"""The content of the main window. Its actions are connected in `signal_connections.py`."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PySide6.QtCore import QEvent, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QMessageBox, QWidget

from helix_desktop.engine import session_events
from helix_desktop.engine.facts import Attachment, ModelReplied, Spent, UserPart, UserSaid
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.gui import search_suggestions
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.attachment_reading import AttachmentReader
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.message_drafts import DraftPlace, UnsentMessage, UnsentMessages
from helix_desktop.gui.chat.permission_card import (
    build_question_announcement,
    describe_uncovered_files,
)
from helix_desktop.gui.colours import WORKSPACE_COLOURS
from helix_desktop.gui.common.accessible_roles import install_accessible_roles
from helix_desktop.gui.common.fold_descriptions import describe_fold_kind
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.common.widgets import build_surface
from helix_desktop.gui.conversation_actions import ConversationActions
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.frame.command_palette import CommandPalette, PaletteItem
from helix_desktop.gui.frame.connect_model_panel import DEMO_MODEL
from helix_desktop.gui.frame.conversation_list import describe_copy_of
from helix_desktop.gui.frame.notices import Notices, announce_to_screen_reader
from helix_desktop.gui.frame.welcome_page import WelcomePage
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.frame.window_pages import OpenWorkspaceContents, WindowPages
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.question_dialogs import ask_to_choose_one
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.sharing.sharing_controller import SharingController
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_actions import (
    CONVERSATION_ACTIONS,
    QUESTION_ACTIONS,
    WORKSPACE_ACTIONS,
    ActionRegistry,
)
from helix_desktop.gui.workbench_types import KnownWorkspace, Session, Workbench, Workbenches
from helix_desktop.gui.workspace_activity import WorkspaceActivity
from helix_desktop.program_settings import ProgramSettings

if TYPE_CHECKING:
    from helix_desktop.gui.frame.side_by_side import SideBySide
    from helix_desktop.gui.inspector.meter_panel import ContextPanel

T = TypeVar("T")
TITLE = "Helix Desktop"
LONGEST_NAME_LENGTH = 80  # A longer suggested name of a workspace is cut to this many characters.
SHOWN_NAME_LENGTH = 40  # Longer names in headings are cut to this many characters.


class MainWindow(WindowFrame):
    """`model_setup_wanted`: a model is needed. `settings_wanted` carries a page's name,
    `chat_added` a second ChatPage, `conversation_opened` a workspace, its session, and
    the messages that waited for it.
    """

    activity_ended = Signal(str, str, object, str)
    chat_added = Signal(object)
    model_setup_wanted = Signal()
    retry_wanted = Signal()
    settings_wanted = Signal(str)
    workbench_shown = Signal()
    conversation_opened = Signal(object, object, object)

    def __init__(
        self,
        theme: Theme,
        state_file: WindowStateFile,
        settings: ProgramSettings,
        doing: BackgroundRunner,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(theme, state_file, parent)
        install_accessible_roles()
        self._desk: Workbenches | None = None
        self._startup_queue: list[Callable[[], object]] = []  # Called once the stores are open.
        self._blocking_error: HelixError | None = (
            None  # The error that prevents the stores from opening.
        )
        # The result of the last listing, kept because listing reads a file for each workspace.
        self.listed_workspaces: Sequence[KnownWorkspace] = ()
        self.background_runner = doing
        self.run_for_window = partial(doing.run_in_background, owner=self)
        self.settings = settings
        self._activity_by_workspace: dict[str, WorkspaceActivity] = {}
        self._wanted_workspace = (
            ""  # The workspace requested last. Results for other workspaces are ignored.
        )
        self.unsent_messages = UnsentMessages(state_file)
        self._side_by_side: SideBySide | None = None
        self.window_actions = ActionRegistry(self, settings)
        self.pages = WindowPages(theme, doing, self.showing, state_file, self)
        self.notices = Notices(theme, self._middle, self._height_of_chat_controls)
        self.chats = [self._build_chat()]  # There are two if conversations are shown side by side.
        self.chat = self.chats[
            0
        ]  # The current chat. The sidebar, the top bar and the panels show its state.
        self.add_page("chat", self.chat)
        for name in ("changes", "cache", "timeline", "inspector"):
            self.page_factories[name] = partial(getattr, self.pages, name)
        self.welcome = WelcomePage(theme, self.page_area)
        self.welcome.enable_first_steps(ready=False)
        self.add_page("welcome", self.welcome)
        last = state_file.get_remembered("workspace", default="")
        page = state_file.get_remembered("layout", last, "page", default="chat")
        if not last:
            self.switch_to_page("welcome")
        elif (
            page in self.page_factories
        ):  # Until the page can be built, it is blank and has no message box.
            self.page_area.setCurrentIndex(
                self.page_area.addWidget(build_surface(self.page_area, "page"))
            )
            self.top.mark_open_page(page)
        self.palette_box = CommandPalette(theme, self._list_suggestions_before_search, self)
        self.conversation_actions = ConversationActions(
            self,
            doing,
            self.notices,
            changed=self.refresh_conversations,
            gone=state_file.forget_deleted_ids,
            opened=self.show_session_if_current,
        )
        parts, refresh = (
            (self.sidebar, lambda: self.chats, self.notices),
            self.refresh_conversations,
        )
        self.sharing = SharingController(
            self.showing, doing, parts, refresh, self.go_to_conversation, self
        )
        self.attaching = AttachmentReader(
            doing,
            lambda: self.showing.bench,
            lambda: self.current_session.id if self.current_session is not None else "",
            self.build_attachment_receiver,
        )
        doing.failed.connect(self.notices.show_error_notice)

    def _build_chat(self) -> ChatPage:
        source = OpenWorkspaceContents(lambda: self.showing.bench)
        chat = ChatPage(self.theme, self.state_file, source, self.background_runner, self.page_area)
        chat.bridge.events_arrived.connect(partial(self._pass_events_to_chat_and_pages, chat))
        chat.measuring.timeout.connect(partial(self._price_next_message, chat))
        for below in chat.controls:
            below.installEventFilter(self.notices)
        return chat

    @property
    def current_workbench(self) -> Workbench | None:
        return self.showing.bench

    @property
    def current_session(self) -> Session | None:
        """The session that is shown, or None for a conversation without messages."""
        return self.showing.session

    def _height_of_chat_controls(self) -> int:
        return max(
            (chat.height_of_composer_and_question() for chat in self.chats if chat.isVisible()),
            default=0,
        )

    def show_composer_before_opening(
        self, place: DraftPlace, name: str, sent: Sequence[object] = ()
    ) -> None:
        """Lets the user write in a conversation before it is open. `sent`: messages
        that were already sent there.
        """
        self.chat.awaited_conversation = place[1]
        self.unsent_messages.add_unsent_messages_of_state_file(place, sent)
        self.chat.show_transcript_or_start(name, begun=place[1] != "new", loads=True)
        if self.state_file.get_remembered("layout", place[0], "page", default="chat") == "chat":
            self.restore_window_layout(place[0])
        self._show_draft_and_unsent_messages(self.chat, place, name)
        self.enable_possible_actions()

    def hold_message_until_open(self, message: UnsentMessage) -> None:
        """Sends the message as soon as the conversation of the composer is open."""
        place = self.chat.composer.draft_place
        self.unsent_messages.add_unsent_message(place, message)
        self.chat.composer.show_waiting_messages(self.unsent_messages.unsent_messages_of(place))

    def _show_draft_and_unsent_messages(self, chat: ChatPage, place: DraftPlace, name: str) -> None:
        chat.composer.show_draft_of(*place, name)
        chat.composer.show_waiting_messages(self.unsent_messages.unsent_messages_of(place))

    # --- Opening, switching and showing workspaces

    @property
    def workbenches(self) -> Workbenches:
        """Available after `set_workspaces_and_start`; the window is painted before that."""
        if self._desk is None:
            raise ActionRefused(tr("Helix Desktop is still starting. Try again in a moment."))
        return self._desk

    def set_workspaces_and_start(self, desk: Workbenches) -> None:
        self._desk = desk
        self.welcome.enable_first_steps(ready=True)
        waiting, self._startup_queue = self._startup_queue, []
        for act in waiting:
            act()
        self.open_last_workspace()

    def show_startup_error_and_block_actions(self, error: HelixError) -> None:
        """Shows why nothing can be opened, instead of the first steps."""
        self._blocking_error = error
        self.switch_to_page("welcome")
        self.welcome.show_startup_problem(translate_sentences(str(error)))

    def run_unless_blocked(self, act: Callable[[], object]) -> None:
        """Calls `act`, or shows why the stores cannot be opened."""
        if self._blocking_error is not None:
            self.notices.show_error_notice(self._blocking_error)
        else:
            act()

    def changeEvent(self, event: QEvent) -> None:
        """Lists the workspaces again, because the command line may have created,
        renamed or trashed one.
        """
        super().changeEvent(event)
        if (
            event.type() is QEvent.Type.ActivationChange
            and self.isActiveWindow()
            and self._desk is not None
        ):
            self.refresh_workspaces()

    def refresh_workspaces(self, then: Callable[[], object] = lambda: None) -> None:
        def show_listed_workspaces(rows: Sequence[KnownWorkspace]) -> None:
            rows = self.listed_workspaces = self._sort_workspaces_and_save_order(rows)
            self.rail.show_workspace_buttons(rows, self.showing.workspace_id)
            for name, watched in self._activity_by_workspace.items():
                self.rail.show_workspace_state(name, watched.most_urgent_state)
            self.welcome.trash.hide()
            if (
                not rows
            ):  # Whoever moved the last workspace to the trash would think that everything is gone.
                trashed = asyncio.to_thread(self.workbenches.list_workspaces, trashed=True)
                self.run_for_window(
                    trashed, then=lambda found: self.welcome.trash.setVisible(bool(found))
                )
            then()

        work = asyncio.to_thread(self.workbenches.list_workspaces)
        self.run_for_window(work, then=show_listed_workspaces)

    def _sort_workspaces_and_save_order(
        self, rows: Sequence[KnownWorkspace]
    ) -> Sequence[KnownWorkspace]:
        """Puts new workspaces last, so that Ctrl+1 to Ctrl+9 keep their meaning."""
        known: list[str] = self.state_file.get_remembered("rail", default=[])
        order = [*known, *(row.id for row in rows if row.id not in known)]
        there = {row.id for row in rows}
        self.state_file.remember_value("rail", value=[name for name in order if name in there])
        return sorted(rows, key=lambda row: order.index(row.id))

    def save_workspace_order(self, order: Sequence[str]) -> None:
        self.state_file.remember_value("rail", value=list(order))
        self.listed_workspaces = self._sort_workspaces_and_save_order(self.listed_workspaces)

    def ask_for_workspace(self) -> None:
        others = [row for row in self.listed_workspaces if row.id != self.showing.workspace_id]
        if others:
            known = search_suggestions.suggest_workspaces(others, self.go_to_place)
            self.palette_box.open_palette(known=known, hint=tr("Search workspaces"))
        else:
            self.window_actions["open-folder"].trigger()

    def go_to_workspace(self, workspace: str, then: Callable[[], object] = lambda: None) -> None:
        """Switches to a workspace; the others keep running. The last request wins."""
        self._wanted_workspace = workspace
        if self.current_workbench is not None and self.showing.workspace_id == workspace:
            then()
            return
        if self._desk is None:
            again = partial(self.go_to_workspace, workspace, then)
            self.run_unless_blocked(lambda: self._startup_queue.append(again))
            return

        def show_opened_workspace(bench: Workbench) -> None:
            if self._wanted_workspace == workspace:
                self.bring_workspace_to_front(bench)
                then()

        work = self.workbenches.open_workspace(workspace)
        self.run_for_window(
            work, then=show_opened_workspace, failed=self._report_workspace_not_opened
        )

    def create_workspace_for_folder(self, folder: Path) -> None:
        wanted = self._wanted_workspace = str(folder)
        if self._desk is None:
            again = partial(self.create_workspace_for_folder, folder)
            self.run_unless_blocked(lambda: self._startup_queue.append(again))
            return

        def show_created_workspace(bench: Workbench) -> None:
            if self._wanted_workspace == wanted:
                self.bring_workspace_to_front(bench)
                self.chat.composer.text.setFocus()
            else:
                self.refresh_workspaces()

        work = self._open_or_create_workspace(folder)
        self.run_for_window(
            work, then=show_created_workspace, failed=self._report_workspace_not_opened
        )

    def _report_workspace_not_opened(self, error: HelixError) -> None:
        self._wanted_workspace = ""
        self.rail.mark_open_workspace(self.showing.workspace_id)
        self.notices.show_error_notice(error)
        if self.current_workbench is None:
            self.switch_to_page("welcome")

    async def _open_or_create_workspace(self, folder: Path) -> Workbench:
        rows = await asyncio.to_thread(self.workbenches.list_workspaces)
        known = next((row for row in rows if row.first_folder == folder), None)
        if known is not None:
            return await self.workbenches.open_workspace(known.id)
        colour = WORKSPACE_COLOURS[len(self.listed_workspaces) % len(WORKSPACE_COLOURS)]
        bench = await self.workbenches.create_workspace(self.suggest_workspace_name(folder), folder)
        await self.workbenches.recolour_workspace(bench.id, colour)
        return bench

    def suggest_workspace_name(self, folder: Path) -> str:
        """Returns the folder's name, with its parent folder if another workspace has that name."""
        taken = {row.name.casefold() for row in self.listed_workspaces}
        name = folder.name[:LONGEST_NAME_LENGTH] or str(folder)
        if name.casefold() not in taken:
            return name
        longer = f"{name} ({folder.parent.name})"[:LONGEST_NAME_LENGTH]
        return (
            longer
            if longer.casefold() not in taken
            else f"{name[: LONGEST_NAME_LENGTH - 5]} ({len(taken) + 1})"
        )

    def bring_workspace_to_front(self, bench: Workbench) -> None:
        """Shows an open workspace with its layout, its list and its last conversation."""
        awaits = self.chat.awaited_conversation, self.chat.composer.draft_place
        if self.current_workbench is not None:
            self.save_window_layout()
        self._close_second_chat_and_leave_session()
        self.notices.discard_offers()
        self._wanted_workspace = bench.id
        self.showing.set_shown_workspace(bench)
        last, beside = (
            self.state_file.get_remembered(key, bench.id, default="")
            for key in ("conversation", "beside")
        )
        self.state_file.remember_value("workspace", value=bench.id)
        self._follow_workspace(bench)
        if any(row.id == bench.id for row in self.listed_workspaces):
            self.rail.mark_open_workspace(bench.id)
        else:
            self.refresh_workspaces()
        self.sidebar.show_workspace_title(bench.name, next(iter(bench.allowed_folders), None))
        self.show_policy_model_and_permissions()
        self.restore_window_layout(bench.id)
        self.refresh_conversations()
        row = bench.conversation_row(last)
        awaited = last if row is not None and not row.trashed else ""
        # While a workspace opens, the content of the previous one must not be visible.
        self.show_session_or_new(None, awaited=awaited)
        if row is not None and awaited:
            self.chat.show_foreign_writer_or_composer(row.agent)
            self.go_to_conversation(awaited)
            if (other := bench.conversation_row(beside)) is not None and not other.trashed:
                self.go_to_conversation(beside, beside=True)
                self.go_to_other_side()
        if awaits == ("new", (bench.id, "new")):
            self.begin_new_conversation()
        self.workbench_shown.emit()

    def stop_following_workspace(self, workspace: str) -> None:
        if (watched := self._activity_by_workspace.pop(workspace, None)) is not None:
            watched.stop_watching_workspace()
            watched.deleteLater()
        if self._wanted_workspace == workspace:
            self._wanted_workspace = ""
        if self.showing.workspace_id == workspace:
            self._close_second_chat_and_leave_session()
            self.showing.set_shown_workspace(None)
            self.enable_possible_actions()
            self._update_window_title()

    def change_and_reopen_workspace(
        self,
        workspace: str,
        work: Coroutine[Any, Any, Workbench],
        then: Callable[[Workbench], object] = lambda _bench: None,
    ) -> None:
        """Reopens a workspace after `work` has changed it. If that fails, reopens it unchanged."""
        self.stop_following_workspace(workspace)

        def show_reopened(bench: Workbench) -> None:
            if self.current_workbench is None:
                self.bring_workspace_to_front(bench)
            then(bench)

        def reopen_unchanged(error: HelixError) -> None:
            if self.current_workbench is None:
                self.go_to_workspace(workspace)
            self.notices.show_error_notice(error)

        self.run_for_window(work, then=show_reopened, failed=reopen_unchanged)

    def leave_trashed_workspace(self, workspace: str) -> None:
        """Shows another workspace or the welcome page, because this one was moved to the trash."""
        self.stop_following_workspace(workspace)
        if self.current_workbench is None:
            self.open_last_workspace()
        else:
            self.refresh_workspaces()

    def open_last_workspace(self) -> None:
        """Opens the last workspace, or any other. Without one, shows the welcome page."""
        self.refresh_workspaces(self._open_last_or_first)

    def _open_last_or_first(self) -> None:
        """Opens a workspace, unless one was requested meanwhile, as by the link the
        program was started with.
        """
        if self._wanted_workspace:
            return
        rows = self.listed_workspaces
        last = self.state_file.get_remembered("workspace", default="")
        found = next((row.id for row in rows if row.id == last), rows[0].id if rows else "")
        if found:
            self.go_to_workspace(found)
        else:
            self.switch_to_page("welcome")
            self.enable_possible_actions()

    def show_policy_model_and_permissions(self) -> None:
        if (bench := self.current_workbench) is None:
            return
        if "context_panel" in vars(self):
            self.context_panel.show_policy(bench.policy_name)
        self._show_model_and_start_panel()
        modes = [(name, tr(words)) for name, words in bench.describe_permission_modes().items()]
        for chat in self.chats:
            chat.composer.show_permission_modes(modes, bench.permission_mode)
            chat.measuring.start()

    @property
    def current_model(self) -> str:
        """The main model of the shown conversation, or of the workspace."""
        bench = self.current_workbench
        return "" if bench is None else bench.model_of_conversation(self.showing.conversation_id)

    @property
    def foreign_agent_name(self) -> str:
        return (
            self.current_session.conversation.state.acp_agent
            if self.current_session is not None
            else ""
        )

    def _show_model_and_start_panel(self) -> None:
        self.top.model.show_choice(self.foreign_agent_name or self.current_model)
        self.chat.empty.show_demo_or_usual_suggestions(scripted=self.current_model == DEMO_MODEL)
        if (bench := self.current_workbench) is not None:
            self.chat.empty.show_what_agent_may_do(
                has_folder=bool(bench.allowed_folders), mode=bench.permission_mode
            )
        self.top.fit_top_bar()

    def _follow_workspace(self, bench: Workbench) -> None:
        if bench.id in self._activity_by_workspace:
            return
        watched = self._activity_by_workspace[bench.id] = WorkspaceActivity(
            bench, self.state_file, self
        )
        watched.list_changed.connect(
            lambda: self.refresh_conversations() if self.current_workbench is bench else None
        )
        watched.settings_changed.connect(partial(self._show_changed_settings, bench))
        watched.state_changed.connect(partial(self._show_conversation_state, watched))
        watched.activity_ended.connect(partial(self.activity_ended.emit, bench.id))
        for conversation in watched.conversations_in(
            state := session_events.ConversationActivity.FAILED
        ):
            self._show_conversation_state(watched, conversation, state)

    def _show_changed_settings(self, bench: Workbench) -> None:
        if self.current_workbench is bench:
            self.show_policy_model_and_permissions()
            self.sidebar.show_workspace_title(bench.name, next(iter(bench.allowed_folders), None))
        self.refresh_workspaces()

    def _show_conversation_state(
        self,
        watched: WorkspaceActivity,
        conversation: str,
        running: session_events.ConversationActivity,
    ) -> None:
        self.rail.show_workspace_state(watched.bench.id, watched.most_urgent_state)
        if watched.bench is self.current_workbench:
            self.sidebar.list.lines.update_running_state(conversation, running)
            if (chat := self._find_chat(conversation)) is not None and chat.session is not None:
                chat.transcript.content.refetch_subagent_items()
            if self.current_session is not None and self.current_session.id == conversation:
                self._show_background_work(self.current_session)

    # --- The conversations of the shown workspace

    def title_of_conversation(self, workspace: str, conversation: str) -> str:
        watched = self._activity_by_workspace.get(workspace)
        row = watched.bench.conversation_row(conversation) if watched is not None else None
        return row.title if row else ""

    def ask_for_conversation_beside(self) -> None:
        rows = [
            row for row in self.workspace_conversation_rows() if self._find_chat(row.id) is None
        ]
        known = search_suggestions.suggest_conversations(
            rows,
            self.showing.workspace_id,
            lambda place: self.go_to_conversation(place.conversation, beside=True),
        )
        none = tr("There is no other conversation in this workspace.")
        self.palette_box.open_palette(
            known=known, hint=tr("Search conversations") if known else none
        )

    def go_to_next_waiting_conversation(self) -> None:
        watched = self._activity_by_workspace.items()
        state = session_events.ConversationActivity.ASKING
        places = [
            (workspace, name) for workspace, one in watched for name in one.conversations_in(state)
        ]
        shown = self.showing.workspace_id, self.showing.conversation_id
        after = places[places.index(shown) + 1 :] if shown in places else []
        for workspace, name in [*after, *places][:1]:
            self.go_to_place(WindowPlace("conversation", workspace, name))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Letters typed at a tab, a tile or the tour's card go into the message, too."""
        super().keyPressEvent(event)
        if not event.isAccepted() and self.chat.isVisible():
            self.chat.keyPressEvent(event)

    @property
    def current_activity(self) -> WorkspaceActivity:
        return self._activity_by_workspace[self.showing.workspace_id]

    def workspace_conversation_rows(self) -> Sequence[ConversationListRow]:
        return self.current_workbench.list_conversations() if self.current_workbench else ()

    def find_row_of_conversation(self, conversation: str = "") -> ConversationListRow | None:
        """Returns the list's row of a conversation, or of the open one without a name."""
        name = conversation or self.showing.conversation_id
        return self.current_workbench.conversation_row(name) if self.current_workbench else None

    def refresh_conversations(self) -> None:
        self.sidebar.show_conversation_rows(self.workspace_conversation_rows())
        for chat in [chat for chat in self.chats if chat.session is not None]:
            row = self.find_row_of_conversation(chat.composer.draft_place[1])
            if row is None or row.trashed:
                self.close_chat(chat)
        self.sidebar.list.select_conversation(self.showing.conversation_id)
        self._update_window_title()

    def go_to_conversation(
        self, conversation: str, then: Callable[[], object] = lambda: None, *, beside: bool = False
    ) -> None:
        """Shows a conversation where it is open, or else in place of the current one or
        `beside` it.
        """
        bench, found = self.current_workbench, self._find_chat(conversation)
        if bench is None:
            return
        if found is not None and (beside or found is not self.chat):
            self.go_to_side(found)
            then()
            return
        if beside:
            self._open_second_chat_beside()
            self.show_session_or_new(None, awaited=conversation)
        chat = self.chat
        chat.wanted_conversation = conversation

        def show_opened_conversation(session: Session) -> None:
            unsent = self.unsent_messages.pop_unsent_messages((bench.id, conversation))
            if chat.wanted_conversation == conversation and self.show_session_if_current(
                bench, session, chat
            ):
                then()
            self.conversation_opened.emit(bench, session, unsent)

        def report_not_opened(error: HelixError) -> None:
            self.unsent_messages.turn_unsent_messages_into_draft((bench.id, conversation))
            if self.current_workbench is bench and chat.awaited_conversation == conversation:
                self.close_chat(chat)
            self.notices.show_error_notice(error)

        work = _open_and_prepare_session(bench, conversation, chat)
        self.run_for_window(work, then=show_opened_conversation, failed=report_not_opened)

    def show_session_if_current(
        self, bench: Workbench, session: Session, chat: ChatPage | None = None
    ) -> bool:
        """Shows an opened or created conversation, unless another workspace is shown now."""
        if self.current_workbench is bench:
            self.show_session_or_new(session, chat=chat)
        return self.current_workbench is bench

    def _has_messages(self, session: Session | None) -> bool:
        """Whether it has a message. An own conversation without one counts as new."""
        row = self.find_row_of_conversation(session.id) if session is not None else None
        facts = session.conversation.state.facts if session is not None else ()
        return bool(row and row.agent) or any(
            isinstance(each.fact, UserSaid | ModelReplied) for each in facts
        )

    def begin_new_conversation(self) -> None:
        """Shows a new conversation, instead of any that is still being opened."""
        self.chat.wanted_conversation = ""
        if self.current_workbench is None and self.chat.awaited_conversation:
            name = self.state_file.get_remembered("box", default=dict[str, str]()).get("name", "")
            self.show_composer_before_opening((self.chat.composer.draft_place[0], "new"), name)
        self.show_session_or_new(None)

    def show_session_or_new(
        self, session: Session | None, *, awaited: str = "", chat: ChatPage | None = None
    ) -> None:
        """Shows a conversation or an empty one, in `chat`. `awaited`: the id of one
        that is being opened.
        """
        bench = self.current_workbench
        chat = chat or self.chat
        name = session.id if session is not None else awaited
        if bench is None or chat not in self.chats:
            return
        other_side = self._find_chat(name)
        if other_side is not None and other_side is not chat:
            self.go_to_side(other_side)
            return
        shown_name = _shorten_workspace_name(bench.name)
        chat.leave_session()
        chat.awaited_conversation = awaited
        place = (bench.id, name or "new")
        chat.open_transcript_of(session, place)
        self._show_draft_and_unsent_messages(chat, place, shown_name)
        if session is not None:
            unfinished = self.current_activity.build_events_of_unfinished_work(session)
            chat.transcript.view.apply_events(unfinished)
        if chat is self.chat:
            self._show_current_chat_everywhere()
            box = {"name": shown_name, "is_shown": not chat.composer.isHidden()}
            self.state_file.remember_value("box", value=box)
        else:
            self.sharing.show_writers_in_chats()
        model = bench.model_of_conversation(session.id if session is not None else "")
        chat.show_transcript_or_start(
            shown_name,
            begun=bool(awaited) or self._has_messages(session),
            loads=bool(awaited),
            scripted=model == DEMO_MODEL,
        )
        self._show_run_state(chat)
        self._show_waiting_messages_and_questions(chat, session, bench)
        chat.way_on.show_last_turn_end(session)
        chat.rewrite_cost.explain_costs_of_last_turn(session)
        self._update_meter_and_price(chat)
        chat.measuring.start()
        if session is not None:
            chat.bridge.listen_to_session(session.subscribe_to_events)
            self.current_activity.mark_failure_seen(name)
            self._offer_to_forget_new_keys(bench, session)
        if chat is self.chat:
            self.focus_current_composer()

    def _show_waiting_messages_and_questions(
        self, chat: ChatPage, session: Session | None, bench: Workbench
    ) -> None:
        questions = {}
        if session is not None:
            questions = session.questions
            steering = sum(waiting.steer for waiting in session.queue)
            parts = [waiting.parts for waiting in session.queue]
            chat.composer.show_waiting_messages(parts, steering)
            if not session.queue:
                facts = session.conversation.state.facts
                chat.composer.turn_waiting_messages_into_draft(facts)
        chat.approvals.show_oldest_question(questions, describe_uncovered_files(bench))

    def _offer_to_forget_new_keys(self, bench: Workbench, session: Session) -> None:
        """Looks once through what another agent has written for text that looks like keys."""
        row = self.find_row_of_conversation(session.id)
        if row is None or not (row.agent or row.recorded_from):
            return
        facts = session.conversation.state.facts
        remembered = ("keys", bench.id, session.id)
        searched = self.state_file.get_remembered(*remembered, default=0)
        new_facts = facts[searched:]
        if new_facts:
            self.state_file.remember_value(*remembered, value=len(facts))
            self.conversation_actions.offer_to_forget_keys(bench, new_facts)

    def focus_current_composer(self) -> None:
        """Focuses the composer of the current conversation, unless something covers it."""
        if self.showing.page == "chat" and not self.palette_box.isVisible():
            self.chat.composer.text.setFocus()

    # --- Two conversations side by side

    def _find_chat(self, conversation: str) -> ChatPage | None:
        """Returns the side that shows a conversation or waits for it. An empty name
        means a new conversation.
        """
        place = (self.showing.workspace_id, conversation or "new")
        return next((chat for chat in self.chats if chat.composer.draft_place == place), None)

    def select_chat(self, chat: ChatPage) -> None:
        """Makes this side, which everything around it then shows, the current one."""
        if chat is not self.chat and chat in self.chats:
            self.chat = chat
            if (panel := self._visible_context_panel) is not None:
                panel.hide()
            self._show_current_chat_everywhere()

    def _show_current_chat_everywhere(self) -> None:
        workspace, name = self.chat.composer.draft_place
        self.showing.set_shown_conversation(self.chat.session)
        other = next(
            (chat.composer.draft_place[1] for chat in self.chats if chat is not self.chat), "new"
        )
        for key, shown in (("conversation", name), ("beside", other)) if workspace else ():
            self.state_file.remember_value(key, workspace, value="" if shown == "new" else shown)
        self._show_model_and_start_panel()
        self.sidebar.list.select_conversation(name)
        self._show_run_state(self.chat)
        self._update_window_title()

    def _open_second_chat_beside(self) -> None:
        """Makes the other side the current one, and adds it if necessary."""
        if len(self.chats) == 1:
            from helix_desktop.gui.frame.side_by_side import SideBySide

            if self._side_by_side is None:
                self._side_by_side = SideBySide(self.theme, self)
                self._side_by_side.chosen.connect(self.select_chat)
                self._side_by_side.closing_wanted.connect(self.close_chat)
                self._side_by_side.add_side(self.chat)
                self.add_page("chat", self._side_by_side)
            self.chats.append(self._build_chat())
            self._side_by_side.add_side(self.chats[-1])
            self.chat_added.emit(self.chats[-1])
            self.show_policy_model_and_permissions()
        self.go_to_other_side()

    def go_to_other_side(self) -> None:
        self.go_to_side(self.chats[-1] if self.chat is self.chats[0] else self.chats[0])

    def go_to_side(self, chat: ChatPage) -> None:
        self.switch_to_page("chat")
        self.select_chat(chat)
        self.focus_current_composer()

    def close_chat(self, chat: ChatPage) -> None:
        """Replaces a side by the other or by an empty one. Its conversation goes on and
        keeps its draft.
        """
        if len(self.chats) < 2:
            self.show_session_or_new(None)
            return
        self.chats.remove(chat)
        chat.leave_session()
        chat.setParent(None)
        chat.deleteLater()
        self.chat = self.chats[0]
        self._show_current_chat_everywhere()
        self.focus_current_composer()

    def _close_second_chat_and_leave_session(self) -> None:
        """Closes the second side and remembers its conversation, because it was not the
        user who closed it.
        """
        place = "beside", self.showing.workspace_id
        beside = self.state_file.get_remembered(*place, default="")
        for chat in [each for each in self.chats if each is not self.chat]:
            self.close_chat(chat)
        self.state_file.remember_value(*place, value=beside)
        self.chat.leave_session()

    def areas_in_tab_order(self) -> Sequence[QWidget]:
        """Tab visits one conversation before the other."""
        if len(self.chats) < 2 or self.showing.page != "chat":
            return super().areas_in_tab_order()
        return self.rail, self.sidebar, self.top, *self.chats, self.notices, self._side

    def _update_window_title(self) -> None:
        if self._side_by_side is not None:
            rows = {
                chat: self.find_row_of_conversation(chat.composer.draft_place[1])
                for chat in self.chats
            }
            titles = {
                chat: (row and row.title) or tr("New conversation") for chat, row in rows.items()
            }
            self._side_by_side.show_sides(titles, self.chat)
        row = self.find_row_of_conversation()
        parts = [
            row.title if row else "",
            self.current_workbench.name if self.current_workbench else "",
            TITLE,
        ]
        self.window().setWindowTitle(" — ".join(filter(None, parts)))
        self.top.show_working_copy(describe_copy_of(row) if row else "")

    def _pass_events_to_chat_and_pages(
        self, chat: ChatPage, events: tuple[session_events.Event, ...]
    ) -> None:
        if (session := chat.session) is None:
            return
        chat.transcript.view.apply_events(events)
        if chat is self.chat:
            self.pages.pass_events_to_pages(events)
        for event in events:
            self._update_chat_for_event(chat, session, event)
        if any(isinstance(event, session_events.ConversationReplaced) for event in events):
            self.show_session_or_new(session, chat=chat)
        if any(isinstance(event, session_events.FactAppended) for event in events):
            chat.show_transcript()
        measured = session_events.FactAppended | session_events.MeterChanged
        row = self.find_row_of_conversation(session.id)
        if any(isinstance(event, measured) for event in events) and not (row and row.agent):
            self._update_meter_and_price(chat)  # A connected agent's conversation has no composer.

    def _update_chat_for_event(
        self, chat: ChatPage, session: Session, event: session_events.Event
    ) -> None:
        if isinstance(event, session_events.ActivityChanged):
            self._show_run_state(chat)
            chat.way_on.show_last_turn_end(session)
            if event.running not in WORKING_STATES:
                chat.measuring.start()
                chat.rewrite_cost.explain_costs_of_last_turn(session)
        elif isinstance(event, session_events.QuestionAsked | session_events.QuestionAnswered):
            chat.approvals.show_oldest_question(
                session.questions, describe_uncovered_files(self.current_workbench)
            )
            if isinstance(event, session_events.QuestionAsked):
                self._announce_and_focus_question(chat, event)
        elif isinstance(event, session_events.MessagesQueued):
            chat.composer.show_waiting_messages(event.messages, event.steering_count)
            chat.way_on.show_last_turn_end(session)
        elif isinstance(event, session_events.FoldProgress):
            self._show_run_state(chat)
        elif (
            isinstance(event, session_events.FactAppended)
            and isinstance(event.recorded.fact, ModelReplied | Spent)
            and session.running not in WORKING_STATES  # A connected agent's turn runs elsewhere.
        ):
            chat.rewrite_cost.explain_costs_of_last_turn(session)

    def _show_run_state(self, chat: ChatPage) -> None:
        """Shows what is running in a conversation, and what of it can be stopped."""
        running = chat.session.running if chat.session else session_events.ConversationActivity.IDLE
        kind = chat.session.folding.kind_in_progress if chat.session else None
        chat.composer.show_run_state(running, is_folding=kind is not None)
        if chat is self.chat:
            self._show_background_work(chat.session)
            self.enable_possible_actions()

    def _show_background_work(self, session: Session | None) -> None:
        """Shows a fold, which can be stopped, or sub-agents that work in the background."""
        if session is not None and (kind := session.folding.kind_in_progress):
            words = tr("Shortening: {kind}…", kind=describe_fold_kind(kind))
            self.top.show_background_work(words, tr("Stop"), is_stopped_in_chat=True)
        else:
            agents = (
                len(self.current_activity.working_agents_below(session.id))
                if session is not None
                else 0
            )
            self.top.show_background_work(
                _describe_working_agents(agents) if agents else "", tr("Agents")
            )

    def _announce_and_focus_question(
        self, chat: ChatPage, event: session_events.QuestionAsked
    ) -> None:
        """Focuses the question unless the user is writing, is elsewhere, or could not read it."""
        announce_to_screen_reader(self, build_question_announcement(event.question))
        card = chat.approvals.visible_card
        free = chat is self.chat and not chat.composer.text.toPlainText().strip()
        if card is not None and free and card.is_in_sight():
            card.focus_first_control()

    def _update_meter_and_price(self, chat: ChatPage) -> None:
        if chat.session is not None:
            self._show_meter_and_price_of(chat, chat.session)
        else:
            chat.measured_session = None
            if (panel := self._visible_context_panel) is not None:
                panel.hide()
            chat.composer.show_window_meter()
            chat.composer.price.show_next_message_cost(None)

    def _show_meter_and_price_of(self, chat: ChatPage, session: Session) -> None:
        chat.rewrite_cost.warn_before_message(session)
        figures = session.conversation.state.savings_until_moment()
        figures = replace(figures, paid=figures.paid + session.context.cost_of_agents())
        has_price = not lacks_price(session.conversation.expected_state)
        chat.composer.show_window_meter(
            session.context.next_request_meter(), figures, has_price=has_price
        )
        chat.composer.price.show_next_message_cost(
            session.context.next_message_cost(), session.context.estimate_saving_of_markers
        )
        chat.measured_session = session
        if (panel := self._visible_context_panel) is not None and chat is self.chat:
            panel.show_context_of(session, self.chat.composer.price.text())

    @cached_property
    def context_panel(self) -> "ContextPanel":
        """The panel above the meter. It is built when it is first opened."""
        from helix_desktop.gui.inspector.meter_panel import ContextPanel

        panel = ContextPanel(self.theme, self)
        panel.show_policy(
            self.current_workbench.policy_name if self.current_workbench is not None else ""
        )
        self.pages.page_made.emit("context", panel)
        return panel

    @property
    def _visible_context_panel(self) -> "ContextPanel | None":
        return (
            self.context_panel
            if "context_panel" in vars(self) and self.context_panel.isVisible()
            else None
        )

    def open_or_close_context_panel(self) -> None:
        self.switch_to_page("chat")
        if self.chat.measured_session is not None:
            self.context_panel.open_or_close_panel(self.chat.composer.context_button)
            self.context_panel.show_context_of(
                self.chat.measured_session, self.chat.composer.price.text()
            )

    def _price_next_message(self, chat: ChatPage) -> None:
        """Computes the cost of the next message, even before the first message of a
        conversation.
        """
        bench, shown = self.current_workbench, chat.session.id if chat.session is not None else ""

        def show_first_price(session: Session) -> None:
            is_new = chat in self.chats and chat.session is None and not chat.awaited_conversation
            if is_new and self.current_workbench is bench:
                self._show_meter_and_price_of(chat, session)

        if bench is None or not bench.model_of_conversation(shown) or chat.awaited_conversation:
            return
        if shown:
            self.run_for_window(bench.predict_next_request(shown))
        else:
            self.run_for_window(bench.open_draft_session(), then=show_first_price)

    def enable_possible_actions(self) -> None:
        running = (
            self.current_session.running
            if self.current_session
            else session_events.ConversationActivity.IDLE
        )
        works, allow = running in WORKING_STATES, self.window_actions.set_actions_enabled
        allow(WORKSPACE_ACTIONS, when=self.current_workbench is not None)
        allow(
            ("new",),
            when=self.current_workbench is not None or bool(self.chat.awaited_conversation),
        )
        allow(CONVERSATION_ACTIONS, when=self.current_session is not None)
        allow(QUESTION_ACTIONS, when=running is session_events.ConversationActivity.ASKING)
        allow(("regenerate", "resume"), when=self.current_session is not None and not works)
        allow(
            ("stop",),
            when=works
            or bool(self.current_session and self.current_session.folding.kind_in_progress),
        )
        allow(("other-side", "close-side"), when=len(self.chats) > 1)

    def build_attachment_receiver(self) -> Callable[[Sequence[Attachment]], None]:
        """Returns a function that adds attachments to the message being written now,
        even if they arrive late.
        """
        return partial(self._attach_to_draft, self.chat.composer.draft_place)

    def _attach_to_draft(self, place: DraftPlace, attachments: Sequence[Attachment]) -> None:
        if self.add_to_message_and_tell_if_current(place, attachments):
            self.go_to_side(self.chat)

    def add_to_message_and_tell_if_current(
        self, place: DraftPlace, parts: Sequence[UserPart]
    ) -> bool:
        """Adds parts to the message at `place`, shown or not. Returns whether it is the
        current one.
        """
        chat = next((each for each in self.chats if each.composer.is_message_of(place)), self.chat)
        return (
            chat.composer.add_and_tell_if_shown(place, parts, takes_focus=chat is self.chat)
            and chat is self.chat
        )

    def jump_to_end_of(self, session: Session) -> None:
        for chat in self.chats:
            if chat.session is session:
                chat.transcript.view.jump_to_end()

    def _list_suggestions_before_search(self) -> Sequence[PaletteItem]:
        rows, workspace = self.workspace_conversation_rows(), self.showing.workspace_id
        talks = search_suggestions.suggest_conversations(rows, workspace, self.go_to_place)
        others = [row for row in self.listed_workspaces if row.id != workspace]
        return [
            *talks[:5],
            *search_suggestions.suggest_workspaces(others, self.go_to_place),
            *search_suggestions.suggest_actions(self.window_actions),
            *talks[5:],
            *search_suggestions.suggest_help_pages(self.show_help),
        ]

    def show_help(self, file: str = "index.md") -> None:
        from helix_desktop.gui.help_dialog import HelpDialog

        HelpDialog(file, self).show()

    def go_to_place(self, place: WindowPlace) -> None:
        if place.kind == "settings":
            self.settings_wanted.emit("")
        else:
            self.go_to_workspace(place.workspace, lambda: self._go_to_place_in_workspace(place))

    def _go_to_place_in_workspace(self, place: WindowPlace) -> None:
        if place.kind == "entry" and place.digest is not None:
            self.switch_to_page("cache")
            self.pages.cache.open_entry_by_digest(place.digest)
        elif place.kind in ("conversation", "fold"):
            self.switch_to_page("timeline" if place.kind == "fold" else "chat")
            if self.current_session is not None and self.current_session.id == place.conversation:
                self._show_linked_place(place)
                self.focus_current_composer()
            else:
                self.go_to_conversation(place.conversation, lambda: self._show_linked_place(place))

    def _show_linked_place(self, place: WindowPlace) -> None:
        """Shows a message of a conversation that has just been opened, or a fold in the
        timeline.
        """
        chat = self._find_chat(place.conversation)
        if place.kind == "fold" and chat is self.chat:
            self.pages.timeline.choose_fold(place.fold)
        elif place.seq and chat is not None:
            chat.transcript.scroll_to_fact(place.seq, place.words)

    def quit_or_ask(
        self,
        quit_now: Callable[[], object],
        hide_until_done: Callable[[], object],
        *,
        asks: bool = True,
    ) -> None:
        """Quits. If agents are working, it asks first whether they should go on without
        the window, but not again while the question is shown.
        """
        working = self.count_working_agents()
        if not working or not asks:
            quit_now()
        elif self.findChild(QMessageBox, "quit") is None:
            text = "\n".join(
                [
                    _describe_working_agents(working),
                    tr(
                        "Agents can go on without the window. To see it again, start Helix Desktop again."
                    ),
                ]
            )
            ways = [(tr("Let them go on"), hide_until_done), (tr("Stop them"), quit_now)]
            box = ask_to_choose_one(self, tr("Quit"), text, tr("Cancel"), ways)
            box.setObjectName("quit")

    def count_working_agents(self) -> int:
        activities = self._activity_by_workspace.values()
        return sum(len(activity.working_agents()) for activity in activities)

    def save_window_state(self) -> None:
        self.save_window_layout()
        for chat in self.chats:
            chat.save_reading_place()
        self.pages.save_page_layouts()
        self.state_file.write_state_file()


def _shorten_workspace_name(name: str) -> str:
    if len(name) <= SHOWN_NAME_LENGTH:
        return name
    return f"{name[: SHOWN_NAME_LENGTH - 1]}…"


def _describe_working_agents(number: int) -> str:
    return format_count(number, "{n} agent is still working.", "{n} agents are still working.")


async def _open_and_prepare_session(bench: Workbench, conversation: str, chat: ChatPage) -> Session:
    session = await bench.open_session(conversation)
    await chat.transcript.view.build_items_of_long_history(session.conversation.state)
    return session
