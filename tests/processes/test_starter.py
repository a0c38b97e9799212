from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import helix_desktop
from helix_desktop.errors import NotFound
from helix_desktop.processes import folders_of_agents, starter
from helix_desktop.processes.starter import (
    CommandAuthor,
    ProcessLaunch,
    ProcessPlace,
    UnsafeLaunch,
    find_program,
    isolated_python_command,
    own_program_command,
    run_process,
    run_process_keeping_end,
)

HASH = "0" * 64
LIBRARIES = (
    "orjson",
    "httpx",
    "argparse",
    "json",
    "platformdirs",
    "zstandard",
    "tomlkit",
    "keyring",
)


def launch(whose: CommandAuthor, argv: list[str], **options: Any) -> ProcessLaunch:
    return ProcessLaunch(whose, argv, "/", {"PATH": "/usr/bin:/bin"}, **options)


@pytest.mark.parametrize(
    ("whose", "argv", "options", "why"),
    [
        (CommandAuthor.PROGRAM, [], {}, "no program"),
        (CommandAuthor.PROGRAM, ["git", "status"], {}, "absolute path"),
        (CommandAuthor.PROGRAM, [sys.executable, "-m", "helix_desktop"], {}, "isolated"),
        (CommandAuthor.PROGRAM, [sys.executable, "-P", "-m", "helix_desktop"], {}, "isolated"),
        (CommandAuthor.TRUSTED, ["/bin/true"], {"place": ProcessPlace.SANDBOX, "reason_unchecked": "x"}, "hash"),
        (CommandAuthor.TRUSTED, ["/bin/true"], {"trusted_hash": HASH, "reason_unchecked": "x"}, "only in the sandbox"),
        (CommandAuthor.TRUSTED, ["/bin/true"], {"trusted_hash": HASH, "place": ProcessPlace.WATCHED, "is_allowed_outside": True, "reason_unchecked": "x"}, "only in the sandbox"),
        (CommandAuthor.TRUSTED, ["/bin/true"], {"trusted_hash": HASH, "place": ProcessPlace.SANDBOX}, "checked afterwards"),
        (CommandAuthor.MODEL, ["/bin/true"], {"reason_unchecked": "x"}, "only when the user allowed it"),
        (CommandAuthor.MODEL, ["/bin/true"], {"place": ProcessPlace.SANDBOX}, "checked afterwards"),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_not_started(
    whose: CommandAuthor, argv: list[str], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnsafeLaunch, match=why):
        launch(whose, argv, **options)


def test_what_keeps_to_the_rules_is_started() -> None:
    launch(
        CommandAuthor.TRUSTED,
        ["/bin/true"],
        trusted_hash=HASH,
        place=ProcessPlace.SANDBOX,
        reason_unchecked="it writes nothing",
    )
    launch(
        CommandAuthor.MODEL,
        ["/bin/true"],
        is_allowed_outside=True,
        reason_unchecked="the user allowed it",
    )
    launch(CommandAuthor.PROGRAM, isolated_python_command("-c", ""))
    done = run_process(launch(CommandAuthor.USER, ["printf", "a"]))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a", b"")


async def test_every_way_to_start_gives_the_folder_and_the_environment_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_OWN", "not for others")
    given = {"PATH": "/usr/bin:/bin", "GIVEN": "1"}
    begun = ProcessLaunch(CommandAuthor.USER, ["env"], tmp_path, given)
    where = ProcessLaunch(CommandAuthor.USER, ["pwd"], tmp_path, given)
    for said, wanted in (
        (begun, [f"{name}={value}" for name, value in given.items()]),
        (where, [str(tmp_path)]),
    ):
        opened = starter.open_process(said, stdout=starter.PIPE)
        assert opened.stdout is not None
        started = await starter.start_process(said, stdin=starter.DEVNULL, stderr=starter.DEVNULL)
        assert started.stdout is not None
        assert run_process(said).stdout.decode().splitlines() == wanted
        assert opened.stdout.read().splitlines() == wanted
        assert (await started.stdout.read()).decode().splitlines() == wanted
        opened.stdout.close()
        assert (opened.wait(), await started.wait()) == (0, 0)


def test_a_program_is_never_found_in_the_folder_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "only-here"
    fake.write_text("#!/bin/sh\necho fake\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (".", "", f".{os.pathsep}", "sub/.."):
        assert find_program("only-here", {"PATH": path}) == ""
        with pytest.raises(FileNotFoundError):
            run_process(ProcessLaunch(CommandAuthor.USER, ["only-here"], tmp_path, {"PATH": path}))
    assert find_program("only-here", {"PATH": str(tmp_path)}) == str(fake)


def test_a_folder_of_the_path_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    # The system refuses such a name, also to root, whom it refuses no folder.
    unreadable = f"/{'a' * 300}"
    path = os.pathsep.join([unreadable, str(tmp_path)])
    assert find_program("only-here", {"PATH": path}) == str(program)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which agents work, with a program `tool` that says so. The user has one, too, and
    `outer`, which starts `tool` by its name.
    """
    monkeypatch.setattr(folders_of_agents, "_folders_of_agents", set())
    folder = tmp_path / "project"
    for path, line in (
        (folder / "bin" / "tool", "echo of the project"),
        (tmp_path / "own" / "tool", "echo of the user"),
        (tmp_path / "own" / "outer", "exec tool"),
        (folder / "bin" / "only-here", "true"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    folders_of_agents.leave_out_of_search([folder])
    return folder


@pytest.mark.parametrize("first", ["project/bin", "links", "into the system"])
@pytest.mark.parametrize("program", ["tool", "outer"])
def test_what_the_user_set_up_is_not_looked_up_in_a_folder_in_which_agents_work(
    tmp_path: Path, project: Path, program: str, first: str
) -> None:
    (tmp_path / "links").symlink_to(project / "bin")
    # Whoever works in the project can let its link lead elsewhere at any moment.
    (tmp_path / "into the system").symlink_to(project / "hop")
    (project / "hop").symlink_to("bin")
    environment = {"PATH": f"{tmp_path / first}:{tmp_path / 'own'}:/bin"}
    launch = ProcessLaunch(CommandAuthor.USER, [program], "/", environment)
    assert run_process(launch).stdout == b"of the user\n"
    from_shell = ProcessLaunch(
        CommandAuthor.USER, [program], "/", environment, keeps_search_path=True
    )
    assert run_process(from_shell).stdout == b"of the project\n"


def test_a_link_of_a_project_into_the_system_is_no_program_of_ours(
    tmp_path: Path, project: Path
) -> None:
    """It led to the real git when it was looked up, and elsewhere when it was started."""
    (project / "bin" / "git").symlink_to("/usr/bin/git")
    (tmp_path / "links").symlink_to(project / "hop")
    (project / "hop").symlink_to("/usr/bin")
    search_path = f"{project / 'bin'}:{tmp_path / 'links'}:/usr/bin"
    assert starter.find_own_program("git", {"PATH": search_path}) == "/usr/bin/git"
    assert folders_of_agents.search_path_without_agents(search_path) == "/usr/bin"
    with pytest.raises(starter.UnsafeLaunch, match="agents work"):
        ProcessLaunch(CommandAuthor.PROGRAM, [str(tmp_path / "links" / "git")])


def test_no_library_of_a_project_is_loaded_into_a_program_of_ours(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library with the name of one that git needs would have run with all rights. An empty folder
    in this variable is the one in which a program starts.
    """
    libraries = f"{project}/lib::lib:/usr/local/lib:"
    monkeypatch.setenv("LD_LIBRARY_PATH", libraries)
    env = starter.find_own_program("env", {"PATH": "/usr/bin:/bin"})
    given = {"LD_LIBRARY_PATH": libraries}
    for launch in (
        ProcessLaunch(CommandAuthor.PROGRAM, [env], tmp_path, given),
        ProcessLaunch(CommandAuthor.PROGRAM, [env], tmp_path),
        ProcessLaunch(CommandAuthor.USER, [env], tmp_path),
    ):
        lines = run_process(launch).stdout.decode().splitlines()
        assert [line for line in lines if line.startswith("LD_LIB")] == [
            "LD_LIBRARY_PATH=/usr/local/lib"
        ]
    only_of_project = {"LD_LIBRARY_PATH": f"{project}/lib"}
    launch = ProcessLaunch(CommandAuthor.PROGRAM, [env], tmp_path, only_of_project)
    assert b"LD_LIBRARY_PATH" not in run_process(launch).stdout


def test_a_program_that_only_a_project_has_is_started_by_its_path_alone(project: Path) -> None:
    environment = {"PATH": str(project / "bin")}
    with pytest.raises(NotFound, match=f"only in {project / 'bin'}, where agents work"):
        starter.find_users_program("only-here", environment)
    with pytest.raises(NotFound, match="was not found"):
        starter.find_users_program("nowhere", environment)
    path = str(project / "bin" / "only-here")
    assert starter.find_users_program(path, environment) == path


def test_in_a_home_as_a_workspace_the_users_own_programs_are_found(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    for folder in (".local/bin", "tools"):
        (project / folder).mkdir(parents=True)
        (project / folder / "npx").symlink_to("/bin/true")
    search_path = f"{project}/tools:{project}/.local/bin"
    found = starter.find_own_program("npx", {"PATH": search_path})
    assert found == f"{project}/.local/bin/npx"
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    assert starter.find_own_program("npx", {"PATH": search_path}) == ""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with modules called like those the program needs; each says that it ran."""
    for name in (*LIBRARIES, "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text(
            f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).write_text({name!r})\n"
        )
    return tmp_path  # fmt: skip


def test_the_program_anew_runs_nothing_of_the_folder_it_is_started_in(hostile: Path) -> None:
    # All that could lead there at once: each start of the program takes a second.
    leading_there = {
        "PYTHONPATH": os.pathsep.join([str(hostile), "."]),
        "PYTHONSTARTUP": str(hostile / "orjson.py"),
    }
    for more in ({}, leading_there):
        done = run_process(
            ProcessLaunch(
                CommandAuthor.PROGRAM,
                own_program_command("doctor", "--json"),
                hostile,
                {**os.environ, **more},
            )
        )
        assert done.stdout, done.stderr.decode()
        assert not (hostile / "ran").exists()  # fmt: skip


@pytest.mark.parametrize(
    "code", ["-m helix_desktop --version", "-c import\thelix_desktop.cli,orjson,httpx"]
)
def test_started_by_hand_the_package_searches_no_folder_of_the_users(
    hostile: Path, code: str
) -> None:
    """Only what Python itself imports before us is out of our hands."""
    for name in ("sitecustomize", "usercustomize", "argparse", "json"):
        (hostile / f"{name}.py").unlink()
    (hostile / "src").mkdir()
    (hostile / "src/orjson.py").write_text((hostile / "orjson.py").read_text())
    package = str(Path(helix_desktop.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, "src"])}
    words = [sys.executable, *(each.replace("\t", " ") for each in code.split(" "))]
    done = subprocess.run(
        words, cwd=hostile, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (hostile / "ran").exists()


def test_a_worker_gets_nothing_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, sys\nprint(sorted(set(os.environ) - {'LC_CTYPE'}), sys.flags.isolated, len(sys.path))\n"
    )

    async def said() -> bytes:
        process = await starter.start_isolated_script(script)
        out, _ = await process.communicate(b"")
        return out

    assert b"sk-" not in asyncio.run(said())
    assert asyncio.run(said()).split()[0] in (b"[]", b"['LD_LIBRARY_PATH']")


def test_a_program_that_prints_without_end_fills_no_memory() -> None:
    """The defect: what `gh` printed was all kept, 700 MB in one trial."""
    code = (
        "import sys\n"
        "sys.stderr.write('begun')\n"
        "for number in range(300): sys.stdout.write(f'{number:>100000}')\n"
        "sys.stdout.write('the end of ' + sys.stdin.read())"
    )
    tracemalloc.start()
    finished = run_process_keeping_end(
        launch(CommandAuthor.USER, [sys.executable, "-I", "-c", code]),
        input_bytes=b"all",
        seconds=60,
        kept_bytes=1_000,
    )
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert (finished.returncode, finished.stderr) == (0, b"begun")
    assert len(finished.stdout) == 1_000
    assert finished.stdout.endswith(b"the end of all")


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_what_a_program_started_ends_with_it_when_it_takes_too_long(tmp_path: Path) -> None:
    place = tmp_path / "child"
    script = f"sleep 600 & echo $! > {place}; wait"
    with pytest.raises(subprocess.TimeoutExpired):
        run_process_keeping_end(
            launch(CommandAuthor.USER, ["/bin/sh", "-c", script], has_own_session=True),
            seconds=0.3,
        )
    child = int(place.read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_output_that_must_be_whole_is_refused_when_it_is_too_long_and_the_program_ends() -> None:
    """The defect: git's output was kept without a limit, and a repository can make it any length."""
    endless = launch(CommandAuthor.USER, ["/bin/sh", "-c", "yes; echo never >&2"])
    tracemalloc.start()
    with pytest.raises(starter.OutputTooLong):
        run_process(endless, seconds=60, most_bytes=100_000)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    exactly = launch(CommandAuthor.USER, ["printf", "%0100000d", "7"])
    assert len(run_process(exactly, most_bytes=100_000).stdout) == 100_000
