"""A workspace as a window sees it that is not its host, over a line that a test can break."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import (
    FoldKind,
    ModelReplied,
    Recorded,
    Text,
    ToolReturned,
    TurnEnded,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    ConversationReplaced,
    Event,
    FoldProgress,
    MessagesQueued,
    ReplyStreamed,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, NotFound, OwnerEnded
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.file_preview import PreviewKind
from helix_desktop.workspace_host.client_session import AT_REST, ClientSession
from helix_desktop.workspace_host.client_workspace import (
    MOST_PAGES,
    ClientWorkspace,
    build_previewed_file,
)
from helix_desktop.workspace_host.followed_conversation import digest_of_view
from helix_desktop.workspace_host.host_interface import CommandResult, FileForPreview, HostCommand
from helix_desktop.workspace_host.host_line import HostLine, LineStage
from helix_desktop.workspace_host.host_server import serve_host_client
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from tests.conftest import Expect
from tests.peers.chat_server import ChatServer, refused, reply
from tests.workspace_host.conftest import open_over_socket, socket_streams
from tests.workspace_host.test_conformance_stories import record_long_history
from tests.workspace_host.viewer import Viewer

LIMIT = 60.0


class BreakableLine:
    """Connects to the host as often as it is asked to, unless it is `cut`."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self.is_cut = False
        self.is_unhosted = False
        self.hosts: list[RemoteWorkspaceHost] = []
        self._serving = OwnedTasks("host of a test")

    async def connect(self) -> RemoteWorkspaceHost | None:
        if self.is_unhosted:
            return None
        if self.is_cut:
            raise HelixError("There is no connection to testbox.")
        here, there = await socket_streams()
        serving = serve_host_client(LocalWorkspaceHost(self.bench), there)
        self._serving.spawn_task(serving, name="serve")
        host = await RemoteWorkspaceHost.connect_over_stream(here)
        self.hosts.append(host)
        return host

    async def cut(self) -> None:
        self.is_cut = True
        await self.hosts[-1].close_host()

    async def aclose(self) -> None:
        await self._serving.aclose(limit=2)


@pytest.fixture
async def line(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BreakableLine]:
    monkeypatch.setattr("helix_desktop.workspace_host.host_line.FIRST_PAUSE_SECONDS", 0.05)
    line = BreakableLine(bench)
    yield line
    await line.aclose()


@pytest.fixture
async def client(line: BreakableLine) -> AsyncIterator[ClientWorkspace]:
    client = await opened(line)
    yield client
    await client.end_client()


async def opened(line: BreakableLine) -> ClientWorkspace:
    host_line = HostLine(line.connect, "testbox")
    await host_line.connect_line()
    client = ClientWorkspace(host_line, "ssh://testbox/pairs")
    await client.begin_with_list()
    return client


async def until(condition: Callable[[], bool], client: ClientWorkspace) -> None:
    """Waits until the condition holds after some event, or after the settings have changed."""
    news = asyncio.Event()
    stop_settings = client.watch_settings(news.set)
    stop = client.subscribe_to_events(lambda _: news.set())
    stop_line = client.line.watch_line(lambda _: news.set())
    try:
        async with asyncio.timeout(LIMIT):
            while not condition():
                news.clear()
                await news.wait()
    finally:
        stop()
        stop_line()
        stop_settings()


def texts_said(session: ClientSession) -> list[str]:
    return [
        part.text
        for recorded in session.conversation.state.facts
        if isinstance(recorded.fact, UserSaid)
        for part in recorded.fact.parts
        if isinstance(part, Text)
    ]


def is_done(session: ClientSession, turns: int = 1) -> bool:
    facts = session.conversation.state.facts
    ends = sum(isinstance(recorded.fact, TurnEnded) for recorded in facts)
    return ends >= turns and session.running is ConversationActivity.IDLE


