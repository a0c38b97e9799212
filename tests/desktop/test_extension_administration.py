"""What the settings show of the installed extensions, and what they allow: the files that were shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.desktop.extension_administration import ExtensionAdministration
from helix_desktop.errors import ActionRefused
from helix_desktop.gui.settings.installation_port import ShownExtension
from helix_desktop.program_folders import find_program_folders


def write_package(folder: Path, code: str) -> None:
    information = folder / "shown-1.0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (folder / "shown.py").write_text(code, "utf-8")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: shown\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[helix_desktop.extensions]\nshown = shown:extension\n"
    )


async def test_only_the_files_that_were_shown_are_allowed(tmp_path: Path) -> None:
    where = find_program_folders(tmp_path / "home")
    extensions = ExtensionAdministration(where)
    names = [listed.name for listed in await extensions.list_extensions()]
    assert "shown" not in names

    write_package(where.extensions_folder, "extension = 1")
    first = await find_listed(extensions)
    assert (first.state, first.version, first.target) == ("off", "1.0", "shown:extension")
    write_package(where.extensions_folder, "extension = 2")
    with pytest.raises(ActionRefused, match="has changed since it was shown"):
        await extensions.allow_extension(first)

    second = await find_listed(extensions)
    assert second.state == "off"
    await extensions.allow_extension(second)
    assert (await find_listed(extensions)).state == "allowed"
    await extensions.switch_extension_off("shown")
    assert (await find_listed(extensions)).state == "off"


async def find_listed(extensions: ExtensionAdministration) -> ShownExtension:
    (found,) = [listed for listed in await extensions.list_extensions() if listed.name == "shown"]
    return found
