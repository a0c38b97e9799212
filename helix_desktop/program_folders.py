"""Where the program stores things: the platform's directories, or one folder for everything.

`HELIX_HOME` or `--home` sets the one folder, which can be copied or deleted as a whole.
"""

import os
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import list_at
from helix_desktop.processes import folders_of_agents

APP = "helix-desktop"
WORKSPACE_SETTINGS_NAME = "workspace.toml"
# The variable in which `wrap` tells an agent its gateway addresses.
WRAP_ADDRESSES = "HELIX_WRAP_ADDRESSES"
SOCKET_PATH_LIMIT = 90  # Systems allow 104 to 108 bytes for a socket's path, file name included.


@dataclass(frozen=True, slots=True)
class ProgramFolders:
    """`data` contains the workspaces. `run`, which is private, has the socket of the
    running program.
    """

    data: Path
    config: Path
    logs: Path
    run: Path

    @property
    def settings_file(self) -> Path:
        return self.config / "settings.toml"

    @property
    def providers_file(self) -> Path:
        return self.config / "providers.toml"

    @property
    def key_file(self) -> Path:
        """The file for keys, on a system without a keyring, if the user agreed."""
        return self.config / "keys.json"

    @property
    def window_state_path(self) -> Path:
        """The file with the window's layouts, drafts and input history."""
        return self.config / "window.json"

    def state_path_of_further_window(self, number: int) -> Path:
        """The same of a window that was opened beside the first one."""
        return self.config / f"window-{number}.json"

    def list_window_state_paths(self) -> list[Path]:
        """Those of all windows that there have been."""
        further = sorted(self.config.glob("window-*.json"))
        return [self.window_state_path, *further]

    @property
    def tour_folder(self) -> Path:
        """The tour's folder: the only one of the program's own that tools may enter, in
        its workspace.
        """
        return self.data / "tour"

    @property
    def extensions_folder(self) -> Path:
        """Where users of an installer put extensions: `pip install --target`."""
        return self.data / "extensions"

    @property
    def workspaces_folder(self) -> Path:
        return self.data / "workspaces"


def find_program_folders(
    home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> ProgramFolders:
    """Returns the folders. `home` takes precedence over `HELIX_HOME`, and that over the
    platform's. Creates nothing.
    """
    chosen = home
    if chosen is None and environ.get("HELIX_HOME"):
        chosen = Path(environ["HELIX_HOME"])
    if chosen is None:
        import platformdirs  # Imported late, so that the window appears sooner.

        data = platformdirs.user_data_path(APP, appauthor=False)
        config = platformdirs.user_config_path(APP, appauthor=False)
        logs = platformdirs.user_log_path(APP, appauthor=False)
        return ProgramFolders(data, config, logs, _socket_folder(data))
    base = Path(os.path.abspath(chosen.expanduser()))  # noqa: PTH100 - resolve() would follow links
    return ProgramFolders(base, base, base / "logs", _socket_folder(base))


def find_folders_at_start(home: Path | None, *, keeps_variables: bool = False) -> ProgramFolders:
    """Returns the folders for a process that starts: it knows the folders of all workspaces, in which
    agents work, and its own variables no longer lead there, unless it passes them on as they are.
    """
    where = find_program_folders(home)
    reader = partial(_read_folders_of_workspaces, where.workspaces_folder)
    folders_of_agents.read_folders_when_asked(reader)
    if keeps_variables:
        return where
    folders_of_agents.leave_out_variables_of_agents()
    tempfile.tempdir = None  # It may have been one of those.
    return replace(where, run=_socket_folder(where.data))


def _read_folders_of_workspaces(workspaces_folder: Path) -> Sequence[str]:
    """Returns the folders of all workspaces whose settings can be read. A list of the workspaces would
    take twice as long.
    """
    folders: list[str] = []
    for settings_path in workspaces_folder.glob(f"*/{WORKSPACE_SETTINGS_NAME}"):
        with suppress(HelixError, OSError, ValueError):
            document = tomllib.loads(atomic_files.read_settings_text(settings_path))
            for root in list_at(document, "roots"):
                if isinstance(root, str):
                    folders.append(root)
    return folders


def find_unwritable_folder_error(where: ProgramFolders) -> StoreFailed | None:
    """Creates the folders. Returns an error for the first that cannot be written to, or
    None. Test files are removed.
    """
    for folder in dict.fromkeys((where.data, where.config, where.workspaces_folder)):
        try:
            atomic_files.create_private_folder(folder)
            with tempfile.TemporaryFile(dir=folder) as trial:
                trial.write(b"helix")
        except OSError as error:
            return StoreFailed(
                f"Helix Desktop cannot write to {folder}: {error.strerror or error}. Nothing was changed.",
                remedy="Make the folder writable, or start with another folder (--home).",
            )
    return None


def make_folders_private(where: ProgramFolders) -> None:
    trash = where.workspaces_folder / ".trash"
    for folder in (where.data, where.config, where.logs, where.workspaces_folder, trash):
        if folder.is_dir():
            atomic_files.make_path_private(folder)
    files = [where.settings_file, where.providers_file, where.key_file]
    files += where.list_window_state_paths()
    for file in files:
        atomic_files.make_path_private(file)


def _socket_folder(data: Path) -> Path:
    """The folder for sockets: the data folder, or a short one under the temporary
    folder where paths must be short.
    """
    inside = data / "run"
    if len(os.fsencode(inside)) <= SOCKET_PATH_LIMIT:
        return inside
    import hashlib

    name = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    user = "user"
    if hasattr(os, "getuid"):
        user = str(os.getuid())
    return Path(tempfile.gettempdir(), f"{APP}-{user}-{name}")
