"""The pane at the right: files that were pressed, each a tab, at the line that was named.

It shows what a file looks like, or its source. Selected lines become a comment in the message box.
Closed, it leaves nothing in the window.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePath

from PySide6.QtCore import QEvent, QFileSystemWatcher, Signal
from PySide6.QtGui import QImage, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QPushButton, QStackedWidget, QWidget

from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.entry_content_view import EntryImageView
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, set_surface_look
from helix_desktop.gui.preview.file_views import (
    PAGE_EDGE,
    CsvTableView,
    OfflineHtmlView,
    PdfPagesView,
    build_sentence_view,
)
from helix_desktop.gui.preview.html_limits import can_be_drawn_at_once, can_text_be_drawn_at_once
from helix_desktop.gui.preview.source_lines import SourceLines
from helix_desktop.gui.preview.svg_drawing import draw_svg_as_png
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import ShownWorkspace, workbench_of_shown
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import LayoutBox
from helix_desktop.gui.transcript.code_highlighting import (
    MOST,
    highlight_code,
    highlight_language_of,
)
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.markdown_boxes import build_boxes_from_markdown
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import format_number, tr
from helix_desktop.gui.views.boxes_view import BoxesView
from helix_desktop.gui.views.large_text_view import TextLineView, split_runs_by_line
from helix_desktop.gui.workbench_types import PreviewedFile

MOST_TABS = 6
WIDEST_PICTURE = 4_000
_DRAWN_KINDS = frozenset({"markdown", "picture", "svg", "pages", "table", "html", "document"})
# Files of these kinds can name scripts or pictures elsewhere.
_KINDS_WITH_SCRIPTS = frozenset({"markdown", "svg", "pages", "html", "document"})
# Mermaid draws in a browser. The libraries that draw its diagrams without one are young, and each
# is kept by one person (seen in November 2026), so none is trusted with files of strangers.
_MERMAID_FILES = (".mmd", ".mermaid")
_MERMAID_BLOCK = re.compile(r"^ {0,3}(?:```+|~~~+) *mermaid\b", re.MULTILINE)
_KINDS_WITHOUT_SOURCE = frozenset({"picture", "pages", "document", "other"})


@dataclass(eq=False)
class OpenedFile:
    """A tab. `shows_source`: the text of a file that can be drawn as well. `conversation`: the one
    whose copy of the folder the file was read in.
    """

    file: PreviewedFile
    workspace: ShownWorkspace
    conversation: str = ""
    first_line: int = 0
    last_line: int = 0
    shows_source: bool = False

    @property
    def is_file_on_this_computer(self) -> bool:
        """Whether the file's path may be watched and opened here. One that the host of another
        process sent may not: on another computer, it leads to something else. An attachment has
        none.
        """
        return self.file.stored is None and workbench_of_shown(self.workspace) is not None


class PreviewPane(QWidget):
    """`comment_written` carries the words for the message box, `changes_wanted` a path, and
    `entry_wanted` an attachment's digest.
    """

    closed = Signal()
    comment_written = Signal(str)
    changes_wanted = Signal(str)
    entry_wanted = Signal(object)
    open_wanted = Signal(object)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent, accessibleName=tr("Preview"))
        set_surface_look(self, "inspector")
        self._theme = theme
        self._doing = doing
        # Whether the conversation changed a file, by its path. The window supplies the answer.
        self.has_changed: Callable[[str], bool] = _is_not_known_as_changed
        self._opened: list[OpenedFile] = []
        self._shown: OpenedFile | None = None
        self._tab_widgets: list[QPushButton] = []
        self._tabs = QWidget(self)
        self._tab_row = build_row(owner=self._tabs, margins=0, spacing=4)
        self._source = build_push_button(tr("Source"), self, self._toggle_source, "link")
        self._open = build_push_button(tr("Open with…"), self, self._open_shown_file, "link")
        changes_label = tr("Show in Changes")
        self._changes = build_push_button(changes_label, self, self._show_in_changes, "link")
        cache_label = tr("Show in Cache")
        self._in_cache = build_push_button(cache_label, self, self._show_in_cache, "link")
        self._comment = build_push_button("", self, self._write_comment, "pill")
        self._comment.hide()
        close_name = tr("Close preview")
        close = build_push_button("✕", self, self.close_preview, "quiet", name=close_name)
        self._hint = build_plain_label("", "faint", self)
        self.lines = TextLineView(theme, self)
        self.drawn_text = BoxesView(theme, self, pad=(20, 16))
        self.picture = EntryImageView(theme, self)
        self.pages = PdfPagesView(theme, self)
        self.table = CsvTableView(self)
        self.html = OfflineHtmlView(self)
        self._sentence = build_sentence_view(self)
        self.stack = QStackedWidget(self)
        self.stack.addWidget(self.lines)
        self.stack.addWidget(self.drawn_text)
        self.stack.addWidget(self.picture)
        self.stack.addWidget(self.pages)
        self.stack.addWidget(self.table)
        self.stack.addWidget(self.html)
        self.stack.addWidget(self._sentence)
        head = build_row((self._tabs, 1), self._source, close, margins=(8, 6, 6, 6), spacing=6)
        buttons = [self._comment, self._changes, self._in_cache, self._open]
        foot = build_row((self._hint, 1), *buttons, margins=(12, 6, 8, 6), spacing=8)
        build_column(head, (self.stack, 1), foot, owner=self, margins=0, spacing=0)
        self.lines.selection_changed.connect(self._update_comment_button)
        self.html.selectionChanged.connect(self._update_comment_button)
        EscapeCloser(self, self.isVisible, self.close_preview)
        self._watcher = QFileSystemWatcher(self)
        self._watcher.fileChanged.connect(self._read_shown_file_again)
        self._watcher.directoryChanged.connect(self._read_replaced_file_again)

    @property
    def previewed_paths(self) -> Sequence[str]:
        return [opened.file.shown_path for opened in self._opened]

    @property
    def shown_path(self) -> str:
        if self._shown is None:
            return ""
        return self._shown.file.shown_path

    def show_file(
        self,
        workspace: ShownWorkspace,
        file: PreviewedFile,
        first_line: int = 0,
        last_line: int = 0,
        *,
        conversation: str = "",
    ) -> None:
        """Shows a file in its tab. With a line, its source is shown, because that has lines. Of a
        PDF, `first_line` is the page to be shown.
        """
        has_lines = first_line > 0 and file.kind not in _KINDS_WITHOUT_SOURCE
        opened = OpenedFile(
            file, workspace, conversation, first_line, last_line, shows_source=has_lines
        )
        place = (file.full_path, file.stored)
        tabs = [tab for tab in self._opened if (tab.file.full_path, tab.file.stored) != place]
        tabs.append(opened)
        self._opened = tabs[-MOST_TABS:]
        self._show_tab(opened)

    def close_preview(self) -> None:
        self._opened = []
        self._shown = None
        self._watch_shown_file()
        self.closed.emit()

    # --- Tabs

    def _show_tab(self, opened: OpenedFile) -> None:
        self._shown = opened
        clear_layout(self._tab_row)
        self._tab_widgets = [self._build_tab(tab) for tab in self._opened]
        for tab in self._tab_widgets:
            self._tab_row.addWidget(tab)
        self._tab_row.addStretch(1)

        kind = opened.file.kind
        has_source_view = kind in _DRAWN_KINDS and kind not in _KINDS_WITHOUT_SOURCE
        self._source.setVisible(has_source_view)
        if opened.shows_source:
            self._source.setText(tr("Drawn"))
        else:
            self._source.setText(tr("Source"))
        is_here = opened.is_file_on_this_computer
        self._in_cache.setVisible(opened.file.stored is not None)
        self._open.setVisible(is_here)
        self._changes.setVisible(is_here and self.has_changed(opened.file.shown_path))
        self._show_content(opened)
        self._update_comment_button()
        self._hide_tabs_without_room()
        self._watch_shown_file()

    def _show_tab_as_it_is_now(self, opened: OpenedFile) -> None:
        self._show_tab(opened)
        self._read_shown_file_again()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._hide_tabs_without_room()

    def _hide_tabs_without_room(self) -> None:
        """Hides the oldest tabs where the pane is too narrow for all. The shown one stays."""
        width_of_other_controls = self._source.sizeHint().width() + self._theme.zoomed_pixels(60)
        room = self.width() - width_of_other_controls
        tab_of_shown: QPushButton | None = None
        if self._shown in self._opened:
            tab_of_shown = self._tab_widgets[self._opened.index(self._shown)]
            room -= tab_of_shown.sizeHint().width()
        for tab in reversed(self._tab_widgets):
            if tab is tab_of_shown:
                continue
            room -= tab.sizeHint().width()
            tab.setVisible(room > 0)

    def _build_tab(self, opened: OpenedFile) -> QPushButton:
        name = PurePath(opened.file.shown_path).name
        show = partial(self._show_tab_as_it_is_now, opened)
        words = make_safe_text(name).replace("&", "&&")
        tab = build_push_button(words, self._tabs, show, "tab", name=name)
        tab.setToolTip(safe_tooltip(opened.file.shown_path))
        tab.setCheckable(True)
        tab.setAutoExclusive(True)  # Screen readers then announce a radio button, not a check box.
        tab.setChecked(opened is self._shown)
        tab.show()
        return tab

    def _toggle_source(self) -> None:
        if self._shown is not None:
            self._shown.shows_source = not self._shown.shows_source
            self._show_tab(self._shown)

    # --- A file that changes while it is shown

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._read_shown_file_again()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.WindowActivate:
            self._read_shown_file_again()
        return super().event(event)

    def read_again_if_files_changed(self, events: Sequence[Event]) -> None:
        """Reads the shown file again after a step that changed files. A file of a workspace that
        another process has open is not watched, nor is one in a folder that cannot be.
        """
        for event in events:
            if isinstance(event, FactAppended) and isinstance(event.recorded.fact, FilesChanged):
                self._read_shown_file_again()
                return

    def _watch_shown_file(self) -> None:
        """Watches the shown file and its folder: a file that is replaced is no longer watched."""
        watched = self._watcher.files() + self._watcher.directories()
        if watched:
            self._watcher.removePaths(watched)
        if self._shown is not None and self._shown.is_file_on_this_computer:
            path = self._shown.file.full_path
            self._watcher.addPaths([str(path), str(path.parent)])

    def _read_replaced_file_again(self) -> None:
        if not self._watcher.files():
            self._read_shown_file_again()

    def _read_shown_file_again(self) -> None:
        opened = self._shown
        if opened is None or opened.file.stored is not None:
            return  # What was attached stays as it was.
        self._watch_shown_file()
        reading = opened.workspace.read_file_for_preview(
            opened.conversation, str(opened.file.full_path)
        )
        self._doing.run_in_background(
            reading,
            then=partial(self._show_file_as_read_again, opened),
            owner=self,
            failed=partial(self._say_that_file_is_gone, opened),
        )

    def _show_file_as_read_again(self, opened: OpenedFile, file: PreviewedFile) -> None:
        """Shows what is new, and keeps the reader's place in the lines."""
        is_unchanged = file.content == opened.file.content
        opened.file = file
        if self._shown is not opened:
            return
        if is_unchanged:
            self._show_hint(opened)
            return
        scroll_bar = self.lines.verticalScrollBar()
        place = scroll_bar.value()
        self._show_tab(opened)
        if self.stack.currentWidget() is self.lines:
            scroll_bar.setValue(place)

    def _say_that_file_is_gone(self, opened: OpenedFile, _error: HelixError) -> None:
        if self._shown is opened:
            self._hint.setText(tr("This file can no longer be read. You see it as it was."))

    # --- What is shown of a file

    def _show_content(self, opened: OpenedFile) -> None:
        kind = str(opened.file.kind)
        self._show_hint(opened)
        if opened.shows_source or kind == "text":
            self._show_source(opened)
            return
        show_by_kind: dict[str, Callable[[OpenedFile], None]] = {
            "markdown": self._show_drawn_text,
            "document": self._show_drawn_text,
            "picture": self._show_drawn_picture,
            "svg": self._show_drawn_picture,
            "pages": self._show_pages,
            "table": self._show_table,
            "html": self._show_html,
        }
        show_file = show_by_kind.get(kind, self._show_that_it_is_binary)
        show_file(opened)

    def _show_hint(self, opened: OpenedFile) -> None:
        hint = ""
        if opened.file.kind in _KINDS_WITH_SCRIPTS and not opened.shows_source:
            hint = tr("Drawn without scripts and network.")
        if _has_mermaid_diagram(opened.file):
            hint = tr("Mermaid diagrams are shown as their source: drawing them needs a browser.")
        self._hint.setText(hint)

    def _show_source(self, opened: OpenedFile) -> None:
        lines = SourceLines(opened.file.text)
        if not lines.is_whole:
            line_count = format_number(len(lines))
            hint = tr("Only the first {n} lines are shown.", n=line_count)
            self._hint.setText(hint)
        language = highlight_language_of(opened.file.shown_path)
        colours = None
        if language and len(opened.file.text) <= MOST:
            safe_lines = list(lines)
            runs = highlight_code("\n".join(safe_lines), language)
            colours = split_runs_by_line(runs, safe_lines)
        # The view counts lines from 0.
        first_named = opened.first_line - 1
        last_named = opened.last_line - 1

        def tone_of_named_line(number: int) -> str:
            if first_named <= number <= last_named:
                return "accent_soft"
            return ""

        self.lines.show_text_lines(lines, colours=colours, tone=tone_of_named_line)
        self.stack.setCurrentWidget(self.lines)
        if opened.first_line:
            self.lines.scroll_to_line(first_named)

    def _show_drawn_text(self, opened: OpenedFile) -> None:
        text = opened.file.text
        if not can_text_be_drawn_at_once(text):
            self._hint.setText(tr("This text is too long to be drawn."))
            self._show_source(opened)
            return

        def build_drawn_boxes(ink: DrawingStyle, width: float) -> Sequence[LayoutBox]:
            return list(build_boxes_from_markdown(ink, width, text))

        self.drawn_text.show_boxes(build_drawn_boxes)
        self.stack.setCurrentWidget(self.drawn_text)

    def _show_drawn_picture(self, opened: OpenedFile) -> None:
        content = opened.file.content

        def show_drawn_image(image: QImage | None) -> None:
            if self._shown is not opened:
                return
            if image is None:
                self._show_sentence(tr("This picture is damaged, or in an unknown format."))
            else:
                self.picture.show_image(image)
                self.stack.setCurrentWidget(self.picture)

        work = _read_or_draw_picture(content, is_svg=opened.file.kind == "svg")
        self._doing.run_in_background(work, then=show_drawn_image, owner=self)

    def _show_pages(self, opened: OpenedFile) -> None:
        # First, so that the pages have their width by the time one of them is scrolled to.
        self.stack.setCurrentWidget(self.pages)
        draw_more = partial(self._draw_pages_in_background, opened)
        self.pages.show_pages(opened.file.page_count, draw_more, opened.first_line)

    def _draw_pages_in_background(self, opened: OpenedFile, first: int, last: int) -> None:
        numbers = range(first, last + 1)
        drawing = opened.workspace.draw_document_pages(opened.file, numbers, PAGE_EDGE)
        self._doing.run_in_background(
            drawing,
            then=partial(self._add_page_pictures, opened),
            failed=self._show_drawing_failure,
            owner=self,
        )

    def _add_page_pictures(self, opened: OpenedFile, pictures: Sequence[object]) -> None:
        """Shows pages that were drawn, unless another file was opened meanwhile."""
        if self._shown is not opened:
            return
        for picture in pictures:
            png = getattr(picture, "png", b"")
            self.pages.add_page_picture(png)

    def _show_drawing_failure(self, error: HelixError) -> None:
        self._show_sentence(translate_sentences(str(error)))

    def _show_table(self, opened: OpenedFile) -> None:
        self.table.show_csv(opened.file.text)
        self.stack.setCurrentWidget(self.table)

    def _show_html(self, opened: OpenedFile) -> None:
        if not can_be_drawn_at_once(opened.file.text):
            self._hint.setText(tr("This page is too large or too deeply nested to be drawn."))
            self._show_source(opened)
            return
        self.html.show_page(opened.file.text)
        self.stack.setCurrentWidget(self.html)

    def _show_that_it_is_binary(self, opened: OpenedFile) -> None:
        self._hint.setText("")
        self._show_sentence(tr("This file is not text. Open it with its own program."))

    def _show_sentence(self, words: str) -> None:
        self._sentence.setText(words)
        self.stack.setCurrentWidget(self._sentence)

    # --- What can be done with it

    def _update_comment_button(self) -> None:
        label = tr("Comment on selection")
        lines = self._selected_lines()
        if lines is not None:
            first, last = lines
            if first == last:
                label = tr("Comment on line {n}", n=str(first))
            else:
                label = tr("Comment on lines {first}–{last}", first=str(first), last=str(last))
        self._comment.setText(label)
        self._comment.setVisible(bool(self._selected_text()))

    def _selected_lines(self) -> tuple[int, int] | None:
        """Returns the selected lines as the file counts them."""
        if self.stack.currentWidget() is not self.lines:
            return None
        selected_range = self.lines.selected_line_range()
        if selected_range is None:
            return None
        first, last = selected_range
        return first + 1, last + 1

    def _selected_text(self) -> str:
        match self.stack.currentWidget():
            case self.lines:
                return self.lines.selected_text()
            case self.html:
                return self.html.textCursor().selectedText().replace("\u2029", "\n")
        return ""

    def _write_comment(self) -> None:
        if self._shown is not None:
            text = self._selected_text()
            self.comment_written.emit(
                format_comment(self._shown.file.shown_path, self._selected_lines(), text)
            )

    def _open_shown_file(self) -> None:
        if self._shown is not None and self._shown.is_file_on_this_computer:
            self.open_wanted.emit(self._shown.file.full_path)

    def _show_in_cache(self) -> None:
        if self._shown is not None and self._shown.file.stored is not None:
            self.entry_wanted.emit(self._shown.file.stored.digest)

    def _show_in_changes(self) -> None:
        if self._shown is not None:
            self.changes_wanted.emit(self._shown.file.shown_path)


async def _read_or_draw_picture(content: bytes, *, is_svg: bool) -> QImage | None:
    if is_svg:
        content = await draw_svg_as_png(content)
    return await asyncio.to_thread(read_picture, content, WIDEST_PICTURE)


def format_comment(path: str, lines: tuple[int, int] | None, text: str) -> str:
    """Returns the place and the selected text, below which the user writes."""
    place = path
    if lines is not None:
        first, last = lines
        place = f"{path}:{first}"
        if last != first:
            place = f"{path}:{first}-{last}"
    fence = "```"
    while fence in text:
        fence += "`"
    selected = text.strip("\n")
    return f"{place}\n{fence}\n{selected}\n{fence}\n"


def _has_mermaid_diagram(file: PreviewedFile) -> bool:
    if file.shown_path.casefold().endswith(_MERMAID_FILES):
        return True
    return file.kind == "markdown" and bool(_MERMAID_BLOCK.search(file.text))


def _is_not_known_as_changed(_path: str) -> bool:
    return False
