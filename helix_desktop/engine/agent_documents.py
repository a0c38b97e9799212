"""Reads the documents in what agents send: a part with the whole file, a text or an address.

Each protocol has a form of its own for them. What these functions return is the same for all.
"""

from collections.abc import Mapping
from dataclasses import replace

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import (
    first_text,
    format_json_value,
    list_at,
    object_at,
    text_at,
    without_fields,
)

_TYPE_BY_ENDING = {".pdf": "application/pdf", ".txt": "text/plain", ".csv": "text/csv"}
# The fields of a part that have the document itself.
_FIELDS_OF_DOCUMENT = (
    "type",
    "source",
    "title",
    "file",
    "filename",
    "file_data",
    "file_url",
    "file_id",
    "fileData",
    "inlineData",
    "inline_data",
)
# The fields of a part that say in which form the provider wants the document.
_FIELDS_OF_FORM = (
    "cache_control",
    "citations",
    "prompt_cache_breakpoint",
    "detail",
    "thought",
    "thoughtSignature",
    "thought_signature",
    "mediaResolution",
    "mediaProcessing",
)
_NAME_OF_UNNAMED = {"application/pdf": "document.pdf", "text/plain": "document.txt"}


@dataclass(frozen=True, slots=True)
class AgentDocument:
    """A document in a message. It has one of these: `encoded`, the file as base64; `text`, its
    text; or `address`, where the provider finds it. `details`: what its part of the message says
    about it besides, as JSON.
    """

    name: str
    media_type: str
    encoded: str = ""
    text: str = ""
    address: str = ""
    details: str = ""

    @property
    def words_instead(self) -> str:
        """Return what is said to a model that is not given the file itself."""
        if self.text:
            return f"[Attachment: {self.name}]\n{self.text}"
        if self.address:
            return f"[The document {self.name} is not here: the agent's provider has it at {self.address}.]"
        size = len(self.encoded) * 3 // 4  # Four characters of base64 stand for three bytes.
        return f"[The document {self.name} ({self.media_type}, {size:,} bytes) is not given to this model.]"


def read_agent_document(part: Mapping[str, object]) -> AgentDocument | None:
    """Return the document that a part of a message is, or None. Pictures are none."""
    kind = text_at(part, "type")
    document: AgentDocument | None = None
    if kind == "document":
        document = _document_of_anthropic(part)
    elif kind == "input_file":
        document = _document_of_openai(part)
    elif kind == "file":
        document = _document_of_openai(object_at(part, "file"))
    elif not kind:
        document = _document_of_gemini(part)
    if document is None or document.media_type.startswith("image/"):
        return None
    details = without_fields(part, *_FIELDS_OF_DOCUMENT, *_FIELDS_OF_FORM)
    if not details:
        return document
    return replace(document, details=format_json_value(details))


def _document_of_anthropic(part: Mapping[str, object]) -> AgentDocument | None:
    source = object_at(part, "source")
    media_type = text_at(source, "media_type")
    name = text_at(part, "title")
    match text_at(source, "type"):
        case "base64":
            encoded = text_at(source, "data")
            return _build_agent_document(name, media_type, encoded=encoded)
        case "text":
            text = text_at(source, "data")
            return _build_agent_document(name, media_type or "text/plain", text=text)
        case "content":
            if _has_pictures(source):
                return None  # Its text is not all of it.
            text = _text_of_content_blocks(source)
            return _build_agent_document(name, "text/plain", text=text)
    address = first_text(source, "url", "file_id")
    return _build_agent_document(name, media_type, address=address)


def _text_of_content_blocks(source: Mapping[str, object]) -> str:
    """Return the text of a document that is given as a text, or as blocks of text."""
    texts = [text_at(source, "content")]
    for block in list_at(source, "content"):
        texts.append(text_at(block, "text"))
    whole_text = "\n".join(filter(None, texts))
    return whole_text or "[a document without text]"


def _has_pictures(source: Mapping[str, object]) -> bool:
    return any(text_at(block, "type") == "image" for block in list_at(source, "content"))


def _document_of_openai(part: Mapping[str, object]) -> AgentDocument | None:
    name = text_at(part, "filename")
    data = text_at(part, "file_data")
    media_type = ""
    if data.startswith("data:"):
        header, _, data = data.partition(";base64,")
        media_type = header.removeprefix("data:").partition(";")[0]
    if data:
        return _build_agent_document(name, media_type, encoded=data)
    address = first_text(part, "file_url", "file_id")
    return _build_agent_document(name, media_type, address=address)


def _document_of_gemini(part: Mapping[str, object]) -> AgentDocument | None:
    # Its libraries write these names in two ways.
    inline_data = object_at(part, "inlineData") or object_at(part, "inline_data")
    file_data = object_at(part, "fileData") or object_at(part, "file_data")
    described_by = inline_data or file_data
    media_type = first_text(described_by, "mimeType", "mime_type")
    name = first_text(described_by, "displayName", "display_name")
    encoded = text_at(inline_data, "data")
    address = first_text(file_data, "fileUri", "file_uri")
    return _build_agent_document(name, media_type, encoded=encoded, address=address)


def _build_agent_document(
    name: str, media_type: str, *, encoded: str = "", text: str = "", address: str = ""
) -> AgentDocument | None:
    """Return the document with a name and a type that fit each other, or None if it is nowhere."""
    if not encoded and not text and not address:
        return None
    ending = name[name.rfind(".") :].lower()
    known_type = media_type or _TYPE_BY_ENDING.get(ending, "application/octet-stream")
    known_name = name or _NAME_OF_UNNAMED.get(known_type, "document")
    return AgentDocument(known_name, known_type, encoded, text, address)
