from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.tools.autorun_guard import AutorunGuard
from helix_desktop.tools.workspace_roots import WorkspaceRoots
from tests.tools.git_places import TRICKS, GitPlace, git_places, what_got_through
from tests.tools.planting import THERE, Way, empty_folder, prepare, ways

FAST = [
    way
    for number, way in enumerate(ways("touch canary"))
    if number % 12 == 0 or "," not in way.name
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "root").mkdir()
    prepare(tmp_path / "root")
    yield tmp_path / "root"
    empty_folder(tmp_path / "root")


def run(root: Path, line: str) -> None:
    environment = {**os.environ, "TMPDIR": str(root.parent)}
    subprocess.run(
        ["/bin/bash", "-c", line], cwd=root, check=False, capture_output=True, env=environment
    )


@pytest.mark.parametrize("way", FAST, ids=lambda way: way.name)
def test_what_a_command_leaves_to_be_run_is_found_and_put_back(root: Path, way: Way) -> None:
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    before = guard.scan_autorun_files()
    contents = {name: (root / name).read_bytes() for name in (*THERE, "tools/monitor.sh")}
    run(root, way.line)
    planted = guard.find_autorun_changes(before)
    assert planted
    assert guard.revert_autorun_changes(planted) == []
    assert guard.find_autorun_changes(before) == []
    assert {
        name: (root / name).read_bytes() for name in contents if (root / name).exists()
    }.items() <= contents.items()


@pytest.mark.parametrize(
    "line",
    [
        "git init -q sub; git clone -q . clone; git remote add origin https://x; git checkout -qb new; git branch -u main",
        "echo x > file; git add -A; git commit -qm x; git gc -q; git stash",
        'mkdir -p node_modules/p/.vscode; echo \'{"scripts": {"postinstall": "x"}}\' > node_modules/p/package.json; echo x > node_modules/p/.npmrc',
        'echo \'{"scripts": {"test": "true", "new": "x"}, "dependencies": {"a": "1"}}\' > package.json',
        'mkdir new; echo \'{"scripts": {"dev": "vite", "build": "vite build"}}\' > new/package.json',
        "rm -rf .vscode .envrc .git/hooks",
        "touch .vscode; chmod 700 .vscode; printf 'mine\\n' > .envrc",
        "git submodule add -q ./ module",
    ],
)
def test_ordinary_work_is_let_be(root: Path, line: str) -> None:
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    before = guard.scan_autorun_files()
    run(root, line)
    assert guard.find_autorun_changes(before) == []


def test_what_the_user_allows_is_as_the_command_left_it(root: Path) -> None:
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    before = guard.scan_autorun_files()
    run(
        root,
        "echo theirs > .envrc; mkdir x; ln -s ../file x/.npmrc; printf 'x' > .vimrc; chmod 600 .vimrc",
    )
    planted = guard.find_autorun_changes(before)
    guard.revert_autorun_changes(planted)
    assert (root / ".envrc").read_text() == "mine\n"
    assert not (root / ".vimrc").exists()
    guard.reapply_autorun_changes(planted)
    assert (root / ".envrc").read_text() == "theirs\n"
    assert (root / "x/.npmrc").readlink() == Path("../file")
    assert (root / ".vimrc").stat().st_mode & 0o777 == 0o600


def test_what_is_put_back_stays_inside_though_a_folder_became_a_link(
    root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "tasks.json").write_text("outside\n")
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    before = guard.scan_autorun_files()
    run(root, "echo new > .vscode/tasks.json; echo new > .vscode/launch.json")
    planted = guard.find_autorun_changes(before)
    run(root, f"mv .vscode aside; ln -s {outside} .vscode")
    assert guard.revert_autorun_changes(planted)
    assert (outside / "tasks.json").read_text() == "outside\n"


@pytest.mark.parametrize("before", [None, b"small"])
def test_a_large_file_is_put_back_and_kept_whole(root: Path, before: bytes | None) -> None:
    """`yarn set version` makes one of 2.7 MB."""
    path = root / ".yarn/releases/yarn.cjs"
    content = b"0123456789" * 200_000
    path.parent.mkdir(parents=True)
    if before is not None:
        path.write_bytes(before)
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    state = guard.scan_autorun_files()
    path.write_bytes(content)
    path.chmod(0o755)
    planted = guard.find_autorun_changes(state)
    assert guard.revert_autorun_changes(planted) == []
    assert (path.read_bytes() if path.exists() else None) == before
    guard.reapply_autorun_changes(planted)
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o755
    assert guard.find_autorun_changes(state | {one.path: one.after for one in planted}) == []


