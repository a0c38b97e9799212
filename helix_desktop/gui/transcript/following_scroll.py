"""The chat's scroll bar, and whether it follows the end: only the reader's own scrolling starts or ends that."""

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QAbstractSlider, QScrollBar


class FollowingScroll(QObject):
    following_changed = Signal(bool)

    def __init__(self, bar: QScrollBar) -> None:
        super().__init__(bar)
        self._bar = bar
        self.is_following_end = True
        self.is_moving = False  # The bar goes to where the layout belongs; the reader does not move it.
        bar.actionTriggered.connect(self._on_scroll_action)

    def set_following_end(self, *, following: bool) -> None:
        if following != self.is_following_end:
            self.is_following_end = following
            self.following_changed.emit(following)

    def move_bar(self, y: int, content_height: int, view_height: int) -> None:
        """To a place in content that may have another height by now."""
        self.is_moving = True
        self._bar.setRange(0, max(0, content_height - view_height))
        self._bar.setPageStep(view_height)
        self._bar.setValue(y)
        self.is_moving = False

    def _on_scroll_action(self, action: int) -> None:
        if action != QAbstractSlider.SliderAction.SliderNoAction.value:
            self.set_following_end(following=self._bar.sliderPosition() >= self._bar.maximum() - 2)
