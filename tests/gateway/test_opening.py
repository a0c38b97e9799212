"""Workspaces of agents: one for each project, and few of them open at once."""

from __future__ import annotations

from pathlib import Path

from helix_desktop import places
from helix_desktop.gateway import opening, project_workspace
from helix_desktop.store.workspaces import Workspaces
from tests.faults.gateway_histories import _nobody


async def _not_served(_: object) -> None:
    return None


async def test_of_many_projects_few_stay_open_and_each_opens_again(tmp_path: Path) -> None:
    where = places.find(tmp_path)
    workspaces = Workspaces(where.workspaces)
    names = [workspaces.create(f"project {number}").id for number in range(opening.OPEN_AT_MOST + 3)]
    opened = opening.OpenWorkspaces(where, "", _not_served, _nobody)
    try:
        async with opened.used(names[0]) as first:
            for name in names[1:]:
                async with opened.used(name):
                    pass
            await opened.closed_idle()
            assert len(opened.all()) == opening.OPEN_AT_MOST
            assert first in opened.all()  # it is used, though it was asked for longest ago
        async with opened.used(names[1]) as again:
            assert list(await again.figures()) == []
    finally:
        await opened.aclose()


def test_a_folder_has_the_workspace_of_its_project(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "workspaces")
    below, beside = tmp_path / "work" / "thesis" / "text", tmp_path / "other" / "thesis"
    for folder in (below, beside, below.parent / ".git"):
        folder.mkdir(parents=True)
    assert project_workspace.find_project_workspace(workspaces.list(), below) is None
    made = project_workspace.make_project_workspace(workspaces, below)
    assert (made.name, made.settings.roots) == ("thesis", (str(below.parent),))
    known = workspaces.list()
    assert project_workspace.find_project_workspace(known, below) == made
    assert project_workspace.find_project_workspace(known, below.parent) == made
    assert project_workspace.find_project_workspace(known, below.parent.parent) is None
    assert project_workspace.find_project_workspace(known, beside) is None
    assert project_workspace.make_project_workspace(workspaces, beside).name == "thesis (other)"


def test_a_workspace_above_the_project_is_not_the_projects(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "workspaces")
    project = tmp_path / "all" / "one"
    (project / ".git").mkdir(parents=True)
    workspaces.create("all", project.parent)
    assert project_workspace.find_project_workspace(workspaces.list(), project) is None


def test_the_home_folder_is_no_project(tmp_path: Path) -> None:
    assert not project_workspace.has_project(tmp_path, tmp_path)
    assert not project_workspace.has_project(tmp_path.parent, tmp_path)
    assert project_workspace.has_project(tmp_path / "work", tmp_path)
