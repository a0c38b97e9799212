"""What variables that lead into a project may do: nothing of it runs outside the sandbox."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from helix_desktop.mcp_client.login_path import read_login_path
from helix_desktop.processes import folders_of_agents
from helix_desktop.processes.folders_of_agents import environment_without_agents
from helix_desktop.processes.starter import CommandAuthor, ProcessLaunch, run_process
from helix_desktop.program_folders import find_folders_at_start, find_program_folders
from helix_desktop.store.all_workspaces import AllWorkspaces


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which agents work."""
    monkeypatch.setattr(folders_of_agents, "_folders_of_agents", set())
    monkeypatch.setattr(folders_of_agents, "_readers", [])
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    folders_of_agents.leave_out_of_search([folder])
    return folder


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONPATH", "{project}/src"),
        ("PYTHONPATH", "src"),
        ("PYTHONHOME", "{project}"),
        ("NODE_OPTIONS", "--max-old-space-size=99 --require={project}/hook.js"),
        ("NODE_OPTIONS", "-r ./hook.js"),
        ("NODE_OPTIONS", "-r tools/hook.js"),
        ("PERL5OPT", "-I{project}/lib -MHook"),
        ("RUBYOPT", "-r./hook"),
        ("JAVA_TOOL_OPTIONS", "-javaagent:{project}/hook.jar"),
        ("LUA_PATH", "/usr/share/lua/?.lua;{project}/?.lua;;"),
        ("LD_PRELOAD", "/usr/lib/a.so {project}/b.so"),
        ("GIT_SSH_COMMAND", "ssh -F ~/project/config"),
        ("GIT_SSH_COMMAND", "ssh -F $HOME/project/config"),
        ("GIT_SSH_COMMAND", 'ssh -o "ProxyCommand={project}/x"'),
        ("GIT_EXEC_PATH", "{project}/git"),
        ("GIT_CONFIG_GLOBAL", "{project}/.gitconfig"),
        ("SSH_SK_PROVIDER", "{project}/x.so"),
        ("SHELL", "bin/sh"),
        ("SHELL", "{link}/sh"),
        ("BROWSER", "{project}/browser %s"),
        ("EDITOR", "{link}/vi"),
        ("XDG_CONFIG_HOME", "{project}/.config"),
        ("XDG_DATA_DIRS", "{project}/share"),
        ("QT_PLUGIN_PATH", "{project}/plugins"),
        ("GTK_MODULES", "gail:{project}/x.so"),
        ("OPENSSL_CONF", "{project}/openssl.cnf"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path={project}/bus"),
        ("TMPDIR", "{project}/tmp"),
        ("TMPDIR", "."),
        ("npm_config_userconfig", "{project}/.npmrc"),
        ("DOCKER_CONFIG", "file:///{project}/docker"),
    ],
)
def test_a_variable_by_which_a_program_would_run_what_a_project_holds_is_left_out(
    name: str, value: str, project: Path
) -> None:
    filled_in = value.format(project=project, link=project.parent / "link")
    assert environment_without_agents({name: filled_in, "A": "b"}) == {"A": "b"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "sqlite:///{project}/data"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "{project}/key.json"),
        ("VIRTUAL_ENV", "{project}/.venv"),
        ("PWD", "{project}"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/deploy"),
        ("NODE_OPTIONS", "--max-old-space-size=4096"),
        ("GTK_MODULES", "gail:atk-bridge"),
        ("LESSOPEN", "| /usr/bin/lesspipe %s"),
        ("SHELL", "/bin/bash"),
        ("DOCKER_HOST", "unix:///run/docker.sock"),
        ("PIP_INDEX_URL", "https://pypi.example/simple"),
        ("XDG_CURRENT_DESKTOP", "ubuntu:GNOME"),
        ("GIT_AUTHOR_NAME", "Ada A/S"),
        ("PYTHONUNBUFFERED", "1"),
        ("EDITOR", ""),
    ],
)
def test_other_variables_stay(name: str, value: str, project: Path) -> None:
    environment = {name: value.format(project=project)}
    assert environment_without_agents(environment) == environment


def test_of_a_list_what_leads_elsewhere_stays(project: Path) -> None:
    folders = f"{project}/lib::lib:/usr/lib/python:/opt/lib"
    kept = environment_without_agents({"PYTHONPATH": folders})
    assert kept == {"PYTHONPATH": "/usr/lib/python:/opt/lib"}


@pytest.mark.parametrize("seed", range(20))
def test_a_path_that_leads_into_a_project_by_any_links_is_seen(seed: int, project: Path) -> None:
    """Links to folders, files, other links, themselves and nothing, with `..` before and behind."""
    draw = random.Random(seed)
    names = ["a", "b", "c", "d", "e", "project", "elsewhere"]
    (project / "a").mkdir()
    (project.parent / "elsewhere").mkdir()
    for folder in (project.parent, project, project / "a", project.parent / "elsewhere"):
        for name in draw.sample(names[:5], 3):
            steps = draw.choices([*names, ".."], k=draw.randint(1, 4))
            target = Path(*steps)
            if draw.random() < 0.3:
                target = project.parent / target
            if not os.path.lexists(folder / name):
                (folder / name).symlink_to(target)
    count_inside = 0
    for _ in range(200):
        path = project.parent.joinpath(*draw.choices([*names, ".."], k=draw.randint(1, 6)))
        if Path(os.path.realpath(path)).is_relative_to(project):
            count_inside += 1
            assert folders_of_agents.is_in_folder_of_agents(str(path)), path
    assert count_inside > 3


