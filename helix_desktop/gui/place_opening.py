"""Goes to the place that a link, a search result or a notification names."""

from PySide6.QtCore import QObject

from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.frame.window_pages import WindowPages
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.window_parts import WindowParts


class PlaceOpener(QObject):
    def __init__(
        self,
        parts: WindowParts,
        frame: WindowFrame,
        pages: WindowPages,
        workspaces: OpenWorkspaces,
        sides: ConversationSides,
    ) -> None:
        super().__init__(frame)
        self._parts = parts
        self._frame = frame
        self._pages = pages
        self._workspaces = workspaces
        self._sides = sides
        parts.requests.place_wanted.connect(self.go_to_place)

    def go_to_place(self, place: WindowPlace) -> None:
        if place.kind == "settings":
            self._parts.requests.settings_wanted.emit("")
            return
        self._workspaces.go_to_workspace(
            place.workspace, lambda: self._go_to_place_in_workspace(place)
        )

    def _go_to_place_in_workspace(self, place: WindowPlace) -> None:
        match place.kind:
            case "entry":
                if place.digest is not None:
                    self._frame.switch_to_page("cache")
                    self._pages.cache.open_entry_by_digest(place.digest)
            case "conversation":
                self._frame.switch_to_page("chat")
                self._go_to_conversation(place)
            case "fold":
                self._frame.switch_to_page("timeline")
                self._go_to_conversation(place)

    def _go_to_conversation(self, place: WindowPlace) -> None:
        if place.conversation and self._parts.showing.conversation_id == place.conversation:
            self.show_place_in_conversation(place)
            self._sides.focus_current_composer()
        else:
            self._sides.go_to_conversation(
                place.conversation, lambda: self.show_place_in_conversation(place)
            )

    def show_place_in_conversation(self, place: WindowPlace) -> None:
        """Shows a message of a conversation that has just been opened, or a fold in the
        timeline.
        """
        side = self._sides.find_side(place.conversation)
        if place.kind == "fold" and side is self._sides.current:
            self._pages.timeline.choose_fold(place.fold)
        elif place.seq and side is not None:
            side.transcript.scroll_to_fact(place.seq, place.words)
