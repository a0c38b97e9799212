"""The list of changed files, grouped by turn and folder, with paths that checkpoints leave out."""

import fnmatch
from collections.abc import Mapping, Sequence

from PySide6.QtCore import QModelIndex, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import QListView, QStyle, QStyleOptionViewItem, QWidget

from helix_desktop.engine.changes.folder_state import is_change_of_folder
from helix_desktop.engine.changes.turn_changes import (
    FileChange,
    TurnOfChanges,
    UncoveredPath,
    printable_path,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.list_row_model import Index, ListRowModel, RowPainter
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import format_count, format_number, tr

# Of the width of a row: the name of a path that is not covered. The reason has the rest.
SHARE_OF_UNCOVERED_NAME = 0.6
# Folders that only programs fill, beside the empty ones that a run of tests leaves.
_CACHES_OF_PROGRAMS = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
_DOTS = {"changed": "conversation", "added": "output", "deleted": "danger"}


@dataclass(frozen=True, slots=True)
class ChangesListRow:
    """A row: a heading, a folder of a group, a file in it, or a path that checkpoints leave out.

    `whole_ending`: the end of the heading that is never cut, such as how many files follow.
    """

    heading: str = ""
    whole_ending: str = ""
    folder: str = ""
    file: FileChange | None = None
    uncovered: UncoveredPath | None = None
    # All paths for which this row stands, if one rule leaves out several.
    uncovered_paths: tuple[str, ...] = ()
    turn: TurnOfChanges | None = None
    is_committed: bool = False
    added: int = 0
    removed: int = 0

    def shows_same_file_as(self, other: "ChangesListRow") -> bool:
        """Tells whether both rows are about one file in one turn, read at different times."""
        if self.file is None or other.file is None:
            return False
        if self.file.path_of_change != other.file.path_of_change:
            return False
        if self.turn is None or other.turn is None:
            return self.turn is other.turn
        return self.turn.seq == other.turn.seq


def group_rows_by_folder(
    files: Sequence[FileChange], turn: TurnOfChanges | None, committed: frozenset[str]
) -> list[ChangesListRow]:
    """Groups files by folder, with counts. Files outside any folder come behind the others, and
    behind them what programs leave: empty folders and byte code.
    """
    users_files: dict[str, list[FileChange]] = {}
    left_by_programs: dict[str, list[FileChange]] = {}
    for file in sorted(files, key=lambda file: file.place):
        folder, _slash, _name = file.place.rpartition("/")
        files_by_folder = users_files
        if _is_left_by_program(file):
            files_by_folder = left_by_programs
        files_by_folder.setdefault(folder, []).append(file)
    rows = _build_rows_of_folders(users_files, turn, committed)
    rows += _build_rows_of_folders(left_by_programs, turn, committed)
    return rows


def _is_left_by_program(file: FileChange) -> bool:
    if is_change_of_folder(file.change) or file.place.endswith(".pyc"):
        return True
    return not _CACHES_OF_PROGRAMS.isdisjoint(file.place.split("/"))


def _build_rows_of_folders(
    files_by_folder: Mapping[str, Sequence[FileChange]],
    turn: TurnOfChanges | None,
    committed: frozenset[str],
) -> list[ChangesListRow]:
    rows: list[ChangesListRow] = []
    for folder in sorted(files_by_folder, key=_folder_order):
        files_inside = files_by_folder[folder]
        if folder:
            shown_folder = f"{printable_path(folder)}/"
            added_lines = sum(file.added for file in files_inside)
            removed_lines = sum(file.removed for file in files_inside)
            heading = ChangesListRow(
                folder=shown_folder, turn=turn, added=added_lines, removed=removed_lines
            )
            rows.append(heading)
        for file in files_inside:
            is_committed = file.path_of_change in committed
            rows.append(ChangesListRow(file=file, turn=turn, is_committed=is_committed))
    return rows


def group_uncovered_paths_by_rule(paths: Sequence[UncoveredPath]) -> list[ChangesListRow]:
    """Returns one row for each rule that leaves something out, and one for each other path."""
    paths_by_rule: dict[str, list[UncoveredPath]] = {}
    for path in paths:
        key = path.why
        if path.is_beyond_limits or not _is_left_out_by_rule(path):
            key = path.path
        paths_by_rule.setdefault(key, []).append(path)
    rows: list[ChangesListRow] = []
    for paths_of_rule in paths_by_rule.values():
        names = tuple(path.path for path in paths_of_rule)
        rows.append(ChangesListRow(uncovered=paths_of_rule[0], uncovered_paths=names))
    return rows


def _is_left_out_by_rule(uncovered: UncoveredPath) -> bool:
    """Tells whether the reason is a rule for names, such as `target/ beside Cargo.toml`."""
    name = uncovered.path.rstrip("/").rpartition("/")[2]
    pattern = uncovered.why.split(" ")[0].rstrip("/")
    return not uncovered.is_beyond_limits and fnmatch.fnmatchcase(name, pattern)


def _name_of_uncovered_row(entry: ChangesListRow) -> str:
    """Returns the path, or for several paths the rule that leaves them out."""
    if entry.uncovered is None:
        return ""
    if len(entry.uncovered_paths) > 1:
        return entry.uncovered.why
    return printable_path(entry.uncovered.path)


def _reason_of_uncovered_row(entry: ChangesListRow) -> str:
    if entry.uncovered is None:
        return ""
    if len(entry.uncovered_paths) > 1:
        count = len(entry.uncovered_paths)
        return format_count(count, "in {n} place", "in {n} places")
    name = entry.uncovered.path.rstrip("/").rpartition("/")[2]
    if entry.uncovered.why.rstrip("/") == name:  # The rule only repeats the name.
        return tr("left out by a rule")
    return translate_sentences(entry.uncovered.why)


def _folder_order(folder: str) -> tuple[bool, str]:
    is_no_folder = not folder
    return (is_no_folder, folder)  # False is sorted before True.


class ChangedFilesModel(ListRowModel[ChangesListRow]):
    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        entry = self.items[index.row()]
        if role == Qt.ItemDataRole.ToolTipRole:
            return safe_tooltip(describe_changes_row(entry))
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return describe_changes_row(entry)
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.items[index.row()].file is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable


def describe_changes_row(entry: ChangesListRow) -> str:
    if entry.file is not None:
        return _describe_file_row(entry.file, is_committed=entry.is_committed)
    if entry.folder:
        return f"{entry.folder} +{entry.added} −{entry.removed}"
    if entry.uncovered is not None:
        reason = _reason_of_uncovered_row(entry)
        paths = [printable_path(path) for path in entry.uncovered_paths]
        if len(paths) > 1:
            return f"{_name_of_uncovered_row(entry)}: {reason}: {', '.join(paths)}"
        return f"{_name_of_uncovered_row(entry)}: {reason}"
    return entry.heading


def _describe_file_row(file: FileChange, *, is_committed: bool) -> str:
    if file.renamed:
        words = tr("renamed from {name}", name=printable_path(file.renamed))
    else:
        kinds = {"added": tr("added"), "deleted": tr("deleted"), "changed": tr("changed")}
        words = kinds[file.change_word]
        if file.added or file.removed:
            words += f", +{file.added} −{file.removed}"
    if is_committed:
        words += f", {tr('committed')}"
    return f"{printable_path(file.place)}, {words}"


class _ChangesRowDelegate(RowPainter):
    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(theme, parent, 28)
        self._set_fonts()
        theme.changed.connect(self._set_fonts)

    def _set_fonts(self) -> None:
        theme = self._theme
        self._fonts = {
            "heading": theme.build_font(11.5),
            "count": theme.build_font(11),
            "name": theme.monospaced_font(),
        }

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        # A heading below other rows has more room above it.
        if _changes_row_of_index(index).heading and index.row():
            return QSize(100, self._theme.zoomed_pixels(34))
        return super().sizeHint(option, index)

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry = _changes_row_of_index(index)
        px = self._theme.zoomed_pixels
        surface = QRectF(option.rect).adjusted(px(8), 1, -px(8), -1)
        if option.state & QStyle.StateFlag.State_Selected:
            self._theme.fill_surface(painter, surface, "selected", px(6))
        text_rect = surface.adjusted(px(10), 0, -px(10), 0)
        if entry.file is not None:
            self._paint_changed_file(
                painter, text_rect, entry.file, is_committed=entry.is_committed
            )
        else:
            self._paint_heading_or_folder(painter, text_rect, entry)

    def _paint_heading_or_folder(
        self, painter: QPainter, row_rect: QRectF, entry: ChangesListRow
    ) -> None:
        """Draws a row that is not a changed file: a group's heading, a folder, or a path that the
        checkpoints do not cover. The counts of added and removed lines stand behind its name.
        """
        px = self._theme.zoomed_pixels
        gap = px(6)
        text_rect = QRectF(row_rect)
        font = "name"
        name = entry.folder
        if entry.heading:
            font = "heading"
            name = entry.heading
            text_rect.setTop(row_rect.bottom() - px(26))  # The room above it parts the groups.
        elif entry.uncovered is not None:
            name = _name_of_uncovered_row(entry)

        counts = _format_line_counts(entry.added, entry.removed)
        counts_width = 0.0
        for count in counts:
            counts_width += self._text_width("count", count.text) + gap
        name_room = text_rect.width() - counts_width
        if entry.heading and self._text_width(font, name) > name_room:
            # A heading that would be cut off does without its counts.
            counts = []
            name_room = text_rect.width()

        if entry.uncovered is not None:
            name_room *= SHARE_OF_UNCOVERED_NAME  # The rest is for the reason.
        if entry.whole_ending:
            # A long name of a turn gives way to what is behind it.
            room_before_ending = name_room - self._text_width(font, entry.whole_ending)
            beginning = name.removesuffix(entry.whole_ending)
            name = self._elide_text(font, beginning, room_before_ending) + entry.whole_ending
        name_end = self._draw_text(painter, text_rect, font, name, "faint", name_room)
        text_rect.setLeft(name_end + gap)
        if entry.uncovered is not None:
            why = _reason_of_uncovered_row(entry)
            self._draw_text(painter, text_rect, "count", why, "faint", text_rect.width())
        for count in counts:
            count_end = self._draw_text(painter, text_rect, "count", count.text, count.colour)
            text_rect.setLeft(count_end + px(4))

    def _paint_changed_file(
        self, painter: QPainter, row_rect: QRectF, file: FileChange, *, is_committed: bool
    ) -> None:
        """Draws a dot for the kind of change, the name, and at the right the counts of lines."""
        px = self._theme.zoomed_pixels
        indent = 0
        if "/" in file.place:  # It stands below the row of its folder.
            indent = px(12)
        dot_left = row_rect.left() + indent
        dot_top = row_rect.center().y() - px(3.5)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colour_of_token(_DOTS[file.change_word]))
        painter.drawEllipse(QRectF(dot_left, dot_top, px(7), px(7)))

        # The notes are placed from the right, so the last comes first.
        gap = px(4)
        notes_left = row_rect.right() + gap
        for note in reversed(_notes_of_file(file, is_committed=is_committed)):
            text_width = self._text_width("count", note.text)
            note_width = min(text_width, px(120))
            notes_left -= gap + note_width
            note_rect = QRectF(notes_left, row_rect.top(), note_width, row_rect.height())
            self._draw_text(painter, note_rect, "count", note.text, note.colour)

        _folder, _slash, name = printable_path(file.place).rpartition("/")
        name_rect = row_rect.adjusted(indent + px(16), 0, 0, 0)
        name_room = notes_left - px(8) - name_rect.left()
        self._draw_text(painter, name_rect, "name", name, "text", name_room)

    def _text_width(self, font: str, words: str) -> float:
        return QFontMetricsF(self._fonts[font]).horizontalAdvance(words)

    def _elide_text(self, font: str, words: str, room: float) -> str:
        elide_mode = Qt.TextElideMode.ElideMiddle
        if font == "heading":
            elide_mode = Qt.TextElideMode.ElideRight
        return QFontMetricsF(self._fonts[font]).elidedText(words, elide_mode, room + 1)

    def _draw_text(
        self,
        painter: QPainter,
        text_rect: QRectF,
        font: str,
        words: str,
        colour: str,
        room: float | None = None,
    ) -> float:
        """Draws a text at the left, shortened with "…" without enough `room`, and
        returns where it ends.
        """
        if room is None:
            room = text_rect.width()
        elided = self._elide_text(font, words, room)
        painter.setFont(self._fonts[font])
        painter.setPen(self._theme.colour_of_token(colour))
        alignment = Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextDontClip
        painter.drawText(text_rect, alignment, elided)
        return text_rect.left() + self._text_width(font, elided)


