"""Goes to the place that a link, a search result or a notification names."""

from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.window_contents import WindowContents


class PlaceOpener(QObject):
    def __init__(self, contents: WindowContents) -> None:
        super().__init__(contents.frame)
        self._parts = contents.parts
        self._frame = contents.frame
        self._pages = contents.pages
        self._workspaces = contents.workspaces
        self._sides = contents.sides
        self._parts.requests.place_wanted.connect(self.go_to_place)

    def go_to_place(self, place: WindowPlace) -> None:
        if place.kind == "settings":
            self._parts.requests.settings_wanted.emit("")
            return
        go_on = partial(self._go_to_place_in_workspace, place)
        self._workspaces.go_to_workspace(place.workspace, go_on)

    def _go_to_place_in_workspace(self, place: WindowPlace) -> None:
        match place.kind:
            case "entry":
                self._frame.switch_to_page("cache")
                if place.digest is not None:
                    self._pages.cache.open_entry_from_elsewhere(place.digest, place.words)
            case "conversation":
                self._frame.switch_to_page("chat")
                self._go_to_conversation(place)
            case "changes":
                self._frame.switch_to_page("changes")
                self._go_to_conversation(place)
            case "fold":
                self._frame.switch_to_page("timeline")
                self._go_to_conversation(place)

    def _go_to_conversation(self, place: WindowPlace) -> None:
        if place.conversation and self._parts.showing.conversation_id == place.conversation:
            self.show_place_in_conversation(place)
            self._sides.focus_current_composer()
        else:
            show_place = partial(self.show_place_in_conversation, place)
            self._sides.go_to_conversation(place.conversation, show_place)

    def show_place_in_conversation(self, place: WindowPlace) -> None:
        """Shows a message of a conversation that has just been opened, or a fold in the
        timeline.
        """
        side = self._sides.find_side(place.conversation)
        if place.kind == "fold" and side is self._sides.current:
            self._pages.timeline.choose_fold(place.fold)
        elif place.seq and side is not None:
            side.transcript.scroll_to_fact(place.seq, place.words)
