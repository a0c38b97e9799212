"""Ends the turns that a killed program left open, so that they do not stay open for ever.

Only a process that has the workspace to itself may do so, because then no open turn
runs on this computer.
"""

from helix_desktop.engine.facts import TurnEnd, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import CLOSED
from helix_desktop.workbench.open_workbench import Workbench


async def end_interrupted_turn(session: Session) -> bool:
    """Record that the last turn of a conversation that does not work was interrupted. Returns
    whether one was open.
    """
    if session.agent or session.is_working:
        return False
    if not session.conversation.state.branch.turn.running:
        return False
    await session.conversation.append_facts(TurnEnded(TurnEnd.FAILED, CLOSED))
    return True


async def end_interrupted_turns(bench: Workbench, *, keep: str = "") -> list[str]:
    """End open turns in the conversations of this computer, except in `keep`. Returns
    those that had one.
    """
    ended_conversations: list[str] = []
    for conversation in await bench.workspace.journal.conversations_with_open_turn():
        row = bench.conversation_row(conversation)
        if conversation == keep or row is None:
            continue
        # Another program or computer may be running this turn.
        if row.agent or bench.sharing.other_machine_of_last_write(conversation):
            continue
        session = await bench.open_session(conversation)
        was_ended = await end_interrupted_turn(session)
        if was_ended:
            ended_conversations.append(conversation)
    return ended_conversations
