"""An extension for Helix Desktop that reads the subtitles of films (SubRip files)."""

from collections.abc import Iterator

from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.documents.document_page import DocumentDamaged, DocumentPage
from helix_desktop.extensions.extension_interfaces import Extension

LINES_OF_A_PAGE = 100


def read_subtitles(content: bytes) -> Iterator[DocumentPage]:
    """Yield what is said, without the numbers and times, in pages of 100 lines."""
    text = content.decode("utf-8", "replace")
    if "-->" not in text:
        raise DocumentDamaged("it has no times")
    spoken_lines: list[str] = []
    for line in text.splitlines():
        is_number_or_time = line.strip().isdecimal() or "-->" in line
        if line.strip() and not is_number_or_time:
            spoken_lines.append(line.strip())
    for start in range(0, len(spoken_lines), LINES_OF_A_PAGE):
        lines_of_page = spoken_lines[start : start + LINES_OF_A_PAGE]
        yield DocumentPage("\n".join(lines_of_page), unit_number=start // LINES_OF_A_PAGE + 1)


extension = Extension(
    title="Subtitles",
    document_kinds=[
        DocumentKind(
            name="srt",
            title="Subtitles",
            endings=(".srt",),
            unit="part",
            reader="subtitle_reader:read_subtitles",
            media_type="application/x-subrip",
        )
    ],
)
