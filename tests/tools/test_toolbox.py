from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from helix_desktop.engine.facts import Decided, ToolSpec
from helix_desktop.engine.ports import (
    NOT_RUN,
    CallContext,
    ForeignToolResult,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, ProviderUnreachable, StoreFull
from helix_desktop.tools.changes.change_attribution import OpenStep
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.permission import PermissionMode, PermissionRule
from helix_desktop.tools.toolbox import PermissionOutcome
from tests.tools.world import World, world


@dataclass
class Echo:
    """A tool of a server that says what it was given."""

    spec: ToolSpec = ToolSpec(
        "srv__echo", "Echoes", '{"type":"object","properties":{"keep":{"type":"string"}}}'
    )
    title_for_question: str = "srv: echo"
    has_changed_description: bool = False
    runs_alone: bool = True
    only_reads: bool = False
    error: Exception | None = None
    given: list[Mapping[str, Any]] = field(default_factory=list)

    def remember_approval(self) -> None:
        self.has_changed_description = False

    async def call_foreign_tool(
        self, values: Mapping[str, Any], context: CallContext
    ) -> ForeignToolResult:
        self.given.append(values)
        if self.error:
            raise self.error
        return ForeignToolResult(json.dumps(values), images=(("image/png", b"picture"),))


async def test_specs_are_the_same_each_time_and_all_but_brief_ones_offer_keep(here: World) -> None:
    specs = here.box.offered_specs()
    assert specs == here.box.offered_specs()
    assert len({spec.name for spec in specs}) == len(specs) >= 13
    for spec in specs:
        assert ("keep" in json.loads(spec.schema)["properties"]) == (
            spec.name not in {"write_file", "set_todo"}
        )
        assert spec.description


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("read_fil", "{}", "There is no tool 'read_fil'. Available: compare_versions, edit_file"),
        ("", "{}", "There is no tool"),
        ("read_file", '{"path": "a"', "not valid JSON"),
        ("read_file", "{}", "needs the argument 'path'"),
        ("read_file", '{"path": "a", "lines": 3}', "no argument 'lines'"),
        ("read_file", '{"path": "nothing"}', "nothing does not exist"),
    ],
)
async def test_what_the_model_gets_wrong_is_an_outcome_with_a_sentence(
    here: World, tool: str, arguments: str, words: str
) -> None:
    outcome = await here.raw(tool, arguments)
    assert not outcome.ok
    assert words in here.text(outcome)


async def test_keep_reaches_the_outcome_and_not_the_tool(here: World) -> None:
    here.write("a", "x")
    outcome = await here.run("read_file", path="a", keep="the x")
    assert outcome.ok
    assert outcome.keep == "the x"


async def test_outputs_say_where_they_come_from(here: World) -> None:
    here.write("a", "text")
    outcome = await here.run("list_files")
    assert (await here.cache.describe_entry(outcome.output.digest)).about.tool == "list_files"
    assert outcome.decided_by == ""


async def test_parallel_calls_run_side_by_side(here: World) -> None:
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(
            *(here.run("run_command", command=f"sleep 0.5; echo {n}") for n in range(8))
        )
    assert [here.text(outcome) for outcome in outcomes] == [f"{n}\n" for n in range(8)]


async def test_what_changes_files_or_may_do_so_stands_in_order_with_the_other_calls(
    here: World,
) -> None:
    here.box = here.kit.build_toolbox(more=lambda: [Echo()])
    offered = [spec.name for spec in here.box.offered_specs()]
    assert [name for name in offered if here.box.runs_alone(name)] == [
        "write_file",
        "edit_file",
        "run_command",
        "srv__echo",
    ]
    assert not here.box.runs_alone("no such tool")


