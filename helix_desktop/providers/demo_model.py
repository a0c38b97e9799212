"""The built-in scripted model: no key, no network, no intelligence, and it says so.

It really calls the tools it is offered, in the user's real folder, and shows what the
program does: reading, searching, running, large output, recall, the to-do list. It also
writes requested summaries from what is in the request. It knows only the request, so
folds, recalls and interruptions show.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from helix_desktop.engine.code_fences import wrap_in_code_fence
from helix_desktop.engine.facts import Purpose, ReplyPart, Stop, Text, ToolCall, Usage
from helix_desktop.engine.messages import (
    CallDelta,
    Delta,
    Message,
    Reply,
    Request,
    Role,
    TextDelta,
    ToolResult,
)
from helix_desktop.errors import shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.providers import demo_summaries, demo_tour
from helix_desktop.providers.demo_language import Say, choose_translator
from helix_desktop.providers.demo_tour import DemoScene, ScriptedReply

DEMO = "demo"
PACE = 0.012  # Seconds for each word, which is fast but slow enough to watch.
WHO = (
    "I am a demonstration, not a language model: I follow a script and understand only a few words."
)
WORDS = (
    "To see what this program does with the files in this folder, type `tour`. To run one step at a time, type one of "
    "these commands: `list`, `read <file>`, `search <pattern>`, `run <command>`, `large`, `recall <hash>`, "
    "`find <words>`, `todo <item>; <item>`, `write <file>: <text>`, `delegate <task>`. For real work, choose a provider's "
    "model at the top right."
)
_COMMAND = re.compile(
    r"\s*(list|read|search|run|large|recall|find|todo|write|delegate|tour)\b:?\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
# Matches words, and each character of scripts without spaces, such as Chinese.
_PIECES = re.compile(r"\s*(?:[\u2e80-\uffef]|[^\s\u2e80-\uffef]+)\s*")
_TOUR = re.compile(r"\b(tour|demo|demonstration|show me)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DemoModel:
    """A ModelClient. `sleep` paces the words of a step, which somebody watches; `count` counts tokens
    for the usage.
    """

    model_name: str = "demo/demo"
    sleep: Callable[[float], Awaitable[None]] | None = None
    count: Callable[[str], int] | None = None

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        """Say the script's next words, at the pace of a model, and make its calls."""
        if request.purpose is not Purpose.STEP:
            yield await asyncio.to_thread(self._write_unwatched_reply, request)
            return
        scripted = choose_scripted_reply(request)
        for word in _PIECES.findall(scripted.text):
            if self.sleep is not None:
                await self.sleep(PACE)
            yield TextDelta(word)

        parts: list[ReplyPart] = []
        if scripted.text:
            parts.append(Text(scripted.text))
        for index, (name, arguments) in enumerate(scripted.calls):
            call_id = f"demo_{secrets.token_hex(8)}"
            call = ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
            yield CallDelta(index, call.id, call.name, call.arguments)
            parts.append(call)

        stop = Stop.END
        if scripted.calls:
            stop = Stop.CALLS
        usage = self._estimate_usage(request, parts)
        yield Reply(tuple(parts), stop, usage, self.model_name)

    def _write_unwatched_reply(self, request: Request) -> Reply:
        """Return a summary or a title. Its material may be as long as a window."""
        text = demo_summaries.write_demo_answer(request)
        parts: tuple[Text, ...] = ()
        if text:
            parts = (Text(text),)
        return Reply(parts, Stop.END, self._estimate_usage(request, parts), self.model_name)

    def _estimate_usage(self, request: Request, parts: Sequence[ReplyPart]) -> Usage:
        """Return what would be billed, or nothing without a counter."""
        if self.count is None:
            return Usage()
        texts_read = [request.system]
        texts_read.extend(_texts_of_messages(request.messages))
        for tool in request.tools:
            texts_read.append(f"{tool.description}{tool.schema}")
        tokens_read = sum(self.count(text) for text in texts_read)
        tokens_written = sum(self.count(_text_of_part(part)) for part in parts)
        return Usage(input=tokens_read, output=tokens_written)


def _texts_of_messages(messages: Sequence[Message]) -> list[str]:
    texts: list[str] = []
    for message in messages:
        for part in message.parts:
            texts.append(_text_of_part(part))
    return texts


def _text_of_part(part: object) -> str:
    """Return the words of a text or result, and the arguments of a call."""
    text: str = getattr(part, "text", "")
    arguments: str = getattr(part, "arguments", "")
    return text + arguments


