"""A slash command as the message it becomes: its shell lines run after permission, its files are read like any other."""

import json
from collections.abc import Sequence

from helix_desktop.engine.content_recall import read_entry_beginning
from helix_desktop.engine.facts import Attachment, Text, ToolCall, UserPart
from helix_desktop.engine.ports import CallOutcome, ContentCache, TokenCounter
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.project import slash_commands
from helix_desktop.project.project_files import ProjectItems
from helix_desktop.workbench.mcp_servers import WorkspaceServers

MOST_OUTPUT = 32 * 1024


async def expand_slash_command(
    brought: ProjectItems,
    session: Session,
    parts: tuple[UserPart, ...],
    cache: ContentCache,
    tokens: TokenCounter,
    servers: WorkspaceServers,
) -> tuple[UserPart, ...]:
    """The parts of the message; unchanged where it begins with no command that is known."""
    first = parts[0] if parts else None
    if not isinstance(first, Text) or not first.text.startswith("/"):
        return parts
    said, _, arguments = first.text[1:].partition(" ")
    name, newline, rest = said.partition("\n")
    arguments = f"{rest}{' ' if rest else ''}{arguments}" if newline else arguments
    item = brought.find_item("command", name)
    if item is not None:
        prompt = slash_commands.build_command_prompt(item, arguments)
        return (*await _fill_command_prompt(name, prompt, session, cache, tokens), *parts[1:])
    if brought.find_item("skill", name) is not None:
        words = f'Use the skill "{name}" (call_tool, use_skill). {arguments}'.strip()
        return (Text(words), *parts[1:])
    for offered in servers.list_server_prompts():
        if name == f"{offered.server}:{offered.name}":
            said = await servers.fetch_server_prompt(
                offered.server, offered.name, _assign_prompt_arguments(offered.arguments, arguments)
            )
            return (Text(f"[Prompt {offered.name} of the server {offered.server}]\n{said}"), *parts[1:])
    return parts


def _assign_prompt_arguments(names: Sequence[str], arguments: str) -> dict[str, str]:
    """The words in the order of a prompt's arguments; the last one takes the rest."""
    words = arguments.split(maxsplit=max(0, len(names) - 1))
    return dict(zip(names, words, strict=False))


async def _fill_command_prompt(
    name: str, prompt: slash_commands.CommandPrompt, session: Session, cache: ContentCache, tokens: TokenCounter
) -> list[UserPart]:
    async def run_prompt_tool(tool: ToolName, **values: str) -> CallOutcome:
        return await session.run_user_call(name, ToolCall("slash", tool, json.dumps(values)))

    outputs = {}
    for line in prompt.shell:
        done = await run_prompt_tool(ToolName.RUN_COMMAND, command=line)
        outputs[line] = await read_entry_beginning(cache, done.output, MOST_OUTPUT)
    found: list[UserPart] = [Text(prompt.with_shell_outputs(outputs))]
    for path in prompt.files:
        done = await run_prompt_tool(ToolName.READ_FILE, path=path)
        if done.ok:
            text = await read_entry_beginning(cache, done.output, MOST_OUTPUT)
            size, read = max(1, done.output.size), max(1, len(text.encode()))
            found.append(Attachment(path, done.output, tokens.count_tokens(text) * size // read))
    return found