@pytest.mark.parametrize("before", [None, b'{"scripts": {"build": "make"}}'])
def test_a_package_file_too_large_to_be_read_counts_as_one_that_can_run_more(
    root: Path, before: bytes | None
) -> None:
    """Of one that can be read, only its scripts count."""
    path = root / "lib/package.json"
    path.parent.mkdir()
    if before is not None:
        path.write_bytes(before)
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    state = guard.scan_autorun_files()
    path.write_bytes(b'{"scripts": {"build": "evil"}, "x": "' + b"x" * 2_000_000 + b'"}')
    planted = guard.find_autorun_changes(state)
    assert [change.path for change in planted] == [str(path)]
    assert guard.revert_autorun_changes(planted) == []
    assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("content", [b"evil", b"evil" * 500_000])
def test_a_large_file_that_cannot_be_what_it_was_is_left_and_named(
    root: Path, content: bytes
) -> None:
    path = root / ".yarn/releases/yarn.cjs"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"0123456789" * 200_000)
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    state = guard.scan_autorun_files()
    path.write_bytes(content)
    assert guard.revert_autorun_changes(guard.find_autorun_changes(state)) == [str(path)]
    assert path.read_bytes() == content


CLOSING = """
import json, subprocess, sys
from pathlib import Path
from helix_desktop.tools import hidden_files
from helix_desktop.tools.autorun_guard import AutorunGuard
from helix_desktop.tools.workspace_roots import WorkspaceRoots

root, line = Path(sys.argv[1]), sys.argv[2]
guard = AutorunGuard(WorkspaceRoots.from_folders([root]), lambda: hidden_files.DEFAULT)
before = guard.scan_autorun_files()
subprocess.run(["/bin/bash", "-c", line], cwd=root, check=True)
planted = guard.find_autorun_changes(before)
hidden = [str(Path(path).relative_to(root)) for path in guard.hidden_files]
failed = guard.revert_autorun_changes(planted)
left = guard.find_autorun_changes(before)
guard.reapply_autorun_changes(planted)
print(json.dumps([[str(Path(one.path).relative_to(root)) for one in planted], failed, len(left), hidden]))
"""


def as_an_ordinary_user(root: Path, line: str) -> tuple[list[str], list[str], int, list[str]]:
    """The guard in a process for which modes count, also where the tests run as root:
    planted, failed, left, hidden.
    """
    words = [sys.executable, "-c", CLOSING, str(root), line]
    if os.geteuid() == 0:
        words = [
            "setpriv",
            "--bounding-set=-dac_override,-dac_read_search",
            "--inh-caps=-all",
            *words,
        ]
    ran = subprocess.run(words, capture_output=True, check=True, cwd=Path(__file__).parents[2])
    planted, failed, left, hidden = json.loads(ran.stdout)
    return planted, failed, left, hidden


@pytest.mark.parametrize(
    ("line", "planted", "closed"),
    [
        ("echo evil > .vscode/new.json; chmod 311 .vscode", ".vscode/new.json", ".vscode"),
        ("echo evil > .vscode/new.json; chmod 555 .vscode", ".vscode/new.json", ".vscode"),
        ("mkdir a; mkdir a/b; echo evil > a/b/.envrc; chmod 111 a/b a", "a/b/.envrc", "a"),
        ("mkdir a; echo evil > a/.envrc; chmod 600 a", "a/.envrc", "a"),
        ("echo evil > .git/hooks/pre-push; chmod 755 .git/hooks/pre-push; chmod 311 .git/hooks", ".git/hooks/pre-push", ".git/hooks"),
        ("echo evil > .git/hooks/pre-push; chmod 755 .git/hooks/pre-push; chmod 0 .git/hooks .git", ".git/hooks/pre-push", ".git"),
    ],
)  # fmt: skip
def test_a_folder_that_a_command_closed_hides_nothing_from_the_guard(
    root: Path, line: str, planted: str, closed: str
) -> None:
    """Git and editors open a file by its name, so mode 311 does not keep them from running it."""
    (root / ".git/hooks").mkdir(exist_ok=True)
    assert as_an_ordinary_user(root, f"{line}; stat -c %a {closed} > {root.parent}/mode") == (
        [planted],
        [],
        0,
        [],
    )
    assert (
        f"{(root / closed).stat().st_mode & 0o777:o}" == (root.parent / "mode").read_text().strip()
    )
    assert "evil" in (root / planted).read_text()


def test_a_file_that_a_command_closed_is_kept_with_its_content(root: Path) -> None:
    assert as_an_ordinary_user(root, "echo evil > .vimrc; chmod 200 .vimrc") == (
        [".vimrc"],
        [],
        0,
        [],
    )
    assert (root / ".vimrc").read_text() == "evil\n"
    assert (root / ".vimrc").stat().st_mode & 0o777 == 0o200


