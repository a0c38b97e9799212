"""Draws SVG files of strangers in a limited process."""

import asyncio
import importlib.util
import os
from pathlib import Path

from helix_desktop.gui.preview import svg_worker
from helix_desktop.processes import starter

WAIT_SECONDS = 15.0
MOST_MEMORY = 3 << 30  # Bytes of address space.
_KEPT_VARIABLES = ("SYSTEMROOT", "LD_LIBRARY_PATH", "FONTCONFIG_FILE", "FONTCONFIG_PATH")


async def draw_svg_as_png(content: bytes) -> bytes:
    """Returns a PNG, or nothing if the file is damaged or takes too long."""
    process = await _start_drawing_process()
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            png, _ = await process.communicate(content)
    except TimeoutError:
        return b""
    finally:
        await starter.end_process(process)
    if process.returncode != 0:
        return b""
    return png


async def _start_drawing_process() -> starter.Process:
    library_folders: list[str] = []
    for library in ("PySide6", "shiboken6"):
        spec = importlib.util.find_spec(library)
        if spec is not None and spec.origin:
            folder = Path(spec.origin).parents[1]
            library_folders.append(str(folder))
    search_path = os.pathsep.join(library_folders)
    # Without "site", nothing that is installed beside these libraries runs in the process.
    argv = starter.isolated_python_command("-S", svg_worker.__file__, search_path)
    environment: dict[str, str] = {}
    for name in _KEPT_VARIABLES:
        if name in os.environ:
            environment[name] = os.environ[name]
    launch = starter.ProcessLaunch(
        starter.CommandAuthor.PROGRAM, argv, environment=environment, memory_bytes=MOST_MEMORY
    )
    return await starter.start_process(launch, stdin=starter.PIPE, stderr=starter.DEVNULL)
