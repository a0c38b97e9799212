"""`replay`: runs recorded sessions through the real engine, and reports what they would
have cost.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from helix_desktop.commands.option_parsing import (
    Subparsers,
    add_command,
    add_json_option,
    parse_number,
)
from helix_desktop.console import dump_printed_json, escape_control_characters, print_text
from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.errors import InvalidInput
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.replay import simulated_clock, stand_in_model, text_report
from helix_desktop.replay.prompt_cache_billing import HEAD_TOKENS
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.session_player import (
    ReplayStores,
    ReplayTerms,
    SessionPlayer,
    join_recordings,
)
from helix_desktop.replay.simulated_recalls import RecallMode
from helix_desktop.replay.text_report import PolicyResult
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal

BAR = 24


def run_replay_command(arguments: argparse.Namespace) -> int:
    """Replays all recorded sessions once with each preset, and prints the figures.

    A preset is a set of rules for when old messages are shortened. `--compare` names several,
    and `--policy` one.
    """
    from helix_desktop import token_counting
    from helix_desktop.histories import history_reading

    # Mistakes in the options are said before files are read, which may take long.
    terms_of_each_policy: list[ReplayTerms] = []
    for policy_name in _policy_names(arguments):
        terms_of_each_policy.append(_build_replay_terms(arguments, policy_name))
    sessions = history_reading.read_history_files(arguments.files)
    imported = history_reading.sessions_for_replay(sessions)
    for complaint in imported.complaints:
        print_text(complaint, file=sys.stderr)
    counter = token_counting.TiktokenCounter()
    recordings = imported.recordings
    if arguments.one_conversation and recordings:
        recordings = (join_recordings(recordings),)
    results = [_replay_all_recordings(recordings, terms, counter) for terms in terms_of_each_policy]
    _print_replay_results(arguments, results)
    return 0


def _policy_names(arguments: argparse.Namespace) -> list[str]:
    names: list[str] = []
    for name in arguments.compare.split(","):
        if name.strip():
            names.append(name.strip())
    if not names:
        return [arguments.policy]
    return names


def _print_replay_results(arguments: argparse.Namespace, results: list[PolicyResult]) -> None:
    """Prints a report on each preset, with `--compare` a comparison, and what the words mean."""
    is_comparison = bool(arguments.compare)
    if arguments.json:
        figures = text_report.results_as_json(
            results, is_comparison=is_comparison, with_points=arguments.points
        )
        print_text(dump_printed_json(figures, indent=1))
        return
    for result in results:
        report = "\n".join(text_report.report_lines(result))
        print_text(report, end="\n\n")
    if is_comparison:
        comparison = "\n".join(text_report.comparison_lines(results))
        print_text(comparison, end="\n\n")
    legend = "\n".join(text_report.legend_lines())
    print_text(legend)


def _replay_all_recordings(
    recordings: Sequence[RecordedSession], terms: ReplayTerms, counter: TokenCounter
) -> PolicyResult:
    """Replays the sessions one after the other with one preset, and shows how far it is."""
    played_sessions: list[ReplayFigures] = []
    for number, recording in enumerate(recordings, 1):
        file_name = Path(recording.name).name
        label = f"{terms.policy.preset} {number}/{len(recordings)} {file_name}"
        show_progress = _build_progress_display(label, len(recording.messages))
        played_sessions.append(replay_recording(recording, terms, counter, show_progress))
    return PolicyResult(terms.policy.preset, terms.window, played_sessions)


def replay_recording(
    recording: RecordedSession,
    terms: ReplayTerms,
    counter: TokenCounter,
    moved: Callable[[int], None] = lambda _: None,
) -> ReplayFigures:
    """Replays one session with its own clock and with its own stores in memory."""

    async def replay_in_memory() -> ReplayFigures:
        now = simulated_clock.LoopClock().current_time
        journal = MemoryJournal(now=now)
        cache = MemoryCache(now=now)
        stores = ReplayStores(journal, cache, MemoryIndex(journal, cache))
        return await SessionPlayer(recording, terms, stores, counter).play_session(moved)

    return simulated_clock.run_on_jumping_loop(replay_in_memory())


def _build_progress_display(label: str, count: int) -> Callable[[int], None]:
    """Returns what is called with the number of messages that were played of `count`: it draws
    a progress bar on a terminal, and otherwise prints one line for each session.
    """
    printable_label = escape_control_characters(label)
    if sys.stderr.isatty():
        return partial(_draw_progress_bar, printable_label, count)
    return partial(_print_when_complete, printable_label, count)


def _print_when_complete(label: str, count: int, played: int) -> None:
    if played == count:
        print_text(f"{label}: {count} messages", file=sys.stderr)


def _draw_progress_bar(label: str, count: int, played: int) -> None:
    """Draws the bar over the last one, at most once for each percent."""
    is_complete = played == count
    messages_per_percent = max(1, count // 100)
    if not is_complete and played % messages_per_percent:
        return
    filled_cells = BAR * played // max(1, count)
    bar = "█" * filled_cells + "░" * (BAR - filled_cells)
    end = ""
    if is_complete:
        end = "\r\x1b[K"  # The line is cleared for what is printed next.
    print_text(f"\r\x1b[K{bar} {label[:70]}", end=end, file=sys.stderr, flush=True)


def _build_replay_terms(arguments: argparse.Namespace, policy_name: str) -> ReplayTerms:
    """Returns the conditions of a replay: the preset with changed thresholds, the model's window
    and prices, and how the simulated model behaves.
    """
    policy = preset_policy(policy_name).with_thresholds(_parse_thresholds(arguments.set))
    prices = RelativePrices(arguments.cache_read, arguments.cache_write, arguments.output)
    head_tokens = arguments.head
    if head_tokens is None:
        head_tokens = HEAD_TOKENS
    return ReplayTerms(
        policy,
        arguments.window,
        prices,
        arguments.stand_in,
        head_tokens,
        recalls=RecallMode(arguments.recalls),
        output_growth=arguments.output_growth,
    )


def _parse_thresholds(words: Sequence[str]) -> dict[str, str]:
    """Returns the values that `--set KEY=VALUE` names, by key."""
    values: dict[str, str] = {}
    for word in words:
        key, equals_sign, value = word.partition("=")
        if not equals_sign:
            raise InvalidInput(f"{word!r} sets nothing.", remedy="Use --set key=value.")
        values[key] = value
    return values


def _parse_share(
    text: str, *, whole: str = "the input price", least: float = 1e-6, most: float = 1_000.0
) -> float:
    """Parses a number such as 0.1, which says how large something is in relation to `whole`."""
    with suppress(ValueError):
        share = float(text)
        if least <= share <= most:
            return share
    raise argparse.ArgumentTypeError(f"{text!r} is not a share of {whole}, such as 0.1")


_parse_window = partial(
    parse_number,
    least=2_000,
    most=100_000_000,
    what="a number of tokens from 2,000 to 100,000,000",
)
_parse_head_tokens = partial(
    parse_number, most=1_000_000, what="a number of tokens up to 1,000,000"
)
_parse_growth = partial(_parse_share, whole="the output", least=0.0, most=10.0)


def add_replay_commands(nouns: Subparsers) -> None:
    noun = add_command(
        nouns,
        "replay",
        "replay recorded sessions, and show what would have been sent, billed, kept and lost",
        description="Replay recorded agent sessions with different presets, and show what would have been sent, billed, kept and lost. Nothing is sent anywhere. The sessions can be OpenAI-style messages (JSON Lines, or one JSON file), or exports from Claude Code or Codex.",
    )
    noun.add_argument(
        "files",
        metavar="FILE",
        type=Path,
        nargs="+",
        help="a recorded session, or a folder of sessions",
    )
    noun.add_argument(
        "--policy",
        metavar="P",
        default="layered",
        help="the preset: helix, observational, layered (default), keeps_most or none",
    )
    noun.add_argument(
        "--compare", metavar="P,Q", default="", help="compare several presets side by side"
    )
    noun.add_argument(
        "--window",
        metavar="N",
        type=_parse_window,
        default=128000,
        help="the model's context window in tokens",
    )
    noun.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set one threshold of the preset",
    )
    noun.add_argument(
        "--cache-read",
        metavar="X",
        type=_parse_share,
        default=0.1,
        help="price of reading the cache, as a share of the input price (default: 0.1)",
    )
    noun.add_argument(
        "--cache-write",
        metavar="X",
        type=_parse_share,
        default=1.25,
        help="price of writing to the cache, as a multiple of the input price (default: 1.25)",
    )
    noun.add_argument(
        "--output",
        metavar="X",
        type=_parse_share,
        default=5.0,
        help="price of output, as a multiple of the input price (default: 5)",
    )
    noun.add_argument(
        "--head",
        metavar="N",
        type=_parse_head_tokens,
        default=None,
        help="tokens that the system prompt and tools take up in every request (default: as many as in Helix Desktop)",
    )
    noun.add_argument(
        "--recalls",
        metavar="KIND",
        choices=[mode.value for mode in RecallMode],
        default="named",
        help="how to count recalls of content that is no longer in the context: named (the agent knows which entries to read; default), searched (the agent must search first), together (it searches, and asks for several entries in one request) or none (recalls are not counted)",
    )
    noun.add_argument(
        "--no-recalls",
        dest="recalls",
        action="store_const",
        const="none",
        help="the same as --recalls none",
    )
    noun.add_argument(
        "--output-growth",
        metavar="X",
        type=_parse_growth,
        default=0.0,
        help="how much longer outputs would become if all context were left out, as a fraction of their length (default: 0; a published trial found 0.0375)",
    )
    noun.add_argument(
        "--one-conversation",
        action="store_true",
        help="replay all sessions one after the other as one conversation with several tasks",
    )
    noun.add_argument(
        "--stand-in",
        metavar="KIND",
        choices=list(stand_in_model.KINDS),
        default="works",
        help="how the simulated model that writes handover documents behaves: works, slow, forgetful, fails, hangs, empty, wrong-form, other-language or too-long",
    )
    noun.add_argument(
        "--points",
        action="store_true",
        help="with --json: also include the folds and the token count of every step",
    )
    add_json_option(noun)
    noun.set_defaults(run=run_replay_command)
