"""What is shown is known in one place, and everybody who listens asks it there."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.gui.shown_state import ShownState
from tests.gui.fake_desk import FakeSession, FakeWorkbench


def test_what_changes_is_told_after_it_has_changed_and_what_is_left_before(tmp_path: Path) -> None:
    showing = ShownState()
    heard = list[tuple[str, object]]()
    bench = FakeWorkbench("one", "teal", tmp_path)
    session = FakeSession("c")
    showing.about_to_change.connect(lambda: heard.append(("leaving", showing.session)))
    showing.workspace_changed.connect(lambda: heard.append(("workspace", showing.bench)))
    showing.conversation_changed.connect(lambda: heard.append(("conversation", showing.session)))
    showing.moment_changed.connect(lambda: heard.append(("moment", showing.moment)))
    showing.page_changed.connect(lambda: heard.append(("page", showing.page)))
    showing.set_shown_workspace(bench)
    showing.set_shown_conversation(session)
    showing.set_shown_moment(7)
    showing.set_shown_moment(7)
    showing.set_shown_page("cache")
    showing.set_shown_conversation(None)
    assert heard == [
        ("leaving", None),
        ("workspace", bench),
        ("leaving", None),
        ("conversation", session),
        ("moment", 7),
        ("page", "cache"),
        ("leaving", session),
        ("conversation", None),
    ]
    assert showing.moment is None
