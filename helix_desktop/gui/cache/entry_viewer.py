"""Shows one entry: its hash, whether it was verified, where it is used, its actions and
its content.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtGui import QGuiApplication, QImage, QResizeEvent
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from helix_desktop.engine.cache_entry_rows import EntryRow, EntryUse
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.content_shapes import ContentShape
from helix_desktop.gui.cache.entry_content_view import EntryContentView
from helix_desktop.gui.common.chip_labels import ChipLabel, DigestLabel
from helix_desktop.gui.common.figure_formats import format_date_and_time
from helix_desktop.gui.common.widgets import build_push_button, build_tool_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import RecallEntry, ShowInChat
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, tr, translate_name
from helix_desktop.gui.workbench_types import StoredWorkspace

_SHOWN_USES = 30


class EntryViewer(QWidget):
    """`intent_wanted` is for the window; `save_wanted` and `forget_wanted` are for the page."""

    intent_wanted = Signal(object)
    save_wanted = Signal()
    compare_wanted = Signal()
    verify_wanted = Signal()
    pin_wanted = Signal(bool)
    forget_wanted = Signal()

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self.row: EntryRow | None = None
        self.uses: Sequence[EntryUse] = ()
        self.content_view = EntryContentView(theme, doing, self)
        self._hash = DigestLabel(theme, self)
        self._checked_chip = ChipLabel(theme, self)
        self._uses_button = build_tool_button(tr("Used in"), self, look="chip")
        self._shape_button = build_tool_button(tr("View as"), self, look="chip")
        self._copy = build_push_button(tr("Copy"), self, self.copy_shown_content)
        self._save = build_push_button(tr("Save as…"), self, self.save_wanted.emit)
        self._show = build_push_button(tr("Show in chat"), self, self.show_last_use_in_chat)
        self.recall_button = build_push_button(
            tr("Add to next message"), self, self.recall_entry_or_lines, "primary"
        )
        self._more = build_tool_button(tr("More actions"), self, "⋯")
        self._uses_menu = QMenu(self)
        self._shape_menu = QMenu(self)
        self._uses_button.setMenu(self._uses_menu)
        self._shape_button.setMenu(self._shape_menu)
        for button in (self._uses_button, self._shape_button, self._more):
            button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._more.setMenu(self._build_more_menu())
        self._lay_out_entry_viewer(theme)
        self.content_view.content_read.connect(lambda: self.show_checked_state(good=True))
        self.content_view.reading_failed.connect(self._disable_content_buttons_after_error)
        self.content_view.shapes_found.connect(self._fill_shape_menu)
        self.content_view.lines.selection_changed.connect(self._update_recall_button)
        self.show_no_entry()

    def _lay_out_entry_viewer(self, theme: Theme) -> None:
        chips = (self._hash, self._checked_chip, self._uses_button, self._shape_button)
        buttons = (self._copy, self._save, self._show, self.recall_button, self._more)
        head = self._head = build_row(*chips, 1, *buttons)
        theme.keep_lengths_scaled(self, head.setSpacing, 10)
        column = self._column = build_column(head, (self.content_view, 1), owner=self)
        theme.keep_lengths_scaled(self, column.setContentsMargins, 20, 14, 20, 14)
        theme.keep_lengths_scaled(self, column.setSpacing, 10)
        theme.keep_lengths_scaled(self, self.setMinimumWidth, 300)
        self._uses_button.setMinimumWidth(
            1
        )  # Its text must not widen the page; it is hidden if it would be cut.
        theme.changed.connect(self._show_fitting_buttons)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._show_fitting_buttons()

    def _show_fitting_buttons(self) -> None:
        """Shows the less important buttons only where there is room; the menu has them too."""
        if self.row is not None:
            digest = self.row.stored.digest
            shown_hash = digest.short_hex
            # From this width on, the long hash fits beside the button labels in all languages.
            if self.width() >= self._theme.zoomed_pixels(1_120):
                shown_hash = f"{digest.hex[:16]}…{digest.hex[-12:]}"
            self._hash.setText(shown_hash)
        buttons = (self._copy, self._save, self._show)
        margins = self._column.contentsMargins()
        room = self.width() - margins.left() - margins.right()
        for with_buttons, with_uses in ((True, True), (False, True), (False, False)):
            for button in buttons:
                button.setVisible(with_buttons)
            self._uses_button.setVisible(with_uses and bool(self._uses_button.text()))
            self._head.invalidate()
            if self._head.sizeHint().width() <= room:
                break

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
        for chip in (self._checked_chip, self._uses_button, self._shape_button):
            chip.hide()
        self.content_view.show_sentence(tr("Select an output to see its content."))

    def show_entry_in_viewer(self, catalogue: StoredWorkspace, row: EntryRow) -> None:
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
            what = make_safe_text(f"{row.about.tool} {row.about.source}").strip()
            words = tr(
                "This output was removed to free up space. Description: {what}.",
                what=what,
            )
            self.content_view.show_sentence(
                words + "\n" + tr("Run the tool again to get the content back.")
            )
        else:
            self.content_view.show_entry_content(catalogue, row.stored, row.about)
        work = catalogue.index.find_entry_uses(digest)
        self._doing.run_in_background(work, then=partial(self._show_entry_uses, digest), owner=self)

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
            last = max(self.uses, key=lambda use: use.time)
            self.intent_wanted.emit(ShowInChat(last.conversation, last.seq))

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
        names = {shape: translate_name("content shape", shape) for shape in ContentShape}
        for shape in shapes:
            self._shape_menu.addAction(
                names[shape], partial(self._show_content_in_shape, shape, names[shape])
            )
        self._shape_button.setText(f"{names[self.content_view.shape]} ▾")
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
        if self.row is None or self.row.stored.digest != digest:
            return
        self.uses = uses
        self._show.setEnabled(bool(uses))
        messages = sum(use.how != "fold" for use in uses)
        if messages:
            words = format_count(messages, "used in {n} message", "used in {n} messages")
        elif uses:
            words = format_count(
                len(uses), "used in {n} shortened place", "used in {n} shortened places"
            )
        else:
            words = tr("not used")
        self._uses_button.setText(words)
        self._show_fitting_buttons()
        self._uses_menu.clear()
        newest_first = sorted(uses, key=lambda use: use.time, reverse=True)
        for use in newest_first[:_SHOWN_USES]:
            how = translate_name("use of an entry", use.how, otherwise=use.how)
            words = tr("{how}, {when}", how=how, when=format_date_and_time(use.time))
            show_use = ShowInChat(use.conversation, use.seq)
            self._uses_menu.addAction(words, partial(self.intent_wanted.emit, show_use))
        self._uses_button.setEnabled(bool(uses))
