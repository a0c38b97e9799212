"""Content is read once, when it is looked at; what cannot be read says so."""

from __future__ import annotations

from helix_desktop.engine.facts import Stored
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.content_fetching import LARGEST_PICTURE, FetchedTranscriptContent
from tests.gui.fake_desk import now
from tests.gui.transcript.conftest import MemorySource
from tests.gui.transcript.facts import Told, call


def stored(content: bytes) -> Stored:
    return Stored(Digest.of_content(content), len(content), 1)


def test_a_text_is_read_once(theme: Theme, source: MemorySource) -> None:
    text = stored(b"hello")
    source.contents[text.digest] = b"hello"
    content = FetchedTranscriptContent(source, BackgroundRunner(now))
    arrived: list[bool] = []
    content.content_arrived.connect(lambda: arrived.append(True))
    assert content.get_or_fetch_entry_text(text) is None
    assert content.get_or_fetch_entry_text(text) == "hello"
    assert content.get_or_fetch_entry_text(text) == "hello"
    assert (len(source.read_digests), arrived) == (1, [True])


def test_bytes_are_not_shown_as_text(theme: Theme, source: MemorySource) -> None:
    binary = stored(b"\0\1\2")
    source.contents[binary.digest] = b"\0\1\2"
    content = FetchedTranscriptContent(source, BackgroundRunner(now))
    content.get_or_fetch_entry_text(binary)
    assert "not text" in (content.get_or_fetch_entry_text(binary) or "")


def test_a_text_with_a_stray_zero_byte_is_shown(theme: Theme, source: MemorySource) -> None:
    text = stored(b"./README.md\0./helix_desktop/cli.py\0")
    source.contents[text.digest] = b"./README.md\0./helix_desktop/cli.py\0"
    content = FetchedTranscriptContent(source, BackgroundRunner(now))
    content.get_or_fetch_entry_text(text)
    assert "cli.py" in (content.get_or_fetch_entry_text(text) or "")


def test_damage_is_said_and_asked_about_once(theme: Theme, source: MemorySource) -> None:
    source.broken = CacheCorrupt(
        "The bytes of 41f3…9ac2 do not match their hash.", remedy="Restore a backup."
    )
    content = FetchedTranscriptContent(source, BackgroundRunner(now))
    bad = stored(b"bad")
    content.get_or_fetch_entry_text(bad)
    content.get_or_fetch_entry_text(bad)
    assert (
        content.explain_missing_entry(bad.digest)
        == "The bytes of 41f3…9ac2 do not match their hash. Restore a backup."
    )
    assert len(source.read_digests) == 1
    content.discard_failures_and_subagent_items()
    assert content.explain_missing_entry(bad.digest) == ""


def test_a_sub_agents_conversation(theme: Theme, source: MemorySource) -> None:
    told = Told()
    told.user("find it")
    source.children["child"] = told.facts
    content = FetchedTranscriptContent(source, BackgroundRunner(now))
    content.get_or_fetch_subagent_items("child")
    items = content.get_or_fetch_subagent_items("child")
    assert items is not None
    assert len(items.all) == 1


def test_the_call_of_a_sub_agent_that_works_is_running_until_it_has_ended(
    theme: Theme, source: MemorySource
) -> None:
    told = Told()
    told.user("find it")
    told.reply("", call(1))
    source.children["child"] = told.facts
    source.running["child"] = ConversationActivity.TOOLS
    content = FetchedTranscriptContent(source, BackgroundRunner(now))
    content.get_or_fetch_subagent_items("child")
    items = content.get_or_fetch_subagent_items("child")
    assert items is not None
    (running,) = items.running_call_items()
    assert items.tool_call_state(running).running
    source.running.clear()
    content.refetch_subagent_items()
    items = content.get_or_fetch_subagent_items("child")
    assert items is not None
    assert not items.tool_call_state(running).running


def test_a_huge_picture_is_not_read(theme: Theme, source: MemorySource) -> None:
    content = FetchedTranscriptContent(source, BackgroundRunner(now))
    huge = Stored(Digest.of_content(b"x"), LARGEST_PICTURE + 1, 0, "image/png")
    assert content.get_or_fetch_entry_image(huge) is None
    assert "too large" in content.explain_missing_entry(huge.digest)
    assert source.read_digests == []
