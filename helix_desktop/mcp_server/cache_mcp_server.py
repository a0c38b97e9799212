"""The MCP server builtin_context_cache. Import it only when needed: importing `mcp` takes 0.5 s."""

import base64
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server

from helix_desktop import __version__
from helix_desktop.engine import facts
from helix_desktop.engine.cache_entry_rows import EntryRow
from helix_desktop.engine.content_recall import (
    HASH_BEGINNING,
    MOST_HITS,
    SHORT_HASH,
    describe_left_entries,
    find_entry,
)
from helix_desktop.engine.message_blocks import parts_of, require_message
from helix_desktop.engine.session import Session
from helix_desktop.engine.span_text_and_detail_sources import read_stored_text
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound, format_things
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.mcp_server import cache_operations, offered_tools
from helix_desktop.mcp_server.cache_operations import (
    ServedWorkspace,
    recall_content,
    search_content,
)
from helix_desktop.mcp_server.offered_tools import OFFERS, OfferedTool

TELL = "I asked Helix Desktop for this. Tell me the result in one or two sentences, and do nothing else."
# Clients such as Claude Code give each argument one word, and drop the words that are left.
MOST_WORDS = 12
WORDS = ["words"] + [f"word{number}" for number in range(2, MOST_WORDS + 1)]
EXCERPT_CHARACTERS = 200  # So much of a pinned part is repeated to the agent.
LIST_LIFETIME_MS = 3_600_000  # A client may use a list of tools or prompts for this long.
SessionAct = Callable[[ServedWorkspace, Session, str], Awaitable[str]]


async def _describe_context(_: ServedWorkspace, session: Session, __: str) -> str:
    """Say how full the context window is and with what, and what the next request costs."""
    meter = session.context.next_request_meter()
    lines = [f"The next request takes {meter.format_meter()}."]
    for kind, tokens in meter.parts.items():
        if tokens:
            lines.append(f"- {kind.value}: {tokens:,} tokens")

    next_message = session.context.next_message_cost()
    if next_message:
        dollars = next_message.cost_when_sent(time.time())
        lines.append(f"Sending it costs about ${dollars:.4f}, without the reply.")

    fold_count = len(session.conversation.state.live_folds)
    lines.append(f"Folds: {fold_count}.")
    return "\n".join(lines)


async def _fold_old_outputs(_: ServedWorkspace, session: Session, __: str) -> str:
    tokens_before = session.context.next_request_meter().used
    await session.fold_on_request(facts.FoldKind.MARKER)
    tokens_after = session.context.next_request_meter().used
    return f"The next request takes {tokens_after:,} tokens instead of {tokens_before:,}."


async def _pin_newest_part_with(served: ServedWorkspace, session: Session, words: str) -> str:
    """Pin the newest part that contains the words, or the newest output if there are none."""
    digests_with_words: set[str] = set()
    if words:
        search = await search_content(served, query=words, limit=MOST_HITS)
        digests_with_words = {hit["sha256"] for hit in search["hits"]}

    messages = list(_messages_beside_prompts(session))
    for message in reversed(messages):
        parts = parts_of(require_message(message))
        for part_index, part in enumerate(parts):
            text = await _text_that_may_be_pinned(served, part, words, digests_with_words)
            start = text.casefold().find(words.casefold())
            if text and start >= 0:
                await session.context.pin_part(facts.PartRef(message.seq, part_index))
                excerpt = text[start : start + EXCERPT_CHARACTERS]
                return f"This stays in the context word for word: {excerpt}"

    if words:
        raise InvalidInput("Nothing has these words.")
    raise InvalidInput("There is no output yet.")


async def _text_that_may_be_pinned(
    served: ServedWorkspace, part: object, words: str, digests_with_words: Collection[str]
) -> str:
    """Return the text of a part, or an empty string if it cannot be the one that is meant."""
    if isinstance(part, facts.Text) and words:
        return part.text
    if not isinstance(part, facts.Stored):
        return ""
    if words and part.digest.hex not in digests_with_words:
        return ""
    return await read_stored_text(served.cache, part)


