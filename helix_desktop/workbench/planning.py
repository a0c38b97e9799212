"""Plan mode: nothing is changed until the user approves a plan, which then holds word for word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from helix_desktop.engine.collaborators import Note
from helix_desktop.engine.ports import Question
from helix_desktop.errors import Refused, WrongUse
from helix_desktop.tools.permission import Mode
from helix_desktop.tools.runner import Permissions
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, text
from helix_desktop.values import dataclass

PRESENT_PLAN = "present_plan"
ON = {"ask": Mode.ASK, "edits": Mode.ALLOW_EDITS}
_ABOUT = "In plan mode: show the user your plan. They may change it and approve it, or ask you to keep planning."
_SCHEMA = fields(
    "plan", plan=text("The whole plan in Markdown: what you will change, where, and how you will check it")
)
_MODE = (
    "[Plan mode. Nothing may be changed now: files cannot be edited, commands run where they cannot write, and only those "
    f"tools of servers run that the user marked as reading. Look around, then call call_tool with {PRESENT_PLAN} and a "
    "plan. Work on it begins when the user approves it.]"
)
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Planning:
    """`choose`: takes up another mode. The plan itself is recorded with the answer (`engine/session.py`)."""

    permissions: Permissions
    choose: Callable[[str], Awaitable[None]]

    def notes(self) -> list[Note]:
        """What plan mode adds to the next request."""
        return [Note("mode", _MODE if self.permissions.mode is Mode.PLAN else "")]

    def tools(self, depth: int) -> tuple[Tool, ...]:
        """The tool that shows a plan; sub-agents report to whoever delegated them instead."""
        return (Tool(PRESENT_PLAN, _ABOUT, _SCHEMA, self._present, rare=True),) if depth == 0 else ()

    async def _present(self, args: Arguments, use: Use) -> Result:
        plan = args.text("plan").strip()
        if self.permissions.mode is not Mode.PLAN:
            raise Refused("This workspace is not in plan mode. Start working.")
        if not plan or len(plan) > _LONGEST:
            raise WrongUse(f"A plan of up to {_LONGEST:,} characters is required.")
        answer = await use.context.ask(Question(use.call, "A plan to approve", plan, scopes=tuple(ON), plan=True))
        if not answer.allowed:
            words = f" They said: {answer.words}" if answer.words else ""
            raise Refused(f"The user wants you to keep planning.{words}")
        final = answer.values.strip() or plan
        await self.choose(ON.get(answer.scope, Mode.ASK).value)
        changed = " The user changed it: read it again." if final != plan else ""
        return Result(f"The user approved the plan.{changed} It follows word for word.")
