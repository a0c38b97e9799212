"""The self-extracting installer for any distribution: for the user alone, without root,
and out again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path

from linux import tree

HERE = Path(__file__).resolve().parent
NAME = "helix-desktop"
BLANK = "00000000"  # where the script says at which byte the tar begins


def make(bundle: Path, version: str, day: str, dist: Path) -> Path:
    """Build the installer from a bundle; its path."""
    root = bundle.parent.parent / "run"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(bundle, root / "lib", symlinks=True)
    tree.share(root / "share", version, day)
    shutil.copyfile(HERE / "uninstall.sh", root / "lib/uninstall")
    shutil.copyfile(HERE / "leave.sh", root / "lib/leave-users")
    tree.tidy(root, {root / "lib" / NAME, root / "lib/uninstall", root / "lib/leave-users"})
    payload = _packed(root, int(os.environ["SOURCE_DATE_EPOCH"]))
    script = (HERE / "install.sh").read_text(encoding="utf-8").replace("@VERSION@", version)
    head = script.replace("@SHA256@", hashlib.sha256(payload).hexdigest()).replace(
        "@OFFSET@", BLANK
    )
    head = head.replace(BLANK, f"{len(head.encode()) + 1:0{len(BLANK)}d}")
    target = dist / f"{NAME}-{version}-x86_64.run"
    target.write_bytes(head.encode() + payload)
    target.chmod(0o755)
    return target


def _packed(root: Path, epoch: int) -> bytes:
    """A tar in a fixed order, everything owned by nobody in particular and of the same time."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            member = archive.gettarinfo(str(path), str(path.relative_to(root)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            if member.isfile():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    return gzip.compress(plain.getvalue(), 9, mtime=0)
