"""Stands in for models that write folds, with replies of realistic sizes, at once and for free.

They have the right form but no identifiers, so summaries never count as remembering. `KINDS` are
ways in which real models fail.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from helix_desktop.engine.facts import Purpose, Stop, Text, Usage
from helix_desktop.engine.messages import Delta, Reply, Request, TextDelta, ToolResult
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.errors import ContextTooLong, ModelOverloaded
from helix_desktop.fast_dataclass import dataclass

# What each kind does. All but the first two are ways in which real models fail.
KINDS: Mapping[str, str] = {
    "works": "answers in the right form and length, with the details it found",
    "slow": "answers correctly at the speed of real models: 80 tokens per second, after two seconds",
    "forgetful": "answers in the right form but leaves out every detail",
    "fails": "refuses every request",
    "hangs": "never answers",
    "empty": "gives an empty answer",
    "wrong-form": "answers in the wrong form",
    "other-language": "answers in another language, including the headings",
    "too-long": "gives an answer that is twenty times too long",
}
SIZES: Mapping[Purpose, int] = {
    Purpose.HANDOVER: 3_000,
    Purpose.OBSERVATIONS: 3_000,
    Purpose.REFLECTION: 3_000,
    Purpose.COMPACTION: 500,
}
OTHER_SIZE = 60
SECONDS: Mapping[Purpose, float] = {Purpose.COMPACTION: 2.0, Purpose.ADMISSION: 2.0}
USUAL_SECONDS = 8.0
FOREVER = 1e9
# For a slow model: the seconds before the first word, and the tokens per second after it.
FIRST_WORD_SECONDS = 2.0
TOKENS_PER_SECOND = 80
_FILL = "the work went on as it was asked and the rest of it is as it was said "
_FOREIGN = "o trabalho continua como foi pedido e nada mais mudou desde a hora em que foi dito "
_FOREIGN_SECTIONS = ("Fundo", "Detalhes", "Feito", "Problemas", "Tarefas", "Gostos")
_OUTPUT = re.compile(r"^Output (\d+), of ", re.MULTILINE)
_RULE = re.compile(r"\b(?:must|never|always|only)\b")
_PLACE = re.compile(r"https?://[^\s\"'<>)\]]+|(?<![\w/.-])/?(?:[\w.-]+/)+[\w.-]*\w")
READ = 20_000  # In characters. A good summary uses at most this much of the beginning of each text.


@dataclass(frozen=True, slots=True)
class StandInRequest:
    """A request to a stand-in, and the number of tokens in the answer."""

    client: str
    request: Request
    output: int


@dataclass(eq=False)
class StandInModel:
    """A `ModelClient`. `heard` is called after each answer. `fits`: whether its window has room."""

    model_name: str
    kind: str
    tokens: TokenCounter
    heard: Callable[[StandInRequest], None]
    fits: Callable[[Request], bool] = lambda _: True

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        delays = {"hangs": FOREVER, "slow": FIRST_WORD_SECONDS}
        await asyncio.sleep(delays.get(self.kind) or SECONDS.get(request.purpose, USUAL_SECONDS))
        if not self.fits(request):
            raise ContextTooLong(
                "The request does not fit in the simulated model's context window."
            )
        if self.kind == "fails":
            raise ModelOverloaded("The stand-in refuses every request.")
        text = self._write_stand_in_answer(request)
        output = self.tokens.count_tokens(text)
        self.heard(StandInRequest(self.model_name, request, output))
        if self.kind == "slow":
            for line in text.splitlines(keepends=True):
                yield TextDelta(line)
                await asyncio.sleep(self.tokens.count_tokens(line) / TOKENS_PER_SECOND)
        elif text:
            yield TextDelta(text)
        parts = (Text(text),) if text else ()
        yield Reply(parts, Stop.END, Usage(output=output), self.model_name)

    def _write_stand_in_answer(self, request: Request) -> str:
        size = SIZES.get(request.purpose, OTHER_SIZE)
        match self.kind:
            case "empty":
                return ""
            case "wrong-form":
                return '{"answer": [1, 2, ' + self._repeat_to_token_count(size, _FILL)
            case "other-language":
                return self._write_sections(size, _FOREIGN_SECTIONS, _FOREIGN, "")
            case "too-long":
                return self._write_by_purpose(request, 20 * size)
            case _:
                return self._write_by_purpose(request, size)

    def _write_by_purpose(self, request: Request, size: int) -> str:
        match request.purpose:
            case Purpose.ADMISSION:
                return _choose_compactions(request)
            case Purpose.HANDOVER:
                return self._write_sections(size, SECTIONS, _FILL, self._kept_lines(request, size))
            case Purpose.OBSERVATIONS | Purpose.REFLECTION:
                return self._write_observation_lines(size, self._kept_lines(request, size))
            case _:
                return self._repeat_to_token_count(size, _FILL)

    def _kept_lines(self, request: Request, size: int) -> str:
        """Return the details that a summary of so many tokens keeps."""
        if self.kind == "forgetful":
            return ""
        return self._copy_lines_worth_keeping(request, size // 3)

    def _write_sections(
        self, tokens: int, headings: tuple[str, ...], fill: str, details: str
    ) -> str:
        room = max(20, (tokens - self.tokens.count_tokens(details) - 40) // len(headings))
        written = [
            f"## {heading}\n{self._repeat_to_token_count(room, fill)}" for heading in headings
        ]
        written[1] += f"\n{details}"
        return "\n\n".join(written)

    def _write_observation_lines(self, tokens: int, details: str) -> str:
        line = f"- (high) {_FILL.strip()} [1]\n"
        count = max(
            1, (tokens - self.tokens.count_tokens(details)) // self.tokens.count_tokens(line)
        )
        return line * count + details

    def _repeat_to_token_count(self, tokens: int, fill: str) -> str:
        return fill * max(1, tokens // self.tokens.count_tokens(fill))

    def _copy_lines_worth_keeping(self, request: Request, most_tokens: int) -> str:
        """Return lines of the request that a good summary would keep, the newest first."""
        taken: dict[str, None] = {}
        for line in _lines_worth_keeping(request):
            if line not in taken:
                most_tokens -= self.tokens.count_tokens(line) + 2
                if most_tokens < 0:
                    break
                taken[line] = None
        return "\n".join(taken)


def _choose_compactions(request: Request) -> str:
    """Return the answer that compacts every large output, as an agent would."""
    question = _texts_in_request(request)[-1:]
    numbers = [number for text in question for number in _OUTPUT.findall(text)]
    return "\n".join(
        f"{number}: compact: what it says about the task at hand" for number in numbers
    )


def _lines_worth_keeping(request: Request) -> Iterator[str]:
    """Yield lines with rules, and the addresses and paths in other lines."""
    for text in reversed(_texts_in_request(request)):
        for line in text[:READ].splitlines():
            if _RULE.search(line):
                yield line.strip()[:200]
            else:
                yield from _PLACE.findall(line[:1_000])


def _texts_in_request(request: Request) -> list[str]:
    parts = [part for message in request.messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, Text | ToolResult)]
