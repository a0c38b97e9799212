"""Turns a slash command into a message. Its shell lines and files are run and read if permitted."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from helix_desktop.engine.content_recall import read_entry_beginning
from helix_desktop.engine.facts import Attachment, Text, ToolCall, UserPart
from helix_desktop.engine.ports import CallOutcome, ContentCache, TokenCounter
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.project.project_files import ProjectItems
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
        self._project = project
        self._servers = servers
        self._acp = acp
        self._cache = cache
        self._tokens = tokens

    def list_slash_commands(self, conversation: str = "") -> Sequence[ProjectItem]:
        """Return all commands, without those that a foreign agent in `conversation` has itself."""
        items = list(self._project.now.items_in_force("command"))
        items.extend(self._project.now.items_in_force("skill"))
        for prompt in self._servers.list_server_prompts():
            name = f"{prompt.server}:{prompt.name}"
            path = Path(prompt.server)
            items.append(ProjectItem("command", name, path, "", "", prompt.about, trusted=True))
        commands_of_agent = self._acp.list_agent_commands(conversation)
        return [item for item in items if item.name not in commands_of_agent]

    async def expand_command_message(
        self, session: Session, parts: tuple[UserPart, ...]
    ) -> tuple[UserPart, ...]:
        """Replace a command's name at the start of a message by its text. Return other
        messages unchanged.

        The texts are counted, in a thread: the first count of a process reads the vocabulary, which
        takes seconds on a busy computer, and a message that is sent is counted on the loop's thread.
        """
        expanded_parts = await self._expand_message(session, parts)
        await asyncio.to_thread(self._count_texts, expanded_parts)
        return expanded_parts

    def _count_texts(self, parts: tuple[UserPart, ...]) -> None:
        """Let the counts be remembered."""
        for part in parts:
            if isinstance(part, Text):
                self._tokens.count_tokens(part.text)

    async def _expand_message(
        self, session: Session, parts: tuple[UserPart, ...]
    ) -> tuple[UserPart, ...]:
        items = await self._project.reread_project_folders()
        if not parts:
            return parts
        first_part = parts[0]
        if not isinstance(first_part, Text) or not first_part.text.startswith("/"):
            return parts
        name, arguments = _split_command_line(first_part.text)
        expanded_parts = await self._expand_command(items, name, arguments, session)
        if not expanded_parts:
            return parts
        return tuple(expanded_parts) + parts[1:]

    async def _expand_command(
        self, items: ProjectItems, name: str, arguments: str, session: Session
    ) -> list[UserPart]:
        """Return what stands for a command, or nothing if there is no such command."""
        command = items.find_item("command", name)
        if command is not None:
            prompt = build_command_prompt(command, arguments)
            return await self._fill_command_prompt(name, prompt, session)
        if items.find_item("skill", name) is not None:
            words = f'Use the skill "{name}" (call_tool, use_skill). {arguments}'
            return [Text(words.strip())]
        for offered in self._servers.list_server_prompts():
            if name == f"{offered.server}:{offered.name}":
                values = _assign_prompt_arguments(offered.arguments, arguments)
                server = await self._servers.find_server(offered.server)
                text = await server.fetch_prompt_text(offered.name, values)
                head = f"[Prompt {offered.name} of the server {offered.server}]"
                return [Text(f"{head}\n{text}")]
        return []

    async def _fill_command_prompt(
        self, name: str, prompt: CommandPrompt, session: Session
    ) -> list[UserPart]:
        """Run the command lines that the prompt names, and attach the files that it names."""
        output_by_line: dict[str, str] = {}
        for line in prompt.shell:
            outcome = await _run_prompt_tool(session, name, ToolName.RUN_COMMAND, command=line)
            output = await read_entry_beginning(self._cache, outcome.output, MOST_OUTPUT)
            output_by_line[line] = output
        text = prompt.with_shell_outputs(output_by_line)
        parts: list[UserPart] = [Text(text)]
        for path in prompt.files:
            outcome = await _run_prompt_tool(session, name, ToolName.READ_FILE, path=path)
            if not outcome.ok:
                continue
            beginning = await read_entry_beginning(self._cache, outcome.output, MOST_OUTPUT)
            # The tokens of the whole file are estimated from those of its beginning.
            whole_size = max(1, outcome.output.size)
            read_size = max(1, len(beginning.encode()))
            tokens_of_beginning = await asyncio.to_thread(self._tokens.count_tokens, beginning)
            tokens = tokens_of_beginning * whole_size // read_size
            parts.append(Attachment(path, outcome.output, tokens))
        return parts


async def _run_prompt_tool(
    session: Session, name: str, tool: ToolName, **arguments: str
) -> CallOutcome:
    call = ToolCall("slash", tool, json.dumps(arguments))
    return await session.run_user_call(name, call)


def _split_command_line(text: str) -> tuple[str, str]:
    """Return the name of a command and its arguments, which may begin on the next line."""
    first_word, _, arguments = text[1:].partition(" ")
    name, _, next_line = first_word.partition("\n")
    if next_line:
        arguments = f"{next_line} {arguments}"
    return name, arguments


def _assign_prompt_arguments(names: Sequence[str], arguments: str) -> dict[str, str]:
    """Assign the words to a prompt's arguments in order. The last argument gets the rest."""
    most_splits = max(0, len(names) - 1)
    words = arguments.split(maxsplit=most_splits)
    return dict(zip(names, words, strict=False))
