from __future__ import annotations

import ast
import contextlib
import errno
import os
import socket
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.tools import folder_handles, workspace_roots
from helix_desktop.tools.workspace_roots import WorkspaceRoots

ROUNDS = 100


@pytest.fixture
def roots(tmp_path: Path) -> WorkspaceRoots:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "own").mkdir()
    (tmp_path / "one" / "own" / "journal").write_text("ours")
    return WorkspaceRoots.from_folders(
        [tmp_path / "one", tmp_path / "two"], [tmp_path / "one" / "own"]
    )


def read(roots: WorkspaceRoots, path: str) -> bytes:
    return workspace_roots.read_whole_file(roots, roots.resolve_path(path))


def write(roots: WorkspaceRoots, path: str, content: bytes) -> None:
    place = roots.resolve_path(path)
    before = workspace_roots.read_file_or_none(roots, place)
    workspace_roots.replace_file(
        roots, place, content, expected=None if before is None else Digest.of_content(before)
    )


def test_a_folder_that_is_opened_by_a_link_is_known_by_that_name_too(
    roots: WorkspaceRoots, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to("one")
    linked = WorkspaceRoots.from_folders([tmp_path / "link"], roots.closed_paths)
    write(linked, str(tmp_path / "link" / "file"), b"a")
    assert read(linked, str(tmp_path / "one" / "file")) == read(linked, "file") == b"a"
    assert linked.display_path(linked.resolve_path(str(tmp_path / "link" / "file"))) == "file"
    assert (
        linked.split_full_pattern(f"{tmp_path}/link/*.py")
        == linked.split_full_pattern(f"{tmp_path}/one/*.py")
        == (tmp_path / "one", "*.py")
    )
    assert linked.split_full_pattern("*.py") is None
    for path in ("link/own/journal", "link/../outside/secret", "outside/secret", "two/x"):
        with pytest.raises(HelixError):
            read(linked, str(tmp_path / path))


def test_files_are_written_and_read_in_every_root(roots: WorkspaceRoots) -> None:
    write(roots, "new/folder/file", b"a")
    write(roots, str(roots.folders[1] / "file"), b"b")
    assert read(roots, "new/folder/file") == b"a"
    assert (roots.folders[1] / "file").read_bytes() == b"b"
    assert roots.display_path(roots.resolve_path("new/folder/file")) == "new/folder/file"
    assert roots.display_path(roots.resolve_path(str(roots.folders[1] / "file"))) == str(
        roots.folders[1] / "file"
    )


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "a/../../outside/secret",
        "/etc/passwd",
        "/proc/self/environ",
        "~/.ssh/id_rsa",
        "new/../own/journal",
    ],
)
def test_paths_that_lead_out_are_refused(roots: WorkspaceRoots, path: str) -> None:
    with pytest.raises(ActionRefused):
        read(roots, path)
    with pytest.raises(ActionRefused):
        write(roots, path, b"x")


@pytest.mark.parametrize("path", ["", "  ", "a\0b"])
def test_what_is_no_path_is_wrong(roots: WorkspaceRoots, path: str) -> None:
    with pytest.raises(InvalidInput):
        roots.resolve_path(path)


@pytest.mark.parametrize("path", ["own/journal", "OWN/journal", "own"])
def test_the_programs_own_data_is_closed_in_every_spelling(
    roots: WorkspaceRoots, path: str
) -> None:
    with pytest.raises(ActionRefused, match="belongs to Helix"):
        read(roots, path)


def test_a_link_to_the_programs_own_data_is_closed_too(roots: WorkspaceRoots) -> None:
    (roots.folders[0] / "link").symlink_to("own/journal")
    with pytest.raises(ActionRefused):
        read(roots, "link")


