from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from helix_desktop.processes.jail import landlock_version
from helix_desktop.processes.running_command import RunningCommand, shell_command_line
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, ProcessPlace
from helix_desktop.tools import sandbox as module
from helix_desktop.tools.autorun_guard import AutorunGuard
from helix_desktop.tools.home_access import NOTHING_OPENED, CommandOpenings, opened_sockets
from helix_desktop.tools.sandbox import (
    NOTHING_HELD,
    Sandbox,
    SandboxKind,
    find_sandbox,
    scrub_environment,
)
from helix_desktop.tools.sandbox_home import HeldPaths
from helix_desktop.tools.workspace_roots import WorkspaceRoots

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="sandboxes are Linux's"
)
PYTHON = Path(
    sys.executable
).resolve()  # a checkout in /tmp has its own where commands do not see it
KINDS = (SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK)


@pytest.fixture
def base() -> Iterator[Path]:
    """Not in /tmp, of which commands get one of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest_asyncio.fixture(params=KINDS, ids=str)
async def box(
    request: pytest.FixtureRequest, base: Path, monkeypatch: pytest.MonkeyPatch
) -> Sandbox:
    for name in ("root", "own", "scratch", "home/.ssh", "outside", "root/.git/hooks"):
        (base / name).mkdir(parents=True, exist_ok=True)
    for name in ("own/journal", "home/.ssh/id", "outside/file", "home/plain", "root/.git/config"):
        (base / name).write_text("content\n")
    monkeypatch.setenv("HOME", str(base / "home"))
    made = Sandbox(request.param, (base / "root",), base / "scratch", (base / "own",))
    if not await module.is_sandbox_effective(made):
        pytest.skip(f"{made.kind} does not work here")
    return made


async def ran(
    box: Sandbox,
    line: str,
    *,
    network: bool = False,
    free: bool = False,
    held: HeldPaths = NOTHING_HELD,
    opened: CommandOpenings = NOTHING_OPENED,
) -> str:
    environment = box.build_environment(os.environ, network=network, free=free, opened=opened)
    command = await RunningCommand.start_in_jail(
        ProcessLaunch(
            CommandAuthor.USER,
            shell_command_line(line),
            box.folders[0],
            environment,
            place=ProcessPlace.SANDBOX,
        ),
        lambda lifeline: box.wrap_command(
            shell_command_line(line),
            lifeline,
            network=network,
            outside=free,
            held=held,
            opened=opened,
        ),
    )
    try:
        async with asyncio.timeout(60):
            return b"".join([piece async for piece in command.iterate_output()]).decode()
    finally:
        await command.kill_and_wait()


async def test_java_finds_its_limits(box: Sandbox) -> None:
    """By the names of control groups outside: in a namespace of its own it fails, and
    with it Gradle's builds.
    """
    assert (
        await ran(box, "readlink /proc/self/ns/cgroup")
        == f"{Path('/proc/self/ns/cgroup').readlink()}\n"
    )


async def test_java_has_a_temporary_folder_that_it_can_write_to(box: Sandbox) -> None:
    """It takes /tmp whatever TMPDIR says; without a temporary file Gradle does not start."""
    said = await ran(
        box,
        'folder="${JAVA_TOOL_OPTIONS#-Djava.io.tmpdir=}"; echo x > "${folder:-/tmp}/java" && echo made',
    )
    assert said == "made\n"


async def test_commands_write_in_the_roots_and_in_their_own_tmp(box: Sandbox) -> None:
    assert (
        await ran(box, "echo a > new && cat new && echo b > $TMPDIR/x && cat $TMPDIR/x") == "a\nb\n"
    )
    assert (box.folders[0] / "new").read_text() == "a\n"
    assert (box.scratch / "x").read_text() == "b\n"


async def test_nothing_is_written_anywhere_else(box: Sandbox, base: Path) -> None:
    outside = base / "outside"
    for line in (
        f"echo x > {outside}/file",
        f"echo x > {outside}/new",
        f"rm {outside}/file",
        f"mv {outside}/file {outside}/other",
        f"ln {outside}/file hard && echo x > hard",
        f"ln -s {outside} soft && echo x > soft/new",
        f"chmod 777 {outside}/file; touch {outside}/file; truncate -s 0 {outside}/file",
    ):
        await ran(box, line)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "content\n"}


async def test_no_command_links_to_a_file_outside_also_from_the_same_disk(
    box: Sandbox, base: Path
) -> None:
    """The kernel refuses it, whatever the folder holds."""
    for number in range(2_000):
        (base / "root" / f"file{number}").touch()
    line = "import os, sys; os.link(sys.argv[1], 'hard'); open('hard', 'w').write('changed')"
    said = await ran(
        box,
        f'python3 -c "{line}" {base}/outside/file; cp -l {base}/outside/file h2; ln file1 inside && echo linked',
    )
    assert said.endswith("linked\n")
    assert (base / "outside/file").read_text() == "content\n"
    assert (base / "outside/file").stat().st_nlink == 1


async def test_the_rest_of_the_system_can_be_read(box: Sandbox, base: Path) -> None:
    if box.kind is SandboxKind.BUBBLEWRAP:
        assert "root" in await ran(box, "cat /etc/passwd")
    assert (
        await ran(box, f"head -1 {Path(os.__file__)}")
        == Path(os.__file__).read_text().splitlines()[0] + "\n"
    )


async def test_the_programs_own_data_and_the_users_keys_are_not_there(
    box: Sandbox, base: Path
) -> None:
    own = box.closed_paths[0] / "journal"
    key = base / "home" / ".ssh" / "id"
    assert "content" not in await ran(box, f"cat {own} {key}")
    await ran(box, f"echo x > {own}; echo x > {own.parent}/new; rm -rf {own.parent}")
    assert own.read_text() == "content\n"
    assert list(own.parent.iterdir()) == [own]
    assert "content" not in await ran(box, f"cat {key}", network=True)
    assert "content" not in await ran(box, f"cat {own}", network=True)


async def test_what_is_closed_inside_a_root_stays_closed(base: Path) -> None:
    (base / "root" / "own").mkdir(parents=True)
    (base / "scratch").mkdir()
    (base / "root" / "own" / "journal").write_text("content\n")
    box = await find_sandbox([base / "root"], base / "scratch", [base / "root" / "own"])
    assert box.kind is not SandboxKind.LANDLOCK
    if box.kind is SandboxKind.BUBBLEWRAP:
        assert "content" not in await ran(
            box, "cat own/journal; echo x > own/journal; echo x > own/new"
        )
        assert (base / "root" / "own" / "journal").read_text() == "content\n"


async def test_the_environment_of_the_program_cannot_be_read(box: Sandbox) -> None:
    said = await ran(
        box,
        f"cat /proc/{os.getpid()}/environ /proc/{os.getpid()}/maps; kill -0 {os.getpid()} && echo reached",
    )
    assert "PATH=" not in said
    assert "reached" not in said


TCP = "import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('reach' + 'ed')"
UDP = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port})); print('reach' + 'ed')"


@pytest.mark.parametrize("code", [TCP, UDP], ids=["tcp", "udp"])
async def test_there_is_no_network_unless_it_is_allowed(box: Sandbox, code: str) -> None:
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        command = f'{PYTHON} -c "{code.format(port=port)}"'
        said = await ran(box, command)
        udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            udp.recv(1)
        if code is TCP:
            assert "reached" not in said
        assert "reached" in await ran(box, command, network=True)


@pytest.mark.parametrize("network", [False, True])
async def test_no_socket_of_the_desktop_or_the_program_is_reached(
    box: Sandbox, base: Path, *, network: bool
) -> None:
    path = box.closed_paths[0] / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r}); print('reach' + 'ed')"
        assert "reached" not in await ran(box, f'{PYTHON} -c "{code}"', network=network)


@pytest.mark.parametrize("network", [False, True])
async def test_no_abstract_socket_of_the_desktop_is_reached(box: Sandbox, *, network: bool) -> None:
    if network and landlock_version() < 6:
        pytest.skip("this kernel cannot keep a command from them")
    with socket.socket(socket.AF_UNIX) as listening:
        name = f"helix-test-{os.getpid()}"
        listening.bind(f"\0{name}")
        listening.listen()
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + {name!r}); print('reach' + 'ed')"
        assert "reached" not in await ran(box, f'{PYTHON} -c "{code}"', network=network)
        assert "reached" in await ran(box, f'{PYTHON} -c "{code}"', free=True)


async def test_gits_hooks_and_settings_stay_as_they_are(box: Sandbox) -> None:
    if box.kind is SandboxKind.LANDLOCK:
        pytest.skip("Landlock cannot take a part out of what it allows")
    guard = AutorunGuard(WorkspaceRoots.from_folders(box.folders))
    guard.scan_autorun_files()
    evil = "echo evil > .git/hooks/pre-commit; echo evil > .git/config; rm -f .git/config; mv .git/hooks x; mv .git g; rm -rf .git"
    await ran(box, evil, held=guard.paths_to_hold_in_place())
    assert (box.folders[0] / ".git" / "config").read_text() == "content\n"
    assert list((box.folders[0] / ".git" / "hooks").iterdir()) == []


async def test_this_program_is_not_changed_where_it_is_installed_in_the_folder(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `pip install` in a project's virtual environment, a command could write what runs as this
    program at its next start, outside the sandbox.
    """
    if box.kind is SandboxKind.LANDLOCK:
        pytest.skip("Landlock cannot take a part out of what it allows")
    own = box.folders[0] / "tools" / ".venv"
    library = own / "lib" / "python3" / "site-packages" / "helix_desktop.py"
    library.parent.mkdir(parents=True)
    library.write_text("ours\n")
    monkeypatch.setattr(sys, "prefix", str(own))
    lines = (
        f"echo theirs > {library}",
        f"echo import theirs > {library.parent}/x.pth",
        f"rm {library}",
        f"mv {own} {own}2 && mkdir -p {library.parent} && echo theirs > {library}",
        f"mv {own.parent} {own.parent}2 && mkdir -p {library.parent} && echo theirs > {library}",
    )
    for line in lines:
        await ran(box, line)
    assert library.read_text() == "ours\n"
    assert [path.name for path in library.parent.iterdir()] == [library.name]
    await ran(box, f"echo beside > {box.folders[0]}/beside")
    assert (box.folders[0] / "beside").exists()


