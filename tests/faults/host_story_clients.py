"""Those who work in one workspace in the stories of `host_kill`: windows, a phone, an editor, and an
agent at the gateway. Each sends words, is cut off or killed, comes back, and sends again what it does
not know to have arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from helix_desktop import program_folders, running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Recorded, Text, UserPart, UserSaid
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import ConversationActivity, QuestionAsked
from helix_desktop.errors import ActionRefused, HelixError, OwnerEnded
from helix_desktop.phone_page.open_hosts import OpenHosts
from helix_desktop.phone_page.page_app import PhonePage
from helix_desktop.phone_page.page_guard import COOKIE, LOOPBACK_NAMES, PageGuard
from helix_desktop.phone_page.paired_devices import PairedDevices
from helix_desktop.workspace_host.byte_streams import ByteStream, OwnerStream
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_connection import HOST_ARGUMENTS
from helix_desktop.workspace_host.host_interface import (
    AnswerQuestion,
    FactsAdded,
    LiveState,
    ResumeTurn,
    SendMessage,
    new_command_id,
    question_fingerprint,
)
from helix_desktop.workspace_host.remote_workspace_host import (
    CONNECTION_CLOSED,
    HOST_GONE,
    RemoteWorkspaceHost,
)
from tests.faults.command_nursery import CommandNursery, NurseryProcess
from tests.gateway.running import Agent

TOKEN = re.compile(r"token-\d+-\d+")
PHONE_ADDRESS = "127.0.0.1:4357"


@dataclass
class Story:
    """One home and one workspace, and what was sent and allowed there."""

    home: Path
    chance: random.Random
    found: Counter[str]
    nursery: CommandNursery
    workspace: str = ""
    conversation: str = ""
    sent: list[str] = field(default_factory=list)
    # By token: the answers that may have allowed its command.
    allowed: Counter[str] = field(default_factory=Counter)
    is_over: bool = False
    host: NurseryProcess | None = None
    starting_host: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def folder(self) -> Path:
        return self.home / "folder"

    @property
    def places(self) -> program_folders.ProgramFolders:
        return program_folders.find_program_folders(self.home / "home")

    def argv(self, *words: str) -> list[str]:
        return ["--home", str(self.home / "home"), *words]

    def kill_host(self) -> None:
        if self.host is not None and self.host.kill():
            self.found["hosts killed"] += 1

    async def connect(self) -> OwnerStream:
        """Connects to whoever has the workspace open, and starts a kept host if nobody has."""
        while True:
            async with self.starting_host:
                wire = await running_instance.connect_to_owner(self.places.run, self.workspace)
                if wire is None and (self.host is None or not self.host.is_running):
                    argv = self.argv("host", "--keep", "--workspace", self.workspace)
                    self.host = self.nursery.start_silent_command(argv)
                    self.found["hosts"] += 1
            if wire is not None:
                return OwnerStream(wire, [*HOST_ARGUMENTS, self.workspace])
            await asyncio.sleep(0.02)

    def is_allowed_by_chance(self) -> bool:
        return self.is_over or self.chance.random() < 0.7


class WeakLine:
    """A line that breaks in the middle of a message, or hangs for a while before it breaks."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._bytes_left: int | None = None
        self._is_hanging = False
        self._is_broken = asyncio.Event()

    def break_after(self, byte_count: int) -> None:
        self._bytes_left = byte_count

    def hang(self) -> None:
        self._is_hanging = True

    def break_now(self) -> None:
        self._is_broken.set()

    async def read_bytes(self) -> bytes:
        if self._is_broken.is_set():
            return b""
        piece = await self._stream.read_bytes()
        if self._is_hanging:
            await self._is_broken.wait()
            return b""
        return self._take_allowed(piece)

    async def write_bytes(self, content: bytes) -> None:
        if self._is_hanging:
            await self._is_broken.wait()
        if self._is_broken.is_set():
            raise ConnectionResetError("the line of the story broke")
        allowed = self._take_allowed(content)
        await self._stream.write_bytes(allowed)
        if len(allowed) < len(content):
            raise ConnectionResetError("the line of the story broke")

    def _take_allowed(self, content: bytes) -> bytes:
        if self._bytes_left is None:
            return content
        allowed = content[: self._bytes_left]
        self._bytes_left -= len(allowed)
        if self._bytes_left == 0:
            self._is_broken.set()
        return allowed

    async def close_stream(self) -> None:
        self._is_broken.set()
        await self._stream.close_stream()


