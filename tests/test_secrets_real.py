"""secrets.py against real secret services, each on a message bus of its own: unlocked,
silent, none.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("dbus-run-session") is None or shutil.which("gnome-keyring-daemon") is None,
    reason="needs dbus-run-session and gnome-keyring-daemon",
)

TRY = """
import asyncio, json, sys
from pathlib import Path
from helix_desktop.errors import NoUsableKeyring
from helix_desktop.secrets import ProviderKey, SecretStorage

async def main():
    secrets, key = SecretStorage(Path(sys.argv[1]), limit=float(sys.argv[2])), ProviderKey("openai")
    try:
        await secrets.store_secret_at(key, "sk-planted-0123456789")
        said = await secrets.read_secret(key)
        await secrets.delete_secret(key)
        gone = await secrets.read_secret(key)
    except NoUsableKeyring as error:
        said, gone = str(error), None
    print(json.dumps({"said": said, "gone": gone}))

asyncio.run(main())
"""

# Nothing is stored, so there is nothing that a keyring would have to be unlocked for.
LOOK = """
import asyncio, json, sys
from pathlib import Path
from helix_desktop.errors import NoUsableKeyring
from helix_desktop.secrets import ProviderKey, SecretStorage

async def main():
    secrets, key = SecretStorage(Path(sys.argv[1]), limit=float(sys.argv[2])), ProviderKey("openai")
    try:
        said = [await secrets.read_secret(key), await secrets.find_secret_keeper(key)]
        await secrets.delete_secret(key)
    except NoUsableKeyring as error:
        said = str(error)
    state = await SecretStorage(Path(sys.argv[1]), limit=10).check_keyring()
    print(json.dumps({"said": said, "check": state.name}))

asyncio.run(main())
"""

# What the settings and the doctor ask for, with a key stored.
LOOK_WITHOUT_READING = """
import asyncio, json, sys
from pathlib import Path
from helix_desktop.secrets import ProviderKey, SecretStorage

async def main():
    secrets = SecretStorage(Path(sys.argv[1]), limit=10)
    keeper = await secrets.find_secret_keeper(ProviderKey("openai"))
    state = await secrets.check_keyring()
    print(json.dumps({"keeper": keeper.name, "check": state.name}))

asyncio.run(main())
"""

STORE = """
import asyncio, sys
from pathlib import Path
from helix_desktop.secrets import ProviderKey, SecretStorage
secrets = SecretStorage(Path(sys.argv[1]))
asyncio.run(secrets.store_secret_at(ProviderKey("openai"), "sk-planted-0123456789"))
"""

# Owns a name on the bus, of the secret service or of what asks for its password, and
# answers nothing.
SILENT = """
import sys, time
from jeepney import DBusAddress, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection
connection = open_dbus_connection(bus="SESSION")
connection.send_and_get_reply(message_bus.RequestName(sys.argv[1]))
print("here", flush=True)
time.sleep(600)
"""


def tried(before: str, tmp_path: Path, limit: int = 60, script: str = TRY) -> dict[str, object]:
    """What a try says on a bus where `before` was run first, and that it left no file behind."""
    (tmp_path / "try.py").write_text(script)
    (tmp_path / "silent.py").write_text(SILENT)
    home = tmp_path / "home"
    home.mkdir()
    lines = f"{before}\n{sys.executable} {tmp_path}/try.py {tmp_path}/keys.json {limit}; kill $(jobs -p) 2>/dev/null"
    environment = {
        "HOME": str(home), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(home), "PYTHONPATH": str(Path(__file__).parent.parent),
    }  # fmt: skip
    command = ["dbus-run-session", "--", "bash", "-c", lines]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout, done.stderr
    assert not (tmp_path / "keys.json").exists()
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def owner_of(name: str, tmp_path: Path) -> str:
    return f"{sys.executable} {tmp_path}/silent.py {name} > {tmp_path}/told &\nuntil grep -q here {tmp_path}/told; do :; done"


def test_an_unlocked_keyring_keeps_gives_back_and_forgets(tmp_path: Path) -> None:
    found = tried(
        "echo -n password | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1",
        tmp_path,
    )
    assert (found["said"], found["gone"]) == ("sk-planted-0123456789", None)


def test_nobody_is_asked_to_unlock_a_keyring_that_holds_no_key(tmp_path: Path) -> None:
    """Whoever is asked for a password here never answers. The check asked for the password of a
    new keyring, which took the keyboard from whoever opened the settings.
    """
    prompter = owner_of("org.gnome.keyring.SystemPrompter", tmp_path)
    daemon = "gnome-keyring-daemon --start --components=secrets >/dev/null 2>&1"
    found = tried(f"{prompter}\n{daemon}", tmp_path, script=LOOK)
    assert found == {"said": [None, None], "check": "NOT_CREATED"}


def test_who_keeps_a_key_is_found_without_unlocking_the_keyring(tmp_path: Path) -> None:
    (tmp_path / "store.py").write_text(STORE)
    lines = [
        "echo -n password | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1",
        f"{sys.executable} {tmp_path}/store.py {tmp_path}/keys.json",
        owner_of("org.gnome.keyring.SystemPrompter", tmp_path),
        "gnome-keyring-daemon --replace --components=secrets >/dev/null 2>&1 &",
    ]
    found = tried("\n".join(lines), tmp_path, script=LOOK_WITHOUT_READING)
    assert found == {"keeper": "KEYRING", "check": "LOCKED"}


def test_a_silent_service_costs_its_limit_and_is_named(tmp_path: Path) -> None:
    found = tried(
        owner_of("org.freedesktop.secrets", tmp_path),
        tmp_path,
        limit=2,
    )
    assert "did not respond within 2 s" in str(found["said"])


def test_where_there_is_none_the_choices_are_named(tmp_path: Path) -> None:
    found = tried(":", tmp_path)
    assert "this session only" in str(found["said"])
