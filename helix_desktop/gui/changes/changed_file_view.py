"""Shows one changed file: its name, its buttons, and its difference, pictures or properties."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtGui import QPixmap, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QStackedWidget, QWidget

from helix_desktop.engine.changes.diff_hunks import Hunk, is_binary
from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import FileChange, printable_path
from helix_desktop.gui.common.chip_labels import ChipLabel
from helix_desktop.gui.common.difference_rows import DifferenceSheet
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.tool_words import words_for_tool
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row, reserve_height_for_width
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.transcript.code_highlighting import highlight_language_of
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.views.difference_view import DifferenceView

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp")
LARGEST_PICTURE_BYTES = 32 << 20  # Larger pictures are not displayed.
PICTURE_EDGE_PIXELS = 420


class ChangedFileView(QWidget):
    """The buttons concern the file that is shown."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Builds the view of one changed file: its name and buttons, and below them the
        changed lines, two pictures, or a sentence.
        """
        super().__init__(parent)
        self._theme = theme
        self._path_of_lines = ""  # Of the file whose lines are shown.
        self.can_open_files = True  # Not if they are on another computer.
        self._name = ElidedLabel(self, Qt.TextElideMode.ElideMiddle)
        self._name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        set_widget_look(self._name, "mono")
        self._origin_chip = ChipLabel(theme, self)
        self._new_file_chip = ChipLabel(theme, self)
        self.open_in_editor = build_push_button(tr("Open in editor"), self, look="pill")
        self.keep = build_push_button(tr("Keep file"), self, look="pill")
        self.undo_button = build_push_button(tr("Undo file"), self, look="pill")
        self._buttons = [self.open_in_editor, self.keep, self.undo_button]
        chips = [self._origin_chip, self._new_file_chip]
        head = build_row(self._name, *chips, 1, *self._buttons, spacing=8, wraps=True)

        self.view = DifferenceView(theme, self)
        self._sentence_label = build_plain_label(parent=self)
        self._sentence_label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._pictures: list[QLabel] = []  # Before and after the change.
        self._picture_page = self._build_picture_page()
        self._stack = QStackedWidget(self)
        self._stack.addWidget(self.view)
        self._stack.addWidget(self._sentence_label)
        self._stack.addWidget(self._picture_page)
        column = build_column(head, (self._stack, 1), owner=self, spacing=10)
        theme.keep_lengths_scaled(self, column.setContentsMargins, 20, 12, 20, 12)
        theme.keep_lengths_scaled(self, self._stack.setMinimumHeight, 96)
        self.show_sentence_only("")

    def _build_picture_page(self) -> QWidget:
        page = QWidget(self)
        grid = QGridLayout(page)
        grid.setRowStretch(1, 1)
        for column, words in enumerate((tr("Before"), tr("After"))):
            title = build_plain_label(words, "heading", page, wraps=False)
            title.setAlignment(Qt.AlignmentFlag.AlignCenter)
            grid.addWidget(title, 0, column)
            picture = QLabel(page, alignment=Qt.AlignmentFlag.AlignCenter)
            picture.setAccessibleName(words)
            grid.addWidget(picture, 1, column)
            self._pictures.append(picture)
        return page

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        reserve_height_for_width(self)

    def show_sentence_only(self, words: str) -> None:
        self._path_of_lines = ""
        self._sentence_label.setText(words)
        self._stack.setCurrentWidget(self._sentence_label)
        self._name.set_elided_text("")
        self._origin_chip.set_chip_text("")
        self._new_file_chip.set_chip_text("")
        for button in self._buttons:
            button.hide()

    def show_changed_file(
        self,
        file: FileChange,
        contents: tuple[bytes, bytes],
        hunks: Sequence[Hunk],
        *,
        sheet: DifferenceSheet,
        kept: frozenset[str],
        is_committed: bool = False,
        is_read_again: bool = False,
    ) -> None:
        """Shows a change as lines, as two pictures, or as a sentence. `kept`: ids of the hunks
        that the user decided to keep, with an empty id if it is the whole file. `is_committed`:
        the user has decided by the commit, so nothing is offered any more. `is_read_again`:
        if this file's lines are in sight already, the user's place in them stays.
        """
        are_its_lines_in_sight = is_read_again and self._path_of_lines == file.path_of_change
        self._path_of_lines = ""
        is_wholly_kept = "" in kept
        self._show_name_and_buttons(file, is_kept=is_wholly_kept, is_committed=is_committed)
        reserve_height_for_width(self)

        old_content, new_content = contents
        size = max(len(old_content), len(new_content))
        is_picture = file.place.lower().endswith(PICTURES)
        if is_picture and size < LARGEST_PICTURE_BYTES:
            self._show_both_pictures(contents)
            return
        if is_binary(old_content, new_content) or not hunks:
            self._sentence_label.setText(_describe_change_without_lines(file))
            self._stack.setCurrentWidget(self._sentence_label)
            return
        kept_hunks = kept
        if is_wholly_kept:
            kept_hunks = frozenset(hunk.stable_id for hunk in hunks)
        language = highlight_language_of(file.place)
        self.view.show_hunks(
            hunks,
            language=language,
            kept=kept_hunks,
            made=sheet,
            is_decided=is_committed,
            is_same_file=are_its_lines_in_sight,
        )
        self._path_of_lines = file.path_of_change
        self._stack.setCurrentWidget(self.view)

    def _show_name_and_buttons(
        self, file: FileChange, *, is_kept: bool, is_committed: bool
    ) -> None:
        """Shows which file it is, what changed it, and the buttons that make sense for it. In
        which turn that was, the list beside says. A file that was deleted cannot be opened.
        """
        self._name.set_elided_text(printable_path(file.place))
        self._origin_chip.set_chip_text(words_for_tool(file.by))
        self._new_file_chip.set_chip_text(_describe_new_file(file))
        for button in self._buttons:
            button.show()
        is_deleted = file.change.after is None
        self.open_in_editor.setVisible(self.can_open_files and not is_deleted)
        self.keep.setVisible(not is_committed)
        self.undo_button.setVisible(not is_committed)
        self.keep.setEnabled(not is_kept)
        if is_kept:
            self.keep.setText(tr("Kept"))
        else:
            self.keep.setText(tr("Keep file"))

    def _show_both_pictures(self, contents: tuple[bytes, bytes]) -> None:
        longest_edge = self._theme.zoomed_pixels(PICTURE_EDGE_PIXELS)
        for label, content in zip(self._pictures, contents, strict=True):
            picture = read_picture(content, longest_edge)
            if picture is not None:
                label.setPixmap(QPixmap.fromImage(picture))
                continue
            label.setPixmap(QPixmap())
            if content:
                label.setText(tr("no picture"))
            else:  # The file did not exist then.
                label.setText("—")
        self._stack.setCurrentWidget(self._picture_page)


def _describe_new_file(file: FileChange) -> str:
    old_half = file.both_halves[0]  # Of a renamed file, that with the old name.
    old_version = old_half.change.before
    if old_version is None or old_version.file_digest is None:
        return tr("a new file")
    return ""


def _describe_change_without_lines(file: FileChange) -> str:
    """Describes a change without lines by kinds, sizes, hashes and modes."""
    if file.moved_from is not None:
        return tr(
            "Renamed from {name}. The content has not changed.", name=printable_path(file.renamed)
        )
    return tr(
        "Before: {before}\nAfter: {after}",
        before=_describe_file_version(file.change.before),
        after=_describe_file_version(file.change.after),
    )


def _describe_file_version(item: TreeItem | None) -> str:
    """Says what stood in a file's place before or after a change: a file with its size
    and hash, a link with where it leads, or nothing.
    """
    if item is None:
        return tr("nothing")
    target = ""  # Where a link leads.
    digest = ""
    if item.file_digest is not None:
        digest = item.file_digest.short_hex
    else:
        target = printable_path(item.content.decode("utf-8", "surrogateescape"))
    if item.kind is PathKind.TWIN:
        target = target[2:]  # Without the number of its root.
    return translate_name(
        "version of a file",
        item.kind,
        size=format_byte_size(item.size),
        hash=digest,
        mode=f"{item.mode:o}",
        target=target,
    )
