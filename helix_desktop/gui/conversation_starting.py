"""The ways to begin a conversation: here, in a copy of the repository, or with another agent."""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QPushButton, QWidget

from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.gui.common import widgets
from helix_desktop.gui.connected.connect_agents_dialog import CopyableCommandLine
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import make_default_button
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import ListedAcpAgent, Workbench

MOST_NAMED_AGENTS = 3  # More buttons than these would hide the other ways to begin.


class ConversationStarter(QObject):
    def __init__(self, parts: WindowParts, sides: ConversationSides) -> None:
        super().__init__(parts.widget)
        self._parts = parts
        self._showing = parts.showing
        self._sides = sides
        has_workbench = parts.showing.has_workbench
        set_handler = parts.actions.set_action_handler
        set_handler("new", self._begin_here, when=self._can_begin_here)
        parts.actions.explain_condition(
            self._can_begin_here, self._showing.describe_missing_workspace
        )
        set_handler("new-with", self._ask_how_to_begin, when=has_workbench)
        set_handler("new-copy", self._ask_to_begin_in_copy, when=has_workbench)
        set_handler("new-acp", self._ask_agent_and_begin, when=has_workbench)

    def _can_begin_here(self) -> bool:
        # While the last workspace is still being opened, a new conversation can be written.
        return self._showing.has_workspace() or bool(self._sides.current.awaited_conversation)

    def _begin_here(self) -> None:
        self._sides.begin_new_conversation()
        self._sides.go_to_side(self._sides.current)

    def _ask_how_to_begin(self) -> None:
        bench = self._showing.bench
        if bench is not None:
            show = partial(self._show_ways_to_begin, bench)
            self._parts.run_for_window(bench.acp.list_agent_names(), then=show)

    def _show_ways_to_begin(self, bench: Workbench, agents: Sequence[str]) -> None:
        dialog = WaysToBeginDialog(self._parts.widget, agents)
        dialog.copy_wanted.connect(lambda has: self._begin_in_copy(bench, with_changes=has))
        dialog.named_agent_wanted.connect(partial(self._begin_with_agent, bench))
        dialog.agent_wanted.connect(self._ask_agent_and_begin)
        dialog.open()

    def _ask_to_begin_in_copy(self) -> None:
        bench = self._showing.bench
        if bench is None:
            return
        begin_from_commit = partial(self._begin_in_copy, bench, with_changes=False)
        begin_with_changes = partial(self._begin_in_copy, bench, with_changes=True)
        choices = [
            DialogChoice(tr("From the last commit"), begin_from_commit),
            DialogChoice(tr("With my uncommitted changes"), begin_with_changes),
        ]
        title = tr("New conversation in a copy of the repository")
        text = tr("The agent works in a private copy that is stored with the program's data. Your own folder is not changed until you bring the copy's changes back.")  # fmt: skip
        ask_to_choose_one(self._parts.widget, title, text, choices, is_first_usual=True)

    def _begin_in_copy(self, bench: Workbench, *, with_changes: bool) -> None:
        conversation = new_conversation_id()
        creation = bench.start_conversation_in_copy(
            with_changes=with_changes, identity=conversation
        )
        explanation = tr("The copy of the repository is being made. What you send now waits until it is ready, and goes to this new conversation.")  # fmt: skip
        self._sides.create_and_show_conversation(
            bench, conversation, creation, explanation=explanation
        )

    def _ask_agent_and_begin(self) -> None:
        """Asks which agent on this computer (Agent Client Protocol) works in a new conversation."""
        bench = self._showing.bench
        if bench is not None:
            show = partial(self._show_agents, bench)
            self._parts.run_for_window(bench.acp.describe_agents(), then=show)

    def _show_agents(self, bench: Workbench, agents: Sequence[ListedAcpAgent]) -> None:
        dialog = AgentChoiceDialog(self._parts.widget, agents)
        dialog.agent_chosen.connect(partial(self._begin_with_agent, bench))
        open_settings = partial(self._parts.requests.settings_wanted.emit, "agents")
        dialog.settings_wanted.connect(open_settings)
        dialog.open()

    def _begin_with_agent(self, bench: Workbench, name: str) -> None:
        conversation = new_conversation_id()
        creation = bench.start_users_conversation(conversation, acp_agent=name)
        explanation = tr("Starting {name}…", name=name)
        self._sides.create_and_show_conversation(
            bench, conversation, creation, explanation=explanation
        )


def _describe_agents_permissions() -> str:
    return tr("The agent runs with your permissions, as it would in a terminal. This workspace's permissions apply to everything that the agent asks Helix Desktop to do. You can add other agents in the settings.")  # fmt: skip


