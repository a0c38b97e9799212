"""Providers that the user's own computer lends to this one, where a workspace is open for them.

The user works here from another computer, and their keys stay there. A request to a lent provider is
handed to that computer (the lender), which adds the key, sends it on, and hands the reply back. Where
the line to the lender breaks, a request waits until the lender comes back.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.providers.provider_catalog import ProviderConfig

# The lender knows how long a provider may take, and says so when it took longer. Here, a request
# may wait for days until the lender is back.
PATIENCE_SECONDS = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class LentProvider:
    """A provider as its lender has set it up. Its key is not part of it."""

    name: str
    kind: str
    base_url: str


@dataclass(frozen=True, slots=True)
class LentRequest:
    """A request that the lender is to send. It adds the key, and the provider's own headers."""

    provider: str
    url: str
    headers: tuple[tuple[str, str], ...]
    content: bytes


class LentAnswer(Protocol):
    """A provider's answer, whose head has arrived at the lender."""

    @property
    def status_code(self) -> int: ...

    @property
    def response_headers(self) -> Mapping[str, str]: ...

    def body_chunks(self) -> AsyncGenerator[bytes]: ...


class ProviderLender(Protocol):
    @property
    def computer(self) -> str:
        """Return a name that stays the same when its line broke and it has come again."""

    @property
    def providers(self) -> Sequence[LentProvider]: ...

    @property
    def conversation(self) -> str:
        """Return the only conversation for which it lends, or an empty string."""

    def open_lent_answer(self, request: LentRequest) -> AbstractAsyncContextManager[LentAnswer]: ...

    def end_lending(self) -> None:
        """Fails the answers that are open. Called when the same computer has come again."""

    def dismiss(self) -> None:
        """Ends the connection to the lender, which lends nothing any more."""


class LentProviders:
    """Who lends providers to one workspace now, and which providers have ever been lent.
    `listeners` are called when somebody begins or ends to lend.
    """

    def __init__(self) -> None:
        self._lenders: dict[str, ProviderLender] = {}  # By computer, the last one at the end.
        self._configs: dict[str, ProviderConfig] = {}
        self._has_new_lender = asyncio.Event()
        self.listeners: list[Callable[[], object]] = []

    def list_lenders_for_one_conversation(self) -> Sequence[ProviderLender]:
        """Return those whose keys were lent for one conversation alone, so that it goes on."""
        return [lender for lender in self._lenders.values() if lender.conversation]

    def _tell_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    def add_lender(self, lender: ProviderLender) -> Callable[[], None]:
        """Add a computer that lends its providers. Returns what to call when it leaves."""
        earlier = self._lenders.pop(lender.computer, None)
        if earlier is not None:
            # Its line is dead, though nobody here has noticed: requests on it would wait for ever.
            earlier.end_lending()
        self._lenders[lender.computer] = lender
        for provider in lender.providers:
            self._configs[provider.name] = _config_of_lent_provider(provider)
        self._has_new_lender.set()
        self._tell_listeners()

        def remove_lender() -> None:
            if self._lenders.get(lender.computer) is lender:
                del self._lenders[lender.computer]
                self._tell_listeners()

        return remove_lender

    def find_lent_provider(self, name: str) -> ProviderConfig | None:
        """Return a provider that was lent, even if its lender is away now."""
        return self._configs.get(name)

    def take_back_key(self, conversation: str) -> bool:
        """End what is lent for this conversation alone. Return whether anything was."""
        was_lent = False
        for computer, lender in list(self._lenders.items()):
            if lender.conversation and lender.conversation == conversation:
                del self._lenders[computer]
                lender.end_lending()
                lender.dismiss()
                was_lent = True
        if was_lent:
            self._tell_listeners()
        return was_lent

    async def wait_for_lender(
        self, provider: str, conversations: Sequence[str] = ()
    ) -> ProviderLender:
        """Return the lender that came last of those with this provider, first of all one for these
        conversations alone. Without any, wait for one. `conversations`: the one that asks, and
        those above it.
        """
        while True:
            for lender in reversed(self._lenders.values()):
                if lender.conversation in conversations and _has_provider(lender, provider):
                    return lender
            for lender in reversed(self._lenders.values()):
                if not lender.conversation and _has_provider(lender, provider):
                    return lender
            self._has_new_lender.clear()
            await self._has_new_lender.wait()


def _has_provider(lender: ProviderLender, provider: str) -> bool:
    return any(lent.name == provider for lent in lender.providers)


def _config_of_lent_provider(provider: LentProvider) -> ProviderConfig:
    """Return a lent provider as this computer knows it: without a variable in which to look for
    a key here, and with patience for a lender that is away.
    """
    config = ProviderConfig(provider.name, provider.kind, provider.base_url)
    patience = replace(config.patience, first_byte=PATIENCE_SECONDS, silence=PATIENCE_SECONDS)
    return replace(config, patience=patience)
