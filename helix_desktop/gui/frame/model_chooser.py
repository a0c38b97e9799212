"""The popup for choosing a model: a search field over favourites, recent models and
what the providers offer.
"""

from collections.abc import Callable, Mapping, Sequence

from PySide6 import (
    QtWidgets,
)  # for QStyle: importing it itself would create its 500 members at the start
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
from helix_desktop.gui.translation import format_count, tr, translate_name

WIDTH, ROW, SHOWN, RECENT = 560, 34, 12, 5
STAR, WINDOW, PRICE = 24, 110, 106  # The widths of these columns in pixels.


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model, or the heading of a group if `model` is None."""

    heading: str = ""
    model: ModelChoice | None = None
    favourite: bool = False


def group_models(
    models: Sequence[ModelChoice], favourites: Sequence[str], recent: Sequence[str], words: str = ""
) -> list[ModelRow]:
    """The rows that match the words: favourites, recent models, then each provider's."""
    wanted_words = words.casefold().split()
    matching = [model for model in models if _model_matches_words(model, wanted_words)]
    by_name = {model.name: model for model in matching}
    recent_only = [name for name in recent if name not in favourites]
    groups: dict[str, list[ModelChoice]] = {
        tr("Favorites"): [by_name[name] for name in favourites if name in by_name],
        tr("Recent"): [by_name[name] for name in recent_only if name in by_name],
    }
    for model in matching:
        provider = model.provider or model.name.partition("/")[0]
        groups.setdefault(provider, []).append(model)
    rows: list[ModelRow] = []
    for heading, members in groups.items():
        if members:
            rows.append(ModelRow(heading))
        for model in members:
            rows.append(ModelRow(model=model, favourite=model.name in favourites))
    return rows


def _model_matches_words(model: ModelChoice, wanted: Sequence[str]) -> bool:
    text = f"{model.name} {model.provider} {' '.join(model_abilities(model))}".casefold()
    return all(word in text for word in wanted)


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
    how = translate_name("source of a window size", model.sure)
    return (
        f"{format_token_count(model.window)} · {how}" if how else format_token_count(model.window)
    )


def format_model_price(model: ModelChoice) -> str:
    prices = (model.price_input, model.price_output)
    if any(prices):
        cents = any(price % 1 for price in prices) and all(
            round(price, 2) == price for price in prices
        )
        style, digits = ("f", 2) if cents else ("g", 6)
        return " / ".join(
            tr("${n}", n=QLocale().toString(float(price), style, digits)) for price in prices
        )
    return tr("free") if model.local else ""


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
            return row.model.name if row.model else row.heading
        if role == Qt.ItemDataRole.AccessibleTextRole:
            if row.model is None:
                return row.heading
            favourite = tr("favorite") if row.favourite else ""
            figures = (
                *model_abilities(row.model),
                format_model_window(row.model),
                format_model_price(row.model),
            )
            return ", ".join(filter(None, [favourite, row.model.name, *figures]))
        if role == Qt.ItemDataRole.ToolTipRole and row.model is not None:
            return safe_tooltip(translate_sentences(row.model.note))
        return None


