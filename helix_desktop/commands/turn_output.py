"""Prints a running turn to a console: the text as written, or every fact as a line of JSON."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import field

from helix_desktop.console import Console, dump_printed_json, escape_control_characters
from helix_desktop.engine import facts, session_events
from helix_desktop.engine.fact_encoding import encode_fact
from helix_desktop.engine.messages import RetryDelay, TextDelta
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workbench.unattended_permissions import is_allowed_unattended, name_to_allow


class StandardErrorLine(str):
    """A sentence that is printed among the errors instead of the answer."""

    __slots__ = ()


@dataclass
class TurnPrinter:
    """Prints a turn and answers its questions by what was allowed on the command line,
    because nobody can be asked.
    """

    session: Session
    allowed: frozenset[str]
    as_lines: bool
    # Nothing is printed or answered while it waits for another turn to end.
    message: QueuedMessage | None = None
    has_begun: bool = False  # Whether the message, if there is one, has been recorded.
    ended: facts.TurnEnded | None = None
    refused: list[str] = field(default_factory=list)
    _waiting: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    _has_said_wait: bool = False  # Whether it was said that the turn waits for a summary.

    @property
    def is_waiting(self) -> bool:
        """Whether the message is still in the conversation's queue."""
        return self._index_in_queue() is not None

    def _index_in_queue(self) -> int | None:
        """Returns where the message waits. Other messages may have the same text."""
        if self.message is None:
            return None
        for index, queued_message in enumerate(self.session.queue):
            if queued_message is self.message:
                return index
        return None

    def send_and_print(self, parts: tuple[facts.UserPart, ...]) -> None:
        """Sends a message, or continues the turn without one."""
        if parts:
            self.has_begun = False
            self.session.send_message(parts)
            self.message = self.session.queue[-1]
        else:
            self.has_begun = True
            self.session.resume_turn()
            self.message = None

    def stop_or_take_back(self) -> None:
        """Stops the turn. While the message waits, the turn is somebody else's: takes
        the message back instead.
        """
        index = self._index_in_queue()
        if index is not None:
            self.session.queue.take_back_queued(index)
        elif not self.ended:
            self.session.stop_turn()

    def print_event(self, event: session_events.Event) -> None:
        """Queues what is printed of an event. While the message waits, the turn is somebody else's."""
        if self.is_waiting and not isinstance(event, session_events.ActivityChanged):
            return
        match event:
            case session_events.QuestionAsked():
                self.answer_question_before_turn(event)
            case session_events.FactAppended(recorded):
                self._print_fact(recorded)
            case session_events.ActivityChanged(
                running=session_events.ConversationActivity.IDLE
                | session_events.ConversationActivity.FAILED,
                why=why,
            ):
                self._end_printing(why)
            case session_events.ReplyStreamed(delta=TextDelta(text)) if not self.as_lines:
                self._waiting.put_nowait(escape_control_characters(text))
            case session_events.ReplyStreamed(delta=RetryDelay(why=why, seconds=seconds)):
                self._waiting.put_nowait(
                    StandardErrorLine(session_events.describe_retry(seconds, why))
                )
            case session_events.FoldProgress():
                self._print_wait_for_summary(event)
            case _:
                pass

    def answer_question_before_turn(self, event: session_events.Event) -> None:
        """Answers questions before the turn starts, such as those about shell lines of
        a slash command.
        """
        if isinstance(event, session_events.QuestionAsked):
            answer = self.answer_by_allowed_names(event.question)
            self.session.answer_question(event.number, answer)

    def _print_wait_for_summary(self, progress: session_events.FoldProgress) -> None:
        sentence = session_events.describe_wait_for_summary(progress)
        is_news = sentence != session_events.WAITS_FOR_SUMMARY or not self._has_said_wait
        if sentence and is_news:
            self._has_said_wait = True
            self._waiting.put_nowait(StandardErrorLine(sentence))

    def _print_fact(self, recorded: facts.Recorded) -> None:
        """Queues the text of a fact, and notices when the message is recorded and when its turn
        ends.

        A turn that ends before the message was recorded is not the message's own: somebody has
        taken the message back.
        """
        fact = recorded.fact
        if self.as_lines:
            text = fact_as_json_line(recorded) + "\n"
        else:
            text = escape_control_characters(plain_text_of_fact(fact))
        if text:  # An empty text would end the printing.
            self._waiting.put_nowait(text)

        if isinstance(fact, facts.UserSaid) and not fact.by and not fact.steering:
            self.has_begun = True
        if isinstance(fact, facts.TurnEnded):
            if self.has_begun:
                self.ended = fact
            else:
                self.ended = facts.TurnEnded(facts.TurnEnd.STOPPED, "your message was taken back")
            self._waiting.put_nowait("")

    def _end_printing(self, why: str) -> None:
        """Ends the printing, even if the end of the turn could not be stored."""
        if self.ended is None:
            if self.is_waiting:
                why += " Your message was not sent."
            self.ended = facts.TurnEnded(facts.TurnEnd.FAILED, why.strip())
        self._waiting.put_nowait("")

    async def print_until_turn_ends(self, console: Console) -> None:
        """Prints what is queued, until an empty text says that the turn has ended."""
        while True:
            text = await self._waiting.get()
            if not text:
                return
            if isinstance(text, StandardErrorLine):
                await console.print_error(text)
            else:
                await console.write_output(text.encode("utf-8", "replace"))

    def answer_by_allowed_names(self, question: PermissionQuestion) -> PermissionAnswer:
        return answer_by_allowed_names(question, self.allowed, self.refused)


