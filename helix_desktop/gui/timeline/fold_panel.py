"""The panel of one fold: its figures, its text, what the text replaced, and the undo."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QPlainTextEdit, QPushButton, QSizePolicy, QStackedWidget, QWidget

from helix_desktop.engine.facts import Folded, FoldKind, PartRef
from helix_desktop.engine.fold_kinds import KINDS_OF_NOTES, KINDS_OF_SUMMARIES
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.chip_labels import ChipLabel
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.fold_descriptions import (
    count_covered_messages,
    describe_kept_details,
    describe_reason,
    has_poor_summary,
    split_agent_compaction,
)
from helix_desktop.gui.common.widgets import (
    build_plain_label,
    build_push_button,
    build_surface,
    set_surface_look,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row, reserve_height_for_width
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import TimelineEvent
from helix_desktop.gui.transcript.basic_boxes import (
    ActionLineBox,
    LayoutBox,
    LinkAddress,
    SectionKey,
    ToggleSection,
    build_heading_box,
    build_note_box,
)
from helix_desktop.gui.transcript.call_and_fold_boxes import ChipRowBox, ToolCallBox
from helix_desktop.gui.transcript.chat_actions import OpenEntry, ShowInChat
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.markdown_boxes import build_boxes_from_markdown
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.tool_call_lines import CallStatus, ToolCallLine, build_entry_chip
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.views.boxes_view import BoxesView

_DOCUMENT_KINDS = KINDS_OF_NOTES | KINDS_OF_SUMMARIES
MOST_UNKNOWN_NAMES = 50
MOST_OUTPUT_BOXES = 200
MOST_EXCERPTS = 20
LEAST_DOCUMENT = 60  # The least height of the document in a low page, in pixels.
LONGEST_REASON = 1_000  # In characters. It may quote a provider.
_BEFORE_AFTER: SectionKey = ("before and after",)


@dataclass(frozen=True, slots=True)
class ShownFold:
    """What the panel shows of an event. `earlier`: the words of the button that compares with an
    older version, empty if there is none. `unknown_names`: what stands in the document and in
    none of the messages, with its sentence. `effect_of_undo`: what an Undo puts into the context.
    `can_be_undone`: that fits.
    """

    event: TimelineEvent
    earlier: str
    unknown_names: Sequence[str] = ()
    effect_of_undo: str = ""
    can_be_undone: bool = True

    @property
    def document_text(self) -> str:
        if not self.event.made_folds:
            return ""
        return self.event.current_folds[0].text

    def is_fold_undone(self, fold: str) -> bool:
        return fold not in self.event.history.branch.live

    def folds_to_undo_or_redo(self) -> list[Folded]:
        """Returns the event's folds that can be undone or redone. An output that was
        deleted cannot be restored, nor can a fold that a rewind left behind.
        """
        folds: list[Folded] = []
        for fold in self.event.current_folds:
            is_forgotten = self.event.history.is_output_forgotten(fold)
            if not is_forgotten and not self.is_fold_left_behind(fold.fold):
                folds.append(fold)
        return folds

    def is_fold_left_behind(self, fold: str) -> bool:
        """Whether the conversation was rewound to before the fold."""
        return self.event.history.find_fold(fold) is None

    def state_to_draw(self) -> tuple[object, ...]:
        """Returns all that the panel's look depends on, to be compared with what was drawn."""
        undone = [self.is_fold_undone(fold.fold) for fold in self.event.current_folds]
        return (
            self.event.current_folds,
            self.folds_to_undo_or_redo(),
            undone,
            self.earlier,
            self.unknown_names,
            self.effect_of_undo,
            self.can_be_undone,
        )


