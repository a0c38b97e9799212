from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, ProcessPlace
from helix_desktop.tools.permission import PermissionRule
from helix_desktop.tools.sandbox import Sandbox, SandboxKind, is_sandbox_effective
from helix_desktop.tools.search_files_tool import _iterate_whole_rows
from tests.tools.world import World


@pytest.fixture(params=["ripgrep", "ours"])
def way(request: pytest.FixtureRequest, here: World, monkeypatch: pytest.MonkeyPatch) -> World:
    if request.param == "ours":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    elif shutil.which("rg") is None or here.kit.sandbox.kind is SandboxKind.NONE:
        pytest.skip("ripgrep, or what keeps it inside, is not here")
    return here


async def test_files_are_searched(way: World) -> None:
    way.write("a.py", "def one():\n    pass\n")
    way.write("src/b.ts", "one\ntwo\n")
    way.write("src/c.py", "three\n")
    assert await way.said("search_files", pattern="one") == "a.py:1: def one():\nsrc/b.ts:1: one"
    assert (
        await way.said("search_files", pattern="ONE", ignore_case=True, files="*.ts")
        == "src/b.ts:1: one"
    )
    assert (
        await way.said("search_files", pattern="two|three", path="src")
        == "src/b.ts:2: two\nsrc/c.py:1: three"
    )
    assert (
        await way.said("search_files", pattern="two", path="src/b.ts", context=1)
        == "src/b.ts-1- one\nsrc/b.ts:2: two"
    )
    assert "no line matches" in await way.said("search_files", pattern="four")


async def test_files_are_named_in_the_ways_models_name_them(way: World) -> None:
    way.write("a.py", "one\n")
    way.write("src/b.ts", "one\n")
    way.write("src/c.js", "one\n")
    assert (
        await way.said("search_files", pattern="one", files="*.py, *.ts")
        == "a.py:1: one\nsrc/b.ts:1: one"
    )
    assert (
        await way.said("search_files", pattern="one", files=f"{way.folder}/src/*.js")
        == "src/c.js:1: one"
    )
    said = await way.said("search_files", pattern="one", files="*.rs")
    assert said == "[no line matches one in files that fit *.rs]"
    assert "lines are matched one by one" in await way.said("search_files", pattern=r"one\ntwo")


async def test_commas_separate_patterns_with_braces_too(way: World) -> None:
    way.write("a.py", "one\n")
    way.write("src/b.tsx", "one\n")
    way.write("src/c.js", "one\n")
    said = await way.said("search_files", pattern="one", files="*.py,src/*.{ts,tsx}")
    assert said == "a.py:1: one\nsrc/b.tsx:1: one"


async def test_of_a_long_line_the_match_is_shown_whatever_letters_are_before_it(
    way: World,
) -> None:
    way.write("a.txt", "é" * 2_000 + "needle" + "ü" * 2_000 + "\n")
    said = await way.said("search_files", pattern="needle")
    assert "éneedleü" in said
    assert len(said) < 600


async def test_a_line_in_another_encoding_is_shown_as_a_read_shows_it(way: World) -> None:
    way.write("a.txt", b"caf\xe9 one\n")
    assert await way.said("search_files", pattern="one") == "a.txt:1: caf\ufffd one"


@pytest.mark.parametrize("pattern", ["[]", "{}", "*", "(", "\0", "a\0b", "5)", '{"type":1'])
async def test_no_pattern_is_more_than_a_search_can_bear(way: World, pattern: str) -> None:
    way.write("a", "text\n")
    said = await way.said("search_files", pattern=pattern, path="a")
    assert "is not a valid regular expression" in said or "no line matches" in said


async def test_a_file_that_is_one_huge_line_does_not_spoil_the_search(way: World) -> None:
    way.write("bundle.js", "needle x " * 200_000 + "\nneedle of the next line\n")
    way.write("short.txt", "a needle\n")
    rows = (await way.said("search_files", pattern="needle")).splitlines()
    assert rows[-1] == "short.txt:1: a needle"
    assert [row.partition(":")[0] for row in rows] == ["bundle.js", "bundle.js", "short.txt"]
    assert rows[1] == "bundle.js:2: needle of the next line"
    assert max(map(len, rows)) < 1_000


