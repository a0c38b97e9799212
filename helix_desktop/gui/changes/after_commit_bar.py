"""What follows a commit: push the branch, open a pull request for it, and see its checks."""

from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from helix_desktop.engine.pull_request_text import PullRequestText
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import BranchCheck, BranchState, FileChanges, PullRequest

LEAST_NOTE = 120  # The least width of the sentence on the branch, in pixels.


class PullRequestDialog(widgets.TransientDialog):
    """Shows the text of a pull request, to be changed before it is opened. It stays open until
    the pull request is, so that a refusal costs no text.
    """

    wanted = Signal(object)

    def __init__(self, state: BranchState, text: PullRequestText, parent: QWidget) -> None:
        """Shows a title and a text for a pull request, which the user can edit before
        anything is sent. Where commits are not pushed yet, the button says that it
        pushes them as well.
        """
        super().__init__(tr("Open a pull request"), parent, 640, 560)
        place = tr("{branch} at {address}", branch=state.branch, address=state.shown_address)
        place_label = widgets.build_plain_label(place, "muted", self)
        self.heading = widgets.build_line_edit(tr("Title"), tr("Title"), self)
        self.heading.setText(text.title)
        self.heading.textChanged.connect(self._enable_open_button)
        self.body = QPlainTextEdit(text.body, self, tabChangesFocus=True)
        self.body.setAccessibleName(tr("Text of the pull request"))
        who_can_read_it = tr(
            "Written from this conversation. Everybody who can see the repository can read it, so remove what is not meant for them."
        )
        note = widgets.build_plain_label(who_can_read_it, "small", self)
        self.trouble = widgets.build_plain_label("", "danger", self)
        self.trouble.hide()

        label = tr("Open pull request")
        if state.unpushed:
            label = tr("Push and open pull request")
        self.open_button = widgets.build_push_button(label, self, self._request, "primary")
        cancel_button = widgets.build_push_button(tr("Cancel"), self, self.reject)
        buttons = build_row(1, cancel_button, self.open_button)
        build_column(
            place_label,
            self.heading,
            (self.body, 1),
            note,
            self.trouble,
            buttons,
            owner=self,
            margins=20,
        )
        self._enable_open_button()

    def _enable_open_button(self) -> None:
        self.open_button.setEnabled(bool(self.heading.text().strip()))

    def _request(self) -> None:
        self.heading.setFocus()  # Disabling the button would move the focus to Cancel.
        self.open_button.setEnabled(False)
        self.trouble.hide()
        self.wanted.emit(PullRequestText(self.heading.text(), self.body.toPlainText()))

    def show_refusal(self, error: HelixError) -> None:
        self.trouble.setText(translate_sentences(str(error)))
        self.trouble.show()
        self._enable_open_button()


class AfterCommitWish(StrEnum):
    """What the user asked for by an action of the window, before the branch was read."""

    PUSH = "push"
    PULL_REQUEST = "pull request"


