"""The large pieces of the window, for everything that serves the user in more than one of them."""

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.frame.command_palette import CommandPalette
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.frame.window_pages import WindowPages
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.window_parts import WindowParts


@dataclass(frozen=True, eq=False)
class WindowContents:
    """Made once by the window. `frame` holds the rail, the sidebar, the top bar and the page area,
    `pages` the pages besides the chat, and `sides` the conversations of the chat.
    """

    parts: WindowParts
    frame: WindowFrame
    pages: WindowPages
    palette: CommandPalette
    workspaces: OpenWorkspaces
    sides: ConversationSides
