"""Pairing from the settings: a code is created only while the page answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.desktop.phone_devices import PagePhoneDevices
from helix_desktop.errors import ActionRefused
from helix_desktop.phone_page.paired_devices import DEVICES_FILE
from helix_desktop.program_folders import find_program_folders
from helix_desktop.program_settings import PAGE_ON, ProgramSettings


async def test_no_code_is_created_while_no_page_answers(tmp_path: Path) -> None:
    where = find_program_folders(tmp_path / "home")
    where.config.mkdir(parents=True)
    ProgramSettings(where.settings_file).change_setting(PAGE_ON, True)
    with pytest.raises(ActionRefused, match="would lead nowhere"):
        await PagePhoneDevices(where).invite_device(may_allow=True)
    assert not (where.config / DEVICES_FILE).exists()
