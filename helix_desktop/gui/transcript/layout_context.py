"""What all items of a chat share while they are laid out, including which sections are open."""

from collections.abc import Callable
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.basic_boxes import SectionKey, ToggleSection
from helix_desktop.gui.transcript.content_fetching import FetchedTranscriptContent
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems

OUTPUT_LINES = 40  # So many lines of an open output are shown until the user asks for more.


@dataclass(slots=True)
class LayoutContext:
    """`key_prefix` separates the open sections of a nested chat from those of the outer one. `now`:
    the monotonic clock, for how long calls run and pauses last.
    """

    ink: DrawingStyle
    width: float
    items: TranscriptItems
    contents: FetchedTranscriptContent
    now: Callable[[], float]
    section_amounts: dict[SectionKey, int] = field(default_factory=dict)
    key_prefix: SectionKey = ()

    def section_state(self, *parts: object, default: bool = False) -> tuple[bool, ToggleSection]:
        """Returns whether a section is open, and the action of a click on its line."""
        key = self.section_key(*parts)
        return bool(self.section_amounts.get(key, default)), ToggleSection(key)

    def section_key(self, *parts: object) -> SectionKey:
        return self.key_prefix + parts

    def nested_context(
        self, items: TranscriptItems, inset: float, prefix: SectionKey
    ) -> "LayoutContext":
        return LayoutContext(
            self.ink,
            self.width - inset,
            items,
            self.contents,
            self.now,
            self.section_amounts,
            prefix,
        )
