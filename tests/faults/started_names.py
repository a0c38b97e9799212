"""What is started outside the sandbox, while PATH or other variables name a folder in which agents work.

    python -m tests.faults.started_names [--starts 60] [--seed 1]

The project has a file for each program of this computer, and for those of agents and servers; each
writes down that it ran. They stand where a virtual environment has its programs, or links lead
there. In two forms it is not PATH but fifty other variables that lead there, as with direnv: to
modules, libraries, programs, settings and temporary folders. Then the program starts something in
each way it has. None of these files may run, and no such variable may reach what was started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from helix_desktop.acp_client.acp_agents import AcpAgent, list_acp_agents
from helix_desktop.acp_client.agent_connection import AgentConnection
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import CallContext
from helix_desktop.errors import HelixError
from helix_desktop.mcp_client.login_path import read_login_path
from helix_desktop.mcp_client.server_config import ServerConfig
from helix_desktop.processes import folders_of_agents, starter
from helix_desktop.tools.git_runner import run_git
from helix_desktop.workbench import branch_publishing
from helix_desktop.workbench.acp_conversations import AcpConversations
from helix_desktop.workbench.conversation_relay import mcp_server_command
from helix_desktop.workspace_host import ssh_host
from helix_desktop.workspace_host.ssh_address import SshAddress
from tests.mcp_client.world import hosting
from tests.tools.world import World, world

FURTHER_NAMES = (
    "npx", "as-npx", "node", "uvx", "uv", "python", "python3", "docker", "claude", "gemini", "codex", "opencode", "helix-desktop", "gh", "glab", "rg", "bwrap", "git", "gpg",
    "ssh", "setsid", "xdg-open", "xdg-settings", "x-terminal-emulator", "firefox", "x-www-browser", "www-browser", "sensible-browser", "google-chrome", "gio", "kde-open",
)  # fmt: skip
# What the user has installed. Each starts another program by its name, as these programs do.
# As the real one, it prefers what the folder has.
NPX = "[ -x node_modules/.bin/server ] && exec node_modules/.bin/server\nnode --version"
INSTALLED = {
    "npx": NPX,
    "as-npx": NPX,
    "glab": "git --version",
    "gemini": "node --version",
    "gh": "git --version",
    "ssh": "nc -h",
    "x-terminal-emulator": "less --version",
    "xdg-open": "grep --version",
    "xdg-settings": "sed --version",
    "node": "true",
}
# What each of them starts, too: what reads variables loads what they name.
INTERPRETERS = """
for python in /usr/bin/python3 /usr/local/bin/python3; do [ -x $python ] && $python -c ''; done
[ -x /usr/bin/perl ] && /usr/bin/perl -e ''
[ -x /usr/bin/ruby ] && /usr/bin/ruby -e ''
[ -x /usr/bin/bash ] && /usr/bin/bash -c :
[ -x /usr/bin/node ] && /usr/bin/node -e ''
[ -x /usr/bin/git ] && /usr/bin/git --exec-path >/dev/null && /usr/bin/git config --list >/dev/null
"""
VARIABLES_AS_PATHS = {
    "PYTHONPATH": "lib", "PYTHONHOME": "home", "PYTHONSTARTUP": "lib/sitecustomize.py", "PYTHONUSERBASE": "lib", "PYTHONPYCACHEPREFIX": "lib",
    "NODE_PATH": "lib", "PERL5LIB": "lib", "RUBYLIB": "lib", "GEM_HOME": "lib", "GEM_PATH": "lib", "CLASSPATH": "lib", "LUA_PATH": "lib/?.lua",
    "BASH_ENV": "lib/hook.sh", "ENV": "lib/hook.sh", "ZDOTDIR": "lib", "SHELL": "witness", "EDITOR": "witness", "PAGER": "witness", "BROWSER": "witness",
    "TERMINAL": "witness", "GIT_SSH": "witness", "GIT_SSH_COMMAND": "witness", "GIT_ASKPASS": "witness", "SSH_ASKPASS": "witness", "SSH_SK_PROVIDER": "lib/x.so",
    "GIT_EXEC_PATH": ".venv/bin", "GIT_CONFIG_GLOBAL": "lib/gitconfig", "GIT_EXTERNAL_DIFF": "witness", "GIT_PAGER": "witness", "GNUPGHOME": "lib", "GH_CONFIG_DIR": "lib",
    "GLAB_CONFIG_DIR": "lib", "AWS_CONFIG_FILE": "lib/aws", "DOCKER_CONFIG": "lib", "XDG_CONFIG_HOME": "lib", "XDG_DATA_DIRS": "lib", "XDG_CONFIG_DIRS": "lib",
    "GTK_PATH": "lib", "GTK_MODULES": "lib/x.so", "GIO_EXTRA_MODULES": "lib", "QT_PLUGIN_PATH": "lib", "QT_QPA_PLATFORM_PLUGIN_PATH": "lib",
    "OPENSSL_CONF": "lib/openssl.cnf", "GCONV_PATH": "lib", "TMPDIR": "tmp", "npm_config_userconfig": "lib/npmrc", "NPM_CONFIG_PREFIX": "lib", "LD_LIBRARY_PATH": "lib",
    "FONTCONFIG_FILE": "lib/fonts.conf", "KRB5_CONFIG": "lib/krb5.conf",
}  # fmt: skip
FORMS = (
    "environment", "link to it", "link in it", "relative", "project first", "variables",
    "relative variables",
)  # fmt: skip
BROWSER = "from helix_desktop.processes import folders_of_agents, starter; folders_of_agents.leave_out_of_search([{project!r}]); starter.open_web_page('https://example.org')"
DESKTOP = """
from PySide6.QtGui import QGuiApplication
from helix_desktop.gui.deep_links import open_in_browser
from helix_desktop.processes import folders_of_agents
folders_of_agents.leave_out_of_search([{project!r}])
app = QGuiApplication([])
open_in_browser("https://example.org")
"""


class Place(NamedTuple):
    """A folder with a project and what runs in it. `canary` names each file of the project that ran,
    `own` each program of the user's.
    """

    folder: Path
    search_path: str
    here: World

    @property
    def canary(self) -> Path:
        return self.folder / "canary"

    @property
    def own(self) -> Path:
        return self.folder / "own"


def plant(folder: Path, form: str) -> str:
    """Fill the project, and return a PATH that leads into it."""
    planted = folder / "work" / ".venv" / "bin"
    installed = folder / "installed"
    planted.mkdir(parents=True)
    installed.mkdir()
    witness = folder / "work" / "witness"
    witness.write_text(f'#!/bin/sh\necho "$0" >> "{folder}/canary"\n')
    witness.chmod(0o755)
    names = {path.name for path in Path("/usr/bin").iterdir()} | set(FURTHER_NAMES)
    for name in names:
        (planted / name).symlink_to(witness)
    packages = folder / "work" / "node_modules" / ".bin"
    packages.mkdir(parents=True)
    (packages / "server").symlink_to(witness)
    reads_variables = "variables" in form
    for name, line in INSTALLED.items():
        program = installed / name
        lines = ["#!/bin/sh", f'echo "$0" >> "{folder}/own"']
        if reads_variables:
            lines += [f'pwd >> "{folder}/folders"', f'env >> "{folder}/variables"', INTERPRETERS]
        lines.append(line)
        program.write_text("\n".join(lines) + "\n")
        program.chmod(0o755)
    if reads_variables:
        return f"{installed}:/usr/bin:/bin"
    first = str(planted)
    if form == "link to it":
        (folder / "links").symlink_to(planted)
        first = str(folder / "links")
    elif form == "link in it":
        # It leads into the system today, and to the project's own files when it is started.
        (folder / "work" / "hop").symlink_to("/usr/bin")
        (folder / "links").symlink_to(folder / "work" / "hop")
        first = str(folder / "links")
    elif form == "relative":
        first = "./.venv/bin"
    elif form == "project first":
        first = f"{folder}/work:{planted}"
    return f"{first}:{installed}:/usr/bin:/bin"


def plant_variables(folder: Path, form: str) -> dict[str, str]:
    """Fill the project with what variables can name, and return these variables."""
    project = folder / "work"
    canary = folder / "canary"
    lib = project / "lib"
    for path in (lib, project / "tmp"):
        path.mkdir()
    (lib / "sitecustomize.py").write_text(f"open({str(canary)!r}, 'a').write('sitecustomize\\n')\n")
    (lib / "Witness.pm").write_text(
        f"open(F, '>>', '{canary}'); print F \"perl\\n\"; close F; 1;\n"
    )
    (lib / "witness.rb").write_text(f"File.write('{canary}', \"ruby\\n\")\n")
    (lib / "hook.js").write_text(f"require('fs').appendFileSync('{canary}', 'node\\n')\n")
    for name in ("hook.sh", ".zshrc", ".zshenv"):
        (lib / name).write_text(f"echo {name} >> '{canary}'\n")
    (lib / "gitconfig").write_text(f"[core]\n\tfsmonitor = {project}/witness\n")
    (lib / "x.so").write_bytes(b"no library")
    prefix = "./" if form == "relative variables" else f"{project}/"
    variables = {name: prefix + place for name, place in VARIABLES_AS_PATHS.items()}
    variables |= {
        "NODE_OPTIONS": f"--require {prefix}lib/hook.js",
        "PERL5OPT": f"-I{prefix}lib -MWitness",
        "RUBYOPT": f"-r{prefix}lib/witness.rb",
        "JAVA_TOOL_OPTIONS": f"-javaagent:{prefix}lib/x.jar",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={prefix}bus",
    }
    if form == "variables":  # There is one setting, or git ends.
        variables |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.fsmonitor",
            "GIT_CONFIG_VALUE_0": f"{project}/witness",
        }
    return variables


def find_leaks(folder: Path, variables: dict[str, str]) -> list[str]:
    """Return the variables that reached what was started, and the project if it started there."""
    leaks: list[str] = []
    printed = folder / "variables"
    if printed.exists():
        for line in printed.read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition("=")
            if name in variables and value == variables[name]:
                leaks.append(name)
    folders = folder / "folders"
    if folders.exists():
        leaks += [
            line
            for line in folders.read_text().splitlines()
            if line.startswith(f"{folder}/work/tmp")
        ]
    return sorted(set(leaks))


def turn_link(place: Place) -> None:
    """Let the link in the project lead to the project's files, as whoever works there can."""
    hop = place.folder / "work" / "hop"
    if hop.is_symlink():
        other = hop.with_name("other")
        other.symlink_to(place.folder / "work" / ".venv" / "bin")
        other.rename(hop)


