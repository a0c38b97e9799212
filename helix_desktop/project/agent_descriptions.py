"""Reads files that describe agents: name, purpose, tools, model and policy, then instructions."""

import re
from collections.abc import Iterator
from pathlib import Path

from helix_desktop.engine import context_policy
from helix_desktop.errors import InvalidInput
from helix_desktop.project import project_item

AGENT_FOLDERS = (".agents/agents", ".claude/agents", ".opencode/agent", ".opencode/agents")
_KNOWN_FIELDS = frozenset(
    {
        "name",
        "description",
        "tools",
        "model",
        "policy",
        "agents",
        "color",
        "mode",
        "disallowedTools",
    }
)


def find_agent_files(
    folder: Path, reading: project_item.ProjectReading
) -> Iterator[project_item.ProjectItem]:
    for path, text in reading.read_markdown_files(folder):
        yield _read_agent_file(path, text, own=reading.own)


def _read_agent_file(path: Path, text: str, *, own: bool) -> project_item.ProjectItem:
    """Read a file that describes an agent: values between `---` lines, then its instructions.

    What is wrong or unknown in it becomes a note to the user. A file without readable values or
    a valid name cannot be used.
    """
    try:
        values, body = project_item.split_front_matter(text)
    except InvalidInput as error:
        return project_item.ProjectItem(
            kind="agent",
            name=path.stem,
            path=path,
            text=text,
            body="",
            own=own,
            notes=(str(error),),
            broken=True,
        )
    name = project_item.text_or_empty(values.get("name")) or path.stem
    description = project_item.text_or_empty(values.get("description"))
    description_words = description.split()
    short_description = " ".join(description_words)[:1_024]
    notes = []
    for key in values:
        if key not in _KNOWN_FIELDS:
            notes.append(f"{key} is not supported for an agent and does nothing here.")
    is_broken = False
    if not re.fullmatch(r"[\w.-]{1,64}", name):
        notes.append(
            f"{name[:60]!r} is not a valid agent name. Use letters, digits, hyphens and periods."
        )
        is_broken = True
    policy = project_item.text_or_empty(values.get("policy"))
    if policy and policy not in context_policy.PRESETS:
        notes.append(f"There is no preset named {policy!r}, so the workspace's policy is used.")
    return project_item.ProjectItem(
        kind="agent",
        name=name,
        path=path,
        text=text,
        body=body.strip(),
        about=short_description,
        own=own,
        values=values,
        notes=tuple(notes),
        broken=is_broken,
    )


def tools_of_agent(item: project_item.ProjectItem) -> tuple[str, ...]:
    """Return the only tools that an agent's file allows, or none for all."""
    return project_item.parse_name_list(item.values.get("tools"))


def agents_callable_by(item: project_item.ProjectItem) -> tuple[str, ...]:
    return project_item.parse_name_list(item.values.get("agents"))
