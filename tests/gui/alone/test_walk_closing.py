"""Closing the window while something hangs: it is gone at once, nothing acknowledged is
lost, the conversation goes on.

Real processes, a real keyboard on a screen of its own. What is tried beside test_walk.py's states.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Text
from helix_desktop.mcp_client.server_config import ServerConfig
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.gui import screen as screens
from tests.gui.alone.test_walk import allowed, asks, facts, quit_program
from tests.gui.screen import Screen, program, wait_for
from tests.mcp_client.world import SCRIPT, strange
from tests.peers.chat_server import ChatServer, reply
from tests.scripted_tour import ClockWithoutPauses
from tests.turns import ends_within

pytestmark = pytest.mark.skipif(bool(screens.missing()), reason=f"needs {screens.missing()}")
GONE = 2.0  # seconds, by the window's promise
BUSY = 1.5  # what xdotool and a busy machine add
# Each sentence differs, because a reply that repeats itself is stopped.
LONG = " ".join(
    f"Guard {number} is held across an await in src/lock/manager.rs, line {number * 7}, which the second test shows."
    for number in range(40)
)

SILENT = """
import time, pathlib, keyring.backend
class Keyring(keyring.backend.KeyringBackend):
    priority = 1
    def get_password(self, service, name):
        pathlib.Path({mark!r}).write_text("asked")
        time.sleep(600)
    set_password = delete_password = get_password
"""


@pytest.fixture
def screen() -> Iterator[Screen]:
    with screens.screen() as made:
        yield made


def furnish(
    home: Path,
    folder: Path,
    server: ChatServer,
    *,
    key: bool = False,
    mcp: Sequence[ServerConfig] = (),
) -> None:
    """What earlier days left: a workspace with a conversation of two turns."""
    folder.mkdir()

    async def work() -> None:
        where = program_folders.find_program_folders(home)
        desk = Workbenches(
            where, SecretStorage(where.key_file, environ={"A_KEY": "k"}), clock=ClockWithoutPauses()
        )
        variable = "A_KEY" if key else ""
        desk.configured.save_provider(
            ProviderConfig("peer", base_url=server.base_url, variable=variable)
        )
        bench = await desk.create_workspace("project", folder)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation("Before")
        for words in ("Find the guard.", "And now?"):
            session.send_message((Text(words),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
        if mcp:
            await bench.change_settings(
                {"mcp": {config.name: config.as_settings_table() for config in mcp}}
            )
        await desk.aclose()

    asyncio.run(work())


def opened(screen: Screen, home: Path) -> None:
    """The window with the conversation of before in front."""
    wait_for("the workspace", lambda: screen.has_front("project"))
    wait_for("what is behind it", lambda: list(home.rglob("window.sock")))
    screen.key("ctrl+Next")
    wait_for("the conversation", lambda: "Before" in screen.active())
    screen.key("ctrl+l")


def closed(screen: Screen, process: subprocess.Popen[str]) -> None:
    quit_program(screen, process)
    assert ends_within(process, GONE + BUSY)
    assert process.returncode == 0


def goes_on(
    screen: Screen, home: Path, server: ChatServer, more: Sequence[tuple[str, str]] = ()
) -> None:
    """The same conversation, after a restart."""
    server.script = [reply("It goes on.")]
    sent = len(server.bodies)
    with program(screen, home, more=more) as process:
        wait_for("the conversation again", lambda: "Before" in screen.active())
        screen.type("Go on.")
        screen.key("Return")
        wait_for("the request", lambda: len(server.bodies) > sent)
        assert "Go on." in str(server.bodies[-1])
        assert "Find the guard." in str(server.bodies[-1])
        quit_program(screen, process)
        process.wait(60)


def said(screen: Screen, home: Path, words: str) -> None:
    screen.type(words)
    screen.key("Return")
    wait_for(
        "the words in the journal", lambda: any(words in fact for fact in facts(home, "UserSaid"))
    )


def test_while_a_handover_is_written(screen: Screen, tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = [
        reply(LONG),
        reply(LONG),
        reply("## Project Background\nA guard.").silent_after(2, 60),
    ]
    with ChatServer(script) as server:
        furnish(home, tmp_path / "project", server)
        with program(screen, home) as process:
            opened(screen, home)
            screen.key("ctrl+shift+h")
            wait_for("the question with the price", lambda: "Shorten now" in screen.active())
            screen.key("Return")
            wait_for("the request for a document", lambda: len(server.bodies) == 3)
            closed(screen, process)
        assert facts(home, "Folded") == []
        goes_on(screen, home, server)


def test_while_a_server_does_not_start(screen: Screen, tmp_path: Path) -> None:
    home = tmp_path / "home"
    mark = str(tmp_path / "mark")
    with ChatServer([reply(LONG), reply(LONG), reply("As before.")]) as server:
        furnish(
            home, tmp_path / "project", server, mcp=[strange("hang at start", mark, starts=600)]
        )
        with program(screen, home) as process:
            opened(screen, home)
            wait_for("the server's process", partial(_runs, mark))
            said(screen, home, "Still here?")
            wait_for("the answer", lambda: len(facts(home, "TurnEnded")) == 3)
            closed(screen, process)
        assert not _runs(mark)
        assert sum("Still here?" in fact for fact in facts(home, "UserSaid")) == 1
        goes_on(screen, home, server)


def test_while_a_server_does_not_answer_a_call(screen: Screen, tmp_path: Path) -> None:
    home = tmp_path / "home"
    mark = tmp_path / "mark"
    call = reply(calls=[("strange__echo", {})])
    with ChatServer([reply(LONG), reply(LONG), call]) as server:
        furnish(
            home,
            tmp_path / "project",
            server,
            mcp=[strange("hang at call", str(mark), answers=600)],
        )
        with program(screen, home) as process:
            opened(screen, home)
            wait_for("the server's process", partial(_runs, str(mark)))
            said(screen, home, "Say it.")
            wait_for("the question", partial(asks, screen))
            allowed(screen, "the call", mark.exists)
            closed(screen, process)
        assert not _runs(str(mark))
        assert sum("strange__echo" in fact for fact in facts(home, "ModelReplied")) == 1
        goes_on(screen, home, server)


def test_while_the_keyring_is_silent(screen: Screen, tmp_path: Path) -> None:
    home = tmp_path / "home"
    mark = tmp_path / "mark"
    settings = tmp_path / "python_keyring"
    settings.mkdir()
    (settings / "silent_keyring.py").write_text(SILENT.format(mark=str(mark)))
    chosen = f"[backend]\ndefault-keyring=silent_keyring.Keyring\nkeyring-path={settings}\n"
    (settings / "keyringrc.cfg").write_text(chosen)
    silent = [("XDG_CONFIG_HOME", str(tmp_path))]
    with ChatServer([reply(LONG), reply(LONG)]) as server:
        furnish(home, tmp_path / "project", server, key=True)
        with program(
            screen, home, more=silent, within=["env", "-u", "PYTHON_KEYRING_BACKEND"]
        ) as process:
            opened(screen, home)
            said(screen, home, "Who has the key?")
            wait_for("the question to the keyring", mark.exists)
            closed(screen, process)
        assert sum("Who has the key?" in fact for fact in facts(home, "UserSaid")) == 1
        goes_on(screen, home, server, [("A_KEY", "k")])


def _runs(mark: str) -> bool:
    found = subprocess.run(
        ["pgrep", "-f", f"{SCRIPT.name}.*{mark}"], capture_output=True, check=False
    )
    return bool(found.stdout.strip())
