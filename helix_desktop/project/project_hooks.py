"""Hooks as Claude Code's settings files describe them: programs that run when something happens.

A hook is trusted with its command and with the files it names (hook_dependencies.py),
and runs in the sandbox. What it answers can hold a call back or add words; it can never
allow what a rule or the user has not allowed.
"""

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import list_at, object_at, objects_at, parse_json_or_none, text_at
from helix_desktop.project.hook_dependencies import read_files_named_in_command
from helix_desktop.project.project_item import (
    ProjectItem,
    ProjectReading,
    without_byte_order_mark,
)

HOOK_FILES = (".claude/settings.json", ".claude/settings.local.json", ".agents/hooks.json")
NO_REASON = "The hook refused and gave no reason."
EVENTS = (
    "PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop", "SessionStart", "PreCompact", "Notification",
)  # fmt: skip
MOST_REPEATS = 4  # In a matcher.
LONGEST_NAME = 128
MOST_GROUPS = 4  # Each group with choices may multiply the number of ways to match.
USUAL_SECONDS = 60.0
MOST_SECONDS = 600.0
_CONDITION = re.compile(r"[\w*.-]+(?:\([^()]*\))?")
_SUPPORTED_KEYS = frozenset({"type", "command", "timeout", "statusMessage", "if"})


@dataclass(frozen=True, slots=True)
class ProjectHook:
    """One command for one event. `trust`: the hash that the user trusts."""

    event: str
    matcher: str
    command: str
    seconds: float
    folder: Path
    trust: str = ""
    is_of_user: bool = False  # It is in the user's own settings and runs only what is theirs.
    # The calls that it applies to, such as `Bash(git push *)`. If empty, it applies to all.
    only: str = ""

    def matches_arguments(self, values: Mapping[str, Any]) -> bool:
        """Whether it applies to a call's arguments, under Claude Code's names."""
        _, _, pattern = self.only.rstrip(")").partition("(")
        if not pattern:
            return True
        subject = ""
        for argument in ("command", "file_path", "path", "url"):
            if values.get(argument):
                subject = str(values[argument])
                break
        if pattern.endswith(":*"):
            return subject.startswith(pattern.removesuffix(":*"))
        plain_pattern = pattern.removeprefix("./").removeprefix("**/")
        file_name = subject.rpartition("/")[2]
        path_in_folder = subject.removeprefix(f"{self.folder}/")
        for spelling in (subject, file_name, path_in_folder):
            if fnmatch.fnmatchcase(spelling, plain_pattern):
                return True
        return False

    def matches_tool(self, name: str) -> bool:
        """Whether it applies to this tool (or kind of start, or of compacting)."""
        if self.only and not fnmatch.fnmatchcase(name, self.only.partition("(")[0]):
            return False
        if self.matcher in ("", "*") or _may_matching_take_forever(self.matcher, name):
            return True
        try:
            return re.fullmatch(self.matcher, name) is not None
        except (re.error, OverflowError, RecursionError):
            return fnmatch.fnmatchcase(name, self.matcher)


def _may_matching_take_forever(matcher: str, name: str) -> bool:
    """Whether matching may never end, which Python can't stop. Such a hook applies to
    every tool.
    """
    repeat_count = sum(matcher.count(sign) for sign in "*+?{")
    repeat_count -= matcher.count("(?")  # Here, the question mark repeats nothing.
    if repeat_count > MOST_REPEATS or matcher.count("(") > MOST_GROUPS:
        return True
    is_group_repeated = re.search(r"\)[*+{]", matcher) is not None
    return is_group_repeated or len(name) > LONGEST_NAME


def read_hooks_file(path: Path, reading: ProjectReading, folder: Path) -> Iterator[ProjectItem]:
    """Yield a settings file's hooks. What is unsupported is noted on the first one, or
    on a separate item.
    """
    text = reading.read_text(path)
    if text is None:
        return
    try:
        settings = json.loads(without_byte_order_mark(text))
    except (ValueError, RecursionError):
        yield _unusable_hook("file", path, text, "The file is not valid JSON.", reading)
        return
    groups_by_event: Any = {}
    if isinstance(settings, dict):
        groups_by_event = settings.get("hooks", {})
    if not isinstance(groups_by_event, dict):
        yield _unusable_hook("file", path, text, "Its hooks are not a table of events.", reading)
        return
    for event, groups in groups_by_event.items():
        if event in EVENTS:
            source = _HookSource(event, path, folder, reading)
            yield from source.build_hook_items(groups)
        else:
            reason = f"The event {event} is not supported, so its hooks don't run."
            yield _unusable_hook(
                str(event)[:60], path, json.dumps(groups, indent=1), reason, reading
            )


