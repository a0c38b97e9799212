"""An agent that resumes what `conversation restore` wrote sends the bytes that it would have sent
with its own file, so that its provider's cache stays warm.

python -m tests.faults.agent_bytes [--agent NAME ...] [--sessions N] [--moments N] [--seed S]
    [--cuts N] [--first N] [--results FILE] [--keep FOLDER] [--compacted] [--wrapped]      HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py

A real agent works against a scripted provider: several turns with tools, reasoning, and its own
compaction at a random place. A moment is the agent's home as it was at a random time: after one
of the runs, or in the middle of one, where the newest file ends at a random line. From one copy
of a moment, the agent resumes with its own file; from another, its conversation is imported, its
file removed, and the agent resumes what was restored. Compared are the two next requests: how
much of the first, up to the new words of the user, the second begins with.

Gemini CLI 0.61 writes down less of a session than it sends: it cannot go on with the same bytes
itself. So both its own next request and the second one are compared with those that it sent before,
and the second must have as much in common with them as its own. It shortens only what was said before
the newest words of the user, so `--compacted` types several turns into its window.

The files of Claude Code's sub-agents are removed, too, and must come back with the session.

With `--wrapped`, the agent works through `wrap`, and what is restored is what that has recorded:
not the form of what the agent sent, as ids or sealed reasoning. So only words, calls, results and
sealed summaries are compared.

Every output that stood complete in the file must be in the second request or in the workspace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop import concurrency, program_folders
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.view import build_state
from helix_desktop.protocols.gateway_message import PieceKind, Speaker
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.benchmarks.gateway_clients import _names
from tests.faults import agent_resume
from tests.faults.agent_pairs import picture
from tests.faults.agent_recorder import MARK, MarkedScript, marks_in
from tests.faults.agent_resume import WITH_SESSIONS, session_file, session_id
from tests.faults.wrap_matrix import Typing, _processes_of, in_terminal
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, Thinks
from tests.resident.test_resident_process import wait_until

COMPACTS_BY_COMMAND = {"claude": "/compact", "qwen": "/compress"}
ASKED_SHARE = 0.99
CUTS = 3
SUMMARY_TEXT = b"The numbers were counted."
SECONDS_OF_TURN = 300.0
PAUSE_OF_WINDOW = 3.0  # What is typed before the window shows the end of a turn is lost.
AGENT_TEXTS = ("<", "# AGENTS", "This is the Gemini CLI", "Today's date")
KEPT_FOLDERS = (".cache", ".npm")  # Large, and without anything of a session.
NOT_COPIED = shutil.ignore_patterns(*KEPT_FOLDERS)
REPLY = re.compile(rb'"role": ?"assistant"|"type": ?"(assistant|gemini|function_call)"')
# An agent may ask its provider twice for the words: once without tools, for a title.
SESSION_ID = re.compile(
    rb"ses_\w{20,40}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)


class ThinkingScript(MarkedScript):
    """Thinks before every third reply. `marks_beside`: those of titles and of summaries."""

    def __init__(self, name: str, chance: random.Random, work: Path) -> None:
        super().__init__(name, chance, work)
        self.marks_beside: set[bytes] = set()
        # Among them are replies to what the agent asks beside the conversation.
        self.ends_of_turns: list[bytes] = []

    def usage(self, asked: Asked) -> dict[str, int]:
        # These shorten nothing that their provider counts as short.
        if self.name in ("gemini", "qwen") and not self.fills:
            return {"input": len(asked.raw) // 4, "read": 0, "write": 0}
        return super().usage(asked)

    def __call__(self, asked: Asked) -> Sequence[Block]:
        blocks = list(super().__call__(asked))
        makes_calls = any(isinstance(block, Calls) for block in blocks)
        if makes_calls and self._number % 3 == 0 and self.name != "gemini":
            thought = f"I think about step {self._number}, naïvely."
            blocks.insert(0, Thinks(thought))
        for block in blocks:
            if not isinstance(block, Says):
                continue
            if block.text.startswith(("<summary>", "A title")):
                self.marks_beside.update(MARK.findall(block.text.encode()))
            elif not makes_calls:
                self.ends_of_turns.extend(MARK.findall(block.text.encode()))
        return blocks


@dataclass(eq=False)
class Moment:
    """A copy of the agent's home. `lines`: where its newest file is cut off, 0 for nowhere.
    `database`: what its database was, if it has one and that was copied in the middle of a run.
    `ends_with_compaction`: no request was sent behind it, so `wrap` does not know of it.
    """

    home: Path
    compactions: int
    lines: int = 0
    database: Path | None = None
    ends_with_compaction: bool = False


@dataclass
class Comparison:
    """What came of a moment. `share` is of the bytes that the agent would have sent."""

    agent: str
    moment: str
    share: float = 0.0
    size: int = 0
    least_share: float = ASKED_SHARE
    difference: str = ""
    lost: list[str] = field(default_factory=list)
    failure: str = ""

    @property
    def is_right(self) -> bool:
        return not self.failure and not self.lost and self.share >= self.least_share

    @property
    def line(self) -> str:
        if self.failure:
            return f"{self.agent}, {self.moment}: {self.failure}"
        line = f"{self.agent}, {self.moment}: {self.share:.2%} of {self.size:,} bytes"
        if self.least_share != ASKED_SHARE:
            line += f" ({self.least_share:.2%} by itself)"
        if self.lost:
            line += f"; lost: {self.lost[:3]}"
        if self.difference:
            line += f"; {self.difference}"
        return line


class Stage:
    """An agent with its home, its folder and its provider, at the same addresses for all copies."""

    def __init__(
        self,
        name: str,
        folder: Path,
        chance: random.Random,
        *,
        cuts: int = CUTS,
        is_wrapped: bool = False,
    ) -> None:
        self.name = name
        self.cuts = cuts
        self.is_wrapped = is_wrapped
        self.folder = folder
        self.chance = chance
        self.home = folder / "home"
        self.work = folder / "work"
        self.script = ThinkingScript(name, chance, self.work)
        self.provider = Provider(self.script, usage=self.script.usage, accepted="have one role")
        self.moments: list[Moment] = []
        self.live_requests: list[Asked] = []
        self.last_requests: tuple[Asked, ...] = ()
        self.said_by_pi = ""
        self.databases: list[Path] = []  # Copies that were made in the run that goes on.

    def prepare(self) -> None:
        self.home.mkdir()
        self.work.mkdir()
        if self.name == "pi":  # It keeps 20,000 tokens as they are, and so would shorten nothing.
            settings = {"compaction": {"keepRecentTokens": 400 if self.is_wrapped else 100}}
            (self.home / ".pi/agent").mkdir(parents=True)
            (self.home / ".pi/agent/settings.json").write_text(json.dumps(settings), "utf-8")
        lines = [f"line {number}\n" for number in range(1, 40)]
        (self.work / "notes.txt").write_text("".join(lines), "utf-8")
        (self.work / "dot.png").write_bytes(picture())
        agent_resume.helix(self.home, "workspace", "new", "Work", "--folder", str(self.work))
        if not self.is_wrapped:
            # Each trial imports into a workspace that has nothing yet.
            (self.home / "helix").rename(self.folder / "helix")

    def run(self, given: Sequence[str], *, is_wrapped: bool = False) -> None:
        agent_resume.run_agent(self.name, self.provider, self.home, given, is_wrapped=is_wrapped)
        if is_wrapped:  # Its workspace is copied next.
            wait_until(lambda: not _processes_of(self.home))

    # --- Working

    def converse(self, turns: int) -> None:
        """So many turns, with a compaction behind one of them that is not the last."""
        compacts_behind = -1
        if turns > 1:
            compacts_behind = self.chance.randrange(turns - 1)
        session = ""
        for turn in range(turns):
            self.script.left = self.chance.randint(3, 8)
            words = f"turn {turn}: naïve “words”\n  and a second line ask-{turn}-{self.chance.getrandbits(24):06x}"
            given = agent_resume.begin(self.name, words)
            if session:
                given = agent_resume.resume(self.name, session, words)
            first_line = self._count_lines()
            with self._copies_of_database():
                self.run(given, is_wrapped=self.is_wrapped)
            session = session_id(self.name, session_file(self.name, self.home))
            self._keep_moments(first_line)
            if turn == compacts_behind:
                self._compact(session)
                by_command = self.name == "pi" or self.name in COMPACTS_BY_COMMAND
                self._keep_moments(self._count_lines(), ends_with_compaction=by_command)

    def converse_in_window(self, turns: int) -> None:
        """So many turns in one run of Gemini CLI, with a compaction behind one that is not the last."""
        command = agent_resume.command_of_agent(
            self.name, self.provider, self.home, is_wrapped=self.is_wrapped
        )
        variables = agent_resume.environment_of_agent(self.name, self.provider, self.home)
        variables["TERM"] = "xterm-256color"
        ours, its = pty.openpty()
        with subprocess.Popen(command, cwd=self.work, env=variables, **in_terminal(its)) as process:
            os.close(its)
            try:
                self._type_turns(Typing(ours), turns)
            finally:
                process.kill()
                os.close(ours)
        if self.is_wrapped:
            wait_until(lambda: not _processes_of(self.home))

    def _type_turns(self, typing: Typing, turns: int) -> None:
        compacts_behind = self.chance.randrange(turns - 1)
        if not typing.hear(lambda: b"Type your message" in typing.heard):
            raise RuntimeError("its window did not come")
        for turn in range(turns):
            first_line = self._count_lines()
            self.script.left = self.chance.randint(3, 8)
            words = f"turn {turn}: naïve “words” ask-{turn}-{self.chance.getrandbits(24):06x}"
            self._type_turn(typing, words)
            self._keep_moments(first_line)
            if turn == compacts_behind:
                self._compact_in_window(typing)
                self._keep_moments(self._count_lines())
        typing.type_line("/quit")
        # What is recorded is copied once the agent has ended.
        typing.hear(lambda: not _processes_of(self.home))

    def _compact_in_window(self, typing: Typing) -> None:
        before = self.script.compacted
        if self.chance.random() < 0.5:
            typing.type_line("/compress")
            typing.hear(lambda: self._has_in_file(SUMMARY_TEXT))
            typing.hear(lambda: False, PAUSE_OF_WINDOW)
        else:
            self.script.fills = True
            self.script.left = 4
            self._type_turn(typing, "fill the window")
            self.script.fills = False
        if self.script.compacted == before:
            raise RuntimeError(f"{self.name} did not shorten its history")

    def _type_turn(self, typing: Typing, words: str) -> None:
        """Type these words, and wait until the turn has ended in the file."""
        self.script.ends_of_turns.clear()
        typing.type_line(words)

        def has_ended() -> bool:
            return any(self._has_in_file(end) for end in self.script.ends_of_turns)

        if not typing.hear(has_ended, SECONDS_OF_TURN):
            raise RuntimeError(f"the turn of {words!r} did not end")
        typing.hear(lambda: False, PAUSE_OF_WINDOW)

    def _has_in_file(self, text: bytes) -> bool:
        with suppress(ValueError):  # There is none yet.
            return text in session_file(self.name, self.home).read_bytes()
        return False

    def _compact(self, session: str) -> None:
        before = self.script.compacted
        self.script.left = 0
        if self.name in COMPACTS_BY_COMMAND:
            command = COMPACTS_BY_COMMAND[self.name]
            given = agent_resume.resume(self.name, session, command)
            self.run(given, is_wrapped=self.is_wrapped)
        elif self.name == "pi":
            self._compact_pi(session)
        else:
            self.script.fills = True
            self.script.left = 4
            words = "fill the window"
            given = agent_resume.resume(self.name, session, words)
            self.run(given, is_wrapped=self.is_wrapped)
            self.script.fills = False
        if self.script.compacted == before:
            raise RuntimeError(f"{self.name} did not shorten its history {self.said_by_pi}")

    def _compact_pi(self, session: str) -> None:
        """Pi has its commands in its window and in its protocol for other programs."""
        command = agent_resume.command_of_agent(
            "pi", self.provider, self.home, is_wrapped=self.is_wrapped
        )
        with subprocess.Popen(
            [*command, "--mode", "rpc", "--session", session],
            cwd=self.work,
            env=agent_resume.environment_of_agent("pi", self.provider, self.home),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"id": "1", "type": "compact"}) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                self.said_by_pi = line
                if '"type":"response"' in line:
                    break
            process.stdin.close()
            process.wait(timeout=60)
        wait_until(lambda: not _processes_of(self.home))

    def _count_lines(self) -> int:
        if self.name == "opencode":
            return 0
        with suppress(ValueError):
            return len(session_file(self.name, self.home).read_bytes().splitlines())
        return 0

    # --- Keeping moments

    def _keep_moments(self, first_line: int, *, ends_with_compaction: bool = False) -> None:
        """Keep the home as it is, and as it was when the newest file had fewer lines."""
        copy = self.folder / f"moment-{len(self.moments)}"
        shutil.copytree(self.home, copy, symlinks=True, ignore=NOT_COPIED)
        compactions = self.script.compacted
        moment = Moment(copy, compactions, ends_with_compaction=ends_with_compaction)
        self.moments.append(moment)
        for database in self.databases:
            self.moments.append(Moment(copy, compactions, database=database))
        self.databases = []
        if self.is_wrapped:  # What was recorded goes on to the end of the run.
            return
        last_line = self._count_lines()
        first_line = max(first_line, self._line_of_first_reply())
        for _ in range(self.cuts):
            if last_line - first_line > 1:
                line = self.chance.randint(first_line + 1, last_line - 1)
                self.moments.append(Moment(copy, compactions, line))

    def _line_of_first_reply(self) -> int:
        """A session without a reply is not imported."""
        if self.name == "opencode":
            return 0
        lines = session_file(self.name, self.home).read_bytes().splitlines()
        for number, line in enumerate(lines, 1):
            if REPLY.search(line):
                return number
        return len(lines)

    @contextmanager
    def _copies_of_database(self) -> Iterator[None]:
        """While an agent with a database works, keep what stands there at random times."""
        if self.name != "opencode" or self.is_wrapped:
            yield
            return
        is_over = threading.Event()
        pauses = [self.chance.uniform(1.0, 6.0) for _ in range(12)]

        def copy_now_and_then() -> None:
            for pause in pauses:
                if is_over.wait(pause):
                    return
                with suppress(ValueError, sqlite3.Error):
                    self._copy_database()

        thread = concurrency.start_thread(copy_now_and_then, name="copies")
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _copy_database(self) -> None:
        database = session_file(self.name, self.home)
        copy = self.folder / f"database-{len(list(self.folder.glob('database-*')))}"
        with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            replies = target.execute(
                "SELECT count(*) FROM part WHERE json_extract(data, '$.type') = 'tool'"
            )
            (count,) = replies.fetchone()
        if count:
            self.databases.append(copy)

    # --- Comparing

    def compare(self, moment: Moment) -> Comparison:
        number = self.moments.index(moment)
        cut = f", cut behind line {moment.lines}" if moment.lines else ""
        name = f"moment {number}{cut}, {moment.compactions} compacted"
        result = Comparison(self.name, name)
        try:
            self._compare(moment, result)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other moments are tried
            result.failure = f"{type(error).__name__}: {error}"
        return result

    def _compare(self, moment: Moment, result: Comparison) -> None:
        mark = "MARK goes on"
        self._return_to(moment)
        file = session_file(self.name, self.home)
        session = session_id(self.name, file)
        stood = marks_in(file)
        own = self._next_request(session, mark)
        self._return_to(moment)
        restored = self._restore_and_ask(file, session, mark)

        live_requests = [own]
        if self.name == "gemini":
            live_requests = self.live_requests
        best = closest_request(live_requests, restored)
        if self.is_wrapped:
            old = words_of_request(best)
            new = words_of_request(restored)
            if moment.ends_with_compaction:  # The agent gets all of it.
                result.least_share = 0.0
        else:
            old = without_session_ids(best.raw)
            new = without_session_ids(restored.raw)
        end = old.rfind(mark.encode())
        if end < 0:  # It is an earlier request, which had no new words.
            end = new.rfind(mark.encode())
        same = length_of_common_beginning(old, new)
        result.size = end
        result.share = min(same, end) / end
        if self.name == "gemini":
            best_for_own = without_session_ids(closest_request(live_requests, own).raw)
            same_by_itself = length_of_common_beginning(best_for_own, without_session_ids(own.raw))
            result.least_share = min(ASKED_SHARE, same_by_itself / end)
        if same < end:
            was = old[max(0, same - 60) : same + 140]
            now = new[max(0, same - 60) : same + 140]
            result.difference = f"at {same:,}: {was!r} is now {now!r}"
        missing = stood - set(MARK.findall(restored.raw))
        if self.is_wrapped:  # They are no messages of the conversation.
            missing -= self.script.marks_beside
        if missing:
            missing -= asyncio.run(marks_in_workspaces(self.home / "helix"))
        result.lost = sorted(mark.decode() for mark in missing)
        self.last_requests = (best, restored)

    def _restore_and_ask(self, file: Path, session: str, words: str) -> Asked:
        """Import the session, remove it, give it back, and return the agent's next request."""
        if not self.is_wrapped:
            shutil.copytree(self.folder / "helix", self.home / "helix")
            agent_resume.helix(self.home, "conversation", "import", "-w", "Work", str(file))
        listed = agent_resume.helix(self.home, "conversation", "list", "-w", "Work", "--json")
        conversations = [one["id"] for one in json.loads(listed) if not one["parent"]]
        if len(conversations) != 1:
            raise RuntimeError(f"it is {len(conversations)} conversations")
        (conversation,) = conversations
        agent_resume.delete_session(self.name, file, session)
        made = agent_resume.helix(
            self.home, "conversation", "restore", "-w", "Work", conversation,
            "--to", self.name, "--json",
        )  # fmt: skip
        return self._next_request(json.loads(made)["session"], words)

    def _return_to(self, moment: Moment) -> None:
        for entry in self.home.iterdir():
            if entry.name not in KEPT_FOLDERS:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(moment.home, self.home, symlinks=True, dirs_exist_ok=True)
        if moment.database is not None:
            database = session_file(self.name, self.home)
            for file in database.parent.glob(f"{database.name}*"):
                file.unlink()
            shutil.copy(moment.database, database)
        if moment.lines:
            file = session_file(self.name, self.home)
            lines = file.read_bytes().splitlines(keepends=True)
            file.write_bytes(b"".join(lines[: moment.lines]))

    def _next_request(self, session: str, words: str) -> Asked:
        """The first request with these words. What the agent does afterwards does not matter."""
        self.script.left = 0
        number = len(self.provider.asked)
        failure = ""
        try:
            self.run(agent_resume.resume(self.name, session, words))
        except RuntimeError as error:
            failure = str(error)
        for asked in self.provider.asked[number:]:
            if asked.protocol and words.encode() in asked.raw and _names(asked.body):
                return asked
        raise RuntimeError(f"no request has the new words. {failure}")


