"""A workspace's models by role: named in its settings, described by the catalogue,
connected on first use.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import field, replace
from typing import Any
from urllib.parse import urlsplit

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.engine.facts import ModelReplied, ModelRole, ModelSet
from helix_desktop.engine.messages import Delta, Reply, Request
from helix_desktop.engine.ports import Clock, ModelClient, TokenCounter
from helix_desktop.engine.session import Session
from helix_desktop.errors import (
    ContextTooLong,
    HelixError,
    NotFound,
    ProviderKeyRefused,
    UnknownModel,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import number_at
from helix_desktop.providers import http_transport, provider_catalog, tokenizer_families
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.demo_model import DEMO, DemoModel
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.lent_providers import LentProviders
from helix_desktop.providers.local_model_state import LocalModelState
from helix_desktop.providers.local_server_details import LocalServerKind, server_root
from helix_desktop.providers.model_prices import ModelInfo, window_shown_by_reply
from helix_desktop.providers.own_tokenizers import COUNTING_SERVERS, count_with_server
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.stored_workspace import StoredWorkspace

# Older versions of Ollama know no request that is not to be cut.
SILENTLY_CUTTING_SERVERS = (LocalServerKind.OLLAMA, LocalServerKind.LM_STUDIO)
LEAST_LEARNED_WINDOW = 1_024  # A server that reports a window with fewer tokens is mistaken.


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """What all workspaces share to reach models."""

    configured: ConfiguredProviders
    secrets: SecretStorage
    connections: ProviderConnections
    tokens: TokenCounter
    clock: Clock
    lent: LentProviders = field(default_factory=LentProviders)

    def prepare_model_access(self) -> None:
        """Load what the first message would have to wait for. To be run in a thread."""
        http_transport.load_http_and_certificates()
        self.tokens.count_tokens("the vocabulary is read")


@dataclass(frozen=True, slots=True)
class ProviderWay:
    """How a provider is reached for one request: with a key of this computer, or through another
    computer that lends it.
    """

    config: ProviderConfig
    key: str | None
    connections: ProviderConnections


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model that was chosen. Its key is read for each request and stored nowhere."""

    info: ModelInfo
    config: ProviderConfig
    access: ModelAccess
    # The conversation that asks, and those above it: a key may be lent for one of them alone.
    conversations: tuple[str, ...] = field(default=(), compare=False)

    @property
    def model_name(self) -> str:
        return self.info.name

    @property
    def may_cut_silently(self) -> bool:
        """Whether the model's server may leave out the beginning of a request that is longer than
        the window. If the window is only assumed, a longer request may well fit.
        """
        if self.info.window_from is WindowSizeSource.ASSUMED:
            return False
        return self.info.server in SILENTLY_CUTTING_SERVERS

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        """Ask the model, and learn its window from its answer if that is smaller than
        expected.
        """
        way = await self._choose_way_to_provider()
        client = provider_catalog.connect_model_client(
            way.config, self.info, way.key, connections=way.connections, clock=self.access.clock
        )
        if isinstance(client, DemoModel):  # The demo reports no usage, so its tokens are counted.
            client = replace(client, count=self.access.tokens.count_tokens)
        try:
            async with aclosing(client.stream_reply(request)) as deltas:  # type: ignore[type-var]
                async for delta in deltas:
                    if isinstance(delta, Reply):
                        await self._learn_window_from_reply(request, delta)
                    yield delta
        except ContextTooLong as error:
            if LEAST_LEARNED_WINDOW <= error.window < self.info.window:
                learn = self.access.configured.save_learned_window
                await asyncio.to_thread(learn, self.config.name, self.info.id, error.window)
            raise

    async def _choose_way_to_provider(self) -> ProviderWay:
        """A key of this computer is used first. Without one, the provider is asked through the
        computer from which the user works here, if it lends this provider.
        """
        own_way = ProviderWay(self.config, None, self.access.connections)
        lent = self.access.lent.find_lent_provider(self.config.name)
        try:
            key = await provider_catalog.find_provider_key(self.config, self.access.secrets)
        except ProviderKeyRefused:
            if lent is None:
                raise
            key = None
        if key or lent is None:
            return replace(own_way, key=key)
        is_known_only_as_lent = self.config == lent
        if not is_known_only_as_lent and not self.config.needs_key:
            return replace(own_way, key=key)

        from helix_desktop.providers.lent_http_transport import LentConnections

        connections = LentConnections(self.access.lent, lent.name, self.conversations)
        return ProviderWay(lent, None, connections)

    async def count_request_tokens(self, request: Request) -> int:
        """Return what the model's own tokenizer counts, or 0 if its server does not count."""
        if not self.info.server:
            return 0
        kind = LocalServerKind(self.info.server)
        if kind not in COUNTING_SERVERS:
            return 0
        body = await asyncio.to_thread(
            provider_catalog.request_body_of, self.config, self.info, request
        )
        dialect = provider_catalog.dialect_of_provider(self.config)
        transport = provider_catalog.transport_to_provider(
            self.config, dialect, "", self.access.connections
        )
        return await count_with_server(server_root(transport), kind, body)

    async def estimate_request_tokens(self, request: Request) -> int:
        """Return an estimate for a model on this computer, or 0 for another. A provider's
        model has a large window, and its first reply says how many tokens it counts.
        The demo has no vocabulary: its tokens are those that we count.
        """
        if not self.info.is_free or self.config.kind == "demo":
            return 0
        return await asyncio.to_thread(
            tokenizer_families.estimate_request_tokens, self.info.id, request, self.access.tokens
        )

    async def _learn_window_from_reply(self, request: Request, reply: Reply) -> None:
        """Save what a reply shows of a window that nobody states."""
        if self.info.window_from is not WindowSizeSource.ASSUMED or not self.info.is_free:
            return
        counted = await asyncio.to_thread(count_request_tokens, request, self.access.tokens)
        shown = window_shown_by_reply(self.info, counted, reply.usage)
        window = number_at(shown, "window")
        if window:
            await asyncio.to_thread(
                self.access.configured.save_learned_window,
                self.config.name,
                self.info.id,
                window,
                is_assumed="is_assumed" in shown,
            )


