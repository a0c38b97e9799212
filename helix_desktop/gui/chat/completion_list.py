"""The list that opens over the composer for `@` (files and cached entries) and `/` (commands).

It never takes the focus: the text field keeps the keys, and moves the choice, accepts it or closes
the list.
"""

import re
from collections.abc import Sequence

from PySide6.QtCore import QPoint, QSize, Qt, Signal
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QListWidget, QListWidgetItem, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.translation import tr

SHOWN = 8


@dataclass(frozen=True, slots=True)
class CompletionOffer:
    """One completion. `inserted_text` replaces the typed text; `value` is what was chosen."""

    text: str
    inserted_text: str = ""
    value: object = None
    icon: str = "entry"
    remark: str = ""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """The request for completions: the sign, the letters after it, and the position of
    the sign in the text.
    """

    trigger: str
    typed_letters: str
    start: int


def find_completion_request(text: str, cursor: int) -> CompletionRequest | None:
    """Returns the request if the cursor follows `@letters` at the start of a word, or
    `/letters` at the start.
    """
    before = text[:cursor]
    command = re.fullmatch(r"/([\w:.-]*)", before)
    if command is not None:
        return CompletionRequest("/", command[1], 0)
    mention = re.search(r"(?:^|(?<=[\s(]))@([^\s@]{0,120})$", before)
    if mention is not None:
        return CompletionRequest("@", mention[1], mention.start())
    return None


class CompletionList(QListWidget):
    """`offer_chosen` carries a CompletionOffer."""

    offer_chosen = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setProperty("look", "bordered")
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(tr("Suggestions"))
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setIconSize(QSize(14, 14))
        self.setUniformItemSizes(True)
        self.itemClicked.connect(lambda _item: self.choose_current_offer())
        self.hide()

    def show_offers(self, offers: Sequence[CompletionOffer], above: QPoint, width: int) -> None:
        """Shows the offers above a point in the parent's coordinates, or closes the
        list if there are none.
        """
        self.clear()
        for offer in offers:
            words = offer.text
            if offer.remark:
                words = f"{words}    {offer.remark}"
            icon: QIcon = build_icon(offer.icon, self._theme.colour_of_token("muted"))
            item = QListWidgetItem(icon, words, self)
            item.setData(Qt.ItemDataRole.UserRole, offer)
        if not offers:
            self.hide()
            return
        self.setCurrentRow(0)
        height_of_rows = self.sizeHintForRow(0) * min(len(offers), SHOWN)
        height = height_of_rows + 2 * self.frameWidth() + 10
        top = max(above.y() - height, 0)
        self.setGeometry(above.x(), top, width, min(height, above.y()))
        self.raise_()
        self.show()

    def choose_current_offer(self) -> None:
        item = self.currentItem()
        self.hide()
        if item is not None:
            self.offer_chosen.emit(item.data(Qt.ItemDataRole.UserRole))
