"""The card of one MCP server: its state, and when opened its tools, time limits and
error output.
"""

import json
import re
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from PySide6.QtCore import QCoreApplication, QEvent, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QFrame,
    QHBoxLayout,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_text
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
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import format_count, tr

LOG_HEIGHT = 110
LOG_LINES = 200
SECONDS_BEFORE_REASON = 4  # A server that takes longer to start gets a sentence on why.
LONGEST_TIMEOUT_SECONDS = 86_400  # A day.
MOST_NAMED_TOOLS = 5  # So many are named beside their number. “Tools and log” has all of them.
LONGEST_TOOL_NAME = 60
MAX_DESCRIPTION_LENGTH = 300  # Longer descriptions of tools are cut to this many characters.
# So many characters of what a server runs are shown in the list. The question showed all of them.
LONGEST_DESCRIPTION = 4_000
# A name such as GITHUB_TOKEN or WEATHER_API_KEY in what a server wrote before it ended.
_KEY_VARIABLE = re.compile(r"\b(?=\w*(?:KEY|TOKEN|SECRET|PASSWORD))[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")

ServerWorkRunner = Callable[[Coroutine[Any, Any, Any]], None]


class McpServerCard(QWidget):
    """`build_work` returns what a button does, such as "restart" or "sign_in", and `run_work` runs
    it. `edit_wanted` gives the server's configuration as JSON.
    """

    edit_wanted = Signal(str)

    def __init__(
        self,
        server: McpServerState,
        build_work: Callable[..., Coroutine[Any, Any, Any]],
        run_work: ServerWorkRunner,
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self._build_work = build_work
        self._run_work = run_work
        self._server = server
        set_surface_look(self, "card")
        self._name = build_plain_label("", "", self)
        self._description = build_plain_label("", "mono", self)
        self._state = build_plain_label("", "small", self)
        self._hint = build_plain_label("", "small", self)
        self._hint.hide()
        self._inside = build_surface(self, "plain")
        self._inside.hide()
        labels = [self._name, self._description, self._state, self._hint]
        buttons = self._build_card_buttons()
        margins = (12, 10, 8, 8)
        build_column(*labels, buttons, self._inside, owner=self, margins=margins, spacing=4)

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
        # While a server starts, the seconds are counted, though nothing else has changed.
        self._show_server_state(describe_server_state(server, time.time()))
        look = "small"
        if _has_failed(server):
            look = "danger"
        set_widget_look(self._state, look)
        if server == self._server and not is_new:
            return
        config = server.config
        are_tools_new = is_new or _list_shown_tools(server) != _list_shown_tools(self._server)
        are_timeouts_new = is_new or _list_timeouts(server) != _list_timeouts(self._server)
        is_log_new = is_new or _log_part(server) != _log_part(self._server)
        self._server = server
        self._name.setText(mark_on_one_line(config.name))

        description = config.full_description_without_secrets
        if server.mistake:
            description = ""
        self._description.setText(mark_text(description[:LONGEST_DESCRIPTION]))
        self._show_wanted_variable(server)
        self._update_card_buttons(server)
        if are_tools_new:
            self._show_server_tools()
        if are_timeouts_new:
            self._show_server_timeouts()
        if is_log_new:
            self._show_server_log()

    def _show_server_state(self, words: str) -> None:
        if words == self._state.text():
            return
        self._state.setText(words)
        # Otherwise a busy computer draws two lines in the place of one first.
        if self.isVisible():
            QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest.value)

    def _show_wanted_variable(self, server: McpServerState) -> None:
        """Says which key the server asks for, and where it can be entered."""
        variable = find_wanted_variable(server)
        if variable:
            self._hint.setText(
                tr("It asks for {variable}. Click “Edit…” to enter it.", variable=variable)
            )
        self._hint.setVisible(bool(variable))

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
        self._edit.setVisible(not has_mistake)
        self._restart.setVisible(config.enabled and not has_mistake)
        self._sign_in.setVisible(config.enabled and waits_for_sign_in)
        for button in self._all_buttons:
            button.setAccessibleName(f"{button.text()}: {config.name}")

    def _build_card_buttons(self) -> QHBoxLayout:
        sign_in = partial(self._run_server_action, "sign_in")
        test = partial(self._run_server_action, "test")
        restart = partial(self._run_server_action, "restart")
        self._sign_in = self._build_link(tr("Sign in"), sign_in)
        self._more = self._build_link(tr("Tools and log"), self._show_or_hide_details)
        self._switch = self._build_link(tr("Turn off"), self._turn_server_on_or_off)
        self._test = self._build_link(tr("Test"), test)
        self._restart = self._build_link(tr("Restart"), restart)
        self._edit = self._build_link(tr("Edit…"), self._request_edit)
        self._remove = self._build_link(tr("Remove"), self._confirm_and_remove_server)
        self._all_buttons = (
            self._sign_in,
            self._more,
            self._switch,
            self._test,
            self._restart,
            self._edit,
            self._remove,
        )
        return build_row(*self._all_buttons, spacing=0, wraps=True)

    def _build_link(self, text: str, act: Callable[[], object]) -> QPushButton:
        return build_push_button(text, self, act, "link")

    def _request_edit(self) -> None:
        self.edit_wanted.emit(describe_server_as_json(self._server))

    def _show_or_hide_details(self) -> None:
        self._inside.setVisible(self._inside.isHidden())

    def _turn_server_on_or_off(self) -> None:
        self._run_server_action("switch", on=not self._server.config.enabled)

    def _run_server_action(self, action: str, **arguments: object) -> None:
        self._run_work(self._build_work(action, self._server.config.name, **arguments))

    def _confirm_and_remove_server(self) -> None:
        text = tr("Remove {name} and its settings?", name=self._server.config.name)
        remove = partial(self._run_server_action, "remove")
        ask_to_confirm(self, tr("Remove MCP server"), text, tr("Remove"), remove)

    def _show_server_tools(self) -> None:
        clear_layout(self._tools)
        config = self._server.config
        for name, description in self._server.tools:
            self._add_tool(name, description)
        if config.approvals:
            notice = tr(
                "The server's configuration asks to run these tools without approval: {names}. You will still be asked before these tools run.",
                names=", ".join(map(mark_on_one_line, config.approvals)),
            )
            self._tools.addWidget(build_plain_label(notice, "small", self))

    def _add_tool(self, name: str, description: str) -> None:
        """Adds a tool: whether it can be used, and whether it only reads."""
        config = self._server.config
        shown_name = mark_on_one_line(name)
        # An ampersand would not be shown, but underline the letter behind it.
        use_box = QCheckBox(shown_name.replace("&", "&&"), self._inside)
        use_box.setChecked(name not in config.off)
        use_box.setAccessibleDescription(make_safe_text(description))
        use_box.toggled.connect(partial(self._switch_tool, name))

        reading_box = QCheckBox(tr("Read-only"), self._inside)
        reading_box.setChecked(name in config.reading)
        explanation = tr("Turn this on only if you know that this tool changes nothing. The tool can then also run in plan mode.")  # fmt: skip
        reading_box.setToolTip(safe_tooltip(explanation))
        reading_box.setAccessibleName(f"{tr('Read-only')}: {shown_name}")
        reading_box.toggled.connect(partial(self._mark_tool_as_reading, name))

        self._tools.addLayout(build_row((use_box, 1), reading_box, wraps=True))
        if description:
            short_description = make_safe_text(description[:MAX_DESCRIPTION_LENGTH])
            label = build_plain_label(short_description, "small", self)
            label.setContentsMargins(24, 0, 0, 4)
            self._tools.addWidget(label)

    def _switch_tool(self, name: str, is_on: bool) -> None:  # noqa: FBT001 - a slot
        self._run_server_action("switch_tool", tool=name, on=is_on)

    def _mark_tool_as_reading(self, name: str, is_reading: bool) -> None:  # noqa: FBT001 - a slot
        self._run_server_action("mark_reading", tool=name, reads=is_reading)

    def _show_server_timeouts(self) -> None:
        """Shows the two fields for how long the server may take, anew for its present settings."""
        clear_layout(self._limits)
        config = self._server.config
        about_start = tr(
            "If the server doesn't respond within this time, the attempt to start it fails."
        )
        about_call = tr("Tool calls that take longer than this are cancelled.")
        start_field = FieldDeclaration(
            "start_seconds",
            tr("Startup timeout"),
            about_start,
            float(config.start_seconds),
            least=1,
            most=LONGEST_TIMEOUT_SECONDS,
            unit="s",
        )
        call_field = FieldDeclaration(
            "call_seconds",
            tr("Call timeout"),
            about_call,
            float(config.call_seconds),
            least=1,
            most=LONGEST_TIMEOUT_SECONDS,
            unit="s",
        )
        for field in (start_field, call_field):
            change = partial(self._change_server_timeout, field.name)
            row = build_field_row(field, change, self._inside)
            self._limits.addWidget(row)

    def _change_server_timeout(self, name: str, value: Value) -> None:
        self._run_server_action("limit", **{name: float(value)})

    def _build_log_view(self) -> QPlainTextEdit:
        log = QPlainTextEdit(self._inside, readOnly=True, tabChangesFocus=True)
        log.setProperty("look", "mono")
        log.setFrameShape(QFrame.Shape.NoFrame)
        log.setAccessibleName(tr("Error output"))
        log.setPlaceholderText(tr("The server has written nothing yet."))
        log.setFixedHeight(LOG_HEIGHT)
        return log

    def _show_server_log(self) -> None:
        lines = self._server.log[-LOG_LINES:]
        scroll_bar = self._log.verticalScrollBar()
        was_at_end = scroll_bar.value() >= scroll_bar.maximum()
        self._log.setPlainText("\n".join(lines))
        # What the button promises is there, also while there is nothing in it.
        is_log_shown = bool(lines) or _is_starting(self._server)
        self._log.setVisible(is_log_shown)
        if is_log_shown:
            self._log_title.setText(tr("Error output"))
        else:
            self._log_title.setText(tr("Error output: the server has written nothing."))
        if was_at_end:
            scroll_bar.setValue(scroll_bar.maximum())


