"""Shows permission questions above the composer: exactly what will be done, and for how long it is
allowed.

A new question takes the focus from nobody; the shortcuts on its buttons work everywhere in the
window. The action is shown exactly
(`engine/hidden_characters.py`), built from the value that will run, and cannot be
allowed before its end has been shown.
"""

import math
import posixpath
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6 import QtWidgets
from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QPaintEvent, QResizeEvent

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_program, mark_text
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.programs_row import build_programs_row, describe_command_access
from helix_desktop.gui.common.tool_words import describe_offered_rule, translate_network_mark
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

WIDE = 1_080  # The width in pixels of a card with many long lines.
# A preview with more lines than MANY, and one longer than LONG_LINE, gets a wide card.
MANY = 8
LONG_LINE = 76
# The same for lines that fit only in two columns.
MANY_IN_COLUMNS = 36
LONG_IN_COLUMN = 36
WORDS_MARGINS = 28  # The room around the hint in that field, in pixels.
WORDS = 120  # The minimum width in pixels of the field in which the user says what to do instead.
NAMED = 5  # At most this many of the paths that an undo would not restore are listed by name.
LEAST_WORDS = 60  # The same beside the buttons of a narrow card: with less, it has its own line.
ANY_WIDTH = 16_777_215  # The maximum width of a widget that has none.
COMMANDS = ("run_command",)
ONE_LINE = 440  # Words of at most this many pixels stand on one line in every window.
LONGEST_RULE_ON_ONE_LINE = 260  # In pixels: of a longer rule below a change, lines are broken.
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


@dataclass(frozen=True, slots=True)
class UndoCoverage:
    """What an undo can restore in a workspace: the state of its checkpoints, and the paths that
    they leave out.
    """

    state: str = ""
    uncovered_paths: tuple[str, ...] = ()


NOTHING_UNCOVERED = UndoCoverage()


def read_undo_coverage(bench: Workbench | None) -> UndoCoverage:
    """Returns what an undo of a command in this workspace could restore."""
    if bench is None:
        return NOTHING_UNCOVERED
    try:
        paths = [uncovered.path for uncovered in bench.file_changes.list_uncovered_paths()]
        return UndoCoverage(bench.file_changes.checkpoint_progress.state, tuple(paths))
    except HelixError:  # This workspace has no folder, so there is nothing to undo.
        return NOTHING_UNCOVERED


def describe_what_undo_misses(question: PermissionQuestion, coverage: UndoCoverage) -> str:
    """Says what an undo of this command would not restore: of the paths that checkpoints leave
    out, only those that its words name as written or deleted.
    """
    if question.call.name not in COMMANDS:
        return ""
    changed_files: list[str] = []
    for program in question.programs:
        changed_files.extend(program.writes)
        changed_files.extend(program.deletes)
    touched_paths: list[str] = []
    for path in coverage.uncovered_paths:
        if any(_is_path_touched(path, file) for file in changed_files):
            touched_paths.append(path)
    return format_uncovered_files(coverage.state, touched_paths)


def _is_path_touched(path: str, file: str) -> bool:
    """Whether a change to `file` may change what is at `path`: it is the same, lies in it, or
    contains it. An ellipsis stands for what the shell fills in, which may be any file.
    """
    if "…" in file:
        return True
    changed = posixpath.normpath(file)
    uncovered = posixpath.normpath(path)
    if changed == ".":
        return True
    is_within_path = f"/{uncovered}/" in f"/{changed}/"
    contains_path = uncovered.startswith(f"{changed}/")
    return is_within_path or contains_path


def format_uncovered_files(state: str, names: Sequence[str]) -> str:
    """Lists what an undo of a command would not restore. Empty if it restores everything."""
    if state == "off":
        return tr("Checkpoints are turned off, so this command's changes cannot be undone.")
    if not names:
        return ""
    listed_names = [mark_on_one_line(name) for name in names[:NAMED]]
    unlisted_count = len(names) - NAMED
    if unlisted_count > 0:
        listed_names.append(tr("and {n} more", n=format_number(unlisted_count)))
    return tr("Undo cannot restore: {names}", names=", ".join(listed_names))