async def test_a_hidden_folder_is_empty_and_stays_closed(box: Sandbox) -> None:
    if box.kind is SandboxKind.LANDLOCK:
        pytest.skip("Landlock cannot take a part out of what it allows")
    folder = box.folders[0] / "conf"
    folder.mkdir()
    (folder / ".env").write_text("secret\n")
    opened = CommandOpenings(hidden=(str(folder), str(folder / ".env")))
    said = await ran(
        box,
        "chmod 700 conf; cat conf/.env; echo evil > conf/new; mv conf other; ls; ls conf",
        opened=opened,
    )
    assert said.splitlines()[-1] == "conf"
    assert "secret" not in said
    assert [path.name for path in folder.iterdir()] == [".env"]


async def test_a_command_has_no_powers_of_root_and_gets_none(box: Sandbox) -> None:
    assert (await ran(box, "grep -c 'CapEff:.0000000000000000' /proc/self/status")).strip() == "1"
    for line in (
        "cat /proc/sys/kernel/panic > v; cat v > /proc/sys/kernel/panic",
        "echo h > /proc/sysrq-trigger",
        "mount -t tmpfs x .",
        "unshare -U true",
        "chroot / true",
        "hostname changed",
    ):
        assert "reached" not in await ran(box, f"{{ {line}; }} 2>/dev/null && echo reached")


