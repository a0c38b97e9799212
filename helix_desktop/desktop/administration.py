"""Looking after the installation and its workspaces, for the settings and the tour: what `gui/settings/program.py` asks."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from helix_desktop.errors import Refused, WrongUse
from helix_desktop.gui.bring_in.port import Histories
from helix_desktop.gui.connected.port import ConnectedAgents
from helix_desktop.gui.engine_sentences import in_a_row
from helix_desktop.gui.engine_sentences import said as told
from helix_desktop.gui.links import open_link
from helix_desktop.gui.ports import Desk
from helix_desktop.gui.ports import Workbench as Shown
from helix_desktop.gui.settings.program import CommandAccess, Covered, Finding, Going, Kept, Offered, Server
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.words import count, tr
from helix_desktop.places import Places
from helix_desktop.secrets import Secrets

if TYPE_CHECKING:
    from helix_desktop.gui.lab.port import Outcome, Wanted
    from helix_desktop.mcp_host.server import Hosted
    from helix_desktop.workbench.bench import Workbench

LOOKED_AT, NAMED = 5_000, 8  # entries whose sizes are added up before room is made, and those that are named


class Keeping:
    """`where` and `secrets` for the doctor; everything else is asked of the workbench that is shown."""

    def __init__(self, where: Places, secrets: Secrets) -> None:
        self._where = where
        self._secrets = secrets

    # --- the installation

    def versions(self) -> Sequence[tuple[str, str]]:
        from helix_desktop import doctor

        return tuple(doctor.installed().items())

    def licences(self) -> str:
        """Each library with the licence it says it has."""
        lines = ["Helix Desktop: Apache-2.0", ""]
        for name, version in self.versions():
            about = importlib.metadata.metadata(name).json
            said = str(about.get("license_expression") or about.get("license") or "")
            lines.append(f"{name} {version}: {said.splitlines()[0][:80] if said else tr('see its website')}")
        return "\n".join(lines)

    async def examine(self) -> Sequence[Finding]:
        from helix_desktop import doctor

        found = await doctor.examine(self._where, self._secrets)
        return [Finding(each.what, each.state.value, each.says, each.remedy) for each in found]

    def histories(self, desk: Desk) -> Histories:
        from helix_desktop.desktop.histories import Histories as OfOthers

        return OfOthers(cast("Any", desk))

    def connected_agents(self) -> ConnectedAgents:
        from helix_desktop.desktop.connected_agents import ConnectedAgents as OnThisHome

        return OnThisHome(self._where)

    # --- a workspace

    async def kept(self, bench: Shown) -> Kept:
        workspace = _real(bench).workspace
        stats = await workspace.index.stats()
        copies = await asyncio.to_thread(workspace.backups)
        last = max((each.time for each in copies), default=0.0)
        return Kept(stats.entries, stats.size, stats.kept, workspace.settings.limit, workspace.folder, last)

    async def verify(self, bench: Shown, report: Callable[[str], None]) -> str:
        cache = _real(bench).workspace.cache
        result = await cache.verify(lambda so_far: report(tr("{size} read…", size=size(so_far.bytes))))
        if not result.damaged:
            entries = count(result.checked, "{n} entry", "{n} entries")
            return tr("{entries}, {size}: every entry matches its hash.", entries=entries, size=size(result.bytes))
        names = "\n".join(f"{digest.short}: {told(why)}" for digest, why in result.damaged[:20])
        return count(len(result.damaged), "{n} entry is damaged:", "{n} entries are damaged:") + "\n" + names

    async def going(self, bench: Shown) -> Going:
        """The oldest first, as `collect` takes them."""
        workspace = _real(bench).workspace
        over = (
            max((await workspace.index.stats()).kept - workspace.settings.limit, 0) if workspace.settings.limit else 0
        )
        rows, freed = [], 0
        for digest in (await workspace.index.unused())[:LOOKED_AT]:
            if freed >= over:
                break
            row = await workspace.index.row(digest)
            if row is not None:
                rows.append(row)
                freed += row.kept
        names = [" ".join(filter(None, [row.about.tool, row.about.source])) for row in rows[:NAMED]]
        return Going(len(rows), freed, over, max(over - freed, 0), names)

    async def collect(self, bench: Shown) -> str:
        workspace = _real(bench).workspace
        if not workspace.settings.limit:
            return tr("No limit is set, so there is nothing to free up. Set a limit above first.")
        gone = await workspace.cache.collect(workspace.settings.limit)
        entries = count(gone.entries, "{n} entry removed", "{n} entries removed")
        return tr("{what}, {size} freed.", what=entries, size=size(gone.bytes))

    async def back_up(self, bench: Shown) -> str:
        made = await _real(bench).workspace.back_up()
        return tr("Backup saved as {file}.", file=made.path.name)

    # --- MCP servers

    def servers(self, bench: Shown) -> Sequence[Server]:
        """Those of the settings, each with the state of the one that runs."""
        running = {hosted.config.name: hosted for hosted in _real(bench).servers.servers}
        tables = _real(bench).workspace.settings.mcp
        return [_server(name, table, running.get(name)) for name, table in tables.items()]

    def read_servers(self, text: str, name: str) -> Sequence[Server]:
        from helix_desktop.mcp_host.config import parse

        return [Server(config.name, config.shown_whole) for config in parse(text, name=name).servers]

    async def sign_in_server(self, bench: Shown, name: str) -> None:
        async def page(address: str) -> None:
            open_link(address)

        status = await _real(bench).servers.sign_in(name, page)
        if status.state != "ready":
            raise Refused(tr("{name} isn't ready. {why}", name=name, why=told(status.why)))

    def too_wide(self, rule: Mapping[str, Any]) -> bool:
        from helix_desktop.tools.permission import Rule, too_wide

        return too_wide(Rule.parse(rule))

    def command_access(self, bench: Shown) -> CommandAccess:
        from helix_desktop.tools.openings import OPENINGS
        from helix_desktop.workbench import setup

        chosen = _real(bench).workspace.settings
        openings = [(one.name, one.title, one.gives) for one in OPENINGS]
        return CommandAccess(openings, chosen.openings, chosen.readable, setup.hidden(chosen))

    def covered(self, bench: Shown) -> Covered:
        from helix_desktop.workbench import setup

        real = _real(bench)
        found = setup.coverage(real.workspace.settings.changes)
        return Covered(found.leave_out, found.most_files, found.most_bytes, real.changes.keep_days, found.off)

    async def test_server(self, bench: Shown, name: str) -> str:
        status, tools, lines = await _real(bench).servers.test(name)
        wrote = tr("Its output: {line}", line=lines[-1][:300]) if lines and status.why else ""
        said = tr("{name} responded and offers {tools}.", name=name, tools=count(len(tools), "{n} tool", "{n} tools"))
        return in_a_row(told(status.why) or said, wrote)

    # --- the replay lab and the tour

    async def play(self, bench: Shown, wanted: Wanted, report: Callable[[int, int], None]) -> Outcome:
        from helix_desktop.desktop import replay_lab

        return await replay_lab.play(bench, wanted, report)

    async def tour_workbench(self, desk: Desk, folder: Path) -> Shown:
        """The workspace of the tour: the one of last time, else a new one on a fresh sample."""
        from helix_desktop.workbench import tour

        await asyncio.to_thread(tour.make_folder, folder)
        known = next((row for row in desk.workspaces() if row.folder == folder), None)
        bench = await desk.open(known.id) if known else await desk.create(tr("Tour"), folder)
        await bench.choose_model(tour.MODEL)
        return bench


def _server(name: str, table: Mapping[str, Any], hosted: Hosted | None) -> Server:
    """A server of the settings, and how the one that runs is; a table with a mistake says so and stops no other."""
    from helix_desktop.mcp_host.config import from_plain

    try:
        config = from_plain(name, table)
    except (WrongUse, ValueError, TypeError) as error:
        return Server(name, "", mistake=str(error))
    server = Server(
        name,
        config.shown_whole,
        enabled=config.enabled,
        start_seconds=config.start_seconds,
        call_seconds=config.call_seconds,
        approvals=config.approvals,
    )
    if hosted is None:
        return server
    offered = tuple(
        Offered(tool.own_name, tool.spec.description, tool.own_name not in config.off, tool.own_name in config.reading)
        for tool in hosted.all_tools
    )
    status = hosted.status
    return replace(
        server,
        state=status.state.value,
        why=status.why,
        tools=status.tools,
        offered=offered,
        log=tuple(hosted.log_lines),
    )


def _real(bench: Shown) -> Workbench:
    """The window shows real workbenches; its own Protocol names only what it uses of them."""
    return cast("Workbench", bench)
