"""Shows the attachments of the next message as chips, each with a button that removes it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QMimeData, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QIcon, QPixmap, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QPushButton, QSizePolicy, QWidget

from helix_desktop.engine.facts import Attachment, DocumentOrigin, Stored, Text, UserPart
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.document_figures import (
    describe_attachment_size,
    describe_document_pages,
)
from helix_desktop.gui.common.widgets import build_push_button
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

NAME = 40  # The names of attachments are shortened to this many characters.
SHORTEST_NAME = 8  # In a narrow window, to this many.
_AS_ON_BUTTONS = Qt.TextFlag.TextShowMnemonic


def encode_message_parts(parts: Sequence[UserPart]) -> dict[str, Any]:
    texts: list[str] = []
    attachments: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Attachment):
            attachments.append(_encode_attachment(part))
        elif part.text:
            texts.append(part.text)
    return {"text": "\n\n".join(texts), "attachments": attachments}


def decode_message_parts(value: object) -> tuple[UserPart, ...]:
    """Decodes what `encode_message_parts` wrote, or a bare text. Other values count as empty."""
    text = value
    encoded_attachments: object = None
    if isinstance(value, dict):
        text = value.get("text")
        encoded_attachments = value.get("attachments")
    parts: list[UserPart] = []
    if isinstance(text, str) and text:
        parts.append(Text(text))
    if isinstance(encoded_attachments, list):
        for encoded in encoded_attachments:
            attachment = _decode_attachment(encoded)
            if attachment is not None:
                parts.append(attachment)
    return tuple(parts)


def _encode_attachment(attachment: Attachment) -> dict[str, Any]:
    encoded = {
        "name": attachment.name,
        **_encode_stored(attachment.stored),
        "tokens": attachment.tokens,
    }
    document = attachment.document
    if document is not None:
        encoded["document"] = {
            **_encode_stored(document.original),
            "unit": document.unit,
            "count": document.count,
        }
    return encoded


def _encode_stored(stored: Stored) -> dict[str, Any]:
    return {
        "digest": stored.digest.hex,
        "size": stored.size,
        "lines": stored.lines,
        "media_type": stored.media_type,
    }


def _decode_attachment(value: object) -> Attachment | None:
    try:
        assert isinstance(value, dict)  # noqa: S101 - a wrong shape is as good as a missing key
        stored = _decode_stored(value)
        document = None
        if "document" in value:
            document = _decode_document(value["document"])
        return Attachment(str(value["name"]), stored, int(value["tokens"]), document)
    except (AssertionError, KeyError, TypeError, ValueError):
        return None


def _decode_document(value: dict[str, Any]) -> DocumentOrigin:
    return DocumentOrigin(_decode_stored(value), str(value["unit"]), int(value["count"]))


def _decode_stored(value: dict[str, Any]) -> Stored:
    return Stored(
        Digest.from_hex(value["digest"]),
        int(value["size"]),
        int(value["lines"]),
        str(value["media_type"]),
    )


def has_files_or_picture(mime: QMimeData) -> bool:
    """Whether a drop or the clipboard holds files or a picture, rather than text."""
    if mime.hasUrls() and any(url.isLocalFile() for url in mime.urls()):
        return True
    return mime.hasImage() and not mime.hasText()


def _shorten_in_the_middle(name: str, most: int) -> str:
    """Shortens a long name in the middle, as its ends say the most."""
    if len(name) <= most:
        return name
    length_of_ending = most // 2
    beginning = name[: most - length_of_ending - 1]
    return f"{beginning}…{name[-length_of_ending:]}"


def _label_of_chip(name: str, figures: str, longest_name: int = NAME) -> str:
    label = _shorten_in_the_middle(name, longest_name).replace("&", "&&")
    if figures:
        label = f"{label} · {figures}"
    return f"{label}  ✕"


@dataclass(slots=True, eq=False)
class ShownChip:
    """The buttons of one attachment, and what was known of it when they were built."""

    attachment: Attachment
    tokens_to_send: int
    picture: QPixmap | None
    figures: str
    buttons: Sequence[QPushButton]


class AttachmentChips(QWidget):
    """`changed`: one was added or removed. `unknown`: its preview is needed. `opened`:
    it was clicked.
    """

    changed = Signal()
    unknown = Signal(object)
    opened = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._held: list[Attachment] = []
        self._shown_chips: list[ShownChip] = []
        self._pictures: dict[Digest, QPixmap] = {}
        # The tokens that are sent of an attachment, which may be fewer than it has.
        self._sent_tokens: dict[Digest, int] = {}
        # Of the model and the room in its window for which they were counted.
        self._counted_for: object = None
        # In a small window, it matters what else the message has. Of files that come together,
        # each is counted again once.
        self._counting_again = QTimer(self, singleShot=True, interval=0)
        self._counting_again.timeout.connect(self._ask_for_tokens)
        self._flow = build_row(owner=self, margins=0, spacing=6, wraps=True)
        self.setProperty("look", "plain")
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.hide()

    @property
    def listed_attachments(self) -> tuple[Attachment, ...]:
        return tuple(self._held)

    def show_attachments(self, attachments: Sequence[Attachment]) -> None:
        before = self._held
        self._held = list(attachments)
        self._update_chips()
        if self._held != before:
            self.changed.emit()

    def add_attachment(self, attachment: Attachment) -> None:
        attached_digests = [held.stored.digest for held in self._held]
        if attachment.stored.digest in attached_digests:
            return
        self._held.append(attachment)
        self._update_chips()
        self._counting_again.start()
        self.changed.emit()

    def _remove_attachment(self, attachment: Attachment) -> None:
        self._held.remove(attachment)
        self._update_chips()
        self._counting_again.start()
        self.changed.emit()

    def show_thumbnail(self, attachment: Attachment, picture: QPixmap) -> None:
        self._pictures[attachment.stored.digest] = picture
        self._update_chips()

    @property
    def attached_token_count(self) -> int:
        tokens = 0
        for attachment in self._held:
            tokens += self._tokens_to_send(attachment)
        return tokens

    def attachments_with_tokens_to_send(self) -> list[Attachment]:
        """Returns the attachments with the tokens of what is sent of each."""
        return [
            replace(attachment, tokens=self._tokens_to_send(attachment))
            for attachment in self.listed_attachments
        ]

    def _tokens_to_send(self, attachment: Attachment) -> int:
        """A long document is sent shortened."""
        return self._sent_tokens.get(attachment.stored.digest, attachment.tokens)

    def show_attachment_tokens(self, attachment: Attachment, tokens: int) -> None:
        tokens_before = self._tokens_to_send(attachment)
        self._sent_tokens[attachment.stored.digest] = tokens
        if tokens != tokens_before:
            self._update_chips()
            self.changed.emit()

    def count_again_if_other_room(self, model_and_room: object) -> None:
        """Asks again how many tokens are sent if another model gets them now, or if it has more
        or less room for them.
        """
        if model_and_room == self._counted_for:
            return
        self._counted_for = model_and_room
        self._ask_for_tokens()

    def _ask_for_tokens(self) -> None:
        """Asks, by a signal, for the tokens that are sent of texts. A picture is sent whole."""
        for attachment in self.listed_attachments:
            if not attachment.stored.media_type.startswith("image/"):
                self.unknown.emit(attachment)

    def _update_chips(self) -> None:
        """Builds the chips of what is new or has become known, and takes those away that are
        not held any more. Then asks, by a signal, for what is not known yet of what was
        built: its thumbnail, or how many tokens of it are sent.
        """
        self._forget_removed_attachments()
        shown_before = self._shown_chips
        self._shown_chips = []
        built: list[Attachment] = []
        for attachment in self._held:
            chip = self._take_unchanged_chip(attachment, shown_before)
            if chip is None:
                chip = self._build_shown_chip(attachment)
                built.append(attachment)
            self._shown_chips.append(chip)
        for chip in shown_before:
            for button in chip.buttons:
                self._flow.removeWidget(button)
                button.hide()
                button.deleteLater()
        self._place_chips_in_order()
        self.setVisible(bool(self._held))
        self._fit_chips_to_width()
        self.updateGeometry()
        # What is asked for may come at once, and change the list.
        for attachment in built:
            digest = attachment.stored.digest
            if digest not in self._pictures and digest not in self._sent_tokens:
                self.unknown.emit(attachment)

    def _take_unchanged_chip(
        self, attachment: Attachment, shown_before: list[ShownChip]
    ) -> ShownChip | None:
        """Removes the chip from `shown_before` that shows an attachment as it is now."""
        picture = self._pictures.get(attachment.stored.digest)
        tokens_to_send = self._tokens_to_send(attachment)
        for chip in shown_before:
            is_same = chip.attachment == attachment and chip.tokens_to_send == tokens_to_send
            if is_same and chip.picture is picture:
                shown_before.remove(chip)
                return chip
        return None

    def _build_shown_chip(self, attachment: Attachment) -> ShownChip:
        """Builds what shows an attachment, a thumbnail before a picture's name."""
        buttons: list[QPushButton] = []
        picture = self._pictures.get(attachment.stored.digest)
        if picture is not None:
            buttons.append(self._build_thumbnail_button(attachment, picture))
        buttons.append(self._build_attachment_chip(attachment))
        figures = self._describe_attachment_tokens(attachment)
        tokens_to_send = self._tokens_to_send(attachment)
        return ShownChip(attachment, tokens_to_send, picture, figures, buttons)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_chips_to_width()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._fit_chips_to_width()

    def _fit_chips_to_width(self) -> None:
        """Shortens the names of chips that are wider than the row, such as beside another
        conversation. Their figures and their ✕ stay whole.
        """
        if not self.isVisible():  # Its width is not known yet.
            return
        for shown in self._shown_chips:
            chip = shown.buttons[-1]
            name = shown.attachment.name
            label = _label_of_chip(name, shown.figures)
            longest_name = NAME
            while longest_name > SHORTEST_NAME and self._width_of_chip(chip, label) > self.width():
                longest_name -= 1
                label = _label_of_chip(name, shown.figures, longest_name)
            if chip.text() != label:
                chip.setText(label)

    def _width_of_chip(self, chip: QPushButton, label: str) -> int:
        """Returns how wide a chip is with this label instead of the one that it has."""
        text_width = chip.fontMetrics().size(_AS_ON_BUTTONS, label).width()
        width_before = chip.fontMetrics().size(_AS_ON_BUTTONS, chip.text()).width()
        return chip.sizeHint().width() - width_before + text_width

    def _place_chips_in_order(self) -> None:
        index = 0
        for chip in self._shown_chips:
            for button in chip.buttons:
                if self._flow.indexOf(button) != index:
                    self._flow.removeWidget(button)
                    self._flow.insertWidget(index, button)
                index += 1

    def _forget_removed_attachments(self) -> None:
        held_digests = [attachment.stored.digest for attachment in self._held]
        for digest in list(self._pictures):
            if digest not in held_digests:
                del self._pictures[digest]
        for digest in list(self._sent_tokens):
            if digest not in held_digests:
                del self._sent_tokens[digest]

    def _build_thumbnail_button(self, attachment: Attachment, picture: QPixmap) -> QPushButton:
        button = build_push_button("", self, lambda: self.opened.emit(attachment), "chip")
        button.setIcon(QIcon(picture))
        button.setIconSize(QSize(self._theme.zoomed_pixels(48), self._theme.zoomed_pixels(32)))
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        words = tr("Open {name} at full size", name=attachment.name)
        button.setToolTip(safe_tooltip(words))
        button.setAccessibleName(words)
        button.show()
        return button

    def _describe_attachment_tokens(self, attachment: Attachment) -> str:
        tokens_to_send = self._tokens_to_send(attachment)
        if tokens_to_send == attachment.tokens:
            return describe_attachment_size(attachment)
        sent = tr(
            "excerpt, {n} of {all} tokens",
            n=format_token_count(tokens_to_send),
            all=format_token_count(attachment.tokens),
        )
        pages = describe_document_pages(attachment)
        if pages:
            return f"{pages} · {sent}"
        return sent

    def _build_attachment_chip(self, attachment: Attachment) -> QPushButton:
        chip = build_push_button(
            _label_of_chip(attachment.name, self._describe_attachment_tokens(attachment)),
            self,
            lambda: self._remove_attachment(attachment),
            "chip",
        )
        chip.setCursor(Qt.CursorShape.PointingHandCursor)
        hint = tr("Remove {name} from the message", name=attachment.name)
        if self._tokens_to_send(attachment) != attachment.tokens:
            excerpt = tr("The model gets an excerpt of it and can ask for the rest. To send only certain lines, select them on the Cache page and add those.")  # fmt: skip
            hint = f"{excerpt}\n{hint}"
        chip.setToolTip(safe_tooltip(hint))
        chip.setAccessibleName(tr("Attachment {name}. Click to remove.", name=attachment.name))
        chip.show()
        return chip
