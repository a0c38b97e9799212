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

from helix_desktop.acp_client.acp_agents import AcpAgent, find_acp_agent, list_acp_agents
from helix_desktop.mcp_client.login_path import read_login_path
from helix_desktop.workbench import system_prompt_and_settings

if TYPE_CHECKING:
    from helix_desktop.acp_client.foreign_conversation import ForeignConversation, RegisterRoute
    from helix_desktop.engine.conversation import Conversation
    from helix_desktop.engine.facts import TurnEnded
    from helix_desktop.engine.ports import ToolSet
    from helix_desktop.engine.session_setup import TaskSpawner, TurnCallbacks
    from helix_desktop.tools.workspace_tools import WorkspaceTools

MOST_IDLE = 4  # The maximum number of idle foreign agents whose processes are kept.


class AcpConversations:
    """`own_lines` returns the setting with the user's own agents. `kits` returns the
    tools for a copy.
    """

    def __init__(
        self,
        own_lines: Callable[[], str],
        register: Any,
        spawn: TaskSpawner,
        kits: Callable[[str], WorkspaceTools],
    ) -> None:
        self._own_lines, self._register_route, self._spawn, self._kits = (
            own_lines,
            register,
            spawn,
            kits,
        )
        self._open: dict[str, ForeignConversation] = {}  # In the order of their last turns.
        self._path = ""

    async def list_agent_names(self) -> list[str]:
        return [
            agent.name
            for agent in list_acp_agents(self._own_lines(), await self._read_environment())
        ]

    async def find_agent(self, name: str) -> tuple[AcpAgent, Mapping[str, str], RegisterRoute]:
        environment = await self._read_environment()
        agent = find_acp_agent(name, self._own_lines(), environment)
        return agent, environment, partial(self._register_route, name, environment)

    async def _read_environment(self) -> Mapping[str, str]:
        """Return the user's variables, as in a terminal, without those of this program."""
        self._path = self._path or await read_login_path(os.environ)
        return {
            name: value for name, value in os.environ.items() if not name.startswith("HELIX_")
        } | {"PATH": self._path}

    async def open_conversation(self, conversation: Conversation) -> ForeignConversation:
        """Return the agent's side of it. A thread imports the SDK, which takes half a second."""
        if conversation.id not in self._open:
            module = await asyncio.to_thread(
                importlib.import_module, "helix_desktop.acp_client.foreign_conversation"
            )
            policy = system_prompt_and_settings.build_policy_fact("none", {})
            made = module.ForeignConversation(
                conversation.state.acp_agent, self.find_agent, self._spawn, policy
            )
            self._open.setdefault(conversation.id, made)
        return self._open[conversation.id]

    async def start_agent(self, conversation: Conversation) -> ForeignConversation:
        """Start the agent that works in a conversation, so that it reports what it offers."""
        foreign = await self.open_conversation(conversation)
        await foreign.open_agent_session(conversation, self._kits(conversation.state.own_copy))
        return foreign

    def list_agent_commands(self, conversation: str) -> Mapping[str, str]:
        """Return the slash commands that the agent in a conversation has reported, with
        what they do.
        """
        return self._open[conversation].commands if conversation in self._open else {}

    async def run_conversation_turn(
        self,
        conversation: Conversation,
        kit: WorkspaceTools,
        tools: ToolSet,
        callbacks: TurnCallbacks,
    ) -> TurnEnded:
        foreign = await self.open_conversation(conversation)
        self._open[conversation.id] = self._open.pop(conversation.id)
        others = [each for each in self._open.values() if each is not foreign]
        for one in [each for each in others if each.has_running_process and not each.is_working][
            :-MOST_IDLE
        ]:
            await one.end_agent()
        return await foreign.run_agent_turn(conversation, kit, tools, callbacks)

    async def end_all_agents(self) -> None:
        await asyncio.gather(*(foreign.end_agent() for foreign in self._open.values()))