def answer_by_allowed_names(
    question: PermissionQuestion, allowed: frozenset[str], refused: list[str]
) -> PermissionAnswer:
    """Answers by what was allowed on the command line. An action with a permission of its own needs
    exactly that permission. What is refused is added to `refused`.
    """
    if is_allowed_unattended(question, allowed):
        return PermissionAnswer(allowed=True)
    permission = name_to_allow(question)
    refused.append(permission)
    return PermissionAnswer(
        allowed=False,
        words=f"No one was available to give permission, and the command was not started with --allow {permission}.",
    )


async def report_end_of_turn(
    ended: facts.TurnEnded | None, refused: Sequence[str], console: Console
) -> bool:
    """Says what was refused and why the turn failed. Returns whether it is done."""
    if refused:
        names = list(dict.fromkeys(refused))
        options = [f"--allow {name}" for name in names]
        await console.print_error(
            f"Refused, because nobody was there to give permission: {', '.join(names)}. "
            f"To allow this, add `{' '.join(options)}`."
        )
    if ended is None or ended.reason is not facts.TurnEnd.DONE:
        await console.print_error(describe_early_end(ended))
        return False
    if ended.why:
        await console.print_error(ended.why)
    return True


def describe_early_end(ended: facts.TurnEnded | None) -> str:
    if ended is None:
        return "The turn did not finish, so its result is not known."
    why = ended.why or ended.reason.value
    if not why.endswith((".", "?", "!", "…")):
        why += "."
    return f"The turn ended early: {why}"


def fact_as_json_line(recorded: facts.Recorded) -> str:
    """Returns a fact as it is stored, with the conversation, number and time that it has."""
    body = {"conversation": recorded.conversation, "seq": recorded.seq, "time": recorded.time}
    body.update(json.loads(encode_fact(recorded.fact)))
    return dump_printed_json(body)


def plain_text_of_fact(fact: facts.Fact) -> str:
    """The text of a fact in plain output. Empty for most facts."""
    match fact:
        case facts.ModelReplied(parts=parts):
            lines: list[str] = []
            if any(isinstance(part, facts.Text) for part in parts):
                lines.append("\n")
            for part in parts:
                if isinstance(part, facts.ToolCall):
                    lines.append(f"· {part.name} {part.arguments[:100]}\n")
            return "".join(lines)
        case facts.ToolReturned(ok=False, head=head):
            first_line = head.strip().partition("\n")[0]
            return f"· failed: {first_line[:100]}\n"
        case facts.Folded(kind=kind, tokens_before=before, tokens=after):
            return f"· {kind.value}: {before:,} → {after:,} tokens\n"
    return ""
