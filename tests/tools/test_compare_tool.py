"""Two versions of a text are compared: files of the workspace, and what only the cache has."""

from __future__ import annotations

import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.tools import compare_tool
from helix_desktop.tools.permission import PermissionRule
from tests.tools.world import World


async def store(here: World, content: bytes) -> str:
    return (await here.cache.store_content(content, EntryOrigin("run_command"))).digest.hex


async def test_a_file_is_compared_with_what_was_stored_of_it_before(here: World) -> None:
    earlier = await store(here, b"one\ntwo\nthree\n")
    (here.folder / "a.txt").write_text("one\n2\nthree\n")
    outcome = await here.run("compare_versions", before=earlier[:12], after="a.txt")
    assert here.text(outcome).splitlines() == [
        f"--- {earlier[:12]} and a.txt", f"+++ {earlier[:12]} and a.txt",
        "@@ -1,3 +1,3 @@", " one", "-two", "+2", " three",
    ]  # fmt: skip


async def test_two_entries_that_are_equal_are_said_to_be(here: World) -> None:
    first = await store(here, b"same\n")
    outcome = await here.run("compare_versions", before=first, after=first[:20])
    assert here.text(outcome) == "They are equal."


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("picture.png", b"\x89PNG\0\0", "is no text"),
        ("large.txt", b"x" * (compare_tool.LARGEST_VERSION + 1), "bytes"),
        ("../outside.txt", None, "outside"),
        ("missing.txt", None, "missing.txt"),
        ("0123456789abcdef", None, "0123456789abcdef"),
    ],
)
async def test_what_cannot_be_compared_gets_a_sentence(
    here: World, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (here.folder / name).write_bytes(content)
    earlier = await store(here, b"one\n")
    outcome = await here.run("compare_versions", before=earlier, after=name)
    assert not outcome.ok
    assert words in here.text(outcome)


async def test_an_entry_that_is_too_large_is_not_read(here: World) -> None:
    large = await store(here, b"x" * (compare_tool.LARGEST_VERSION + 1))
    outcome = await here.run("compare_versions", before=large, after=large)
    assert "at most" in here.text(outcome)


async def test_a_hidden_file_is_not_compared(here: World) -> None:
    (here.folder / ".env").write_text("SECRET=1\n")
    earlier = await store(here, b"SECRET=0\n")
    outcome = await here.run("compare_versions", before=earlier, after=".env")
    assert not outcome.ok
    assert "SECRET=1" not in here.text(outcome)


async def test_no_link_leads_past_a_rule_that_denies(here: World) -> None:
    here.kit.permissions.rules = (PermissionRule("deny", path="secret/*"),)
    here.write("secret/plan.txt", "of the plan\n")
    (here.folder / "link.txt").symlink_to("secret/plan.txt")
    earlier = await store(here, b"before\n")
    for path in ("secret/plan.txt", "link.txt"):
        said = await here.said("compare_versions", before=earlier, after=path)
        assert "of the plan" not in said
