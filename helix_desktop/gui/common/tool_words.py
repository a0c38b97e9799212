"""What rows of the window call a tool: words for the program's own tools, such as "Search files"
for `search_files`, and for the kinds of tools of the Agent Client Protocol, such as "Run" for
`execute`. Other tools keep the names that their programs gave them.
"""

import re

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_program
from helix_desktop.engine.tool_names import EDITS, ToolName
from helix_desktop.gui.translation import read_shown_names, tr, translate_name

_OWN_TOOLS = frozenset(ToolName)
RULE_FOR_EDITS = ", ".join(sorted(EDITS))  # As `tools/permission.py` describes it.
NETWORK_MARK = " (with network access)"  # As `tools/permission.py` describes a rule.
# As a tool of an MCP server is named here, and by other agents.
_SERVER_TOOL = re.compile(r"(?:mcp__)?(?P<server>(?:(?!__).)+)__(?P<tool>(?:(?!__).)+)")


def words_for_tool(tool: str) -> str:
    """Says what a tool does. A server's tool is named as its server names it, and then the server."""
    match = _SERVER_TOOL.fullmatch(tool)
    if match is not None:
        return f"{match['tool'].replace('_', ' ')} ({match['server']})"
    return translate_name("what a tool does", tool, otherwise=tool)


def words_for_tool_in_english(tool: str) -> str:
    """Says what a tool does, as agents of other programs do in every language."""
    return read_shown_names()["what a tool does"].get(tool, tool)


def name_tool_of_rule(tool: str) -> str:
    """Says what a tool does, instead of its inner name. Tools without words keep their name."""
    words_by_tool: dict[str, str] = {
        ToolName.RUN_COMMAND: tr("Run a command"),
        ToolName.EDIT_FILE: tr("Edit a file"),
        ToolName.WRITE_FILE: tr("Write a file"),
        ToolName.READ_FILE: tr("Read a file"),
        ToolName.FETCH_URL: tr("Fetch a web page"),
    }
    return words_by_tool.get(tool) or words_for_tool(tool)


def translate_network_mark(rule: str) -> str:
    """Returns a rule as it is shown, with the mark for network access in the user's language."""
    shown_rule = mark_program(rule)
    if not shown_rule.endswith(NETWORK_MARK):
        return shown_rule
    return f"{shown_rule.removesuffix(NETWORK_MARK)} ({tr('with network access')})"


def describe_offered_rule(tool: str, rule: str, *, is_for_files: bool) -> str:
    """Returns what a rule covers that the question of this tool offers. A rule for every use of a
    tool is the tool's name, which people do not know.
    """
    if rule == RULE_FOR_EDITS and is_for_files:
        return tr("Edit or create any file in this workspace")
    if rule == RULE_FOR_EDITS and tool in EDITS:
        return tr("Edit or create files: every time")
    # Agents of other programs call their tools otherwise, and their rules are named after ours. A
    # rule for files is never a bare name: it has a folder in front.
    is_own_tool = is_for_files and rule in _OWN_TOOLS
    if rule != tool and not is_own_tool:
        if is_for_files:
            return mark_on_one_line(rule)
        return translate_network_mark(rule)
    words = mark_on_one_line(words_for_tool(rule))
    if is_for_files:
        return tr("{tool}: any file in this workspace", tool=words)
    return tr("{tool}: every time", tool=words)
