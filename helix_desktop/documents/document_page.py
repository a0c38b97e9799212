"""What a reader yields, and what it raises. It is imported by the limited process as well."""

from dataclasses import dataclass


class DocumentNeedsPassword(Exception):
    """The document is encrypted."""


class DocumentTooLarge(Exception):
    """The document unpacks to more than a reader takes."""


class DocumentDamaged(Exception):
    """The bytes are not what the document's kind says."""


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page, sheet, slide, chapter or section. `unit_number`: the sheet or page that it belongs
    to, because a long sheet is several of these. `title` is empty if it has none.
    """

    text: str
    title: str = ""
    unit_number: int = 0


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A page as a PNG picture. `is_blank`: it has one colour."""

    page_number: int
    png: bytes
    is_blank: bool = False