def describe_asking_agent(question: PermissionQuestion) -> str:
    """Names the sub-agent, hook or command that asks; empty for the conversation's own agent."""
    if question.command:
        command = mark_on_one_line(question.command)
        return tr("Your slash command /{name} runs this command.", name=command)
    if not question.by:
        return ""
    task = mark_text(question.by[:LONGEST])
    words = tr("Asked by a sub-agent working on: {task}", task=task)
    unshown_characters = len(question.by) - LONGEST
    if unshown_characters > 0:
        words += tr(" … {n} more characters", n=format_number(unshown_characters))
    return words


def describe_allowed_programs(rule: str, programs: Sequence[str]) -> str:
    """The words of the button that adds this rule, which is for these programs."""
    rule_for_whole_programs = ", ".join(f"{name} *" for name in programs)
    if rule != rule_for_whole_programs:
        # The rule allows fewer commands than the programs' names would say.
        if len(rule) > LONGEST_NAMED_RULE:
            return tr("Always allow commands by this rule in this workspace")
        return tr(
            "Always allow {programs} in this workspace", programs=translate_network_mark(rule)
        )
    if len(programs) > MOST_NAMED_PROGRAMS:
        return tr(
            "Always allow these {n} programs in this workspace", n=format_number(len(programs))
        )

    names = [mark_program(name) for name in programs]
    listed_names = names[0]
    if len(names) > 1:
        listed_names = tr("{names} and {last}", names=", ".join(names[:-1]), last=names[-1])
    return tr("Always allow {programs} in this workspace", programs=listed_names)


def describe_allowed_folder(folder: str) -> str:
    """The words on the button that allows edits in a folder from now on. ".": the workspace."""
    if folder == ".":
        return tr("Always allow edits in this workspace")
    return tr("Always allow edits in {folder}", folder=_shorten_folder(folder))


def describe_folder_for_conversation(folder: str) -> str:
    """The words on the button that allows edits in a folder for the rest of the conversation."""
    if folder == ".":
        return tr("Allow edits in this conversation")
    return tr("Allow edits in {folder} in this conversation", folder=_shorten_folder(folder))


