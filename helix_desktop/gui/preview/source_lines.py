"""The lines of a file as the preview shows them: safe to look at, of a file of any size."""

from collections.abc import Iterator, Sequence

from helix_desktop.gui.transcript.safe_text import make_safe_text

MOST_LINES = 1_000_000  # A file of 32 MB may have thirty times as many.


class SourceLines:
    """Each line is made safe when it is looked at. What stands behind the last one is left out."""

    def __init__(self, text: str) -> None:
        lines = text.replace("\r\n", "\n").split("\n", MOST_LINES)
        self.is_whole = len(lines) <= MOST_LINES
        self._lines: Sequence[str] = lines[:MOST_LINES]

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[str]:
        return map(make_safe_text, self._lines)

    def __getitem__(self, number: int) -> str:
        return make_safe_text(self._lines[number])
