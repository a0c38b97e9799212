"""Defines what one address of the gateway gives access to.

Each address has a token in its path, and a request without one is refused. Two agents that run at
once have two registrations, so that neither reaches the other's workspace or provider.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from helix_desktop.fast_dataclass import dataclass

log = logging.getLogger(__name__)

CONVERSATIONS_FILE = "gateway-conversations.json"


@dataclass(frozen=True, slots=True, eq=False)
class GatewayRegistration:
    """`upstream`: where everything goes; empty: to each protocol's own provider, or to what `upstreams` names for it.
    `folds_plans`: also of agents signed in with a subscription. `key`: of the keyring, for requests that come without one
    and go to `key_host`, and to nowhere else. `folder`: where the agent works; its workspace is used unless `workspace` names one. `proxies`: the environment's
    settings for the way to the provider, certificates among them, as the agent has them; None: as this process has them. `since`:
    figures count from then on. `sees_all`: its status tells about all agents; for the window.
    """

    token: str = field(repr=False)
    upstream: str = ""
    upstreams: Mapping[str, str] = field(default_factory=dict)
    folds: bool = True
    folds_plans: bool = False
    key: str = field(default="", repr=False)
    key_host: str = ""
    agent: str = ""
    folder: str = ""
    workspace: str = ""
    proxies: Mapping[str, str] | None = None
    since: float = 0.0
    sees_all: bool = False

    def as_json_without_key(self) -> dict[str, Any]:
        """Returns the fields for another process of this user, without the key."""
        return {name: value for name, value in asdict(self).items() if name != "key"}


def new_token() -> str:
    """A token nobody guesses, as it may stand in a path."""
    return secrets.token_urlsafe(24)


class GatewayRegistrations:
    def __init__(self, *first: GatewayRegistration) -> None:
        self._known: dict[bytes, GatewayRegistration] = {}
        self.replace_all(first)

    def replace_all(self, registrations: Iterable[GatewayRegistration]) -> None:
        """From now on these alone."""
        self._known = {_digest_of_token(one.token): one for one in registrations if one.token}

    def find_by_token(self, token: str) -> GatewayRegistration | None:
        """By a digest: how long a comparison takes tells nothing about a token."""
        return self._known.get(_digest_of_token(token)) if token else None


class RegisteredConversations:
    """Which conversations each registration has, and their workspaces. A file keeps them for the gateway that follows a killed one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: dict[str, dict[str, str]] = {}
        with suppress(OSError, ValueError, TypeError):
            known = json.loads(file.read_bytes()) if file is not None else {}
            self._known = {token: own for token, own in dict(known).items() if isinstance(own, dict)}

    def remember_conversation_of_token(self, token: str, conversation: str, workspace: str) -> None:
        own = self._known.setdefault(_digest_of_token(token).hex(), {})
        if own.get(conversation) == workspace:
            return
        own[conversation] = workspace
        if self._file is None:
            return
        fresh = self._file.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(self._known), "utf-8")
            fresh.replace(self._file)
        except OSError as error:  # A later gateway lacks some figures; the agent gets its answer.
            log.warning("what a registration's conversations are was not kept: %s", error.strerror)

    def find_conversations(self, token: str) -> Mapping[str, str]:
        return self._known.get(_digest_of_token(token).hex(), {})


def _digest_of_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
