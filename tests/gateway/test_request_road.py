"""How far a reader is sent who follows one request from its first byte to the provider.

A stay: a function calls into another room (a folder of the package, or a module beside the
folders). It counts once, however often a loop repeats it or however many functions of that
room are called. A climb: a stay on a higher floor. A return: a stay in a room where one was
before.
"""

from __future__ import annotations

import dis
import functools
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import pytest

import helix_desktop
from helix_desktop.gateway.request_forwarding import RequestForwarder
from helix_desktop.providers.http_transport import send_for_stream
from tests.gateway.running import TOOL, WIRES, Agent, open_here
from tests.gateway.test_gateway_app import Running, running
from tests.peers.agent_provider import Asked, Block, Calls

PACKAGE = Path(helix_desktop.__file__).parent.as_posix() + "/"
SENDS = RequestForwarder.send_to_provider.__code__
HANDS_OVER = send_for_stream.__code__
# Tasks have a copy of it, so that what others do meanwhile is told apart.
is_followed: ContextVar[bool] = ContextVar("is_followed", default=False)


@dataclass(frozen=True)
class Stay:
    caller: str
    room: str
    climbs: bool


@dataclass
class Road:
    stays: dict[tuple[str, str], Stay] = field(default_factory=dict)
    has_ended: bool = False  # It is handed to the line. What is recorded behind is another road.

    @property
    def climbs(self) -> list[Stay]:
        return [stay for stay in self.stays.values() if stay.climbs]

    @property
    def returns(self) -> int:
        return len(self.stays) - len({stay.room for stay in self.stays.values()})

    def note_call(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or self.has_ended or not is_followed.get():
            return
        code = frame.f_code
        before = frame.f_back
        if before is not None and before.f_code is SENDS and code is HANDS_OVER:
            self.has_ended = True
            return
        room = room_of_code(code)
        if not room or frame.f_lasti > first_step(code):  # A coroutine that goes on.
            return
        caller = frame.f_back
        while caller is not None and not room_of_code(caller.f_code):
            caller = caller.f_back
        if caller is None:
            return
        caller_room = room_of_code(caller.f_code)
        if room != caller_room:
            # A comprehension is read as a part of its function.
            caller_name = caller.f_code.co_qualname.partition(".<locals>.<")[0]
            climbs = floor_of_room(room) < floor_of_room(caller_room)
            self.stays.setdefault((caller_name, room), Stay(caller_name, room, climbs))


@functools.cache
def room_of_code(code: CodeType) -> str:
    """Return the room that code belongs to; empty if it is none of ours."""
    if not code.co_filename.startswith(PACKAGE):
        return ""
    path = code.co_filename.removeprefix(PACKAGE)
    folder, _, name = path.rpartition("/")
    return folder or name.removesuffix(".py")


@functools.cache
def first_step(code: CodeType) -> int:
    """Return where a function stands when it is called and not gone on with."""
    for step in dis.get_instructions(code):
        if step.opname == "RESUME":
            return step.offset
    return 0


@functools.cache
def floors() -> Sequence[str]:
    """Return the floors of the package, the highest first, as the linter of imports knows them."""
    config = tomllib.loads((Path(PACKAGE).parent / "pyproject.toml").read_text("utf-8"))
    for contract in config["tool"]["importlinter"]["contracts"]:
        if contract.get("containers") == ["helix_desktop"]:
            return list(contract["layers"])
    raise AssertionError("the package has no floors")


def floor_of_room(room: str) -> int:
    name = room.partition("/")[0]
    for number, rooms in enumerate(floors()):
        if name in rooms.split(" | "):
            return number
    raise AssertionError(f"{room} is on no floor")


@contextmanager
def following() -> Iterator[Road]:
    road = Road()
    before = sys.getprofile()
    token = is_followed.set(True)
    sys.setprofile(road.note_call)
    try:
        yield road
    finally:
        sys.setprofile(before)
        is_followed.reset(token)


async def ask_once(here: Running, agent: Agent) -> None:
    answer = await here.client.post(
        agent.url + agent.path,
        json=agent.body(),
        headers={"x-api-key": "k", "x-claude-code-session-id": "s"},
    )
    assert answer.status_code == 200
    reply = WIRES[agent.protocol].parse_reply(answer.json())
    agent.units.extend(agent._copied(unit) for unit in reply.message.units)
    if here.app.memory.list_open_conversations():
        room = await open_here(here.app.memory)
        await room._tasks.wait_for_all_tasks()
    for recording in tuple(here.app.memory.recording_behind.values()):
        await recording.wait_for_all_tasks()


@pytest.mark.parametrize(
    ("protocol", "most_stays", "most_climbs", "most_returns"),
    [
        ("anthropic", 24, 1, 14),
        ("openai-chat", 26, 1, 16),
        ("openai-responses", 29, 2, 18),
        ("gemini", 27, 1, 17),
    ],
)
async def test_who_follows_a_usual_request_is_sent_to_few_other_rooms(
    tmp_path: Path, protocol: str, most_stays: int, most_climbs: int, most_returns: int
) -> None:
    number = 0

    def script(_: Asked) -> Sequence[Block]:
        nonlocal number
        number += 1
        return [Calls(TOOL, {"command": "ls"}, f"call_{number}")]

    async with running(tmp_path, script) as here:
        # A provider that never read from its cache would be taken for one that has gone cold.
        here.provider.usage = lambda _: {"input": 100, "read": 90, "write": 0}
        agent = Agent(protocol, here.url, streams=False)
        agent.say("do the work")
        for _ in range(3):
            await ask_once(here, agent)
            agent.results([(f"call_{number}", TOOL, "a line of it\n" * 5)])
        with following() as road:
            await ask_once(here, agent)
    rooms = {stay.room for stay in road.stays.values()}
    assert {"engine", "concurrency"} <= rooms, "it was followed"
    assert len(road.stays) <= most_stays, road.stays
    assert len(road.climbs) <= most_climbs, road.climbs
    assert road.returns <= most_returns, road.stays
