"""Shows permission questions above the composer: exactly what will be done, and for how long it is
allowed.

A question never takes the focus from a user who is writing; the shortcuts on its
buttons work everywhere in the window. The action is shown exactly
(`engine/hidden_characters.py`), built from the value that will run, and cannot be
allowed before its end has been shown.
"""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from PySide6 import QtWidgets
from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QPaintEvent, QResizeEvent

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_text
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.programs_row import build_programs_row
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences, translate_title
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import format_number, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench

if TYPE_CHECKING:
    from helix_desktop.gui.chat.consent_difference_view import ExactDifferenceView
    from helix_desktop.gui.chat.schema_form import SchemaForm
    from helix_desktop.gui.common.consent_text_view import ExactTextView

LOW = 400  # If a narrow window is lower than this, only the question and its buttons are shown.
WIDE = 1_080  # The width in pixels of a card with many long lines.
# A preview with more lines than MANY, and one longer than LONG_LINE, gets a wide card.
MANY = 8
LONG_LINE = 76
# The same for lines that fit only in two columns.
MANY_IN_COLUMNS = 36
LONG_IN_COLUMN = 36
WORDS = 120  # The minimum width in pixels of the field in which the user says what to do instead.
NAMED = 5  # At most this many of the paths that an undo would not restore are listed by name.
COMMANDS = ("run_command",)
ONE_LINE = 440  # Words of at most this many pixels stand on one line in every window.
SHORT_TITLE = 48  # A title of at most this many characters fits one line of every window.
LONGEST_NAMED_RULE = 40  # A longer rule stands above the buttons alone.
MOST_NAMED_PROGRAMS = 3  # A button names at most this many programs; the row above it names all.
LONGEST_FOLDER = 32  # Of a longer folder's path, a button shows only the end.
LONGEST = 2_000  # At most this many characters of a sub-agent's task are shown.
READING = 0.7  # A key pressed within this many seconds was not meant for the card.
SHOWN = Qt.FocusReason.TabFocusReason  # With this reason, a preview shows that it has the focus.
_PRESSING = {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}


def is_asked_by_server(question: PermissionQuestion) -> bool:
    """Whether an MCP server asks the user for something, under its own name (elicitation)."""
    return bool(question.form) or question.call.name.endswith("__elicitation")


def build_question_announcement(question: PermissionQuestion) -> str:
    title = question_title(question)
    asking_agent = describe_asking_agent(question)
    # A server asks for values, not for a permission.
    if not is_asked_by_server(question):
        title = tr("Permission needed: {what}", what=title)
    return f"{title} {asking_agent}".strip()


def question_title(question: PermissionQuestion) -> str:
    return translate_title(question.title, mark_on_one_line)


def describe_uncovered_files(bench: Workbench | None) -> str:
    """Describes which files in a workspace an undo of a command would not restore."""
    with suppress(HelixError):  # This workspace may have no folder.
        if bench is not None:
            names = [left.path for left in bench.file_changes.list_uncovered_paths()]
            return format_uncovered_files(bench.file_changes.checkpoint_progress.state, names)
    return ""