class AfterCommitBar(QWidget):
    """Is hidden until there is something to push. How a remote is set up is said to whoever wants to
    push without one. `notice_wanted` carries what was done.
    `failure_given` carries the name of a failed check and its log, for the agent.
    """

    notice_wanted = Signal(str)
    failure_given = Signal(str, str)

    def __init__(self, theme: Theme, doing: BackgroundRunner, parent: QWidget) -> None:
        """Builds the line, which is hidden until something was committed. It offers to
        push, then to open a pull request, then shows that request's checks.
        """
        super().__init__(parent)
        widgets.set_surface_look(self, "page")
        self._doing = doing
        self._changes: FileChanges | None = None
        self._conversation = ""
        self._shown = ShownBranch()
        self._wish: AfterCommitWish | None = None
        least_note_width = theme.zoomed_pixels(LEAST_NOTE)
        self._note = ElidedLabel(self, least=least_note_width)
        set_widget_look(self._note, "muted")
        self.push_button = widgets.build_push_button(tr("Push"), self, self._push, "pill")
        self.request_button = widgets.build_push_button("", self, self._open_request, "pill")
        self.checks_button = widgets.build_push_button("", self, self.reload, "link")
        failure_label = tr("Give the failure to the agent")
        self.failure_button = widgets.build_push_button(
            failure_label, self, self._give_failure, "link"
        )
        row = build_row(
            (self._note, 1),
            self.checks_button,
            self.failure_button,
            self.push_button,
            self.request_button,
            owner=self,
            spacing=8,
            wraps=True,
        )
        theme.keep_lengths_scaled(self, row.setContentsMargins, 20, 0, 20, 10)
        self.hide()

    def show_branch_of(self, changes: FileChanges | None, conversation: str) -> None:
        if changes is not self._changes:
            self._shown = ShownBranch()
            self.hide()
        self._changes = changes
        self._conversation = conversation
        if changes is not None:
            self.reload()

    def carry_out_when_read(self, wish: AfterCommitWish) -> None:
        """Does what was asked for, or says why it cannot be done, at the next `reload`."""
        self._wish = wish

    def reload(self) -> None:
        """Reads the branch and then, from the server, its pull request with the checks."""
        if self._changes is None:
            return
        work = self._changes.branch_publishing.read_branch_state()
        self._run_publishing_work(work, partial(self._show_branch, self._changes))

    def reload_if_branch_changed(self) -> None:
        """Reads the branch again, because the user may have worked on it in a terminal. The
        server is asked only if the branch is not as it was.
        """
        changes = self._changes
        if changes is None or self._wish is not None:
            return

        def show_changed_branch(state: BranchState | None) -> None:
            if state != self._shown.state:
                self._show_branch(changes, state)

        work = changes.branch_publishing.read_branch_state()
        self._run_publishing_work(work, show_changed_branch)

    def _show_branch(self, changes: FileChanges, state: BranchState | None) -> None:
        """Shows what was read of the branch, and does what the user asked for
        meanwhile, such as "Push" from the palette. Whether there is a pull request
        already is asked of the server next.
        """
        if self._changes is not changes:
            return  # Another workspace was chosen meanwhile.
        self._show(ShownBranch(state, self._shown.request))
        wish = self._wish
        self._wish = None
        if wish is AfterCommitWish.PUSH:
            self._push_or_say_why_not(state)
        if state is not None and state.tool and not state.is_base:
            opens_request = wish is AfterCommitWish.PULL_REQUEST
            work = changes.branch_publishing.find_pull_request(state)
            show_request = partial(
                self._show_pull_request, changes, state, opens_request=opens_request
            )
            self._run_publishing_work(work, show_request)
        elif wish is AfterCommitWish.PULL_REQUEST:
            self._say_why_no_request(state)

    def _show_pull_request(
        self,
        changes: FileChanges,
        state: BranchState,
        request: PullRequest | None,
        *,
        opens_request: bool,
    ) -> None:
        if self._changes is changes:
            self._show(ShownBranch(state, request))
        if opens_request:
            self._open_request()

    def _run_publishing_work(
        self,
        work: Coroutine[Any, Any, Any],
        then: Callable[[Any], object],
        failed: Callable[[HelixError], object] | None = None,
    ) -> None:
        self._doing.run_in_background(work, then=then, failed=failed, owner=self)

    def _show(self, branch: "ShownBranch") -> None:
        """Shows the buttons that fit the state of the branch, or hides the line if
        there is nothing left to do.
        """
        self._shown = branch
        state = branch.state
        if state is None or not (state.unpushed or state.tool):
            self.hide()
            return
        self._note.set_elided_text(_describe_branch(state))
        self.push_button.setVisible(state.unpushed > 0)
        can_have_request = bool(state.tool) and not state.is_base
        self.request_button.setVisible(can_have_request)
        if branch.request is None:
            self.request_button.setText(tr("Open a pull request…"))
        else:
            self.request_button.setText(tr("Show the pull request"))
        self.checks_button.setText(_describe_checks(branch.checks))
        self.checks_button.setToolTip(tr("Read the checks again"))
        self.checks_button.setVisible(bool(branch.checks))
        self.failure_button.setVisible(bool(branch.failed_checks))
        self.show()

    # --- Push and pull request

    def _push(self) -> None:
        state = self._shown.state
        if self._changes is None or state is None:
            return
        self.push_button.setEnabled(False)
        work = self._changes.branch_publishing.push_branch(state)
        self._run_publishing_work(work, partial(self._report_pushed, state), self._report_refusal)

    def _report_pushed(self, state: BranchState, _done: None) -> None:
        self.push_button.setEnabled(True)
        words = tr("{branch} was pushed to {address}.")
        self.notice_wanted.emit(words.format(branch=state.branch, address=state.shown_address))
        self.reload()

    def _push_or_say_why_not(self, state: BranchState | None) -> None:
        if state is None:
            self.notice_wanted.emit(tr("There is no commit here to push. Commit something first."))
        elif state.unpushed:
            self._push()
        else:
            self.notice_wanted.emit(_describe_branch(state))

    def _say_why_no_request(self, state: BranchState | None) -> None:
        """Says what is missing for a pull request: a remote repository, a branch of
        one's own, or the program that opens it.
        """
        if state is None or not state.remote:
            self._push_or_say_why_not(state)
            return
        if state.is_base:
            words = tr(
                "Pull requests go to {branch}, and you are on it. Commit on a branch of your own first: git switch -c NAME"
            )
            self.notice_wanted.emit(words.format(branch=state.branch))
            return
        self.notice_wanted.emit(
            tr(
                "To open a pull request from here, install gh (GitHub) or glab (GitLab). It can also be opened on the web page of the server."
            )
        )

    def _report_refusal(self, error: HelixError) -> None:
        self.push_button.setEnabled(True)
        self.notice_wanted.emit(translate_sentences(str(error)))

    def _open_request(self) -> None:
        if self._shown.request is not None:
            open_in_browser(self._shown.request.address)
            return
        state = self._shown.state
        if self._changes is None or state is None:
            return
        show_dialog = partial(self._show_request_dialog, self._changes, state)
        if self._conversation:
            work = self._changes.branch_publishing.write_text(state, self._conversation)
            self._run_publishing_work(work, show_dialog)
        else:
            show_dialog(PullRequestText("", ""))

    def _show_request_dialog(
        self, changes: FileChanges, state: BranchState, text: PullRequestText
    ) -> None:
        """Opens the dialog with the proposed text. It stays open when the server
        refuses, so that no words are lost.
        """
        dialog = PullRequestDialog(state, text, self)

        def report_opened(address: str) -> None:
            dialog.accept()
            self.notice_wanted.emit(tr("The pull request was opened: {address}", address=address))
            self.reload()

        def open_pull_request(written: PullRequestText) -> None:
            work = changes.branch_publishing.open_pull_request(state, written)
            self._run_publishing_work(work, report_opened, dialog.show_refusal)

        dialog.wanted.connect(open_pull_request)
        dialog.open()

    # --- Checks

    def _give_failure(self) -> None:
        failed_checks = self._shown.failed_checks
        if len(failed_checks) == 1:
            self._give_failure_of(failed_checks[0])
            return
        choices: list[DialogChoice] = []
        for check in failed_checks:
            choices.append(DialogChoice(check.name, partial(self._give_failure_of, check)))
        question = tr("Which failed check should the agent look at?")
        ask_to_choose_one(self, tr("Give the failure to the agent"), question, choices)

    def _give_failure_of(self, check: BranchCheck) -> None:
        state = self._shown.state
        if self._changes is None or state is None:
            return
        self._run_publishing_work(
            self._changes.branch_publishing.read_failure_log(state, check),
            lambda log: self.failure_given.emit(check.name, log),
            self._report_refusal,
        )