class FoldPanel(QWidget):
    """`wanted` carries values of `chat_actions`. The other signals are commands on the
    shown fold.
    """

    wanted = Signal(object)
    undo_wanted = Signal(object)
    redo_wanted = Signal(object)
    compare_wanted = Signal()
    before_after_wanted = Signal()
    edited = Signal(str, str)

    def __init__(self, theme: Theme) -> None:
        """Builds the panel, which shows nothing until a row of the list is chosen."""
        super().__init__()
        self._theme = theme
        self._shown: ShownFold | None = None
        self._drawn_state: object = None  # The panel is redrawn only if this state has changed.
        self._drafts: dict[tuple[str, str], str] = {}  # Unsaved edits, by conversation and fold.
        self._title = ElidedLabel(self)
        set_widget_look(self._title, "title")
        self._kept_details_label = ChipLabel(theme, self)
        self._edit = build_push_button(tr("Edit"), self, self._start_document_edit)
        self._compare = build_push_button("", self, self.compare_wanted.emit)
        self.undo_button = build_push_button(tr("Undo"), self, self._undo_or_redo_fold)
        self._figures = build_plain_label("", "small", self)
        self.document = BoxesView(theme, self, pad=(16, 4))
        self.document.setAccessibleName(tr("The text shown in place of the original"))
        theme.keep_lengths_scaled(self.document, self.document.setMinimumHeight, LEAST_DOCUMENT)
        self.document.intent_requested.connect(self._carry_out_document_action)
        self._editor = QPlainTextEdit(self, tabChangesFocus=True)
        self._editor.setAccessibleName(tr("The text shown in place of the original"))
        set_widget_look(self._editor, "mono")
        self._stack = QStackedWidget(self)
        self._stack.addWidget(self.document)
        self._edit_page = self._build_edit_page()
        self._stack.addWidget(self._edit_page)
        self._stack.currentChanged.connect(self._reserve_height_of_editor_if_shown)
        self._reserve_height_of_editor_if_shown()
        self._lay_out_fold_panel()
        set_surface_look(self, "page")
        self.clear_fold_panel()

    def _lay_out_fold_panel(self) -> None:
        """Arranges the panel: title, buttons and figures at the top, below them the
        text that the model sees, or the editor for it.
        """
        # On one surface, so that the buttons move to the next line together.
        buttons_surface = build_surface(self, "plain")
        buttons = [self._edit, self._compare, self.undo_button]
        buttons_row = build_row(*buttons, owner=buttons_surface, margins=0, wraps=True)
        head = build_row(self._title, self._kept_details_label, 1, buttons_surface, wraps=True)
        self._theme.keep_lengths_scaled(self, buttons_row.setSpacing, 8)
        self._theme.keep_lengths_scaled(self, head.setSpacing, 8)
        top = build_column(head, self._figures)
        self._theme.keep_lengths_scaled(self, top.setContentsMargins, 16, 14, 16, 0)
        self._theme.keep_lengths_scaled(self, top.setSpacing, 6)
        build_column(top, (self._stack, 1), owner=self, margins=0)
        self._theme.keep_lengths_scaled(self, self.setMinimumWidth, 260)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        reserve_height_for_width(self)

    def _reserve_height_of_editor_if_shown(self) -> None:
        """A low page has no room for the editor's buttons while nobody edits."""
        vertical_policy = QSizePolicy.Policy.Ignored
        if self._stack.currentWidget() is self._edit_page:
            vertical_policy = QSizePolicy.Policy.Preferred
        self._edit_page.setSizePolicy(QSizePolicy.Policy.Preferred, vertical_policy)
        self._stack.updateGeometry()
        reserve_height_for_width(self)

    def _enable_if_text_is_left(self, save_button: QPushButton) -> None:
        """A document without a word would leave the model nothing of what it stands for."""
        has_text = bool(self._editor.toPlainText().strip())
        save_button.setEnabled(has_text)

    def _build_edit_page(self) -> QWidget:
        page = QWidget(self)
        cancel = build_push_button(tr("Cancel"), self, self._discard_document_edit)
        save = build_push_button(tr("Save my changes"), self, self._save_document_edit, "primary")
        self._editor.textChanged.connect(partial(self._enable_if_text_is_left, save))
        button_row = build_row(1, cancel, save)
        column = build_column((self._editor, 1), button_row, owner=page)
        self._theme.keep_lengths_scaled(self, column.setContentsMargins, 16, 0, 16, 14)
        return page

    def clear_fold_panel(self) -> None:
        """Shows no shortened place, only a sentence on what this panel is for. An edit
        that was not saved is kept as a draft.
        """
        self._save_open_draft()
        self._shown = None
        self._title.set_elided_text(tr("What was shortened"))
        self._kept_details_label.hide()
        self._edit.hide()
        self._compare.hide()
        self.undo_button.hide()
        self._figures.hide()
        empty = tr(
            "Everything that was shortened is listed on this page. Select a line to see what the model sees "
            "instead of the original, to compare the two, or to undo it."
        )
        self.document.show_boxes(lambda ink, width: [build_note_box(ink, width, empty)])
        self._stack.setCurrentIndex(0)

    def show_fold_document(self, shown: ShownFold) -> None:
        """Shows a fold. An unsaved edit of it is shown again."""
        is_same_event = self._shown is not None and self._shown.event is shown.event
        if not is_same_event:
            self._save_open_draft()
        self._shown = shown
        drawn_state = shown.state_to_draw()
        if is_same_event and drawn_state == self._drawn_state:
            return
        self._drawn_state = drawn_state
        self._update_heading(shown)
        if not is_same_event:
            self._show_draft_or_document(shown)
        reserve_height_for_width(self)
        self.document.show_boxes(
            lambda ink, width: self._build_fold_boxes(shown, ink, width), keep_place=is_same_event
        )

    def _show_draft_or_document(self, shown: ShownFold) -> None:
        draft = self._drafts.get(_draft_key(shown))
        can_be_edited = not self._edit.isHidden()
        self._editor.setPlainText(draft or "")
        if draft is not None and can_be_edited:
            self._stack.setCurrentWidget(self._edit_page)
        else:
            self._stack.setCurrentWidget(self.document)

    def _update_heading(self, shown: ShownFold) -> None:
        """Shows the title, the figures, and the buttons for what can be done with the fold."""
        event = shown.event
        is_in_force = event.has_fold_in_force
        self._title.set_elided_text(fold_sentences.describe_event_title(event))
        self.undo_button.setVisible(bool(shown.folds_to_undo_or_redo()))
        self.undo_button.setToolTip(shown.effect_of_undo)
        self.undo_button.setEnabled(shown.can_be_undone)
        if is_in_force:
            self.undo_button.setText(tr("Undo"))
        else:
            self.undo_button.setText(tr("Redo"))
        self._compare.setVisible(bool(shown.earlier))
        self._compare.setText(shown.earlier)
        if not event.current_folds:
            self._kept_details_label.set_chip_text("", "strong")
            self._figures.hide()
            self._edit.hide()
            return
        fold = event.current_folds[0]
        look = "strong"
        if has_poor_summary(fold):
            look = "danger"
        self._kept_details_label.set_chip_text(describe_kept_details(fold), look)
        # Lines may break between figures, but not between a number and its unit.
        figures = fold_sentences.describe_fold_figures(event).replace(" ", "\u00a0")
        self._figures.setText(figures.replace("·\u00a0", "· "))
        self._figures.show()
        self._edit.setVisible(fold.kind in _DOCUMENT_KINDS and is_in_force)

    def _build_fold_boxes(
        self, shown: ShownFold, ink: DrawingStyle, width: float
    ) -> Iterator[LayoutBox]:
        event = shown.event
        if event.happened is not None:
            for words in fold_sentences.describe_what_happened(event):
                yield build_note_box(ink, width, words, font=ink.text, colour="text", gap=4)
            return
        if not event.current_folds:
            yield build_note_box(
                ink, width, tr("The conversation starts here. Nothing has been shortened yet.")
            )
            return
        reason = describe_reason(event.current_folds[0])[:LONGEST_REASON]
        if reason:
            words = tr("Why it was shortened: {reason}", reason=reason)
            yield build_note_box(ink, width, words, font=ink.text, colour="text", gap=4)
        if event.is_left_behind:
            words = tr("This is no longer part of the conversation, so the model does not see it.")
            yield build_note_box(ink, width, words, font=ink.text, colour="text", gap=4)
        elif _is_summary_of_ours_undone(event):
            words = tr(
                "You undid this, so the model gets these messages as they are, and they are not shortened again. Later messages can be."
            )
            yield build_note_box(ink, width, words, font=ink.text, colour="text", gap=4)
        if shown.effect_of_undo:
            yield build_note_box(ink, width, shown.effect_of_undo, gap=4)
        if event.fold_kind in _DOCUMENT_KINDS:
            yield from _build_document_boxes(shown.document_text, ink, width)
        else:
            yield from _build_covered_output_boxes(shown, ink, width)
        yield from _build_replaced_boxes(shown, ink, width)

    def _carry_out_document_action(self, act: object) -> None:
        """Does what was pressed in the document: goes to the message that a line came
        from, opens the comparison, undoes or redoes one of several folds, or hands on
        what only the window can do.
        """
        if self._shown is None:
            return
        if isinstance(act, LinkAddress) and act.address.startswith("helix-seq:"):
            seq = int(act.address.removeprefix("helix-seq:"))
            self.wanted.emit(ShowInChat(self._shown.event.conversation, seq))
        elif not isinstance(act, ToggleSection):
            self.wanted.emit(act)
        elif act.key == _BEFORE_AFTER:
            self.before_after_wanted.emit()
        elif act.key[:1] == ("fold",):
            fold = str(act.key[1])
            if self._shown.is_fold_undone(fold):
                self.redo_wanted.emit([fold])
            else:
                self.undo_wanted.emit([fold])

    def _undo_or_redo_fold(self) -> None:
        if self._shown is None:
            return
        self._save_open_draft()
        self._stack.setCurrentIndex(0)
        folds = [fold.fold for fold in self._shown.folds_to_undo_or_redo()]
        # The same button is the opposite now: Return, pressed once more, would take this back.
        if self.undo_button.hasFocus():
            self.document.setFocus(Qt.FocusReason.OtherFocusReason)
        if self._shown.event.has_fold_in_force:
            self.undo_wanted.emit(folds)
        else:
            self.redo_wanted.emit(folds)

    def _start_document_edit(self) -> None:
        if self._shown is not None:
            self._editor.setPlainText(self._shown.document_text)
            self._stack.setCurrentIndex(1)
            self._editor.setFocus()

    def restore_unsaved_text(self, event: TimelineEvent, text: str) -> None:
        """Puts a text that could not be saved back into the editor of its fold."""
        self._drafts[event.conversation, event.first_fold_id] = text
        is_shown = self._shown is not None and self._shown.event is event
        if is_shown and self._stack.currentIndex() == 0:
            self._editor.setPlainText(text)
            self._stack.setCurrentIndex(1)

    def _save_open_draft(self) -> None:
        if self._shown is not None and self._stack.currentIndex() == 1:
            self._drafts[_draft_key(self._shown)] = self._editor.toPlainText()

    def _discard_document_edit(self) -> None:
        if self._shown is not None:
            self._drafts.pop(_draft_key(self._shown), None)
        self._stack.setCurrentIndex(0)

    def _save_document_edit(self) -> None:
        text = self._editor.toPlainText()
        shown = self._shown
        self._discard_document_edit()
        if shown is not None and text != shown.document_text:
            self.edited.emit(shown.event.first_fold_id, text)