async def start_server(place: Place) -> None:
    # The PATH of the login shell comes first, which may have the real `npx`.
    config = ServerConfig("s", command="as-npx", args=("-y", "server"))
    async with hosting(config, further=os.environ) as hosted:
        turn_link(place)
        await hosted.settled()


async def start_packaged_agent(place: Place) -> None:
    await start_agent(place, "npx server")


async def start_agent(place: Place, line: str = "gemini --acp") -> None:
    conversations = AcpConversations.__new__(AcpConversations)
    conversations._login_path = os.environ["PATH"]
    environment = await conversations._read_environment()
    agents = list_acp_agents(f"Mine = {line}", environment)
    turn_link(place)
    agent = next(
        (agent for agent in agents if agent.name == "Mine"), AcpAgent("Mine", tuple(line.split()))
    )
    tasks = OwnedTasks("agent")
    try:
        handlers: Any = None
        await AgentConnection.start_agent(
            agent, environment, place.here.kit, tasks.spawn_task, handlers
        )
    finally:
        await tasks.aclose()


async def start_terminal(place: Place) -> None:
    from helix_desktop.gui.user_terminal import open_user_terminal

    await open_user_terminal(place.folder / "work")
    for _ in range(100):
        if place.own.exists():
            return
        await asyncio.sleep(0.02)


