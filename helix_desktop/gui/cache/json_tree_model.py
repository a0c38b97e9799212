"""Shows a JSON value as a tree. Children come when a branch is opened, long arrays in parts."""

from dataclasses import field

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QObject, Qt
from PySide6.QtGui import QBrush

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.shared.list_row_model import NOWHERE, Index
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, tr

CHILDREN_AT_ONCE = 200


@dataclass(slots=True)
class JsonNode:
    key: str
    value: object
    row: int
    parent: "JsonNode | None"
    children: "list[JsonNode]" = field(default_factory=list)

    @property
    def child_count(self) -> int:
        return len(self.value) if isinstance(self.value, dict | list) else 0

    def build_next_children(self) -> "list[JsonNode]":
        start = len(self.children)
        if isinstance(self.value, dict):
            keys = list(self.value)[start : start + CHILDREN_AT_ONCE]
            made = [JsonNode(str(key), self.value[key], start + i, self) for i, key in enumerate(keys)]
        elif isinstance(self.value, list):
            made = [
                JsonNode(str(start + i), v, start + i, self)
                for i, v in enumerate(self.value[start : start + CHILDREN_AT_ONCE])
            ]
        else:
            made = []
        return made


class JsonTreeModel(QAbstractItemModel):
    """Two columns: the key, and the value in short."""

    def __init__(self, value: object, theme: Theme, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._root = JsonNode("", value, 0, None)
        self._root.children = self._root.build_next_children()

    def node_of_index(self, index: Index) -> JsonNode:
        found = index.internalPointer() if index.isValid() else None
        return found if isinstance(found, JsonNode) else self._root

    def index(self, row: int, column: int, parent: Index = NOWHERE) -> QModelIndex:
        children = self.node_of_index(parent).children
        return self.createIndex(row, column, children[row]) if 0 <= row < len(children) else QModelIndex()

    def parent(self, index: Index = NOWHERE) -> QModelIndex:  # type: ignore[override]
        above = self.node_of_index(index).parent
        return QModelIndex() if above is None or above is self._root else self.createIndex(above.row, 0, above)

    def rowCount(self, parent: Index = NOWHERE) -> int:
        return len(self.node_of_index(parent).children) if parent.column() <= 0 else 0

    def columnCount(self, parent: Index = NOWHERE) -> int:
        return 2

    def hasChildren(self, parent: Index = NOWHERE) -> bool:
        return self.node_of_index(parent).child_count > 0

    def canFetchMore(self, parent: Index) -> bool:
        node = self.node_of_index(parent)
        return len(node.children) < node.child_count

    def fetchMore(self, parent: Index) -> None:
        node = self.node_of_index(parent)
        made = node.build_next_children()
        if made:
            start = len(node.children)
            self.beginInsertRows(self._index_of_parent_node(parent), start, start + len(made) - 1)
            node.children.extend(made)
            self.endInsertRows()

    def _index_of_parent_node(self, parent: Index) -> QModelIndex:
        node = self.node_of_index(parent)
        return QModelIndex() if node is self._root else self.createIndex(node.row, 0, node)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role == Qt.ItemDataRole.DisplayRole and orientation is Qt.Orientation.Horizontal:
            return (tr("Key"), tr("Value"))[section]
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        node = self.node_of_index(index)
        if role == Qt.ItemDataRole.DisplayRole:
            return make_safe_text(node.key[:500]) if index.column() == 0 else format_json_preview(node.value)
        if role == Qt.ItemDataRole.FontRole:
            return self._theme.monospaced_font()
        if role == Qt.ItemDataRole.ForegroundRole and index.column() == 1:
            return QBrush(self._theme.colour_of_token(_json_value_colour(node.value)))
        return None


def format_json_preview(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + format_count(len(value), "{n} key", "{n} keys") + " }"
    if isinstance(value, list):
        return "[ " + format_count(len(value), "{n} item", "{n} items") + " ]"
    if isinstance(value, str):
        text = make_safe_text(value[:2_000]).replace("\n", "⏎")
        return f'"{text}"' if len(value) <= 2_000 else f'"{text}…'
    return (
        {None: "null", True: "true", False: "false"}.get(value, str(value))
        if value is None or isinstance(value, bool)
        else str(value)
    )


def _json_value_colour(value: object) -> str:
    if isinstance(value, dict | list):
        return "muted"
    if isinstance(value, str):
        return "code_string"
    return "code_keyword" if value is None or isinstance(value, bool) else "code_number"
