"""The palette searches everything at once: actions, conversations, messages and entries.

Actions and conversations are in memory and shown at once; the results of the
workspace's search follow.
"""

import re
from collections.abc import Callable, Sequence

# QtWidgets is for QStyle: importing it itself would create its 500 members at the start.
from PySide6 import QtWidgets
from PySide6.QtCore import QRect, Qt, QTimer, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QStyleOptionViewItem, QWidget

from helix_desktop.engine.search_query import stem_of_word
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.found_words import draw_text_with_found_words
from helix_desktop.gui.common.list_row_model import Index, ListRowModel, RowPainter
from helix_desktop.gui.common.widgets import build_plain_label
from helix_desktop.gui.frame.notices import announce_to_screen_reader
from helix_desktop.gui.frame.search_popup import SearchPopup
from helix_desktop.gui.question_matching import (
    AnswerText,
    QuestionMatcher,
    begins_as_question,
    has_unspaced_script,
    is_worded_as_question,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.translation import tr

# The search in the workspaces starts after this many milliseconds without typing.
SEARCH_DELAY_MS = 120
HEADING = "heading"  # The kind of an item that says what follows it and cannot be chosen.
ACTION = "action"  # The kind of an item that does something, and leads to nothing that was said.
# What is typed after this sign finds actions alone: in many editors, it means "commands".
SIGN_OF_ACTIONS = ">"
WIDTH = 640
ROW = 36
SHOWN = 10  # So many rows are shown without scrolling.
MOST_ANSWERS = 4  # To a question; what answers it less well would hide other findings.
LEAST_LETTERS_WITHIN_WORD = 3  # Of several words, a shorter one must begin a word of the item.
MAX_MATCHES = 40  # What a search finds in messages and outputs stands below these.


@dataclass(frozen=True, slots=True)
class PaletteItem:
    """A palette item. `kind` names the icon, `key` is the shortcut, `act` runs when it is chosen.

    `needles`: words to mark in the text. `is_similar`: a search found it, but not with all words.
    `search_words`: other words that find it. `is_only_found_by_words`: it is not listed before
    the user has typed something, so that the list stays short. `answers_questions`: it is found by
    questions in other words, too. `is_named`: the query is its name, or the beginning of it.
    `why_not`: why an action cannot be done now. Choosing it says so.
    `workspace`: the name of another workspace, in which it was found.
    `has_consequences`: it publishes, starts or deletes something, so Return chooses it only if it
    has every word that was typed, and not for a likeness of meaning.
    """

    text: str
    act: Callable[[], object]
    kind: str = ACTION
    note: str = ""
    key: str = ""
    enabled: bool = True
    needles: tuple[str, ...] = ()
    is_similar: bool = False
    search_words: str = ""
    is_only_found_by_words: bool = False
    answers_questions: bool = False
    is_named: bool = False
    why_not: str = ""
    has_consequences: bool = False
    workspace: str = ""

    @property
    def can_be_highlighted(self) -> bool:
        return self.enabled or bool(self.why_not)


def match_palette_items(items: Sequence[PaletteItem], query: str) -> list[PaletteItem]:
    """Returns items with every word or its stem: first what is no help page, then what has the
    words in its title, then what has words that begin so, then what begins with the text.
    """
    searched_words = query.casefold().split()
    if not searched_words:
        return [item for item in items if not item.is_only_found_by_words]
    stems = [stem_of_word(word) for word in searched_words]
    searched_text = " ".join(searched_words)
    matching: list[PaletteItem] = []
    for item in items:
        if _has_stems(_searched_text(item), stems):
            matching.append(item)

    def rank_item(item: PaletteItem) -> tuple[bool, ...]:
        text = item.text.casefold()
        note = item.note.casefold()
        is_help_page = item.kind == "entry"
        are_words_visible = all(stem in f"{text} {note}" for stem in stems)
        return (
            not is_help_page,
            are_words_visible,
            _has_words_that_begin_with(f"{text} {note}", stems),
            text.startswith(searched_text),
            text.startswith(searched_words[0]),
            note == searched_text,
            bool(
                item.key
            ),  # Of two that fit alike, the one that is used so often that it has a key.
        )

    matching.sort(key=rank_item, reverse=True)
    shown = matching[:MAX_MATCHES]
    hidden_count = len(matching) - len(shown)
    if hidden_count:
        words_for_rest = tr("and {n} more", n=hidden_count)
        shown.append(PaletteItem(words_for_rest, act=str, kind=HEADING, enabled=False))
    return shown


def _searched_text(item: PaletteItem) -> str:
    return f"{item.text} {item.note} {item.search_words}".casefold()


def _has_stems(text: str, stems: Sequence[str]) -> bool:
    """Tells whether a text has each stem. One or two loose letters are in nearly every title, so
    of several stems, the short ones must begin a word.
    """
    short_stems: list[str] = []
    for stem in stems:
        if stem not in text:
            return False
        if len(stem) < LEAST_LETTERS_WITHIN_WORD:
            short_stems.append(stem)
    return len(stems) == 1 or _has_words_that_begin_with(text, short_stems)


def _has_words_that_begin_with(text: str, stems: Sequence[str]) -> bool:
    """Tells whether each stem begins a word: "port" is in "Import", but not meant by it. A script
    without blanks, such as Chinese, does not say where words begin.
    """
    for stem in stems:
        beginning = r"\b"
        if has_unspaced_script(stem):
            beginning = ""
        if not re.search(f"{beginning}{re.escape(stem)}", text):
            return False
    return True


def put_answers_first(
    matching: Sequence[PaletteItem], answers: Sequence[PaletteItem], query: str
) -> list[PaletteItem]:
    """Adds what answers the query as a question. What has all words in its title stands before
    it. If the query is worded as a question, the title must have them as they were typed.
    """
    words = query.casefold().split()
    named_parts = [stem_of_word(word) for word in words]
    if is_worded_as_question(query):
        named_parts = [" ".join(words)]
    named: list[PaletteItem] = []
    only_mentioned: list[PaletteItem] = []
    for item in matching:
        title = item.text.casefold()
        has_all_words = all(part in title for part in named_parts)
        if has_all_words and item.kind != "entry":
            named.append(item)
        elif item not in answers:
            only_mentioned.append(item)
    answers_not_named = [item for item in answers if item not in named]
    return named + answers_not_named + only_mentioned


def is_named_by_query(item: PaletteItem, query: str) -> bool:
    """Tells whether the item shows every word of the query, and does not only resemble it."""
    stems = [stem_of_word(word) for word in query.casefold().split()]
    return _has_words_that_begin_with(f"{item.text} {item.note}".casefold(), stems)


def has_typed_words(item: PaletteItem, query: str) -> bool:
    """Tells whether each word of the query begins a word of the item, or one that finds it."""
    stems = [stem_of_word(word) for word in query.casefold().split()]
    return _has_words_that_begin_with(_searched_text(item), stems)


@dataclass(frozen=True, slots=True)
class RowsByFit:
    """The palette's own rows by how well they fit the query.

    `meant`: they stand before all that a search finds. `covering`: they have all words, in other
    forms or in what they are about. `partial`: they lack some of the words.
    """

    meant: Sequence[PaletteItem]
    covering: Sequence[PaletteItem]
    partial: Sequence[PaletteItem]


def place_hits_among_rows(
    rows: RowsByFit, results: Sequence[PaletteItem], query: str
) -> list[PaletteItem]:
    """Places what a search found in the user's own work: what has all words before rows that only
    resemble them, and what has some of them before rows that lack some as well. Only who asks a
    question is answered before that.
    """
    end_of_exact = len(results)
    for number, result in enumerate(results):
        if result.is_similar or result.kind == "folder":
            end_of_exact = number
            break
    # The heading of what follows stays with it.
    while end_of_exact and results[end_of_exact - 1].kind == HEADING:
        end_of_exact -= 1
    exact_hits = results[:end_of_exact]
    other_hits = results[end_of_exact:]
    if begins_as_question(query):
        return [*rows.meant, *exact_hits, *rows.covering, *rows.partial, *other_hits]
    return [*rows.meant, *exact_hits, *rows.covering, *other_hits, *rows.partial]


def find_row_for_return(rows: Sequence[PaletteItem]) -> int:
    """Returns the row that Return chooses if nobody moves the highlight, or -1 for none.

    An action that cannot be carried out now says why when it is chosen. Nothing else is chosen in
    its place: who types "export" and presses Return means the first one, and not the action or the
    page of help that happens to stand below it.
    """
    for number, item in enumerate(rows):
        if item.kind != HEADING:
            if item.can_be_highlighted:
                return number
            return -1
    return -1


class PaletteAnswers:
    """Finds those of the palette's items that answer a question: actions and help."""

    def __init__(self, items: Sequence[PaletteItem]) -> None:
        self._items = [item for item in items if item.answers_questions]
        texts: list[AnswerText] = []
        for item in self._items:
            texts.append(AnswerText(item.text, item.search_words))
        self._matcher = QuestionMatcher(texts)

    def list_answers_to_query(self, query: str) -> list[PaletteItem]:
        positions = self._matcher.positions_of_answers(query, MOST_ANSWERS)
        return [self._items[position] for position in positions]

    def list_answers_with_all_words(self, query: str) -> list[PaletteItem]:
        """Returns those of the answers that have every word, or one of the same meaning."""
        answers: list[PaletteItem] = []
        for position in self._matcher.positions_of_answers(query, MOST_ANSWERS):
            if self._matcher.says_all(position, query):
                answers.append(self._items[position])
        return answers


def _sort_rows_by_fit(
    items: Sequence[PaletteItem], answers: PaletteAnswers, query: str
) -> RowsByFit:
    matching = match_palette_items(items, query)
    answers_with_all_words = answers.list_answers_with_all_words(query)
    # Few messages say the same question, and those that do rarely answer it.
    is_question = is_worded_as_question(query)
    meant: list[PaletteItem] = []
    covering: list[PaletteItem] = []
    partial: list[PaletteItem] = []
    for row in put_answers_first(matching, answers.list_answers_to_query(query), query):
        is_answer = row in answers_with_all_words
        if row.has_consequences and not has_typed_words(row, query):
            partial.append(row)
        elif is_named_by_query(row, query) or (is_question and is_answer):
            meant.append(row)
        elif is_answer or row in matching:
            covering.append(row)
        else:
            partial.append(row)
    return RowsByFit(meant, covering, partial)


def _find_row_with_all_words(rows: Sequence[PaletteItem], rows_by_fit: RowsByFit) -> int:
    """Returns the row that Return chooses. An action that lacks some of the words is listed, but
    must be chosen by hand: ">show the request" and Return once opened a pull request.
    """
    row = find_row_for_return(rows)
    if row >= 0 and rows[row].kind == ACTION and rows[row] in rows_by_fit.partial:
        return -1
    return row


class PaletteRows(ListRowModel[PaletteItem]):
    def flags(self, index: Index) -> Qt.ItemFlag:
        if index.isValid() and self.items[index.row()].can_be_highlighted:
            return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        return Qt.ItemFlag.NoItemFlags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        item = self.items[index.row()]
        if role == Qt.ItemDataRole.UserRole:
            return item
        if role == Qt.ItemDataRole.DisplayRole:
            return item.text
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return ", ".join(filter(None, [item.text, item.note, item.key, item.why_not]))
        return None


class PaletteRowPainter(RowPainter):
    """Paints an icon, the text, its place, and the shortcut at the end."""

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draws the icon at the left, the shortcut or note at the right, and between them as much
        of the text as fits, with the words that were searched for marked.
        """
        theme = self._theme
        px = theme.zoomed_pixels
        item: PaletteItem = index.data(Qt.ItemDataRole.UserRole)
        surface = QRect(option.rect).adjusted(px(8), 0, -px(8), 0)
        if option.state & QtWidgets.QStyle.StateFlag.State_Selected:
            theme.fill_surface(painter, surface, "selected", 6)
        text_rect = surface.adjusted(px(10), 0, -px(10), 0)
        if item.kind != HEADING:
            icon_top = text_rect.center().y() - px(8)
            icon_rect = QRect(text_rect.left(), icon_top, px(16), px(16))
            icon = build_icon(item.kind, theme.colour_of_token("muted"))
            icon.paint(painter, icon_rect)
            text_rect.setLeft(text_rect.left() + px(26))
        text_end = self._draw_shortcut_or_note_and_return_text_end(painter, text_rect, item)
        text_rect.setRight(text_end)
        painter.setFont(theme.build_font())
        if item.enabled:
            painter.setPen(theme.colour_of_token("text"))
        else:
            painter.setPen(theme.colour_of_token("faint"))
        found_colour = theme.colour_of_token("found")
        draw_text_with_found_words(painter, text_rect, item.text, item.needles, found_colour)

    def _draw_shortcut_or_note_and_return_text_end(
        self, painter: QPainter, row_rect: QRect, item: PaletteItem
    ) -> int:
        """Draws the shortcut, or where the item was found. Returns the right edge for the text."""
        painter.setFont(self._theme.build_font(11))
        painter.setPen(self._theme.colour_of_token("faint"))
        metrics = QFontMetrics(painter.font())
        whole_text = item.key or item.note
        most_width = row_rect.width() // 2
        text = metrics.elidedText(whole_text, Qt.TextElideMode.ElideMiddle, most_width)
        at_right = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        painter.drawText(row_rect, at_right, text)
        gap = self._theme.zoomed_pixels(12)
        return row_rect.right() - metrics.horizontalAdvance(text) - gap


class CommandPalette(SearchPopup):
    """Searches everything: `list_ready_items` at once; `search_wanted` asks for the rest."""

    search_wanted = Signal(str)
    closed = Signal()

    def __init__(
        self, theme: Theme, list_ready_items: Callable[[], Sequence[PaletteItem]], parent: QWidget
    ) -> None:
        super().__init__(theme, parent)
        self._list_ready_items = list_ready_items
        self._ready_items: Sequence[PaletteItem] = ()  # Those that need no search.
        self._question_answers: PaletteAnswers | None = None  # Built for the first question.
        self._results: Sequence[PaletteItem] = ()
        self._searched_query = ""
        self._has_search_answered = False
        self._is_open_to_all = True
        self._model = PaletteRows(self)
        self.set_rows_model(self._model, PaletteRowPainter(theme, self.list, ROW))
        self.list.setAccessibleName(tr("Found"))
        self._nothing = build_plain_label(tr("Nothing found"), "muted", self.list, wraps=False)
        self._nothing.hide()
        self._reason = build_plain_label("", "small", self.box)
        self._reason.setContentsMargins(14, 4, 14, 4)
        self._reason.hide()
        self.inside.addWidget(self._reason)
        self.list.selectionModel().currentChanged.connect(self._show_why_not)
        self._timer = QTimer(self, interval=SEARCH_DELAY_MS, singleShot=True)
        self._timer.timeout.connect(self._request_workspace_search)
        self.line.textChanged.connect(self._refill_palette_and_schedule_search)

    def open_palette(
        self, query: str = "", known: Sequence[PaletteItem] | None = None, hint: str = ""
    ) -> None:
        """Opens the palette for everything, or for the items in `known`, as `hint` says."""
        self._is_open_to_all = known is None
        if known is None:
            self._ready_items = self._list_ready_items()
        else:
            self._ready_items = known
        everything = tr("Search messages, stored outputs, conversations and actions")
        self._question_answers = None
        self.line.setPlaceholderText(hint or everything)
        self.line.setAccessibleName(hint or tr("Search everything"))
        self._results = ()
        self._searched_query = ""
        self._has_search_answered = False
        self._nothing.hide()
        self.open_popup(query)
        self._refill_palette()
        if query:
            self._timer.start()

    def list_ready_items_again(self) -> None:
        """Shows what can be done now: a workspace may have been opened since the palette was."""
        if not self.isVisible() or not self._is_open_to_all:
            return
        highlighted_item = self._highlighted_item()
        self._ready_items = self._list_ready_items()
        self._question_answers = None
        self._refill_palette()
        if highlighted_item is None:
            return
        for row, item in enumerate(self._model.items):
            is_same = (item.kind, item.text) == (highlighted_item.kind, highlighted_item.text)
            if is_same and item.can_be_highlighted:
                self.highlight_row(row)
                return

    def close_popup(self) -> None:
        super().close_popup()
        self.closed.emit()

    def is_searching_for(self, query: str) -> bool:
        return self.isVisible() and query == self.line.text().strip()

    def show_search_results(
        self,
        query: str,
        results: Sequence[PaletteItem],
        *,
        more: bool = False,
        is_first_certain: bool = True,
    ) -> None:
        """Shows the results until now. With `more`, others will follow, also before these, unless
        `is_first_certain`. Results of an older query are ignored.
        """
        if query != self.line.text().strip():
            return
        self._results = results
        highlighted_item = self._highlighted_item()
        # Workspaces answer one after the other. The first may have found nothing.
        self._has_search_answered = (bool(results) and is_first_certain) or not more
        self._refill_palette()
        if more:
            self._nothing.setText(tr("Searching for “{words}”…", words=query))
        else:
            self._nothing.setText(tr("Nothing found"))
        self._nothing.adjustSize()
        self._nothing.setVisible(bool(query) and not self._model.rowCount())
        self._nothing.move(self._theme.zoomed_pixels(14), self._theme.zoomed_pixels(8))
        # Who is about to press Return means the row that they see highlighted.
        if highlighted_item in self._model.items:
            self.highlight_row(self._model.items.index(highlighted_item))

    def _highlighted_item(self) -> PaletteItem | None:
        index = self.list.currentIndex()
        if not index.isValid():
            return None
        return self._model.items[index.row()]

    def accept_current_row(self) -> None:
        item = self._highlighted_item()
        if item is None or not item.enabled:
            # The reason stands below the list. Whoever cannot see it hears it.
            announce_to_screen_reader(self.line, self._reason.text())
            return
        self.close_and_return_focus()
        item.act()

    def selectable_rows(self) -> list[int]:
        row_numbers: list[int] = []
        for row_number, item in enumerate(self._model.items):
            if item.can_be_highlighted:
                row_numbers.append(row_number)
        return row_numbers

    def _show_why_not(self) -> None:
        """Says below the list why the highlighted action cannot be done now."""
        item = self._highlighted_item()
        why_not = ""
        if item is not None:
            why_not = item.why_not
        self._reason.setText(why_not)
        self._reason.setVisible(bool(why_not))
        self.place_popup()

    def _refill_palette_and_schedule_search(self, query: str) -> None:
        self._has_search_answered = False
        if not query.strip():
            self._results = ()
            self._searched_query = ""
        self._nothing.hide()
        self._refill_palette()
        self._timer.start()

    def _request_workspace_search(self) -> None:
        query = self.line.text().strip()
        if not query or query == self._searched_query:
            return
        self._searched_query = query
        if self._is_open_to_all and not self._asks_for_actions(query):
            self.search_wanted.emit(query)
        else:
            self.show_search_results(query, ())

    def _refill_palette(self) -> None:
        query = self.line.text()
        if self._asks_for_actions(query):
            words = query.strip().removeprefix(SIGN_OF_ACTIONS)
            actions = [item for item in self._ready_items if item.kind == ACTION]
            if words.strip():
                rows_by_fit = _sort_rows_by_fit(actions, PaletteAnswers(actions), words)
                rows = [*rows_by_fit.meant, *rows_by_fit.covering, *rows_by_fit.partial]
                row_for_return = _find_row_with_all_words(rows, rows_by_fit)
            else:
                rows = match_palette_items(actions, words)
                row_for_return = find_row_for_return(rows)
        elif query.strip():
            answers = self._get_question_answers()
            rows_by_fit = _sort_rows_by_fit(self._ready_items, answers, query)
            rows = place_hits_among_rows(rows_by_fit, self._results, query)
            row_for_return = self._row_to_highlight(rows, rows_by_fit)
        else:
            rows = match_palette_items(self._ready_items, query)
            row_for_return = find_row_for_return(rows)
        self._model.replace_rows(rows)
        self.highlight_row(row_for_return)
        self.place_popup()

    def _row_to_highlight(self, rows: Sequence[PaletteItem], rows_by_fit: RowsByFit) -> int:
        """Returns the row that Return chooses. Until the search has answered, none that only
        resembles the words: hits will stand before it.
        """
        row = _find_row_with_all_words(rows, rows_by_fit)
        if row < 0 or self._has_search_answered or not self._is_open_to_all:
            return row
        if rows[row] in rows_by_fit.meant:
            return row
        return -1

    def _asks_for_actions(self, query: str) -> bool:
        return self._is_open_to_all and query.strip().startswith(SIGN_OF_ACTIONS)

    def _get_question_answers(self) -> PaletteAnswers:
        if self._question_answers is None:
            self._question_answers = PaletteAnswers(self._ready_items)
        return self._question_answers

    def place_popup(self) -> None:
        parent = self.parentWidget()
        if parent is None:
            return
        px = self._theme.zoomed_pixels
        self.setGeometry(parent.rect())
        width = min(px(WIDTH), parent.width() - 32)
        left = (parent.width() - width) // 2
        shown_rows = min(max(self._model.rowCount(), 1), SHOWN)
        wanted_height = px(ROW) * shown_rows + px(68)
        if not self._reason.isHidden():
            wanted_height += self._reason.heightForWidth(width) + self.inside.spacing()
        most_height = parent.height() - px(96)
        height = min(wanted_height, most_height)
        self.box.setGeometry(left, px(80), width, height)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setOpacity(0.6)
        painter.fillRect(self.rect(), self._theme.colour_of_token("rail"))