class WaysToBeginDialog(widgets.TransientDialog):
    """Offers all other ways to begin at once. A copy and another agent are two things, so each has
    its own sentence and buttons. `copy_wanted`: with the user's uncommitted changes, or without.
    `named_agent_wanted` carries one of `agents`; of many, and of those that are not installed, one
    is chosen in a dialog of its own.
    """

    copy_wanted = Signal(bool)
    agent_wanted = Signal()
    named_agent_wanted = Signal(str)

    def __init__(self, parent: QWidget, agents: Sequence[str]) -> None:
        # The action's own name would be cut off in the title of the window.
        super().__init__(tr("New conversation"), parent, 520)
        from_commit = self._build_way(
            tr("Copy of the last commit"), lambda: self.copy_wanted.emit(False)
        )
        with_changes = self._build_way(
            tr("Copy with my uncommitted changes"), lambda: self.copy_wanted.emit(True)
        )
        if 0 < len(agents) <= MOST_NAMED_AGENTS:
            words_on_agents = _describe_agents_permissions()
            agent_buttons = [self._build_way_with_agent(name) for name in agents]
            agent_buttons.append(self._build_way(tr("Other agents…"), self.agent_wanted.emit))
        else:
            words_on_agents = tr("It works with its own tools and account.")
            agent_buttons = [self._build_way(tr("Choose an agent…"), self.agent_wanted.emit)]
        cancel = widgets.build_push_button(tr("Cancel"), self, self.reject)
        build_column(
            widgets.build_plain_label(tr("With another agent"), "title", self),
            widgets.build_plain_label(words_on_agents, "muted", self),
            build_row(*agent_buttons, 1, wraps=True),
            widgets.build_plain_label(tr("In a copy of the repository"), "title", self),
            widgets.build_plain_label(
                tr("Your own files change only when you bring the changes back."), "muted", self
            ),
            build_row(from_commit, with_changes, 1, wraps=True),
            build_row(1, cancel),
            owner=self,
            margins=20,
            spacing=8,
        )

    def _build_way_with_agent(self, name: str) -> QPushButton:
        label = tr("Start with {name}", name=name)
        return self._build_way(label, partial(self.named_agent_wanted.emit, name))

    def _build_way(self, label: str, act: Callable[[], object]) -> QPushButton:
        def close_and_act() -> None:
            self.accept()
            act()

        return widgets.build_push_button(label, self, close_and_act)


class AgentChoiceDialog(widgets.TransientDialog):
    """Lists the agents that are on this computer, each with a button that begins with it, and below
    them the others with what installs them. Whether an agent is signed in is known only when it
    has started, so what signs in to it is there before.
    """

    agent_chosen = Signal(str)
    settings_wanted = Signal()

    def __init__(self, parent: QWidget, agents: Sequence[ListedAcpAgent]) -> None:
        super().__init__(tr("New conversation with another agent"), parent, 560, 520)
        # The page is made before what stands below it, so that Tab goes from top to bottom.
        page = QWidget(self)
        column = build_column(owner=page, margins=20, spacing=8)
        found_agents = [agent for agent in agents if agent.is_installed]
        # Of the user's own agents that are not found, only the settings can say more.
        missing_agents: list[ListedAcpAgent] = []
        for agent in agents:
            if agent.install_command and not agent.is_installed:
                missing_agents.append(agent)

        words = _describe_agents_permissions()
        if not found_agents:
            words = tr("No agent that supports the Agent Client Protocol was found on this computer. You can add one in the settings.")  # fmt: skip
        column.addWidget(widgets.build_plain_label(words, "muted", page))
        for agent in found_agents:
            is_first = agent is found_agents[0]
            column.addWidget(self._build_found_agent(agent, page, is_first=is_first))

        if missing_agents:
            title = tr("Not found on this computer")
            column.addWidget(widgets.build_plain_label(title, "title", page))
            about_installing = tr("Each is installed by a command that you run in a terminal.")
            column.addWidget(widgets.build_plain_label(about_installing, "muted", page))
        for agent in missing_agents:
            line = CopyableCommandLine(page, agent.name)
            line.show_command_line(agent.install_command)
            column.addWidget(line)
        column.addStretch(1)

        add = widgets.build_push_button(
            tr("Add another agent…"), self, self._close_for_agent_settings, "link"
        )
        cancel = widgets.build_push_button(tr("Cancel"), self, self.reject)
        build_column(
            (widgets.build_scroll_area(page, self), 1),
            build_row(add, 1, cancel, margins=(20, 0, 20, 16)),
            owner=self,
            margins=0,
        )

    def _build_found_agent(
        self, agent: ListedAcpAgent, page: QWidget, *, is_first: bool
    ) -> QWidget:
        card = widgets.build_surface(page, "card")
        name = make_safe_text(agent.name)
        use = widgets.build_push_button(
            tr("Use"), card, partial(self._close_and_begin_with, agent.name)
        )
        use.setAccessibleName(f"{use.text()}: {name}")
        if is_first:
            make_default_button(use)
            use.setFocus()
        title = build_row((widgets.build_plain_label(name, "", card), 1), use)
        column = build_column(title, owner=card, margins=(12, 8, 8, 8), spacing=4)
        if agent.sign_in_command:
            line = CopyableCommandLine(card, tr("To sign in, in a terminal:"))
            line.show_command_line(agent.sign_in_command)
            column.addWidget(line)
        return card

    def _close_and_begin_with(self, name: str) -> None:
        self.accept()
        self.agent_chosen.emit(name)

    def _close_for_agent_settings(self) -> None:
        self.accept()
        self.settings_wanted.emit()
