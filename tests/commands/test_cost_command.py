"""`cost`: a connected agent's requests through a real gateway, billed by their bytes,
and an imported history.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from helix_desktop.commands import cost_command
from helix_desktop.engine import facts
from helix_desktop.engine.request_costs import RequestCost
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.program_folders import find_program_folders
from helix_desktop.providers.provider_catalog import SystemClock
from helix_desktop.store.journal_file import JournalFile
from tests.commands.conftest import Helix
from tests.gateway.running import TOOL, Agent, running
from tests.histories import written
from tests.peers.agent_provider import Asked, Calls, Provider
from tests.peers.anthropic_billing import Cache

Json = Any
MARK = {"cache_control": {"type": "ephemeral"}}
PLAIN = {"read from the cache", "first time", "new content", "reply", "not cacheable"}
PRICE = {
    "input": 3.0,
    "read": 0.3,
    "write": 3.75,
    "output": 15.0,
}  # of claude-sonnet-4-5, dollars per million tokens


class Client(Agent):
    """Sends its tools and marks its prompt and its last message, as Claude Code does."""

    tools: Sequence[Json] = tuple(
        {
            "name": name,
            "description": f"It can {name}. " * 120,
            "input_schema": {"type": "object", "required": []},
        }
        for name in (TOOL, "Read")
    )
    prompt = "You are an agent. " * 400
    model = "claude-sonnet-4-5"
    thinking: Json = None

    def body(self) -> dict[str, Json]:
        system = [{"type": "text", "text": self.prompt, **MARK}]
        for unit in self.units:
            for block in unit["content"] if isinstance(unit["content"], list) else ():
                block.pop("cache_control", None)
        if isinstance(self.units[-1]["content"], str):
            self.units[-1]["content"] = [{"type": "text", "text": self.units[-1]["content"]}]
        self.units[-1]["content"][-1].update(MARK)
        return {
            **super().body(),
            "system": system,
            "tools": list(self.tools),
            "model": self.model,
            "thinking": self.thinking,
        }

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            found = self.ask()
            self.results(
                [(call, name, f"a line that {call} found\n" * 150) for call, name, _ in found]
            )


class Trial:
    """The agent, its provider, and the clock that all of them see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.caches: dict[str, Cache] = {}
        self.paid: list[float] = []
        self.later = 0.0
        monkeypatch.setattr(
            JournalFile.__init__,
            "__kwdefaults__",
            {**(JournalFile.__init__.__kwdefaults__ or {}), "now": self.now},
        )
        monkeypatch.setattr(SystemClock, "current_time", lambda _: self.now())

    def now(self) -> float:
        return time.time() + self.later

    def bill(self, asked: Asked) -> dict[str, int]:
        cache = self.caches.setdefault(asked.body["model"], Cache(life=300))
        fresh, read, write = cache.bill(asked.body, self.now()).values()
        self.paid.append(
            (
                fresh * PRICE["input"]
                + read * PRICE["read"]
                + write * PRICE["write"]
                + 10 * PRICE["output"]
            )
            / 1e6
        )
        return {"input": fresh + read + write, "read": read, "write": write}

    def pause(self, _: Client) -> None:
        self.later += 700

    def lose(self, _: Client) -> None:
        self.caches.clear()

    @staticmethod
    def add_tool(client: Client) -> None:
        client.tools = (
            *client.tools,
            {"name": "Write", "description": "It writes.", "input_schema": {}},
        )

    @staticmethod
    def reorder(client: Client) -> None:
        client.tools = client.tools[::-1]

    @staticmethod
    def prompt(client: Client) -> None:
        client.prompt = client.prompt.replace("an agent", "our agent")

    @staticmethod
    def switch(client: Client) -> None:
        client.model = "claude-opus-4-5"

    @staticmethod
    def edit(client: Client) -> None:
        client.units[2]["content"][0]["content"] = "Another output stood here."

    @staticmethod
    def shorten(client: Client) -> None:
        client.units[2]["content"][0]["content"] = "[Old output removed]"


