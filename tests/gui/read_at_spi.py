"""What a screen reader is told over the bus by one program: run by the system's Python,
which has pyatspi; walk_accessibility.py starts it.

`python3 read_at_spi.py PID`: a line for each node of the active window that is shown,
and `FAULT …` for each that can be operated and has no name.
"""

import sys
from typing import Any

import pyatspi

OPERATED = {
    pyatspi.ROLE_PUSH_BUTTON, pyatspi.ROLE_CHECK_BOX, pyatspi.ROLE_RADIO_BUTTON, pyatspi.ROLE_COMBO_BOX, pyatspi.ROLE_ENTRY,
    pyatspi.ROLE_TEXT, pyatspi.ROLE_SLIDER, pyatspi.ROLE_SPIN_BUTTON, pyatspi.ROLE_LIST_ITEM, pyatspi.ROLE_TREE_ITEM, pyatspi.ROLE_MENU_ITEM,
    pyatspi.ROLE_LIST, pyatspi.ROLE_TABLE, pyatspi.ROLE_TREE, pyatspi.ROLE_PAGE_TAB, pyatspi.ROLE_LINK, pyatspi.ROLE_TOGGLE_BUTTON,
}  # fmt: skip
ROWS = 40


def labels_of(node: Any) -> list[str]:
    """The names of its labels: on Linux, Qt tells the name of a choice by these alone."""
    kinds = [
        each
        for each in node.getRelationSet()
        if each.getRelationType() == pyatspi.RELATION_LABELLED_BY
    ]
    return [each.getTarget(at).name for each in kinds for at in range(each.getNTargets())]


def read(node: Any, depth: int, told: list[str]) -> None:
    states = node.getState()
    if not states.contains(pyatspi.STATE_SHOWING) and depth:
        return
    said = [
        str(each).removeprefix("state_").removeprefix("STATE_")
        for each in map(pyatspi.stateToString, states.getStates())
    ]
    role = node.getRole()
    name = node.name
    told.append(
        f"{'  ' * depth}{node.getRoleName()} {name!r} {node.description[:60]!r} {labels_of(node)} {' '.join(sorted(said))}"
    )
    if role == pyatspi.ROLE_COMBO_BOX and not any(each.strip() for each in labels_of(node)):
        told.append(f"FAULT over the bus only the value of a choice: {name!r}")
    if role in OPERATED and not name.strip() and states.contains(pyatspi.STATE_FOCUSABLE):
        told.append(f"FAULT over the bus without a name: {node.getRoleName()}")
    for at in range(min(node.childCount, ROWS)):
        child = node.getChildAtIndex(at)
        if child is not None:
            read(child, depth + 1, told)


def main() -> None:
    desktop = pyatspi.Registry.getDesktop(0)
    mine = [
        each for each in desktop if each is not None and each.get_process_id() == int(sys.argv[1])
    ]
    if not mine:
        print("FAULT the program is not on the bus")
        return
    windows = [
        each
        for each in mine[0]
        if each is not None and each.getState().contains(pyatspi.STATE_ACTIVE)
    ] or list(mine[0])
    for window in windows:
        told: list[str] = []
        read(window, 0, told)
        print("\n".join(told))


main()
