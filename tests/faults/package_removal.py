"""The Debian package is installed and removed by root beside hostile users. It needs root, and
overlay mounts.

python -m tests.faults.package_removal [--rounds 50] [--seed 1] [--first 0]

In a copy of this system that vanishes (an overlay, entered with chroot), real dpkg installs a
package with the real scripts of the package, and removes it again in a terminal. The program
inside is a stand-in: for a hostile user it does what the user's own code could do to it (push
keys into every terminal it can reach, look for root's variables, files, groups and keys, stay for
ever, stay behind in a child), and for all others it starts the program itself, against notes
that are a pipe, endless, a link to the root's, or honest. Root has secrets in the environment and
an XDG_CONFIG_HOME.

Nothing of root's may have reached a user, no key root's terminal, no removal may last longer than
its limit, and what honest users connected must be as it was before.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.gateway.address_in_agent_settings import AgentSettingsChange, install_address
from helix_desktop.gateway.registration import GatewayRegistration
from tests.faults.store_report import report

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "packaging"))

SECRET = "canary-of-root"
PUSHED = "echo pushed-by-a-user"
LIMIT_OF_SCRIPT = "limit_seconds=20\n"
# The trial's own limit. Beside busy test workers, the program of an honest user took more than
# the script's 20 seconds to start, and its user was told that nothing was disconnected.
LIMIT_SECONDS = 40
FIRST_UID = 61_000
LIBRARY = "usr/lib/helix-desktop"
REPORTS = "var/reports"
ATTACKS = ("report", "hang", "stop", "stay behind")
NOTES = ("honest", "pipe", "endless", "folder", "link to root's", "no note")

# What hostile code would do, run in place of the program. It writes what it saw into a file.
STAND_IN = """\
#!{python}
import fcntl, json, os, signal, sys, termios, time
home = os.environ.get("HOME", "")
try:
    attack = open(home + "/.attack").read()
except OSError:
    os.chdir("{root}")
    os.execv("{python}", ["{python}", "-m", "helix_desktop", *sys.argv[1:]])