async def test_of_a_row_too_long_only_a_note_is_kept() -> None:
    row = (
        b'{"type":"match","data":{"path":{"text":"a\\"b.js"},"lines":{"text":"'
        + b"x" * 5_000_000
        + b'"}}}'
    )
    said = row + b"\n{}\n"

    async def output() -> AsyncIterator[bytes]:
        for at in range(0, len(said), 65_536):
            yield said[at : at + 65_536]

    noted, other = [row async for rows in _iterate_whole_rows(output()) for row in rows]
    assert (json.loads(noted)["type"], json.loads(noted)["data"]["path"]["text"]) == (
        "match",
        'a"b.js',
    )
    assert (len(noted) < 1_000, other) == (True, b"{}")


async def test_names_and_lines_cannot_pass_for_other_files(way: World) -> None:
    way.write("evil\nother.py:1: fake", "needle\n")
    way.write("data", "needle " + "x" * 5000 + "\n")
    rows = (await way.said("search_files", pattern="needle")).splitlines()
    assert len(rows) == 2
    assert rows[1].startswith("evil\\nother.py:1: fake:1: needle")
    assert len(rows[0]) < 600


async def test_the_number_of_hits_is_limited_and_said(way: World) -> None:
    way.write("a", "x\n" * 900)
    rows = (await way.said("search_files", pattern="x", limit=5)).splitlines()
    assert len(rows) == 6
    assert rows[-1] == "[… 895 more matching lines]"


async def test_nothing_outside_is_searched(way: World, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("needle\n")
    way.write("inside", "needle\n")
    (way.folder / "link").symlink_to(tmp_path / "outside")
    (way.folder / "file").symlink_to(tmp_path / "outside" / "secret")
    assert await way.said("search_files", pattern="needle") == "inside:1: needle"
    assert "outside" in await way.said(
        "search_files", pattern="needle", path=str(tmp_path / "outside")
    )
    for path in ("link", "file"):
        outcome = await way.run("search_files", pattern="needle", path=path)
        assert not outcome.ok


async def test_binary_files_and_gits_own_are_left_out(way: World) -> None:
    way.write("a.bin", b"needle\x00\x01")
    way.write(".git/config", "needle\n")
    way.write(".hidden", "needle\n")
    assert await way.said("search_files", pattern="needle") == ".hidden:1: needle"


async def test_a_pattern_only_python_knows_is_searched_by_ourselves(here: World) -> None:
    here.write("a", "foobar\nfoobaz\n")
    assert await here.said("search_files", pattern="foo(?!bar)") == "a:2: foobaz"
    assert "is not a valid regular expression" in await here.said("search_files", pattern="(")


async def test_ripgrep_reads_nothing_but_the_roots(here: World, tmp_path: Path) -> None:
    """What a race between looking and opening could reach is not there for it."""
    for kind in (SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK):
        sandbox = dataclasses.replace(here.kit.sandbox, kind=kind)
        if not await is_sandbox_effective(sandbox):
            continue
        (tmp_path / "secret").write_text("needle\n")
        here.write("inside", "needle\n")
        assert (
            await everything(
                sandbox, ["/bin/cat", str(tmp_path / "secret"), str(here.folder / "inside")]
            )
            == "needle\n"
        )


async def everything(sandbox: Sandbox, argv: list[str]) -> str:
    command = await RunningCommand.start_in_jail(
        ProcessLaunch(
            CommandAuthor.PROGRAM, argv, "/", {"PATH": "/usr/bin"}, place=ProcessPlace.SANDBOX
        ),
        lambda lifeline: sandbox.wrap_trusted_reader(argv, lifeline) or [],
    )
    try:
        said = b"".join([piece async for piece in command.iterate_output()])
    finally:
        await command.kill_and_wait()
    return "".join(
        line + "\n" for line in said.decode().splitlines() if not line.startswith("/bin/cat:")
    )


async def test_what_a_rule_keeps_from_being_read_is_not_found_either(way: World) -> None:
    way.write("private", "needle\n")
    way.write("sub/private", "needle\n")
    way.write("plain", "needle\n")
    way.kit.permissions.rules = (PermissionRule("deny", path="**/private"),)
    assert await way.said("search_files", pattern="needle") == "plain:1: needle"
    assert (await way.run("read_file", path="sub/PRIVATE")).refused
    assert (await way.run("read_file", path="private")).refused


async def test_a_name_that_is_no_text_shows_nothing_that_is_hidden_or_denied(way: World) -> None:
    odd = way.folder / os.fsdecode(b"conf\xe9")
    odd.mkdir()
    for name in ("private", ".env", "plain"):
        (odd / name).write_text("needle\n")
    way.kit.permissions.rules = (PermissionRule("deny", path="**/private"),)
    assert await way.said("search_files", pattern="needle") == "conf\\udce9/plain:1: needle"
