"""Forgetting a text, such as a key that slipped into a message: wherever it stands, for good. What that means is said first."""

from __future__ import annotations

from collections.abc import Callable

import shiboken6
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QHBoxLayout,
    QLineEdit,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.ports import Purged
from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.words import count, tr

WIDTH = 480
MARGIN = 18


def ask(window: MainWindow, parent: QWidget | None = None) -> None:
    """Open the dialog on the workspace in front. What the window itself remembers forgets the text as well."""
    bench = window.bench
    if bench is None:
        return

    def gone(text: str) -> None:
        window.memory.forget(text, within=bench.id)
        if window.bench is bench:
            window.show_session(window.session)  # drafts and what was typed before are read anew
            if window.pages.is_made("cache"):
                window.pages.cache.renew()

    dialog = ForgetText(bench, window.doing, gone, window, parent or window)
    dialog.closed_early = window.notices.tell
    dialog.open()


class ForgetText(QDialog):
    """`gone` is called with the text once it is forgotten; the work goes on while `owner` lives, also without the dialog."""

    def __init__(
        self, bench: Workbench, doing: Doing, gone: Callable[[str], object], owner: QObject, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._bench, self._doing, self._gone, self._owner = bench, doing, gone, owner
        self.closed_early: Callable[[str], object] = lambda _words: None
        self._closed = False
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Forget text"))
        self.text = QLineEdit(self)
        self.text.setEchoMode(QLineEdit.EchoMode.Password)
        self.text.setAccessibleName(tr("Text to forget"))
        self.text.setPlaceholderText(tr("Paste the text"))
        self.show_ = QCheckBox(tr("Show text"), self)
        self.stop_ = QPushButton(tr("Stop"), self)
        self.close_ = QPushButton(tr("Cancel"), self)
        self.forget_ = QPushButton(tr("Forget everywhere"), self)
        self.bar = QProgressBar(self)
        self.said = plain_label(parent=self)
        self._lay_out()
        self._wire()

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        for words in _meaning(self._bench.name):
            label = plain_label(words, parent=self)
            label.setMinimumWidth(WIDTH - 2 * MARGIN)  # else it asks for the height of a narrower one
            column.addWidget(label)
        column.setContentsMargins(MARGIN, 16, MARGIN, 14)
        column.setSpacing(10)
        row = QHBoxLayout()
        row.addWidget(self.text, 1)
        row.addWidget(self.show_)
        column.addLayout(row)
        self.said.hide()
        self.bar.setTextVisible(False)
        self.bar.hide()
        column.addWidget(self.bar)
        column.addWidget(self.said)
        self.stop_.hide()
        self.forget_.setProperty("look", "danger")
        self.forget_.setEnabled(False)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        for button in (self.stop_, self.close_, self.forget_):
            button.setAutoDefault(False)  # Return in the field goes to the button and does not press it
            buttons.addWidget(button)
        column.addLayout(buttons)
        self.setMinimumWidth(WIDTH)
        self.text.setFocus()

    def _wire(self) -> None:
        hidden, shown = QLineEdit.EchoMode.Password, QLineEdit.EchoMode.Normal
        self.show_.toggled.connect(lambda on: self.text.setEchoMode(shown if on else hidden))
        self.text.textChanged.connect(lambda text: self.forget_.setEnabled(bool(text.strip())))
        self.text.returnPressed.connect(self.forget_.setFocus)
        self.forget_.clicked.connect(self._forget)
        self.stop_.clicked.connect(self._stop)
        self.close_.clicked.connect(self.reject)

    def _forget(self) -> None:
        text = self.text.text().strip()

        def forgotten(purged: Purged) -> None:
            self._gone(text)
            self._ended(told(purged), done=True)

        def failed(error: HelixError) -> None:
            self._ended(said(str(error)), done=False)

        self._say(
            tr(
                "Searching everything. In a large workspace this takes a few minutes. Nothing has been removed yet, and you can stop the search or close this window. Until this is finished, messages are queued and you can't open other conversations in this workspace."
            )
        )
        self.bar.setAccessibleName(tr("Forget text"))
        self.bar.setRange(0, 0)
        self.bar.show()
        self.text.setEnabled(False)
        self.forget_.setEnabled(False)
        self.close_.setText(tr("Close"))
        work = self._bench.forget(text=text, report=self._report)
        self._work = self._doing.do(work, name="forget a text", then=forgotten, owner=self._owner, failed=failed)
        self.stop_.setVisible(not self.bar.isHidden())

    def _stop(self) -> None:
        self._work.cancel()
        self._ended(tr("Stopped. Nothing was removed."), done=False)

    def _report(self, done: int, total: int) -> None:
        """How much of the cache was read; how long removing takes after it is not known, and it cannot be stopped."""
        if self._closed or not shiboken6.isValid(self):
            return
        self.bar.setRange(0, 1000 if done < total else 0)
        self.bar.setValue(done * 1000 // max(total, 1))
        if done >= total:
            self.stop_.hide()
            self._say(
                tr(
                    "Removing the text. This can't be stopped. Don't close the program now, or some copies may remain and you would have to forget the text again."
                )
            )

    def _ended(self, words: str, *, done: bool) -> None:
        """Told here, or by the window where the dialog was closed meanwhile."""
        if self._closed or not shiboken6.isValid(self):
            self.closed_early(words)
            return
        self.text.setEnabled(True)
        self.bar.hide()
        self.stop_.hide()
        if done:
            self.text.clear()
        self.forget_.setEnabled(bool(self.text.text().strip()))
        self._say(words)

    def _say(self, words: str) -> None:
        self.said.setText(words)
        self.said.show()
        self.adjustSize()

    def done(self, result: int) -> None:
        self._closed = True
        self.text.clear()
        super().done(result)


def told(purged: Purged) -> str:
    """What was done, in a sentence; then a line for each place that is the user's to mend."""
    if not purged.entries and not purged.facts:
        first = tr("Not found: no message or entry in this workspace contains this text.")
    else:
        first = tr(
            "{entries}. {messages} changed. {backups} cleaned.",
            entries=count(len(purged.entries), "{n} entry removed", "{n} entries removed"),
            messages=count(purged.facts, "{n} fact", "{n} facts"),
            backups=count(purged.backups, "{n} backup", "{n} backups"),
        )
    return "\n".join([first, *purged.elsewhere])


def _meaning(workspace: str) -> list[str]:
    return [
        tr("Removes text, such as a key or a password, from everywhere in the workspace {name}:", name=workspace),
        tr(
            "from the journal of every conversation, the cache (every entry that contains it is removed entirely), the index, the backups and your drafts. The messages that contained it will say that something was forgotten."
        ),
        tr(
            "This can't be undone. Text already sent to a provider and files you exported are not affected, so replace a leaked key as well."
        ),
    ]
