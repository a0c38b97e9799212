"""A hundred broken and hostile extensions, each with what must be said of it once it is allowed.

Every one begins by leaving a mark beside itself, which shows whether its code ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MARK = """
import pathlib
pathlib.Path(__file__).with_name("ran-" + pathlib.Path(__file__).stem).touch()
from helix_desktop.extensions.extension_interfaces import *
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.providers.known_provider import KnownProvider
"""
READ = "def read(*_): return []\n"


@dataclass(frozen=True, slots=True)
class HostilePackage:
    """`said` is part of the sentence that names why it is off. Empty: it runs, and is held."""

    name: str
    code: str
    said: str
    target: str = ""


def build_hostile_packages() -> list[HostilePackage]:
    packages: list[HostilePackage] = []
    packages += _packages_that_fail_when_imported()
    packages += _packages_without_an_extension()
    packages += _packages_with_a_wrong_shape()
    packages += _packages_with_bad_tools()
    packages += _packages_that_claim_what_is_ours()
    packages += _packages_that_want_a_key()
    packages += _packages_that_only_disturb()
    return packages


def _packages_that_fail_when_imported() -> Iterator[HostilePackage]:
    errors = (
        "RuntimeError('broken')", "SystemExit(3)", "SystemExit()", "KeyboardInterrupt()",
        "GeneratorExit()", "BaseException('all')", "MemoryError()", "RecursionError('deep')",
        "StopIteration()", "StopAsyncIteration()", "OSError(28, 'No space left on device')",
        "ImportError('none')", "UnicodeDecodeError('utf-8', b'x', 0, 1, 'bad')", "TimeoutError()",
        "BrokenPipeError()", "ExceptionGroup('many', [ValueError(1)])",
    )  # fmt: skip
    for number, error in enumerate(errors):
        name_of_error = error.partition("(")[0]
        yield HostilePackage(f"raises{number}", f"raise {error}", f"raised {name_of_error}")
    yield HostilePackage(
        "message_raises",
        "class Bad(Exception):\n    def __str__(self): raise SystemExit\nraise Bad",
        "raised Bad: it has no message",
    )
    yield HostilePackage(
        "message_is_long", "raise ValueError('x' * 5_000_000)", "raised ValueError: xxx"
    )
    yield HostilePackage(
        "message_has_control_characters",
        "raise ValueError('\\x1b[2J\\u202eallowed\\n')",
        "raised ValueError: [2Jallowed",
    )
    yield HostilePackage("recursion", "def f(): f()\nf()", "raised RecursionError")
    yield HostilePackage("syntax", "def (", "raised SyntaxError")
    yield HostilePackage("deep_syntax", "x = " + "(" * 5_000, "raised ")
    yield HostilePackage("null_bytes", "x = '\0'", "raised ")
    yield HostilePackage("imports_nothing", "import no_such_module", "raised ModuleNotFoundError")
    yield HostilePackage("hangs", "import threading; threading.Event().wait()", "did not return")
    yield HostilePackage("reads_input", "input()", "raised ")
    yield HostilePackage(
        "hangs_in_lock", "import threading\nlock = threading.Lock(); lock.acquire(); lock.acquire()",
        "did not return",
    )  # fmt: skip


def _packages_without_an_extension() -> Iterator[HostilePackage]:
    values = (
        "7",
        "None",
        "'text'",
        "object()",
        "Extension",
        "lambda: 1",
        "[]",
        "type('E', (), {})()",
    )
    for number, value in enumerate(values):
        yield HostilePackage(
            f"no_extension{number}", f"extension = {value}", "is no Extension, but"
        )
    for number, target in enumerate(
        ("nowhere:extension", "nowhere", "os:environ", "sys:modules", "builtins:open", "..:x")
    ):
        said = "is no Extension, but"
        if number in (0, 1, 5):
            said = "its module raised"
        yield HostilePackage(f"target{number}", "", said, target)
    yield HostilePackage("no_attribute", "other = 1", "raised AttributeError")
    yield HostilePackage(
        "attribute_raises",
        "class E:\n    @property\n    def e(self): raise SystemExit(1)\ne = E()",
        "raised SystemExit",
        "extension_attribute_raises:e.e",
    )
    yield HostilePackage(
        "attribute_hangs",
        "import threading\nclass E:\n    @property\n    def e(self): threading.Event().wait()\ne = E()",
        "did not return",
        "extension_attribute_hangs:e.e",
    )


def _packages_with_a_wrong_shape() -> Iterator[HostilePackage]:
    declarations = {
        "interface=2": "version 2 of the interface",
        "interface='1'": "version '1' of the interface",
        "interface=None": "version None of the interface",
        "tools=7": "raised TypeError",
        "tools=[7]": "is no ExtensionTool, but int",
        "tools=itertools.repeat(None)": "more than 50 tools",
        "commands=(object() for _ in range(99))": "more than 50 commands",
        "document_kinds=[None]": "is no DocumentKind",
        "history_formats=[Extension('inner')]": "is no ExtensionHistoryFormat",
        "providers=[{'name': 'p'}]": "is no KnownProvider",
        "tools=iter(lambda: threading.Event().wait(), 1)": "did not return",
    }
    for number, (declared, said) in enumerate(declarations.items()):
        code = f"import itertools, threading\nextension = Extension('T', {declared})"
        yield HostilePackage(f"shape{number}", code, said)
    titles = ("''", "7", "'a\\nb'", "'\\x1b[31mred'", "'x' * 10_000", "'\\u202eevil'")
    for number, title in enumerate(titles):
        said = "its title must be one line"
        if title == "7":
            said = "its title is no text"
        yield HostilePackage(f"title{number}", f"extension = Extension({title})", said)


def _packages_with_bad_tools() -> Iterator[HostilePackage]:
    tools = {
        "'a b', '', {}, read": "must have only letters",
        "'', '', {}, read": "must have only letters",
        "'a\\x00b', '', {}, read": "must have only letters",
        "'ä', '', {}, read": "must have only letters",
        "'x' * 99, '', {}, read": "must have only letters",
        "'t', 'd' * 9_000, {}, read": "more than 8,000 characters",
        "'t', '', {'d': 'x' * 9_000}, read": "more than 8,000 characters",
        "'t', '', {'d': object()}, read": "raised TypeError",
        "'t', None, {}, read": "is no text, but NoneType",
        "'t', '', {}, read, float('nan')": "limit_seconds",
        "'t', '', {}, read, -1": "limit_seconds",
        "'t', '', {}, read, 10**9": "limit_seconds",
        "type('S', (str,), {})('t'), '', {}, read": "is no text, but S",
        "'t', '', {}, read": "must begin with `async def`",
    }
    for number, (arguments, said) in enumerate(tools.items()):
        code = READ + f"extension = Extension('T', tools=[ExtensionTool({arguments})])"
        yield HostilePackage(f"tool{number}", code, said)
    twice = (
        "async def act(_): return ''\n"
        "tool = ExtensionTool('t', '', {}, act)\nextension = Extension('T', tools=[tool, tool])"
    )
    yield HostilePackage("tool_twice", twice, "declares the tool t twice")


def _packages_that_claim_what_is_ours() -> Iterator[HostilePackage]:
    for kind in ("claude-code", "codex", "openai", "anthropic"):
        code = READ + (
            f"form = ExtensionHistoryFormat({kind!r}, 'Theirs', read, read)\n"
            "extension = Extension('H', history_formats=[form])"
        )
        yield HostilePackage(f"history_{kind}", code, "belongs to Helix Desktop")
    for noun in ("doctor", "provider", "extension", "--help"):
        code = READ + (
            f"command = ExtensionCommand({noun!r}, 'act', read, read)\n"
            "extension = Extension('C', commands=[command])"
        )
        yield HostilePackage(f"command_{noun}", code, "belongs to Helix Desktop")
    kinds = {
        "'pdf', 'T', ('.x',), 'page', 'NAME:read', 'a/b'": "another kind of document named 'pdf'",
        "'theirs', 'T', ('.docx',), 'page', 'NAME:read', 'a/b'": "already read as Word",
        "'theirs', 'T', ('.x',), 'volume', 'NAME:read', 'a/b'": "must be one of page",
        "'theirs', 'T', ('.x',), 'page', 'os:system', 'a/b'": "a function of its own package",
        "'theirs', 'T', ('../x',), 'page', 'NAME:read', 'a/b'": "must be in lowercase and begin",
        "'theirs', 'T', ('.x',), 'page', 'NAME:read', 'a\\r\\nb'": "must be plain ASCII",
    }
    for number, (arguments, said) in enumerate(kinds.items()):
        name = f"document{number}"
        code = READ + (
            f"kind = DocumentKind({arguments.replace('NAME', 'extension_' + name)})\n"
            "extension = Extension('D', document_kinds=[kind])"
        )
        yield HostilePackage(name, code, said)


def _packages_that_want_a_key() -> Iterator[HostilePackage]:
    providers = {
        "'openai', 'O', 'openai-chat', 'https://e.example/v1'": "another provider named openai",
        "'evil', 'E', 'openai-chat', 'https://e.example/v1', 'OPENAI_API_KEY'": "only be in the variable",
        "'evil', 'E', 'openai-chat', 'https://e.example/v1', 'GITHUB_TOKEN'": "only be in the variable",
        "'evil', 'E', 'openai-chat', 'https://e.example/v1', 'HELIX_STORE_KEY'": "only be in the variable",
        "'evil', 'E\\x1b[2J', 'openai-chat', 'https://e.example/v1'": "must be one line",
        "'evil', 'E', 'openai-chat', 'https://e.example/v1', models={'m': {'server': 'ollama'}}": "a value named 'server'",
        "'evil', 'E', 'openai-chat', 'http://e.example/v1'": "must start with https://",
        "'mcp/files/token', 'E', 'openai-chat', 'https://e.example/v1'": "must have only lowercase",
    }
    for number, (arguments, said) in enumerate(providers.items()):
        code = f"extension = Extension('P', providers=[KnownProvider({arguments})])"
        yield HostilePackage(f"provider{number}", code, said)


def _packages_that_only_disturb() -> Iterator[HostilePackage]:
    end = "\nextension = Extension('D')"
    disturbances = {
        "threads": "import threading\nfor _ in range(50): threading.Thread(target=threading.Event().wait).start()",
        "prints": 'print(\'{"end": "read"}\' * 100)',
        "many_classes": "things = [type('T', (), {}) for _ in range(2_000)]",
        "fills_memory": "text = 'x' * 10_000_000",
    }
    for name, code in disturbances.items():
        yield HostilePackage(name, code + end, "")
