"""The hooks of a workspace, run: each a process with a time limit, in the sandbox as a command of the model is."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from helix_desktop.engine.calls import object_in
from helix_desktop.engine.collaborators import Heard, Note, Spawn
from helix_desktop.engine.events import Asked, Event, Folding
from helix_desktop.engine.facts import FoldKind, ToolCall
from helix_desktop.engine.ports import CallContext, Outcome, Question
from helix_desktop.errors import HelixError, Refused
from helix_desktop.processes.command import Command, shell
from helix_desktop.processes.starter import PIPE, ProcessLaunch, Where, Whose
from helix_desktop.project import folder as brought
from helix_desktop.project.hook_reach import runs_the_users_own_alone, without_folders
from helix_desktop.project.hooks import Answer, Hook, answer_of, claude_call, current, hook_of
from helix_desktop.project.item import Item
from helix_desktop.store.workspace import Workspace
from helix_desktop.tools.aftermath import Watched
from helix_desktop.tools.guard import Guard
from helix_desktop.tools.kit import Kit
from helix_desktop.tools.openings import Opened
from helix_desktop.tools.permission import Action, Mode
from helix_desktop.tools.sandbox import Kind
from helix_desktop.tools.tool import Seen, Use
from helix_desktop.values import dataclass
from helix_desktop.workbench.project import Project

MOST_PRINTED = 64 * 1024
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Hooks:
    """`last`: by a hook's key, what went wrong when it ran last; empty where nothing did."""

    workspace: Workspace
    project: Project
    kit: Kit
    last: dict[str, str] = field(default_factory=dict)
    _notes: dict[str, list[Note]] = field(default_factory=dict)
    _count: int = 0

    # --- what the engine and the tools ask

    async def happened(self, event: str, conversation: str, values: Mapping[str, Any]) -> Heard:
        """Something that is no call: whether it may go on, and what hooks have to say."""
        if not self._any(event):
            return Heard()
        about = str(values.get("source") or values.get("trigger") or "")
        answers = await self._fire(event, conversation, about, values)
        blocks = next((answer.blocks for answer in answers if answer.blocks), "")
        return Heard(blocks, "\n".join(answer.says for answer in answers if answer.says))

    async def before(self, call: ToolCall, context: CallContext) -> None:
        """Raises Refused where a hook blocks the call, or the user, asked because of one, says no."""
        if not self._any("PreToolUse"):
            return
        name, values = self._claude(call)
        payload = {"tool_name": name, "tool_input": values}
        answers = await self._fire("PreToolUse", context.conversation, name, payload, self._use(call, context))
        self._tell(context.conversation, "PreToolUse", answers)
        for answer in answers:
            if answer.blocks:
                raise Refused(f"A hook blocked this call, so it was not run. {answer.blocks[:4_000]}")
        for answer in answers:
            if answer.asks:
                await _ask(call, context, answer.asks)

    async def after(self, call: ToolCall, context: CallContext, outcome: Outcome) -> None:
        """What hooks say about a call that ran is said to the model with the next request."""
        if not self._any("PostToolUse"):
            return
        name, values = self._claude(call)
        shown = (
            await self.kit.around.cache.read(outcome.output.digest, 0, min(outcome.output.size, MOST_PRINTED))
        ).decode("utf-8", "replace")
        response = {"output": shown, "success": outcome.ok, "exit_code": outcome.exit_code}
        payload = {"tool_name": name, "tool_input": values, "tool_response": response}
        answers = await self._fire("PostToolUse", context.conversation, name, payload, self._use(call, context))
        said = [Answer(says=answer.blocks or answer.says) for answer in answers]
        self._tell(context.conversation, "PostToolUse", said)

    def take_notes(self, conversation: str) -> tuple[Note, ...]:
        """What hooks have said since the last step."""
        return tuple(self._notes.pop(conversation, ()))

    def heard(self, event: Event, spawn: Spawn) -> None:
        """What hooks are only told, beside everything else: that somebody is asked, that a handover begins."""
        match event:
            case Asked(conversation, _, question) if self._any("Notification"):
                spawn(self.happened("Notification", conversation, {"message": question.title}), name="hooks")
            case Folding(conversation, FoldKind.HANDOVER, why, done=False) if self._any("PreCompact"):
                values = {"trigger": "auto", "custom_instructions": why}
                spawn(self.happened("PreCompact", conversation, values), name="hooks")

    # --- running

    def _any(self, event: str) -> bool:
        return any(item.values.get("event") == event for item in self.project.now.in_force("hook"))

    def _use(self, call: ToolCall, context: CallContext) -> Use:
        """For the question about what a hook left behind."""
        return Use(call, context, _permit_nothing, self.kit.around, Seen())

    def _claude(self, call: ToolCall) -> tuple[str, dict[str, Any]]:
        return claude_call(call.name, object_in(call.arguments) or {}, self._folder)

    @property
    def _folder(self) -> Path:
        return next(map(Path, self.workspace.settings.roots), brought.home())

    async def _fire(
        self, event: str, conversation: str, about: str, values: Mapping[str, Any], use: Use | None = None
    ) -> list[Answer]:
        """All hooks for it, side by side. What they left behind that runs later is put back, and asked about where `use` can ask."""
        found: list[tuple[Item, Hook]] = []
        for item in self.project.now.in_force("hook"):
            hook = hook_of(item, self._folder_of(item))
            if hook.event == event and hook.fits(about) and hook.is_for(values.get("tool_input") or {}):
                found.append((item, hook))
        if not found:
            return []
        payload = {
            "session_id": conversation, "transcript_path": "", "cwd": str(self._folder), "hook_event_name": event, **values,
        }  # fmt: skip
        watched = await self._watched(use)
        try:
            answers = await asyncio.gather(*(self._answer(item, hook, payload, watched) for item, hook in found))
            left = await watched.settle(use, ask=True) if use is not None else ""
        finally:
            await asyncio.shield(watched.take_back())
            if use is not None:
                self.kit.commands.settled(watched)
        if left:
            answers.append(Answer(says=left.strip()))
        for (item, _), answer in zip(found, answers, strict=False):
            self.last[item.key] = answer.note
            if answer.note:
                log.info("a hook for %s went wrong", event)
        return list(answers)

    async def _watched(self, use: Use | None) -> Watched:
        """The files before the hooks run. Where nobody can be asked, commands in the background keep what they are compared with."""
        watched = await self.kit.commands.watched(use, free=False, lasting=False) if use is not None else None
        return watched or await Watched.begin(
            self.kit.commands.guard or Guard(self.kit.around.roots, self.kit.options.hidden)
        )

    def _folder_of(self, item: Item) -> Path:
        """Where a hook runs: in the folder that brought it."""
        return self._folder if item.own else item.path.parent.parent

    async def _answer(self, item: Item, hook: Hook, payload: Mapping[str, Any], watched: Watched) -> Answer:
        if self.kit.sandbox.kind is Kind.NONE and not hook.is_of_user:
            return Answer(note="this system has no sandbox, so hooks of a folder don't run.")
        try:
            now = await asyncio.to_thread(current, item, hook.folder)
            if now is None or now.sha256 != item.sha256:
                return Answer(note="it, or a file it names, was changed since you trusted it, so it did not run.")
            if hook.is_of_user and not await asyncio.to_thread(self._is_still_of_user, item, hook.folder):
                return Answer(note="what it runs is no longer yours alone, so it did not run.")
            return await self._run(hook, payload, watched)
        except TimeoutError:
            return Answer(note=f"it did not end within {hook.seconds:g} s and was stopped.")
        except (OSError, HelixError) as error:
            return Answer(note=f"it could not be run: {error}")

    def _is_still_of_user(self, item: Item, folder: Path) -> bool:
        return runs_the_users_own_alone(item.body, brought.home(), self.kit.around.roots.folders, folder)

    async def _run(self, hook: Hook, payload: Mapping[str, Any], watched: Watched) -> Answer:
        with tempfile.TemporaryFile() as given:
            given.write(json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace"))
            given.seek(0)
            start = self._start_of_user if hook.is_of_user else self._start_in_sandbox
            command = await start(hook, _told(hook, payload), watched, given.fileno())
        try:
            printed, complained, code = await asyncio.wait_for(_whole(command), hook.seconds)
        finally:
            command.end()
            await asyncio.shield(command.gone())
        if printed is None or complained is None:
            return Answer(note=f"it printed more than {MOST_PRINTED:,} bytes and was stopped.")
        return answer_of(hook.event, code, printed, complained)

    async def _start_in_sandbox(self, hook: Hook, told: dict[str, str], watched: Watched, stdin: int) -> Command:
        """As a command of the model: with the same files held, and written nowhere where the mode writes nothing."""
        is_read_only = self.kit.permissions.mode in (Mode.READ_ONLY, Mode.PLAN)
        sandbox = replace(self.kit.sandbox, read_only=is_read_only)
        opened = await asyncio.to_thread(self._opened, watched.guard)
        if sandbox.cannot_hide(opened):
            raise Refused("The weaker sandbox, Landlock, cannot hide files from it that agents don't see.")
        words, held = shell(hook.command), watched.guard.held()
        environment = sandbox.environment(os.environ, network=False, free=False, opened=opened) | told
        launch = ProcessLaunch(
            Whose.TRUSTED, words, hook.folder, environment, where=Where.SANDBOX, trust=hook.trust, checks=watched
        )
        return await Command.start(
            launch,
            lambda lifeline: sandbox.command(words, lifeline, network=False, held=held, opened=opened),
            stdin=stdin,
            stderr=PIPE,
        )

    def _opened(self, guard: Guard) -> Opened:
        """What a command of the model sees that asked for nothing."""
        return replace(self.kit.commands.opened(), hidden=tuple(guard.hidden()))

    async def _start_of_user(self, hook: Hook, told: dict[str, str], _watched: Watched, stdin: int) -> Command:
        """The user's own script, as they set it. No program is looked for in a folder of the workspace."""
        environment = self.kit.sandbox.environment(os.environ, network=True, free=True) | told
        environment["PATH"] = without_folders(environment.get("PATH", os.defpath), self.kit.around.roots.folders)
        words, sandbox = shell(hook.command), self.kit.sandbox
        launch = ProcessLaunch(Whose.USER, words, hook.folder, environment, where=Where.WATCHED)
        return await Command.start(
            launch, lambda lifeline: sandbox.command(words, lifeline, network=True, free=True), stdin=stdin, stderr=PIPE
        )

    def _tell(self, conversation: str, event: str, answers: list[Answer]) -> None:
        for answer in answers:
            if answer.says:
                self._count += 1
                words = f"[A hook for {event} says:]\n{answer.says[:20_000]}"
                self._notes.setdefault(conversation, []).append(
                    Note(f"hook:{event} {self._count}", words, pinned=False)
                )


async def _permit_nothing(_: Action) -> None:
    raise Refused("A hook needs no permission of its own.")


def _told(hook: Hook, payload: Mapping[str, Any]) -> dict[str, str]:
    """What published hooks read from their environment."""
    values = payload.get("tool_input")
    values = values if isinstance(values, dict) else {}
    return {
        "CLAUDE_PROJECT_DIR": str(hook.folder),
        "CLAUDE_TOOL_NAME": str(payload.get("tool_name", "")),
        "CLAUDE_TOOL_FILE_PATH": str(values.get("file_path", "")).replace("\0", ""),
    }


async def _whole(command: Command) -> tuple[str | None, str | None, int | None]:
    """What it printed and complained of, and its exit code; None for a stream that floods, whose end nobody waits for."""
    process = command.process
    said = await asyncio.gather(_read(command, process.stdout), _read(command, process.stderr))
    return *said, None if None in said else await process.wait()


async def _read(command: Command, stream: asyncio.StreamReader | None) -> str | None:
    found = b""
    while stream is not None and (piece := await stream.read(1 << 14)):
        found += piece
        if len(found) > MOST_PRINTED:
            command.end()
            return None
    return found.decode("utf-8", "replace")


async def _ask(call: ToolCall, context: CallContext, why: str) -> None:
    answer = await context.ask(
        Question(call, f"A hook is asking about {call.name}", call.arguments, why[:300], ("once",))
    )
    if not answer.allowed:
        raise Refused("The user denied this call, so it was not run.")
