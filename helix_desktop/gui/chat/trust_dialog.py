"""Shows the exact text of a folder's rules, skills, commands, hooks and agents before their use."""

from collections.abc import Callable, Sequence

from PySide6.QtWidgets import (
    QDialogButtonBox,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QSizePolicy,
    QWidget,
)

from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.gui.common.consent_text_view import ExactTextView
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_line_edit,
    build_plain_label,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme, make_default_button
from helix_desktop.gui.translation import format_number, tr, translate_name
from helix_desktop.gui.workbench_types import ProjectItem


class TrustDialog(TransientDialog):
    """Shows items to trust. `trust` is called with those whose end was seen, if the user agrees."""

    def __init__(
        self,
        theme: Theme,
        items: Sequence[ProjectItem],
        trust: Callable[[Sequence[ProjectItem]], object],
        parent: QWidget,
    ) -> None:
        """Lists what a folder brings along that could act by itself, such as
        instructions, hooks and servers, with the text of each beside it. `trust` is
        called with the items that the user has read and trusts.
        """
        title = tr("New in this folder")
        width = 920
        if len(items) == 1:
            title = translate_name("kind of item", items[0].kind)
            width = 680
        super().__init__(title, parent, width, 520)
        self._theme = theme
        self._items = items
        self._seen: set[int] = set()  # The items whose end was in sight.

        self._path = self._build_trust_label("", "mono")
        self._means = self._build_trust_label("", "muted")
        self._text: ExactTextView | None = None
        self._length = self._build_trust_label("", "faint")
        self._agree = QPushButton(tr("Trust"), self)
        self._build_list_and_filter()
        self._right = build_column(self._path, self._means, self._length)
        across = build_row(build_column(self.filter, self._list), (self._right, 1), spacing=16)
        build_column((across, 1), self._build_trust_buttons(trust), owner=self, margins=20)
        self._list.currentRowChanged.connect(self._show_trust_item)
        self._list.setCurrentRow(0)

    def _build_list_and_filter(self) -> None:
        self._list = QListWidget(self)
        self._list.setFixedWidth(240)
        self._list.setAccessibleName(tr("New or changed items"))
        for item in self._items:
            kind = translate_name("kind of item", item.kind, otherwise=item.kind)
            self._list.addItem(f"{kind}: {mark_on_one_line(item.name)}")
        self.filter = build_line_edit(tr("Filter"), tr("Filter"), self, clearButtonEnabled=True)
        self.filter.textChanged.connect(self._filter_items)
        has_many = len(self._items) > 1
        self.filter.setVisible(has_many)
        self._list.setVisible(has_many)

    def _filter_items(self, words: str) -> None:
        """Shows only items whose kind or name contains these words."""
        matching_items: list[QListWidgetItem] = []
        for row in range(self._list.count()):
            item = self._list.item(row)
            is_match = words.casefold() in item.text().casefold()
            item.setHidden(not is_match)
            if is_match:
                matching_items.append(item)
        if matching_items and self._list.currentItem() not in matching_items:
            self._list.setCurrentItem(matching_items[0])

    def _show_trust_item(self, row: int) -> None:
        """Shows an item: where it is, what trusting it means, and its whole text."""
        item = self._items[row]
        self._path.setText(mark_on_one_line(str(item.path)))
        explanations = [translate_name("effect of trust", item.kind)]
        for note in item.notes:
            explanations.append(translate_sentences(note))
        self._means.setText("\n".join(explanations))

        if self._text is not None:
            self._right.removeWidget(self._text)
            self._text.hide()
            self._text.deleteLater()
        text = ExactTextView(self._theme, item.text, self)
        text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        text.setAccessibleName(tr("Contents of the file"))
        self._text = text
        self._right.insertWidget(2, text, 1)
        text.reading_state_changed.connect(
            lambda: self._update_agree_button_as_item_is_read(row, text)
        )
        self._update_agree_button_as_item_is_read(row, text)

    def _update_agree_button_as_item_is_read(self, row: int, text: ExactTextView) -> None:
        """Marks an item as read once its end was in sight. The button trusts only what
        was read, and says how much that is.
        """
        if text is not self._text:
            return
        has_many = len(self._items) > 1
        self._length.setText(text.describe_length_and_warnings())
        if text.is_end_seen and row not in self._seen:
            self._seen.add(row)
            if has_many:
                list_item = self._list.item(row)
                list_item.setText(f"✓ {list_item.text()}")
        self._agree.setEnabled(bool(self._seen))
        if has_many:
            label = tr(
                "Trust the {n} items you have read (of {all})",
                n=format_number(len(self._seen)),
                all=format_number(len(self._items)),
            )
            self._agree.setText(label)

    def _build_trust_label(self, words: str, look: str) -> QLabel:
        return build_plain_label(words, look, self, wraps=look != "mono")

    def _build_trust_buttons(
        self, trust: Callable[[Sequence[ProjectItem]], object]
    ) -> QDialogButtonBox:
        buttons = QDialogButtonBox(self)
        buttons.addButton(self._agree, QDialogButtonBox.ButtonRole.AcceptRole)
        not_now = buttons.addButton(tr("Not now"), QDialogButtonBox.ButtonRole.RejectRole)
        # Return must not trust what nobody has looked at.
        make_default_button(not_now)
        buttons.accepted.connect(lambda: trust([self._items[row] for row in sorted(self._seen)]))
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        return buttons


def describe_untrusted_items(items: Sequence[ProjectItem]) -> str:
    item = items[0]
    if len(items) > 1:
        return tr(
            "This folder contains {n} items for agents. These items are used only after you trust them.",
            n=format_number(len(items)),
        )
    return translate_name("untrusted item", item.kind, otherwise=item.name, name=item.name)
