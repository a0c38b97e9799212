"""Implements `InstalledExtensions` of `gui/settings/installation_port.py`: what is installed, and
what the user decides about it.
"""

import asyncio
from collections.abc import Sequence

from helix_desktop.errors import ActionRefused
from helix_desktop.extensions.installed_extensions import AllowedExtensions, KnownExtension
from helix_desktop.gui.settings.installation_port import ShownExtension
from helix_desktop.gui.translation import tr
from helix_desktop.program_folders import ProgramFolders


class ExtensionAdministration:
    """Each call reads the files again, because packages are installed by other programs."""

    def __init__(self, where: ProgramFolders) -> None:
        self._where = where

    async def list_extensions(self) -> Sequence[ShownExtension]:
        return await asyncio.to_thread(self._list_extensions)

    def _list_extensions(self) -> Sequence[ShownExtension]:
        shown: list[ShownExtension] = []
        for known in AllowedExtensions(self._where).list_extensions():
            shown.append(_show_extension(known))
        return shown

    async def allow_extension(self, shown: ShownExtension) -> None:
        """Allow what was shown. Raises ActionRefused if its files have changed since."""
        await asyncio.to_thread(self._allow_extension, shown)

    def _allow_extension(self, shown: ShownExtension) -> None:
        extensions = AllowedExtensions(self._where)
        installed = extensions.find_extension(shown.name).installed
        if installed.files_sha256 != shown.files_sha256 or installed.version != shown.version:
            raise ActionRefused(
                tr(
                    "The extension {name} has changed since it was shown, so it was not allowed. Look at it again.",
                    name=shown.name,
                )
            )
        extensions.allow_extension(installed)

    async def switch_extension_off(self, name: str) -> None:
        await asyncio.to_thread(AllowedExtensions(self._where).switch_off, name)


def _show_extension(known: KnownExtension) -> ShownExtension:
    installed = known.installed
    return ShownExtension(
        installed.name,
        installed.package,
        installed.version,
        installed.target,
        len(installed.files),
        installed.files_sha256,
        known.state.value,
        known.why,
    )