async def test_a_turn_is_seen_as_the_host_has_it(client: ClientWorkspace, bench: Workbench) -> None:
    assert client.name == "Pairs"
    assert client.main_model_name == "demo/demo"
    session = await client.start_users_conversation()
    assert client.conversation_row(session.id) is not None  # Else the window would close it.
    heard: list[Event] = []
    client.subscribe_to_events(heard.append)
    session.send_message((Text("hello"),))
    assert [message.parts for message in session.queue] == [(Text("hello"),)]
    await until(lambda: is_done(session), client)
    assert not session.queue
    own = await bench.open_session(session.id)
    assert list(session.conversation.state.facts) == list(own.all_facts)
    assert digest_of_view(session.conversation.state) == digest_of_view(own.conversation.state)
    assert session.context.next_request_meter() == own.context.next_request_meter()
    words = (Text("one two three four five"),)
    here = session.context.estimate_next_message(words)
    there = own.context.estimate_next_message(words)
    assert here.context == there.context
    assert 0 < here.message <= 2 * there.message, "only the host has counted the text"
    states = [event.running for event in heard if isinstance(event, ActivityChanged)]
    assert ConversationActivity.THINKING in states
    await until(lambda: bool(client.list_conversations()), client)
    row = client.conversation_row(session.id)
    assert row is not None
    assert client.running_state_of(session.id) in ConversationActivity


async def test_a_message_is_at_one_place_at_a_time(client: ClientWorkspace) -> None:
    """What is recorded has left the queue, and what the host has is not listed twice."""
    session = await client.start_users_conversation()
    queues: list[MessagesQueued] = []

    def remember(event: Event) -> None:
        if isinstance(event, MessagesQueued):
            queues.append(event)

    client.subscribe_to_events(remember)
    session.send_message((Text("write b.txt: text"),))
    await until(lambda: bool(session.questions), client)
    session.send_message((Text("and then"),))
    await until(lambda: bool(session.queue._at_host), client)
    assert [message.parts[0] for message in session.queue if isinstance(message.parts[0], Text)]
    for event in queues:
        words = [part.text for parts in event.messages for part in parts if isinstance(part, Text)]
        assert len(words) == len(set(words))
    (waiting,) = session.queue
    assert waiting.parts[0] == Text("and then", 2)
    assert await session.queue.take_back_message(waiting)
    assert not session.queue
    session.answer_question(1, PermissionAnswer(allowed=False))
    await until(lambda: is_done(session), client)
    assert texts_said(session) == ["write b.txt: text"]


@pytest.mark.parametrize("steps_on_its_way", [0, 1, 3, 8, 20, 50])
async def test_a_message_is_taken_back_once_its_host_has_it_no_more(
    client: ClientWorkspace, bench: Workbench, steps_on_its_way: int
) -> None:
    """The window keeps its words from then on. It took them at once, and after a kill of both they
    were there twice.
    """
    session = await client.start_users_conversation()
    session.send_message((Text("write b.txt: text"),))
    await until(lambda: bool(session.questions), client)
    own = await bench.open_session(session.id)
    session.send_message((Text("and then"),))
    for _ in range(steps_on_its_way):
        await asyncio.sleep(0)
    (waiting,) = session.queue
    # It may be on its way to the host, which says first that it has it.
    while not await session.queue.take_back_message(waiting):
        await until(lambda: bool(session.queue), client)
    assert list(own.queue) == []
    assert list(session.queue) == []
    session.answer_question(1, PermissionAnswer(allowed=False))
    await until(lambda: is_done(session), client)
    assert texts_said(session) == ["write b.txt: text"]


