"""Gives Claude Code the histories of its sub-agents back, with the session that started them.

Without them it says of a sub-agent that was at work that it has failed, cannot go on with it, and
sends other bytes than before. They come back where they were recorded: today in a folder of the
session, until 2025 in a file beside the session's, and at first in the session's own file.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath, PurePosixPath

from helix_desktop.engine.facts import Origin, Recorded
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import claude_code_history
from helix_desktop.histories.claude_code_history import FOLDER_OF_SUBAGENTS, is_settings_of_subagent
from helix_desktop.histories.claude_code_writer import derive_id_from_session
from helix_desktop.histories.conversation_restoring import (
    FORMATS,
    FileOfSubagent,
    RestoredSession,
    build_translated_session,
    find_original_file,
    read_own_lines,
    replace_session_id,
)
from helix_desktop.histories.openai_chat_export import ReadContent
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.histories.session_from_facts import (
    build_session_from_facts,
    origin_of_conversation,
)
from helix_desktop.json_values import object_at, parse_json_or_none

AGENT = "claude"
NAME = "agent-"  # The names of sub-agents begin so, and their ids follow.
# A conversation may be somebody else's, and its names must not lead out of the agent's folder.
_SAFE_NAME = re.compile(r"(?!\.)[\w.-]{1,200}")

# What Claude Code 2.1 notes of a sub-agent and may have back. All else is left out: with some of it
# the sub-agent works in another folder (`worktreePath`, `cwd`), asks less (`permissionMode`,
# `spawnMode`) or runs none of the user's hooks (`takesNoHooks`), and newer versions may add more.
_SETTINGS_WITHOUT_PERMISSIONS = frozenset(
    {
        "agentType",
        "customAgentType",
        "spawnedAgentType",
        "isBuiltIn",
        "isFork",
        "isObserver",
        "description",
        "name",
        "color",
        "teamName",
        "model",
        "modelNotNamed",
        "effort",
        "pickedEffortModel",
        "toolUseId",
        "enclosingToolUseId",
        "parentAgentId",
        "spawnDepth",
        "taskKind",
        "workflowPhase",
        "inWorkflowRun",
        "planModeRequired",
        "requestShape",
        "requestNonInteractive",
        "requireCanUseTool",
        "runLimits",
        "stoppedByUser",
        "sweptByStop",
        "finished",
        "reportTaken",
        "warningOwed",
        "observerStopped",
        "observerTaskId",
        "observerTaskIds",
        "modShaped",
        "pluginSteered",
    }
)


@dataclass(frozen=True, slots=True)
class _Subagent:
    """A sub-agent's conversation. `session`: what it says. `own_lines`: stored as they were."""

    facts: Sequence[Recorded]
    origin: Origin
    session: RecordedSession
    own_lines: Sequence[bytes]

    @property
    def is_in_file_of_session(self) -> bool:
        return f"#{NAME}" in self.origin.path

    @property
    def file_name(self) -> str:
        """The name of its file. A sub-agent's session is named like its file, and behind "#"
        stands what tells it from another of the same name.
        """
        name, _, _ = self.origin.session.partition("#")
        return f"{name}.jsonl"


def add_subagents(
    restored: RestoredSession,
    conversations: Sequence[Sequence[Recorded]],
    read_content: ReadContent,
) -> RestoredSession:
    """Return the session with the histories of its sub-agents, whose facts are given."""
    files: list[FileOfSubagent] = []
    content = restored.content
    subagent_count = 0
    for facts in conversations:
        subagent = _subagent_of_conversation(facts, read_content)
        if subagent is None:
            continue
        if not subagent.is_in_file_of_session:
            files.extend(_files_of_subagent(subagent, read_content, restored))
            subagent_count += 1
        elif not restored.is_original:  # The agent's own lines have it already.
            content += _build_lines_anew(subagent, restored)
    return replace(
        restored, content=content, subagents=subagent_count, files_of_subagents=tuple(files)
    )


def _subagent_of_conversation(
    facts: Sequence[Recorded], read_content: ReadContent
) -> _Subagent | None:
    """Return the sub-agent of a conversation, or None if it is none of Claude Code's files."""
    origin = origin_of_conversation(facts)
    is_of_claude = origin.kind == claude_code_history.KIND and origin.session.startswith(NAME)
    if not is_of_claude or not origin.path or not _has_safe_names(origin):
        return None
    session = build_session_from_facts(facts, read_content, "", origin, is_for_same_agent=True)
    return _Subagent(facts, origin, session, read_own_lines(facts, read_content))


