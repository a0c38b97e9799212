"""The content of the main window: it makes the parts of the window, and shows a workspace that was
opened. What the parts do for the user is in their own modules.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QMessageBox, QWidget

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.composer import ALLOW_ALL_FOR_AN_HOUR
from helix_desktop.gui.chat_action_handling import ChatActionHandler
from helix_desktop.gui.chat_progress import ChatProgress, describe_working_agents
from helix_desktop.gui.common.accessible_roles import install_accessible_roles
from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.common.widgets import build_plain_label, build_surface
from helix_desktop.gui.context_panel_opening import ContextPanelOpener
from helix_desktop.gui.conversation_actions import ConversationActions
from helix_desktop.gui.conversation_sides import NEW, ConversationSides
from helix_desktop.gui.conversation_starting import ConversationStarter
from helix_desktop.gui.everything_search import EverythingSearch
from helix_desktop.gui.fleet_task_notice import FleetTaskNotice
from helix_desktop.gui.forget_text_dialog import open_forget_text_dialog
from helix_desktop.gui.frame.command_palette import CommandPalette, PaletteItem
from helix_desktop.gui.frame.connect_model_panel import DEMO_MODEL
from helix_desktop.gui.frame.conversation_list import describe_copy_of
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.frame.welcome_page import WelcomePage
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.frame.window_pages import WindowPages
from helix_desktop.gui.key_lending import KeyLending
from helix_desktop.gui.leaked_key_offers import LeakedKeyOffers
from helix_desktop.gui.message_sending import MessageSender
from helix_desktop.gui.open_workspaces import OpenWorkspaces, describe_opening
from helix_desktop.gui.place_opening import PlaceOpener
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.sharing.sharing_controller import SharingController
from helix_desktop.gui.shown_workspace import ShownWorkspace, client_of_host
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.view_actions import ViewActions
from helix_desktop.gui.window_actions import ActionRegistry
from helix_desktop.gui.window_contents import WindowContents
from helix_desktop.gui.window_parts import WindowParts, WindowRequests
from helix_desktop.gui.workbench_types import Session, Workbench
from helix_desktop.gui.workspace_actions import WorkspaceActions
from helix_desktop.gui.workspace_activity import WorkspaceActivity
from helix_desktop.gui.workspace_line import WorkspaceLine
from helix_desktop.program_settings import ProgramSettings

if TYPE_CHECKING:
    from helix_desktop.gui.inspector.meter_panel import ContextPanel

TITLE = "Helix Desktop"


class MainWindow(WindowFrame):
    """`workbench_shown`: another workspace is shown now."""

    workbench_shown = Signal()

    def __init__(
        self,
        theme: Theme,
        state_file: WindowStateFile,
        settings: ProgramSettings,
        runner: BackgroundRunner,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(theme, state_file, parent)
        install_accessible_roles()
        self.settings = settings
        self.background_runner = runner
        self.window_actions = ActionRegistry(self, settings)
        self.pages = WindowPages(theme, runner, self.showing, state_file, self)
        self.notices = Notices(theme, self._middle, self._height_of_chat_controls)
        self.parts = WindowParts(
            self,
            theme,
            state_file,
            settings,
            runner,
            self.showing,
            self.notices,
            self.window_actions,
            WindowRequests(self),
        )
        runner.failed.connect(self.notices.show_error_notice)
        self.notices.room_changed.connect(self._keep_pages_off_notice)
        self.page_area.currentChanged.connect(self.notices.repeat_room)
        self.palette_box = CommandPalette(theme, self._list_suggestions, self)
        self.welcome = WelcomePage(theme, self.page_area)
        self.workspaces = OpenWorkspaces(self.parts, self.rail, self.welcome)
        self.sides = ConversationSides(self.parts, self, self.palette_box, self.workspaces)
        self.sides.current_changed.connect(self.palette_box.list_ready_items_again)
        self._add_pages()
        self._build_parts()
        self._connect_parts()

    def _keep_pages_off_notice(self, height: int) -> None:
        """Keeps room below a page for a notice that stays. The chat does it by itself, above its
        message box.
        """
        bottom = 0
        if self.notices.stays_until_answered and self.showing.page != "chat":
            bottom = height
        self.page_area.setContentsMargins(0, 0, 0, bottom)

    def _add_pages(self) -> None:
        self.add_page("chat", self.chat)
        for name in ("changes", "cache", "timeline", "inspector"):
            self.page_factories[name] = partial(getattr, self.pages, name)
        self.welcome.enable_first_steps(ready=False)
        self.add_page("welcome", self.welcome)
        last_workspace = self.state_file.get_remembered("workspace", default="")
        if not last_workspace:
            self.switch_to_page("welcome")
            return
        last_page = self.state_file.get_remembered("layout", last_workspace, "page", default="chat")
        if last_page in self.page_factories:
            # Until the page can be built, it says what is waited for and has no message box.
            blank = build_surface(self.page_area, "page")
            words = describe_opening(self.workspaces.name_of_wanted_workspace)
            waiting_label = build_plain_label(words, "faint", blank)
            waiting_label.setAlignment(Qt.AlignmentFlag.AlignCenter)
            build_column((waiting_label, 1), owner=blank, margins=0, spacing=0)
            self.page_area.setCurrentIndex(self.page_area.addWidget(blank))
            self.top.mark_open_page(last_page)

    def _build_parts(self) -> None:
        """Builds what serves the user. Each part declares its actions and hears its signals."""
        contents = WindowContents(
            self.parts, self, self.pages, self.palette_box, self.workspaces, self.sides
        )
        self.sharing = SharingController(contents)
        self.context_panel_opener = ContextPanelOpener(contents)
        self.chat_progress = ChatProgress(contents, self.context_panel_opener)
        LeakedKeyOffers(self.parts, self.sides)
        self.places = PlaceOpener(contents)
        self.search = EverythingSearch(contents)
        self.conversation_actions = ConversationActions(contents)
        self.messages = MessageSender(self.parts, self.pages, self.sides)
        self.chat_actions = ChatActionHandler(
            contents, self.search, self.conversation_actions, self.context_panel_opener
        )
        ConversationStarter(self.parts, self.sides)
        WorkspaceActions(self.parts, self, self.workspaces)
        self.workspace_line = WorkspaceLine(self.parts, self, self.workspaces, self.sides)
        FleetTaskNotice(self.parts, self, self.workspaces)
        self.key_lending = KeyLending(self.parts, self, self.workspaces)
        ViewActions(contents)
        self._explain_conditions_of_shown_state()
        self.window_actions.set_action_handler(
            "forget-text", self.open_forget_text, when=self.showing.has_workbench
        )

    def _explain_conditions_of_shown_state(self) -> None:
        """Says what most actions wait for. A part of the window explains its own conditions."""
        showing = self.showing
        explain = self.window_actions.explain_condition
        explain(showing.has_workspace, showing.describe_missing_workspace)
        explain(showing.has_workbench, showing.describe_missing_workbench)
        explain(showing.has_conversation, showing.describe_missing_conversation)
        explain(showing.has_own_session, showing.describe_missing_session)
        explain(showing.sends_its_requests, showing.describe_who_sends_requests)

    def _connect_parts(self) -> None:
        # Later, as it may be told of while something else is shown or written.
        self.state_file.changed_by_other_window.connect(
            self._show_again_after_forgetting, Qt.ConnectionType.QueuedConnection
        )
        self.workspaces.opened.connect(self._bring_workspace_to_front)
        self.workspaces.left.connect(self._leave_shown_workspace)
        self.workspaces.list_changed.connect(self._refresh_conversations_of)
        self.workspaces.settings_changed.connect(self._show_changed_settings)
        self.workspaces.state_changed.connect(self._show_state_in_list)
        self.sides.current_changed.connect(self._show_current_side_everywhere)
        self.sides.conversation_shown.connect(self._show_permissions_of_shown_conversation)
        self.sides.titles_changed.connect(self._update_window_title)
        self.parts.requests.choices_changed.connect(self._show_policy_model_and_permissions)
        self.workbench_shown.connect(self.messages.send_messages_held_for_workspace)
        self.messages.turn_stopped.connect(self.workspaces.note_stop_in_shown_workspace)
        self.top.stop.clicked.connect(self._stop_fold_or_show_agents)
        self.top.copy.clicked.connect(self.window_actions["bring-back"].trigger)
        self.window_actions.set_action_handler(
            "model", self.top.model.open_choices, when=self.showing.has_workspace
        )

    # --- What the window shows

    @property
    def chat(self) -> ChatPage:
        """The current side. The sidebar, the top bar and the panels show its state."""
        return self.sides.current

    @property
    def current_workbench(self) -> Workbench | None:
        """The shown workspace, if it is open in this process."""
        return self.showing.bench

    @property
    def current_session(self) -> Session | None:
        """The session that is shown, or None for a conversation without messages, or one of a
        workspace that another process has open.
        """
        return self.showing.session

    @property
    def context_panel(self) -> "ContextPanel":
        return self.context_panel_opener.panel

    def _list_suggestions(self) -> Sequence[PaletteItem]:
        return self.search.list_suggestions_before_search()

    def _height_of_chat_controls(self) -> int:
        highest = 0
        for side in self.sides.sides:
            if side.isVisible():
                highest = max(highest, side.height_of_composer_and_question())
        return highest

    def changeEvent(self, event: QEvent) -> None:
        """Lists the workspaces again, because the command line may have created,
        renamed or trashed one. Another window may have chosen another model.
        """
        super().changeEvent(event)
        if event.type() is not QEvent.Type.ActivationChange:
            return
        if self.isActiveWindow():
            self.state_file.take_changes_of_other_windows()
        if self.isActiveWindow() and self.workspaces.is_started:
            self.workspaces.refresh_workspaces()
            self.workspace_line.reread_description()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Letters typed at a tab, a tile or the tour's card go into the message, too."""
        super().keyPressEvent(event)
        if not event.isAccepted() and self.chat.isVisible():
            self.chat.keyPressEvent(event)

    def areas_in_tab_order(self) -> Sequence[QWidget]:
        """Tab visits one conversation before the other."""
        if len(self.sides.sides) < 2 or self.showing.page != "chat":
            return super().areas_in_tab_order()
        areas = [self.rail, self.sidebar, self.top]
        areas += self.sides.sides
        areas += [self.notices, self._side]
        return areas

    # --- The shown workspace

    def _bring_workspace_to_front(self, bench: ShownWorkspace) -> None:
        """Shows an open workspace with its layout, its list and its last conversation."""
        begins_new_conversation = self._is_new_conversation_wanted_in(bench)
        if self.showing.has_workspace():
            self.save_window_layout()
        self.sides.close_second_side_and_leave_session()
        self.notices.discard_offers()

        self.showing.set_shown_workspace(bench)
        self.state_file.remember_value("workspace", value=bench.id)
        self.workspaces.follow_workspace(bench)
        if self.workspaces.row_of(bench.id) is not None:
            self.rail.mark_open_workspace(bench.id)
        else:
            self.workspaces.refresh_workspaces()

        self._show_workspace_title(bench)
        self._show_policy_model_and_permissions()
        self.restore_window_layout(bench.id)

        self.sides.refresh_conversations()
        self.sides.open_last_conversations(bench)
        if begins_new_conversation:
            self.sides.begin_new_conversation()
        self.workbench_shown.emit()

    def _is_new_conversation_wanted_in(self, bench: ShownWorkspace) -> bool:
        """Whether the user asked for a new conversation while the workspace was being opened."""
        if self.chat.awaited_conversation != NEW:
            return False
        return self.chat.composer.draft_place == (bench.id, NEW)

    def _leave_shown_workspace(self) -> None:
        self.sides.close_second_side_and_leave_session()
        self.showing.set_shown_workspace(None)
        self.window_actions.update_enabled()
        self._update_window_title()

    def _show_workspace_title(self, bench: ShownWorkspace) -> None:
        first_folder = next(iter(bench.allowed_folders), None)
        client = client_of_host(bench)
        if client is not None and client.line.computer and first_folder is not None:
            first_folder = Path(f"{client.line.computer}:{first_folder}")
        self.sidebar.show_workspace_title(bench.name, first_folder)

    def _show_changed_settings(self, bench: ShownWorkspace) -> None:
        if self.showing.workspace is bench:
            self._show_policy_model_and_permissions()
            self._show_workspace_title(bench)

    def _show_policy_model_and_permissions(self) -> None:
        bench = self.showing.workspace
        if bench is None:
            return
        self.context_panel_opener.show_policy_if_built(bench.policy_name)
        allowed_uses = self._list_uses_allowed_in_sight(bench)
        self._show_model_and_start_panel(allowed_uses)
        self._show_permissions(bench, allowed_uses)
        for side in self.sides.sides:
            side.measuring.start()
        self._update_window_title()

    def _list_uses_allowed_in_sight(self, bench: ShownWorkspace) -> Mapping[str, Sequence[str]]:
        """Lists what rules allow in the conversations in sight and in a new one, with no name."""
        conversations = {""}
        for side in self.sides.sides:
            _workspace, conversation = side.composer.draft_place
            conversations.add(conversation)
        return bench.list_uses_allowed_in(conversations)

    def _show_permissions(
        self, bench: ShownWorkspace, allowed_uses: Mapping[str, Sequence[str]]
    ) -> None:
        """Shows beside each message box what the agent may do, which differs by conversation."""
        modes: list[tuple[str, str]] = []
        for name, description in bench.describe_permission_modes().items():
            words = tr(description)
            if name == ALLOW_ALL_FOR_AN_HOUR and bench.everything_allowed_until:
                words = _describe_end_of_allowance(bench)
            modes.append((name, words))
        for side in self.sides.sides:
            _workspace, conversation = side.composer.draft_place
            side.composer.show_permission_modes(
                modes, bench.permission_mode, allowed_uses[conversation]
            )

    def _show_permissions_of_shown_conversation(self) -> None:
        bench = self.showing.workspace
        if bench is not None:
            self._show_permissions(bench, self._list_uses_allowed_in_sight(bench))

    def _show_model_and_start_panel(
        self, allowed_uses: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Shows the model, and in the panel of a new conversation what the agent may do.
        `allowed_uses`: what rules allow in a new conversation, with no name, if that is known.
        """
        model = self.showing.main_model
        agent = self.showing.foreign_agent
        if agent:
            # A name alone would say as little as a stranger's: it could be a model or a person.
            self.top.model.show_choice(agent, tr("Agent: {name}", name=agent))
        else:
            self.top.model.show_choice(model)
        self.chat.empty.show_demo_or_usual_suggestions(scripted=model == DEMO_MODEL)
        bench = self.showing.workspace
        model_of_new = ""
        if self.showing.conversation is None and model != DEMO_MODEL:
            model_of_new = model
        if bench is not None:
            if allowed_uses is None:
                allowed_uses = bench.list_uses_allowed_in([""])
            self.chat.empty.show_what_agent_may_do(
                has_folder=bool(bench.allowed_folders),
                mode=bench.permission_mode,
                is_foreign_agent=bool(agent),
                allowed_uses=allowed_uses[""],
                model_of_new=model_of_new,
            )
        self.top.fit_top_bar()

    # --- The shown conversation

    def _refresh_conversations_of(self, bench: ShownWorkspace) -> None:
        if self.showing.workspace is bench:
            self.sides.refresh_conversations()
            # An agent of another program may have gone on with another model.
            self._show_model_and_start_panel()

    def _show_state_in_list(
        self, activity: WorkspaceActivity, conversation: str, running: ConversationActivity
    ) -> None:
        if activity.bench is self.showing.workspace:
            self.sidebar.list.lines.update_running_state(conversation, running)

    def _show_current_side_everywhere(self) -> None:
        self._show_model_and_start_panel()
        _workspace, conversation = self.chat.composer.draft_place
        self.sidebar.list.select_conversation(conversation)
        self.chat_progress.update_run_state(self.chat)
        self._update_window_title()

    def _update_window_title(self) -> None:
        self.sides.show_titles_of_sides()
        row = self.sides.find_listed_conversation()
        names: list[str] = []
        copy = ""
        if row is not None:
            copy = describe_copy_of(row)
            if row.title:
                names.append(row.title)
        if self.showing.workspace is not None:
            names.append(self.showing.workspace.name)
            # The message box says it too, but only the chat has one.
            if self.showing.workspace.everything_allowed_until:
                names.append(_describe_end_of_allowance(self.showing.workspace))
        names.append(TITLE)
        self.window().setWindowTitle(" — ".join(names))
        self.top.show_working_copy(copy)

    def _stop_fold_or_show_agents(self) -> None:
        session = self.showing.conversation
        if session is not None and session.folding.kind_in_progress:
            self.window_actions["stop"].trigger()
        else:
            self.window_actions["agents"].trigger()

    def open_forget_text(self, parent: QWidget | None = None) -> None:
        open_forget_text_dialog(self.parts, self._show_again_after_forgetting, parent)

    def _show_again_after_forgetting(self) -> None:
        """Reads the drafts and the typed history again: the text must not come back from them."""
        for side in tuple(self.sides.sides):
            self.sides.show_session_or_new(
                side.session, awaited=side.awaited_conversation, side=side
            )
        if self.pages.is_page_built("cache"):
            self.pages.cache.clear_and_reload_entries()

    # --- The end

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
        if not asks:
            quit_now()
            return
        working_count = self.workspaces.count_working_agents()
        if not working_count:
            self.key_lending.ask_and_quit(quit_now)
            return
        if self.findChild(QMessageBox, "quit") is not None:
            return
        sentences = [
            describe_working_agents(working_count),
            tr("Work can go on without the window. To see it, start Helix Desktop again."),
        ]
        choices = [
            DialogChoice(tr("Close the window only"), hide_until_done),
            DialogChoice(tr("Stop and quit"), partial(self.key_lending.ask_and_quit, quit_now)),
        ]
        box = ask_to_choose_one(
            self, tr("Quit"), "\n".join(sentences), choices, cancel_label=tr("Cancel")
        )
        box.setObjectName("quit")

    def restart_or_ask(self, restart: Callable[[], object], working_elsewhere: int) -> None:
        """Restarts the program. If agents are working, here or in other windows, it asks first:
        the restart stops them.
        """
        working_here = self.workspaces.count_working_agents()
        restart_unless_key_is_lent = partial(self.key_lending.ask_and_quit, restart)
        if working_here + working_elsewhere == 0:
            restart_unless_key_is_lent()
            return
        if self.findChild(QMessageBox, "restart") is not None:
            return
        sentences: list[str] = []
        if working_here:
            sentences.append(describe_working_agents(working_here))
        if working_elsewhere:
            sentences.append(
                format_count(
                    working_elsewhere,
                    "In another window, {n} agent is still working.",
                    "In other windows, {n} agents are still working.",
                )
            )
        sentences.append(tr("A restart stops this work. What was done until then is kept."))
        choices = [DialogChoice(tr("Stop and restart"), restart_unless_key_is_lent)]
        box = ask_to_choose_one(
            self, tr("Restart now"), "\n".join(sentences), choices, cancel_label=tr("Cancel")
        )
        box.setObjectName("restart")

    def save_window_state(self) -> None:
        self.save_window_layout()
        for side in self.sides.sides:
            side.save_reading_place()
        self.pages.save_page_layouts()
        self.state_file.write_state_file()


def _describe_end_of_allowance(bench: ShownWorkspace) -> str:
    """Says until when the agents of a workspace are allowed everything."""
    end = format_time_of_day(bench.everything_allowed_until)
    return tr("Allow everything until {time}", time=end)