def test_git_gets_all_settings_of_variables_or_none(project: Path) -> None:
    variables = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": f"{project}/monitor",
    }
    launch = ProcessLaunch(
        CommandAuthor.USER,
        ["git", "config", "--list"],
        "/",
        environment_without_agents(variables | {"PATH": os.environ["PATH"]}),
    )
    finished = run_process(launch)
    assert finished.returncode == 0
    assert b"fsmonitor" not in finished.stdout


@pytest.mark.parametrize("program", ["python3", "perl", "node", "bash"])
def test_no_code_of_a_project_is_loaded_into_what_the_user_has_installed(
    program: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.which(program, path="/usr/bin:/bin:/usr/local/bin")
    if path is None:
        pytest.skip(f"there is no {program} on this computer")
    ran = project / "ran"
    (project / "sitecustomize.py").write_text(f"open({str(ran)!r}, 'w')\n")
    (project / "Hook.pm").write_text(f"open(F, '>', '{ran}'); 1;\n")
    (project / "hook.js").write_text(f"require('fs').writeFileSync({str(ran)!r}, '')\n")
    (project / "hook.sh").write_text(f": > {ran}\n")
    for name, value in (
        ("PYTHONPATH", str(project)),
        ("PERL5LIB", str(project)),
        ("PERL5OPT", f"-I{project} -MHook"),
        ("NODE_OPTIONS", f"--require {project}/hook.js"),
        ("BASH_ENV", f"{project}/hook.sh"),
    ):
        monkeypatch.setenv(name, value)
    option = "-e" if program in ("perl", "node") else "-c"
    run_process(ProcessLaunch(CommandAuthor.USER, [path, option, ""], "/"))
    assert not ran.exists()
    # As it is without this rule.
    run_process(ProcessLaunch(CommandAuthor.USER, [path, option, ""], "/", dict(os.environ)))
    assert ran.exists()


def test_what_opens_an_address_finds_no_program_of_a_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_path = f"{project}/bin:/usr/bin"
    monkeypatch.setenv("PATH", search_path)
    monkeypatch.setenv("BROWSER", f"{project}/browser %s")
    with folders_of_agents.environment_for_openers():
        assert os.environ["PATH"] == "/usr/bin"
        assert "BROWSER" not in os.environ
    assert os.environ["PATH"] == search_path
    assert os.environ["BROWSER"] == f"{project}/browser %s"


def test_a_process_that_has_listed_no_workspace_knows_where_agents_work(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    home = tmp_path / "home"
    AllWorkspaces(home / "workspaces").create_stored_workspace("Other", other)
    (home / "workspaces" / "damaged").mkdir()
    (home / "workspaces" / "damaged" / "workspace.toml").write_text("roots = [")
    # Only this process's list has made it known.
    monkeypatch.setattr(folders_of_agents, "_folders_of_agents", set())
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(other))
    monkeypatch.setenv("QT_PLUGIN_PATH", str(other))
    monkeypatch.setenv("PATH", f"{other}/bin:/usr/bin:/bin")
    where = find_folders_at_start(home)
    assert where == find_program_folders(home)
    assert folders_of_agents.is_in_folder_of_agents(f"{other}/bin/git")
    assert "TMPDIR" not in os.environ
    assert "QT_PLUGIN_PATH" not in os.environ
    assert Path(tempfile.gettempdir()) != other
    # Commands in the sandbox need it.
    assert os.environ["PATH"] == f"{other}/bin:/usr/bin:/bin"


def test_a_long_home_has_its_sockets_in_no_folder_of_agents(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command in the sandbox could reach them there, and have anything done outside."""
    home = tmp_path / ("long" * 30)
    AllWorkspaces(home / "workspaces").create_stored_workspace("Mine", project)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(project))
    assert not find_folders_at_start(home).run.is_relative_to(project)


def test_an_agent_that_is_wrapped_gets_the_variables_of_the_shell(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(project))
    find_folders_at_start(tmp_path / "home", keeps_variables=True)
    assert os.environ["TMPDIR"] == str(project)


@pytest.mark.parametrize("shell", ["bin/sh", "./bin/sh", "{project}/bin/sh"])
async def test_the_login_shell_is_not_a_program_of_a_project(
    shell: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = project / "bin" / "sh"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\n: > {project}/ran\n")
    planted.chmod(0o755)
    monkeypatch.chdir(project)
    own_environment = {"SHELL": shell.format(project=project), "PATH": "/usr/bin:/bin"}
    assert "/usr/bin" in await read_login_path(own_environment | {"HOME": str(project.parent)})
    assert not (project / "ran").exists()


async def test_the_login_shell_starts_in_no_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own files may run what the folder holds, as tools that manage versions do."""
    monkeypatch.chdir(project)
    home = project.parent
    (home / ".bash_profile").write_text("[ -f hook.sh ] && . ./hook.sh\n")
    (project / "hook.sh").write_text(f": > {project}/ran\n")
    await read_login_path({"SHELL": "/bin/bash", "PATH": "/usr/bin:/bin", "HOME": str(home)})
    assert not (project / "ran").exists()
