"""A span as text: what the view shows for a writer, what was said for the collector."""

from __future__ import annotations

from helix_desktop.engine import span_text_and_detail_sources
from helix_desktop.engine.facts import (
    Attachment,
    Excluded,
    FoldKind,
    ModelReplied,
    PartRef,
    Reasoning,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.in_memory_stores import MemoryCache
from tests.engine.talk import Talk, stored


async def told() -> tuple[Talk, MemoryCache]:
    """A message with an attachment, a reply with everything, its output, and a picture."""
    cache = MemoryCache()
    file = await cache.store_content(b"Never touch it.", EntryOrigin("user", "rules.txt"))
    output = await cache.store_content(b"the output", EntryOrigin("run"))
    picture = await cache.store_content(b"bytes", EntryOrigin("run", "", "image/png"))
    talk = Talk()
    talk.add(
        UserSaid(
            (
                Text("see the file", 3),
                Attachment("rules.txt", file, 4),
                Attachment("p.png", picture, 4),
            )
        )
    )
    said = (
        Reasoning("secret thoughts", 5),
        Text("I look", 2),
        ToolCall("a", "run", '{"command": "ls"}', 5),
    )
    talk.add(ModelReplied(said, "m", Stop.CALLS))
    talk.add(ToolReturned("a", output, 200, exit_code=1, images=(picture,)))
    talk.user("next")
    return talk, cache


async def test_a_writer_reads_what_the_view_shows() -> None:
    talk, cache = await told()
    talk.fold("m", PartRef(3), kind=FoldKind.MARKER)
    passages = [
        text
        async for text in span_text_and_detail_sources.read_span_texts(
            talk.state.branch, talk.state.branch.items_in_span(Span(1, 3)), cache
        )
    ]
    assert len(passages) == 3
    text = "\n".join(passage.text for passage in passages)
    assert "[1] user: see the file" in text
    assert "user attached rules.txt:\nNever touch it." in text
    assert "[2] assistant: I look" in text
    assert 'call of run: {"command": "ls"}' in text
    assert "output of run:\ntext of m" in text
    assert "secret thoughts" not in text


async def test_who_takes_observations_is_told_when_things_were_said() -> None:
    talk, cache = await told()
    passages = [
        text
        async for text in span_text_and_detail_sources.read_span_texts(
            talk.state.branch, talk.state.branch.items_in_span(Span(1, 2)), cache, dated=True
        )
    ]
    assert [passage.text[:22] for passage in passages] == [
        "[1] 1970-01-01 00:00 u",
        "[2] 1970-01-01 00:00 a",
    ]


async def test_a_writer_reads_documents_as_they_are() -> None:
    talk, cache = await told()
    talk.add(UserSaid((Text("more", 500),)))
    talk.fold("h", Span(1, 3))
    (passage,) = [
        text
        async for text in span_text_and_detail_sources.read_span_texts(
            talk.state.branch, talk.state.branch.items_in_span(Span(1, 3)), cache
        )
    ]
    assert passage.text.startswith("[1–3] text of h")


async def test_the_collector_reads_originals() -> None:
    talk, cache = await told()
    talk.fold("m", PartRef(3), kind=FoldKind.MARKER)
    user, said, call, output = await span_text_and_detail_sources.read_detail_sources(
        talk.state.branch, [1, 2, 3], cache
    )
    assert user.text == "see the file\nNever touch it."
    assert [name.split()[0] for name in user.names] == ["rules.txt", "p.png"]
    assert (said.role, said.text) == ("assistant", "I look")
    assert (call.role, call.tool, call.text) == ("call", "run", '{"command": "ls"}')
    assert (output.text, output.tool, output.ok) == ("the output", "run", False)


async def test_what_was_taken_out_stays_out() -> None:
    talk, cache = await told()
    for ref in (PartRef(1, 0), PartRef(1, 1), PartRef(2, 1), PartRef(3)):
        talk.add(Excluded(ref))
    found = await span_text_and_detail_sources.read_detail_sources(
        talk.state.branch, [1, 2, 3], cache
    )
    assert [source.role for source in found] == ["user", "call"]
    assert "file" not in found[0].text


async def test_every_entry_is_listed_with_what_it_is() -> None:
    talk, _ = await told()
    found = list(
        span_text_and_detail_sources.details_of_stored_entries(talk.state.branch, [1, 2, 3])
    )
    assert len(found) == 4
    assert found[2].text.endswith("run ls · exit 1 · 1 line · 10 B")


async def test_long_entries_are_read_at_both_ends_and_missing_ones_said_to_be() -> None:
    cache = MemoryCache()
    long = await cache.store_content(b"begin" + b"x" * (3 << 20) + b"end", EntryOrigin("run"))
    text = await span_text_and_detail_sources.read_stored_text(cache, long)
    assert len(text) < span_text_and_detail_sources.MOST_BYTES + 100
    assert text.startswith("begin")
    assert text.endswith("end")
    assert (
        await span_text_and_detail_sources.read_stored_text(cache, stored("never put"))
        == span_text_and_detail_sources.GONE
    )
    picture = await cache.store_content(b"bytes", EntryOrigin("run", "", "image/png"))
    assert "a picture" in await span_text_and_detail_sources.read_stored_text(cache, picture)
    huge = Stored(stored("never put").digest, 5 << 20)
    assert (
        await span_text_and_detail_sources.read_stored_text(cache, huge)
        == span_text_and_detail_sources.GONE
    )


async def test_what_an_agents_program_adds_is_not_the_users() -> None:
    """`<environment_context>` and `<turn_aborted>` stood as preferences in handovers."""
    talk = Talk()
    cache = MemoryCache()
    context = "<environment_context>\n<cwd>/srv/never</cwd>\n</environment_context>"
    aborted = "<turn_aborted>\nThe user must have interrupted it.\n</turn_aborted>"
    talk.user(f"{context}\n\nNever touch main.py")
    talk.user(aborted)
    sources = await span_text_and_detail_sources.read_detail_sources(
        talk.state.branch, [1, 2], cache
    )
    assert [(source.role, source.text) for source in sources] == [
        ("user", "Never touch main.py"),
        ("addition", context),
        ("addition", aborted),
    ]


def test_what_was_recalled_is_listed_by_its_file() -> None:
    talk = Talk()
    read = talk.step("a", text="whole")
    digest = stored("whole").digest
    for call, tool, asked in (
        ("b", "recall_cached_content", digest.hex),
        ("c", "mcp__helix__recall_cached_content", digest.hex[:8]),
        ("d", "recall_cached_content", "ffff"),
    ):
        arguments = f'{{"sha256": "{asked}"}}'
        talk.add(ModelReplied((ToolCall(call, tool, arguments, 9),), "m", Stop.CALLS))
        talk.output(call, f"lines of it, {call}")
    seqs = [seq for seq in talk.state.branch.order if seq >= read]
    details = span_text_and_detail_sources.details_of_stored_entries(talk.state.branch, seqs)
    about = [detail.text.partition(" ")[2] for detail in details]
    assert about[:3] == ["read a.py · 1 line · 5 B"] + ["part of read a.py · 1 line · 5 B"] * 2
    assert about[3].startswith("recall_cached_content ffff")