def _messages_beside_prompts(session: Session) -> Iterator[facts.Recorded]:
    """Yield the messages except answers to these prompts, and what the agent said about them."""
    is_about_prompt = False
    for message in session.conversation.state.facts_on_path():
        fact = message.fact
        if isinstance(fact, facts.UserSaid):
            is_about_prompt = _is_answer_to_prompt(fact)
        is_message = isinstance(fact, facts.UserSaid | facts.ModelReplied | facts.ToolReturned)
        if is_message and not is_about_prompt:
            yield message


def _is_answer_to_prompt(message: facts.UserSaid) -> bool:
    """Whether a client sent the message for one of this server's prompts."""
    for part in message.parts:
        if isinstance(part, facts.Text) and TELL in part.text:
            return True
    return False


async def _undo_last_fold(_: ServedWorkspace, session: Session, __: str) -> str:
    folds = session.conversation.state.live_folds
    if not folds:
        raise ActionRefused("Nothing is folded.")
    last_fold = folds[-1]
    folds_to_undo = [last_fold]
    if last_fold.batch:
        # Folds of one batch were made together, and are undone together.
        folds_to_undo = [fold for fold in folds if fold.batch == last_fold.batch]
    for fold in folds_to_undo:
        await session.folding.unfold(fold.fold)

    folded_parts = format_things(len(folds_to_undo), "folded part is", "folded parts are")
    meter = session.context.next_request_meter()
    return f"{folded_parts} shown in full again: {meter.format_meter()}."


async def _recall_best_hit(served: ServedWorkspace, _: Session, words: str) -> str:
    """Bring back the content that contains the words, or whose hash they are. A short word may be
    both; then the content that contains it comes first.
    """
    words = words.strip("\"'`")
    may_be_hash = HASH_BEGINNING.fullmatch(words.lower()) is not None
    is_surely_hash = may_be_hash and len(words) >= SHORT_HASH
    hash_of_hit = ""
    if not is_surely_hash:
        hash_of_hit = await _find_best_hit(served, words)
    if hash_of_hit:
        recalled = await recall_content(served, sha256=hash_of_hit, find=words)
    elif may_be_hash:
        recalled = await recall_content(served, sha256=words, find="")
    else:
        raise NotFound(f"Nothing in the cache contains {words[:80]!r}.", remedy="Use other words.")
    return f"This is the cached content {recalled['sha256']}:\n{recalled['text']}"


async def _find_best_hit(served: ServedWorkspace, words: str) -> str:
    """Return the hash of an entry that contains these words in a row, or else all of them."""
    for query in (f'"{words}"', words):
        search = await search_content(served, query=query, limit=1)
        if search["hits"]:
            return str(search["hits"][0]["sha256"])
    return ""


@dataclass(frozen=True, slots=True)
class SessionPrompt:
    """A prompt of this server. `words`: what its argument is, or empty if it takes none."""

    description: str
    words: str
    run: SessionAct


PROMPTS: Mapping[str, SessionPrompt] = {
    "context": SessionPrompt(
        "Show what is in the context and what it costs", "", _describe_context
    ),
    "fold_now": SessionPrompt("Fold old outputs now", "", _fold_old_outputs),
    "keep": SessionPrompt(
        "Keep a part in the context",
        "words of it; without them, the last output",
        _pin_newest_part_with,
    ),
    "undo_fold": SessionPrompt("Undo the last fold", "", _undo_last_fold),
    "recall": SessionPrompt(
        "Bring something back from the cache", "words of it, or its hash", _recall_best_hit
    ),
}


async def list_session_prompts(context: Any, _params: Any) -> types.ListPromptsResult:
    """List the prompts, with as many arguments as a client needs for words in a row."""
    # Gemini CLI fills required arguments only.
    is_gemini = "gemini" in _client_name(context)
    prompts: list[types.Prompt] = []
    for name, prompt in PROMPTS.items():
        needs_words = is_gemini or name == "recall"
        arguments: list[types.PromptArgument] = []
        if prompt.words:
            arguments = _arguments_for_words(prompt.words, needs_words=needs_words)
        prompts.append(types.Prompt(name=name, description=prompt.description, arguments=arguments))
    return types.ListPromptsResult(prompts=prompts, ttl_ms=LIST_LIFETIME_MS, cache_scope="private")


