"""What the program needs from the operating system: found by trying, installed as root
on Debian and Ubuntu.

Elsewhere, and for people who are not root, the exact command is printed and the rest
goes on: the command line works without Qt's libraries, and a test that needs a missing
tool says so.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

INSTALL = {
    "apt-get": ["apt-get", "install", "-y", "--no-install-recommends"],
    "dnf": ["dnf", "install", "-y"],
    "pacman": ["pacman", "-S", "--needed", "--noconfirm"],
    "zypper": ["zypper", "--non-interactive", "install"],
    "brew": ["brew", "install"],
}


@dataclass(frozen=True)
class Need:
    """A shared library, a program or a file, and the packages that bring it: apt-get,
    dnf, pacman, zypper, brew.
    """

    probe: str
    apt: str
    dnf: str = ""
    pacman: str = ""
    zypper: str = ""
    brew: str = ""

    def met(self) -> bool:
        if self.probe.startswith("/"):
            return Path(self.probe).exists()
        if ".so" not in self.probe:
            return shutil.which(self.probe) is not None or any(
                Path("/usr/lib/postgresql").glob(f"*/bin/{self.probe}")
            )
        try:
            ctypes.CDLL(self.probe)
        except OSError:
            return False
        return True

    def package(self, tool: str) -> str:
        named = {
            "apt-get": self.apt,
            "dnf": self.dnf,
            "pacman": self.pacman,
            "zypper": self.zypper,
            "brew": self.brew,
        }
        return named[tool]


# What Qt's core, its widgets, its X11 and its Wayland plugin are linked against and the
# wheels do not carry.
QT = (
    Need("libEGL.so.1", "libegl1", "libglvnd-egl", "libglvnd", "libEGL1"),
    Need("libGL.so.1", "libgl1", "libglvnd-glx", "libglvnd", "libGL1"),
    Need("libfontconfig.so.1", "libfontconfig1", "fontconfig", "fontconfig", "fontconfig"),
    Need("libfreetype.so.6", "libfreetype6", "freetype", "freetype2", "libfreetype6"),
    Need("libglib-2.0.so.0", "libglib2.0-0", "glib2", "glib2", "libglib-2_0-0"),
    Need("libgthread-2.0.so.0", "libglib2.0-0", "glib2", "glib2", "libgthread-2_0-0"),
    Need("libdbus-1.so.3", "libdbus-1-3", "dbus-libs", "dbus", "libdbus-1-3"),
    Need("libX11.so.6", "libx11-6", "libX11", "libx11", "libX11-6"),
    Need("libX11-xcb.so.1", "libx11-xcb1", "libX11-xcb", "libx11", "libX11-xcb1"),
    Need("libxkbcommon.so.0", "libxkbcommon0", "libxkbcommon", "libxkbcommon", "libxkbcommon0"),
    Need("libxkbcommon-x11.so.0", "libxkbcommon-x11-0", "libxkbcommon-x11", "libxkbcommon-x11", "libxkbcommon-x11-0"),
    Need("libxcb-cursor.so.0", "libxcb-cursor0", "xcb-util-cursor", "xcb-util-cursor", "libxcb-cursor0"),
    Need("libxcb-icccm.so.4", "libxcb-icccm4", "xcb-util-wm", "xcb-util-wm", "libxcb-icccm4"),
    Need("libxcb-image.so.0", "libxcb-image0", "xcb-util-image", "xcb-util-image", "libxcb-image0"),
    Need("libxcb-keysyms.so.1", "libxcb-keysyms1", "xcb-util-keysyms", "xcb-util-keysyms", "libxcb-keysyms1"),
    Need("libxcb-randr.so.0", "libxcb-randr0", "libxcb", "libxcb", "libxcb-randr0"),
    Need("libxcb-render-util.so.0", "libxcb-render-util0", "xcb-util-renderutil", "xcb-util-renderutil", "libxcb-render-util0"),
    Need("libxcb-shape.so.0", "libxcb-shape0", "libxcb", "libxcb", "libxcb-shape0"),
    Need("libxcb-shm.so.0", "libxcb-shm0", "libxcb", "libxcb", "libxcb-shm0"),
    Need("libxcb-sync.so.1", "libxcb-sync1", "libxcb", "libxcb", "libxcb-sync1"),
    Need("libxcb-xfixes.so.0", "libxcb-xfixes0", "libxcb", "libxcb", "libxcb-xfixes0"),
    Need("libxcb-xkb.so.1", "libxcb-xkb1", "libxcb", "libxcb", "libxcb-xkb1"),
    Need("libwayland-client.so.0", "libwayland-client0", "libwayland-client", "wayland", "libwayland-client0"),
    Need("libwayland-cursor.so.0", "libwayland-cursor0", "libwayland-cursor", "wayland", "libwayland-cursor0"),
    Need("libwayland-egl.so.1", "libwayland-egl1", "libwayland-egl", "wayland", "libwayland-egl1"),
)  # fmt: skip

# What tests drive: a screen without a screen, a keyboard and mouse, a keyring, a
# sandbox, accessibility.
TESTING = (
    Need("Xvfb", "xvfb", "xorg-x11-server-Xvfb", "xorg-server-xvfb", "xorg-x11-server-Xvfb"),
    Need("xauth", "xauth", "xauth", "xorg-xauth", "xauth"),
    Need("xdotool", "xdotool", "xdotool", "xdotool", "xdotool"),
    Need("openbox", "openbox", "openbox", "openbox", "openbox"),
    Need("dbus-run-session", "dbus", "dbus-daemon", "dbus", "dbus-1"),
    Need(
        "gnome-keyring-daemon", "gnome-keyring", "gnome-keyring", "gnome-keyring", "gnome-keyring"
    ),
    Need(
        "/usr/libexec/at-spi-bus-launcher",
        "at-spi2-core",
        "at-spi2-core",
        "at-spi2-core",
        "at-spi2-core",
    ),
    Need("fc-list", "fontconfig", "fontconfig", "fontconfig", "fontconfig"),
    Need("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "fonts-dejavu-core"),
    Need("bwrap", "bubblewrap", "bubblewrap", "bubblewrap", "bubblewrap"),
    Need("rg", "ripgrep", "ripgrep", "ripgrep", "ripgrep"),
    Need("git", "git", "git", "git", "git"),
    Need("import", "imagemagick", "ImageMagick", "imagemagick", "ImageMagick"),
    Need("patch", "patch", "patch", "patch", "patch"),
    Need(
        "desktop-file-validate",
        "desktop-file-utils",
        "desktop-file-utils",
        "desktop-file-utils",
        "desktop-file-utils",
    ),
    Need("cc", "gcc", "gcc", "gcc", "gcc"),
    Need(
        "initdb", "postgresql", "postgresql-server", "postgresql", "postgresql-server", "postgresql"
    ),
    Need("pgbouncer", "pgbouncer", "pgbouncer", "pgbouncer", "pgbouncer", "pgbouncer"),
    Need("/usr/sbin/sshd", "openssh-server", "openssh-server", "openssh", "openssh-server"),
    Need("/usr/include/stdio.h", "libc6-dev", "glibc-devel", "glibc", "glibc-devel"),
)

VENV = (Need("", "python3-venv"),)


def plyvel_has_a_wheel() -> bool:
    """Whether it comes built: plyvel and plyvel-ci have wheels for CPython 3.11 and 3.12 alone."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] in {(3, 11), (3, 12)}