async def start_ssh(_: Place) -> None:
    address = SshAddress("nobody@127.0.0.1", 9)
    stream = await ssh_host._start_ssh(address, ["host"], has_terminal=False)
    await stream.close_stream()


async def start_forge(place: Place, program: str = "gh") -> None:
    state = branch_publishing.BranchState(
        place.folder, "b", "", "origin", "https://github.com/a/b", 1, program
    )
    await asyncio.to_thread(
        branch_publishing._run_in_empty_folder,
        program,
        ["pr", "view"],
        state,
    )


async def start_git(place: Place) -> None:
    await asyncio.to_thread(run_git, place.folder / "work", "init", "-q")


async def start_command(place: Place, **options: object) -> None:
    arguments = {"command": "node; git --version; ls", **options}
    call = ToolCall("1", "run_command", json.dumps(arguments))
    context = CallContext("c", place.here.person.ask, place.here.person.shown.append)
    await place.here.box.run_tool_call(call, context)


async def start_command_outside(place: Place) -> None:
    await start_command(place, outside_sandbox=True)


async def ask_login_shell(_: Place) -> None:
    await read_login_path(os.environ)


async def start_lab(place: Place) -> None:
    await start_forge(place, "glab")


async def search(place: Place) -> None:
    call = ToolCall("1", "search_files", json.dumps({"pattern": "witness"}))
    context = CallContext("c", place.here.person.ask, place.here.person.shown.append)
    await place.here.box.run_tool_call(call, context)


