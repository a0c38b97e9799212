"""The enums of Qt, created by us and by the standard library: equal to the last attribute."""

import enum
import subprocess
import sys
from typing import Any

from PySide6 import QtCore, QtGui, QtWidgets

from helix_desktop import fast_qt_enums


def enums_of_qt() -> list[Any]:
    classes = [getattr(module, name) for module in (QtCore, QtGui, QtWidgets) for name in dir(module)]
    found = [each for owner in classes if isinstance(owner, type) for each in vars(owner).values()]
    return [each for each in [*classes, *found] if isinstance(each, enum.EnumType) and each.__module__ != "enum"]


def described(created: Any) -> dict[str, object]:
    """All that the enum keeps, with its members as what they are made of."""

    def plain(value: Any) -> object:
        if isinstance(value, created):
            return {
                **vars(value),
                "__objclass__": value.__objclass__ is created,
                "int": isinstance(value, int) and int(value),
            }
        if isinstance(value, dict):
            return [(plain(key), plain(each)) for key, each in value.items()]
        return getattr(value, "__func__", value)

    own = {name: value for name, value in vars(created).items() if name not in ("__dict__", "__weakref__", "__new__")}
    return {name: plain(value) for name, value in own.items()}


def twice(base: Any, name: str, members: list[tuple[str, int]]) -> tuple[Any, Any]:
    options = {"module": "somewhere", "qualname": f"Some.{name}", "boundary": enum.KEEP}
    library, ours = fast_qt_enums._create_by_library, fast_qt_enums._create_enum
    return library(base, name, members, **options), ours(base, name, members, **options)


def test_all_enums_of_qt_are_what_the_library_makes_of_them() -> None:
    compared = 0
    for each in enums_of_qt():
        members = [(name, member.value) for name, member in each.__members__.items()]
        theirs, ours = twice(each.__base__, each.__name__, members)
        assert described(ours) == described(theirs), each
        assert [member.name for member in ours] == [member.name for member in theirs]
        assert all(ours(value).name == theirs(value).name for _, value in members)
        compared += len(members)
    assert compared > 4000


def test_names_that_a_base_class_has_are_left_to_the_library() -> None:
    for base, names in ((enum.Enum, ["name", "value"]), (enum.IntEnum, ["real", "One"]), (enum.Flag, ["name", "Two"])):
        theirs, ours = twice(base, "Clash", [(name, at + 1) for at, name in enumerate(names)])
        assert [member.name for member in ours] == [member.name for member in theirs] == names


def test_flags_combine_as_the_library_s_do() -> None:
    members = [("None_", 0), ("Two", 2), ("One", 1), ("Both", 3), ("Also", 2), ("All", -1)]
    for base in (enum.Flag, enum.IntFlag):
        theirs, ours = twice(base, "Bits", members)
        for value in (0, 1, 2, 3):
            assert str(ours(value)) == str(theirs(value))
            assert (~ours(value)).value == (~theirs(value)).value
            assert [each.name for each in ours(value)] == [each.name for each in theirs(value)]


def test_the_window_uses_them() -> None:
    code = "from helix_desktop import window_start, fast_qt_enums as f; import enum; print(enum.EnumType._create_ is f._create_enum)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "True"