async def test_too_many_processes_and_too_much_memory_end_a_command(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module,
        "process_limits",
        lambda: {"processes": 30, "memory": 0, "file": 1 << 20, "handles": 64},
    )
    assert "started more than 30 processes" in await ran(
        box, "for i in $(seq 60); do sleep 30 & done; wait"
    )
    assert "reached" not in await ran(box, "head -c 3000000 /dev/zero > large && echo reached")
    assert (await ran(box, "ulimit -n")).strip() == "64"
    few = {"processes": 4096, "memory": 200 << 20, "file": 1 << 30, "handles": 1024}
    monkeypatch.setattr(module, "process_limits", lambda: few)
    hungry = f"{PYTHON} -c 'import time; held = bytearray(300 << 20); time.sleep(30)'"
    assert "used more than 200 MB of memory" in await ran(box, hungry)


async def test_keys_stay_hidden_though_the_home_is_the_folder(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(base))
    (base / ".ssh").mkdir()
    (base / ".ssh/id").write_text("content")
    (base / "scratch").mkdir()
    box = Sandbox(SandboxKind.BUBBLEWRAP, (base,), base / "scratch")
    if await module.is_sandbox_effective(box):
        assert "content" not in await ran(box, "cat .ssh/id")


async def test_what_the_user_allowed_outside_is_free(box: Sandbox, base: Path) -> None:
    await ran(box, f"echo x > {base}/outside/new", free=True)
    assert (base / "outside" / "new").read_text() == "x\n"


