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

from helix_desktop.fast_dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class NewestConversation:
    """A conversation of another program, as the page shows it."""

    program: str
    title: str
    folder: str
    age: str


@dataclass(frozen=True, eq=False, slots=True)
class ActionCard:
    layout: QVBoxLayout
    button: QPushButton


class WelcomePage(QWidget):
    """Offers a `folder`, the `tour`, and what was found. `folder_given`: a folder was dropped."""

    folder_given = Signal(object)
    became_ready = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Builds the first page: what the program is for, and the ways to begin.
        Histories of other agents are offered once they are found.
        """
        super().__init__(parent, acceptDrops=True)
        inside = widgets.build_surface(self, "inspector")
        middle = widgets.build_surface(self, "plain")
        heading = tr("An agent that remembers everything,\nand whose changes you can undo")
        introduction = tr("For people who work with AI agents all day: every output is kept on this computer and can be found again, every change to a file can be undone, and you see what everything costs.")  # fmt: skip
        heading_label = widgets.build_plain_label(heading, "hero")
        introduction_label = widgets.build_plain_label(introduction, "muted")
        column = build_column(heading_label, introduction_label, owner=middle, spacing=12)
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
        about_folder = tr("The folder becomes a workspace with its own conversations. You can also drag a folder here.")  # fmt: skip
        self.folder = self._add_action_card(column, tr("Open a folder"), about_folder, tr("Open…"))
        about_tour = tr("The tour takes three minutes and needs neither a key nor a network connection.")  # fmt: skip
        self.tour = self._add_action_card(column, tr("Take the tour"), about_tour, tr("Start"))
        set_widget_look(self.folder, "primary")
        self.importing = widgets.build_push_button(tr("Import workspace…"), self, look="link")
        # Also where none were found: they may be in a file or in another folder.
        self.importing_conversations = widgets.build_push_button(
            tr("Import or record conversations…"), self, look="link"
        )
        self.trash = widgets.build_push_button(tr("Workspaces in the trash…"), self, look="link")
        self.trash.hide()
        links_row = build_row(
            self.importing_conversations, self.importing, self.trash, 1, spacing=12, wraps=True
        )
        column.addLayout(links_row)
        theme.keep_lengths_scaled(self, middle.setMaximumWidth, WIDTH)
        centred_row = build_row(1, (middle, 100), 1)
        build_column(2, centred_row, 3, owner=inside)
        scroll_area = widgets.build_scroll_area(inside, self)
        build_column(scroll_area, owner=self, margins=0)

    def show_startup_problem(self, why: str) -> None:
        """Shows why the program cannot work here and what to do, in place of the first steps."""
        first_steps = (
            self.folder.parentWidget(),
            self.tour.parentWidget(),
            self._found_card,
            self.importing_conversations,
            self.importing,
            self.trash,
        )
        for widget in first_steps:
            if widget is not None:
                widget.hide()
        self._blocked.setText(why)
        self._blocked.show()

    def show_importable_conversations(
        self, conversations: int, programs: Sequence[str], newest: Sequence[NewestConversation]
    ) -> None:
        """Shows how many conversations can be imported, and details of some of the `newest`."""
        count = format_count(conversations, "{n} conversation", "{n} conversations")
        names = _join_program_names(programs)
        if conversations == 1:
            words = tr("{count} from {programs}: search and continue it")
        else:
            words = tr("{count} from {programs}: search and continue them")
        self._found.setText(words.format(count=count, programs=names))
        clear_layout(self._newest)
        for index, conversation in enumerate(newest):
            # Above each conversation is a line.
            self._add_newest_conversation(conversation, row=2 * index)
        self._found_card.setVisible(conversations > 0)
        # The button that most people need next is the marked one.
        if conversations:
            set_widget_look(self.folder, "")
        else:
            set_widget_look(self.folder, "primary")

    def _add_newest_conversation(self, conversation: NewestConversation, row: int) -> None:
        line_above = _build_hairline(self._found_card)
        self._newest.addWidget(line_above, row, 0, 1, -1)
        # Only the title may be shortened.
        title = ElidedLabel(self._found_card)
        title.set_elided_text(conversation.title)
        cells = [
            _build_muted_label(conversation.program),
            title,
            _build_muted_label(conversation.folder),
            _build_muted_label(conversation.age),
        ]
        for column, cell in enumerate(cells):
            self._newest.addWidget(cell, row + 1, column)

    def _build_import_card(self, column: QVBoxLayout) -> QPushButton:
        """Builds the card that offers to import conversations of other agents. It is
        hidden until some are found.
        """
        text = tr("See what these conversations cost, and continue any of them with any model.")
        card = self._fill_action_card(self._found_card, self._found, text, tr("Choose…"))
        set_widget_look(card.button, "primary")
        where_to_change = tr("You can change this at any time in the settings, under General.")  # fmt: skip
        about_recorder = f"{tr(RECORDER.sentence)} {where_to_change}"
        self.recorder_box.setAccessibleDescription(about_recorder)
        details = build_column(
            self._newest,
            _build_hairline(self._found_card),
            self.recorder_box,
            widgets.build_plain_label(about_recorder, "small"),
            spacing=8,
        )
        card.layout.addLayout(details)
        column.addWidget(self._found_card)
        self._found_card.hide()
        return card.button

    def enable_first_steps(self, *, ready: bool) -> None:
        for button in (self.folder, self.tour, self.importing_conversations, self.importing):
            button.setEnabled(ready)
        if ready and self.isVisible():
            self.folder.setFocus()  # This lets the user open a folder by pressing Return.
        if ready:
            self.became_ready.emit()

    def _add_action_card(
        self, column: QVBoxLayout, title: str, text: str, button_label: str
    ) -> QPushButton:
        widget = QWidget(self)
        title_label = widgets.build_plain_label(title, "title")
        card = self._fill_action_card(widget, title_label, text, button_label)
        card.button.setAccessibleName(title)
        card.button.setAccessibleDescription(text)
        column.addWidget(widget)
        return card.button

    def _fill_action_card(
        self, widget: QWidget, title: QLabel, text: str, button_label: str
    ) -> ActionCard:
        widgets.set_surface_look(widget, "card")
        text_label = widgets.build_plain_label(text, "muted")
        texts = build_column(title, text_label, spacing=4)
        button = QPushButton(button_label, widget)
        first_row = build_row((texts, 1), (button, Qt.AlignmentFlag.AlignVCenter), spacing=16)
        layout = build_column(first_row, owner=widget, margins=(18, 14, 18, 14), spacing=8)
        return ActionCard(layout, button)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Opens the first folder of what was dropped. Files are ignored."""
        for url in event.mimeData().urls():
            path = Path(url.toLocalFile())
            if path.is_dir():
                event.acceptProposedAction()
                self.folder_given.emit(path)
                return