def without_session_ids(raw: bytes) -> bytes:
    """Return the request with the same id in place of each id of a session or message."""
    return SESSION_ID.sub(b"ID", raw)


def words_of_request(asked: Asked) -> bytes:
    """Return what is said in a request, without what the agent itself adds and finds anew each time."""
    said: list[str] = []
    for message in WIRE_MODULES[asked.protocol].parse_messages(asked.body):
        for piece in message.pieces:
            is_form = piece.kind is PieceKind.REASONING or message.speaker is Speaker.SYSTEM
            if is_form or piece.text.startswith(AGENT_TEXTS):
                continue
            text = piece.text
            if piece.kind is PieceKind.CALL:
                text = json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True)
            said.append(f"{message.speaker.value} {piece.kind.value} {text}")
    return without_session_ids("\n".join(said).encode())


def closest_request(candidates: Sequence[Asked], other: Asked) -> Asked:
    """Return the one that has the longest beginning in common with another request."""

    def length_in_common(candidate: Asked) -> int:
        return length_of_common_beginning(
            without_session_ids(candidate.raw), without_session_ids(other.raw)
        )

    return max(candidates, key=length_in_common)


def length_of_common_beginning(first: bytes, second: bytes) -> int:
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    for position in range(shorter):
        if first[position] != second[position]:
            return position
    return shorter


