"""Rows of a list that is replaced as a whole, for Qt's views."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex

Index = QModelIndex | QPersistentModelIndex
NOWHERE = QModelIndex()
T = TypeVar("T")


class ListRowModel(QAbstractListModel, Generic[T]):
    """What a row is in words, and whether it can be chosen, is for each kind of list to say."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.items: list[T] = []

    def replace_rows(self, items: Sequence[T]) -> None:
        self.beginResetModel()
        self.items = list(items)
        self.endResetModel()

    def rowCount(self, parent: Index = NOWHERE) -> int:
        return 0 if parent.isValid() else len(self.items)
