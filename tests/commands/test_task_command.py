"""`task`, `worker` and `fleet` as they are given in a terminal, on one computer without
a server.
"""

from __future__ import annotations

import io
import json
import sqlite3
import sys
from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import cli
from helix_desktop.commands import worker_command, workspace_access
from helix_desktop.console import Console
from helix_desktop.errors import HelixError, OwnerEnded, StoreFailed, StoreFull
from tests.commands.conftest import Helix
from tests.conftest import Expect


@pytest.fixture
def workspace(tmp_path: Path, helix: Helix) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    assert helix("workspace", "new", "Here", "--folder", folder)[0] == 0
    assert helix("model", "set", "-w", "Here", "demo/demo")[0] == 0
    return folder


def add(helix: Helix, *words: str) -> str:
    code, out, err = helix("task", "add", "-w", "Here", *words)
    assert (code, err) == (0, "")
    return out.strip()


def work(helix: Helix, *words: str) -> list[dict[str, Any]]:
    code, out, _ = helix("worker", "-w", "Here", "--drain", "--json", *words)
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def show(helix: Helix, task: str) -> dict[str, Any]:
    (found,) = json.loads(helix("task", "show", "-w", "Here", task, "--json")[1])
    return dict(found)


def test_a_task_is_done_in_the_conversation_with_its_id(workspace: Path, helix: Helix) -> None:
    task = add(helix, "write a.txt: kept", "--allow", "edits")
    assert show(helix, task)["state"] == "waiting"
    (done,) = work(helix)
    assert (done["id"], done["state"], done["conversation"]) == (task, "done", task)
    assert (workspace / "a.txt").read_text().strip() == "kept"
    (row,) = json.loads(helix("conversation", "list", "-w", "Here", "--json")[1])
    assert row["id"] == task
    assert helix("task", "wait", "-w", "Here", task)[0] == 0
    assert work(helix) == []


def test_a_worker_whose_name_orders_the_terminal_about_is_only_shown(
    tmp_path: Path, workspace: Path, helix: Helix
) -> None:
    """The name is not encrypted in a shared store; and a pipe may lead to a terminal."""
    task = add(helix, "say here")
    (file,) = tmp_path.rglob("tasks.sqlite3")
    with closing(sqlite3.connect(file)) as there, there:
        there.execute(
            "UPDATE tasks SET state = 'running', until = 1e12, worker = ?",
            ("\x1b]52;c;cm0=\x07laptop",),
        )
    for command in (["task", "show", "-w", "Here", task], ["fleet", "status", "-w", "Here"]):
        out = helix(*command)[1]
        assert "\x1b" not in out
        assert "\x07" not in out
    code, _, err = helix("task", "show", "-w", "\x1b]52;c;cm0=\x07", task)
    assert (code, "\x1b" in err) == (1, False)


@pytest.mark.parametrize("trouble", [StoreFull, StoreFailed, OwnerEnded])
def test_a_worker_whose_disk_is_full_or_whose_workspace_was_open_elsewhere_tries_again(
    workspace: Path,
    helix: Helix,
    monkeypatch: pytest.MonkeyPatch,
    expect: Expect,
    trouble: type[HelixError],
) -> None:
    expect("the worker tries again: (still )?full")
    monkeypatch.setattr(worker_command, "AGAIN_SECONDS", 0.01)
    task = add(helix, "say here")
    run = workspace_access.run_here_or_at_owner
    troubles = [trouble("full"), trouble("still full")]

    async def run_later(arguments: Namespace, identity: str, console: Console) -> int:
        if troubles:
            raise troubles.pop()
        return await run(arguments, identity, console)

    monkeypatch.setattr(workspace_access, "run_here_or_at_owner", run_later)
    assert helix("worker", "-w", "Here", "--drain")[0] == 0
    monkeypatch.setattr(workspace_access, "run_here_or_at_owner", run)
    assert show(helix, task)["state"] == "done"