seen = {{"uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "cwd": os.getcwd(), "attack": attack}}
seen["environment"] = dict(os.environ)
seen["leads session"] = os.getsid(0) == os.getpid()
seen["files"] = {{}}
for name in os.listdir("/proc/self/fd"):
    try:
        seen["files"][name] = os.readlink("/proc/self/fd/" + name)
    except OSError:
        pass
seen["capabilities"] = [line for line in open("/proc/self/status") if line.startswith(("CapPrm", "CapEff", "CapInh", "NoNewPrivs"))]
terminals = [int(name) for name in seen["files"]]
for path in ["/dev/tty", *("/dev/pts/" + name for name in os.listdir("/dev/pts"))]:
    try:
        terminals.append(os.open(path, os.O_RDWR))
    except OSError:
        pass
seen["pushed"] = 0
for handle in terminals:
    for sign in b"{pushed}\\n":
        try:
            fcntl.ioctl(handle, termios.TIOCSTI, bytes([sign]))
            seen["pushed"] += 1
        except OSError:
            break
seen["root's files"] = []
for process in filter(str.isdigit, os.listdir("/proc")):
    for part in ("environ", "mem", "cwd", "fd/0"):
        try:
            if os.stat("/proc/" + process).st_uid == 0 and os.open("/proc/%s/%s" % (process, part), os.O_RDONLY) >= 0:
                seen["root's files"].append(process + part)
        except OSError:
            pass
with open("/{reports}/%d" % os.getuid(), "w") as file:
    json.dump(seen, file)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if attack == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
if attack == "stay behind" and os.fork() == 0:
    os.setsid()
    time.sleep(600)
if attack in ("hang", "stop"):
    time.sleep(600)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--inside", type=Path, help="run in namespaces of its own already")
    arguments = parser.parse_args()
    if arguments.inside is None:
        return run_trials(arguments.rounds, arguments.seed, arguments.first)

    def run_rounds(found: Counter[str]) -> None:
        removal = Removal(arguments.inside, found)
        for number in range(arguments.first, arguments.first + arguments.rounds):
            removal.run_round(random.Random(arguments.seed * 10_000 + number))

    return report("package_removal", arguments.seed, run_rounds)


def run_trials(rounds: int, seed: int, first: int) -> int:
    """Runs them where nothing outlives them: no mount, and no process that a user left behind."""
    with tempfile.TemporaryDirectory(prefix="removal-") as folder:
        command = [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *(sys.executable, "-m", "tests.faults.package_removal"),
            *("--rounds", str(rounds), "--seed", str(seed), "--first", str(first)),
            *("--inside", folder),
        ]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def build_package(folder: Path) -> Path:
    """A package with the real scripts, and the stand-in in place of the program."""
    from linux import deb

    root = folder / "package"
    library = root / LIBRARY
    library.mkdir(parents=True)
    script = (ROOT / "packaging/linux/leave.sh").read_text(encoding="utf-8")
    assert LIMIT_OF_SCRIPT in script
    patient_script = script.replace(LIMIT_OF_SCRIPT, f"limit_seconds={LIMIT_SECONDS}\n")
    (library / "leave-users").write_text(patient_script, encoding="utf-8")
    (library / "helix-desktop").write_text(
        STAND_IN.format(python=sys.executable, root=ROOT, pushed=PUSHED, reports=REPORTS)
    )
    (library / "helix-desktop").chmod(0o755)
    (root / "usr/bin").mkdir()
    (root / "usr/bin/helix-desktop").symlink_to("../lib/helix-desktop/helix-desktop")
    deb.add_control_files(root, "1.0", "all", "libc6")
    package = folder / "package.deb"
    run_quietly("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(package))
    return package


def run_quietly(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    attack: str  # What the stand-in does in its name, or nothing: the program itself runs.
    note: str  # What lies where the program wrote down that an agent was connected.

    def create_home(self, system: Path) -> None:
        home = system / "home" / self.name
        shutil.rmtree(home, ignore_errors=True)
        config = home / ".config/helix-desktop"
        config.mkdir(parents=True)
        if self.attack:
            (home / ".attack").write_text(self.attack, encoding="utf-8")
        self._create_note(home, config, system)
        for path in (home, *home.rglob("*")):
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def _create_note(self, home: Path, config: Path, system: Path) -> None:
        if self.note == "no note":
            return
        note = config / "connected/claude.json"
        note.parent.mkdir()
        if self.note == "pipe":
            os.mkfifo(note)
        elif self.note == "endless":
            note.symlink_to("/dev/zero")
        elif self.note == "folder":
            note.mkdir()
        elif self.note == "link to root's":
            note.symlink_to("/root/elsewhere/helix-desktop/connected/claude.json")
        else:
            file = home / ".claude/settings.json"
            registration = GatewayRegistration("token", agent="claude")
            change = AgentSettingsChange("claude", file, None, b"{}", registration, 1)
            install_address(change, config)
            self._rename_homes_in(note, system)

    def _rename_homes_in(self, note: Path, system: Path) -> None:
        """Within the copy of the system, the user's home has no folder before it."""
        text = note.read_text(encoding="utf-8")
        note.write_text(text.replace(str(system), ""), encoding="utf-8")


class Removal:
    """A copy of this system, in which packages come and go."""

    def __init__(self, folder: Path, found: Counter[str]) -> None:
        self._found = found
        run_quietly("mount", "-t", "tmpfs", "tmpfs", str(folder))
        self._system = folder / "system"
        for name in ("changed", "work", "system"):
            (folder / name).mkdir()
        layers = f"lowerdir=/,upperdir={folder / 'changed'},workdir={folder / 'work'}"
        run_quietly("mount", "-t", "overlay", "overlay", "-o", layers, str(self._system))
        run_quietly("mount", "-t", "proc", "proc", str(self._system / "proc"))
        run_quietly("mount", "--rbind", "/dev", str(self._system / "dev"))
        # What dpkg keeps is copied: where the machine itself installs something meanwhile, writing
        # above the same files would fail.
        shutil.copytree("/var/lib/dpkg", folder / "dpkg", symlinks=True)
        run_quietly("mount", "--bind", str(folder / "dpkg"), str(self._system / "var/lib/dpkg"))
        package = build_package(folder)
        shutil.copyfile(package, self._system / "var/package.deb")
        self._passwd = (self._system / "etc/passwd").read_text(encoding="utf-8")

    def run_round(self, chance: random.Random) -> None:
        users = [
            User(f"removal{number}", FIRST_UID + number, chance.choice(ATTACKS), "honest")
            for number in range(chance.randint(1, 4))
        ]
        for note in chance.sample(NOTES, chance.randint(1, len(NOTES))):
            number = len(users)
            users.append(User(f"removal{number}", FIRST_UID + number, "", note))
        chance.shuffle(users)
        self._create_users(users)
        code, printed, seconds = self._remove_in_terminal(chance)
        self._found["rounds"] += 1
        self._found["users"] += len(users)
        self._check(users, code, printed, seconds)

    def _create_users(self, users: Sequence[User]) -> None:
        reports = self._system / REPORTS
        shutil.rmtree(reports, ignore_errors=True)
        reports.mkdir()
        reports.chmod(0o1777)
        lines = [
            f"{user.name}:x:{user.uid}:{user.uid}::/home/{user.name}:/bin/sh\n" for user in users
        ]
        (self._system / "etc/passwd").write_text(self._passwd + "".join(lines), encoding="utf-8")
        root_config = self._system / "root/elsewhere/helix-desktop/connected"
        root_config.mkdir(parents=True, exist_ok=True)
        (root_config / "claude.json").write_text(SECRET, encoding="utf-8")
        (self._system / "root").chmod(0o711)  # This Python may lie below it.
        (self._system / "root/elsewhere").chmod(0o700)
        for user in users:
            user.create_home(self._system)

    def _remove_in_terminal(self, chance: random.Random) -> tuple[int, str, float]:
        root_environment = {
            **os.environ,
            "ROOT_TOKEN": SECRET,
            "XDG_CONFIG_HOME": "/root/elsewhere",
            "HOME": "/root",
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive",
        }
        chroot = ("chroot", str(self._system))
        done = subprocess.run(
            [*chroot, "dpkg", "--force-depends", "-i", "/var/package.deb"],
            env=root_environment, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        # A file that root has open where dpkg, or what starts it, left it to its children.
        secret = os.open(self._system / "root/elsewhere/helix-desktop/connected/claude.json", 0)
        os.set_inheritable(secret, True)
        command = [*chroot, "dpkg", chance.choice(["--remove", "--purge"]), "helix-desktop"]
        begun = time.monotonic()
        process, terminal = pty.fork()
        if process == 0:
            os.dup2(secret, 3)
            os.execvpe(command[0], command, root_environment)  # noqa: S606 - it runs in the terminal
        printed = _read_until_end(terminal)
        _, status = os.waitpid(process, 0)
        seconds = time.monotonic() - begun
        os.close(terminal)
        os.close(secret)
        return os.waitstatus_to_exitcode(status), printed, seconds

    def _check(self, users: Sequence[User], code: int, printed: str, seconds: float) -> None:
        self._hold(code == 0, f"the removal ended with {code}: {printed}")
        longest = (LIMIT_SECONDS + 2) * 2 + 5  # One limit, and this machine's other work.
        self._hold(seconds < longest, f"the removal took {seconds:.0f} s")
        self._hold(PUSHED not in printed, f"keys were pushed into the terminal: {printed}")
        gone = not (self._system / "usr/bin/helix-desktop").is_symlink()
        self._hold(gone, "the program is still there")
        for user in users:
            if user.attack:
                self._check_attacker(user)
                continue
            self._found[user.note] += 1
            warned = f"Agents of {user.name} may still use" in printed
            file = self._system / "home" / user.name / ".claude/settings.json"
            if user.note == "honest":
                self._hold(
                    not file.exists() and not warned, f"{user} was not disconnected: {printed}"
                )
            elif user.note != "no note":
                self._hold(warned, f"{user} was not told of: {printed}")

    def _check_attacker(self, user: User) -> None:
        self._found[user.attack] += 1
        path = self._system / REPORTS / str(user.uid)
        if not path.exists():
            self._found["LOST an attacker was not started, so this trial showed nothing"] += 1
            return
        seen = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(seen)
        self._hold(seen["uid"] == user.uid and seen["gid"] == user.uid, "it ran as another user")
        self._hold(seen["groups"] in ([], [user.uid]), f"it had groups {seen['groups']}")
        self._hold(SECRET not in text, "it saw root's secret")
        self._hold("XDG_CONFIG_HOME" not in seen["environment"], "it had root's XDG_CONFIG_HOME")
        self._hold(seen["leads session"], "it ran in root's session")
        self._hold(seen["pushed"] == 0, f"it pushed {seen['pushed']} keys")
        self._hold(seen["cwd"] == "/", f"it ran in {seen['cwd']}")
        self._hold(not seen["root's files"], "it opened files of root's processes")
        others = [
            target
            for target in seen["files"].values()
            if target != "/dev/null" and not target.startswith("/proc/")
        ]
        self._hold(not others, f"it had files open: {others}")
        rights = [line for line in seen["capabilities"] if line.startswith("Cap")]
        self._hold(all(int(line.split()[1], 16) == 0 for line in rights), f"it had {rights}")

    def _hold(self, is_true: bool, otherwise: str) -> None:
        if not is_true:
            self._found[f"LOST {otherwise}"] += 1


def _read_until_end(terminal: int) -> str:
    printed = b""
    while True:
        readable, _, _ = select.select([terminal], [], [], 120)
        try:
            part = os.read(terminal, 65_536) if readable else b""
        except OSError:
            part = b""  # On Linux, a terminal whose other side is closed.
        if not part:
            return printed.decode("utf-8", "replace")
        printed += part


if __name__ == "__main__":
    sys.exit(main())