async def marks_in_workspaces(helix_home: Path) -> set[bytes]:
    """Return the marks of all facts that were not left in another branch, and of what they refer
    to.
    """
    found: set[bytes] = set()
    folders = program_folders.find_program_folders(helix_home)
    workspaces = AllWorkspaces(folders.workspaces_folder)
    for known in workspaces.list_workspaces():
        workspace = await workspaces.open_stored_workspace(known.id)
        for row in await workspace.journal.list_conversations():
            state = build_state(await workspace.journal.read_facts(row.id))
            for recorded in state.facts_on_path():
                found.update(MARK.findall(fact_encoding.encode_fact(recorded.fact).encode()))
                for field_name in ("output", "unread"):
                    stored = getattr(recorded.fact, field_name, None)
                    if stored is not None:
                        contents = await workspace.cache.read_contents([stored.digest])
                        for content in contents.values():
                            found.update(MARK.findall(content))
        await workspace.aclose()
    return found


def try_session(
    name: str,
    chance: random.Random,
    moments: int,
    keep: Path | None,
    *,
    cuts: int = CUTS,
    is_compacted: bool = False,
    is_wrapped: bool = False,
) -> Iterator[Comparison]:
    """Yield what came of so many random moments of a session, or of those behind its compaction."""
    with tempfile.TemporaryDirectory(prefix=f"bytes-{name}-", dir="/var/tmp") as folder:
        stage = Stage(name, Path(folder), chance, cuts=cuts, is_wrapped=is_wrapped)
        stage.prepare()
        with stage.provider:
            turns = chance.randint(3, 4)
            if name == "gemini" and is_compacted:
                stage.converse_in_window(turns)
            elif name == "gemini":
                stage.converse(1)
            else:
                stage.converse(turns)
            for asked in stage.provider.asked:
                if asked.protocol and _names(asked.body):
                    stage.live_requests.append(asked)
            chosen = stage.moments
            if is_compacted:
                chosen = [moment for moment in stage.moments if moment.compactions]
            if len(chosen) > moments:
                chosen = chance.sample(chosen, moments)
            for number, moment in enumerate(chosen):
                comparison = stage.compare(moment)
                yield comparison
                if keep is not None and not comparison.failure:
                    keep.mkdir(parents=True, exist_ok=True)
                    for which, asked in zip(("own", "restored"), stage.last_requests, strict=True):
                        (keep / f"{name}-{number}-{which}.json").write_bytes(asked.raw)