def test_links_that_lead_out_are_refused_for_reading_and_writing(
    roots: WorkspaceRoots, tmp_path: Path
) -> None:
    (roots.folders[0] / "file").symlink_to("../outside/secret")
    (roots.folders[0] / "folder").symlink_to(tmp_path / "outside")
    for path in ("file", "folder/secret", "folder/new"):
        with pytest.raises(ActionRefused):
            read(roots, path)
        with pytest.raises(ActionRefused):
            write(roots, path, b"x")
    assert [path.read_text() for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_a_link_inside_is_written_through_and_stays_a_link(roots: WorkspaceRoots) -> None:
    (roots.folders[0] / "AGENTS.md").write_text("old")
    (roots.folders[0] / "CLAUDE.md").symlink_to("AGENTS.md")
    write(roots, "CLAUDE.md", b"new")
    assert (roots.folders[0] / "CLAUDE.md").is_symlink()
    assert (roots.folders[0] / "AGENTS.md").read_text() == "new"


def test_a_write_to_a_file_with_a_second_link_leaves_the_other_name_as_it_is(
    roots: WorkspaceRoots, tmp_path: Path
) -> None:
    (tmp_path / "one" / "twin").hardlink_to(tmp_path / "outside" / "secret")
    assert read(roots, "twin") == b"secret"
    write(roots, "twin", b"new")
    assert (tmp_path / "outside" / "secret").read_bytes() == b"secret"
    workspace_roots.delete_file(
        roots, roots.resolve_path("twin"), expected=Digest.of_content(b"new")
    )
    assert (tmp_path / "outside" / "secret").read_bytes() == b"secret"


def test_devices_pipes_and_sockets_are_refused(
    roots: WorkspaceRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(roots.folders[0] / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(roots.folders[0])
        listening.bind("socket")
        for path in ("pipe", "socket"):
            with pytest.raises(ActionRefused):
                read(roots, path)
            with pytest.raises(ActionRefused):
                write(roots, path, b"x")
    if os.geteuid() == 0:
        os.mknod(roots.folders[0] / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        with pytest.raises(ActionRefused):
            read(roots, "zero")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux")
def test_proc_is_refused_even_where_it_lies_in_a_root() -> None:
    for path in (
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/proc/1/maps",
        "/sys/kernel/mm/hugepages",
    ):
        with pytest.raises(HelixError):
            read(WorkspaceRoots.from_folders([Path("/")]), path)


def test_writing_keeps_the_mode_and_leaves_nothing_beside(roots: WorkspaceRoots) -> None:
    script = roots.folders[0] / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    write(roots, "run.sh", b"new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert sorted(path.name for path in roots.folders[0].iterdir()) == ["own", "run.sh"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(roots: WorkspaceRoots) -> None:
    write(roots, "file", b"seen")
    (roots.folders[0] / "file").write_text("changed")
    with pytest.raises(ActionRefused, match="changed since"):
        workspace_roots.replace_file(
            roots, roots.resolve_path("file"), b"new", expected=Digest.of_content(b"seen")
        )
    with pytest.raises(ActionRefused, match="changed since"):
        workspace_roots.replace_file(roots, roots.resolve_path("file"), b"new", expected=None)
    with pytest.raises(ActionRefused, match="changed since"):
        workspace_roots.delete_file(
            roots, roots.resolve_path("file"), expected=Digest.of_content(b"seen")
        )
    assert (roots.folders[0] / "file").read_text() == "changed"


@pytest.mark.parametrize(
    ("was", "content"), [(b"seen", b"the agent's"), (None, b"the agent's"), (b"seen", None)]
)
def test_what_somebody_saves_between_the_check_and_the_write_is_kept(
    roots: WorkspaceRoots, was: bytes | None, content: bytes | None
) -> None:
    file = roots.folders[0] / "file"
    place = roots.resolve_path("file")
    saved = list[int]()
    if was is not None:
        file.write_bytes(was)

    def save_once_checked(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code.co_name == "read_file_or_none" and not saved:
            saved.append(file.write_bytes(b"somebody's"))

    seen = None if was is None else Digest.of_content(was)
    replace = partial(workspace_roots.replace_file, roots, place, content or b"", expected=seen)
    delete = partial(workspace_roots.delete_file, roots, place, expected=Digest.of_content(b"seen"))
    sys.setprofile(save_once_checked)
    try:
        with pytest.raises(ActionRefused, match="changed since"):
            delete() if content is None else replace()
    finally:
        sys.setprofile(None)
    assert sorted(path.name for path in roots.folders[0].iterdir()) == ["file", "own"]
    assert file.read_bytes() == b"somebody's"


def test_a_failed_write_leaves_the_file_and_nothing_else(
    roots: WorkspaceRoots, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(roots, "file", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ActionRefused, match="no room"):
        write(roots, "file", b"new")
    assert sorted(path.name for path in roots.folders[0].iterdir()) == ["file", "own"]
    assert (roots.folders[0] / "file").read_bytes() == b"old"


def test_folders_and_what_is_not_there_get_a_sentence(roots: WorkspaceRoots) -> None:
    with pytest.raises(InvalidInput, match="is a folder"):
        read(roots, ".")
    with pytest.raises(NotFound, match="a/b does not exist"):
        read(roots, "a/b")
    with pytest.raises(InvalidInput, match="folder"):
        write(roots, ".", b"")
    with pytest.raises(InvalidInput, match="longer than"):
        write(roots, "x" * 300, b"")
    write(roots, "large", b"12345")
    with pytest.raises(InvalidInput, match="5 bytes"):
        workspace_roots.read_whole_file(roots, roots.resolve_path("large"), limit=4)


@pytest.mark.parametrize(
    "system", ["linux", "win32"]
)  # a type checker skips what is of another system
def test_what_a_folder_is_can_be_asked(
    roots: WorkspaceRoots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert stat.S_ISDIR(
        workspace_roots.stat_path(roots, roots.resolve_path(str(tmp_path / "one"))).st_mode
    )


def test_walking_follows_no_links_and_skips_what_is_closed(
    roots: WorkspaceRoots, tmp_path: Path
) -> None:
    write(roots, "a/b", b"1")
    write(roots, "c", b"2")
    (roots.folders[0] / "loop").symlink_to(".")
    (roots.folders[0] / "out").symlink_to(tmp_path / "outside")
    assert [name for name, _ in workspace_roots.walk_files(roots, roots.resolve_path("."))] == [
        "a/b",
        "c",
    ]


def test_a_symlink_swapper_never_gets_anything_out_or_in(
    roots: WorkspaceRoots, tmp_path: Path
) -> None:
    """The short form; tests/faults/confinement.py runs 20,000 rounds."""
    swapped = roots.folders[0] / "swapped"
    swapper = subprocess.Popen(
        [sys.executable, "-c", SWAP, str(swapped), str(tmp_path / "outside")]
    )
    try:
        for _ in range(ROUNDS):
            for act in (
                lambda: read(roots, "swapped/secret"),
                lambda: write(roots, "swapped/secret", b"written"),
            ):
                with contextlib.suppress(HelixError):
                    assert act() in {None, b"inside", b"written"}
    finally:
        swapper.kill()
        swapper.wait()
    assert {path.name: path.read_text() for path in (tmp_path / "outside").iterdir()} == {
        "secret": "secret"
    }


SWAP = """
import os, sys
path, outside = sys.argv[1:]
os.makedirs(path + ".dir")
open(path + ".dir/secret", "w").write("inside")
os.symlink(outside, path + ".link")
while True:
    for one in (".dir", ".link"):
        os.rename(path + one, path)
        os.rename(path, path + one)
"""


def test_a_workspace_without_its_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no longer exists"):
        read(WorkspaceRoots.from_folders([tmp_path / "gone"]), "file")
    with pytest.raises(ActionRefused, match="has no folder"):
        read(WorkspaceRoots.from_folders([]), "file")


def test_the_tours_folder_is_open_where_it_is_the_workspace_and_nothing_beside_it_is(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    sample = data / "tour"
    sample.mkdir(parents=True)
    (data / "keys.json").write_text("secret")
    (sample / "notes.txt").write_text("open")
    (sample / "link").symlink_to(data / "keys.json")
    inside = WorkspaceRoots.from_folders([sample], [data], sample)
    assert read(inside, "notes.txt") == b"open"
    for path in ("link", str(data / "keys.json")):
        with pytest.raises(ActionRefused):
            read(inside, path)
    for folder in (data, tmp_path):
        around = WorkspaceRoots.from_folders([folder], [data], sample)
        with pytest.raises(ActionRefused):
            around.resolve_path(str(sample / "notes.txt"))


@pytest.mark.skipif(sys.platform == "win32", reason="folders are made by handles")
def test_folders_that_are_nested_more_deeply_than_calls_are_walked_through(tmp_path: Path) -> None:
    (tmp_path / "top").touch()
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1_100):
        os.mkdir("a", dir_fd=here)
        inner = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    roots = WorkspaceRoots.from_folders([tmp_path])
    try:
        found = [inside for inside, _ in workspace_roots.walk_files(roots, roots.resolve_path("."))]
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)
    assert found == [f"{'a/' * 1_100}deep", "top"]


@pytest.mark.skipif(sys.platform == "win32", reason="a path may not be that long")
def test_a_file_can_be_put_below_more_new_folders_than_calls_can_nest(tmp_path: Path) -> None:
    inside = "a/" * 1_100 + "deep"
    roots = WorkspaceRoots.from_folders([tmp_path])
    place = workspace_roots.RootPath(tmp_path, inside)
    try:
        workspace_roots.restore_entry(roots, place, b"content", 0o600)
        assert workspace_roots.read_whole_file(roots, place) == b"content"
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)


def test_a_refusal_by_the_system_names_the_workspaces_folder_and_not_a_dot() -> None:
    error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert "on src/a.py (Read-only" in str(workspace_roots._error_in_words("src/a.py", error))
    assert "on the workspace's folder (Read-only" in str(
        workspace_roots._error_in_words(".", error)
    )


@pytest.mark.parametrize("name", ["x.txt", "new/x.txt"])
def test_a_file_in_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(workspace_roots, "write_file_beside", refuse)
    monkeypatch.setattr(folder_handles.OpenFolder, "create_folder", refuse)
    roots = WorkspaceRoots.from_folders([tmp_path])
    with pytest.raises(
        ActionRefused, match=f"operation on {name.partition('/')[0]} .Read-only file system"
    ):
        workspace_roots.replace_file(roots, roots.resolve_path(name), b"content", expected=None)


def test_whoever_asks_about_a_path_asks_about_where_its_links_lead() -> None:
    """Rules and questions are about the file itself, so `resolve_real_path` comes before them."""
    package = Path(workspace_roots.__file__).parents[1]
    wrong = []
    for file in [*package.glob("tools/*.py"), *package.glob("acp_client/*.py")]:
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            called = {
                ast.unparse(node.func).rpartition(".")[2]
                for node in ast.walk(function)
                if isinstance(node, ast.Call)
            }
            asks = called & {"ToolAction", "permit", "_was_edit_allowed"}
            if asks and "resolve_path" in called:
                wrong.append(f"{file.name}: {function.name}")
    assert wrong == []
