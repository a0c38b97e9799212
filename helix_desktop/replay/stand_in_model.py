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
LONGEST_KEPT_LINE = 200
SEARCHED_IN_LINE = 1_000  # Addresses and paths are found in so many characters of a line.
TOO_LONG_FACTOR = 20
HEADINGS_TOKENS = 40  # Roughly what all headings of a document take.
LEAST_SECTION_TOKENS = 20
LINE_BREAK_TOKENS = 2  # What a line takes beside its text, with some to spare.


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
        """Answer after some time as a model of this kind does, or raise what it raises."""
        delay_of_kind = {"hangs": FOREVER, "slow": FIRST_WORD_SECONDS}
        usual_delay = SECONDS.get(request.purpose, USUAL_SECONDS)
        await asyncio.sleep(delay_of_kind.get(self.kind, usual_delay))
        if not self.fits(request):
            raise ContextTooLong(
                "The request does not fit in the simulated model's context window."
            )
        if self.kind == "fails":
            raise ModelOverloaded("The stand-in refuses every request.")
        text = self._write_stand_in_answer(request)
        output_tokens = self.tokens.count_tokens(text)
        self.heard(StandInRequest(self.model_name, request, output_tokens))
        if self.kind == "slow":
            for line in text.splitlines(keepends=True):
                yield TextDelta(line)
                await asyncio.sleep(self.tokens.count_tokens(line) / TOKENS_PER_SECOND)
        elif text:
            yield TextDelta(text)
        parts: tuple[Text, ...] = ()
        if text:
            parts = (Text(text),)
        yield Reply(parts, Stop.END, Usage(output=output_tokens), self.model_name)

    def _write_stand_in_answer(self, request: Request) -> str:
        """Return an answer of the usual length, right or wrong as this kind of model writes it."""
        answer_tokens = SIZES.get(request.purpose, OTHER_SIZE)
        match self.kind:
            case "empty":
                return ""
            case "wrong-form":
                return '{"answer": [1, 2, ' + self._repeat_to_token_count(answer_tokens, _FILL)
            case "other-language":
                return self._write_sections(answer_tokens, _FOREIGN_SECTIONS, _FOREIGN, details="")
            case "too-long":
                return self._write_by_purpose(request, TOO_LONG_FACTOR * answer_tokens)
            case _:
                return self._write_by_purpose(request, answer_tokens)

    def _write_by_purpose(self, request: Request, answer_tokens: int) -> str:
        """Return an answer in the form that the request asks for: a choice, sections or lines."""
        match request.purpose:
            case Purpose.ADMISSION:
                return _choose_compactions(request)
            case Purpose.HANDOVER:
                details = self._details_for_answer(request, answer_tokens)
                return self._write_sections(answer_tokens, SECTIONS, _FILL, details)
            case Purpose.OBSERVATIONS | Purpose.REFLECTION:
                details = self._details_for_answer(request, answer_tokens)
                return self._write_observation_lines(answer_tokens, details)
            case _:
                return self._repeat_to_token_count(answer_tokens, _FILL)

    def _details_for_answer(self, request: Request, answer_tokens: int) -> str:
        """Return the details that a summary of so many tokens keeps: up to a third of it."""
        if self.kind == "forgetful":
            return ""
        return self._copy_lines_worth_keeping(request, answer_tokens // 3)

    def _write_sections(
        self, tokens: int, headings: tuple[str, ...], fill: str, details: str
    ) -> str:
        """Return a summary of about so many tokens: a section for each heading, with a sentence
        that is repeated, and the details in one of them.
        """
        fill_tokens = tokens - self.tokens.count_tokens(details) - HEADINGS_TOKENS
        tokens_for_each = max(LEAST_SECTION_TOKENS, fill_tokens // len(headings))
        section_text = self._repeat_to_token_count(tokens_for_each, fill)
        sections = [f"## {heading}\n{section_text}" for heading in headings]
        # The details stand in the second section, which is the one for technical details.
        sections[1] += f"\n{details}"
        return "\n\n".join(sections)

    def _write_observation_lines(self, tokens: int, details: str) -> str:
        line = f"- (high) {_FILL.strip()} [1]\n"
        fill_tokens = tokens - self.tokens.count_tokens(details)
        line_count = max(1, fill_tokens // self.tokens.count_tokens(line))
        return line * line_count + details

    def _repeat_to_token_count(self, tokens: int, fill: str) -> str:
        return fill * max(1, tokens // self.tokens.count_tokens(fill))

    def _copy_lines_worth_keeping(self, request: Request, most_tokens: int) -> str:
        """Return lines of the request that a good summary would keep, the newest first."""
        copied_lines: dict[str, None] = {}
        tokens_left = most_tokens
        for line in _lines_worth_keeping(request):
            if line in copied_lines:
                continue
            tokens_left -= self.tokens.count_tokens(line) + LINE_BREAK_TOKENS
            if tokens_left < 0:
                break
            copied_lines[line] = None
        return "\n".join(copied_lines)


def _choose_compactions(request: Request) -> str:
    """Return the answer that compacts every large output, as an agent would."""
    texts = _texts_in_request(request)
    if not texts:
        return ""
    question = texts[-1]
    lines: list[str] = []
    for number in _OUTPUT.findall(question):
        lines.append(f"{number}: compact: what it says about the task at hand")
    return "\n".join(lines)


def _lines_worth_keeping(request: Request) -> Iterator[str]:
    """Yield lines with rules, and the addresses and paths in other lines."""
    for text in reversed(_texts_in_request(request)):
        for line in text[:READ].splitlines():
            if _RULE.search(line):
                yield line.strip()[:LONGEST_KEPT_LINE]
            else:
                yield from _PLACE.findall(line[:SEARCHED_IN_LINE])


def _texts_in_request(request: Request) -> list[str]:
    """Return all texts and results of a request, the oldest first."""
    texts: list[str] = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Text | ToolResult):
                texts.append(part.text)
    return texts
