"""The ways to begin a conversation: here, in a copy of the repository, or with another agent."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import Workbench


class ConversationStarter(QObject):
    def __init__(self, parts: WindowParts, sides: ConversationSides) -> None:
        super().__init__(parts.widget)
        self._parts = parts
        self._showing = parts.showing
        self._sides = sides
        has_workbench = parts.showing.has_workbench
        set_handler = parts.actions.set_action_handler
        set_handler("new", self._begin_here, when=self._can_begin_here)
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
        """Offers all other ways to begin in one question: in a copy, or with another agent."""
        bench = self._showing.bench
        if bench is None:
            return
        begin_from_commit = partial(self._begin_in_copy, bench, with_changes=False)
        begin_with_changes = partial(self._begin_in_copy, bench, with_changes=True)
        choices = [
            DialogChoice(tr("Copy of the last commit"), begin_from_commit),
            DialogChoice(tr("Copy with my uncommitted changes"), begin_with_changes),
            DialogChoice(tr("Another agent"), self._ask_agent_and_begin),
        ]
        text = tr("In a copy, your own files change only when you bring the changes back. Another agent works with its own tools and account.")  # fmt: skip
        # The action's own name would be cut off in the title of the window.
        title = tr("New conversation")
        ask_to_choose_one(self._parts.widget, title, text, choices, is_first_usual=True)

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
            self._parts.run_for_window(bench.acp.list_agent_names(), then=show)

    def _show_agents(self, bench: Workbench, names: Sequence[str]) -> None:
        title = tr("New conversation with another agent")
        text = tr("The agent runs with your permissions, as it would in a terminal. This workspace's permissions apply to everything that the agent asks Helix Desktop to do. You can add other agents in the settings.")  # fmt: skip
        choices: list[DialogChoice] = []
        for name in names:
            label = tr("Start with {name}", name=name)
            choices.append(DialogChoice(label, partial(self._begin_with_agent, bench, name)))
        if not names:
            text = tr("No agent that supports the Agent Client Protocol was found on this computer. You can add one in the settings.")  # fmt: skip
            open_settings = partial(self._parts.requests.settings_wanted.emit, "agents")
            choices.append(DialogChoice(tr("Open settings"), open_settings))
        ask_to_choose_one(self._parts.widget, title, text, choices, is_first_usual=True)

    def _begin_with_agent(self, bench: Workbench, name: str) -> None:
        conversation = new_conversation_id()
        creation = bench.start_users_conversation(conversation, acp_agent=name)
        self._sides.create_and_show_conversation(bench, conversation, creation)
