"""What rows of the window call a tool: words for the program's own tools, such as "Search files"
for `search_files`, and for the kinds of tools of the Agent Client Protocol, such as "Run" for
`execute`. Other tools keep the names that their programs gave them.
"""

from helix_desktop.gui.translation import translate_name


def words_for_tool(tool: str) -> str:
    return translate_name("what a tool does", tool, otherwise=tool)
