"""Keys without a secret service, with one, with a locked and with a silent one: real
processes under dbus.

python -m tests.faults.keyring [--trials 12] [--seed 1]      needs dbus-run-session;
gnome-keyring-daemon for two of the four

Whatever the service does: each answer comes within the limit, the event loop goes on
meanwhile, and the key is in no file but the service's own, encrypted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path

from helix_desktop.errors import NoUsableKeyring
from helix_desktop.secrets import ProviderKey, SecretKeeper, SecretStorage
from tests.faults.store_report import report

KINDS = ("none", "working", "locked", "silent")
LIMIT = 2.0  # seconds a keyring that does not answer may take here
SLACK = 3.0  # for processes that have to start on a busy machine
MUTE = """
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection
connection = open_dbus_connection(bus="SESSION")
connection.send_and_get_reply(message_bus.RequestName("org.freedesktop.secrets"))
print("there", flush=True)
while True:
    connection.receive()
"""


def trials(count: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    if shutil.which("dbus-run-session") is None:
        found["left out: no dbus-run-session"] += 1
        return
    kinds = [
        kind for kind in KINDS if kind in {"none", "silent"} or shutil.which("gnome-keyring-daemon")
    ]
    for trial in range(count):
        kind = kinds[trial % len(kinds)]
        key = f"sk-planted-{chance.getrandbits(128):032x}"
        with tempfile.TemporaryDirectory(prefix="helix-keyring-") as home:
            for line in _one(kind, key, Path(home)):
                found[f"LOST in trial {trial} ({kind}): {line}"] += 1
        found[kind] += 1


def _one(kind: str, key: str, home: Path) -> list[str]:
    """One session bus with one kind of service; what was wrong."""
    (home / "run").mkdir(mode=0o700)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in {"PYTHON_KEYRING_BACKEND", "DISPLAY"}},
        "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "XDG_RUNTIME_DIR": str(home / "run"), "PLANTED": key,
    }  # fmt: skip
    inside = [sys.executable, "-m", "tests.faults.keyring", "--inside", kind, "--home", str(home)]
    done = subprocess.run(
        ["dbus-run-session", "--", *inside],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    try:
        wrong: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        wrong = [f"it said nothing (exit {done.returncode}): {done.stderr[-400:]}"]
    leaks = [
        path for path in home.rglob("*") if path.is_file() and key.encode() in path.read_bytes()
    ]
    return wrong + [f"the key stands in {path.name}" for path in leaks]


async def inside(kind: str, home: Path) -> list[str]:
    """Keep a key, get it, forget it; each call timed."""
    key_file = home / "config" / "keys.json"
    works = kind == "working"
    limit = 20.0 if works else LIMIT
    secrets = SecretStorage(key_file, environ={}, limit=limit)
    gaps = asyncio.ensure_future(_longest_gap())  # noqa: TID251
    if works:
        wrong = await _try_working(secrets, key_file, limit)
    else:
        wrong = await _try_broken(secrets, limit)
    if key_file.exists():
        wrong.append("a file was written without consent")
    gaps.cancel()
    if GAP[0] > 1.5:
        wrong.append(f"the event loop stood still for {GAP[0]:.1f} s")
    return wrong


async def _try_working(secrets: SecretStorage, key_file: Path, limit: float) -> list[str]:
    wrong: list[str] = []
    key = os.environ["PLANTED"]
    kept = await _timed(
        secrets.store_secret_at(ProviderKey("openai"), key), wrong, "keeping", limit
    )
    if not kept:
        wrong.append("a keyring that works did not keep the key")
    fresh = SecretStorage(key_file, environ={}, limit=limit)
    if await fresh.read_secret(ProviderKey("openai")) != key:
        wrong.append("the key did not come back")
    await fresh.delete_secret(ProviderKey("openai"))
    if await fresh.read_secret(ProviderKey("openai")) is not None:
        wrong.append("a deleted key is still there")
    return wrong


async def _try_broken(secrets: SecretStorage, limit: float) -> list[str]:
    """What it cannot keep is kept for the session, where the user wants that."""
    wrong: list[str] = []
    key = os.environ["PLANTED"]
    kept = await _timed(
        secrets.store_secret_at(ProviderKey("openai"), key), wrong, "keeping", limit
    )
    if kept:
        wrong.append("a key was kept by a keyring that is not there")
    await secrets.store_secret_at(ProviderKey("openai"), key, where=SecretKeeper.SESSION)
    if await secrets.read_secret(ProviderKey("openai")) != key:
        wrong.append("kept for this session, the key did not come back")
    await _timed(secrets.read_secret(ProviderKey("other")), wrong, "asking", limit)
    return wrong


GAP = [0.0]


async def _longest_gap() -> None:
    last = time.monotonic()
    while True:
        await asyncio.sleep(0.01)
        GAP[0], last = max(GAP[0], time.monotonic() - last), time.monotonic()


async def _timed(work: Awaitable[object], wrong: list[str], what: str, limit: float) -> bool:
    """Whether it was done; NoKeyring in time is an answer as well."""
    begun = time.monotonic()
    try:
        await work
    except NoUsableKeyring:
        return False
    finally:
        if (taken := time.monotonic() - begun) > limit + SLACK:
            wrong.append(f"{what} took {taken:.1f} s")
    return True


def service(kind: str) -> subprocess.Popen[str] | None:
    """Start the secret service of this session bus."""
    if kind == "none":
        return None
    command = {
        "silent": [sys.executable, "-c", MUTE],
        "locked": ["gnome-keyring-daemon", "--foreground", "--components=secrets"],
        "working": ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"],
    }[kind]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    if kind == "working":
        process.stdin.write("a password")
    process.stdin.close()
    if kind == "silent":
        process.stdout.readline()
    else:
        _wait_for_name()
    return process


def _wait_for_name() -> None:
    """Until somebody owns the name of the secret service."""
    from jeepney.bus_messages import message_bus
    from jeepney.io.blocking import open_dbus_connection

    with open_dbus_connection(bus="SESSION") as connection:
        for _ in range(200):
            if connection.send_and_get_reply(
                message_bus.NameHasOwner("org.freedesktop.secrets")
            ).body[0]:
                return
            time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        return report(
            "keyring", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
        )
    running = service(arguments.inside)
    try:
        wrong = asyncio.run(inside(arguments.inside, arguments.home))
    finally:
        if running is not None:
            running.kill()
            running.wait()
    print(json.dumps(wrong), flush=True)
    os._exit(0)  # a thread that waits for a silent service must not keep the trial


if __name__ == "__main__":
    sys.exit(main())
