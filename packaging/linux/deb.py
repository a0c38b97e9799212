"""The Debian package: the bundle under /usr/lib, with the system's own libraries as
dependencies instead of copies.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from email.utils import formatdate
from pathlib import Path

import elf

from linux import tree

NAME = "helix-desktop"
AUTHORS = "The Helix Desktop authors"
OURS = ("libQt6", "libicu", "libpython", "libpyside", "libshiboken", "libleveldb-", "libsnappy-")

CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: {depends}
Recommends: bubblewrap, ripgrep, gnome-keyring | keepassxc | kwalletmanager
Section: devel
Priority: optional
Description: work with AI agents for hours without running out of context
 Everything an agent has seen stays on your disk, can be found again, and can
 be put back. What the model is sent is kept small: old outputs become short
 markers, large ones arrive as excerpts, long histories become a handover
 document. Each of these can be seen, opened and undone.
"""

OVERRIDES = """\
# A bundle: its Python, its Qt and the libraries compiled into wheels lie beside the program, in versions tried together.
helix-desktop: embedded-library *
helix-desktop: hardening-no-fortify-functions *
helix-desktop: hardening-no-bindnow *
helix-desktop: hardening-no-pie *
helix-desktop: shared-library-lacks-prerequisites *
helix-desktop: library-not-linked-against-libc *
helix-desktop: custom-library-search-path *
helix-desktop: package-installs-python-pycache-dir *
# The libraries' licences, the Apache licence among them, are shipped in full, as each of them asks for.
helix-desktop: copyright-file-contains-full-apache-2-license
helix-desktop: extra-license-file *
# The library that draws formulas reads the font that it was made with.
helix-desktop: duplicate-font-file *
# The package is not made for Debian's archive: no bug asked for it.
helix-desktop: initial-upload-closes-no-bugs
"""


def find_maintainer() -> str:
    """Return who builds the package, as Debian's own tools do, or else who made the last
    commit. A package without an address of somebody who answers is not accepted.
    """
    address = os.environ.get("DEBEMAIL") or os.environ.get("EMAIL", "")
    if not address:
        asked = ["git", "log", "-1", "--format=%ce"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        address = said.stdout.strip()
    if not address:
        raise SystemExit("Set DEBEMAIL to the maintainer's address: the package needs one.")
    return f"{os.environ.get('DEBFULLNAME', AUTHORS)} <{address}>"


def make(bundle: Path, version: str, day: str, dist: Path) -> Path:
    """Build the package from a bundle; its path."""
    root = bundle.parent.parent / "deb"
    shutil.rmtree(root, ignore_errors=True)
    library = root / "usr/lib" / NAME
    shutil.copytree(bundle, library, symlinks=True)
    depends = _lean_on_the_system(library / "_internal", library)
    shutil.copyfile(Path(__file__).with_name("leave.sh"), library / "leave-users")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin" / NAME).symlink_to(f"../lib/{NAME}/{NAME}")
    tree.share(root / "usr/share", version, day)
    _documents(root / "usr/share", library, version)
    tree.tidy(root, {library / NAME, library / "leave-users"})
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout.strip()
    add_control_files(root, version, architecture, depends)
    _stamp(root)
    package = dist / f"{NAME}_{version}_{architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(package)], check=True
    )
    return package


def _lean_on_the_system(inside: Path, library: Path) -> str:
    """Remove copies of the system's libraries; the packages that bring them, as a Depends line."""
    copies = [path for path in inside.glob("lib*.so*") if not path.name.startswith(OURS)]
    known = elf.packages(path.name for path in copies)
    for path in copies:
        if path.name in known:
            path.unlink()
    files = elf.files(library)
    present = {path.name for path in library.rglob("*.so*")}
    wanted = set().union(*(elf.needed(path) for path in files)) - present
    packages = set(elf.packages(wanted).values()) - {"libc6"}
    return ", ".join([f"libc6 (>= {_glibc(files)})", *sorted(packages)])


def _glibc(files: list[Path]) -> str:
    """The newest version of the C library any file asks for."""
    said = subprocess.run(
        ["readelf", "-VW", *map(str, files)], capture_output=True, text=True, check=True
    ).stdout
    versions = {
        tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)", said)
    }
    return ".".join(map(str, max(versions)))


def _documents(share: Path, library: Path, version: str) -> None:
    documents = share / "doc" / NAME
    documents.mkdir(parents=True)
    licences = library / "LICENSES.txt"
    header = "Helix Desktop is free software under the Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0\n\n"
    whose = "Copyright: 2026 The Helix Desktop authors\n\nIt is shipped with the following.\n\n"
    (documents / "copyright").write_text(
        header + whose + licences.read_text(encoding="utf-8"), encoding="utf-8"
    )
    licences.unlink()
    (library / "_internal/LICENSE").unlink(missing_ok=True)
    when = formatdate(int(os.environ["SOURCE_DATE_EPOCH"]), localtime=False)
    entry = f"{NAME} ({version}) stable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {find_maintainer()}  {when}\n"
    (documents / "changelog.gz").write_bytes(gzip.compress(entry.encode(), 9, mtime=0))
    overrides = share / "lintian/overrides" / NAME
    overrides.parent.mkdir(parents=True)
    overrides.write_text(OVERRIDES, encoding="utf-8")


def add_control_files(root: Path, version: str, architecture: str, depends: str) -> None:
    """What dpkg reads of the package: its description, its sums, and what runs at its removal."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    size = sum(-(-path.stat().st_size // 1024) for path in files)
    control = root / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(
        CONTROL.format(
            name=NAME,
            version=version,
            architecture=architecture,
            maintainer=find_maintainer(),
            size=size,
            depends=depends,
        ),
        encoding="utf-8",
    )
    said = subprocess.run(
        ["md5sum", *(str(path.relative_to(root)) for path in files)],
        cwd=root,
        capture_output=True,
        check=True,
    )
    (control / "md5sums").write_bytes(said.stdout)
    control.chmod(0o755)
    for path in control.iterdir():
        path.chmod(0o644)
    shutil.copyfile(Path(__file__).with_name("prerm.sh"), control / "prerm")
    (control / "prerm").chmod(0o755)


def _stamp(root: Path) -> None:
    """One time for everything: dpkg-deb only makes later ones earlier, and a library is
    as old as its installation.
    """
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in (root, *root.rglob("*")):
        os.utime(path, (epoch, epoch), follow_symlinks=False)
