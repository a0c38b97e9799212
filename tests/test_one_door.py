"""Processes start in one place, `processes/starter.py`: every other way to start one is
forbidden, by whatever name. Folders above a missing one are created by `atomic_files.py`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import helix_desktop

PACKAGE = Path(helix_desktop.__file__).parent
# What may stand outside the starter, by file, with the reason.
ALLOWED = {
    # the one place
    "processes/starter.py": {"subprocess", "Popen", "create_subprocess_exec", "webbrowser"},
    # a script of the starter's: it becomes the command, and imports nothing of ours
    "processes/jail.py": {"fork", "execvp", "subprocess"},
    # which system this is; `processor`, which asks a program, is not used
    "installation_checks.py": {"platform"},
    "workbench/conversation_sharing.py": {"platform"},  # the name of this computer
    # made of random numbers; `getnode`, which asks a program, is not used
    "histories/claude_code_writer.py": {"uuid"},
    # made of random numbers; `getnode`, which asks a program, is not used
    "histories/session_writing.py": {"uuid"},
    # the desktop opens an address or a file; only the window knows Qt
    "gui/deep_links.py": {"QDesktopServices", "openUrl"},
}  # fmt: skip
# These start programs, or can: none is imported but where a reason stands in ALLOWED.
MODULES = {
    "subprocess", "_posixsubprocess", "_winapi", "posix", "nt", "pty", "multiprocessing", "concurrent.futures.process",
    "webbrowser", "antigravity", "pydoc", "imaplib", "ensurepip", "venv", "idlelib", "turtle", "cgi", "wsgiref.handlers",
    "anyio.to_process", "sh", "plumbum", "pexpect", "invoke", "psutil", "asyncio.subprocess", "platform", "uuid",
}  # fmt: skip
# Names that start something, whatever they belong to.
NAMES = {
    "subprocess", "system", "popen", "Popen", "fork", "forkpty", "fork_exec", "startfile", "posix_spawn", "posix_spawnp", "openpty",
    *(f"exec{kind}" for kind in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    *(f"spawn{kind}" for kind in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
    "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "open_process", "run_process",
    "QProcess", "QDesktopServices", "startDetached", "openUrl", "ProcessPoolExecutor", "ShellExecuteW", "CreateProcessW",
    "find_library", "getnode", "uuid1", "processor", "IMAP4_stream", "WinExec", "awatch_process", "arun_process", "NSWorkspace",
}  # fmt: skip
OF_THE_STARTER = {
    "open_process",
    "run_process",
}  # its own functions bear names that others use as well
WORDS = {
    "system",
    "fork",
}  # are a model's prompt and a branch of a conversation as well: only of a module, or of what a call gives
MODULE_NAMES = {"os", "sys", "asyncio", "builtins", "importlib", "QtCore", "QtGui"}
BUILT = {"eval", "__import__", "compile"}  # code made of text could name anything
# Libraries that start programs themselves, and why that is no way in.
LIBRARIES = {
    "keyring": "on macOS and Windows it calls the system; on Linux it speaks to a bus. It starts nothing",
    "mcp": "its transport for servers starts them; mcp_client/process_transport.py takes its place",
    "uvicorn": "with workers or reload it starts processes; gateway and mcp_server use neither",
    "watchfiles": "run_process and awatch_process start one; only awatch and what it waits with are used",
    "obstore": "credentials of a cloud can name a program; they are given to it by value",
    "PySide6": "QProcess and QDesktopServices; the window alone has it, and gui/deep_links.py alone opens something",
    "anyio": "open_process and run_process; only its streams are used",
}
IMPORT_LINE = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.MULTILINE)
KEYRINGS = {"keyring", "keyrings", "secretstorage", "win32ctypes", "win32cred"}
CTYPES = {  # what calls the system by number or by name, and what for
    "processes/jail.py", "processes/jobs_windows.py", "tools/safe_path_opening.py", "tools/folder_handles_windows.py", "glibc_memory.py",
    "installation_checks.py", "store/leveldb.py", "tools/changes/atomic_swap.py", "tools/changes/folder_watch.py",
}  # fmt: skip


def offences(source: str, file: str = "somewhere.py") -> list[str]:
    """Each way to start a process that a file has and may not have."""
    allowed = ALLOWED.get(file, set())
    found = [
        f"{file}:{getattr(node, 'lineno', 0)}: {name}"
        for node in ast.walk(ast.parse(source))
        for name in _ways(node, file)
    ]
    return [each for each in found if each.rpartition(": ")[2] not in allowed]


def _ways(node: ast.AST, file: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from _imported(node, file)
    elif isinstance(node, ast.ImportFrom):
        yield from _imported_from(node, file)
    elif isinstance(node, ast.Attribute):
        if _starts_something(node):
            yield node.attr
    elif _renames_a_module(node):
        yield "a module by another name"
    elif isinstance(node, ast.Call):
        yield from _called(node)
        if _creates_folders_above(node):
            yield "folders that everybody may write to under an open umask: use atomic_files"


def _starts_something(node: ast.Attribute) -> bool:
    if node.attr not in NAMES:
        return False
    is_of_module = isinstance(node.value, ast.Call) or _names_a_module(node.value)
    return is_of_module or node.attr not in WORDS


def _renames_a_module(node: ast.AST) -> bool:
    if isinstance(node, ast.alias):
        return bool(node.asname) and node.name in MODULE_NAMES
    return isinstance(node, ast.Assign | ast.NamedExpr) and _names_a_module(node.value)


def _imported(node: ast.Import, file: str) -> Iterator[str]:
    for alias in node.names:
        if _module(alias.name):
            yield _module(alias.name)
        if alias.name.startswith("ctypes") and file not in CTYPES:
            yield "ctypes"


def _imported_from(node: ast.ImportFrom, file: str) -> Iterator[str]:
    module = node.module or ""
    if module == "helix_desktop.processes.starter":
        return
    if _module(module):
        yield _module(module)
    if module.startswith("ctypes") and file not in CTYPES:
        yield "ctypes"
    for alias in node.names:
        if alias.name in NAMES or _module(f"{module}.{alias.name}"):
            yield alias.name
        if alias.name == "*":
            yield f"from {module} import *"


# They reach a name by its text.
BY_TEXT = {
    "getattr",
    "methodcaller",
    "attrgetter",
    "import_module",
    "to_thread",
    "__getattribute__",
}


def _called(node: ast.Call) -> Iterator[str]:
    name = _name_of_function(node.func)
    if isinstance(node.func, ast.Name) and name in BUILT:
        yield name
    if name in BY_TEXT:
        for text in _texts_in(node):
            if text in NAMES or _module(text):
                yield text
    if not node.args:
        return
    if name in {"import_module", "__import__"} and isinstance(node.args[0], ast.BinOp):
        yield "a module whose name is made"
    if not _names_a_module(node.args[0]):
        return
    if name == "vars":
        yield "all names of a module"
    if name == "getattr" and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
        yield "a name that is made, of a module"


def _creates_folders_above(node: ast.Call) -> bool:
    arguments = [f"{keyword.arg}={ast.unparse(keyword.value)}" for keyword in node.keywords]
    return _name_of_function(node.func) == "makedirs" or "parents=True" in arguments


def _name_of_function(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute):
        return function.attr
    return ""


def _texts_in(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _names_a_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in MODULE_NAMES


def _module(name: str) -> str:
    """The forbidden module that this is, or is a part of."""
    return next((each for each in MODULES if name == each or name.startswith(f"{each}.")), "")


FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@pytest.mark.usefixtures("no_garbage")
def test_only_the_starter_starts_processes() -> None:
    assert len(FILES) > 500
    found = [each for file in FILES for each in offences((PACKAGE / file).read_text("utf-8"), file)]
    assert found == []


def keyrings(source: str) -> list[str]:
    """The libraries of the system's key stores that it imports, by whatever name."""
    if not any(library in source for library in KEYRINGS):
        return []
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return [name for name in names if name.partition(".")[0] in KEYRINGS]


