"""Foreign bytes are decompressed in one place, `decompression.py`, where what comes out
is limited: every other way is forbidden.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import helix_desktop

PACKAGE = Path(helix_desktop.__file__).parent
# What may stand outside `decompression.py`, by file, with the reason.
ALLOWED = {
    # types and errors; what is opened and read goes through `decompression.py`
    "documents/document_archive.py": {"zipfile", "ZipFile"},
    "documents/document_kinds.py": {"zipfile"},
    # asks whether a file is an archive, and names the error
    "histories/chatgpt_history.py": {"zipfile"},
    # compresses the page of a scan
    "documents/readers/pdf_reader.py": {"zlib"},
    # its client limits each reply before anybody reads it (`server_message_limits.py`)
    "mcp_client/oauth_sign_in.py": {"a reply read as a whole"},
    # reads the program's own request, before it is sent
    "providers/lent_http_transport.py": {"aread"},
    # the program's own chunks, each of one size at most
    "store/cache_repair.py": {"zstandard", "ZstdDecompressor", "decompress"},
    "store/lost_entries.py": {"zstandard", "ZstdDecompressor", "decompress"},
    # the one place
    "decompression.py": {"zlib", "zstandard", "zipfile", "decompressobj", "decompress", "ZstdDecompressor", "ZipFile"},
    "engine/changes/git_patch.py": {"zlib"},  # compresses what goes into a patch
    # texts that it compressed itself, a piece of a conversation at a time
    # parts of a body that it compressed itself
    "gateway/incremental_parsing.py": {"zstandard", "ZstdDecompressor", "decompress"},
    "store/shared/fact_segments.py": {"zstandard"},  # compresses, and names the error
    "store/shared/content_transfer.py": {"zstandard"},  # compresses, and names the error
    "store/cache_folder.py": {"zstandard"},  # compresses
    "workspace_host/host_wire.py": {"zstandard"},  # compresses what a host sends
    # the program's own chunks, each of one size at most
    "store/cache_reader.py": {"zstandard", "ZstdDecompressor", "decompress"},
    # writes an export, and names the errors
    "store/workspace_export.py": {"zlib", "zipfile", "ZipFile"},
}  # fmt: skip
MODULES = {
    "zlib", "gzip", "bz2", "lzma", "zstandard", "zstd", "brotli", "brotlicffi", "tarfile", "zipfile", "zipimport", "compression",
    "backports", "snappy", "lz4", "isal", "py7zr", "rarfile", "libarchive", "fsspec", "blosc", "lzo", "zopfli", "httpx._decoders",
    "httpx2._decoders",
}  # fmt: skip
# Names that decompress, whatever they belong to. The readers of httpx decompress a body
# as a whole: `aiter_raw` does not.
NAMES = {
    "decompress", "decompressobj", "ZstdDecompressor", "BZ2Decompressor", "LZMADecompressor", "GzipFile", "BZ2File", "LZMAFile",
    "ZipFile", "TarFile", "unpack_archive", "extractall", "aread", "aiter_bytes", "aiter_text", "aiter_lines", "iter_bytes",
    "iter_text", "iter_lines", "qUncompress", "uncompress",
}  # fmt: skip


def offences(source: str, file: str = "somewhere.py") -> list[str]:
    """Each way to decompress that a file has and may not have."""
    found = [
        f"{file}:{getattr(node, 'lineno', 0)}: {name}"
        for node in ast.walk(ast.parse(source))
        for name in _ways(node)
    ]
    return [each for each in found if each.rpartition(": ")[2] not in ALLOWED.get(file, set())]


def _ways(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from filter(None, (_module(alias.name) for alias in node.names))
    elif isinstance(node, ast.ImportFrom):
        yield from filter(
            None,
            (
                _module(node.module or ""),
                *(alias.name for alias in node.names if alias.name in NAMES),
            ),
        )
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield node.attr
    elif isinstance(node, ast.Call):
        yield from _called(node)


def _called(node: ast.Call) -> Iterator[str]:
    """A name or module given as a text, and requests whose reply a library reads as a
    whole before anybody can count it.
    """
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in REACH_BY_TEXT:
        for part in ast.walk(node):
            text = part.value if isinstance(part, ast.Constant) else None
            if isinstance(text, str) and (text in NAMES or _module(text)):
                yield text
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    name_of_owner = getattr(owner, "attr", getattr(owner, "id", ""))
    if name_of_owner not in CLIENTS:
        return
    if name in READ_WHOLE or (name == "send" and not _asks_for_stream(node)):
        yield "a reply read as a whole"


REACH_BY_TEXT = {"getattr", "import_module", "__import__", "methodcaller", "attrgetter"}
CLIENTS = {"client", "_client", "http", "httpx", "httpx2"}
READ_WHOLE = {"get", "post", "put", "patch", "delete", "head", "options", "request"}


def _asks_for_stream(node: ast.Call) -> bool:
    for keyword in node.keywords:
        if keyword.arg == "stream" and isinstance(keyword.value, ast.Constant):
            return keyword.value.value is True
    return False


def _module(name: str) -> str:
    """The forbidden module that this is, or is a part of."""
    return next((each for each in MODULES if name == each or name.startswith(f"{each}.")), "")


FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@pytest.mark.usefixtures("no_garbage")
def test_foreign_bytes_are_decompressed_in_one_place() -> None:
    assert len(FILES) > 500
    found = [each for file in FILES for each in offences((PACKAGE / file).read_text("utf-8"), file)]
    assert found == []


def test_what_is_allowed_is_there() -> None:
    """A reason that holds for nothing any more would be a hole kept open."""
    for file, names in ALLOWED.items():
        tree = ast.parse((PACKAGE / file).read_text("utf-8"))
        assert names <= {name for node in ast.walk(tree) for name in _ways(node)}, file


@pytest.mark.parametrize(
    "source",
    [
        "import gzip",
        "import zlib as z\nz.decompress(b'')",
        "from lzma import LZMADecompressor as harmless",
        "import tarfile",
        "import compression.zstd",
        "import importlib\nimportlib.import_module('bz2')",
        "__import__('zlib')",
        "import shutil\nshutil.unpack_archive('x')",
        "getattr(codecs, 'decompress')",
        "async def f(response): return await response.aread()",
        "async def f(reply):\n    async for line in reply.aiter_lines(): pass",
        "async def f(client): return await client.get('x')",
        "async def f(self): return await self._client.send(request)",
        "async def f(http): return await http.send(request, stream=False)",
        "import httpx\nhttpx.get('x')",
        "def later():\n    from zipfile import ZipFile",
    ],
)
def test_every_other_way_is_found(source: str) -> None:
    assert offences(source)


def test_a_body_read_piece_by_piece_is_no_offence() -> None:
    assert (
        offences(
            "async def f(client):\n    response = await client.send(request, stream=True)\n    response.aiter_raw()"
        )
        == []
    )


def test_a_way_added_to_any_file_of_ours_is_found() -> None:
    for file in FILES[::25]:
        if file not in ALLOWED:
            assert offences((PACKAGE / file).read_text("utf-8") + "\nimport gzip\n", file), file
