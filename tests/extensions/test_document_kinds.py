"""A document is read by an extension's reader, in the limited process and not here."""

from __future__ import annotations

import sys

import pytest

from helix_desktop.documents.document_kinds import find_document_kind
from helix_desktop.documents.document_reading import read_document_pages
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.extensions.extension_loading import LoadedExtensions, load_extensions_in_thread
from helix_desktop.extensions.installed_extensions import AllowedExtensions
from helix_desktop.program_folders import ProgramFolders
from tests.extensions.conftest import PACKAGES, Install, WriteExtension

SUBTITLES = (
    b"1\n00:00:01,000 --> 00:00:02,000\nGood evening.\n\n2\n00:00:03,000 --> 00:00:04,000\nIs it?\n"
)
READS = """
import os, socket, sys
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.documents.document_page import DocumentPage
from helix_desktop.extensions.extension_interfaces import Extension

def read(content):
    {body}

kind = DocumentKind("odd", "Odd", (".odd",), "part", "extension_{name}:read", "text/x-odd")
extension = Extension("Odd", document_kinds=[kind])
"""


def load(where: ProgramFolders) -> LoadedExtensions:
    decisions = AllowedExtensions(where)
    for known in decisions.list_extensions():
        decisions.allow_extension(known.installed)
    return load_extensions_in_thread(where)


async def read(name: str, content: bytes) -> list[str]:
    kind = find_document_kind(name, content)
    assert kind is not None
    document = await read_document_pages(name, content, kind)
    return [page.text for page in document.pages]


async def test_a_document_of_an_added_kind_is_read(where: ProgramFolders, install: Install) -> None:
    install(PACKAGES / "subtitle_reader")
    assert find_document_kind("film.srt", SUBTITLES) is None
    assert load(where).complaints == []
    assert await read("film.srt", SUBTITLES) == ["Good evening.\nIs it?"]
    with pytest.raises(InvalidInput, match="damaged"):
        await read("film.srt", b"nothing")


async def test_a_reader_runs_in_another_process_which_writes_no_file(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    body = "yield DocumentPage(str(os.getpid()))\n    os.write(os.open(content, os.O_CREAT | os.O_WRONLY), b'x')"
    write_extension("reads", READS.format(name="reads", body=body))
    load(where)
    target = where.data / "written"
    with pytest.raises(InvalidInput, match="the extension that reads Odd failed with OSError"):
        await read("a.odd", str(target).encode())
    assert not target.exists() or target.read_bytes() == b""


ENDS = {
    "raise SystemExit(0)": "too much memory or time, or it is damaged",
    "os._exit(0)": "too much memory or time, or it is damaged",
    "import ctypes; ctypes.string_at(0)": "too much memory or time, or it is damaged",
    "raise RecursionError": "the extension that reads Odd failed with RecursionError",
    "return [b'x' * (1 << 40)]": "too large",
    "print('no page'); return ['no page']": "too much memory or time, or it is damaged",
}


@pytest.mark.parametrize("body", ENDS)
async def test_a_reader_that_fails_ends_its_process_and_nothing_else(
    body: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("ends", READS.format(name="ends", body=body))
    load(where)
    with pytest.raises(InvalidInput, match=ENDS[body]):
        await read("a.odd", b"x")


async def test_a_reader_that_changed_after_it_was_allowed_does_not_run(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    body = "yield DocumentPage('read')"
    write_extension("changes", READS.format(name="changes", body=body))
    load(where)
    assert await read("a.odd", b"x") == ["read"]
    write_extension("changes", READS.format(name="changes", body="yield DocumentPage('other')"))
    with pytest.raises(ActionRefused, match="has changed since you allowed it"):
        await read("a.odd", b"x")


def test_no_extension_takes_a_kind_or_an_ending(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    code = READS.format(name="takes", body="yield")
    write_extension("takes", code.replace('".odd"', '".pdf"'))
    write_extension("first", READS.format(name="first", body="yield"))
    write_extension("foreign", READS.format(name="os", body="yield").replace("extension_os", "os"))
    write_extension("second", READS.format(name="second", body="yield"))
    assert load(where).complaints == [
        'The extension foreign was switched off: the reader of odd must be a function of its own package, such as "extension_foreign:read".',
        "The extension second was switched off: There is another kind of document named 'odd'.",
        "The extension takes was switched off: Files that end in .pdf are already read as PDF.",
    ]
    found = find_document_kind("a.pdf", b"")
    assert found is not None
    assert found.name == "pdf"
    assert "extension_takes" in sys.modules
