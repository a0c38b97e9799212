"""The README on the Python Package Index has no link that leads nowhere."""

import importlib.util
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as a build loads it. Hatchling itself is only there during a build."""
    plugin: Any = types.ModuleType("hatchling.metadata.plugin.interface")
    plugin.MetadataHookInterface = object
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, plugin.__name__, plugin)
    spec = importlib.util.spec_from_file_location("hook", ROOT / "packaging/metadata_hook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_become_absolute_where_the_repository_is_known(hook: Any) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    made = hook.readme_with_absolute_links(readme, "https://example.org/helix")
    targets = re.findall(r"\]\(([^)]+)\)", made)
    assert targets
    assert all(target.startswith("https://") for target in targets)
    assert "https://example.org/helix/raw/main/resources/help/pictures/chat.png" in targets


def test_without_a_repository_nothing_is_linked_to_nowhere(hook: Any) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    made = hook.readme_with_absolute_links(readme, "")
    assert not re.search(r"\]\((?!https://)", made)
    assert "](https://nowhere" not in made
    assert "Security" in made


def test_the_repository_is_where_the_build_runs(
    hook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/helix")
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    assert hook.find_repository(tmp_path) == "https://github.com/somebody/helix"
    monkeypatch.delenv("GITHUB_REPOSITORY")
    assert hook.find_repository(tmp_path) == ""
