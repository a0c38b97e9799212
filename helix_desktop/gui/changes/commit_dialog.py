"""The dialog that commits changed files, with a message the fast model can propose."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialogButtonBox, QListWidget, QListWidgetItem, QPlainTextEdit, QVBoxLayout, QWidget

from helix_desktop.engine.changes.turn_changes import FileChange, printable_path
from helix_desktop.gui.shared.plain_widgets import TransientDialog, build_plain_label, build_push_button
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import tr


class CommitDialog(TransientDialog):
    """`proposal_wanted`: a message is wanted for the chosen files."""

    proposal_wanted = Signal()

    def __init__(self, theme: Theme, files: Sequence[FileChange], parent: QWidget | None = None) -> None:
        super().__init__(tr("Commit"), parent)
        self.resize(theme.zoomed_pixels(560), theme.zoomed_pixels(440))
        self._files = list(files)
        self.list = QListWidget(self)
        self.list.setAccessibleName(tr("Files to commit"))
        for file in files:
            item = QListWidgetItem(printable_path(file.place), self.list)
            item.setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable)
            item.setCheckState(Qt.CheckState.Checked)
        self.message = QPlainTextEdit(self)
        self.message.setPlaceholderText(tr("Commit message"))
        self.message.setAccessibleName(tr("Commit message"))
        self.propose = build_push_button(tr("Propose a message"), self, self._request_proposal)
        note = build_plain_label(
            tr("These files are committed as they are now. Everything else you have staged stays staged."),
            "small",
            self,
        )
        buttons = QDialogButtonBox(self)
        self.commit_button = buttons.addButton(tr("Commit"), QDialogButtonBox.ButtonRole.AcceptRole)
        set_widget_look(self.commit_button, "primary")
        buttons.addButton(QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        self.message.textChanged.connect(self._enable_commit_button)
        column = QVBoxLayout(self)
        for widget, stretch in ((self.list, 2), (self.message, 1), (self.propose, 0), (note, 0), (buttons, 0)):
            column.addWidget(widget, stretch)
        self._enable_commit_button()

    @property
    def checked_files(self) -> list[FileChange]:
        checked = Qt.CheckState.Checked
        return [file for row, file in enumerate(self._files) if self.list.item(row).checkState() == checked]

    def show_proposal(self, message: str) -> None:
        self.message.setPlainText(message)
        self.enable_propose_button()

    def _request_proposal(self) -> None:
        self.propose.setEnabled(False)
        self.propose.setText(tr("The model is writing…"))
        self.proposal_wanted.emit()

    def enable_propose_button(self) -> None:
        self.propose.setEnabled(True)
        self.propose.setText(tr("Propose a message"))

    def _enable_commit_button(self) -> None:
        self.commit_button.setEnabled(bool(self.message.toPlainText().strip()))
