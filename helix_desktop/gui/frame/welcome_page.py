"""The page without a workspace: open a folder, take the tour, or import. The first
message asks for a model.
"""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QFrame,
    QGridLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.frame.connect_model_panel import ConnectModelPanel
from helix_desktop.gui.model_setup_port import ModelSetupPort
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.program_settings import RECORDER

WIDTH = 640


class WelcomePage(QWidget):
    """Offers a `folder`, the `tour`, and what was found. `folder_given`: a folder was dropped."""

    folder_given = Signal(object)
    became_ready = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, acceptDrops=True)
        inside = widgets.build_surface(self, "inspector")
        middle = widgets.build_surface(self, "plain")
        hero = tr("An agent that remembers everything,\nand lets you undo anything")
        about = tr("For people who work with AI agents all day: every output is kept on this computer and can be found again, every change to a file can be undone, and you see what everything costs.")  # fmt: skip
        labels = [widgets.build_plain_label(*one) for one in ((hero, "hero"), (about, "muted"))]
        column = build_column(*labels, owner=middle, spacing=12)
        column.addSpacing(8)
        self._blocked = widgets.build_plain_label("", "danger")
        self._blocked.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._blocked.hide()
        column.addWidget(self._blocked)
        self._found_card = QWidget(self)
        self._found = widgets.build_plain_label("", "title")
        self._newest = QGridLayout()
        self._newest.setHorizontalSpacing(16)
        self._newest.setColumnStretch(1, 1)
        self.recorder_box = QCheckBox(tr(RECORDER.title), self._found_card)
        self.bring_in = self._build_import_card(column)
        self.folder = self._add_action_card(
            column,
            tr("Open a folder"),
            tr(
                "The folder becomes a workspace with its own conversations. You can also drag a folder here."
            ),
            tr("Open…"),
        )
        self.tour = self._add_action_card(
            column, tr("Take the tour"), tr("The tour takes three minutes and needs neither a key nor a network connection."), tr("Start")
        )  # fmt: skip
        set_widget_look(self.folder, "primary")
        self.importing = widgets.build_push_button(tr("Import workspace…"), self, look="link")
        self.trash = widgets.build_push_button(tr("Workspaces in the trash…"), self, look="link")
        self.trash.hide()
        column.addLayout(build_row(self.importing, self.trash, 1, spacing=12))
        theme.keep_lengths_scaled(self, middle.setMaximumWidth, WIDTH)
        build_column(2, build_row(1, (middle, 100), 1), 3, owner=inside)
        build_column(widgets.build_scroll_area(inside, self), owner=self, margins=0)

    def show_startup_problem(self, why: str) -> None:
        """Shows why the program cannot work here and what to do, in place of the first steps."""
        for card in (
            self.folder.parentWidget(),
            self.tour.parentWidget(),
            self._found_card,
            self.importing,
            self.trash,
        ):
            if card is not None:
                card.hide()
        self._blocked.setText(why)
        self._blocked.show()

    def show_importable_conversations(
        self, conversations: int, programs: Sequence[str], newest: Sequence[Sequence[str]]
    ) -> None:
        """Shows how many conversations can be imported, and details of some of the `newest`."""
        names = "".join(programs)
        if len(programs) > 1:
            some = ", ".join(programs[:-1])
            names = tr("{some} and {last}", some=some, last=programs[-1])
        count = format_count(conversations, "{n} conversation", "{n} conversations")
        self._found.setText(
            tr("{count} from {programs}: search and continue them", count=count, programs=names)
        )
        clear_layout(self._newest)
        for line, words in enumerate(newest):
            self._newest.addWidget(_build_hairline(self._found_card), 2 * line, 0, 1, -1)
            for column, word in enumerate(words):
                self._newest.addWidget(
                    _build_newest_cell(word, column, self._found_card), 2 * line + 1, column
                )
        self._found_card.setVisible(conversations > 0)
        if conversations:
            set_widget_look(self.folder, "")
        else:
            set_widget_look(self.folder, "primary")

    def _build_import_card(self, column: QVBoxLayout) -> QPushButton:
        about = tr("See what these conversations cost, and continue any of them with any model.")
        rows, button = self._fill_action_card(self._found_card, self._found, about, tr("Choose…"))
        set_widget_look(button, "primary")
        where = f"{tr(RECORDER.sentence)} {tr('You can change this at any time in the settings, under Tools and servers.')}"
        self.recorder_box.setAccessibleDescription(where)
        recorder = (
            _build_hairline(self._found_card),
            self.recorder_box,
            widgets.build_plain_label(where, "small"),
        )
        rows.addLayout(build_column(self._newest, *recorder, spacing=8))
        column.addWidget(self._found_card)
        self._found_card.hide()
        return button

    def enable_first_steps(self, *, ready: bool) -> None:
        for button in (self.folder, self.tour, self.importing):
            button.setEnabled(ready)
        if ready and self.isVisible():
            self.folder.setFocus()  # This lets the user open a folder by pressing Return.
        if ready:
            self.became_ready.emit()

    def _add_action_card(self, column: QVBoxLayout, title: str, text: str, act: str) -> QPushButton:
        card = QWidget(self)
        _, button = self._fill_action_card(
            card, widgets.build_plain_label(title, "title"), text, act
        )
        button.setAccessibleName(title)
        button.setAccessibleDescription(text)
        column.addWidget(card)
        return button

    def _fill_action_card(
        self, card: QWidget, title: QLabel, text: str, act: str
    ) -> tuple[QVBoxLayout, QPushButton]:
        widgets.set_surface_look(card, "card")
        words = build_column(title, widgets.build_plain_label(text, "muted"), spacing=4)
        button = QPushButton(act, card)
        first = build_row((words, 1), (button, Qt.AlignmentFlag.AlignVCenter), spacing=16)
        return build_column(first, owner=card, margins=(18, 14, 18, 14), spacing=8), button

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        folders = [
            Path(url.toLocalFile())
            for url in event.mimeData().urls()
            if Path(url.toLocalFile()).is_dir()
        ]
        if folders:
            event.acceptProposedAction()
            self.folder_given.emit(folders[0])


