"""packaging/: the locks, the two commands, what the system needs, and what an installer
is made of.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from helix_desktop import __version__
from helix_desktop.processes import jail
from tests.gui import screen as screens

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "packaging"))

import bundle  # noqa: E402 - a folder of scripts, not a package
import changed  # noqa: E402
import dev  # noqa: E402
import environment  # noqa: E402
import notices  # noqa: E402
import system  # noqa: E402
from linux import run  # noqa: E402

LOCKS = sorted((ROOT / "packaging").glob("*.lock"))


def pins(lock: Path) -> dict[str, str]:
    return dict(
        re.findall(
            r"^([A-Za-z0-9][\w.-]*)==([^ \\;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE
        )
    )


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_requirement_has_hashes_and_nothing_names_an_address(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    requirements = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert requirements
    assert [one.split()[0] for one in requirements if "--hash=sha256:" not in one] == []
    assert "://" not in text


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_all_locks_agree_with_the_one_the_program_runs_on(lock: Path) -> None:
    run = pins(ROOT / "packaging/requirements.lock")
    other = pins(lock)
    assert {name: version for name, version in run.items() if other.get(name) != version} == {}


def test_the_lock_has_what_pyproject_asks_for() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "dependencies"
    ]
    names = {re.split(r"[\[<>=;\s]", one)[0].lower() for one in asked}
    assert names <= {name.lower() for name in pins(ROOT / "packaging/requirements.lock")}


def test_the_entry_for_the_registry_of_agents_is_of_this_version() -> None:
    entry = json.loads(
        (ROOT / "packaging/acp-registry/helix-desktop/agent.json").read_text(encoding="utf-8")
    )
    assert entry["version"] == __version__
    assert entry["distribution"]["uvx"] == {
        "package": f"helix-desktop=={__version__}",
        "args": ["acp"],
    }
    assert not {"id", "name", "description", "license_url"} - set(entry)


def test_ci_runs_the_readmes_test_command() -> None:
    command = "python3 packaging/dev.py test"
    assert f"\n{command} " in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"exec {command} </dev/null" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_every_test_is_run_once(tmp_path: Path) -> None:
    assert [folder for folder in dev.ALONE if not list((ROOT / folder).glob("test_*.py"))] == []
    for folder in ("tests", "tests/gui", *dev.ALONE):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        name = folder.replace("/", "_")
        (tmp_path / folder / f"test_{name}.py").write_text(f"def test_{name}(): pass")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    said = "".join(
        subprocess.run(
            [*command, *part], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        for part in (dev.ALONE, dev.REST)
    )
    found = sorted(line.partition("::")[2] for line in said.splitlines() if "::" in line)
    alone = ["test_tests_faults_alone", "test_tests_gui_alone"]
    assert found == sorted([*alone, "test_tests", "test_tests_gui"])


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dev, "MEMORY", tmp_path)
    monkeypatch.setattr(dev, "ROOM", 1)
    monkeypatch.delenv("TMPDIR", raising=False)
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="a folder in memory")
def test_temporary_files_are_in_memory_while_the_tests_run(memory: Path) -> None:
    with dev.folder_in_memory() as folder:
        place = Path(folder)
        (place / "inside").mkdir()
        assert place.parent == memory
    assert not place.exists()


@pytest.mark.parametrize(
    "hindrance", ["no room", "no such folder", "no programs", "another folder was chosen"]
)
def test_temporary_files_are_on_the_disk_if_memory_does_not_fit(
    memory: Path, monkeypatch: pytest.MonkeyPatch, hindrance: str
) -> None:
    if hindrance == "no room":
        monkeypatch.setattr(dev, "ROOM", 1 << 62)
    elif hindrance == "no such folder":
        monkeypatch.setattr(dev, "MEMORY", memory / "missing")
    elif hindrance == "no programs":
        closed = SimpleNamespace(f_bavail=9, f_frsize=9, f_flag=getattr(os, "ST_NOEXEC", 0))
        monkeypatch.setattr(os, "statvfs", lambda _: closed, raising=False)
    else:
        monkeypatch.setenv("TMPDIR", "/elsewhere")
    with dev.folder_in_memory() as folder:
        assert not folder
    assert not list(memory.iterdir())


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environment, "VENV", tmp_path / "venv")
    python = environment.python()
    python.parent.mkdir(parents=True)
    python.touch()
    return tmp_path / "venv"


def test_a_second_start_does_nothing(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (venv / ".helix-run").write_text(environment._fingerprint("run"))
    monkeypatch.setattr(environment, "_install", lambda _: pytest.fail("it was installed again"))
    environment.prepare("run")


def test_another_lock_another_python_or_another_place_is_installed_again(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[Path] = []
    monkeypatch.setattr(environment, "_install", installed.append)
    monkeypatch.setattr(environment, "_make", lambda: None)
    monkeypatch.setattr(system, "provide", lambda _: True)
    environment.prepare("run")
    environment.prepare("run")
    monkeypatch.setattr(environment, "ROOT", venv)
    environment.prepare("run")
    assert installed == [environment.LOCKS["run"]] * 2


def test_what_is_missing_is_tried_again_at_the_next_start(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_install", lambda _: None)
    monkeypatch.setattr(environment, "_make", lambda: None)
    monkeypatch.setattr(system, "provide", lambda _: False)
    environment.prepare("run")
    assert not (venv / ".helix-run").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there is nothing to install on Windows")
@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("apt-get", "sudo apt-get install -y --no-install-recommends libegl1 xvfb"),
        ("dnf", "sudo dnf install -y libglvnd-egl xorg-x11-server-Xvfb"),
        ("pacman", "sudo pacman -S --needed --noconfirm libglvnd xorg-server-xvfb"),
    ],
)
def test_where_it_may_not_install_the_exact_command_is_printed(
    tool: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    needs = (
        system.Need(
            "libnothing-of-the-kind.so.7", "libegl1", "libglvnd-egl", "libglvnd", "libEGL1"
        ),
        system.Need(
            "no-such-program",
            "xvfb",
            "xorg-x11-server-Xvfb",
            "xorg-server-xvfb",
            "xorg-x11-server-Xvfb",
        ),
        system.Need("/", "never"),
    )
    assert not system.provide(needs)
    assert capsys.readouterr().out == f"Missing on this system. This installs it:\n  {command}\n"


def test_what_tests_are_skipped_without_is_installed_by_the_test_command() -> None:
    """A walk that is skipped because nobody installed its screen is no walk."""
    installed = {need.probe for need in system.TESTING}
    assert {
        *screens.NEEDED,
        "dbus-run-session",
        "gnome-keyring-daemon",
        "bwrap",
        "rg",
        "patch",
        "cc",
    } <= installed
    assert "desktop-file-validate" in installed


def test_building_plyvel_is_asked_for_only_where_there_is_no_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "plyvel_has_a_wheel", lambda: True)
    assert system.leveldb() == ()
    monkeypatch.setattr(system, "plyvel_has_a_wheel", lambda: False)
    assert [need.apt for need in system.leveldb()] == ["libleveldb-dev", "g++", "python3-dev"]


def test_an_environment_that_was_left_half_made_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a first run leaves it that was cut short, or where python3-venv is missing: a
    Python without pip.
    """
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    monkeypatch.setattr(environment, "VENV", venv)
    environment._make()
    subprocess.run(
        [str(environment.python()), "-m", "pip", "--version"], check=True, stdout=subprocess.DEVNULL
    )


