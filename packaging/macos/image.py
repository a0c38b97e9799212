"""The macOS app bundle and disk image, for the architecture it is built on. Built and
tried on its own runner.
"""

from __future__ import annotations

import os
import platform
import plistlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build/macos"
NAME = "Helix Desktop"


def make(bundle: Path, version: str, dist: Path) -> list[Path]:
    """Wrap the one-folder bundle; nothing, with a line, on another system."""
    if sys.platform != "darwin":
        print("The macOS image is left out: it is made on macOS.")
        return []
    shutil.rmtree(WORK, ignore_errors=True)
    app = WORK / f"{NAME}.app"
    contents = app / "Contents"
    shutil.copytree(bundle, contents / "MacOS", symlinks=True)
    (contents / "Resources").mkdir()
    _icon(contents / "Resources/helix.icns")
    (contents / "Info.plist").write_bytes(plistlib.dumps(_description(version)))
    _sign(app)
    (WORK / "Applications").symlink_to("/Applications")
    image = dist / f"helix-desktop-{version}-macos-{platform.machine()}.dmg"
    image.unlink(missing_ok=True)
    subprocess.run(
        [
            "hdiutil",
            "create",
            "-volname",
            NAME,
            "-srcfolder",
            str(WORK),
            "-format",
            "UDZO",
            str(image),
        ],
        check=True,
    )
    _notarise(image)
    return [image]


def _description(version: str) -> dict[str, object]:
    return {
        "CFBundleName": NAME,
        "CFBundleIdentifier": "io.github.helix-desktop.helix-desktop",
        "CFBundleExecutable": "helix-desktop",
        "CFBundleIconFile": "helix.icns",
        "CFBundleShortVersionString": version,
        "CFBundleVersion": version,
        "CFBundlePackageType": "APPL",
        "LSMinimumSystemVersion": "13.0",
        "NSHighResolutionCapable": True,
        "NSRequiresAquaSystemAppearance": False,
        "CFBundleURLTypes": [{"CFBundleURLName": NAME, "CFBundleURLSchemes": ["helix"]}],
    }


def _icon(target: Path) -> None:
    iconset = WORK / "helix.iconset"
    iconset.mkdir()
    for size in (16, 32, 128, 256):
        shutil.copyfile(
            ROOT / f"resources/icons/helix-{size}.png", iconset / f"icon_{size}x{size}.png"
        )
        double = ROOT / f"resources/icons/helix-{size * 2}.png"
        if double.exists():
            shutil.copyfile(double, iconset / f"icon_{size}x{size}@2x.png")
    subprocess.run(
        ["iconutil", "--convert", "icns", "--output", str(target), str(iconset)], check=True
    )
    shutil.rmtree(iconset)


def _sign(app: Path) -> None:
    identity = os.environ.get("HELIX_APPLE_IDENTITY")
    if not identity:
        print(f"{app.name}: signed for this machine alone (HELIX_APPLE_IDENTITY names no identity)")
    options = ["--options", "runtime", "--timestamp"] if identity else []
    subprocess.run(
        ["codesign", "--force", "--deep", *options, "--sign", identity or "-", str(app)], check=True
    )


def _notarise(image: Path) -> None:
    profile = os.environ.get("HELIX_APPLE_NOTARY_PROFILE")
    if not profile:
        print(f"{image.name}: not notarised (HELIX_APPLE_NOTARY_PROFILE names no profile)")
        return
    submit = ["xcrun", "notarytool", "submit", str(image), "--keychain-profile", profile, "--wait"]
    subprocess.run(submit, check=True)
    subprocess.run(["xcrun", "stapler", "staple", str(image)], check=True)
