"""The desktop window. It listens to the journal and calls session commands; the layers
below must not import it.

Importing it makes PySide6 load faster, so `window_start.py` imports it before PySide6.
"""

import builtins
import enum
import importlib.machinery
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

_create_checked_enum: Any = vars(enum.EnumType).get("_create_")
_declare_without_checks: Any = vars(enum).get("_simple_enum")
_MODULES_FOR_ERRORS = (
    "parser",
    "layout",
    "errorhandler",
    "lib.enum_sig",
    "lib.pyi_generator",
    "lib.tool",
)


def _find_late_module(name: str, loader: Any) -> ModuleSpec:
    """Finds a module of PySide6. What only its errors need is compiled when it is first used."""
    if name.removeprefix("shibokensupport.signature.") not in _MODULES_FOR_ERRORS:
        return ModuleSpec(name, loader)
    module: Any = ModuleType(name)

    def load_and_get(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        module.__spec__ = ModuleSpec(name, loader)  # PySide6 has renamed its own by now.
        loader.exec_module(module)
        vars(module).pop("__getattr__", None)
        return getattr(module, attribute)

    module.__getattr__ = load_and_get
    late_loader: Any = SimpleNamespace(
        create_module=lambda _spec: module, exec_module=lambda _module: None
    )
    return ModuleSpec(name, late_loader)


def _create_enum(cls: Any, class_name: str, names: Any, **options: Any) -> Any:
    """Declares an enum of PySide6, which gives a list of pairs, without checks: in half
    the time.
    """
    module = options["module"]
    if not module:
        # The checked declaration would name this module, because it looks at who calls it.
        module = sys._getframe(2).f_globals.get("__name__")  # noqa: SLF001
    has_pairs = isinstance(names, list) and not (names and isinstance(names[0], str))
    if options["module"] or options["type"] or not has_pairs:
        options["module"] = module
        return _create_checked_enum(cls, class_name, names, **options)
    members = dict(names)
    members["__module__"] = module
    class_with_members = type(class_name, (), members)
    declare = _declare_without_checks(cls, boundary=options["boundary"])
    created = declare(class_with_members)
    created.__doc__ = None
    return created


# Later versions of Python were not tried.
if sys.version_info < (3, 14) and _create_checked_enum and _declare_without_checks:
    setattr(enum.EnumType, "_create_", _create_enum)  # noqa: B010
vars(importlib.machinery)["ModuleSpec"] = _find_late_module
import PySide6.QtCore  # noqa: E402 -- The first one names the library that is missing.

vars(importlib.machinery)["ModuleSpec"] = ModuleSpec
import PySide6.QtWidgets  # noqa: E402, F401

# PySide6 replaces Python's import function with one that reads each module's source, to
# look for Qt's names. Our modules need no such check, so Python's own function is
# restored. This saves 10 MB, and 80 ms at the start.
builtins.__import__ = getattr(builtins, "__orig_import__", builtins.__import__)
