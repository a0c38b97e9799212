"""Answers a foreign agent's requests for permission, files, commands in terminals and forms.

Files are reached through the workspace's roots, as by our own file tools. Commands run as calls of
our own run_command, by the same rules and in the same sandbox. What the agent does in its own
process cannot be prevented here.
"""

import asyncio
import json
import os
import re
import secrets
import shlex
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError

from helix_desktop.acp_client.agent_connection import MISSING_FILE
from helix_desktop.acp_client.turn_recording import AcpCall, TurnRecorder
from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.concurrency import wait_with_limit
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import Fact, ToolCall
from helix_desktop.engine.ports import (
    CallContext,
    CallOutcome,
    EntryOrigin,
    PermissionAnswer,
    PermissionQuestion,
    ToolSet,
)
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_call_parsing import UNREAD
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import first_text, list_at, number_at, object_at, objects_at, text_at
from helix_desktop.processes.folders_of_agents import is_setting_in_home
from helix_desktop.processes.starter import is_of_own_environment
from helix_desktop.tools import file_text, workspace_roots
from helix_desktop.tools.autorun_files import is_autorun_path
from helix_desktop.tools.built_in_tool import FilesSeen
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.workspace_tools import WorkspaceTools

MOST_TERMINALS = 16  # The maximum number of terminals that may run at once.
MOST_ENDED_TERMINALS = 32  # The output of so many ended commands can still be asked for.
TERMINAL_SECONDS = 3600
# If a command ends at once, the agent has this many seconds to show it in a call.
SHOW_SECONDS = 10
TERMINAL_BYTES = 1 << 20
MOST_PATHS = 1_000  # The maximum number of files that one call may name.
# A request of more characters would not be read by anybody before it is allowed.
LONGEST_PREVIEW = 1 << 20
LONGEST_TITLE = 200_000
# A form's message and its schema. Longer ones are declined, as those of an MCP server are.
LONGEST_FORM_MESSAGE = 10_000
LONGEST_FORM = 100_000
_EFFECTS = {
    "read": ActionEffect.READ, "search": ActionEffect.READ, "think": ActionEffect.READ, "fetch": ActionEffect.FETCH,
    "edit": ActionEffect.EDIT, "delete": ActionEffect.EDIT, "move": ActionEffect.EDIT, "execute": ActionEffect.RUN,
}  # fmt: skip
_TOOLS = {
    ActionEffect.READ: ToolName.READ_FILE, ActionEffect.EDIT: ToolName.WRITE_FILE, ActionEffect.RUN: ToolName.RUN_COMMAND,
}  # fmt: skip
Ask = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
_STRICTNESS_OF_VERDICT = {"allow": 0, "ask": 1, "deny": 2}
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_FILE_ADDRESS = re.compile(r"\s*file:/.*", re.IGNORECASE)
_PATTERN_SIGN = re.compile(r"[*?\[\]]")
_COMMAND_KEYS = ("command", "cmd")
_FOLDER_KEY = re.compile(r"cwd|(?:work(?:ing)?_?)?dir(?:ectory)?(?:_?path)?|folder", re.IGNORECASE)
_PATH_KEY = re.compile(
    r"(?:path|file|filename|dir|directory|folder|cwd|^source|destination|target)s?$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class PlaceForRules:
    """A path as rules name it, why it is dangerous, and the extra permission that it needs."""

    path: str = ""
    danger: str = ""
    separate_permission: str = ""


@dataclass(frozen=True, slots=True)
class AllowedEdit:
    """A change of a file that the user saw and allowed. `path`: as rules name it."""

    path: str
    old_text: str
    new_text: str


@dataclass(slots=True)
class AgentTerminal:
    running: asyncio.Task[CallOutcome]
    limit_bytes: int
    printed: str = ""  # The end of the command's output so far.
    is_cut: bool = False
    # Set by the agent's first request about this terminal.
    first_request: asyncio.Event = field(default_factory=asyncio.Event)

    def add_printed_text(self, text: str) -> None:
        printed = self.printed + text
        self.printed = printed[-self.limit_bytes :]
        self.is_cut = len(printed) > self.limit_bytes

    def exit_status(self) -> dict[str, Any]:
        """Returns how the command ended. A command that was refused or could not start
        counts as failed.
        """
        was_killed = {"exitCode": None, "signal": "SIGKILL"}
        if self.running.cancelled() or self.running.exception():
            return was_killed
        outcome = self.running.result()
        if outcome.stopped:
            return was_killed
        exit_code = outcome.exit_code
        if exit_code is None:
            exit_code = int(not outcome.ok)
        return {"exitCode": exit_code, "signal": None}


@dataclass(slots=True)
class AgentRequests:
    """Answers the requests of one turn. `ask_user` shows a question as a card in our window."""

    conversation: Conversation
    kit: WorkspaceTools
    tools: ToolSet
    recorder: TurnRecorder
    ask_user: Ask
    spawn: TaskSpawner
    terminals: dict[str, AgentTerminal] = field(default_factory=dict)
    # Each question that the user has not answered yet is a task.
    _open_questions: set[asyncio.Task[PermissionAnswer]] = field(default_factory=set)
    _is_over: bool = False
    # The commands allowed in this turn, each with the folder in which it may run.
    _allowed_commands: set[tuple[str, str]] = field(default_factory=set)
    _allowed_edits: list[AllowedEdit] = field(default_factory=list)

    async def answer_agent(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Answers a request by its method. Raises a RequestError for an unknown one."""
        match method:
            case "session/request_permission":
                return await self._answer_permission_request(params)
            case "fs/read_text_file":
                return await self._read_text_file(params)
            case "fs/write_text_file":
                return await self._write_text_file(params)
            case "terminal/create":
                return self._create_terminal(params)
            case (
                "terminal/output" | "terminal/wait_for_exit" | "terminal/kill" | "terminal/release"
            ):
                return await self._answer_terminal_request(method, text_at(params, "terminalId"))
            case "elicitation/create":
                return await self._ask_user_to_fill_form(params)
        raise RequestError.method_not_found(method[:80])

    @property
    def is_waiting(self) -> bool:
        return bool(self._open_questions) or self._count_running_terminals() > 0

    def _count_running_terminals(self) -> int:
        return sum(not terminal.running.done() for terminal in self.terminals.values())

    async def stop_questions_and_commands(self) -> None:
        """Ends what the agent has asked for. Its other requests may still be looked at, and are not
        asked about any more.
        """
        self._is_over = True
        for question in tuple(self._open_questions):
            question.cancel()
        running = [terminal.running for terminal in self.terminals.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # --- Deciding what the agent may do, by a rule or by asking the user

    async def _answer_permission_request(self, params: dict[str, Any]) -> dict[str, Any]:
        """Decides by the workspace's rules, or asks the user, and chooses among the options
        that the agent offers. One that holds only for this call is preferred.
        """
        described_call = object_at(params, "toolCall")
        recorded_call = await self.recorder.record_call_update(described_call, is_live=True)
        # A copy: the agent may change the call while the user is asked.
        call = replace(recorded_call, description=dict(recorded_call.description))
        try:
            action = await asyncio.to_thread(self._strictest_action_of_call, call)
            await self._decide_and_record(call.as_tool_call(), action)
            self._remember_allowed_action(call, action)
            chosen_kinds = ("allow_once", "allow_always")
        except ActionRefused:
            chosen_kinds = ("reject_once", "reject_always")
        except asyncio.CancelledError:  # The user is stopping the turn.
            recorded_call.was_stopped_at_question = True
            return {"outcome": {"outcome": "cancelled"}}
        for kind in chosen_kinds:
            for option in objects_at(params, "options"):
                if text_at(option, "kind") == kind:
                    option_id = text_at(option, "optionId")
                    return {"outcome": {"outcome": "selected", "optionId": option_id}}
        return {"outcome": {"outcome": "cancelled"}}

    def _remember_allowed_action(self, call: AcpCall, action: ToolAction) -> None:
        """Remembers what the user allowed, so that the agent's own request to do it is
        not asked about again.
        """
        if action.effect is ActionEffect.RUN:
            agents_folder = _folder_of_call(call)
            folder = self._folder_as_rules_name_it(agents_folder)
            self._allowed_commands.add((action.command, folder))
        if action.effect is ActionEffect.EDIT:
            for difference in call.differences:
                named_path = text_at(difference, "path")
                path = self._describe_place(named_path, action.effect).path
                old_text = text_at(difference, "oldText")
                new_text = text_at(difference, "newText")
                self._allowed_edits.append(AllowedEdit(path, old_text, new_text))

    def _strictest_action_of_call(self, call: AcpCall) -> ToolAction:
        """Returns the action to be permitted. Of several files, the one with the
        strictest decision counts.
        """
        paths = _list_paths_of_call(call)
        if len(paths) > MOST_PATHS:
            raise ActionRefused(
                f"A call can name at most {MOST_PATHS:,} files.",
                remedy="Make several calls instead.",
            )
        preview = self._preview_of_call(call)
        if len(preview) > LONGEST_PREVIEW or len(call.title) > LONGEST_TITLE:
            raise ActionRefused(
                "This is too long for anybody to read before allowing it.",
                remedy="Do it in smaller steps.",
            )
        if not paths:
            return self._build_action_on_path(call, "", preview)
        actions = [self._build_action_on_path(call, path, preview) for path in paths]
        return max(actions, key=self._permission_strictness)

    def _preview_of_call(self, call: AcpCall) -> str:
        """Returns the command and the changes to files that the user is asked about. A call
        with neither is shown with all of its input.
        """
        details: list[str] = []
        command = _command_of_call(call)
        if command:
            details.append(command)
        difference = call.difference_text(self._name_edited_file)
        if difference:
            details.append(difference)
        if not details:
            return call.arguments_text()
        return "\n".join(details)

    def _name_edited_file(self, path_or_address: str) -> str:
        path = _path_of_file_address(path_or_address)
        return self._describe_place(path, ActionEffect.EDIT).path

    def _permission_strictness(self, action: ToolAction) -> tuple[int, int]:
        """Returns a key to sort by: first how strict the decision is, then for how little the
        user could allow it at once.
        """
        decision = self.kit.permissions.decide_for_conversation(action, self.conversation.id)
        return _STRICTNESS_OF_VERDICT[decision.verdict], -len(decision.scopes)

    def _build_action_on_path(self, call: AcpCall, path: str, preview: str) -> ToolAction:
        effect = _effect_of_call(call, path)
        tool_call = call.as_tool_call()
        place = PlaceForRules()
        if path:
            place = self._describe_place(path, effect)

        if effect is ActionEffect.FETCH:
            path_for_rules = _host_of_call(call)
        else:
            path_for_rules = place.path

        command_to_run = ""
        reason_to_ask = place.danger
        separate_permission = place.separate_permission
        if effect is ActionEffect.RUN:
            command_to_run = _command_of_call(call)
            reason_to_ask = place.danger or self._reason_to_ask_before_command(call)
            separate_permission = "outside_sandbox"

        return ToolAction(
            tool=self._tool_name_for_rules(effect, tool_call, path_for_rules),
            effect=effect,
            title=call.title or tool_call.name,
            preview=preview,
            path=path_for_rules,
            command=command_to_run,
            reason_to_ask=reason_to_ask,
            asks_in_every_mode=bool(place.danger) and place.separate_permission != "runs_later",
            separate_permission=separate_permission,
        )

    def _tool_name_for_rules(
        self, effect: ActionEffect, call: ToolCall, path_for_rules: str
    ) -> str:
        """Returns the name of our tool with the same effect, so that the user's rules for it
        also hold for foreign agents.
        """
        if effect in _TOOLS:
            return _TOOLS[effect]
        if effect is ActionEffect.FETCH and path_for_rules:
            return ToolName.FETCH_URL
        # None of our tools is named "name: title".
        return f"{self.recorder.model}: {_PATTERN_SIGN.sub('_', call.name)}"

    def _reason_to_ask_before_command(self, call: AcpCall) -> str:
        """Return why: the agent runs commands itself, so no sandbox of ours holds them."""
        folder = _folder_of_call(call)
        if not folder:
            return "it would run outside the sandbox, so it can only be allowed once"
        shown_folder = self._folder_as_rules_name_it(folder)
        return (
            f"it would run outside the sandbox, in {shown_folder}, so it can only be allowed once"
        )

    def _describe_place(self, path: str, effect: ActionEffect) -> PlaceForRules:
        """Returns a path as rules name it, and why an action there is dangerous."""
        roots = self.kit.resources.roots.with_nothing_hidden
        try:
            path_as_named = roots.resolve_path(path)
            # Rules are for the file itself, not for a symbolic link that leads to it.
            real_path = roots.resolve_path(os.path.realpath(path_as_named.full_path))
        except (HelixError, ValueError):
            return PlaceForRules(path, f"{path} is outside this workspace's folders")
        displayed_path = roots.display_path(real_path)
        if self.kit.resources.roots.is_hidden_path(real_path.full_path):
            danger = f"it would see files that are hidden from agents: {displayed_path}"
            return PlaceForRules(displayed_path, danger, "opened")
        is_run_later = (
            is_autorun_path(real_path.inside)
            or is_setting_in_home(real_path.full_path, real_path.root)
            or is_of_own_environment(real_path.full_path)
        )
        if effect is ActionEffect.EDIT and is_run_later:
            danger = f"other programs run the contents of {displayed_path}"
            return PlaceForRules(displayed_path, danger, "runs_later")
        return PlaceForRules(displayed_path)

    def _folder_as_rules_name_it(self, folder: str) -> str:
        return self._describe_place(folder or ".", ActionEffect.RUN).path

    async def _decide_and_record(self, call: ToolCall, action: ToolAction) -> None:
        """Applies the workspace's rules and mode. ActionRefused if the action is not allowed."""
        context = self._agent_call_context(self._ask_user_unless_allowed)
        outcome = await self.kit.permissions.decide_or_ask(call, action, context)
        if outcome.decided_by:
            await self.conversation.append_facts(outcome.permission_as_fact(call.id))
        if outcome.refused:
            raise ActionRefused(outcome.refusal)

    def _agent_call_context(
        self, ask: Ask, show: Callable[[str], None] = lambda _: None
    ) -> CallContext:
        return CallContext(self.conversation.id, ask, show)

    async def _ask_user_unless_allowed(
        self, question: PermissionQuestion, was_allowed: Callable[[], bool] = lambda: False
    ) -> PermissionAnswer:
        if not question.apart and was_allowed():
            return PermissionAnswer(allowed=True)  # The user has allowed exactly this in this turn.
        if self._is_over:
            raise asyncio.CancelledError
        asking: asyncio.Task[PermissionAnswer] = self.spawn(
            self._ask_user(question), name="question of an agent"
        )
        self._open_questions.add(asking)
        try:
            return await asking
        finally:
            self._open_questions.discard(asking)

    async def _ask_user(self, question: PermissionQuestion) -> PermissionAnswer:
        return await self.ask_user(question)

    async def _ask_user_to_fill_form(self, params: dict[str, Any]) -> dict[str, Any]:
        """Asks the user to fill in a form. Requests to open an address are declined."""
        schema = object_at(params, "requestedSchema")
        if not schema:
            return {"action": "decline"}
        message = text_at(params, "message")
        form = json.dumps(schema)
        # What one agrees to is shown whole, or it is not asked.
        if len(message) > LONGEST_FORM_MESSAGE or len(form) > LONGEST_FORM:
            return {"action": "decline"}
        question = PermissionQuestion(
            ToolCall("", "form", "{}"),
            f"The agent {self.recorder.model} has a question",
            message,
            "this text comes from the agent, not from Helix Desktop",
            scopes=("once",),
            form=form,
        )
        answer = await self._ask_user_unless_allowed(question)
        if not answer.allowed:
            return {"action": "decline"}
        return {"action": "accept", "content": json.loads(answer.values or "{}")}

    # --- Reading and writing files for the agent

    async def _read_text_file(self, params: dict[str, Any]) -> dict[str, Any]:
        """Reads lines of a file for the agent, if that is allowed."""
        roots = self.kit.resources.roots
        requested_path = text_at(params, "path")
        path = await asyncio.to_thread(roots.resolve_real_path, requested_path)
        displayed_path = roots.display_path(path)
        action = ToolAction(
            ToolName.READ_FILE,
            ActionEffect.READ,
            title=f"Read {displayed_path}",
            preview=displayed_path,
            path=displayed_path,
            named_path=path.named,
        )
        call = ToolCall("", ToolName.READ_FILE, "{}")
        await self._decide_and_record(call, action)
        content = await asyncio.to_thread(workspace_roots.read_whole_file, roots, path)
        text = file_text.decode_file_text(content)
        lines = text.splitlines(keepends=True)
        first_line_number = max(number_at(params, "line"), 1)
        most_lines = number_at(params, "limit") or len(lines)
        start = first_line_number - 1
        end = start + most_lines
        return {"content": "".join(lines[start:end])}

    async def _write_text_file(self, params: dict[str, Any]) -> dict[str, Any]:
        """Runs our own write_file. The agent has read the file itself, so it counts as
        read here.
        """
        resources = self.kit.resources
        roots = resources.roots
        path = text_at(params, "path")
        place = await asyncio.to_thread(roots.resolve_real_path, path)
        before = await asyncio.to_thread(workspace_roots.read_file_or_none, roots, place)
        if before is not None:
            files_seen = resources.files_seen.setdefault(self.conversation.id, FilesSeen())
            files_seen.set_content_seen(place.full_path, Digest.of_content(before))

        values = {"path": path, "content": text_at(params, "content")}
        displayed_path = roots.display_path(place)
        was_allowed = partial(self._was_edit_allowed, displayed_path, before, values)
        ask = partial(self._ask_user_unless_allowed, was_allowed=was_allowed)
        context = self._agent_call_context(ask)
        call = ToolCall("", ToolName.WRITE_FILE, json.dumps(values))
        outcome = await self._run_own_tool_and_record(call, context)
        if not outcome.ok:
            reason = await resources.cache.read_range(outcome.output.digest, 0, 1_000)
            raise ActionRefused(reason.decode("utf-8", "replace"))
        return {}

    def _was_edit_allowed(self, path: str, before: bytes | None, values: dict[str, str]) -> bool:
        """Whether a card of this turn showed exactly this change: the old text and the new one."""
        text_before = file_text.decode_file_text(before or b"")
        for edit in self._allowed_edits:
            if edit.path != path:
                continue
            # A card without an old text showed a new file, and one with it a file that exists.
            if bool(edit.old_text) != bool(text_before):
                continue
            allowed_text = text_before.replace(edit.old_text, edit.new_text, 1)
            if values["content"] == allowed_text:
                return True
        return False

    async def _run_own_tool_and_record(self, call: ToolCall, context: CallContext) -> CallOutcome:
        """Records the changes and who allowed them. The call itself is recorded as the agent's."""
        outcome = await self.tools.run_tool_call(call, context)
        # What was done is recorded even if the agent or the user stops the request at this moment.
        recording = self._record_outcome(call, outcome)
        await finish_even_if_cancelled(recording)
        return outcome

    async def _record_outcome(self, call: ToolCall, outcome: CallOutcome) -> None:
        new_facts: list[Fact] = [outcome.decision_on_call(call.id)]
        if outcome.files:
            new_facts.append(outcome.files)
        await self.conversation.append_facts(*new_facts)

    # --- Running commands for the agent in terminals

    def _create_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        """Starts a command, and returns the terminal's id without waiting for it."""
        if self._count_running_terminals() >= MOST_TERMINALS:
            raise ActionRefused(
                f"This agent is already running {MOST_TERMINALS} commands.",
                remedy="Wait until a command has ended.",
            )
        # The agent learns the terminal's id, but not the call's, which it could use for
        # a call of its own.
        self._forget_old_terminals()
        name = f"terminal-{secrets.token_hex(8)}"
        call_id = f"command-{secrets.token_hex(8)}"
        command = _format_terminal_command(params)
        folder = text_at(params, "cwd")
        values: dict[str, Any] = {"command": command, "seconds": TERMINAL_SECONDS}
        if folder:
            values["folder"] = folder
        call = ToolCall(call_id, ToolName.RUN_COMMAND, json.dumps(values))
        limit = min(number_at(params, "outputByteLimit") or TERMINAL_BYTES, TERMINAL_BYTES)
        command_and_folder = (command.strip(), self._folder_as_rules_name_it(folder))
        running = self.spawn(self._run_in_terminal(name, call, command_and_folder), name=name)
        self.terminals[name] = AgentTerminal(running, limit)
        return {"terminalId": name}

    def _forget_old_terminals(self) -> None:
        """Agents that release no terminal would fill the memory with what their commands printed."""
        ended: list[str] = []
        for terminal_id, terminal in self.terminals.items():
            if terminal.running.done():
                ended.append(terminal_id)
        for terminal_id in ended[:-MOST_ENDED_TERMINALS]:
            del self.terminals[terminal_id]

    async def _run_in_terminal(
        self, terminal_id: str, call: ToolCall, command_and_folder: tuple[str, str]
    ) -> CallOutcome:
        """Runs a command as a call of our own, and records it once the agent has had
        time to show it.
        """
        terminal = self.terminals[terminal_id]

        def was_allowed() -> bool:
            return command_and_folder in self._allowed_commands

        def show_live(text: str) -> None:
            terminal.add_printed_text(text)
            self.recorder.notify_of_terminal_output(terminal_id, text)

        is_waiting_for_user = False

        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            nonlocal is_waiting_for_user
            is_waiting_for_user = True
            answer = await self._ask_user_unless_allowed(question, was_allowed=was_allowed)
            is_waiting_for_user = False
            return answer

        context = self._agent_call_context(ask, show_live)
        try:
            outcome = await self.tools.run_tool_call(call, context)
        except asyncio.CancelledError:
            # Its process may have begun already.
            if not is_waiting_for_user:
                await finish_even_if_cancelled(self._record_unread_command(terminal_id, call))
            raise
        recording = self._record_terminal(terminal_id, terminal, call, outcome)
        # The agent may kill the terminal as the command ends: what ran is recorded all the same.
        await finish_even_if_cancelled(recording, hurry=terminal.first_request.set)
        return outcome

    async def _record_unread_command(self, terminal_id: str, call: ToolCall) -> None:
        origin = EntryOrigin(call.name, describe_call_as_source(call.arguments))
        stored = await self.kit.resources.cache.store_content(UNREAD.encode(), origin)
        outcome = CallOutcome(stored, ok=False, stopped=True)
        await self.recorder.record_finished_command(terminal_id, call, outcome)

    async def _record_terminal(
        self, terminal_id: str, terminal: AgentTerminal, call: ToolCall, outcome: CallOutcome
    ) -> None:
        await self._record_outcome(call, outcome)
        start = max(0, outcome.output.size - terminal.limit_bytes)
        cache = self.kit.resources.cache
        end_of_output = await cache.read_range(outcome.output.digest, start, terminal.limit_bytes)
        terminal.printed = end_of_output.decode("utf-8", "replace")
        terminal.is_cut = start > 0
        with suppress(TimeoutError, asyncio.CancelledError):
            await wait_with_limit(terminal.first_request.wait(), SHOW_SECONDS)
        await self.recorder.record_finished_command(terminal_id, call, outcome)

    async def _answer_terminal_request(self, method: str, terminal_id: str) -> dict[str, Any]:
        """Returns a command's output, waits for its end, or ends it."""
        if terminal_id not in self.terminals:
            raise RequestError(MISSING_FILE, f"There is no terminal {terminal_id[:80]}.")
        terminal = self.terminals[terminal_id]
        terminal.first_request.set()
        if method == "terminal/output":
            answer = {"output": terminal.printed, "truncated": terminal.is_cut}
            if terminal.running.done():
                answer["exitStatus"] = terminal.exit_status()
            return answer
        if method == "terminal/wait_for_exit":
            await asyncio.wait([terminal.running])
            return terminal.exit_status()
        terminal.running.cancel()
        await asyncio.wait([terminal.running])
        if method == "terminal/release":
            self.terminals.pop(terminal_id, None)
        return {}


def _command_of_call(call: AcpCall) -> str:
    """Returns the command line of a call as agents write it: as text, or as a list of
    words.
    """
    call_input = object_at(call.description, "rawInput")
    commands: list[str] = []
    for key in _COMMAND_KEYS:
        command = call_input.get(key)
        if isinstance(command, list) and command:
            command_words = [str(word) for word in command]
            commands.append(shlex.join(command_words))
        elif command:
            commands.append(str(command))
    # An agent may give different commands under both names: then the user sees both.
    different_commands = dict.fromkeys(commands)
    line = "\n".join(different_commands)
    if not line:
        return ""
    line_with_arguments = [line]
    for argument in list_at(call_input, "args"):
        quoted_argument = shlex.quote(str(argument))
        line_with_arguments.append(quoted_argument)
    return " ".join(line_with_arguments)


def _folder_of_call(call: AcpCall) -> str:
    """Returns the folder of a command as the agent gives it. Empty means the agent's own folder."""
    folders: list[str] = []
    call_input = object_at(call.description, "rawInput")
    for key, value in call_input.items():
        if value and _FOLDER_KEY.fullmatch(key):
            folders.append(str(value))
    different_folders = dict.fromkeys(folders)
    return ", ".join(different_folders)


def _list_paths_of_call(call: AcpCall) -> list[str]:
    """Returns each path that the call names, in their order: of several that are judged alike, the
    question names the first one.
    """
    named_paths = list(_find_paths_in_call_input(call))
    locations = objects_at(call.description, "locations")
    contents = objects_at(call.description, "content")
    for named in locations + contents:
        path_or_address = text_at(named, "path")
        named_paths.append(_path_of_file_address(path_or_address))
    different_paths = dict.fromkeys(named_paths)
    return [path for path in different_paths if path]


def _find_paths_in_call_input(call: AcpCall) -> Iterator[str]:
    """Yield every path that the call's input names, at any depth, also as a field's name."""
    call_input = object_at(call.description, "rawInput")
    without_command = call_input | dict.fromkeys(_COMMAND_KEYS)
    # Each value with the name of its field, which may say that the value is a path.
    pending: list[tuple[str, Any]] = [("", without_command)]
    while pending:
        field_name, value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.items())
            pending.extend(("", name) for name in value)
        elif isinstance(value, list):
            pending.extend((field_name, item) for item in value)
        elif isinstance(value, str):
            is_path = bool(_PATH_KEY.search(field_name) or _FILE_ADDRESS.fullmatch(value))
            path = _path_of_file_address(value)
            yield _path_in_text(path, is_path=is_path)


def _path_of_file_address(text: str) -> str:
    """Returns the path that the address of a file leads to, however it is spelled. Any other text
    is returned unchanged. On another computer, nothing of it lies in the workspace's folders.
    """
    if not _FILE_ADDRESS.fullmatch(text):
        return text
    with suppress(ValueError):
        parts = urlsplit(text.strip())
        path = unquote(parts.path)
        if parts.netloc.lower() in ("", "localhost"):
            return path
        return f"//{parts.netloc}{path}"
    return f"//{text}"


def _path_in_text(text: str, *, is_path: bool) -> str:
    """Returns the path that a text holds. A code comment can look like a path, but its
    first folder does not exist.
    """
    with suppress(RuntimeError, ValueError):
        path = Path(text).expanduser()
        is_absolute = len(path.parts) > 1 and path.is_absolute() and "\n" not in text
        if is_absolute and os.path.lexists(Path(*path.parts[:2])):
            return str(path)
    if is_path:
        return text
    return ""


def _host_of_call(call: AcpCall) -> str:
    with suppress(ValueError):
        return urlsplit(text_at(call.description, "rawInput", "url")).hostname or ""
    return ""


def _format_terminal_command(params: dict[str, Any]) -> str:
    """Returns the command line for a terminal, with the variables that the agent sets
    for it.
    """
    pieces: list[str] = []
    for variable in objects_at(params, "env"):
        name = text_at(variable, "name")
        if _VARIABLE.fullmatch(name):
            quoted_value = shlex.quote(text_at(variable, "value"))
            pieces.append(f"{name}={quoted_value}")
    command = text_at(params, "command")
    arguments = [str(argument) for argument in list_at(params, "args")]
    if arguments:
        command = shlex.join([command] + arguments)
    pieces.append(command)
    return " ".join(pieces)


def _effect_of_call(call: AcpCall, path: str) -> ActionEffect:
    """Return what a call does, by what it names. The agent's own word for it is not enough."""
    effect = _EFFECTS.get(text_at(call.description, "kind"), ActionEffect.FOREIGN)
    if _command_of_call(call):
        return ActionEffect.RUN  # Some agents label a command that only reads as "read".
    searched = first_text(object_at(call.description, "rawInput"), "pattern", "regex", "glob")
    is_run_without_command = effect is ActionEffect.RUN
    is_edit_of_nothing = effect is ActionEffect.EDIT and not path
    is_read_of_nothing = effect is ActionEffect.READ and not path and not searched
    if is_run_without_command or is_edit_of_nothing or is_read_of_nothing:
        return ActionEffect.FOREIGN
    return effect
