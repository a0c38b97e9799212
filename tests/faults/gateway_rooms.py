"""Agents of many registrations, each of which tries to reach the rooms of the others: their
workspaces, names, conversations, keys and providers.

python -m tests.faults.gateway_rooms [--registrations 200] [--tries 600] [--seed 1]

An intruder knows its own token, and all of the others but their tokens: the names and identities of
workspaces, agents and sessions, and tokens that are nearly right. It writes them into the path (in
any order and spelling, with dots and slashes, quoted once or twice), the query and the headers.
What it says must reach no provider but its own, below the address that its registration names, with
no key but its own, and no workspace but its own.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import random
import re
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from helix_desktop import program_folders
from helix_desktop.gateway.registration import GatewayRegistration, new_token
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.faults.store_report import report
from tests.gateway.running import PROTOCOLS, Agent, running
from tests.gateway.test_registration_limits import texts_of
from tests.peers.agent_provider import Asked, Provider, Says

AGENTS = ("claude", "codex", "opencode", "gemini", "pi", "")
MOST_WORKSPACES = 8
_CONVERSATION = re.compile(rb'"conversation":"([^"]*)"')


@dataclass(frozen=True)
class Room:
    """What one registration opens. `identity`: of its workspace."""

    registration: GatewayRegistration
    number: int
    workspace: str
    identity: str

    @property
    def base(self) -> str:
        return f"/base{self.number}"


def make_rooms(home: Path, provider: Provider, count: int) -> list[Room]:
    known = AllWorkspaces(program_folders.find_program_folders(home).workspaces_folder)
    identities: list[str] = []
    for number in range(min(count, MOST_WORKSPACES)):
        identities.append(known.create_stored_workspace(f"Room{number}").id)
    rooms: list[Room] = []
    for number in range(count):
        place = number % len(identities)
        registration = GatewayRegistration(
            new_token(),
            f"{provider.url}/base{number}",
            key=f"stored-key-{number}-",
            key_host=urlsplit(provider.url).netloc,
            agent=AGENTS[number % len(AGENTS)],
            workspace=f"Room{place}",
        )
        rooms.append(Room(registration, number, f"Room{place}", identities[place]))
    return rooms


def spelled(chance: random.Random, path: str) -> str:
    """The same path, or one that could be taken for it, as an enemy may write it."""
    every_letter_quoted = "".join(f"%{ord(letter):02x}" for letter in path)
    return chance.choice(
        [
            path,
            quote(path, safe=""),
            quote(quote(path, safe="/"), safe="/"),
            path.replace("/", "//"),
            path.replace("/", "/./"),
            path.upper(),
            every_letter_quoted.replace("%2f", "/"),
            path.replace("/", "%2F"),
            path.replace("/", "\\"),
        ]
    )


def nearly(chance: random.Random, token: str) -> str:
    """A token that is not the right one, and does not hold it."""
    ways = (token[:-1], token.swapcase(), token[::-1], token[:-1] + "%00", f"{token[:-1]}A")
    return chance.choice([way for way in ways if way != token])


def target_of(chance: random.Random, own: Room, other: Room, ending: str) -> str:
    """The target of a request with the intruder's own token, or with none that is right."""
    token = own.registration.token
    wrong = nearly(chance, other.registration.token)
    room = chance.choice(
        [
            f"/w/{other.workspace}",
            f"/w/{other.identity}",
            f"/a/{other.registration.agent or 'pi'}",
            f"/t/{wrong}",
            f"/.{other.base}",
            f"/..{other.base}",
            f"/../..{other.base}",
            f"/%2e%2e{other.base}",
            f"/..%2f{other.base[1:]}",
            f"/v1/..;/../..{other.base}",
            f"/x/%2e%2e/%2E%2E{other.base}",
            f"/@{other.base}",
        ]
    )
    if chance.random() < 0.5:
        room = spelled(chance, room)
    own_part = chance.choice([f"/t/{token}"] * 6 + [f"/t/{spelled(chance, token)}", f"//t/{token}", f"/t//{token}", f"/T/{token}", f"/t/{wrong}"])  # fmt: skip
    parts = [own_part, room]
    if chance.random() < 0.3:
        parts.reverse()
    query = chance.choice(
        ["", "", f"token={wrong}", f"w={other.workspace}", f"t={wrong}&workspace={other.identity}"]
    )
    target = "".join(parts) + ending
    if query:
        target += ("&" if "?" in ending else "?") + query
    return target