@dataclass(frozen=True)
class ShownBranch:
    state: BranchState | None = None
    request: PullRequest | None = None

    @property
    def checks(self) -> Sequence[BranchCheck]:
        if self.request is None:
            return ()
        return self.request.checks

    @property
    def failed_checks(self) -> list[BranchCheck]:
        return [check for check in self.checks if check.state == "failed"]


def _describe_branch(state: BranchState) -> str:
    if not state.remote:
        return tr(
            "No remote is set up, so {branch} cannot be pushed. Set one in a terminal: git remote add origin ADDRESS",
            branch=state.branch,
        )
    if not state.unpushed:
        return tr("{branch} is pushed.", branch=state.branch)
    amount = format_count(
        state.unpushed, "{n} commit is not pushed yet.", "{n} commits are not pushed yet."
    )
    return f"{state.branch}: {amount}"


def _describe_checks(checks: Sequence[BranchCheck]) -> str:
    states = [check.state for check in checks]
    failed = states.count("failed")
    running = states.count("running")
    passed = states.count("passed")
    figures: list[str] = []
    if failed:
        figures.append(format_count(failed, "{n} check failed", "{n} checks failed"))
    if running:
        figures.append(format_count(running, "{n} is running", "{n} are running"))
    if passed:
        figures.append(format_count(passed, "{n} check passed", "{n} checks passed"))
    return ", ".join(figures)
