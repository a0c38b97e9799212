"""A JSON value as a tree whose branches are made when they are opened, and long arrays a piece at a time."""

from __future__ import annotations

from dataclasses import field

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QObject, Qt
from PySide6.QtGui import QBrush

from helix_desktop.gui.shared.list_rows import NOWHERE, Index
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.words import count, tr
from helix_desktop.values import dataclass

PIECE = 200


@dataclass(slots=True)
class Node:
    key: str
    value: object
    row: int
    parent: Node | None
    children: list[Node] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.value) if isinstance(self.value, dict | list) else 0

    def grow(self) -> list[Node]:
        """The next piece of the children."""
        start = len(self.children)
        if isinstance(self.value, dict):
            keys = list(self.value)[start : start + PIECE]
            made = [Node(str(key), self.value[key], start + i, self) for i, key in enumerate(keys)]
        elif isinstance(self.value, list):
            made = [Node(str(start + i), v, start + i, self) for i, v in enumerate(self.value[start : start + PIECE])]
        else:
            made = []
        return made


class JsonTree(QAbstractItemModel):
    """Two columns: the key, and the value in short."""

    def __init__(self, value: object, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._root = Node("", value, 0, None)
        self._root.children = self._root.grow()

    def node(self, index: Index) -> Node:
        found = index.internalPointer() if index.isValid() else None
        return found if isinstance(found, Node) else self._root

    def index(self, row: int, column: int, parent: Index = NOWHERE) -> QModelIndex:
        children = self.node(parent).children
        return self.createIndex(row, column, children[row]) if 0 <= row < len(children) else QModelIndex()

    def parent(self, index: Index = NOWHERE) -> QModelIndex:  # type: ignore[override]
        above = self.node(index).parent
        return QModelIndex() if above is None or above is self._root else self.createIndex(above.row, 0, above)

    def rowCount(self, parent: Index = NOWHERE) -> int:
        return len(self.node(parent).children) if parent.column() <= 0 else 0

    def columnCount(self, parent: Index = NOWHERE) -> int:
        return 2

    def hasChildren(self, parent: Index = NOWHERE) -> bool:
        return self.node(parent).size > 0

    def canFetchMore(self, parent: Index) -> bool:
        node = self.node(parent)
        return len(node.children) < node.size

    def fetchMore(self, parent: Index) -> None:
        node = self.node(parent)
        made = node.grow()
        if made:
            start = len(node.children)
            self.beginInsertRows(self._own(parent), start, start + len(made) - 1)
            node.children.extend(made)
            self.endInsertRows()

    def _own(self, parent: Index) -> QModelIndex:
        node = self.node(parent)
        return QModelIndex() if node is self._root else self.createIndex(node.row, 0, node)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role == Qt.ItemDataRole.DisplayRole and orientation is Qt.Orientation.Horizontal:
            return (tr("Key"), tr("Value"))[section]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        node = self.node(index)
        if role == Qt.ItemDataRole.DisplayRole:
            return harmless(node.key[:500]) if index.column() == 0 else in_short(node.value)
        if role == Qt.ItemDataRole.FontRole:
            return self._theme.mono()
        if role == Qt.ItemDataRole.ForegroundRole and index.column() == 1:
            return QBrush(self._theme.colour(_colour(node.value)))
        return None


def in_short(value: object) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{ " + count(len(value), "{n} key", "{n} keys") + " }"
    if isinstance(value, list):
        return "[ " + count(len(value), "{n} item", "{n} items") + " ]"
    if isinstance(value, str):
        text = harmless(value[:2_000]).replace("\n", "⏎")
        return f'"{text}"' if len(value) <= 2_000 else f'"{text}…'
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if value is None or isinstance(value, bool)
        else str(value)
    )


def _colour(value: object) -> str:
    if isinstance(value, dict | list):
        return "muted"
    if isinstance(value, str):
        return "code_string"
    return "code_keyword" if value is None or isinstance(value, bool) else "code_number"
