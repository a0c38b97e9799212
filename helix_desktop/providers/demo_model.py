"""The built-in scripted model: no key, no network, no intelligence, and it says so.

It really calls the tools it is offered, in the user's real folder, and shows what the
program does: reading, searching, running, large output, recall, the to-do list. It also
writes requested summaries from what is in the request. It knows only the request, so
folds, recalls and interruptions show.
"""

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
    """A ModelClient. `sleep` paces the words; `count` counts tokens for the usage."""

    model_name: str = "demo/demo"
    sleep: Callable[[float], Awaitable[None]] | None = None
    count: Callable[[str], int] | None = None

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        said = choose_scripted_reply(request)
        for word in _PIECES.findall(said.text):
            if self.sleep is not None:
                await self.sleep(PACE)
            yield TextDelta(word)
        calls = tuple(
            ToolCall(
                f"demo_{secrets.token_hex(8)}", name, json.dumps(arguments, ensure_ascii=False)
            )
            for name, arguments in said.calls
        )
        for index, call in enumerate(calls):
            yield CallDelta(index, call.id, call.name, call.arguments)
        parts: tuple[ReplyPart, ...] = ((Text(said.text),) if said.text else ()) + calls
        yield Reply(
            parts,
            Stop.CALLS if calls else Stop.END,
            self._estimate_usage(request, parts),
            self.model_name,
        )

    def _estimate_usage(self, request: Request, parts: Sequence[ReplyPart]) -> Usage:
        """Return what would be billed, or nothing without a counter."""
        if self.count is None:
            return Usage()
        written = [
            part.text if isinstance(part, Text) else getattr(part, "arguments", "")
            for part in parts
        ]
        read = [
            request.system,
            *_texts_of_messages(request.messages),
            *(f"{tool.description}{tool.schema}" for tool in request.tools),
        ]
        return Usage(input=sum(map(self.count, read)), output=sum(map(self.count, written)))


def _texts_of_messages(messages: Sequence[Message]) -> list[str]:
    parts = (part for message in messages for part in message.parts)
    return [getattr(part, "text", "") + getattr(part, "arguments", "") for part in parts]


def choose_scripted_reply(request: Request) -> ScriptedReply:
    if request.purpose is not Purpose.STEP:
        return ScriptedReply(demo_summaries.write_demo_answer(request))
    scene = build_demo_scene(request)
    command = _COMMAND.fullmatch(scene.asked)
    if command is not None and command[1].lower() != "tour":
        return _call_named_tool(scene, command[1].lower(), command[2].strip())
    if command is not None or _TOUR.search(scene.asked):
        return demo_tour.next_tour_step(scene)
    wrote = (
        (scene.say("You wrote: {text}", text=f"“{shorten_to_line(scene.asked, 121)}”"),)
        if scene.asked
        else ()
    )
    return ScriptedReply("\n\n".join((scene.say(WHO), *wrote, scene.say(WORDS))))


def build_demo_scene(request: Request) -> DemoScene:
    """Return what the script needs: the user's last question, and calls and results since."""
    start, asked = _last_question(request.messages)
    after = request.messages[start:]
    calls = [part for message in after for part in message.parts if isinstance(part, ToolCall)]
    results = {
        part.call: part
        for message in after
        for part in message.parts
        if isinstance(part, ToolResult)
    }
    done = tuple((call, results.get(call.id)) for call in calls)
    note = _user_text_beside_results(request.messages[-1]) if request.messages else ""
    say = choose_translator(
        text for message in reversed(request.messages) for text in _texts_by_user(message)
    )
    return DemoScene(
        asked, done, request.tools, tuple(_texts_of_messages(request.messages)), say, note
    )


def _last_question(messages: Sequence[Message]) -> tuple[int, str]:
    """Return the user's last separate message. Text beside results is a note during work."""
    for position in range(len(messages) - 1, -1, -1):
        own = _texts_by_user(messages[position])
        if own and not _user_text_beside_results(messages[position]):
            return position, own[-1].strip()
    return 0, ""


def _texts_by_user(message: Message) -> list[str]:
    """Return what the user wrote. The program puts its own texts in brackets."""
    texts = (
        [part.text for part in message.parts if isinstance(part, Text)]
        if message.role is Role.USER
        else []
    )
    return [text for text in texts if text.lstrip()[:1] not in {"[", "("}]


def _user_text_beside_results(message: Message) -> str:
    """Return what the user said while the agent worked."""
    if not any(isinstance(part, ToolResult) for part in message.parts):
        return ""
    return " ".join(part.text for part in message.parts if isinstance(part, Text))


def _call_named_tool(scene: DemoScene, word: str, rest: str) -> ScriptedReply:
    """Call the tool that the user named. After its answer, say what happened."""
    if scene.done:
        return ScriptedReply(
            "\n\n".join(_describe_outcome(call, result, scene.say) for call, result in scene.done)
        )
    name, arguments = demo_tour.tool_call_for_word(word, rest)
    if not scene.offers_tool(name):
        missing = scene.say("This conversation does not offer the tool {name}.", name=name)
        return ScriptedReply(f"{scene.say(WHO)} {missing}")
    return ScriptedReply(
        "", ((name, demo_tour.add_keep_argument_if_large(arguments, word, scene)),)
    )


def _describe_outcome(call: ToolCall, result: ToolResult | None, say: Say) -> str:
    if result is None:
        return say("`{name}` returned no result.", name=call.name)
    figures = {"lines": len(result.text.splitlines()), "characters": len(result.text)}
    told = "`{name}` returned {lines} lines, {characters} characters."
    if figures["lines"] == 1:
        told = "`{name}` returned {lines} line, {characters} characters."
    if not result.ok:
        told = (
            "`{name}` failed: {lines} line."
            if figures["lines"] == 1
            else "`{name}` failed: {lines} lines."
        )
    shown = "\n".join(line[:200] for line in result.text.splitlines()[:8])
    return f"{say(told, name=call.name, **figures)}\n\n{wrap_in_code_fence(shown, 'text')}"
