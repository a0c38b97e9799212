"""What a model recalls from a part of a conversation that the user left says so."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.engine.facts import ConversationStarted, ToolReturned
from helix_desktop.engine.session import Session
from helix_desktop.workbench import Workbench
from tests.workbench.conftest import Desks
from tests.workbench.test_open_workbench import bench_on, told, yes

HERE = "from a part of this conversation that was left"
ELSEWHERE = "from a part of a conversation that was left"


def results(session: Session) -> list[ToolReturned]:
    return [each.fact for each in session.all_facts if isinstance(each.fact, ToolReturned)]


async def last_output(bench: Workbench, session: Session) -> str:
    content = await bench.workspace.cache.read_content(results(session)[-1].output.digest)
    return content.decode()


async def test_an_output_that_a_rewind_left_is_not_taken_for_one_of_the_conversation(
    desks: Desks, folder: Path
) -> None:
    (folder / "plan.txt").write_text("walnut = 1\n")
    bench = await bench_on(desks, folder)
    session = await bench.start_conversation()
    await told(session, "hello first")
    first = session.conversation.state.seq
    await told(session, "read plan.txt")
    digest = results(session)[-1].output.digest.hex
    await bench.workspace.index.wait_until_indexed()
    await told(session, "find walnut")
    assert digest in await last_output(bench, session)
    assert "left" not in await last_output(bench, session)

    await session.rewind_to(first)
    await told(session, "find walnut")
    assert HERE in await last_output(bench, session)
    await told(session, f"recall {digest}")
    assert (await last_output(bench, session)).startswith(f"[{HERE}]\n")
    other = await bench.start_conversation()
    await told(other, f"recall {digest}")
    assert (await last_output(bench, other)).startswith(f"[{ELSEWHERE}]\n")

    await told(other, "read plan.txt")  # Now a conversation has it again.
    await told(session, f"recall {digest}")
    assert (await last_output(bench, session)).startswith("walnut")


async def test_what_a_sub_agent_saw_is_left_with_the_call_that_started_it(
    desks: Desks, folder: Path
) -> None:
    bench = await bench_on(desks, folder)
    session = await bench.start_conversation()
    yes(session)
    await told(session, "hello first")
    first = session.conversation.state.seq
    await told(session, "delegate run echo from-below")
    child = results(session)[-1].child
    facts_of_child = await bench.read_conversation_facts(child)
    assert isinstance(facts_of_child[0].fact, ConversationStarted)
    (seen,) = [each.fact for each in facts_of_child if isinstance(each.fact, ToolReturned)]
    digest = seen.output.digest
    await bench.workspace.index.wait_until_indexed()
    assert await bench.workspace.index.find_left_entries([digest]) == {}

    await session.rewind_to(first)
    left = await bench.workspace.index.find_left_entries([digest])
    assert left == {digest: frozenset([child])}