async def test_a_question_is_answered_with_its_words(client: ClientWorkspace, folder: Path) -> None:
    session = await client.start_users_conversation()
    session.send_message((Text("write b.txt: text"),))
    await until(lambda: bool(session.questions), client)
    assert session.running is ConversationActivity.ASKING
    (number,) = session.questions
    session.answer_question(number, PermissionAnswer(allowed=True))
    await until(lambda: is_done(session), client)
    assert not session.questions
    assert (folder / "b.txt").read_text() == "text\n"
    (changed,) = await client.list_changes_after(session.id, 1)
    assert changed.path == "b.txt"
    undone = await client.undo_changes_after(session.id, 1)
    assert undone.paths
    assert not (folder / "b.txt").exists()


async def test_what_others_choose_for_the_workspace_is_told_at_once(
    client: ClientWorkspace, bench: Workbench
) -> None:
    told = asyncio.Event()
    client.watch_settings(told.set)
    assert client.permission_mode != "allow all"
    await bench.choose_permission_mode("allow all")
    async with asyncio.timeout(LIMIT):
        await told.wait()
    assert client.permission_mode == "allow all"


@pytest.mark.parametrize("scope", ["always", "conversation"])
async def test_what_an_answer_allows_from_now_on_is_told_at_once(
    client: ClientWorkspace, bench: Workbench, scope: str
) -> None:
    assert client.list_uses_allowed_in([""]) == {"": ()}
    session = await client.start_users_conversation()
    session.send_message((Text("write b.txt: text"),))
    await until(lambda: bool(session.questions), client)
    (number,) = session.questions
    session.answer_question(number, PermissionAnswer(allowed=True, scope=scope, rule=0))
    in_others: tuple[str, ...] = ()
    if scope == "always":
        in_others = ("edits",)

    def allowed_here() -> Sequence[str]:
        return client.list_uses_allowed_in([session.id])[session.id]

    await until(lambda: allowed_here() == ("edits",), client)
    assert client.list_uses_allowed_in([""]) == bench.list_uses_allowed_in([""]) == {"": in_others}
    await bench.choose_permission_mode("allow edits")
    await until(lambda: allowed_here() == (), client)


async def test_what_was_allowed_in_a_conversation_can_be_taken_back(
    client: ClientWorkspace, bench: Workbench
) -> None:
    session = await client.start_users_conversation()
    session.send_message((Text("write b.txt: text"),))
    await until(lambda: bool(session.questions), client)
    (number,) = session.questions
    answer = PermissionAnswer(allowed=True, scope="conversation", rule=0)
    session.answer_question(number, answer)
    await until(lambda: session.id in bench.list_rules_by_conversation(), client)
    for rule in bench.list_rules_by_conversation()[session.id]:
        bench.remove_rule_of_conversation(session.id, rule)
    assert not bench.list_rules_by_conversation()
    await until(lambda: client.list_uses_allowed_in([session.id]) == {session.id: ()}, client)
    assert not bench.workspace.settings.rules


async def test_a_removed_rule_is_told_at_once(client: ClientWorkspace, bench: Workbench) -> None:
    rule = {"decision": "allow", "command": "make *"}
    await bench.change_settings({"permissions.rules": [rule]})
    await until(lambda: client.list_uses_allowed_in([""])[""] == ("some commands",), client)
    await bench.change_settings({"permissions.rules": []})
    await until(lambda: client.list_uses_allowed_in([""])[""] == (), client)


async def test_titles_pins_archive_and_trash_reach_the_list(client: ClientWorkspace) -> None:
    session = await client.start_users_conversation()
    await session.set_title("Gooseberries")
    await session.set_pinned()
    await session.set_archived()

    def is_listed() -> bool:
        row = client.conversation_row(session.id)
        return row is not None and row.title == "Gooseberries" and row.pinned and row.archived

    await until(is_listed, client)
    await session.set_trashed()
    await until(lambda: any(row.trashed for row in client.list_conversations()), client)


