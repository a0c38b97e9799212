"""Writes the gateway's address into an agent's settings file, and restores the file."""

import base64
import binascii
import difflib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import USUAL_PROVIDERS, AgentSurroundings, AgentUpstream
from helix_desktop.gateway.gateway_socket import agent_address
from helix_desktop.gateway.known_agent import (
    NO_PROXY,
    KnownAgent,
    NoProxyInSettings,
    excepts_this_computer,
    find_proxy_variable,
)
from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.gateway.own_headers import find_own_header_names
from helix_desktop.gateway.registration import GatewayRegistration, new_token
from helix_desktop.tools.workspace_roots import RootPath, WorkspaceRoots, delete_file, replace_file

FOLDER = "connected"
LARGEST_SETTINGS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class AgentSettingsChange:
    """`before` is None if the file does not exist. `created`: folders created for it."""

    agent: str
    file: Path
    before: bytes | None
    after: bytes | None
    registration: GatewayRegistration | None = None
    port: int = 0
    created: tuple[Path, ...] = ()

    def as_unified_diff(self) -> str:
        difference = difflib.unified_diff(
            _lines_of_content(self.before),
            _lines_of_content(self.after),
            fromfile=f"{self.file} (now)",
            tofile=f"{self.file} (then)",
        )
        return "".join(difference)


def _lines_of_content(content: bytes | None) -> list[str]:
    if content is None:
        return []
    return content.decode("utf-8", "replace").splitlines(keepends=True)


def plan_address_install(
    agent: KnownAgent, port: int, home: Path, environ: Mapping[str, str] = os.environ
) -> AgentSettingsChange:
    """Return what connecting an agent would change in its settings file, without changing it.

    The gateway's address gets a token of its own. `port`: where the program in the background
    listens. Raises ActionRefused if an address of the user's would be lost.
    """
    surroundings = AgentSurroundings(environ, home, home)
    upstreams = agent.find_upstreams(surroundings)
    _check_no_address_is_overwritten(agent, upstreams)
    agent_environ = agent.read_environment(surroundings)
    _check_no_proxy_gets_requests(agent, agent_environ)

    usual_upstream = upstreams[0]
    registration = GatewayRegistration(
        token=new_token(),
        upstream=usual_upstream.address,
        agent=agent.name,
        headers=find_own_header_names(agent, surroundings),
    )
    file = agent.file(home, agent_environ)
    before = _read_settings_or_none(file)
    text_before = (before or b"").decode("utf-8")
    url = agent_address(port, registration.token)
    after = agent.change(text_before, url, agent_environ).encode()
    return AgentSettingsChange(agent.name, file, before, after, registration, port)


def _check_no_address_is_overwritten(agent: KnownAgent, upstreams: Sequence[AgentUpstream]) -> None:
    """Raise if the agent's settings have an address of the user's where the gateway's would be."""
    usual_upstream = upstreams[0]
    for upstream in upstreams:
        is_replaced = upstream is usual_upstream or upstream.provider in USUAL_PROVIDERS
        if upstream.provider and is_replaced:
            raise ActionRefused(
                f"{agent.title} already has another address for {upstream.provider} ({upstream.source}). Connecting the agent would overwrite the address that it uses now.",
                remedy="Start the agent with `wrap` each time instead. `wrap` keeps the address that the agent uses now.",
            )


def _check_no_proxy_gets_requests(agent: KnownAgent, environ: Mapping[str, str]) -> None:
    """Raise if the agent would send its key and the conversation to an HTTP proxy instead of to
    the gateway: a proxy is set, and NO_PROXY does not name this computer.
    """
    if agent.no_proxy is NoProxyInSettings.ALWAYS:
        return  # Its settings get NO_PROXY together with the address.
    no_proxy_values = [environ[name] for name in NO_PROXY if environ.get(name)]
    if not no_proxy_values and agent.no_proxy is NoProxyInSettings.IF_UNSET:
        return  # Where NO_PROXY is not set, it reads it from its own file, which gets it, too.
    if no_proxy_values and all(map(excepts_this_computer, no_proxy_values)):
        return

    proxy_name = find_proxy_variable(environ)
    if proxy_name:
        raise ActionRefused(
            f"{agent.title} would send its key and the conversation through the HTTP proxy in {proxy_name}. Nothing was changed.",
            remedy="Add 127.0.0.1 to NO_PROXY in your shell. Or start the agent with `wrap` each time.",
        )


