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
from helix_desktop.project.project_item import ProjectItem, ProjectReading

PLACES = (".claude/settings.json", ".claude/settings.local.json", ".agents/hooks.json")
NO_REASON = "The hook refused and gave no reason."
EVENTS = (
    "PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop", "SessionStart", "PreCompact", "Notification",
)  # fmt: skip
MOST_REPEATS, LONGEST_NAME = (
    4,
    128,
)  # The maximum number of repeats in a matcher, and the maximum length of a name.
MOST_GROUPS = 4  # Each group with choices may multiply the number of ways to match.
USUAL_SECONDS, MOST_SECONDS = 60.0, 600.0


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
    only: str = (
        ""  # The calls that it applies to, such as `Bash(git push *)`. If empty, it applies to all.
    )

    def matches_arguments(self, values: Mapping[str, Any]) -> bool:
        """Whether it applies to a call's arguments, under Claude Code's names."""
        _, _, pattern = self.only.rstrip(")").partition("(")
        if not pattern:
            return True
        about = str(
            values.get("command")
            or values.get("file_path")
            or values.get("path")
            or values.get("url")
            or ""
        )
        if pattern.endswith(":*"):
            return about.startswith(pattern[:-2])
        names = (about, about.rpartition("/")[2], about.removeprefix(f"{self.folder}/"))
        return any(
            fnmatch.fnmatchcase(name, pattern.removeprefix("./").removeprefix("**/"))
            for name in names
        )

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
    repeats = sum(map(matcher.count, "*+?{")) - matcher.count("(?")
    too_many = repeats > MOST_REPEATS or matcher.count("(") > MOST_GROUPS
    return too_many or len(name) > LONGEST_NAME or re.search(r"\)[*+{]", matcher) is not None


def read_hooks_file(path: Path, reading: ProjectReading, folder: Path) -> Iterator[ProjectItem]:
    """Yield a settings file's hooks. What is unsupported is noted on the first one, or
    on a separate item.
    """
    if (text := reading.read_text(path)) is None:
        return
    try:
        found = json.loads(text)
        table = found.get("hooks", {}) if isinstance(found, dict) else {}
    except (ValueError, RecursionError):
        yield _unusable_hook("file", path, text, "The file is not valid JSON.", reading)
        return
    if not isinstance(table, dict):
        yield _unusable_hook("file", path, text, "Its hooks are not a table of events.", reading)
        return
    for event, groups in table.items():
        if event in EVENTS:
            yield from _build_hook_items_of_event(event, groups, path, folder, reading)
        else:
            why = f"The event {event} is not supported, so its hooks don't run."
            yield _unusable_hook(str(event)[:60], path, json.dumps(groups, indent=1), why, reading)


def _unusable_hook(
    name: str, path: Path, text: str, why: str, reading: ProjectReading
) -> ProjectItem:
    return ProjectItem("hook", name, path, text, "", own=reading.own, notes=(why,), broken=True)


def _build_hook_items_of_event(
    event: str, groups: Any, path: Path, folder: Path, reading: ProjectReading
) -> Iterator[ProjectItem]:
    hooks = [
        (text_at(group, "matcher"), each)
        for group in objects_at(groups)
        for each in list_at(group, "hooks")
    ]
    for number, (matcher, each) in enumerate(hooks, 1):
        yield _build_hook_item(event, number, matcher, each, path, folder, reading)


def _build_hook_item(
    event: str,
    number: int,
    matcher: str,
    hook: Any,
    path: Path,
    folder: Path,
    reading: ProjectReading,
) -> ProjectItem:
    name = event if number == 1 else f"{event} {number}"
    command = hook.get("command") if isinstance(hook, dict) else None
    kind = hook.get("type", "command") if isinstance(hook, dict) else ""
    if kind != "command" or not isinstance(command, str) or not command.strip():
        why = f"Hooks of type {str(kind)[:40]!r} are not supported, so this hook doesn't run."
        return _unusable_hook(name, path, json.dumps(hook, indent=1), why, reading)
    seconds = hook.get("timeout", USUAL_SECONDS)
    seconds = (
        float(seconds)
        if isinstance(seconds, int | float) and not isinstance(seconds, bool)
        else USUAL_SECONDS
    )
    values = {
        "event": event,
        "matcher": matcher,
        "command": command,
        "timeout": min(max(seconds, 0.1), MOST_SECONDS),
    }
    only = hook.get("if", "")
    if not isinstance(only, str) or (only and not re.fullmatch(r"[\w*.-]+(?:\([^()]*\))?", only)):
        why = f"The condition {str(only)[:80]!r} is not supported, so this hook doesn't run."
        return _unusable_hook(name, path, json.dumps(hook, indent=1), why, reading)
    strange = sorted(set(hook) - {"type", "command", "timeout", "statusMessage", "if"})
    notes = tuple(f"{key} is not supported in a hook and does nothing here." for key in strange)
    values |= {"if": only} if only else {}
    shown = json.dumps(values, indent=1, ensure_ascii=False)
    try:
        shown += read_files_named_in_command(command, folder, reading)
    except InvalidInput as error:
        return _unusable_hook(name, path, shown, error.what, reading)
    return ProjectItem(
        "hook", name, path, shown, command, f"{event} {matcher}".strip(), reading.own, values, notes
    )


