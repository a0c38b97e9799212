"""durable.py: whole or not at all, where a link leads, with the rights that are wanted."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from helix_desktop import atomic_files, concurrency
from helix_desktop.errors import InvalidInput, StoreFailed
from helix_desktop.program_settings import LOG_LEVEL, ProgramSettings
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.provider_catalog import PRESETS
from helix_desktop.resident.schedules import WorkSchedule, change_stored_schedules
from helix_desktop.secrets import ProviderKey, SecretKeeper, SecretStorage
from helix_desktop.store.workspace_settings import change_workspace_settings
from helix_desktop.tools.folder_handles import open_folder

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="links and rights of POSIX")


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_stands_there_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.toml"
    for text in ("one\nÜ\n", "two\n"):
        atomic_files.write_file_atomically(path, text)
        assert path.read_bytes() == text.encode()
    assert [each.name for each in path.parent.iterdir()] == ["a.toml"]


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [("too much", StoreFailed, "No space"), ("\udcff", InvalidInput, "UTF-8")],
)
def test_what_cannot_be_written_leaves_all_as_it_was(
    text: str, error: type[Exception], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.toml"
    atomic_files.write_file_atomically(path, "as it was")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(error, match=why):
        atomic_files.write_file_atomically(path, text)
    assert path.read_text() == "as it was"
    assert [each.name for each in tmp_path.iterdir()] == ["a.toml"]


_OTHER_PROGRAM = """
import sys
from pathlib import Path
from helix_desktop import atomic_files
path, text = Path(sys.argv[1]), sys.argv[2]
with atomic_files.hold_for_change(path):
    before = path.read_text() if path.exists() else ""
    print("read", flush=True)
    sys.stdin.readline()
    atomic_files.write_file_atomically(path, text or before, private=True)
