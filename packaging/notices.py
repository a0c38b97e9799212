"""What is shipped with us: the licence of every library, and a bill of materials (CycloneDX)."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LICENCE_FILE = re.compile(r"(^|/)(LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*$", re.IGNORECASE)
RULER = "=" * 100

# Compiled into or shipped inside wheels, and so under licences of their own that no metadata names.
INSIDE = {
    "plyvel": "LevelDB (BSD-3-Clause, The LevelDB Authors) and Snappy (BSD-3-Clause, Google Inc.)",
    "zstandard": "Zstandard (BSD-3-Clause, Meta Platforms, Inc.)",
    "PySide6-Essentials": "Qt 6 (LGPL-3.0-only), dynamically linked: the libraries lie beside the program and can be replaced; "
    "ICU (Unicode-3.0)",
    "cryptography": "OpenSSL (Apache-2.0, The OpenSSL Project Authors)",
    "psycopg-binary": "libpq (PostgreSQL, The PostgreSQL Global Development Group); OpenSSL (Apache-2.0, The OpenSSL Project Authors); on "
    "Linux also MIT Kerberos (MIT), OpenLDAP (OLDAP-2.8), Cyrus SASL (BSD-4-Clause), libxcrypt and keyutils (LGPL-2.1-or-later), all "
    "dynamically linked",
    "obstore": "itself (MIT, Copyright Development Seed; the wheel brings no licence text, it is that of the other MIT libraries here)",
    "pypdfium2": "PDFium (BSD-3-Clause and Apache-2.0, The PDFium Authors) with FreeType, libjpeg-turbo, OpenJPEG, libtiff, Little CMS, zlib, Anti-Grain "
    "Geometry and ICU; their licences are in the wheel",
    "python-calamine": "calamine (MIT) and other Rust crates (MIT or Apache-2.0)",
    "tiktoken": "the vocabularies o200k_base and cl100k_base (MIT, OpenAI)",
}


def distributions(names: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """The installed ones among the names, sorted, whatever way they are spelled."""
    wanted = {plain(name) for name in names}
    found = {plain(each.metadata["Name"]): each for each in importlib.metadata.distributions()}
    yield from (found[name] for name in sorted(wanted & found.keys()))


def plain(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: Path) -> set[str]:
    """The names in a lock file."""
    return set(
        re.findall(r"^([A-Za-z0-9][\w.-]*)==", lock.read_text(encoding="utf-8"), re.MULTILINE)
    )


def licences(names: set[str]) -> str:
    """One text with every licence; Python's own first."""
    parts = [_python()]
    for each in distributions(names):
        texts = [
            text
            for path in each.files or ()
            if LICENCE_FILE.search(str(path)) and (text := _text(each, path))
        ]
        name = each.metadata["Name"]
        inside = f"\nContains: {INSIDE[name]}\n" if name in INSIDE else ""
        parts.append(
            f"{name} {each.version}: {licence_of(each)}\n{inside}{_compiled_in(each)}\n"
            + "\n\n".join(texts)
        )
    return f"\n\n{RULER}\n".join(part.strip() for part in parts) + "\n"


def _compiled_in(distribution: importlib.metadata.Distribution) -> str:
    """What the wheel's own bills of materials name, with the licence and the author."""
    bills = [
        _text(distribution, path)
        for path in distribution.files or ()
        if re.search(r"/sboms/.*\.json$", str(path))
    ]
    found = {
        f"  {one['name']} {one['version']}: {one['licenses'][0]['expression']}, {one.get('author', 'its authors')}"
        for bill in bills
        for one in json.loads(bill or "{}").get("components", ())
        if "expression" in next(iter(one.get("licenses", ())), {})
    }
    return "\nCompiled in:\n" + "\n".join(sorted(found)) + "\n" if found else ""


def _python() -> str:
    version = sys.version.split()[0]
    for place in (
        Path(sys.base_prefix, "LICENSE.txt"),
        Path(sys.base_prefix, f"lib/python{version[:4]}/LICENSE.txt"),
    ):
        if place.is_file():
            return f"Python {version}\n\n{place.read_text(encoding='utf-8', errors='replace')}"
    return f"Python {version}: PSF-2.0, Python Software Foundation"


def _text(distribution: importlib.metadata.Distribution, path: Any) -> str:
    try:
        return (
            Path(str(distribution.locate_file(path)))
            .read_text(encoding="utf-8", errors="replace")
            .strip()
        )
    except OSError:
        return ""


def licence_of(distribution: importlib.metadata.Distribution) -> str:
    """The licence by its short name, wherever the metadata has put it."""
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return str(metadata["License-Expression"])
    classified = [
        str(each).rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier") or ()
        if str(each).startswith("License")
    ]
    short = str(metadata["License"]).strip().splitlines() if "License" in metadata else []
    return ", ".join(classified) or (short[0][:80] if short else "see its text")


def bill_of_materials(names: set[str], version: str, time: str, hashes: Mapping[str, str]) -> str:
    """CycloneDX 1.6, the same for the same input: no random serial number."""
    components = [_component(each) for each in distributions(names)]
    components.append({"type": "framework", "name": "CPython", "version": sys.version.split()[0]})
    content = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application", "bom-ref": "helix-desktop", "name": "helix-desktop", "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
        "properties": [{"name": f"helix:sha256:{name}", "value": value} for name, value in sorted(hashes.items())],
    }  # fmt: skip
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _component(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    name, version = distribution.metadata["Name"], distribution.version
    reference = f"pkg:pypi/{plain(name)}@{version}"
    licence = {"license": {"name": licence_of(distribution)}}
    return {
        "type": "library", "bom-ref": reference, "purl": reference, "name": name, "version": version, "licenses": [licence],
    }  # fmt: skip


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
