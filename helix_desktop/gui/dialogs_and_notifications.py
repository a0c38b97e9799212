"""Connects the window with models, settings, imports, notifications and the tour."""

import asyncio
import time
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, SignalInstance
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import CoroutineStarter
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.trust_dialog import TrustDialog, describe_untrusted_items
from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.policy_names import list_policy_choices
from helix_desktop.gui.common.savings_sentences import describe_savings_of
from helix_desktop.gui.deep_links import WindowPlace, format_deep_link, parse_deep_link
from helix_desktop.gui.frame.conversation_list import format_age
from helix_desktop.gui.frame.desktop_notifications import DesktopNotifier
from helix_desktop.gui.frame.welcome_page import NewestConversation
from helix_desktop.gui.importing import history_import_port
from helix_desktop.gui.importing.history_import_port import HistoryDetails
from helix_desktop.gui.main_window import TITLE, MainWindow
from helix_desktop.gui.model_actions import ModelActions
from helix_desktop.gui.model_setup_port import ModelSetupPort
from helix_desktop.gui.question_dialogs import show_text_box
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import Installation
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.window_tour import WindowTour
from helix_desktop.gui.workbench_types import (
    ConnectedAgents,
    ImportedQuestion,
    ProjectItem,
    Workbench,
)
from helix_desktop.program_settings import (
    GATEWAY_ON,
    GATEWAY_SEND_TO,
    NOTIFY_DONE,
    NOTIFY_FAILED,
    NOTIFY_WAITING,
    RECORDER,
    SOUND_DONE,
)

if TYPE_CHECKING:
    from helix_desktop.engine.list_rows import ConversationListRow
    from helix_desktop.gui.settings.settings_dialog import SettingsDialog
    from helix_desktop.histories.history_finding import FoundHistories

LAST_CONVERSATIONS = 5  # The replay lab compares policies on this many of the latest conversations.
LONG_NOTICE_MS = 60_000
SHOWN_FILES = 3  # Of the files that the agent follows from now on, so many are named.
SHOWN_HISTORIES = 3  # The number of other programs' conversations that the welcome page names.


