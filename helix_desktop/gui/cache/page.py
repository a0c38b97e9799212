"""The cache page: the entries of a workspace, what one of them holds, and everything that can be done with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QByteArray, QMimeData, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QMenu,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.catalogue import Filter, Row, Stats
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.errors import CacheCorrupt, HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.cache import work
from helix_desktop.gui.cache.filters import FilterBar
from helix_desktop.gui.cache.model import EntriesModel, Found
from helix_desktop.gui.cache.table import EntryTable
from helix_desktop.gui.cache.viewer import EntryViewer
from helix_desktop.gui.cache_port import Catalogue
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.questions import ask_new_file, ask_which
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.views.compare import CompareDialog
from helix_desktop.gui.words import count, numeral, tr

_HASH = re.compile(r"[0-9a-fA-F]{4,64}")
_LIVE = 400
T = TypeVar("T")
Conversations = Callable[[], Sequence[tuple[str, str]]]
_AFTER = 120


class CachePage(QWidget):
    """`wanted` carries Recall or ShowInChat."""

    wanted = Signal(object)

    room_wanted = Signal()

    def __init__(self, theme: Theme, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._doing = doing
        self._catalogue: Catalogue | None = None
        self._query = ""
        self._fresh = self._stale = False
        self._conversations: Conversations = tuple
        self._line = 0  # of the entry that is being opened; 0: its beginning
        self.bar = FilterBar(theme, self)
        self.model = EntriesModel(doing, self)
        self.table = EntryTable(theme, self.model, self)
        self.viewer = EntryViewer(theme, doing, self)
        self._counts = QLabel(self)
        self._counts.setWordWrap(True)
        set_look(self._counts, "small")
        theme.fit(self, self._counts.setContentsMargins, 20, 6, 20, 6)
        self._over = QPushButton(self)
        set_look(self._over, "link")
        self._over.setToolTip(tr("Actions"))
        self._over.clicked.connect(self.room_wanted)
        self._over.hide()
        self._split = QSplitter(Qt.Orientation.Vertical, self)
        self._split.addWidget(self.table)
        self._split.addWidget(self.viewer)
        self._split.setStretchFactor(0, 1)
        self._split.setStretchFactor(1, 1)
        self._split.setSizes([330, 400])
        self._split.setChildrenCollapsible(False)
        theme.fit(self, self.table.setMinimumHeight, 120)
        theme.fit(self, self.viewer.setMinimumHeight, 140)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.bar)
        rule = QFrame(self)
        set_look(rule, "rule")
        column.addWidget(rule)
        line = QHBoxLayout()
        theme.fit(self, line.setContentsMargins, 0, 0, 20, 0)
        line.addWidget(self._counts, 1)
        line.addWidget(self._over)
        column.addLayout(line)
        column.addWidget(self._split, 1)
        self._later = QTimer(self, interval=_AFTER, singleShot=True)
        self._later.timeout.connect(self._ask_figures)
        self._soon = QTimer(self, interval=_LIVE, singleShot=True)
        self._soon.timeout.connect(self._refreshed)
        set_look(self, "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._connect()

    def _connect(self) -> None:
        self.bar.chosen.connect(self._choose)
        self.bar.searched.connect(self.search)
        self.bar.down.connect(self._into_table)
        self.table.current_changed.connect(self._look_at)
        self.table.chosen_changed.connect(self._say_chosen)
        self.table.menu_wanted.connect(self._menu)
        self.table.opened.connect(self.viewer.body.lines.setFocus)
        self.table.copy_wanted.connect(self.copy_hashes)
        self.model.grown.connect(self.table.shift)
        self.model.arrived.connect(self._first_rows)
        self.model.arrived.connect(self._follow_shown)
        self.model.counted.connect(self._first_rows)
        self.viewer.wanted.connect(self.wanted)
        self.viewer.body.read.connect(self._show_line)
        self.viewer.save_wanted.connect(self.save)
        self.viewer.verify_wanted.connect(self.verify)
        self.viewer.pin_wanted.connect(self._pin)
        self.viewer.forget_wanted.connect(self.forget)
        self.viewer.compare_wanted.connect(self.compare)

    # --- what the window calls

    def show_over(self, beyond: int) -> None:
        """The cache takes so many bytes more than the user's limit."""
        self._over.setText(tr("{size} over the limit", size=size(beyond)))
        self._over.setVisible(beyond > 0)

    def open(self, catalogue: Catalogue, conversations: Conversations = tuple) -> None:
        """Show a workspace's entries. `conversations` gives ids and titles to filter by, as they are by then."""
        self._catalogue, self._query, self._fresh = catalogue, "", True
        self._conversations = conversations
        self.bar.reset()
        self.bar.set_conversations(conversations())
        self.table.cells.needles = ()
        self.viewer.body.lines.mark("")
        self.renew()

    def _ask(
        self,
        work: Coroutine[Any, Any, T],
        name: str,
        then: Callable[[T], object],
        failed: Callable[[HelixError], object] | None = None,
    ) -> None:
        """Of the workspace that is shown; what comes of it when another one is shown by then is let be."""
        catalogue = self._catalogue

        def came(found: T) -> None:
            if self._catalogue is catalogue:
                then(found)

        def not_come(error: HelixError) -> None:
            if failed is not None and self._catalogue is catalogue:
                failed(error)

        self._doing.do(work, name=name, then=came, owner=self, failed=not_come if failed is not None else None)

    def _first_rows(self, _: object = None) -> None:
        """The newest entry is the one that is looked at first."""
        if self._fresh and self.model.rowCount() and self.model.row(0) is not None:
            self._fresh = False
            self.table.go_to(0)

    def _follow_shown(self) -> None:
        """Rows came in above while those that were known stood at their old places: what is shown stays chosen."""
        if self.table.at < 0 or self.table.waiting or self.model.searching:
            return
        there, shown = self.model.row(self.table.at), self.viewer.row
        if there is None or shown is None:
            return
        if there.stored.digest != shown.stored.digest:
            number = self.model.row_of(shown.stored.digest)
            if number >= 0:
                self.table.stand_at(number)
            else:
                self.table.look_away()

    def refresh(self) -> None:
        """Something was stored or used: look again, soon; when the page is hidden, as soon as it is shown."""
        self._stale = True
        if self.isVisible() and not self._soon.isActive():
            self._soon.start()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.bar.set_conversations(self._conversations())
        if self._stale:
            self._soon.start()

    def layout_state(self) -> str:
        """Columns and the place of the divider, to be kept over a restart."""
        parts = (self.table.horizontalHeader().saveState(), self._split.saveState())
        return " ".join(bytes(part.toBase64().data()).decode() for part in parts)

    def restore_layout(self, state: str) -> None:
        """As `layout_state` gave it; anything else is let be."""
        parts = [QByteArray.fromBase64(part.encode()) for part in state.split(" ")]
        if len(parts) == 2:
            self.table.horizontalHeader().restoreState(parts[0])
            self._split.restoreState(parts[1])

    def show_entry(self, digest: Digest) -> None:
        """Open one entry, and choose its row where that is at hand."""
        if self._catalogue is not None:
            self._ask(self._catalogue.index.row(digest), "an entry", self._jump)

    def focus_search(self) -> None:
        self.bar.field.setFocus()
        self.bar.field.selectAll()

    # --- finding

    def search(self, text: str) -> None:
        """A hash or the beginning of one jumps to its entry; anything else is looked for in the contents."""
        self._query = text
        if self._catalogue is None:
            return
        if not text:
            self._show_all()
        elif _HASH.fullmatch(text):
            if self._leave_found():
                self._figures()
            self._ask(self._catalogue.cache.resolve(text.lower()), "find a hash", self.show_entry, self._no_such_hash)
        else:
            self._search_contents(text)

    def _search_contents(self, text: str) -> None:
        if self._catalogue is None:
            return
        self._counts.setText(tr("Searching for “{words}”…", words=text))
        looking = work.found(self._catalogue, text, tool=self.bar.filter.tool)
        self._ask(looking, "search entries", lambda hits: self._take_found(text, hits))

    def _take_found(self, text: str, found: Sequence[Found]) -> None:
        if text != self._query:
            return
        self.table.cells.needles = tuple(word.lower() for word in text.split() if len(word) > 1)
        self.table.selected.clear()
        self.model.show_found(found)
        self.viewer.body.lines.mark(text)
        places = count(len(found), "{n} matching entry", "{n} matching entries")
        self._counts.setText(f"“{text}”: {places}")
        if found:
            self.table.go_to(0)
        else:
            self.viewer.clear()

    def _no_such_hash(self, error: HelixError) -> None:
        """Not a hash of ours: it may still stand in a text."""
        self._counts.setText(said(str(error)))
        self._search_contents(self._query)

    def _leave_found(self) -> bool:
        """All entries again in place of what a search found; False where none was shown."""
        self.table.cells.needles = ()
        self.viewer.body.lines.mark("")
        if not self.model.searching:
            return False
        self.model.show_found(None)
        self.table.look_away()
        return True

    def _show_all(self) -> None:
        if self._leave_found() and self.viewer.row is not None and self._catalogue is not None:
            finding = self._catalogue.index.row(self.viewer.row.stored.digest)
            self._ask(finding, "the entry that is shown", self._choose_shown)
        self._figures()

    def _choose_shown(self, row: Row | None) -> None:
        """What is shown is what is chosen, wherever it stands among all; unless somebody has gone on meanwhile."""
        shown = self.viewer.row
        if row is not None and shown is not None and self.table.at < 0 and shown.stored.digest == row.stored.digest:
            self._jump(row)

    def _choose(self, chosen: Filter) -> None:
        self.table.selected.clear()
        self.table.verticalScrollBar().setValue(0)
        if self._query and not _HASH.fullmatch(self._query):
            self._search_contents(self._query)
        self.model.choose(chosen)
        self._figures()

    def _jump(self, row: Row | None) -> None:
        if row is None or self._catalogue is None:
            self._counts.setText(tr("This workspace has no such entry."))
            return
        number = self.model.row_of(row.stored.digest)
        if number >= 0:
            self.table.go_to(number)
        else:
            self.table.look_away()
        self.viewer.open(self._catalogue, row)

    def _into_table(self) -> None:
        self.table.setFocus()
        self.table.go_to(max(self.table.at, 0))

    def _look_at(self, number: int) -> None:
        row = self.model.row(number)
        if row is None or self._catalogue is None:
            return
        found, here = self.model.found(number), self._shows(row.stored.digest)
        self._line = found.line if found is not None else 0
        self.viewer.open(self._catalogue, row)
        if here:
            self._show_line()

    def _show_line(self) -> None:
        """Where a search found something, once the entry has been read."""
        line, self._line = self._line, 0
        if line > 0:
            self.viewer.body.lines.show_line(line - 1)

    # --- figures

    def _figures(self) -> None:
        """The figures of all entries, after the rows: they take longer."""
        self._later.start()

    def _ask_figures(self) -> None:
        if self._catalogue is not None:
            self._ask(self._catalogue.index.stats(), "figures of the cache", self._say_figures)
            self._ask(self._catalogue.index.tools(), "tools of the cache", self.bar.set_tools)

    def _say_figures(self, stats: Stats) -> None:
        if self.model.searching:
            return
        shown = self.model.rowCount()
        parts = [
            count(stats.entries, "{n} entry", "{n} entries"),
            tr("{size}, compressed to {kept}", size=size(stats.size), kept=size(stats.kept)),
        ]
        if self.model.chosen != Filter():
            parts.insert(0, tr("Showing {n} of", n=numeral(shown)))
        if stats.repeated:
            parts.append(count(stats.repeated, "{n} duplicate stored once", "{n} duplicates stored once"))
        if stats.gone:
            parts.append(tr("{n} removed to free up space", n=numeral(stats.gone)))
        parts.append(tr("verified on every read"))
        self._counts.setText(" · ".join(parts).replace(" of · ", " of "))

    def _say_chosen(self) -> None:
        chosen = len(self.table.selected)
        self.viewer.allow_compare(two=chosen == 2)
        if chosen > 1:
            self._counts.setText(
                tr("{n} selected", n=numeral(chosen)) + " · " + tr("Press Ctrl+C to copy their hashes")
            )

    def _refreshed(self) -> None:
        self._stale = False
        if not self.model.searching:
            self.model.refresh()
            if len(self.table.selected) < 2:
                self._figures()

    # --- what is done

    def copy_hashes(self) -> None:
        """The hashes of the chosen rows, to the clipboard; a million are fetched in pieces while the window lives."""
        if self._catalogue is None or not self.table.selected:
            return
        if self.model.searching:
            rows = [self.model.row(number) for number in self.table.selected.rows()]
            QGuiApplication.clipboard().setText("\n".join(row.stored.digest.hex for row in rows if row is not None))
            return
        ranges = list(self.table.selected)
        order = (self.model.chosen, self.model.sort_by, self.model.descending)
        copying = work.hashes(self._catalogue, ranges, order, self._say_copying)
        self._doing.do(copying, name="copy hashes", then=self._copied, owner=self)

    def _say_copying(self, done: int, total: int) -> None:
        self._counts.setText(tr("Copying hashes: {done} of {total}", done=numeral(done), total=numeral(total)))

    def _copied(self, text: bytes) -> None:
        held = QMimeData()
        held.setData("text/plain", text)
        QGuiApplication.clipboard().setMimeData(held)
        self._counts.setText(count(text.count(b"\n") + 1, "{n} hash copied", "{n} hashes copied"))

    def save(self) -> None:
        """Write the entry to a file of the user's choice."""
        row = self.viewer.row
        if row is None or self._catalogue is None:
            return
        save = partial(self._save_to, self._catalogue, row.stored)
        ask_new_file(self, tr("Save the entry as"), work.file_name(row), save)

    def _save_to(self, catalogue: Catalogue, stored: Stored, path: Path) -> None:
        saving = work.save(catalogue, stored, path, self._say_saving)
        self._doing.do(saving, name="save an entry", then=lambda _: self._saved(path), owner=self)

    def _say_saving(self, done: int, total: int) -> None:
        self._counts.setText(tr("Saving: {done} of {total}", done=size(done), total=size(total)))

    def _saved(self, path: Path) -> None:
        self._counts.setText(tr("Saved as {name}", name=str(path)))

    def verify(self) -> None:
        """Compare all bytes of the entry with its hash."""
        row = self.viewer.row
        if row is None or self._catalogue is None:
            return
        digest = row.stored.digest

        def good(_: None) -> None:
            self._say_checked(digest, tr("The content matches its hash."), good=True)

        def not_good(error: HelixError) -> None:
            self._say_checked(digest, said(str(error)), good=None if not isinstance(error, CacheCorrupt) else False)

        self._ask(self._catalogue.cache.verify_entry(digest), "verify an entry", good, not_good)

    def _say_checked(self, digest: Digest, words: str, *, good: bool | None) -> None:
        """Of a large entry it comes late: the one that is shown by then may be another."""
        if not self._shows(digest):
            self._counts.setText(f"{digest.short}: {words}")
            return
        if good is not None:
            self.viewer.say_checked(good=good)
        self._counts.setText(words)

    def _shows(self, digest: Digest) -> bool:
        return self.viewer.row is not None and self.viewer.row.stored.digest == digest

    def _pin(self, pinned: bool) -> None:  # noqa: FBT001 - a slot
        row = self.viewer.row
        if row is not None and self._catalogue is not None:
            pinning = self._catalogue.cache.pin(row.stored.digest, pinned=pinned)
            self._ask(pinning, "pin an entry", lambda _: self._again(row.stored.digest))

    def _again(self, digest: Digest) -> None:
        self.model.refresh()
        self._figures()
        if self._shows(digest):
            self.show_entry(digest)

    def forget(self) -> None:
        """Remove an entry for good, after saying what that means."""
        row, catalogue = self.viewer.row, self._catalogue
        if row is None or catalogue is None:
            return

        def forget() -> None:
            self._ask(catalogue.forgetting(entries=[row.stored.digest]), "forget an entry", lambda _: self.renew())

        meant = work.consequences(row, len(self.viewer.uses) or row.uses)
        text = "\n\n".join([tr("Forget this entry permanently?"), meant])
        ask_which(self, tr("Forget this entry"), text, tr("Keep"), [(tr("Forget permanently"), forget)])

    def renew(self) -> None:
        """What is gone must not be shown any longer."""
        self.viewer.clear()
        self.table.selected.clear()
        self.model.open(self._catalogue, self.bar.filter)
        self._figures()

    def compare(self) -> None:
        """The two chosen entries as a difference."""
        rows = [self.model.row(number) for number in list(self.table.selected.rows())[:2]]
        if self._catalogue is None or len(rows) != 2 or rows[0] is None or rows[1] is None:
            return
        one, two = sorted((row for row in rows if row is not None), key=lambda row: row.time)
        reading = work.two_texts(self._catalogue, one.stored, two.stored)
        titles = (work.named(one), work.named(two))

        def show(texts: tuple[str, str]) -> None:
            CompareDialog(self._theme, titles, texts, self).open()

        self._ask(reading, "compare entries", show)

    def _menu(self, place: QPoint) -> None:
        many = len(self.table.selected)
        if not many:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(count(many, "Copy the hash", "Copy {n} hashes"), self.copy_hashes)
        if many == 2:
            menu.addAction(tr("Compare selected"), self.compare)
        if many == 1:
            menu.addAction(tr("Recall into chat"), self.viewer.recall)
            menu.addAction(tr("Show in chat"), self.viewer.show_in_chat)
            menu.addAction(tr("Save as…"), self.save)
            menu.addAction(tr("Verify"), self.verify)
            menu.addSeparator()
            menu.addAction(tr("Forget permanently…"), self.forget)
        menu.popup(place)
