"""What is attached reaches the model as text or pictures, on the wire of every protocol. What does
not reach it is refused before it is sent, and never counted.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Attachment, Folded, Text, ToolCall, UserSaid
from helix_desktop.engine.messages import ContextKind
from helix_desktop.errors import InvalidInput
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.workbench import Workbench
from tests.documents import written_documents as written
from tests.providers.asking import PROTOCOLS, Protocol
from tests.workbench.conftest import Desks

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


async def bench_on(desks: Desks, folder: Path) -> Workbench:
    desk = desks()
    desk.configured.save_provider(ProviderConfig("peer", base_url="http://127.0.0.1:9/v1"))
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("peer/peer-model")
    return bench


async def stored_text(bench: Workbench, attachment: Attachment) -> str:
    return (await bench.workspace.cache.read_content(attachment.stored.digest)).decode()


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.kind)
async def test_a_documents_words_go_over_the_wire_of_every_protocol(
    protocol: Protocol, desks: Desks, folder: Path
) -> None:
    desk = desks()
    with protocol.peer([protocol.reply("Read.")] * len(written.DOCUMENTS)) as peer:
        desk.configured.save_provider(protocol.config(peer))
        bench = await desk.create_workspace("Pairs", folder)
        await bench.choose_model_for_role("peer/scripted")
        for name, build in written.DOCUMENTS.items():
            session = await bench.start_conversation()
            attached = await bench.attach_file(name, build(), session.id)
            session.send_message((Text("Read it"), *attached))
            await asyncio.wait_for(session.wait_until_idle(), 60)
            sent = json.dumps(peer.requests[-1].body, ensure_ascii=False)
            assert written.TITLE in sent
            assert all(cell in sent for cell in written.CELLS[1]) or name == "report.ipynb"
            assert "not text]" not in sent
            # What is counted is what went.
            (said,) = (r.fact for r in session.all_facts if isinstance(r.fact, UserSaid))
            counted = sum(part.tokens for part in said.parts)
            text = "".join([await stored_text(bench, part) for part in attached])
            assert counted == pytest.approx(bench.token_counter.count_tokens(text), abs=20)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.kind)
async def test_scanned_pages_go_as_pictures(protocol: Protocol, desks: Desks, folder: Path) -> None:
    desk = desks()
    with protocol.peer([protocol.reply("Seen.")]) as peer:
        desk.configured.save_provider(protocol.config(peer))
        bench = await desk.create_workspace("Pairs", folder)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation()
        attached = await bench.attach_file("scan.pdf", written.scanned_pdf(), session.id)
        assert [part.name for part in attached] == [
            "scan.pdf",
            "scan.pdf, page 1",
            "scan.pdf, page 2",
        ]
        session.send_message(attached)
        await asyncio.wait_for(session.wait_until_idle(), 60)
        sent = json.dumps(peer.requests[-1].body)
        assert sent.count("iVBORw0KGgo") == 2  # How a PNG begins in base64.


async def test_the_original_is_kept_and_the_text_leads_to_it(desks: Desks, folder: Path) -> None:
    bench = await bench_on(desks, folder)
    content = written.pdf(pages=3)
    (attached,) = await bench.attach_file("report.pdf", content)
    assert attached.document is not None
    assert (attached.document.unit, attached.document.count) == ("page", 3)
    assert await bench.workspace.cache.read_content(attached.document.original.digest) == content
    text = await stored_text(bench, attached)
    assert attached.document.original.digest.hex in text.splitlines()[0]
    session = await bench.start_conversation()
    session.send_message((attached,))
    await session.wait_until_idle()
    used = await bench.workspace._used_entries()
    assert {attached.stored.digest, attached.document.original.digest} <= used


async def test_forgetting_a_text_forgets_the_document_it_was_read_from(
    desks: Desks, folder: Path
) -> None:
    bench = await bench_on(desks, folder)
    (attached,) = await bench.attach_file("report.pdf", written.pdf())
    assert attached.document is not None
    done = await bench.forget_content(text=written.TITLE)
    assert set(done.entries) == {attached.stored.digest, attached.document.original.digest}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("secret.pdf", written.pdf(password="secret"), "password"),
        ("a.pdf", b"%PDF-1.7 nothing", "damaged"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "not read"),
        ("a.rtf", b"{\\rtf1 words}", "not read"),
        ("program.exe", b"MZ\0\0" + bytes(100), "neither text nor a picture"),
        ("archive.zip", written.zipped({"a.txt": "x"}), "neither text nor a picture"),
        ("empty.html", b"<html></html>", "no text"),
    ],
)
async def test_what_no_model_reads_is_refused_and_nothing_is_counted(
    name: str, content: bytes, said: str, desks: Desks, folder: Path
) -> None:
    bench = await bench_on(desks, folder)
    with pytest.raises(InvalidInput, match=said):
        await bench.attach_file(name, content)


async def test_a_document_that_unpacks_to_far_more_is_refused(desks: Desks, folder: Path) -> None:
    bench = await bench_on(desks, folder)
    with pytest.raises(InvalidInput, match="too large"):
        await bench.attach_file("a.docx", written.bomb())


async def test_a_blank_page_is_no_picture(desks: Desks, folder: Path) -> None:
    desk = desks()
    protocol = PROTOCOLS[0]
    with protocol.peer([]) as peer:
        desk.configured.save_provider(protocol.config(peer))
        bench = await desk.create_workspace("Pairs", folder)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation()
        attached = await bench.attach_file("a.pdf", written.pdf_with_blank_page(), session.id)
        assert [part.name for part in attached] == ["a.pdf", "a.pdf, page 3"]
        text = (
            await bench.workspace.cache.read_range(attached[0].stored.digest, 0, 9_999)
        ).decode()
        assert "[This page is blank.]" in text
        assert text.count("[This page is a picture.]") == 1


async def test_a_model_that_sees_no_pictures_is_given_none(desks: Desks, folder: Path) -> None:
    desk = desks()
    desk.configured.save_provider(ProviderConfig("peer", base_url="http://127.0.0.1:9/v1"))
    desk.configured.correct_model("peer", "blind", {"images": False})
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("peer/blind")
    with pytest.raises(InvalidInput, match="does not see pictures"):
        await bench.attach_file("scan.pdf", written.scanned_pdf())
    with pytest.raises(InvalidInput, match="does not see pictures"):
        await bench.attach_file("a.png", PNG)


async def test_other_texts_and_pictures_stay_what_they_are(desks: Desks, folder: Path) -> None:
    bench = await bench_on(desks, folder)
    for name, content in {"a.json": b"{}", "b.ts": b"let x", "c.svg": b"<svg/>"}.items():
        (attached,) = await bench.attach_file(name, content)
        assert await stored_text(bench, attached) == content.decode()
        assert attached.stored.media_type.startswith("text/")
    (utf_16,) = await bench.attach_file("words.txt", "Grüße".encode("utf-16"))
    assert await stored_text(bench, utf_16) == "Grüße"
    (picture,) = await bench.attach_file("a.png", PNG)
    assert picture.stored.media_type == "image/png"


async def test_a_large_document_goes_as_an_outline_that_the_agent_reads_by_pages(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    (attached,) = await bench.attach_file("book.pdf", written.pdf(pages=1_500))
    session = await bench.start_conversation()
    sent = await bench.count_sent_tokens(attached)
    session.send_message((attached,))
    await asyncio.wait_for(session.wait_until_idle(), 60)
    fold = next(r.fact for r in session.all_facts if isinstance(r.fact, Folded))
    assert 'pages "3-7"' in fold.text
    assert "Chapter 1" in fold.text
    assert sent == fold.tokens < attached.tokens / 10
    shown = session.conversation.current_view()
    blocks = [block for block in shown.blocks if block.kind is ContextKind.CONVERSATION]
    assert sum(block.tokens for block in blocks) < attached.tokens


async def test_the_agent_reads_pages_of_files_and_of_what_was_attached(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("Pairs", folder)
    (folder / "report.pdf").write_bytes(written.pdf(pages=9))
    (attached,) = await bench.attach_file("report.pdf", written.pdf(pages=9))
    session = await bench.start_conversation()
    for number, source in enumerate(("report.pdf", attached.stored.digest.hex)):
        arguments = json.dumps({"document": source, "pages": "3-4"})
        done = await session.run_user_call(
            "test", ToolCall(f"c{number}", "read_document", arguments)
        )
        text = (await bench.workspace.cache.read_content(done.output.digest)).decode()
        assert done.ok
        assert "page 3" in text
        assert "page 4" in text
        assert "page 5 of" not in text


async def test_forgetting_in_an_open_workspace_deletes_copies_of_failed_imports_with_the_text(
    desks: Desks, folder: Path
) -> None:
    """The command line deleted them; the window, its offer to forget keys and its import did not."""
    bench = await bench_on(desks, folder)
    data = bench.workspace.folder.parent.parent
    kept = data / "recorder" / "1.failed" / "home" / "s.jsonl"
    forgotten = data / "recorder" / "2.failed" / "home" / "s.jsonl"
    for file, words in ((kept, "something else"), (forgotten, "the key is swordfish-4711")):
        file.parent.mkdir(parents=True)
        file.write_text(words)
    await bench.forget_content(text="swordfish-4711")
    assert (kept.exists(), forgotten.exists()) == (True, False)
    assert not [
        file
        for file in data.rglob("*")
        if file.is_file() and b"swordfish-4711" in file.read_bytes()
    ]


async def test_forgetting_in_an_open_workspace_leaves_the_replies_of_others_that_were_cut_off(
    desks: Desks, folder: Path
) -> None:
    """All were deleted, although a killed program had left them for when they are opened."""
    bench = await bench_on(desks, folder)
    partial = bench.workspace.folder / "partial"
    partial.mkdir(exist_ok=True)
    other_reply = partial / "c2.json"
    other_reply.write_text(json.dumps({"after": 1, "text": "an hour of work"}))
    for name in ("c1.json", ".c1.json-0123abcd"):
        (partial / name).write_text(json.dumps({"after": 1, "text": "it is swordfish-4711"}))
    forgotten = await bench.forget_content(text="swordfish-4711")
    assert forgotten.elsewhere == ()
    assert forgotten.outside_facts == 2
    assert list(partial.iterdir()) == [other_reply]
