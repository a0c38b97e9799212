"""The end that a real agent comes to, so that a run through the gateway can be laid
beside one without it.

Both runs have the same work and the same faults: each fault belongs to a step and to
how often it was asked for, so that the requests that only the gateway makes move none
of the others.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop.histories.history_reading import read_history_file
from helix_desktop.histories.recorded_session import RecordedMessage
from helix_desktop.protocols.gateway_message import PieceKind
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from tests.benchmarks.gateway_clients import DOCUMENT, HIDDEN, SHELLS, Work, _arguments, _names
from tests.faults.agent_resume import session_file
from tests.peers.agent_provider import Asked, Block, Calls, CutOff, Says, Thinks

FAULTS = ("429", "500", "529", "late", "cut")
CUT_TEXT = "This is cut off, and nobody should keep it. "
DOCUMENT_REPLY = [
    Says(
        "\n\n".join(
            f"## {name}\nAll is well, and there is more to say about it." for name in DOCUMENT
        )
    )
]
SHARE = 0.15  # Of the requests, so many fail.
ENDS = {"codex": "429", "gemini": "cut"}  # What these end at without a gateway, too.
# Claude Code reminds by its own count, in which an answer that is not streamed counts
# once, not twice.
REMINDER = "[Claude Code showed: task_reminder]"
VARYING = (
    (re.compile(r"Chunk ID: \w+"), "Chunk ID"),
    (re.compile(r"Wall time: [\d.]+ seconds"), "Wall time"),
    (re.compile(r"Process Group PGID: \d+"), "Process Group"),
)


class WorkWithFiles(Work):
    """Each step appends to a file of its own. A recall comes before a step and is none,
    so that both runs have the same steps.
    """

    _recalled_before = 0

    def script(self, asked: Asked) -> Sequence[Block]:
        return DOCUMENT_REPLY if asks_for_document(asked) else super().script(asked)

    def _step(self, text: str, names: Sequence[str], shell: str) -> Sequence[Block]:
        number = self.done + 1
        if number > self._ends:
            return [Says("All done.")]
        found = re.findall(r'recall_cached_content\(\\*"([0-9a-f]{64})', text)
        if number % 5 == 0 and found and self._recalled_before != number:
            self._recalled_before = number
            self.recalls += 1
            digest = found[self.recalls % len(found)]
            return [Thinks("I need it"), Calls(HIDDEN, {"sha256": digest, "lines": "1-20"})]
        self.done = number
        both = ("step", "beside") if number % 7 == 0 else ("step",)
        commands = [
            f"seq {number}000 {number}999 | tee -a {name}-{number}.txt; echo {name} {number}"
            for name in both
        ]
        return [
            Says(f"step {number}"),
            *(Calls(shell, _arguments(shell, command)) for command in commands),
        ]


def asks_for_document(asked: Asked) -> bool:
    """Whether the gateway asks the agent's model to write a fold. Tools may follow the
    question in the body.
    """
    last = WIRE_MODULES[asked.protocol].parse_messages(asked.body)[-1]
    return any(DOCUMENT[0] in piece.text for piece in last.pieces_of_kind(PieceKind.TEXT))


@dataclass
class FailingProvider:
    """The script of a provider that refuses with 429, 500 and 529, is late, and cuts
    its streams.
    """

    work: Work
    seed: str
    hidden_share: float = SHARE
    kinds: Counter[str] = field(default_factory=Counter)
    _asked_before: Counter[str] = field(default_factory=Counter)

    def __call__(self, asked: Asked) -> Sequence[Block] | int | CutOff:
        which = self._kind_of_request(asked)
        agent = self.work.name
        place = f"{which}{self.work.done}"
        chance = random.Random(f"{agent} {self.seed} {place} {self._asked_before[place]}")
        self._asked_before[place] += 1
        left_out = "" if which == "hidden " else ENDS.get(agent, "")
        known = [one for one in FAULTS if one != left_out]
        fault = (
            chance.choice(known)
            if chance.random() < (self.hidden_share if which == "hidden " else SHARE)
            else ""
        )
        self.kinds[which + (fault or "answered")] += 1
        if fault == "late":
            time.sleep(2)
        if fault == "cut":
            # Behind half an answer Gemini CLI never asks again, also behind a recall:
            # it is cut off before any of it.
            return CutOff(
                [Says(CUT_TEXT * 20)],
                -1 if ENDS.get(agent) == "cut" else chance.choice((1, 200, 400)),
            )
        return int(fault) if fault.isdecimal() else self.work.script(asked)

    @staticmethod
    def _kind_of_request(asked: Asked) -> str:
        """Whether it follows a recall, or is beside the work, such as one for a title
        or for a fold.
        """
        if not any(name in SHELLS for name in _names(asked.body)) or asks_for_document(asked):
            return "beside "
        messages = WIRE_MODULES[asked.protocol].parse_messages(asked.body)
        calls = [
            piece.name for message in messages for piece in message.pieces_of_kind(PieceKind.CALL)
        ]
        return "hidden " if calls[-1:] == [HIDDEN] else ""


def end_of_run(agent: str, home: Path, place: Path, printed: str) -> Mapping[str, Sequence[str]]:
    """What the agent printed, what its own history says, call for call, and the files
    in the folder.
    """
    (session,) = (
        one for one in read_history_file(session_file(agent, home)).recordings if not one.parent
    )
    files = sorted(file for file in place.rglob("*") if file.is_file() and ".git" not in file.parts)
    return {
        "printed": _last_answer(agent, printed),
        "history": [_without_what_varies(line, home) for line in _history_lines(session.messages)],
        "files": [f"{file.relative_to(place)}: {file.read_text('utf-8')}" for file in files],
    }


def differences_of_ends(
    direct: Mapping[str, Sequence[str]], wrapped: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    for what, lines in direct.items():
        others = wrapped[what]
        if list(lines) != list(others):
            pairs = zip([*lines, ""], [*others, ""], strict=False)
            number, (one, other) = next(
                (number, pair) for number, pair in enumerate(pairs) if pair[0] != pair[1]
            )
            at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            shown = (f"{text[:60]!r}…{text[max(0, at - 20) : at + 100]!r}" for text in (one, other))
            yield f"{what}, line {number} of {len(lines)}, {len(others)}: {' is with the gateway '.join(shown)}"


def _last_answer(agent: str, printed: str) -> Sequence[str]:
    if agent != "claude":
        return printed.strip().splitlines()
    told = json.loads(printed)
    return [
        f"{name}: {told.get(name)}"
        for name in ("subtype", "is_error", "result", "num_turns", "stop_reason")
    ]


def _history_lines(messages: Sequence[RecordedMessage]) -> Iterator[str]:
    """Calls by what they ask for, since their ids are the provider's; results that came
    together in a fixed order.
    """
    calls: dict[str, str] = {}
    results: list[str] = []
    for message in messages:
        if message.role == "tool":
            results.append(
                f"tool {calls.get(message.answers, '?')} {message.ok} {message.shown or message.text}"
            )
            continue
        yield from sorted(results)
        results = []
        if message.text and not message.text.startswith(REMINDER):
            yield f"{message.role} {message.text}"
        for call in message.calls:
            calls[call.id] = f"{call.name} {json.dumps(json.loads(call.arguments), sort_keys=True)}"
            yield f"calls {calls[call.id]}"
    yield from sorted(results)


def _without_what_varies(line: str, home: Path) -> str:
    for pattern, instead in VARYING:
        line = pattern.sub(instead, line)
    return line.replace(str(home), "~")