def test_tasks_that_were_given_back_too_often_are_listed_with_the_way_on(
    tmp_path: Path, workspace: Path, helix: Helix
) -> None:
    first, second, third = (add(helix, f"say {number}") for number in range(3))
    give_all_back_too_often(tmp_path)
    listed = json.loads(helix("task", "list", "-w", "Here", "--state", "dead-letter", "--json")[1])
    assert [row["id"] for row in listed] == [third, second, first]
    _, out, _ = helix("task", "show", "-w", "Here", first)
    assert out.startswith(f"{first}  set aside\n")
    assert "its worker stopped responding" in out
    assert f"`task retry {first} -w Here`" in out
    assert f"{first}  set aside  " in helix("task", "list", "-w", "Here")[1]
    status = helix("fleet", "status", "-w", "Here")[1]
    assert "3 set aside" in status
    assert first in status
    assert helix("task", "wait", "-w", "Here", first)[0] == 1


def give_all_back_too_often(home: Path) -> None:
    (file,) = home.rglob("tasks.sqlite3")
    with closing(sqlite3.connect(file)) as tasks, tasks:
        tasks.execute("UPDATE tasks SET state = 'dead-letter', reason = 'lost'")


def test_one_of_the_tasks_that_were_given_back_too_often_is_tried_again_or_all_are(
    tmp_path: Path, workspace: Path, helix: Helix
) -> None:
    first = add(helix, "say 0")
    add(helix, "say 1")
    add(helix, "say 2")
    give_all_back_too_often(tmp_path)
    assert helix("task", "retry", "-w", "Here", first)[0] == 0
    assert show(helix, first)["state"] == "waiting"
    assert helix("task", "retry", "-w", "Here")[0] == 2
    assert helix("task", "retry", "-w", "Here", first, "--dead-letters")[0] == 2
    code, out, _ = helix("task", "retry", "-w", "Here", "--dead-letters", "--json")
    assert (code, json.loads(out)) == (0, {"retried": 2})
    assert {row["state"] for row in work(helix)} == {"done"}


def test_a_worker_without_a_model_or_its_key_leaves_the_tasks_waiting(
    tmp_path: Path, workspace: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_command, "AGAIN_SECONDS", 0.01)
    task = add(helix, "say here")
    other = tmp_path / "other"
    other.mkdir()
    helix("workspace", "new", "Other", "--folder", other)
    helix("task", "add", "-w", "Other", "say there")
    code, _, err = helix("worker", "--drain")
    assert (code, err.count("No model has been chosen.")) == (0, 1)
    assert show(helix, task)["state"] == "done"
    (status,) = json.loads(helix("fleet", "status", "-w", "Other", "--json")[1])["unable"]
    assert status.endswith(": No model has been chosen.")
    assert status in helix("fleet", "status")[1]
    for name in ("Here", "Other"):
        assert helix("model", "set", "-w", name, "anthropic/claude-sonnet-4-5")[0] == 0
    add(helix, "say more")
    code, _, err = helix("worker")
    assert (code, err.count("There is no key for anthropic.")) == (1, 2)
    states = json.loads(helix("fleet", "status", "--json")[1])["tasks"]
    assert (states["waiting"], states["failed"]) == (2, 0)


@pytest.mark.parametrize("allow", ["write_file", "once"])
def test_a_permission_nobody_gave_is_asked_for_and_the_task_goes_on_when_it_is_given(
    workspace: Path, helix: Helix, allow: str
) -> None:
    task = add(helix, "write a.txt: kept")
    (asked,) = work(helix)
    assert asked["state"] == "needs-you"
    why, exact = asked["why"].split("\n\n", 1)
    assert (why, asked["asked"]) == (
        "The task needs your permission: Create a.txt.",
        "write_file",
    )  # The window has a button.
    assert "+kept" in exact
    shown = helix("task", "show", "-w", "Here", task)[1]
    assert f"run `task retry {task} -w Here --allow once`; to allow all such calls, " in shown
    assert f"`task retry {task} -w Here --allow write_file`." in shown
    assert not (workspace / "a.txt").exists()
    assert helix("task", "wait", "-w", "Here", task)[0] == 1
    code, retried, _ = helix("task", "retry", "-w", "Here", task, "--allow", allow)
    assert (code, retried) == (0, f"{task}  waiting\n"), "it no longer needs permission"
    (done,) = work(helix)
    assert (done["id"], done["state"]) == (task, "done")
    facts = helix("ask", "-w", "Here", "-c", task, "--json", "hello")[1]
    assert '"seq": 1,' not in facts  # the same conversation goes on