class WindowClient:
    """Follows the conversation, sends what has not arrived, answers, and presses Continue."""

    def __init__(self, story: Story, name: str) -> None:
        self._story = story
        self.name = name
        self.followed = FollowedConversation()
        self._ids: dict[str, str] = {}  # Of commands, by the words that they send.
        self._line: WeakLine | None = None
        self._host: RemoteWorkspaceHost | None = None
        self._answers = OwnedTasks(f"answers of {name}")
        self._has_caught_up = False

    def break_line(self) -> None:
        if self._line is not None:
            self._line.break_after(self._story.chance.randrange(400))
            self._story.found["lines broken"] += 1

    async def hang_line(self) -> None:
        line = self._line
        if line is None:
            return
        line.hang()
        self._story.found["lines that hung"] += 1
        await asyncio.sleep(self._story.chance.random())
        line.break_now()

    async def say(self, words: str) -> None:
        self._story.sent.append(words)
        self._ids[words] = new_command_id()
        if self._host is not None and self._has_caught_up:
            await self._send_what_is_missing(self._host)

    async def work_until_over(self) -> None:
        while not self._story.is_over:
            try:
                await self._follow_once()
            except HelixError as error:
                self._has_caught_up = False
                self._host = None
                if not isinstance(error, OwnerEnded):
                    self._story.found[f"other ends ({error.what[:60]})"] += 1
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        await self._answers.aclose(limit=1)

    async def _follow_once(self) -> None:
        self._line = WeakLine(await self._story.connect())
        host = await RemoteWorkspaceHost.connect_over_stream(self._line)
        try:
            self._host = host
            follower = await host.follow_conversation(
                self._story.conversation, self.followed.state.seq
            )
            while True:
                for event in await follower.next_events():
                    self.followed.apply_event(event)
                    if isinstance(event, FactsAdded):
                        self._note_arrived(event.facts)
                    elif isinstance(event, LiveState):
                        self._has_caught_up = True
                        await self._send_what_is_missing(host)
                        for asked in event.questions:
                            self._answer_sometimes(host, asked)
                    elif isinstance(event, QuestionAsked):
                        self._answer_sometimes(host, event)
        finally:
            await host.close_host()

    def _note_arrived(self, recorded_facts: tuple[Recorded, ...]) -> None:
        for recorded in recorded_facts:
            if isinstance(recorded.fact, UserSaid):
                self._ids.pop(text_of(recorded.fact.parts), None)

    async def _send_what_is_missing(self, host: RemoteWorkspaceHost) -> None:
        waiting = self._waiting_words()
        for words, command_id in list(self._ids.items()):
            if words not in waiting:
                command = SendMessage(self._story.conversation, words)
                await host.run_host_command(command, command_id)

    def _waiting_words(self) -> list[str]:
        queued = self.followed.queued
        if queued is None:
            return []
        return [text_of(parts) for parts in queued.messages]

    def _answer_sometimes(self, host: RemoteWorkspaceHost, asked: QuestionAsked) -> None:
        pause = self._story.chance.random() * 0.4
        work = self._answer_question(host, asked, pause, allowed=self._story.is_allowed_by_chance())
        self._answers.spawn_task(work, name="answer")

    async def _answer_question(
        self, host: RemoteWorkspaceHost, asked: QuestionAsked, pause: float, *, allowed: bool
    ) -> None:
        await asyncio.sleep(pause)
        story = self._story
        tokens = TOKEN.findall(asked.question.call.arguments)
        answer = AnswerQuestion(
            story.conversation,
            asked.number,
            question_fingerprint(asked.question),
            PermissionAnswer(allowed=allowed),
        )
        if allowed:
            story.allowed.update(tokens)
        try:
            await host.run_host_command(answer)
        except ActionRefused:
            story.found["answers that came too late"] += 1
            if allowed:
                story.allowed.subtract(tokens)
        except HelixError:
            story.found["answers that are not known"] += 1
        else:
            story.found["answers"] += 1

    async def go_on(self) -> None:
        """Answers what is open, and lets a message that waits since a kill be sent."""
        host = self._host
        if host is None or not self._has_caught_up:
            return
        for number, question in self.followed.questions.items():
            asked = QuestionAsked(self._story.conversation, number, question)
            self._answer_sometimes(host, asked)
        if self._waiting_words() and self._is_at_rest:
            with contextlib.suppress(HelixError):
                await host.run_host_command(ResumeTurn(self._story.conversation))

    @property
    def _is_at_rest(self) -> bool:
        resting = (ConversationActivity.IDLE, ConversationActivity.FAILED)
        return self.followed.running in resting

    @property
    def has_settled(self) -> bool:
        return (
            self._has_caught_up
            and not self._ids
            and not self.followed.questions
            and not self._waiting_words()
            and self._is_at_rest
        )

    def describe(self) -> str:
        return (
            f"{self.name}: caught up {self._has_caught_up}, {self.followed.running}, "
            f"{len(self.followed.questions)} questions, {len(self._ids)} unsent, "
            f"{self._waiting_words()}"
        )


