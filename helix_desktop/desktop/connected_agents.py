"""The gateway for the window: asked for of the resident while it is switched on, and the agents' configurations."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helix_desktop.errors import HelixError
from helix_desktop.gui.connected.port import AgentRow, Connections, Today

if TYPE_CHECKING:
    from typing import Any

    from helix_desktop.gateway.agents import KnownAgent
    from helix_desktop.gateway.installing import Change
    from helix_desktop.places import Places
    from helix_desktop.resident.client import HeldRegistration


class ConnectedAgents:
    """connected.port.ConnectedAgents on this home."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._switched_on: HeldRegistration | None = None
        self._watching: HeldRegistration | None = None

    async def look(self) -> Connections:
        return await asyncio.to_thread(self._look)

    def _look(self) -> Connections:
        from helix_desktop.gateway import agents, wrapping

        held = self._held()
        url = held.address if held is not None else ""
        told: dict[str, Any] = (wrapping.status(url) or {}) if url else {}
        seen = {one["agent"]: one for one in told.get("agents", ())}
        today = told.get("today", ())
        rows = [self._row(agent, seen.get(agent.title, {}), today) for agent in agents.AGENTS.values()]
        sums = {name: sum(one[name] for one in today) for name in Today.__dataclass_fields__}
        other = held.addresses[1] if held is not None and len(held.addresses) > 1 else ""
        return Connections(url.partition("/t/")[0], rows, Today(**sums), other)

    def _held(self) -> HeldRegistration | None:
        """The way to ask the gateway, where one runs: it need not be the window that wants it."""
        from helix_desktop.gateway import wrapping
        from helix_desktop.gateway.registration import Registration
        from helix_desktop.resident.client import HeldRegistration

        for held in (self._switched_on, self._watching):
            if held is not None and held.is_held:
                return held
        looking = HeldRegistration(
            self._where, wrapping.program(self._where), Registration("", sees_all=True), starts=False
        )
        try:
            self._watching = looking.__enter__()
        except HelixError:
            self._watching = None
        return self._watching

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
        from helix_desktop.gateway.registration import Registration
        from helix_desktop.resident.client import HeldRegistration

        if self._switched_on is None or not self._switched_on.is_held:
            own, others = Registration("", sees_all=True), Registration(serving.token_of(self._where))
            held = HeldRegistration(self._where, wrapping.program(self._where), own, others)
            self._switched_on = held.__enter__()

    def _end(self) -> None:
        held, self._switched_on = self._switched_on, None
        if held is not None:
            held.__exit__(None, None, None)

    async def difference(self, name: str) -> str:
        return (await asyncio.to_thread(self._change, name)).difference()

    async def change(self, name: str) -> None:
        await asyncio.to_thread(self._write, name)

    def _change(self, name: str) -> Change:
        from helix_desktop.gateway import agents, installing
        from helix_desktop.resident import connecting

        agent = agents.known(name)
        if installing.connected(agent, self._where.config):
            return installing.removal(agent, self._where.config)
        return connecting.planned(agent, self._where)

    def _write(self, name: str) -> None:
        from helix_desktop.gateway import agents, installing
        from helix_desktop.resident import connecting

        connected = installing.connected(agents.known(name), self._where.config)
        (connecting.disconnect if connected else connecting.connect)(self._change(name), self._where)
