"""The settings of other makers' agents: those that the user added, and the known ones that are
installed. They work in conversations of this window, over the Agent Client Protocol.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QWidget

from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.copy_with_sign import copy_and_say_so
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value
from helix_desktop.gui.common.widgets import (
    build_plain_label,
    build_popup_menu,
    build_push_button,
    build_surface,
    open_menu_below,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import ListedAcpAgent, Workbench
from helix_desktop.program_settings import ACP_AGENTS, ProgramSettings

LONGEST_SHOWN_COMMAND = 400


class AcpAgentsPage(SettingsPage):
    def __init__(
        self, bench: Workbench, settings: ProgramSettings, runner: BackgroundRunner
    ) -> None:
        super().__init__(tr("Agents"))
        self._bench = bench
        self._settings = settings
        self._runner = runner
        about_agents = tr("Agents of other makers that work in a conversation of this window. They run with your permissions.")  # fmt: skip
        self.add_sentence(about_agents)
        self._rows = build_column(spacing=6)
        self.add_page_layout(self._rows)
        self._missing_label = self.add_sentence("", "small")
        self._missing_label.hide()
        install_words = f"{tr('Copy the command that installs one')} ▾"
        self._install = self.add_page_button(install_words, self._open_install_menu, "link")
        self._install.hide()
        self._install_commands: dict[str, str] = {}  # By the agent's name.
        self._copied_label = self.add_sentence("", "mono")
        self._copied_label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._copied_label.hide()
        self._error_label = self.add_sentence("", "danger")
        self._error_label.hide()
        self.add_page_button(tr("Add agent…"), self._open_add_dialog)
        connect = partial(self.wanted.emit, "connect-agent")
        self.add_page_button(tr("Connect an agent that you use in a terminal…"), connect, "link")
        self.refresh_agents()

    def refresh_agents(self) -> None:
        self._runner.run_in_background(
            self._bench.acp.describe_agents(), then=self._show_agents, owner=self
        )

    def _show_agents(self, agents: Sequence[ListedAcpAgent]) -> None:
        """Shows a card for each agent that can be used, and one line on known ones that cannot."""
        clear_layout(self._rows)
        missing_agents: list[str] = []
        self._install_commands = {}
        for agent in agents:
            if agent.is_installed or agent.is_own:
                self._rows.addWidget(self._build_agent_card(agent))
                continue
            missing_agents.append(agent.name)
            if agent.install_command:
                self._install_commands[agent.name] = agent.install_command
        names = ", ".join(missing_agents)
        self._missing_label.setText(tr("Known, but not installed here: {names}", names=names))
        self._missing_label.setVisible(bool(missing_agents))
        self._install.setVisible(bool(self._install_commands))

    def _open_install_menu(self) -> None:
        """Offers the agents that are not installed, since all commands at once are a wall."""
        menu = build_popup_menu(self._install)
        for name, command in self._install_commands.items():
            copy_command = partial(self._copy_install_command, command)
            menu_line = menu.addAction(name)
            menu_line.triggered.connect(copy_command)
        open_menu_below(menu, self._install)

    def _copy_install_command(self, command: str, _checked: bool = False) -> None:  # noqa: FBT001, FBT002 - a slot
        """Copies the command and shows it, as nobody runs in a terminal what they have not read."""
        copy_and_say_so(command, self._install)
        self._copied_label.setText(command)
        self._copied_label.show()

    def _build_agent_card(self, agent: ListedAcpAgent) -> QWidget:
        """Builds the card of an agent: its name, the command that starts it, and what can be done
        with it. A known agent cannot be removed, as it is there while its program is installed.
        """
        card = build_surface(self.page_content, "card")
        name = make_safe_text(agent.name)
        title = build_plain_label(name, "", card)
        command_words = make_safe_text(agent.command_line[:LONGEST_SHOWN_COMMAND])
        command = build_plain_label(command_words, "mono", card)
        state = build_plain_label("", "small", card)
        if not agent.is_installed:
            state.setText(tr("Its program was not found on this computer."))
            set_widget_look(state, "danger")
        state.setVisible(bool(state.text()))
        buttons = build_row(1)
        if agent.is_own:
            remove = partial(self._remove_agent, agent.name)
            remove_label = tr("Remove")
            remove_button = build_push_button(remove_label, card, remove, "link")
            remove_button.setAccessibleName(f"{remove_label}: {name}")
            buttons.insertWidget(0, remove_button)
        if agent.is_installed:
            test = partial(self._test_agent, agent.name, state)
            test_label = tr("Test")
            test_button = build_push_button(test_label, card, test, "link")
            test_button.setAccessibleName(f"{test_label}: {name}")
            buttons.insertWidget(0, test_button)
        build_column(title, command, state, buttons, owner=card, margins=(12, 8, 8, 6), spacing=2)
        return card

    # --- Test, add and remove

    def _test_agent(self, name: str, state: QLabel) -> None:
        state.setText(tr("Starting {name}…", name=name))
        set_widget_look(state, "small")
        state.show()
        self._runner.run_in_background(
            self._bench.acp.test_agent(name),
            then=partial(self._show_test_passed, name, state),
            failed=partial(self._show_test_failure, state),
            owner=state,
        )

    def _show_test_passed(self, name: str, state: QLabel, _done: None) -> None:
        words = tr("{name} started and answered. Begin a conversation with it from “+” beside the workspace’s name.")  # fmt: skip
        state.setText(words.format(name=name))

    def _show_test_failure(self, state: QLabel, error: HelixError) -> None:
        state.setText(translate_sentences(str(error)))
        set_widget_look(state, "danger")

    def _open_add_dialog(self) -> None:
        about_command = tr("What you would type in a terminal to start it as an agent, for example: gemini --experimental-acp")  # fmt: skip
        fields = [
            FieldDeclaration("name", tr("Name"), "", ""),
            FieldDeclaration("command", tr("Command"), about_command, ""),
        ]
        about_rights = tr("The agent runs with your permissions, as it would in a terminal.")
        above = [build_plain_label(about_rights, "muted")]
        dialog = FieldsDialog(tr("Add agent"), fields, tr("Add"), self._add_agent, self, above)
        dialog.open()

    def _add_agent(self, values: dict[str, Value]) -> None:
        name = str(values["name"]).strip()
        command_line = str(values["command"]).strip()
        if not name or not command_line:
            raise InvalidInput(tr("Enter a name and a command."))
        own_lines = self._bench.acp.own_lines_with_agent(name, command_line)
        self._settings.change_setting(ACP_AGENTS, own_lines)
        self.refresh_agents()

    def _remove_agent(self, name: str) -> None:
        own_lines = self._bench.acp.own_lines_without_agent(name)
        self._settings.change_setting(ACP_AGENTS, own_lines)
        self.refresh_agents()