def _arguments_for_words(description: str, *, needs_words: bool) -> list[types.PromptArgument]:
    arguments: list[types.PromptArgument] = []
    for name in WORDS:
        is_required = needs_words and name == WORDS[0]
        arguments.append(
            types.PromptArgument(name=name, description=description, required=is_required)
        )
    return arguments


def _client_name(context: Any) -> str:
    info = getattr(context.session.client_params, "client_info", None)
    if not info:
        return ""
    name: str = info.name
    return name


PAGE = 100
MCP_TASKS = "io.modelcontextprotocol/tasks"  # With this extension, `add_task` returns a task.
_MCP_TASK_STATUS = {"done": "completed", "failed": "completed", "cancelled": "cancelled"}
ENTRY = "helix://entry/"
HANDOVER = "helix://handover/"
LARGEST_RESOURCE = 8 << 20
log = logging.getLogger(__name__)


class _UpdateTaskRequestParams(types.GetTaskRequestParams):
    """`input_responses` answers a task's questions to the client. Tasks here ask only the user."""

    input_responses: dict[str, Any]


def _check_tool_arguments(offer: OfferedTool, arguments: dict[str, Any]) -> None:
    """Check the arguments. The first call imports the library, so no client waits for
    it at the start.
    """
    from jsonschema import Draft202012Validator, exceptions  # type: ignore[import-untyped]

    mistakes = Draft202012Validator(offer.input_schema).iter_errors(arguments)
    mistake = exceptions.best_match(mistakes)
    if mistake:
        where = ".".join(str(step) for step in mistake.absolute_path) or "the arguments"
        raise InvalidInput(f"{offer.name}: {where[:80]}: {mistake.message[-300:]}")


def _client_supports_tasks(context: Any) -> bool:
    extensions = getattr(context.session.client_capabilities, "extensions", None)
    return MCP_TASKS in (extensions or ())


def build_cache_server(served: ServedWorkspace) -> Server[Any]:
    """Build a server for one workspace, for any number of transports."""
    requests = _CacheServerRequests(served)
    server: Server[Any] = Server(
        offered_tools.NAME,
        version=__version__,
        title="Helix Desktop context cache",
        instructions=offered_tools.INSTRUCTIONS,
        on_list_tools=requests.list_offered_tools,
        on_call_tool=requests.call_offered_tool,
        on_list_resources=requests.list_cached_resources,
        on_list_resource_templates=requests.list_resource_templates,
        on_read_resource=requests.read_cached_resource,
        on_list_prompts=list_session_prompts,
        on_get_prompt=requests.run_session_prompt,
    )
    server.extensions[MCP_TASKS] = {}
    show_task = partial(requests.act_on_task, "show")
    cancel_task = partial(requests.act_on_task, "cancel")
    server.add_request_handler("tasks/get", types.GetTaskRequestParams, requests.get_mcp_task)
    server.add_request_handler("tasks/update", _UpdateTaskRequestParams, show_task)
    server.add_request_handler("tasks/cancel", types.CancelTaskRequestParams, cancel_task)
    return server