def _shorten_folder(folder: str) -> str:
    path = mark_on_one_line(folder)
    if len(path) <= LONGEST_FOLDER:
        return path
    end_of_path = path[1 - LONGEST_FOLDER :]
    return f"…{end_of_path}"


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
        """Builds the card from top to bottom: what is asked, its reason, exactly what
        will run, and the answers. `uncovered`: what a later undo would not restore, if
        there is such a thing.
        """
        super().__init__(parent, accessibleName=build_question_announcement(question))
        self._theme = theme
        self.question = question

        # When the card got the focus, and since when its text is painted (infinity before that).
        self._focused_at = -math.inf
        self._read_since = math.inf
        self._after_first_paint = QTimer(self, interval=0, singleShot=True)
        self._after_first_paint.timeout.connect(self._enable_buttons_if_preview_is_read)
        # Whether all of the question has been in sight since it was asked.
        self._is_whole_text_seen = False

        # The buttons, each with the window action that does the same, and the actions' shortcuts.
        self._actions: dict[QtWidgets.QPushButton, str] = {}
        self._keys: Mapping[str, str] = {}
        self._allowing: list[QtWidgets.QPushButton] = []
        self._first: QtWidgets.QWidget = self
        self._answers: QtWidgets.QVBoxLayout | None = None

        # What a question has only if it is about that.
        self._form: SchemaForm | None = None
        self._plan: QtWidgets.QPlainTextEdit | None = None
        self._preview: ExactTextView | ExactDifferenceView | None = None
        self._change: ExactDifferenceView | None = None
        self._columns: QtWidgets.QPushButton | None = None
        self._below_change: QtWidgets.QHBoxLayout | None = None
        self._rule: QtWidgets.QComboBox | None = None

        # The missing pixels and the width for which two columns were last tried.
        self._tried = (0, 0)
        self._has_user_chosen_columns = False

        widgets.set_surface_look(self, "ask")
        self._inside = build_column(owner=self, margins=(14, 11, 14, 11), spacing=8)
        self._head = build_row(spacing=10, wraps=True)
        self._inside.addLayout(self._head)
        self._why = self._build_title_and_reason()
        self._build_details(uncovered)
        self._wrong = self._build_question_label("", "danger")
        self._wrong.hide()
        self._words = QtWidgets.QLineEdit(self)
        if is_asked_by_server(question):
            self._inside.addLayout(self._build_server_buttons())
        else:
            if question.rules:
                self._rule = self._build_rule_chooser()
            self._inside.addLayout(self._build_answer_buttons())
        self._enable_buttons_if_preview_is_read()

    def _build_details(self, uncovered: str) -> None:
        """Builds what is said below the title: who asks, what would be done, what it needs."""
        question = self.question
        asking_agent = describe_asking_agent(question)
        if asking_agent:
            self._build_question_label(asking_agent, "small")
        if uncovered:
            self._build_question_label(uncovered, "small")
        if question.plan:
            self._plan = self._build_plan_editor()
        elif question.preview:
            self._preview = self._build_preview()
        access = question.command_access
        if question.programs:
            self._inside.addLayout(build_programs_row(question.programs, self, access))
        elif access:
            self._build_question_label(describe_command_access(access), "small")
        if question.form:
            self._form = self._build_form()

    def allow_or_show_next_part(self, scope: str) -> None:
        """Allows it for an offered scope, or shows the preview's next part if its end
        was not shown.
        """
        if scope not in self.question.scopes:
            return
        if self._preview is not None and not self._preview.is_end_seen:
            self._preview.show_next_part()
            return
        try:
            values = self._read_entered_values()
        except InvalidInput as error:
            self._wrong.setText(translate_sentences(error.what))
            self._wrong.show()
            return
        answer = PermissionAnswer(allowed=True, scope=scope, values=values, rule=self._chosen_rule)
        self.answered.emit(answer)

    def _read_entered_values(self) -> str:
        """Returns the plan as the user left it, or the values of the form."""
        if self._plan is not None:
            return self._plan.toPlainText()
        if self._form is not None:
            return self._form.values_as_json()
        return ""

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
        if self._read_since == math.inf:
            self._read_since = time.monotonic()
            # While it is painted, nothing may be laid out again.
            self._after_first_paint.start()
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
        self._focused_at = time.monotonic()
        control = self._first
        # A button that is still disabled takes no focus.
        if not control.isEnabled() and self._preview is not None:
            control = self._preview
        control.setFocus(SHOWN)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Ignores a press too early to be meant for this question, and the second click
        of a double click.
        """
        now = time.monotonic()
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            is_too_early = event.isAutoRepeat() or now - self._focused_at < READING
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
        is_long_title = len(title) > SHORT_TITLE
        title_label = widgets.build_plain_label(title, "title", self, wraps=is_long_title)
        self._head.addWidget(title_label)

        reason = question.why
        # What a server says without a form is its own text, which nothing may change.
        if question.form or not is_asked_by_server(question):
            reason = translate_sentences(question.why_as_sentence)
        sentence = mark_text(reason)
        reason_label = widgets.build_plain_label(sentence, "small", self)
        reason_label.setVisible(bool(reason))
        width_on_one_line = self.fontMetrics().horizontalAdvance(f"{title} {sentence}")
        if width_on_one_line <= ONE_LINE:
            reason_label.setWordWrap(False)
            self._head.addWidget(reason_label)
        else:
            self._inside.addWidget(reason_label)
        self._head.addStretch(1)
        return reason_label

    def _build_form(self) -> "SchemaForm":
        # Few conversations ask for a form, so the start does not wait for this module.
        from helix_desktop.gui.chat import schema_form

        form = schema_form.SchemaForm(self.question.form, self)
        form.entered.connect(self._open_page_or_send_form_values)
        self._inside.addWidget(form)
        return form

    def _build_plan_editor(self) -> QtWidgets.QPlainTextEdit:
        # What is approved is the text in this field, so nothing in it may be hidden.
        plan = make_safe_text(self.question.preview)
        text = QtWidgets.QPlainTextEdit(plan, self, tabChangesFocus=True)
        text.setProperty("look", "code")
        text.setAccessibleName(tr("Plan (can be edited)"))
        text.setMinimumHeight(self._theme.zoomed_pixels(160))
        self._inside.addWidget(text)
        return text

    def _build_preview(self) -> "ExactTextView | ExactDifferenceView":
        """Adds exactly what will run, or the change to a file as lines taken out and
        put in, to the card. Below it stands how long it is. The buttons that allow wait
        until its end has been in sight.
        """
        from helix_desktop.gui.chat.consent_difference_view import (
            ExactDifferenceView,
            build_exact_preview,
        )

        question = self.question
        preview = build_exact_preview(
            self._theme,
            question.preview,
            question.title,
            self,
            is_command=question.call.name in COMMANDS,
            programs=question.program_names,
        )
        preview.setAccessibleName(tr("Exactly what will run"))
        preview.reading_state_changed.connect(self._enable_buttons_if_preview_is_read)
        self._inside.addWidget(preview)
        self._length = widgets.build_plain_label("", "faint", self)
        self._full_size = self._build_full_size_button(preview)
        row_below = build_row((self._length, 1), self._full_size, wraps=True)
        self._inside.addLayout(row_below)

        if isinstance(preview, ExactDifferenceView):
            self._change = preview
            self._below_change = row_below
            self._add_line_counts(preview)
            if _has_both_sides(preview):
                self._columns = self._build_columns_button(preview)
                self._head.addWidget(self._columns)
        return preview

    def _add_line_counts(self, change: "ExactDifferenceView") -> None:
        """Says beside the title how many lines are added and removed."""
        marks = [line.mark for line in change.shown_lines]
        added = marks.count("+")
        removed = marks.count("-")
        place = self._head.count() - 1  # Before the stretch.
        # What is inserted last stands first: the added lines.
        if removed:
            removed_label = widgets.build_plain_label(f"−{format_number(removed)}", "danger", self)
            self._head.insertWidget(place, removed_label)
        if added:
            added_label = widgets.build_plain_label(f"+{format_number(added)}", "added", self)
            self._head.insertWidget(place, added_label)

    def _build_full_size_button(
        self, preview: "ExactTextView | ExactDifferenceView"
    ) -> QtWidgets.QPushButton:
        """Opens what does not fit the card in a dialog as large as the screen."""
        button = self._build_answer_button(tr("Show in full size"), "", "link")
        button.clicked.connect(lambda: self._open_full_size_dialog(preview))
        button.hide()
        return button

    def _open_full_size_dialog(self, preview: "ExactTextView | ExactDifferenceView") -> None:
        """Opens what will run in a dialog of its own. Its end counts as seen in the
        card, too, once it was in sight there.
        """
        from helix_desktop.gui.chat.full_size_dialog import FullSizeDialog

        def note_end_seen_in_dialog() -> None:
            if not preview.is_end_seen:
                preview.is_end_seen = True
                preview.reading_state_changed.emit()

        is_command = self.question.call.name in COMMANDS
        dialog = FullSizeDialog(
            self._theme, self.question, self, note_end_seen_in_dialog, is_command=is_command
        )
        # Until it is closed, the dialog covers this card.
        dialog.finished.connect(self.update)
        dialog.open()

    def _describe_lasting_answer(self, scope: str) -> str:
        """The words on a button: it names what the chosen rule would allow."""
        plain_words = translate_name("permission scope", scope, otherwise=scope)
        question = self.question
        if scope == "conversation" and self._chosen_rule < len(question.rule_folders):
            return describe_folder_for_conversation(question.rule_folders[self._chosen_rule])
        if scope != "always":
            return plain_words
        if self._chosen_rule < len(question.rule_folders):
            return describe_allowed_folder(question.rule_folders[self._chosen_rule])
        new_programs = [program.name for program in question.programs if not program.is_allowed]
        if not new_programs or not question.rules:
            return plain_words
        return describe_allowed_programs(question.rules[self._chosen_rule], new_programs)

    def _build_columns_button(self, difference: "ExactDifferenceView") -> QtWidgets.QPushButton:
        button = self._build_answer_button(tr("Side by side"), "", "link")
        button.setCheckable(True)

        def show_columns_as_checked(is_checked: bool) -> None:  # noqa: FBT001 -- as the button says it
            difference.show_columns(two=is_checked)
            if is_checked:
                button.setText(tr("Unified"))
            else:
                button.setText(tr("Side by side"))

        button.toggled.connect(show_columns_as_checked)
        button.clicked.connect(self._keep_columns_as_chosen)
        return button

    def _keep_columns_as_chosen(self) -> None:
        self._has_user_chosen_columns = True

    def show_columns_if_only_they_fit(self, missing_height: int) -> None:
        """Shows a change in two columns if one column is so many pixels too high for
        the window, and two are not.
        """
        change = self._change
        button = self._columns
        if change is None or button is None or button.isHidden():
            return
        if self._has_user_chosen_columns:
            return
        attempt = (missing_height, change.width())
        if attempt == self._tried:
            return
        self._tried = attempt

        height_of_one_column = change.content_height
        # Two columns are at best half as high.
        can_columns_help = missing_height * 2 < height_of_one_column
        if not can_columns_help or button.isChecked():
            return
        # How high they are is known once they are laid out.
        change.show_columns(two=True)
        saved_height = height_of_one_column - change.content_height
        button.setChecked(saved_height > missing_height)
        change.show_columns(two=button.isChecked())

    def _build_rule_chooser(self) -> QtWidgets.QComboBox:
        """Builds a choice of rules: the one for exactly this action, and narrower ones."""
        label = widgets.build_plain_label(
            tr("Rule for “Always allow”:"), "small", self, wraps=False
        )
        chooser = widgets.build_combo_box(tr("Rule for “Always allow”"), self)
        for number in range(len(self.question.rules)):
            rule = self.question.rules[number]
            is_for_files = number < len(self.question.rule_folders)
            chooser.addItem(
                describe_offered_rule(self.question.call.name, rule, is_for_files=is_for_files)
            )
        chooser.setProperty("look", "mono")
        chooser.setToolTip(
            tr("* means any arguments. To allow fewer commands, choose a more specific rule.")
        )
        chooser.setSizeAdjustPolicy(
            QtWidgets.QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        chooser.currentIndexChanged.connect(self._name_folder_of_chosen_rule)

        # A single rule is a label: in a list of one choice, Escape would stop the agent.
        look = "mono"
        if chooser.currentText() not in self.question.rules:
            look = "small"  # These are words, and wider in the font of commands.
        only_rule = widgets.build_plain_label(chooser.currentText(), look, self)
        has_choice = len(self.question.rules) > 1
        chooser.setVisible(has_choice)
        only_rule.setVisible(not has_choice)
        if has_choice:
            self._inside.addLayout(build_row(label, (chooser, 1)))
        elif self._below_change is None:
            self._inside.addLayout(build_row(label, (only_rule, 1)))
        else:
            # A label that wraps asks for two lines, also where the row has room for one.
            width_of_text = only_rule.fontMetrics().horizontalAdvance(only_rule.text())
            only_rule.setMinimumWidth(min(width_of_text + 2, LONGEST_RULE_ON_ONE_LINE))
            # Each line that the card does not need may be one of the change.
            self._below_change.insertWidget(1, label)
            self._below_change.insertWidget(2, only_rule)
        return chooser

    def _name_folder_of_chosen_rule(self) -> None:
        for button, action in self._actions.items():
            scope = action.removeprefix("allow-")
            if scope in ("conversation", "always"):
                words = self._describe_lasting_answer(scope)
                button.setText(words)
                button.setAccessibleName(words)
        self.show_shortcuts_on_answers(self._keys)

    def _enable_buttons_if_preview_is_read(self) -> None:
        """Enables the buttons once the end of the preview has been shown."""
        preview = self._preview
        if preview is None:
            return
        is_read = preview.is_end_seen
        self._note_whole_text_seen()
        self._length.setText(preview.describe_length_and_warnings())
        # The line below the preview could be the one line of it that does not fit. So the preview
        # is painted without that line first, and what was in sight then needs none.
        was_painted = self._read_since < math.inf
        self._length.setVisible(was_painted and bool(self._length.text()))
        needs_scrolling = preview.verticalScrollBar().maximum() > 0
        self._full_size.setVisible(was_painted and (not is_read or needs_scrolling))

        for button in self._allowing:
            # Otherwise Qt would move the focus out of the card.
            if button.hasFocus() and not is_read:
                preview.setFocus(SHOWN)
        for button in self._allowing:
            button.setEnabled(is_read)
        if is_read and preview.hasFocus():
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
        """Builds "Deny", "Allow once", the answers that last longer, and the field for
        "Say what to do instead…", whose words are sent with a refusal.
        """
        hint = tr("Say what to do instead…")
        refusal = tr("Deny")
        if self.question.plan:
            hint = tr("What is missing?")
            refusal = tr("Keep planning")
        self._words.setPlaceholderText(hint)
        self._words.setAccessibleName(hint)
        self._words.returnPressed.connect(self.refuse_permission)

        # Refusing stands first, allowing once second, and both on the lowest line: what a button
        # does can be known by its place, whatever else this card offers. The names of the lasting
        # answers are of any length, so they come after these two, or on a line of their own.
        # With very little room, the field for words is on a line below them.
        self._lowest_line = build_row(spacing=8, wraps=True)
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
                # Enter, or the colour, followed by habit, must not allow what the card warns of.
                if not any(program.risk for program in self.question.programs):
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
        for all.
        """
        if self._answers is None:
            return
        px = self._theme.zoomed_pixels
        self._break_words_that_are_too_wide()
        width_of_lasting_answers = 0
        for button in self._lasting_answers.findChildren(QtWidgets.QPushButton):
            width_of_lasting_answers += button.sizeHint().width() + 8
        width_of_other_buttons = 0
        for button, action in self._actions.items():
            is_on_lowest_line = button.parentWidget() is self and action
            if is_on_lowest_line:
                width_of_other_buttons += button.sizeHint().width() + 8
        metrics = self._words.fontMetrics()
        hint_width = metrics.horizontalAdvance(self._words.placeholderText())
        width_of_words = max(px(WORDS), hint_width + px(WORDS_MARGINS))
        needed_width = width_of_other_buttons + width_of_lasting_answers + width_of_words
        inner_width = self.width() - 28  # Without the margins at both sides.
        is_wide = inner_width >= needed_width
        # In a narrow window, even the hint alone may be wider than the room beside the buttons.
        room_for_words = inner_width - width_of_other_buttons
        width_with_room = min(width_of_words, room_for_words)
        widest = ANY_WIDTH
        if width_with_room < px(LEAST_WORDS):
            width_with_room = min(px(WORDS), inner_width)  # On a line of its own.
        elif not is_wide:
            widest = room_for_words  # A wider field would take another line of the card.
        self._words.setMinimumWidth(max(width_with_room, 0))
        self._words.setMaximumWidth(widest)
        self._place_lasting_answers(width_of_lasting_answers, is_wide=is_wide)

        if self._columns is not None:  # There is only room for two columns in a wide window.
            self._columns.setVisible(is_wide or self._columns.isChecked())

    def _break_words_that_are_too_wide(self) -> None:
        """Shows what a button says on several lines if one line of it is wider than the card."""
        if not self.isVisible():
            return
        inner_width = self.width() - 28  # Without the margins at both sides.
        for button in self._lasting_answers.findChildren(QtWidgets.QPushButton):
            words = button.accessibleName()
            margins = button.sizeHint().width() - _width_of_lines(button, button.text())
            lines = _break_into_lines(button, words, inner_width - margins)
            if lines != button.text():
                button.setText(lines)

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
            hint = button.accessibleName()
            key = keys.get(action, "")
            if key:
                hint = f"{hint} ({key})"
            if action == "allow-conversation":
                hint += "\n" + tr("This ends when the workspace is closed.")
            button.setToolTip(hint)