def _has_failed(server: McpServerState) -> bool:
    has_failed = server.status is not None and server.status.state == "failed"
    return bool(server.mistake) or has_failed


def find_wanted_variable(server: McpServerState) -> str:
    """Returns the variable for a key that a server named when it failed, or nothing."""
    if not _has_failed(server) or server.status is None:
        return ""
    for match in _KEY_VARIABLE.finditer(server.status.why):
        if not server.config.env.get(match[0]):
            return match[0]
    return ""


def describe_server_as_json(server: McpServerState) -> str:
    """Returns the server's configuration in the form that people paste. Its secrets are references
    in it, and what it asks for is an empty text.
    """
    config = server.config
    table: dict[str, Any] = {}
    if config.url:
        table["type"] = config.kind
        table["url"] = config.url
        if config.headers:
            table["headers"] = dict(config.headers)
    else:
        table["command"] = config.command
        table["args"] = list(config.args)
        variables = dict(config.env)
        wanted = find_wanted_variable(server)
        if wanted:
            variables[wanted] = ""
        table["env"] = variables
    if config.folder:
        table["cwd"] = config.folder
    return json.dumps({"mcpServers": {config.name: table}}, indent=2, ensure_ascii=False)


def _list_shown_tools(server: McpServerState) -> tuple[object, ...]:
    """Everything that the list of tools shows."""
    return server.tools, server.config.off, server.config.reading


