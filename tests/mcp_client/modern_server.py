"""A server of the official SDK, of today's specification: a tool that adds another, one
that asks, one that is slow.
"""

from typing import Annotated

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("modern")


class Wish(BaseModel):
    name: str


@server.prompt()
def review(file: str, focus: str = "faults") -> str:
    """Reviews a file."""
    return f"Review {file} and look for {focus}."


@server.resource("docs://style", name="style")
def style() -> str:
    """How we write."""
    return "Four spaces."


@server.tool()
async def grow(context: Context) -> str:
    """Adds a tool."""
    server.add_tool(lambda: "new", name="grown", description="Was not there before")
    await context.notify_tools_changed()
    return "grown"


async def who() -> Elicit[Wish]:
    return Elicit("What is your name?", Wish)


@server.tool()
async def ask(answer: Annotated[ElicitationResult[Wish], Resolve(who)]) -> str:
    """Asks the user for a name."""
    return f"{answer.action} {getattr(answer, 'data', '')}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count(context: Context) -> dict[str, int]:
    """Counts to three."""
    for number in range(1, 4):
        await context.report_progress(number, 3, f"at {number}")
    return {"counted": 3}


server.run("stdio")