def check_not_connected(agent: KnownAgent, config: Path) -> None:
    if is_agent_connected(agent, config):
        raise ActionRefused(
            f"{agent.title} is already connected.",
            remedy=f"Disconnect the agent first by running: helix-desktop wrap --uninstall {agent.name}.",
        )


def install_address(change: AgentSettingsChange, config: Path) -> None:
    """Write the planned settings of an agent, after a note of the old content and of what was
    installed, by which `remove_address` restores the file.
    """
    if change.before == change.after:
        return
    check_not_connected(KNOWN_AGENTS[change.agent], config)
    registration = change.registration or GatewayRegistration("")
    encoded_before: str | None = None  # The file did not exist.
    if change.before is not None:
        encoded_before = base64.b64encode(change.before).decode()
    content_after = change.after or b""
    encoded_after = base64.b64encode(content_after).decode()
    folders_to_create = [str(folder) for folder in change.file.parents if not folder.exists()]
    install_note = {
        "file": str(change.file),
        "before": encoded_before,
        "after": encoded_after,
        "token": registration.token,
        "port": change.port,
        "upstream": registration.upstream,
        "headers": registration.headers,
        "created": folders_to_create,
    }

    # The note is first, so that the old content is never only in memory.
    note_file = config / FOLDER / f"{change.agent}.json"
    atomic_files.write_file_atomically(note_file, json.dumps(install_note), private=True)
    try:
        _write_settings_if_unchanged(change)
    except HelixError:
        _delete_install_note(note_file)
        raise


def plan_address_removal(agent: KnownAgent, config: Path) -> AgentSettingsChange:
    """Return what disconnecting an agent would change in its settings file, by the note that was
    made when it was connected. Raises ActionRefused if the file was changed since.
    """
    note_file = config / FOLDER / f"{agent.name}.json"
    try:
        note_content = atomic_files.read_small_file(note_file, LARGEST_SETTINGS_BYTES)
        install_note = json.loads(note_content)
        file = Path(install_note["file"])
        installed_content = base64.b64decode(install_note["after"])
        original_content: bytes | None = None
        if install_note["before"] is not None:
            original_content = base64.b64decode(install_note["before"])
        # Notes of earlier versions do not name the folders.
        created_names = install_note.get("created", [file.parent])
        created_folders = tuple(Path(name) for name in created_names)
    except FileNotFoundError:
        raise NotFound(f"{agent.title} was not connected by Helix Desktop.") from None
    except (
        InvalidInput,
        OSError,
        ValueError,
        RecursionError,
        KeyError,
        TypeError,
        binascii.Error,
    ) as error:
        raise StoreFailed(
            f"{note_file} could not be read, so the previous settings are unknown."
        ) from error

    current_content = _read_settings_or_none(file)
    if current_content != installed_content:
        raise ActionRefused(
            f"The settings file {file} was changed after the agent was connected. Nothing was written.",
            remedy=f"Remove the gateway's address from the settings file yourself, and delete {note_file}.",
        )
    return AgentSettingsChange(
        agent=agent.name,
        file=file,
        before=current_content,
        after=original_content,
        created=created_folders,
    )


def remove_address(change: AgentSettingsChange, config: Path) -> None:
    """Give the settings file its old content back, or delete it with its folders if there was
    none.
    """
    _write_settings_if_unchanged(change)
    if change.after is None:
        with suppress(OSError):  # The folder contains other files, so it stays.
            for folder in change.created:
                folder.rmdir()
    _delete_install_note(config / FOLDER / f"{change.agent}.json")