def test_a_folder_that_is_no_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    monkeypatch.setattr(environment, "VENV", tmp_path)
    with pytest.raises(SystemExit, match="not a virtual environment"):
        environment._make()
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_dev_explains_itself_without_an_environment() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "packaging/dev.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(
        f"  {command}" in done.stdout
        for command in ("run", "test", "bench", "faults", "build", "lock")
    )


def test_the_version_stands_in_one_place() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "packaging/build.py"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == __version__


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["-P", "-m", "helix_desktop", "--version"], __version__),
        (["-I", "-m", "helix_desktop", "--version"], __version__),
        (["-I", "-S", "SCRIPT", "a b"], "['a b']"),
        (["-I", "-S", "-c", "import sys; print(sys.argv)", "a b"], "['-c', 'a b']"),
        (jail.jail_command_line({"lifeline": 0}, ["/bin/echo", "kept"])[1:], "kept"),
    ],
)
def test_a_bundle_is_its_own_interpreter(asked: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; print(sys.argv[1:])")
    words = [str(tmp_path / "script.py") if word == "SCRIPT" else word for word in asked]
    command = [sys.executable, str(ROOT / "packaging/entry.py")] + list(words)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert (
            process.stdout.read().strip().endswith(said)
        )  # its input stays open: the keeper's lifeline
        assert process.wait() == 0


def test_what_a_bundle_starts_is_not_told_of_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os; print(os.environ.get('LD_LIBRARY_PATH'), '_PYI_X' in os.environ)"
    )
    command = [
        sys.executable,
        str(ROOT / "packaging/entry.py"),
        "-I",
        "-S",
        str(tmp_path / "script.py"),
    ]
    given = {
        **os.environ,
        "_PYI_X": "1",
        "LD_LIBRARY_PATH": "/bundle",
        "LD_LIBRARY_PATH_ORIG": "/own",
    }
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True, env=given).stdout
        == "/own False\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_an_uninstalled_program_leaves_nothing_but_what_is_the_users(tmp_path: Path) -> None:
    build = tmp_path / "lib/helix-desktop/1-abc"
    files = {
        build / "installed-prefix": f"{tmp_path}\n",
        build
        / "installed-files": "./icons/hicolor/16x16/apps/helix-desktop.png\n./applications/helix-desktop.desktop\n",
        build / "uninstall": (ROOT / "packaging/linux/uninstall.sh").read_text(encoding="utf-8"),
        build / "helix-desktop": "",
        tmp_path / "share/icons/hicolor/16x16/apps/helix-desktop.png": "",
        tmp_path / "share/icons/hicolor/icon-theme.cache": "",
        tmp_path / "share/applications/helix-desktop.desktop": "",
        tmp_path / "share/applications/mine.desktop": "",
        tmp_path / "share/helix-desktop/workspaces/kept": "",
        tmp_path / "bin/mine": "",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "bin/helix-desktop").symlink_to(build / "helix-desktop")
    program = build / "helix-desktop"
    asked = tmp_path.with_name(f"{tmp_path.name} asked")
    program.chmod(0o755)
    for code in (3, 0):
        program.write_text(f'#!/bin/sh\necho "$@" >> "{asked}"\nexit {code}\n', encoding="utf-8")
        ended = subprocess.run(
            ["sh", str(build / "uninstall")], check=False, capture_output=True, text=True
        )
        assert (ended.returncode, program.exists()) == ((1, True) if code else (0, False))
        assert ("still contain its address" in ended.stderr) is bool(code)
    assert asked.read_text(encoding="utf-8") == "resident leave\n" * 2
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert left == {
        "share/applications/mine.desktop",
        "share/helix-desktop/workspaces/kept",
        "bin/mine",
    }
    assert not (tmp_path / "share/icons").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="an installer for Linux")