def _has_safe_names(origin: Origin) -> bool:
    """Whether a file with the names that the origin says can be written below a folder."""
    name, _, _ = origin.session.partition("#")
    names = [name]
    names.extend(_folders_from_subagents_on(origin))
    for each_name in names:
        if _SAFE_NAME.fullmatch(each_name) is None:
            return False
    return True


def _folders_from_subagents_on(origin: Origin) -> Sequence[str]:
    """Return the folders of its file from that of the sub-agents on, none for an older one."""
    folders = PurePath(origin.path).parent.parts
    if FOLDER_OF_SUBAGENTS not in folders:
        return ()
    return folders[folders.index(FOLDER_OF_SUBAGENTS) :]


def _files_of_subagent(
    subagent: _Subagent, read_content: ReadContent, restored: RestoredSession
) -> list[FileOfSubagent]:
    """Return the sub-agent's file, and the one with its settings if it had one."""
    path = _path_below_folder_of_session(subagent, restored.session)
    own_file = find_original_file(
        subagent.facts,
        read_content,
        subagent.session,
        subagent.origin,
        FORMATS[AGENT],
        is_subagent=True,
    )
    if own_file is None:
        content = _build_lines_anew(subagent, restored)
    else:
        form = FORMATS[AGENT]
        original_content = b"".join(own_file.lines)
        content_with_new_id = replace_session_id(
            original_content,
            form.id_fields,
            own_file.session.parent,
            restored.session,
        )
        content = form.without_permissions(content_with_new_id)
    files = [FileOfSubagent(path, content)]
    settings = _find_newest_settings(subagent.own_lines)
    if settings:
        path_without_suffix = path.removesuffix(".jsonl")
        settings_file = FileOfSubagent(f"{path_without_suffix}.meta.json", settings)
        files.append(settings_file)
    return files


def _path_below_folder_of_session(subagent: _Subagent, session_id: str) -> str:
    """Return where the sub-agent's file belongs, relative to the folder of its session's file."""
    folders = _folders_from_subagents_on(subagent.origin)
    if not folders:
        return subagent.file_name
    return str(PurePosixPath(session_id, *folders, subagent.file_name))


def _find_newest_settings(own_lines: Sequence[bytes]) -> bytes:
    for line in reversed(own_lines):
        settings = object_at(parse_json_or_none(line.decode("utf-8", "replace")))
        if is_settings_of_subagent(settings):
            return _leave_permissions_out(line, settings)
    return b""


def _leave_permissions_out(line: bytes, settings: Mapping[str, object]) -> bytes:
    """Return the line unchanged if it has nothing that lets the sub-agent do more."""
    kept_settings: dict[str, object] = {}
    for name, value in settings.items():
        if name in _SETTINGS_WITHOUT_PERMISSIONS:
            kept_settings[name] = value
    if len(kept_settings) == len(settings):
        return line
    return json.dumps(kept_settings, ensure_ascii=False).encode("utf-8", "replace")


def _build_lines_anew(subagent: _Subagent, restored: RestoredSession) -> bytes:
    """Return the sub-agent's messages as lines of the session, marked as those of a sub-agent."""
    own_lines = tuple(subagent.own_lines)
    session = replace(subagent.session, folder=restored.folder, own_lines=own_lines)
    # The ids of lines are made of the id of their session, and no two may be equal.
    own_id = derive_id_from_session(restored.session, subagent.file_name)
    agent_id = PurePath(subagent.file_name).stem.removeprefix(NAME)
    translated = build_translated_session(session, AGENT, own_id)
    lines: list[bytes] = []
    for line in translated.content.splitlines():
        parsed_line = parse_json_or_none(line.decode("utf-8"))
        row = dict(object_at(parsed_line))
        row["sessionId"] = restored.session
        row["isSidechain"] = True
        row["agentId"] = agent_id
        marked_line = json.dumps(row, ensure_ascii=False) + "\n"
        lines.append(marked_line.encode("utf-8", "replace"))
    return b"".join(lines)
