"""Documents in what agents send are read in each protocol's own form."""

from __future__ import annotations

import pytest

from helix_desktop.engine.agent_documents import AgentDocument, read_agent_document

PDF = "application/pdf"
READ: list[tuple[dict[str, object], AgentDocument]] = [
    (
        {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": PDF, "data": "QUJD"}},
        AgentDocument("a.pdf", PDF, encoded="QUJD"),
    ),
    (
        {"type": "document", "source": {"type": "text", "data": "words"}},
        AgentDocument("document.txt", "text/plain", text="words"),
    ),
    (
        {"type": "document", "source": {"type": "text", "media_type": "text/html", "data": "words"}},
        AgentDocument("document", "text/html", text="words"),
    ),
    (
        {"type": "document", "source": {"type": "content", "content": [{"text": "a"}, {"text": "b"}]}},
        AgentDocument("document.txt", "text/plain", text="a\nb"),
    ),
    (
        {"type": "document", "source": {"type": "content", "content": "alone"}},
        AgentDocument("document.txt", "text/plain", text="alone"),
    ),
    (
        {"type": "document", "source": {"type": "content", "content": []}},
        AgentDocument("document.txt", "text/plain", text="[a document without text]"),
    ),
    (
        {"type": "document", "title": "B.PDF", "source": {"type": "url", "url": "https://x.example/b"}},
        AgentDocument("B.PDF", PDF, address="https://x.example/b"),
    ),
    (
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
        AgentDocument("document", "application/octet-stream", address="file-1"),
    ),
    (
        {"type": "input_file", "filename": "c.csv", "file_data": "QUJD"},
        AgentDocument("c.csv", "text/csv", encoded="QUJD"),
    ),
    (
        {"type": "file", "file": {"file_data": f"data:{PDF};x=1;base64,QUJD"}},
        AgentDocument("document.pdf", PDF, encoded="QUJD"),
    ),
    (
        {"type": "input_file", "file_url": "https://x.example/d", "file_id": "file-2"},
        AgentDocument("document", "application/octet-stream", address="https://x.example/d"),
    ),
    (
        {"type": "input_file", "file_id": "file-2"},
        AgentDocument("document", "application/octet-stream", address="file-2"),
    ),
    (
        {"inlineData": {"mimeType": PDF, "data": "QUJD", "displayName": "e.pdf"}},
        AgentDocument("e.pdf", PDF, encoded="QUJD"),
    ),
    (
        {"inline_data": {"mime_type": PDF, "data": "QUJD", "display_name": "e.pdf"}},
        AgentDocument("e.pdf", PDF, encoded="QUJD"),
    ),
    (
        {"fileData": {"mimeType": PDF, "fileUri": "gs://f"}},
        AgentDocument("document.pdf", PDF, address="gs://f"),
    ),
    (
        {"file_data": {"mime_type": PDF, "file_uri": "gs://f"}},
        AgentDocument("document.pdf", PDF, address="gs://f"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("part", "document"), READ)
def test_a_document_is_read_with_its_name_and_type(
    part: dict[str, object], document: AgentDocument
) -> None:
    assert read_agent_document(part) == document


def test_a_document_with_a_picture_in_it_is_no_text() -> None:
    """It goes on whole: of its text alone, the picture would be lost."""
    blocks = [{"text": "a"}, {"type": "image"}, {"text": "b"}]
    part: dict[str, object] = {"type": "document", "source": {"type": "content", "content": blocks}}
    assert read_agent_document(part) is None


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "words"},
        {"type": "document"},
        {"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
        {"inlineData": {"mimeType": "image/png", "data": "QUJD"}},
        {"type": "file", "file": {"filename": "a.pdf"}},
        {"text": "words"},
    ],
)  # fmt: skip
def test_texts_pictures_and_empty_parts_are_no_documents(part: dict[str, object]) -> None:
    assert read_agent_document(part) is None


def test_a_model_without_the_file_is_told_what_it_is() -> None:
    words = [
        AgentDocument("a.txt", "text/plain", text="words").words_instead,
        AgentDocument("a.pdf", PDF, address="file-1").words_instead,
        AgentDocument("a.pdf", PDF, encoded="QUJD" * 1_000).words_instead,
    ]
    assert words == [
        "[Attachment: a.txt]\nwords",
        "[The document a.pdf is not here: the agent's provider has it at file-1.]",
        "[The document a.pdf (application/pdf, 3,000 bytes) is not given to this model.]",
    ]
