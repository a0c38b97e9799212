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
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences, translate_title
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench

if TYPE_CHECKING:
    from helix_desktop.gui.chat.consent_difference_view import ExactDifferenceView
    from helix_desktop.gui.chat.schema_form import SchemaForm
    from helix_desktop.gui.common.consent_text_view import ExactTextView

LOW = 400  # If a narrow window is lower than this, only the question and its buttons are shown.
WIDE = 1_080  # The width in pixels of a card with many long lines.
MANY, LONG_LINE = 8, 76  # More lines and characters than these.
MANY_IN_COLUMNS, LONG_IN_COLUMN = 36, 36  # The same for lines that fit only in two columns.
WORDS = 120  # The minimum width in pixels of the field in which the user says what to do instead.
NAMED = 5  # At most this many of the paths that an undo would not restore are listed by name.
COMMANDS = ("run_command",)
MOST_NAMED_PROGRAMS = 3  # A button names at most this many programs; the row above it names all.
LONGEST = 2_000  # At most this many characters of a sub-agent's task are shown.
READING = 0.7  # A key pressed within this many seconds was not meant for the card.
SHOWN = Qt.FocusReason.TabFocusReason  # With this reason, a preview shows that it has the focus.
_PRESSING = {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}


def is_asked_by_server(question: PermissionQuestion) -> bool:
    """Whether an MCP server asks the user for something, under its own name (elicitation)."""
    return bool(question.form) or question.call.name.endswith("__elicitation")


def build_question_announcement(question: PermissionQuestion) -> str:
    title = question_title(question)
    words = title if is_asked_by_server(question) else tr("Permission needed: {what}", what=title)
    return f"{words} {describe_asking_agent(question)}".strip()


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
    more = [tr("and {n} more", n=format_number(len(names) - NAMED))] if len(names) > NAMED else []
    return tr("Undo cannot restore: {names}", names=", ".join([*shown, *more]))


def describe_asking_agent(question: PermissionQuestion) -> str:
    """Names the sub-agent, hook or command that asks; empty for the conversation's own agent."""
    if question.command:
        return tr(
            "Your slash command /{name} runs this command.", name=mark_on_one_line(question.command)
        )
    if not question.by:
        return ""
    task, more = mark_text(question.by[:LONGEST]), len(question.by) - LONGEST
    words = tr("Asked by a sub-agent working on: {task}", task=task)
    return words + (tr(" … {n} more characters", n=format_number(more)) if more > 0 else "")


