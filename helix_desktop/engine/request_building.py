"""Makes requests legal for every provider, and repairs views that an interrupted run left behind.

The rules: the first and last message are the user's, and roles alternate; no message or
text is empty; every call has one result, in the next message, before anything else
there; ids are unique; pictures are the user's; reasoning is never alone.
`build_legal_messages` ensures this; `find_violations` checks it.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

from helix_desktop.engine.agent_additions import is_agent_block, words_for_agent_block
from helix_desktop.engine.facts import (
    Attachment,
    PartRef,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
)
from helix_desktop.engine.messages import (
    Block,
    Image,
    Message,
    MessagePart,
    Request,
    Role,
    ToolResult,
    View,
)
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.tool_call_parsing import restore_call_as_made
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_json_or_none

Resolve = Callable[[Stored], str | Image]

INTERRUPTED = "[No result: the run was interrupted before this call ended. It may have had effects; check before repeating.]"
GO_ON = "(Your reply above was cut off. Go on from where it ended.)"
# Sent if the conversation ends with a complete reply, as some recordings do.
CONTINUE = "Continue."
BEGIN = "(The conversation goes on here.)"
MISSING = "[This content is not available.]"
EMPTY_OUTPUT = "(no output)"
_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class LegalMessages:
    """A request's system text and messages. Only a fold changes the first `stable` messages."""

    system: str
    messages: tuple[Message, ...]
    stable: int


def build_request(view: View, contents: Mapping[Stored, str | Image]) -> Request:
    """Build a request from a view whose content was read. The caller adds the model."""
    legal = build_legal_messages(view, lambda stored: contents.get(stored, MISSING))
    return Request(
        model="",
        system=legal.system,
        messages=legal.messages,
        tools=view.tools,
        stable=legal.stable,
        reasoning=view.effort,
        temperature=view.temperature,
        top_p=view.top_p,
    )


def build_legal_messages(view: View, resolve: Resolve) -> LegalMessages:
    """Build messages that every provider accepts from a view, that is, from the blocks which a
    model is to be shown. `resolve` returns stored content.
    """
    builder = _MessageBuilder(resolve)
    system_texts = []
    for index, block in enumerate(view.blocks):
        if index == view.stable:
            builder.mark_stable_messages()
        if block.role is Role.SYSTEM and isinstance(block.content, Text):
            system_texts.append(block.content.text)
        else:
            builder.add_block(block)
    if view.stable >= len(view.blocks):
        builder.mark_stable_messages()
    messages = builder.finish_messages()
    stable = min(builder.stable, len(messages))
    return LegalMessages("\n\n".join(system_texts), messages, stable)


@dataclass(slots=True)
class _MessageBeingBuilt:
    role: Role
    parts: list[MessagePart]


