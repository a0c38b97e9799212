"""Says how long an attached document is: its pages, sheets or slides, and its tokens."""

from helix_desktop.engine.facts import Attachment
from helix_desktop.gui.context_meter import describe_token_count
from helix_desktop.gui.translation import format_count


def describe_attachment_size(attachment: Attachment) -> str:
    """Returns "14 pages · 9.2K tokens", or the tokens of a file that has no pages."""
    figures: list[str] = []
    pages = describe_document_pages(attachment)
    if pages:
        figures.append(pages)
    if attachment.tokens:
        figures.append(describe_token_count(attachment.tokens))
    return " · ".join(figures)


def describe_document_pages(attachment: Attachment) -> str:
    """Returns "14 pages", or nothing where the attachment was not read from a document."""
    document = attachment.document
    if document is None or not document.count:
        return ""
    count = document.count
    # A CSV file has parts, which its writer did not make, so they are not counted.
    words = ""
    match document.unit:
        case "page":
            words = format_count(count, "{n} page", "{n} pages")
        case "sheet":
            words = format_count(count, "{n} sheet", "{n} sheets")
        case "slide":
            words = format_count(count, "{n} slide", "{n} slides")
        case "chapter":
            words = format_count(count, "{n} chapter", "{n} chapters")
        case "cell":
            words = format_count(count, "{n} cell", "{n} cells")
        case "section":
            words = format_count(count, "{n} section", "{n} sections")
    return words