class PhoneClient:
    """A browser that is paired: it reads the page, and sends its forms."""

    def __init__(self, story: Story) -> None:
        self._story = story
        config = story.places.config
        config.mkdir(parents=True, exist_ok=True)
        self._devices = PairedDevices(config)
        code = self._devices.create_pairing_code(may_allow=True)
        self._device, self._cookie = self._devices.pair_device(code, "phone")
        self._unsent: dict[str, str] = {}  # Ids of forms, by their words.
        self._hosts = OpenHosts(story.places, [])

    @property
    def _path(self) -> str:
        return f"/w/{self._story.workspace}/c/{self._story.conversation}"

    def say(self, words: str) -> None:
        self._story.sent.append(words)
        self._unsent[words] = new_command_id()

    async def restart(self) -> None:
        """The page's process is ended, and begins anew."""
        await self._hosts.aclose()
        self._hosts = OpenHosts(self._story.places, [])
        self._story.found["pages ended"] += 1

    async def work_until_over(self) -> None:
        while not self._story.is_over:
            with contextlib.suppress(HelixError, ConnectionError, TimeoutError):
                await self.look_once()
            await asyncio.sleep(0.1)

    async def look_once(self) -> None:
        page = await self._request("GET", self._path)
        if page.status_code != 200:
            return
        self._story.found["pages read"] += 1
        for words, form_id in list(self._unsent.items()):
            if words in html.unescape(page.text):
                del self._unsent[words]
                continue
            sent = await self._request("POST", f"{self._path}/send", text=words, id=form_id)
            if sent.status_code == 303:
                # From now on, it must not be lost, and the page does not send it again.
                self._story.found["sent from the phone"] += 1
                del self._unsent[words]
        await self._answer_open_questions(page.text)

    async def _answer_open_questions(self, page: str) -> None:
        story = self._story
        for form in page.split("/answer")[1:]:
            fields = dict(re.findall(r'name="(number|fingerprint)" value="([^"]*)"', form))
            is_allowed = story.is_allowed_by_chance()
            tokens = TOKEN.findall(html.unescape(page))
            answer = {True: "allow", False: "deny"}[is_allowed]
            if is_allowed:  # Which of the page's tokens it was for is not known.
                story.allowed.update(set(tokens))
            answered = await self._request(
                "POST", f"{self._path}/answer", **fields, answer=answer, words=""
            )
            story.found[f"answers of the phone: {answered.status_code}"] += 1
            # If the host ended meanwhile, nobody knows whether it has taken the answer.
            is_unknown = HOST_GONE in answered.text or CONNECTION_CLOSED in answered.text
            if is_allowed and answered.status_code != 303 and not is_unknown:
                story.allowed.subtract(set(tokens))

    async def _request(self, method: str, path: str, **fields: str) -> httpx.Response:
        page = PhonePage(self._devices, self._hosts, "workstation", is_encrypted=False)
        guard = PageGuard(page.app, self._devices, LOOPBACK_NAMES, is_encrypted=False)
        origin = f"http://{PHONE_ADDRESS}"
        headers = {"cookie": f"{COOKIE}={self._cookie}", "host": PHONE_ADDRESS}
        form = None
        if method == "POST":
            headers |= {"origin": origin, "sec-fetch-site": "same-origin"}
            form = {"token": self._device.form_token, **fields}
        transport = httpx.ASGITransport(app=guard)
        async with httpx.AsyncClient(transport=transport, base_url=origin) as browser:
            async with asyncio.timeout(20):
                return await browser.request(method, path, headers=headers, data=form)

    @property
    def has_settled(self) -> bool:
        return not self._unsent

    def describe(self) -> str:
        return f"phone: {len(self._unsent)} unsent"

    async def close(self) -> None:
        await self._hosts.aclose()