@dataclass(slots=True)
class _MessageBuilder:
    """Builds messages from blocks, one after the other.

    What the user said while calls had no results yet is held back until they have.
    """

    resolve: Resolve
    messages: list[_MessageBeingBuilt] = field(default_factory=list)
    calls_without_result: dict[str, None] = field(default_factory=dict)
    held_back_parts: list[MessagePart] = field(default_factory=list)
    reply: int = 0  # The fact number of the reply that is being built.
    is_complete: bool = False  # Whether the model finished the reply that is being built.
    stable: int = 0

    def add_block(self, block: Block) -> None:
        """Add what the model, a tool or the user said. Providers want results right after their
        calls, so what the user said in between waits.
        """
        if block.role is Role.ASSISTANT:
            self._add_reply_part(block)
            return
        if block.role is Role.TOOL:
            self._add_tool_result(block)
            return
        user_parts = self._user_parts_of(block)
        if self.calls_without_result:
            self.held_back_parts += user_parts
        elif user_parts:
            self._add_parts(Role.USER, user_parts)

    def mark_stable_messages(self) -> None:
        self.stable = len(self.messages)

    def finish_messages(self) -> tuple[Message, ...]:
        self._ensure_last_is_user()
        return tuple(Message(message.role, tuple(message.parts)) for message in self.messages)

    def _add_reply_part(self, block: Block) -> None:
        """Add a part of a reply. Before the first part of a reply, the user must have spoken."""
        part = block.content
        if isinstance(part, Attachment | Stored):
            raise TypeError("a reply has no attachments")
        if isinstance(block.source, PartRef):
            seq = block.source.seq
        else:
            seq = block.source.first
        if seq != self.reply:
            self._ensure_last_is_user()
            self.reply = seq
            self.is_complete = block.ok
        if isinstance(part, ToolCall):
            call = with_plain_name(restore_call_as_made(part))
            self._add_parts(Role.ASSISTANT, [call])
            self.calls_without_result[part.id] = None
        else:
            self._add_parts(Role.ASSISTANT, [part])

    def _add_tool_result(self, block: Block) -> None:
        """Add a result, or a picture or a document's text to its call's result. Results without a
        call are dropped.
        """
        content: object = block.content
        if isinstance(block.content, Stored):
            content = self.resolve(block.content)
        if block.call in self.calls_without_result:
            del self.calls_without_result[block.call]
            text = _text_of_result(content)
            if not text.strip():
                text = EMPTY_OUTPUT
            self._add_parts(Role.USER, [ToolResult(block.call, text, block.ok)])
        elif isinstance(block.content, Stored) and isinstance(content, str):
            if block.content.media_type.startswith("text/"):
                self._add_text_of_document(block.call, content)
        if isinstance(content, Image):
            self._add_result_picture(block.call, content)
        if not self.calls_without_result:
            self._add_held_back_parts()

    def _add_result_picture(self, call: str, image: Image) -> None:
        if not self.messages:
            return
        parts = self.messages[-1].parts
        for index, part in enumerate(parts):
            if isinstance(part, ToolResult) and part.call == call:
                parts[index] = ToolResult(part.call, part.text, part.ok, part.images + (image,))

    def _add_text_of_document(self, call: str, document_text: str) -> None:
        """Add the text of a document that a result has to the result's own text."""
        if not self.messages:
            return
        parts = self.messages[-1].parts
        for index, part in enumerate(parts):
            if not isinstance(part, ToolResult) or part.call != call:
                continue
            text = document_text
            if part.text != EMPTY_OUTPUT:
                text = f"{part.text}\n{document_text}"
            parts[index] = replace(part, text=text)

    def _user_parts_of(self, block: Block) -> list[MessagePart]:
        """Return a block as a part of the user's message, or nothing if it says nothing.

        An output or a call is there, away from its place, if the user wants to keep it word for
        word in a stretch that a summary stands for.
        """
        match block.content:
            case Text(text=text) if text.strip():
                return [block.content]
            case Attachment() as attachment if is_agent_block(attachment):
                return self._parts_of_agent_block(attachment)
            case Attachment(name=name, stored=stored):
                return [self._picture_or_text(stored, f"[Attachment: {name}]")]
            case Stored() as stored:
                title = f"[Kept word for word: output of call {block.call}]"
                return [self._picture_or_text(stored, title)]
            case ToolCall(name=name, arguments=arguments):
                return [Text(f"[Kept word for word: call of {name}]\n{arguments}")]
            case _:
                return []  # Providers refuse incomplete reasoning, so it is not sent.

    def _parts_of_agent_block(self, block: Attachment) -> list[MessagePart]:
        """Return a part of a connected agent's message in words that every model can read."""
        content = self.resolve(block.stored)
        if isinstance(content, str):
            words = words_for_agent_block(content)
            if words == "":  # It only sets something, so nothing is said of it.
                return []
            if words is not None:
                return [Text(words)]
        return [self._picture_or_text(block.stored, f"[Attachment: {block.name}]")]

    def _picture_or_text(self, stored: Stored, title: str) -> MessagePart:
        content = self.resolve(stored)
        if isinstance(content, Image):
            return content
        return Text(f"{title}\n{content}")

    def _ensure_last_is_user(self) -> None:
        """Make sure that the user has spoken last, and that every call before has a result.

        Calls of an interrupted run get a result that says so. Behind a reply, the user asks the
        model to go on.
        """
        if self.calls_without_result:
            results: list[MessagePart] = []
            for call in self.calls_without_result:
                results.append(ToolResult(call, INTERRUPTED, ok=False))
            self._add_parts(Role.USER, results)
            self.calls_without_result.clear()
        self._add_held_back_parts()
        self._remove_lone_reasoning()
        if not self.messages:
            self._add_parts(Role.USER, [Text(BEGIN)])
        elif self.messages[-1].role is Role.ASSISTANT:
            text = CONTINUE
            if not self.is_complete:
                text = GO_ON
            self._add_parts(Role.USER, [Text(text)])

    def _add_held_back_parts(self) -> None:
        if self.held_back_parts:
            parts = self.held_back_parts
            self.held_back_parts = []
            self._add_parts(Role.USER, parts)

    def _remove_lone_reasoning(self) -> None:
        """Remove reasoning that was cut off before anything was said."""
        if not self.messages:
            return
        last_parts = self.messages[-1].parts
        if all(isinstance(part, Reasoning) for part in last_parts):
            self.messages.pop()

    def _add_parts(self, role: Role, parts: list[MessagePart]) -> None:
        """Add parts to the last message, or in a new one if another role spoke last."""
        if role is Role.USER:
            self._remove_lone_reasoning()
        if self.messages and self.messages[-1].role is role:
            self.messages[-1].parts += parts
        else:
            self.messages.append(_MessageBeingBuilt(role, list(parts)))


def _text_of_result(content: object) -> str:
    """Return the text of a call's result. A picture is added to it apart."""
    if isinstance(content, Text):
        return content.text
    if isinstance(content, Image):
        return ""
    return str(content)


def with_plain_name(call: ToolCall) -> ToolCall:
    """Return the call under a name every provider accepts, unlike some of other programs."""
    if _PLAIN_NAME.fullmatch(call.name):
        return call
    plain_name = re.sub(r"[^a-zA-Z0-9_-]+", "_", call.name).strip("_")
    return replace(call, name=plain_name[:64] or "tool")


# --- Where messages may be cut, and what providers refuse ---


