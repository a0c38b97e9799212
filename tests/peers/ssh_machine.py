"""Another computer that is reached over SSH: Debian's own sshd on a port of this one, for the same
user, with a home of its own for Helix Desktop. And an `ssh` as a user has it configured.

with SshMachine(folder) as machine: run a command with `machine.environment` and the address
`machine.address(path)`; `machine.break_lines()` ends every connection as a dead line does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.peers.ports import free_port

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
NAME = "testbox"


class SshMachine:
    def __init__(self, folder: Path) -> None:
        if SSHD is None:
            pytest.skip("sshd is not installed (Debian: openssh-server)")
        self._folder = folder
        self._port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self.programs = folder / "programs there"
        self.home = folder / "home there"
        self.home_here = folder / "home here"
        self._pids = folder / "ssh.pids"
        for path in (self.programs, self.home, self.home_here):
            path.mkdir(parents=True)

    def __enter__(self) -> Self:
        self.install(f'exec {sys.executable} -m helix_desktop "$@"')
        self._write_server_files()
        self._write_client_files()
        with suppress(PermissionError):
            Path("/run/sshd").mkdir(exist_ok=True)  # Debian's sshd wants it when root starts it.
        assert SSHD is not None
        command = [SSHD, "-D", "-e", "-f", str(self._folder / "sshd_config")]
        self._server = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._server.stderr is not None
        for line in self._server.stderr:
            if b"Server listening" in line:
                return self
        raise AssertionError("sshd did not start")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        assert self._server.stderr is not None
        self.break_lines()
        self.kill_hosts()
        self.stop_server()
        self._server.stderr.close()

    def stop_server(self) -> None:
        """From then on there is nothing to connect to."""
        assert self._server is not None
        self._server.terminate()
        self._server.wait()

    def install(self, script: str) -> None:
        """What `helix-desktop` is over there."""
        program = self.programs / "helix-desktop"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def _write_server_files(self) -> None:
        for name in ("host_key", "id"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / name)]
            subprocess.run(key, check=True)
        (self._folder / "authorized_keys").write_text((self._folder / "id.pub").read_text())
        (self._folder / "sshd_config").write_text(
            f"Port {self._port}\nListenAddress 127.0.0.1\nHostKey {self._folder / 'host_key'}\n"
            f"AuthorizedKeysFile {self._folder / 'authorized_keys'}\n"
            "PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\n"
            f'SetEnv "PATH={self.programs}:/usr/bin:/bin" "HELIX_HOME={self.home}"\n'
        )

    def _write_client_files(self) -> None:
        config = self._folder / "ssh_config"
        config.write_text(
            f"Host {NAME}\n  HostName 127.0.0.1\n  Port {self._port}\n  User {getuser()}\n"
            f"  IdentityFile {self._folder / 'id'}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self._folder / 'known_hosts'}\n"
            "  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n"
        )
        ssh = self._folder / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\necho $$ >> {self._pids}\nexec /usr/bin/ssh -F {config} "$@"\n')
        ssh.chmod(0o755)

    def reach_through(self, jump_host: SshMachine) -> None:
        """The user's configuration names a machine through which this one is reached."""
        config = self._folder / "ssh_config"
        # Of several values, ssh takes the first.
        config.write_text(
            f"Host {NAME}\n  ProxyJump jumpbox\n"
            f"Host jumpbox\n  HostName 127.0.0.1\n  Port {jump_host._port}\n  User {getuser()}\n"
            f"  IdentityFile {jump_host._folder / 'id'}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self._folder / 'known_hosts'}\n"
            "  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n" + config.read_text()
        )

    def cut_next_logins(self, count: int) -> None:
        """The next connections are closed when each end has named its version. Later ones hold."""
        config = self._folder / "ssh_config"
        left = self._folder / "cuts left"
        left.write_text("x" * count)
        relay = self._folder / "relay"
        relay.write_text(
            f"#!/bin/bash\nleft='{left}'\nif [ -s \"$left\" ]; then\n"
            '  truncate -s -1 "$left"; printf "SSH-2.0-cut\\r\\n"; head -c 20 > /dev/null; exit\nfi\n'
            f"exec 3<>/dev/tcp/127.0.0.1/{self._port}\ncat <&3 &\ncat >&3\nkill $!\n"
        )
        relay.chmod(0o755)
        config.write_text(f"Host {NAME}\n  ProxyCommand '{relay}'\n" + config.read_text())

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a command on the user's own computer."""
        path = f"{self._folder / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "HELIX_HOME": str(self.home_here)}

    def address(self, path: Path | str) -> str:
        return f"ssh://{NAME}{path}"

    def start_command(
        self, path: Path | str, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "helix_desktop", "--host", self.address(path), *words],
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run_command(
        self, path: Path | str, *words: str, environment: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        running = self.start_command(path, *words, environment=environment)
        out, err = running.communicate(timeout=100)
        return running.returncode, out, err

    def run_here(self, *words: str) -> None:
        """A command on the user's own computer."""
        command = [sys.executable, "-m", "helix_desktop", *words]
        subprocess.run(command, env=self.environment, check=True, capture_output=True)

    def break_lines(self) -> None:
        if not self._pids.exists():
            return
        for pid in self._pids.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._pids.unlink()

    def hosts(self) -> Sequence[int]:
        return list_kept_hosts(self.home)

    def key_holders(self) -> Sequence[int]:
        return list_processes(self.home, "--hold-key")

    def kill_hosts(self) -> None:
        for pid in self.hosts():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def list_kept_hosts(home: Path) -> Sequence[int]:
    """The processes of this home that have a workspace open for clients."""
    return list_processes(home, "--keep")


def list_processes(home: Path, option: str) -> Sequence[int]:
    """The processes of this home that were started with this option."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It has ended meanwhile.
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if os.fsencode(home) in words and os.fsencode(option) in words:
                found.append(int(entry.name))
    return found
