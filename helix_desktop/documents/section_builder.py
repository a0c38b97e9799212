"""Collects the blocks of a document that has headings and no pages, as sections of readable size."""

from helix_desktop.documents.document_page import DocumentPage

CHARACTERS_OF_A_SECTION = 12_000  # A text without headings is split after about this many.
_LONGEST_TITLE = 120


class SectionBuilder:
    """Begins a section at each heading of the first two levels, and where one gets too long."""

    def __init__(self) -> None:
        self._sections: list[DocumentPage] = []
        self._blocks: list[str] = []
        self._title = ""
        self._length = 0
        self._has_only_headings = True

    def add_section_heading(self, level: int, text: str) -> None:
        """Add a heading. One of the first two levels begins a new section, unless the current
        one has nothing but headings yet.
        """
        words = " ".join(text.split())
        if not words:
            return
        if level <= 2:
            if not self._has_only_headings:  # A title stands with the first chapter.
                self._end_section()
            self._title = words[:_LONGEST_TITLE]
        self._blocks.append(f"{'#' * min(max(level, 1), 6)} {words}")

    def add_section_block(self, text: str) -> None:
        """Add a paragraph or another block. A section that has become too long is ended first."""
        if not text.strip():
            return
        if self._length > CHARACTERS_OF_A_SECTION:
            self._end_section()
        self._blocks.append(text.rstrip())
        self._length += len(text)
        self._has_only_headings = False

    def add_list_item(self, text: str, depth: int) -> None:
        """Add an item to the list before it, without an empty line between them."""
        if not text.strip():
            return
        item = f"{'  ' * depth}- {text.strip()}"
        if self._blocks and self._blocks[-1].lstrip().startswith("- "):
            self._blocks[-1] += f"\n{item}"
            self._length += len(item)
        else:
            self.add_section_block(item)

    def finish_sections(self) -> list[DocumentPage]:
        self._end_section()
        return self._sections

    def _end_section(self) -> None:
        if self._blocks:
            text = "\n\n".join(self._blocks)
            self._sections.append(DocumentPage(text, self._title, len(self._sections) + 1))
        self._blocks = []
        self._length = 0
        self._has_only_headings = True