def test_only_the_secrets_reach_the_systems_key_store() -> None:
    found = {file for file in FILES if keyrings((PACKAGE / file).read_text("utf-8"))}
    assert {str(file).replace("\\", "/") for file in found} == {"secrets.py"}


@pytest.mark.parametrize(
    "source", ["import keyring as k", "from keyring import get_password", "from keyring.backends import SecretService", "def f():\n    import secretstorage"]
)  # fmt: skip
def test_every_other_way_to_the_key_store_is_found(source: str) -> None:
    assert keyrings(source)


def test_what_is_allowed_is_there() -> None:
    """A reason that holds for nothing any more would be a hole kept open."""
    for file, names in ALLOWED.items():
        found = {
            name
            for node in ast.walk(ast.parse((PACKAGE / file).read_text("utf-8")))
            for name in _ways(node, file)
        }
        assert names <= found, file
    assert all("ctypes" in (PACKAGE / file).read_text("utf-8") for file in CTYPES)


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "import subprocess as harmless",
        "from subprocess import run as walk",
        "import os as o\no.system('x')",
        "from os import execv as e",
        "import os\nos.posix_spawn('/bin/sh', [], {})",
        "import os\nf = os.fork",
        "import os\ngetattr(os, 'pop' 'en')('x')",
        "import os\ngetattr(os, 'sys' + 'tem')('x')",
        "import os\nvars(os)['system']('x')",
        "import importlib\nimportlib.import_module('subprocess')",
        "import importlib\nimportlib.import_module('sub' + 'process')",
        "__import__('pty').spawn('/bin/sh')",
        "import asyncio\nasyncio.create_subprocess_shell('x')",
        "async def f(loop): await loop.subprocess_exec(None, 'x')",
        "from asyncio.subprocess import create_subprocess_exec",
        "from concurrent.futures import ProcessPoolExecutor",
        "import concurrent.futures as c\nc.ProcessPoolExecutor()",
        "import multiprocessing.pool",
        "from PySide6.QtCore import QProcess",
        "from PySide6 import QtGui\nQtGui.QDesktopServices.openUrl('x')",
        "import webbrowser",
        "from anyio import open_process",
        "import ctypes\nctypes.CDLL(None).system(b'x')",
        "from os import *",
        "eval('x')",
        "import pty",
        "def later():\n    import subprocess",
    ],
)
def test_every_other_way_is_found(source: str) -> None:
    assert offences(source)


