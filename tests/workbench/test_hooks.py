"""Hooks in a real conversation: they hold back, add words, and delay a turn by their limit only."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Text, ToolReturned, TurnEnd, UserSaid
from helix_desktop.workbench import Workbench
from tests.engine.agent import ScriptedModel, calls, says
from tests.workbench.conftest import Desks
from tests.workbench.test_bench import bench_on
from tests.workbench.test_project import model as model  # noqa: PLC0414
from tests.workbench.test_project import sent, told, trusting


def hooks(folder: Path, event: str, command: str, matcher: str = "", timeout: float = 5) -> None:
    (folder / ".claude").mkdir(exist_ok=True)
    found = {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command, "timeout": timeout}]}]}
    (folder / ".claude" / "settings.json").write_text(json.dumps({"hooks": found}))


async def ready(desks: Desks, folder: Path) -> Workbench:
    bench = await bench_on(desks, folder)
    if bench.kit.sandbox.kind == "none":
        pytest.skip("there is no sandbox here")
    await trusting(bench)
    return bench


async def test_exit_code_two_blocks_a_call_and_says_why(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    hooks(folder, "PreToolUse", 'grep -q README && { echo "Not the README." >&2; exit 2; }; exit 0', "Read")
    bench = await ready(desks, folder)
    session = await bench.new_conversation()
    await told(bench, session, model, calls("read_file", path="README.md"), calls("read_file", path="src/pairs.py"))
    first, second = [r.fact for r in session.facts if isinstance(r.fact, ToolReturned)]
    assert "A hook blocked this call, so it was not run. Not the README." in first.head
    assert second.ok


async def test_an_untrusted_hook_does_not_run(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    hooks(folder, "PreToolUse", "exit 2")
    bench = await bench_on(desks, folder)
    session = await bench.new_conversation()
    await told(bench, session, model, calls("read_file", path="README.md"))
    assert all(r.fact.ok for r in session.facts if isinstance(r.fact, ToolReturned))


async def test_words_of_hooks_reach_the_model(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    hooks(folder, "UserPromptSubmit", "echo Today is Monday.")
    bench = await ready(desks, folder)
    session = await bench.new_conversation()
    await told(bench, session, model)
    assert "Today is Monday." in sent(model)
    assert [r.fact.by for r in session.facts if isinstance(r.fact, UserSaid)] == ["", "hook:UserPromptSubmit"]


async def test_a_message_that_is_held_back_waits(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    hooks(folder, "UserPromptSubmit", "echo no secrets >&2; exit 2")
    bench = await ready(desks, folder)
    session = await bench.new_conversation()
    model.script[:] = [says("never")]
    session.send((Text("my secret"),))
    await session.idle()
    assert "no secrets" in session.why
    assert [waiting.parts for waiting in session.queue] == [(Text("my secret", 2),)]
    assert model.requests == []


async def test_a_stop_hook_sends_the_agent_on_a_few_times_at_most(
    desks: Desks, folder: Path, model: ScriptedModel
) -> None:
    hooks(folder, "Stop", "echo run the tests first >&2; exit 2")
    bench = await ready(desks, folder)
    session = await bench.new_conversation()
    end = await told(bench, session, model, says("done"), says("done"), says("done"))
    assert end.reason is TurnEnd.DONE
    assert len(model.requests) == 4
    assert "run the tests first" in sent(model)


@pytest.mark.parametrize(
    ("command", "limit", "why"),
    [
        ("sleep 600", 0.3, "did not end within"),
        ("sleep 0.1; exec >&- 2>&-; sleep 600", 0.6, "did not end within"),
        ("yes", 60, "printed more than"),
        ("kill -9 $$", 60, "exit code"),
        ("nonsense-program", 60, "exit code 127"),
    ],
)
async def test_a_hook_that_hangs_floods_or_dies_delays_by_its_limit_only(
    desks: Desks, folder: Path, model: ScriptedModel, command: str, limit: float, why: str
) -> None:
    hooks(folder, "PreToolUse", command, timeout=limit)
    bench = await ready(desks, folder)
    session = await bench.new_conversation()
    async with asyncio.timeout(60):
        await told(bench, session, model, calls("read_file", path="README.md"))
    assert all(r.fact.ok for r in session.facts if isinstance(r.fact, ToolReturned))
    assert why in next(iter(bench.hooks.last.values()))


async def test_inside_the_sandbox_a_hook_writes_only_in_the_folder(
    desks: Desks, folder: Path, model: ScriptedModel, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    hooks(folder, "PreToolUse", f"touch {folder}/inside; touch {outside}; exit 0")
    bench = await ready(desks, folder)
    session = await bench.new_conversation()
    await told(bench, session, model, calls("read_file", path="README.md"))
    assert (folder / "inside").exists()
    assert not outside.exists()
    (item,) = bench.project.now.in_force("hook")
    await bench.project.run_outside(item, on=True)
    await told(bench, session, model, calls("read_file", path="src/pairs.py"))
    assert outside.exists()
    outside.unlink()
    await bench.project.run_outside(item, on=False)
    await told(bench, session, model, calls("read_file", path="src/pairs.py"))
    assert not outside.exists()


async def test_what_a_hook_says_after_a_call_is_told_once(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    hooks(folder, "PostToolUse", 'echo \'{"decision": "block", "reason": "Format it."}\'', "Write")
    bench = await ready(desks, folder)
    await bench.choose_mode("allow edits")
    session = await bench.new_conversation()
    await told(
        bench, session, model, calls("write_file", path="a.txt", content="x"), calls("read_file", path="README.md")
    )
    assert sent(model).count("Format it.") == 1


async def test_a_command_of_the_folder_is_filled_in(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    place = folder / ".claude" / "commands"
    place.mkdir(parents=True)
    (place / "look.md").write_text("---\nallowed-tools: Bash(echo:*)\n---\nLook at $1: !`echo listed`\nand @README.md")
    bench = await ready(desks, folder)
    await bench.choose_mode("allow all")
    session = await bench.new_conversation()
    first, file = await bench.expanded(session, (Text("/look here"),))
    assert isinstance(first, Text)
    assert first.text.startswith("Look at here: listed")
    assert getattr(file, "name", "") == "README.md"
    assert await bench.expanded(session, (Text("/unknown x"),)) == (Text("/unknown x"),)
    assert [item.name for item in bench.commands()] == ["look"]


async def test_shell_lines_of_a_command_ask_first(desks: Desks, folder: Path, model: ScriptedModel) -> None:
    place = folder / ".claude" / "commands"
    place.mkdir(parents=True)
    (place / "look.md").write_text("---\nallowed-tools: Bash(touch:*)\n---\n!`touch made`")
    bench = await ready(desks, folder)
    await bench.choose_mode("read only")
    session = await bench.new_conversation()
    (first,) = await bench.expanded(session, (Text("/look"),))
    assert "read-only" in getattr(first, "text", "")
    assert not (folder / "made").exists()