def _is_summary_of_ours_undone(event: TimelineEvent) -> bool:
    """Whether the user undid a summary or notes that this program wrote, not an agent's own."""
    if event.fold_kind not in _DOCUMENT_KINDS or event.has_fold_in_force:
        return False
    agent, _trigger = split_agent_compaction(event.current_folds[0])
    return not agent


def _draft_key(shown: ShownFold) -> tuple[str, str]:
    return shown.event.conversation, shown.event.first_fold_id


def _build_document_boxes(text: str, ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
    """Builds the sections of a document with links to their sources, without what is
    only for the model.
    """
    sections = fold_sentences.split_document_sections(text)
    has_headings = any(name for name, _ in sections)
    for heading, written in sections:
        # What stands before the first heading is for the model.
        if has_headings and not heading:
            continue
        body = written
        if heading:
            yield build_heading_box(ink, width, heading, gap=12)
        else:
            body = _without_line_for_model(written)
        markdown = fold_sentences.link_hashes_and_messages(body)
        yield from build_boxes_from_markdown(ink, width, markdown)
        digests = fold_sentences.find_entries_named_in_document(body)
        if digests:
            chips = [build_entry_chip(digest) for digest in digests]
            yield ChipRowBox(ink, width, chips, gap=4)


def _without_line_for_model(text: str) -> str:
    """Removes a first line in brackets, which is for the model."""
    if not text.startswith("["):
        return text
    _first_line, _newline, body = text.partition("\n")
    return body.strip()


def _build_covered_output_boxes(
    shown: ShownFold, ink: DrawingStyle, width: float
) -> Iterator[LayoutBox]:
    """Builds a box for each output that a batch of folds covers, with its entry.
    “Undo” beside one undoes one fold.
    """
    folds = shown.event.current_folds
    gap = 0
    if len(folds) > 1 and not shown.event.is_left_behind:
        difference = tr(
            "The button “Undo” brings back all of these outputs, “Undo” beside an output only that one."
        )
        if not shown.event.has_fold_in_force:
            difference = tr(
                "The button “Redo” shortens all of these outputs again, “Redo” beside an output only that one."
            )
        yield build_note_box(ink, width, difference)
        gap = 6
    for fold in folds[:MOST_OUTPUT_BOXES]:
        yield _build_covered_output_box(shown, fold, ink, width, gap)
        gap = 6
    if shown.event.fold_kind is FoldKind.EXCERPT:
        heading = tr("What the model sees")
        if not shown.event.has_fold_in_force:
            heading = tr("What the model saw")
        for fold in folds[:MOST_EXCERPTS]:
            yield build_heading_box(ink, width, heading, gap=12)
            # Word for word, with all 64 digits of a hash.
            excerpt = make_safe_text(fold.text)
            yield build_note_box(ink, width, excerpt, font=ink.mono, colour="text")


def _build_covered_output_box(
    shown: ShownFold, fold: Folded, ink: DrawingStyle, width: float, gap: int
) -> LayoutBox:
    """Builds the line of one output that the shown row shortened. A click on it opens the
    original; the words at its right restore it, or shorten it again.
    """
    open_original: OpenEntry | ToggleSection = ToggleSection(_BEFORE_AFTER)
    if fold.entries:
        open_original = OpenEntry(fold.entries[0])
    line = _describe_covered_output(shown, fold)
    if shown.event.history.is_output_forgotten(fold):
        # It cannot be restored, so the words at the right open it like the line.
        line = replace(line, outcome=tr("permanently removed"))
        return ToolCallBox(ink, width, line, open_original, right=open_original, gap=gap)
    has_button_above = len(shown.event.current_folds) == 1
    if has_button_above or shown.is_fold_left_behind(fold.fold):
        # The button above does the same for the only output, so no words stand at the right.
        line = replace(line, outcome="")
        return ToolCallBox(ink, width, line, open_original, gap=gap)
    restore_or_fold = ToggleSection(("fold", fold.fold))
    return ToolCallBox(ink, width, line, open_original, right=restore_or_fold, gap=gap)


def _describe_covered_output(shown: ShownFold, fold: Folded) -> ToolCallLine:
    name = tr("output")
    if isinstance(fold.cover, PartRef):
        name = fold_sentences.name_covered_part(shown.event, fold.cover) or name
    chips = tuple(build_entry_chip(entry) for entry in fold.entries[:1])
    if shown.is_fold_undone(fold.fold):
        return ToolCallLine(name, CallStatus.DONE, chips, tr("Redo"))
    return ToolCallLine(name, CallStatus.CACHED, chips, tr("Undo"))


def _build_replaced_boxes(shown: ShownFold, ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
    """Yields what stands below the text of a summary or an excerpt: names that it invented, its
    figures, and at last what it replaces.
    """
    event = shown.event
    fold = event.current_folds[0]
    if shown.unknown_names:
        heading = tr("In the summary, but not in the messages that it replaces")
        yield build_heading_box(ink, width, heading, gap=12)
        lines = [f"• {name}" for name in shown.unknown_names[:MOST_UNKNOWN_NAMES]]
        yield build_note_box(ink, width, "\n".join(lines), font=ink.text)
    details = fold_sentences.describe_fold_details(event)
    if details:
        yield build_heading_box(ink, width, tr("Details"), gap=12)
        yield build_note_box(ink, width, details, font=ink.text)
        if fold.entries:
            yield ChipRowBox(ink, width, [build_entry_chip(fold.entries[0])], gap=4)

    if _replaces_outputs(event):
        heading = tr("Replaced outputs")
        sentences = _describe_replaced_outputs(shown)
    else:
        heading = tr("Replaced messages")
        sentences = _describe_replaced_messages(event)
    yield build_heading_box(ink, width, heading, gap=12)
    for sentence in sentences:
        yield build_note_box(ink, width, sentence, font=ink.text)
    label = tr("Compare what the model saw before and after")
    yield ActionLineBox(ink, width, label, ToggleSection(_BEFORE_AFTER), gap=2)


def _replaces_outputs(event: TimelineEvent) -> bool:
    for fold in event.current_folds:
        if isinstance(fold.cover, PartRef):
            return True
    return False


def _describe_replaced_outputs(shown: ShownFold) -> list[str]:
    """Says how many of the outputs that were replaced are still in the cache, and how many were
    permanently removed since then.
    """
    sentences = []
    kept_count = len(shown.folds_to_undo_or_redo())
    removed_count = len(shown.event.current_folds) - kept_count
    if removed_count:
        sentences.append(
            format_count(
                removed_count,
                "{n} output was permanently removed.",
                "{n} outputs were permanently removed.",
            )
        )
    if kept_count:
        sentences.append(
            format_count(
                kept_count,
                "{n} output, still in the cache.",
                "{n} outputs, all still in the cache.",
            )
        )
    return sentences


def _describe_replaced_messages(event: TimelineEvent) -> list[str]:
    covered = count_covered_messages(event.current_folds[0], event.history.facts)
    if not covered:
        return []
    sentence = format_count(
        covered, "{n} message, still in the history.", "{n} messages, all still in the history."
    )
    return [sentence]