class _CacheServerRequests:
    def __init__(self, served: ServedWorkspace) -> None:
        self._served = served
        self._tools = {offer.name: offer for offer in OFFERS}

    async def list_offered_tools(self, _context: Any, _params: Any) -> types.ListToolsResult:
        tools = [_offer_as_tool(offer) for offer in OFFERS]
        return types.ListToolsResult(tools=tools, ttl_ms=LIST_LIFETIME_MS, cache_scope="public")

    async def call_offered_tool(self, context: Any, params: types.CallToolRequestParams) -> Any:
        """Run a tool. What it refuses is its result, so that the agent reads why."""
        offer = self._tools.get(params.name)
        if offer is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:80]!r}.")

        arguments = params.arguments or {}
        try:
            _check_tool_arguments(offer, arguments)
            values = await offer.run(self._served, **arguments)
        except HelixError as error:
            log.warning("%s refused: %s", params.name, error.what[:300])
            return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)

        if offer.name == "add_task" and _client_supports_tasks(context):
            return await self._read_mcp_task_as_json(context, values["task"], "task")
        text = values.get("text")
        if not isinstance(text, str):
            text = json.dumps(values, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(text=text)], structured_content=values
        )

    async def get_mcp_task(
        self, context: Any, params: types.GetTaskRequestParams
    ) -> dict[str, Any]:
        return await self._read_mcp_task_as_json(context, params.task_id, "complete")

    async def act_on_task(
        self, act: str, context: Any, params: types.GetTaskRequestParams
    ) -> types.EmptyResult:
        """Answers that no task has asked for are accepted and ignored, as the extension
        requires.
        """
        await self._run_mcp_task_command(context, act, params.task_id)
        return types.EmptyResult()

    async def _run_mcp_task_command(self, context: Any, act: str, task: str) -> dict[str, Any]:
        """Run `task show` or `task cancel`, and return the task as its `--json` prints it."""
        if not _client_supports_tasks(context):
            needed: dict[str, Any] = {"extensions": {MCP_TASKS: {}}}
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "A client capability is missing",
                {"requiredCapabilities": needed},
            )
        try:
            tasks = await self._served.run_task_command([act, "--", task])
        except HelixError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)[:500]) from error
        return dict(tasks[0])

    async def _read_mcp_task_as_json(self, context: Any, task_id: str, kind: str) -> dict[str, Any]:
        """Return a task as the extension requires: once it has ended, with a result,
        even if it failed.
        """
        task = await self._run_mcp_task_command(context, "show", task_id)
        status = _MCP_TASK_STATUS.get(task["state"], "working")
        reason = task["why"]
        created = datetime.fromtimestamp(task["added"], UTC)
        updated = datetime.now(UTC)
        mcp_task: dict[str, Any] = {
            "resultType": kind,
            "taskId": task["id"],
            "status": status,
            "createdAt": created.isoformat(),
            "lastUpdatedAt": updated.isoformat(),
            "statusMessage": reason,
            "ttlMs": None,
            "pollIntervalMs": 1_000,
        }
        if status == "completed":
            answer = types.TextContent(text=task["answer"] or reason)
            has_failed = task["state"] == "failed"
            result = types.CallToolResult(
                content=[answer],
                structured_content={"task": task["id"]},
                is_error=has_failed,
            )
            mcp_task["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        return mcp_task

    async def run_session_prompt(
        self, context: Any, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """Do what the prompt requests, and tell the agent the result."""
        try:
            if params.name not in PROMPTS or self._served.use_agent_session is None:
                raise InvalidInput(f"There is no prompt {params.name[:80]!r} here.")
            prompt = PROMPTS[params.name]
            arguments = params.arguments or {}
            words = " ".join(arguments.values()).strip()
            async with self._served.use_agent_session(_client_name(context)) as session:
                result = await prompt.run(self._served, session, words)
                title = session.conversation.state.title
            text = f"Conversation: {title}\n{result}\n\n{TELL}"
        except HelixError as error:
            log.warning("%s refused: %s", params.name[:80], error.what[:300])
            text = f"Helix Desktop could not do what I asked for: {error}\n\n{TELL}"
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(messages=[message])

    async def list_cached_resources(
        self, _context: Any, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """List the handovers and then the newest entries."""
        if params is not None and params.cursor:
            raise MCPError(types.INVALID_PARAMS, "There is no such page.")
        resources = []
        for handover in await cache_operations.list_newest_handovers(self._served):
            resources.append(_handover_as_resource(handover))
        rows = await cache_operations.list_newest_entries(self._served, PAGE)
        left_notes = await cache_operations.describe_left_rows(self._served, rows)
        for row in rows:
            left_note = left_notes.get(row.stored.digest, "")
            resources.append(_entry_as_resource(row, left_note))
        return types.ListResourcesResult(resources=resources)

    async def list_resource_templates(
        self, _context: Any, _params: Any
    ) -> types.ListResourceTemplatesResult:
        entry = types.ResourceTemplate(
            name="entry", title="A cached entry", uri_template=f"{ENTRY}{{sha256}}"
        )
        handover = types.ResourceTemplate(
            name="handover",
            title="A handover document",
            uri_template=f"{HANDOVER}{{conversation}}/{{fold}}",
        )
        return types.ListResourceTemplatesResult(resource_templates=[entry, handover])

    async def read_cached_resource(
        self, _context: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        try:
            contents = [await self._read_content_at_uri(params.uri)]
            if params.uri.startswith(ENTRY):
                # Beside the content, which must be what its hash says.
                left = await describe_left_entries(
                    self._served.catalogue,
                    self._served.cache,
                    params.uri.removeprefix(ENTRY),
                    conversation="",
                )
                if left:
                    note = types.TextResourceContents(
                        uri=params.uri, mime_type="text/plain", text=left
                    )
                    contents.append(note)
        except HelixError as error:
            log.warning("a resource was refused: %s", error.what[:300])
            raise MCPError(
                types.INVALID_PARAMS, str(error)[:500], {"uri": params.uri[:500]}
            ) from error
        return types.ReadResourceResult(contents=contents)

    async def _read_content_at_uri(
        self, uri: str
    ) -> types.TextResourceContents | types.BlobResourceContents:
        if uri.startswith(ENTRY):
            return await self._read_entry_content(uri, uri.removeprefix(ENTRY))
        conversation, _, fold = uri.removeprefix(HANDOVER).partition("/")
        if uri.startswith(HANDOVER) and conversation and fold:
            text = await cache_operations.read_handover_text(self._served, conversation, fold)
            return types.TextResourceContents(uri=uri, mime_type="text/markdown", text=text)
        raise NotFound(f"There is no resource {uri[:80]!r} here.")

    async def _read_entry_content(
        self, uri: str, name: str
    ) -> types.TextResourceContents | types.BlobResourceContents:
        """Read an entry as text if it is UTF-8, and otherwise as base64."""
        entry = await find_entry(self._served.cache, name)
        stored = entry.stored
        if stored.size > LARGEST_RESOURCE:
            raise InvalidInput(
                f"This entry is {stored.size:,} bytes. A resource can be up to {LARGEST_RESOURCE:,} bytes.",
                remedy="Recall the entry one page at a time with recall_cached_content.",
            )
        content = await self._served.cache.read_content(stored.digest)
        media_type = stored.media_type
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            if media_type == "text/plain":
                media_type = "application/octet-stream"
            blob = base64.b64encode(content).decode("ascii")
            return types.BlobResourceContents(uri=uri, mime_type=media_type, blob=blob)
        return types.TextResourceContents(uri=uri, mime_type=media_type, text=text)


def _offer_as_tool(offer: OfferedTool) -> types.Tool:
    annotations = types.ToolAnnotations(
        read_only_hint=not offer.changes_workspace,
        destructive_hint=False,
        idempotent_hint=not offer.asks_model,
        open_world_hint=offer.asks_model,
    )
    # Folds name the tools that recall. Claude Code would have to search for them first.
    meta: dict[str, Any] | None = None
    if offer.name.startswith("recall_"):
        meta = {"anthropic/alwaysLoad": True}
    return types.Tool(
        name=offer.name,
        title=offer.title,
        description=offer.description,
        input_schema=offer.input_schema,
        output_schema=offer.output_schema,
        annotations=annotations,
        _meta=meta,
    )


def _entry_as_resource(row: EntryRow, left_note: str) -> types.Resource:
    name = f"{row.about.tool} {row.about.source}".strip() or "put by hand"
    lines = format_things(row.stored.lines, "line", "lines")
    tokens = format_things(row.tokens, "token", "tokens")
    description = f"{lines}, {tokens}"
    if left_note:
        description = f"{description}, {left_note}"
    return types.Resource(
        name=name[:200],
        uri=f"{ENTRY}{row.stored.digest.hex}",
        mime_type=row.stored.media_type,
        size=row.stored.size,
        description=description,
    )


def _handover_as_resource(handover: cache_operations.ListedHandover) -> types.Resource:
    fold = handover.fold
    name = f"Handover {fold.number} of {handover.title or handover.conversation}"
    return types.Resource(
        name=name[:200],
        uri=f"{HANDOVER}{handover.conversation}/{fold.fold}",
        mime_type="text/markdown",
        description=f"{fold.tokens:,} tokens in place of {fold.tokens_before:,}",
    )
