"""Shows one entry: its hash, whether it was verified, where it is used, its actions and
its content.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication, QImage, QResizeEvent
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntryRow, EntrySort, EntryUse
from helix_desktop.engine.ports import VERSION
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import CacheCorrupt, HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.content_shapes import ContentShape
from helix_desktop.gui.cache.entry_columns import (
    describe_kind_of_entry,
    is_document_of_user,
)
from helix_desktop.gui.cache.entry_content_view import EntryContentView
from helix_desktop.gui.common.chip_labels import ChipLabel, DigestLabel
from helix_desktop.gui.common.figure_formats import format_byte_size, format_date_and_time
from helix_desktop.gui.common.tool_words import words_for_tool
from helix_desktop.gui.common.widgets import (
    add_menu_choice,
    build_push_button,
    build_tool_button,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.shown_workspace import ShownCatalogue
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import RecallEntry, ShowInChat
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, tr, translate_name

_SHOWN_USES = 30
_MOST_VERSIONS = 60  # Among so many of the newest entries, the versions of a file are looked for.
# What these store is the content of a file, as it was or as it was read.
TOOLS_THAT_STORE_FILES = frozenset({VERSION, ToolName.READ_FILE, "read"})


class EntryViewer(QWidget):
    """`intent_wanted` is for the window; `save_wanted` and `forget_wanted` are for the page.
    `entry_wanted` carries another entry to show: another version of the same file.
    """

    intent_wanted = Signal(object)
    save_wanted = Signal()
    compare_wanted = Signal()
    verify_wanted = Signal()
    pin_wanted = Signal(bool)
    forget_wanted = Signal()
    entry_wanted = Signal(object)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        """Builds the viewer: the output's content, its hash, where it was used, and
        what can be done with it. It shows nothing until an output is chosen.
        """
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self.row: EntryRow | None = None
        self.uses: Sequence[EntryUse] = ()

        self.content_view = EntryContentView(theme, doing, self)
        show_good_state = partial(self.show_checked_state, good=True)
        self.content_view.content_read.connect(show_good_state)
        self.content_view.reading_failed.connect(self._disable_content_buttons_after_error)
        self.content_view.shapes_found.connect(self._fill_shape_menu)
        self.content_view.lines.selection_changed.connect(self._update_recall_button)

        self._hash = DigestLabel(theme, self)
        self._checked_chip = ChipLabel(theme, self)
        self._uses_menu = QMenu(self)
        self._uses_button = self._build_menu_button(tr("Used in"), self._uses_menu)
        self._versions_menu = QMenu(self)
        self._versions_button = self._build_menu_button(
            tr("Versions of this file"), self._versions_menu
        )
        self._shape_menu = QMenu(self)
        self._shape_button = self._build_menu_button(tr("View as"), self._shape_menu)
        self._copy = build_push_button(tr("Copy"), self, self.copy_shown_content)
        self._save = build_push_button(tr("Save as…"), self, self.save_wanted.emit)
        self._show = build_push_button(tr("Show in chat"), self, self.show_last_use_in_chat)
        recall_label = tr("Add to next message")
        self.recall_button = build_push_button(
            recall_label, self, self.recall_entry_or_lines, "primary"
        )
        self._more = build_tool_button(tr("More actions"), self, "⋯")
        self._more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._more.setMenu(self._build_more_menu())
        self._lay_out_entry_viewer(theme)
        self.show_no_entry()

    def _build_menu_button(self, name: str, menu: QMenu) -> QToolButton:
        button = build_tool_button(name, self, look="chip")
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        button.setMenu(menu)
        return button

    def _lay_out_entry_viewer(self, theme: Theme) -> None:
        """Arranges the entry's hash and buttons in a row, and its content below them. Buttons that
        have no room are hidden.
        """
        self._head = build_row(
            self._hash,
            self._checked_chip,
            self._uses_button,
            self._versions_button,
            self._shape_button,
            1,
            self._copy,
            self._save,
            self._show,
            self.recall_button,
            self._more,
        )
        theme.keep_lengths_scaled(self, self._head.setSpacing, 10)
        self._column = build_column(self._head, (self.content_view, 1), owner=self)
        theme.keep_lengths_scaled(self, self._column.setContentsMargins, 20, 14, 20, 14)
        theme.keep_lengths_scaled(self, self._column.setSpacing, 10)
        theme.keep_lengths_scaled(self, self.setMinimumWidth, 300)
        # Its text must not widen the page; it is hidden if it would be cut.
        self._uses_button.setMinimumWidth(1)
        self._versions_button.setMinimumWidth(1)
        theme.changed.connect(self._show_fitting_buttons)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_fitting_buttons()

    def _show_fitting_buttons(self) -> None:
        """Shows the less important buttons only where there is room; the menu has them too."""
        if self.row is not None:
            self._hash.setText(self._hash_that_fits(self.row.stored.digest))
        self._show_less_important_buttons(has_buttons=True, has_uses=True)
        if not self._fits_head():
            self._show_less_important_buttons(has_buttons=False, has_uses=True)
        if not self._fits_head():
            self._show_less_important_buttons(has_buttons=False, has_uses=False)

    def _hash_that_fits(self, digest: Digest) -> str:
        # From this width on, the long hash fits beside the button labels in all languages.
        if self.width() < self._theme.zoomed_pixels(1_120):
            return digest.short_hex
        return f"{digest.hex[:16]}…{digest.hex[-12:]}"

    def _show_less_important_buttons(self, *, has_buttons: bool, has_uses: bool) -> None:
        for button in (self._copy, self._save, self._show):
            button.setVisible(has_buttons)
        self._uses_button.setVisible(has_uses and bool(self._uses_button.text()))
        self._versions_button.setVisible(has_uses and bool(self._versions_button.text()))

    def _fits_head(self) -> bool:
        margins = self._column.contentsMargins()
        room = self.width() - margins.left() - margins.right()
        self._head.invalidate()
        return self._head.sizeHint().width() <= room

    def _build_more_menu(self) -> QMenu:
        menu = QMenu(self)
        menu.addAction(tr("Copy"), self.copy_shown_content)
        menu.addAction(tr("Save as…"), self.save_wanted.emit)
        menu.addAction(tr("Show in chat"), self.show_last_use_in_chat)
        menu.addSeparator()
        menu.addAction(tr("Copy the hash"), self._copy_hash)
        self._pin = menu.addAction(tr("Pin: never remove this output"), self._toggle_pin)
        menu.addAction(tr("Verify"), self.verify_wanted.emit)
        self.compare_button = menu.addAction(tr("Compare selected"), self.compare_wanted.emit)
        menu.addSeparator()
        menu.addAction(tr("Forget permanently…"), self.forget_wanted.emit)
        return menu

    def show_no_entry(self) -> None:
        self.row = None
        self.uses = ()
        self._enable_entry_buttons(has_content=False)
        self._hash.setText("")
        self._uses_button.setText("")
        self._versions_button.setText("")
        chips = (self._checked_chip, self._uses_button, self._versions_button, self._shape_button)
        for chip in chips:
            chip.hide()
        self.content_view.show_sentence(tr("Select an output to see its content."))

    def show_entry_in_viewer(self, catalogue: ShownCatalogue, row: EntryRow) -> None:
        """Shows an entry. If it is shown already, only updates its figures."""
        is_shown_already = False
        if self.row is not None and self.row.stored.digest == row.stored.digest:
            # Once its content was removed, the entry is shown anew.
            is_shown_already = self.row.gone == row.gone
        self.row = row
        if row.pinned:
            self._pin.setText(tr("Unpin"))
        else:
            self._pin.setText(tr("Pin: never remove this output"))
        if is_shown_already:
            return

        self.uses = ()
        digest = row.stored.digest
        self._show_fitting_buttons()
        self._hash.setToolTip(digest.hex)
        self._checked_chip.hide()
        self._shape_button.hide()
        self._enable_entry_buttons(has_content=not row.gone)
        if row.gone:
            self.content_view.show_sentence(_describe_removed_entry(row))
        else:
            self.content_view.show_entry_content(catalogue, row.stored, row.about)
        work = catalogue.index.find_entry_uses(digest)
        self._doing.run_in_background(work, then=partial(self._show_entry_uses, digest), owner=self)
        self._versions_button.setText("")
        if _is_of_file(row):
            self._find_versions_of_file(catalogue, row)

    def _find_versions_of_file(self, catalogue: ShownCatalogue, row: EntryRow) -> None:
        """Looks for the other contents that this file had, or that were read from it."""
        work = catalogue.index.entries_page(
            EntryFilter(text=row.about.source),
            sort=EntrySort.TIME,
            descending=True,
            offset=0,
            limit=_MOST_VERSIONS,
        )
        show = partial(self._show_versions, row)
        self._doing.run_in_background(work, then=show, owner=self)

    def _show_versions(self, row: EntryRow, rows_with_name: Sequence[EntryRow]) -> None:
        """Lists the versions of the file, the newest first, if there is more than the shown one."""
        if not self.is_entry_shown(row.stored.digest):
            return
        versions: list[EntryRow] = []
        for other in rows_with_name:
            # The filter also finds other files, in whose names this one's occurs.
            if other.about.source == row.about.source and _is_of_file(other):
                versions.append(other)
        self._versions_menu.clear()
        if len(versions) < 2:
            return
        for version in versions:
            kind = describe_kind_of_entry(version)
            size = format_byte_size(version.stored.size)
            words = f"{format_date_and_time(version.time)} · {kind} · {size}"
            show_version = partial(self.entry_wanted.emit, version.stored.digest)
            is_shown = version.stored.digest == row.stored.digest
            add_menu_choice(self._versions_menu, words, show_version, chosen=is_shown)
        count = format_count(len(versions), "{n} version", "{n} versions")
        self._versions_button.setText(f"{count} ▾")
        self._versions_button.setAccessibleName(f"{tr('Versions of this file')}: {count}")
        self._show_fitting_buttons()

    def is_entry_shown(self, digest: Digest) -> bool:
        return self.row is not None and self.row.stored.digest == digest

    def show_checked_state(self, *, good: bool) -> None:
        if good:
            self._checked_chip.set_chip_text(tr("verified"), "strong")
        else:
            self._checked_chip.set_chip_text(tr("damaged"), "danger")
        self._checked_chip.show()

    def copy_shown_content(self) -> None:
        """Copies the selected part of the text, or else everything that is shown."""
        content = self.content_view.content_for_clipboard()
        clipboard = QGuiApplication.clipboard()
        if isinstance(content, QImage):
            clipboard.setImage(content)
        else:
            clipboard.setText(content)

    def show_last_use_in_chat(self) -> None:
        if self.uses:
            last_use = max(self.uses, key=_time_of_use)
            self.intent_wanted.emit(ShowInChat(last_use.conversation, last_use.seq))

    def recall_entry_or_lines(self) -> None:
        """Adds the entry, or its selected lines, to the next message."""
        if self.row is not None:
            self.intent_wanted.emit(
                RecallEntry(self.row.stored.digest, self.content_view.selected_entry_lines())
            )

    def _copy_hash(self) -> None:
        if self.row is not None:
            QGuiApplication.clipboard().setText(self.row.stored.digest.hex)

    def _toggle_pin(self) -> None:
        if self.row is not None:
            self.pin_wanted.emit(not self.row.pinned)

    def _enable_entry_buttons(self, *, has_content: bool) -> None:
        for button in (self._copy, self._save, self.recall_button):
            button.setEnabled(has_content)
        self._more.setEnabled(self.row is not None)
        self._show.setEnabled(False)

    def _disable_content_buttons_after_error(self, error: HelixError) -> None:
        if isinstance(error, CacheCorrupt):
            self.show_checked_state(good=False)
        self._copy.setEnabled(False)
        self.recall_button.setEnabled(False)

    def _fill_shape_menu(self, shapes: Sequence[ContentShape]) -> None:
        self._shape_menu.clear()
        for shape in shapes:
            name = translate_name("content shape", shape)
            show_shape = partial(self._show_content_in_shape, shape, name)
            self._shape_menu.addAction(name, show_shape)
        name_of_shown = translate_name("content shape", self.content_view.shape)
        self._shape_button.setText(f"{name_of_shown} ▾")
        self._shape_button.setVisible(len(shapes) > 1)
        self._show_fitting_buttons()

    def _show_content_in_shape(self, shape: ContentShape, name: str) -> None:
        self.content_view.change_shape(shape)
        self._shape_button.setText(f"{name} ▾")
        self._update_recall_button()

    def _update_recall_button(self) -> None:
        words = tr("Add to next message")
        lines = self.content_view.selected_entry_lines()
        if lines is not None:
            first, last = lines
            if first == last:
                words = tr("Add line {n} to next message", n=str(first))
            else:
                words = tr("Add lines {a}–{b} to next message", a=str(first), b=str(last))
        self.recall_button.setText(words)
        self._show_fitting_buttons()

    def _show_entry_uses(self, digest: Digest, uses: Sequence[EntryUse]) -> None:
        """Shows where the output was used, once that has been read. The menu leads to
        each place in the chat, the newest first.
        """
        if not self.is_entry_shown(digest):
            return
        self.uses = uses
        self._show.setEnabled(bool(uses))
        self._uses_button.setEnabled(bool(uses))
        self._uses_button.setText(_describe_uses(uses))
        self._show_fitting_buttons()

        self._uses_menu.clear()
        newest_first = sorted(uses, key=_time_of_use, reverse=True)
        for use in newest_first[:_SHOWN_USES]:
            kind_of_use = translate_name("use of an entry", use.how, otherwise=use.how)
            when = format_date_and_time(use.time)
            show_use = partial(self.intent_wanted.emit, ShowInChat(use.conversation, use.seq))
            self._uses_menu.addAction(tr("{how}, {when}", how=kind_of_use, when=when), show_use)


def _describe_removed_entry(row: EntryRow) -> str:
    tool = words_for_tool(row.about.tool)
    description = make_safe_text(f"{tool} {row.about.source}").strip()
    was_removed = tr(
        "This output was removed to free up space. Description: {what}.", what=description
    )
    remedy = tr("Run the tool again to get the content back.")
    return f"{was_removed}\n{remedy}"


def _describe_uses(uses: Sequence[EntryUse]) -> str:
    if not uses:
        return tr("not used")
    message_count = len([use for use in uses if use.how != "fold"])
    if message_count:
        return format_count(message_count, "used in {n} message", "used in {n} messages")
    return format_count(len(uses), "used in {n} shortened place", "used in {n} shortened places")


def _time_of_use(use: EntryUse) -> float:
    return use.time


def _is_of_file(row: EntryRow) -> bool:
    """Whether an entry is a content of a file, or what was read from it."""
    if not row.about.source:
        return False
    return row.about.tool in TOOLS_THAT_STORE_FILES or is_document_of_user(row)