INJECTED: dict[str, Callable[[Trial, Client], None]] = {
    "time ran out": Trial.pause,
    "not kept by the provider": Trial.lose,
    "tools changed": lambda _, client: Trial.add_tool(client),
    "another order": lambda _, client: Trial.reorder(client),
    "system prompt changed": lambda _, client: Trial.prompt(client),
    "model switched": lambda _, client: Trial.switch(client),
    "edit or rewind": lambda _, client: Trial.edit(client),
}


def explained(home: Path, helix: Helix) -> list[Json]:
    [row] = json.loads(
        helix("--home", home, "conversation", "list", "-w", workspace_of(home, helix), "--json")[1]
    )
    code, out, _ = helix(
        "--home",
        home,
        "cost",
        "-w",
        workspace_of(home, helix),
        "--conversation",
        row["id"],
        "--json",
    )
    assert code == 0
    value = json.loads(out)
    assert value.keys() == {"requests", "agents", "savings"}
    found: list[Json] = value["requests"]
    return found


def workspace_of(home: Path, helix: Helix) -> str:
    [row] = json.loads(helix("--home", home, "workspace", "list", "--json")[1])
    return str(row["name"])


def words(request: Json) -> set[str]:
    return {one["cause"].partition(":")[0] for one in request["causes"]}


@contextmanager
def working(home: Path, trial: Trial, session: str = "") -> Iterator[tuple[Provider, Client]]:
    """An agent that works through a gateway of this home, and the provider that bills it."""
    with (
        Provider(lambda _: [Calls(TOOL, {"command": "look"})], usage=trial.bill) as provider,
        running(home, provider.url) as url,
    ):
        yield provider, Client("anthropic", url, session=session)


def play(
    home: Path, trial: Trial, causes: Sequence[str], agent: str = "", session: str = "s"
) -> None:
    with working(home, trial, session=session) as (provider, client):
        client.headers = {"x-helix-agent": agent}
        client.say("Go on until it is done.")
        client.go_on(5)
        for cause in causes:
            INJECTED[cause](trial, client)
        client.go_on(2)
        assert provider.refused == []


@pytest.mark.parametrize(
    "causes",
    [
        *((one,) for one in INJECTED),
        ("time ran out", "edit or rewind"),
        ("tools changed", "time ran out"),
        ("edit or rewind", "not kept by the provider"),
        ("model switched", "system prompt changed"),
    ],
    ids="+".join,
)
def test_causes_in_a_connected_agent_s_requests_are_named(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch, causes: Sequence[str]
) -> None:
    trial = Trial(monkeypatch)
    play(tmp_path, trial, causes)
    requests = explained(tmp_path, helix)
    assert len(requests) == len(trial.paid) == 7
    for request in requests:
        check_that_causes_add_up(request)
    if "model switched" not in causes:
        assert [request["cost"] for request in requests] == pytest.approx(trial.paid, abs=1e-6)
    injected = requests.pop(5)
    assert words(injected) - PLAIN == set(causes)
    for request in requests:
        assert words(request) <= PLAIN


