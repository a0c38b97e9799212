"""One of the user's MCP servers: a task that owns its connection, and the tools it offers.

As the SDK demands, only the task opens and closes the connection. It reconnects with growing
pauses after failures and makes nobody wait: a server that is not ready has no tools.
"""

import asyncio
import hashlib
import importlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from helix_desktop import __version__
from helix_desktop.engine.facts import ToolCall, ToolSpec
from helix_desktop.engine.ports import (
    CallContext,
    ForeignToolResult,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.errors import HelixError, ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.mcp_client import tool_results
from helix_desktop.mcp_client.server_config import (
    ServerConfig,
    fill_in_references,
    secret_references,
)
from helix_desktop.processes.folders_of_agents import find_folder_without_agents
from helix_desktop.processes.starter import find_users_program
from helix_desktop.secrets import McpServerSecret, McpSignIn

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client.session import ClientRequestContext

RECONNECT_PAUSES = (1.0, 3.0, 10.0, 30.0, 120.0)
SIGN_IN_SECONDS = 330.0  # A person needs this time to sign in on a web page.
STEADY_SECONDS = 60.0  # After a connection this long, the pauses begin again with the shortest.
MOST_TOOLS = 1_000
MOST_PAGES = 50
# A question of a server is shown whole: its text in parts, what stands above it at once.
LONGEST_QUESTION = 100_000
LONGEST_REASON = 4_000
LONGEST_FORM = 20_000  # Characters of a form's description in JSON.
MOST_QUESTIONS = 20  # Of a server during one call. Further ones are declined unseen.
MOST_TOOL_BYTES = 8 << 20  # The end of a longer list of tools is left out.
LONGEST_OWN_NAME = (
    1_000  # Characters. What has a longer name is left out: it would fill the screen.
)
LONGEST_ERROR = 1_000  # Characters of a server's error. The end of a longer one is left out.
MOST_PROMPT_ARGUMENTS = 100
LONGEST_PROGRESS = 2_000  # Characters that a server says of a call's progress at once.
SHORTEST_RELISTING_PAUSE = 0.2
McpSecret: TypeAlias = McpServerSecret | McpSignIn
log = logging.getLogger(__name__)


class McpConnectionState(StrEnum):
    """Whether a server can be used, and if not, what it waits for."""

    OFF = "off"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    SIGN_IN = "sign in"  # The server waits until the user has signed in.


@dataclass(frozen=True, slots=True)
class McpConnectionStatus:
    """A server's state for lists. `why`: a sentence on what is wrong. `since`: the time at which
    the state began, or 0.
    """

    state: McpConnectionState
    why: str = ""
    tools: int = 0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class McpServerDependencies:
    """What a server needs from the program. `changed` is called when its status or tools change."""

    secret: Callable[[McpSecret], Awaitable[str | None]]
    changed: Callable[[], None]
    approved: dict[str, str]  # By tool: the description that the user allowed last.
    approve: Callable[[str, str], None]  # Stores such a description.
    keep: Callable[[McpSecret, str], Awaitable[None]]  # Stores a secret.


@dataclass(slots=True)
class McpServerTool:
    """A tool in the form that the Toolbox takes (`toolbox.ForeignTool`)."""

    server: "HostedServer"
    own_name: str
    spec: ToolSpec
    fingerprint: str
    # What version 0.1 stored: it left out the title, what the tool returns, and a description's end.
    earlier_fingerprint: str
    # True unless declared read-only by the server. Only affects the order of calls.
    runs_alone: bool

    @property
    def title_for_question(self) -> str:
        return f"{self.server.config.name}: {self.own_name}"

    @property
    def only_reads(self) -> bool:
        return self.own_name in self.server.config.reading

    @property
    def has_changed_description(self) -> bool:
        """Whether the server says something else of the tool than what the user allowed."""
        approved = self.server.needs.approved.get(self.spec.name)
        if approved is None:
            return False
        return approved not in (self.fingerprint, self.earlier_fingerprint)

    def remember_approval(self) -> None:
        """Note that the user allowed the tool as it is described now, to ask again if that changes."""
        approved = self.server.needs.approved
        if approved.get(self.spec.name) == self.fingerprint:
            return
        approved[self.spec.name] = self.fingerprint
        self.server.needs.approve(self.spec.name, self.fingerprint)

    async def call_foreign_tool(
        self, values: Mapping[str, Any], context: CallContext
    ) -> ForeignToolResult:
        return await self.server.call_server_tool(self.own_name, values, context)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class McpServerPrompt:
    """A server's prompt, which the user calls by `/server:name`."""

    server: str
    name: str
    about: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class McpServerResource:
    """Something readable that a server offers. The user attaches it with @."""

    server: str
    uri: str
    name: str


@dataclass(slots=True, eq=False)
class _RunningServerCall:
    """A call of a tool that the server works on, and what the server asks meanwhile.

    `limit`: of its time. `limits_of_questions`: moved to now, they take back the questions.
    """

    context: CallContext
    limit: asyncio.Timeout | None = None
    limits_of_questions: set[asyncio.Timeout] = field(default_factory=set)

    async def ask_until_call_ends(
        self, question: PermissionQuestion, seconds: float
    ) -> PermissionAnswer | None:
        """Return the user's answer, or None if the call ended before it: nobody waits for it then.

        The user's time does not count. The server has `seconds` again after the answer.
        """
        self._let_time_stand_still()
        try:
            async with asyncio.timeout(None) as limit_of_question:
                self.limits_of_questions.add(limit_of_question)
                try:
                    return await self.context.ask(question)
                finally:
                    self.limits_of_questions.discard(limit_of_question)
        except TimeoutError:
            return None
        finally:
            if not self.limits_of_questions:
                self._let_time_go_on(seconds)

    def take_back_questions(self) -> None:
        """Take back what is still asked, because the call has ended, and its limit with it."""
        self.limit = None
        for limit_of_question in self.limits_of_questions:
            limit_of_question.reschedule(0)

    def _let_time_stand_still(self) -> None:
        if self.limit is None:
            return
        ends_at = self.limit.when()
        is_running = ends_at is not None and ends_at > asyncio.get_running_loop().time()
        if is_running:
            self.limit.reschedule(None)

    def _let_time_go_on(self, seconds: float) -> None:
        if self.limit is None:
            return
        stands_still = self.limit.when() is None  # Not if a lost connection has ended it meanwhile.
        if stands_still:
            self.limit.reschedule(asyncio.get_running_loop().time() + seconds)


@dataclass(slots=True)
class HostedServer:
    """A configured server. `keep_connected` is its task; all else may be called from
    anywhere on the loop.
    """

    config: ServerConfig
    needs: McpServerDependencies
    environment: Callable[[], Awaitable[Mapping[str, str]]]
    status: McpConnectionStatus = McpConnectionStatus(McpConnectionState.OFF)
    all_tools: tuple[McpServerTool, ...] = ()
    prompts: tuple[McpServerPrompt, ...] = ()
    resources: tuple[McpServerResource, ...] = ()
    log: Any = None
    _client: Any = None
    _running_calls: list[_RunningServerCall] = field(default_factory=list)
    _questions_left: int = MOST_QUESTIONS  # The server may ask so often until the next call.
    _is_refusal_logged: bool = False  # Of a question since the last call.
    # Set when the user wants a new connection without waiting for a pause.
    _is_reconnect_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when the list of tools has changed, or the connection is lost.
    _has_news: asyncio.Event = field(default_factory=asyncio.Event)
    _is_tool_list_old: bool = False
    _is_connection_lost: bool = False
    # The time limits of all running calls. Moved to now, they end these calls.
    _limits_of_calls: set[asyncio.Timeout] = field(default_factory=set)
    _limit_of_opening: asyncio.Timeout | None = None
    _wants_sign_in: bool = False
    # Opens the sign-in page that the user asked for.
    _open_page: Callable[[str], Awaitable[object]] | None = None

    @property
    def offered_tools(self) -> Sequence[McpServerTool]:
        """Return its tools, without those turned off, or none while it is not ready."""
        if self.status.state is not McpConnectionState.READY or self._is_connection_lost:
            return ()
        turned_on = [tool for tool in self.all_tools if tool.own_name not in self.config.off]
        return turned_on[:MOST_TOOLS]

    @property
    def server_log_lines(self) -> tuple[str, ...]:
        if self.log is None:
            return ()
        return tuple(self.log.lines)

    def reconnect_now(self) -> None:
        """Reconnect now, without waiting for a pause or an answer."""
        self._is_reconnect_wanted.set()
        opening = self._limit_of_opening
        if opening is not None and not opening.expired():
            opening.reschedule(0)
        self._fail_waiting_calls()

    def sign_in_with_page(self, page: Callable[[str], Awaitable[object]]) -> None:
        """Sign in at the user's request: connect anew, and open the page that the server names.

        `page` opens an address in the user's browser.
        """

        async def open_page_once(address: str) -> None:
            self._set_status(
                McpConnectionState.STARTING, "The sign-in page is open in your browser."
            )
            await page(address)

        self._open_page = open_page_once
        self._set_status(McpConnectionState.STARTING)
        self.reconnect_now()

    async def keep_connected(self) -> None:
        """Connect, stay connected, and connect again after a failure, until cancelled.

        Each failure in a row makes the pause longer. A server that wants a sign-in is left
        alone until the user asks for it.
        """
        failures = 0
        while True:
            connecting_since = time.monotonic()
            self._is_reconnect_wanted.clear()
            self._wants_sign_in = False
            self._set_status(McpConnectionState.STARTING)
            try:
                reason = await self._run_server_connection()
            except Exception as error:  # A task handles any error at its top.
                reason = self._explain_connection_error(error)
                if failures == 0:  # Logged once, as it may be our bug.
                    log.info(
                        "MCP server %s", self.config.name, exc_info=_error_without_words(error)
                    )

            if self._wants_sign_in:
                self._set_status(McpConnectionState.SIGN_IN, "Sign-in required.")
                await self._is_reconnect_wanted.wait()
                continue
            if self._is_reconnect_wanted.is_set():
                failures = 0
                continue
            if time.monotonic() - connecting_since > STEADY_SECONDS:
                failures = 0
            failures += 1
            await self._pause_before_reconnecting(failures, reason)

    async def _pause_before_reconnecting(self, failures: int, reason: str) -> None:
        """Wait longer after each failure, unless the user wants a connection at once."""
        pause_number = min(failures, len(RECONNECT_PAUSES))
        pause_seconds = RECONNECT_PAUSES[pause_number - 1]
        capitalized_reason = reason[:1].upper() + reason[1:]
        sentence = f"{capitalized_reason} Retrying in {pause_seconds:.0f} s."
        self._set_status(McpConnectionState.FAILED, sentence)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_seconds):
                await self._is_reconnect_wanted.wait()

    async def _run_server_connection(self) -> str:
        """Open the connection, list the server's tools, and stay until the connection is lost.

        Returns why it was lost. Raises whatever prevented it from being opened.
        """
        self._is_connection_lost = False
        self._is_tool_list_old = False
        self._has_news.clear()
        open_page = self._open_page
        self._open_page = None  # It is opened once: a later connection must not open it unasked.
        seconds = self.config.start_seconds
        if open_page is not None:
            seconds = SIGN_IN_SECONDS
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(seconds) as opening:
                # `reconnect_now` ends the opening early by this limit.
                self._limit_of_opening = opening
                try:
                    self._client = await stack.enter_async_context(self._open_client(open_page))
                    await self._list_server_tools()
                finally:
                    self._limit_of_opening = None
            try:
                async with asyncio.TaskGroup() as group:
                    listening = group.create_task(self._subscribe_to_changes())
                    await self._handle_changes_until_lost()
                    listening.cancel()
            finally:
                self._client = None
                self.all_tools = ()
        return self._explain_connection_error(None)

    async def _subscribe_to_changes(self) -> None:
        """Subscribe to changes, as protocol 2026-07-28 requires. Older servers send
        them to `_handle_server_message`.
        """
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from mcp.shared.exceptions import MCPError

        with suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            async with self._client.listen(tools_list_changed=True) as events:
                self._request_relisting()  # Lists may have changed before notifications arrived.
                async for _ in events:
                    self._request_relisting()

    def _request_relisting(self) -> None:
        self._is_tool_list_old = True
        self._has_news.set()

    async def _handle_changes_until_lost(self) -> None:
        """List the tools again whenever they have changed, until the connection is lost."""
        while not self._is_connection_lost:
            await self._has_news.wait()
            self._has_news.clear()
            if self._is_connection_lost or not self._is_tool_list_old:
                continue
            self._is_tool_list_old = False
            listing_since = time.monotonic()
            with suppress(HelixError):
                async with asyncio.timeout(self.config.start_seconds):
                    await self._list_server_tools()
            # Listing takes at most half of the time, even if changes never stop.
            seconds_of_listing = time.monotonic() - listing_since
            await asyncio.sleep(max(seconds_of_listing, SHORTEST_RELISTING_PAUSE))

    def _fail_waiting_calls(self) -> None:
        """Fail all waiting calls, because the connection is lost.

        A call waits under a time limit. Setting the limit to a time in the past ends it now.
        """
        self._is_connection_lost = True
        self._has_news.set()
        for limit in self._limits_of_calls:
            if not limit.expired():  # An expired limit can't be moved, but its task will notice.
                limit.reschedule(0)

    @asynccontextmanager
    async def _open_client(
        self, page: Callable[[str], Awaitable[object]] | None
    ) -> AsyncIterator[Any]:
        """Yield the SDK's client for this server, closed in the task that opened it."""
        # This runs in a thread, because importing these modules takes half a second.
        for name in ("mcp", "helix_desktop.mcp_client.process_transport"):
            await asyncio.to_thread(importlib.import_module, name)
        import mcp
        import mcp_types as types

        from helix_desktop.mcp_client.process_transport import ServerLog
        from helix_desktop.mcp_client.server_message_limits import limit_unasked_messages

        self.log = self.log or ServerLog()
        self.log.why = ""
        config = await self._config_with_secrets()
        environment = dict(await self.environment())
        environment.update(config.env)
        async with (
            self._open_transport(config, environment, page) as transport,
            mcp.Client(
                limit_unasked_messages(transport, self._request_relisting),
                client_info=types.Implementation(name="helix-desktop", version=__version__),
                elicitation_callback=self._ask_user_for_server,
                message_handler=self._handle_server_message,
                cache=None,
            ) as client,
        ):
            client.session.validate_tool_result = _accept_any_result  # type: ignore[method-assign]
            yield client

    async def _config_with_secrets(self) -> ServerConfig:
        """Return the configuration with secrets and variables in place of their names."""
        secrets: dict[str, str] = {}
        for name in secret_references(self.config):
            secret = self.config.referenced_secret(name)
            value = await self.needs.secret(secret)
            if value is not None:
                secrets[name] = value
        environment = await self.environment()
        return fill_in_references(self.config, secrets, environment)

    @asynccontextmanager
    async def _open_transport(
        self,
        config: ServerConfig,
        environment: Mapping[str, str],
        page: Callable[[str], Awaitable[object]] | None,
    ) -> AsyncIterator[Any]:
        """Yield the connection to the server, of the kind that its configuration names."""
        if config.kind == "stdio":
            yield self._start_process_transport(config, environment)
        elif config.kind == "sse":
            from mcp.client.sse import sse_client

            from helix_desktop.mcp_client.server_message_limits import create_limited_client

            yield sse_client(
                config.url, headers=dict(config.headers), httpx_client_factory=create_limited_client
            )
        else:
            from mcp.client.streamable_http import streamable_http_client

            from helix_desktop.mcp_client.process_transport import LONGEST

            async with self._open_http_transport(config, page) as http:
                yield streamable_http_client(
                    config.url, http_client=http, max_sse_event_size=LONGEST
                )

    def _start_process_transport(self, config: ServerConfig, environment: Mapping[str, str]) -> Any:
        """Start the server's program. Raises NotFound if there is none."""
        from helix_desktop.mcp_client.process_transport import start_server_process

        program = find_users_program(config.command, environment)
        command_line = [program]
        command_line.extend(config.args)
        folder = config.folder or str(find_folder_without_agents())
        return start_server_process(
            command_line, environment, folder, self.log, self._fail_waiting_calls
        )

    @asynccontextmanager
    async def _open_http_transport(
        self, config: ServerConfig, page: Callable[[str], Awaitable[object]] | None
    ) -> AsyncIterator[Any]:
        """Open the transport with the token in the user's headers, or else the one from
        signing in.
        """
        if any(name.lower() == "authorization" for name in config.headers):
            from helix_desktop.mcp_client.server_message_limits import create_limited_client

            async with create_limited_client(headers=dict(config.headers)) as http:
                yield http
            return
        await asyncio.to_thread(importlib.import_module, "helix_desktop.mcp_client.oauth_sign_in")
        from helix_desktop.mcp_client.oauth_sign_in import StoredSignIn, open_signed_in_client

        def is_connecting() -> bool:
            return self.status.state is McpConnectionState.STARTING

        def remember_wanted_sign_in() -> None:
            self._wants_sign_in = True

        stored_sign_in = StoredSignIn(
            self.config.sign_in_secret, self.needs.secret, self.needs.keep, config.registered_client
        )
        async with open_signed_in_client(
            config.url, stored_sign_in, page, config.headers, is_connecting, remember_wanted_sign_in
        ) as http:
            yield http

    async def _list_server_tools(self) -> None:
        """Ask the server what it offers, and tell the user what of it cannot be used."""
        listed_tools, is_cut = await self._fetch_tool_list()
        await self._list_prompts_and_resources()

        usable_tools: list[Any] = []
        count_of_tasks = 0
        count_of_long_names = 0
        for tool in listed_tools:
            # Such a tool answers later, to a client that asks again for its task.
            task_support = getattr(tool.execution, "task_support", None)
            if task_support == "required":
                count_of_tasks += 1
            elif len(tool.name) > LONGEST_OWN_NAME:
                count_of_long_names += 1
            else:
                usable_tools.append(tool)
        self.all_tools = tuple(map(self._build_server_tool, usable_tools))

        notes: list[str] = []
        usable_count = len(usable_tools)
        if usable_count > MOST_TOOLS:
            notes.append(
                f"The server has {usable_count} tools. Of the tools that are turned on, only the first {MOST_TOOLS} are offered to the agent."
            )
        if is_cut:
            notes.append(
                f"The list of tools is longer than {MOST_TOOL_BYTES >> 20} MB, so the rest was left out."
            )
        if count_of_tasks:
            notes.append(f"Tools left out because they run only as tasks: {count_of_tasks}.")
        if count_of_long_names:
            notes.append(f"Tools left out because their names are too long: {count_of_long_names}.")
        self._set_status(McpConnectionState.READY, " ".join(notes), tools=usable_count)

    async def _fetch_tool_list(self) -> tuple[list[Any], bool]:
        """Return the server's tools, and whether the end of the list was left out as too long."""
        tools: list[Any] = []
        # The SDK keeps the schemas of all tools of a list in pages, also of those that are gone.
        self._client.session._tool_output_schemas.clear()  # noqa: SLF001 -- it has no other way
        self._client.session._x_mcp_header_maps.clear()  # noqa: SLF001
        bytes_left = MOST_TOOL_BYTES
        cursor = None
        for _ in range(MOST_PAGES):  # A server could name a next page for ever.
            page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                bytes_left -= len(tool.model_dump_json())
                if bytes_left >= 0:
                    tools.append(tool)
            cursor = page.next_cursor
            if not cursor or bytes_left < 0:
                break
        return tools, bytes_left < 0

    async def _list_prompts_and_resources(self) -> None:
        """List prompts and resources, if any. A failure does not affect the tools."""
        capabilities = self._client.server_capabilities
        if not capabilities:
            return
        try:
            if capabilities.prompts:
                listed_prompts = await self._client.list_prompts()
                prompts = listed_prompts.prompts[:MOST_TOOLS]
                self.prompts = tuple(
                    self._build_prompt(prompt)
                    for prompt in prompts
                    if len(prompt.name) <= LONGEST_OWN_NAME
                )
            if capabilities.resources:
                listed_resources = await self._client.list_resources()
                resources = listed_resources.resources[:MOST_TOOLS]
                self.resources = tuple(
                    self._build_resource(resource)
                    for resource in resources
                    if len(str(resource.uri)) <= LONGEST_OWN_NAME
                )
        except Exception as error:
            log.info(
                "MCP server %s does not list its prompts",
                self.config.name,
                exc_info=_error_without_words(error),
            )

    def _build_prompt(self, prompt: Any) -> McpServerPrompt:
        listed_arguments = (prompt.arguments or ())[:MOST_PROMPT_ARGUMENTS]
        arguments = tuple(argument.name for argument in listed_arguments)
        description = prompt.description or prompt.title or ""
        shown_description = description[: tool_results.LONGEST_DESCRIPTION]
        return McpServerPrompt(self.config.name, prompt.name, shown_description, arguments)

    def _build_resource(self, resource: Any) -> McpServerResource:
        name = resource.title or resource.name
        return McpServerResource(self.config.name, str(resource.uri), name[:LONGEST_OWN_NAME])

    async def fetch_prompt_text(self, name: str, values: Mapping[str, str]) -> str:
        """Return what a prompt of the server says, with these values for its arguments."""
        prompt = await self._ask_server(name, lambda: self._client.get_prompt(name, dict(values)))
        content = tool_results.ServerContent()
        for message in prompt.messages:
            content.append_part(message.content)
        return "\n\n".join(content.texts)

    async def fetch_resource(self, uri: str) -> ForeignToolResult:
        """Return what the server gives to read at an address."""
        resource = await self._ask_server(uri, lambda: self._client.read_resource(uri))
        content = tool_results.ServerContent()
        for part in resource.contents:
            content.append_resource(part)
        text = "\n".join(content.texts)
        return ForeignToolResult(text, images=tuple(content.images), files=tuple(content.files))

    async def _ask_server(
        self,
        name: str,
        ask: Callable[[], Awaitable[Any]],
        running_call: _RunningServerCall | None = None,
    ) -> Any:
        """Return the server's answer to a question, which `ask` asks. `name`: for sentences.
        `running_call`: it learns its time limit.

        Whatever goes wrong, it raises ProviderUnreachable with a sentence that names the
        server, since the model is told of it. A lost connection ends the wait at once.
        """
        if self._client is None or self._is_connection_lost:
            raise ProviderUnreachable(
                f"The server {self.config.name} is not ready. {self.status.why}".strip()
            )
        try:
            async with asyncio.timeout(self.config.call_seconds) as limit:
                self._limits_of_calls.add(limit)
                if running_call is not None:
                    running_call.limit = limit
                try:
                    return await ask()
                finally:
                    self._limits_of_calls.discard(limit)
        except TimeoutError:
            raise ProviderUnreachable(self._describe_timeout(name)) from None
        except HelixError:
            raise
        except Exception as error:  # Whatever failed, the model is told.
            log.info(
                "a call of MCP server %s failed",
                self.config.name,
                exc_info=_error_without_words(error),
            )
            await self._fail_calls_if_session_lost()
            if self._has_stopped:
                raise ProviderUnreachable(self._describe_timeout(name)) from error
            raise ProviderUnreachable(self._describe_failure(name, error)) from error

    @property
    def _has_stopped(self) -> bool:
        if self._is_connection_lost:
            return True
        return self.log is not None and bool(self.log.why)

    def _build_server_tool(self, tool: Any) -> McpServerTool:
        """Return a tool as it is offered to the model.

        It has a fingerprint of all that the server says of it: what the user allows is the
        tool as described, so a changed description is asked about again.
        """
        spec = tool_results.build_tool_spec(self.config.name, tool)
        hints = tool.annotations
        hints_text = ""
        declares_only_reading = False
        if hints:
            hints_text = hints.model_dump_json()
            declares_only_reading = bool(hints.read_only_hint)
        description = tool_results.describe_whole_tool(tool)
        description_of_earlier_version = json.dumps([spec.description, spec.schema, hints_text])
        return McpServerTool(
            server=self,
            own_name=tool.name,
            spec=spec,
            fingerprint=_hash_text(description),
            earlier_fingerprint=_hash_text(description_of_earlier_version),
            runs_alone=not declares_only_reading,
        )

    async def call_server_tool(
        self, name: str, values: Mapping[str, Any], context: CallContext
    ) -> ForeignToolResult:
        """Call a tool and wait for its result. Meanwhile, its progress is shown."""

        async def show_call_progress(
            progress: float, total: float | None, message: str | None
        ) -> None:
            """Show what the server says of the call's progress."""
            line = f"{progress:g}"
            if total:
                line = f"{progress:g} of {total:g}"
            if message:
                line = f"{line} {message[:LONGEST_PROGRESS]}"
            context.show(line.strip() + "\n")

        def call_tool() -> Awaitable[Any]:
            return self._client.call_tool(name, dict(values), progress_callback=show_call_progress)  # type: ignore[no-any-return]

        running_call = _RunningServerCall(context)
        self._running_calls.append(running_call)
        self._questions_left = MOST_QUESTIONS
        self._is_refusal_logged = False
        try:
            result = await self._ask_server(name, call_tool, running_call)
            # In a thread, because a large result takes a second.
            return await asyncio.to_thread(tool_results.convert_tool_result, result)
        finally:
            self._running_calls.remove(running_call)
            running_call.take_back_questions()

    async def _fail_calls_if_session_lost(self) -> None:
        """After a failed call, find out whether the server still knows us, and else reconnect.

        A server over HTTP forgets its sessions when it restarts, and does not say so.
        """
        if self.config.kind == "stdio" or self._is_connection_lost:
            return
        try:
            async with asyncio.timeout(10):
                await self._client.list_tools()
        except Exception:  # noqa: BLE001 -- whatever the error, connect again
            self._fail_waiting_calls()

    def _describe_timeout(self, name: str) -> str:
        if self._has_stopped:
            reason = self._explain_connection_error(None)
            return f"The server {self.config.name} stopped during {name}: {reason}"
        return f"The server {self.config.name} did not respond to {name} within {self.config.call_seconds:g} s."

    def _describe_failure(self, name: str, error: Exception) -> str:
        cause = _innermost_error(error)
        words = str(cause)[:LONGEST_ERROR] or type(cause).__name__
        return f"The server {self.config.name} failed during {name}: {words}"

    # --- Handling the server's own requests and notifications

    async def _ask_user_for_server(
        self, context: "ClientRequestContext", params: "types.ElicitRequestParams"
    ) -> "types.ElicitResult":
        """Ask the user what the server wants to know, and return the answer to the server.

        The SDK calls this when a server asks, while one of its tools runs. It wants a form
        filled in, or a page opened.
        """
        import mcp_types as types

        del context
        if not self._running_calls:  # Nobody would know why the server asks.
            return types.ElicitResult(action="cancel")
        schema = getattr(params, "requested_schema", None)
        question = self._build_elicitation(params, schema)
        reason_to_decline = self._find_reason_to_decline(question, getattr(params, "url", ""))
        if reason_to_decline:
            if not self._is_refusal_logged:  # Once: it may ask ten thousand times in a second.
                self._is_refusal_logged = True
                log.info("the MCP server %s %s", self.config.name, reason_to_decline)
            return types.ElicitResult(action="decline")
        self._questions_left -= 1
        newest_call = self._running_calls[-1]
        answer = await newest_call.ask_until_call_ends(question, self.config.call_seconds)
        if answer is None:
            return types.ElicitResult(action="cancel")
        if answer.allowed:
            return _accept_elicitation(answer.values, has_form=schema is not None)
        if answer.scope == "cancel":
            return types.ElicitResult(action="cancel")
        return types.ElicitResult(action="decline")

    def _find_reason_to_decline(self, question: PermissionQuestion, address: str) -> str:
        """Return why the user is not asked, or an empty text. What one agrees to is shown whole, or
        it is not asked.
        """
        if self._questions_left <= 0:
            return "asked too often"
        is_too_long = (
            len(question.preview) > LONGEST_QUESTION
            or len(question.why) > LONGEST_REASON
            or len(question.form) > LONGEST_FORM
        )
        if is_too_long:
            return "asked at too great a length"
        if address and not _is_plain_web_address(address):
            return "asked to open what is no plain address"
        return ""

    def _build_elicitation(self, params: Any, schema: Any) -> PermissionQuestion:
        """Return a server's question. `schema`: of the form to fill in, or None for a page."""
        preview = params.message
        reason = "this text comes from the server, not from Helix Desktop"
        form = ""
        if schema is not None:
            form = json.dumps(schema)
            # The protocol forbids it to servers, and what is entered is seen while it is written.
            reason = "this text comes from the server, not from Helix Desktop, and the server gets what you enter: no server may ask for passwords or keys here"
        elif getattr(params, "url", ""):
            preview = params.url
            reason = params.message
        return PermissionQuestion(
            ToolCall(id="", name=f"{self.config.name}__elicitation", arguments=""),
            f"The server {self.config.name} has a question",
            preview,
            reason,
            ("once",),
            form,
        )

    async def _handle_server_message(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._request_relisting()

    def _set_status(self, state: McpConnectionState, why: str = "", *, tools: int = 0) -> None:
        self.status = McpConnectionStatus(state, why, tools, since=time.time())
        if state is McpConnectionState.FAILED:
            log.info("the MCP server %s failed: %s", self.config.name, why)
        self.needs.changed()

    def _explain_connection_error(self, error: BaseException | None) -> str:
        """Return why there is no connection, as a sentence's end.

        What we know ourselves says more than the error: a time limit, or why the server's
        program ended. `error`: None if the connection was lost without one.
        """
        last_output = ""
        if self.log and self.log.lines:
            last_output = f" Last output: {_as_sentence(self.log.lines[-1][:200])}"
        cause: BaseException | None = None
        if error is not None:
            cause = _innermost_error(error)
        if isinstance(cause, TimeoutError):
            return f"it did not respond within {self.config.start_seconds:g} seconds.{last_output}"
        if isinstance(cause, HelixError):
            return str(cause)
        if self.log and self.log.why:
            return f"{self.log.why}.{last_output}"
        if cause is None:
            return f"the connection was lost.{last_output}"
        explanation = _explain_wrong_message(cause)
        words = str(cause)[:LONGEST_ERROR]
        if not explanation and self.config.url:
            host = urlsplit(self.config.url).netloc
            explanation = f"{host} could not be reached ({words}). Check the address and the proxy."
        if not explanation:
            explanation = f"{words}.{last_output}"
        return explanation


def _explain_wrong_message(error: BaseException) -> str:
    """Return the first thing that is wrong with what a server sent, as a sentence's end, or an empty
    text for another error. The error itself has three lines for each tool.
    """
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return ""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"what it sent does not follow the protocol ({place}: {first['msg']})."


def _as_sentence(line: str) -> str:
    """Return a line that a server wrote, so that another sentence can follow it."""
    if line.rstrip().endswith((".", "!", "?")):
        return line.rstrip()
    return f"{line.rstrip()}."


async def _accept_any_result(name: str, result: Any) -> None:
    """Stands for the SDK's comparison of a result with the schema that the server gave for it. Both
    are the server's: a schema whose parts refer to each other, or one with a pattern, is compared for
    years, and holds the whole program meanwhile. The model reads a result as it is.
    """
    del name, result


def _is_plain_web_address(address: str) -> bool:
    """Whether a reader sees which computer an address leads to: in `https://bank.com@evil.com`, what
    looks like the computer is only a name to log in with. A backslash counts as a slash in browsers,
    and letters of other alphabets, or their slashes, look like those of another computer's name.
    """
    if not address.isprintable() or " " in address or "\\" in address:
        return False
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    is_of_the_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_of_the_web and "@" not in parts.netloc and parts.netloc.isascii()


def _accept_elicitation(values: str, *, has_form: bool) -> "types.ElicitResult":
    """Return the user's agreement. `values`: what was filled into the form, as JSON."""
    import mcp_types as types

    if not has_form:
        return types.ElicitResult(action="accept", content=None)
    try:
        content = json.loads(values or "{}")
    except (ValueError, RecursionError):
        return types.ElicitResult(action="cancel")
    return types.ElicitResult(action="accept", content=content)


def _innermost_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _error_without_words(error: BaseException) -> BaseException:
    """Return an error's kind and place for the log, without its words, which may be the
    server's.
    """
    cause = _innermost_error(error)
    without_words = RuntimeError(type(cause).__qualname__)
    return without_words.with_traceback(cause.__traceback__)
