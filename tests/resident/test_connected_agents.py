"""What the dialog offers to copy starts this program, wherever it runs from."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from helix_desktop.resident.connected_agents import list_words_that_start_this_program


def test_the_command_to_copy_exists_in_a_checkout_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a checkout, the dialog offered `helix-desktop wrap claude`, which did not exist there."""
    python, script = tmp_path / "python", tmp_path / "helix-desktop"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert list_words_that_start_this_program() == [str(python), "-m", "helix_desktop"]
    script.touch()
    assert list_words_that_start_this_program() == [str(script)]
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/helix-desktop")
    assert list_words_that_start_this_program() == ["helix-desktop"]
