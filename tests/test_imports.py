"""What importing does: nothing but defining, and no Qt where there is no window. The
contracts are import-linter's.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import helix_desktop
from helix_desktop.desktop import window_program

MODULES = sorted(
    each.name for each in pkgutil.walk_packages(helix_desktop.__path__, "helix_desktop.")
)
WINDOW = ("helix_desktop.gui", "helix_desktop.window_start", "helix_desktop.desktop")
SCRIPTS = ("_worker", ".jail", ".__main__")  # run as programs of their own


def _imported(names: list[str], then: str) -> str:
    script = f"import importlib, sys, threading\nfor name in {names!r}: importlib.import_module(name)\n{then}"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_nothing_outside_the_window_needs_qt() -> None:
    names = [name for name in MODULES if not name.startswith(WINDOW) and not name.endswith(SCRIPTS)]
    assert len(names) > 50
    loaded = _imported(
        names,
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'PySide6', 'qasync'}))",
    )
    assert loaded == "[]"


def test_a_window_without_a_model_carries_nothing_for_requests() -> None:
    names = ["window_start", "desktop.window_program", *window_program.MODULES_BEHIND_WINDOW]
    heavy = {"httpx", "mcp", "keyring", "rich", "click", "yaml"}
    loaded = _imported(
        [f"helix_desktop.{name}" for name in names], f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    assert loaded == "[]"


def test_a_window_started_by_the_desktop_waits_for_nothing_of_the_commands() -> None:
    """The desktop's entry runs `helix-desktop`, which took as long as two thirds of a
    bare window before it asked Qt.
    """
    needless = {
        "asyncio",
        "argparse",
        "logging",
        "tempfile",
        "helix_desktop.concurrency",
        "helix_desktop.commands",
    }
    loaded = _imported(
        ["helix_desktop.cli", "helix_desktop.screen_check"],
        f"print(sorted({needless!r} & set(sys.modules)))",
    )
    assert loaded == "[]"


def test_a_command_of_the_program_waits_for_nothing_of_the_extensions() -> None:
    script = "from helix_desktop.commands import build_command_line_parser as build; build(['workspace', 'list'])"
    loaded = _imported(
        [], f"{script}; print([name for name in sys.modules if 'extension' in name])"
    )
    assert loaded == "[]"


def test_an_agent_waits_for_nothing_of_the_tools_before_the_first_answer_over_mcp() -> None:
    names = [
        "commands.mcp_command",
        "token_counting",
        "tools.regex_search",
        "mcp_server.cache_mcp_server",
    ]
    names += [
        "mcp_server.mcp_over_console",
        "mcp_server.cache_operations",
        "commands.workspace_access",
    ]
    needless = {
        "jsonschema",
        "httpx",
        "helix_desktop.resident",
        "helix_desktop.gateway",
        "helix_desktop.tools.permission",
    }
    script = f"print(sorted({needless!r} & set(sys.modules)))"
    assert _imported([f"helix_desktop.{name}" for name in names], script) == "[]"


def test_importing_starts_no_thread_and_says_nothing() -> None:
    names = [name for name in MODULES if not name.endswith(SCRIPTS)]
    assert _imported(names, "print(threading.active_count())") == "1"


def test_a_window_without_a_conversation_parses_colours_folds_and_exports_nothing() -> None:
    engine = {
        "turn_loop",
        "automatic_folding",
        "fold_document_writer",
        "content_recall",
        "fact_encoding",
        "request_costs",
    }
    needless = {"markdown_it", "pygments", *(f"helix_desktop.engine.{name}" for name in engine)}
    loaded = _imported(
        ["helix_desktop.window_start", "helix_desktop.desktop.window_program"],
        f"print(sorted({needless!r} & set(sys.modules)))",
    )
    assert loaded == "[]"