def choose_scripted_reply(request: Request) -> ScriptedReply:
    """Return what the demonstration answers to the user: what a command such as `read README.md`
    asks for, the next step of the tour, or who it is.
    """
    scene = build_demo_scene(request)
    command = _COMMAND.fullmatch(scene.asked)
    if command is not None:
        word = command[1].lower()
        if word == "tour":
            return demo_tour.next_tour_step(scene)
        return _call_named_tool(scene, word, command[2].strip())
    if _TOUR.search(scene.asked):
        return demo_tour.next_tour_step(scene)

    paragraphs = [scene.say(WHO)]
    if scene.asked:
        quote = f"“{shorten_to_line(scene.asked, 121)}”"
        paragraphs.append(scene.say("You wrote: {text}", text=quote))
    paragraphs.append(scene.say(WORDS))
    return ScriptedReply("\n\n".join(paragraphs))


def build_demo_scene(request: Request) -> DemoScene:
    """Return what the script needs to know of a request: the user's last question, and the
    calls and results since.
    """
    messages = request.messages
    question_position, question = _last_question(messages)
    calls_and_results = _calls_with_results_or_none(messages[question_position:])
    note = ""
    if messages:
        note = _user_text_beside_results(messages[-1])
    # The script answers in the language of the newest text that shows one.
    newest_texts_first: list[str] = []
    for message in reversed(messages):
        newest_texts_first += _texts_by_user(message)
    translate = choose_translator(newest_texts_first)
    all_texts = _texts_of_messages(messages)
    return DemoScene(
        asked=question,
        done=tuple(calls_and_results),
        tools=request.tools,
        texts=tuple(all_texts),
        say=translate,
        note=note,
    )


def _last_question(messages: Sequence[Message]) -> tuple[int, str]:
    """Return where the user's last separate message stands, and its text.

    Text beside results is no question, but a note that was sent while the agent worked.
    """
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        texts = _texts_by_user(message)
        if texts and not _user_text_beside_results(message):
            return position, texts[-1].strip()
    return 0, ""


def _texts_by_user(message: Message) -> list[str]:
    """Return what the user wrote. The program puts its own texts in brackets."""
    if message.role is not Role.USER:
        return []
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, Text) and not part.text.lstrip().startswith(("[", "(")):
            texts.append(part.text)
    return texts


def _user_text_beside_results(message: Message) -> str:
    """Return what the user said while the agent worked."""
    has_results = any(isinstance(part, ToolResult) for part in message.parts)
    if not has_results:
        return ""
    return " ".join(part.text for part in message.parts if isinstance(part, Text))


def _call_named_tool(scene: DemoScene, word: str, words_behind: str) -> ScriptedReply:
    """Call the tool that the user named. After its answer, say what happened."""
    if scene.done:
        outcomes = [_describe_tool_outcome(call, result, scene.say) for call, result in scene.done]
        return ScriptedReply("\n\n".join(outcomes))

    name, arguments = demo_tour.tool_call_for_word(word, words_behind)
    if not scene.offers_tool(name):
        missing = scene.say("This conversation does not offer the tool {name}.", name=name)
        return ScriptedReply(f"{scene.say(WHO)} {missing}")
    all_arguments = demo_tour.add_keep_argument_if_large(arguments, word, scene)
    return ScriptedReply("", ((name, all_arguments),))


def _describe_tool_outcome(call: ToolCall, result: ToolResult | None, say: Say) -> str:
    """Say how long a tool's result is, and quote its first lines."""
    if result is None:
        return say("`{name}` returned no result.", name=call.name)
    lines = result.text.splitlines()
    line_count = len(lines)
    if result.ok and line_count == 1:
        template = "`{name}` returned {lines} line, {characters} characters."
    elif result.ok:
        template = "`{name}` returned {lines} lines, {characters} characters."
    elif line_count == 1:
        template = "`{name}` failed: {lines} line."
    else:
        template = "`{name}` failed: {lines} lines."
    sentence = say(template, name=call.name, lines=line_count, characters=len(result.text))
    first_lines = "\n".join(line[:200] for line in lines[:8])
    return f"{sentence}\n\n{wrap_in_code_fence(first_lines, 'text')}"


def _calls_with_results_or_none(
    messages: Sequence[Message],
) -> list[tuple[ToolCall, ToolResult | None]]:
    calls: list[ToolCall] = []
    results: dict[str, ToolResult] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.append(part)
            elif isinstance(part, ToolResult):
                results[part.call] = part
    return [(call, results.get(call.id)) for call in calls]
