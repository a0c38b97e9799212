"""The base of all pages of the settings: a heading, sentences and rows in a column that scrolls."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QPaintEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QLayout, QPushButton, QScrollArea, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.setting_fields import FieldDeclaration, ValueListener, build_field_row
from helix_desktop.gui.common.widgets import (
    build_plain_label,
    build_push_button,
    build_surface,
    run_after_events,
)
from helix_desktop.gui.rows_and_columns import build_column, clear_layout
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.workbench_types import Workbench

W = TypeVar("W", bound=QWidget)
# The number of items in the column once the first sentence is added: title, sentence, space.
ITEMS_BEFORE_INTRODUCTION = 3


@dataclass(frozen=True, slots=True)
class FoldedArea:
    """What a page hides at first, and the link that shows it."""

    link: QPushButton
    area: QWidget


class SettingsPage(QScrollArea):
    """A page of settings. `wanted` names another page, or an action of the window."""

    wanted = Signal(str)

    def __init__(self, title: str) -> None:
        super().__init__(widgetResizable=True)
        # The page itself does not take the focus. It only scrolls to the field that has it.
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(title)
        self.title = title
        self._folded_areas: list[FoldedArea] = []
        self._headings: list[QLabel] = []
        self._look_of_headings = "heading"
        self.page_content = build_surface(self, "page")
        self._column = build_column(1, owner=self.page_content, margins=(24, 20, 24, 24), spacing=4)
        self.setWidget(self.page_content)
        self._title = self.add_page_widget(build_plain_label(title, "large", self.page_content))

    def become_section(self, *, hides_title: bool) -> None:
        """Prepares the content for a page that shows it among others, with a heading of its own."""
        self._column.setContentsMargins(0, 8, 0, 8)
        set_widget_look(self._title, "title")
        self._title.setVisible(not hides_title)
        if hides_title:
            # Its headings stand beside those of other sections, and none above them.
            self._look_of_headings = "title"
            for heading in self._headings:
                set_widget_look(heading, "title")

    def add_folded_area(self, link_words: str) -> QWidget:
        """Adds a link, and below it an area that is hidden until somebody presses the link or
        looks for what is in it.
        """
        link = self.add_page_button(link_words, self.unfold_areas, "link")
        area = self.add_page_widget(build_surface(self.page_content, "plain"))
        area.hide()
        self._folded_areas.append(FoldedArea(link, area))
        return area

    def unfold_areas(self) -> None:
        for folded in self._folded_areas:
            folded.link.hide()
            folded.area.show()

    def add_heading(self, text: str) -> QLabel:
        label = build_plain_label(text, self._look_of_headings, self.page_content)
        label.setContentsMargins(0, 16, 0, 2)
        self._headings.append(label)
        return self.add_page_widget(label)

    def add_sentence(self, text: str, look: str = "muted") -> QLabel:
        label = self.add_page_widget(build_plain_label(text, look, self.page_content))
        is_introduction = self._column.count() == ITEMS_BEFORE_INTRODUCTION
        if text and look == "muted" and is_introduction:
            label.setContentsMargins(0, 0, 0, 8)
        return label

    def add_field(self, declared: FieldDeclaration, changed: ValueListener) -> None:
        self.add_page_widget(build_field_row(declared, changed, self.page_content))

    def add_page_layout(self, layout: QLayout) -> None:
        self._column.insertLayout(self._column.count() - 1, layout)

    def add_page_button(self, text: str, act: Callable[[], object], look: str = "") -> QPushButton:
        button = build_push_button(text, self.page_content, act, look, wraps=True)
        self._column.insertWidget(self._column.count() - 1, button, 0, Qt.AlignmentFlag.AlignLeft)
        return button

    def clear_page(self) -> None:
        """Removes everything but the heading."""
        self._headings.clear()
        self._column.removeWidget(self._title)
        clear_layout(self._column)
        self._column.addWidget(self._title)
        self._column.addStretch(1)

    def add_page_widget(self, widget: W) -> W:
        self._column.insertWidget(self._column.count() - 1, widget)
        return widget

    def replace_page_widget(self, old: QWidget, new: W) -> W:
        self._column.insertWidget(self._column.indexOf(old), new)
        self._column.removeWidget(old)
        old.setParent(None)  # Nothing finds it any more; a search of the page would.
        return new


def scroll_to_widget(widget: QWidget) -> None:
    """Shows a widget of a page. That of a section is in the page that shows the section."""
    ancestor = widget.parentWidget()
    while ancestor is not None:
        if isinstance(ancestor, QScrollArea):
            run_after_events(widget, partial(ancestor.ensureWidgetVisible, widget))
            return
        ancestor = ancestor.parentWidget()


class RefreshWhileShown(QWidget):
    """Calls `refresh` again and again while it can be seen. It takes no room itself.

    It belongs to the content of a page: a page that is a section of another one is itself hidden.
    """

    def __init__(self, parent: QWidget, interval_ms: int, refresh: Callable[[], object]) -> None:
        super().__init__(parent)
        self.setFixedHeight(0)
        self._timer = QTimer(self, interval=interval_ms)
        self._timer.timeout.connect(refresh)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()


class RunWhenSeen(QWidget):
    """Calls `act` once, when it is painted for the first time: when somebody has scrolled there."""

    def __init__(self, parent: QWidget, act: Callable[[], object]) -> None:
        super().__init__(parent)
        self.setFixedHeight(1)
        self._act = act
        self._was_seen = False

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._was_seen:
            self._was_seen = True
            run_after_events(self, self._act)


class WorkspaceSettingsPage(SettingsPage):
    def __init__(self, title: str, bench: Workbench, runner: BackgroundRunner) -> None:
        super().__init__(title)
        self._bench = bench
        self._runner = runner

    def change_setting(self, name: str, value: object) -> None:
        self._runner.run_in_background(self._bench.change_settings({name: value}), owner=self)
