"""Plan mode: nothing is changed until the user approves a plan, which then holds word for word."""

from collections.abc import Awaitable, Callable

from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_setup import StandingNote
from helix_desktop.errors import ActionRefused, InvalidInput, RefusedByUser
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolOutput,
    ToolResources,
    declare_tool,
)
from helix_desktop.tools.permission import PermissionMode
from helix_desktop.tools.toolbox import WorkspacePermissions

PRESENT_PLAN = "present_plan"
ON = {"ask": PermissionMode.ASK, "edits": PermissionMode.ALLOW_EDITS}
_MODE = (
    "[Plan mode. Nothing may be changed now: files cannot be edited, commands run where they cannot write, and only those "
    f"tools of servers run that the user marked as reading. Look around, then call call_tool with {PRESENT_PLAN} and a "
    "plan. Work on it begins when the user approves it.]"
)
EDITABLE = "You can edit the plan before you approve it."
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class PlanMode:
    """`choose` changes the mode. The plan itself is recorded with the answer
    (`engine/session.py`).
    """

    permissions: WorkspacePermissions
    choose: Callable[[str], Awaitable[None]]

    def plan_mode_notes(self) -> list[StandingNote]:
        return [StandingNote("mode", _MODE if self.permissions.mode is PermissionMode.PLAN else "")]

    def plan_tools(self, depth: int) -> tuple[BuiltInTool, ...]:
        """Return the tool that shows a plan. Sub-agents have none: they report to their parent."""
        return (declare_tool(PRESENT_PLAN, self._present_plan),) if depth == 0 else ()

    async def _present_plan(self, args: ToolArguments, use: ToolResources) -> ToolOutput:
        plan = args.text_argument("plan").strip()
        if self.permissions.mode is not PermissionMode.PLAN:
            raise ActionRefused("This workspace is not in plan mode. You can start working.")
        if not plan or len(plan) > _LONGEST:
            raise InvalidInput(f"A plan of up to {_LONGEST:,} characters is required.")
        scopes = tuple(ON)
        asked = PermissionQuestion(use.call, "A plan to approve", plan, EDITABLE, scopes, plan=True)
        answer = await use.context.ask(asked)
        if not answer.allowed:
            words = f" The user said: {answer.words}" if answer.words else ""
            raise RefusedByUser(f"The user wants you to keep planning.{words}")
        final = answer.values.strip() or plan
        await self.choose(ON.get(answer.scope, PermissionMode.ASK).value)
        changed = " The user changed it: read it again." if final != plan else ""
        return ToolOutput(f"The user approved the plan.{changed} It follows word for word.")
