"""What a folder brings, in a real conversation: rules come into force, skills are read,
word for word over every fold.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helix_desktop.engine.facts import FoldKind, ModelSet, Text, ToolsOffered, TurnEnded, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.project import project_files as folders
from helix_desktop.workbench import Workbench
from tests.engine.agent import Scripted, ScriptedModel, calls, says
from tests.workbench.conftest import Desks
from tests.workbench.test_open_workbench import bench_on


async def told(
    bench: Workbench, session: Session, model: ScriptedModel, *script: Scripted
) -> TurnEnded:
    model.script[:] = [*script, says("done")]
    session.send_message((Text("go"),))
    await asyncio.wait_for(session.wait_until_idle(), 60)
    end = session.all_facts[-1].fact
    assert isinstance(end, TurnEnded)
    return end


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedModel:
    scripted = ScriptedModel([])
    monkeypatch.setattr(Workbench, "_model_client_for", lambda *_: scripted)
    monkeypatch.setattr(folders, "user_home", lambda: tmp_path / "own")
    return scripted


async def trusting(bench: Workbench) -> None:
    await bench.project.trust_items(*bench.project.read_project_folders().items_to_ask_about())


def skill(folder: Path, name: str, about: str, body: str) -> Path:
    path = folder / ".claude" / "skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {about}\n---\n{body}\n")
    return path


def sent(model: ScriptedModel) -> str:
    request = model.requests[-1]
    return "\n".join(
        getattr(part, "text", "") for message in request.messages for part in message.parts
    )


async def test_nested_rules_come_into_force_behind_the_prefix(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    (folder / "src" / "AGENTS.md").write_text("In src: four spaces.")
    bench = await bench_on(desks, folder)
    session = await bench.start_conversation()
    await told(bench, session, model, calls("read_file", path="src/pairs.py"))
    assert "four spaces" not in sent(model)  # nobody has agreed to it
    await trusting(bench)
    await told(bench, session, model, calls("read_file", path="README.md"))
    assert sent(model).count("In src: four spaces.") == 1
    before = model.requests[-2]
    after = model.requests[-1]
    assert before.system == after.system
    assert after.messages[: len(before.messages) - 1] == before.messages[: len(before.messages) - 1]
    (folder / "src" / "AGENTS.md").unlink()
    await told(bench, session, model)
    assert "no longer holds" in sent(model)


async def test_a_skill_is_read_when_it_is_used_and_a_change_is_taken_up(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    path = skill(folder, "pdf", "Reads PDF files", "Use the parser.")
    bench = await bench_on(desks, folder)
    await trusting(bench)
    session = await bench.start_conversation()
    await told(
        bench, session, model, calls("call_tool", name="use_skill", arguments={"name": "pdf"})
    )
    assert (
        "- pdf: Reads PDF files"
        in model.requests[0].tools[-2].description + model.requests[0].tools[-1].description
    )
    assert "Use the parser." in sent(model)
    path.write_text(path.read_text().replace("Use the parser.", "Use the other one."))
    await told(bench, session, model)
    assert "Use the other one." not in sent(model)
    await trusting(bench)
    await told(bench, session, model)
    assert "Use the other one." in sent(model)


async def test_rules_and_skills_stand_word_for_word_after_ten_handovers(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    (folder / "AGENTS.md").write_text("Top: never push.\n\n- one\n- two\n")
    (folder / "src" / "CLAUDE.md").write_text("In src: four spaces.\n\tand a tab")
    skill(folder, "pdf", "Reads PDF files", "Use the parser.\n\n1. Open\n2. Read")
    bench = await bench_on(desks, folder)
    await trusting(bench)
    session = await bench.start_conversation()
    await told(
        bench, session, model,
        calls("read_file", path="src/pairs.py"), calls("call_tool", name="use_skill", arguments={"name": "pdf"}),
    )  # fmt: skip
    await trusting(bench)  # the rules of src are known since a file there was read
    for round_ in range(10):
        for number in range(4):
            (folder / f"{round_}-{number}.txt").write_text(f"line {round_} {number}\n" * 400)
            await told(bench, session, model, calls("read_file", path=f"{round_}-{number}.txt"))
        model.script[:] = [says("Nothing worth keeping.")] * 3
        await session.fold_on_request(FoldKind.HANDOVER)
    await told(bench, session, model)
    assert session.conversation.state.branch.handovers == 10
    whole = model.requests[-1].system + sent(model)
    for text in (
        "Top: never push.\n\n- one\n- two",
        "In src: four spaces.\n\tand a tab",
        "Use the parser.\n\n1. Open\n2. Read",
    ):
        assert whole.count(text) == 1


async def test_a_hundred_skills_stay_within_the_budget(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    for number in range(100):
        skill(
            folder,
            f"skill-{number}",
            f"Does the thing number {number} " + "with many words about it " * 20,
            "Body",
        )
    bench = await bench_on(desks, folder)
    await trusting(bench)
    session = await bench.start_conversation()
    await told(bench, session, model, calls("find_tools", query="thing number 97"))
    offered = [r.fact for r in session.all_facts if isinstance(r.fact, ToolsOffered)][-1]
    find = next(spec for spec in offered.tools if spec.name == "find_tools")
    assert bench._shared.access.tokens.count_tokens(find.description) <= 2_000 + 200
    assert "more: search" in find.description
    assert "The skill skill-97" in sent(model)


async def test_what_is_switched_off_is_not_used(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    (folder / "AGENTS.md").write_text("Top rule.")
    bench = await bench_on(desks, folder)
    await trusting(bench)
    session = await bench.start_conversation()
    await told(bench, session, model)
    assert "Top rule." in model.requests[-1].system
    await bench.project.switch_item(str(folder / "AGENTS.md"), on=False)
    await told(bench, session, model)
    assert "Top rule." not in model.requests[-1].system
    await bench.project.switch_item(str(folder / "AGENTS.md"), on=True)
    await told(bench, session, model)
    assert "Top rule." in model.requests[-1].system
    assert [r.fact.by for r in session.all_facts if isinstance(r.fact, UserSaid)] == [""] * 3
    assert any(isinstance(r.fact, ModelSet) for r in session.all_facts)
