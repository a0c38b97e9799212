"""Defines what an address of the gateway gives access to.

Each address has a token in its path. Requests without it are refused, as are those of web pages.
Each agent that runs has its own registration, so that none reaches another's workspace or provider.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.providers.http_transport import is_loopback

log = logging.getLogger(__name__)

CONVERSATIONS_FILE = "gateway-conversations.json"
TOKEN_HEADER = "x-helix-token"  # noqa: S105 -- a name
# Codex sends its usual provider no header of our own, but this one from its environment.
PROJECT_HEADER = "openai-project"
_TOKEN_IN_PROJECT = "helix-token:"  # noqa: S105 -- what stands before a token
NOT_ADMITTED = (
    "The address has no valid token, or it is the window's and the window is closed. Nothing was sent on. If Helix Desktop is closed, "
    "open it; otherwise use the address that helix-desktop gateway or the window shows. If an agent's settings have an older one, "
    "disconnect that agent and connect it again."
)


@dataclass(frozen=True, slots=True, eq=False)
class GatewayRegistration:
    """`upstream`: where all requests go; empty: to each protocol's provider, or as
    `upstreams` says. `folds_plans`: fold even for subscriptions. `key`: a stored key
    for requests without one, only for `key_host`. `folder`: where the agent works,
    which selects the workspace unless `workspace` names it. `chooses_workspace`: a
    path may name another workspace; only for addresses that a person was shown.
    `parent`: the conversation that its own are below. `headers`: names of headers
    that the agent's settings add to its requests. `proxies`: the agent's
    environment settings for proxies and certificates; None: this process's. `since`:
    figures count from then. `sees_all`: its status covers all agents, for the window.
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
    chooses_workspace: bool = False
    parent: str = ""
    headers: tuple[str, ...] = ()
    proxies: Mapping[str, str] | None = None
    since: float = 0.0
    sees_all: bool = False

    @property
    def run_name(self) -> str:
        """Return a name for all that comes in by this registration, without its token."""
        return f"run {_digest_of_token(self.token).hex()[:16]}"

    def as_json_without_key(self) -> dict[str, Any]:
        """Return the fields for another process of this user, without the key.

        Those that have their usual value are left out, since a process of an older version
        may not know them.
        """
        usual_fields = asdict(GatewayRegistration(""))
        fields: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if name != "key" and value != usual_fields[name]:
                fields[name] = value
        return fields


def new_token() -> str:
    """Return an unguessable token that can be part of a path."""
    return secrets.token_urlsafe(24)


class GatewayRegistrations:
    """The registrations of all addresses that the gateway answers at."""

    def __init__(self, *registrations: GatewayRegistration) -> None:
        self._by_digest_of_token: dict[bytes, GatewayRegistration] = {}
        self.replace_all(registrations)

    def replace_all(self, registrations: Iterable[GatewayRegistration]) -> None:
        by_digest: dict[bytes, GatewayRegistration] = {}
        for registration in registrations:
            if registration.token:
                by_digest[_digest_of_token(registration.token)] = registration
        self._by_digest_of_token = by_digest

    def find_by_token(self, token: str) -> GatewayRegistration | None:
        """Find a registration by its token's digest, so that timing reveals nothing."""
        if not token:
            return None
        return self._by_digest_of_token.get(_digest_of_token(token))

    def find_or_refuse(
        self, headers: Mapping[str, str], token_in_path: str
    ) -> GatewayRegistration | str:
        """Return a request's registration, or why it is refused."""
        # The client's user is not checked, since the kernel names root for a closed connection.
        if not is_loopback(f"http://{headers.get('host', '')}"):
            return (
                "The address of this gateway is 127.0.0.1. A request for another host is refused."
            )
        # Browsers send these with what a page asks for. What a person opens has neither.
        site_of_page = headers.get("sec-fetch-site", "none")
        if "origin" in headers or site_of_page not in ("none", "same-origin"):
            return "A web page asked. Pages in a browser are refused."
        token = token_in_path or headers.get(TOKEN_HEADER, "")
        if not token:
            token = split_project(headers.get(PROJECT_HEADER, "")).token
        return self.find_by_token(token) or NOT_ADMITTED


@dataclass(frozen=True, slots=True)
class ProjectAndToken:
    """What a program sent as the project that pays. `project`: the user's own."""

    project: str
    token: str = field(default="", repr=False)


def add_token_to_project(project: str, token: str) -> str:
    """Return the text to send as the project, with the gateway's token before it."""
    return f"{_TOKEN_IN_PROJECT}{token} {project}".rstrip()


def split_project(text: str) -> ProjectAndToken:
    """Return the user's project and the gateway's token in it, if there is one."""
    if not text.startswith(_TOKEN_IN_PROJECT):
        return ProjectAndToken(text)
    token, _, project = text.removeprefix(_TOKEN_IN_PROJECT).partition(" ")
    return ProjectAndToken(project, token)


def headers_without_token(
    headers: Iterable[tuple[bytes, bytes]],
) -> Iterator[tuple[bytes, bytes]]:
    """Yield a request's headers, with the user's own project where the token stood before it."""
    for name, value in headers:
        if name.decode("latin-1").lower() != PROJECT_HEADER:
            yield name, value
            continue
        project = split_project(value.decode("latin-1")).project
        if project:
            yield name, project.encode("latin-1")


class RegisteredConversations:
    """The conversations of each registration, and their workspaces. A file keeps them
    in case the gateway is killed.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        # By the hash of a token: the workspace of each of its conversations.
        self._workspaces_by_token: dict[str, dict[str, str]] = {}
        if file is None:
            return
        with suppress(OSError, ValueError, TypeError):  # A later gateway only lacks figures.
            stored = dict(json.loads(file.read_bytes()))
            for token_hash, workspaces in stored.items():
                if isinstance(workspaces, dict):
                    self._workspaces_by_token[token_hash] = workspaces

    def remember_conversation_of_token(self, token: str, conversation: str, workspace: str) -> None:
        """Remember that requests with this token are recorded there."""
        token_hash = _digest_of_token(token).hex()
        workspaces = self._workspaces_by_token.setdefault(token_hash, {})
        if workspaces.get(conversation) == workspace:
            return
        workspaces[conversation] = workspace
        if self._file is None:
            return

        # Written beside the file and renamed, so that a killed gateway leaves no half of it.
        new_file = self._file.with_suffix(".new")
        try:
            new_file.write_text(json.dumps(self._workspaces_by_token), "utf-8")
            new_file.replace(self._file)
        except OSError as error:
            # A later gateway will lack figures, but the agent is still served.
            log.warning("what a registration's conversations are was not kept: %s", error.strerror)

    def find_conversations(self, token: str) -> Mapping[str, str]:
        """Return the conversations of a registration, each with its workspace."""
        token_hash = _digest_of_token(token).hex()
        return self._workspaces_by_token.get(token_hash, {})


def _digest_of_token(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
