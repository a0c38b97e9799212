"""The replay lab: runs conversations with other policies in a process that can be stopped.

Each conversation is written as messages in the common format, and `helix-desktop replay` does the
rest. Nothing is sent anywhere.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from helix_desktop.engine.facts import Recorded, SystemSet
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.errors import InvalidInput, NotFound, StoreFailed
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.sentence_translation import translate_sentences as told
from helix_desktop.gui.translation import tr
from helix_desktop.histories.openai_chat_export import (
    Line,
    digests_needed_for_export,
    export_openai_lines,
)
from helix_desktop.processes import starter
from helix_desktop.workbench.open_workbench import Workbench

SHOWN_ERROR_LINES = 3
LONGEST_ERROR = 500
LARGEST = 8 << 20  # Of a larger output, in bytes, the replay uses only this much.


async def replay_conversations(
    bench: Workbench,
    conversations: Sequence[str],
    policies: Sequence[str],
    window: int,
    report: Callable[[int, int], None],
) -> Sequence[PolicyOutcome]:
    """Replays the conversations with each policy. Cancelling ends the process. No
    temporary files are left behind.
    """
    with tempfile.TemporaryDirectory(prefix="helix-replay-") as folder:
        files: list[Path] = []
        head_tokens = 0
        for index, conversation in enumerate(conversations):
            facts = await bench.read_conversation_facts(conversation)
            messages = await _build_recording_lines(facts, bench)
            has_answer = any(message.get("role") == "assistant" for message in messages)
            if not has_answer:
                continue
            file = Path(folder, f"{index}.json")
            await asyncio.to_thread(file.write_text, json.dumps(messages), "utf-8")
            files.append(file)
            head_tokens_of_this = await asyncio.to_thread(_count_unexported_head, facts)
            head_tokens = max(head_tokens, head_tokens_of_this)
        if not files:
            raise InvalidInput(tr("There is no conversation to replay yet."))
        options = [
            "--json",
            "--compare",
            ",".join(policies),
            "--window",
            str(window),
            "--head",
            str(head_tokens),
            # If searches were free, policies that summarize a lot would look too cheap.
            "--recalls",
            "searched",
        ]
        options += map(str, files)
        replay_count = len(policies) * len(files)
        result = await _run_replay_process(options, replay_count, report)
    return _policy_outcomes_from_json(result["policies"])


async def _run_replay_process(
    options: Sequence[str], replay_count: int, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """Runs the command and returns what it prints. It writes a line for each ended replay to its
    standard error.
    """
    command = starter.own_program_command("replay", *options)
    launch = starter.ProcessLaunch(starter.CommandAuthor.PROGRAM, command)
    process = await starter.start_process(launch)
    lines: list[str] = []

    async def follow_progress(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            lines.append(line.decode("utf-8", "replace").strip())
            report(min(len(lines), replay_count), replay_count)

    try:
        standard_output = cast(asyncio.StreamReader, process.stdout)
        standard_error = cast(asyncio.StreamReader, process.stderr)
        output, _ = await asyncio.gather(standard_output.read(), follow_progress(standard_error))
        if await process.wait():
            last_lines = " ".join(lines[-SHOWN_ERROR_LINES:])
            reason = told(last_lines[:LONGEST_ERROR])
            raise StoreFailed(tr("The replay failed: {why}", why=reason))
        return dict(await asyncio.to_thread(json.loads, output))
    except ValueError as error:
        raise InvalidInput(tr("The replay returned no readable result. Try again.")) from error
    finally:
        await starter.end_process(process)


def _count_unexported_head(recorded_facts: Sequence[Recorded]) -> int:
    """Counts the tokens of tools and rules, which each request has in front besides the system
    prompt. The exported lines hold the system prompt: counted here, too, it would make the peak
    of the simulation larger than the meter.
    """
    settings_tokens = build_state(recorded_facts).settings.settings_tokens
    system_tokens = 0
    for recorded in recorded_facts:
        if isinstance(recorded.fact, SystemSet):
            system_tokens = recorded.fact.tokens
    return max(settings_tokens - system_tokens, 0)


async def _build_recording_lines(facts: Sequence[Recorded], bench: Workbench) -> list[Line]:
    contents: dict[Digest, bytes] = {}
    for digest in digests_needed_for_export(facts):
        # If an output can no longer be read, the replay uses what the fact says about it.
        with suppress(NotFound, StoreFailed):
            contents[digest] = await bench.workspace.cache.read_range(digest, 0, LARGEST)
    return await asyncio.to_thread(lambda: list(export_openai_lines(facts, contents.get)))


def _policy_outcomes_from_json(results: Mapping[str, Mapping[str, Any]]) -> list[PolicyOutcome]:
    outcomes: list[PolicyOutcome] = []
    for name, result in results.items():
        total = result["total"]
        outcome = PolicyOutcome(
            name, total["effective"], total["peak"], total["retention_plain"], total["sent"]
        )
        outcomes.append(outcome)
    return outcomes