async def test_once_asks_again_and_this_conversation_does_not(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.ASK
    here.person.answer = PermissionAnswer(allowed=True, scope="once")
    await here.run("write_file", path="a", content="1")
    await here.run("write_file", path="a", content="2")
    assert len(here.person.asked) == 2
    here.person.answer = PermissionAnswer(allowed=True, scope="conversation")
    outcome = await here.run("write_file", path="a", content="3")
    assert (outcome.decided_by, outcome.decided_scope) == ("user", "conversation")
    outcome = await here.run("write_file", path="b", content="4")
    assert (outcome.decided_by, len(here.person.asked)) == ("rule", 3)
    await here.run("write_file", "another", path="b", content="5")
    assert len(here.person.asked) == 4


async def test_always_is_remembered_as_a_rule(here: World) -> None:
    kept: list[PermissionRule] = []
    here.kit.permissions.mode = PermissionMode.ASK
    here.kit.permissions.save_rule = kept.append
    here.person.answer = PermissionAnswer(allowed=True, scope="always")
    await here.run("run_command", command="echo one")
    await here.run("run_command", "another", command="echo two")
    assert kept == [PermissionRule("allow", "run_command", command="echo *")]
    assert len(here.person.asked) == 1


async def test_one_press_adds_a_rule_for_each_program_that_is_missing_in_a_pipe(
    here: World,
) -> None:
    kept: list[PermissionRule] = []
    here.kit.permissions.mode = PermissionMode.ASK
    here.kit.permissions.rules = (PermissionRule("allow", command="echo *"),)
    here.kit.permissions.save_rule = kept.append
    here.person.answer = PermissionAnswer(allowed=True, scope="always")
    await here.run("run_command", command="echo one | cat | head -3")
    assert here.person.asked[0].rules == ("cat *, head *", "cat, head -3")
    assert [(one.name, one.is_allowed) for one in here.person.asked[0].programs] == [
        ("echo", True),
        ("cat", False),
        ("head", False),
    ]
    assert [rule.command for rule in kept] == ["cat *", "head *"]
    await here.run("run_command", command="head -1 a; echo two")
    assert len(here.person.asked) == 1


async def test_edits_are_allowed_in_their_folder_alone(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.ASK
    here.person.answer = PermissionAnswer(allowed=True, scope="always", rule=0)
    await here.run("write_file", path="docs/a.md", content="1")
    assert here.person.asked[0].rules == ("docs/*", "edit_file, write_file")
    await here.run("write_file", path="docs/b.md", content="2")
    assert len(here.person.asked) == 1
    await here.run("write_file", path="c.md", content="3")
    assert len(here.person.asked) == 2


async def test_an_answer_wider_than_what_was_offered_counts_once(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.ASK
    here.person.answer = PermissionAnswer(allowed=True, scope="always")
    outcome = await here.run("run_command", command="echo $HOME | cat")
    assert here.person.asked[0].scopes == ("once",)
    assert outcome.decided_scope == "once"
    assert here.kit.permissions.rules == ()


async def test_a_refusal_is_said_and_nothing_is_done(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.READ_ONLY
    outcome = await here.run("write_file", path="a", content="1")
    assert here.text(outcome) == "Not done: this workspace is read-only."
    assert (await here.cache.describe_entry(outcome.output.digest)).about == NOT_RUN
    assert (outcome.ok, outcome.refused, outcome.decided_by) == (False, True, "mode")
    assert list(here.folder.iterdir()) == []
    assert here.person.asked == []


async def test_a_failed_command_was_not_refused(here: World) -> None:
    outcome = await here.run("run_command", command="false")
    assert (outcome.ok, outcome.refused, outcome.decided_by) == (False, False, "mode")


async def test_what_the_user_allowed_and_then_failed_was_allowed(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.ASK
    path = here.write("a", "one")
    await here.run("read_file", path="a")

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        path.write_text("changed meanwhile")
        return PermissionAnswer(allowed=True)

    here.person.ask = ask  # type: ignore[method-assign]
    outcome = await here.run("write_file", path="a", content="two")
    assert (outcome.ok, outcome.refused, outcome.decided_by) == (False, False, "user")


async def test_a_tool_of_a_server_asks_and_gives_its_own_arguments(here: World) -> None:
    echo = Echo()
    here.box = here.kit.build_toolbox(more=lambda: [echo])
    here.kit.permissions.mode = PermissionMode.ASK
    outcome = await here.run("srv__echo", keep="its own", keep_of_output="mine")
    assert here.text(outcome) == '{"keep": "its own"}'
    assert outcome.keep == "mine"
    assert [here.content(image.digest) for image in outcome.images] == [b"picture"]
    assert here.person.asked[0].title == "srv: echo"
    assert '"keep": "its own"' in here.person.asked[0].preview


async def test_a_tool_of_a_server_is_given_what_the_model_meant(here: World) -> None:
    echo = Echo(
        spec=ToolSpec(
            "srv__find",
            "Finds",
            '{"properties":{"ids":{"type":"array"},"page":{"type":"integer"}}}',
        )
    )
    here.box = here.kit.build_toolbox(more=lambda: [echo])
    await here.run("srv__find", ids='["a", "b"]', page=None)
    assert echo.given == [{"ids": ["a", "b"]}]


async def test_a_tool_whose_description_changed_asks_again(here: World) -> None:
    echo = Echo()
    here.box = here.kit.build_toolbox(more=lambda: [echo])
    here.kit.permissions.mode = PermissionMode.ASK
    here.person.answer = PermissionAnswer(allowed=True, scope="always")
    await here.run("srv__echo")
    await here.run("srv__echo")
    assert len(here.person.asked) == 1
    echo.has_changed_description = True
    await here.run("srv__echo")
    assert "has changed" in here.person.asked[1].why
    await here.run("srv__echo")
    assert len(here.person.asked) == 2


async def test_a_server_that_fails_is_an_outcome(here: World) -> None:
    here.box = here.kit.build_toolbox(
        more=lambda: [Echo(error=ProviderUnreachable("The server srv is not responding."))]
    )
    outcome = await here.run("srv__echo")
    assert not outcome.ok
    assert here.text(outcome) == "The server srv is not responding."


async def test_a_servers_tool_never_takes_the_place_of_a_built_in_one(here: World) -> None:
    impostor = Echo(spec=ToolSpec("read_file", "Reads", "{}"))
    here.box = here.kit.build_toolbox(more=lambda: [impostor])
    here.write("a", "real")
    assert await here.said("read_file", path="a") == "real"
    assert impostor.given == []


async def test_a_sub_agent_has_only_what_it_was_given(here: World) -> None:
    here.box = here.kit.build_toolbox(
        allowed_tools=["read_file", "srv__echo"], more=lambda: [Echo()]
    )
    assert [spec.name for spec in here.box.offered_specs()] == ["read_file", "srv__echo"]
    assert "There is no tool 'write_file'" in await here.said("write_file", path="a", content="")


async def test_a_full_disk_is_not_hidden_in_an_outcome(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(content: object, about: object) -> None:
        raise StoreFull("No room.")

    monkeypatch.setattr(here.cache, "store_content", full)
    with pytest.raises(StoreFull):
        await here.run("list_files")


async def test_without_a_sandbox_every_command_asks(tmp_path: Path) -> None:
    async with world(tmp_path, mode=PermissionMode.ALLOW_ALL) as made:
        made.kit.permissions.sandboxed = False
        await made.run("run_command", command="true")
        await made.run("run_command", command="true")
        assert [question.scopes for question in made.person.asked] == [("once",), ("once",)]


async def test_an_answer_that_never_comes_can_be_cancelled(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.ASK
    asked = asyncio.Event()

    async def never(question: PermissionQuestion) -> PermissionAnswer:
        asked.set()
        await asyncio.Event().wait()
        raise ActionRefused("never")

    here.person.ask = never  # type: ignore[method-assign]
    run = asyncio.ensure_future(here.run("write_file", path="a", content="1"))  # noqa: TID251 -- to cancel it
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert list(here.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("chosen", "runs"),
    [
        (PermissionMode.ALLOW_EDITS, ["write_file"]),
        (PermissionMode.ALLOW_ALL, ["run_command", "write_file"]),
        (PermissionMode.READ_ONLY, []),
    ],
)
async def test_a_question_that_the_chosen_mode_would_not_ask_waits_no_longer(
    here: World, chosen: PermissionMode, runs: list[str]
) -> None:
    permissions = here.kit.permissions
    permissions.mode = PermissionMode.ASK
    permissions.sandboxed = True
    open_questions: list[str] = []
    both_asked = asyncio.Event()

    async def never(question: PermissionQuestion) -> PermissionAnswer:
        open_questions.append(question.call.name)
        if len(open_questions) == 2:
            both_asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            open_questions.remove(question.call.name)
        raise ActionRefused("never")

    here.person.ask = never  # type: ignore[method-assign]
    calls = {
        "write_file": asyncio.ensure_future(here.run("write_file", path="a", content="1")),  # noqa: TID251 -- they run side by side
        "run_command": asyncio.ensure_future(here.run("run_command", command="true")),  # noqa: TID251 -- the same
    }
    await both_asked.wait()

    permissions.mode = chosen
    permissions.allow_what_chosen_mode_allows()
    for name in runs:
        outcome = await calls[name]
        assert outcome.ok, outcome
    assert sorted(open_questions) == sorted(set(calls) - set(runs))
    for running in calls.values():
        running.cancel()
    await asyncio.gather(*calls.values(), return_exceptions=True)
    assert (here.folder / "a").exists() == ("write_file" in runs)


async def test_what_changed_between_two_turns_belongs_to_no_step_of_the_next_call(
    here: World,
) -> None:
    # Nothing is stored here, so the cache need not take many contents at once.
    cache = cast("Any", here.cache)
    checkpoints = Checkpoints([here.folder], cache, file=here.folder.parent / "checkpoints")
    here.kit.resources = replace(here.kit.resources, checkpoints=checkpoints)
    here.box = here.kit.build_toolbox()
    nothing = Digest.of_content(b"")
    step = OpenStep("", "c", "command", 0, nothing, is_between_turns=True)
    checkpoints.steps.open.append(step)
    await here.run("read_file", conversation="another", path="nothing")
    assert step.is_between_turns, "it is of another conversation"
    await here.run("read_file", conversation="c", path="nothing")
    assert not step.is_between_turns


@pytest.mark.parametrize("is_ready", [True, False])
async def test_who_waits_for_the_first_checkpoint_is_told_and_nobody_else(
    here: World, is_ready: bool
) -> None:
    cache = cast("Any", here.cache)
    checkpoints = Checkpoints([here.folder], cache, file=here.folder.parent / "checkpoints")
    here.kit.resources = replace(here.kit.resources, checkpoints=checkpoints)
    here.box = here.kit.build_toolbox()
    if is_ready:
        await checkpoints.begin_step("", "c", "command")
    assert checkpoints.is_ready == is_ready
    await here.run("run_command", command="true")
    told = [words for words in here.person.shown if "Waiting for the first checkpoint" in words]
    assert len(told) == (not is_ready)


def test_who_decided_about_an_action_and_how_is_a_fact() -> None:
    allowed = PermissionOutcome(decided_by="user", scope="always", device="phone")
    assert allowed.permission_as_fact("c1") == Decided(
        "c1", allowed=True, by="user", scope="always", device="phone"
    )
    refused = PermissionOutcome(decided_by="rule", refusal="It must not be done.")
    fact = refused.permission_as_fact("c2")
    assert (fact.call, fact.allowed, fact.by) == ("c2", False, "rule")