"""


def _store_key(folder: Path) -> None:
    storage = SecretStorage(folder / "keys.json", consent=lambda: True)
    asyncio.run(storage.store_secret_at(ProviderKey("ours"), "k", where=SecretKeeper.FILE))


CHANGES: Mapping[str, tuple[str, Callable[[Path], object]]] = {
    "keys.json": ('{"theirs": "k"}', _store_key),
    "settings.toml": (
        "[other]\ntheirs = 1\n",
        lambda folder: ProgramSettings(folder / "settings.toml").change_setting(LOG_LEVEL, "error"),
    ),
    "providers.toml": (
        '[provider.theirs]\nkind = "openai-chat"\n',
        lambda folder: ConfiguredProviders(folder / "providers.toml").save_provider(
            PRESETS["anthropic"]
        ),
    ),
    "workspace.toml": (
        'name = "x"\ntheirs = 1\n',
        lambda folder: change_workspace_settings(folder / "workspace.toml", {"name": "ours"}),
    ),
    "schedules.json": (
        json.dumps([asdict(WorkSchedule("theirs", "w", "look", "08:00", "UTC"))]),
        lambda folder: change_stored_schedules(
            folder, lambda known: [*known, WorkSchedule("ours", "w", "look", "08:00", "UTC")]
        ),
    ),
}


@of_posix
@pytest.mark.parametrize("name", CHANGES)
def test_what_two_programs_change_in_a_file_at_the_same_time_is_all_there(
    name: str, tmp_path: Path
) -> None:
    theirs, change = CHANGES[name]
    path = tmp_path / name
    if name == "workspace.toml":
        path.write_text('name = "x"\n')
    argv = [sys.executable, "-c", _OTHER_PROGRAM, str(path), theirs]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "read\n"
        ours = concurrency.start_thread(lambda: change(tmp_path), name="our change")
        ours.join(0.5)
        assert ours.is_alive(), "it does not wait for the other program"
        other.stdin.write("\n")
        other.stdin.flush()
        ours.join()
    text = path.read_text()
    assert "theirs" in text
    assert any(word in text for word in ("ours", "error", "anthropic"))


@of_posix
def test_a_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _OTHER_PROGRAM, str(tmp_path / "a.toml"), ""]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "read\n"
        other.kill()
    change_stored_schedules(tmp_path, lambda known: known)
    assert [each.name for each in tmp_path.iterdir()] == ["schedules.json"]


@of_posix
@pytest.mark.parametrize("private", [True, False])
def test_a_link_stays_and_what_it_names_is_written(private: bool, tmp_path: Path) -> None:
    real = tmp_path / "kept elsewhere" / "settings"
    link = tmp_path / "settings.toml"
    real.parent.mkdir()
    link.symlink_to(real)
    for text in ("the first", "the second"):
        atomic_files.write_file_atomically(link, text, private=private)
        assert link.is_symlink()
        assert real.read_text() == text


@of_posix
def test_the_rights_are_those_it_had_or_the_users_alone(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    path = tmp_path / "a"
    usual.touch()
    atomic_files.write_file_atomically(path, "new")
    assert rights(path) == rights(usual)
    path.chmod(0o640)
    atomic_files.write_file_atomically(path, "again")
    assert rights(path) == 0o640
    atomic_files.write_file_atomically(path, "a key", private=True)
    assert rights(path) == 0o600


def test_a_program_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """Where the system knows files without a name; elsewhere what is left is found once
    it is old.
    """
    script = (
        "import os, sys; from pathlib import Path; from helix_desktop.atomic_files import ReplacementFile\n"
        "beside = ReplacementFile(Path(sys.argv[1]) / 'export'); beside.file.write(b'x' * 100_000); beside.file.flush(); os._exit(9)"
    )
    assert (
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 9
    )
    left = list(tmp_path.iterdir())
    if sys.platform == "linux":
        assert left == []
    for path in left:
        os.utime(path, (0, 0))
    assert list(atomic_files.find_abandoned_files(tmp_path)) == left


def test_only_what_is_old_and_named_so_is_left_over(tmp_path: Path) -> None:
    for name in (".a.toml-0123abcd", ".a.toml-notahexn", "mine-0123abcd", ".new-89abcdef"):
        (tmp_path / name).touch()
        if not name.startswith(".new"):
            os.utime(tmp_path / name, (0, 0))
    assert [path.name for path in atomic_files.find_abandoned_files(tmp_path)] == [
        ".a.toml-0123abcd"
    ]


@of_posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_private_is_so_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        atomic_files.ensure_private_folder(tmp_path / "home")
        (tmp_path / "home" / "file").touch()
        atomic_files.make_path_private(tmp_path / "home" / "file")
    finally:
        os.umask(before)
    assert (rights(tmp_path / "home"), rights(tmp_path / "home" / "file")) == (0o700, 0o600)


@of_posix
def test_with_an_open_umask_nothing_new_is_writable_by_everybody(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        atomic_files.write_file_atomically(tmp_path / "a" / "b" / "settings.json", "{}")
        with open_folder(tmp_path, "") as folder:
            folder.create_folder("projects")
            os.close(folder.create_file("session.jsonl"))
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        assert not rights(path) & 0o002, path


@of_posix
def test_folders_above_a_private_one_are_not_writable_by_everybody(tmp_path: Path) -> None:
    """The defect: with an open umask, another user could put a folder in the place of the program's."""
    before = os.umask(0)
    try:
        atomic_files.ensure_private_folder(tmp_path / ".local" / "share" / "helix-desktop")
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        assert not rights(path) & 0o002, path


@of_posix
def test_what_is_everybodys_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    atomic_files.make_path_private(tmp_path)
    assert rights(tmp_path) == 0o1777
    tmp_path.chmod(0o700)


@of_posix
def test_no_settings_file_is_waited_for_or_read_without_an_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"x" * 100)
    for name, why in (
        ("pipe", "not a regular file"),
        ("zeros", "not a regular file"),
        ("large", "larger"),
    ):
        with pytest.raises(InvalidInput, match=why):
            atomic_files.read_small_file(tmp_path / name, limit_bytes=50)
    assert atomic_files.read_small_file(tmp_path / "large") == b"x" * 100