async def test_earlier_moments_and_the_policy_are_those_of_the_host(
    client: ClientWorkspace, bench: Workbench
) -> None:
    session = await client.start_users_conversation()
    for number, words in enumerate(("read README.md", "say hello"), 1):
        session.send_message((Text(words),))
        await until(lambda number=number: is_done(session, number), client)  # type: ignore[misc]
    here = session.conversation
    there = (await bench.open_session(session.id)).conversation
    assert here.policy == there.policy
    assert here.current_meter() == there.current_meter()
    for seq in range(1, there.state.seq + 1):
        moment_here = await here.moment_at(seq)
        moment_there = await there.moment_at(seq)
        assert moment_here.get_view() == moment_there.get_view()
    own = await bench.open_session(session.id)
    first_reply, *_, reply = here.state.branch.steps
    for step in (None, reply):
        request = await session.context.rebuild_request(step)
        assert request == await own.context.rebuild_request(step)
    assert session.context.matches_sent_request(reply, request)
    assert session.context.matches_sent_request(first_reply, request) is False
    with pytest.raises(NotFound):
        await session.context.edit_fold_text("none", "words")


async def test_context_is_changed_at_the_host(client: ClientWorkspace) -> None:
    session = await client.start_users_conversation()
    session.send_message((Text("read README.md"),))
    await until(lambda: is_done(session), client)
    with pytest.raises(ActionRefused, match="would not be shorter"):
        await session.fold_on_request(FoldKind.MARKER)
    end = session.conversation.state.seq
    await session.ask_again()
    await until(lambda: is_done(session, 2), client)
    await session.switch_to_answer(end)
    fork = await client.fork_conversation(session.id, title="A fork")
    assert fork.conversation.state.title == "A fork"
    assert list(await client.read_conversation_facts(fork.id)) == list(
        fork.conversation.state.facts
    )
    with pytest.raises(ActionRefused, match="copy of the folders"):
        await client.fork_conversation(session.id, in_copy=True)


async def test_content_is_attached_and_read_by_its_digest(client: ClientWorkspace) -> None:
    content = b"gooseberry\n" * 200_000  # More than one range.
    attachment = await client.attach_content("notes.txt", content, "text/plain")
    digest = attachment.stored.digest
    unknown = Digest.of_content(b"nobody stored this")
    assert await client.contents.read_content(digest) == content
    assert await client.contents.read_range(digest, 11, 10) == b"gooseberry"
    assert await client.contents.read_contents([digest, unknown]) == {digest: content}
    assert await client.complete_file_paths("readme") == ("README.md",)


async def test_the_host_says_how_much_of_an_attachment_its_model_gets(
    client: ClientWorkspace, bench: Workbench
) -> None:
    """A further window showed the whole size where only an outline was sent."""
    small = await client.attach_content("notes.txt", b"remember the adapter", "text/plain")
    large = await client.attach_content("long.txt", b"many words\n" * 200_000, "text/plain")
    assert await client.count_sent_tokens(small) == small.tokens
    told = await client.count_sent_tokens(large, parts=(Text("read it"), large))
    assert told == await bench.count_sent_tokens(large, parts=(Text("read it"), large))
    assert told < large.tokens // 20


async def test_a_file_is_read_for_a_preview_and_what_a_host_says_of_it_is_checked(
    client: ClientWorkspace, folder: Path
) -> None:
    (folder / "notes.txt").write_text("a note")
    file = await client.read_file_for_preview("", "notes.txt")
    assert (file.kind, file.text) == (PreviewKind.TEXT, "a note")
    hostile = FileForPreview("x", "/x", "a kind of tomorrow", b"", "", 10**12)
    assert build_previewed_file(hostile).kind is PreviewKind.OTHER
    assert build_previewed_file(hostile).page_count == MOST_PAGES


