"""The card of one MCP server: its state, and when opened its tools, time limits and
error output.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from PySide6.QtWidgets import (
    QCheckBox,
    QFrame,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value, build_field_row
from helix_desktop.gui.common.widgets import (
    build_plain_label,
    build_push_button,
    build_surface,
    set_surface_look,
)
from helix_desktop.gui.question_dialogs import ask_to_confirm
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import McpServerState
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import format_count, tr

LOG_HEIGHT = 110
LOG_LINES = 200
MAX_DESCRIPTION_LENGTH = 300  # Longer descriptions of tools are cut to this many characters.
LONGEST_DESCRIPTION = (
    4_000  # Characters of what a server runs that the list shows. The question showed all.
)

ServerWorkRunner = Callable[[Coroutine[Any, Any, Any]], None]


class McpServerCard(QWidget):
    """`acts` builds a button's work, such as "restart" or "sign_in". `do` runs it."""

    def __init__(
        self,
        server: McpServerState,
        acts: Callable[..., Coroutine[Any, Any, Any]],
        do: ServerWorkRunner,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._build_server_work = acts
        self._run_work = do
        self._server = server
        set_surface_look(self, "card")
        self._name = build_plain_label("", "", self)
        self._words = build_plain_label("", "mono", self)
        self._state = build_plain_label("", "small", self)
        self._inside = build_surface(self, "plain")
        self._inside.hide()
        shown = (self._name, self._words, self._state, self._build_card_buttons(), self._inside)
        build_column(*shown, owner=self, margins=(12, 10, 8, 8), spacing=4)
        self._tools = QVBoxLayout()
        self._limits = QVBoxLayout()
        self._log = self._build_log_view()
        self._log_title = build_plain_label(tr("Error output"), "small", self)
        build_column(
            self._tools,
            self._limits,
            self._log_title,
            self._log,
            owner=self._inside,
            margins=(0, 6, 8, 6),
        )
        self.update_server_card(server, is_new=True)

    def update_server_card(self, server: McpServerState, *, is_new: bool = False) -> None:
        """Updates the card. It stays open, and what has the focus keeps it."""
        if server == self._server and not is_new:
            return
        before = self._server
        self._server = server
        config = server.config
        self._name.setText(config.name)
        described = config.full_description_without_secrets
        if server.mistake:
            described = ""
        self._words.setText(mark_text(described[:LONGEST_DESCRIPTION]))
        self._state.setText(describe_server_state(server))
        self._update_card_buttons(server)
        config_before = before.config
        are_tools_shown = config.off == config_before.off and server.tools == before.tools
        if is_new or not are_tools_shown or config.reading != config_before.reading:
            self._show_server_tools()
        timeouts = (config.start_seconds, config.call_seconds)
        if is_new or timeouts != (config_before.start_seconds, config_before.call_seconds):
            self._show_server_timeouts()
        if is_new or server.log != before.log:
            self._show_server_log()

    def _update_card_buttons(self, server: McpServerState) -> None:
        """A server whose settings are wrong can only be removed."""
        config = server.config
        has_mistake = bool(server.mistake)
        waits_for_sign_in = server.status is not None and server.status.state == "sign in"
        if config.enabled:
            self._switch.setText(tr("Turn off"))
        else:
            self._switch.setText(tr("Turn on"))
        self._switch.setVisible(not has_mistake)
        self._test.setVisible(not has_mistake)
        self._more.setVisible(not has_mistake)
        self._restart.setVisible(config.enabled and not has_mistake)
        self._sign_in.setVisible(config.enabled and waits_for_sign_in)
        for button in (
            self._sign_in,
            self._more,
            self._switch,
            self._test,
            self._restart,
            self._remove,
        ):
            button.setAccessibleName(f"{button.text()}: {config.name}")

    def _build_card_buttons(self) -> QHBoxLayout:
        def build_link(text: str, act: Callable[[], object]) -> QPushButton:
            return build_push_button(text, self, act, "link")

        self._sign_in = build_link(tr("Sign in"), lambda: self._run_server_action("sign_in"))
        self._more = build_link(
            tr("Tools and log"), lambda: self._inside.setVisible(self._inside.isHidden())
        )
        self._switch = build_link(
            tr("Turn off"),
            lambda: self._run_server_action("switch", on=not self._server.config.enabled),
        )
        self._test = build_link(tr("Test"), lambda: self._run_server_action("test"))
        self._restart = build_link(tr("Restart"), lambda: self._run_server_action("restart"))
        self._remove = build_link(tr("Remove"), self._confirm_and_remove_server)
        buttons = (self._sign_in, self._more, self._switch, self._test, self._restart, self._remove)
        return build_row(*buttons, spacing=0, wraps=True)

    def _run_server_action(self, action: str, **given: object) -> None:
        self._run_work(self._build_server_work(action, self._server.config.name, **given))

    def _confirm_and_remove_server(self) -> None:
        text = tr("Remove {name} and its settings?", name=self._server.config.name)
        ask_to_confirm(
            self,
            tr("Remove MCP server"),
            text,
            tr("Remove"),
            lambda: self._run_server_action("remove"),
        )

    def _show_server_tools(self) -> None:
        clear_layout(self._tools)
        config = self._server.config
        for name, about in self._server.tools:
            check = QCheckBox(name, self._inside)
            check.setChecked(name not in config.off)
            check.setAccessibleDescription(about)
            switch = partial(self._run_server_action, "switch_tool", tool=name)
            check.toggled.connect(lambda on, switch=switch: switch(on=on))
            reads = QCheckBox(tr("Read-only"), self._inside)
            reads.setChecked(name in config.reading)
            words = tr("Turn this on only if you know that this tool changes nothing. The tool can then also run in plan mode.")  # fmt: skip
            reads.setToolTip(safe_tooltip(words))
            reads.setAccessibleName(f"{tr('Read-only')}: {name}")
            mark = partial(self._run_server_action, "mark_reading", tool=name)
            reads.toggled.connect(lambda on, mark=mark: mark(reads=on))
            self._tools.addLayout(build_row((check, 1), reads, wraps=True))
            if about:
                explanation = build_plain_label(about[:MAX_DESCRIPTION_LENGTH], "small", self)
                explanation.setContentsMargins(24, 0, 0, 4)
                self._tools.addWidget(explanation)
        if config.approvals:
            said = tr(
                "The server's configuration asks to run these tools without approval: {names}. You will still be asked before these tools run.",
                names=", ".join(config.approvals),
            )
            self._tools.addWidget(build_plain_label(said, "small", self))

    def _show_server_timeouts(self) -> None:
        clear_layout(self._limits)
        starting = tr(
            "If the server doesn't respond within this time, the attempt to start it fails."
        )
        calling = tr("Tool calls that take longer than this are cancelled.")
        limits = {
            "start_seconds": (tr("Startup timeout"), starting),
            "call_seconds": (tr("Call timeout"), calling),
        }
        for name, (title, sentence) in limits.items():
            value = float(getattr(self._server.config, name))
            declared = FieldDeclaration(
                name, title, sentence, value, least=1, most=86_400, unit="s"
            )
            self._limits.addWidget(
                build_field_row(declared, partial(self._change_server_timeout, name), self._inside)
            )

    def _change_server_timeout(self, name: str, value: Value) -> None:
        self._run_server_action("limit", **{name: float(value)})

    def _build_log_view(self) -> QPlainTextEdit:
        log = QPlainTextEdit(self._inside, readOnly=True, tabChangesFocus=True)
        log.setProperty("look", "mono")
        log.setFrameShape(QFrame.Shape.NoFrame)
        log.setAccessibleName(tr("Error output"))
        log.setFixedHeight(LOG_HEIGHT)
        return log

    def _show_server_log(self) -> None:
        lines = self._server.log[-LOG_LINES:]
        bar = self._log.verticalScrollBar()
        at_end = bar.value() >= bar.maximum()
        self._log.setPlainText("\n".join(lines))
        self._log.setVisible(bool(lines))
        self._log_title.setVisible(bool(lines))
        if at_end:
            bar.setValue(bar.maximum())


def describe_server_state(server: McpServerState) -> str:
    if server.mistake:
        why = translate_sentences(server.mistake)
        return tr("The server's settings could not be read: {why}", why=why)
    if not server.config.enabled:
        return tr("off")
    status = server.status
    if status is None:
        return ""
    if status.state == "sign in":
        return tr("Waiting for you to sign in.")
    words_of_state = {
        "starting": tr("starting"),
        "ready": tr("ready"),
        "failed": tr("failed"),
        "off": tr("off"),
    }
    parts = [words_of_state[status.state]]
    if status.tools:
        parts.append(format_count(status.tools, "{n} tool", "{n} tools"))
    if status.why:
        parts.append(translate_sentences(status.why))
    return " · ".join(parts)
