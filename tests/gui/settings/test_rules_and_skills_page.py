from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QCheckBox, QLabel, QLineEdit, QListWidget, QPushButton, QWidget

from helix_desktop.errors import HelixError, StoreFull
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.trust_dialog import TrustDialog
from helix_desktop.gui.settings.rules_and_skills_page import RulesAndSkillsPage
from helix_desktop.gui.theme import Theme
from helix_desktop.project.project_item import ProjectItem
from tests.gui.fake_desk import FakeDesk, now

ITEM = ProjectItem(
    "skill",
    "pdf",
    Path("/x/SKILL.md"),
    "---\nname: pdf\n---\nRead it.",
    "Read it.",
    "Reads PDF files",
)


def test_items_are_shown_trusted_and_switched(theme: Theme, desk: FakeDesk) -> None:
    bench = desk.benches["parser"]
    bench.rules = [
        ITEM,
        replace(
            ITEM, kind="hook", name="Stop", path=Path("/x/s.json"), trusted=True, why="it says so"
        ),
        replace(
            ITEM, kind="rules", name="AGENTS.md", path=Path("/x/AGENTS.md"), why="nobody trusts it"
        ),
        replace(
            ITEM,
            kind="rules",
            name="off",
            path=Path("/x/off"),
            trusted=True,
            off=True,
            why="it is off",
        ),
    ]
    page = RulesAndSkillsPage(theme, bench, BackgroundRunner(now))
    words = [label.text() for label in page.findChildren(QLabel)]
    assert "New: not trusted yet" in words
    assert [text for text in words if text.startswith("In use")] == [
        "In use",
        "In use because it says so.",
    ]
    next(
        each for each in page.findChildren(QPushButton) if each.accessibleName() == "Read: pdf"
    ).click()
    dialog = page.findChildren(TrustDialog)[0]
    next(each for each in dialog.findChildren(QPushButton) if each.text() == "Trust").click()
    assert bench.trusted == [ITEM]
    next(
        each for each in page.findChildren(QCheckBox) if each.accessibleName() == "Use pdf"
    ).click()
    assert bench.switched == [("/x/SKILL.md", False)]


def test_of_many_those_whose_end_was_shown_are_trusted_at_once(
    theme: Theme, desk: FakeDesk
) -> None:
    bench = desk.benches["parser"]
    bench.rules = [
        replace(ITEM, name=f"skill-{number}", path=Path(f"/x/{number}/SKILL.md"), text="short")
        for number in range(4)
    ]
    long = "\n".join(f"line {number}" for number in range(400))
    bench.rules[1] = replace(bench.rules[1], text=long)
    page = RulesAndSkillsPage(theme, bench, BackgroundRunner(now))
    button_that_begins(page, "Review all 4").click()
    dialog = page.findChildren(TrustDialog)[0]
    names = dialog.findChildren(QListWidget)[0]
    agree = button_that_begins(dialog, "Trust")
    for row in (1, 2):  # the end of the long one is never shown
        names.setCurrentRow(row)
    assert agree.text() == "Trust the 2 items you have read (of 4)"
    agree.click()
    assert bench.trusted == [bench.rules[0], bench.rules[2]]


def test_no_hook_is_offered_to_run_outside_the_sandbox(theme: Theme, desk: FakeDesk) -> None:
    bench = desk.benches["parser"]
    bench.rules = [replace(ITEM, kind="hook", name="Stop", path=Path("/x/s.json"), trusted=True)]
    page = RulesAndSkillsPage(theme, bench, BackgroundRunner(now))
    assert not any("outside" in each.text() for each in page.findChildren(QPushButton))


def test_many_items_are_filtered(theme: Theme, desk: FakeDesk) -> None:
    bench = desk.benches["parser"]
    bench.rules = [
        replace(ITEM, name=f"skill-{n}", path=Path(f"/x/{n}/SKILL.md")) for n in range(12)
    ]
    page = RulesAndSkillsPage(theme, bench, BackgroundRunner(now))
    titles = [label for label in page.findChildren(QLabel) if label.text().startswith("skill-")]
    assert [label.text() for label in titles][2:4] == ["skill-2", "skill-3"]
    page.findChildren(QLineEdit)[0].setText("SKILL-11")
    assert [label.text() for label in titles if label.isVisibleTo(page)] == ["skill-11"]
    button_that_begins(page, "Review all").click()
    dialog = page.findChildren(TrustDialog)[0]
    dialog.filter.setText("skill-7")
    names = dialog.findChildren(QListWidget)[0]
    shown = [names.item(row) for row in range(12) if not names.item(row).isHidden()]
    assert [item.text() for item in shown] == ["✓ Skill: skill-7"]


def button_that_begins(parent: QWidget, words: str) -> QPushButton:
    return next(
        button for button in parent.findChildren(QPushButton) if button.text().startswith(words)
    )


def test_the_filter_stays_in_sight_as_long_as_it_hides_items(theme: Theme, desk: FakeDesk) -> None:
    bench = desk.benches["parser"]
    bench.rules = [
        replace(ITEM, name=f"skill-{n}", path=Path(f"/x/{n}/SKILL.md")) for n in range(12)
    ]
    page = RulesAndSkillsPage(theme, bench, BackgroundRunner(now))
    field = page.findChildren(QLineEdit)[0]
    field.setText("skill-11")
    bench.rules = bench.rules[:3]
    page.refresh_project_items()
    assert field.isVisibleTo(page)


def test_what_the_user_must_read_comes_before_what_is_off(theme: Theme, desk: FakeDesk) -> None:
    bench = desk.benches["parser"]
    bench.rules = [
        replace(ITEM, name="item-1", path=Path("/x/1/SKILL.md"), trusted=True, off=True),
        replace(ITEM, name="item-2", path=Path("/x/2/SKILL.md")),
        replace(ITEM, name="item-3", path=Path("/x/3/SKILL.md"), about="a" * 500),
    ]
    page = RulesAndSkillsPage(theme, bench, BackgroundRunner(now))
    words = [label.text() for label in page.findChildren(QLabel)]
    names = [text for text in words if text.startswith("item-")]
    assert names == ["item-2", "item-3", "item-1"]
    assert "a" * 400 + "…" in words


def test_a_switch_that_could_not_be_saved_shows_what_is_so(
    theme: Theme, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object, item: str, *, on: bool) -> None:
        raise StoreFull(f"The disk is full, so {item}: {on} was not saved.")

    bench = desk.benches["parser"]
    bench.rules = [ITEM]
    monkeypatch.setattr(type(bench.project), "switch_item", refuse)
    runner = BackgroundRunner(now)
    errors: list[HelixError] = []
    runner.failed.connect(errors.append)
    page = RulesAndSkillsPage(theme, bench, runner)
    page.findChildren(QCheckBox)[0].click()
    assert [type(error) for error in errors] == [StoreFull]
    boxes = [box for box in page.findChildren(QCheckBox) if box.isVisibleTo(page)]
    assert [box.isChecked() for box in boxes] == [True]
