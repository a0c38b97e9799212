"""The dialog that imports other programs' conversations, with progress, result and undo."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QMenu,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QWidget,
)

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.importing import history_import_port
from helix_desktop.gui.importing.found_conversations import FoundConversationTree
from helix_desktop.gui.question_dialogs import (
    ask_files,
    ask_to_confirm,
    ask_to_forget_keys,
    show_text_box,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.histories.program_names import NAMES
from helix_desktop.program_settings import RECORDER, ProgramSettings

NAMED_KEYS = 5
LONGEST_SHOWN_FILTER = 60
SHOWN_COMPLAINTS = 200  # So many messages are shown about what the import left out.


class ImportConversationsDialog(widgets.TransientDialog):
    """`on_imported` is called with the result of an import, and `on_conversations_changed` after
    conversations were removed. `conversation_wanted` carries the workspace and the conversation
    that the user wants to see after an import.
    """

    conversation_wanted = Signal(str, str)

    def __init__(
        self,
        parent: QWidget,
        runner: BackgroundRunner,
        histories: history_import_port.HistoryImportPort,
        settings: ProgramSettings,
        on_imported: Callable[[history_import_port.ImportOutcome], object],
        on_conversations_changed: Callable[[], object],
    ) -> None:
        """Builds the dialog; what was found is shown once the search for it has ended.
        `on_imported` is called after an import, `on_conversations_changed` after one
        was undone.
        """
        super().__init__(tr("Import conversations"), parent, 860, 560)
        self._runner = runner
        self._histories = histories
        self._settings = settings
        self._on_imported = on_imported
        self._on_conversations_changed = on_conversations_changed
        self._undescribed: list[FoundHistories] = []
        self._is_importing = False
        self._outcome = history_import_port.ImportOutcome()
        self._complaints: list[str] = []
        self._message_label = widgets.build_plain_label("", "")
        self.found = FoundConversationTree(self)
        self.found.choice_changed.connect(self._update_import_button)

        filter_hint = tr("Filter by title, folder or program")
        self.filter_line = widgets.build_line_edit(filter_hint, filter_hint, self)
        self.filter_line.setClearButtonEnabled(True)
        self.filter_line.textChanged.connect(self._show_rows_with)
        self._nothing_label = widgets.build_plain_label("", "muted")
        self._nothing_label.hide()

        self._bar = QProgressBar(self, textVisible=False)
        self._bar.setRange(0, 1000)
        self._bar.setAccessibleName(tr("Import conversations"))
        self._progress_label = widgets.build_plain_label("", "small")

        title = widgets.build_plain_label(tr("Conversations from other programs"), "title")
        files_label = tr("Choose files…")
        self._files_button = widgets.build_push_button(
            files_label, self, self._ask_for_files, "pill"
        )
        about_files = tr("You can also choose history files from other folders, or the ZIP file of a ChatGPT export.")  # fmt: skip
        self._files_button.setToolTip(about_files)
        self._delete_button = self._build_delete_button()
        self._delete_button.hide()
        filter_row = build_row((self.filter_line, 1), self._files_button)
        about_files_label = widgets.build_plain_label(about_files, "small")
        recorder_checkbox = self._build_recorder_checkbox()
        space = (QWidget(self), 1)
        recorder_row = build_row(recorder_checkbox, space, self._delete_button, wraps=True)
        about_recorder = widgets.build_plain_label(tr(RECORDER.sentence), "small")
        buttons = self._build_import_buttons()
        build_column(
            title,
            self._message_label,
            filter_row,
            about_files_label,
            self._nothing_label,
            (self.found, 1),
            recorder_row,
            about_recorder,
            self._bar,
            self._progress_label,
            buttons,
            owner=self,
            margins=(20, 20, 20, 16),
            spacing=10,
        )
        self._show_import_running(is_running=False)

    def _build_recorder_checkbox(self) -> QCheckBox:
        self.recorder_box = QCheckBox(tr(RECORDER.title), self)
        self.recorder_box.setAccessibleDescription(tr(RECORDER.sentence))
        self.recorder_box.setChecked(self._settings[RECORDER])
        self.recorder_box.toggled.connect(lambda on: self._settings.change_setting(RECORDER, on))
        return self.recorder_box

    def _build_delete_button(self) -> QPushButton:
        label = tr("Delete recorded conversations")
        button = widgets.build_push_button(f"{label} ▾", self, look="link")
        menu = QMenu(button)
        all_agents = tr("All agents")
        menu_of_all = menu.addMenu(all_agents)
        self._add_ages(menu_of_all, all_agents, kind="")
        for kind, title in NAMES.items():
            menu_of_agent = menu.addMenu(title)
            self._add_ages(menu_of_agent, title, kind)
        button.setMenu(menu)
        return button

    def _add_ages(self, submenu: QMenu, title: str, kind: str) -> None:
        """Adds how old the conversations of an agent must be to be deleted."""
        days_by_age = {
            tr("Any age"): 0,
            tr("Older than 30 days"): 30,
            tr("Older than a year"): 365,
        }
        for age, days in days_by_age.items():
            ask = partial(self._ask_to_delete_recorded, kind, days, f"{title}: {age}")
            submenu.addAction(age, ask)

    def _ask_to_delete_recorded(self, kind: str, days: int, choice: str) -> None:
        text = tr("The recorded and imported conversations are deleted permanently in all workspaces, along with cached content that nothing else uses. This cannot be undone. The agents' own files are kept. If the agents continue these conversations, the recorder saves only what is new.")  # fmt: skip
        delete = partial(self._delete_recorded, kind, days)
        ask_to_confirm(self, choice, text, tr("Delete permanently"), delete)

    def _delete_recorded(self, kind: str, days: int) -> None:
        self._runner.run_in_background(
            self._histories.delete_recorded_conversations(kind, days),
            then=self._show_deleted,
            owner=self,
        )

    def _show_deleted(self, count: int) -> None:
        self._message_label.setText(
            format_count(count, "{n} conversation deleted", "{n} conversations deleted")
        )
        self._on_conversations_changed()

    def _build_import_buttons(self) -> QHBoxLayout:
        """Builds the lowest row. "Undo" and what an import found out are shown after an
        import.
        """
        self._undo = widgets.build_push_button(tr("Undo"), self, self._undo_import, "link")
        self._keys = widgets.build_push_button("", self, self._ask_to_forget_keys, "link")
        left_out_label = tr("What was left out")
        self._left_out = widgets.build_push_button(
            left_out_label, self, self._show_what_was_left_out, "link"
        )
        self._show_first = widgets.build_push_button("", self, self._show_first_conversation)
        self._close = widgets.build_push_button(tr("Close"), self, self.reject, "")
        self._stop = widgets.build_push_button(tr("Stop"), self, self._histories.stop_import, "")
        self._stop.clicked.connect(lambda: self._stop.setEnabled(False))
        self.import_button = widgets.build_push_button(
            tr("Import"), self, self.import_checked_groups, "primary"
        )
        self._hide_buttons_of_result()
        links = [self._undo, self._keys, self._left_out]
        buttons = [self._close, self._show_first, self._stop, self.import_button]
        return build_row(*links, 1, *buttons)

    def _hide_buttons_of_result(self) -> None:
        for button in (self._undo, self._keys, self._left_out, self._show_first):
            button.hide()

    def _show_first_conversation(self) -> None:
        workspace, conversation = self._outcome.first_conversation
        self.conversation_wanted.emit(workspace, conversation)
        self.accept()

    def _ask_for_files(self) -> None:
        ask_files(self, tr("Choose files to import"), Path.home(), self.list_chosen_files)

    def list_chosen_files(self, paths: Sequence[Path]) -> None:
        self._files_button.setEnabled(False)
        self._message_label.setText(tr("Reading the files…"))
        self._runner.run_in_background(
            self._histories.read_chosen_files(paths), then=self._add_chosen_files, owner=self
        )

    def _add_chosen_files(self, chosen: history_import_port.ChosenHistories) -> None:
        """Adds what was found in files that the user chose, and says why others cannot
        be read.
        """
        self._files_button.setEnabled(True)
        self.filter_line.clear()  # It may hold the path that was typed before the file was chosen.
        self.found.add_groups(chosen.groups)
        for widget in (self.filter_line, self.found):
            widget.setVisible(bool(self.found.rows))
        count = 0
        for group in chosen.groups:
            count += group.conversations
            if group.conversations == 1:
                self._undescribed.append(group)
        self._describe_remaining_groups()
        lines: list[str] = []
        if count or not chosen.reasons:
            count_sentence = format_count(
                count,
                "{n} conversation is in the files that you chose.",
                "{n} conversations are in the files that you chose.",
            )
            lines.append(count_sentence)
        for reason in chosen.reasons:
            lines.append(translate_sentences(reason))
        self._message_label.setText("\n".join(lines))
        self._update_import_button()
        # The keyboard had been on the button, and went on to the next one while it was grey.
        if count:
            self.import_button.setFocus()
        else:
            self._files_button.setFocus()

    def _show_rows_with(self, words: str) -> None:
        """Leaves the conversations with these words, or says that there are none. Who types the
        path of a file here learns where files are chosen.
        """
        has_rows = self.found.filter_rows(words)
        self._nothing_label.setVisible(not has_rows)
        if not has_rows:
            sentence = tr("None of these conversations has “{words}” in its title, folder or program. For a file, use “Choose files…”.", words=make_safe_text(words[:LONGEST_SHOWN_FILTER]))  # fmt: skip
            self._nothing_label.setText(sentence)

    def find_conversations(self) -> None:
        self._message_label.setText(tr("Loading…"))
        self._runner.run_in_background(
            self._histories.find_history_groups(), then=self._show_found_groups, owner=self
        )

    def _show_found_groups(self, groups: Sequence[FoundHistories]) -> None:
        """Shows what was found in the places of other programs. Titles and costs are
        read afterwards, the newest conversations first, as reading all of them takes a
        while.
        """
        self.found.show_groups(groups)
        for widget in (self.filter_line, self.found):
            widget.setVisible(bool(groups))
        count = 0
        size = 0
        self._undescribed = []
        for group in groups:
            count += group.conversations
            size += group.size
            # What is said of a conversation says nothing about a file that has several.
            if group.conversations == 1:
                self._undescribed.append(group)
        self._undescribed.sort(key=lambda group: group.last, reverse=True)
        self._describe_remaining_groups()
        if groups:
            found = format_count(
                count,
                "{n} conversation was found on this computer",
                "{n} conversations were found on this computer",
            )
            message = tr("{found} ({size}). An import copies a conversation into the workspace of its folder, which costs nothing. The other programs' files are not changed.", found=found, size=format_byte_size(size))  # fmt: skip
        else:
            message = tr("No conversations from other programs were found on this computer.")
        self._message_label.setText(message)
        # Where nothing was found, nothing was recorded that could be deleted.
        self._delete_button.setVisible(bool(groups) or self._settings[RECORDER])
        self._update_import_button()
        if not groups and self.findChild(QScrollArea) is None:
            self.resize(self.width(), self.minimumSizeHint().height())

    def _describe_remaining_groups(self) -> None:
        """Describes one group after another from the top. Closing the dialog ends this."""
        if not self._undescribed:
            return
        group = self._undescribed.pop(0)
        self._runner.run_in_background(
            self._histories.describe_history(group),
            then=partial(self._show_details_and_continue, group),
            owner=self,
        )

    def _show_details_and_continue(
        self, group: FoundHistories, details: history_import_port.HistoryDetails
    ) -> None:
        self.found.show_details(group, details)
        self._describe_remaining_groups()

    def _update_import_button(self) -> None:
        """Says on the button how many conversations will be imported. After an import
        with nothing more chosen, "Close" takes its place.
        """
        chosen_count = 0
        for group in self.found.chosen_groups():
            chosen_count += group.conversations
        # After an import, nothing is left to do but to close the dialog or to choose more.
        has_outcome = self._outcome != history_import_port.ImportOutcome()
        is_over = has_outcome and not chosen_count
        self.import_button.setVisible(not self._is_importing and not is_over)
        self.import_button.setEnabled(chosen_count > 0 and not self._is_importing)
        look_of_opening = ""
        look_of_closing = ""
        # Whoever has imported a conversation wants to go on in it.
        if is_over and not self._show_first.isHidden():
            look_of_opening = "primary"
        elif is_over:
            look_of_closing = "primary"
        set_widget_look(self._show_first, look_of_opening)
        set_widget_look(self._close, look_of_closing)
        if chosen_count:
            label = format_count(
                chosen_count, "Import {n} conversation", "Import {n} conversations"
            )
        else:
            label = tr("Import")
        self.import_button.setText(label)

    def import_checked_groups(self) -> None:
        self._show_import_running(is_running=True)
        self._message_label.setText(tr("Importing…"))
        self._hide_buttons_of_result()
        work = self._histories.import_history_groups(
            self.found.chosen_groups(), self._show_import_progress
        )
        self._runner.run_in_background(
            work, then=self._show_import_result, owner=self, failed=self._show_import_error
        )

    def _show_import_progress(self, done: int, total: int) -> None:
        # A program may go on writing, so that more is read than there was.
        thousandths = done * 1000 // max(1, total)
        self._bar.setValue(min(thousandths, 1000))
        done_size = format_byte_size(done)
        total_size = format_byte_size(total)
        self._progress_label.setText(tr("{done} of {total}", done=done_size, total=total_size))

    def _show_import_error(self, error: HelixError) -> None:
        self._show_import_running(is_running=False)
        self.import_button.setFocus()
        self._progress_label.setText(translate_sentences(str(error)))
        self._progress_label.show()

    def _show_import_running(self, *, is_running: bool) -> None:
        self._is_importing = is_running
        for widget in (self._bar, self._progress_label, self._stop):
            widget.setVisible(is_running)
        self._stop.setEnabled(True)
        self._close.setVisible(not is_running)
        self.found.setEnabled(not is_running)
        self._update_import_button()

    def reject(self) -> None:
        """Stops the work when the dialog closes. What was imported until then stays."""
        if self._is_importing:
            self._histories.stop_import()
        super().reject()

    def _show_import_result(self, outcome: history_import_port.ImportOutcome) -> None:
        """Says what was imported and what was not, and offers to undo it. Keys that
        stood in the conversations can be forgotten from here.
        """
        self._outcome = outcome
        workspace, _conversation = outcome.first_conversation
        if outcome.new_count + outcome.grown_count == 1:
            self._show_first.setText(tr("Open the conversation"))
        else:
            self._show_first.setText(tr("Open the newest"))
        self._show_first.setVisible(bool(workspace))
        self._show_import_running(is_running=False)
        if not outcome.stopped:
            self.found.untick_all()
        if workspace:
            self._show_first.setFocus()
        else:
            self._close.setFocus()
        sentences = _describe_import_outcome(outcome)
        self._message_label.setText(join_sentences(*sentences))
        has_changed_something = bool(outcome.new_count or outcome.grown_count)
        self._undo.setVisible(has_changed_something)
        key_count = len(outcome.masked_keys)
        forget_keys = format_count(key_count, "Forget the secret…", "Forget the {n} secrets…")
        self._keys.setText(forget_keys)
        self._keys.setVisible(key_count > 0)
        self._complaints = self.found.show_reasons_and_return_others(outcome.complaints)
        self._left_out.setVisible(bool(self._complaints))
        self._on_imported(outcome)

    def _undo_import(self) -> None:
        self._undo.setEnabled(False)
        self._runner.run_in_background(
            self._histories.undo_last_import(), then=self._show_import_undone, owner=self
        )

    def _show_import_undone(self, kept: Sequence[str]) -> None:
        """Says what became of the imported conversations. `kept`: those that the user
        went on with, which an undo leaves alone.
        """
        self._undo.hide()
        self._show_first.hide()
        self._undo.setEnabled(True)
        self._close.setFocus()
        self._update_import_button()
        sentences = [
            tr(
                "The import was undone. The imported conversations are in the trash of their workspaces."
            )
        ]
        if kept:
            kept_sentence = format_count(
                len(kept),
                "{n} conversation was kept because you continued it in Helix Desktop.",
                "{n} conversations were kept because you continued them in Helix Desktop.",
            )
            sentences.append(kept_sentence)
        self._message_label.setText(join_sentences(*sentences))
        self._on_conversations_changed()

    def _ask_to_forget_keys(self) -> None:
        ask_to_forget_keys(self, self._outcome.masked_keys, self._forget_found_keys)

    def _forget_found_keys(self) -> None:
        self._keys.setEnabled(False)
        self._runner.run_in_background(
            self._histories.forget_found_api_keys(), then=self._show_keys_forgotten, owner=self
        )

    def _show_keys_forgotten(self, number: int) -> None:
        self._keys.hide()
        self._close.setFocus()
        self._message_label.setText(
            format_count(number, "{n} secret was removed.", "{n} secrets were removed.")
        )
        self._on_conversations_changed()

    def _show_what_was_left_out(self) -> None:
        lines = [translate_sentences(text) for text in self._complaints[:SHOWN_COMPLAINTS]]
        show_text_box(self, tr("What was left out"), "\n".join(lines))


def _describe_import_outcome(outcome: history_import_port.ImportOutcome) -> list[str]:
    """Describes in sentences what was imported, what was not, and what needs attention."""
    new_sentence = format_count(
        outcome.new_count,
        "{n} conversation was imported.",
        "{n} conversations were imported.",
    )
    sentences = [new_sentence]
    if outcome.workspaces:
        sentences.append(tr("Workspaces: {names}.", names=", ".join(outcome.workspaces)))
    if outcome.grown_count:
        grown_sentence = format_count(
            outcome.grown_count,
            "{n} conversation has new messages.",
            "{n} conversations have new messages.",
        )
        sentences.append(grown_sentence)
    if outcome.unchanged_count:
        unchanged_sentence = format_count(
            outcome.unchanged_count,
            "{n} conversation had already been imported.",
            "{n} conversations had already been imported.",
        )
        sentences.append(unchanged_sentence)
    if outcome.new_count:
        sentences.append(tr("Each can be continued here, with the model that you choose."))
    if outcome.stopped:
        sentences.append(tr("Stopped. Conversations imported so far are kept. To add the rest, start the import again."))  # fmt: skip
    if outcome.masked_keys:
        first_keys = ", ".join(outcome.masked_keys[:NAMED_KEYS])
        key_sentence = tr(
            "The imported conversations contain text that looks like passwords or other secrets: {keys}",
            keys=first_keys,
        )
        sentences.append(key_sentence)
    return sentences
