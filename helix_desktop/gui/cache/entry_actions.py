"""Actions on cache entries: copy hashes, compare, save, verify, pin and forget."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QMimeData, QObject, QPoint, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.cache_entry_rows import EntryRow, EntryUse
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, HelixError
from helix_desktop.gui.cache import entry_tasks
from helix_desktop.gui.cache.entry_table import EntryTable
from helix_desktop.gui.cache.entry_tasks import CatalogueWork
from helix_desktop.gui.cache.entry_viewer import EntryViewer
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.widgets import build_popup_menu
from helix_desktop.gui.question_dialogs import DialogChoice, ask_new_file, ask_to_choose_one
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import ShownCatalogue
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, format_number, tr
from helix_desktop.gui.views.text_comparison import TextComparisonDialog


class EntryActions(QObject):
    """Acts on the selected rows, or on the entry in the viewer. `reported` carries the
    progress in words.
    """

    reported = Signal(str)
    entry_changed = Signal(object)
    entry_forgotten = Signal()

    def __init__(
        self,
        theme: Theme,
        shown: CatalogueWork,
        table: EntryTable,
        viewer: EntryViewer,
        page: QWidget,
    ) -> None:
        """Connects what can be done with an output to the buttons of the viewer, which
        shows it.
        """
        super().__init__(page)
        self._theme = theme
        self._shown = shown
        self._runner = shown.runner
        self._table = table
        self._entries = table.entries
        self._viewer = viewer
        self._page = page
        viewer.save_wanted.connect(self.ask_where_to_and_save_entry)
        viewer.verify_wanted.connect(self.verify_shown_entry)
        viewer.pin_wanted.connect(self.set_shown_entry_pinned)
        viewer.forget_wanted.connect(self.ask_to_forget_entry)
        viewer.compare_wanted.connect(self.compare_selected_entries)

    def copy_selected_hashes(self) -> None:
        ranges = self._table.selected_ranges
        catalogue = self._shown.catalogue
        if catalogue is None or not ranges:
            return
        if self._entries.shows_search_hits:
            self._copy_hashes_of_search_hits()
            return
        # A million rows may be selected, so their hashes are read in the background.
        order = (self._entries.entry_filter, self._entries.sort_by, self._entries.descending)
        work = entry_tasks.fetch_hashes_of_rows(catalogue, ranges, order, self._show_copy_progress)
        self._runner.run_in_background(work, then=self._put_hashes_on_clipboard, owner=self)

    def _copy_hashes_of_search_hits(self) -> None:
        hashes: list[str] = []
        for number in self._table.selected_rows():
            row = self._entries.get_or_load_row(number)
            if row is not None:
                hashes.append(row.stored.digest.hex)
        QGuiApplication.clipboard().setText("\n".join(hashes))

    def _show_copy_progress(self, copied: int, total: int) -> None:
        self.reported.emit(
            tr(
                "Copying hashes: {done} of {total}",
                done=format_number(copied),
                total=format_number(total),
            )
        )

    def _put_hashes_on_clipboard(self, text: bytes) -> None:
        clipboard_data = QMimeData()
        clipboard_data.setData("text/plain", text)
        QGuiApplication.clipboard().setMimeData(clipboard_data)
        hash_count = text.count(b"\n") + 1  # There is no line end after the last one.
        self.reported.emit(format_count(hash_count, "{n} hash copied", "{n} hashes copied"))

    def ask_where_to_and_save_entry(self) -> None:
        """Asks for a file and saves the shown output there, in the background."""
        row = self._viewer.row
        catalogue = self._shown.catalogue
        if row is None or catalogue is None:
            return

        def save_entry_as(path: Path) -> None:
            success = tr("Saved as {name}", name=str(path))
            work = entry_tasks.save_entry_to_file(
                catalogue, row.stored, path, self._show_save_progress
            )
            self._runner.run_in_background(
                work, then=lambda _saved: self.reported.emit(success), owner=self
            )

        name = entry_tasks.suggest_entry_file_name(row)
        ask_new_file(self._page, tr("Save the stored output as"), name, save_entry_as)

    def _show_save_progress(self, saved_bytes: int, total_bytes: int) -> None:
        self.reported.emit(
            tr(
                "Saving: {done} of {total}",
                done=format_byte_size(saved_bytes),
                total=format_byte_size(total_bytes),
            )
        )

    def verify_shown_entry(self) -> None:
        """Compares the shown entry's content with its hash in the background, and shows whether
        they match.
        """
        row = self._viewer.row
        catalogue = self._shown.catalogue
        if row is None or catalogue is None:
            return
        digest = row.stored.digest

        def show_entry_intact(_: None) -> None:
            self._show_verification(digest, tr("The content matches its hash."), good=True)

        def show_verification_failure(error: HelixError) -> None:
            words = translate_sentences(str(error))
            if isinstance(error, CacheCorrupt):
                self._show_verification(digest, words, good=False)
            else:  # It could not be read now, which says nothing about the content.
                self._show_verification(digest, words, good=None)

        self._shown.run_then_if_shown(
            catalogue.cache.verify_entry(digest), show_entry_intact, show_verification_failure
        )

    def _show_verification(self, digest: Digest, words: str, *, good: bool | None) -> None:
        """Shows the result of a verification, even if another entry is shown by then."""
        if not self._viewer.is_entry_shown(digest):
            self.reported.emit(f"{digest.short_hex}: {words}")
            return
        if good is not None:
            self._viewer.show_checked_state(good=good)
        self.reported.emit(words)

    def set_shown_entry_pinned(self, pinned: bool) -> None:  # noqa: FBT001 - a slot
        row = self._viewer.row
        catalogue = self._shown.catalogue
        if row is None or catalogue is None:
            return
        digest = row.stored.digest
        pinning = catalogue.cache.pin_entry(digest, pinned=pinned)
        self._shown.run_then_if_shown(pinning, lambda _: self.entry_changed.emit(digest))

    def ask_to_forget_entry(self) -> None:
        """Asks whether the shown output is to be removed for good, and says which
        messages use it. Their number is read anew for the question.
        """
        row = self._viewer.row
        catalogue = self._shown.catalogue
        if row is None or catalogue is None:
            return
        # It may have been used since it was shown.
        find_uses = catalogue.index.find_entry_uses(row.stored.digest)
        ask_to_forget = partial(self._ask_to_forget_used_entry, catalogue, row)
        self._shown.run_then_if_shown(find_uses, ask_to_forget)

    def _ask_to_forget_used_entry(
        self, catalogue: ShownCatalogue, row: EntryRow, uses: Sequence[EntryUse]
    ) -> None:
        question = entry_tasks.describe_forgetting(row, uses)
        forget = partial(self._forget_entry, catalogue, row.stored.digest)
        choices = [DialogChoice(tr("Forget permanently"), forget)]
        title = tr("Forget this output")
        ask_to_choose_one(self._page, title, question, choices, cancel_label=tr("Keep"))

    def _forget_entry(self, catalogue: ShownCatalogue, digest: Digest) -> None:
        forgetting = catalogue.content_forgetter(entries=[digest])
        self._shown.run_then_if_shown(forgetting, lambda _: self.entry_forgotten.emit())

    def compare_selected_entries(self) -> None:
        """Opens a comparison of the two selected entries, the older one first. Does nothing unless
        exactly two are selected and the table has loaded both.
        """
        catalogue = self._shown.catalogue
        if catalogue is None or self._table.selected_count != 2:
            return
        rows: list[EntryRow] = []
        for number in self._table.selected_rows():
            row = self._entries.get_or_load_row(number)
            if row is None:
                return
            rows.append(row)
        rows.sort(key=lambda row: row.time)
        older, newer = rows
        older_name = entry_tasks.entry_name_with_hash(older)
        newer_name = entry_tasks.entry_name_with_hash(newer)

        def show_entry_comparison(texts: tuple[str, str]) -> None:
            names = (older_name, newer_name)
            TextComparisonDialog(self._runner, self._theme, names, texts, self._page).open()

        reading = entry_tasks.read_two_entry_texts(catalogue, older.stored, newer.stored)
        self._shown.run_then_if_shown(reading, show_entry_comparison)

    def show_entry_context_menu(self, clicked_at: QPoint) -> None:
        """Shows what can be done with the selected outputs: one, two or many."""
        selected_count = self._table.selected_count
        if selected_count == 0:
            return
        menu = build_popup_menu(self._page)
        copy_words = format_count(selected_count, "Copy the hash", "Copy {n} hashes")
        menu.addAction(copy_words, self.copy_selected_hashes)
        if selected_count == 2:
            menu.addAction(tr("Compare selected"), self.compare_selected_entries)
        if selected_count == 1:
            menu.addAction(tr("Add to next message"), self._viewer.recall_entry_or_lines)
            menu.addAction(tr("Show in chat"), self._viewer.show_last_use_in_chat)
            menu.addAction(tr("Save as…"), self.ask_where_to_and_save_entry)
            menu.addAction(tr("Verify"), self.verify_shown_entry)
            menu.addSeparator()
            menu.addAction(tr("Forget permanently…"), self.ask_to_forget_entry)
        menu.popup(clicked_at)
