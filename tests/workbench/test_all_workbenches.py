"""What is done with whole workspaces: to a file and back, other folders, the trash."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import Text, ToolReturned
from helix_desktop.errors import ActionRefused, NotFound, StoreBusy, StoreFailed, StoreFull
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools import workspace_tools
from helix_desktop.tools.git_identity import write_identity
from helix_desktop.workbench import Workbench, Workbenches, use_workbench, workbench_of
from tests.cutting import cut_everywhere
from tests.workbench.conftest import Desks


async def read_in(bench: Workbench, file: str) -> bytes:
    """What the scripted model is given of a file."""
    session = await bench.start_conversation()
    session.send_message((Text(f"read {file}"),))
    await session.wait_until_idle()
    (returned,) = (r.fact for r in session.all_facts if isinstance(r.fact, ToolReturned))
    return await bench.workspace.cache.read_range(returned.output.digest, 0, 1_000)


async def test_an_export_comes_back_as_a_workspace_of_its_own(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await bench.attach_content("a.txt", b"in the cache", "text/plain")
    await bench.start_conversation("Kept")
    heard: list[tuple[int, int]] = []
    await desk.export_workspace(
        bench.id, tmp_path / "pairs.helix", lambda done, total: heard.append((done, total))
    )
    assert heard[-1][0] == (tmp_path / "pairs.helix").stat().st_size
    imported = await desk.import_workspace(tmp_path / "pairs.helix")
    copy = await desk.open_workspace(imported.id)
    assert (imported.name, imported.left_out, copy.id != bench.id) == ("Pairs", (), True)
    assert [row.title for row in copy.list_conversations()] == ["Kept"]
    assert copy.workspace.settings.roots == ()
    with pytest.raises(StoreFailed):
        await desk.export_workspace(bench.id, tmp_path / "no such folder" / "pairs.helix")


async def test_folders_that_are_not_here_are_not_taken_over(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await bench.change_settings({"roots": [str(folder), str(tmp_path / "of another machine")]})
    await desk.export_workspace(bench.id, tmp_path / "pairs.helix")
    copy = await desk.open_workspace((await desk.import_workspace(tmp_path / "pairs.helix")).id)
    question = copy.next_imported_question()
    assert question is not None
    await copy.decide_imported_question(question, accept=True)
    assert copy.workspace.settings.roots == (str(folder),)


async def test_an_opening_that_is_cut_off_anywhere_leaves_nothing_and_it_opens_again(
    desks: Desks, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await desk.close_workspace(bench.id)

    async def look() -> None:
        assert not list((tmp_path / "temporary").iterdir())
        assert not [
            thread.name for thread in threading.enumerate() if thread.name.startswith("store")
        ]
        await (await desk._known.open_stored_workspace(bench.id)).aclose()

    assert (await cut_everywhere(lambda: desk.open_workspace(bench.id), look)).name == "Pairs"


async def test_an_opening_that_is_cut_off_while_a_thread_writes_for_it_leaves_nothing(
    desks: Desks, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await desk.close_workspace(bench.id)
    written = threading.Event()
    may_end = threading.Event()

    def write_and_wait(place: Path, roots: Sequence[Path]) -> None:
        write_identity(place, roots)
        written.set()
        may_end.wait(60)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(workspace_tools, "write_identity", write_and_wait)
    (tmp_path / "temporary").mkdir()
    opening = asyncio.ensure_future(desk.open_workspace(bench.id))  # noqa: TID251 - a test's own task
    await asyncio.to_thread(written.wait, 60)
    opening.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert not list((tmp_path / "temporary").iterdir())


async def test_other_folders_are_what_its_tools_may_enter(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await bench.choose_model_for_role("demo/demo")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "there.txt").write_text("in the other folder")
    changed = await desk.set_workspace_folders(bench.id, [tmp_path / "other"])
    assert changed.main_folder == tmp_path / "other"
    assert b"in the other folder" in await read_in(changed, "there.txt")
    assert b"src/pairs.py does not exist" in await read_in(changed, "src/pairs.py")
    with pytest.raises(NotFound):
        await desk.set_workspace_folders(bench.id, [tmp_path / "nowhere"])


async def test_a_folder_of_the_programs_own_becomes_no_workspace_but_the_tours(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    desk = desks()
    own = program_folders.find_program_folders(tmp_path / "home").data
    for name in ("inside", "tour"):
        (own / name).mkdir(parents=True)
    bench = await desk.create_workspace("Pairs", folder)
    for refused in (own, own / "inside"):
        with pytest.raises(ActionRefused, match="belongs to Helix Desktop"):
            await desk.create_workspace("Inside", refused)
        with pytest.raises(ActionRefused, match="belongs to Helix Desktop"):
            await desk.set_workspace_folders(bench.id, [folder, refused])
    assert [row.name for row in desk.list_workspaces()] == ["Pairs"]
    assert (await desk.create_workspace("Tour", own / "tour")).name == "Tour"


async def test_only_what_is_in_the_trash_is_deleted(desks: Desks, folder: Path) -> None:
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    with pytest.raises(NotFound):
        await desk.delete_workspace(bench.id)
    await desk.trash_workspace(workspace=bench.id)
    assert [row.name for row in desk.list_workspaces(trashed=True)] == ["Pairs"]
    await desk.delete_workspace(bench.id)
    assert list(desk.list_workspaces(trashed=True)) == []
    assert (folder / "src" / "pairs.py").exists()


async def test_a_closed_workspace_is_searched_and_one_that_another_program_has_open_is_not(
    folder: Path, tmp_path: Path
) -> None:
    where = program_folders.find_program_folders(tmp_path / "home")

    def desk() -> Workbenches:
        return Workbenches(
            where,
            SecretStorage(where.key_file, environ={}),
            serve=lambda opened: workspace_access.listen_for_commands(opened, where),
        )

    another = desk()
    here = desk()
    bench = await another.create_workspace("Pairs", folder)
    await bench.start_conversation("Kept")
    await bench.attach_content("a.txt", b"a needle in the cache", "text/plain")
    await bench.workspace.index.wait_until_indexed()
    with pytest.raises(StoreBusy, match="another program"):
        await here.search_closed_workspace(bench.id, "needle")
    await another.aclose()
    found = await here.search_closed_workspace(bench.id, "needle")
    assert [hit.snippet for hit in found.hits] == ["a needle in the cache"]
    await here.open_workspace(bench.id)
    with pytest.raises(StoreBusy):
        await here.search_closed_workspace(bench.id, "needle")
    await here.aclose()


async def test_a_model_set_by_the_command_line_beside_an_open_workspace_is_heard(
    folder: Path, tmp_path: Path
) -> None:
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(
        where,
        SecretStorage(where.key_file, environ={}),
        serve=lambda opened: workspace_access.listen_for_commands(opened, where),
    )
    bench = await desk.create_workspace("Pairs", folder)
    heard = asyncio.Event()
    bench.workspace.watch_settings(heard.set)
    command = [
        sys.executable,
        "-m",
        "helix_desktop",
        "model",
        "set",
        "demo/demo",
        "--workspace",
        "Pairs",
    ]
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "HELIX_HOME": str(tmp_path / "home")}
    )
    try:
        await asyncio.wait_for(heard.wait(), 60)
        assert await process.wait() == 0
        assert bench.main_model_name == "demo/demo"
    finally:
        await desk.aclose()


async def test_a_new_workspace_takes_over_the_models_chosen_last_but_not_the_demonstration(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    tour = await desk.create_workspace("Tour", folder)
    await tour.choose_model_for_role("demo/demo")
    mine = await desk.create_workspace("Mine", folder)
    assert mine.main_model_name == ""
    await mine.choose_model_for_role("openai/gpt-5")
    assert (await desk.create_workspace("Another", folder)).main_model_name == "openai/gpt-5"


async def test_what_fails_while_it_opens_or_closes_leaves_it_to_be_opened_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        async def finish_requests(self) -> None: ...

    async def serve(_: StoredWorkspace) -> Silent:
        if refusing:
            raise ActionRefused("Other users can access the folder for sockets.")
        return Silent()

    async def full() -> None:
        raise StoreFull("The journal could not be written: the disk is full.")

    refusing = True
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}), serve=serve)
    known = workspace_access.open_all_workspaces(where).create_stored_workspace("Pairs", folder)
    for _ in range(2):
        with pytest.raises(ActionRefused):
            await desk.open_workspace(known.id)
    refusing = False
    bench = await desk.open_workspace(known.id)
    monkeypatch.setattr(bench.sharing, "stop_conversation_sync", full)
    closed: list[str] = []
    monkeypatch.setattr(
        bench.mcp_servers, "aclose", partial(_note, closed, bench.mcp_servers.aclose)
    )
    with pytest.raises(StoreFull):
        await desk.close_workspace(known.id)
    assert closed == ["closed"]
    assert (await desk.open_workspace(known.id)).name == "Pairs"
    await desk.aclose()


async def test_one_workspace_that_fails_while_all_are_closed_keeps_no_other_open(
    desks: Desks, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> None:
        raise StoreFull("The journal could not be written: the disk is full.")

    desk = desks()
    closed: list[str] = []
    one = await desk.create_workspace("One", folder)
    other = await desk.create_workspace("Other", folder)
    monkeypatch.setattr(one.mcp_servers, "aclose", fails)
    monkeypatch.setattr(other.workspace, "aclose", partial(_note, closed, other.workspace.aclose))
    monkeypatch.setattr(desk.connections, "aclose", partial(_note, closed, desk.connections.aclose))
    with pytest.raises(StoreFull):
        await desk.aclose()
    assert closed == ["closed", "closed"]


async def _note(closed: list[str], closing: Callable[[], Awaitable[None]]) -> None:
    await closing()
    closed.append("closed")


async def test_commands_that_come_at_once_share_one_workbench_until_the_last_is_done(
    desks: Desks, folder: Path, tmp_path: Path
) -> None:
    desk = desks()
    bench = await desk.create_workspace("Pairs", folder)
    await desk.close_workspace(bench.id)
    places = program_folders.find_program_folders(tmp_path / "home")
    workspace = await desk._known.open_stored_workspace(bench.id)
    begun = [asyncio.Event(), asyncio.Event()]
    used: list[Workbench] = []

    async def use_until(end: asyncio.Event, at: int) -> None:
        async with use_workbench(workspace, places) as one:
            used.append(one)
            begun[at].set()
            await end.wait()

    first = asyncio.Event()
    second = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(use_until(first, 0))
        group.create_task(use_until(second, 1))
        await asyncio.gather(*(one.wait() for one in begun))
        assert used[0] is used[1]
        first.set()
        await leaving
        assert workbench_of(workspace) is used[1]
        await used[1].start_conversation("still open")
        second.set()
    assert workbench_of(workspace) is None
    await workspace.aclose()