@pytest.mark.parametrize("mode", ["000", "111", "600"])
def test_a_closed_folder_with_a_hidden_file_is_hidden_whole(root: Path, mode: str) -> None:
    """The next command would open the folder again and read the file."""
    (root / "conf/inner").mkdir(parents=True)
    (root / "conf/inner/.env").write_text("secret\n")
    assert as_an_ordinary_user(root, f"chmod {mode} conf") == ([], [], 0, ["conf"])


def test_a_look_at_what_has_not_changed_is_cheap(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        (root / f"folder{number}").mkdir()
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    monkeypatch.setattr("helix_desktop.tools.autorun_guard._SETTLED_NS", -(10**12))
    guard.scan_autorun_files()
    listed: list[str] = []
    real = os.scandir

    def listing(path: str) -> object:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", listing)
    guard.scan_autorun_files()
    assert not [path for path in listed if "folder" in path]


def test_what_is_written_through_a_mapping_is_found_though_no_time_moved(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write dirties the page and moves the file's times; a look trusts them;
    the next write moves nothing.
    """
    path = root / "new/package.json"
    path.parent.mkdir()
    path.write_bytes(b'{"scripts": {"test": "true"}}'.ljust(4096))
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    before = guard.scan_autorun_files()
    monkeypatch.setattr("helix_desktop.tools.autorun_guard._SETTLED_NS", 0)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
        mapped[0:1] = mapped[0:1]
        begun = path.stat().st_ctime_ns - 1
        assert guard.find_autorun_changes(before, begun) == []
        mapped[:] = b'{"scripts": {"test": "evil", "postinstall": "evil"}}'.ljust(4096)
        assert [one.path for one in guard.find_autorun_changes(before, begun)] == [str(path)]


def test_closed_folders_are_not_looked_into(root: Path) -> None:
    (root / "own").mkdir()
    (root / "own/.envrc").write_text("x")
    assert not [
        path
        for path in AutorunGuard(
            WorkspaceRoots.from_folders([root], [root / "own"])
        ).scan_autorun_files()
        if "/own/" in path
    ]


def test_nothing_is_held_in_a_worktree_or_a_submodule_whose_git_is_a_file(root: Path) -> None:
    """A sandbox that was to hold `.git/hooks` of such a file started no command at all."""
    (root / "tree").mkdir()
    (root / "tree" / ".git").write_text("gitdir: ../.git/worktrees/tree\n")
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    guard.scan_autorun_files()
    held = guard.paths_to_hold_in_place()
    assert str(root / ".git") in held.folders
    paths = held.folders + held.files
    assert not [path for path in paths if path.startswith(str(root / "tree"))]


PLACES = git_places("touch canary", Path("OUT"))
CHOSEN = [place for number, place in enumerate(PLACES) if number % 16 == 0 or place.name in TRICKS]


@pytest.mark.parametrize("place", CHOSEN, ids=lambda place: place.name)
def test_what_git_could_run_or_touch_elsewhere_is_taken_back(
    tmp_path: Path, place: GitPlace
) -> None:
    assert not what_got_through(tmp_path, place.name)


def test_a_submodule_and_a_second_worktree_are_let_be(root: Path) -> None:
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    before = guard.scan_autorun_files()
    run(
        root,
        "git -c protocol.file.allow=always submodule add -q ./ module; git commit -qm m; git worktree add -q tree",
    )
    assert (root / "module/file").exists()
    assert guard.find_autorun_changes(before) == []
    before = guard.scan_autorun_files()
    run(root, "git submodule deinit -qf module; git worktree remove tree")
    assert guard.find_autorun_changes(before) == []


def test_a_file_that_is_a_link_is_not_held_in_place(root: Path) -> None:
    """What it leads to is another place, which a sandbox would hold instead."""
    (root / "real.envrc").write_text("export A=1\n")
    (root / ".envrc").unlink(missing_ok=True)
    (root / ".envrc").symlink_to(root / "real.envrc")
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    guard.scan_autorun_files()
    to_protect = guard.autorun_paths_to_protect()
    assert str(root / ".envrc") in to_protect
    held = guard.paths_to_hold_in_place().files
    assert {path for path in to_protect if path not in held} == {str(root / ".envrc")}


def test_settings_that_the_users_own_include_in_each_repository_are_found(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / ".gitconfig").write_text("[include]\n\tpath = team.config\n")
    (root / "team.config").write_text("[core]\n\tfsmonitor = touch canary\n")
    guard = AutorunGuard(WorkspaceRoots.from_folders([root]))
    before = guard.scan_autorun_files()
    assert before[str(root / "team.config")].runnable_content == "core.fsmonitor = touch canary"
    (root / "team.config").write_text("[core]\n\tfsmonitor = touch another\n")
    assert [change.path for change in guard.find_autorun_changes(before)] == [
        str(root / "team.config")
    ]
