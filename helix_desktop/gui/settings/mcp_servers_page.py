"""The page of a workspace's MCP servers: add, start, test, turn off and remove them."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtWidgets import QPlainTextEdit

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.widgets import build_line_edit, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import Installation
from helix_desktop.gui.settings.mcp_server_card import McpServerCard
from helix_desktop.gui.settings.settings_page import (
    RefreshWhileShown,
    SettingsPage,
    scroll_to_widget,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import ServerConfig, Workbench

# The interval between updates of the page, because the state of servers changes by
# itself.
REFRESH_MS = 1_000
# So many lines high is the field for a configuration: empty, and with one that is edited.
LINES_OF_EMPTY_FORM = 6
LINES_OF_EDITED_FORM = 14


class McpServersPage(SettingsPage):
    def __init__(
        self, theme: Theme, bench: Workbench, program: Installation, runner: BackgroundRunner
    ) -> None:
        super().__init__(tr("MCP servers"))
        self._theme = theme
        self._bench = bench
        self._program = program
        self._runner = runner
        self._cards: dict[str, McpServerCard] = {}
        self._edited_name = ""  # The server whose configuration was put into the form.
        self.add_sentence(
            tr(
                "An MCP server is software from somebody else. One that runs on this computer has your permissions: it can read and change your files, and send them elsewhere. Add only servers you trust."
            )
        )

        self._rows = build_column(margins=(0, 8, 0, 0), spacing=8)
        self.add_page_layout(self._rows)
        self._status_label = self.add_sentence("", "small")

        self.add_heading(tr("Add a server"))
        self._text = QPlainTextEdit(self.page_content, tabChangesFocus=True)
        self._text.setProperty("look", "mono")
        self._text.setPlaceholderText(
            tr("A command, an address, or the JSON from the server's documentation")
        )
        self._text.setAccessibleName(tr("Server configuration"))
        self._set_lines_of_text(LINES_OF_EMPTY_FORM)
        self.add_page_widget(self._text)

        self._name = build_line_edit(tr("Name"), tr("Name (optional)"), self.page_content)
        add = build_push_button(tr("Add"), self.page_content, self._confirm_and_add_typed_servers)
        self.add_page_layout(build_row((self._name, 1), add, wraps=True))
        self._error_label = self.add_sentence("", "danger")

        self.add_page_widget(
            RefreshWhileShown(self.page_content, REFRESH_MS, self.refresh_server_cards)
        )
        self.refresh_server_cards()

    def refresh_server_cards(self) -> None:
        """Updates the cards. Called every second while the page is visible."""
        try:
            servers = self._program.list_mcp_servers(self._bench)
        except HelixError as error:
            self._error_label.setText(translate_sentences(str(error)))
            return
        for name in self._cards.keys() - {server.config.name for server in servers}:
            removed_card = self._cards.pop(name)
            self._rows.removeWidget(removed_card)
            removed_card.hide()
            removed_card.deleteLater()
        for server in servers:
            card = self._cards.get(server.config.name)
            if card is not None:
                card.update_server_card(server)
                continue
            card = McpServerCard(
                server, self._build_server_action, self._run_server_change, self.page_content
            )
            edit = partial(self._show_configuration_to_edit, server.config.name)
            card.edit_wanted.connect(edit)
            self._cards[server.config.name] = card
            self._rows.addWidget(card)

    def _build_server_action(
        self, action: str, name: str, **arguments: Any
    ) -> Coroutine[Any, Any, Any]:
        """Returns the work that an action on a server's card stands for; the card runs it. A test
        can take a while, so the page says that it has begun.
        """
        servers = self._bench.mcp_servers
        test_server = partial(self._program.test_mcp_server, self._bench)
        sign_in = partial(self._program.sign_in_to_mcp_server, self._bench)
        work_by_action: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "switch": servers.switch_server,
            "switch_tool": servers.switch_server_tool,
            "mark_reading": servers.mark_tool_as_read_only,
            "limit": servers.set_server_timeouts,
            "test": test_server,
            "restart": servers.restart_server,
            "sign_in": sign_in,
            "remove": servers.remove_server,
        }
        status = ""
        if action == "test":
            status = tr("Testing {name}…", name=name)
        self._status_label.setText(status)
        build_work = work_by_action[action]
        return build_work(name, **arguments)

    def _run_server_change(
        self, work: Coroutine[Any, Any, Any], then: Callable[[], object] = lambda: None
    ) -> None:
        """Runs a change. Only a test returns something to show."""
        self._error_label.setText("")
        self._runner.run_in_background(
            work,
            then=partial(self._show_server_change, then),
            failed=self._show_server_error,
            owner=self,
        )

    def _show_server_change(self, then: Callable[[], object], result: object) -> None:
        then()
        if isinstance(result, str):
            self._status_label.setText(result)
        else:
            self._status_label.setText("")
        self.refresh_server_cards()

    def _show_server_error(self, error: HelixError) -> None:
        self._status_label.setText("")
        self._error_label.setText(translate_sentences(str(error)))

    def _confirm_and_add_typed_servers(self) -> None:
        """Shows exactly what will be started or contacted before it is added, unless a program
        that it needs is missing. The login shell that knows where programs are may take a while.
        """
        text = self._text.toPlainText()
        name = self._name.text().strip()
        try:
            servers = self._program.parse_server_configuration(text, name)
        except HelixError as error:
            self._error_label.setText(translate_sentences(str(error)))
            return
        self._error_label.setText("")
        self._runner.run_in_background(
            self._bench.mcp_servers.check_programs_of_servers(servers),
            then=lambda _: self._confirm_servers(servers, text, name),
            failed=self._show_server_error,
            owner=self,
        )

    def _confirm_servers(self, servers: Sequence[ServerConfig], text: str, name: str) -> None:
        replaced = [server.name for server in servers if server.name in self._cards]
        kept = ""
        if self._edited_name in self._cards and self._edited_name not in replaced:
            kept = self._edited_name
        question = _build_question_about_servers(servers, replaced, kept)
        add = partial(self._add_server, text, name)
        dialog = ConsentDialog(self._theme, question, self, add)
        dialog.rejected.connect(self._say_that_nothing_was_added)
        dialog.open()

    def _say_that_nothing_was_added(self) -> None:
        self._status_label.setText(tr("Nothing was added. What you typed is still below."))
        self._text.setFocus()

    def _show_configuration_to_edit(self, name: str, configuration: str) -> None:
        """Puts a server's configuration into the form, from which it is added again."""
        self._edited_name = name
        self._text.setPlainText(configuration)
        self._set_lines_of_text(LINES_OF_EDITED_FORM)
        self._name.clear()
        self._text.setFocus()
        hint = tr("Change the configuration below, and click “Add” to replace the server.")
        self._status_label.setText(hint)
        scroll_to_widget(self._text)

    def _add_server(self, text: str, name: str) -> None:
        adding = self._bench.mcp_servers.add_pasted_servers(text, name)
        self._run_server_change(adding, partial(self._clear_form_of, text))

    def _clear_form_of(self, added_text: str) -> None:
        """Clears the form, unless the user has changed its text in the meantime."""
        if self._text.toPlainText() == added_text:
            self._text.clear()
            self._name.clear()
            self._edited_name = ""
            self._set_lines_of_text(LINES_OF_EMPTY_FORM)

    def _set_lines_of_text(self, lines: int) -> None:
        self._text.setFixedHeight(lines * self._text.fontMetrics().lineSpacing())


def _build_question_about_servers(
    servers: Sequence[ServerConfig], replaced: Sequence[str], kept: str
) -> ConsentQuestion:
    """Builds the question, with exactly what would be started or contacted: programs first.
    `replaced`: the names of servers that are there and get this configuration. `kept`: the server
    that was edited, if what is added has another name.
    """
    started: list[str] = []
    contacted: list[str] = []
    for server in servers:
        description = server.full_description_without_secrets
        line = description
        if server.name not in description:
            line = f"{server.name}: {description}"
        if description.startswith(("http://", "https://")):
            contacted.append(line)
        else:
            started.append(line)
    sentences: list[str] = []
    if started:
        sentences.append(tr("Add this server? The server will run with your permissions."))
    if contacted:
        sentences.append(tr("Add this server? The agent's requests will be sent to this address."))
    if replaced:
        sentences.append(tr("It replaces {names}.", names=", ".join(replaced)))
    if kept:
        sentences.append(
            tr("This server has another name, so it is added. {name} stays as it is.", name=kept)
        )
    exact_text = "\n\n".join(started + contacted)
    return ConsentQuestion(tr("Add MCP server"), "\n".join(sentences), exact_text, tr("Add"))