def test_a_way_added_to_any_file_of_ours_is_found() -> None:
    for file in FILES[::25]:
        if file not in ALLOWED:
            assert offences((PACKAGE / file).read_text("utf-8") + "\nimport subprocess\n", file), (
                file
            )


def test_the_standard_library_has_no_further_module_that_starts_programs() -> None:
    """Of what this package imports of it. A module that is new here is to be looked at."""
    imported: set[str] = set()
    for file in FILES:
        # Each import stands on a line of its own: the formatter sees to that.
        imported.update(IMPORT_LINE.findall((PACKAGE / file).read_text("utf-8")))
    assert {"os", "asyncio", "uuid"} <= imported
    starting = set()
    for name in sorted(imported & sys.stdlib_module_names):
        source = Path(ast.__file__).parent / f"{name}.py"
        if source.is_file() and "subprocess" in _imports(source):
            starting.add(name)
    assert starting <= set(STARTING_IF_ASKED), starting


STARTING_IF_ASKED = {
    "os": "by `popen`, which is forbidden above",
    "platform": "by `processor`, which is forbidden above",
    "uuid": "by `getnode` and `uuid1`, which are forbidden above",
    "webbrowser": "in the starter alone",
}


def _imports(source: Path) -> set[str]:
    tree = ast.parse(source.read_text("utf-8"))
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }


def test_libraries_that_start_programs_are_listed_while_we_have_them() -> None:
    text = (PACKAGE.parent / "pyproject.toml").read_text("utf-8").casefold()
    for library in set(LIBRARIES) - {"anyio"}:  # which comes with httpx
        assert library.casefold() in text