def is_legal_cut(branch: ConversationBranch, seq: int) -> bool:
    """Whether a conversation may be cut before the message `seq`: a fold may end there.

    Providers refuse a call without its result, and a result without its call. So no result from
    there on may answer a call before.
    """
    if not branch.has_message(seq) or isinstance(branch.message_at(seq).fact, ToolReturned):
        return False
    reply_before = branch.last_reply_before(seq)
    if reply_before is None or not branch.calls_of_reply(reply_before):
        return True
    has_running_calls = branch.running_calls and reply_before == branch.steps[-1]
    if has_running_calls:
        return False
    for position in range(branch.message_position(seq), len(branch.order)):
        later_seq = branch.order[position]
        # Results stand before the next reply with calls, so there is none behind it.
        if branch.calls_of_reply(later_seq):
            return True
        answered_call = branch.answered.get(later_seq)
        if answered_call is not None and answered_call.ref.seq == reply_before:
            return False
    return True


def find_violations(request: Request) -> list[str]:
    """Return every rule that the request breaks, in a sentence each."""
    violations: list[str] = []
    for find_violations_of_law in LAWS:
        violations += find_violations_of_law(request)
    return violations


def find_role_order_violations(request: Request) -> Iterator[str]:
    """Check that user and assistant alternate, with the user first and last."""
    roles = [message.role for message in request.messages]
    if not roles:
        yield "there is no message"
        return
    if roles[0] is not Role.USER or roles[-1] is not Role.USER:
        yield "the first and the last message must be the user's"
    for index, (role, next_role) in enumerate(itertools.pairwise(roles)):
        if role is next_role:
            yield f"messages {index} and {index + 1} are both of the {role}"
    if any(role not in (Role.USER, Role.ASSISTANT) for role in roles):
        yield "a message is neither the user's nor the assistant's"


def find_empty_content(request: Request) -> Iterator[str]:
    """Check that every message, and every text in it, says something."""
    for index, message in enumerate(request.messages):
        if not message.parts:
            yield f"message {index} is empty"
        for part in message.parts:
            if isinstance(part, Text) and not part.text.strip():
                yield f"message {index} has an empty text"
            if isinstance(part, ToolResult) and not part.text.strip():
                yield f"message {index} has an empty result"


def find_calls_without_results(request: Request) -> Iterator[str]:
    """Check that every call has exactly one result, in the next message, and every
    result a call.
    """
    called_before: list[str] = []
    for index, message in enumerate(request.messages):
        answered = sorted(part.call for part in message.parts if isinstance(part, ToolResult))
        if answered != called_before:
            yield f"message {index} answers {answered[:5]} where {called_before[:5]} were called"
        called_before = sorted(part.id for part in message.parts if isinstance(part, ToolCall))
    if called_before:
        yield "the last calls have no results"


def find_late_results(request: Request) -> Iterator[str]:
    """Check that results come first in their message, so that steering follows the whole batch."""
    for index, message in enumerate(request.messages):
        kinds = [isinstance(part, ToolResult) for part in message.parts]
        if kinds != sorted(kinds, reverse=True):
            yield f"message {index} says something before its last result"


def find_call_id_violations(request: Request) -> Iterator[str]:
    """Check that every call has an id of its own."""
    used_ids: set[str] = set()
    for message in request.messages:
        for part in message.parts:
            if not isinstance(part, ToolCall):
                continue
            if not part.id or part.id in used_ids:
                yield f"the id {part.id!r} is empty or used twice"
            used_ids.add(part.id)


def find_wrong_speakers(request: Request) -> Iterator[str]:
    """Check that calls and reasoning are the assistant's, and results and pictures the user's."""
    for index, message in enumerate(request.messages):
        for part in message.parts:
            if isinstance(part, ToolCall | Reasoning):
                wrong_speaker = Role.USER
            elif isinstance(part, ToolResult | Image):
                wrong_speaker = Role.ASSISTANT
            else:
                continue
            if message.role is wrong_speaker:
                yield f"message {index} of the {message.role} has a {type(part).__name__}"


def find_reasoning_violations(request: Request) -> Iterator[str]:
    """Check that reasoning is beside the text or calls that it led to."""
    for index, message in enumerate(request.messages):
        if message.parts and all(isinstance(part, Reasoning) for part in message.parts):
            yield f"message {index} is reasoning alone"


def find_call_name_violations(request: Request) -> Iterator[str]:
    """Check that calls have plain names and objects of arguments."""
    for index, message in enumerate(request.messages):
        for part in message.parts:
            if not isinstance(part, ToolCall):
                continue
            if not _PLAIN_NAME.fullmatch(part.name):
                yield f"message {index} calls {part.name!r}, which is no plain name"
            arguments = parse_json_or_none(part.arguments)
            if not isinstance(arguments, Mapping):
                yield f"message {index} calls {part.name} with arguments that are no JSON object"


LAWS: tuple[Callable[[Request], Iterator[str]], ...] = (
    find_role_order_violations, find_empty_content, find_calls_without_results, find_late_results,
    find_call_id_violations, find_wrong_speakers, find_reasoning_violations,
    find_call_name_violations,
)  # fmt: skip