def main() -> int:
    arguments = _read_arguments()
    until = time.monotonic() + arguments.seconds
    tried: list[Comparison] = []
    for number in range(arguments.first, arguments.first + arguments.sessions):
        for name in arguments.agent:
            chance = random.Random(f"{name} {arguments.seed} {number}")
            comparisons = try_session(
                name,
                chance,
                arguments.moments,
                arguments.keep,
                cuts=arguments.cuts,
                is_compacted=arguments.compacted,
                is_wrapped=arguments.wrapped,
            )
            for comparison in comparisons:
                tried.append(comparison)
                print(comparison.line, flush=True)
                if arguments.results is not None:
                    with arguments.results.open("a", encoding="utf-8") as file:
                        file.write(f"{comparison.line}\n")
                if time.monotonic() > until:
                    break
    for name in arguments.agent:
        _print_sums(name, [comparison for comparison in tried if comparison.agent == name])
    wrong = sum(not comparison.is_right for comparison in tried)
    print(f"{len(tried)} moments, {wrong} wrong")
    return int(bool(wrong))


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agent", choices=WITH_SESSIONS, nargs="+", default=WITH_SESSIONS)
    parser.add_argument("--sessions", type=int, default=1, help="of each agent")
    parser.add_argument("--first", type=int, default=0, help="the number of the first session")
    parser.add_argument("--moments", type=int, default=10, help="of each session")
    parser.add_argument(
        "--cuts", type=int, default=CUTS, help="of the newest file, behind each of its runs"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--keep", type=Path, help="keep the requests here")
    parser.add_argument("--compacted", action="store_true", help="only behind a compaction")
    parser.add_argument("--wrapped", action="store_true", help="what `wrap` has recorded")
    return parser.parse_args()


def _print_sums(name: str, tried: Sequence[Comparison]) -> None:
    shares = [comparison.share for comparison in tried if not comparison.failure]
    if not shares:
        return
    right = sum(comparison.is_right for comparison in tried)
    mean = sum(shares) / len(shares)
    print(f"{name}: {right} right of {len(shares)}, mean {mean:.2%}, least {min(shares):.2%}")


if __name__ == "__main__":
    sys.exit(main())
