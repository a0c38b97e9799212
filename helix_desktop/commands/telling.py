"""Hearing a session and saying it to a console: the text as it is written, or every fact as a line of JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import field

from helix_desktop.console import Console, shown
from helix_desktop.engine.blocks import TextDelta, Waiting
from helix_desktop.engine.encoding import encode
from helix_desktop.engine.events import Asked, Event, FactAppended, Running, StateChanged, Streamed
from helix_desktop.engine.facts import Fact, Folded, ModelReplied, Recorded, Text, ToolCall, TurnEnd, TurnEnded
from helix_desktop.engine.ports import Answer, Question
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_names import EDITS, ToolName
from helix_desktop.values import dataclass

COMMANDS = frozenset({ToolName.RUN_COMMAND})


class Aside(str):
    """What is told on standard error, beside the answer."""

    __slots__ = ()


@dataclass
class Telling:
    """Questions are answered by what was allowed from the start; nobody is there to ask."""

    session: Session
    allowed: frozenset[str]
    as_lines: bool
    ended: TurnEnded | None = None
    refused: list[str] = field(default_factory=list)
    _waiting: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    def hear(self, event: Event) -> None:
        match event:
            case Asked():
                self.asked(event)
            case FactAppended(recorded):
                self._fact(recorded)
            case StateChanged(running=Running.IDLE | Running.FAILED, why=why):
                self._over(why)
            case Streamed(delta=TextDelta(text)) if not self.as_lines:
                self._waiting.put_nowait(shown(text))
            case Streamed(delta=Waiting(why=why, seconds=seconds)):
                self._waiting.put_nowait(Aside(f"Retrying in {round(seconds)} s: {shown(why)}"))
            case _:
                pass

    def asked(self, event: Event) -> None:
        """All that is heard before the turn: what the shell lines of a slash command ask."""
        if isinstance(event, Asked):
            self.session.answer(event.number, self.answer(event.question))

    def _fact(self, recorded: Recorded) -> None:
        if self.as_lines:
            self._waiting.put_nowait(line(recorded) + "\n")
        elif words := _words(recorded.fact):
            self._waiting.put_nowait(shown(words))
        if isinstance(recorded.fact, TurnEnded):
            self.ended = recorded.fact
            self._waiting.put_nowait("")

    def _over(self, why: str) -> None:
        """Nothing goes on any more: also where the turn's end found no room in the journal."""
        if self.ended is None:
            self.ended = TurnEnded(TurnEnd.FAILED, why)
        self._waiting.put_nowait("")

    async def tell(self, console: Console) -> None:
        """Until the turn has ended."""
        while text := await self._waiting.get():
            if isinstance(text, Aside):
                await console.complain(text)
                continue
            await console.write(text.encode("utf-8", "replace"))

    @property
    def why(self) -> str:
        if self.ended is None:
            return "The turn did not end."
        why = self.ended.why or self.ended.reason.value
        return f"The turn ended early: {why}{'' if why.endswith(('.', '?', '!', '…')) else '.'}"

    def answer(self, question: Question) -> Answer:
        """By what was allowed; what has a name of its own, by that."""
        name = question.call.name
        groups = {"edits"} if name in EDITS else {"commands"} if name in COMMANDS else set()
        wanted = question.apart or name
        if self.allowed & {"all", wanted, *(set() if question.apart else groups)}:
            return Answer(allowed=True)
        self.refused.append(wanted)
        return Answer(
            allowed=False, words=f"Nobody could be asked, and the command was not started with --allow {wanted}."
        )


def line(recorded: Recorded) -> str:
    """A fact in its place as one line of JSON."""
    body = {"conversation": recorded.conversation, "seq": recorded.seq, "time": recorded.time}
    return json.dumps({**body, **json.loads(encode(recorded.fact))}, ensure_ascii=False)


def _words(fact: Fact) -> str:
    """What a fact says to a reader of the plain text; nothing for most."""
    match fact:
        case ModelReplied(parts=parts):
            calls = [part for part in parts if isinstance(part, ToolCall)]
            said = any(isinstance(part, Text) for part in parts)
            return ("\n" if said else "") + "".join(f"· {call.name} {call.arguments[:100]}\n" for call in calls)
        case Folded(kind=kind, tokens_before=before, tokens=after):
            return f"· {kind.value}: {before:,} → {after:,} tokens\n"
        case TurnEnded():
            return ""
    return ""
