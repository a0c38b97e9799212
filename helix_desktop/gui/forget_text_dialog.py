"""The dialog that removes a text, such as a leaked key, from everywhere in a workspace."""

from collections.abc import Callable
from functools import partial

import shiboken6
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QCheckBox, QLineEdit, QProgressBar, QWidget

from helix_desktop.engine.ports import ForgetResult
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import Workbench

MARGIN = 18


def open_forget_text_dialog(
    parts: WindowParts, forgotten: Callable[[], object], parent: QWidget | None = None
) -> None:
    """Opens the dialog for the current workspace. The window forgets the text as well, and calls
    `forgotten` to read again what it shows.
    """
    bench = parts.showing.bench
    if bench is None:
        return

    def forget_in_window(text: str) -> None:
        parts.state_file.forget_remembered_text(text, within=bench.id)
        if parts.showing.bench is bench:
            forgotten()

    dialog = ForgetTextDialog(
        bench, parts.runner, forget_in_window, parts.widget, parent or parts.widget
    )
    dialog.closed_early = parts.notices.show_notice
    dialog.open()


class ForgetTextDialog(widgets.TransientDialog):
    """`gone` gets the text once it is forgotten. The work continues while `owner`
    exists, even without the dialog.
    """

    def __init__(
        self,
        bench: Workbench,
        runner: BackgroundRunner,
        gone: Callable[[str], object],
        owner: QObject,
        parent: QWidget,
    ) -> None:
        super().__init__(tr("Forget text"), parent, 480)
        self._bench = bench
        self._runner = runner
        self._gone = gone
        self._owner = owner
        self.closed_early: Callable[[str], object] = lambda _outcome: None
        self._closed = False
        self.text = widgets.build_line_edit(tr("Text to remove"), tr("Paste the text"), self)
        self.text.setEchoMode(QLineEdit.EchoMode.Password)
        self.show_text_checkbox = QCheckBox(tr("Show text"), self)
        # Return in the text field only moves the focus to "Forget everywhere", and deletes nothing.
        self.stop_button = widgets.build_push_button(tr("Stop"), self, self._stop_forgetting)
        self.close_button = widgets.build_push_button(tr("Cancel"), self, self.reject)
        forget_label = tr("Forget everywhere")
        self.forget_button = widgets.build_push_button(
            forget_label, self, self._start_forgetting, "danger"
        )
        self.bar = QProgressBar(self)
        self.message_label = widgets.build_plain_label(parent=self)
        self._lay_out_forget_dialog()
        self.show_text_checkbox.toggled.connect(self._show_or_hide_text)
        self.text.textChanged.connect(self._enable_forgetting_if_text_is_entered)

    def _lay_out_forget_dialog(self) -> None:
        column = build_column(owner=self, margins=(MARGIN, 16, MARGIN, 14), spacing=10)
        for paragraph in _explain_forgetting(self._bench.name):
            column.addWidget(widgets.build_plain_label(paragraph, parent=self))
        column.addLayout(build_row((self.text, 1), self.show_text_checkbox))
        self.message_label.hide()
        self.bar.setTextVisible(False)
        self.bar.hide()
        column.addWidget(self.bar)
        column.addWidget(self.message_label)
        self.stop_button.hide()
        self.forget_button.setEnabled(False)
        column.addLayout(build_row(1, self.stop_button, self.close_button, self.forget_button))
        self.text.setFocus()

    def _enable_forgetting_if_text_is_entered(self, text: str) -> None:
        self.forget_button.setEnabled(bool(text.strip()))

    def _show_or_hide_text(self, shows_text: bool) -> None:  # noqa: FBT001 - a slot
        if shows_text:
            self.text.setEchoMode(QLineEdit.EchoMode.Normal)
        else:
            self.text.setEchoMode(QLineEdit.EchoMode.Password)

    def _start_forgetting(self) -> None:
        text = self.text.text().strip()
        message = tr(
            "Searching everything. In a large workspace, the search can take a few minutes. Nothing has been removed yet, and you can stop the search or close this window. Until the search is finished, messages are queued and you cannot open other conversations in this workspace."
        )
        self._show_forget_message(message)
        self.bar.setAccessibleName(tr("Forget text"))
        self.bar.setRange(0, 0)
        self.bar.show()
        self.text.setEnabled(False)
        self.forget_button.setEnabled(False)
        self.close_button.setText(tr("Close"))
        work = self._bench.forget_content(text=text, report=self._show_forget_progress)
        report_forgotten = partial(self._report_forgotten, text)
        # Its owner is not this dialog, which may be closed before the work ends.
        self._work = self._runner.run_in_background(
            work,
            then=report_forgotten,
            failed=self._report_forgetting_failed,
            owner=self._owner,
        )
        # Where it is done at once, there is nothing left to stop.
        self.stop_button.setVisible(not self.bar.isHidden())

    def _report_forgotten(self, text: str, result: ForgetResult) -> None:
        self._gone(text)
        self._show_forgetting_ended(describe_forgotten(result), done=True)

    def _report_forgetting_failed(self, error: HelixError) -> None:
        self._show_forgetting_ended(translate_sentences(str(error)), done=False)

    def _stop_forgetting(self) -> None:
        self._work.cancel()
        self._show_forgetting_ended(tr("Stopped. Nothing was removed."), done=False)

    def _show_forget_progress(self, done: int, total: int) -> None:
        """Shows how much of the cache was searched. Removing comes next and cannot be stopped."""
        if self._closed or not shiboken6.isValid(self):
            return
        if done < total:
            # The bar counts in thousandths, because a cache may have more bytes than Qt can count.
            self.bar.setRange(0, 1000)
            self.bar.setValue(done * 1000 // total)
        else:
            self.bar.setRange(0, 0)  # A bar without a range moves back and forth.
            self.stop_button.hide()
            self._show_forget_message(
                tr(
                    "The text is being removed, and this cannot be stopped. Don't close the program now. Otherwise, some copies may remain and you would have to remove the text again."
                )
            )

    def _show_forgetting_ended(self, outcome: str, *, done: bool) -> None:
        """Shows the result here, or in the window if the dialog was closed meanwhile."""
        if self._closed or not shiboken6.isValid(self):
            self.closed_early(outcome)
            return
        self.text.setEnabled(True)
        self.bar.hide()
        self.stop_button.hide()
        if done:
            self.text.clear()
        self.forget_button.setEnabled(bool(self.text.text().strip()))
        self._show_forget_message(outcome)

    def _show_forget_message(self, message: str) -> None:
        self.message_label.setText(message)
        self.message_label.show()
        self.adjustSize()

    def done(self, result: int) -> None:
        self._closed = True
        self.text.clear()
        super().done(result)


def describe_forgotten(result: ForgetResult) -> str:
    """Describes what was forgotten, then one line for each place the user has to clean up."""
    if not result.has_removed:
        summary = tr("Not found: no message or stored output in this workspace contains this text.")
    else:
        entries = format_count(len(result.entries), "{n} stored output", "{n} stored outputs")
        messages = format_count(result.facts, "{n} record", "{n} records")
        backups = format_count(result.backups, "{n} backup", "{n} backups")
        summary = tr(
            "Removed: {entries}. Changed: {messages}. Cleaned up: {backups}.",
            entries=entries,
            messages=messages,
            backups=backups,
        )
    lines = [summary]
    if result.outside_facts:
        lines.append(
            format_count(
                result.outside_facts,
                "Also removed from {n} other place, such as a waiting message or a description.",
                "Also removed from {n} other places, such as a waiting message or a description.",
            )
        )
    lines.extend(result.elsewhere)
    return "\n".join(lines)


def _explain_forgetting(workspace: str) -> list[str]:
    return [
        tr(
            "Text to remove from the workspace {name} (for example, a password):",
            name=workspace,
        ),
        tr(
            "The text is removed from the history of every conversation, the cache (every stored output that contains the text is removed entirely), the index, the backups and your drafts. Messages that contained the text will show that something was removed."
        ),
        tr(
            "This cannot be undone. Text already sent to a provider, files in the workspace's folders, files you exported, schedules, recorded conversations that are still to be imported, and other agents' own files (for example, in ~/.claude) are not affected. If a key was leaked, replace it as well."
        ),
    ]
