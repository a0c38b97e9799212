"""Describes what a workspace or a conversation is doing."""

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.translation import tr

WORKING_STATES = frozenset({ConversationActivity.THINKING, ConversationActivity.TOOLS, ConversationActivity.ASKING})


def describe_running_state(running: ConversationActivity) -> str:
    return {
        ConversationActivity.IDLE: tr("idle"),
        ConversationActivity.THINKING: tr("running"),
        ConversationActivity.TOOLS: tr("running"),
        ConversationActivity.ASKING: tr("waiting for you"),
        ConversationActivity.FAILED: tr("failed"),
    }[running]
