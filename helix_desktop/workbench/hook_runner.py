"""Runs the hooks of a workspace, each in a process with a time limit, sandboxed like
the model's commands.
"""

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.concurrency import wait_with_limit
from helix_desktop.engine.facts import FoldKind, ToolCall
from helix_desktop.engine.ports import CallContext, CallOutcome, PermissionQuestion
from helix_desktop.engine.session_events import Event, FoldProgress, QuestionAsked
from helix_desktop.engine.session_setup import HookOutcome, StandingNote, TaskSpawner
from helix_desktop.engine.tool_call_parsing import parse_arguments
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import object_at
from helix_desktop.processes.folders_of_agents import environment_without_agents
from helix_desktop.processes.running_command import RunningCommand, shell_command_line
from helix_desktop.processes.starter import PIPE, CommandAuthor, ProcessLaunch, ProcessPlace
from helix_desktop.project import project_files as brought
from helix_desktop.project import project_hooks
from helix_desktop.project.hook_dependencies import (
    runs_only_scripts_of_user,
)
from helix_desktop.project.project_hooks import HookAnswer, ProjectHook, build_hook_from_item
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools.autorun_guard import AutorunGuard
from helix_desktop.tools.built_in_tool import FilesSeen, ToolResources
from helix_desktop.tools.checks_after_command import CommandCheck
from helix_desktop.tools.permission import PermissionMode, ToolAction
from helix_desktop.tools.sandbox import SandboxKind
from helix_desktop.tools.workspace_tools import WorkspaceTools
from helix_desktop.workbench.rules_and_skills import WorkspaceRulesAndSkills

MOST_PRINTED = 64 * 1024
log = logging.getLogger(__name__)


