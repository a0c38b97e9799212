"""Plan mode: nothing is changed until the user approves a plan, which then holds word for word."""

from collections.abc import Awaitable, Callable

from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_setup import StandingNote
from helix_desktop.errors import ActionRefused, InvalidInput, RefusedByUser
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.permission import PermissionMode
from helix_desktop.tools.toolbox import WorkspacePermissions

PRESENT_PLAN = "present_plan"
# The modes in which the user can have an approved plan carried out, by their names on the card.
MODES_AFTER_APPROVAL = {"ask": PermissionMode.ASK, "edits": PermissionMode.ALLOW_EDITS}
_PLAN_MODE_NOTE = (
    "[Plan mode. Nothing may be changed now: files cannot be edited, commands run where they cannot write, and only those "
    f"tools of servers run that the user marked as reading. Look around, then call call_tool with {PRESENT_PLAN} and a "
    "plan. Work on it begins when the user approves it.]"
)
EDITABLE = "You can edit the plan before you approve it."
_LONGEST_PLAN = 100_000  # In characters.


@dataclass(frozen=True, slots=True)
class PlanMode:
    """`choose_mode` changes the permission mode. The plan itself is recorded with the answer
    (`engine/session.py`).
    """

    permissions: WorkspacePermissions
    choose_mode: Callable[[str], Awaitable[None]]

    def plan_mode_notes(self) -> tuple[StandingNote, ...]:
        """Return what the model is told of the mode. An empty text ends an earlier note."""
        text = ""
        if self.permissions.mode_in_force is PermissionMode.PLAN:
            text = _PLAN_MODE_NOTE
        return (StandingNote("mode", text),)

    def plan_tools(self, depth: int) -> tuple[BuiltInTool, ...]:
        """Return the tool that shows a plan. Sub-agents have none: they report to their parent."""
        if depth > 0:
            return ()
        return (BuiltInTool(_PRESENT_PLAN, self._present_plan),)

    async def _present_plan(self, args: ToolArguments, use: ToolResources) -> ToolOutput:
        """Show the user a plan to edit and to approve, and leave plan mode if it is approved."""
        plan = args.text_argument("plan").strip()
        if self.permissions.mode_in_force is not PermissionMode.PLAN:
            raise ActionRefused("This workspace is not in plan mode. You can start working.")
        if not plan or len(plan) > _LONGEST_PLAN:
            raise InvalidInput(f"A plan of up to {_LONGEST_PLAN:,} characters is required.")

        scopes = tuple(MODES_AFTER_APPROVAL)
        question = PermissionQuestion(
            use.call, "A plan to approve", plan, EDITABLE, scopes, plan=True
        )
        answer = await use.context.ask(question)
        if not answer.allowed:
            message = "The user wants you to keep planning."
            if answer.words:
                message += f" The user said: {answer.words}"
            raise RefusedByUser(message)

        mode = MODES_AFTER_APPROVAL.get(answer.scope, PermissionMode.ASK)
        await self.choose_mode(mode.value)
        approved_plan = answer.values.strip() or plan
        if approved_plan == plan:
            return ToolOutput("The user approved the plan. It follows word for word.")
        return ToolOutput(
            "The user approved the plan. The user changed it: read it again. It follows word for word."
        )


_PRESENT_PLAN = ToolDeclaration(
    PRESENT_PLAN,
    "In plan mode: show the user your plan. They may change it and approve it, or ask you to keep planning.",
    {
        "type": "object",
        "properties": {
            "plan": {
                "type": "string",
                "description": "The whole plan in Markdown: what you will change, where, and how you will check it",
            }
        },
        "required": ["plan"],
    },
    is_rare=True,
)
