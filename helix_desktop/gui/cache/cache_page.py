"""The cache page: a workspace's entries, the content of one, and the actions on them."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QByteArray, Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFrame, QSplitter, QWidget

from helix_desktop.engine.cache_entry_rows import CacheEntryFigures, EntryFilter, EntryRow
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache import entry_tasks
from helix_desktop.gui.cache.entries_model import EntriesModel, EntrySearchHit
from helix_desktop.gui.cache.entry_actions import EntryActions
from helix_desktop.gui.cache.entry_columns import (
    COLUMNS_OF_EARLIER_LAYOUTS,
    ENTRY_COLUMNS,
    is_for_program_itself,
)
from helix_desktop.gui.cache.entry_table import EntryTable
from helix_desktop.gui.cache.entry_viewer import EntryViewer
from helix_desktop.gui.cache.filter_bar import EntryFilterBar
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.common.found_words import list_needles_of_query
from helix_desktop.gui.common.list_row_model import AimWatch
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import ShownCatalogue
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, format_number, tr

_HASH = re.compile(r"[0-9a-fA-F]{4,64}")
_REFRESH_DELAY_MS = 400  # Entries that are stored one after another are shown together.
# The index, from which the table is read, is up to two seconds behind what was stored.
_LATE_REFRESH_DELAY_MS = 3_000
_FIGURES_DELAY_MS = 120
_MOST_SKIPPED_ROWS = 20  # Behind so many entries of summaries, the first is opened after all.
# Returns the id and the title of each conversation.
Conversations = Callable[[], Sequence[tuple[str, str]]]


class CachePage(QWidget):
    """The page of entries. `intent_wanted` carries Recall or ShowInChat."""

    intent_wanted = Signal(object)

    def __init__(
        self, theme: Theme, doing: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        """Builds the page: filters, the table of stored outputs, and below it the
        chosen one. It is filled when a workspace is shown.
        """
        super().__init__(parent)
        self._shown = entry_tasks.CatalogueWork(doing, self)
        self._conversations: Conversations = tuple
        self._query = ""
        self._figures = ""  # The text above the table while at most one row is selected.
        # The line to scroll to in the entry that is being opened, or 0 for the first.
        self._line_to_show = 0
        self._selects_newest = False
        self._needs_refresh = False

        self.bar = EntryFilterBar(theme, self)
        self.model = EntriesModel(doing, self)
        self.table = EntryTable(theme, self.model, self)
        self._aim = AimWatch(self.table)
        self.viewer = EntryViewer(theme, doing, self)
        self.entry_actions = EntryActions(theme, self._shown, self.table, self.viewer, self)
        self._figures_label = widgets.build_plain_label("", "small", self)
        self.over_limit_button = widgets.build_push_button(
            "", self, look="link", toolTip=tr("Actions")
        )
        self.over_limit_button.hide()
        self._lay_out_cache_page(theme)

        # The figures of all entries are fetched after the rows, because they take longer.
        self._figures_timer = QTimer(self, interval=_FIGURES_DELAY_MS, singleShot=True)
        self._figures_timer.timeout.connect(self._fetch_cache_figures)
        self._refresh_timer = QTimer(self, interval=_REFRESH_DELAY_MS, singleShot=True)
        self._refresh_timer.timeout.connect(self._refresh_entries_now)
        self._late_refresh_timer = QTimer(self, interval=_LATE_REFRESH_DELAY_MS, singleShot=True)
        self._late_refresh_timer.timeout.connect(self._recount_at_rest)
        self._connect_signals()

    def _lay_out_cache_page(self, theme: Theme) -> None:
        """Arranges the parts. A handle between table and output lets the user give one
        of them more room.
        """
        self._split = QSplitter(Qt.Orientation.Vertical, self)
        self._split.addWidget(self.table)
        self._split.addWidget(self.viewer)
        self._split.setStretchFactor(0, 1)
        self._split.setStretchFactor(1, 1)
        self._split.setSizes([330, 400])
        self._split.setChildrenCollapsible(False)
        theme.keep_lengths_scaled(self, self.table.setMinimumHeight, 120)
        theme.keep_lengths_scaled(self, self.viewer.setMinimumHeight, 140)
        theme.keep_lengths_scaled(self, self._figures_label.setContentsMargins, 20, 6, 20, 6)
        rule = QFrame(self)
        set_widget_look(rule, "rule")
        figures_row = build_row((self._figures_label, 1), self.over_limit_button)
        theme.keep_lengths_scaled(self, figures_row.setContentsMargins, 0, 0, 20, 0)
        build_column(
            self.bar, rule, figures_row, (self._split, 1), owner=self, margins=0, spacing=0
        )
        widgets.set_surface_look(self, "page")

    def _connect_signals(self) -> None:
        """Connects the parts of the page, which do not know each other: what is chosen in the bar
        changes the table, the table's current row opens in the viewer, and entries that arrive
        keep the table where it is.
        """
        self.bar.filter_chosen.connect(self._apply_chosen_filter)
        self.bar.searched.connect(self.search_hash_or_text)
        self.bar.table_wanted.connect(self._enter_table)
        self.table.current_row_changed.connect(self._open_entry_of_row)
        self.table.selected_rows_changed.connect(self._show_selection_count)
        self.table.menu_wanted.connect(self.entry_actions.show_entry_context_menu)
        self.table.entry_opened.connect(self.viewer.content_view.lines.setFocus)
        self.table.copy_wanted.connect(self.entry_actions.copy_selected_hashes)
        self.model.rows_added_above.connect(self.table.scroll_past_rows_added_above)
        self.model.rows_loaded.connect(self._select_newest_entry)
        self.model.rows_loaded.connect(self._reselect_shown_entry)
        self.model.row_count_changed.connect(self._select_newest_entry)
        self.viewer.intent_wanted.connect(self.intent_wanted)
        self.viewer.entry_wanted.connect(self.open_entry_by_digest)
        self.viewer.content_view.content_read.connect(self._scroll_to_found_line)
        self.entry_actions.reported.connect(self._figures_label.setText)
        self.entry_actions.entry_changed.connect(self._reload_changed_entry)
        self.entry_actions.entry_forgotten.connect(self.clear_and_reload_entries)

    def show_bytes_over_limit(self, beyond: int) -> None:
        self.over_limit_button.setText(tr("{size} over the limit", size=format_byte_size(beyond)))
        self.over_limit_button.setVisible(beyond > 0)

    def show_cache_of(
        self, catalogue: ShownCatalogue, conversations: Conversations = tuple
    ) -> None:
        """Shows a workspace's entries. `conversations` returns ids and titles for the filter."""
        self._shown.catalogue = catalogue
        self._query = ""
        self._selects_newest = True
        self._conversations = conversations
        self.bar.reset_filters()
        self.bar.set_conversations(conversations())
        self.table.cells.needles = ()
        self.viewer.content_view.lines.highlight_matches(())
        self.clear_and_reload_entries()

    def _select_newest_entry(self, _: object = None) -> None:
        if not self._selects_newest or not self.model.rowCount():
            return
        if self.model.get_or_load_row(0) is None:  # It is being read.
            return
        self._selects_newest = False
        self.table.select_row_and_open_entry(self._find_first_row_of_tool())

    def _find_first_row_of_tool(self) -> int:
        """What was stored for a summary, or to give an imported history back to its agent, says
        little to whoever opens the page.
        """
        for number in range(min(self.model.rowCount(), _MOST_SKIPPED_ROWS)):
            row = self.model.get_or_load_row(number)
            if row is not None and not is_for_program_itself(row):
                return number
        return 0

    def _reselect_shown_entry(self) -> None:
        """Keeps the shown entry selected after rows were added above it."""
        current_row = self.table.current_row
        if current_row < 0 or self.table.is_current_row_loading or self.model.shows_search_hits:
            return
        current_entry = self.model.get_or_load_row(current_row)
        shown_entry = self.viewer.row
        if current_entry is None or shown_entry is None:
            return
        if current_entry.stored.digest == shown_entry.stored.digest:
            return
        new_row = self.model.row_number_of_entry(shown_entry.stored.digest)
        if new_row >= 0:
            self.table.move_current_row_without_opening(new_row)
        else:
            self.table.clear_current_row()

    def refresh_entries_soon(self) -> None:
        """Refreshes after a pause, because an entry was stored or used. A hidden page
        waits until it is shown.
        """
        self._needs_refresh = True
        if self.isVisible() and not self._refresh_timer.isActive():
            self._refresh_timer.start()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.bar.set_conversations(self._conversations())
        if self._needs_refresh:
            self._refresh_timer.start()

    def encode_cache_layout(self) -> str:
        header_state = self.table.horizontalHeader().saveState()
        split_state = self._split.saveState()
        encoded_states: list[str] = []
        for state in (header_state, split_state):
            encoded_state = bytes(state.toBase64().data())
            encoded_states.append(encoded_state.decode())
        column_count = len(ENTRY_COLUMNS)
        encoded_states.append(str(column_count))
        return " ".join(encoded_states)

    def restore_cache_layout(self, state: str) -> None:
        """Restores a layout that `encode_cache_layout` returned, and ignores anything else."""
        encoded_states = state.split(" ")
        if len(encoded_states) == 2:  # From a version that did not say how many columns it had.
            encoded_states.append(str(COLUMNS_OF_EARLIER_LAYOUTS))
        if len(encoded_states) != 3 or not encoded_states[2].isdecimal():
            return
        header_state, split_state, column_count = encoded_states
        header = self.table.horizontalHeader()
        decoded_header = QByteArray.fromBase64(header_state.encode())
        header.restoreState(decoded_header)
        # Qt shows all that the saved state does not know.
        for number in range(int(column_count), len(ENTRY_COLUMNS)):
            header.setSectionHidden(number, not ENTRY_COLUMNS[number].is_shown_at_first)
        decoded_split = QByteArray.fromBase64(split_state.encode())
        self._split.restoreState(decoded_split)

    def open_entry_by_digest(self, digest: Digest) -> None:
        """Opens one entry, and selects its row if that is loaded."""
        if self._shown.catalogue is not None:
            self._shown.run_then_if_shown(
                self._shown.catalogue.index.find_entry_row(digest), self._select_and_open_row
            )

    def open_entry_from_elsewhere(self, digest: Digest, words: str = "") -> None:
        """Opens an entry that a link or a search outside this page named. The page then searches
        for the same words, so that their line is in sight; an older search and older filters end.
        """
        self._selects_newest = False
        self.bar.reset_filters()
        self.bar.set_conversations(self._conversations())
        self.bar.show_searched_words(words)
        self._query = words
        self.model.set_entry_filter(self.bar.filter)
        if words:
            self._search_entry_contents(words, digest)
            return
        self._clear_search_hits()
        self._figures_timer.start()
        self.open_entry_by_digest(digest)

    def focus_entry_search(self) -> None:
        self.bar.field.setFocus()
        self.bar.field.selectAll()

    def search_hash_or_text(self, text: str) -> None:
        """Opens the entry whose hash begins so, or searches the contents for the text."""
        self._query = text
        catalogue = self._shown.catalogue
        if catalogue is None:
            return
        if not text:
            self._show_all_entries(catalogue)
        elif _HASH.fullmatch(text):
            if self._clear_search_hits():
                self._figures_timer.start()
            work = catalogue.cache.resolve_prefix(text.lower())
            self._shown.run_then_if_shown(
                work, self.open_entry_by_digest, self._search_unknown_hash_as_text
            )
        else:
            self._search_entry_contents(text)

    def _show_all_entries(self, catalogue: ShownCatalogue) -> None:
        had_search_hits = self._clear_search_hits()
        if had_search_hits and self.viewer.row is not None:
            work = catalogue.index.find_entry_row(self.viewer.row.stored.digest)
            self._shown.run_then_if_shown(work, self._select_shown_entry)
        self._figures_timer.start()

    def _enter_table(self) -> None:
        """Moves the keyboard focus to the table, and opens the row where it was last."""
        self.table.setFocus()
        row = max(self.table.current_row, 0)
        self.table.select_row_and_open_entry(row)

    def _search_entry_contents(self, text: str, wanted_entry: Digest | None = None) -> None:
        """Lists the entries that contain the words, and opens the wanted one or else the best."""
        if self._shown.catalogue is None:
            return
        self._show_text_above_table(tr("Searching for “{words}”…", words=text))
        tool = self.bar.filter.tool
        search = entry_tasks.search_entries_with_rows(self._shown.catalogue, text, tool=tool)
        show_hits = partial(self._show_search_hits, text, wanted_entry=wanted_entry)
        self._shown.run_then_if_shown(search, show_hits, self._show_why_entry_search_failed)

    def _show_why_entry_search_failed(self, error: HelixError) -> None:
        self._show_text_above_table(translate_sentences(str(error)))

    def _show_search_hits(
        self, text: str, hits: Sequence[EntrySearchHit], wanted_entry: Digest | None = None
    ) -> None:
        """Lists the entries that a search has found, with the words of the search marked, and
        opens the wanted entry or else the first.
        """
        if text != self._query:  # Something else was searched for meanwhile.
            return
        needles = list_needles_of_query(text)
        self.table.cells.needles = needles
        self.viewer.content_view.lines.highlight_matches(needles)
        self.model.show_search_hits(hits)
        self._show_text_above_table(f"“{text}”: {_describe_search_hits(hits)}")

        row_to_open = 0
        if wanted_entry is not None:
            row_to_open = self.model.row_number_of_entry(wanted_entry)
            if row_to_open < 0:  # More entries were found than are listed.
                self.open_entry_by_digest(wanted_entry)
                return
        if hits:
            self.table.select_row_and_open_entry(row_to_open)
        else:
            self.viewer.show_no_entry()

    def _search_unknown_hash_as_text(self, error: HelixError) -> None:
        """Searches the contents, because no entry has this hash."""
        self._show_text_above_table(translate_sentences(str(error)))
        self._search_entry_contents(self._query)

    def _clear_search_hits(self) -> bool:
        """Shows all entries again instead of search hits. Returns False if no hits were shown."""
        self.table.cells.needles = ()
        self.viewer.content_view.lines.highlight_matches(())
        if not self.model.shows_search_hits:
            return False
        self.model.show_search_hits(None)
        self.table.clear_current_row()
        return True

    def _select_shown_entry(self, row: EntryRow | None) -> None:
        """Selects the shown entry in the full table, unless the user has selected a row."""
        has_user_selected_row = self.table.current_row >= 0
        if row is None or has_user_selected_row:
            return
        if self.viewer.is_entry_shown(row.stored.digest):
            self._select_and_open_row(row)

    def _apply_chosen_filter(self, chosen: EntryFilter) -> None:
        self.table.clearSelection()
        self.table.verticalScrollBar().setValue(0)
        if self._query and not _HASH.fullmatch(self._query):
            self._search_entry_contents(self._query)
        self.model.set_entry_filter(chosen)
        self._figures_timer.start()

    def _select_and_open_row(self, row: EntryRow | None) -> None:
        if row is None or self._shown.catalogue is None:
            self._show_text_above_table(tr("This workspace does not contain this output."))
            return
        number = self.model.row_number_of_entry(row.stored.digest)
        if number >= 0:
            self.table.select_row_and_open_entry(number)
        else:
            self.table.clear_current_row()
        self.viewer.show_entry_in_viewer(self._shown.catalogue, row)

    def _open_entry_of_row(self, number: int) -> None:
        row = self.model.get_or_load_row(number)
        if row is None or self._shown.catalogue is None:
            return
        self._line_to_show = 0
        search_hit = self.model.search_hit_at(number)
        if search_hit is not None:
            self._line_to_show = search_hit.line
        is_shown_already = self.viewer.is_entry_shown(row.stored.digest)
        self.viewer.show_entry_in_viewer(self._shown.catalogue, row)
        if is_shown_already:
            self._scroll_to_found_line()

    def _scroll_to_found_line(self) -> None:
        """Scrolls to the search hit once the entry has been read."""
        line = self._line_to_show
        self._line_to_show = 0
        if line > 0:
            self.viewer.content_view.lines.scroll_to_line(line - 1)

    def _fetch_cache_figures(self) -> None:
        if self._shown.catalogue is None:
            return
        index = self._shown.catalogue.index
        self._shown.run_then_if_shown(index.compute_figures(), self._show_cache_figures)
        self._shown.run_then_if_shown(index.count_tools(), self.bar.set_tools)

    def _show_cache_figures(self, figures: CacheEntryFigures) -> None:
        """Says above the table how many outputs are stored and how much room they take. While
        search hits are listed, the line is about them and stays.
        """
        if self.model.shows_search_hits:
            return
        parts: list[str] = []
        if self.model.entry_filter != EntryFilter():
            shown_count = format_number(self.model.rowCount())
            parts.append(tr("{n} shown", n=shown_count))
        parts.append(format_count(figures.entries, "{n} stored output", "{n} stored outputs"))
        size = format_byte_size(figures.size)
        compressed_size = format_byte_size(figures.kept)
        parts.append(tr("{size}, compressed to {kept}", size=size, kept=compressed_size))
        if figures.repeated:
            duplicates = format_count(
                figures.repeated,
                "{n} duplicate not stored again",
                "{n} duplicates not stored again",
            )
            parts.append(duplicates)
        if figures.gone:
            removed_count = format_number(figures.gone)
            parts.append(tr("{n} removed to free up space", n=removed_count))
        parts.append(tr("verified on every read"))
        self._show_text_above_table(" · ".join(parts))

    def _show_selection_count(self) -> None:
        selected = self.table.selected_count
        self.viewer.compare_button.setEnabled(selected == 2)
        if selected > 1:
            count = tr("{n} selected", n=format_number(selected))
            self._figures_label.setText(f"{count} · {tr('Press Ctrl+C to copy the hashes')}")
        else:
            self._figures_label.setText(self._figures)

    def _show_text_above_table(self, words: str) -> None:
        self._figures = words
        self._figures_label.setText(words)

    def _refresh_entries_now(self) -> None:
        self._needs_refresh = False
        self._recount_at_rest()
        # What was stored last may not be in the index yet, and nothing may tell of it again.
        self._late_refresh_timer.start()

    def _recount_at_rest(self) -> None:
        # The newest stands first, so any output moves rows that somebody may be aiming at.
        self._aim.run_once_at_rest(self._recount_entries)

    def _recount_entries(self) -> None:
        if not self.model.shows_search_hits:
            self.model.recount_and_reload()
            if self.table.selected_count < 2:
                self._figures_timer.start()

    def _reload_changed_entry(self, digest: Digest) -> None:
        self.model.recount_and_reload()
        self._figures_timer.start()
        if self.viewer.is_entry_shown(digest):
            self.open_entry_by_digest(digest)

    def clear_and_reload_entries(self) -> None:
        """Clears the view and reloads the table, so that nothing that was removed stays visible."""
        self.viewer.show_no_entry()
        self.table.clear_current_row()
        self.model.show_entries_of(self._shown.catalogue, self.bar.filter)
        self._figures_timer.start()


def _describe_search_hits(hits: Sequence[EntrySearchHit]) -> str:
    """Says how many outputs contain all the words, and how many only something like
    them.
    """
    matching_count = 0
    similar_count = 0
    for hit in hits:
        if hit.has_all_words:
            matching_count += 1
        else:
            similar_count += 1
    matching_words = format_count(matching_count, "{n} matching output", "{n} matching outputs")
    if similar_count == 0:
        return matching_words
    if matching_count == 0:
        matching_words = tr("no exact match")
    similar_words = format_count(similar_count, "{n} similar output", "{n} similar outputs")
    return f"{matching_words}, {similar_words}"