def format_uncovered_files(state: str, names: Sequence[str]) -> str:
    """Lists what an undo of a command would not restore. Empty if it restores everything."""
    if state == "off":
        return tr("Checkpoints are turned off, so this command's changes cannot be undone.")
    if not names:
        return ""
    shown = [mark_on_one_line(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        shown.append(tr("and {n} more", n=format_number(len(names) - NAMED)))
    return tr("Undo cannot restore: {names}", names=", ".join(shown))


def describe_asking_agent(question: PermissionQuestion) -> str:
    """Names the sub-agent, hook or command that asks; empty for the conversation's own agent."""
    if question.command:
        return tr(
            "Your slash command /{name} runs this command.", name=mark_on_one_line(question.command)
        )
    if not question.by:
        return ""
    task = mark_text(question.by[:LONGEST])
    words = tr("Asked by a sub-agent working on: {task}", task=task)
    left_out = len(question.by) - LONGEST
    if left_out > 0:
        words += tr(" … {n} more characters", n=format_number(left_out))
    return words


def describe_allowed_programs(rule: str, programs: Sequence[str]) -> str:
    """The words of the button that adds this rule, which is for these programs."""
    covers_whole_programs = rule == ", ".join(f"{name} *" for name in programs)
    if not covers_whole_programs:
        # The rule allows fewer commands than the programs' names would say.
        if len(rule) > LONGEST_NAMED_RULE:
            return tr("Always allow by this rule")
        return tr("Always allow {programs} here", programs=mark_on_one_line(rule))
    if len(programs) > MOST_NAMED_PROGRAMS:
        return tr("Always allow these {n} programs here", n=format_number(len(programs)))
    names = [mark_on_one_line(name) for name in programs]
    listed = names[0]
    if len(names) > 1:
        listed = tr("{names} and {last}", names=", ".join(names[:-1]), last=names[-1])
    return tr("Always allow {programs} here", programs=listed)


def describe_allowed_folder(folder: str) -> str:
    """The words on the button that allows edits in a folder from now on. ".": the workspace."""
    if folder == ".":
        return tr("Always allow in this workspace")
    shown = mark_on_one_line(folder)
    if len(shown) > LONGEST_FOLDER:
        shown = f"…{shown[1 - LONGEST_FOLDER :]}"
    return tr("Always allow in {folder}", folder=shown)


class PermissionQuestionCard(QtWidgets.QWidget):
    """The card of one question. Keys that it does not use reach the page."""

    answered = Signal(object)
    whole_text_seen = Signal()

    def __init__(
        self,
        theme: Theme,
        question: PermissionQuestion,
        parent: QtWidgets.QWidget,
        uncovered: str = "",
    ) -> None:
        super().__init__(parent, accessibleName=build_question_announcement(question))
        self._theme = theme
        self.question = question
        # The time at which the card got the focus.
        self._taken = -math.inf
        # The time at which the text was painted, or infinity before that.
        self._read_since = math.inf
        # Whether all of the question has been in sight since it was asked.
        self._is_whole_text_seen = False
        self._form: SchemaForm | None = None
        # By button: the window action that does the same.
        self._actions: dict[QtWidgets.QPushButton, str] = {}
        self._keys: Mapping[str, str] = {}
        self._answers: QtWidgets.QVBoxLayout | None = None
        self._columns: QtWidgets.QPushButton | None = None
        self._below_change: QtWidgets.QHBoxLayout | None = None
        self._change: ExactDifferenceView | None = None
        # The missing pixels and the width for which two columns were last tried.
        self._tried = (0, 0)
        self._has_user_chosen_columns = False
        widgets.set_surface_look(self, "ask")
        self._inside = build_column(owner=self, margins=(14, 11, 14, 11), spacing=8)
        self._head = build_row(spacing=10, wraps=True)
        self._inside.addLayout(self._head)
        self._why = self._build_title_and_reason()
        asking_agent = describe_asking_agent(question)
        if asking_agent:
            self._build_question_label(asking_agent, "small")
        if uncovered:
            self._build_question_label(uncovered, "small")
        self._allowing: list[QtWidgets.QPushButton] = []
        self._plan: QtWidgets.QPlainTextEdit | None = None
        self._preview: ExactTextView | ExactDifferenceView | None = None
        if question.plan:
            self._plan = self._build_plan_editor()
        elif question.preview:
            self._preview = self._build_preview()
        if question.programs:
            self._inside.addLayout(build_programs_row(question.programs, self))
        if question.form:
            self._form = self._build_form()
        self._wrong = self._build_question_label("", "danger")
        self._wrong.hide()
        self._first: QtWidgets.QWidget = self
        self._words = QtWidgets.QLineEdit(self)
        self._rule: QtWidgets.QComboBox | None = None
        if is_asked_by_server(question):
            self._inside.addLayout(self._build_server_buttons())
        else:
            if question.rules:
                self._rule = self._build_rule_chooser()
            self._inside.addLayout(self._build_answer_buttons())
        self._enable_buttons_if_preview_is_read()

    def allow_or_show_next_part(self, scope: str) -> None:
        """Allows it for an offered scope, or shows the preview's next part if its end
        was not shown.
        """
        if scope not in self.question.scopes:
            return
        if self._preview is not None and not self._preview.is_end_seen:
            self._preview.show_next_part()
            return
        values = ""
        if self._plan is not None:
            values = self._plan.toPlainText()
        elif self._form is not None:
            try:
                values = self._form.values_as_json()
            except InvalidInput as error:
                self._wrong.setText(translate_sentences(error.what))
                self._wrong.show()
                return
        rule = self._chosen_rule
        self.answered.emit(PermissionAnswer(allowed=True, scope=scope, values=values, rule=rule))

    @property
    def _chosen_rule(self) -> int:
        if self._rule is None:
            return 0
        return self._rule.currentIndex()

    def allow_by_shortcut(self, scope: str) -> None:
        """Allows it by a shortcut, if the card was visible long enough to be read."""
        if not self.is_in_sight() or time.monotonic() - self._read_since < READING:
            return
        if self._preview is not None and not self._preview.is_end_seen:
            # The user must have time to read the next part, too.
            self._read_since = time.monotonic()
        self.allow_or_show_next_part(scope)

    def is_in_sight(self) -> bool:
        """Whether the card is shown and not covered by another window, such as the settings."""
        if not self.isVisible():
            return False
        own_window = self.window()
        place = QRect(self.mapToGlobal(QPoint()), self.size())
        # Menus and tooltips are top-level widgets, too, but they hide a card only for a moment.
        covering_kinds = (Qt.WindowType.Window, Qt.WindowType.Dialog)
        for window in QtWidgets.QApplication.topLevelWidgets():
            if window is own_window or not window.isVisible():
                continue
            if window.windowType() not in covering_kinds:
                continue
            if window.frameGeometry().intersects(place):
                return False
        return True

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        self._read_since = min(self._read_since, time.monotonic())
        self._note_whole_text_seen()

    def _note_whole_text_seen(self) -> None:
        """Notes once that the card was in sight and the end of its text was shown."""
        is_end_seen = self._preview is None or self._preview.is_end_seen
        was_painted = self._read_since < math.inf
        if self._is_whole_text_seen or not is_end_seen or not was_painted:
            return
        if self.is_in_sight():
            self._is_whole_text_seen = True
            self.whole_text_seen.emit()

    @property
    def can_be_allowed_with_others(self) -> bool:
        """Whether one press may allow this question and others: it is about a permission, not
        about values or a plan, and all of it has been in sight.
        """
        question = self.question
        if is_asked_by_server(question) or question.plan or "once" not in question.scopes:
            return False
        return self._is_whole_text_seen

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._read_since = math.inf

    def refuse_permission(self) -> None:
        self.answered.emit(PermissionAnswer(allowed=False, words=self._words.text().strip()))

    def focus_first_control(self) -> None:
        self._taken = time.monotonic()
        first = self._first
        if not first.isEnabled() and self._preview is not None:
            first = self._preview
        first.setFocus(SHOWN)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Ignores a press too early to be meant for this question, and the second click
        of a double click.
        """
        now = time.monotonic()
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            is_too_early = event.isAutoRepeat() or now - self._taken < READING
            return is_too_early and event.key() in _PRESSING
        is_double_click = event.type() == QEvent.Type.MouseButtonDblClick
        return is_double_click and now - self._read_since < READING

    def _build_question_label(self, text: str, look: str) -> QtWidgets.QLabel:
        label = widgets.build_plain_label(text, look, self)
        self._inside.addWidget(label)
        return label

    def _build_title_and_reason(self) -> QtWidgets.QLabel:
        """The question, and beside it in grey why it is asked, or below it if that is long."""
        question = self.question
        title = question_title(question)
        if not question.plan and not is_asked_by_server(question):
            title = tr("{what}?", what=title)
        title_label = widgets.build_plain_label(
            title, "title", self, wraps=len(title) > SHORT_TITLE
        )
        self._head.addWidget(title_label)
        why = question.why
        # What a server says without a form is its own text, which no translation may change.
        if question.form or not is_asked_by_server(question):
            why = translate_sentences(why)
        sentence = mark_text(why[:1].upper() + why[1:])
        label = widgets.build_plain_label(sentence, "small", self)
        label.setVisible(bool(why))
        if self.fontMetrics().horizontalAdvance(f"{title} {sentence}") <= ONE_LINE:
            label.setWordWrap(False)
            self._head.addWidget(label)
        else:
            self._inside.addWidget(label)
        self._head.addStretch(1)
        return label

    def _build_form(self) -> "SchemaForm":
        # Few conversations ask for a form, so the start does not wait for this module.
        from helix_desktop.gui.chat import schema_form

        form = schema_form.SchemaForm(self.question.form, self)
        form.entered.connect(self._open_page_or_send_form_values)
        self._inside.addWidget(form)
        return form

    def _build_plan_editor(self) -> QtWidgets.QPlainTextEdit:
        # What is approved is the text in this field, so nothing in it may be hidden.
        text = QtWidgets.QPlainTextEdit(make_safe_text(self.question.preview), self)
        text.setProperty("look", "code")
        text.setAccessibleName(tr("Plan (can be edited)"))
        text.setMinimumHeight(self._theme.zoomed_pixels(160))
        self._inside.addWidget(text)
        return text

    def _build_preview(self) -> "ExactTextView | ExactDifferenceView":
        from helix_desktop.gui.chat.consent_difference_view import (
            ExactDifferenceView,
            build_exact_preview,
        )

        question = self.question
        is_command = question.call.name in COMMANDS
        shown = build_exact_preview(
            self._theme, question.preview, question.title, self, is_command=is_command
        )
        if isinstance(shown, ExactDifferenceView):
            self._change = shown
        shown.setAccessibleName(tr("Exactly what will run"))
        shown.reading_state_changed.connect(self._enable_buttons_if_preview_is_read)
        self._inside.addWidget(shown)
        self._length = widgets.build_plain_label("", "faint", self)
        self._full_size = self._build_full_size_button(shown)
        below = build_row((self._length, 1), self._full_size)
        self._inside.addLayout(below)
        if self._change is not None:
            self._below_change = below
            self._add_line_counts(self._change)
            if _has_both_sides(self._change):
                self._columns = self._build_columns_button(self._change)
                self._head.addWidget(self._columns)
        return shown

    def _add_line_counts(self, change: "ExactDifferenceView") -> None:
        """Says beside the title how many lines are added and removed."""
        marks = [line.mark for line in change.shown_lines]
        added = marks.count("+")
        removed = marks.count("-")
        place = self._head.count() - 1  # Before the stretch.
        if removed:
            words = f"−{format_number(removed)}"
            self._head.insertWidget(place, widgets.build_plain_label(words, "danger", self))
        if added:
            words = f"+{format_number(added)}"
            self._head.insertWidget(place, widgets.build_plain_label(words, "added", self))

    def _build_full_size_button(
        self, shown: "ExactTextView | ExactDifferenceView"
    ) -> QtWidgets.QPushButton:
        """Opens what does not fit the card in a dialog as large as the screen. What is seen
        there counts as seen.
        """

        def note_end_seen_elsewhere() -> None:
            if not shown.is_end_seen:
                shown.is_end_seen = True
                shown.reading_state_changed.emit()

        def open_dialog() -> None:
            from helix_desktop.gui.chat.full_size_dialog import FullSizeDialog

            question = self.question
            is_command = question.call.name in COMMANDS
            dialog = FullSizeDialog(
                self._theme, question, self, note_end_seen_elsewhere, is_command=is_command
            )
            # Until it is closed, the dialog covers this card.
            dialog.finished.connect(self.update)
            dialog.open()

        button = self._build_answer_button(tr("Show in full size"), "", "link")
        button.clicked.connect(open_dialog)
        button.hide()
        return button

    def _describe_lasting_answer(self, scope: str) -> str:
        """The words on a button: "Always" names what the chosen rule would allow."""
        plain = translate_name("permission scope", scope, otherwise=scope)
        if scope == "always" and self._chosen_rule < len(self.question.rule_folders):
            return describe_allowed_folder(self.question.rule_folders[self._chosen_rule])
        missing = [program.name for program in self.question.programs if not program.is_allowed]
        if scope != "always" or not missing or not self.question.rules:
            return plain
        return describe_allowed_programs(self.question.rules[self._chosen_rule], missing)

    def _build_columns_button(self, difference: "ExactDifferenceView") -> QtWidgets.QPushButton:
        button = self._build_answer_button(tr("Side by side"), "", "link")
        button.setCheckable(True)

        def choose_columns(two: bool) -> None:  # noqa: FBT001 -- as the button says it
            difference.show_columns(two=two)
            if two:
                button.setText(tr("Unified"))
            else:
                button.setText(tr("Side by side"))

        button.toggled.connect(choose_columns)
        button.clicked.connect(self._keep_columns_as_chosen)
        return button

    def _keep_columns_as_chosen(self) -> None:
        self._has_user_chosen_columns = True

    def show_columns_if_only_they_fit(self, missing: int) -> None:
        """Shows a change in two columns if one column is `missing` pixels too high for
        the window, and two are not.
        """
        change = self._change
        button = self._columns
        if change is None or button is None or button.isHidden():
            return
        if self._has_user_chosen_columns:
            return
        attempt = (missing, change.width())
        if attempt == self._tried:
            return
        self._tried = attempt
        height_of_one_column = change.content_height
        # Two columns are at best half as high.
        if missing * 2 < height_of_one_column and not button.isChecked():
            change.show_columns(two=True)
            saved_height = height_of_one_column - change.content_height
            button.setChecked(saved_height > missing)
            change.show_columns(two=button.isChecked())

    def _build_rule_chooser(self) -> QtWidgets.QComboBox:
        """Builds a choice of rules: the one for exactly this action, and narrower ones."""
        label = widgets.build_plain_label(tr("Rule to add:"), "small", self, wraps=False)
        choice = widgets.build_combo_box(tr("Rule for “Always allow”"), self)
        choice.addItems([mark_text(rule) for rule in self.question.rules])
        choice.setProperty("look", "mono")
        choice.setToolTip(
            tr("* means any arguments. To allow fewer commands, choose a more specific rule.")
        )
        choice.setSizeAdjustPolicy(
            QtWidgets.QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        only = widgets.build_plain_label(choice.currentText(), "mono", self)
        choice.currentIndexChanged.connect(self._name_folder_of_chosen_rule)
        # In a list of one choice, Escape would stop the agent.
        is_choice = len(self.question.rules) > 1
        choice.setVisible(is_choice)
        only.setVisible(not is_choice)
        if is_choice:
            self._inside.addLayout(build_row(label, (choice, 1)))
        elif self._below_change is None:
            self._inside.addLayout(build_row(label, (only, 1)))
        else:
            # Each line that the card does not need may be one of the change.
            self._below_change.insertWidget(1, label)
            self._below_change.insertWidget(2, only)
        return choice

    def _name_folder_of_chosen_rule(self) -> None:
        for button, action in self._actions.items():
            if action == "allow-always":
                words = self._describe_lasting_answer("always")
                button.setText(words)
                button.setAccessibleName(words)
        self.show_shortcuts_on_answers(self._keys)

    def _enable_buttons_if_preview_is_read(self) -> None:
        """Enables the buttons once the end of the preview has been shown."""
        if self._preview is None:
            return
        is_read = self._preview.is_end_seen
        self._note_whole_text_seen()
        self._length.setText(self._preview.describe_length_and_warnings())
        self._length.setVisible(bool(self._length.text()))
        # What was in sight at once needs no larger place.
        needs_scrolling = self._preview.verticalScrollBar().maximum() > 0
        self._full_size.setVisible(not is_read or needs_scrolling)
        if not is_read and any(button.hasFocus() for button in self._allowing):
            self._preview.setFocus(SHOWN)  # Otherwise Qt would move the focus out of the card.
        for button in self._allowing:
            button.setEnabled(is_read)
        if is_read and self._preview.hasFocus():
            # The buttons were disabled until the preview's end had been shown.
            self.focus_first_control()

    def _build_server_buttons(self) -> QtWidgets.QHBoxLayout:
        """The buttons of a server's question: decline, send the values or open the page,
        dismiss.
        """
        self._words.hide()
        # The order is that of the other cards: what refuses first, what agrees second.
        row = build_row(spacing=8)
        decline = self._build_answer_button(tr("Decline"), "refuse", "danger")
        decline.clicked.connect(self.refuse_permission)
        row.addWidget(decline)
        agreement = tr("Agree and open page")
        if self._form is not None:
            agreement = tr("Send to server")
        agree = self._build_answer_button(agreement, "allow-once", "primary")
        agree.clicked.connect(self._open_page_or_send_form_values)
        row.addWidget(agree)
        cancel = self._build_answer_button(tr("Cancel"), "", "")
        cancel.clicked.connect(self._dismiss_server_question)
        row.addWidget(cancel)
        row.addStretch(1)
        self._allowing = [agree]
        self._first = agree
        if self._form is not None and self._form.first_field is not None:
            self._first = self._form.first_field
        return row

    def _dismiss_server_question(self) -> None:
        self.answered.emit(PermissionAnswer(allowed=False, scope="cancel"))

    def _open_page_or_send_form_values(self) -> None:
        if self._form is None and (self._preview is None or self._preview.is_end_seen):
            open_in_browser(self.question.preview)
        self.allow_or_show_next_part("once")

    def _build_answer_buttons(self) -> QtWidgets.QBoxLayout:
        if self.question.plan:
            hint = tr("What is missing?")
            refusal = tr("Keep planning")
        else:
            hint = tr("Say what to do instead…")
            refusal = tr("Deny")
        self._words.setPlaceholderText(hint)
        self._words.setAccessibleName(hint)
        self._words.returnPressed.connect(self.refuse_permission)
        # Refusing stands first, allowing once second, and both on the lowest line: what a button
        # does can be known by its place, whatever else this card offers. The names of the lasting
        # answers are of any length, so they come after these two, or on a line of their own.
        self._lowest_line = build_row(spacing=8)
        self._first = self._build_answer_button(refusal, "refuse", "")
        self._first.clicked.connect(self.refuse_permission)
        self._lowest_line.addWidget(self._first)
        self._lasting_answers = QtWidgets.QWidget(self)
        self._lasting_answers.setProperty("look", "plain")
        lasting_row = build_row(owner=self._lasting_answers, margins=0, spacing=8, wraps=True)
        for scope in self.question.scopes:
            button = self._build_scope_button(scope)
            if self._allowing:
                lasting_row.addWidget(button)
            else:
                button.setProperty("look", "primary")
                self._first = button
                self._lowest_line.addWidget(button)
            self._allowing.append(button)
        self._lasting_answers.setVisible(len(self._allowing) > 1)
        self._lowest_line.addWidget(self._lasting_answers)
        self._lowest_line.addWidget(self._words, 1)
        self._answers = build_column(self._lowest_line, spacing=8)
        return self._answers

    def _build_scope_button(self, scope: str) -> QtWidgets.QPushButton:
        """Builds the button that allows it for this scope: once, or for longer."""
        words = self._describe_lasting_answer(scope)
        button = self._build_answer_button(words, f"allow-{scope}", "")
        button.clicked.connect(lambda _is_checked: self.allow_or_show_next_part(scope))
        return button

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_buttons_to_width()

    def event(self, event: QEvent) -> bool:
        handled = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:  # The size of the buttons may have changed.
            self._fit_buttons_to_width()
        return handled

    def _fit_buttons_to_width(self) -> None:
        """Moves the lasting answers to a line above the other two if there is too little room
        for all, and hides the field for words in a very low window.
        """
        if self._answers is None:
            return
        px = self._theme.zoomed_pixels
        width_of_lasting_answers = 0
        for button in self._lasting_answers.findChildren(QtWidgets.QPushButton):
            width_of_lasting_answers += button.sizeHint().width() + 8
        width_of_other_buttons = 0
        for button, action in self._actions.items():
            is_on_lowest_line = button.parentWidget() is self and action
            if is_on_lowest_line:
                width_of_other_buttons += button.sizeHint().width() + 8
        needed_width = width_of_other_buttons + width_of_lasting_answers + px(WORDS)
        is_wide = self.width() - 28 >= needed_width
        self._words.setMinimumWidth(px(WORDS))
        self._place_lasting_answers(width_of_lasting_answers, is_wide=is_wide)
        if self._columns is not None:  # There is only room for two columns in a wide window.
            self._columns.setVisible(is_wide or self._columns.isChecked())
        is_low = not is_wide and self.window().height() < px(LOW)
        self._words.setVisible(not is_low)
        self._why.setVisible(not is_low and bool(self._why.text()))

    def _place_lasting_answers(self, width: int, *, is_wide: bool) -> None:
        """Puts the lasting answers behind the other two, or on a line above them."""
        if self._answers is None:
            return
        is_above = self._answers.indexOf(self._lasting_answers) >= 0
        if is_wide:
            self._lasting_answers.setMinimumWidth(max(width - 8, 0))
            if is_above:
                self._answers.removeWidget(self._lasting_answers)
                place = self._lowest_line.indexOf(self._words)
                self._lowest_line.insertWidget(place, self._lasting_answers)
        else:
            self._lasting_answers.setMinimumWidth(0)
            if not is_above:
                self._lowest_line.removeWidget(self._lasting_answers)
                self._answers.insertWidget(0, self._lasting_answers)

    def _build_answer_button(self, text: str, action: str, look: str) -> QtWidgets.QPushButton:
        button = QtWidgets.QPushButton(text, self)
        if look:
            button.setProperty("look", look)
        self._actions[button] = action
        button.setAccessibleName(text)
        button.setAutoDefault(True)
        button.installEventFilter(self)
        return button

    def show_shortcuts_on_answers(self, keys: Mapping[str, str]) -> None:
        """Names the keys of the answering actions on the buttons."""
        self._keys = keys
        for button, action in self._actions.items():
            hint = button.text()
            key = keys.get(action, "")
            if key:
                hint = f"{hint} ({key})"
            button.setToolTip(hint)


def _has_both_sides(change: "ExactDifferenceView") -> bool:
    """Whether lines are removed and added. Otherwise one of two columns would be empty."""
    marks = {line.mark for line in change.shown_lines}
    return "-" in marks and "+" in marks


class PermissionQuestionPanel(QtWidgets.QWidget):
    """Shows one of the questions that wait in a conversation, and how many wait. The user can
    step through them, and allow at once all those whose full text they have seen.

    Each question keeps its card until it is answered, so that stepping away loses neither
    typed words nor what has been seen. `answered` carries the question's number and the answer.
    """

    answered = Signal(int, object)
    left = Signal()

    def __init__(self, theme: Theme, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._keys: Mapping[str, str] = {}
        self._questions: dict[int, PermissionQuestion] = {}
        self._uncovered = ""
        # The cards of the questions that were shown and are not answered yet, by number.
        self._cards: dict[int, PermissionQuestionCard] = {}
        self._shown_number = 0
        self.visible_card: PermissionQuestionCard | None = None
        # The questions that "Allow all" covers, since when it covers them all, and those that
        # it covered when the mouse button or key went down.
        self._covered: tuple[int, ...] = ()
        self._covered_since = math.inf
        self._covered_at_press: tuple[int, ...] = ()
        self._count = widgets.build_plain_label("", "faint", self, wraps=False)
        self._waiting = self._build_waiting_row()
        self._column = build_column(self._waiting, margins=(0, 6, 0, 6), spacing=6)
        self._middle = widgets.build_centred_column(self, theme)
        self._middle.setLayout(self._column)
        self.hide()

    def _build_waiting_row(self) -> QtWidgets.QWidget:
        """Builds the row above the card, which is shown while more than one question waits.
        Below the card, it would move the buttons up.
        """
        waiting = QtWidgets.QWidget(self)
        waiting.setProperty("look", "plain")
        previous = widgets.build_tool_button(tr("Previous permission request"), waiting, "‹", "")
        previous.setAutoRaise(True)
        previous.clicked.connect(lambda: self._show_neighbour(-1))
        following = widgets.build_tool_button(tr("Next permission request"), waiting, "›", "")
        following.setAutoRaise(True)
        following.clicked.connect(lambda: self._show_neighbour(1))
        self._allow_all = QtWidgets.QPushButton(waiting)
        self._allow_all.setAutoDefault(True)
        self._allow_all.hide()
        self._allow_all.pressed.connect(self._note_what_press_covers)
        self._allow_all.clicked.connect(self._allow_all_covered)
        build_row(previous, self._count, following, 1, self._allow_all, owner=waiting, margins=0)
        return waiting

    def show_shortcuts_on_answers(self, keys: Mapping[str, str]) -> None:
        """Shows the shortcuts that answer, or none while they answer another conversation."""
        self._keys = keys
        for card in self._cards.values():
            card.show_shortcuts_on_answers(keys)

    def show_waiting_questions(
        self, questions: Mapping[int, PermissionQuestion], uncovered: str = ""
    ) -> None:
        """Keeps showing the question that is shown while it waits, and otherwise shows the
        oldest. `uncovered`: what an undo would not restore.
        """
        had_focus = self._has_focus()
        was_shown = self.visible_card
        self._questions = dict(questions)
        self._uncovered = uncovered
        for number, card in list(self._cards.items()):
            # Another conversation counts its questions from one, too.
            if questions.get(number) is not card.question:
                self._remove_card(number)
        self.setVisible(bool(questions))
        if self._shown_number not in self._cards:
            self._show_card_of(min(questions, default=0))
        self._describe_waiting_questions()
        if not had_focus or self.visible_card is was_shown:
            return
        if self.visible_card is None:
            self.left.emit()
        else:
            self.visible_card.focus_first_control()

    def _show_neighbour(self, step: int) -> None:
        numbers = sorted(self._questions)
        place = numbers.index(self._shown_number) + step
        self._show_card_of(numbers[place % len(numbers)])
        self._describe_waiting_questions()

    def _show_card_of(self, number: int) -> None:
        if self.visible_card is not None:
            self.visible_card.hide()
        self.visible_card = None
        self._shown_number = number
        if not number:
            return
        card = self._cards.get(number)
        if card is None:
            card = self._build_card(number)
        self.visible_card = card
        width = _choose_card_width(card.question.preview)
        self._middle.setMaximumWidth(self._theme.zoomed_pixels(width))
        card.show()

    def _build_card(self, number: int) -> PermissionQuestionCard:
        question = self._questions[number]
        # Only a command can change what an undo does not restore.
        not_undone = ""
        if question.call.name in COMMANDS:
            not_undone = self._uncovered
        card = PermissionQuestionCard(self._theme, question, self, not_undone)
        self._cards[number] = card
        card.show_shortcuts_on_answers(self._keys)
        card.answered.connect(lambda answer: self.answered.emit(number, answer))
        # It is told while the card is painted, when nothing may be laid out again.
        card.whole_text_seen.connect(
            self._describe_waiting_questions, Qt.ConnectionType.QueuedConnection
        )
        self._column.addWidget(card)
        return card

    def _remove_card(self, number: int) -> None:
        card = self._cards.pop(number)
        self._column.removeWidget(card)
        card.hide()
        card.deleteLater()
        if card is self.visible_card:
            self.visible_card = None

    def _describe_waiting_questions(self) -> None:
        """Says which of how many questions is shown, and which of them one press would allow."""
        numbers = sorted(self._questions)
        self._waiting.setVisible(len(numbers) > 1)
        if len(numbers) < 2:
            self._covered = ()
            return
        which = format_number(numbers.index(self._shown_number) + 1)
        total = format_number(len(numbers))
        self._count.setText(tr("Permission request {n} of {total}", n=which, total=total))
        covered = tuple(number for number in numbers if self._is_covered_by_allow_all(number))
        if not set(covered) <= set(self._covered):
            self._covered_since = time.monotonic()
        self._covered = covered
        self._allow_all.setVisible(len(covered) > 1)
        number_covered = format_number(len(covered))
        words = tr("Allow all {n}", n=number_covered)
        if len(covered) < len(numbers):
            words = tr("Allow all {n} seen so far", n=number_covered)
        self._allow_all.setText(words)
        self._allow_all.setAccessibleName(words)
        titles = [question_title(self._questions[number]) for number in covered]
        explanation = tr("Allows each of these once:")
        self._allow_all.setToolTip(safe_tooltip("\n".join([explanation, *titles])))

    def _is_covered_by_allow_all(self, number: int) -> bool:
        card = self._cards.get(number)
        return card is not None and card.can_be_allowed_with_others

    def _note_what_press_covers(self) -> None:
        # What has only just come into sight was not meant by a press already on its way.
        if time.monotonic() - self._covered_since < READING:
            self._covered_at_press = ()
        else:
            self._covered_at_press = self._covered

    def _allow_all_covered(self) -> None:
        """Allows once what the button named when it was pressed."""
        covered = self._covered_at_press
        self._covered_at_press = ()
        for number in covered:
            # Another device may have answered it, or the answer before may have stopped the turn.
            if number in self._questions:
                self.answered.emit(number, PermissionAnswer(allowed=True, scope="once"))

    def _has_focus(self) -> bool:
        focused = QtWidgets.QApplication.focusWidget()
        return focused is not None and self.isAncestorOf(focused)


def _choose_card_width(preview: str) -> int:
    """A preview of many long lines gets a wide card; anything else is as wide as the text."""
    lines = preview.split("\n")
    longest_fitting = LONG_LINE
    # So many lines may be shown in two columns, each of which has half the width.
    if len(lines) > MANY_IN_COLUMNS:
        longest_fitting = LONG_IN_COLUMN
    if len(lines) > MANY and max(map(len, lines)) > longest_fitting:
        return WIDE
    return widgets.COLUMN
