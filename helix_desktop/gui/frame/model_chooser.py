"""The popup for choosing a model: a search field over favourites, recent models and
what the providers offer.
"""

from collections.abc import Callable, Sequence

# QtWidgets is for QStyle: importing it itself would create its 500 members at the start.
from PySide6 import QtWidgets
from PySide6.QtCore import QEvent, QLocale, QObject, QRect, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QPushButton, QStyleOptionViewItem, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.list_row_model import Index, ListRowModel, RowPainter
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.frame.search_popup import SearchPopup
from helix_desktop.gui.model_setup_port import ModelChoice, RefreshedModels
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import (
    format_count,
    format_number,
    format_percent,
    tr,
    translate_name,
)

WIDTH = 560  # The popup's width in pixels.
ROW = 34  # A row's height in pixels.
SHOWN = 12  # The number of rows that are shown without scrolling.
RECENT = 5  # The number of recently chosen models that are remembered.
# The widths of these columns in pixels.
STAR = 24
WINDOW = 110
PRICE = 106
GAP = 12  # Between two columns.
FULL_SHARE = 0.25  # From this share of a model's window on, its row says how full it would be.


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model, or the heading of a group if `model` is None."""

    heading: str = ""
    model: ModelChoice | None = None
    favourite: bool = False
    notes: tuple[str, ...] = ()  # What the shown conversation means for the model.

    @property
    def chips(self) -> list[str]:
        if self.model is None:
            return []
        return [*self.notes, *model_abilities(self.model)]


@dataclass(frozen=True, slots=True)
class ShownConversation:
    """What of the shown conversation matters for choosing its model. `used_tokens`: of the next
    request, 0 in a new conversation.
    """

    model: str = ""
    used_tokens: int = 0

    def notes_of_model(self, model: ModelChoice) -> tuple[str, ...]:
        notes: list[str] = []
        if model.name == self.model:
            notes.append(tr("in use"))
        if model.window and self.used_tokens > model.window:
            notes.append(tr("too small"))
        elif model.window:
            share = self.used_tokens / model.window
            if share >= FULL_SHARE:
                # Each model counts tokens in its own way, so this is not exact.
                notes.append(tr("≈ {share} full here", share=format_percent(share)))
        return tuple(notes)


NEW_CONVERSATION = ShownConversation()


def group_models(
    models: Sequence[ModelChoice],
    favourites: Sequence[str],
    recent: Sequence[str],
    query: str = "",
    shown: ShownConversation = NEW_CONVERSATION,
) -> list[ModelRow]:
    """Returns the models that match a query: favourites, recent models, then each provider's
    others. Each model has one row, so that the rows can be counted.
    """
    searched_words = query.casefold().split()
    matching = [model for model in models if _model_matches_words(model, searched_words)]
    recent_only = [name for name in recent if name not in favourites]
    groups = {
        tr("Favorites"): _pick_models(matching, favourites),
        tr("Recent"): _pick_models(matching, recent_only),
    }
    for model in matching:
        if model.name in favourites or model.name in recent:
            continue
        provider = model.provider or model.name.partition("/")[0]
        groups.setdefault(provider, []).append(model)

    rows: list[ModelRow] = []
    for heading, members in groups.items():
        rows.extend(_build_rows_of_group(heading, members, favourites, shown))
    return rows


def _build_rows_of_group(
    heading: str,
    members: Sequence[ModelChoice],
    favourites: Sequence[str],
    shown: ShownConversation,
) -> list[ModelRow]:
    if not members:
        return []
    rows = [ModelRow(heading)]
    for model in members:
        notes = shown.notes_of_model(model)
        rows.append(ModelRow(model=model, favourite=model.name in favourites, notes=notes))
    return rows


def _pick_models(models: Sequence[ModelChoice], names: Sequence[str]) -> list[ModelChoice]:
    """Returns the models with these names, in the order of the names."""
    model_by_name = {model.name: model for model in models}
    picked: list[ModelChoice] = []
    for name in names:
        if name in model_by_name:
            picked.append(model_by_name[name])
    return picked


def _model_matches_words(model: ModelChoice, searched_words: Sequence[str]) -> bool:
    abilities = " ".join(model_abilities(model))
    searched_text = f"{model.name} {model.provider} {abilities}".casefold()
    return all(word in searched_text for word in searched_words)


def model_abilities(model: ModelChoice) -> list[str]:
    """Lists what a model can or cannot do, for chips. Returns nothing for an unknown model."""
    abilities = []
    if model.images and model.are_images_known:
        abilities.append(tr("vision"))
    if model.thinking:
        abilities.append(tr("thinking"))
    if not model.tools:
        abilities.append(tr("no tools"))
    return abilities


def format_model_window(model: ModelChoice) -> str:
    if not model.window:
        return ""
    size = format_token_count(model.window)
    source = translate_name("source of a window size", model.sure)
    if not source:
        return size
    return f"{size} · {source}"


def format_model_price(model: ModelChoice) -> str:
    if model.price_input or model.price_output:
        return _format_prices_alike([model.price_input, model.price_output])
    if model.name.partition("/")[0] == "demo":
        return tr("free")
    if model.local:
        # A server here may pass requests on to a provider that is paid.
        return tr("assumed free")
    return ""


def _format_prices_alike(prices: Sequence[float]) -> str:
    """Shows cents in all of the prices or in none, so that they are easy to compare."""
    are_whole_cents = all(round(price, 2) == price for price in prices)
    are_whole_dollars = all(price % 1 == 0 for price in prices)
    if are_whole_cents and not are_whole_dollars:
        style = "f"  # With exactly so many decimals.
        digits = 2
    else:
        style = "g"  # As short as possible, with at most so many digits.
        digits = 6
    formatted: list[str] = []
    for price in prices:
        number = QLocale().toString(float(price), style, digits)
        formatted.append(tr("${n}", n=number))
    return " / ".join(formatted)


def width_of_price_column(metrics: QFontMetrics, usual_width: int, gap: int, price: str) -> int:
    """Returns the room for a price and the gap before it. The words that stand for a price are of
    any length, but the windows before them stand below each other.
    """
    width = usual_width
    for words in (tr("assumed free"), tr("free"), price):
        width = max(width, metrics.horizontalAdvance(words) + gap)
    return width


class ModelRows(ListRowModel[ModelRow]):
    def flags(self, index: Index) -> Qt.ItemFlag:
        if index.isValid() and self.items[index.row()].model is not None:
            return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        return Qt.ItemFlag.NoItemFlags

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        row = self.items[index.row()]
        if role == Qt.ItemDataRole.UserRole:
            return row
        if role == Qt.ItemDataRole.DisplayRole:
            if row.model is None:
                return row.heading
            return row.model.name
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return _describe_row_for_screen_reader(row)
        if role == Qt.ItemDataRole.ToolTipRole and row.model is not None:
            return safe_tooltip(translate_sentences(row.model.note))
        return None


def _describe_row_for_screen_reader(row: ModelRow) -> str:
    if row.model is None:
        return row.heading
    parts: list[str] = []
    if row.favourite:
        parts.append(tr("favorite"))
    parts.append(row.model.name)
    parts.extend(row.chips)
    parts.append(format_model_window(row.model))
    parts.append(format_model_price(row.model))
    return ", ".join(filter(None, parts))


class ModelRowPainter(RowPainter):
    """Paints a star, the name, the abilities, the context window and the price in columns."""

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row: ModelRow = index.data(Qt.ItemDataRole.UserRole)
        rect = QRect(option.rect)
        px = self._theme.zoomed_pixels
        side = px(14)
        if row.model is None:
            heading_rect = rect.adjusted(side, px(8), -side, 0)
            is_first = index.row() == 0
            self._draw_provider_heading(painter, heading_rect, row.heading, first=is_first)
            return
        if option.state & QtWidgets.QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, self._theme.colour_of_token("accent_soft"))
        self._draw_model_row(painter, rect.adjusted(side, 0, -side, 0), row, row.model)

    def _draw_provider_heading(
        self, painter: QPainter, heading_rect: QRect, heading: str, *, first: bool
    ) -> None:
        """Draws a heading. The first one also says what the columns are."""
        font = self._theme.build_font(11)
        self._theme.draw_words(painter, heading_rect, heading, font, "muted")
        if first:
            column_titles = tr("context window · input / output price per million tokens")
            at_right = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
            metrics = QFontMetrics(font)
            heading_width = metrics.horizontalAdvance(heading) + self._theme.zoomed_pixels(GAP)
            titles_rect = heading_rect.adjusted(heading_width, 0, 0, 0)
            shown_titles = metrics.elidedText(
                column_titles, Qt.TextElideMode.ElideRight, titles_rect.width()
            )
            painter.drawText(titles_rect, at_right, shown_titles)

    def _draw_model_row(
        self, painter: QPainter, rect: QRect, row: ModelRow, model: ModelChoice
    ) -> None:
        """Draws a model: the star of favourites at the left, the price and the context window at
        the right, and between them the name and chips with the model's abilities. The name gets
        the room that the others leave, so it is drawn after them.
        """
        theme = self._theme
        px = theme.zoomed_pixels
        at_right = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        usual_font = theme.build_font()
        small_font = theme.build_font(12)
        if row.favourite:
            theme.draw_words(painter, rect, "★", usual_font, "accent")
        else:
            theme.draw_words(painter, rect, "☆", usual_font, "muted")

        price = format_model_price(model)
        theme.draw_words(painter, rect, price, small_font, "muted", at_right)

        window = format_model_window(model)
        small_metrics = QFontMetrics(painter.font())
        price_width = width_of_price_column(small_metrics, px(PRICE), px(GAP), price)
        window_rect = rect.adjusted(0, 0, -price_width, 0)
        painter.drawText(window_rect, at_right, window)
        drawn_width = small_metrics.horizontalAdvance(window) + px(GAP)
        window_width = max(drawn_width, px(WINDOW))

        name_rect = rect.adjusted(px(STAR), 0, -price_width - window_width, 0)
        painter.setFont(usual_font)
        painter.setPen(theme.colour_of_token("text"))
        name_metrics = QFontMetrics(painter.font())
        name = name_metrics.elidedText(model.id, Qt.TextElideMode.ElideMiddle, name_rect.width())
        painter.drawText(name_rect, Qt.AlignmentFlag.AlignVCenter, name)

        name_end = name_rect.left() + name_metrics.horizontalAdvance(name)
        self._draw_chips(painter, name_rect, name_end, row)

    def _draw_chips(self, painter: QPainter, rect: QRect, name_end: int, row: ModelRow) -> None:
        """Draws chips behind the name, as many as there is room for."""
        px = self._theme.zoomed_pixels
        painter.setFont(self._theme.build_font(11))
        metrics = QFontMetrics(painter.font())
        chip_top = rect.center().y() - px(9)
        frame_pen = QPen(self._theme.colour_of_token("line"), 1)
        text_colour = self._theme.colour_of_token("muted")
        last_end = name_end
        for words in row.chips:
            width = metrics.horizontalAdvance(words) + px(14)
            chip = QRect(last_end + px(8), chip_top, width, px(19))
            if chip.right() > rect.right():
                return
            painter.setPen(frame_pen)
            painter.drawRoundedRect(chip, px(5), px(5))
            painter.setPen(text_colour)
            painter.drawText(chip, Qt.AlignmentFlag.AlignCenter, words)
            last_end = chip.right()


class ModelChooser(SearchPopup):
    """`chosen` carries `provider/model`, `edit_wanted` the model to correct.
    `connect_wanted`: there is none. Whoever corrects a model comes back to this list.
    """

    chosen = Signal(str)
    edit_wanted = Signal(object)
    connect_wanted = Signal()
    opened = Signal()
    closed_without_choice = Signal()

    def __init__(self, theme: Theme, state_file: WindowStateFile, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._state_file = state_file
        self._models: Sequence[ModelChoice] = ()
        self._shown = ShownConversation()
        self._anchor: QWidget | None = None
        self._links: list[QPushButton] = []
        self.line.setPlaceholderText(tr("Search models"))
        self.line.setAccessibleName(tr("Search models"))
        self.list.setAccessibleName(tr("Models"))
        self._model = ModelRows(self)
        self.set_rows_model(self._model, ModelRowPainter(theme, self.list, ROW))
        self.inside.setContentsMargins(1, 1, 1, 1)
        self.inside.setSpacing(0)
        self._state = build_plain_label("", "small", self.line, wraps=False)
        self._refresh_status = ""
        self._nothing_listed = build_plain_label("", "muted", self.list)
        self.inside.addWidget(self._build_chooser_footer())
        self.line.textChanged.connect(lambda _words: self._refill_models())
        self.list.viewport().installEventFilter(self)

    def _build_chooser_footer(self) -> QWidget:
        footer = QWidget(self.box)
        keys = build_plain_label(tr("Enter: use · Ctrl+D: favorite"), "small", footer, wraps=False)
        connect = build_push_button(tr("Connect…"), footer, self._request_connect, "link")
        edit = build_push_button(tr("Edit model…"), footer, self.request_model_edit, "link")
        self._links = [connect, edit]
        build_row((keys, 1), connect, edit, owner=footer, margins=(14, 6, 8, 6))
        return footer

    def open_below(
        self,
        anchor: QWidget,
        current: str,
        query: str = "",
        *,
        used_tokens: int = 0,
        message_waits: bool = False,
    ) -> None:
        """Opens below the button. The receiver of `opened` supplies the models. `used_tokens`:
        how long the shown conversation is, if one is shown. `message_waits`: the choice sends a
        message, so what is typed now is easily meant for that.
        """
        self._anchor = anchor
        placeholder = tr("Search models")
        if used_tokens:
            placeholder = tr("Search models for this conversation and new ones")
        if message_waits:
            placeholder = tr("Which model should answer your message?")
        self.line.setPlaceholderText(placeholder)
        self._shown = ShownConversation(current, used_tokens)
        self.open_popup(query)
        self._refill_models()
        self.opened.emit()

    def hide_connect_and_edit(self) -> None:
        for button in self._links:
            button.hide()

    def highlight_model(self, name: str) -> None:
        self.highlight_row(self._find_row_of_model_or_first(name))

    def show_known_models(self, models: Sequence[ModelChoice], *, refreshing: bool = True) -> None:
        """Shows the known models, and the chosen one even if no provider lists it."""
        shown_models = list(models)
        listed_names = {model.name for model in models}
        if self._shown.model and self._shown.model not in listed_names:
            provider = self._shown.model.partition("/")[0]
            shown_models.insert(0, ModelChoice(self._shown.model, provider=provider))
        self._models = shown_models
        if refreshing:
            self._refresh_status = tr("refreshing…")
        # Somebody may be about to press Enter on the highlighted one.
        highlighted = self.highlighted_model()
        if highlighted is None:
            self._refill_models()
        else:
            self._refill_models(keep=highlighted.name)

    def show_refreshed_models(self, refreshed: RefreshedModels) -> None:
        titles: list[str] = []
        reasons: list[str] = []
        for title, reason in refreshed.silent:
            titles.append(title)
            reasons.append(translate_sentences(reason))
        if titles:
            self._refresh_status = tr("no response from {names}", names=", ".join(titles))
        else:
            self._refresh_status = tr("just refreshed")
        self.show_known_models(refreshed.models, refreshing=False)
        self._state.setToolTip(safe_tooltip("\n".join(reasons)))

    def _show_count_and_status(self) -> None:
        """Says how many models there are, and how many of them match while words are typed. Those of
        all providers count, also where the words are the name of one.
        """
        listed_count = len(self.selectable_rows())
        self._explain_empty_list(listed_count)
        status = format_count(len(self._models), "{n} model", "{n} models")
        if 0 < listed_count < len(self._models):
            matching = format_number(listed_count)
            all_count = format_number(len(self._models))
            status = tr("Matching: {n} of all {count} models", n=matching, count=all_count)
        if self._refresh_status:
            status = f"{status} · {self._refresh_status}"
        self._state.setText(status)
        self._place_refresh_status()

    def _explain_empty_list(self, listed_count: int) -> None:
        words = ""
        if not listed_count and self._models:
            words = tr("No model matches “{words}”.", words=self.line.text().strip())
        self._nothing_listed.setText(words)
        self._nothing_listed.setVisible(bool(words))
        px = self._theme.zoomed_pixels
        self._nothing_listed.setGeometry(px(14), 0, self.list.width() - px(28), px(ROW))

    def selectable_rows(self) -> list[int]:
        row_numbers: list[int] = []
        for row_number, row in enumerate(self._model.items):
            if row.model is not None:
                row_numbers.append(row_number)
        return row_numbers

    def highlighted_model(self) -> ModelChoice | None:
        index = self.list.currentIndex()
        if not index.isValid():
            return None
        return self._model.items[index.row()].model

    def accept_current_row(self) -> None:
        model = self.highlighted_model()
        if model is None:
            return
        recent = [model.name]
        for name in self._remembered_model_names("recent"):
            if name != model.name:
                recent.append(name)
        self._state_file.remember_value("models", "recent", value=recent[:RECENT])
        # The own method would report that nothing was chosen.
        super().close_and_return_focus()
        self.chosen.emit(model.name)

    def close_and_return_focus(self) -> None:
        super().close_and_return_focus()
        self.closed_without_choice.emit()

    def request_model_edit(self) -> None:
        model = self.highlighted_model()
        if model is not None:
            # The own method would report that nothing was chosen.
            super().close_and_return_focus()
            self.edit_wanted.emit(model)

    def toggle_favourite(self) -> None:
        model = self.highlighted_model()
        if model is None:
            return
        names = self._remembered_model_names("favourites")
        if model.name in names:
            names = [name for name in names if name != model.name]
        else:
            names.append(model.name)
        self._state_file.remember_value("models", "favourites", value=names)
        self._refill_models(keep=model.name)

    def _request_connect(self) -> None:
        super().close_and_return_focus()
        self.connect_wanted.emit()

    def _remembered_model_names(self, list_name: str) -> list[str]:
        # The file may have been edited, so anything but names is left out.
        remembered: list[object] = self._state_file.get_remembered("models", list_name, default=[])
        return [name for name in remembered if isinstance(name, str)]

    # --- Keys and mouse clicks in the popup

    def claims_shortcut_key(self, event: QKeyEvent) -> bool:
        return super().claims_shortcut_key(event) or self._shortcut_action(event) is not None

    def handle_popup_key(self, event: QKeyEvent) -> bool:
        run_action = self._shortcut_action(event)
        if run_action is None:
            return super().handle_popup_key(event)
        run_action()
        return True

    def _shortcut_action(self, event: QKeyEvent) -> Callable[[], None] | None:
        if event.modifiers() != Qt.KeyboardModifier.ControlModifier:
            return None
        if event.key() == Qt.Key.Key_D:
            return self.toggle_favourite
        if event.key() == Qt.Key.Key_E:
            return self.request_model_edit
        return None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.list.viewport() and isinstance(event, QMouseEvent):
            pointer = event.position()
            end_of_star = self._theme.zoomed_pixels(14 + STAR)
            is_release = event.type() == QEvent.Type.MouseButtonRelease
            if is_release and pointer.x() < end_of_star:
                clicked_row = self.list.indexAt(pointer.toPoint())
                self.list.setCurrentIndex(clicked_row)
                self.toggle_favourite()
                return True
        return super().eventFilter(watched, event)

    def _refill_models(self, keep: str = "") -> None:
        """Lists the models that match the text. `keep`: the model to highlight."""
        query = self.line.text()
        favourites = self._remembered_model_names("favourites")
        recent = self._remembered_model_names("recent")
        rows = group_models(self._models, favourites, recent, query, self._shown)
        self._model.replace_rows(rows)
        model_to_highlight = keep
        # While the user searches, the first match is highlighted, not the model in use.
        if not keep and not query:
            model_to_highlight = self._shown.model
        self.highlight_row(self._find_row_of_model_or_first(model_to_highlight))
        self.place_popup()
        self._show_count_and_status()

    def _find_row_of_model_or_first(self, name: str) -> int:
        selectable = self.selectable_rows()
        for row_number in selectable:
            model = self._model.items[row_number].model
            if model is not None and model.name == name:
                return row_number
        if selectable:
            return selectable[0]
        return 0

    def place_popup(self) -> None:
        parent = self.parentWidget()
        px = self._theme.zoomed_pixels
        if parent is None:
            return
        self.setGeometry(parent.rect())
        width = min(px(WIDTH), parent.width() - 16)
        # In the middle of the window, unless it hangs from a button there.
        top = px(80)
        right = (parent.width() + width) // 2
        if self._anchor is not None and self._anchor.window() is self.window():
            corner_in_anchor = self._anchor.rect().bottomRight()
            anchor_corner = self._anchor.mapTo(parent, corner_in_anchor)
            top = anchor_corner.y() + px(4)
            right = max(anchor_corner.x(), width + 8)
        visible_rows = min(max(self._model.rowCount(), 1), SHOWN)
        wanted_height = px(ROW) * visible_rows + px(96)
        height = min(wanted_height, parent.height() - top - 8)
        self.box.setGeometry(right - width, top, width, height)
        self._place_refresh_status()

    def _place_refresh_status(self) -> None:
        self._state.adjustSize()
        left = self.box.width() - self._state.width() - self._theme.zoomed_pixels(16)
        top = (self.line.sizeHint().height() - self._state.height()) // 2
        self._state.move(left, top)
