"""The enums of PySide6, declared as `helix_desktop.gui` declares them, beside the same
ones declared by the library alone.
"""

from __future__ import annotations

import enum
import subprocess
import sys

import pytest

import helix_desktop.gui

DESCRIBE = """
import enum, importlib, json, pickle, sys
def tried(act):
    try:
        return str(act())
    except (AttributeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
def describe(kind):
    members = list(kind.__members__.values())
    about = [kind.__module__, kind.__qualname__, kind.__doc__, [base.__name__ for base in kind.__mro__], list(kind.__members__), len(kind)]
    about += [[each.name, each.value, repr(each), str(each), f"{each}", kind(each.value) is each, tried(lambda: each < 2)] for each in members]
    about += [[each.name for each in kind], tried(lambda: hash(members[0]) == hash(members[0].value)), tried(lambda: setattr(kind, members[0].name, 1))]
    about.append(sorted((name, repr(value)) for name, value in vars(kind).items() if name.startswith("_") and "0x" not in repr(value)))
    if issubclass(kind, enum.Flag):
        for each in members:
            about += [tried(lambda: repr([~each, each | members[0], each & members[-1], each ^ members[0], bool(each), each in members[-1]]))]
            about += [tried(lambda: [*each])]
        about.append([repr(kind(0)), repr(kind(1 << 29))])
    about += [tried(lambda: kind("none")), tried(lambda: [pickle.loads(pickle.dumps(each)) is each for each in members[:3]])]
    return about
found, seen = {}, set()
def walk(owner, path):
    for name in sorted(vars(owner)):
        value = getattr(owner, name, None)
        if isinstance(value, enum.EnumType) and value.__module__.startswith("PySide6") and value.__members__:
            found[f"{path}.{name}"] = describe(value)
        elif isinstance(value, type) and value.__module__.startswith("PySide6") and value not in seen:
            seen.add(value)
            walk(value, f"{path}.{name}")
for module in ("QtCore", "QtGui", "QtWidgets", "QtSvg"):
    whole = importlib.import_module(f"PySide6.{module}")
    for name in dir(whole):
        getattr(whole, name)
    walk(whole, module)
print(json.dumps(found))
"""


def described(first: str) -> str:
    script = f"{first}\n{DESCRIBE}"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout


def test_an_enum_of_pyside_is_the_same_whoever_declares_it() -> None:
    import json

    ours = json.loads(described("import helix_desktop.gui"))
    theirs = json.loads(described(""))
    assert len(theirs) > 300
    assert ours.keys() == theirs.keys()
    assert [name for name in theirs if ours[name] != theirs[name]] == []


def test_enums_of_others_are_declared_by_the_library() -> None:
    made = enum.Enum("made", "one two")
    assert (made.__module__, [each.value for each in made]) == (__name__, [1, 2])
    paired = enum.Enum(
        "paired", [("one", 1), ("again", 1), ("two", 2)], module="elsewhere", qualname="Some.paired"
    )
    assert (paired.__module__, paired.__qualname__, [each.name for each in paired]) == (
        "elsewhere",
        "Some.paired",
        ["one", "two"],
    )
    with pytest.raises(TypeError):
        enum.Enum("twice", ["one", "one"])


def test_the_first_paint_has_the_fast_declaration_before_pyside_declares_anything() -> None:
    script = (
        "import enum\nasked = []\nslow = enum.EnumType._create_\n"
        "def count(cls, name, names, **others):\n    asked.append(name)\n    return slow(cls, name, names, **others)\n"
        "enum.EnumType._create_ = count\nimport helix_desktop.window_start\nprint(*asked)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == []


def test_python_imports_as_it_did_before_pyside() -> None:
    script = "import builtins\nimport helix_desktop.window_start\nprint(builtins.__import__ is builtins.__orig_import__)"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "True"
    assert helix_desktop.gui is not None


EXPLAIN = """
from PySide6.QtCore import QPoint, QTimer
from PySide6.QtWidgets import QWidget
def tried(act):
    try:
        return str(act())
    except (AttributeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
wrong = lambda: QPoint("x", 3), lambda: QTimer(unknown=1), lambda: QPoint().setX(), lambda: QWidget.setVisible(1, 2)
print(*map(tried, wrong), QPoint.setX.__doc__, sep="\\n")
import PySide6.support.signature.mapping, PySide6.support.signature.layout
print(PySide6.support.signature.layout.create_signature.__name__)
"""


def test_what_pyside_says_of_a_wrong_call_is_compiled_only_when_it_is_said() -> None:
    loaded = (
        "import sys\nprint('__file__' in vars(sys.modules['shibokensupport.signature.layout']))"
    )

    def said(script: str) -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout.splitlines()

    theirs = said(EXPLAIN)
    assert "Supported signatures" in "".join(theirs)
    assert said(f"import helix_desktop.gui\n{EXPLAIN}") == theirs
    assert said(f"import helix_desktop.gui\n{loaded}\n{EXPLAIN}\n{loaded}") == [
        "False",
        *theirs,
        "True",
    ]
