"""Tools on demand: what is not sent as a definition is found by `find_tools` and called through `call_tool`.

So thousands of tools cost a request the two definitions and a line for each server. What is decided for a server, and its
line, stays as it is for the conversation: the provider's cache holds the array of tools in front of everything else.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from helix_desktop.engine.calls import CALL_TOOL, FIND_TOOLS
from helix_desktop.engine.facts import ToolSpec
from helix_desktop.engine.ports import Tokens
from helix_desktop.errors import WrongUse
from helix_desktop.tools.ranking import Ranking
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, text, whole
from helix_desktop.values import dataclass

MOST_FOUND = 20
_ABOUT_FIND = (
    "Search for more tools: background commands, finding files by name, compacting an entry, and others. "
    "Returns names and parameters for call_tool."
)
_ABOUT_CALL = "Call a tool find_tools returned."
_HEADING = "\nMore tools, by source:\n"
_FIND = fields("query", query=text(), limit=whole(least=1))
_CALL = fields(
    "name",
    name=text(),
    arguments={"type": "object"},
)
_SHOWN = 600  # characters of a description in a result
_SCHEMA_SHOWN = 4_000
_LEAST_LINE = 12  # tokens: a source's name, and little more


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One source of tools or skills, as every request lists it: `- name: said`."""

    name: str
    said: str

    def __str__(self) -> str:
        return f"- {self.name}: {self.said}" if self.said else f"- {self.name}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Lines of one kind under a heading: skills, agents."""

    heading: str
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """How much every request may begin with, in tokens. `definitions`: of servers' tools; `catalogue`: lines."""

    definitions: int = 10_000
    catalogue: int = 2_000


class Finder:
    """The search over all tools of a workspace, made anew when they have changed."""

    def __init__(self) -> None:
        self._specs: tuple[ToolSpec, ...] = ()
        self._ranking = Ranking(())
        self._making = asyncio.Lock()

    async def best(
        self, query: str, limit: int, specs: Sequence[ToolSpec], allowed: Callable[[str], bool]
    ) -> list[ToolSpec]:
        """Of `specs`, those that fit; the search is made, and asked, beside the loop."""
        async with self._making:
            wanted = tuple(specs)
            if wanted != self._specs:
                self._ranking = await asyncio.to_thread(Ranking, [(spec.name, _searched(spec)) for spec in wanted])
                self._specs = wanted
        ranking, known = self._ranking, self._specs
        found = await asyncio.to_thread(ranking.best, query, limit, lambda number: allowed(known[number].name))
        return [known[number] for number in found]


