"""A slash command as the message it becomes: its shell lines run after permission, its files are read like any other."""

from __future__ import annotations

import json
from collections.abc import Sequence

from helix_desktop.engine.facts import Attachment, Text, ToolCall, UserPart
from helix_desktop.engine.ports import Outcome, Tokens
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.project import commands
from helix_desktop.project.folder import Brought
from helix_desktop.workbench.servers import Servers

MOST_OUTPUT = 32 * 1024


async def expanded(
    brought: Brought, session: Session, parts: tuple[UserPart, ...], tokens: Tokens, servers: Servers
) -> tuple[UserPart, ...]:
    """The parts of the message; unchanged where it begins with no command that is known."""
    first = parts[0] if parts else None
    if not isinstance(first, Text) or not first.text.startswith("/"):
        return parts
    said, _, arguments = first.text[1:].partition(" ")
    name, newline, rest = said.partition("\n")
    arguments = f"{rest}{' ' if rest else ''}{arguments}" if newline else arguments
    item = brought.find("command", name)
    if item is not None:
        return (*await _filled(name, commands.prompt(item, arguments), session, tokens), *parts[1:])
    if brought.find("skill", name) is not None:
        words = f'Use the skill "{name}" (call_tool, use_skill). {arguments}'.strip()
        return (Text(words), *parts[1:])
    for offered in servers.prompts():
        if name == f"{offered.server}:{offered.name}":
            said = await servers.prompt(offered.server, offered.name, _values(offered.arguments, arguments))
            return (Text(f"[Prompt {offered.name} of the server {offered.server}]\n{said}"), *parts[1:])
    return parts


def _values(names: Sequence[str], arguments: str) -> dict[str, str]:
    """The words in the order of a prompt's arguments; the last one takes the rest."""
    words = arguments.split(maxsplit=max(0, len(names) - 1))
    return dict(zip(names, words, strict=False))


async def _filled(name: str, prompt: commands.Prompt, session: Session, tokens: Tokens) -> list[UserPart]:
    async def run(tool: ToolName, **values: str) -> Outcome:
        return await session.run_for(name, ToolCall("slash", tool, json.dumps(values)))

    outputs = {}
    for line in prompt.shell:
        done = await run(ToolName.RUN_COMMAND, command=line)
        outputs[line] = await session.text_of(done.output, MOST_OUTPUT)
    found: list[UserPart] = [Text(prompt.filled(outputs))]
    for path in prompt.files:
        done = await run(ToolName.READ_FILE, path=path)
        if done.ok:
            text = await session.text_of(done.output, MOST_OUTPUT)
            found.append(
                Attachment(
                    path, done.output, tokens.count(text) * max(1, done.output.size) // max(1, len(text.encode()))
                )
            )
    return found
