"""A walk through the program with real keyboard and mouse events on a screen of its
own, against a scripted server.

What came of each step is looked up where a user would have it: on the screen, at the
server, in the files.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from helix_desktop.gui.colours import DARK, LIGHT
from tests.gui import screen as screens
from tests.gui.screen import Screen, program, wait_for
from tests.peers.chat_server import ChatServer, reply
from tests.turns import ends_within

pytestmark = pytest.mark.skipif(bool(screens.missing()), reason=f"needs {screens.missing()}")
TITLE = "Helix Desktop"


@pytest.fixture
def screen() -> Iterator[Screen]:
    with screens.screen() as made:
        yield made


def test_a_screen_is_given_out_when_its_window_manager_answers(screen: Screen) -> None:
    assert screen.run("xdotool", "get_num_desktops") == "1", (
        "openbox has four until it handles what it is asked"
    )


def test_a_walk_that_waits_in_vain_shows_all_windows_and_threads(
    screen: Screen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(pytest.fail.Exception):
        wait_for_window_and_then_in_vain(screen, tmp_path / "home")
    shown = capsys.readouterr().out
    assert f'"{TITLE}"' in shown
    # The innermost hundred calls of each thread: without compiled modules, an import is
    # deeper than that.
    assert "most recent call first" in shown, "the stacks"


def wait_for_window_and_then_in_vain(screen: Screen, home: Path) -> None:
    with program(screen, home):
        wait_for("the window", lambda: screen.has_front(TITLE))
        wait_for("nothing", lambda: False, seconds=0.1)


def facts(home: Path, kind: str) -> list[str]:
    """All facts of a kind, as they are stored."""
    found: list[str] = []
    for journal in sorted(home.glob("workspaces/*/journal.sqlite3")):
        with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as connection:
            tables = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
            for table in tables:
                for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - a name of our own
                    found += [
                        str(value)
                        for value in row
                        if isinstance(value, str) and f'"fact":"{kind}"' in value
                    ]
    return found


def begin(
    screen: Screen, home: Path, folder: Path, server: ChatServer, *, keyring: bool = False
) -> None:
    """From the first start to the first request, with the keyboard alone."""
    wait_for("the window", lambda: screen.has_front(TITLE))
    wait_for("what is behind it", lambda: list(home.rglob("window.sock")))
    screen.key("ctrl+o")
    wait_for("the dialog for a folder", lambda: "folder" in screen.active().lower())
    screen.type(f"{folder}")
    screen.key("Return")
    wait_for("the workspace", lambda: folder.name in screen.active())
    screen.type("Say hello.")
    screen.key("Return")
    wait_for("the question for a model", lambda: "Connect a model" in screen.active())
    # Past the address of a server on this computer and its button, to the services with a key.
    screen.key("Tab")
    screen.key("Tab")
    screen.key(
        "End"
    )  # "Another server", whatever the pauses between letters on a busy machine would have chosen
    screen.key("Tab")
    screen.type(server.base_url)
    screen.key("Tab")
    screen.type("a-key")
    height = screen.settled_height()
    screen.key("Return")
    wait_for("the test of the key", lambda: any(seen.method == "GET" for seen in server.requests))
    if not keyring:
        # The dialog grows by what can be done without a keyring. It may grow by a line before, which
        # says that the server is asked.
        wait_for("the choice", lambda: screen.active_height() > height + 40)
        screen.key("Tab", "Tab", "space")  # for this session only
    wait_for("the model", lambda: "Connect a model" not in screen.active())
    screen.key("Return")
    wait_for("the request", lambda: len(server.bodies) > 0)
    wait_for("the title", lambda: "Say hello." in screen.active())


def test_a_first_day(screen: Screen, tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing yet\n")
    script = [
        reply("Hello. What shall I do?"),
        reply(calls=[("run_command", {"command": "echo made by the agent > made.txt"})]),
        reply("The file is made."),
        reply("This is another conversation."),
    ]
    with ChatServer(script) as server, program(screen, home) as process:
        begin(screen, home, folder, server)
        wait_for("the first answer", lambda: len(facts(home, "TurnEnded")) == 1)

        screen.type("Make a file.")
        screen.key("Return")
        wait_for("the second request", lambda: len(server.bodies) == 2)
        wait_for("the question", partial(asks, screen))
        assert not (folder / "made.txt").exists()
        allowed(screen, "the file", (folder / "made.txt").exists)
        assert (folder / "made.txt").read_text() == "made by the agent\n"
        wait_for("the end of the turn", lambda: len(facts(home, "TurnEnded")) == 2)
        assert any('"by":"user"' in fact for fact in facts(home, "Decided"))

        screen.key("ctrl+n")
        screen.type("Something else.")
        screen.key("Return")
        wait_for("another conversation", lambda: "Something else." in screen.active())
        wait_for("its answer", lambda: len(facts(home, "TurnEnded")) == 3)

        screen.key("ctrl+comma")
        wait_for("the settings", lambda: "Settings" in screen.active())
        screen.key("Tab")  # From the list of pages to the theme.
        screen.type("Dark")
        screen.key("Escape")
        wait_for("the chat", lambda: "Something else." in screen.active())
        wait_for("the dark", lambda: screen.pixel(600, 500) == DARK["panel"])
        screen.key("ctrl+k")
        screen.type("move conversation to trash")
        screen.key("Return")
        wait_for("the trash", lambda: "Something else." not in screen.active())
        screen.key("ctrl+alt+z")
        wait_for(
            "the undo",
            lambda: any('"trashed":false' in fact for fact in facts(home, "ConversationChanged")),
        )

        screen.type("half a sentence")
        screen.key("ctrl+q")
        process.wait(60)
        assert process.returncode == 0

    assert json.loads((home / "window.json").read_text())["look"]["dark"] is True
    with program(screen, home) as process:
        wait_for("the window again", lambda: folder.name in screen.active())
        assert "half a sentence" in (home / "window.json").read_text()
        wait_for("the dark again", lambda: screen.pixel(600, 500) == DARK["panel"])
        screen.key("ctrl+q")
        process.wait(60)


def asks(screen: Screen) -> bool:
    """The frame of a question crosses a line down the middle, in the colour of what
    waits for a person.
    """
    shot = screen.run("import", "-window", "root", "-crop", "1x1000+700+0", "-depth", "8", "txt:-")
    return LIGHT["handover"].upper() in shot


def allowed(screen: Screen, what: str, done: Callable[[], object]) -> None:
    """Say yes to the question; one that has just come takes no answer yet."""

    def there() -> bool:
        if not done():
            screen.key("alt+y")
        return bool(done())

    wait_for(what, there)


def quit_program(screen: Screen, process: subprocess.Popen[str], seconds: float = 3.5) -> None:
    """Quit. While an agent works, the program asks first; Cancel has the focus, and
    “Stop and quit” stands beside it.
    """
    screen.key("ctrl+q")
    wait_for(
        "the end or the question",
        lambda: process.poll() is not None or "Quit" in screen.active(),
        seconds=seconds,
    )
    if process.poll() is None:
        screen.key("Tab")
        screen.key("Return")


SLEEP = reply(calls=[("run_command", {"command": "touch begun; sleep 321"})])
STATES = {
    "streaming": reply("one two three four five six seven eight").silent_after(4, 60),
    "waiting for the user": SLEEP,
    "running a command": SLEEP,
}


@pytest.mark.parametrize("state", STATES)
def test_closing_in_any_state_loses_nothing_and_takes_no_time(
    screen: Screen, tmp_path: Path, state: str
) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "project"
    folder.mkdir()
    answer = STATES[state]
    with ChatServer([reply("Hello."), answer]) as server, program(screen, home) as process:
        begin(screen, home, folder, server)
        wait_for("the first answer", lambda: len(facts(home, "TurnEnded")) == 1)
        screen.type("Count.")
        screen.key("Return")
        wait_for("the second request", lambda: len(server.bodies) == 2)
        if answer is SLEEP:
            wait_for("the question", partial(asks, screen))
        if state == "running a command":
            allowed(screen, "the command", (folder / "begun").exists)
        quit_program(screen, process)
        assert ends_within(process, 3.5)  # two for the program, the others for a busy machine
        assert process.returncode == 0
    assert sum('"Count."' in fact for fact in facts(home, "UserSaid")) == 1
    assert (
        subprocess.run(["pgrep", "-f", "sleep 321"], capture_output=True, check=False).stdout == b""
    )


def test_a_second_start_brings_the_first_window_to_the_front(
    screen: Screen, tmp_path: Path
) -> None:
    with program(screen, tmp_path / "home") as first:
        wait_for("the window", lambda: screen.has_front(TITLE))
        wait_for("its socket", lambda: list((tmp_path / "home").rglob("window.sock")))
        with program(screen, tmp_path / "home", "helix://settings") as second:
            second.wait(60)
            assert second.returncode == 0
        wait_for("the settings", lambda: any("Settings" in title for title in screen.titles()))
        assert first.poll() is None
    with suppress(pytest.fail.Exception):
        wait_for(
            "the end of all that it started",
            lambda: not processes_with_home(tmp_path / "home"),
            seconds=20,
        )
    assert processes_with_home(tmp_path / "home") == []


def processes_with_home(home: Path) -> list[str]:
    """What still runs of all that was started for this home: a bus that a library
    started stayed for ever.
    """
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"HELIX_HOME={home}\0".encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_text("utf-8", "replace").replace("\0", " "))
    return found


SERVICE = (
    'echo -n a-password | gnome-keyring-daemon --unlock --components=secrets >/dev/null; exec "$@"'
)
needs_a_service = pytest.mark.skipif(
    shutil.which("gnome-keyring-daemon") is None or shutil.which("dbus-run-session") is None,
    reason="no secret service",
)


@needs_a_service
def test_with_a_secret_service_the_key_is_there_after_a_restart(
    screen: Screen, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "project"
    user = tmp_path / "user"
    folder.mkdir()
    user.mkdir()
    more = [
        ("HOME", str(user)),
        ("XDG_DATA_HOME", str(user / "data")),
        ("PYTHON_KEYRING_BACKEND", "keyring.backends.SecretService.Keyring"),
    ]
    within = ["dbus-run-session", "--", "sh", "-c", SERVICE, "sh"]
    with ChatServer([reply("Hello."), reply("Again.")]) as server:
        with program(screen, home, more=more, within=within) as process:
            begin(screen, home, folder, server, keyring=True)
            wait_for("the first answer", lambda: len(facts(home, "TurnEnded")) == 1)
            quit_program(screen, process, 60)
            process.wait(60)
        assert not any(
            "a-key" in file.read_text("utf-8", "replace") for file in home.rglob("*.toml")
        )
        assert not (home / "keys.json").exists()
        with program(screen, home, more=more, within=within) as process:
            wait_for("the conversation", lambda: "Say hello." in screen.active())
            screen.type("Again.")
            screen.key("Return")
            wait_for("the second request", lambda: len(server.bodies) == 2)
            quit_program(screen, process, 60)
            process.wait(60)
    sent = [seen.headers.get("authorization") for seen in server.requests if seen.method == "POST"]
    assert sent == ["Bearer a-key", "Bearer a-key"]
