"""Commits changed files; in a folder without git, the button sets git up first."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QListWidget, QListWidgetItem, QPlainTextEdit, QPushButton, QWidget

from helix_desktop.engine.changes.turn_changes import FileChange, printable_path
from helix_desktop.engine.test_and_commit_commands import find_reported_commit
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.translation import format_number, tr
from helix_desktop.gui.workbench_types import BranchState, FileChanges


class CommitDialog(widgets.TransientDialog):
    """`proposal_wanted` asks for a commit message for the chosen files."""

    proposal_wanted = Signal()

    def __init__(self, files: Sequence[FileChange], parent: QWidget | None = None) -> None:
        """Lists the files to commit, with a field for the message, without which the button waits."""
        super().__init__(tr("Commit"), parent, 560, 440)
        self._files = list(files)
        self.list = self._build_file_list()
        self.message = QPlainTextEdit(self, tabChangesFocus=True)
        self.message.setPlaceholderText(tr("Commit message"))
        self.message.setAccessibleName(tr("Commit message"))
        self.message.textChanged.connect(self._enable_commit_button)
        propose_label = tr("Propose a message")
        self.propose = widgets.build_push_button(propose_label, self, self._request_proposal)
        propose_row = build_row(self.propose, 1)
        what_is_committed = tr(
            "These files are committed as they are now. Everything else you have staged stays staged."
        )
        note = widgets.build_plain_label(what_is_committed, "small", self)
        self.commit_button = widgets.build_push_button(tr("Commit"), self, look="primary")
        buttons = widgets.build_confirm_buttons(self, self.commit_button, self.accept)
        self.branch_label = widgets.build_plain_label("", "muted", self)
        self.branch_label.hide()
        build_column(
            self.branch_label,
            (self.list, 2),
            (self.message, 1),
            propose_row,
            note,
            buttons,
            owner=self,
        )
        self._enable_commit_button()
        self.message.setFocus()

    def _build_file_list(self) -> QListWidget:
        file_list = QListWidget(self)
        file_list.setAccessibleName(tr("Files to commit"))
        for file in self._files:
            item = QListWidgetItem(_describe_file_to_commit(file), file_list)
            item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable)
            item.setCheckState(Qt.CheckState.Checked)
        return file_list

    @property
    def checked_files(self) -> list[FileChange]:
        checked: list[FileChange] = []
        for row, file in enumerate(self._files):
            if self.list.item(row).checkState() == Qt.CheckState.Checked:
                checked.extend(file.both_halves)
        return checked

    def show_branch(self, state: BranchState | None) -> None:
        """Shows where the commit goes. Before the first commit of a repository, it is not known."""
        if state is not None:
            words = tr("On branch {branch}")
            self.branch_label.setText(words.format(branch=state.branch))
            self.branch_label.show()

    def show_proposal(self, message: str) -> None:
        """Replaces the message as one edit, so that Ctrl+Z brings back what the user had written,
        perhaps while the model was writing.
        """
        cursor = QTextCursor(self.message.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.insertText(message)
        self.enable_propose_button()

    def _request_proposal(self) -> None:
        self.message.setFocus()  # Disabling the button would move the focus to Cancel.
        self.propose.setEnabled(False)
        self.propose.setText(tr("The model is writing…"))
        self.proposal_wanted.emit()

    def enable_propose_button(self) -> None:
        self.propose.setEnabled(True)
        self.propose.setText(tr("Propose a message"))

    def _enable_commit_button(self) -> None:
        self.commit_button.setEnabled(bool(self.message.toPlainText().strip()))


def _describe_file_to_commit(file: FileChange) -> str:
    name = printable_path(file.place)
    if file.renamed:
        return f"{name} ← {printable_path(file.renamed)}"
    if file.change_word == "deleted":
        name += f" · {tr('deleted')}"
    elif file.change_word == "added":
        name += f" · {tr('added')}"
    if file.added or file.removed:
        name += f" · +{format_number(file.added)} −{format_number(file.removed)}"
    return name


def _describe_commit(answer: str) -> str:
    """Says in words what git reports. What is not understood is shown as git says it."""
    reported = find_reported_commit(answer)
    if reported is None or "\n" in answer:
        return answer
    # The words are put together after the translation: a subject may have braces in it.
    words = tr("Committed to {branch}: {subject} ({commit})")
    return words.format(branch=reported.branch, subject=reported.subject, commit=reported.commit)


class CommitButton(QPushButton):
    """`notice_wanted` carries the result of the commit, or why there is none."""

    notice_wanted = Signal(str)
    committed = Signal()

    def __init__(self, doing: BackgroundRunner, parent: QWidget) -> None:
        super().__init__(tr("Commit…"), parent, autoDefault=False)
        self._doing = doing
        self._changes: FileChanges | None = None
        self._conversation = ""
        self._files: Sequence[FileChange] = ()
        self._has_git = True
        self._unused_messages: dict[str, str] = {}  # Unused commit messages, by conversation.
        set_widget_look(self, "primary")
        self.clicked.connect(lambda _checked=False: self._set_up_git_or_show_commit_dialog())

    def set_files_to_commit(
        self, changes: FileChanges, conversation: str, files: Sequence[FileChange]
    ) -> None:
        self._changes = changes
        self._conversation = conversation
        self._files = files
        self.setEnabled(bool(files))

    def relabel_for_git(self, has_git: bool) -> None:  # noqa: FBT001 - the result of a task
        """Offers to create a repository in a folder without git."""
        self._has_git = has_git
        if has_git:
            self.setText(tr("Commit…"))
            set_widget_look(self, "primary")
        else:
            self.setText(tr("Set up git here"))
            set_widget_look(self, "")

    def _set_up_git(self, changes: FileChanges) -> None:
        def show_commit_dialog(_done: None) -> None:
            self.relabel_for_git(has_git=True)
            self.notice_wanted.emit(
                tr("This folder is now a git repository. Choose what its first commit contains.")
            )
            self._show_commit_dialog(changes)

        work = changes.git_repository.set_up_repository()
        self._doing.run_in_background(work, then=show_commit_dialog, owner=self)

    def _set_up_git_or_show_commit_dialog(self) -> None:
        if self._changes is None or not self._files:
            return
        if self._has_git:
            self._show_commit_dialog(self._changes)
        else:
            self._set_up_git(self._changes)

    def _show_commit_dialog(self, changes: FileChanges) -> None:
        conversation = self._conversation
        dialog = CommitDialog(self._files, self)
        dialog.message.setPlainText(self._unused_messages.get(conversation, ""))
        keep_message = partial(self._keep_unused_message, conversation, dialog)
        dialog.message.textChanged.connect(keep_message)
        propose = partial(self._propose_message, changes, conversation, dialog)
        dialog.proposal_wanted.connect(propose)
        commit = partial(self._commit, changes, conversation, dialog)
        dialog.accepted.connect(commit)
        reading = changes.branch_publishing.read_branch_state()
        self._doing.run_in_background(reading, then=dialog.show_branch, owner=dialog)
        dialog.open()

    def _keep_unused_message(self, conversation: str, dialog: CommitDialog) -> None:
        """Remembers what was written, for the case that the dialog is closed without a commit."""
        self._unused_messages[conversation] = dialog.message.toPlainText()

    def _propose_message(
        self, changes: FileChanges, conversation: str, dialog: CommitDialog
    ) -> None:
        patch = changes.build_git_patch(dialog.checked_files)
        work = changes.git_repository.propose_commit_message(patch, conversation)
        self._doing.run_in_background(
            work,
            then=dialog.show_proposal,
            owner=dialog,
            failed=lambda error: self._report_no_proposal(dialog, error),
        )

    def _commit(self, changes: FileChanges, conversation: str, dialog: CommitDialog) -> None:
        def report_commit(answer: str) -> None:
            self._unused_messages.pop(conversation, None)
            self.committed.emit()
            self.notice_wanted.emit(_describe_commit(answer))

        message = dialog.message.toPlainText()
        work = changes.commit_files(conversation, dialog.checked_files, message)
        self._doing.run_in_background(work, then=report_commit, owner=self)

    def _report_no_proposal(self, dialog: CommitDialog, error: HelixError) -> None:
        dialog.enable_propose_button()
        self.notice_wanted.emit(str(error))