def _write_settings_if_unchanged(change: AgentSettingsChange) -> None:
    """Write to a settings file, or to the target of a link, if it still has the content that the
    change was planned for. Somebody may have saved it meanwhile.
    """
    file = Path(os.path.realpath(change.file))
    atomic_files.create_folders(file.parent)
    roots = WorkspaceRoots.from_folders([file.parent])
    path = RootPath(file.parent, file.name)
    expected_digest: Digest | None = None
    if change.before is not None:
        expected_digest = Digest.of_content(change.before)
    try:
        if change.after is not None:
            replace_file(roots, path, change.after, expected=expected_digest)
        elif expected_digest is not None:
            delete_file(roots, path, expected=expected_digest)
    except ActionRefused as error:
        raise ActionRefused(error.what, remedy="You can try again.") from error


def _delete_install_note(note_file: Path) -> None:
    """Delete the note, and its folder if no other agent is connected."""
    with suppress(OSError):
        note_file.unlink()
        note_file.parent.rmdir()


def remove_all_addresses(config: Path) -> tuple[list[str], list[str]]:
    """Remove all addresses. Return the agents without one, and why others still have one."""
    disconnected_agents: list[str] = []
    complaints: list[str] = []
    for note_file in sorted((config / FOLDER).glob("*.json")):
        agent = KNOWN_AGENTS.get(note_file.stem)
        if agent is None:  # This version does not know it, so its note stays.
            continue
        try:
            change = plan_address_removal(agent, config)
            remove_address(change, config)
            disconnected_agents.append(agent.title)
        except HelixError as error:
            complaints.append(str(error))
    return disconnected_agents, complaints


def is_agent_connected(agent: KnownAgent, config: Path) -> bool:
    return (config / FOLDER / f"{agent.name}.json").exists()


def read_written_registrations(config: Path) -> dict[GatewayRegistration, int]:
    """Return the registrations and ports of addresses in agents' files. Old ones have no token."""
    ports: dict[GatewayRegistration, int] = {}
    note_files = (config / FOLDER).glob("*.json")
    for note_file in sorted(note_files):
        # An agent whose note cannot be read is refused until it is connected again.
        with suppress(InvalidInput, OSError, ValueError, TypeError, KeyError):
            content = atomic_files.read_small_file(note_file, LARGEST_SETTINGS_BYTES)
            install_note = json.loads(content)
            if not install_note.get("token"):
                continue
            upstream = install_note.get("upstream", "")
            header_names = tuple(install_note.get("headers", ()))
            registration = GatewayRegistration(
                token=install_note["token"],
                upstream=upstream,
                agent=note_file.stem,
                headers=header_names,
            )
            ports[registration] = int(install_note["port"])
    return ports


def resolve_own_addresses(upstreams: Sequence[AgentUpstream], config: Path) -> list[AgentUpstream]:
    """Replace this gateway's address in the agent's settings by where that address leads."""
    registrations = list(read_written_registrations(config))
    resolved: list[AgentUpstream] = []
    for position, upstream in enumerate(upstreams):
        registration = _registration_in_address(upstream.address, registrations)
        if registration is None:
            resolved.append(upstream)
        elif position == 0:  # The usual providers, which always have an upstream.
            usual_upstream = replace(
                upstream,
                provider="",
                address=registration.upstream,
                source="its configuration from before wrap --install",
            )
            resolved.append(usual_upstream)
    return resolved


def _registration_in_address(
    address: str, registrations: Sequence[GatewayRegistration]
) -> GatewayRegistration | None:
    """Return the registration whose token an address has in its path."""
    for registration in registrations:
        if f"/t/{registration.token}" in address:
            return registration
    return None


def _read_settings_or_none(file: Path) -> bytes | None:
    """Return the content of a settings file, or None if there is no such file."""
    try:
        return atomic_files.read_small_file(file, LARGEST_SETTINGS_BYTES)
    except FileNotFoundError:
        return None
    except InvalidInput as error:
        raise ActionRefused(f"{error.what} Nothing was changed.") from error
    except OSError as error:
        raise StoreFailed(
            f"{file} cannot be read: {error.strerror}. Nothing was changed."
        ) from error