def _unusable_hook(
    name: str, path: Path, text: str, reason: str, reading: ProjectReading
) -> ProjectItem:
    return ProjectItem("hook", name, path, text, "", own=reading.own, notes=(reason,), broken=True)


@dataclass(frozen=True, slots=True)
class _HookSource:
    """Where hooks are described: in the part of a settings file that is about one event."""

    event: str
    path: Path
    folder: Path
    reading: ProjectReading

    def build_hook_items(self, groups: Any) -> Iterator[ProjectItem]:
        """Yield the hooks of all groups for this event. A group has a matcher, which says for
        which tools its hooks run.
        """
        number = 0
        for group in objects_at(groups):
            matcher = text_at(group, "matcher")
            for hook in list_at(group, "hooks"):
                number += 1
                yield self._build_item(number, matcher, hook)

    def _build_item(self, number: int, matcher: str, hook: Any) -> ProjectItem:
        """Return one hook as an item that the user can trust, or one that cannot be used and
        says why.

        What the user reads and trusts is its description and the content of the files that its
        command names, so that a change to these needs new trust.
        """
        name = self.event
        if number > 1:
            name = f"{self.event} {number}"
        reason_not_to_run = _reason_not_to_run(hook)
        if reason_not_to_run:
            hook_text = json.dumps(hook, indent=1)
            return _unusable_hook(name, self.path, hook_text, reason_not_to_run, self.reading)
        command = hook["command"]
        values = {
            "event": self.event,
            "matcher": matcher,
            "command": command,
            "timeout": _seconds_of_hook(hook),
        }
        condition = hook.get("if", "")
        if condition:
            values["if"] = condition
        trusted_text = json.dumps(values, indent=1, ensure_ascii=False)
        try:
            trusted_text += read_files_named_in_command(command, self.folder, self.reading)
        except InvalidInput as error:
            return _unusable_hook(name, self.path, trusted_text, error.what, self.reading)
        notes = []
        for key in sorted(set(hook) - _SUPPORTED_KEYS):
            notes.append(f"{key} is not supported in a hook and does nothing here.")
        return ProjectItem(
            kind="hook",
            name=name,
            path=self.path,
            text=trusted_text,
            body=command,
            about=f"{self.event} {matcher}".strip(),
            own=self.reading.own,
            values=values,
            notes=tuple(notes),
        )


def _reason_not_to_run(hook: Any) -> str:
    """Say what of a hook is not supported, so that it must not run. Empty if it can run."""
    kind: Any = ""
    command = None
    if isinstance(hook, dict):
        kind = hook.get("type", "command")
        command = hook.get("command")
    if kind != "command" or not isinstance(command, str) or not command.strip():
        return f"Hooks of type {str(kind)[:40]!r} are not supported, so this hook doesn't run."
    # Without its condition, it would run for more calls than its author meant.
    condition = hook.get("if", "")
    if condition == "":
        return ""
    if not isinstance(condition, str) or not _CONDITION.fullmatch(condition):
        return f"The condition {str(condition)[:80]!r} is not supported, so this hook doesn't run."
    return ""


def _seconds_of_hook(hook: Mapping[str, Any]) -> float:
    seconds = hook.get("timeout", USUAL_SECONDS)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number:
        seconds = USUAL_SECONDS
    return float(min(max(seconds, 0.1), MOST_SECONDS))


def reread_hook(item: ProjectItem, folder: Path) -> ProjectItem | None:
    """Return the hook as its file describes it now, or None if it is gone."""
    reading = ProjectReading(item.path.parent.parent, own=item.own)
    for present_item in read_hooks_file(item.path, reading, folder):
        if present_item.settings_key == item.settings_key:
            return present_item
    return None


def build_hook_from_item(item: ProjectItem, folder: Path) -> ProjectHook:
    """Return the hook, ready to run, that a trusted item describes."""
    return ProjectHook(
        event=item.values["event"],
        matcher=item.values["matcher"],
        command=item.values["command"],
        seconds=item.values["timeout"],
        folder=folder,
        trust=item.content_sha256,
        is_of_user=item.own and not item.reaches_folder,
        only=item.values.get("if", ""),
    )


def translate_call_for_claude(
    name: str, values: Mapping[str, Any], folder: Path
) -> tuple[str, dict[str, Any]]:
    """Return a call's tool name and arguments as hooks for Claude Code expect them."""
    claude_tool = _CLAUDE_TOOLS.get(name)
    if claude_tool is not None:
        claude_name, translate_arguments = claude_tool
        path = str(folder / str(values.get("path") or "."))
        return claude_name, translate_arguments(values, path)
    if "__" in name:  # A tool of an MCP server.
        return f"mcp__{name}", dict(values)
    return name, dict(values)


