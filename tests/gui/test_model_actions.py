"""The model, the effort and the permission mode that are chosen, and who keeps them."""

from __future__ import annotations

from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeWorkbench


def test_what_is_chosen_at_the_top_is_kept_by_the_workspace(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.context_panel.show()
    window.context_panel.policy.chosen.emit("observational")
    window.chat.composer.mode_chosen.emit("plan")
    assert (bench.policy_name, bench.permission_mode) == ("observational", "plan")
    assert window.context_panel.policy.text() == "Dated notes ▾"
    assert window.chat.composer._mode.text() == "Read only ▾"


def test_a_model_that_is_chosen_elsewhere_stands_in_the_top_bar(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.main_model_name = "local/another"
    for tell in bench.workspace.watching:
        tell()
    assert window.top.model.text() == "local/another ▾"
    window.workspaces.stop_following_workspace(bench.id)
    assert bench.workspace.watching == []