def _build_hairline(parent: QWidget) -> QFrame:
    line = QFrame(parent)
    set_widget_look(line, "rule")
    return line


def _build_newest_cell(word: str, column: int, parent: QWidget) -> QLabel:
    """Builds a cell. Only a title, in the second column, may be shortened."""
    if column != 1:
        return widgets.build_plain_label(word, "muted", wraps=False)
    label = ElidedLabel(parent)
    label.set_elided_text(word)
    return label


class ConnectModelDialog(widgets.TransientDialog):
    """Asks for a model. `chosen` carries it, and `added` a provider whose model is chosen next."""

    chosen = Signal(str)
    added = Signal(str)

    def __init__(
        self,
        setup: ModelSetupPort,
        doing: BackgroundRunner,
        parent: QWidget,
        *,
        message_waits: bool,
    ) -> None:
        super().__init__(tr("Connect a model"), parent, 560)
        self.panel = ConnectModelPanel(setup, doing, self)
        self.panel.chosen.connect(self.chosen)
        self.panel.chosen.connect(self.accept)
        self.panel.added.connect(self.added)
        self.panel.added.connect(self.accept)
        column = build_column(owner=self, margins=20)
        column.addWidget(widgets.build_plain_label(tr("Which model should answer?"), "title"))
        if message_waits:
            words = tr("Your message will be sent as soon as a model is connected.")
            column.addWidget(widgets.build_plain_label(words, "muted"))
        column.addWidget(self.panel, 1)
        cancel = widgets.build_push_button(tr("Cancel"), self, self.reject)
        column.addLayout(build_row(1, cancel))
        self.panel.search_local_servers()