def _claude_edit_arguments(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {
        "file_path": path,
        "old_string": values.get("old_text", ""),
        "new_string": values.get("new_text", ""),
        "replace_all": values.get("replace_all") is True,
    }


def _claude_write_arguments(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {"file_path": path, "content": values.get("content", "")}


def _claude_search_arguments(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {"pattern": values.get("pattern", ""), "path": path}


def _claude_bash_arguments(values: Mapping[str, Any], _: str) -> dict[str, Any]:
    arguments = {"command": values.get("command", ""), "description": ""}
    if values.get("background"):
        arguments["run_in_background"] = True
    return arguments


def _claude_read_arguments(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Claude Code names a first line and how many lines, where we name the first and the last."""
    arguments: dict[str, Any] = {"file_path": path}
    first_line = values.get("first_line")
    last_line = values.get("last_line")
    if isinstance(first_line, int):
        arguments["offset"] = first_line
    if isinstance(last_line, int):
        arguments["limit"] = last_line - (arguments.get("offset") or 1) + 1
    return arguments


def _convert_to_claude_task_arguments(values: Mapping[str, Any], _: str) -> dict[str, Any]:
    task = str(values.get("task", ""))
    return {"description": task[:60], "prompt": task, "subagent_type": values.get("agent", "")}


_CLAUDE_TOOLS: Mapping[str, tuple[str, Callable[[Mapping[str, Any], str], dict[str, Any]]]] = {
    ToolName.RUN_COMMAND: ("Bash", _claude_bash_arguments),
    ToolName.READ_FILE: ("Read", _claude_read_arguments),
    ToolName.WRITE_FILE: ("Write", _claude_write_arguments),
    ToolName.EDIT_FILE: ("Edit", _claude_edit_arguments),
    ToolName.GLOB_FILES: ("Glob", _claude_search_arguments),
    ToolName.SEARCH_FILES: ("Grep", _claude_search_arguments),
    ToolName.LIST_FILES: ("LS", lambda _, path: {"path": path}),
    ToolName.FETCH_URL: (
        "WebFetch",
        lambda values, _: {"url": values.get("url", ""), "prompt": ""},
    ),
    ToolName.SET_TODO: ("TodoWrite", lambda values, _: {"todos": values.get("items", [])}),
    ToolName.DELEGATE: ("Task", _convert_to_claude_task_arguments),
}


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """A hook's outcome: reasons to block or to ask, words for the model, and a note for
    the user.
    """

    blocks: str = ""
    asks: str = ""
    says: str = ""
    note: str = ""


def parse_hook_answer(
    event: str, exit_code: int | None, standard_output: str, standard_error: str
) -> HookAnswer:
    """Parse an answer. Exit code 2 blocks, with standard error as the reason; other
    failures do nothing.
    """
    error_text = standard_error.strip()
    if exit_code == 2:
        return HookAnswer(blocks=error_text or NO_REASON)
    if exit_code != 0:
        return HookAnswer(note=f"it ended with exit code {exit_code}. {error_text[:300]}".strip())
    answer = None
    if standard_output.lstrip().startswith("{"):
        answer = parse_json_or_none(standard_output)
    if isinstance(answer, dict):
        return _build_answer_from_decision(event, answer)
    # Of these events, Claude Code gives plain output to the model.
    if event in ("UserPromptSubmit", "SessionStart"):
        return HookAnswer(says=standard_output.strip())
    return HookAnswer()


def _build_answer_from_decision(event: str, answer: Mapping[str, Any]) -> HookAnswer:
    """Return what a hook's JSON answer means here. It can block a call or have the user asked,
    but not allow a call or change its arguments.
    """
    hook_output = object_at(answer, "hookSpecificOutput")
    decision = hook_output.get("permissionDecision") or answer.get("decision")
    words_for_model = str(hook_output.get("additionalContext") or "")
    if answer.get("continue") is False or decision in ("block", "deny"):
        return HookAnswer(blocks=_reason_of_answer(hook_output, answer), says=words_for_model)
    if decision == "ask":
        return HookAnswer(asks=_reason_of_answer(hook_output, answer), says=words_for_model)
    notes = []
    if decision in ("allow", "approve") and event == "PreToolUse":
        notes.append(
            "it tried to allow a call. In Helix Desktop, hooks cannot allow calls, so the usual rules apply."
        )
    if "updatedInput" in hook_output:
        notes.append("it tried to change a call's arguments, which is not supported.")
    return HookAnswer(says=words_for_model, note=" ".join(notes))


def _reason_of_answer(hook_output: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return the first reason that the answer gives, or that it gives none."""
    reasons = (
        hook_output.get("permissionDecisionReason"),
        answer.get("reason"),
        answer.get("stopReason"),
    )
    for reason in reasons:
        if reason:
            return str(reason)
    return NO_REASON
