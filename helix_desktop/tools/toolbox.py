"""The Toolbox: all tools of one conversation, as `ports.ToolSet`.

For each call, it parses and checks the arguments, removes `keep`, runs the tool (which
asks if it must), and puts the output into the cache. Mistakes of the model and refusals
become outcomes that say so.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Protocol

from helix_desktop.cancellation import finish_ignoring_cancellation
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Decided, ToolCall, ToolSpec
from helix_desktop.engine.ports import (
    NOT_RUN,
    CallContext,
    CallOutcome,
    EntryOrigin,
    ForeignToolResult,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.strategies.markers import summarise_arguments
from helix_desktop.engine.tool_call_parsing import USER_WORDS
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import ActionRefused, HelixError, NotFound, RefusedByUser, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import argument_schema, built_in_tool, permission
from helix_desktop.tools.built_in_tool import BuiltInTool, FilesSeen, PermitAction, ToolOutput
from helix_desktop.tools.changes.change_attribution import OpenStep
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.document_tool import read_document_as_text
from helix_desktop.tools.permission import ActionEffect, PermissionMode, PermissionRule, ToolAction
from helix_desktop.tools.timed_allowance import TimedAllowance
from helix_desktop.tools.tools_on_demand import OnDemandTools, check_arguments_of_server_tool


@dataclass(frozen=True, slots=True)
class PermissionOutcome:
    """What was decided about an action, and by whom. `refusal`: what the model is told if it must
    not be done, or an empty text.
    """

    decided_by: str = ""
    scope: str = "once"
    device: str = ""  # See `PermissionAnswer.device`.
    refusal: str = ""

    @property
    def refused(self) -> bool:
        return bool(self.refusal)

    def permission_as_fact(self, call_id: str) -> Decided:
        """Return the fact that says who allowed or refused what a call was to do."""
        return Decided(
            call=call_id,
            allowed=not self.refused,
            by=self.decided_by,
            scope=self.scope,
            device=self.device,
        )


@dataclass(slots=True, eq=False)
class _WaitingQuestion:
    """A question that the user was asked. `is_allowed`: by a mode that was chosen meanwhile."""

    action: ToolAction
    conversation: str
    asking: asyncio.Task[PermissionAnswer]
    is_allowed: bool = False


@dataclass(slots=True)
class WorkspacePermissions:
    """What the user allows in one workspace. `save_rule` stores a rule; other answers
    last until the program ends. `mode` is the saved mode, `allowance` may stand above it.
    """

    mode: PermissionMode = PermissionMode.ASK
    rules: tuple[PermissionRule, ...] = ()
    sandboxed: bool = False
    save_rule: Callable[[PermissionRule], None] = lambda rule: None  # noqa: ARG005
    # Is called when a rule that is not saved begins to apply.
    tell_unsaved_rule: Callable[[], None] = lambda: None
    rules_by_conversation: dict[str, tuple[PermissionRule, ...]] = field(default_factory=dict)
    allowance: TimedAllowance = field(default_factory=TimedAllowance)
    _asking: OwnedTasks = field(default_factory=lambda: OwnedTasks("permissions"))
    _waiting_questions: list[_WaitingQuestion] = field(default_factory=list)

    @property
    def mode_in_force(self) -> PermissionMode:
        if self.allowance.is_hour_running():
            return PermissionMode.ALLOW_ALL
        return self.mode

    def decide_for_conversation(
        self, action: ToolAction, conversation: str
    ) -> permission.PermissionDecision:
        rules = self._rules_for_conversation(conversation)
        return permission.decide_permission(
            action, self.mode_in_force, rules, sandboxed=self.sandboxed
        )

    def _rules_for_conversation(self, conversation: str) -> tuple[PermissionRule, ...]:
        return self.rules + self.rules_by_conversation.get(conversation, ())

    async def decide_or_ask(
        self, call: ToolCall, action: ToolAction, context: CallContext
    ) -> PermissionOutcome:
        """Return what rules and mode say of an action, or the user, who is asked if needed."""
        decision = self.decide_for_conversation(action, context.conversation)
        if decision.verdict == "ask":
            return await self._ask_user(call, action, context, decision)
        decided_by = decision.decided_by
        if action.effect is ActionEffect.READ:
            decided_by = ""  # Reading that nobody was asked about is not worth a record.
        refusal = ""
        if decision.verdict == "deny":
            refusal = f"Not done: {decision.reason}."
        return PermissionOutcome(decided_by, refusal=refusal)

    async def _ask_user(
        self,
        call: ToolCall,
        action: ToolAction,
        context: CallContext,
        decision: permission.PermissionDecision,
    ) -> PermissionOutcome:
        """Ask the user. If the answer is no, the refusal has the user's own words.

        A question may offer choices: rules that the user can add, so that such a call is
        not asked about again in this conversation, or in the workspace.
        """
        rules = self._rules_for_conversation(context.conversation)
        choices: Sequence[Sequence[PermissionRule]] = ()
        if "always" in decision.scopes:
            choices = permission.choices_to_offer(action, rules)
        shown_choices = [permission.describe_choice(choice) for choice in choices]
        folders_of_choices = permission.list_folders_of_choices(action, choices)
        asked_programs = permission.list_asked_programs(action, rules)
        command_access = ""
        # How an agent of another program runs its commands is not known.
        if call.name == ToolName.RUN_COMMAND and action.effect is ActionEffect.RUN:
            command_access = permission.describe_command_access(action, sandboxed=self.sandboxed)
        question = PermissionQuestion(
            call,
            action.title,
            action.preview,
            decision.reason,
            decision.scopes,
            rules=tuple(shown_choices),
            rule_folders=folders_of_choices,
            apart=decision.separate_permission,
            programs=asked_programs,
            command_access=command_access,
        )
        asking = self._asking.spawn_task(_ask_question(context, question), name="question")
        waiting = _WaitingQuestion(action, context.conversation, asking)
        answer = await self._wait_for_answer_or_mode(waiting)
        if answer is None:
            return PermissionOutcome("mode")
        if not answer.allowed:
            refusal = describe_refusal_by_user(answer.words.strip())
            return PermissionOutcome("user", device=answer.device, refusal=refusal)
        # An answer may only go as far as the question offered.
        if answer.scope not in decision.scopes:
            return PermissionOutcome("user", device=answer.device)
        if 0 <= answer.rule < len(choices):
            chosen_rules = choices[answer.rule]
            self._add_rules(chosen_rules, context.conversation, answer.scope)
        return PermissionOutcome("user", answer.scope, answer.device)

    async def _wait_for_answer_or_mode(self, waiting: _WaitingQuestion) -> PermissionAnswer | None:
        """Return the user's answer, or None if a mode that allows the action was chosen instead."""
        self._waiting_questions.append(waiting)
        try:
            return await waiting.asking
        except asyncio.CancelledError:
            own_task = asyncio.current_task()
            is_stopped = own_task is not None and own_task.cancelling() > 0
            if is_stopped or not waiting.is_allowed:
                raise
            return None
        finally:
            self._waiting_questions.remove(waiting)

    def allow_what_chosen_mode_allows(self) -> None:
        """Take back each waiting question that is not asked in the mode that the user has just
        chosen: what it asks for is allowed. The others wait on, also where the mode would refuse.
        """
        for waiting in self._waiting_questions:
            decision = self.decide_for_conversation(waiting.action, waiting.conversation)
            if decision.verdict == "allow":
                waiting.is_allowed = True
                waiting.asking.cancel()

    def remove_rule_of_conversation(self, conversation: str, removed: PermissionRule) -> None:
        """Forget what the user allowed for this conversation alone."""
        earlier = self.rules_by_conversation.get(conversation, ())
        kept = tuple(rule for rule in earlier if rule != removed)
        if kept:
            self.rules_by_conversation[conversation] = kept
        else:
            self.rules_by_conversation.pop(conversation, None)
        self.tell_unsaved_rule()

    def _add_rules(self, choice: Sequence[PermissionRule], conversation: str, scope: str) -> None:
        """Keep the user's answer beyond this call: exactly the rules that the question named."""
        if scope == "conversation":
            earlier = self.rules_by_conversation.get(conversation, ())
            self.rules_by_conversation[conversation] = earlier + tuple(choice)
            self.tell_unsaved_rule()
        elif scope == "always":
            self.rules += tuple(choice)
            for rule in choice:
                self.save_rule(rule)


