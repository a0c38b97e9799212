"""Measures how well names explain themselves: `python -m tests.naming` prints the table.

Each function counts once. A method that implements a method of a Protocol, or overrides
one of a base class in the package, is the same function as that one. A method that
overrides one of a library's class, and a name like `__init__`, were not ours to choose:
neither counts.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "helix_desktop"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class NamingFigures:
    """The figures of one package. Those that end in `percent` are shares of
    definitions, not of different names.
    """

    functions_in_one_file_percent: float
    one_word_functions_percent: float
    shared_class_names_percent: float
    file_names_twice: int


@dataclass(eq=False)
class _PackageClass:
    name: str
    module: str
    bases: Sequence[str]
    methods: Mapping[str, _Function]
    attributes: frozenset[str]
    is_protocol: bool


@dataclass
class _ParsedPackage:
    sources: dict[Path, str] = field(default_factory=dict)
    classes: dict[str, _PackageClass] = field(default_factory=dict)
    definitions: list[tuple[str, str, _PackageClass | None]] = field(default_factory=list)
    """Name, module, and the class of a method."""
    _members: dict[_PackageClass, tuple[Mapping[str, _Function], frozenset[str]]] = field(
        default_factory=dict
    )

    def members(self, owner: _PackageClass) -> tuple[Mapping[str, _Function], frozenset[str]]:
        """The methods and the attributes of a class and its bases here."""
        if owner not in self._members:
            line = list(_with_bases(self, owner))
            methods = {
                name: method for each in reversed(line) for name, method in each.methods.items()
            }
            self._members[owner] = methods, frozenset().union(*(each.attributes for each in line))
        return self._members[owner]


def measure_names(package: Path = PACKAGE) -> NamingFigures:
    """The figures of the package in this folder."""
    return _measure(_parse_package(package))


def list_shared_functions(package: Path = PACKAGE) -> Mapping[str, Sequence[str]]:
    """The names that more than one module defines, with these modules; the most frequent first."""
    return _shared_functions(_parse_package(package))


def _measure(parsed: _ParsedPackage) -> NamingFigures:
    functions = list(_own_functions(parsed))
    homes: dict[str, set[str]] = defaultdict(set)
    for name, module in functions:
        homes[name].add(module)
    class_names = Counter(each.name for each in parsed.classes.values())
    file_names = Counter(path.name for path in parsed.sources if path.name != "__init__.py")
    return NamingFigures(
        functions_in_one_file_percent=_percent(
            sum(len(homes[name]) == 1 for name, _ in functions), len(functions)
        ),
        one_word_functions_percent=_percent(
            sum(_is_one_word(name) for name, _ in functions), len(functions)
        ),
        shared_class_names_percent=_percent(
            sum(count for count in class_names.values() if count > 1), class_names.total()
        ),
        file_names_twice=sum(count > 1 for count in file_names.values()),
    )


def _shared_functions(parsed: _ParsedPackage) -> Mapping[str, Sequence[str]]:
    homes: dict[str, set[str]] = defaultdict(set)
    for name, module in _own_functions(parsed):
        homes[name].add(module)
    shared = sorted(
        (item for item in homes.items() if len(item[1]) > 1),
        key=lambda item: (-len(item[1]), item[0]),
    )
    return {name: sorted(modules) for name, modules in shared}


def _parse_package(package: Path) -> _ParsedPackage:
    parsed = _ParsedPackage()
    for path in sorted(package.rglob("*.py")):
        text = parsed.sources[path] = path.read_text(encoding="utf-8")
        parts = path.relative_to(package.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(text)
        _collect_definitions(parsed, tree, module, module, _imported_names(tree, module))
    return parsed


def _imported_names(tree: ast.Module, module: str) -> Mapping[str, str]:
    """What each name of this module stands for, by the names of the modules it comes from."""
    names: dict[str, str] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            names[statement.name] = f"{module}.{statement.name}"
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = alias.name
                first = alias.name.split(".")[0]
                names[first] = first
    return names


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement, however deep: a walk through all expressions as well takes five
    times as long.
    """
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, name, ()):
            yield each
            yield from _statements(each)


def _collect_definitions(
    parsed: _ParsedPackage, tree: ast.AST, module: str, outer: str, names: Mapping[str, str]
) -> None:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            known = parsed.classes[f"{outer}.{node.name}"] = _read_class(node, module, names)
            for method in known.methods.values():
                parsed.definitions.append((method.name, module, known))
                _collect_definitions(
                    parsed, method, module, f"{outer}.{node.name}.{method.name}", names
                )
            inner = [each for each in node.body if not isinstance(each, _Function)]
            _collect_definitions(
                parsed, ast.Module(inner, []), module, f"{outer}.{node.name}", names
            )
        elif isinstance(node, _Function):
            parsed.definitions.append((node.name, module, None))
            _collect_definitions(parsed, node, module, f"{outer}.{node.name}", names)
        elif isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            _collect_definitions(parsed, node, module, outer, names)


