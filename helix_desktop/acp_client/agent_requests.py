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
from urllib.parse import urlsplit

from acp import RequestError

from helix_desktop.acp_client.turn_recording import AcpCall, TurnRecorder
from helix_desktop.concurrency import wait_with_limit
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import Decided, ToolCall
from helix_desktop.engine.ports import (
    CallContext,
    CallOutcome,
    PermissionAnswer,
    PermissionQuestion,
    ToolSet,
)
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import first_text, list_at, number_at, object_at, objects_at, text_at
from helix_desktop.tools import file_text, workspace_roots
from helix_desktop.tools.autorun_files import is_autorun_path
from helix_desktop.tools.built_in_tool import FilesSeen
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.toolbox import PermissionOutcome
from helix_desktop.tools.workspace_tools import WorkspaceTools

MOST_TERMINALS = 16  # The maximum number of terminals that may run at once.
TERMINAL_SECONDS = 3600
SHOW_SECONDS = (
    10  # If a command ends at once, the agent has this many seconds to show it in a call.
)
TERMINAL_BYTES = 1 << 20
MOST_PATHS = 1_000  # The maximum number of files that one call may name.
_EFFECTS = {
    "read": ActionEffect.READ, "search": ActionEffect.READ, "think": ActionEffect.READ, "fetch": ActionEffect.FETCH,
    "edit": ActionEffect.EDIT, "delete": ActionEffect.EDIT, "move": ActionEffect.EDIT, "execute": ActionEffect.RUN,
}  # fmt: skip
_TOOLS = {
    ActionEffect.READ: ToolName.READ_FILE, ActionEffect.EDIT: ToolName.WRITE_FILE, ActionEffect.RUN: ToolName.RUN_COMMAND,
}  # fmt: skip
Ask = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
_VARIABLE, _PATTERN_SIGN = re.compile(r"[A-Za-z_]\w*"), re.compile(r"[*?\[\]]")
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