async def test_two_windows_show_the_same(
    client: ClientWorkspace, line: BreakableLine, bench: Workbench
) -> None:
    other = await opened(line)
    session = await client.start_users_conversation()
    same = await other.open_session(session.id)
    session.send_message((Text("write b.txt: text"),))
    await until(lambda: bool(session.questions), client)
    await until(lambda: bool(same.questions), other)
    session.send_message((Text("hello"),))
    await until(lambda: len(same.queue) == 1, other)
    same.answer_question(next(iter(same.questions)), PermissionAnswer(allowed=True))
    await until(lambda: is_done(session, 2), client)
    await until(lambda: is_done(same, 2), other)
    assert not session.questions
    assert not same.questions
    assert digest_of_view(session.conversation.state) == digest_of_view(same.conversation.state)
    own = await bench.open_session(session.id)
    assert digest_of_view(same.conversation.state) == digest_of_view(own.conversation.state)
    await other.end_client()


async def test_a_line_that_breaks_comes_back_with_what_was_missed(
    client: ClientWorkspace, line: BreakableLine, bench: Workbench
) -> None:
    session = await client.start_users_conversation()
    stages: list[LineStage] = []
    client.line.watch_line(lambda state: stages.append(state.stage))
    await line.cut()
    await until(lambda: LineStage.WAITING in stages, client)
    assert client.line.state.why == "There is no connection to testbox."
    with pytest.raises(ActionRefused, match="no connection"):
        await session.set_title("lost")
    session.send_message((Text("hello, later"),))
    own = await bench.open_session(session.id)
    own.send_message((Text("from elsewhere"),))
    await own.wait_until_idle()
    assert texts_said(session) == []
    line.is_cut = False
    client.line.try_now()
    await until(lambda: is_done(session, 2), client)
    assert texts_said(session) == ["from elsewhere", "hello, later"]
    assert not session.queue
    assert LineStage.CONNECTED in stages
    title_of_row = client.conversation_row(session.id)
    assert title_of_row is not None


async def test_who_comes_in_the_middle_of_a_pause_is_told_why_nothing_comes_and_until_when(
    tmp_path: Path,
) -> None:
    """The defect: "thinking…" stood in a page or window that was opened while a model was busy."""
    places = program_folders.find_program_folders(tmp_path / "home")
    # With the real clock: what is left of the pause counts down.
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    busy = refused(503, "overloaded", retry_after="40")
    with ChatServer([busy, reply("here at last")]) as server:
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        (tmp_path / "project").mkdir()
        bench = await desk.create_workspace("Pairs", tmp_path / "project")
        await bench.choose_model_for_role("peer/scripted")
        own = await bench.start_conversation()
        delays: list[RetryDelay] = []
        has_paused = asyncio.Event()

        def note_delay(event: Event) -> None:
            if isinstance(event, ReplyStreamed) and isinstance(event.delta, RetryDelay):
                delays.append(event.delta)
                has_paused.set()

        own.subscribe_to_events(note_delay)
        line = BreakableLine(bench)
        client = await opened(line)
        own.send_message((Text("hello"),))
        await asyncio.wait_for(has_paused.wait(), LIMIT)
        session = await client.open_session(own.id)
        async with AsyncExitStack() as until_closed:
            host = await open_over_socket(bench, until_closed)
            page = await Viewer.begin(host, own.id)
            said = re.fullmatch(r"Retrying in (\d+) s: (.*)", page.describe_wait())
            assert said is not None, page.describe_wait()
            assert 0 < int(said[1]) <= round(delays[0].seconds)
            assert said[2] == delays[0].why
            await until(lambda: session.turns.next_try is not None, client)
            assert session.turns.next_try is not None
            assert session.turns.next_try.why == delays[0].why
            assert 0 < session.turns.next_try.seconds <= delays[0].seconds
            session.turns.retry_immediately()
            await page.until_ended(1)
            assert page.describe_wait() == ""
            await until(lambda: is_done(session, 1), client)
            assert session.turns.next_try is None
            assert own.turns.next_try is None
            await page.close()
        await client.end_client()
        await line.aclose()
        await desk.aclose()


