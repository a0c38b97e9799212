"""Turns a slash command into a message. Its shell lines and files are run and read if permitted."""

import json
from collections.abc import Sequence
from pathlib import Path

from helix_desktop.engine.content_recall import read_entry_beginning
from helix_desktop.engine.facts import Attachment, Text, ToolCall, UserPart
from helix_desktop.engine.ports import CallOutcome, ContentCache, TokenCounter
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.project.slash_commands import CommandPrompt, build_command_prompt
from helix_desktop.workbench.acp_conversations import AcpConversations
from helix_desktop.workbench.mcp_servers import WorkspaceMcpServers
from helix_desktop.workbench.rules_and_skills import WorkspaceRulesAndSkills

MOST_OUTPUT = 32 * 1024


class SlashCommands:
    """The slash commands from folders, skills, and prompts of servers."""

    def __init__(
        self,
        project: WorkspaceRulesAndSkills,
        servers: WorkspaceMcpServers,
        acp: AcpConversations,
        cache: ContentCache,
        tokens: TokenCounter,
    ) -> None:
        self._project, self._servers, self._acp, self._cache, self._tokens = (
            project,
            servers,
            acp,
            cache,
            tokens,
        )

    def list_slash_commands(self, conversation: str = "") -> Sequence[ProjectItem]:
        """Return all commands, without those that a foreign agent in `conversation` has itself."""
        prompts = [
            ProjectItem(
                "command",
                f"{each.server}:{each.name}",
                Path(each.server),
                "",
                "",
                each.about,
                trusted=True,
            )
            for each in self._servers.list_server_prompts()
        ]
        own = (
            *self._project.now.items_in_force("command"),
            *self._project.now.items_in_force("skill"),
            *prompts,
        )
        known = self._acp.list_agent_commands(conversation)
        return [item for item in own if item.name not in known]

    async def expand_command_message(
        self, session: Session, parts: tuple[UserPart, ...]
    ) -> tuple[UserPart, ...]:
        """Replace a command's name at the start of a message by its text. Return other
        messages unchanged.
        """
        brought = await self._project.reread_project_folders()
        first = parts[0] if parts else None
        if not isinstance(first, Text) or not first.text.startswith("/"):
            return parts
        said, _, arguments = first.text[1:].partition(" ")
        name, newline, rest = said.partition("\n")
        arguments = f"{rest}{' ' if rest else ''}{arguments}" if newline else arguments
        if (item := brought.find_item("command", name)) is not None:
            prompt = build_command_prompt(item, arguments)
            return (*await self._fill_command_prompt(name, prompt, session), *parts[1:])
        if brought.find_item("skill", name) is not None:
            words = f'Use the skill "{name}" (call_tool, use_skill). {arguments}'.strip()
            return (Text(words), *parts[1:])
        for offered in self._servers.list_server_prompts():
            if name == f"{offered.server}:{offered.name}":
                values = _assign_prompt_arguments(offered.arguments, arguments)
                server = await self._servers.find_server(offered.server)
                said = await server.fetch_prompt_text(offered.name, values)
                return (
                    Text(f"[Prompt {offered.name} of the server {offered.server}]\n{said}"),
                    *parts[1:],
                )
        return parts

    async def _fill_command_prompt(
        self, name: str, prompt: CommandPrompt, session: Session
    ) -> list[UserPart]:
        async def run_prompt_tool(tool: ToolName, **values: str) -> CallOutcome:
            return await session.run_user_call(name, ToolCall("slash", tool, json.dumps(values)))

        outputs = {}
        for line in prompt.shell:
            done = await run_prompt_tool(ToolName.RUN_COMMAND, command=line)
            outputs[line] = await read_entry_beginning(self._cache, done.output, MOST_OUTPUT)
        found: list[UserPart] = [Text(prompt.with_shell_outputs(outputs))]
        for path in prompt.files:
            done = await run_prompt_tool(ToolName.READ_FILE, path=path)
            if done.ok:
                text = await read_entry_beginning(self._cache, done.output, MOST_OUTPUT)
                size, read = max(1, done.output.size), max(1, len(text.encode()))
                found.append(
                    Attachment(path, done.output, self._tokens.count_tokens(text) * size // read)
                )
        return found


def _assign_prompt_arguments(names: Sequence[str], arguments: str) -> dict[str, str]:
    """Assign the words to a prompt's arguments in order. The last argument gets the rest."""
    words = arguments.split(maxsplit=max(0, len(names) - 1))
    return dict(zip(names, words, strict=False))
