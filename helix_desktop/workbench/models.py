"""The models of one workspace, by role: named in its settings, described by the catalogue, connected when first used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from helix_desktop.engine.blocks import Delta, Request
from helix_desktop.engine.facts import ModelReplied, ModelRole, ModelSet
from helix_desktop.engine.ports import Clock, ModelClient, Tokens
from helix_desktop.engine.session import Session
from helix_desktop.errors import ContextTooLong, HelixError, UnknownModel
from helix_desktop.providers import catalog, transport
from helix_desktop.providers.catalog import ProviderConfig
from helix_desktop.providers.configured import Configured
from helix_desktop.providers.demo import Demo
from helix_desktop.providers.models import ModelInfo
from helix_desktop.providers.transport import Connections
from helix_desktop.secrets import Secrets
from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """What all workspaces share to reach models."""

    configured: Configured
    secrets: Secrets
    connections: Connections
    tokens: Tokens
    clock: Clock

    def get_ready(self) -> None:
        """What the first message would have to wait for; for a thread."""
        transport.get_ready()
        self.tokens.count("the vocabulary is read")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model somebody chose. Its key is fetched for each request and kept nowhere."""

    info: ModelInfo
    config: ProviderConfig
    access: Access

    @property
    def model(self) -> str:
        return self.info.name

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        key = await catalog.key_for(self.config, self.access.secrets)
        client = catalog.connect(
            self.config, self.info, key, connections=self.access.connections, clock=self.access.clock
        )
        if isinstance(client, Demo):  # no provider reports what it would have billed
            client = replace(client, count=self.access.tokens.count)
        try:
            async with aclosing(client.stream(request)) as deltas:  # type: ignore[type-var]
                async for delta in deltas:
                    yield delta
        except ContextTooLong as error:
            if 0 < error.window < self.info.window:
                learn = self.access.configured.learn
                await asyncio.to_thread(learn, self.config.name, self.info.id, error.window)
            raise


class Models:
    """`names`: the settings' model for each role, as `provider/model`. They may change at any time."""

    def __init__(self, access: Access, names: Callable[[], Mapping[str, str]]) -> None:
        self._access = access
        self._names = names
        self._known: dict[str, Chosen] = {}
        self._read = access.configured.stamp()

    def client(self, role: ModelRole) -> ModelClient | None:
        """The model of a role, or None where none is chosen. The main one takes the place of another that is not there."""
        name = self._names().get(role, "")
        try:
            return self.named(name) if name else None
        except HelixError:
            if role is ModelRole.MAIN:
                raise
            return None

    def named(self, name: str) -> Chosen:
        """Any model by its full name; UnknownModel says what is wrong with the name."""
        if (now := self._access.configured.stamp()) != self._read:  # here, by the command line, or by hand
            self._known.clear()
            self._read = now
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def facts(self, main: str = "") -> tuple[ModelSet, ...]:
        """What the journal keeps of the models in force (`main` in place of the chosen main one). A name that leads
        nowhere is left to the request to report.
        """
        found = []
        for role in ModelRole:
            name = (main if role is ModelRole.MAIN else "") or self._names().get(role, "")
            try:
                found += [self.named(name).info.as_fact(role)] if name else []
            except HelixError:
                continue
        return tuple(found)

    async def wire(
        self, session: Session, seq: int | None, request: Request, model: str
    ) -> tuple[str, Mapping[str, Any]]:
        """The body a step's request went out as, to the model that answered it; the next one goes to `model`."""
        reply = session.conversation.fact(seq) if seq is not None else None
        chosen = self.named(reply.model if isinstance(reply, ModelReplied) else model)
        return chosen.model, await asyncio.to_thread(catalog.wire_form, chosen.config, chosen.info, request)

    def _found(self, name: str) -> Chosen:
        provider, _, model = name.partition("/")
        if name == "demo":  # the one provider with a single model
            model = name
        if not model:
            remedy = "Specify a model as provider/model. To list all models, run helix-desktop model list. The built-in model is demo."
            raise UnknownModel(f"{name!r} is not a valid model name.", remedy=remedy)
        config = self._access.configured.get(provider)
        return Chosen(catalog.model_info(config, model), config, self._access)
