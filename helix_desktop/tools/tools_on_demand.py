"""Tools on demand: the model finds tools by `find_tools` and calls them by `call_tool`.

So thousands of tools cost a request only two definitions and a line for each server. Decisions
and lines stay as they are for a conversation, since the provider's cache begins with the tools.
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from helix_desktop.engine.facts import ToolSpec
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.tool_call_parsing import CALL_TOOL, FIND_TOOLS
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import object_at, parse_json_or_none
from helix_desktop.tools import built_in_tool
from helix_desktop.tools.argument_schema import build_spec
from helix_desktop.tools.tool_ranking import TextRanking

MOST_FOUND = 20
_HEADING = "\nMore tools, by source:\n"
_SHOWN_DESCRIPTION_CHARACTERS = 600  # Search results show this many characters of a description.
_SHOWN_SCHEMA_CHARACTERS = 4_000
_LEAST_TOKENS_OF_LINE = 12  # This many tokens are enough for the name of a source and little else.


@dataclass(frozen=True, slots=True)
class SourceSummary:
    """A source of tools or skills, listed in every request as `- name: summary`."""

    name: str
    summary: str

    def __str__(self) -> str:
        if not self.summary:
            return f"- {self.name}"
        return f"- {self.name}: {self.summary}"


@dataclass(frozen=True, slots=True)
class SourceCatalogue:
    """Lines of one kind, such as skills or agents, under a heading."""

    heading: str
    lines: tuple[SourceSummary, ...]


@dataclass(frozen=True, slots=True)
class RequestHeadRoom:
    """Token limits for the start of each request: `definition_tokens` for servers'
    tools, `catalogue_tokens` for lines.
    """

    definition_tokens: int = 10_000
    catalogue_tokens: int = 2_000


class ToolFinder:
    """Searches all tools of a workspace. Rebuilt when the tools have changed."""

    def __init__(self) -> None:
        self._specs: tuple[ToolSpec, ...] = ()
        self._ranking = TextRanking(())
        self._building_lock = asyncio.Lock()

    async def find_best_tools(
        self, query: str, limit: int, specs: Sequence[ToolSpec], allowed: Callable[[str], bool]
    ) -> list[ToolSpec]:
        """Return the tools of `specs` that match best. Building and asking the search
        runs in a thread.
        """
        async with self._building_lock:
            wanted_specs = tuple(specs)
            if wanted_specs != self._specs:
                texts = []
                for spec in wanted_specs:
                    words = f"{spec.description} {_parameter_words(spec.schema)}"
                    texts.append((spec.name, words))
                self._ranking = await asyncio.to_thread(TextRanking, texts)
                self._specs = wanted_specs
        # While we wait below, another search may replace these.
        ranking = self._ranking
        ranked_specs = self._specs

        def is_allowed(number: int) -> bool:
            return allowed(ranked_specs[number].name)

        numbers = await asyncio.to_thread(ranking.find_best_texts, query, limit, is_allowed)
        return [ranked_specs[number] for number in numbers]


@dataclass(slots=True)
class OnDemandTools:
    """Decides which tool definitions a conversation is sent, and which it must search for.

    `specs_sent_before`: the definitions sent last, which a reopened conversation keeps.
    """

    tokens: TokenCounter
    finder: ToolFinder
    token_room: Callable[[], RequestHeadRoom] = RequestHeadRoom
    specs_sent_before: Callable[[], Sequence[ToolSpec]] = tuple
    catalogues: Callable[[], Sequence[SourceCatalogue]] = tuple
    # Other things that can be searched for, such as skills.
    also_searchable: Callable[[], Sequence[ToolSpec]] = tuple
    # The number of definitions that are not sent, and roughly how many tokens they have.
    withheld_count_and_tokens: tuple[int, int] = 0, 0
    # By server: True if its definitions are sent.
    _is_sent_by_server: dict[str, bool] = field(default_factory=dict)
    _summaries_by_server: dict[str, SourceSummary] = field(default_factory=dict)
    _has_restored_decisions: bool = False

    def definitions_to_send(
        self, foreign: Sequence[ToolSpec], rare: Sequence[ToolSpec]
    ) -> tuple[ToolSpec, ...]:
        """Return the definitions to send: the two tools, then those of servers for
        which there is room.
        """
        by_server: dict[str, list[ToolSpec]] = {}
        for spec in foreign:
            by_server.setdefault(server_of_tool(spec.name), []).append(spec)
        self._restore_sent_definitions(by_server)
        self._decide_new_servers(by_server)
        sent: list[ToolSpec] = []
        withheld: list[ToolSpec] = []
        for server, specs in by_server.items():
            if self._is_sent_by_server[server]:
                sent.extend(specs)
                continue
            withheld.extend(specs)
            if server not in self._summaries_by_server:
                self._summaries_by_server[server] = SourceSummary(
                    server, self._summarise_server(server, specs)
                )
        withheld.extend(rare)
        tokens = self._estimate_definition_tokens(withheld)
        self.withheld_count_and_tokens = (len(withheld), tokens)
        return (*self._own_definitions(), *sorted(sent, key=lambda spec: spec.name))

    def build_on_demand_tools(
        self, searchable: Callable[[], Sequence[ToolSpec]], names: Callable[[], frozenset[str]]
    ) -> tuple[built_in_tool.BuiltInTool, ...]:
        """Return the tools find_tools and call_tool. `names`: the tools that may be called now."""

        async def call_find_tools(
            args: built_in_tool.ToolArguments, _: built_in_tool.ToolResources
        ) -> built_in_tool.ToolOutput:
            """Search the tools of servers, and what else can be searched for, such as skills."""
            limit = min(args.number_argument("limit", 5), MOST_FOUND)
            everything = list(searchable())
            everything += self.also_searchable()
            query = args.text_argument("query")
            is_callable = names().__contains__
            found = await self.finder.find_best_tools(query, limit, everything, is_callable)
            found_text = _format_found_tools(found, query)
            return built_in_tool.ToolOutput(found_text, source=query)

        return (
            built_in_tool.BuiltInTool(_FIND_TOOLS, call_find_tools),
            built_in_tool.BuiltInTool(_CALL_TOOL, _refuse_malformed_call),
        )

    def _restore_sent_definitions(self, by_server: Mapping[str, object]) -> None:
        """Restore the decisions that the journal recorded."""
        if self._has_restored_decisions:
            return
        self._has_restored_decisions = True
        for spec in self.specs_sent_before():
            if spec.name == FIND_TOOLS and _HEADING in spec.description:
                lines = spec.description.partition(_HEADING)[2].partition("\n\n")[0]
                for line in lines.splitlines():
                    name, _, summary = line.removeprefix("- ").partition(": ")
                    self._summaries_by_server[name] = SourceSummary(name, summary)
                    self._is_sent_by_server.setdefault(name, False)
                continue
            server = server_of_tool(spec.name)
            if server in by_server:
                self._is_sent_by_server[server] = True

    def _decide_new_servers(self, by_server: Mapping[str, Sequence[ToolSpec]]) -> None:
        """Send a new server's definitions if there is room for all of them besides the others."""
        new_servers = [server for server in by_server if server not in self._is_sent_by_server]
        if not new_servers:
            return
        token_limit = self.token_room().definition_tokens
        wanted: list[ToolSpec] = []
        for server, specs in by_server.items():
            is_new = server not in self._is_sent_by_server
            if is_new or self._is_sent_by_server[server]:
                wanted.extend(specs)
        fits = self._definitions_fit(wanted, token_limit)
        self._is_sent_by_server.update(dict.fromkeys(new_servers, fits))

    def _definitions_fit(self, specs: Sequence[ToolSpec], token_limit: int) -> bool:
        """Whether these definitions fit. Counting stops at the limit: thousands are
        never read completely.
        """
        if sum(len(spec.schema) + len(spec.description) for spec in specs) > token_limit * 16:
            return False
        used = 0
        for spec in specs:
            used += self.tokens.count_tokens(spec.name + spec.description + spec.schema)
            if used > token_limit:
                return False
        return True

    def _estimate_definition_tokens(self, specs: Sequence[ToolSpec]) -> int:
        """Estimate by a sample of about sixteen, as there may be thousands."""
        if not specs:
            return 0
        texts = [spec.name + spec.description + spec.schema for spec in specs]
        step = max(1, len(texts) // 16)
        sample = "".join(texts[::step])
        length_of_all = sum(map(len, texts))
        length_of_sample = max(1, len(sample))
        return length_of_all * self.tokens.count_tokens(sample) // length_of_sample

    def _summarise_server(self, server: str, specs: Sequence[ToolSpec]) -> str:
        """Return as many names of the server's tools as fit into its line."""
        server_count = max(8, len(self._is_sent_by_server))
        share_of_server = self.token_room().catalogue_tokens // server_count
        token_limit = max(_LEAST_TOKENS_OF_LINE, share_of_server)
        names = [spec.name.removeprefix(f"{server}__") for spec in specs]
        summary = ", ".join(names[:40])
        while self.tokens.count_tokens(summary) > token_limit - 4 and len(names) > 1:
            shown_count = min(len(names), 40)
            fewer = max(1, shown_count * 3 // 4)
            names = names[:fewer]
            summary = ", ".join(names) + " …"
        return summary

    def _own_definitions(self) -> tuple[ToolSpec, ...]:
        """Return the definitions of find_tools and call_tool. The first one's description lists
        the sources of tools, so that the model knows what it can search for.
        """
        summaries = tuple(self._summaries_by_server.values())
        catalogues = [SourceCatalogue(_HEADING.strip(), summaries)]
        catalogues += self.catalogues()
        paragraphs = [_FIND_TOOLS.description]
        paragraphs += self._catalogue_lines_that_fit(catalogues)
        # The heading of the servers ends the description itself, without an empty line before it.
        description = "\n\n".join(paragraphs).replace(f"\n{_HEADING}", _HEADING)
        return (
            build_spec(FIND_TOOLS, description, _FIND_TOOLS.schema),
            build_spec(CALL_TOOL, _CALL_TOOL.description, _CALL_TOOL.schema),
        )

    def _catalogue_lines_that_fit(self, catalogues: Sequence[SourceCatalogue]) -> list[str]:
        """Return as many lines as fit, from all catalogues in turn. The rest can be
        searched for.
        """
        tokens_left = self.token_room().catalogue_tokens
        shown: dict[int, list[str]] = {}
        for row in itertools.zip_longest(*(catalogue.lines for catalogue in catalogues)):
            for number, line in enumerate(row):
                if line is None:
                    continue
                tokens_left -= self.tokens.count_tokens(f"{line}\n")
                if tokens_left >= 0:
                    shown.setdefault(number, []).append(str(line))
        texts = []
        for number in sorted(shown):
            texts.append(self._format_catalogue(catalogues[number], shown[number]))
        return texts

    def _format_catalogue(self, catalogue: SourceCatalogue, shown: Sequence[str]) -> str:
        lines = [catalogue.heading]
        lines.extend(shown)
        left_out = len(catalogue.lines) - len(shown)
        if left_out:
            lines.append(f"(and {left_out} more: search)")
        return "\n".join(lines)


def server_of_tool(name: str) -> str:
    return name.partition("__")[0]


def _parameter_words(schema: str) -> str:
    """Return the names and descriptions of a tool's parameters, to search in them."""
    properties = object_at(parse_json_or_none(schema), "properties")
    words = list(properties)
    for parameter in properties.values():
        if isinstance(parameter, dict) and isinstance(parameter.get("description"), str):
            words.append(parameter["description"])
    return " ".join(words)


def _format_found_tools(tools: Sequence[ToolSpec], query: str) -> str:
    """Return the tools found, each with its description and its arguments."""
    if not tools:
        return f"No tool was found for {query[:200]!r}. Try other words: what it should do, and to what."
    paragraphs = []
    for spec in tools:
        description = " ".join(spec.description.split())[:_SHOWN_DESCRIPTION_CHARACTERS]
        paragraphs.append(
            f"{spec.name}\n  {description}\n  {spec.schema[:_SHOWN_SCHEMA_CHARACTERS]}"
        )
    return "\n\n".join(paragraphs)


async def _refuse_malformed_call(
    args: built_in_tool.ToolArguments, _: built_in_tool.ToolResources
) -> built_in_tool.ToolOutput:
    raise InvalidInput(
        f"call_tool cannot call {args.text_argument('name')[:80]!r} like this; nothing was run.",
        remedy='The arguments of call_tool are {"name": a name that find_tools returned, "arguments": an object}.',
    )


def check_arguments_of_server_tool(
    values: Mapping[str, Any], schema: Mapping[str, Any], tool_name: str
) -> None:
    """Raise InvalidInput if arguments don't fit a server's schema. Slow patterns are
    left to the server.
    """
    import referencing
    from jsonschema import Draft202012Validator, SchemaError, validators  # type: ignore[import-untyped]
    from jsonschema.exceptions import UnknownType  # type: ignore[import-untyped]

    without_patterns = validators.extend(
        Draft202012Validator, {"pattern": None, "patternProperties": None}
    )
    try:
        # An empty registry: a schema must not make us read what it refers to.
        validator = without_patterns(schema, registry=referencing.Registry())
        mistake = next(iter(validator.iter_errors(values)), None)
    except (
        SchemaError,
        UnknownType,
        referencing.exceptions.Unresolvable,
        RecursionError,
        TypeError,
        ValueError,
        AttributeError,
    ):
        return  # The schema can't be read, so the server must judge the arguments.
    if mistake is None:
        return
    where = tool_name
    if mistake.absolute_path:
        where = f"{tool_name}: {'.'.join(map(str, mistake.absolute_path))}"
    raise InvalidInput(
        f"{where}: {mistake.message[:300]}. The tool was not run.",
        remedy=f"Its parameters: {json.dumps(schema, ensure_ascii=False)[:_SHOWN_SCHEMA_CHARACTERS]}",
    )


_FIND_TOOLS = built_in_tool.ToolDeclaration(
    FIND_TOOLS,
    "Search for more tools: background commands, finding files by name, compacting an entry, and others. Returns names and parameters for call_tool.",
    {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
        "required": ["query"],
    },
)
_CALL_TOOL = built_in_tool.ToolDeclaration(
    CALL_TOOL,
    "Call a tool find_tools returned.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name"],
    },
)