async def _ask_question(context: CallContext, question: PermissionQuestion) -> PermissionAnswer:
    return await context.ask(question)


def describe_refusal_by_user(words: str) -> str:
    """Return what the model is told. `words`: what the user said with the answer, if anything."""
    refusal = "The user denied this call, so it was not run."
    if words:
        refusal += f"{USER_WORDS}{words}"
    return refusal


class CallHooks(Protocol):
    """Hooks that run for every call. `run_hooks_before_call` raises ActionRefused."""

    async def run_hooks_before_call(self, call: ToolCall, context: CallContext) -> None: ...
    async def run_hooks_after_call(
        self, call: ToolCall, context: CallContext, outcome: CallOutcome
    ) -> None: ...


class ForeignTool(Protocol):
    """A tool of one of the user's MCP servers. `spec.name` begins with the server's name."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def title_for_question(self) -> str:
        """Return the question for the user, with the server and the tool."""

    @property
    def has_changed_description(self) -> bool:
        """Whether the description has changed since the user last allowed the tool."""

    @property
    def runs_alone(self) -> bool:
        """Whether it may change something, as in `BuiltInTool`."""

    @property
    def only_reads(self) -> bool: ...

    def remember_approval(self) -> None:
        """Note that the user, a rule or the mode has allowed the tool with its current
        description.
        """

    async def call_foreign_tool(
        self, values: Mapping[str, Any], context: CallContext
    ) -> ForeignToolResult: ...


@dataclass(slots=True)
class _RunningCall:
    """A call while it runs. `keep`: how much of its output the model wants to keep.

    The tool asks for permission when it knows what it would do, which may be several times. So
    what was decided, and in which step the call changes files, is known at its end.
    """

    call: ToolCall
    context: CallContext
    keep: str
    decided: PermissionOutcome = field(default_factory=PermissionOutcome)
    is_permitted: bool = False  # True once something that the call does was permitted.
    open_step: OpenStep | None = None  # The call's step, if it may change folders, or None.


# By effect that can change files: the cause that is recorded for the changes.
_CHANGING = {ActionEffect.EDIT: "tool", ActionEffect.RUN: "command", ActionEffect.FOREIGN: "server"}


class Toolbox:
    """`more` returns the current tools of MCP servers. `only` names a sub-agent's
    tools; empty: all.
    """

    def __init__(
        self,
        tools: Sequence[BuiltInTool],
        around: built_in_tool.WorkspaceResources,
        *,
        permissions: WorkspacePermissions,
        more: Callable[[], Sequence[ForeignTool]] = tuple,
        only: frozenset[str] = frozenset(),
        on_demand: OnDemandTools | None = None,
        guard: CallHooks | None = None,
    ) -> None:
        """`around`: what all tools of the workspace share. `on_demand`: decides which definitions
        the model must search for; without it, all are sent. `guard`: the user's hooks.
        """
        self._guard = guard
        self._demand = on_demand
        self._around = around
        self._permissions = permissions
        self._more = more
        self._only = only
        self._tools: dict[str, BuiltInTool] = {}
        # Definitions that are always sent, and those that are sent once they were searched for.
        self._own: list[ToolSpec] = []
        self._rare: list[ToolSpec] = []
        for tool in tools:
            if only and tool.declaration.name not in only:
                continue
            self._tools[tool.declaration.name] = tool
            if tool.declaration.is_rare and on_demand is not None:
                self._rare.append(_spec_of_built_in(tool))
            else:
                self._own.append(_spec_of_built_in(tool))
        if on_demand is not None:
            tools_for_searching = on_demand.build_on_demand_tools(
                self._searchable_specs, lambda: self.callable_names
            )
            for tool in tools_for_searching:
                self._tools[tool.declaration.name] = tool

    def offered_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools offered to the model, in an order that does not change."""
        foreign = [tool.spec for tool in self._foreign_tools_by_name().values()]
        foreign.sort(key=lambda spec: spec.name)
        sent: Sequence[ToolSpec] = foreign
        if self._demand is not None:
            sent = self._demand.definitions_to_send(foreign, self._rare)
        offered = list(self._own)
        for spec in sent:
            offered.append(_spec_of_foreign(spec))
        return tuple(offered)

    def _searchable_specs(self) -> Sequence[ToolSpec]:
        """Return all tools that one may have to search for, the same for all
        conversations of a workspace.
        """
        foreign = [tool.spec for tool in self._more()]
        return self._rare + foreign

    def withheld_definition_totals(self) -> tuple[int, int]:
        """Return how many definitions are not sent, and how many tokens they would take."""
        if self._demand is None:
            return 0, 0
        return self._demand.withheld_count_and_tokens

    def runs_alone(self, name: str) -> bool:
        if name in self._tools:
            return self._tools[name].declaration.runs_alone
        foreign_tool = self._foreign_tools_by_name().get(name)
        return foreign_tool is not None and foreign_tool.runs_alone

    @property
    def callable_names(self) -> frozenset[str]:
        return frozenset(self._tools) | frozenset(self._foreign_tools_by_name())

    async def run_tool_call(self, call: ToolCall, context: CallContext) -> CallOutcome:
        """Run a call from its hooks to its outcome. An error becomes the call's output, which
        the model can correct, except that what cannot be stored ends the turn.

        Once the tool is permitted to change files, a step is open (see `_begin_step_if_changing`).
        It is ended only after the output was stored; then hooks see the changed files, too.
        """
        checkpoints = self._around.checkpoints
        running = _RunningCall(call, context, keep=call.keep)
        if checkpoints is not None:
            checkpoints.steps.disown_next_changes(context.conversation)
        try:
            result = await self._run_hooks_and_tool(running)
        except StoreFailed:
            raise
        except RefusedByUser as error:
            running.decided = replace(running.decided, decided_by="user", refusal=str(error))
            result = _output_of_error(call, error)
        except (HelixError, OSError) as error:
            result = _output_of_error(call, error)
        finally:
            if running.open_step is not None:
                running.open_step.release_space()
        # What was done is recorded with all that is known of it, even if it is stopped now.
        outcome = await finish_ignoring_cancellation(
            self._store_output_and_end_step(running, result)
        )
        if self._guard is not None and not outcome.refused:
            with suppress(asyncio.CancelledError):
                await self._guard.run_hooks_after_call(call, context, outcome)
        return outcome

    async def _store_output_and_end_step(
        self, running: _RunningCall, result: ToolOutput
    ) -> CallOutcome:
        outcome = await self._build_call_outcome(running, result)
        if running.open_step is None or self._around.checkpoints is None:
            return outcome
        changed_files = await self._around.checkpoints.end_step(running.open_step)
        return replace(outcome, files=changed_files)

    async def _run_hooks_and_tool(self, running: _RunningCall) -> ToolOutput:
        """Run the user's hooks, read the arguments, and run the tool with them."""
        if self._guard is not None:
            await self._guard.run_hooks_before_call(running.call, running.context)
        running.context.note_begun()
        given, own_schema = self._parse_values_of_call(running.call)
        values, keep_in_values = argument_schema.split_off_keep_argument(given, own_schema)
        running.keep = running.call.keep or keep_in_values
        return await self._run_own_or_foreign_tool(running, values)

    async def _begin_step_if_changing(self, running: _RunningCall, action: ToolAction) -> None:
        """Open a step for a permitted action that can change files.

        A step records which files differ between its beginning and its end, so that the
        user can undo it. A call has one step, however often it asks for permission.
        """
        checkpoints = self._around.checkpoints
        if checkpoints is None or running.open_step is not None or action.effect not in _CHANGING:
            return
        call = running.call
        context = running.context
        if not checkpoints.is_ready and checkpoints.is_undo_available:
            context.show("Waiting for the first checkpoint of the folder…\n")
        cause = _CHANGING[action.effect]
        # A file tool knows its path; for a command, it is every difference.
        only_paths: list[str] | None = None
        if cause == "tool":
            only_paths = []
            if action.path:
                only_paths.append(action.path)
        needed_bytes = len(call.arguments) + _size_of_earlier_version(checkpoints, action.path)
        running.open_step = await checkpoints.begin_step(
            call.id, context.conversation, cause, needed_bytes, only_paths
        )

    def _parse_values_of_call(self, call: ToolCall) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return the call's arguments and its tool's schema. NotFound names the tools there are."""
        foreign = self._foreign_tools_by_name()
        if call.name not in self._tools and call.name not in foreign:
            offered_names = {spec.name for spec in self.offered_specs()}
            available = ", ".join(sorted(offered_names))
            raise NotFound(
                f"There is no tool {call.name[:80]!r}.", remedy=f"Available: {available}."
            )
        values = argument_schema.parse_argument_text(call.arguments)
        if call.name in self._tools:
            return values, self._tools[call.name].declaration.schema
        return values, json.loads(foreign[call.name].spec.schema)

    async def _run_own_or_foreign_tool(
        self, running: _RunningCall, values: dict[str, Any]
    ) -> ToolOutput:
        """Run the tool that the call names: one of an MCP server, or one of the program's own,
        which gets what it needs of the workspace and asks for permission by itself.
        """
        call = running.call
        if call.name not in self._tools:
            foreign_tool = self._foreign_tools_by_name()[call.name]
            return await self._ask_and_run_foreign(foreign_tool, running, values)
        tool = self._tools[call.name]
        fitted = argument_schema.fit_arguments_to_schema(values, tool.declaration.schema, call.name)
        context = running.context
        files_seen = self._around.files_seen.setdefault(context.conversation, FilesSeen())
        check_permission = self._permission_check_for(running)
        check_reading = self._build_read_check(context.conversation)
        resources = built_in_tool.ToolResources(
            call, context, check_permission, self._around, files_seen, check_reading
        )
        arguments = built_in_tool.ToolArguments(fitted)
        return await tool.run_tool(arguments, resources)

    async def _ask_and_run_foreign(
        self, tool: ForeignTool, running: _RunningCall, values: dict[str, Any]
    ) -> ToolOutput:
        """Run a tool of an MCP server, after the user was asked where necessary.

        The approval is for the tool as it describes itself now: if a server later changes
        the description, the user is asked again.
        """
        call = running.call
        schema = json.loads(tool.spec.schema)
        corrected = argument_schema.correct_arguments_of_server_tool(values, schema)
        if call.via:
            check_arguments_of_server_tool(corrected, schema, call.name)
        title = tool.title_for_question
        permit = self._permission_check_for(running)
        await permit(_action_of_foreign_call(tool, call.name, title, corrected))
        tool.remember_approval()
        result = await tool.call_foreign_tool(corrected, running.context)
        return await self._store_foreign_result(result, call.name, title)

    async def _store_foreign_result(
        self, result: ForeignToolResult, tool_name: str, title: str
    ) -> ToolOutput:
        """Store a result's images, and add the text of its documents to its own text."""
        cache = self._around.cache
        images = []
        for media_type, data in result.images:
            origin = EntryOrigin(tool_name, title, media_type)
            images.append(await cache.store_content(data, origin))
        texts = [result.text]
        for file_name, content in result.files:
            texts.append(await read_document_as_text(cache, tool_name, file_name, content))
        return ToolOutput("\n".join(texts), ok=result.ok, images=tuple(images), source=title)

    def _permission_check_for(self, running: _RunningCall) -> PermitAction:
        async def check_or_ask_permission(action: ToolAction) -> None:
            if not running.is_permitted:
                running.context.note_waiting()
            outcome = await self._permissions.decide_or_ask(running.call, action, running.context)
            if outcome.decided_by:
                running.decided = outcome
            if outcome.refused:
                running.decided = replace(running.decided, refusal=outcome.refusal)
                raise ActionRefused(outcome.refusal)
            running.is_permitted = True
            running.context.note_begun()
            await self._begin_step_if_changing(running, action)

        return check_or_ask_permission

    def _build_read_check(self, conversation: str) -> Callable[[str], bool]:
        def is_readable(path: str) -> bool:
            action = ToolAction(ToolName.READ_FILE, ActionEffect.READ, "", "", path=path)
            decision = self._permissions.decide_for_conversation(action, conversation)
            return decision.verdict == "allow"

        return is_readable

    async def _build_call_outcome(self, running: _RunningCall, result: ToolOutput) -> CallOutcome:
        """Store the call's output, unless the tool has stored it already, and return it with
        what was decided about the call.
        """
        decided = running.decided
        stored = result.stored
        content = None  # Only what is in memory anyway is handed on.
        if stored is None:
            output = result.output
            if isinstance(output, str):
                output = output.encode("utf-8", "replace")
            if isinstance(output, bytes):
                content = output
            origin = NOT_RUN
            if not decided.refused:
                origin = EntryOrigin(running.call.name, result.source, result.media_type)
            stored = await self._around.cache.store_content(output, origin)
        is_repeated = bool(result.repeat_of)
        return CallOutcome(
            output=stored,
            ok=result.ok,
            exit_code=result.exit_code,
            images=result.images,
            changes=result.changes,
            child=result.child,
            todo=result.todo,
            decided_by=decided.decided_by,
            decided_scope=decided.scope,
            decided_on=decided.device,
            keep=running.keep,
            repeated=is_repeated,
            refused=decided.refused,
            stopped=result.stopped,
            content=content,
        )

    def _foreign_tools_by_name(self) -> dict[str, ForeignTool]:
        """Return foreign tools by name. None replaces a built-in tool."""
        foreign_tools = {}
        for tool in self._more():
            name = tool.spec.name
            is_wanted = not self._only or name in self._only
            if is_wanted and name not in self._tools:
                foreign_tools[name] = tool
        return foreign_tools


