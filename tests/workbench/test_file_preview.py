"""A path as somebody wrote it leads to the file, or to a sentence, and never out of the folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.facts import Attachment, DocumentOrigin
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import HelixError
from helix_desktop.store.in_memory_stores import MemoryCache
from helix_desktop.tools.workspace_roots import WorkspaceRoots
from helix_desktop.workbench.file_preview import (
    PreviewKind,
    read_previewed_attachment,
    read_previewed_file,
)
from tests.documents import written_documents as written

FILES = {
    "src/lock/manager.rs": b"fn main() {}\n",
    "notes.md": b"# Notes\n",
    "table.csv": b"a;b\n1;2\n",
    "page.html": b"<h1>Hi</h1>",
    "chart.svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
    "picture.png": b"\x89PNG\r\n\x1a\n",
    "program.bin": b"\0\1\2",
    "found.txt": b"one/same.py\0two/same.py\0",
    "from-excel.csv": "ä;b\n1;2\n".encode("utf-16"),
    "from-windows.log": "ä\n".encode("utf-16"),
    "packages/one/.github/ci.yml": b"on: push\n",
    "one/same.py": b"1",
    "two/same.py": b"2",
}


@pytest.fixture
def roots(tmp_path: Path) -> WorkspaceRoots:
    folder = tmp_path / "project"
    for name, content in {**FILES, "report.pdf": written.pdf(), "a.docx": written.word()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (tmp_path / "secret.txt").write_text("outside")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return WorkspaceRoots.from_folders([folder])


@pytest.mark.parametrize(
    ("written_path", "shown", "kind"),
    [
        ("src/lock/manager.rs", "src/lock/manager.rs", PreviewKind.TEXT),
        ("./src/lock/manager.rs", "src/lock/manager.rs", PreviewKind.TEXT),
        ("b/src/lock/manager.rs", "src/lock/manager.rs", PreviewKind.TEXT),
        ("src\\lock\\manager.rs", "src/lock/manager.rs", PreviewKind.TEXT),
        ("manager.rs", "src/lock/manager.rs", PreviewKind.TEXT),
        ("lock/manager.rs", "src/lock/manager.rs", PreviewKind.TEXT),
        ("notes.md", "notes.md", PreviewKind.MARKDOWN),
        ("table.csv", "table.csv", PreviewKind.TABLE),
        ("page.html", "page.html", PreviewKind.HTML),
        ("chart.svg", "chart.svg", PreviewKind.SVG),
        ("picture.png", "picture.png", PreviewKind.PICTURE),
        ("report.pdf", "report.pdf", PreviewKind.PAGES),
        ("a.docx", "a.docx", PreviewKind.DOCUMENT),
        ("program.bin", "program.bin", PreviewKind.OTHER),
        ("found.txt", "found.txt", PreviewKind.TEXT),
        ("from-windows.log", "from-windows.log", PreviewKind.TEXT),
        (".github/ci.yml", "packages/one/.github/ci.yml", PreviewKind.TEXT),
        ("../one/.github/ci.yml", "packages/one/.github/ci.yml", PreviewKind.TEXT),
    ],
)
async def test_a_path_leads_to_its_file(
    roots: WorkspaceRoots, written_path: str, shown: str, kind: PreviewKind
) -> None:
    file = await read_previewed_file(roots, written_path)
    assert (file.shown_path, file.kind) == (shown, kind)


async def test_a_full_path_leads_there_too(roots: WorkspaceRoots) -> None:
    file = await read_previewed_file(roots, str(roots.folders[0] / "notes.md"))
    assert file.text == "# Notes\n"


async def test_a_text_in_utf_16_is_read_as_one(roots: WorkspaceRoots) -> None:
    assert (await read_previewed_file(roots, "from-excel.csv")).text == "ä;b\n1;2\n"
    assert (await read_previewed_file(roots, "from-windows.log")).text == "ä\n"


async def test_a_document_has_its_text_and_pages(roots: WorkspaceRoots) -> None:
    assert (await read_previewed_file(roots, "report.pdf")).page_count == 3
    assert written.TITLE in (await read_previewed_file(roots, "a.docx")).text


@pytest.mark.parametrize(
    ("written_path", "said"),
    [
        ("gone.py", "gone.py"),
        ("same.py", "Several files are called same.py: one/same.py, two/same.py."),
        ("src", "folder"),
        ("../secret.txt", "secret.txt"),
        ("/etc/passwd", "/etc/passwd"),
        ("link.txt", "link.txt"),
        ("", "empty"),
        ("a\0b", "null"),
    ],
)
async def test_what_is_not_there_or_outside_is_said(
    roots: WorkspaceRoots, written_path: str, said: str
) -> None:
    with pytest.raises(HelixError, match=said) as failure:
        await read_previewed_file(roots, written_path)
    assert "list_files" not in str(failure.value)


async def test_an_attached_document_is_shown_as_it_is_and_not_as_the_text_that_is_sent() -> None:
    cache = MemoryCache()
    document = written.pdf()
    original = await cache.store_content(document, EntryOrigin("user", "rules.pdf"))
    text = await cache.store_content(b"Text of the document", EntryOrigin("user", "rules.pdf"))
    attachment = Attachment("rules.pdf", text, 9, DocumentOrigin(original))
    shown = await read_previewed_attachment(cache, attachment)
    assert shown.kind is PreviewKind.PAGES
    assert shown.stored == original
    assert shown.content == document


async def test_an_attached_picture_without_an_ending_is_shown_as_a_picture() -> None:
    cache = MemoryCache()
    stored = await cache.store_content(
        b"\x89PNG\r\n\x1a\n", EntryOrigin("user", "Pasted image", "image/png")
    )
    shown = await read_previewed_attachment(cache, Attachment("Pasted image", stored, 9))
    assert shown.kind is PreviewKind.PICTURE