async def start_with_pipes(
    story: Story, argv: Sequence[str]
) -> tuple[NurseryProcess, asyncio.StreamReader, asyncio.StreamWriter]:
    """Starts a command whose standard input and output are the two pipes."""
    input_end, our_output = os.pipe()
    our_input, output_end = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    process = story.nursery.start_command(story.argv(*argv), input_end, output_end, nothing)
    for end in (input_end, output_end, nothing):
        os.close(end)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(our_input, "rb"))
    transport, flow = await loop.connect_write_pipe(
        partial(asyncio.streams.FlowControlMixin, loop), os.fdopen(our_output, "wb")
    )
    writer = asyncio.StreamWriter(transport, flow, None, loop)
    return process, reader, writer


class EditorClient:
    """An editor with our agent in it (ACP). It is killed, starts again, and loads its session."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._process: NurseryProcess | None = None
        self._to_say: list[str] = []
        self.answered: list[str] = []  # Prompts whose turn has ended.
        self.tries: Counter[str] = Counter()
        self.starts = 0
        self._session = ""
        self._numbers = 0
        self.last_error = ""
        self._waits_for = ""
        self._writer: asyncio.StreamWriter | None = None

    def say(self, words: str) -> None:
        self._to_say.append(words)

    def kill(self) -> None:
        if self._process is not None and self._process.kill():
            self._story.found["editors killed"] += 1

    async def work_until_over(self) -> None:
        while not self._story.is_over:
            if not self._to_say:
                await asyncio.sleep(0.05)
                continue
            try:
                await self._run_process()
            except (OSError, EOFError, RuntimeError, ValueError) as error:
                self.last_error = repr(error)[:300]

    async def _run_process(self) -> None:
        reader, self._writer = await self._start_process()
        try:
            await self._call(reader, "initialize", {"protocolVersion": 1})
            places = {"cwd": str(self._story.folder), "mcpServers": []}
            if self._session:
                await self._call(reader, "session/load", {**places, "sessionId": self._session})
                session = self._session
            else:
                opened = await self._call(reader, "session/new", places)
                session = opened["sessionId"]
            while not self._story.is_over:
                if self._to_say:
                    await self._prompt(reader, session, self._to_say[0])
                    # Only one that has a message is stored, and can be loaded.
                    self._session = session
                await asyncio.sleep(0.05)
        finally:
            self._writer.close()
            if self._process is not None:
                self._process.kill()

    async def _start_process(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.starts += 1
        argv = ["acp", "--workspace", self._story.workspace]
        self._process, reader, writer = await start_with_pipes(self._story, argv)
        return reader, writer

    async def _prompt(self, reader: asyncio.StreamReader, session: str, words: str) -> None:
        self.tries[words] += 1
        prompt = [{"type": "text", "text": words}]
        await self._call(reader, "session/prompt", {"sessionId": session, "prompt": prompt})
        self.answered.append(words)
        self._to_say.remove(words)
        self._story.found["prompts of the editor"] += 1

    async def _call(self, reader: asyncio.StreamReader, method: str, params: Any) -> Any:
        self._numbers += 1
        number = self._numbers
        self._waits_for = method
        self._send({"id": number, "method": method, "params": params})
        while True:
            line = await reader.readline()
            if not line:
                raise EOFError("the agent of the editor has ended")
            message = json.loads(line)
            if message.get("method") == "session/request_permission":
                self._answer_permission(message)
            elif message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(str(message["error"]))
                return message["result"]

    def _answer_permission(self, message: Any) -> None:
        option = "deny"
        if self._story.is_allowed_by_chance():
            option = "once:0"
            self._story.allowed.update(set(TOKEN.findall(json.dumps(message["params"]))))
        outcome = {"outcome": {"outcome": "selected", "optionId": option}}
        self._send({"id": message["id"], "result": outcome})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    @property
    def has_settled(self) -> bool:
        return not self._to_say

    def describe(self) -> str:
        return f"editor: {self._to_say} to say, waits for {self._waits_for}, {self.last_error}"

    async def close(self) -> None:
        if self._process is not None:
            self._process.kill()


class GatewayAgent:
    """An agent of another program, which works through our gateway. The gateway is killed."""

    def __init__(self, story: Story, upstream: str) -> None:
        self._story = story
        self._upstream = upstream
        self._process: NurseryProcess | None = None
        self._agent: Agent | None = None
        self._to_say: list[str] = []
        self.said: list[str] = []  # Words that were answered.
        self.replies: list[str] = []  # Replies that it has whole.
        self.starts = 0

    def say(self, words: str) -> None:
        self._to_say.append(words)

    def kill(self) -> None:
        if self._process is not None and self._process.kill():
            self._story.found["gateways killed"] += 1

    async def work_until_over(self) -> None:
        while not self._story.is_over:
            if not self._to_say:
                await asyncio.sleep(0.05)
                continue
            with contextlib.suppress(OSError, EOFError, ValueError):
                await self._step(self._to_say[0])

    async def _step(self, words: str) -> None:
        """Says the words, and says them again until it has the whole reply."""
        address = await self._start_gateway_if_needed()
        if self._agent is None:
            session = f"session of {self._story.conversation}"
            self._agent = Agent("anthropic", address, session=session, patience=20.0)
        agent = self._agent
        agent.url = address
        before = list(agent.units)
        agent.say(words)
        try:
            await asyncio.to_thread(agent.ask)
        except (httpx.HTTPError, AssertionError):
            agent.units = before
            self._story.found["retries of the gateway's agent"] += 1
            await asyncio.sleep(0.05)
            return
        for block in agent.value["content"]:
            if block["type"] == "text":
                self.replies.append(block["text"])
        self.said.append(words)
        self._to_say.remove(words)
        self._story.found["steps through the gateway"] += 1

    async def _start_gateway_if_needed(self) -> str:
        if self._process is not None and self._process.is_running and self._agent is not None:
            return self._agent.url
        self.starts += 1
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        argv = self._story.argv(
            "gateway", "--workspace", self._story.workspace, "--port", "0", "--json",
            "--upstream", self._upstream,
        )  # fmt: skip
        self._process = self._story.nursery.start_command(argv, nothing, writing, nothing)
        os.close(writing)
        os.close(nothing)
        with os.fdopen(reading, "rb") as output:
            line = await asyncio.to_thread(output.readline)
        address: str = json.loads(line)["address"]
        return address

    @property
    def has_settled(self) -> bool:
        return not self._to_say

    def describe(self) -> str:
        return f"gateway: {self._to_say} to say"

    async def close(self) -> None:
        if self._process is not None:
            self._process.kill()


def text_of(parts: tuple[UserPart, ...]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))
