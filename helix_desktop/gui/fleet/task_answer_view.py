"""The answer of a task, drawn as Markdown as in a chat, in a view that is as high as it needs to be."""

from collections.abc import Iterator

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import LayoutBox
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.markdown_boxes import build_boxes_from_markdown
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.boxes_view import BoxesView

MOST_HEIGHT = 220  # A longer answer scrolls.


class TaskAnswerView(BoxesView):
    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent, pad=(0, 0))
        self.setAccessibleName(tr("Answer"))
        self._shown_answer = ""
        self.hide()

    def show_answer(self, answer: str) -> None:
        # The list is read again every few seconds: an answer that is being read stays in place.
        if answer != self._shown_answer:
            self._shown_answer = answer
            self.show_boxes(self._build_answer_boxes)
            self._fit_height_to_answer()
        self.setVisible(bool(answer))

    def _build_answer_boxes(self, ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
        yield from build_boxes_from_markdown(ink, width, self._shown_answer)

    def _fit_height_to_answer(self) -> None:
        most_height = self.theme.zoomed_pixels(MOST_HEIGHT)
        self.setFixedHeight(min(self.lay_out_all_and_return_height(), most_height))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.size().width() != event.oldSize().width():
            self._fit_height_to_answer()
