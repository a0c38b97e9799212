"""The foreign agents of one workspace (Agent Client Protocol), with a process for each
conversation.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from helix_desktop.acp_client.acp_agents import (
    ConnectableAgent,
    ListedAcpAgent,
    add_agent_line,
    describe_acp_agents,
    find_acp_agent,
    list_acp_agents,
    remove_agent_line,
)
from helix_desktop.errors import ActionRefused
from helix_desktop.mcp_client.login_path import read_login_path
from helix_desktop.processes.folders_of_agents import environment_without_agents
from helix_desktop.workbench import system_prompt_and_settings

if TYPE_CHECKING:
    from helix_desktop.acp_client.foreign_conversation import ForeignConversation
    from helix_desktop.engine.conversation import Conversation
    from helix_desktop.engine.facts import TurnEnded
    from helix_desktop.engine.ports import ToolSet
    from helix_desktop.engine.session_setup import TaskSpawner, TurnCallbacks
    from helix_desktop.tools.workspace_tools import WorkspaceTools

MOST_IDLE = 4  # The maximum number of idle foreign agents whose processes are kept.


async def _refuse_tested_agent(method: str, _params: dict[str, Any]) -> dict[str, Any]:
    raise ActionRefused(f"The agent is only tested, so {method} is refused.")


async def _ignore_update(_session: str, _update: dict[str, Any], _size: int) -> None:
    """What a tested agent reports by itself says nothing about whether it works."""


def _ignore_size(_size: int) -> None:
    """The test of an agent is too short for too much."""


class AcpConversations:
    """`own_lines` returns the setting with the user's own agents. `tools_of_copy` returns
    the tools that work in a copy of the folders.
    """

    def __init__(
        self,
        own_lines: Callable[[], str],
        register: Any,
        spawn: TaskSpawner,
        tools_of_copy: Callable[[str], WorkspaceTools],
    ) -> None:
        self._own_lines = own_lines
        self._register_route = register
        self._spawn = spawn
        self._tools_of_copy = tools_of_copy
        # By conversation, in the order of their last turns.
        self._open_conversations: dict[str, ForeignConversation] = {}
        self._login_path = ""

    async def list_agent_names(self) -> list[str]:
        environment = await self._read_environment()
        agents = list_acp_agents(self._own_lines(), environment)
        return [agent.name for agent in agents]

    async def describe_agents(self) -> list[ListedAcpAgent]:
        """Return all agents for the settings, also known ones that are not installed."""
        return describe_acp_agents(self._own_lines(), await self._read_environment())

    def own_lines_with_agent(self, name: str, command_line: str) -> str:
        """Return the setting with one more agent. InvalidInput if it could not be started."""
        return add_agent_line(self._own_lines(), name, command_line)

    def own_lines_without_agent(self, name: str) -> str:
        return remove_agent_line(self._own_lines(), name)

    async def test_agent(self, name: str) -> None:
        """Start the agent, let it say what it can do, and end it. ModelFailed says what failed."""
        connectable_agent = await self.find_agent(name)
        # A thread imports the SDK, which takes half a second.
        module = await asyncio.to_thread(
            importlib.import_module, "helix_desktop.acp_client.agent_connection"
        )
        handlers = module.AgentHandlers(_refuse_tested_agent, _ignore_update, _ignore_size)
        main_tools = self._tools_of_copy("")
        connection = await module.AgentConnection.start_agent(
            connectable_agent.agent,
            connectable_agent.environment,
            main_tools,
            self._spawn,
            handlers,
        )
        await connection.end_agent_process()

    async def find_agent(self, name: str) -> ConnectableAgent:
        environment = await self._read_environment()
        agent = find_acp_agent(name, self._own_lines(), environment)
        register_route = partial(self._register_route, name, environment)
        return ConnectableAgent(agent, environment, register_route)

    async def _read_environment(self) -> Mapping[str, str]:
        """Return the user's variables, as in a terminal, without those of this program and those that
        lead to what agents have written.
        """
        if not self._login_path:
            self._login_path = await read_login_path(os.environ)
        environment: dict[str, str] = {}
        for name, value in os.environ.items():
            if not name.startswith("HELIX_"):
                environment[name] = value
        environment["PATH"] = self._login_path
        return environment_without_agents(environment)

    async def open_conversation(self, conversation: Conversation) -> ForeignConversation:
        """Return the agent's side of it. A thread imports the SDK, which takes half a second."""
        if conversation.id not in self._open_conversations:
            module = await asyncio.to_thread(
                importlib.import_module, "helix_desktop.acp_client.foreign_conversation"
            )
            policy = system_prompt_and_settings.build_policy_fact("none", {})
            foreign = module.ForeignConversation(
                conversation.state.acp_agent, self.find_agent, self._spawn, policy
            )
            # It may have been opened during the import, too.
            self._open_conversations.setdefault(conversation.id, foreign)
        return self._open_conversations[conversation.id]

    async def start_agent(self, conversation: Conversation) -> ForeignConversation:
        """Start the agent that works in a conversation, so that it reports what it offers."""
        foreign = await self.open_conversation(conversation)
        tools = self._tools_of_copy(conversation.state.own_copy)
        await foreign.open_agent_session(conversation, tools)
        return foreign

    def list_agent_commands(self, conversation: str) -> Mapping[str, str]:
        """Return the slash commands that the agent in a conversation has reported, with
        what they do.
        """
        foreign = self._open_conversations.get(conversation)
        if foreign is None:
            return {}
        return foreign.commands

    async def run_conversation_turn(
        self,
        conversation: Conversation,
        kit: WorkspaceTools,
        tools: ToolSet,
        callbacks: TurnCallbacks,
    ) -> TurnEnded:
        """Let the agent answer what is new in a conversation, and return how the turn
        ended.
        """
        foreign = await self.open_conversation(conversation)
        # It moves to the end, because its turn is now the last one.
        del self._open_conversations[conversation.id]
        self._open_conversations[conversation.id] = foreign
        await self._end_longest_idle_agents(foreign)
        return await foreign.run_agent_turn(conversation, kit, tools, callbacks)

    async def _end_longest_idle_agents(self, foreign_in_use: ForeignConversation) -> None:
        """End the processes of idle agents above `MOST_IDLE`. The next turn starts them again."""
        idle_agents: list[ForeignConversation] = []
        for foreign in self._open_conversations.values():
            is_idle = foreign.has_running_process and not foreign.is_working
            if is_idle and foreign is not foreign_in_use:
                idle_agents.append(foreign)
        for foreign in idle_agents[:-MOST_IDLE]:
            await foreign.end_agent()

    async def end_all_agents(self) -> None:
        endings = [foreign.end_agent() for foreign in self._open_conversations.values()]
        await asyncio.gather(*endings)