def test_a_build_that_runs_is_neither_replaced_nor_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    built = tmp_path / "build/bundle/helix-desktop"
    home = tmp_path / "home"
    built.mkdir(parents=True)
    home.mkdir()
    shutil.copyfile("/bin/sleep", built / "helix-desktop")
    installer = run.make(built, "1.0", "2026-01-01", tmp_path)
    (tmp_path / "link").symlink_to(home)  # A folder is often reached through a link.
    command = ["sh", str(installer), "--prefix", str(tmp_path / "link")]

    def said(*more: str) -> tuple[int, str]:
        ended = subprocess.run([*command, *more], check=False, capture_output=True, text=True)
        return ended.returncode, ended.stderr

    assert said() == (0, "")
    program = (home / "bin/helix-desktop").resolve()
    with subprocess.Popen([program, "600"]) as process:
        code, why = said()
        assert (code, "is running" in why, "Nothing was changed" in why) == (1, True, True)
        code, why = said("--uninstall")
        assert (code, f"(process {process.pid})" in why, "Nothing was changed" in why) == (
            1,
            True,
            True,
        )
        assert program.exists()
        process.kill()
    assert said() == (0, "")
    assert [path.name for path in (home / "lib/helix-desktop").glob(".new*")] == []
    assert said("--uninstall")[0] == 0
    assert not (home / "lib/helix-desktop").exists()


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="what root installs")
def test_root_installs_nothing_into_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    built = tmp_path / "build/bundle/helix-desktop"
    home = tmp_path / "home"
    built.mkdir(parents=True)
    shutil.copyfile("/bin/true", built / "helix-desktop")
    installer = run.make(built, "1.0", "2026-01-01", tmp_path)
    (home / "user").mkdir(parents=True)
    os.chown(home / "user", 61_000, 61_000)
    (tmp_path / "link").symlink_to(home / "user")
    os.chown(tmp_path / "link", 61_000, 61_000, follow_symlinks=False)
    for prefix in (home / "user", home / "user/.local", tmp_path / "link"):
        for action in ([], ["--uninstall"]):
            command = ["sh", str(installer), "--prefix", str(prefix), *action]
            ended = subprocess.run(command, check=False, capture_output=True, text=True)
            assert (ended.returncode, "belongs to another user" in ended.stderr) == (1, True)
    assert not list((home / "user").iterdir())