class DialogsAndNotifications(QObject):
    """Created when the stores can be opened. `tour_folder` contains the tour's sample."""

    def __init__(
        self,
        window: MainWindow,
        setup: ModelSetupPort,
        installation: Installation,
        tour_folder: Path,
        spawn: CoroutineStarter,
    ) -> None:
        super().__init__(window)
        self._window = window
        self._parts = window.parts
        self._showing = window.showing
        self._notices = window.notices
        self._workspaces = window.workspaces
        self._sides = window.sides
        self._welcome = window.welcome
        self._setup = setup
        self._installation = installation
        self._tour_folder = tour_folder
        self._settings: SettingsDialog | None = None
        self._tour: WindowTour | None = None
        self._agents: ConnectedAgents | None = None
        # The workspaces with the notes about their opening that were already shown.
        self._shown_notes: set[tuple[str, tuple[str, ...]]] = set()
        # The files in the notice that is shown for the open workspace, and those of which the
        # user has reviewed or dismissed the notice: each by its key and text, so that a file
        # whose text has changed is announced again.
        self._announced_files: set[tuple[str, str]] = set()
        self._settled_files: set[tuple[str, str]] = set()
        self.models = ModelActions(self._parts, window.top, self._sides, setup)
        self._notifier = DesktopNotifier(window.windowIcon(), spawn, self)
        self._notifier.clicked.connect(self._raise_window_and_go_to_link)
        self._connect_welcome_page()
        self._answer_requests()
        self._follow_workspaces(window.workbench_shown)
        self._declare_dialog_actions()
        self._sides.call_for_each_side(self._keep_notices_off_transcript)

    def _keep_notices_off_transcript(self, side: ChatPage) -> None:
        self._notices.room_changed.connect(side.reserve_room_for_notice)

    def _declare_dialog_actions(self) -> None:
        set_handler = self._parts.actions.set_action_handler
        has_workbench = self._showing.has_workbench
        set_handler("tour", self.start_window_tour)
        unless_blocked = self._workspaces.run_unless_blocked
        set_handler("fleet", partial(unless_blocked, self._open_fleet_dialog))
        set_handler("lab", self.open_replay_lab, when=has_workbench)
        set_handler("compare-presets", self._open_replay_lab_for_last, when=has_workbench)
        set_handler("bring-in", self.open_import_dialog)
        set_handler("connect-agent", self.open_connect_agents)

    def _connect_welcome_page(self) -> None:
        welcome = self._welcome
        actions = self._parts.actions
        welcome.folder.clicked.connect(actions["open-folder"].trigger)
        welcome.folder_given.connect(self._workspaces.create_workspace_for_folder)
        welcome.tour.clicked.connect(self.start_window_tour)
        welcome.importing.clicked.connect(actions["import-workspace"].trigger)
        welcome.trash.clicked.connect(actions["workspace-trash"].trigger)
        welcome.bring_in.clicked.connect(self.open_import_dialog)
        welcome.importing_conversations.clicked.connect(self.open_import_dialog)
        welcome.recorder_box.toggled.connect(self._turn_recorder_on_or_off)
        welcome.became_ready.connect(self._find_histories_for_welcome_page)
        settings = self._parts.settings
        settings.subscribe_to_changes(
            lambda _setting: welcome.recorder_box.setChecked(settings[RECORDER])
        )

    def _answer_requests(self) -> None:
        requests = self._parts.requests
        requests.retry_wanted.connect(self._setup.allow_asking_keyring_again)
        requests.model_setup_wanted.connect(self._choose_model_and_send)
        requests.settings_wanted.connect(self.open_settings)

    def _follow_workspaces(self, workbench_shown: SignalInstance) -> None:
        workbench_shown.connect(self._close_or_complete_settings_dialog)
        workbench_shown.connect(self._forget_announced_files)
        workbench_shown.connect(self._find_and_announce_untrusted_files)
        workbench_shown.connect(self._check_folders_of_workspace)
        workbench_shown.connect(self._show_opening_notes_and_imported_settings)
        activity_ended = self._workspaces.activity_ended
        activity_ended.connect(self._notify_of_ended_turn)
        # The turn may have read a file in a folder that has its own rules files.
        activity_ended.connect(self._find_and_announce_untrusted_files)
        activity_ended.connect(self._check_folders_of_workspace)

    def _choose_model_and_send(self) -> None:
        self.models.choose_first_model(self._send_what_was_written)

    def _send_what_was_written(self) -> None:
        self._sides.current.composer.send_composed_message(steer=False)

    # --- What a workspace says when it was opened

    def _check_folders_of_workspace(self) -> None:
        """Warns of a folder that was moved or deleted, before tool calls fail, and
        suggests nothing about an empty one.
        """
        bench = self._showing.bench
        if bench is None:
            return
        folder_check = asyncio.to_thread(_look_for_missing_folders, tuple(bench.allowed_folders))
        self._parts.run_for_window(folder_check, then=partial(self._show_state_of_folders, bench))

    def _show_state_of_folders(self, bench: Workbench, checked: "CheckedFolders") -> None:
        if self._showing.bench is not bench:
            return
        self._sides.current.empty.show_suggestions_about_project(has_files=checked.has_files)
        # A notice that is already there is not covered.
        if checked.missing and not self._notices.shown_text:
            warning = tr("The folder {folder} is missing. History and cache are intact. Restore the folder, or choose another one.", folder=checked.missing[0])  # fmt: skip
            choose_folder = self._parts.actions["workspace-folder"].trigger
            self._notices.show_notice(
                warning, button=tr("Choose a folder…"), act=choose_folder, shown_ms=LONG_NOTICE_MS
            )

    def _show_opening_notes_and_imported_settings(self) -> None:
        """Shows what was repaired while opening, and asks before imported settings take effect."""
        bench = self._showing.bench
        if bench is None:
            return
        notes = tuple(bench.opening_notes)
        if notes and (bench.id, notes) not in self._shown_notes:
            self._shown_notes.add((bench.id, notes))
            self._offer_opening_notes(bench)
        question = bench.next_imported_question()
        if question is not None:
            self._ask_to_allow_imported_settings(bench, question)

    def _offer_opening_notes(self, bench: Workbench) -> None:
        notes = [translate_sentences(note) for note in bench.opening_notes]
        title = tr("What happened when the workspace was opened")
        show_notes = partial(show_text_box, self._window, title, "\n\n".join(notes))
        summary = tr(
            "{name} was opened, but there were problems with some of its files.", name=bench.name
        )
        self._notices.show_notice(
            summary, button=tr("Review"), act=show_notes, shown_ms=LONG_NOTICE_MS
        )

    def _ask_to_allow_imported_settings(self, bench: Workbench, question: ImportedQuestion) -> None:
        """Asks one question of the import. The next one follows when the workspace is reopened."""
        what_was_imported = translate_name("imported settings", question.topic)
        consent_question = ConsentQuestion(
            tr("Imported settings"),
            what_was_imported,
            question.text,
            yes=tr("Allow"),
            no=tr("Discard"),
            later=tr("Decide later"),
        )
        accept = partial(self._decide_and_reopen, bench, question, accept=True)
        refuse = partial(self._decide_and_reopen, bench, question, accept=False)
        theme = self._parts.theme
        dialog = ConsentDialog(theme, consent_question, self._window, accept, refuse)
        dialog.open()

    def _decide_and_reopen(
        self, bench: Workbench, question: ImportedQuestion, *, accept: bool
    ) -> None:
        reopening = self._save_decision_and_reopen(bench, question, accept=accept)
        self._workspaces.change_and_reopen_workspace(bench.id, reopening)

    async def _save_decision_and_reopen(
        self, bench: Workbench, question: ImportedQuestion, *, accept: bool
    ) -> Workbench:
        await bench.decide_imported_question(question, accept=accept)
        return await self._workspaces.workbenches.reopen_workspace(bench.id)

    # --- Rules files that the user has not agreed to yet

    def _find_and_announce_untrusted_files(self) -> None:
        """Shows new or changed rules files to the user before they are followed."""
        bench = self._showing.bench
        if bench is not None:
            search = asyncio.to_thread(_find_untrusted_files, bench)
            self._parts.run_for_window(
                search, then=partial(self._announce_untrusted_files_once, bench)
            )

    def _announce_untrusted_files_once(
        self, bench: Workbench, files: Sequence[ProjectItem]
    ) -> None:
        if self._showing.bench is not bench:
            return
        new_files: list[ProjectItem] = []
        for file in files:
            key = (file.settings_key, file.text)
            if key not in self._announced_files and key not in self._settled_files:
                self._announced_files.add(key)
                new_files.append(file)
        if not new_files:
            return
        # The agent works without these files until the user has decided, so the notice stays.
        self._notices.show_notice(
            describe_untrusted_items(new_files),
            button=tr("Review"),
            act=partial(self._review_files, bench, new_files),
            shown_ms=None,
            when_dismissed=partial(self._settle_files, new_files),
        )

    def _settle_files(self, files: Sequence[ProjectItem]) -> None:
        """Does not announce these files again, unless their text changes."""
        for file in files:
            self._settled_files.add((file.settings_key, file.text))

    def _review_files(self, bench: Workbench, files: Sequence[ProjectItem]) -> None:
        self._settle_files(files)
        trust = partial(self._trust_files, bench)
        TrustDialog(self._parts.theme, files, trust, self._window).open()

    def _trust_files(self, bench: Workbench, files: Sequence[ProjectItem]) -> None:
        trusting = bench.project.trust_items(*files)
        self._parts.run_for_window(trusting, then=partial(self._notice_trusted_files, files))

    def _notice_trusted_files(self, files: Sequence[ProjectItem], _done: object) -> None:
        names = ", ".join(file.name for file in files[:SHOWN_FILES])
        if len(files) > SHOWN_FILES:
            names += " …"
        self._notices.show_notice(
            tr("From the next step on, the agent will use: {names}", names=names)
        )

    def _forget_announced_files(self) -> None:
        """The notice went with the workspace that was open before. It comes again with it."""
        self._announced_files.clear()

    # --- The settings dialog

    def open_settings(self, page: str) -> None:
        """Opens the settings at a page, or brings them to the front."""
        from helix_desktop.gui.settings.settings_dialog import SettingsDialog

        if self._settings is None:
            self._settings = SettingsDialog(self._window, self._setup, self._installation)
            self._settings.model_chosen.connect(self.models.use_chosen_model)
            self._settings.finished.connect(
                lambda _result: self._forget_dialog_and_update_choices()
            )
        self._settings.show_settings_page(page)
        self._settings.show()
        self._settings.raise_()

    def _close_or_complete_settings_dialog(self) -> None:
        """Closes the settings if they belong to another workspace. Those that were opened while
        the workspace was still loading get its pages.
        """
        if self._settings is None:
            return
        if self._settings.is_without_workspace:
            self._settings.add_opened_workspace()
        else:
            self._settings.reject()

    def _forget_dialog_and_update_choices(self) -> None:
        self._settings = None
        self._parts.requests.choices_changed.emit()

    def _open_fleet_dialog(self) -> None:
        from helix_desktop.gui.fleet.fleet_dialog import FleetDialog

        # The workspace that is shown comes first.
        names: dict[str, str] = {}
        shown_row = self._workspaces.row_of(self._showing.workspace_id)
        if shown_row is not None:
            names[shown_row.id] = shown_row.name
        for row in self._workspaces.rows_of_others():
            names[row.id] = row.name
        parts = self._parts
        dialog = FleetDialog(
            self._workspaces.workbenches,
            names,
            parts.requests.place_wanted.emit,
            parts.theme,
            parts.runner,
            self._window,
            self._setup.list_known_models,
        )
        dialog.show()

    # --- What other presets would have cost

    def open_replay_lab(self) -> None:
        """Computes what the current conversation, or the first in the list, would have cost under
        other policies.
        """
        if self._showing.foreign_agent:
            self._notices.show_notice(self._showing.describe_who_sends_requests())
            return
        rows = self._conversations_to_replay()
        current_rows = [row for row in rows if row.id == self._showing.conversation_id]
        if current_rows:
            self._open_replay_lab_with(current_rows)
        else:
            self._open_replay_lab_with(rows[:1])

    def _open_replay_lab_for_last(self) -> None:
        """Compares what the workspace's last conversations would have cost under each policy."""
        rows = self._conversations_to_replay()
        newest_first = sorted(rows, key=lambda row: row.updated, reverse=True)
        self._open_replay_lab_with(newest_first[:LAST_CONVERSATIONS])

    def _conversations_to_replay(self) -> "list[ConversationListRow]":
        """Leaves out the conversations of subagents, which have a parent, and of other agents, which
        keep their own context.
        """
        rows = self._sides.list_rows()
        replayed: list[ConversationListRow] = []
        for row in rows:
            if not (row.trashed or row.parent or row.acp_agent):
                replayed.append(row)
        return replayed

    def _open_replay_lab_with(self, rows: "Sequence[ConversationListRow]") -> None:
        from helix_desktop.gui.replay_lab.replay_lab_dialog import ReplayLabDialog

        bench = self._showing.bench
        if bench is None or not rows:
            self._notices.show_notice(tr("There is no conversation to replay yet."))
            return
        choices = list_policy_choices()
        replay = self._installation.replay_policies
        lab = ReplayLabDialog(
            bench,
            rows,
            choices,
            replay,
            self._setup,
            self._parts.runner,
            self._window,
        )
        lab.show_savings(self._describe_savings_of_shown(rows))
        lab.policy_adopted.connect(lambda _name: self._parts.requests.choices_changed.emit())
        lab.open()

    def _describe_savings_of_shown(self, rows: "Sequence[ConversationListRow]") -> str:
        """Returns what shortening saved in the shown conversation, if it is the only one of `rows`."""
        session = self._showing.conversation
        if session is None or [row.id for row in rows] != [session.id]:
            return ""
        return describe_savings_of(session.conversation.state, session.context.cost_of_agents())

    # --- Conversations of other programs

    @cached_property
    def _history_importer(self) -> history_import_port.HistoryImportPort:
        return self._installation.build_history_importer(self._workspaces.workbenches)

    def _find_histories_for_welcome_page(self) -> None:
        """Tells the user of an empty program which conversations can be imported."""
        if self._showing.page == "welcome":
            search = self._find_and_describe_newest()
            self._parts.run_for_window(search, then=self._show_histories_on_welcome)

    async def _find_and_describe_newest(self) -> "list[DescribedHistories]":
        groups = await self._history_importer.find_history_groups()
        # Some of the newest may not be importable, so more are read than are shown.
        described_count = 2 * SHOWN_HISTORIES
        histories: list[DescribedHistories] = []
        for group in groups[:described_count]:
            details = await self._history_importer.describe_history(group)
            histories.append(DescribedHistories(group, details))
        for group in groups[described_count:]:
            histories.append(DescribedHistories(group, details=None))
        return histories

    def _show_histories_on_welcome(self, histories: "Sequence[DescribedHistories]") -> None:
        now = time.time()
        conversation_count = 0
        programs: list[str] = []
        newest: list[NewestConversation] = []
        for history in histories:
            group = history.group
            details = history.details
            conversation_count += group.conversations
            if group.program not in programs:
                programs.append(group.program)
            if details is None or details.reason:
                continue  # It was not read, or cannot be imported for this reason.
            if len(newest) < SHOWN_HISTORIES:
                age = format_age(details.last or group.last, now)
                title = make_safe_text(details.title)
                folder_name = Path(group.folder).name
                newest.append(NewestConversation(group.program, title, folder_name, age))
        self._welcome.recorder_box.setChecked(self._parts.settings[RECORDER])
        self._welcome.show_importable_conversations(conversation_count, programs, newest)

    def _turn_recorder_on_or_off(self, is_on: bool) -> None:  # noqa: FBT001 -- a signal's argument
        settings = self._parts.settings
        try:
            if settings[RECORDER] != is_on:
                settings.change_setting(RECORDER, is_on)
        except HelixError as error:
            self._notices.show_error_notice(error)
            self._welcome.recorder_box.setChecked(settings[RECORDER])

    def open_import_dialog(self) -> None:
        from helix_desktop.gui.importing.import_dialog import ImportConversationsDialog

        dialog = ImportConversationsDialog(
            self._window,
            self._parts.runner,
            self._history_importer,
            self._parts.settings,
            self._show_imported_conversations,
            self._sides.refresh_conversations,
        )
        dialog.conversation_wanted.connect(self._parts.requests.request_conversation)
        dialog.open()
        dialog.find_conversations()

    def open_connect_agents(self) -> None:
        from helix_desktop.gui.connected.connect_agents_dialog import ConnectAgentsDialog

        dialog = ConnectAgentsDialog(
            self._parts.theme,
            self._window,
            self._parts.runner,
            self._connected_agents(),
            self._parts.settings,
        )
        dialog.conversations_wanted.connect(self._find_workspace_of_connected_agents)
        dialog.open()
        dialog.refresh_connections()

    def _find_workspace_of_connected_agents(self) -> None:
        # The gateway may have created it while the dialog was open.
        self._workspaces.refresh_workspaces(then=self._go_to_workspace_of_connected_agents)

    def _go_to_workspace_of_connected_agents(self) -> None:
        from helix_desktop.resident.connected_agents import name_of_usual_workspace

        name_of_workspace = name_of_usual_workspace()
        for row in self._workspaces.listed:
            if row.name == name_of_workspace:
                self._workspaces.go_to_workspace(row.id)
                return
        self._parts.notices.show_notice(
            tr(
                "The conversations of these agents are in the workspaces that they were started for."
            )
        )

    def _connected_agents(self) -> ConnectedAgents:
        if self._agents is None:
            self._agents = self._installation.connected_agents()
        return self._agents

    def turn_gateway_on_again(self) -> None:
        """The gateway runs while the window is open: programs that know its address would find
        nobody there after a restart.
        """
        settings = self._parts.settings
        if settings[GATEWAY_ON]:
            self._parts.run_for_window(
                self._connected_agents().switch_gateway(on=True, upstream=settings[GATEWAY_SEND_TO])
            )

    def _show_imported_conversations(self, outcome: history_import_port.ImportOutcome) -> None:
        self._workspaces.refresh_workspaces()
        workspace, conversation = outcome.first_conversation
        if not workspace:
            return
        if self._showing.workspace_id == workspace:
            self._sides.refresh_conversations()
        elif not self._showing.has_workspace():
            self._parts.requests.request_conversation(workspace, conversation)

    # --- Desktop notifications

    def _notify_of_ended_turn(
        self, workspace: str, conversation: str, running: ConversationActivity, why: str
    ) -> None:
        """Notifies the user outside the window, who need not look at it. The sound of a finished
        turn, if wanted, is heard even while the window is active.
        """
        reason = translate_sentences(why)
        match running:
            case ConversationActivity.ASKING:
                setting = NOTIFY_WAITING
                message = tr("The agent needs you: {why}", why=reason)
            case ConversationActivity.FAILED:
                setting = NOTIFY_FAILED
                message = tr("The agent stopped: {why}", why=reason)
            case _:
                setting = NOTIFY_DONE
                message = tr("The agent has finished.")
                if self._parts.settings[SOUND_DONE]:
                    QApplication.beep()
        if self._window.isActiveWindow() or not self._parts.settings[setting]:
            return
        title = self._workspaces.title_of_conversation(workspace, conversation) or TITLE
        place = WindowPlace("conversation", workspace, conversation)
        self._notifier.show_desktop_notification(title, message, format_deep_link(place))

    def _raise_window_and_go_to_link(self, deep_link: str) -> None:
        top_window = self._window.window()
        top_window.show()
        top_window.raise_()
        top_window.activateWindow()
        if deep_link:
            self._parts.requests.place_wanted.emit(parse_deep_link(deep_link))

    # --- The tour through the program

    def start_window_tour(self) -> None:
        """Creates a workspace on a sample folder, and a new conversation to start in."""
        if self._tour is not None:
            return

        opening = self._installation.open_tour_workbench(
            self._workspaces.workbenches, self._tour_folder
        )
        self._parts.run_for_window(opening, then=self._begin_tour_in)

    def _begin_tour_in(self, bench: Workbench) -> None:
        if self._showing.bench is not bench:
            self._workspaces.bring_to_front(bench)
        self._parts.requests.page_wanted.emit("chat")
        self._sides.begin_new_conversation()
        self._tour = WindowTour(self._window, self._forget_tour)

    def _forget_tour(self) -> None:
        self._tour = None


@dataclass(frozen=True)
class CheckedFolders:
    """`has_files`: one of the folders has a file or folder that is not hidden."""

    missing: Sequence[Path]
    has_files: bool


@dataclass(frozen=True)
class DescribedHistories:
    """`details`: what the newest conversation of the group is about, if it was read."""

    group: "FoundHistories"
    details: HistoryDetails | None


def _look_for_missing_folders(folders: Sequence[Path]) -> CheckedFolders:
    missing: list[Path] = []
    has_files = False
    for folder in folders:
        if not folder.is_dir():
            missing.append(folder)
        elif not has_files:
            try:
                has_files = any(not entry.name.startswith(".") for entry in folder.iterdir())
            except OSError:
                has_files = True  # A folder that cannot be read may have files.
    return CheckedFolders(missing, has_files)


def _find_untrusted_files(bench: Workbench) -> Sequence[ProjectItem]:
    return bench.project.read_project_folders().items_to_ask_about()
