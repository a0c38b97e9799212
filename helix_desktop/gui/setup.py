"""What setting up providers and models needs of the program, as a Protocol; `connecting.py` is the real one.

Nothing here is asked before it is needed, and a key goes straight to where keys are kept: the window forgets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Provider:
    """A service or a server. `ready`: it can be asked for models; `key`: who keeps its key, in words, or empty."""

    name: str
    title: str
    address: str
    kind: str = ""
    needs_key: bool = False
    key: str = ""
    local: bool = False
    ready: bool = False
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be chosen. `name` is `provider/model`; prices in dollars per million tokens, 0: unknown."""

    name: str
    window: int = 0
    price_input: float = 0.0
    price_output: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tested:
    """What a provider answered when its key was tried."""

    models: tuple[Model, ...]
    best: str = ""
    said: str = ""


class Setup(Protocol):
    """Every coroutine may raise a HelixError: BadKey, Unreachable, NoKeyring, ..."""

    def well_known(self) -> Sequence[Provider]:
        """Services that need nothing but a key."""
        ...

    async def providers(self) -> Sequence[Provider]:
        """Those that are set up."""
        ...

    async def local(self) -> Sequence[tuple[Provider, Sequence[Model]]]:
        """Model servers on this machine, found by themselves."""
        ...

    async def test(self, provider: Provider, key: str) -> Tested:
        """Ask for the models with this key (empty: the one that is kept). Nothing is kept."""
        ...

    async def add(self, provider: Provider, key: str, keep: str = "keyring") -> None:
        """Set it up and ask for its models; the key, if there is one, goes to "keyring", "session" or "file"."""
        ...

    async def remove(self, name: str) -> None:
        """Forget it and its key."""
        ...

    async def models(self, provider: str) -> Sequence[Model]:
        """What a provider offers."""
        ...

    async def known(self) -> Sequence[Model]:
        """The models of all providers that were asked once, without asking again; the built-in one is last."""
        ...
