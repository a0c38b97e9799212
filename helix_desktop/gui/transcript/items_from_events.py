"""What the events of a running session change in the items of a transcript."""

from helix_desktop.engine import session_events
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import ItemChanges


def show_session_event(items: TranscriptItems, event: session_events.Event, now: float) -> ItemChanges | None:
    """None for an event that the chat does not show."""
    change: ItemChanges | None = None
    match event:
        case session_events.FactAppended(recorded):
            change = items.show_fact(recorded)
        case session_events.ReplyStreamed(_, delta):
            change = items.append_reply_delta(delta, now)
        case session_events.ToolPrinted(_, call, text):
            change = items.build_changes(items.calls.append_output(call, text))
        case session_events.CallStageChanged(_, call, stage):
            change = items.build_changes(items.calls.set_stage(call, stage, now))
        case session_events.ActivityChanged(_, running):
            change = items.set_run_state(running)
        case session_events.QuestionAsked(_, number, question):
            change = items.build_changes(items.calls.set_call_of_question(number, question.call.id))
        case session_events.QuestionAnswered(_, number):
            change = items.build_changes(items.calls.mark_call_running_after_answer(number, now))
    return change
