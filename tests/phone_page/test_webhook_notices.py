"""What a phone is told of: what has waited, and what has taken long."""

from __future__ import annotations

import pytest

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.phone_page.webhook_notices import Notice, NoticeChooser, NoticeKind
from helix_desktop.workspace_host.host_interface import HostListRow

IDLE = ConversationActivity.IDLE
THINKING = ConversationActivity.THINKING
TOOLS = ConversationActivity.TOOLS
ASKING = ConversationActivity.ASKING
FAILED = ConversationActivity.FAILED


def kinds_of(*changes: tuple[float, ConversationActivity], parent: str = "") -> list[NoticeKind]:
    """What is told if a conversation does this at these seconds."""
    chooser = NoticeChooser()
    told: list[NoticeKind] = []
    for now, running in changes:
        row = HostListRow(ConversationListRow("c", "Title", 0.0, parent=parent), running)
        told += [notice.kind for notice in chooser.choose_notices("w", [row], 1_000.0 + now)]
    return told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([(0, IDLE), (2, ASKING), (10, ASKING), (15, THINKING)], []),
        ([(0, THINKING), (2, ASKING), (21, ASKING)], []),
        ([(0, THINKING), (2, ASKING), (22, ASKING), (60, ASKING)], [NoticeKind.WAITS]),
        (
            [(0, ASKING), (20, ASKING), (21, TOOLS), (22, ASKING), (42, ASKING)],
            [NoticeKind.WAITS, NoticeKind.WAITS],
        ),
        ([(0, IDLE), (1, THINKING), (59, IDLE)], []),
        ([(0, IDLE), (1, THINKING), (30, TOOLS), (61, IDLE), (70, IDLE)], [NoticeKind.DONE]),
        ([(0, THINKING), (61, FAILED), (90, FAILED)], [NoticeKind.FAILED]),
        ([(0, FAILED), (90, FAILED)], []),
        ([(0, THINKING), (61, IDLE), (62, THINKING), (70, IDLE)], [NoticeKind.DONE]),
    ],
)
def test_what_has_waited_or_taken_long_is_told_once(
    changes: list[tuple[float, ConversationActivity]], told: list[NoticeKind]
) -> None:
    assert kinds_of(*changes) == told


def test_the_end_of_a_sub_agent_is_not_told_but_its_question_is() -> None:
    assert kinds_of((0, THINKING), (61, IDLE), parent="p") == []
    assert kinds_of((0, ASKING), (20, ASKING), parent="p") == [NoticeKind.WAITS]


def test_a_command_that_ends_with_its_turn_is_told_if_it_has_taken_long() -> None:
    chooser = NoticeChooser()
    row = HostListRow(ConversationListRow("c", "Title", 0.0), THINKING)
    for workspace, began in (("long", 1_000.0), ("short", 1_050.0)):
        assert chooser.choose_notices(workspace, [row], began) == []
    assert chooser.choose_notices_of_closed({"long", "short"}, 1_060.0) == []
    gone = [Notice(NoticeKind.GONE, "Title")]
    assert chooser.choose_notices_of_closed((), 1_060.0) == gone
    assert chooser.choose_notices_of_closed((), 1_061.0) == []


def test_a_notice_has_content_only_if_the_user_says_so() -> None:
    notice = Notice(NoticeKind.WAITS, "Secret plan: run rm -rf")
    assert notice.text(has_content=False) == "An agent needs you."
    assert notice.text(has_content=True) == "An agent needs you. Secret plan: run rm -rf"
    assert len(Notice(NoticeKind.DONE, "x" * 5_000).text(has_content=True)) == 300
