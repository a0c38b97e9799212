"""An agent gives tasks to the fleet and goes on with their answers, while its worker is
killed again and again: the sum is right, once.

The agent is a task itself. Its model repeats a call whose end nobody saw, as a careful
model may: the same text is one task. Each of the tasks it gives has one effect, a line
in a ledger outside. With `--homes 2` two computers share them through PostgreSQL, and
whichever has the agent is killed.

python -m tests.faults.fleet_workforce [--tasks 50] [--kills 5] [--seed 1] [--homes 1]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.faults.fleet_kill import PATIENCE, Home, Trial, _end_all
from tests.faults.store_report import report
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer, Seen

GIVE = "Give all tasks away"
# So short, with a model that takes its time, that all kills fall into the work.
SECONDS_BETWEEN_KILLS = (0.5, 2.0)
REQUEST_SECONDS = 0.7


def answer(tasks: int, seen: Seen) -> Answer:
    """The giver gives tasks, reads them, and adds up what came; each task squares its number."""
    messages = seen.body["messages"]
    told = " ".join(str(message["content"]) for message in messages if message["role"] == "user")
    results = [str(message["content"]) for message in messages if message["role"] == "tool"]
    if GIVE not in told:
        return _square(told, results)
    if not results:
        return _call("add_fleet_tasks", tasks=[f"Do task-{number}" for number in range(tasks)])
    squares = re.findall(r"^[0-9a-f]{20} done [0-9a-f]{16} (\d+)$", results[-1], re.MULTILINE)
    if len(squares) == tasks:
        return reply(f"The sum is {sum(map(int, squares))}.")
    for result in results:
        ids = re.findall("^[0-9a-f]{20}$", result, re.MULTILINE)
        if ids:
            return _call("read_fleet_tasks", tasks=ids, seconds=2)
    return _call("add_fleet_tasks", tasks=[f"Do task-{number}" for number in range(tasks)])


def _square(told: str, results: Sequence[str]) -> Answer:
    (number,) = set(re.findall(r"task-(\d+)", told)) or {"0"}
    if results:
        return reply(str(int(number) ** 2))
    return reply(calls=[("run_command", {"command": f"echo {number} >> ledger/0.txt"})])


def _call(tool: str, **arguments: object) -> Answer:
    return reply(calls=[("call_tool", {"name": tool, "arguments": arguments})])


def trials(tasks: int, kills: int, seed: int, found: Counter[str], homes: int = 1) -> None:
    """What was found, counted. Anything under a key that begins with LOST is a failure."""
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="helix-workforce-"))
    with ExitStack() as last:
        last.callback(shutil.rmtree, folder, ignore_errors=True)

        def answer_slowly(seen: Seen) -> Answer:
            return answer(tasks, seen).silent_after(0, REQUEST_SECONDS)

        server = last.enter_context(ChatServer(default=answer_slowly))
        trial = Trial(tasks, kills, seed, found, home_count=homes)
        last.callback(_end_all, trial.homes)
        if homes == 1:
            trial.homes.append(Home(folder, "a", {}, server.base_url))
        else:
            trial._make_homes(folder, server.base_url, last)
        for each in trial.homes:
            # In a small window, the answers are put away, and this model recalls none.
            each.run("model", "set", "-w", "Fleet", "peer/scripted", "--window", "200000")
        add = ("task", "add", "-w", "Fleet", "--allow", "add_fleet_tasks", GIVE)
        (giver,) = trial.homes[0].run(*add).split()
        began = time.monotonic()
        for each in trial.homes:
            each.start_worker()
        state = _kill_until_ended(trial.homes, giver, kills, chance, found)
        found["seconds"] = round(time.monotonic() - began)
        _judge(trial, giver, state)


def _judge(trial: Trial, giver: str, state: str) -> None:
    found = trial.found
    home = trial.homes[0]
    (ended,) = json.loads(home.run("task", "show", "-w", "Fleet", giver, "--json"))
    listed = json.loads(home.run("task", "list", "-w", "Fleet", "--most", "1000", "--json"))
    effects: Counter[str] = Counter()
    for each in trial.homes:
        effects.update(line.effect for line in each.ledger())
    found["effects"] = effects.total()
    found["attempts of the agent"] = ended["claims"]
    right = f"The sum is {sum(number**2 for number in range(trial.tasks))}."
    if ended["answer"] != right:
        found[f"LOST: the agent's end {state} {ended['answer'] or ended['why']}"] += 1
    if len(listed) != trial.tasks + 1:
        found[f"LOST: tasks given more or less than once ({len(listed)})"] += 1
    if any(count > 1 for count in effects.values()):
        found["LOST: effects that happened twice"] += 1
    if found["kills"] < trial.kills:
        found["LOST: kills, as all was done before them"] += 1


def _kill_until_ended(
    homes: list[Home], giver: str, kills: int, chance: random.Random, found: Counter[str]
) -> str:
    home, until = homes[0], time.monotonic() + PATIENCE
    while time.monotonic() < until:
        time.sleep(chance.uniform(*SECONDS_BETWEEN_KILLS))
        (task,) = json.loads(home.run("task", "show", "-w", "Fleet", giver, "--json"))
        if task["state"] not in ("waiting", "running"):
            return str(task["state"])
        if found["kills"] < kills and task["state"] == "running":
            found["kills"] += 1
            for one in homes:
                if len(homes) == 1 or task["worker"].startswith(f"{one.name} "):
                    one.kill_worker(one.workers[0])
                    one.start_worker()
    return "never"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--homes", type=int, default=1)
    given = parser.parse_args()
    counts = given.tasks, given.kills, given.seed
    return report("fleet_workforce", given.seed, lambda found: trials(*counts, found, given.homes))


if __name__ == "__main__":
    raise SystemExit(main())
