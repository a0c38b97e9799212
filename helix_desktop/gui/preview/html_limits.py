"""Whether a page of HTML, or a text with the mark-up of Markdown, can be drawn at once.

Qt's text browser draws on the window's thread. A page of 75 KB with 5,000 tables inside each other ends
the process, 20 of them hold the window for seconds, and so does a word of 300,000 letters. A file can
come from anywhere, so what is not drawn at once is not drawn.
"""

import re
from collections import Counter
from html import unescape

from PySide6.QtGui import QTextFrame

from helix_desktop.gui.preview.offline_document import OfflineDocument

LARGEST_PAGE = 1 << 20  # Characters.
MOST_TAGS = 20_000
MOST_OPEN_TAGS = 1_000
# Cells of tables, with those that one cell covers: 300 rows of a cell as wide as 60,000 columns.
MOST_CELLS = 150_000
# Of tables, each counts twice as much as the one around it, as it takes twice as long.
MOST_NESTED_TABLES = 60_000
MOST_LIST_ITEMS = 5_000  # The time grows with the square of the length of a list.
MOST_FONTS = 500  # Different ones, with their sizes: Qt looks for each of them.
# Pictures and tables in a page that sets some beside the text: with each, Qt looks at those before it.
MOST_BESIDE_TEXT = 300
_BESIDE_TEXT = frozenset({"img", "table"})
MOST_RULES_FOR_TAGS = 2_000_000  # Each rule of a style sheet is compared with each tag.
MOST_LINES_OF_PAGE = 60_000  # Of preformatted text; it has the most line ends.
MOST_TABS = 300_000
# Signs that are slow to lay out: combining marks, scripts from Hebrew to Burmese, Khmer and emoji.
MOST_SLOW_SIGNS = 250_000
DEEPEST_TABLE = 8  # The time doubles with each table inside another.
LONGEST_WORD = 10_000
# Of a text with the mark-up of Markdown: 10,000 lines take about a second, and so does a paragraph
# of a quarter of a million letters.
LARGEST_TEXT = 1 << 20
MOST_LINES = 10_000
LONGEST_LINE = 250_000
# Their text is no mark-up. It could otherwise close tags here that are open for Qt.
_NO_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1|\Z)", re.IGNORECASE | re.DOTALL
)
_STYLE_SHEET = re.compile(r"<style\b.*?(?:</style|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"""<(/?)([a-z][a-z0-9]*)((?:"[^"]*"|'[^']*'|[^>"'])*)""", re.IGNORECASE)
_SLOW_SIGN = re.compile("[\u0300-\u036f\u0590-\u109f\u1780-\u17ff\U0001f000-\U0001faff]")
_ROWS = re.compile(r"""rowspan\s*=\s*["']?\s*([^"'>\s]*)""", re.IGNORECASE)
_COLUMNS = re.compile(r"""colspan\s*=\s*["']?\s*([^"'>\s]*)""", re.IGNORECASE)
_FONT = re.compile(r"(?:font[\w-]*\s*:|face\s*=)([^;>}]*)", re.IGNORECASE)
_FLOAT = re.compile(r"float\s*:|align\s*=\s*[\"']?\s*(?:left|right)", re.IGNORECASE)
_WITHOUT_END = frozenset(
    {"br", "hr", "img", "input", "link", "meta", "p", "li", "dt", "dd", "tr", "td", "th"}
)


def can_be_drawn_at_once(html: str) -> bool:
    if len(html) > LARGEST_PAGE or not _has_few_slow_signs(html) or not _has_few_tags(html):
        return False
    document = OfflineDocument()
    document.setHtml(html)
    if _has_long_word(document.toPlainText()):
        return False
    return _depth_is_within(document.rootFrame(), DEEPEST_TABLE)


def can_text_be_drawn_at_once(text: str) -> bool:
    if len(text) > LARGEST_TEXT or text.count("\n") > MOST_LINES or _has_long_word(text):
        return False
    if not _has_few_slow_signs(text):
        return False
    return all(len(line) <= LONGEST_LINE for line in text.split("\n"))


def _has_few_slow_signs(html: str) -> bool:
    if html.count("\n") > MOST_LINES_OF_PAGE or html.count("\t") > MOST_TABS:
        return False
    return len(_SLOW_SIGN.findall(html)) <= MOST_SLOW_SIGNS


def _has_long_word(text: str) -> bool:
    return any(len(word) > LONGEST_WORD for word in text.split())


def _has_few_tags(html: str) -> bool:
    """Whether Qt reads the page quickly: few tags, few of them inside each other, few rules of style."""
    counts = _TagCounts()
    for tag in _TAG.finditer(_NO_MARKUP.sub("", html)):
        name = tag[2].lower()
        if tag[1]:
            counts.close_tag(name)
        else:
            counts.open_tag(name, tag[3])
        if not counts.are_few():
            return False
    # Qt reads entities in attributes and in their names, but no escapes in style sheets.
    with_signs = unescape(html)
    if counts.grid.count_cells(with_signs) > MOST_CELLS:
        return False
    if counts.beside_text > MOST_BESIDE_TEXT and _FLOAT.search(with_signs) is not None:
        return False
    if len(set(_FONT.findall(with_signs))) > MOST_FONTS:
        return False
    rules = html.count("{")
    for style_sheet in _STYLE_SHEET.findall(html):
        rules += style_sheet.count(",")  # One rule may stand for thousands of selectors.
    return rules * counts.tags <= MOST_RULES_FOR_TAGS


class _TagCounts:
    """How many tags of each costly kind a page has, up to some place in it."""

    def __init__(self) -> None:
        self.tags = 0
        self.beside_text = 0
        self.grid = _TableGrid()
        self._items = 0
        self._nested_tables = 0
        self._open_tags: Counter[str] = Counter()

    def close_tag(self, name: str) -> None:
        self._open_tags[name] = max(0, self._open_tags[name] - 1)

    def open_tag(self, name: str, attributes: str) -> None:
        self.tags += 1
        self._items += name == "li"
        self.beside_text += name in _BESIDE_TEXT
        if name == "table":
            self._nested_tables += 1 << min(self._open_tags["table"], 16)
        self.grid.add_tag(name, attributes)
        if name not in _WITHOUT_END:
            self._open_tags[name] += 1

    def are_few(self) -> bool:
        if self.tags > MOST_TAGS or self._open_tags.total() > MOST_OPEN_TAGS:
            return False
        return self._items <= MOST_LIST_ITEMS and self._nested_tables <= MOST_NESTED_TABLES


class _TableGrid:
    """Counts the cells of all tables as if they were one, which has each row and the widest one's
    columns. A page with one cell in each of many rows has as many cells as rows.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._columns_in_row = 0
        self._most_columns = 0
        self._most_cells_in_row = 0
        self._cells_in_row = 0
        self._span_count = 0

    def count_cells(self, html: str) -> int:
        """Where not all wide cells were found in tags, each cell counts as wide as the widest. A cell
        that covers several rows takes as long as so many cells.
        """
        covered_rows = sum(map(_number_of_span, _ROWS.findall(html)))
        if covered_rows > MOST_CELLS:
            return covered_rows
        all_spans = _COLUMNS.findall(html)
        if len(all_spans) == self._span_count:
            return self._rows * self._most_columns
        widest = max(map(_number_of_span, all_spans))
        return self._rows * (self._most_cells_in_row + 1) * widest

    def add_tag(self, name: str, attributes: str) -> None:
        if name == "tr":
            self._rows += 1
            self._columns_in_row = 0
            self._cells_in_row = 0
        if name not in ("td", "th"):
            return
        spans = _COLUMNS.findall(attributes)
        self._span_count += len(spans)
        self._columns_in_row += max(map(_number_of_span, spans), default=1)
        self._most_columns = max(self._most_columns, self._columns_in_row)
        self._cells_in_row += 1
        self._most_cells_in_row = max(self._most_cells_in_row, self._cells_in_row)


def _number_of_span(written: str) -> int:
    """Returns how many columns or rows an attribute names. What is spelled oddly may be any number for Qt."""
    number = written.removeprefix("+")
    if number.isascii() and number.isdigit():
        return int(number[:9])
    if number:
        return MOST_CELLS + 1
    return 1


def _depth_is_within(frame: QTextFrame, levels: int) -> bool:
    """Whether no more tables than that stand inside each other. Stops at the first that is deeper."""
    for inner_frame in frame.childFrames():
        if levels == 0 or not _depth_is_within(inner_frame, levels - 1):
            return False
    return True
