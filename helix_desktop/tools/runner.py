"""The Toolbox: every tool of one conversation under one roof, as `ports.Tools`.

For each call: read and check the arguments, take `keep` off them, run the tool (which asks where it must), put what it
says into the cache. Nothing a model writes and nothing a user refuses raises: it becomes an outcome that says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from helix_desktop.engine.facts import FilesChanged, ToolCall, ToolSpec
from helix_desktop.engine.ports import About, Answer, CallContext, Outcome, Question
from helix_desktop.engine.strategies.caching import short_arguments
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, NotThere, Refused, StoreFailed
from helix_desktop.tools import schema
from helix_desktop.tools.changes.checkpoints import Window
from helix_desktop.tools.on_demand import OnDemand, checked
from helix_desktop.tools.permission import Action, Decision, Effect, Mode, Rule, decide, rule_words, rules_for
from helix_desktop.tools.tool import Arguments, Around, Permit, Result, Seen, Tool, Use
from helix_desktop.values import dataclass


@dataclass(slots=True)
class Permissions:
    """What the user allows in one workspace. `remember` stores a rule for always; the rest ends with the program."""

    mode: Mode = Mode.ASK
    rules: tuple[Rule, ...] = ()
    sandboxed: bool = False
    remember: Callable[[Rule], None] = lambda rule: None  # noqa: ARG005
    of_conversation: dict[str, tuple[Rule, ...]] = field(default_factory=dict)

    def decide(self, action: Action, conversation: str) -> Decision:
        rules = (*self.rules, *self.of_conversation.get(conversation, ()))
        return decide(action, self.mode, rules, sandboxed=self.sandboxed)

    def keep(self, action: Action, conversation: str, answer: Answer) -> None:
        """The user allowed it for longer than this once, by one of the rules that were shown."""
        rules, scope = rules_for(action), answer.scope
        if not 0 <= answer.rule < len(rules):
            return
        rule = rules[answer.rule]
        if scope == "conversation":
            self.of_conversation[conversation] = (*self.of_conversation.get(conversation, ()), rule)
        elif scope == "always":
            self.rules = (*self.rules, rule)
            self.remember(rule)


class ForeignResult(Protocol):
    """What a tool of an MCP server came to; `images` as media type and bytes."""

    @property
    def text(self) -> str: ...

    @property
    def ok(self) -> bool: ...

    @property
    def images(self) -> tuple[tuple[str, bytes], ...]: ...


class Guard(Protocol):
    """What looks at every call: hooks. `before` raises Refused."""

    async def before(self, call: ToolCall, context: CallContext) -> None: ...

    async def after(self, call: ToolCall, context: CallContext, outcome: Outcome) -> None: ...


class ForeignTool(Protocol):
    """A tool of one of the user's MCP servers; `spec.name` carries the server's name in front."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def title(self) -> str:
        """What the user is asked: the server and the tool, in words."""
        ...

    @property
    def changed(self) -> bool:
        """Whether its description changed since the user last allowed it."""
        ...

    @property
    def alone(self) -> bool:
        """As of a `Tool`: it may change something."""
        ...

    @property
    def reads(self) -> bool:
        """Whether the user marked it as one that only reads."""
        ...

    def allowed(self) -> None:
        """The user, a rule or the mode has allowed it as it is described now."""
        ...

    async def call(self, values: Mapping[str, Any], context: CallContext) -> ForeignResult: ...


_CHANGING = {Effect.EDIT: "tool", Effect.RUN: "command", Effect.FOREIGN: "server"}  # and whose changes they are


@dataclass(slots=True)
class _Asked:
    """Who decided, and how far."""

    by: str = ""
    scope: str = "once"
    refused: bool = False
    window: Window | None = None  # of the folders, from where it may change them