def count_request_tokens(request: Request, tokens: TokenCounter) -> int:
    """Count a request's texts, without the few tokens that a protocol adds."""
    texts = [request.system]
    texts += [tool.name + tool.description + tool.schema for tool in request.tools]
    texts += tokenizer_families.list_message_texts(request)
    return sum(tokens.count_tokens(text) for text in texts)


class WorkspaceModels:
    """The models that a workspace's settings name for each role."""

    def __init__(self, access: ModelAccess, workspace: StoredWorkspace) -> None:
        self._access = access
        self._workspace = workspace
        self._local_models = LocalModelState(access.configured, access.connections)
        self._known: dict[str, ChosenModel] = {}
        self._known_at: dict[tuple[str, str], ModelInfo | None] = {}  # By address and model.
        self._read = access.configured.change_stamp()

    @property
    def lent_providers(self) -> LentProviders:
        """What other computers lend to this workspace."""
        return self._access.lent

    def _names(self) -> Mapping[str, str]:
        """Return the model of each role, as `provider/model`, by the present settings."""
        return self._workspace.settings.models

    def client_for_role(self, role: ModelRole) -> ModelClient | None:
        """Return the model of a role. None: the main model takes its place. Raises only
        for the main model.
        """
        name = self._names().get(role, "")
        if not name:
            return None
        try:
            return self.model_by_name(name)
        except HelixError:
            if role is ModelRole.MAIN:
                raise
            return None

    async def check_main_model(self) -> None:
        """Raise an error if the main model cannot be asked: it or its provider's key is missing."""
        name = self._names().get(ModelRole.MAIN, "")
        if not name:
            raise UnknownModel(
                "No model has been chosen.",
                remedy="To choose a model, run `helix-desktop model set`.",
            )
        config = self.model_by_name(name).config
        key = await provider_catalog.find_provider_key(config, self._access.secrets)
        provider_catalog.require_usable_key(config, key)

    def model_by_name(self, name: str) -> ChosenModel:
        """Return any model by its full name. UnknownModel says what is wrong with the name."""
        self._forget_what_has_changed()
        if name not in self._known:
            self._known[name] = self._find_chosen_model(name)
        return self._known[name]

    def is_window_assumed(self, name: str) -> bool:
        """Whether neither the provider nor the user has said how large the model's window is."""
        try:
            return self.model_by_name(name).info.window_from is WindowSizeSource.ASSUMED
        except HelixError:
            return False

    def find_model_at(self, address: str, model: str) -> ModelInfo | None:
        """Return what is known of a model if a provider at an address is set up and knows it.

        A connected agent names a model and has an address, but not the name of the provider here.
        """
        self._forget_what_has_changed()
        place = (address, model)
        if place not in self._known_at:
            self._known_at[place] = self._look_for_model_at(address, model)
        return self._known_at[place]

    def _look_for_model_at(self, address: str, model: str) -> ModelInfo | None:
        host = urlsplit(address).netloc.lower()
        for config in self._access.configured.list_providers():
            is_at_address = urlsplit(config.base_url).netloc.lower() == host
            is_known_there = model in config.corrections or model in config.reported
            if is_at_address and is_known_there:
                return provider_catalog.describe_model(config, model)
        return None

    def _forget_what_has_changed(self) -> None:
        """Read the settings again if a command, the user or this program has changed them."""
        stamp = self._access.configured.change_stamp()
        if stamp != self._read:
            self._known.clear()
            self._known_at.clear()
            self._read = stamp

    async def update_local_model(self, main: str = "", *, may_load: bool) -> None:
        """Ask the main model's server, if it is on this computer, with which window it
        runs the model now. `main`: another main model.
        """
        name = main or self._names().get(ModelRole.MAIN, "")
        provider, _, model = name.partition("/")
        if not model or provider == DEMO:
            return
        with suppress(HelixError):  # The request will meet this error again and show it.
            await self._local_models.update_model(provider, model, may_load=may_load)

    def model_facts(self, main: str = "") -> tuple[ModelSet, ...]:
        """Return facts about the models in use (`main`: another main one). Unknown
        names are skipped.
        """
        model_facts: list[ModelSet] = []
        for role in ModelRole:
            name = self._names().get(role, "")
            if main and role is ModelRole.MAIN:
                name = main
            if not name:
                continue
            with suppress(HelixError):
                model_facts.append(self.model_by_name(name).info.as_model_set(role))
        return tuple(model_facts)

    def list_known_model_names(self) -> list[str]:
        """Return the chosen models, then those that the providers last reported,
        without asking them.
        """
        names = [name for name in self._names().values() if name]
        for config in self._access.configured.list_providers():
            names += [f"{config.name}/{model}" for model in config.reported]
            names += [f"{config.name}/{model}" for model in config.corrections]
        return list(dict.fromkeys(names))

    async def request_body_as_sent(
        self, session: Session, seq: int | None, request: Request, model: str
    ) -> tuple[str, Mapping[str, Any]]:
        """Return a step's model and the body it was sent. `seq`: the reply, or None for
        the next request to `model`.
        """
        if seq is not None:
            reply = session.conversation.fact_at(seq)
            if isinstance(reply, ModelReplied):
                model = reply.model
        chosen = self.model_by_name(model)
        body = await asyncio.to_thread(
            provider_catalog.request_body_of, chosen.config, chosen.info, request
        )
        return chosen.model_name, body

    def _find_chosen_model(self, name: str) -> ChosenModel:
        provider, _, model = name.partition("/")
        if name == "demo":  # The demo provider has only one model, which has the same name.
            model = name
        if not model:
            remedy = "Specify a model as provider/model. To list all models, run helix-desktop model list. The built-in model is named demo."
            raise UnknownModel(f"{name!r} is not a valid model name.", remedy=remedy)
        config = self._find_provider_here_or_lent(provider)
        return ChosenModel(provider_catalog.describe_model(config, model), config, self._access)

    def _find_provider_here_or_lent(self, name: str) -> ProviderConfig:
        try:
            return self._access.configured.find_provider(name)
        except NotFound:
            lent = self._access.lent.find_lent_provider(name)
            if lent is None:
                raise
            return lent