async def test_a_summary_that_is_waited_for_is_told_to_who_comes_later_and_its_end_after_a_broken_line(
    client: ClientWorkspace, line: BreakableLine, bench: Workbench
) -> None:
    """The defect: "Shortening…" stood in the window for ever if its end was told to nobody."""
    started = await client.start_users_conversation()
    own = await bench.open_session(started.id)
    progress = FoldProgress(started.id, FoldKind.HANDOVER, is_waited_for=True)
    own.folding._tell_progress(progress)
    own.folding._writer._note_failed_try(RetryDelay("busy", 40.0))
    other = await opened(line)
    later = await other.open_session(started.id)
    await until(lambda: later.folding.progress is not None, other)
    assert later.folding.progress is not None
    assert (later.folding.progress.is_waited_for, later.folding.progress.retry_why) == (
        True,
        "busy",
    )
    assert 0 < later.folding.progress.retry_seconds < 40, "what is left of the pause"
    heard: list[Event] = []
    later.subscribe_to_events(heard.append)
    await line.cut()
    own.folding._tell_progress(replace(progress, done=True))
    line.is_cut = False
    other.line.try_now()
    await until(lambda: later.folding.progress is None, other)
    assert FoldProgress(started.id, FoldKind.HANDOVER, done=True) in heard
    await other.end_client()