@dataclass(slots=True)
class OnDemand:
    """What one conversation is sent of its tools, and what it has to search for.

    `before`: what was offered last, so that a conversation that is opened again goes on with the same array.
    """

    tokens: Tokens
    finder: Finder
    room: Callable[[], Room] = Room
    before: Callable[[], Sequence[ToolSpec]] = tuple
    catalogues: Callable[[], Sequence[Catalogue]] = tuple
    also: Callable[[], Sequence[ToolSpec]] = tuple  # what is found besides tools: skills
    withheld: tuple[int, int] = (0, 0)  # how many definitions are not sent, and their tokens, about
    _sent: dict[str, bool] = field(default_factory=dict)  # by server, whether its definitions are sent
    _lines: dict[str, SourceLine] = field(default_factory=dict)
    _begun: bool = False

    def offered(self, foreign: Sequence[ToolSpec], rare: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """The definitions to send: the two tools, then those of the servers that have room."""
        by_server: dict[str, list[ToolSpec]] = {}
        for spec in foreign:
            by_server.setdefault(server_of(spec.name), []).append(spec)
        self._begin(by_server)
        self._decide(by_server)
        shown = [spec for server, specs in by_server.items() if self._sent[server] for spec in specs]
        for server, specs in by_server.items():
            if not self._sent[server] and server not in self._lines:
                self._lines[server] = SourceLine(server, self._said(server, specs))
        held = [spec for server, specs in by_server.items() if not self._sent[server] for spec in specs]
        self.withheld = (len(held) + len(rare), self._estimate([*held, *rare]))
        return (*self._own(), *sorted(shown, key=lambda spec: spec.name))

    def tools(
        self, searchable: Callable[[], Sequence[ToolSpec]], names: Callable[[], frozenset[str]]
    ) -> tuple[Tool, ...]:
        """`names`: of the tools that may be called now."""

        async def find(args: Arguments, _: Use) -> Result:
            limit = min(args.number("limit", 5), MOST_FOUND)
            everything = (*searchable(), *self.also())
            found = await self.finder.best(args.text("query"), limit, everything, names().__contains__)
            return Result(_listed(found, args.text("query")), source=args.text("query"))

        return (Tool(FIND_TOOLS, _ABOUT_FIND, _FIND, find), Tool(CALL_TOOL, _ABOUT_CALL, _CALL, _not_understood))

    # --- what every request begins with

    def _begin(self, by_server: Mapping[str, object]) -> None:
        """Go on as the journal says it was."""
        if self._begun:
            return
        self._begun = True
        for spec in self.before():
            if spec.name == FIND_TOOLS and _HEADING in spec.description:
                for line in spec.description.partition(_HEADING)[2].partition("\n\n")[0].splitlines():
                    name, _, said = line.removeprefix("- ").partition(": ")
                    self._lines[name] = SourceLine(name, said)
                    self._sent.setdefault(name, False)
            elif (server := server_of(spec.name)) in by_server:
                self._sent[server] = True

    def _decide(self, by_server: Mapping[str, Sequence[ToolSpec]]) -> None:
        """A server that is new here is sent where all that is sent then still has room."""
        fresh = [server for server in by_server if server not in self._sent]
        if not fresh:
            return
        room = self.room().definitions
        sent = [spec for server, specs in by_server.items() if self._sent.get(server, True) for spec in specs]
        fits = self._fits(sent, room)
        self._sent.update(dict.fromkeys(fresh, fits))

    def _fits(self, specs: Sequence[ToolSpec], room: int) -> bool:
        """Counted only until it is known: thousands of definitions are never read whole."""
        if sum(len(spec.schema) + len(spec.description) for spec in specs) > room * 16:
            return False
        used = 0
        for spec in specs:
            used += self.tokens.count(spec.name + spec.description + spec.schema)
            if used > room:
                return False
        return True

    def _estimate(self, specs: Sequence[ToolSpec]) -> int:
        """By the tokens of some of them."""
        letters = sum(len(spec.name) + len(spec.description) + len(spec.schema) for spec in specs)
        sample = "".join(spec.name + spec.description + spec.schema for spec in specs[:: max(1, len(specs) // 16)])
        return letters * self.tokens.count(sample) // len(sample) if sample else 0

    def _said(self, server: str, specs: Sequence[ToolSpec]) -> str:
        """The names of its tools, as many as there is room for in a line."""
        room = max(_LEAST_LINE, self.room().catalogue // max(8, len(self._sent)))
        names = [spec.name.removeprefix(f"{server}__") for spec in specs]
        said = ", ".join(names[:40])
        while self.tokens.count(said) > room - 4 and names[1:]:
            names = names[: max(1, min(len(names), 40) * 3 // 4)]
            said = ", ".join(names) + " …"
        return said

    def _own(self) -> tuple[ToolSpec, ...]:
        servers = Catalogue(_HEADING.strip(), tuple(self._lines.values()))
        shown = self._within([servers, *self.catalogues()])
        about = "\n\n".join([_ABOUT_FIND, *shown]).replace(f"\n{_HEADING}", _HEADING)
        return (_spec(FIND_TOOLS, about, _FIND), _spec(CALL_TOOL, _ABOUT_CALL, _CALL))

    def _within(self, catalogues: Sequence[Catalogue]) -> list[str]:
        """As many lines as there is room for, of all catalogues in turn; the rest is found by searching."""
        room = self.room().catalogue
        shown: dict[int, list[str]] = {}
        for row in itertools.zip_longest(*(each.lines for each in catalogues)):
            for number, line in enumerate(row):
                if line is None:
                    continue
                room -= self.tokens.count(f"{line}\n")
                if room >= 0:
                    shown.setdefault(number, []).append(str(line))
        return [self._headed(catalogues[number], shown[number]) for number in sorted(shown)]

    def _headed(self, catalogue: Catalogue, shown: Sequence[str]) -> str:
        left = len(catalogue.lines) - len(shown)
        more = [f"(and {left} more: search)"] if left else []
        return "\n".join([catalogue.heading, *shown, *more])


def server_of(name: str) -> str:
    """The server a tool's name begins with."""
    return name.partition("__")[0]


def _spec(name: str, about: str, schema: Mapping[str, object]) -> ToolSpec:
    return ToolSpec(name, about, json.dumps(schema, ensure_ascii=False, separators=(",", ":")))


def _searched(spec: ToolSpec) -> str:
    """What is said of a tool: its description, its parameters and what is said of them."""
    return f"{spec.description} {_parameters(spec.schema)}"


def _parameters(schema: str) -> str:
    try:
        properties = json.loads(schema).get("properties", {})
    except (ValueError, AttributeError, RecursionError):
        return ""
    if not isinstance(properties, dict):
        return ""
    said = (value.get("description", "") if isinstance(value, dict) else "" for value in properties.values())
    return " ".join([*properties, *(each for each in said if isinstance(each, str))])


def _listed(found: Sequence[ToolSpec], query: str) -> str:
    if not found:
        return f"No tool was found for {query[:200]!r}. Try other words: what it should do, and to what."
    shown = [
        f"{spec.name}\n  {' '.join(spec.description.split())[:_SHOWN]}\n  {spec.schema[:_SCHEMA_SHOWN]}"
        for spec in found
    ]
    return "\n\n".join(shown)


async def _not_understood(args: Arguments, _: Use) -> Result:
    raise WrongUse(
        f"call_tool cannot call {args.text('name')[:80]!r} like this; nothing was run.",
        remedy='The arguments of call_tool are {"name": a name that find_tools returned, "arguments": an object}.',
    )


def checked(values: Mapping[str, Any], schema: Mapping[str, Any], name: str) -> None:
    """WrongUse where the arguments do not fit a server's schema. Patterns are left to the server: they could take forever."""
    import referencing
    from jsonschema import Draft202012Validator, SchemaError, validators  # type: ignore[import-untyped]

    loose = validators.extend(Draft202012Validator, {"pattern": None, "patternProperties": None})
    try:
        wrong = next(iter(loose(schema, registry=referencing.Registry()).iter_errors(values)), None)
    except (SchemaError, referencing.exceptions.Unresolvable, RecursionError, TypeError, ValueError, AttributeError):
        return  # a schema nobody can read: the server judges
    if wrong is not None:
        where = ".".join(map(str, wrong.absolute_path))
        raise WrongUse(
            f"{name}{': ' + where if where else ''}: {wrong.message[:300]}. The tool was not run.",
            remedy=f"Its parameters: {json.dumps(schema, ensure_ascii=False)[:_SCHEMA_SHOWN]}",
        )