@dataclass(frozen=True, slots=True)
class ColouredText:
    """A short text, and the token of its colour."""

    text: str
    colour: str


def _notes_of_file(file: FileChange, *, is_committed: bool) -> list[ColouredText]:
    """Returns what stands at the right of a file's name, from the left."""
    if file.renamed:
        notes = [ColouredText(f"← {printable_path(file.renamed)}", "faint")]
    elif file.change_word == "deleted":
        notes = [ColouredText(tr("deleted"), "text")]
    else:
        notes = _format_line_counts(file.added, file.removed)
    if is_committed:
        notes.insert(0, ColouredText("✓", "accent"))
    return notes


def _format_line_counts(added: int, removed: int) -> list[ColouredText]:
    """Returns `+38` and `−29`, each with its colour."""
    counts = []
    if added:
        counts.append(ColouredText(f"+{format_number(added)}", "output_text"))
    if removed:
        counts.append(ColouredText(f"−{format_number(removed)}", "danger"))
    return counts


def _changes_row_of_index(index: Index) -> ChangesListRow:
    model = index.model()
    if not isinstance(model, ChangedFilesModel):
        return ChangesListRow()
    return model.items[index.row()]


class ChangedFilesList(QListView):
    """`row_opened` carries the entry that is selected."""

    row_opened = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, uniformItemSizes=False)
        self.files = ChangedFilesModel(self)
        self.setModel(self.files)
        self.setItemDelegate(_ChangesRowDelegate(theme, self))
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(tr("Changed files"))
        self.selectionModel().currentChanged.connect(self._emit_opened_row)
        theme.changed.connect(self.viewport().update)

    def show_changes_rows(
        self,
        entries: Sequence[ChangesListRow],
        selected_before: ChangesListRow | None = None,
        *,
        selects_other_file: bool = True,
    ) -> None:
        """Replaces the rows, and selects the row that was selected. If it is gone and
        `selects_other_file`, it selects the same file in the newest turn that has it, or else the
        first file, which a folder alone is not.
        """
        self.files.replace_rows(entries)
        row_to_select = _find_row_of_same_file(entries, selected_before)
        if row_to_select is None and selects_other_file:
            row_to_select = _find_row_to_select(entries, selected_before)
        if row_to_select is not None:
            self.setCurrentIndex(self.files.index(row_to_select))

    @property
    def current_changes_row(self) -> ChangesListRow | None:
        index = self.currentIndex()
        if not index.isValid():
            return None
        return self.files.items[index.row()]

    def _emit_opened_row(self, current: QModelIndex, _previous: QModelIndex) -> None:
        if current.isValid():
            self.row_opened.emit(self.files.items[current.row()])


def _find_row_of_same_file(
    entries: Sequence[ChangesListRow], selected_before: ChangesListRow | None
) -> int | None:
    if selected_before is None:
        return None
    for row, entry in enumerate(entries):
        if entry.shows_same_file_as(selected_before):
            return row
    return None


def _find_row_to_select(
    entries: Sequence[ChangesListRow], selected_before: ChangesListRow | None
) -> int | None:
    if selected_before is not None and selected_before.file is not None:
        path_before = selected_before.file.path_of_change
        for row, entry in enumerate(entries):
            if entry.file is not None and entry.file.path_of_change == path_before:
                return row
    return _find_first_file(entries)


def _find_first_file(entries: Sequence[ChangesListRow]) -> int | None:
    """Returns the row of the first file, or of the first folder if only folders have changed."""
    first_row_of_folder: int | None = None
    for row, entry in enumerate(entries):
        if entry.file is None:
            continue
        if not is_change_of_folder(entry.file.change):
            return row
        if first_row_of_folder is None:
            first_row_of_folder = row
    return first_row_of_folder