def test_a_worker_may_ignore_what_a_task_allows(workspace: Path, helix: Helix) -> None:
    add(helix, "write a.txt: kept", "--allow", "all")
    (asked,) = work(helix, "--ignore-task-allow")
    assert asked["state"] == "needs-you"
    assert not (workspace / "a.txt").exists()


def test_tasks_come_from_files_and_standard_input_and_a_wrong_line_adds_none(
    workspace: Path, tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tasks"
    file.write_text(
        'say one\n\n{"text": "say two", "priority": 3, "key": "two", "allow": ["edits"]}\n'
    )
    ids = add(helix, "--file", str(file)).splitlines()
    assert len(ids) == 2
    assert [show(helix, task)["text"] for task in ids] == ["say one", "say two"]
    assert (show(helix, ids[1])["priority"], show(helix, ids[1])["allow"]) == (3, ["edits"])
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(b"say %d" % n for n in range(1000))))
    )
    assert len(add(helix, "-").splitlines()) == 1000
    for wrong, said in (
        ('{"text": 1, "texts": 2}', "no field texts"),
        ("{not json", "not a JSON object"),
        ('{"text": "a", "budget": "b"}', "budget has a value of the wrong"),
        ('{"text": null}', "text has a value of the wrong"),
        ('{"text": "a", "priority": true}', "priority has a value of the wrong"),
        ('{"text": "a", "after": [1]}', "after has a value of the wrong"),
        ('{"text": "a", "budget": NaN}', "0 dollars or more"),
        ('{"text": "a", "deadline": "1y"}', "1y is not a time"),
    ):
        file.write_text(f"good\n{wrong}\n")
        code, _, err = helix("task", "add", "-w", "Here", "--file", file)
        assert code == 2
        assert "Line 2" in err
        assert said in err
    states = json.loads(helix("fleet", "status", "-w", "Here", "--json")[1])["tasks"]
    assert states["waiting"] == 1002


