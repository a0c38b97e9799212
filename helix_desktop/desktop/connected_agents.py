"""The gateway for the window: a process of its own, started and watched here, and the agents' configurations."""

from __future__ import annotations

import asyncio
import atexit
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop.gui.connected.port import AgentRow, Connections, Today

if TYPE_CHECKING:
    from typing import Any

    from helix_desktop.gateway.agents import KnownAgent
    from helix_desktop.gateway.installing import Change
    from helix_desktop.gateway.wrapping import Started
    from helix_desktop.places import Places


class ConnectedAgents:
    """connected.port.ConnectedAgents on this home."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._started: Started | None = None

    async def look(self) -> Connections:
        return await asyncio.to_thread(self._look)

    def _look(self) -> Connections:
        from helix_desktop.gateway import agents, wrapping

        url = wrapping.running(self._where)
        told: dict[str, Any] = (wrapping.status(url) or {}) if url else {}
        seen = {one["agent"]: one for one in told.get("agents", ())}
        today = told.get("today", ())
        rows = [self._row(agent, seen.get(agent.title, {}), today) for agent in agents.AGENTS.values()]
        sums = {name: sum(one[name] for one in today) for name in Today.__dataclass_fields__}
        return Connections(url, rows, Today(**sums))

    def _row(self, agent: KnownAgent, seen: Mapping[str, Any], today: Sequence[Mapping[str, Any]]) -> AgentRow:
        from helix_desktop.gateway import agents, installing

        own = [one for one in today if one["agent"] == agent.title]
        return AgentRow(
            agent.name,
            agent.title,
            shlex.join(["helix-desktop", "wrap", agent.name]),
            bool(agents.installed(agent)),
            installing.connected(agent, self._where.config),
            int(seen.get("requests", 0)),
            float(seen.get("last", 0.0)),
            str(seen.get("unfolded", "")),
            len(own),
            sum(one["sent"] for one in own),
            sum(one["without"] for one in own),
        )

    async def switch(self, *, on: bool) -> None:
        await asyncio.to_thread(self._begin if on else self._end)

    def _begin(self) -> None:
        from helix_desktop.gateway import serving, wrapping

        if self._started is None and not wrapping.running(self._where):
            started = wrapping.Started([*wrapping.program(self._where), "gateway"], serving.PORT)
            started.begin()
            self._started = started
            atexit.register(self._end)

    def _end(self) -> None:
        started, self._started = self._started, None
        if started is not None:
            atexit.unregister(self._end)
            started.end()

    async def difference(self, name: str) -> str:
        return (await asyncio.to_thread(self._change, name)).difference()

    async def change(self, name: str) -> None:
        await asyncio.to_thread(self._write, name)

    def _change(self, name: str) -> Change:
        from helix_desktop.gateway import agents, installing, serving

        agent = agents.known(name)
        if installing.connected(agent, self._where.config):
            return installing.removal(agent, self._where.config)
        return installing.planned(agent, f"http://127.0.0.1:{serving.PORT}/a/{name}", Path.home())

    def _write(self, name: str) -> None:
        from helix_desktop.gateway import agents, installing

        connected = installing.connected(agents.known(name), self._where.config)
        (installing.uninstall if connected else installing.install)(self._change(name), self._where.config)
