"""Connects the window with models, settings, imports, notifications and the tour."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import CoroutineStarter
from helix_desktop.gui.chat.trust_dialog import TrustDialog, describe_untrusted_items
from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.policy_names import list_policy_choices
from helix_desktop.gui.deep_links import WindowPlace, format_deep_link, parse_deep_link
from helix_desktop.gui.frame.conversation_list import format_age
from helix_desktop.gui.frame.desktop_notifications import DesktopNotifier
from helix_desktop.gui.importing import history_import_port
from helix_desktop.gui.importing.history_import_port import HistoryDetails
from helix_desktop.gui.main_window import TITLE, MainWindow
from helix_desktop.gui.model_actions import ModelActions
from helix_desktop.gui.model_setup_port import ModelSetupPort
from helix_desktop.gui.question_dialogs import ask_folder, show_text_box
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
from helix_desktop.program_settings import NOTIFY_DONE, NOTIFY_FAILED, NOTIFY_WAITING, RECORDER

if TYPE_CHECKING:
    from helix_desktop.engine.list_rows import ConversationListRow
    from helix_desktop.gui.settings.settings_dialog import SettingsDialog
    from helix_desktop.histories.history_finding import FoundHistories

LAST_CONVERSATIONS = 5  # The replay lab compares policies on this many of the latest conversations.
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
        self._setup = setup
        self._installation = installation
        self._tour_folder = tour_folder
        self._settings: SettingsDialog | None = None
        self.models = ModelActions(window, setup)
        self._tour: WindowTour | None = None
        self._shown_notes: set[tuple[str, ...]] = (
            set()
        )  # The notes already shown about opening a workspace.
        self._announced_files: set[tuple[str, str]] = (
            set()
        )  # The files that the user has been told about.
        self._notifier = DesktopNotifier(window.windowIcon(), spawn, self)
        self._notifier.clicked.connect(self._raise_window_and_go_to_link)
        welcome = window.welcome
        welcome.folder.clicked.connect(
            lambda: ask_folder(
                window, tr("Open folder as workspace"), window.create_workspace_for_folder
            )
        )
        welcome.folder_given.connect(window.create_workspace_for_folder)
        welcome.tour.clicked.connect(self.start_window_tour)
        welcome.importing.clicked.connect(window.window_actions["import-workspace"].trigger)
        welcome.trash.clicked.connect(window.window_actions["workspace-trash"].trigger)
        welcome.bring_in.clicked.connect(self.open_import_dialog)
        welcome.recorder_box.toggled.connect(self._turn_recorder_on_or_off)
        window.settings.subscribe_to_changes(
            lambda _: welcome.recorder_box.setChecked(window.settings[RECORDER])
        )
        window.retry_wanted.connect(setup.allow_asking_keyring_again)
        window.workbench_shown.connect(self._close_settings_dialog)
        window.workbench_shown.connect(self._find_and_announce_untrusted_files)
        window.workbench_shown.connect(self._check_folders_of_workspace)
        window.workbench_shown.connect(self._show_opening_notes_and_imported_settings)
        window.model_setup_wanted.connect(
            lambda: self.models.choose_first_model(
                lambda: window.chat.composer.send_composed_message(steer=False)
            )
        )
        window.settings_wanted.connect(self.open_settings)
        window.activity_ended.connect(self._notify_of_ended_turn)
        # The turn may have read a file in a folder that has its own rules files.
        window.activity_ended.connect(lambda *_: self._find_and_announce_untrusted_files())
        window.activity_ended.connect(lambda *_: self._check_folders_of_workspace())
        window.window_actions.set_action_handler("tour", self.start_window_tour)
        window.window_actions.set_action_handler("lab", self.open_replay_lab)
        window.window_actions.set_action_handler(
            "compare-presets", self.open_replay_lab_for_last_conversations
        )
        window.window_actions.set_action_handler("bring-in", self.open_import_dialog)
        window.window_actions.set_action_handler("connect-agent", self.open_connect_agents)
        self._agents: ConnectedAgents | None = None
        welcome.became_ready.connect(self._find_histories_for_welcome_page)

    def _check_folders_of_workspace(self) -> None:
        """Warns of a folder that was moved or deleted, before tool calls fail, and
        suggests nothing about an empty one.
        """
        window, bench = self._window, self._window.current_workbench
        if bench is None:
            return

        def show_what_was_found(found: tuple[Sequence[Path], bool]) -> None:
            gone, has_files = found
            if window.current_workbench is bench:
                window.chat.empty.show_suggestions_about_project(has_files=has_files)
            if gone and window.current_workbench is bench and not window.notices.shown_text:
                words = tr("The folder {folder} is missing. History and cache are intact. Restore the folder, or choose another one.", folder=gone[0])  # fmt: skip
                choose = window.window_actions["workspace-folder"].trigger
                window.notices.show_notice(
                    words, button=tr("Choose a folder…"), act=choose, shown_ms=60_000
                )

        folders = tuple(bench.allowed_folders)
        window.run_for_window(
            asyncio.to_thread(_find_missing_folders_and_files, folders), then=show_what_was_found
        )

    def _show_opening_notes_and_imported_settings(self) -> None:
        """Shows what was repaired while opening, and asks before imported settings take effect."""
        bench, notices = self._window.current_workbench, self._window.notices
        if bench is None:
            return
        found = (bench.id, *bench.opening_notes)
        if bench.opening_notes and found not in self._shown_notes:
            self._shown_notes.add(found)
            text = "\n\n".join(map(translate_sentences, bench.opening_notes))
            words = tr(
                "{name} was opened, but there were problems with some of its files.",
                name=bench.name,
            )
            title = tr("What happened when the workspace was opened")
            notices.show_notice(
                words,
                button=tr("Review"),
                act=lambda: show_text_box(self._window, title, text),
                shown_ms=60_000,
            )
        question = bench.next_imported_question()
        if question is not None:
            self._ask_to_allow_imported_settings(bench, question)

    def _ask_to_allow_imported_settings(self, bench: Workbench, question: ImportedQuestion) -> None:
        """Asks one question of the import. The next one follows when the workspace is reopened."""

        def decide_and_reopen(accept: bool) -> None:  # noqa: FBT001 - a step of this very function
            async def apply_decision() -> Workbench:
                await bench.decide_imported_question(question, accept=accept)
                return await self._window.workbenches.reopen_workspace(bench.id)

            self._window.change_and_reopen_workspace(bench.id, apply_decision())

        asked = ConsentQuestion(
            tr("Imported settings"),
            translate_name("imported settings", question.topic),
            question.text,
            tr("Allow"),
            tr("Discard"),
            tr("Decide later"),
        )
        agreed = partial(decide_and_reopen, True)
        refused = partial(decide_and_reopen, False)
        ConsentDialog(self._window.theme, asked, self._window, agreed, refused).open()

    # --- Rules files that the user has not agreed to yet

    def _find_and_announce_untrusted_files(self) -> None:
        """Shows new or changed rules files to the user before they are followed."""
        bench, window = self._window.current_workbench, self._window
        if bench is not None:
            work = asyncio.to_thread(
                lambda: bench.project.read_project_folders().items_to_ask_about()
            )
            then = partial(self._announce_untrusted_files_once, bench)
            window.run_for_window(work, then=then)

    def _announce_untrusted_files_once(
        self, bench: Workbench, files: Sequence[ProjectItem]
    ) -> None:
        new = [
            file for file in files if (file.settings_key, file.text) not in self._announced_files
        ]
        if new and self._window.current_workbench is bench:
            self._announced_files.update((file.settings_key, file.text) for file in new)
            self._window.notices.show_notice(
                describe_untrusted_items(new),
                button=tr("Review"),
                act=lambda: self._open_trust_dialog(bench, new),
                shown_ms=30_000,
            )

    def _open_trust_dialog(self, bench: Workbench, files: Sequence[ProjectItem]) -> None:
        def trust_reviewed_files(seen: Sequence[ProjectItem]) -> None:
            names = ", ".join(file.name for file in seen[:3]) + (" …" if len(seen) > 3 else "")
            used = tr("From the next step on, the agent will use: {names}", names=names)
            tell = self._window.notices.show_notice
            self._window.run_for_window(
                bench.project.trust_items(*seen), then=lambda _done: tell(used)
            )

        TrustDialog(self._window.theme, files, trust_reviewed_files, self._window).open()

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

    def _close_settings_dialog(self) -> None:
        """Closes the settings, because they belong to the workspace for which they were opened."""
        if self._settings is not None:
            self._settings.reject()

    def _forget_dialog_and_update_choices(self) -> None:
        self._settings = None
        self._window.show_policy_model_and_permissions()

    def open_replay_lab(self) -> None:
        """Compares the cost of the current conversation, or the newest one, under other
        policies.
        """
        session, rows = self._window.current_session, self._conversations_to_replay()
        self._open_replay_lab_with(
            ([row for row in rows if session and row.id == session.id] or rows)[:1]
        )

    def open_replay_lab_for_last_conversations(self) -> None:
        """Compares what the workspace's last conversations would have cost under each policy."""
        rows = self._conversations_to_replay()
        self._open_replay_lab_with(sorted(rows, key=lambda row: -row.updated)[:LAST_CONVERSATIONS])

    def _conversations_to_replay(self) -> "list[ConversationListRow]":
        bench = self._window.current_workbench
        return (
            [row for row in bench.list_conversations() if not row.trashed and not row.parent]
            if bench
            else []
        )

    def _open_replay_lab_with(self, rows: "Sequence[ConversationListRow]") -> None:
        from helix_desktop.gui.replay_lab.replay_lab_dialog import ReplayLabDialog

        window, bench = self._window, self._window.current_workbench
        if bench is None or not rows:
            window.notices.show_notice(tr("There is no conversation to replay yet."))
            return
        play, runner = self._installation.replay_policies, window.background_runner
        lab = ReplayLabDialog(bench, rows, list_policy_choices(), play, runner, window)
        lab.policy_adopted.connect(window.show_policy_model_and_permissions)
        lab.open()

    # --- Conversations of other programs

    @cached_property
    def _history_importer(self) -> history_import_port.HistoryImportPort:
        return self._installation.build_history_importer(self._window.workbenches)

    def _find_histories_for_welcome_page(self) -> None:
        """Tells the user of an empty program which conversations can be imported."""
        window, importer = self._window, self._history_importer

        async def find_and_describe_newest() -> tuple[
            Sequence["FoundHistories"], list[HistoryDetails]
        ]:
            groups = await importer.find_history_groups()
            return groups, [
                await importer.describe_history(group) for group in groups[: 2 * SHOWN_HISTORIES]
            ]

        if window.showing.page == "welcome":
            window.run_for_window(
                find_and_describe_newest(), then=lambda found: self._show_found_on_welcome(*found)
            )

    def _show_found_on_welcome(
        self, groups: Sequence["FoundHistories"], newest: Sequence[HistoryDetails]
    ) -> None:
        programs, now = list(dict.fromkeys(group.program for group in groups)), time.time()
        rows = [
            (
                group.program,
                make_safe_text(details.title),
                Path(group.folder).name,
                format_age(details.last or group.last, now),
            )
            for group, details in zip(groups, newest, strict=False)
            if not details.reason
        ][:SHOWN_HISTORIES]
        self._window.welcome.recorder_box.setChecked(self._window.settings[RECORDER])
        self._window.welcome.show_importable_conversations(
            sum(group.conversations for group in groups), programs, rows
        )

    def _turn_recorder_on_or_off(self, on: bool) -> None:  # noqa: FBT001 -- a signal's argument
        settings = self._window.settings
        try:
            if settings[RECORDER] != on:
                settings.change_setting(RECORDER, on)
        except HelixError as error:
            self._window.notices.show_error_notice(error)
            self._window.welcome.recorder_box.setChecked(settings[RECORDER])

    def open_import_dialog(self) -> None:
        from helix_desktop.gui.importing.import_dialog import ImportConversationsDialog

        window = self._window
        dialog = ImportConversationsDialog(
            window,
            window.background_runner,
            self._history_importer,
            window.settings,
            self._show_imported_conversations,
            window.refresh_conversations,
        )
        dialog.open()
        dialog.find_conversations()

    def open_connect_agents(self) -> None:
        from helix_desktop.gui.connected.connect_agents_dialog import ConnectAgentsDialog

        if self._agents is None:
            self._agents = self._installation.connected_agents()
        dialog = ConnectAgentsDialog(
            self._window.theme, self._window, self._window.background_runner, self._agents
        )
        dialog.open()
        dialog.refresh_connections()

    def _show_imported_conversations(self, outcome: history_import_port.ImportOutcome) -> None:
        window = self._window
        window.refresh_workspaces()
        workspace, conversation = outcome.first_conversation
        if not workspace:
            return
        if window.showing.workspace_id == workspace:
            window.refresh_conversations()
        elif window.current_workbench is None:
            window.go_to_place(WindowPlace("conversation", workspace, conversation))

    # --- Desktop notifications

    def _notify_of_ended_turn(
        self, workspace: str, conversation: str, running: ConversationActivity, why: str
    ) -> None:
        window, reason = self._window, translate_sentences(why)
        setting, words = {
            ConversationActivity.IDLE: (NOTIFY_DONE, tr("The agent has finished.")),
            ConversationActivity.ASKING: (
                NOTIFY_WAITING,
                tr("The agent is waiting for you: {why}", why=reason),
            ),
            ConversationActivity.FAILED: (
                NOTIFY_FAILED,
                tr("The agent stopped: {why}", why=reason),
            ),
        }[running]
        if window.isActiveWindow() or not window.settings[setting]:
            return
        title = window.title_of_conversation(workspace, conversation) or TITLE
        place = WindowPlace("conversation", workspace, conversation)
        self._notifier.show_desktop_notification(title, words, format_deep_link(place))

    def _raise_window_and_go_to_link(self, place: str) -> None:
        self._window.window().show()
        self._window.window().raise_()
        self._window.window().activateWindow()
        if place:
            self._window.go_to_place(parse_deep_link(place))

    # --- The tour through the program

    def start_window_tour(self) -> None:
        """Creates a workspace on a sample folder, and a new conversation to start in."""
        window = self._window
        if self._tour is not None:
            return

        def begin_tour_in(bench: Workbench) -> None:
            if window.current_workbench is not bench:
                window.bring_workspace_to_front(bench)
            window.switch_to_page("chat")
            window.begin_new_conversation()
            self._tour = WindowTour(window, partial(setattr, self, "_tour", None))

        work = self._installation.open_tour_workbench(window.workbenches, self._tour_folder)
        window.run_for_window(work, then=begin_tour_in)


def _find_missing_folders_and_files(folders: Sequence[Path]) -> tuple[list[Path], bool]:
    """Finds which folders are missing, and whether one of the others has a file or
    folder that is not hidden.
    """
    there = [folder for folder in folders if folder.is_dir()]
    with suppress(OSError):
        has_files = any(
            not inside.name.startswith(".") for folder in there for inside in folder.iterdir()
        )
        return [folder for folder in folders if folder not in there], has_files
    return [], True  # A folder that cannot be read may have files.