class Toolbox:
    """`more` gives the tools of MCP servers as they are now; `only`: the names a sub-agent was given, all when empty."""

    def __init__(
        self,
        tools: Sequence[Tool],
        around: Around,
        *,
        permissions: Permissions,
        more: Callable[[], Sequence[ForeignTool]] = tuple,
        only: frozenset[str] = frozenset(),
        on_demand: OnDemand | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._guard = guard
        self._demand = on_demand
        finding = on_demand.tools(self._searchable, lambda: self.names) if on_demand else ()
        own = {tool.name: tool for tool in tools if not only or tool.name in only}
        self._tools = own | {tool.name: tool for tool in finding}
        self._around = around
        self._permissions = permissions
        self._more = more
        self._only = only
        self._rare = tuple(_described(tool) for tool in own.values() if tool.rare and on_demand)
        rare = {spec.name for spec in self._rare}
        self._own = tuple(_described(tool) for name, tool in own.items() if name not in rare)

    def specs(self) -> tuple[ToolSpec, ...]:
        """As offered to the model, in an order that does not change."""
        foreign = sorted((tool.spec for tool in self._foreign().values()), key=lambda spec: spec.name)
        if self._demand is None:
            return (*self._own, *map(_offered, foreign))
        sent = self._demand.offered(foreign, self._rare)
        return (*self._own, *map(_offered, sent))

    def _searchable(self) -> Sequence[ToolSpec]:
        """All that may have to be searched for, of every conversation of the workspace alike."""
        return (*self._rare, *(tool.spec for tool in self._more()))

    def withheld(self) -> tuple[int, int]:
        """How many definitions are not sent, and what they would take."""
        return self._demand.withheld if self._demand else (0, 0)

    def alone(self, name: str) -> bool:
        tool = self._tools.get(name) or self._foreign().get(name)
        return tool is not None and tool.alone

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._tools) | frozenset(self._foreign())

    async def run(self, call: ToolCall, context: CallContext) -> Outcome:
        asked = _Asked()
        keep = call.keep
        try:
            if self._guard is not None:
                await self._guard.before(call, context)
            values, own_schema = self._understood(call)
            values, said = schema.take_keep(values, own_schema)
            keep = keep or said
            result = await self._run(call, values, context, asked)
        except StoreFailed:
            raise
        except (HelixError, OSError) as error:
            words = _sentence(error)
            result = Result(words, ok=False, source=short_arguments(call.arguments))
        outcome = await self._outcome(call, result, asked, keep)
        outcome = replace(outcome, files=await self._changed(result, asked.window))
        if self._guard is not None and not outcome.refused:
            await self._guard.after(call, context, outcome)
        return outcome

    async def _changed(self, result: Result, window: Window | None) -> FilesChanged | None:
        """What it did to the folders: a tool for files knows its own paths, of a command it is all that is different."""
        checkpoints = self._around.checkpoints
        if checkpoints is None or window is None:
            return None
        return await checkpoints.end(window, [each.path for each in result.changes] if window.by == "tool" else None)

    async def _begin(self, call: ToolCall, context: CallContext, action: Action, asked: _Asked) -> None:
        """The folders as they are, before anything changes them."""
        checkpoints = self._around.checkpoints
        if checkpoints is None or asked.window is not None or action.effect not in _CHANGING:
            return
        if not checkpoints.ready and checkpoints.covers:
            context.show("Waiting for the first checkpoint of the folder…\n")
        asked.window = await checkpoints.begin(call.id, context.conversation, _CHANGING[action.effect])

    def _understood(self, call: ToolCall) -> tuple[dict[str, Any], Mapping[str, Any]]:
        foreign = self._foreign()
        if call.name not in self._tools and call.name not in foreign:
            there = sorted({spec.name for spec in self.specs()})
            raise NotThere(f"There is no tool {call.name[:80]!r}.", remedy=f"Available: {', '.join(there)}.")
        values = schema.read_arguments(call.arguments)
        if call.name in self._tools:
            return values, self._tools[call.name].schema
        return values, json.loads(foreign[call.name].spec.schema)

    async def _run(self, call: ToolCall, values: dict[str, Any], context: CallContext, asked: _Asked) -> Result:
        permit = self._permit(call, context, asked)
        if call.name not in self._tools:
            return await self._run_foreign(self._foreign()[call.name], call, values, context, permit)
        tool = self._tools[call.name]
        args = Arguments(schema.check(values, tool.schema, tool.name))
        seen = self._around.seen.setdefault(context.conversation, Seen())
        return await tool.run(
            args, Use(call, context, permit, self._around, seen, self._readable(context.conversation))
        )

    async def _run_foreign(
        self, tool: ForeignTool, call: ToolCall, values: dict[str, Any], context: CallContext, permit: Permit
    ) -> Result:
        values = schema.as_meant(values, json.loads(tool.spec.schema))
        if call.via:
            checked(values, json.loads(tool.spec.schema), call.name)
        preview = json.dumps(values, ensure_ascii=False, indent=2)
        danger = "this tool's description has changed since you allowed it" if tool.changed else ""
        await permit(Action(call.name, Effect.FOREIGN, tool.title, preview, danger=danger, reads=tool.reads))
        tool.allowed()
        got = await tool.call(values, context)
        images = tuple(
            [await self._around.cache.put(data, About(call.name, tool.title, kind)) for kind, data in got.images]
        )
        return Result(got.text, ok=got.ok, images=images, source=tool.title)

    def _permit(self, call: ToolCall, context: CallContext, asked: _Asked) -> Permit:
        async def permit(action: Action) -> None:
            decision = self._permissions.decide(action, context.conversation)
            if action.effect is not Effect.READ:
                asked.by = decision.by
            if decision.verdict == "allow":
                await self._begin(call, context, action, asked)
                return
            if decision.verdict == "deny":
                asked.refused = True
                raise Refused(f"Not done: {decision.why}.")
            await self._ask(call, context, action, decision, asked)
            await self._begin(call, context, action, asked)

        return permit

    def _readable(self, conversation: str) -> Callable[[str], bool]:
        def readable(path: str) -> bool:
            action = Action(ToolName.READ_FILE, Effect.READ, "", "", path=path)
            return self._permissions.decide(action, conversation).verdict == "allow"

        return readable

    async def _ask(
        self, call: ToolCall, context: CallContext, action: Action, decision: Decision, asked: _Asked
    ) -> None:
        rules = tuple(map(rule_words, rules_for(action))) if "always" in decision.scopes else ()
        question = Question(
            call, action.title, action.preview, decision.why, decision.scopes, rules=rules, apart=decision.apart
        )
        answer = await context.ask(question)
        asked.by = "user"
        if not answer.allowed:
            asked.refused = True
            raise Refused(_no(answer))
        if answer.scope in decision.scopes:
            asked.scope = answer.scope
            self._permissions.keep(action, context.conversation, answer)

    async def _outcome(self, call: ToolCall, result: Result, asked: _Asked, keep: str) -> Outcome:
        stored, content = result.stored, result.output
        if stored is None:
            content = content.encode("utf-8", "replace") if isinstance(content, str) else content
            stored = await self._around.cache.put(content, About(call.name, result.source, result.media_type))
        return Outcome(
            output=stored,
            ok=result.ok,
            exit_code=result.exit_code,
            images=result.images,
            changes=result.changes,
            child=result.child,
            todo=result.todo,
            decided_by=asked.by,
            decided_scope=asked.scope,
            keep=keep,
            repeated=bool(result.repeat_of),
            refused=asked.refused,
            stopped=result.stopped,
            content=content if result.stored is None and isinstance(content, bytes) else None,
        )

    def _foreign(self) -> dict[str, ForeignTool]:
        """By name; none takes the place of a built-in tool."""
        tools = {tool.spec.name: tool for tool in self._more() if not self._only or tool.spec.name in self._only}
        return {name: tool for name, tool in tools.items() if name not in self._tools}


def _described(tool: Tool) -> ToolSpec:
    return schema.offered(tool.name, tool.description, tool.schema)


def _offered(spec: ToolSpec) -> ToolSpec:
    return schema.offered(spec.name, spec.description, json.loads(spec.schema))


def _no(answer: Answer) -> str:
    words = f" They said: {answer.words.strip()}" if answer.words.strip() else ""
    return f"The user denied this call, so it was not run.{words}"


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, HelixError) else f"The system refused: {error}"
