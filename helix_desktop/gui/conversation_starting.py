"""The ways to begin a conversation: here, in a copy of the repository, or with another agent."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject

from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.question_dialogs import ask_to_choose_one
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import Session, Workbench


class ConversationStarter(QObject):
    def __init__(self, parts: WindowParts, sides: ConversationSides) -> None:
        super().__init__(parts.widget)
        self._parts = parts
        self._showing = parts.showing
        self._sides = sides
        on = parts.actions.set_action_handler
        on("new", self._begin_here, when=self._can_begin_here)
        on("new-with", self._ask_how_to_begin, when=parts.showing.has_workspace)
        on("new-copy", self._ask_to_begin_in_copy, when=parts.showing.has_workspace)
        on("new-acp", self._ask_agent_and_begin, when=parts.showing.has_workspace)

    def _can_begin_here(self) -> bool:
        # While the last workspace is still being opened, a new conversation can be written.
        return self._showing.has_workspace() or bool(self._sides.current.awaited_conversation)

    def _begin_here(self) -> None:
        self._sides.begin_new_conversation()
        self._sides.go_to_side(self._sides.current)

    def _ask_how_to_begin(self) -> None:
        """Offers the two other ways to begin: in a copy of the files, or with another agent."""
        ways = [
            (tr("A copy of the repository"), self._ask_to_begin_in_copy),
            (tr("Another agent"), self._ask_agent_and_begin),
        ]
        words = tr("In a copy, your own files change only when you bring the changes back. Another agent works with its own tools and account.")  # fmt: skip
        ask_to_choose_one(
            self._parts.widget, tr("New conversation with…"), words, "", ways, has_main_way=True
        )

    def _ask_to_begin_in_copy(self) -> None:
        bench = self._showing.bench
        if bench is None:
            return

        def begin_from_last_commit() -> None:
            self._begin_and_show(bench, bench.start_conversation_in_copy())

        def begin_with_changes() -> None:
            self._begin_and_show(bench, bench.start_conversation_in_copy(with_changes=True))

        ways = [
            (tr("From the last commit"), begin_from_last_commit),
            (tr("With my uncommitted changes"), begin_with_changes),
        ]
        text = tr("The agent works in a private copy that is stored with the program's data. Your own folder is not changed until you bring the copy's changes back.")  # fmt: skip
        title = tr("New conversation in a copy of the repository")
        ask_to_choose_one(self._parts.widget, title, text, "", ways, has_main_way=True)

    def _ask_agent_and_begin(self) -> None:
        """Asks which agent on this computer (Agent Client Protocol) works in a new conversation."""
        bench = self._showing.bench
        if bench is not None:
            show = partial(self._show_agents, bench)
            self._parts.run_for_window(bench.acp.list_agent_names(), then=show)

    def _show_agents(self, bench: Workbench, names: Sequence[str]) -> None:
        def begin_with_agent(name: str) -> None:
            self._begin_and_show(bench, bench.start_users_conversation(acp_agent=name))

        title = tr("New conversation with another agent")
        ways: list[tuple[str, Callable[[], object]]] = []
        for name in names:
            ways.append((name, partial(begin_with_agent, name)))
        text = tr("The agent runs with your permissions, as it would in a terminal. This workspace's permissions apply to everything that the agent asks Helix Desktop to do. You can add other agents in the settings.")  # fmt: skip
        if not names:
            text = tr("No agent that supports the Agent Client Protocol was found on this computer. You can add one in the settings.")  # fmt: skip
            open_settings = partial(self._parts.requests.settings_wanted.emit, "servers")
            ways.append((tr("Open settings"), open_settings))
        ask_to_choose_one(self._parts.widget, title, text, "", ways, has_main_way=True)

    def _begin_and_show(self, bench: Workbench, work: Coroutine[Any, Any, Session]) -> None:
        def show_begun_conversation(session: Session) -> None:
            if self._sides.show_session_if_current(bench, session):
                self._parts.requests.page_wanted.emit("chat")
            self._sides.refresh_conversations()

        self._parts.run_for_window(work, then=show_begun_conversation)