def _size_of_earlier_version(checkpoints: Checkpoints, path: str) -> int:
    """Return the size of the file that is to be changed, or 0 without one. Its new version is
    stored whole, however small the edit, so about as much space is needed again.
    """
    if not path:
        return 0
    path_in_checkpoint = checkpoints.checkpoint_path(path)
    earlier_version = checkpoints.folders.last_item_at(path_in_checkpoint)
    if earlier_version is None:
        return 0
    return earlier_version.size


def _action_of_foreign_call(
    tool: ForeignTool, name: str, title: str, values: Mapping[str, Any]
) -> ToolAction:
    """Return the action that the user is asked about. The values are shown as they are sent."""
    reason_to_ask = ""
    if tool.has_changed_description:
        reason_to_ask = "this tool's description has changed since you allowed it"
    return ToolAction(
        name,
        ActionEffect.FOREIGN,
        title,
        preview=json.dumps(values, ensure_ascii=False, indent=2),
        reason_to_ask=reason_to_ask,
        only_reads=tool.only_reads,
    )


def _output_of_error(call: ToolCall, error: HelixError | OSError) -> ToolOutput:
    words = f"The system refused: {error}"
    if isinstance(error, HelixError):
        words = str(error)
    return ToolOutput(words, ok=False, source=summarise_arguments(call.arguments))


def _spec_of_built_in(tool: BuiltInTool) -> ToolSpec:
    declared = tool.declaration
    if declared.is_brief:
        return argument_schema.build_spec(declared.name, declared.description, declared.schema)
    return argument_schema.spec_with_keep(declared.name, declared.description, declared.schema)


def _spec_of_foreign(spec: ToolSpec) -> ToolSpec:
    schema = json.loads(spec.schema)
    return argument_schema.spec_with_keep(spec.name, spec.description, schema)