async def start_python(place: Place, code: str) -> None:
    code = code.format(project=str(place.folder / "work"))
    root = Path(__file__).parents[2]
    # Isolated, as a bundle is: what PYTHONPATH names would run before any line of ours.
    argv = [sys.executable, "-I", "-c", f"import sys; sys.path.append({str(root)!r})\n{code}"]
    await asyncio.to_thread(
        subprocess.run,
        argv,
        check=False,
        cwd=place.folder / "work",
        timeout=60,
        capture_output=True,
    )


async def start_browser(place: Place) -> None:
    await start_python(place, BROWSER)


async def start_desktop(place: Place) -> None:
    if os.environ.get("DISPLAY"):
        await start_python(place, DESKTOP)


async def register_server(place: Place) -> None:
    command = mcp_server_command("w", place.folder)
    if str(place.folder) in command[0]:
        place.canary.write_text(f"registered: {command[0]}\n")


async def start_own_programs(place: Place) -> None:
    """Those that are looked up once and started later."""
    found = [starter.find_own_program(name) for name in ("bwrap", "git", "rg", "gpg", "cp")]
    turn_link(place)
    for program in found:
        with suppress(OSError, starter.UnsafeLaunch):
            starter.run_process(
                starter.ProcessLaunch(starter.CommandAuthor.USER, [program, "--version"])
            )


WAYS: tuple[Callable[[Place], Any], ...] = (
    start_server,
    start_agent,
    start_packaged_agent,
    start_terminal,
    start_ssh,
    start_forge,
    start_lab,
    start_git,
    ask_login_shell,
    start_command_outside,
    search,
    start_browser,
    start_desktop,
    register_server,
    start_own_programs,
)


async def try_way(way: Callable[[Place], Any], form: str, found: Counter[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        search_path = plant(folder, form)
        kept = dict(os.environ)
        for variable in ("TERMINAL", "BROWSER"):
            os.environ.pop(variable, None)
        os.environ["PATH"] = search_path
        started_in = Path.cwd()
        (folder / "work").mkdir(exist_ok=True)
        os.chdir(folder / "work")  # As when the program is started in the project.
        variables: dict[str, str] = {}
        if "variables" in form:
            variables = plant_variables(folder, form)
            os.environ.update(variables)
            folders_of_agents.leave_out_of_search([folder / "work"])
            folders_of_agents.leave_out_variables_of_agents()  # As at the start.
            tempfile.tempdir = None
        try:
            async with world(folder) as here:
                place = Place(folder, search_path, here)
                with suppress(HelixError, OSError, TimeoutError):
                    await way(place)
            ran = place.canary.read_text().split() if place.canary.exists() else []
            found["starts"] += 1
            found["programs of the user that ran"] += int(place.own.exists())
            if ran:
                found[f"LOST: {way.__name__}, {form}: {Path(ran[-1]).name}"] += 1
            for leak in find_leaks(folder, variables):
                found[f"LOST: {way.__name__}, {form}: got {Path(leak).name}"] += 1
        finally:
            os.chdir(started_in)
            os.environ.clear()
            os.environ.update(kept)
            tempfile.tempdir = None


def trials(starts: int, seed: int, found: Counter[str]) -> None:
    rounds = [(way, form) for way in WAYS for form in FORMS]
    random.Random(seed).shuffle(rounds)
    for number in range(starts):
        way, form = rounds[number % len(rounds)]
        asyncio.run(try_way(way, form, found))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--starts", type=int, default=len(WAYS) * len(FORMS))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    trials(arguments.starts, arguments.seed, found)
    for key, count in sorted(found.items()):
        print(f"{count:6} {key}")
    return int(any(key.startswith("LOST") for key in found))


if __name__ == "__main__":
    sys.exit(main())