def leveldb() -> tuple[Need, ...]:
    """What building plyvel takes; nothing where it comes built, or on Windows, where
    there is no system's LevelDB.
    """
    if plyvel_has_a_wheel() or sys.platform == "win32":
        return ()
    roots = ("/usr", "/usr/local", "/opt/homebrew")
    header = next(
        (f"{r}/include/leveldb/db.h" for r in roots if Path(r, "include/leveldb/db.h").exists()), ""
    )
    own = Path(sysconfig.get_path("include"), "Python.h")
    return (
        Need(header or "/usr/include/leveldb/db.h", "libleveldb-dev", "leveldb-devel", "leveldb", "leveldb-devel", "leveldb"),
        Need("c++", "g++", "gcc-c++", "gcc", "gcc-c++"),
        Need(str(own), "python3-dev", "python3-devel", "python", "python3-devel"),
    )  # fmt: skip


def provide(needs: Iterable[Need]) -> bool:
    """Install what is missing, or print the command that does. True: everything is there now."""
    missing = [need for need in needs if not need.met()]
    if not missing:
        return True
    tool = next((tool for tool in INSTALL if shutil.which(tool)), None)
    packages = sorted({need.package(tool) for need in missing} - {""}) if tool else []
    if tool is None or not packages:
        print(
            f"Missing on this system, please install: {', '.join(need.probe for need in missing)}",
            flush=True,
        )
        return False
    command = [*INSTALL[tool], *packages]
    if tool != "apt-get" or os.geteuid() != 0:
        sudo = [] if tool == "brew" or os.geteuid() == 0 else ["sudo"]
        print(
            f"Missing on this system. This installs it:\n  {' '.join([*sudo, *command])}",
            flush=True,
        )
        return False
    return _apt(command)


def _apt(command: list[str]) -> bool:
    """Refresh the lists of packages, then install; quiet unless it fails."""
    print(f"Installing from the system: {' '.join(command[4:])}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in (["apt-get", "update"], command):
        done = subprocess.run(
            step, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        if done.returncode:
            print(
                done.stdout.decode(errors="replace"),
                f"This failed: {' '.join(step)}",
                sep="\n",
                flush=True,
            )
            return False
    return True