class PermissionQuestionCard(QtWidgets.QWidget):
    """The card of one question. Keys that it does not use reach the page."""

    answered = Signal(object)

    def __init__(
        self,
        theme: Theme,
        question: PermissionQuestion,
        parent: QtWidgets.QWidget,
        uncovered: str = "",
    ) -> None:
        super().__init__(parent, accessibleName=build_question_announcement(question))
        self._theme = theme
        self._question = question
        self._taken = -math.inf  # The time at which the card got the focus.
        self._read_since = (
            math.inf
        )  # The time at which the text was painted, or infinity before that.
        self._form: SchemaForm | None = None
        self._actions: dict[
            QtWidgets.QPushButton, str
        ] = {}  # By button: the window action that does the same.
        self._answers: QtWidgets.QBoxLayout | None = None
        self._columns: QtWidgets.QPushButton | None = None
        self._below_change: QtWidgets.QHBoxLayout | None = None
        self._change: ExactDifferenceView | None = None
        self._tried = (
            0,
            0,
        )  # The missing pixels and the width for which two columns were last tried.
        widgets.set_surface_look(self, "ask")
        self._inside = build_column(owner=self, margins=(14, 11, 14, 11), spacing=8)
        self._build_question_label(question_title(question), "title")
        if who := describe_asking_agent(question):
            self._build_question_label(who, "small")
        why = (
            question.why
            if is_asked_by_server(question) and not question.form
            else translate_sentences(question.why)
        )
        self._why = self._build_question_label(mark_text(why[:1].upper() + why[1:]), "small")
        self._why.setVisible(bool(why))
        if uncovered:
            self._build_question_label(uncovered, "small")
        self._allowing: list[QtWidgets.QPushButton] = []
        self._plan = self._build_plan_editor() if question.plan else None
        self._preview = self._build_preview() if question.preview and not question.plan else None
        if question.programs:
            self._inside.addLayout(self._build_programs_row())
        if question.form:
            from helix_desktop.gui.chat import schema_form

            self._form = schema_form.SchemaForm(question.form, self)
            self._form.entered.connect(self._open_page_or_send_form_values)
            self._inside.addWidget(self._form)
        self._wrong = self._build_question_label("", "danger")
        self._wrong.hide()
        self._first: QtWidgets.QWidget = self
        self._words = QtWidgets.QLineEdit(self)
        self._rule = (
            self._build_rule_chooser()
            if question.rules and not is_asked_by_server(question)
            else None
        )
        self._inside.addLayout(
            self._build_server_buttons()
            if is_asked_by_server(question)
            else self._build_answer_buttons()
        )
        self._enable_buttons_if_preview_is_read()

    def allow_or_show_next_part(self, scope: str) -> None:
        """Allows it for an offered scope, or shows the preview's next part if its end
        was not shown.
        """
        if scope not in self._question.scopes:
            return
        if self._preview is not None and not self._preview.is_end_seen:
            self._preview.show_next_part()
            return
        try:
            values = self._form.values_as_json() if self._form is not None else ""
            values = self._plan.toPlainText() if self._plan is not None else values
        except InvalidInput as error:
            self._wrong.setText(translate_sentences(error.what))
            self._wrong.show()
            return
        rule = self._rule.currentIndex() if self._rule is not None else 0
        self.answered.emit(PermissionAnswer(allowed=True, scope=scope, values=values, rule=rule))

    def allow_by_shortcut(self, scope: str) -> None:
        """Allows it by a shortcut, if the card was visible long enough to be read."""
        if not self.is_in_sight() or time.monotonic() - self._read_since < READING:
            return
        if self._preview is not None and not self._preview.is_end_seen:
            self._read_since = (
                time.monotonic()
            )  # The user must have time to read the next part, too.
        self.allow_or_show_next_part(scope)

    def is_in_sight(self) -> bool:
        """Whether the card is shown and not covered by another window, such as the settings."""
        place = QRect(self.mapToGlobal(QPoint()), self.size())
        kinds = (Qt.WindowType.Window, Qt.WindowType.Dialog)
        others = (
            each
            for each in QtWidgets.QApplication.topLevelWidgets()
            if each.isVisible() and each.windowType() in kinds
        )
        return self.isVisible() and not any(
            each is not self.window() and each.frameGeometry().intersects(place) for each in others
        )

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        self._read_since = min(self._read_since, time.monotonic())

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._read_since = math.inf

    def refuse_permission(self) -> None:
        self.answered.emit(PermissionAnswer(allowed=False, words=self._words.text().strip()))

    def focus_first_control(self) -> None:
        self._taken = time.monotonic()
        first = self._first if self._first.isEnabled() or self._preview is None else self._preview
        first.setFocus(SHOWN)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Ignores a press too early to be meant for this question, and the second click
        of a double click.
        """
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.KeyPress
            and event.key() in _PRESSING
        ):
            return event.isAutoRepeat() or time.monotonic() - self._taken < READING
        return (
            event.type() == QEvent.Type.MouseButtonDblClick
            and time.monotonic() - self._read_since < READING
        )

    def _build_question_label(self, text: str, look: str) -> QtWidgets.QLabel:
        label = widgets.build_plain_label(text, look, self)
        self._inside.addWidget(label)
        return label

    def _build_plan_editor(self) -> QtWidgets.QPlainTextEdit:
        # What is approved is the text in this field, so nothing in it may be hidden.
        text = QtWidgets.QPlainTextEdit(make_safe_text(self._question.preview), self)
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

        question = self._question
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
        if self._change is not None and {"-", "+"} <= {
            line.mark for line in self._change.shown_lines
        }:
            self._columns = self._build_columns_button(self._change)
            self._below_change = build_row((self._length, 1), self._full_size, self._columns)
            self._inside.addLayout(self._below_change)
        else:
            self._inside.addLayout(build_row((self._length, 1), self._full_size))
        return shown

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

            question = self._question
            is_command = question.call.name in COMMANDS
            FullSizeDialog(
                self._theme, question, self, note_end_seen_elsewhere, is_command=is_command
            ).open()

        button = self._build_answer_button(tr("Show in full size"), "", "link")
        button.clicked.connect(open_dialog)
        button.hide()
        return button

    def _build_programs_row(self) -> QtWidgets.QHBoxLayout:
        """What the command line starts: each program, whether it is allowed already, and the
        files that its words name as written.
        """
        labels: list[QtWidgets.QWidget] = [
            widgets.build_plain_label(tr("Runs"), "small", self, wraps=False)
        ]
        for program in self._question.programs:
            words = mark_on_one_line(program.name)
            if program.is_allowed:
                words = tr("✓ {program}", program=words)
            if program.writes:
                files = ", ".join(map(mark_on_one_line, program.writes))
                words = tr("{program} writes {files}", program=words, files=files)
            look = "faint" if program.is_allowed else "mono"
            label = widgets.build_plain_label(words, look, self, wraps=len(words) > LONG_LINE)
            if program.is_allowed:
                label.setToolTip(tr("A rule of this workspace allows it already."))
            labels.append(label)
        return build_row(*labels, 1, spacing=12, wraps=True)

    def _describe_lasting_answer(self, scope: str) -> str:
        """The words on a button: "Always" names the programs that the rules would add."""
        plain = translate_name("permission scope", scope, otherwise=scope)
        missing = [program.name for program in self._question.programs if not program.is_allowed]
        if scope != "always" or not missing or not self._question.rules:
            return plain
        if len(missing) > MOST_NAMED_PROGRAMS:
            number = format_number(len(missing))
            return tr("Always allow these {n} programs here", n=number)
        names = ", ".join(map(mark_on_one_line, missing))
        return tr("Always allow {programs} here", programs=names)

    def _build_columns_button(self, difference: "ExactDifferenceView") -> QtWidgets.QPushButton:
        button = self._build_answer_button(tr("Side by side"), "", "pill")
        button.setCheckable(True)

        def choose_columns(two: bool) -> None:  # noqa: FBT001 -- as the button says it
            difference.show_columns(two=two)
            button.setText(tr("Unified") if two else tr("Side by side"))

        button.toggled.connect(choose_columns)
        return button

    def show_columns_if_only_they_fit(self, missing: int) -> None:
        """Shows a change in two columns if one column is `missing` pixels too high for
        the window, and two are not.
        """
        change, button = self._change, self._columns
        if (
            change is None
            or button is None
            or button.isHidden()
            or self._tried == (missing, change.width())
        ):
            return
        before, self._tried = change.content_height, (missing, change.width())
        if missing * 2 < before and not button.isChecked():  # Two columns are at best half as high.
            change.show_columns(two=True)
            button.setChecked(before - change.content_height > missing)
            change.show_columns(two=button.isChecked())

    def _build_rule_chooser(self) -> QtWidgets.QComboBox:
        """Builds a choice of rules: the one for exactly this action, and narrower ones."""
        label = widgets.build_plain_label(tr("Rule to add:"), "small", self, wraps=False)
        choice = widgets.build_combo_box(tr("Rule for “Always allow”"), self)
        choice.addItems([mark_text(rule) for rule in self._question.rules])
        choice.setProperty("look", "mono")
        choice.setToolTip(
            tr("* means any arguments. To allow fewer commands, choose a more specific rule.")
        )
        choice.setSizeAdjustPolicy(
            QtWidgets.QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        only = widgets.build_plain_label(choice.currentText(), "mono", self)
        is_choice = (
            len(self._question.rules) > 1
        )  # In a list of one choice, Escape would stop the agent.
        choice.setVisible(is_choice)
        only.setVisible(not is_choice)
        if self._below_change is None or is_choice:
            self._inside.addLayout(build_row(label, (choice if is_choice else only, 1)))
        else:  # Each line that the card does not need may be one of the change.
            self._below_change.insertWidget(1, label)
            self._below_change.insertWidget(2, only)
        return choice

    def _enable_buttons_if_preview_is_read(self) -> None:
        """Enables the buttons once the end of the preview has been shown."""
        if self._preview is None:
            return
        self._length.setText(self._preview.describe_length_and_warnings())
        self._length.setVisible(bool(self._length.text()))
        if not self._preview.is_end_seen:
            self._full_size.show()
        if not self._preview.is_end_seen and any(button.hasFocus() for button in self._allowing):
            self._preview.setFocus(SHOWN)  # Otherwise Qt would move the focus out of the card.
        for button in self._allowing:
            button.setEnabled(self._preview.is_end_seen)
        if self._preview.is_end_seen and self._preview.hasFocus():
            # The buttons were disabled until the preview's end had been shown.
            self.focus_first_control()

    def _build_server_buttons(self) -> QtWidgets.QHBoxLayout:
        """The buttons of a server's question: send the values or open the page,
        decline, dismiss.
        """
        self._words.hide()
        row = build_row(1, spacing=8)
        send = tr("Send to server") if self._form is not None else tr("Agree and open page")
        ways = (
            (
                tr("Cancel"),
                "",
                "",
                lambda: self.answered.emit(PermissionAnswer(allowed=False, scope="cancel")),
            ),
            (tr("Decline"), "refuse", "danger", self.refuse_permission),
            (send, "allow-once", "primary", self._open_page_or_send_form_values),
        )
        for text, action, look, act in ways:
            button = self._build_answer_button(text, action, look)
            button.clicked.connect(lambda _checked=False, a=act: a())
            row.addWidget(button)
            self._first = button
        self._allowing = [button]
        self._first = (
            self._form.first_field or self._first if self._form is not None else self._first
        )
        return row

    def _open_page_or_send_form_values(self) -> None:
        if self._form is None and (self._preview is None or self._preview.is_end_seen):
            open_in_browser(self._question.preview)
        self.allow_or_show_next_part("once")

    def _build_answer_buttons(self) -> QtWidgets.QBoxLayout:
        hint = tr("What is missing?") if self._question.plan else tr("What to do instead")
        self._words.setPlaceholderText(hint)
        self._words.setAccessibleName(hint)
        self._words.returnPressed.connect(self.refuse_permission)
        row = self._answers = QtWidgets.QBoxLayout(QtWidgets.QBoxLayout.Direction.LeftToRight)
        row.setSpacing(8)
        row.addWidget(self._words, 1, Qt.AlignmentFlag.AlignTop)
        self._ways_on = QtWidgets.QWidget(self)
        self._ways_on.setProperty("look", "plain")
        ways = build_row(owner=self._ways_on, margins=0, spacing=8, wraps=True)
        row.addWidget(self._ways_on)
        no, look = (tr("Keep planning"), "") if self._question.plan else (tr("Deny"), "danger")
        refuse = self._build_answer_button(no, "refuse", look)
        refuse.clicked.connect(self.refuse_permission)
        ways.addWidget(refuse)
        self._first = refuse
        for scope in reversed(self._question.scopes):
            look = "primary" if scope == self._question.scopes[0] else ""
            words = self._describe_lasting_answer(scope)
            button = self._build_answer_button(words, f"allow-{scope}", look)
            button.clicked.connect(lambda _checked=False, s=scope: self.allow_or_show_next_part(s))
            ways.addWidget(button)
            self._allowing.append(button)
            self._first = button
        return row

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_buttons_to_width()

    def event(self, event: QEvent) -> bool:
        handled = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:  # The size of the buttons may have changed.
            self._fit_buttons_to_width()
        return handled

    def _fit_buttons_to_width(self) -> None:
        """Moves the text above the buttons if there is too little room beside them, and
        hides it in a very low window.
        """
        if self._answers is not None:
            px, way = self._theme.zoomed_pixels, QtWidgets.QBoxLayout.Direction
            width = (
                sum(
                    each.sizeHint().width() + 8
                    for each in self._ways_on.findChildren(QtWidgets.QPushButton)
                )
                - 8
            )
            wide = self.width() - 28 >= width + 8 + px(WORDS)
            self._words.setMinimumWidth(px(WORDS))
            self._ways_on.setMinimumWidth(width if wide else 0)
            self._answers.setDirection(way.LeftToRight if wide else way.TopToBottom)
            if self._columns is not None:  # There is only room for two columns in a wide window.
                self._columns.setVisible(wide or self._columns.isChecked())
            low = not wide and self.window().height() < px(LOW)
            self._words.setVisible(not low)
            self._why.setVisible(not low and bool(self._why.text()))

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
        for button, action in self._actions.items():
            key = keys.get(action, "")
            button.setToolTip(f"{button.text()} ({key})" if key else button.text())


class PermissionQuestionPanel(QtWidgets.QWidget):
    """Shows the oldest open question. `answered` carries its number and the answer."""

    answered = Signal(int, object)
    left = Signal()

    def __init__(self, theme: Theme, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._keys: Mapping[str, str] = {}
        self._question: PermissionQuestion | None = None
        self.visible_card: PermissionQuestionCard | None = None
        self._more = widgets.build_plain_label("", "faint", self, wraps=False)
        self._column = build_column(self._more, margins=(0, 6, 0, 6))
        self._middle = widgets.build_centred_column(self, theme)
        self._middle.setLayout(self._column)
        self.hide()

    def show_shortcuts_on_answers(self, keys: Mapping[str, str]) -> None:
        """Shows the shortcuts that answer, or none while they answer another conversation."""
        self._keys = keys
        if self.visible_card is not None:
            self.visible_card.show_shortcuts_on_answers(keys)

    def show_oldest_question(
        self, questions: Mapping[int, PermissionQuestion], uncovered: str = ""
    ) -> None:
        """Shows the oldest question and how many are open. `uncovered`: what an undo
        would not restore.
        """
        number = min(questions, default=0)
        question = questions.get(number)
        focused = QtWidgets.QApplication.focusWidget()
        held = (
            self.visible_card is not None
            and focused is not None
            and self.visible_card.isAncestorOf(focused)
        )
        self._more.setText(format_count(len(questions) - 1, "{n} more permission request waiting", "{n} more permission requests waiting"))  # fmt: skip
        self._more.setVisible(len(questions) > 1)
        self.setVisible(bool(questions))
        if question is self._question:
            return
        if self.visible_card is not None:
            self._column.removeWidget(self.visible_card)
            self.visible_card.hide()
            self.visible_card.deleteLater()
            self.visible_card = None
        self._question = question
        if question is not None:
            not_undone = uncovered if question.call.name in COMMANDS else ""
            card = self.visible_card = PermissionQuestionCard(
                self._theme, question, self, not_undone
            )
            card.show_shortcuts_on_answers(self._keys)
            card.answered.connect(lambda answer: self.answered.emit(number, answer))
            lines = question.preview.split("\n")
            most = LONG_IN_COLUMN if len(lines) > MANY_IN_COLUMNS else LONG_LINE
            width = WIDE if len(lines) > MANY and max(map(len, lines)) > most else widgets.COLUMN
            self._middle.setMaximumWidth(self._theme.zoomed_pixels(width))
            self._column.insertWidget(0, card)
            card.show()
            if held:
                card.focus_first_control()
        elif held:
            self.left.emit()