def test_lines_name_other_lines_by_their_keys(
    workspace: Path, helix: Helix, tmp_path: Path
) -> None:
    lines = [
        {"text": "say\u2028two", "key": "two", "after": ["one"]},
        {"text": "say one", "key": "one"},
    ]
    (tmp_path / "tasks").write_text(
        "\ufeff" + "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    )
    two, one = add(helix, "--file", str(tmp_path / "tasks")).splitlines()
    assert add(helix, "say three", "--after", "two", "--key", "three")
    assert (
        add(helix, "say one", "--key", "one", "--after", "three") == one
    )  # known, and waits for nothing new
    assert [task["id"] for task in work(helix)][:2] == [one, two]
    (tmp_path / "tasks").write_text(
        '{"text": "a", "key": "a", "after": ["b"]}\n{"text": "b", "key": "b", "after": ["a"]}'
    )
    code, _, err = helix("task", "add", "-w", "Here", "--file", tmp_path / "tasks")
    assert (code, "depend on each other in a circle" in err) == (2, True)
    (tmp_path / "tasks").write_bytes(b"\xff\xfe")
    assert (
        "not valid UTF-8 text"
        in helix("task", "add", "-w", "Here", "--file", tmp_path / "tasks")[2]
    )
    (tmp_path / "tasks").write_bytes(b"")
    assert add(helix, "--file", str(tmp_path / "tasks")) == ""


def test_the_order_is_by_need_and_what_cannot_be_done_is_said(
    workspace: Path, helix: Helix
) -> None:
    first = add(helix, "say first")
    second = add(helix, "say second", "--after", first)
    third = add(helix, "say third", "--after", second, "--priority", "9", "--model", "none/such")
    fourth = add(helix, "say fourth", "--after", third)
    assert [one["id"] for one in work(helix)] == [first, second, third]
    assert show(helix, third)["state"] == "failed"
    assert show(helix, fourth)["state"] == "cancelled"
    code, _, err = helix("task", "cancel", "-w", "Here", first)
    assert code == 1
    assert "is done" in err


def fleet(helix: Helix, *words: str) -> dict[str, Any]:
    code, out, err = helix("fleet", *words, "--json")
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def test_the_fleet_of_all_workspaces_is_shown_and_stopped_at_once(
    workspace: Path, tmp_path: Path, helix: Helix
) -> None:
    (tmp_path / "other").mkdir()
    assert helix("workspace", "new", "There", "--folder", tmp_path / "other")[0] == 0
    assert helix("model", "set", "-w", "There", "demo/demo")[0] == 0
    first = add(helix, "say a")
    second = add(helix, "say b")
    assert helix("task", "add", "-w", "There", "say c")[0] == 0
    whole = fleet(helix, "status")
    assert (whole["tasks"]["waiting"], [one["name"] for one in whole["workspaces"]]) == (
        3,
        ["Here", "There"],
    )
    assert "Here: 2 waiting" in helix("fleet", "status")[1]
    assert fleet(helix, "stop", first, "-w", "Here")["changed"] == [first]
    fleet(helix, "stop", second)
    assert helix("fleet", "stop", second)[0] == 1
    assert helix("fleet", "stop")[0] == 2
    stopped = fleet(helix, "stop", "--all")
    assert (stopped["tasks"]["cancelled"], stopped["tasks"]["waiting"]) == (2, 1)
    assert all(one["is_stopped"] for one in stopped["workspaces"])
    assert helix("worker", "--drain", "--json")[1] == ""
    assert "until you run `fleet start`" in helix("fleet", "status", "-w", "There")[1]
    fleet(helix, "start")
    assert len(helix("worker", "--drain", "--json")[1].splitlines()) == 1


def test_a_wrong_name_stops_no_task(workspace: Path, tmp_path: Path, helix: Helix) -> None:
    (tmp_path / "other").mkdir()
    assert helix("workspace", "new", "There", "--folder", tmp_path / "other")[0] == 0
    task = add(helix, "say a")
    unknown = "0" * 20
    for where in ([], ["-w", "Here"]):
        code, _, err = helix("fleet", "stop", task, unknown, *where)
        assert code == 1
        assert f"There is no task {unknown} to stop." in err
        assert helix("fleet", "stop", "--all", unknown, *where)[0] == 1
        (here, _there) = fleet(helix, "status")["workspaces"]
        assert (here["tasks"]["waiting"], here["is_stopped"]) == (1, False)
    code, _, err = helix("fleet", "drain", "nobody")
    assert (code, "There is no worker nobody." in err) == (1, True)
    assert helix("fleet", "stop", "--", task)[0] == 0  # After "--", everything is a name.
    assert show(helix, task)["state"] == "cancelled"
    assert helix("fleet", "stop", task, "-w", "Here")[0] == 1


def test_the_beginning_of_tasks_in_two_workspaces_stops_neither(
    workspace: Path, tmp_path: Path, helix: Helix
) -> None:
    (tmp_path / "other").mkdir()
    assert helix("workspace", "new", "There", "--folder", tmp_path / "other")[0] == 0
    first = add(helix, "say a")
    second = helix("task", "add", "-w", "There", "say b")[1].strip()
    together = first[:4]
    assert second.startswith(together)  # An ID begins with the time.
    code, _, err = helix("fleet", "stop", together)
    assert (code, "Here, There" in err) == (1, True)
    whole = fleet(helix, "status")
    assert whole["tasks"]["waiting"] == 2


def test_a_budget_is_set_shown_and_lifted(workspace: Path, helix: Helix) -> None:
    assert fleet(helix, "budget", "2.5", "--per", "day", "-w", "Here")["budgets"] == {
        "day": {"limit": 2.5, "spent": 0.0}
    }
    fleet(helix, "budget", "1", "--agent", "reader")
    assert "budget (agent reader): $0.00 of $1.00" in helix("fleet", "status")[1]
    assert fleet(helix, "budget", "0", "--per", "day", "-w", "Here")["budgets"].keys() == {
        "agent reader"
    }
    assert helix("fleet", "budget", "nan")[0] == 2
    for where in ([], ["-w", "Here"]):
        code, _, err = helix("fleet", "budget", "1", "--per", "fleet", *where)
        assert (code, "Only a shared workspace" in err) == (2, True)


@pytest.mark.parametrize("per", ["day", "fleet"])
def test_an_agents_budget_for_a_day_is_refused_and_changes_nothing(
    workspace: Path, helix: Helix, per: str
) -> None:
    code, _, err = helix("fleet", "budget", "1", "--agent", "reader", "--per", per)
    assert code == 2
    assert f"--agent and --per {per} cannot be combined" in err
    assert fleet(helix, "status", "-w", "Here")["budgets"] == {}
    fleet(helix, "budget", "1", "--agent", "reader", "--per", "workspace")
    assert "agent reader" in fleet(helix, "status", "-w", "Here")["budgets"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "-w", "Here", " "), "has no text"),
        (("add", "-w", "Here", "x", "--deadline", "soon"), "is not a time"),
        (("add", "-w", "Here", "x", "--deadline", "2001-01-01"), "has passed"),
        (("add", "-w", "Here", "x", "--deadline", "0s"), "has passed"),
        (("add", "-w", "Here", "x", "--deadline", "0001-01-01"), "0001-01-01"),
        (("add", "-w", "Here", "x", "--after", "abcdef"), "no task abcdef"),
        (("add", "-w", "Here", "x", "--after", "nothing"), "no task nothing"),
        (("add", "-w", "Here", "x", "--budget", "nan"), "0 dollars or more"),
        (("add", "-w", "Here", "x", "--budget", "inf"), "0 dollars or more"),
        (("add", "-w", "Here", "x", "--priority", "99999999999999999999"), "A priority is"),
        (
            ("add", "-w", "Here", "x", "--allow", "edit"),
            "There is no edit to allow. Use edits, commands, all,",
        ),
        (("list", "-w", "Here", "--most", "-1"), "1 or greater"),
        (("show", "-w", "Here", "nonsense!"), "is not the ID"),
    ],
)
def test_wrong_use_is_a_sentence(
    workspace: Path, helix: Helix, words: tuple[str, ...], said: str
) -> None:
    code, out, err = helix("task", *words)
    assert code in (1, 2)
    assert said in err
    assert (out, "Traceback" in err) == ("", False)
    assert json.loads(helix("task", "list", "-w", "Here", "--json")[1]) == []


