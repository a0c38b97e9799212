"""The page shown when no workspace is open: open a folder, take the tour, or import. A model is
asked for only when the first message is sent.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QIcon
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from helix_desktop import resources
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.frame.connect_panel import ConnectPanel
from helix_desktop.gui.model_setup_port import ModelSetupPort
from helix_desktop.gui.shared.plain_widgets import build_plain_label, build_push_button
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr

WIDTH = 560


class WelcomePage(QWidget):
    """`folder_wanted`: ask for one. `folder_given`: one was dropped. `tour_wanted`."""

    folder_wanted = Signal()
    folder_given = Signal(object)
    tour_wanted = Signal()
    import_wanted = Signal()
    became_ready = Signal()
    bring_in_wanted = Signal(bool)  # True: import everything; False: let the user choose

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("look", "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAcceptDrops(True)
        column = QVBoxLayout()
        column.setSpacing(12)
        icon = QLabel(self)
        icon.setPixmap(QIcon(str(resources.resources_folder() / "icons" / "helix.svg")).pixmap(QSize(56, 56)))
        column.addWidget(icon)
        column.addWidget(build_plain_label(tr("Work with AI agents for hours"), "large"))
        column.addWidget(
            build_plain_label(
                tr(
                    "Everything an agent sees is stored on this computer, where you can find and recall it. You can undo what the agent changes. What is sent to the model stays small."
                ),
                "muted",
            )
        )
        column.addSpacing(8)
        self._blocked = build_plain_label("", "danger")
        self._blocked.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._blocked.hide()
        column.addWidget(self._blocked)
        self.folder = self._add_action_card(
            column,
            tr("Open a folder"),
            tr(
                "A workspace belongs to one folder and has its own conversations and cache. You can also drag a folder here."
            ),
            "primary",
        )
        self.tour = self._add_action_card(
            column,
            tr("Take the tour"),
            tr(
                "A real session in a sample folder, with a built-in script instead of a language model. No API key or network needed."
            ),
            "",
        )
        self._found_card, self._found = QWidget(self), build_plain_label("", "muted")
        self.bring_in = self._build_import_card(column)
        self.folder.clicked.connect(self.folder_wanted)
        self.tour.clicked.connect(self.tour_wanted)
        self._import = QPushButton(tr("Import workspace…"), self)
        self._import.setProperty("look", "link")
        self._import.clicked.connect(self.import_wanted)
        column.addWidget(self._import, 0, Qt.AlignmentFlag.AlignLeft)
        middle = QWidget(self)
        middle.setProperty("look", "plain")
        middle.setLayout(column)
        theme.keep_scaled(self, middle.setMaximumWidth, WIDTH)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(middle, 100)
        row.addStretch(1)
        whole = QVBoxLayout(self)
        whole.addStretch(2)
        whole.addLayout(row)
        whole.addStretch(3)

    def show_startup_problem(self, why: str) -> None:
        """Shows why the program cannot work on this computer and what to do, in place of the first
        steps.
        """
        for card in (self.folder.parentWidget(), self.tour.parentWidget(), self._found_card, self._import):
            if card is not None:
                card.hide()
        self._blocked.setText(why)
        self._blocked.show()

    def show_importable_conversations(self, conversations: int, programs: str) -> None:
        """How many conversations of other programs are on this computer."""
        words = format_count(
            conversations, "{n} conversation found on this computer", "{n} conversations found on this computer"
        )
        self._found.setText(tr("{found}: {programs}. Import them to search, recall and continue them with any model.", found=words, programs=programs))  # fmt: skip
        self._found_card.setVisible(conversations > 0)

    def _build_import_card(self, column: QVBoxLayout) -> QPushButton:
        """Builds the card that offers to import; hidden until something is found."""
        row, button = self._fill_action_card(self._found_card, self._found, tr("Import them"), "")
        choose = QPushButton(tr("Choose which…"), self._found_card)
        choose.setProperty("look", "link")
        choose.clicked.connect(lambda: self.bring_in_wanted.emit(False))
        words = QVBoxLayout()
        words.setSpacing(4)
        words.addWidget(self._found)
        words.addWidget(choose, 0, Qt.AlignmentFlag.AlignLeft)
        row.insertLayout(0, words, 1)
        button.clicked.connect(lambda: self.bring_in_wanted.emit(True))
        column.addWidget(self._found_card)
        self._found_card.hide()
        return button

    def enable_first_steps(self, *, ready: bool) -> None:
        """Enables the buttons once the stores can be opened."""
        for button in (self.folder, self.tour, self._import):
            button.setEnabled(ready)
        if ready and self.isVisible():
            self.folder.setFocus()  # Return opens a folder at once.
        if ready:
            self.became_ready.emit()

    def _add_action_card(self, column: QVBoxLayout, title: str, text: str, look: str) -> QPushButton:
        card = QWidget(self)
        _, button = self._fill_action_card(card, build_plain_label(text, "muted"), title, look)
        button.setAccessibleDescription(text)
        column.addWidget(card)
        return button

    def _fill_action_card(self, card: QWidget, words: QLabel, title: str, look: str) -> tuple[QHBoxLayout, QPushButton]:
        card.setProperty("look", "card")
        card.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        row = QHBoxLayout(card)
        row.setContentsMargins(16, 14, 16, 14)
        row.setSpacing(16)
        row.addWidget(words, 1)
        button = QPushButton(title, card)
        if look:
            button.setProperty("look", look)
        row.addWidget(button)
        return row, button

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        folders = [Path(url.toLocalFile()) for url in event.mimeData().urls() if Path(url.toLocalFile()).is_dir()]
        if folders:
            event.acceptProposedAction()
            self.folder_given.emit(folders[0])


class ConnectModelDialog(QDialog):
    """Asks for a model when the user sends the first message and none is chosen.

    `chosen` carries the model; `added` carries a provider whose model the user chooses next.
    """

    chosen = Signal(str)
    added = Signal(str)

    def __init__(self, setup: ModelSetupPort, doing: BackgroundRunner, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Connect a model"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(560, 460)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(20, 20, 20, 20)
        whole.addWidget(build_plain_label(tr("Which model should answer?"), "title"))
        whole.addWidget(build_plain_label(tr("Your message is sent as soon as a model is connected."), "muted"))
        self.panel = ConnectPanel(setup, doing, self)
        self.panel.chosen.connect(self._on_model_connected)
        self.panel.added.connect(self._on_provider_connected)
        area = QScrollArea(self)
        area.setWidgetResizable(True)
        area.setWidget(self.panel)
        area.viewport().setAutoFillBackground(False)
        self.panel.setAutoFillBackground(False)
        whole.addWidget(area, 1)
        whole.addWidget(build_push_button(tr("Cancel"), self, self.reject), 0, Qt.AlignmentFlag.AlignRight)
        self.panel.search_local_servers()

    def _on_model_connected(self, model: str) -> None:
        self.chosen.emit(model)
        self.accept()

    def _on_provider_connected(self, provider: str) -> None:
        self.added.emit(provider)
        self.accept()
