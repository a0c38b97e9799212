"""Ways of saving context that extensions add: they are asked for a limited time, off the loop that
runs conversations, and what they return is checked.

One that fails costs nothing: a model writes the summary, or none is made yet.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from helix_desktop.concurrency import run_on_detached_thread
from helix_desktop.engine.strategies.added_strategies import (
    ChosenFold,
    FoldableContext,
    MessageToFold,
)
from helix_desktop.extensions.extension_interfaces import ExtensionFoldStrategy
from helix_desktop.extensions.limited_calls import ExtensionFailed, message_of, printable_text
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.program_names import COMPACTED_HERE

LONGEST_SUMMARY = 200_000  # In characters. A summary is shortened to about 6,000 tokens.
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoldStrategyOfExtension:
    """A strategy in the form in which the engine asks it (`added_strategies.AddedFoldStrategy`)."""

    extension: RunningExtension
    declared: ExtensionFoldStrategy

    @property
    def author(self) -> str:
        return f"{self.extension.declared.title} (extension)"

    @property
    def chooses(self) -> bool:
        return self.declared.choose is not None

    @property
    def writes(self) -> bool:
        return self.declared.write is not None

    async def choose_fold(self, context: FoldableContext) -> ChosenFold | None:
        choose = self.declared.choose
        if choose is None:
            return None
        title = self.extension.declared.title
        return await self._ask(
            "choose",
            lambda: choose(context),
            lambda chosen: check_chosen_fold(chosen, context, title),
        )

    async def write_summary(self, messages: Sequence[MessageToFold]) -> str:
        write = self.declared.write
        if write is None:
            return ""
        text = await self._ask("write", lambda: write(messages), check_summary)
        return text or ""

    async def _ask(
        self, function: str, call: Callable[[], object], check: Callable[[object], T]
    ) -> T | None:
        """Return what a function of the strategy returns, checked, or None if it failed or took too
        long. What hung is switched off, and so is what failed several times in a row.
        """
        if self.extension.stopped_because:
            return None
        name = f"{function} of {self.declared.name}"
        # A thread of its own: one of the program's few threads would be missing while it hangs.
        calling = run_on_detached_thread(
            lambda: _call_or_say_why(call), name=f"extension {self.extension.installed.name}"
        )
        try:
            async with asyncio.timeout(self.declared.limit_seconds):
                returned = await calling
            result = check(returned)
        except TimeoutError:
            why = f"{name} did not return within {self.declared.limit_seconds:.0f} s"
            self.extension.note_hanging(why)
            return None
        except ExtensionFailed as error:
            self.extension.note_failure(name, f"{name} {error.what}")
            return None
        self.extension.note_success(name)
        return result


def _call_or_say_why(call: Callable[[], object]) -> object:
    """Return what a function returns. Raises ExtensionFailed for whatever it raises, as a future
    can carry neither SystemExit nor StopIteration to who waits.
    """
    try:
        return call()
    except BaseException as error:
        log.info("an extension failed: %s", type(error).__name__)
        raise ExtensionFailed(f"raised {type(error).__name__}: {message_of(error)}") from error


def check_chosen_fold(chosen: object, context: FoldableContext, title: str) -> ChosenFold | None:
    """Return a copy of what a strategy has chosen, with a reason that says who chose it. Raises
    ExtensionFailed if it may not be folded.
    """
    if chosen is None:
        return None
    if type(chosen) is not ChosenFold:
        raise ExtensionFailed(f"returned {type(chosen).__name__} instead of a ChosenFold or None")
    if type(chosen.last) is not int or type(chosen.why) is not str:
        raise ExtensionFailed("returned a ChosenFold whose `last` is no number or `why` no text")
    reason = f"{title}: {printable_text(chosen.why) or 'it gave no reason'}"
    if COMPACTED_HERE in reason:
        raise ExtensionFailed("gave the reason that an agent's own compaction has")
    for message in context.messages:
        if message.number == chosen.last and message.may_be_last:
            return ChosenFold(chosen.last, reason)
    raise ExtensionFailed(
        f"chose {chosen.last}, which is not the number of a message that may be the last"
    )


def check_summary(text: object) -> str:
    """Return the text of a summary. Raises ExtensionFailed if it is none that can be stored."""
    if type(text) is not str:
        raise ExtensionFailed(f"returned {type(text).__name__} instead of a text")
    if len(text) > LONGEST_SUMMARY:
        raise ExtensionFailed(f"returned a text of more than {LONGEST_SUMMARY:,} characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ExtensionFailed("returned a text that is not valid Unicode") from None
    return text.strip()


_added: list[FoldStrategyOfExtension] = []


def add_fold_strategy(strategy: FoldStrategyOfExtension) -> None:
    _added.append(strategy)


def remove_fold_strategy(strategy: FoldStrategyOfExtension) -> None:
    if strategy in _added:
        _added.remove(strategy)


def list_added_fold_strategies() -> Sequence[FoldStrategyOfExtension]:
    return [strategy for strategy in _added if not strategy.extension.stopped_because]