@dataclass(slots=True)
class HookRunner:
    """`last`: by a hook's key, what went wrong when it ran last, or an empty string."""

    workspace: StoredWorkspace
    project: WorkspaceRulesAndSkills
    kit: WorkspaceTools
    last: dict[str, str] = field(default_factory=dict)
    _notes: dict[str, list[StandingNote]] = field(default_factory=dict)
    _count: int = 0

    async def run_hooks_for_event(
        self, event: str, conversation: str, values: Mapping[str, Any]
    ) -> HookOutcome:
        """Run the hooks for an event that is no tool call. Returns whether it may go
        on, and what they say.
        """
        if not self._has_hooks_for(event):
            return HookOutcome()
        matched_name = str(values.get("source") or values.get("trigger") or "")
        answers = await self._run_all_hooks(event, conversation, matched_name, values)
        first_block = ""
        texts: list[str] = []
        for answer in answers:
            first_block = first_block or answer.blocks
            if answer.says:
                texts.append(answer.says)
        return HookOutcome(first_block, "\n".join(texts))

    async def run_hooks_before_call(self, call: ToolCall, context: CallContext) -> None:
        """Raises ActionRefused if a hook blocks the call, or lets the user be asked and
        the user refuses.
        """
        answers = await self._run_hooks_of_call("PreToolUse", call, context)
        self._add_hook_notes(context.conversation, "PreToolUse", answers)
        for answer in answers:
            if answer.blocks:
                raise ActionRefused(
                    f"A hook blocked this call, so it was not run. {answer.blocks[:4_000]}"
                )
        for answer in answers:
            if answer.asks:
                await _ask_because_of_hook(call, context, answer.asks)

    async def run_hooks_after_call(
        self, call: ToolCall, context: CallContext, outcome: CallOutcome
    ) -> None:
        """Run the hooks for a finished call. The model reads what they say with the
        next request.
        """
        if not self._has_hooks_for("PostToolUse"):
            return
        shown_size = min(outcome.output.size, MOST_PRINTED)
        output = await self.kit.resources.cache.read_range(outcome.output.digest, 0, shown_size)
        response = {
            "output": output.decode("utf-8", "replace"),
            "success": outcome.ok,
            "exit_code": outcome.exit_code,
        }
        answers = await self._run_hooks_of_call(
            "PostToolUse", call, context, tool_response=response
        )
        # The call has been run: what would have blocked it is only told to the model.
        answers_for_model = [HookAnswer(says=answer.blocks or answer.says) for answer in answers]
        self._add_hook_notes(context.conversation, "PostToolUse", answers_for_model)

    def pop_hook_notes(self, conversation: str) -> tuple[StandingNote, ...]:
        """Return what hooks have said since the last step, and forget it."""
        return tuple(self._notes.pop(conversation, ()))

    def run_observing_hooks(self, event: Event, spawn: TaskSpawner) -> None:
        """Run hooks in the background when a question is asked or a handover begins."""
        match event:
            case QuestionAsked(conversation, _, question):
                hook_event = "Notification"
                values = {"message": question.title}
            case FoldProgress(conversation, FoldKind.HANDOVER, why, done=False, is_update=False):
                hook_event = "PreCompact"
                values = {"trigger": "auto", "custom_instructions": why}
            case _:
                return
        # Most workspaces have no hooks, and then no task is started.
        if self._has_hooks_for(hook_event):
            spawn(self.run_hooks_for_event(hook_event, conversation, values), name="hooks")

    def _has_hooks_for(self, event: str) -> bool:
        for hook in self.project.now.items_in_force("hook"):
            if hook.values.get("event") == event:
                return True
        return False

    async def _run_hooks_of_call(
        self, event: str, call: ToolCall, context: CallContext, **more: Any
    ) -> list[HookAnswer]:
        """Run hooks with the call as Claude Code names it. The user is asked about
        files that hooks changed.
        """
        if not self._has_hooks_for(event):
            return []
        arguments = parse_arguments(call.arguments) or {}
        name, values = project_hooks.translate_call_for_claude(
            call.name, arguments, self._first_folder
        )
        payload: dict[str, Any] = {"tool_name": name, "tool_input": values}
        payload.update(more)
        use = ToolResources(call, context, _refuse_every_action, self.kit.resources, FilesSeen())
        return await self._run_all_hooks(event, context.conversation, name, payload, use)

    @property
    def _first_folder(self) -> Path:
        roots = self.workspace.settings.roots
        if roots:
            return Path(roots[0])
        return brought.user_home()

    async def _run_all_hooks(
        self,
        event: str,
        conversation: str,
        matched_name: str,
        values: Mapping[str, Any],
        use: ToolResources | None = None,
    ) -> list[HookAnswer]:
        """Run all hooks for it at the same time. Autorun files that they changed are
        reverted, or asked about.
        """
        hooks = self._find_matching_hooks(event, matched_name, values.get("tool_input") or {})
        if not hooks:
            return []
        payload: dict[str, Any] = {
            "session_id": conversation,
            "transcript_path": "",
            "cwd": str(self._first_folder),
            "hook_event_name": event,
        }
        payload.update(values)
        watched = await self._watch_files_before_hooks(use)
        kept_changes = ""
        try:
            running = [self._run_hook_of_item(item, hook, payload, watched) for item, hook in hooks]
            answers = await asyncio.gather(*running)
            if use is not None:
                kept_changes = await watched.revert_and_ask(use, ask=True)
        finally:
            # If the turn is stopped meanwhile, what hooks changed is reverted as well.
            await finish_even_if_cancelled(watched.revert_without_asking())
            if use is not None:
                self.kit.commands.update_background_checks(watched)
        for (item, _), answer in zip(hooks, answers, strict=True):
            self.last[item.settings_key] = answer.note
            if answer.note:
                log.info("a hook for %s went wrong", event)
        if kept_changes:
            answers.append(HookAnswer(says=kept_changes.strip()))
        return answers

    def _find_matching_hooks(
        self, event: str, matched_name: str, tool_input: Mapping[str, Any]
    ) -> list[tuple[ProjectItem, ProjectHook]]:
        """Return the hooks in force for an event and a tool, each with the item that it
        is from.
        """
        hooks: list[tuple[ProjectItem, ProjectHook]] = []
        for item in self.project.now.items_in_force("hook"):
            # A hook of the workspace is in a folder such as .claude, and runs above it.
            hook_folder = item.path.parent.parent
            if item.own:
                hook_folder = self._first_folder
            hook = build_hook_from_item(item, hook_folder)
            if hook.event != event or not hook.matches_tool(matched_name):
                continue
            if hook.matches_arguments(tool_input):
                hooks.append((item, hook))
        return hooks

    async def _watch_files_before_hooks(self, use: ToolResources | None) -> CommandCheck:
        """Read the autorun files before hooks run. Without `use`, background commands
        keep their own checks.
        """
        commands = self.kit.commands
        if use is not None:
            watched = await commands.begin_command_check(use, outside=False, lasting=False)
            if watched:
                return watched
        guard = commands.guard
        if not guard:
            guard = AutorunGuard(self.kit.resources.roots, self.kit.options.hidden)
        return await CommandCheck.begin_check(guard)

    async def _run_hook_of_item(
        self,
        item: ProjectItem,
        hook: ProjectHook,
        payload: Mapping[str, Any],
        watched: CommandCheck,
    ) -> HookAnswer:
        """Run one hook, and return its answer. One that cannot be run is only noted."""
        if self.kit.sandbox.kind is SandboxKind.NONE and not hook.is_of_user:
            return HookAnswer(note="this system has no sandbox, so hooks of a folder don't run.")
        try:
            reason_not_to_run = await self._reason_not_to_run_hook(item, hook)
            if reason_not_to_run:
                return HookAnswer(note=reason_not_to_run)
            return await self._run_hook_process(hook, payload, watched)
        except TimeoutError:
            return HookAnswer(note=f"it did not end within {hook.seconds:g} s and was stopped.")
        except (OSError, HelixError) as error:
            return HookAnswer(note=f"it could not be run: {error}")

    async def _reason_not_to_run_hook(self, item: ProjectItem, hook: ProjectHook) -> str:
        """Return why a hook that was trusted is not run any more, or an empty text."""
        item_now = await asyncio.to_thread(project_hooks.reread_hook, item, hook.folder)
        if item_now is None or item_now.content_sha256 != item.content_sha256:
            return "it, or a file it names, was changed since you trusted it, so it did not run."
        if not hook.is_of_user:
            return ""
        # The user's own hooks run without a sandbox, so nobody else may write their scripts.
        is_still_users = await asyncio.to_thread(
            runs_only_scripts_of_user,
            item.body,
            brought.user_home(),
            self.kit.resources.roots.folders,
            hook.folder,
        )
        if not is_still_users:
            return "what it runs is no longer yours alone, so it did not run."
        return ""

    async def _run_hook_process(
        self, hook: ProjectHook, payload: Mapping[str, Any], watched: CommandCheck
    ) -> HookAnswer:
        """Run a hook's command with the payload as its input, and return its answer."""
        hook_variables = _hook_environment(hook, payload)
        # A file instead of a pipe: a hook that does not read its input cannot block us.
        with tempfile.TemporaryFile() as hook_input:
            hook_input.write(json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace"))
            hook_input.seek(0)
            stdin = hook_input.fileno()
            if hook.is_of_user:
                command = await self._start_users_hook(hook, hook_variables, stdin)
            else:
                command = await self._start_hook_in_sandbox(hook, hook_variables, watched, stdin)
        try:
            result = await wait_with_limit(_wait_for_hook_output(command), hook.seconds)
        finally:
            command.kill_process_tree()
            await finish_even_if_cancelled(command.kill_and_wait())
        if result is None:
            return HookAnswer(note=f"it printed more than {MOST_PRINTED:,} bytes and was stopped.")
        return project_hooks.parse_hook_answer(
            hook.event, result.exit_code, result.output, result.error_output
        )

    async def _start_hook_in_sandbox(
        self, hook: ProjectHook, hook_variables: dict[str, str], watched: CommandCheck, stdin: int
    ) -> RunningCommand:
        """Start it like a command of the model: the same files are protected, and the
        mode may forbid writing.
        """
        mode = self.kit.permissions.mode_in_force
        is_read_only = mode in (PermissionMode.READ_ONLY, PermissionMode.PLAN)
        sandbox = replace(self.kit.sandbox, read_only=is_read_only)
        # What commands of the model see without asking.
        opened_for_commands = await asyncio.to_thread(self.kit.commands.opened)
        hidden_files = tuple(watched.guard.hidden_files)
        openings = replace(opened_for_commands, hidden=hidden_files)
        if sandbox.paths_left_visible(openings):
            raise ActionRefused(
                "The weaker sandbox, Landlock, cannot keep the hook from reading hidden files."
            )
        command_line = shell_command_line(hook.command)
        held_paths = watched.guard.paths_to_hold_in_place()
        environment = sandbox.build_environment(
            os.environ, network=False, free=False, opened=openings
        )
        environment |= hook_variables
        launch = ProcessLaunch(
            CommandAuthor.TRUSTED,
            command_line,
            hook.folder,
            environment,
            place=ProcessPlace.SANDBOX,
            trusted_hash=hook.trust,
            checks=watched,
        )
        wrap = partial(
            sandbox.wrap_command, command_line, network=False, held=held_paths, opened=openings
        )
        return await RunningCommand.start_in_jail(launch, wrap, stdin=stdin, stderr=PIPE)

    async def _start_users_hook(
        self, hook: ProjectHook, hook_variables: dict[str, str], stdin: int
    ) -> RunningCommand:
        """Start the user's own script as it is set. Programs in the workspace's folders
        are not searched for.
        """
        sandbox = self.kit.sandbox
        environment = sandbox.build_environment(os.environ, network=True, free=True)
        environment = environment_without_agents(environment) | hook_variables
        command_line = shell_command_line(hook.command)
        launch = ProcessLaunch(
            CommandAuthor.USER, command_line, hook.folder, environment, place=ProcessPlace.WATCHED
        )
        wrap = partial(sandbox.wrap_command, command_line, network=True, outside=True)
        return await RunningCommand.start_in_jail(launch, wrap, stdin=stdin, stderr=PIPE)

    def _add_hook_notes(self, conversation: str, event: str, answers: list[HookAnswer]) -> None:
        notes = self._notes.setdefault(conversation, [])
        for answer in answers:
            if answer.says:
                self._count += 1
                text = f"[A hook for {event} says:]\n{answer.says[:20_000]}"
                notes.append(StandingNote(f"hook:{event} {self._count}", text, pinned=False))


async def _refuse_every_action(_: ToolAction) -> None:
    raise ActionRefused("A hook cannot be given a permission of its own.")


def _hook_environment(hook: ProjectHook, payload: Mapping[str, Any]) -> dict[str, str]:
    file_path = str(object_at(payload, "tool_input").get("file_path", ""))
    return {
        "CLAUDE_PROJECT_DIR": str(hook.folder),
        "CLAUDE_TOOL_NAME": str(payload.get("tool_name", "")),
        # A NUL that the model wrote would keep the process from starting.
        "CLAUDE_TOOL_FILE_PATH": file_path.replace("\0", ""),
    }


@dataclass(frozen=True, slots=True)
class _HookResult:
    output: str
    error_output: str
    exit_code: int | None


async def _wait_for_hook_output(command: RunningCommand) -> _HookResult | None:
    """Return None if the hook printed too much."""
    process = command.process
    output, error_output = await asyncio.gather(
        _read_hook_stream(command, process.stdout), _read_hook_stream(command, process.stderr)
    )
    if output is None or error_output is None:
        return None
    return _HookResult(output, error_output, await process.wait())


async def _read_hook_stream(
    command: RunningCommand, stream: asyncio.StreamReader | None
) -> str | None:
    """Return what a stream says until its end, or None if it is too much."""
    if stream is None:
        return ""
    text = b""
    while True:
        piece = await stream.read(1 << 14)
        if not piece:
            return text.decode("utf-8", "replace")
        text += piece
        if len(text) > MOST_PRINTED:
            command.kill_process_tree()
            return None


async def _ask_because_of_hook(call: ToolCall, context: CallContext, why: str) -> None:
    answer = await context.ask(
        PermissionQuestion(
            call, f"A hook is asking about {call.name}", call.arguments, why[:300], ("once",)
        )
    )
    if not answer.allowed:
        raise ActionRefused("The user denied this call, so it was not run.")
