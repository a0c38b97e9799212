"""One changed file at the right: its name, what can be done with it, and its difference; pictures and binaries in their own way."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QImage, QPixmap, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.changes.hunks import Hunk, binary
from helix_desktop.engine.changes.story import FileChange, written
from helix_desktop.engine.changes.tree import Item, Kind
from helix_desktop.gui.chat.attachments import Flow
from helix_desktop.gui.shared.chip import ChipLabel
from helix_desktop.gui.shared.difference_rows import Sheet
from helix_desktop.gui.shared.elided import ElidedLabel
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.theme import Theme, set_look
from helix_desktop.gui.transcript.highlight import language_of
from helix_desktop.gui.views.difference import DifferenceView
from helix_desktop.gui.words import tr

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp")
LARGEST = 32 << 20  # bytes of a picture that is shown
MOST_PIXELS = 64_000_000
EDGE = 420
NAME = 140  # pixels a name has at least beside the buttons


class FileBody(QWidget):
    """`taken_back` and `opened` are about the file that is shown."""

    taken_back = Signal()
    kept = Signal()
    opened = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._name = ElidedLabel(self, Qt.TextElideMode.ElideMiddle)
        self._name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        set_look(self._name, "mono")
        self._by, self._hash = ChipLabel(theme, self), ChipLabel(theme, self)
        self._open = push_button(tr("Open in editor"), self, look="pill")
        self._keep = push_button(tr("Keep file"), self, look="pill")
        self._back = push_button(tr("Undo file"), self, look="pill")
        self._open.clicked.connect(self.opened)
        self._keep.clicked.connect(self.kept)
        self._back.clicked.connect(self.taken_back)
        what = QHBoxLayout()
        what.setSpacing(8)
        for widget in (self._name, self._by, self._hash):
            what.addWidget(widget)
        what.addStretch(1)
        self._acts = QWidget(self)
        acts = Flow(self._acts, gap=8)
        for button in (self._open, self._keep, self._back):
            acts.addWidget(button)
        self._head = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._head.setSpacing(8)
        self._head.addLayout(what, 1)
        self._head.addWidget(self._acts)
        self.view = DifferenceView(theme, self)
        self._plain = plain_label(parent=self)
        self._plain.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._pictures = (QLabel(self), QLabel(self))
        both = QWidget(self)
        beside = QGridLayout(both)
        beside.setRowStretch(1, 1)
        for at, (label, words) in enumerate(zip(self._pictures, (tr("Before"), tr("After")), strict=True)):
            title = QLabel(words, both)
            set_look(title, "heading")
            label.setAccessibleName(words)
            for row, each in enumerate((title, label)):
                each.setAlignment(Qt.AlignmentFlag.AlignCenter)
                beside.addWidget(each, row, at)
        self._stack = QStackedWidget(self)
        for page in (self.view, self._plain, both):
            self._stack.addWidget(page)
        column = QVBoxLayout(self)
        theme.fit(self, column.setContentsMargins, 20, 12, 20, 12)
        column.setSpacing(10)
        column.addLayout(self._head)
        column.addWidget(self._stack, 1)
        self.clear("")

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """In a narrow window the buttons stand below the name, and the hash goes."""
        acts = sum(button.sizeHint().width() + 8 for button in (self._open, self._keep, self._back)) - 8
        chips = self._by.sizeHint().width() + self._hash.sizeHint().width()
        wide = self.width() - self._theme.px(40) >= self._theme.px(NAME) + chips + 24 + acts
        self._acts.setMinimumWidth(acts if wide else 0)
        self._head.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        self._hash.setVisible(wide and bool(self._hash.accessibleName()))

    def clear(self, words: str) -> None:
        """No file: a sentence in its place."""
        self._plain.setText(words)
        self._stack.setCurrentIndex(1)
        self._name.say("")
        self._by.say("")
        self._hash.say("")
        for button in (self._open, self._keep, self._back):
            button.hide()

    def show_file(
        self,
        file: FileChange,
        contents: tuple[bytes, bytes],
        hunks: Sequence[Hunk],
        made: Sheet,
        kept: frozenset[str],
    ) -> None:
        self._name.say(written(file.place))
        step = tr("{tool}, step {step}", tool=file.by, step=file.step) if file.step else file.by
        self._by.say(step)
        before = file.change.before
        digest = before.digest if before is not None else None
        self._hash.say(tr("before {hash}", hash=digest.short) if digest is not None else tr("a new file"))
        for button in (self._open, self._keep, self._back):
            button.show()
        self._open.setVisible(file.change.after is not None)
        whole = "" in kept
        self._keep.setEnabled(not whole)
        self._keep.setText(tr("Kept") if whole else tr("Keep file"))
        self._fit()
        if file.place.lower().endswith(PICTURES) and max(map(len, contents)) < LARGEST:
            self._show_pictures(contents)
        elif binary(*contents) or not hunks:
            self._plain.setText(_in_words(file))
            self._stack.setCurrentIndex(1)
        else:
            all_kept = frozenset(hunk.id for hunk in hunks) if whole else kept
            self.view.show_hunks(hunks, language=language_of(file.place), kept=all_kept, made=made)
            self._stack.setCurrentIndex(0)

    def _show_pictures(self, contents: tuple[bytes, bytes]) -> None:
        edge = self._theme.px(EDGE)
        for label, content in zip(self._pictures, contents, strict=True):
            image = QImage.fromData(content)
            if image.isNull() or image.width() * image.height() > MOST_PIXELS:
                label.setPixmap(QPixmap())
                label.setText(tr("no picture") if content else "—")
            else:
                scaled = image.scaled(edge, edge, Qt.AspectRatioMode.KeepAspectRatio) if image.width() > edge else image
                label.setPixmap(QPixmap.fromImage(scaled))
        self._stack.setCurrentIndex(2)


def _in_words(file: FileChange) -> str:
    """A change that has no lines: kinds, sizes, hashes, modes."""
    before, after = _version(file.change.before), _version(file.change.after)
    return tr("Before: {before}\nAfter: {after}", before=before, after=after)


def _version(item: Item | None) -> str:
    if item is None:
        return tr("nothing")
    mode = f"{item.mode:o}"
    match item.kind:
        case Kind.FILE:
            digest = item.digest.short if item.digest else ""
            return tr("a file of {size}, {hash}, mode {mode}", size=size(item.size), hash=digest, mode=mode)
        case Kind.LINK:
            return tr("a link to {target}", target=written(item.content.decode("utf-8", "surrogateescape")))
        case Kind.TWIN:
            return tr("a hard link to {target}", target=written(item.content.decode("utf-8", "surrogateescape")[2:]))
        case Kind.FOLDER:
            return tr("a folder, mode {mode}", mode=mode)
    return tr("a socket, pipe or device")
