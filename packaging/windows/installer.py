"""The Windows installer, put together from the official embeddable Python and wheels;
also on Linux, with makensis.

`HELIX_WINDOWS_PYTHON` names the archive (python-3.12.x-embed-amd64.zip of python.org).
What this has been tried with stands in the help pages.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
STAGE = ROOT / "build/windows"
ARCHIVE = "HELIX_WINDOWS_PYTHON"
PYTHON = "3.12"  # the newest that plyvel-ci has wheels for

# In the wheels, and not of use to a program that is only run.
LEFT_OUT = (
    "PySide6/Qt6Qml*", "PySide6/Qt6Quick*", "PySide6/Qt6Designer*", "PySide6/Qt6Pdf*", "PySide6/Qt6Network*", "PySide6/Qt6Shader*",
    "PySide6/Qt6Test*", "PySide6/Qt6Help*", "PySide6/Qt6Sql*", "PySide6/Qt6UiTools*", "PySide6/Qt6VirtualKeyboard*",
    "PySide6/Qt6Lottie*", "PySide6/Qt6Labs*", "PySide6/Qt6LanguageServer*", "PySide6/*.exe", "PySide6/qml", "PySide6/metatypes",
    "PySide6/typesystems", "PySide6/include", "PySide6/glue", "PySide6/doc", "PySide6/scripts", "PySide6/resources",
    "PySide6/opengl32sw.dll", "PySide6/QtQml*", "PySide6/QtQuick*", "PySide6/QtDesigner*", "PySide6/QtHelp*", "PySide6/QtSql*",
    "PySide6/QtTest*", "PySide6/QtUiTools*", "PySide6/QtNetwork*", "PySide6/*.pyi", "bin", "Scripts",
)  # fmt: skip


def make(version: str, epoch: int, dist: Path) -> list[Path]:
    """Stage everything and compile the installer; nothing, with a line, where the
    archive or makensis is missing.
    """
    archive = os.environ.get(ARCHIVE)
    if not archive or shutil.which("makensis") is None:
        need = (
            "makensis"
            if archive
            else f"{ARCHIVE}, the official embeddable Python {PYTHON} for amd64"
        )
        print(f"The Windows installer is left out: it needs {need}.")
        return []
    shutil.rmtree(STAGE, ignore_errors=True)
    _stage(Path(archive))
    _same_times(epoch)
    target = dist / f"helix-desktop-{version}-windows-x64.exe"
    size = sum(path.stat().st_size for path in STAGE.rglob("*") if path.is_file()) // 1024
    icon = ROOT / "resources/icons/helix.ico"
    defines = {"VERSION": version, "STAGE": STAGE, "OUTPUT": target, "SIZE": size, "ICON": icon}
    command = [
        "makensis",
        "-V2",
        *(f"-D{name}={value}" for name, value in defines.items()),
        str(HERE / "installer.nsi"),
    ]
    subprocess.run(command, check=True)
    _sign(target)
    return [target]


def _stage(archive: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(STAGE / "python")
    for paths in (STAGE / "python").glob("python*._pth"):
        zipped = paths.with_suffix(".zip").name
        paths.write_text(
            f"{zipped}\n.\n..\\lib\n", encoding="utf-8"
        )  # isolated: no other Python's packages
    _wheels(STAGE / "lib")
    for folder in ("helix_desktop", "resources"):
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(ROOT / folder, STAGE / "lib" / folder, ignore=ignored)
    shutil.copyfile(ROOT / "LICENSE", STAGE / "LICENSE.txt")
    shutil.copyfile(ROOT / "resources/icons/helix.ico", STAGE / "helix.ico")
    shutil.copyfile(HERE / "user_path.py", STAGE / "user_path.py")
    _launcher(STAGE / "helix-desktop-window.exe", "w64.exe", r"python\pythonw.exe")
    (STAGE / "bin").mkdir()
    _launcher(STAGE / "bin/helix-desktop.exe", "t64.exe", r"..\python\python.exe")


def _wheels(folder: Path) -> None:
    """The libraries of the lock, for Windows, with their hashes checked; nothing is built."""
    command = [
        sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", str(folder), "--python-platform", "x86_64-pc-windows-msvc",
        "--python-version", PYTHON, "--only-binary", ":all:", "--require-hashes", "--no-deps",
        "--requirement", str(ROOT / "packaging/requirements.lock"),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    for pattern in LEFT_OUT:
        for path in folder.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _launcher(target: Path, kind: str, python: str) -> None:
    """A small program that starts a script with the Python beside it: pip's own, which
    reads what hangs on its end.
    """
    template = Path(sysconfig.get_path("purelib"), "pip/_vendor/distlib", kind).read_bytes()
    script = io.BytesIO()
    with zipfile.ZipFile(script, "w") as packed:
        member = zipfile.ZipInfo("__main__.py", (1980, 1, 1, 0, 0, 0))
        packed.writestr(
            member, "import sys\nfrom helix_desktop.cli import main\nsys.exit(main())\n"
        )
    target.write_bytes(template + f"#!<launcher_dir>\\{python}\r\n".encode() + script.getvalue())


def _same_times(epoch: int) -> None:
    for path in STAGE.rglob("*"):
        os.utime(path, (epoch, epoch))


def _sign(target: Path) -> None:
    """Authenticode, by osslsigncode, where a certificate is given."""
    certificate = os.environ.get("HELIX_AUTHENTICODE_PFX")
    if not certificate:
        print(
            f"{target.name}: no Authenticode signature (HELIX_AUTHENTICODE_PFX names no certificate)"
        )
        return
    signed = target.with_suffix(".signed")
    secret = os.environ.get("HELIX_AUTHENTICODE_PASSWORD", "")
    command = [
        "osslsigncode",
        "sign",
        "-pkcs12",
        certificate,
        "-readpass",
        "-",
        "-in",
        str(target),
        "-out",
        str(signed),
    ]
    subprocess.run(command, input=secret.encode(), check=True)
    signed.replace(target)