class ModelRowPainter(RowPainter):
    """Paints a star, the name, the abilities, the context window and the price in columns."""

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row: ModelRow = index.data(Qt.ItemDataRole.UserRole)
        rect, px, side = (
            QRect(option.rect),
            self._theme.zoomed_pixels,
            self._theme.zoomed_pixels(14),
        )
        if row.model is None:
            inner = rect.adjusted(side, px(8), -side, 0)
            self._draw_provider_heading(painter, inner, row.heading, first=index.row() == 0)
            return
        if option.state & QtWidgets.QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, self._theme.colour_of_token("accent_soft"))
        self._draw_model_row(painter, rect.adjusted(side, 0, -side, 0), row, row.model)

    def _draw_provider_heading(
        self, painter: QPainter, inner: QRect, heading: str, *, first: bool
    ) -> None:
        self._theme.draw_words(painter, inner, heading, self._theme.build_font(11), "muted")
        if first:
            words = tr("context window · input / output price per million tokens")
            painter.drawText(
                inner, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, words
            )

    def _draw_model_row(
        self, painter: QPainter, rect: QRect, row: ModelRow, model: ModelChoice
    ) -> None:
        theme, px = self._theme, self._theme.zoomed_pixels
        right = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        star, colour = ("★", "accent") if row.favourite else ("☆", "muted")
        theme.draw_words(painter, rect, star, theme.build_font(), colour)
        theme.draw_words(
            painter, rect, format_model_price(model), theme.build_font(12), "muted", right
        )
        window = format_model_window(model)
        painter.drawText(rect.adjusted(0, 0, -px(PRICE), 0), right, window)
        taken = max(QFontMetrics(painter.font()).horizontalAdvance(window) + px(12), px(WINDOW))
        names = rect.adjusted(px(STAR), 0, -px(PRICE) - taken, 0)
        painter.setFont(theme.build_font())
        painter.setPen(theme.colour_of_token("text"))
        text = QFontMetrics(painter.font()).elidedText(
            model.id, Qt.TextElideMode.ElideMiddle, names.width()
        )
        painter.drawText(names, Qt.AlignmentFlag.AlignVCenter, text)
        left = names.left() + QFontMetrics(painter.font()).horizontalAdvance(text)
        self._draw_ability_chips(painter, names, left, model)

    def _draw_ability_chips(
        self, painter: QPainter, rect: QRect, left: int, model: ModelChoice
    ) -> None:
        px = self._theme.zoomed_pixels
        painter.setFont(self._theme.build_font(11))
        metrics = QFontMetrics(painter.font())
        for words in model_abilities(model):
            width = metrics.horizontalAdvance(words) + px(14)
            chip = QRect(left + px(8), rect.center().y() - px(9), width, px(19))
            if chip.right() > rect.right():
                return
            painter.setPen(QPen(self._theme.colour_of_token("line"), 1))
            painter.drawRoundedRect(chip, px(5), px(5))
            painter.setPen(self._theme.colour_of_token("muted"))
            painter.drawText(chip, Qt.AlignmentFlag.AlignCenter, words)
            left = chip.right()