async def test_a_message_whose_answer_was_lost_is_not_sent_twice(
    client: ClientWorkspace, line: BreakableLine, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host took the message, was killed, and another one does not know the command's id."""
    session = await client.start_users_conversation()

    async def lose_answer(self: RemoteWorkspaceHost, *_: object) -> CommandResult:
        own = await bench.open_session(session.id)
        own.send_message((Text("only once"),))
        await own.wait_until_idle()
        monkeypatch.undo()
        await self.close_host()
        raise OwnerEnded("The line broke.")

    monkeypatch.setattr(RemoteWorkspaceHost, "run_host_command", lose_answer)
    session.send_message((Text("only once"),))
    await until(lambda: is_done(session) and not session.queue, client)
    await session.set_title("a command that comes after it")
    assert texts_said(session) == ["only once"]


async def test_a_refused_message_is_given_back(client: ClientWorkspace) -> None:
    session = await client.start_users_conversation()
    refused: list[tuple[str, tuple[UserPart, ...], HelixError]] = []
    has_come = asyncio.Event()

    def hear(conversation: str, parts: tuple[UserPart, ...], error: HelixError) -> None:
        refused.append((conversation, parts, error))
        has_come.set()

    client.watch_refusals(hear)
    session.send_message((Text("   "),))
    await asyncio.wait_for(has_come.wait(), LIMIT)
    ((conversation, parts, error),) = refused
    assert (conversation, parts) == (session.id, (Text("   "),))
    assert "empty" in error.what
    assert not session.queue


async def test_who_is_gone_for_good_is_said(client: ClientWorkspace, line: BreakableLine) -> None:
    line.is_unhosted = True
    await line.hosts[-1].close_host()
    await until(lambda: client.line.state.stage is LineStage.UNHOSTED, client)


async def test_forgotten_words_are_gone_here_too(client: ClientWorkspace, bench: Workbench) -> None:
    session = await client.start_users_conversation()
    session.send_message((Text("hello gooseberry"),))
    await until(lambda: is_done(session), client)
    replaced: list[Event] = []

    def remember(event: Event) -> None:
        if isinstance(event, ConversationReplaced):
            replaced.append(event)

    session.subscribe_to_events(remember)
    await bench.forget_content(text="gooseberry")
    await until(lambda: bool(replaced), client)
    assert "gooseberry" not in str(list(session.conversation.state.facts))
    assert any(
        isinstance(recorded.fact, ModelReplied) for recorded in session.conversation.state.facts
    )


async def test_an_unknown_conversation_is_refused_and_not_followed(client: ClientWorkspace) -> None:
    with pytest.raises(NotFound, match="no conversation nowhere"):
        await client.open_session("nowhere")
    assert not client._sessions


async def test_facts_that_do_not_fit_together_are_said_and_nobody_waits_for_ever(
    client: ClientWorkspace, bench: Workbench, monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    expect("could not be used")
    session = await bench.start_conversation("Lies")

    def fail(*_: object) -> None:
        raise KeyError("a fact that no journal has")

    with monkeypatch.context() as lying:
        lying.setattr(ClientSession, "_apply_live_state", fail)
        with pytest.raises(HelixError, match="does not fit together"):
            await client.open_session(session.id)
    again = await client.open_session(session.id)
    assert again.conversation.state.title == "Lies"

    # Whoever has it open already is told as well.
    said: list[str] = []
    has_come = asyncio.Event()

    def hear(_conversation: str, _parts: tuple[UserPart, ...], error: HelixError) -> None:
        said.append(error.what)
        has_come.set()

    client.watch_refusals(hear)
    monkeypatch.setattr(ClientSession, "_take_over_fact", fail)
    await session.set_title("More lies")
    await asyncio.wait_for(has_come.wait(), LIMIT)
    assert said == ["What the other side told of this conversation does not fit together."]


async def test_the_newest_messages_of_a_long_conversation_are_there_before_it_is_open(
    client: ClientWorkspace, bench: Workbench
) -> None:
    conversation = await record_long_history(bench, turns=600)
    newest = await client.read_newest_facts(conversation)
    assert isinstance(newest[-1].fact, TurnEnded)
    assert 100 < len(newest) < 600
    session = await client.open_session(conversation)
    state = session.conversation.state
    assert state.facts[newest[-1].seq - 1] == newest[-1]
    assert state.seq == (await bench.open_session(conversation)).conversation.state.seq
    # What is open is not waited for.
    assert await client.read_newest_facts(conversation) == ()


async def test_a_message_below_the_newest_messages_is_sent_before_the_others_are_there(
    client: ClientWorkspace, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited until all had come: a minute over a slow line."""
    conversation = await record_long_history(bench, turns=600)
    may_go_on = asyncio.Event()
    take_over_fact = ClientSession._take_over_fact

    async def take_over_later(self: ClientSession, recorded: Recorded) -> None:
        await may_go_on.wait()
        await take_over_fact(self, recorded)

    monkeypatch.setattr(ClientSession, "_take_over_fact", take_over_later)
    newest = await client.read_newest_facts(conversation)
    client.send_before_open(conversation, (Text("this"),))
    client.send_before_open(conversation, (Text("and this"),))
    over_there = await bench.open_session(conversation)

    def count_said() -> int:
        said = [r for r in over_there.conversation.state.facts if isinstance(r.fact, UserSaid)]
        return sum(r.seq > newest[-1].seq for r in said)

    async with asyncio.timeout(LIMIT):
        while count_said() < 2:
            await asyncio.sleep(0.01)
    may_go_on.set()
    session = await client.open_session(conversation)
    async with asyncio.timeout(LIMIT):
        while client.unconfirmed_messages_of(conversation) or session.queue:
            await asyncio.sleep(0.01)
    assert count_said() == 2


async def test_what_the_agent_asks_can_be_answered_before_all_messages_are_there(
    client: ClientWorkspace, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card and Stop came with the last message: after 20 s over a slow line."""
    conversation = await record_long_history(bench, turns=600)
    over_there = await bench.open_session(conversation)
    over_there.send_message((Text("run echo one"),))
    await until(lambda: bool(over_there.questions), client)
    may_go_on = asyncio.Event()
    take_over_fact = ClientSession._take_over_fact

    async def take_over_later(self: ClientSession, recorded: Recorded) -> None:
        if recorded.seq > 10:
            await may_go_on.wait()
        await take_over_fact(self, recorded)

    monkeypatch.setattr(ClientSession, "_take_over_fact", take_over_later)
    assert await client.read_newest_facts(conversation)
    session = client.find_opening_session(conversation)
    assert session is not None
    await until(lambda: session.running is ConversationActivity.ASKING, client)
    (number, question) = next(iter(session.questions.items()))
    assert "echo one" in str(question.call.arguments)
    session.answer_question(number, PermissionAnswer(allowed=True))
    await until(lambda: not over_there.is_working, client)
    results = [r.fact for r in over_there.all_facts if isinstance(r.fact, ToolReturned)]
    assert results[-1].ok

    # What begins and is asked meanwhile is known, too, and Stop stops it.
    over_there.send_message((Text("run echo two"),))
    await until(lambda: bool(over_there.questions), client)
    session.stop_turn()
    await until(lambda: not over_there.is_working, client)
    may_go_on.set()
    assert await client.open_session(conversation) is session
    await until(lambda: session.running in AT_REST, client)
    assert not session.questions


async def test_a_card_that_is_shown_early_stays_the_same_when_all_messages_are_there(
    client: ClientWorkspace, bench: Workbench
) -> None:
    conversation = await record_long_history(bench, turns=600)
    over_there = await bench.open_session(conversation)
    over_there.send_message((Text("run echo one"),))
    await until(lambda: bool(over_there.questions), client)
    await client.read_newest_facts(conversation)
    session = client.find_opening_session(conversation)
    assert session is not None
    await until(lambda: bool(session.questions), client)
    (question,) = session.questions.values()
    await client.open_session(conversation)
    assert next(iter(session.questions.values())) is question
    over_there.stop_turn()


async def test_an_equal_message_of_long_ago_that_comes_now_is_not_taken_for_the_one_that_is_sent(
    client: ClientWorkspace, bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = await record_long_history(bench, turns=600)
    may_be_sent = asyncio.Event()
    run_host_command = RemoteWorkspaceHost.run_host_command

    async def run_later(
        self: RemoteWorkspaceHost, command: HostCommand, command_id: str = ""
    ) -> CommandResult:
        await may_be_sent.wait()
        return await run_host_command(self, command, command_id)

    monkeypatch.setattr(RemoteWorkspaceHost, "run_host_command", run_later)
    newest = await client.read_newest_facts(conversation)
    said = [recorded.fact for recorded in newest if isinstance(recorded.fact, UserSaid)]
    client.send_before_open(conversation, said[-1].parts)
    await client.open_session(conversation)
    assert len(client.unconfirmed_messages_of(conversation)) == 1
    may_be_sent.set()


async def test_of_a_short_conversation_and_of_none_nothing_is_waited_for(
    client: ClientWorkspace, bench: Workbench
) -> None:
    conversation = await record_long_history(bench, turns=3)
    assert await client.read_newest_facts(conversation) == ()
    assert await client.read_newest_facts("nowhere") == ()


async def test_conversations_that_nobody_shows_are_not_followed_for_ever(
    client: ClientWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_desktop.workspace_host.client_workspace.MOST_QUIET_SESSIONS", 2)
    shown = await client.start_users_conversation()
    shown.subscribe_to_events(lambda _: None)
    sessions = [await client.start_users_conversation() for _ in range(5)]
    assert set(client._sessions) == {shown.id, *[session.id for session in sessions[-2:]]}
    again = await client.open_session(sessions[0].id)
    assert again.conversation.state.seq == sessions[0].conversation.state.seq


async def test_a_conversation_that_was_deleted_for_good_leaves_the_list(
    client: ClientWorkspace, bench: Workbench
) -> None:
    session = await client.start_users_conversation()
    await session.set_trashed()
    await until(lambda: client.list_conversations()[0].trashed, client)
    await bench.empty_conversation_trash()
    await until(lambda: client.conversation_row(session.id) is None, client)
    assert client.list_conversations() == []