@dataclass(slots=True)
class AgentTerminal:
    running: asyncio.Task[CallOutcome]
    limit_bytes: int
    printed: str = ""  # The end of the command's output so far.
    is_cut: bool = False
    asked: asyncio.Event = field(
        default_factory=asyncio.Event
    )  # Set by the agent's first request about this terminal.

    def exit_status(self) -> dict[str, Any]:
        """Returns how the command ended. A command that was refused or could not start
        counts as failed.
        """
        outcome = (
            None if self.running.cancelled() or self.running.exception() else self.running.result()
        )
        if outcome is None or outcome.stopped:
            return {"exitCode": None, "signal": "SIGKILL"}
        return {
            "exitCode": int(not outcome.ok) if outcome.exit_code is None else outcome.exit_code,
            "signal": None,
        }


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
    _open_questions: int = 0
    # The commands allowed in this turn, each with the folder in which it may run.
    _allowed_commands: set[tuple[str, str]] = field(default_factory=set)
    _allowed_edits: list[tuple[str, str, str]] = field(
        default_factory=list
    )  # For each edit: path, old text, new text.

    async def answer_agent(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
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
        return self._open_questions > 0 or any(
            not each.running.done() for each in self.terminals.values()
        )

    async def stop_commands(self) -> None:
        for terminal in self.terminals.values():
            terminal.running.cancel()
        await asyncio.gather(
            *(each.running for each in self.terminals.values()), return_exceptions=True
        )

    # --- Deciding what the agent may do, by a rule or by asking the user

    async def _answer_permission_request(self, params: dict[str, Any]) -> dict[str, Any]:
        noted = await self.recorder.record_call_update(object_at(params, "toolCall"), is_live=True)
        call = replace(
            noted, told=dict(noted.told)
        )  # A copy: the agent may change the call while the user is asked.
        kinds = ("allow_once", "allow_always")
        try:
            action = await asyncio.to_thread(self._strictest_action_of_call, call)
            await self._decide_and_record(call.as_tool_call(), action)
            self._remember_allowed_action(call, action)
        except ActionRefused:
            kinds = ("reject_once", "reject_always")
        except asyncio.CancelledError:  # The user is stopping the turn.
            kinds, noted.was_stopped_at_question = ("", ""), True
        offered = objects_at(params, "options")
        for option in sorted(offered, key=lambda each: text_at(each, "kind") != kinds[0]):
            if text_at(option, "kind") in kinds:
                return {"outcome": {"outcome": "selected", "optionId": text_at(option, "optionId")}}
        return {"outcome": {"outcome": "cancelled"}}

    def _remember_allowed_action(self, call: AcpCall, action: ToolAction) -> None:
        """Remembers what the user allowed, so that the agent's own request to do it is
        not asked about again.
        """
        if action.effect is ActionEffect.RUN:
            self._allowed_commands.add(
                (action.command, self._folder_as_rules_name_it(_folder_of_call(call)))
            )
        if action.effect is ActionEffect.EDIT:
            for each in call.differences:
                shown = self._describe_place(text_at(each, "path"), action.effect).path
                self._allowed_edits.append(
                    (shown, text_at(each, "oldText"), text_at(each, "newText"))
                )

    def _strictest_action_of_call(self, call: AcpCall) -> ToolAction:
        """Returns the action to be permitted. Of several files, the one with the
        strictest decision counts.
        """
        named = [
            text_at(each, "path")
            for key in ("locations", "content")
            for each in objects_at(call.told, key)
        ]
        paths = {path for path in (*named, *_find_paths_in_call_input(call)) if path}
        if len(paths) > MOST_PATHS:
            raise ActionRefused(
                f"A call can name at most {MOST_PATHS:,} files.",
                remedy="Make several calls instead.",
            )
        return max(
            (self._build_action_on_path(call, path) for path in paths or {""}),
            key=self._permission_strictness,
        )

    def _permission_strictness(self, action: ToolAction) -> tuple[int, int]:
        decision = self.kit.permissions.decide_for_conversation(action, self.conversation.id)
        return ("allow", "ask", "deny").index(decision.verdict), -len(decision.scopes)

    def _build_action_on_path(self, call: AcpCall, path: str) -> ToolAction:
        effect = _effect_of_call(call, path)
        made = call.as_tool_call()
        command = _command_of_call(call)
        # None of our tools is named "name: title".
        name = f"{self.recorder.model}: {_PATTERN_SIGN.sub('_', made.name)}"
        name = _TOOLS.get(effect) or name
        place = PlaceForRules()
        if path:
            place = self._describe_place(path, effect)
        shown_path = place.path
        reason = place.danger
        separate_permission = place.separate_permission
        if effect is ActionEffect.FETCH:
            shown_path = _host_of_call(call)
            if shown_path:
                name = ToolName.FETCH_URL
        elif effect is ActionEffect.RUN:
            reason = reason or self._reason_to_ask_before_command(call)
            separate_permission = "outside_sandbox"
        details = "\n".join(filter(None, (command, call.difference_text())))
        return ToolAction(
            name,
            effect,
            call.title or made.name,
            details or made.arguments,
            path=shown_path,
            command=command if effect is ActionEffect.RUN else "",
            reason_to_ask=reason,
            asks_in_every_mode=bool(place.danger) and place.separate_permission != "runs_later",
            separate_permission=separate_permission,
        )

    def _reason_to_ask_before_command(self, call: AcpCall) -> str:
        """Return why: the agent runs commands itself, so no sandbox of ours holds them."""
        folder = _folder_of_call(call)
        if not folder:
            return "it would run outside the sandbox"
        return f"it would run outside the sandbox, in {self._folder_as_rules_name_it(folder)}"

    def _describe_place(self, path: str, effect: ActionEffect) -> PlaceForRules:
        roots = self.kit.resources.roots.with_nothing_hidden
        try:
            place = roots.resolve_path(os.path.realpath(roots.resolve_path(path).full_path))
        except (HelixError, ValueError):
            return PlaceForRules(path, f"{path} is outside this workspace's folders")
        shown = roots.display_path(place)
        if self.kit.resources.roots.is_hidden_path(place.full_path):
            danger = f"it would see files that are hidden from agents: {shown}"
            return PlaceForRules(shown, danger, "opened")
        if effect is ActionEffect.EDIT and is_autorun_path(place.inside):
            danger = f"other programs run the contents of {shown}"
            return PlaceForRules(shown, danger, "runs_later")
        return PlaceForRules(shown)

    def _folder_as_rules_name_it(self, folder: str) -> str:
        return self._describe_place(folder or ".", ActionEffect.RUN).path

    async def _decide_and_record(self, call: ToolCall, action: ToolAction) -> None:
        """Applies the workspace's rules and mode. ActionRefused if the action is not allowed."""
        asked = PermissionOutcome()
        try:
            await self.kit.permissions.check_or_ask_permission(
                call, action, self._agent_call_context(self._ask_user_unless_allowed), asked
            )
        finally:
            if asked.decided_by:
                decided = Decided(call.id, not asked.refused, asked.decided_by, asked.scope)
                await self.conversation.append_facts(decided)

    def _agent_call_context(
        self, ask: Ask, show: Callable[[str], None] = lambda _: None
    ) -> CallContext:
        return CallContext(self.conversation.id, ask, show)

    async def _ask_user_unless_allowed(
        self, question: PermissionQuestion, was_allowed: Callable[[], bool] = lambda: False
    ) -> PermissionAnswer:
        if not question.apart and was_allowed():
            return PermissionAnswer(allowed=True)  # The user has allowed exactly this in this turn.
        self._open_questions += 1
        try:
            return await self.ask_user(question)
        finally:
            self._open_questions -= 1

    async def _ask_user_to_fill_form(self, params: dict[str, Any]) -> dict[str, Any]:
        """Asks the user to fill in a form. Requests to open an address are declined."""
        schema, title = object_at(params, "requestedSchema"), text_at(params, "message")[:500]
        if not schema:
            return {"action": "decline"}
        question = PermissionQuestion(
            ToolCall("", "form", "{}"), title, "", scopes=("once",), form=json.dumps(schema)
        )
        answer = await self._ask_user_unless_allowed(question)
        accepted = {"action": "accept", "content": json.loads(answer.values or "{}")}
        return accepted if answer.allowed else {"action": "decline"}

    # --- Reading and writing files for the agent

    async def _read_text_file(self, params: dict[str, Any]) -> dict[str, Any]:
        roots = self.kit.resources.roots
        place = roots.resolve_path(text_at(params, "path"))
        shown = roots.display_path(place)
        action = ToolAction(
            ToolName.READ_FILE, ActionEffect.READ, f"Read {shown}", shown, path=shown
        )
        await self._decide_and_record(ToolCall("", ToolName.READ_FILE, "{}"), action)
        content = await asyncio.to_thread(workspace_roots.read_whole_file, roots, place)
        lines = file_text.decode_file_text(content).splitlines(keepends=True)
        first = max(number_at(params, "line"), 1) - 1
        return {
            "content": "".join(lines[first : first + (number_at(params, "limit") or len(lines))])
        }

    async def _write_text_file(self, params: dict[str, Any]) -> dict[str, Any]:
        """Runs our own write_file. The agent has read the file itself, so it counts as
        read here.
        """
        resources, path = self.kit.resources, text_at(params, "path")
        place = resources.roots.resolve_path(path)
        before = await asyncio.to_thread(workspace_roots.read_file_or_none, resources.roots, place)
        if before is not None:
            seen = resources.files_seen.setdefault(self.conversation.id, FilesSeen())
            seen.set_content_seen(place.full_path, Digest.of_content(before))

        values = {"path": path, "content": text_at(params, "content")}
        was_allowed = partial(
            self._was_edit_allowed, resources.roots.display_path(place), before, values
        )
        ask = partial(self._ask_user_unless_allowed, was_allowed=was_allowed)
        call = ToolCall("", ToolName.WRITE_FILE, json.dumps(values))
        outcome = await self._run_own_tool_and_record(call, self._agent_call_context(ask))
        if not outcome.ok:
            said = await resources.cache.read_range(outcome.output.digest, 0, 1_000)
            raise ActionRefused(said.decode("utf-8", "replace"))
        return {}

    def _was_edit_allowed(self, path: str, before: bytes | None, values: dict[str, str]) -> bool:
        """Whether a card of this turn showed exactly this change: the old text and the new one."""
        whole = file_text.decode_file_text(before or b"")
        return any(
            allowed == path
            and bool(old) == bool(whole)
            and values["content"] == whole.replace(old, new, 1)
            for allowed, old, new in self._allowed_edits
        )

    async def _run_own_tool_and_record(self, call: ToolCall, context: CallContext) -> CallOutcome:
        """Records the changes and who allowed them. The call itself is recorded as the agent's."""
        outcome = await self.tools.run_tool_call(call, context)
        decided = Decided(call.id, not outcome.refused, outcome.decided_by, outcome.decided_scope)
        await self.conversation.append_facts(decided, *([outcome.files] if outcome.files else ()))
        return outcome

    # --- Running commands for the agent in terminals

    def _create_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        if sum(not each.running.done() for each in self.terminals.values()) >= MOST_TERMINALS:
            raise ActionRefused(
                f"This agent is already running {MOST_TERMINALS} commands.",
                remedy="Wait until a command has ended.",
            )
        # The agent learns the terminal's id, but not the call's, which it could use for
        # a call of its own.
        name, own_call = f"terminal-{secrets.token_hex(8)}", f"command-{secrets.token_hex(8)}"
        folder = {"folder": text_at(params, "cwd")} if text_at(params, "cwd") else {}
        values = {
            "command": _format_terminal_command(params),
            "seconds": TERMINAL_SECONDS,
            **folder,
        }
        call = ToolCall(own_call, ToolName.RUN_COMMAND, json.dumps(values))
        limit = min(number_at(params, "outputByteLimit") or TERMINAL_BYTES, TERMINAL_BYTES)
        allowed = (
            _format_terminal_command(params).strip(),
            self._folder_as_rules_name_it(text_at(params, "cwd")),
        )
        running = self.spawn(self._run_in_terminal(name, call, allowed), name=name)
        self.terminals[name] = AgentTerminal(running, limit)
        return {"terminalId": name}

    async def _run_in_terminal(
        self, terminal_id: str, call: ToolCall, command_and_folder: tuple[str, str]
    ) -> CallOutcome:
        terminal = self.terminals[terminal_id]

        ask = partial(
            self._ask_user_unless_allowed,
            was_allowed=lambda: command_and_folder in self._allowed_commands,
        )

        def show_live(text: str) -> None:
            whole = terminal.printed + text
            terminal.printed, terminal.is_cut = (
                whole[-terminal.limit_bytes :],
                len(whole) > terminal.limit_bytes,
            )
            self.recorder.notify_of_terminal_output(terminal_id, text)

        outcome = await self._run_own_tool_and_record(
            call, self._agent_call_context(ask, show_live)
        )
        start = max(0, outcome.output.size - terminal.limit_bytes)
        whole = await self.kit.resources.cache.read_range(
            outcome.output.digest, start, terminal.limit_bytes
        )
        terminal.printed, terminal.is_cut = whole.decode("utf-8", "replace"), start > 0
        with suppress(TimeoutError, asyncio.CancelledError):
            await wait_with_limit(terminal.asked.wait(), SHOW_SECONDS)
        await self.recorder.record_finished_command(terminal_id, call, outcome)
        return outcome

    async def _answer_terminal_request(self, method: str, terminal_id: str) -> dict[str, Any]:
        if terminal_id not in self.terminals:
            raise RequestError(-32002, f"There is no terminal {terminal_id[:80]}.")
        terminal = self.terminals[terminal_id]
        terminal.asked.set()
        if method == "terminal/output":
            ended = {"exitStatus": terminal.exit_status()} if terminal.running.done() else {}
            return {"output": terminal.printed, "truncated": terminal.is_cut, **ended}
        if method != "terminal/wait_for_exit":
            terminal.running.cancel()
        await asyncio.wait([terminal.running])
        return terminal.exit_status() if method == "terminal/wait_for_exit" else {}


def _command_of_call(call: AcpCall) -> str:
    given = object_at(call.told, "rawInput")
    told = [
        shlex.join(map(str, it)) if isinstance(it, list) else str(it)
        for it in map(given.get, _COMMAND_KEYS)
        if it
    ]
    line = "\n".join(dict.fromkeys(told))
    return (
        " ".join([line, *(shlex.quote(str(word)) for word in list_at(given, "args"))])
        if line
        else ""
    )


def _folder_of_call(call: AcpCall) -> str:
    """Returns the folder of a command as the agent gives it. Empty means the agent's own folder."""
    given = object_at(call.told, "rawInput").items()
    return ", ".join(
        dict.fromkeys(str(value) for key, value in given if value and _FOLDER_KEY.fullmatch(key))
    )


def _find_paths_in_call_input(call: AcpCall) -> Iterator[str]:
    pending: list[tuple[str, Any]] = [
        ("", object_at(call.told, "rawInput") | dict.fromkeys(_COMMAND_KEYS))
    ]
    while pending:
        key, told = pending.pop()
        if isinstance(told, dict):
            pending += [*told.items(), *(("", name) for name in told)]
        elif isinstance(told, list):
            pending += [(key, each) for each in told]
        elif isinstance(told, str):
            yield _path_in_text(
                told.removeprefix("file://"), is_path=_PATH_KEY.search(key) is not None
            )


def _path_in_text(text: str, *, is_path: bool) -> str:
    """Returns the path that a text holds. A code comment can look like a path, but its
    first folder does not exist.
    """
    with suppress(RuntimeError, ValueError):
        path = Path(text).expanduser()
        if (
            len(path.parts) > 1
            and path.is_absolute()
            and "\n" not in text
            and os.path.lexists(Path(*path.parts[:2]))
        ):
            return str(path)
    return text if is_path else ""


def _host_of_call(call: AcpCall) -> str:
    with suppress(ValueError):
        return urlsplit(text_at(call.told, "rawInput", "url")).hostname or ""
    return ""


def _format_terminal_command(params: dict[str, Any]) -> str:
    words, command = list(map(str, list_at(params, "args"))), text_at(params, "command")
    named = ((text_at(each, "name"), text_at(each, "value")) for each in objects_at(params, "env"))
    variables = [
        f"{name}={shlex.quote(value)}" for name, value in named if _VARIABLE.fullmatch(name)
    ]
    return " ".join([*variables, shlex.join([command, *words]) if words else command])


def _effect_of_call(call: AcpCall, path: str) -> ActionEffect:
    """Return what a call does, by what it names. The agent's own word for it is not enough."""
    effect = _EFFECTS.get(text_at(call.told, "kind"), ActionEffect.FOREIGN)
    if _command_of_call(call):
        return ActionEffect.RUN  # Some agents label a command that only reads as "read".
    searched = first_text(object_at(call.told, "rawInput"), "pattern", "regex", "glob")
    names_nothing = (
        effect is ActionEffect.RUN
        or (effect is ActionEffect.EDIT and not path)
        or (effect is ActionEffect.READ and not (path or searched))
    )
    return ActionEffect.FOREIGN if names_nothing else effect