def reread_hook(item: ProjectItem, folder: Path) -> ProjectItem | None:
    found = read_hooks_file(
        item.path, ProjectReading(item.path.parent.parent, own=item.own), folder
    )
    return next((each for each in found if each.settings_key == item.settings_key), None)


def build_hook_from_item(item: ProjectItem, folder: Path) -> ProjectHook:
    values = item.values
    event, matcher, command, seconds = (
        values[key] for key in ("event", "matcher", "command", "timeout")
    )
    is_of_user = item.own and not item.reaches_folder
    return ProjectHook(
        event,
        matcher,
        command,
        seconds,
        folder,
        item.content_sha256,
        is_of_user,
        values.get("if", ""),
    )


def translate_call_for_claude(
    name: str, values: Mapping[str, Any], folder: Path
) -> tuple[str, dict[str, Any]]:
    """Return a call's tool name and arguments as hooks for Claude Code expect them."""
    if (known := _CLAUDE.get(name)) is None:
        return (f"mcp__{name}" if "__" in name else name), dict(values)
    theirs, arguments = known
    return theirs, arguments(values, str(folder / str(values.get("path") or ".")))


def _claude_edit_arguments(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    old, new = values.get("old_text", ""), values.get("new_text", "")
    return {
        "file_path": path,
        "old_string": old,
        "new_string": new,
        "replace_all": values.get("replace_all") is True,
    }


def _claude_bash_arguments(values: Mapping[str, Any], _: str) -> dict[str, Any]:
    more = {"run_in_background": True} if values.get("background") else {}
    return {"command": values.get("command", ""), "description": "", **more}


def _claude_read_arguments(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    return {"file_path": path, **{key: values[key] for key in ("offset", "limit") if key in values}}


def _convert_to_claude_task_arguments(values: Mapping[str, Any], _: str) -> dict[str, Any]:
    task = str(values.get("task", ""))
    return {"description": task[:60], "prompt": task, "subagent_type": values.get("agent", "")}


_CLAUDE: Mapping[str, tuple[str, Callable[[Mapping[str, Any], str], dict[str, Any]]]] = {
    ToolName.RUN_COMMAND: ("Bash", _claude_bash_arguments),
    ToolName.READ_FILE: ("Read", _claude_read_arguments),
    ToolName.WRITE_FILE: (
        "Write",
        lambda values, path: {"file_path": path, "content": values.get("content", "")},
    ),
    ToolName.EDIT_FILE: ("Edit", _claude_edit_arguments),
    ToolName.GLOB_FILES: (
        "Glob",
        lambda values, path: {"pattern": values.get("pattern", ""), "path": path},
    ),
    ToolName.SEARCH_FILES: (
        "Grep",
        lambda values, path: {"pattern": values.get("pattern", ""), "path": path},
    ),
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
    if exit_code == 2:
        return HookAnswer(blocks=standard_error.strip() or NO_REASON)
    if exit_code != 0:
        return HookAnswer(
            note=f"it ended with exit code {exit_code}. {standard_error.strip()[:300]}".strip()
        )
    found = (
        parse_json_or_none(standard_output) if standard_output.lstrip().startswith("{") else None
    )
    if not isinstance(found, dict):
        says = standard_output.strip() if event in ("UserPromptSubmit", "SessionStart") else ""
        return HookAnswer(says=says)
    return _build_answer_from_decision(event, found)


def _build_answer_from_decision(event: str, found: Mapping[str, Any]) -> HookAnswer:
    inner = object_at(found, "hookSpecificOutput")
    decision = inner.get("permissionDecision") or found.get("decision") or ""
    why = (
        inner.get("permissionDecisionReason")
        or found.get("reason")
        or found.get("stopReason")
        or NO_REASON
    )
    says = str(inner.get("additionalContext") or "")
    if found.get("continue") is False or decision in ("block", "deny"):
        return HookAnswer(blocks=str(why), says=says)
    if decision == "ask":
        return HookAnswer(asks=str(why), says=says)
    notes = []
    if decision in ("allow", "approve") and event == "PreToolUse":
        notes.append(
            "it tried to allow a call. In Helix Desktop, hooks cannot allow calls, so the usual rules apply."
        )
    if "updatedInput" in inner:
        notes.append("it tried to change a call's arguments, which is not supported.")
    return HookAnswer(says=says, note=" ".join(notes))