def _width_of_lines(button: QtWidgets.QPushButton, text: str) -> int:
    metrics = button.fontMetrics()
    return max(metrics.horizontalAdvance(line) for line in text.split("\n"))


def _break_into_lines(button: QtWidgets.QPushButton, words: str, width: int) -> str:
    """Breaks words between two of them, so that each line has at most so many pixels."""
    metrics = button.fontMetrics()
    lines = [""]
    for word in words.split(" "):
        longer_line = f"{lines[-1]} {word}".strip()
        if lines[-1] and metrics.horizontalAdvance(longer_line) > width:
            lines.append(word)
        else:
            lines[-1] = longer_line
    return "\n".join(lines)


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
        """Builds the panel above the message box. It is hidden while nothing is asked.
        Of several questions it shows one card at a time.
        """
        super().__init__(parent)
        self._theme = theme
        self._keys: Mapping[str, str] = {}
        self._undo_coverage = NOTHING_UNCOVERED

        # The waiting questions, and the cards of those that were shown, by number.
        self._questions: dict[int, PermissionQuestion] = {}
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
        self,
        questions: Mapping[int, PermissionQuestion],
        undo_coverage: UndoCoverage = NOTHING_UNCOVERED,
    ) -> None:
        """Keeps showing the question that is shown while it waits, and otherwise shows the
        oldest. `undo_coverage`: what an undo could restore.
        """
        had_focus = self._has_focus()
        card_before = self.visible_card
        self._questions = dict(questions)
        self._undo_coverage = undo_coverage
        for number, card in list(self._cards.items()):
            # Another conversation counts its questions from one, too.
            if questions.get(number) is not card.question:
                self._remove_card(number)
        self.setVisible(bool(questions))
        if self._shown_number not in self._cards:
            oldest_number = min(questions, default=0)
            self._show_card_of(oldest_number)
        self._describe_waiting_questions()

        is_same_card = self.visible_card is card_before
        if not had_focus or is_same_card:
            return
        if self.visible_card is None:
            self.left.emit()
        else:
            self.visible_card.focus_first_control()

    def _show_neighbour(self, step: int) -> None:
        numbers = sorted(self._questions)
        index = numbers.index(self._shown_number) + step
        # Behind the last comes the first.
        self._show_card_of(numbers[index % len(numbers)])
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
        """Builds the card of a waiting question, once: what was read of it stays known
        while another question is shown.
        """
        question = self._questions[number]
        not_undone = describe_what_undo_misses(question, self._undo_coverage)
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
        shown = format_number(numbers.index(self._shown_number) + 1)
        total = format_number(len(numbers))
        self._count.setText(tr("Permission request {n} of {total}", n=shown, total=total))

        covered = tuple(number for number in numbers if self._is_covered_by_allow_all(number))
        has_new = not set(covered) <= set(self._covered)
        if has_new:
            self._covered_since = time.monotonic()
        self._covered = covered
        self._describe_allow_all_button()

    def _describe_allow_all_button(self) -> None:
        covered_count = format_number(len(self._covered))
        label = tr("Allow all {n}", n=covered_count)
        if len(self._covered) < len(self._questions):
            label = tr("Allow all {n} seen so far", n=covered_count)
        self._allow_all.setText(label)
        self._allow_all.setAccessibleName(label)
        tooltip_lines = [tr("Allows each of these once:")]
        for number in self._covered:
            tooltip_lines.append(question_title(self._questions[number]))
        self._allow_all.setToolTip(safe_tooltip("\n".join(tooltip_lines)))
        self._allow_all.setVisible(len(self._covered) > 1)

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
    longest_line = max(len(line) for line in lines)
    longest_fitting = LONG_LINE
    # So many lines may be shown in two columns, each of which has half the width.
    if len(lines) > MANY_IN_COLUMNS:
        longest_fitting = LONG_IN_COLUMN
    if len(lines) > MANY and longest_line > longest_fitting:
        return WIDE
    return widgets.COLUMN
