"""A page of the settings that shows several subjects below each other, each under its heading."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from PySide6.QtWidgets import QLabel, QWidget

from helix_desktop.gui.common.widgets import run_after_events
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.theme import set_widget_mark

SHOWN_AROUND_ROW = 120  # In pixels, above and below.
SettingsSections = Mapping[str, Callable[[], SettingsPage]]


class WaitingSection(SettingsPage):
    """Stands for a section of a workspace that is not open yet."""

    def __init__(self, words: str) -> None:
        super().__init__("")
        if words:
            self.add_sentence(words)


class SettingsGroupPage(SettingsPage):
    """`sections` are built in order. A section is reached by its name."""

    def __init__(self, title: str, sections: SettingsSections) -> None:
        super().__init__(title)
        self._builders = sections
        self.sections: dict[str, SettingsPage] = {}
        self._contents: dict[str, QWidget] = {}
        for name, build in sections.items():
            self._add_section(name, build())

    def _add_section(self, name: str, section: SettingsPage) -> None:
        """Adds a section's content below the others."""
        self._contents[name] = self.add_page_widget(self._take_content(name, section))

    def _take_content(self, name: str, section: SettingsPage) -> QWidget:
        """Takes a section's content. The section stays, because it answers what is changed."""
        section.become_section(hides_title=section.title in ("", self.title))
        content = section.takeWidget()
        section.setParent(self)
        section.hide()
        section.wanted.connect(self.wanted)
        self.sections[name] = section
        return content

    def fill_waiting_sections(self) -> bool:
        """Builds again what waited for a workspace, each at its place. Returns whether any did."""
        waiting = {
            name: section
            for name, section in self.sections.items()
            if isinstance(section, WaitingSection)
        }
        for name, section in waiting.items():
            old_content = self._contents[name]
            content = self._take_content(name, self._builders[name]())
            self._contents[name] = self.replace_page_widget(old_content, content)
            old_content.deleteLater()
            section.deleteLater()
        return bool(waiting)

    def scroll_to_section(self, name: str) -> None:
        """Shows a section at the top, once the page has its layout. A section that was asked for
        is unfolded; the first one has the page's name, and is also meant by that.
        """
        content = self._contents.get(name)
        if content is None:
            return
        if content is not next(iter(self._contents.values())):
            self.sections[name].unfold_areas()
        run_after_events(content, partial(self._scroll_to_content, content))

    def _scroll_to_content(self, content: QWidget) -> None:
        first_content = next(iter(self._contents.values()))
        if content is first_content:
            top = 0  # The page's title above it is shown, too.
        else:
            top = content.y()
        self.verticalScrollBar().setValue(top)

    def find_rows(self, words: Sequence[str]) -> Iterator[QLabel]:
        """Yields the texts that contain all words, in the order in which they are shown."""
        for label in self.page_content.findChildren(QLabel):
            text = label.text().casefold()
            if not text or label.isHidden():
                continue
            if all(word in text for word in words):
                yield label

    def mark_found_rows(self, words: Sequence[str]) -> None:
        """Marks the texts that contain all words, or none if there are no words."""
        found: list[QLabel] = []
        if words:
            found = list(self.find_rows(words))
        for label in self.page_content.findChildren(QLabel):
            set_widget_mark(label, "is_found", is_set=label in found)

    def scroll_to_row(self, label: QLabel) -> None:
        """Shows a text once the page has its layout, with some of what stands around it."""
        for name, content in self._contents.items():
            if content.isAncestorOf(label):
                self.sections[name].unfold_areas()
        show_with_surroundings = partial(self.ensureWidgetVisible, label, 0, SHOWN_AROUND_ROW)
        run_after_events(label, show_with_surroundings)
