"""Providers and an installation in memory, for the first start and the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from helix_desktop.errors import BadKey, HelixError, NoKeyring, NotThere, WrongUse
from helix_desktop.gui.bring_in.port import Group
from helix_desktop.gui.bring_in.port import Outcome as Brought
from helix_desktop.gui.connected.port import ConnectedAgents
from helix_desktop.gui.lab.port import Course, Outcome, Played, Wanted
from helix_desktop.gui.ports import Desk, Workbench
from helix_desktop.gui.settings.program import CommandAccess, Covered, Finding, Going, Kept, Server
from helix_desktop.gui.setup import Model, Provider, Refreshed, Sure, Tested
from helix_desktop.tools.openings import OPENINGS

ANTHROPIC = Provider("anthropic", "Anthropic", "https://api.anthropic.com", "anthropic", needs_key=True)
OLLAMA = Provider("ollama", "Ollama", "http://127.0.0.1:11434/v1", local=True, ready=True)
SONNET = Model("anthropic/claude-sonnet", 200_000, 3.0, 15.0)
QWEN = Model("ollama/qwen3", 32_000)


class FakeSetup:
    """Knows one good key. `keyring` says whether there is one; `servers` what runs on this machine."""

    def __init__(self, *, keyring: bool = True, servers: bool = True) -> None:
        self.keyring = keyring
        self.servers = servers
        self.added: list[tuple[Provider, str, str]] = []
        self.listed: Sequence[Model] = (SONNET, QWEN)
        self.corrected: dict[str, Model] = {}
        self.silent: tuple[tuple[str, str], ...] = ()
        self.asked_again = 0

    def ask_keyring_again(self) -> None:
        self.asked_again += 1

    def well_known(self) -> Sequence[Provider]:
        return [ANTHROPIC]

    async def providers(self) -> Sequence[Provider]:
        return [replace(provider, key=keep if key else "") for provider, key, keep in self.added]

    async def local(self) -> Sequence[tuple[Provider, Sequence[Model]]]:
        return [(OLLAMA, [QWEN])] if self.servers else []

    async def test(self, provider: Provider, key: str) -> Tested:
        if provider.needs_key and key != "good":
            raise BadKey(f"{provider.title} does not accept this key.", remedy="Look whether all of it was copied.")
        return Tested((SONNET,), SONNET.name)

    async def add(self, provider: Provider, key: str, keep: str = "keyring") -> None:
        if key and keep == "keyring" and not self.keyring:
            raise NoKeyring("There is no keyring here.")
        self.added.append((provider, key, keep))

    async def remove(self, name: str) -> None:
        self.added = [each for each in self.added if each[0].name != name]

    async def models(self, provider: str) -> Sequence[Model]:
        return [SONNET]

    async def known(self) -> Sequence[Model]:
        return [*(model for model in self.listed if model.name not in self.corrected), *self.corrected.values()]

    async def refresh(self) -> Refreshed:
        return Refreshed(tuple(await self.known()), self.silent)

    async def correct(self, model: str, values: Mapping[str, float | bool]) -> None:
        (known,) = [each for each in await self.known() if each.name == model]
        self.corrected[model] = replace(known, window=int(values.get("window", known.window)), sure=Sure.SET)

    async def reset(self, model: str) -> None:
        self.corrected.pop(model, None)


class FakeServers:
    """`running`: those of the settings; `changes`: the limits that were written, `marked` the tools that only read."""

    def __init__(self) -> None:
        self.running: list[Server] = []
        self.changes: list[tuple[str, float]] = []
        self.marked: list[tuple[str, str, bool]] = []

    async def paste(self, text: str, name: str = "") -> None:
        self.running.append(Server(name or "server", text.strip()))

    async def remove(self, name: str) -> None:
        self.running = [server for server in self.running if server.name != name]

    async def switch(self, name: str, *, on: bool) -> None:
        self.running = [replace(each, enabled=on) if each.name == name else each for each in self.running]

    async def switch_tool(self, name: str, tool: str, *, on: bool) -> None:
        for at, server in enumerate(self.running):
            offered = tuple(replace(each, on=on) if each.name == tool else each for each in server.offered)
            self.running[at] = replace(server, offered=offered) if server.name == name else server

    async def limit(self, name: str, **seconds: float) -> None:
        self.changes += [(f"{name}.{key}", value) for key, value in seconds.items()]

    async def restart(self, name: str) -> None:
        raise NotThere(f"There is no MCP server {name}.")

    async def mark_reading(self, name: str, tool: str, *, reads: bool) -> None:
        self.marked.append((name, tool, reads))


class FakeHistories:
    """Two programs; `done` is what was brought in. `stays`: an import goes on until it is stopped."""

    def __init__(self) -> None:
        self.groups = [
            Group("Claude Code", "/home/me/project", 12, 3_400_000, 1_767_000_000.0, 1_768_000_000.0),
            Group("Codex", "/gone", 1, 20_000, 1_767_000_000.0, 1_767_000_000.0, there=False),
        ]
        self.done: list[Sequence[Group]] = []
        self.keys: Sequence[str] = ("sk-ant-…9f",)
        self.stopped = self.undone = self.forgotten = False
        self.watched: Sequence[Group] = ()

    @property
    def watching(self) -> bool:
        return bool(self.watched)

    def watch(self, groups: Sequence[Group], heard: Callable[[Brought], object]) -> None:
        self.watched = groups

    async def find(self) -> Sequence[Group]:
        return self.groups

    async def bring_in(self, groups: Sequence[Group], report: Callable[[int, int], None]) -> Brought:
        self.done.append(groups)
        report(1, 2)
        new = sum(group.conversations for group in groups)
        return Brought(
            new, 0, 2, self.stopped, ("", ""), self.keys, ("a.jsonl, line 3: it was left out.",), ("Imported", "thesis")
        )

    def stop(self) -> None:
        self.stopped = True

    async def undo(self) -> Sequence[str]:
        self.undone = True
        return ()

    async def forget_keys(self) -> int:
        self.forgotten = True
        return len(self.keys)


class FakeInstallation:
    """`played`: what the replay lab was asked for."""

    def __init__(self) -> None:
        self.of_others = FakeHistories()
        self.played: list[Wanted] = []

    def histories(self, desk: Desk) -> FakeHistories:
        return self.of_others

    def connected_agents(self) -> ConnectedAgents:
        raise NotImplementedError

    def versions(self) -> Sequence[tuple[str, str]]:
        return [("PySide6-Essentials", "6.11.3")]

    def licences(self) -> str:
        return "Helix Desktop: Apache-2.0"

    async def examine(self) -> Sequence[Finding]:
        return [Finding("Python", "good", "3.11."), Finding("Keyring", "bad", "There is none.", "Install one.")]

    async def kept(self, bench: Workbench) -> Kept:
        return Kept(1_284, 96_200_000, 21_800_000, 0, Path("/data/x"), 1_795_162_800.0)

    async def verify(self, bench: Workbench, report: Callable[[str], None]) -> str:
        report("half")
        return "All of it is whole."

    async def going(self, bench: Workbench) -> Going:
        return Going(2, 9_000_000, 12_000_000, 3_000_000, ["read_file a.rs", "read_file b.rs"])

    async def collect(self, bench: Workbench) -> str:
        raise HelixError("The disk refused.", remedy="Try again.")

    async def back_up(self, bench: Workbench) -> str:
        return "Backed up."

    def servers(self, bench: Workbench) -> Sequence[Server]:
        return cast("FakeServers", bench.servers).running

    def read_servers(self, text: str, name: str) -> Sequence[Server]:
        if not text.strip():
            raise WrongUse("This text doesn't contain an MCP server configuration.")
        return [Server(name or "server", text.strip())]

    async def test_server(self, bench: Workbench, name: str) -> str:
        return f"{name} answers: 3 tools."

    async def sign_in_server(self, bench: Workbench, name: str) -> None:
        servers = cast("FakeServers", bench.servers)
        servers.running = [replace(each, state="ready") if each.name == name else each for each in servers.running]

    def too_wide(self, rule: Mapping[str, Any]) -> bool:
        return str(rule.get("command", "")).startswith("python3 ")

    def command_access(self, bench: Workbench) -> CommandAccess:
        openings = [(one.name, one.title, one.gives) for one in OPENINGS]
        return CommandAccess(openings, ("gh",), ("~/data",), (".env", "*.pem"))

    def covered(self, bench: Workbench) -> Covered:
        return Covered(("node_modules/", "*.iso"), 200_000, 5_000_000_000, 30)

    async def play(self, bench: Workbench, wanted: Wanted, report: Callable[[int, int], None]) -> Outcome:
        report(1, 2)
        self.played.append(wanted)
        courses = [
            Course("1 Extract the lock manager", [4_000, 9_000, 21_000, 12_000], [(3, "marker")]),
            Course("2 Flaky test", [4_000, 5_000], []),
        ]
        played = [
            Played(name, 20, 90_000, 50_000, 100_000, 0.8, 1.0, {"marker": 3}, courses) for name in wanted.policies
        ]
        return Outcome(played, wanted.window, "<html>the page</html>")

    async def tour_workbench(self, desk: Desk, folder: Path) -> Workbench:
        folder.mkdir(parents=True, exist_ok=True)
        return await desk.create("Tour", folder)
