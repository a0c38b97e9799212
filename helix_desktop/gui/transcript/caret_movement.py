"""Where the keys that extend a selection take its caret in the chat."""

from PySide6.QtCore import QPointF, Qt

from helix_desktop.gui.shared.text_selection import TextPosition
from helix_desktop.gui.transcript.item_column import ItemColumn

_STEPS = {Qt.Key.Key_Left: (0, -1), Qt.Key.Key_Right: (0, 1), Qt.Key.Key_Up: (-1, 0), Qt.Key.Key_Down: (1, 0)}
CARET_KEYS = frozenset({*_STEPS, Qt.Key.Key_Home, Qt.Key.Key_End})


def move_caret(column: ItemColumn, caret: TextPosition, key: Qt.Key, *, whole: bool) -> TextPosition:
    """By a character or a line; to the start or the end of its item, or with `whole` of the conversation."""
    if key == Qt.Key.Key_Home:
        return TextPosition(0 if whole else caret.number, 0)
    if key == Qt.Key.Key_End:
        last = len(column.page.items.all) - 1 if whole else caret.number
        return TextPosition(last, column.full_layout(last).end_offset)
    lines, letters = _STEPS[key]
    return _move_by_line(column, caret, lines) if lines else _move_by_character(column, caret, letters)


def _move_by_character(column: ItemColumn, caret: TextPosition, steps: int) -> TextPosition:
    if 0 <= caret.offset + steps <= column.full_layout(caret.number).end_offset:
        return TextPosition(caret.number, caret.offset + steps)
    index = _next_visible_item(column, caret.number, steps)
    if index == caret.number:
        return caret
    return TextPosition(index, 0 if steps > 0 else column.full_layout(index).end_offset)


def _move_by_line(column: ItemColumn, caret: TextPosition, steps: int) -> TextPosition:
    laid = column.full_layout(caret.number)
    where = laid.caret_rect_at(caret.offset)
    y = where.center().y() + steps * where.height()
    if laid.vertical_padding <= y <= laid.current_height - laid.vertical_padding:
        return TextPosition(caret.number, laid.text_offset_at(QPointF(where.x(), y)))
    index = _next_visible_item(column, caret.number, steps)
    if index == caret.number:
        return TextPosition(index, laid.end_offset if steps > 0 else 0)
    other = column.full_layout(index)
    inset = other.vertical_padding + 1
    y = inset if steps > 0 else other.current_height - inset
    return TextPosition(index, other.text_offset_at(QPointF(where.x(), y)))


def _next_visible_item(column: ItemColumn, index: int, steps: int) -> int:
    items, beyond = column.page.items, index + steps
    while 0 <= beyond < len(items.all) and items.is_item_hidden(beyond):
        beyond += steps
    return beyond if 0 <= beyond < len(items.all) else index
