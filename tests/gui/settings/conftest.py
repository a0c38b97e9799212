"""An installation to set up, for the pages of the settings."""

from __future__ import annotations

import pytest

from tests.gui.fake_setup import FakeInstallation


@pytest.fixture
def program() -> FakeInstallation:
    return FakeInstallation()