def headers_of(chance: random.Random, own: Room, other: Room) -> list[str]:
    wrong = nearly(chance, other.registration.token)
    session = f"session-{other.number}"
    claims = [
        f"X-Helix-Token: {wrong}",
        f"x-helix-token: {own.registration.token}",
        f"X-HELIX-Agent: {other.registration.agent}",
        f"x-helix-workspace: {other.workspace}",
        f"X-Helix-Parent: {session}",
        f"x-claude-code-session-id: {session}",
        f"session_id: {session}",
        f"Referer: http://127.0.0.1/t/{wrong}/",
        f"Authorization: Bearer {wrong}",
        f"Cookie: token={wrong}",
        f"X-Original-URL: /t/{wrong}/v1/messages",
        f"X-Forwarded-Prefix: /t/{wrong}",
    ]
    return chance.sample(claims, chance.randrange(4))


def request_of(chance: random.Random, own: Room, other: Room, mark: str) -> bytes:
    agent = Agent(chance.choice(PROTOCOLS), "", streams=chance.random() < 0.3)
    agent.say(mark)
    body = json.dumps(agent.body()).encode()
    lines = [
        f"POST {target_of(chance, own, other, agent.path)} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    lines += headers_of(chance, own, other)
    return "\r\n".join([*lines, "", ""]).encode() + body


def send(port: int, content: bytes) -> bytes:
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as asking:
        asking.sendall(content)
        while piece := asking.recv(65_536):
            answer += piece
    return answer


def status_request(chance: random.Random, own: Room, other: Room) -> bytes:
    target = target_of(chance, own, other, "/.helix/status")
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()


def as_a_server_reads(path: str) -> str:
    """A path as the most lenient server would read it: unquoted and without dots."""
    bare = path.partition("?")[0]
    for _ in range(3):
        bare = unquote(bare)
    return posixpath.normpath(bare.replace("\\", "/").replace(";", "/").replace("//", "/"))


def judge(found: Counter[str], rooms: Sequence[Room], asked: Asked) -> None:
    """Whether a request that arrived at the provider is below its registration's own address."""
    text = asked.raw.decode("utf-8", "replace")
    number = int(text.partition("mark-")[2].partition("-")[0])
    own = rooms[number]
    read = as_a_server_reads(asked.path)
    if not f"{read}/".startswith(f"{own.base}/"):
        found[f"LOST {asked.path} of {own.base} reached {read[:60]}"] += 1
    everything = asked.path + "".join(f"{name}: {value}\n" for name, value in asked.headers.items())
    for room in rooms:
        if room.registration.token in everything:
            found[f"LOST a token was sent on in {everything[:200]!r}"] += 1
        if room is not own and f"stored-key-{room.number}-" in everything:
            found["LOST another registration's key was sent"] += 1
    found["reached its own provider"] += 1


def try_rooms(home: Path, registrations: int, tries: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    with Provider(lambda _: [Says("fine")], strict=False) as provider:
        rooms = make_rooms(home, provider, registrations)
        with running(home, provider.url, others=[room.registration for room in rooms]) as url:
            for room in rooms[:MOST_WORKSPACES]:
                base = url.rpartition("/t/")[0]
                address = f"{base}/t/{room.registration.token}"
                agent = Agent("anthropic", address, session=f"session-{room.number}")
                agent.say(f"mark-{room.number}-own")
                agent.ask()
            attack(chance, rooms, urlsplit(url).port or 0, tries, found)
        for asked in provider.asked:
            if asked.raw:
                judge(found, rooms, asked)
    for workspace in sorted({room.workspace for room in rooms}):
        for text in texts_of(home, workspace).split():
            number = int(text.partition("mark-")[2].partition("-")[0])
            if rooms[number].workspace != workspace:
                found[f"LOST {text} stands in {workspace}"] += 1
            found["recorded"] += 1


def attack(
    chance: random.Random, rooms: Sequence[Room], port: int, tries: int, found: Counter[str]
) -> None:
    tellers: dict[bytes, Room] = {}  # Whose status told of a conversation.
    for number in range(tries):
        own, other = chance.sample(rooms, 2)
        if number % 5 < 4:
            answer = send(port, request_of(chance, own, other, f"mark-{own.number}-try{number}"))
            found[f"answered {answer[9:12].decode('latin-1') or 'nothing'}"] += 1
            continue
        answer = send(port, status_request(chance, own, other))
        for conversation in _CONVERSATION.findall(answer):
            if tellers.setdefault(conversation, own) is not own:
                found["LOST a status told of another's conversation"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--registrations", type=int, default=200)
    parser.add_argument("--tries", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    def trials(found: Counter[str]) -> None:
        with tempfile.TemporaryDirectory() as home:
            try_rooms(Path(home), arguments.registrations, arguments.tries, arguments.seed, found)

    return report("gateway rooms", arguments.seed, trials)


if __name__ == "__main__":
    sys.exit(main())