async def test_without_a_program_for_it_there_is_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(module, "_is_kind_available", lambda _: False)
    none = await find_sandbox([tmp_path / "root"], tmp_path / "scratch")
    assert none.kind is SandboxKind.NONE


async def test_where_bubblewrap_does_not_start_landlock_is_used_if_it_can_hide_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "scratch").mkdir()
    landlock = Sandbox(SandboxKind.LANDLOCK, (tmp_path / "root",), tmp_path / "scratch")
    if not landlock.can_hide_paths or not await module.is_sandbox_effective(landlock):
        pytest.skip("Landlock does not hold here")
    is_available = module._is_kind_available
    monkeypatch.setattr(
        module,
        "_is_kind_available",
        lambda kind: kind is SandboxKind.LANDLOCK and is_available(kind),
    )
    monkeypatch.setattr(module, "_started_bubblewraps", set())
    assert await find_sandbox([tmp_path / "root"], tmp_path / "scratch") == landlock


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
async def test_bubblewrap_is_tried_once_and_another_one_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("root", "scratch", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(module, "_started_bubblewraps", set())
    tried: list[Sandbox] = []
    try_sandbox = module.is_sandbox_effective

    async def is_effective(sandbox: Sandbox) -> bool:
        tried.append(sandbox)
        return await try_sandbox(sandbox)

    monkeypatch.setattr(module, "is_sandbox_effective", is_effective)
    first = await find_sandbox([tmp_path / "root"], tmp_path / "scratch")
    if first.kind is not SandboxKind.BUBBLEWRAP:
        pytest.skip("bubblewrap does not start here")
    again = await find_sandbox([tmp_path / "other"], tmp_path / "scratch")
    assert (again.kind, again.folders) == (SandboxKind.BUBBLEWRAP, (tmp_path / "other",))
    assert tried == [first]

    other = tmp_path / "bin" / "bwrap"
    other.parent.mkdir()
    shutil.copy(shutil.which("bwrap") or "", other)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    await find_sandbox([tmp_path / "root"], tmp_path / "scratch")
    assert tried == [first, first]


async def test_a_sandbox_that_does_not_hold_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    pretended = Sandbox(SandboxKind.NONE, (tmp_path / "root",), tmp_path / "scratch")
    assert not await module.is_sandbox_effective(pretended)
    assert not list(tmp_path.glob(".probe*"))


def test_children_get_no_keys_and_no_bus() -> None:
    full = {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "OPENAI_API_KEY": "k",
        "DBUS_SESSION_BUS_ADDRESS": "b",
        "SSH_AUTH_SOCK": "s",
        "XDG_RUNTIME_DIR": "r",
        "DISPLAY": ":0",
        "HELIX_HOME": "h",
        "LD_PRELOAD": "x",
        "PYTHONPATH": "x",
        "VIRTUAL_ENV": sys.prefix,
        "HTTPS_PROXY": "http://user:secret@proxy",
        "SSL_CERT_FILE": "/etc/ours.pem",
        "MINE": "1",
    }
    plain = scrub_environment(full, "/tmp", network=False)
    assert {name for name in plain if name in full} == {"PATH", "HOME", "LC_ALL"}
    assert {"HTTPS_PROXY", "SSL_CERT_FILE", "MINE"} <= set(
        scrub_environment(full, "/tmp", network=True, extra=["MINE"])
    )


def test_docker_and_podman_without_root_are_reached_where_they_are_opened() -> None:
    """Their sockets are among the user's own, of which commands reach none otherwise."""
    opened = CommandOpenings(("docker",))
    environ = {"XDG_RUNTIME_DIR": "/run/user/7", "DOCKER_HOST": "unix:///a/b"}
    reached = set(opened_sockets(opened, environ, network=True))
    assert {
        "/run/user/7/docker.sock",
        "/run/user/7/podman/podman.sock",
        "/run/docker.sock",
        "/a/b",
    } <= reached
    assert not set(opened_sockets(opened, {"DOCKER_HOST": "tcp://a/b"}, network=True)) & {
        "/b",
        "tcp://a/b",
    }
    assert list(opened_sockets(opened, environ, network=False)) == []
    assert list(opened_sockets(NOTHING_OPENED, environ, network=True)) == []