class ModelChooser(SearchPopup):
    """`chosen` carries `provider/model`, `edit_wanted` the model to correct.
    `connect_wanted`: there is none.
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
        self._current = ""
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
        self.inside.addWidget(self._build_chooser_footer())
        self.line.textChanged.connect(lambda _words: self._refill_models())
        self.list.viewport().installEventFilter(self)

    def _build_chooser_footer(self) -> QWidget:
        foot = QWidget(self.box)
        keys = build_plain_label(tr("Enter: use · Ctrl+D: favorite"), "small", foot, wraps=False)
        row = build_row((keys, 1), owner=foot, margins=(14, 6, 8, 6))
        for words, act in (
            (tr("Connect…"), self._request_connect),
            (tr("Edit model…"), self.request_model_edit),
        ):
            button = build_push_button(words, foot, act, "link")
            row.addWidget(button)
            self._links.append(button)
        return foot

    def open_below(self, anchor: QWidget, current: str, words: str = "") -> None:
        """Opens below the button. The receiver of `opened` supplies the models."""
        self._anchor, self._current = anchor, current
        self.open_popup(words)
        self._refill_models()
        self.opened.emit()

    def hide_connect_and_edit(self) -> None:
        for button in self._links:
            button.hide()

    def show_known_models(self, models: Sequence[ModelChoice], *, refreshing: bool = True) -> None:
        """Shows the known models, and the chosen one even if no provider lists it."""
        names = {model.name for model in models}
        missing = [self._current] if self._current and self._current not in names else []
        self._models = [
            *(ModelChoice(name, provider=name.partition("/")[0]) for name in missing),
            *models,
        ]
        if refreshing:
            self.show_refresh_status(
                format_count(len(models), "{n} model · refreshing…", "{n} models · refreshing…")
            )
        self._refill_models()

    def show_refreshed_models(self, refreshed: RefreshedModels) -> None:
        self.show_known_models(refreshed.models)
        words = format_count(len(refreshed.models), "{n} model", "{n} models")
        names = ", ".join(title for title, _ in refreshed.silent)
        missing = tr("{models} · no response from {names}", models=words, names=names)
        self.show_refresh_status(
            missing if names else tr("{models} · just refreshed", models=words)
        )
        self._state.setToolTip(
            safe_tooltip("\n".join(translate_sentences(why) for _, why in refreshed.silent))
        )

    def show_refresh_status(self, words: str) -> None:
        self._state.setText(words)
        self._place_refresh_status()

    def selectable_rows(self) -> list[int]:
        return [at for at, row in enumerate(self._model.items) if row.model is not None]

    def highlighted_model(self) -> ModelChoice | None:
        index = self.list.currentIndex()
        return self._model.items[index.row()].model if index.isValid() else None

    def accept_current_row(self) -> None:
        if (model := self.highlighted_model()) is not None:
            recent = [
                model.name,
                *(name for name in self._remembered_model_names("recent") if name != model.name),
            ]
            self._state_file.remember_value("models", "recent", value=recent[:RECENT])
            super().close_and_return_focus()
            self.chosen.emit(model.name)

    def close_and_return_focus(self) -> None:
        super().close_and_return_focus()
        self.closed_without_choice.emit()

    def request_model_edit(self) -> None:
        if (model := self.highlighted_model()) is not None:
            self.close_and_return_focus()
            self.edit_wanted.emit(model)

    def toggle_favourite(self) -> None:
        if (model := self.highlighted_model()) is None:
            return
        names = self._remembered_model_names("favourites")
        changed = (
            [name for name in names if name != model.name]
            if model.name in names
            else [*names, model.name]
        )
        self._state_file.remember_value("models", "favourites", value=changed)
        self._refill_models(keep=model.name)

    def _request_connect(self) -> None:
        super().close_and_return_focus()
        self.connect_wanted.emit()

    def _remembered_model_names(self, list_name: str) -> list[str]:
        kept: list[object] = self._state_file.get_remembered("models", list_name, default=[])
        return [name for name in kept if isinstance(name, str)]

    # --- Keys and mouse clicks in the popup

    def claims_shortcut_key(self, event: QKeyEvent) -> bool:
        return super().claims_shortcut_key(event) or self._shortcut_action(event) is not None

    def handle_popup_key(self, event: QKeyEvent) -> bool:
        if (act := self._shortcut_action(event)) is None:
            return super().handle_popup_key(event)
        act()
        return True

    def _shortcut_action(self, event: QKeyEvent) -> Callable[[], None] | None:
        acts: Mapping[int, Callable[[], None]]
        acts = {Qt.Key.Key_D: self.toggle_favourite, Qt.Key.Key_E: self.request_model_edit}
        return (
            acts.get(event.key())
            if event.modifiers() == Qt.KeyboardModifier.ControlModifier
            else None
        )

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.list.viewport() and isinstance(event, QMouseEvent):
            star = event.position().x() < self._theme.zoomed_pixels(14 + STAR)
            if event.type() == QEvent.Type.MouseButtonRelease and star:
                self.list.setCurrentIndex(self.list.indexAt(event.position().toPoint()))
                self.toggle_favourite()
                return True
        return super().eventFilter(watched, event)

    def _refill_models(self, keep: str = "") -> None:
        words, names = self.line.text(), self._remembered_model_names
        self._model.replace_rows(
            group_models(self._models, names("favourites"), names("recent"), words)
        )
        usable = self.selectable_rows()
        wanted = keep or ("" if words else self._current)
        here = (
            at
            for at in usable
            if (model := self._model.items[at].model) is not None and model.name == wanted
        )
        self.highlight_row(next(here, usable[0] if usable else 0))
        self.place_popup()

    def place_popup(self) -> None:
        parent, px = self.parentWidget(), self._theme.zoomed_pixels
        if parent is None:
            return
        self.setGeometry(parent.rect())
        width = min(px(WIDTH), parent.width() - 16)
        top, right = px(80), (parent.width() + width) // 2
        if self._anchor is not None and self._anchor.window() is self.window():
            below = self._anchor.mapTo(parent, self._anchor.rect().bottomRight())
            top, right = below.y() + px(4), max(below.x(), width + 8)
        rows = min(max(self._model.rowCount(), 1), SHOWN)
        height = min(px(ROW) * rows + px(96), parent.height() - top - 8)
        self.box.setGeometry(right - width, top, width, height)
        self._place_refresh_status()

    def _place_refresh_status(self) -> None:
        self._state.adjustSize()
        room = self.box.width() - self._state.width() - self._theme.zoomed_pixels(16)
        self._state.move(room, (self.line.sizeHint().height() - self._state.height()) // 2)
