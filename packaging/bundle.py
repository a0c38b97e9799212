"""The one-folder bundle: PyInstaller's, of what the program uses and nothing else."""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import elf
import notices

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build"
NAME = "helix-desktop"

# Never imported by us, but within reach of a hook; what the run lock does not name is
# left out as well.
LEFT_OUT = (
    "tkinter", "unittest", "pydoc_data", "lib2to3", "idlelib", "ensurepip", "readline", "zstandard._cffi", "zstandard.backend_cffi",
    "PySide6.QtQml", "PySide6.QtQuick", "PySide6.QtNetwork", "PySide6.QtPdf", "PySide6.QtOpenGL",
)  # fmt: skip
# Qt files of modules we have no use for; names begin so. QtDBus stays: the platform
# plugin is linked to it.
QT_LEFT_OUT = (
    "libQt6Qml", "libQt6Quick", "libQt6Pdf", "libQt6VirtualKeyboard", "libQt6Network", "libQt6EglFS",
    "libQt6WaylandEglCompositor", "libQt6Lottie",
)  # fmt: skip
PLUGINS = {  # the plugins that stay, by folder; empty: all of them
    "platforms": ("libqxcb", "libqwayland", "libqoffscreen", "qwindows", "libqcocoa"),
    "platformthemes": ("libqxdgdesktopportal",),
    "platforminputcontexts": ("libcompose", "libibus"),
    "imageformats": (
        "libqgif",
        "libqico",
        "libqjpeg",
        "libqsvg",
        "libqwebp",
        "qgif",
        "qico",
        "qjpeg",
        "qsvg",
        "qwebp",
    ),
    "iconengines": (),
    "xcbglintegrations": (),
    "wayland-shell-integration": ("libxdg-shell",),
    "wayland-decoration-client": (),
    "wayland-graphics-integration-client": ("libqt-plugin-wayland-egl",),
    "styles": (),
    "accessiblebridge": (),
}
LANGUAGES = (
    "en",
    *(path.stem for path in ROOT.glob("resources/translations/*.json") if "." not in path.stem),
)
METADATA = (
    "PySide6-Essentials", "qasync", "httpx", "plyvel", "plyvel-ci", "tiktoken", "keyring", "mcp", "agent-client-protocol", "zstandard", "platformdirs",
    "tomlkit", "markdown-it-py", "Pygments", "psycopg", "psycopg-binary", "obstore", "cryptography",
)  # fmt: skip


def make() -> Path:
    """Build the bundle; its folder."""
    (WORK / "pyinstaller").mkdir(parents=True, exist_ok=True)
    folder = WORK / "bundle" / NAME
    shutil.rmtree(folder, ignore_errors=True)
    spec = WORK / "pyinstaller" / f"{NAME}.spec"
    spec.write_text(_spec(), encoding="utf-8")
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [
        sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level=WARN", f"--distpath={folder.parent}",
        f"--workpath={WORK / 'pyinstaller'}", str(spec),
    ]  # fmt: skip
    subprocess.run(command, check=True, env=environment, cwd=ROOT)
    inside = folder / "_internal"
    _prune(inside)
    _forget_the_builder(inside)
    if sys.platform == "linux":
        elf.drop_unreachable(inside)
        elf.strip(folder)
    _compile(inside / "helix_desktop")
    return folder


def _spec() -> str:
    present = [name for name in METADATA if _installed(name)]
    return f"""
from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata
datas = [({str(ROOT / "resources")!r}, "resources"), ({str(ROOT / "LICENSE")!r}, ".")]
for name in {present!r}:
    datas += copy_metadata(name)
# The fonts and tables that formulas are drawn with, and the tables of the queue of tasks.
for name in ("ziamath", "ziafont", "latex2mathml", "procrastinate"):
    datas += collect_data_files(name)
hidden = []
for name in ("helix_desktop", "keyring.backends", "psycopg", "psycopg_binary", "obstore"):
    hidden += collect_submodules(name)
analysis = Analysis(
    [{str(ROOT / "packaging/entry.py")!r}], pathex=[{str(ROOT)!r}], datas=datas, hiddenimports=hidden,
    excludes={[*LEFT_OUT, *_strangers()]!r}, module_collection_mode={{"helix_desktop": "py"}}, noarchive=False,
)
program = EXE(
    PYZ(analysis.pure), analysis.scripts, [], exclude_binaries=True, name={NAME!r}, console={sys.platform != "win32"!r},
    strip=False, upx=False, icon={str(ROOT / "resources/icons/helix.ico")!r},
)
COLLECT(program, analysis.binaries, analysis.datas, name={NAME!r}, strip=False, upx=False)
"""


def _strangers() -> list[str]:
    """Modules of libraries that are here for tests and benchmarks: some of ours would
    use them where they find them.
    """
    ours = {notices.plain(name) for name in notices.locked(ROOT / "packaging/requirements.lock")}
    here = importlib.metadata.packages_distributions()
    return sorted(
        module for module, owners in here.items() if not ours & set(map(notices.plain, owners))
    )


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _prune(inside: Path) -> None:
    """Take out what hooks bring along and nothing of ours can reach."""
    qt = inside / "PySide6/Qt"
    for library in (*inside.glob("libQt6*"), *(qt / "lib").glob("*")):
        if library.name.startswith(QT_LEFT_OUT):
            library.unlink()
    for plugin in (qt / "plugins").glob("*/*"):
        kept = PLUGINS.get(plugin.parent.name)
        if kept is None or (kept and not plugin.name.startswith(kept)):
            plugin.unlink()
    for translation in (qt / "translations").glob("*.qm"):
        if not translation.stem.startswith("qtbase_") or not translation.stem.endswith(LANGUAGES):
            translation.unlink()
    for folder in sorted((path for path in inside.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def _forget_the_builder(inside: Path) -> None:
    """What says which program filled its environment, and in which folder: two builders
    ship the same.
    """
    for name in ("RECORD", "INSTALLER", "REQUESTED"):
        for file in inside.glob(f"*.dist-info/{name}"):
            file.unlink()


def _compile(package: Path) -> None:
    """Our modules lie there as files (some are run as scripts); bytecode that depends
    on their content alone.
    """
    compileall.compile_dir(
        package, quiet=1, ddir=f"/{NAME}/{package.name}", invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )  # fmt: skip
