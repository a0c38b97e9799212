"""Whatever a model writes as arguments, it gets an outcome: what a tool raised would
end the turn as our mistake.
"""

from __future__ import annotations

import json
import random

import pytest

from tests.tools.world import World

PATHS = (
    *("a.py", "d/e", "bin", "wide", "d", ".") * 3,
    "new/x",
    "a.py:3",
    "../x",
    "~nobody/x",
    "d/\ud83d",
)
VALUES: tuple[object, ...] = (
    *(
        "",
        " ",
        "0",
        "-1",
        "--5",
        "1e9",
        "true",
        "null",
        "[]",
        "{}",
        '{"type":1}',
        "\n",
        "\0",
        "a\0b",
        "/",
        "//",
        "~",
    ),
    *(
        "*",
        "**",
        "[",
        "(",
        "{a,b",
        "\\",
        "é",
        "💥",
        "x" * 5_000,
        "a\nb",
        "\ufeff",
        "\u202e",
        "\udc00",
        "bg1",
        "0" * 64,
    ),
    *(-1, 0, 1, 10**30, 1.5, 1e308, True, False, None, [], ["a"], [1], {}, {"a": 1}, [[]]),
    *([{"text": "a", "state": "done"}], [{"text": None}], [{"text": ""}]),
)
COMMANDS = ("true", "cat a.py", "exit 3", "echo hi &", "cd d")
ROUNDS = 150  # for each tool


@pytest.mark.parametrize(
    "tool", ["read_file", "write_file", "edit_file", "list_files", "glob_files", "search_files"]
)
async def test_no_arguments_of_a_files_tool_end_a_turn(here: World, tool: str) -> None:
    await tried(here, tool, ROUNDS)


async def test_no_arguments_of_another_tool_end_a_turn(here: World) -> None:
    for spec in here.box.offered_specs():
        if not spec.name.endswith("_files") and not spec.name.endswith("_file"):
            await tried(here, spec.name, 5 if spec.name == "run_command" else ROUNDS)


async def tried(here: World, tool: str, rounds: int) -> None:
    chance = random.Random(tool)
    own = next(json.loads(spec.schema) for spec in here.box.offered_specs() if spec.name == tool)
    for name, content in (
        ("a.py", b"x\n"),
        ("d/e", b"y\r\nz\n"),
        ("bin", b"\0\1"),
        ("wide", "a\nb".encode("utf-16")),
    ):
        here.write(name, content)
    for _ in range(rounds):
        asked = [
            name for name in own["properties"] if name in own["required"] or chance.random() < 0.4
        ]
        values = {name: chance.choice(VALUES) for name in asked}
        if "path" in values and chance.random() < 0.7:
            values["path"] = chance.choice(PATHS)
        if tool == "run_command":
            values |= {"command": chance.choice(COMMANDS), "seconds": 2}
        if tool == "read_command_output":
            values["wait"] = 0
        await here.raw(tool, json.dumps(values))
