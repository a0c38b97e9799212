"""Describes what a workspace or a conversation is doing."""

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.translation import translate_name

WORKING_STATES = frozenset(
    {ConversationActivity.THINKING, ConversationActivity.TOOLS, ConversationActivity.ASKING}
)


def describe_running_state(running: ConversationActivity) -> str:
    return translate_name("state of a conversation", running)