def test_what_is_here_for_the_tests_alone_stays_out_of_a_bundle() -> None:
    strangers = bundle._strangers()
    assert {"pytest", "_pytest", "hypothesis", "mypy"} <= set(strangers)
    assert not {"helix_desktop", "PySide6", "httpx", "httpx2", "certifi", "mcp", "uvicorn"} & set(
        strangers
    )


def test_every_library_of_the_lock_has_a_licence_and_a_place_in_the_bill() -> None:
    names = notices.locked(ROOT / "packaging/requirements.lock")
    assert "plyvel" in names
    present = list(notices.distributions(names))
    assert [each.metadata["Name"] for each in present if not notices.licence_of(each)] == []
    bill = notices.bill_of_materials(names, "1", "2026-01-01T00:00:00Z", {})
    assert bill == notices.bill_of_materials(names, "1", "2026-01-01T00:00:00Z", {})
    assert '"purl": "pkg:pypi/tiktoken@' in bill


def test_the_icon_comes_in_every_size() -> None:
    icons = ROOT / "resources/icons"
    for size in (16, 22, 24, 32, 48, 64, 128, 256, 512):
        image = (icons / f"helix-{size}.png").read_bytes()
        assert struct.unpack(">II", image[16:24]) == (size, size)
    assert (icons / "helix.ico").read_bytes()[:6] == struct.pack("<HHH", 0, 1, 8)


@pytest.mark.skipif(
    shutil.which("desktop-file-validate") is None, reason="desktop-file-utils are not here"
)
def test_the_menu_entry_is_valid() -> None:
    entry = ROOT / "packaging/linux/helix-desktop.desktop"
    assert (
        subprocess.run(
            ["desktop-file-validate", str(entry)], capture_output=True, check=True
        ).stdout
        == b""
    )


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")
@pytest.mark.parametrize(
    "script",
    ["linux/install.sh", "linux/uninstall.sh", "linux/prerm.sh", "linux/leave.sh", "smoke.sh"],
)
def test_shell_scripts_can_be_read(script: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / "packaging" / script)], check=True)


def test_a_change_is_tested_by_what_mirrors_it_first_then_by_what_imports_it(
    tmp_path: Path,
) -> None:
    files = {
        "helix_desktop/engine/view.py": "",
        "helix_desktop/gui/context_meter.py": "from helix_desktop.engine import view",
        "helix_desktop/gui/theme.py": "",
        "tests/engine/test_view.py": "from helix_desktop.engine.view import compute",
        "tests/gui/test_context_meter.py": "",
        "tests/gui/test_theme.py": "",
        "tests/gui/test_figures.py": "import helix_desktop.engine.view",
        "tests/gui/surfaces.py": "import helix_desktop.engine.view",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    near = [
        "tests/engine/test_view.py",
        "tests/gui/test_figures.py",
        "tests/gui/test_context_meter.py",
    ]
    assert changed.affected_tests(tmp_path, ["helix_desktop/engine/view.py"]) == near
    assert changed.affected_tests(tmp_path, ["README.md"]) == []


def test_what_changed_is_also_what_git_does_not_know_yet(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b"]
    (tmp_path / "old.py").write_text("1")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    (tmp_path / "old.py").write_text("2")
    (tmp_path / "new.py").write_text("3")
    assert changed.changed_files(tmp_path, "HEAD") == ["old.py", "new.py"]