def test_a_text_in_the_place_of_a_list_is_refused(
    workspace: Path, helix: Helix, tmp_path: Path
) -> None:
    for name in ("after", "allow"):
        (tmp_path / "tasks").write_text(json.dumps({"text": "x", name: "edits"}))
        code, out, err = helix("task", "add", "-w", "Here", "--file", str(tmp_path / "tasks"))
        assert (code, out) == (2, "")
        assert "Nothing was added" in err


def test_nothing_of_the_engine_of_tasks_is_loaded_before_a_task_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [
        name for name in sys.modules if "fleet_task_files" in name or "fleet_worker" in name
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit):
        cli.main(["task", "--help"])
    assert not [
        name for name in sys.modules if "fleet_task_files" in name or "fleet_worker" in name
    ]


def test_a_forgotten_text_is_in_no_task_and_in_no_file(
    helix: Helix, workspace: Path, tmp_path: Path
) -> None:
    task = add(helix, "print the pin hunter2hunter2")
    code, out, err = helix("forget", "-w", "Here", "--text", "hunter2hunter2", "--yes")
    assert (code, err) == (0, "")
    assert "Changed 1 fact" in out
    assert "hunter2" not in helix("task", "show", "-w", "Here", task)[1]
    assert not [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and b"hunter2hunter2" in path.read_bytes()
    ]