def _read_class(node: ast.ClassDef, module: str, names: Mapping[str, str]) -> _PackageClass:
    bases = [_full_name(base, names) for base in node.bases]
    methods: dict[str, _Function] = {}
    fields: set[str] = set()
    for statement in node.body:
        if isinstance(statement, _Function):
            methods[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            fields.add(statement.target.id)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and _is_stored_in_self(inner):
            fields.add(inner.attr)
    is_protocol = "typing.Protocol" in bases
    return _PackageClass(node.name, module, bases, methods, frozenset(fields), is_protocol)


def _is_stored_in_self(attribute: ast.Attribute) -> bool:
    is_of_self = isinstance(attribute.value, ast.Name) and attribute.value.id == "self"
    return is_of_self and isinstance(attribute.ctx, ast.Store)


def _full_name(base: ast.expr, names: Mapping[str, str]) -> str:
    while isinstance(base, ast.Subscript):
        base = base.value
    first, _, rest = ast.unparse(base).partition(".")
    return f"{names.get(first, first)}.{rest}".rstrip(".")


def _own_functions(parsed: _ParsedPackage) -> Iterator[tuple[str, str]]:
    """Name and module of every function whose name was chosen here, each once."""
    protocols = [each for each in parsed.classes.values() if each.is_protocol]
    names_of_protocols: dict[_PackageClass, set[str]] = {}
    for owner in parsed.classes.values():
        names: set[str] = set()
        for protocol in protocols:
            if not owner.is_protocol and _implements(parsed, owner, protocol):
                names.update(protocol.methods)
        names_of_protocols[owner] = names
    for name, module, owner_or_none in parsed.definitions:
        if name.startswith("__") and name.endswith("__"):
            continue
        if owner_or_none is None:
            yield name, module
            continue
        is_of_protocol = name in names_of_protocols.get(owner_or_none, ())
        if not is_of_protocol and not _is_inherited(parsed, owner_or_none, name):
            yield name, module


def _is_inherited(parsed: _ParsedPackage, owner: _PackageClass, name: str) -> bool:
    for base in owner.bases:
        if (known := parsed.classes.get(base)) is not None:
            if name in known.methods or _is_inherited(parsed, known, name):
                return True
        elif _library_has(base, name):
            return True
    return False


def _library_has(base: str, name: str) -> bool:
    module, _, attribute = base.rpartition(".")
    if not module or base.startswith("helix_desktop.") or base == "typing.Protocol":
        return False
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return False
    return hasattr(found, name)


def _implements(parsed: _ParsedPackage, owner: _PackageClass, protocol: _PackageClass) -> bool:
    """The class has every member of the Protocol, and its methods read the same."""
    members, needed = parsed.members(protocol)
    wanted = {name: method for name, method in members.items() if not name.startswith("__")}
    mine, held = parsed.members(owner)
    return (
        bool(wanted)
        and wanted.keys() <= held | mine.keys()
        and needed <= held | mine.keys()
        and all(
            (name in held and _is_property(method))
            or (name in mine and _can_be_called_as(mine[name], method))
            for name, method in wanted.items()
        )
    )


def _with_bases(parsed: _ParsedPackage, owner: _PackageClass) -> Iterator[_PackageClass]:
    yield owner
    for base in owner.bases:
        if (known := parsed.classes.get(base)) is not None:
            yield from _with_bases(parsed, known)


def _is_property(method: _Function) -> bool:
    return any(ast.unparse(each) == "property" for each in method.decorator_list)


def _can_be_called_as(method: _Function, wanted: _Function) -> bool:
    """Whether two methods are meant to be one: the arguments have the same names, in their order,
    and the class may take more than its Protocol asks for, if they have defaults.
    """
    positions = [each.arg for each in [*method.args.posonlyargs, *method.args.args]]
    wanted_positions = [each.arg for each in [*wanted.args.posonlyargs, *wanted.args.args]]
    keywords = {each.arg for each in method.args.kwonlyargs}
    wanted_keywords = {each.arg for each in wanted.args.kwonlyargs}
    more_positions = len(positions) - len(wanted_positions)
    more_keywords = [
        default
        for each, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
        if each.arg not in wanted_keywords
    ]
    return (
        positions[: len(wanted_positions)] == wanted_positions
        and wanted_keywords <= keywords
        and more_positions <= len(method.args.defaults)
        and None not in more_keywords
    )


def _is_one_word(name: str) -> bool:
    return not re.search(r"_|[a-z][A-Z]", name.strip("_"))


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def main() -> None:
    """Print the table, and the names that lead to most places."""
    parsed = _parse_package(PACKAGE)
    figures = _measure(parsed)
    for each in fields(figures):
        print(f"{each.name.replace('_', ' '):32} {getattr(figures, each.name):>9}")
    for name, modules in itertools.islice(_shared_functions(parsed).items(), 15):
        print(f"  {name:18} in {len(modules)} files")


if __name__ == "__main__":
    main()