def _list_timeouts(server: McpServerState) -> tuple[float, float]:
    return server.config.start_seconds, server.config.call_seconds


def _is_starting(server: McpServerState) -> bool:
    return server.status is not None and server.status.state == "starting"


def _log_part(server: McpServerState) -> tuple[object, ...]:
    """What the error output and whether it is shown depend on."""
    return server.log, _is_starting(server)


def describe_server_state(server: McpServerState, now: float) -> str:
    """Says in one line how a server is: why it cannot be used, or its state and how many tools it
    has. While it starts, the line also says for how long (`now` is the present time).
    """
    if server.mistake:
        reason = translate_sentences(server.mistake)
        return tr("The server's settings could not be read: {why}", why=reason)
    if not server.config.enabled:
        return tr("off")
    status = server.status
    if status is None:
        return ""
    if status.state == "sign in":
        return tr("Waiting for you to sign in.")
    name_by_state = {
        "starting": tr("starting"),
        "ready": tr("ready"),
        "failed": tr("failed"),
        "off": tr("off"),
    }
    parts = [name_by_state[status.state]]
    if status.tools:
        count = format_count(status.tools, "{n} tool", "{n} tools")
        parts.append(_name_first_tools(server, count))
    if status.why:
        parts.append(translate_sentences(status.why))
    elif _is_starting(server) and status.since:
        parts += _describe_start(server, max(0, int(now - status.since)))
    return " · ".join(parts)


def _name_first_tools(server: McpServerState, count: str) -> str:
    """Returns the number of tools with the names of the first ones, so that whoever has just added
    a server sees what it brought.
    """
    names: list[str] = []
    for name, _description in server.tools[:MOST_NAMED_TOOLS]:
        names.append(mark_on_one_line(name[:LONGEST_TOOL_NAME]))
    if not names:
        return count
    if len(server.tools) > MOST_NAMED_TOOLS:
        names.append("…")
    return f"{count}: {', '.join(names)}"


def _describe_start(server: McpServerState, seconds: int) -> list[str]:
    """How long the server has been starting, and soon what it is that takes so long."""
    parts = [tr("{n} s", n=seconds)]
    if seconds < SECONDS_BEFORE_REASON:
        return parts
    limit = round(server.config.start_seconds)
    if server.config.kind == "stdio":
        reason = tr(
            "The program runs but has not answered yet. What it wrote stands under “Tools and log”. It is given up after {n} s.",
            n=limit,
        )
    else:
        reason = tr("The address has not answered yet. It is given up after {n} s.", n=limit)
    return parts + [reason]