def _join_program_names(programs: Sequence[str]) -> str:
    if len(programs) < 2:
        return "".join(programs)
    all_but_last = ", ".join(programs[:-1])
    return tr("{some} and {last}", some=all_but_last, last=programs[-1])


def _build_hairline(parent: QWidget) -> QFrame:
    line = QFrame(parent)
    set_widget_look(line, "rule")
    return line


def _build_muted_label(text: str) -> QLabel:
    return widgets.build_plain_label(text, "muted", wraps=False)


class ConnectModelDialog(widgets.TransientDialog):
    """Asks for a model. `chosen` carries it, and `added` a provider whose model is chosen next."""

    chosen = Signal(str)
    added = Signal(str)

    def __init__(
        self,
        setup: ModelSetupPort,
        runner: BackgroundRunner,
        parent: QWidget,
        *,
        message_waits: bool,
    ) -> None:
        """Asks which model should answer, and begins to look for servers on this
        computer. `message_waits`: the user has sent a message already, which goes out
        afterwards.
        """
        super().__init__(tr("Connect a model"), parent, 560)
        self.panel = ConnectModelPanel(setup, runner, self)
        self.panel.chosen.connect(self.chosen)
        self.panel.chosen.connect(self.accept)
        self.panel.added.connect(self.added)
        self.panel.added.connect(self.accept)
        column = build_column(owner=self, margins=20)
        question = tr("Which model should answer?")
        title = widgets.build_plain_label(question, "title")
        column.addWidget(title)
        if message_waits:
            notice = tr("Your message will be sent once you have connected a model and chosen it.")
            notice_label = widgets.build_plain_label(notice, "muted")
            column.addWidget(notice_label)
        column.addWidget(self.panel, 1)
        cancel = widgets.build_push_button(tr("Cancel"), self, self.reject)
        column.addLayout(build_row(1, cancel))
        self.panel.search_local_servers()