def test_requests_that_went_on_unread_are_said_with_what_is_known_of_their_cost(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    with working(tmp_path, trial, session="s") as (provider, client):
        client.say("Go on until it is done.")
        client.go_on(1)
        provider.strict = False
        provider.usage = lambda _: {"input": 700, "read": 0, "write": 0}
        odd = {"model": "gpt-5", "input": "go on", "previous_response_id": "resp_1"}
        reply = httpx.post(f"{client.url}/v1/responses", json=odd)
        output_tokens = reply.json()["usage"]["output_tokens"]
    name = workspace_of(tmp_path, helix)
    _, printed, _ = helix("--home", tmp_path, "cost", "--workspace", name)
    said = "1 request went on unread, so no conversation has what it cost: 700 tokens in"
    assert printed.splitlines()[-1].startswith(f"{said} and {output_tokens} out ($0.")
    _, printed, _ = helix("--home", tmp_path, "cost", "--workspace", name, "--json")
    unread = json.loads(printed)["unread"]
    assert (unread["requests"], unread["input"]) == (1, 700)


def check_that_causes_add_up(request: dict[str, Any]) -> None:
    assert request.keys() == {"seq", "tokens", "cost", "causes"}
    for cause in request["causes"]:
        assert cause.keys() == {"cause", "tokens", "cost"}
    assert sum(cause["tokens"] for cause in request["causes"]) == request["tokens"]
    assert sum(cause["cost"] for cause in request["causes"]) == pytest.approx(request["cost"])


def test_an_output_that_the_agent_shortened_itself_is_no_fold_of_ours(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    with working(tmp_path, trial, session="s") as (_, client):
        client.say("Go on until it is done.")
        client.go_on(5)
        Trial.shorten(client)
        client.go_on(2)
    requests = explained(tmp_path, helix)
    assert words(requests[5]) - PLAIN == {"edit or rewind"}


def test_another_thinking_time_is_no_fault_of_the_provider(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    with working(tmp_path, trial, session="s") as (_, client):
        client.say("Go on until it is done.")
        client.go_on(4)
        client.thinking = {"type": "enabled", "budget_tokens": 2_000}
        client.go_on(2)
    requests = explained(tmp_path, helix)
    assert words(requests[4]) - PLAIN == {"model switched"}
    assert all(words(requests[at]) <= PLAIN for at in (0, 1, 2, 3, 5))


def test_an_edit_of_an_agent_that_names_no_conversation_is_an_edit_though_a_fork_goes_on(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    with working(tmp_path, trial) as (_, client):
        client.say("Go on until it is done.")
        client.go_on(2)
        Trial.prompt(client)
        client.go_on(1)
        trial.pause(client)
        client.go_on(4)
        Trial.edit(client)
        client.go_on(2)
    rows = json.loads(
        helix(
            "--home",
            tmp_path,
            "conversation",
            "list",
            "-w",
            workspace_of(tmp_path, helix),
            "--json",
        )[1]
    )
    assert len(rows) == 2
    by_conversation = [
        json.loads(
            helix(
                "--home",
                tmp_path,
                "cost",
                "-w",
                workspace_of(tmp_path, helix),
                "-c",
                row["id"],
                "--json",
            )[1]
        )["requests"]
        for row in rows
    ]
    [edited, after] = min(by_conversation, key=len)
    assert words(edited) - PLAIN == {"edit or rewind"}
    assert words(after) <= PLAIN
    whole = sum(one["cost"] for requests in by_conversation for one in requests)
    assert whole == pytest.approx(sum(trial.paid), abs=1e-6)


def test_an_edit_of_the_first_message_is_named_though_the_tools_had_changed_before(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    with working(tmp_path, trial, session="s") as (_, client):
        client.say("Go on until it is done.")
        client.go_on(2)
        Trial.add_tool(client)
        client.go_on(2)
        client.units[0]["content"][0]["text"] = "Go on until it is done, and briefly."
        client.go_on(2)
    requests = explained(tmp_path, helix)  # There is one conversation.
    assert words(requests[4]) - PLAIN == {"edit or rewind"}
    assert words(requests[5]) <= PLAIN


def test_what_comes_instead_behind_a_rewind_is_new_and_nobody_is_blamed(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    with working(tmp_path, trial, session="s") as (_, client):
        client.say("Go on until it is done.")
        client.go_on(4)
        del client.units[5:]
        client.units[-1]["content"].append({"type": "text", "text": "No, look elsewhere."})
        client.go_on(2)
    assert all(words(request) <= PLAIN for request in explained(tmp_path, helix))


def test_a_request_beside_the_conversation_is_paid_in_it(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    words = [{"type": "text", "text": "a title? " * 90}]
    asks = {
        "model": "claude-haiku-4-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": words}],
    }
    with working(tmp_path, trial, session="s") as (provider, client):
        client.say("Go on until it is done.")
        client.go_on(2)
        asked = json.dumps(asks)
        for session in ("s", "nobody's"):
            headers = {"x-api-key": "k", "x-claude-code-session-id": session}
            assert (
                httpx.post(client.url + "/v1/messages", content=asked, headers=headers).status_code
                == 200
            )
            assert provider.asked[-1].raw == asked.encode()
        client.go_on(1)
    requests = explained(tmp_path, helix)
    assert len(requests) == 4
    [beside] = [
        one
        for one in requests
        if "request beside the steps: other" in {c["cause"] for c in one["causes"]}
    ]
    first, second, title, _, third = trial.paid
    assert sum(one["cost"] for one in requests) == pytest.approx(
        first + second + title / 3 + third, abs=1e-6
    )
    assert beside["cost"] == pytest.approx(title / 3, abs=1e-6), "of Haiku, which costs a third"


def test_sums_by_day_agent_model_and_cause(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    play(tmp_path, trial, ["time ran out"])
    name = workspace_of(tmp_path, helix)
    sums = json.loads(helix("--home", tmp_path, "cost", "-w", name, "--json")[1])
    assert [one["model"] for one in sums["models"]] == ["claude-sonnet-4-5"]
    for rows in sums.values():
        assert sum(one["cost"] for one in rows) == pytest.approx(sum(trial.paid))
        assert sum(one["tokens"] for one in rows) == sums["models"][0]["tokens"]
    code, out, _ = helix("--home", tmp_path, "cost", "-w", name)
    assert code == 0
    assert "time ran out" in out
    assert "By agent" in out


def test_a_request_of_a_model_without_a_known_price_says_so_instead_of_nothing_to_pay(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(monkeypatch)
    with working(tmp_path, trial, session="s") as (_, client):
        client.model = "a-model-nobody-knows"
        client.say("Go on until it is done.")
        client.go_on(2)
    told = helix("--home", tmp_path, "cost", "-w", workspace_of(tmp_path, helix))[1]
    assert "no price" in told
    assert "$" not in told


def test_a_workspace_without_requests_says_so(tmp_path: Path, helix: Helix) -> None:
    helix("workspace", "new", "Thesis", "--folder", str(tmp_path))
    assert helix("cost", "-w", "Thesis")[:2] == (
        0,
        "No request has been recorded in this workspace.\n",
    )
    assert json.loads(helix("cost", "-w", "Thesis", "--json")[1]) == {
        "days": [],
        "agents": [],
        "models": [],
        "causes": [],
    }


@pytest.mark.parametrize("seconds", [20, 4_000])
@pytest.mark.parametrize("named", ["s", ""])
def test_a_request_that_the_agent_s_own_history_has_too_is_counted_once(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch, named: str, seconds: int
) -> None:
    """Recorder and gateway both kept a wrapped run, and `cost` showed it twice, under two names.

    What the agent then asks without the gateway counts, however soon.
    """
    trial = Trial(monkeypatch)
    play(tmp_path, trial, [], agent="Claude Code", session=named)
    usage = {"input_tokens": 1_000, "output_tokens": 10}
    session = [written.claude_said(1, None, "Go on until it is done.")]
    for number, later in enumerate((0, seconds), 2):
        call = written.use(f"t{number}", TOOL, command="look again" if later else "look")
        reply = written.claude_reply(number, number - 1, f"m{number}", call)
        reply["timestamp"] = datetime.fromtimestamp(trial.now() + later, UTC).isoformat()
        reply["message"] |= {"usage": usage, "model": Client.model}
        session.append(reply)
    path = written.lines(tmp_path / "s.jsonl", [{**line, "sessionId": "s"} for line in session])
    name = workspace_of(tmp_path, helix)
    assert helix("--home", tmp_path, "conversation", "import", str(path), "-w", name)[0] == 0
    listed = json.loads(helix("--home", tmp_path, "conversation", "list", "-w", name, "--json")[1])
    assert [one["agent"] for one in listed] == ["Claude Code"] * 2
    assert (
        "Go on until it is done.  (Claude Code)\n"
        in helix("--home", tmp_path, "conversation", "list", "-w", name)[1]
    )
    sums = json.loads(helix("--home", tmp_path, "cost", "-w", name, "--json")[1])
    assert [one["model"] for one in sums["models"]] == ["claude-sonnet-4-5"]
    paid_later = (1_000 * PRICE["input"] + 10 * PRICE["output"]) / 1e6
    assert sums["models"][0]["cost"] == pytest.approx(sum(trial.paid) + paid_later)
    assert [one["agent"] for one in sums["agents"]] == ["Claude Code"]


def test_a_reply_that_was_read_while_it_was_written_is_paid_once(
    tmp_path: Path, helix: Helix
) -> None:
    """Claude Code writes a line for each part of a reply, and the recorder reads the
    file in between.
    """
    helix("workspace", "new", "Work", "--folder", str(tmp_path))
    session = written.claude_session()
    for count in (2, 3, 4, 5, 6, 7, 8):
        path = written.lines(tmp_path / "s.jsonl", session[:count])
        assert helix("conversation", "import", str(path), "-w", "Work")[0] == 0
    sums = json.loads(helix("cost", "-w", "Work", "--json")[1])
    assert [one["tokens"] for one in sums["agents"]] == [300], "three requests of 100"


@pytest.mark.parametrize("seed", range(3))
def test_a_request_counts_once_however_often_its_session_was_copied(
    tmp_path: Path, helix: Helix, seed: int
) -> None:
    """A session of $190 that was restored once was $381: the copy has the same requests
    with the same times.
    """
    random = Random(seed)
    helix("workspace", "new", "Work", "--folder", str(tmp_path))
    paid: dict[str, int] = {}
    clock = iter(range(10_000))

    def ask(number: int, parent: int, agent: str) -> Json:
        usage = {"input_tokens": random.randint(1, 9_000), "output_tokens": random.randint(1, 900)}
        paid[agent] = paid.get(agent, 0) + usage["input_tokens"]
        reply = written.claude_reply(
            number, parent, f"m{next(clock)}", written.text(f"answer {random.random()}")
        )
        reply["timestamp"] = datetime.fromtimestamp(1.78e9 + 0.789 * next(clock), UTC).isoformat()
        reply["message"]["usage"] = usage
        return reply

    def save_and_import(session: str, values: Sequence[Json]) -> None:
        path = written.lines(
            tmp_path / f"{session}.jsonl", [{**line, "sessionId": session} for line in values]
        )
        assert helix("conversation", "import", str(path), "-w", "Work")[0] == 0

    codex = written.codex(tmp_path / "codex")
    spent = {"input_tokens": 700, "output_tokens": 50}
    event = {"type": "token_count", "info": {"last_token_usage": spent}}
    with codex.open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"timestamp": "2026-01-02T03:04:10Z", "type": "event_msg", "payload": event})
            + "\n"
        )
    assert helix("conversation", "import", str(codex), "-w", "Work")[0] == 0
    paid["Codex"] = 700
    sessions = {
        "s0": [
            written.claude_said(1, None, "go"),
            *(ask(n, n - 1, "Claude Code") for n in range(2, 6)),
        ]
    }
    save_and_import("s0", sessions["s0"])
    for step in range(6):
        name = random.choice([*sessions])
        listed = json.loads(helix("conversation", "list", "-w", "Work", "--json")[1])
        match random.choice(["restore", "copy", "cut", "again", "continue"]):
            case "restore":
                made = tmp_path / f"restored{step}.jsonl"
                chosen = random.choice(listed)["id"]
                code, _, err = helix(
                    "conversation", "restore", "-w", "Work", chosen, "--to", str(made)
                )
                assert code == 0, err
                assert helix("conversation", "import", str(made), "-w", "Work")[0] == 0
            case "copy":
                save_and_import(f"copy{step}", sessions[name])
            case "cut":
                save_and_import(
                    f"cut{step}", sessions[name][: random.randint(2, len(sessions[name]))]
                )
            case "again":
                save_and_import(name, sessions[name])
            case "continue":
                sessions[f"on{step}"] = [
                    *sessions[name],
                    ask(90 + step, len(sessions[name]), "Claude Code"),
                ]
                save_and_import(f"on{step}", sessions[f"on{step}"])
    for row in json.loads(helix("conversation", "list", "-w", "Work", "--json")[1]):
        code, _, err = helix("conversation", "restore", "-w", "Work", row["id"], "--to", str(tmp_path / f"{row['id']}.jsonl"))  # fmt: skip
        assert (
            helix("conversation", "import", str(tmp_path / f"{row['id']}.jsonl"), "-w", "Work")[0]
            == 0
        ), err
    sums = json.loads(helix("cost", "-w", "Work", "--json")[1])
    assert {one["agent"]: one["tokens"] for one in sums["agents"]} == paid


@dataclass(eq=False)
class HeldWorkspace:
    journal: Any
    folder: Path


class HeldFacts:
    """A journal and a console, as far as `cost` needs them."""

    def __init__(self, held: Mapping[str, Sequence[facts.Fact]]) -> None:
        self.held = {
            name: [facts.Recorded(name, at, float(at), fact) for at, fact in enumerate(made, 1)]
            for name, made in held.items()
        }
        self.printed = ""

    async def facts_about_imports(self) -> list[facts.Recorded]:
        return []

    async def list_conversations(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(id=name) for name in self.held]

    async def read_facts(self, name: str) -> list[facts.Recorded]:
        return self.held[name]

    async def print_line(self, text: str) -> None:
        self.printed += text


async def test_what_is_asked_here_in_an_agent_s_conversation_is_not_booked_on_the_agent(
    tmp_path: Path,
) -> None:
    """A fork of a wrapped conversation was continued here, and so was an imported one itself."""
    named = facts.ConversationStarted("t", agent="Claude Code")
    brought = facts.ConversationStarted("t", origin=facts.Origin("codex", "s"))
    fork = facts.ConversationStarted(forked_from="wrapped", forked_at=3)

    def reply(tokens: int, request: Digest | None = None) -> facts.ModelReplied:
        return facts.ModelReplied(
            (facts.Text("a"),), "m", facts.Stop.END, facts.Usage(tokens), request=request
        )

    ours = reply(1, Digest.of_content(b"asked"))
    held = {
        "wrapped": (named, facts.UserSaid(()), reply(10)),
        "fork of it": (named, facts.UserSaid(()), reply(10), fork, facts.UserSaid(()), ours),
        "fork without digests": (
            named,
            facts.UserSaid(()),
            reply(10),
            fork,
            facts.UserSaid(()),
            reply(2),
        ),
        "imported": (
            facts.UserSaid(()),
            reply(100),
            brought,
            facts.UserSaid(()),
            replace(ours, usage=facts.Usage(4)),
        ),
    }
    peer: Any = HeldFacts(held)
    workspace: Any = HeldWorkspace(peer, tmp_path)
    places = find_program_folders(tmp_path)
    arguments = Namespace(conversation="", json=True, places=places)
    await cost_command.print_costs(arguments, workspace, peer)
    agents = json.loads(peer.printed)["agents"]
    assert {one["agent"]: one["tokens"] for one in agents} == {
        "Claude Code": 10,
        "Codex": 100,
        "Helix Desktop": 7,
    }


def test_a_model_on_this_computer_is_free_and_another_without_a_price_is_not() -> None:
    sums = cost_command.CostSums()
    for model, is_free in (("ollama/qwen3", True), ("far/unknown", False)):
        request = RequestCost(1, 0.0, model, 100, 0.0, ())
        sums.add_request(cost_command.CountedRequest("Helix Desktop", request, is_free))
    shown = {
        name: cost_command._format_dollars(total.cost, is_free=total.is_free)
        for name, total in sums.models.items()
    }
    assert shown == {"qwen3": "assumed free", "unknown": "no price"}
    assert not sums.agents["Helix Desktop"].is_free, "not all of it"
