"""Finds what a person should notice about a program before allowing it, such as a forced push."""

from collections.abc import Sequence
from functools import cache

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_table

# A word of a use that fits every word that begins so: `+main` in a push, `:old`.
_BEGINNINGS = ("+", ":")


@dataclass(frozen=True, slots=True)
class RiskyUse:
    """A use of a program. `telling_words`: one of them must be there; none: it is always risky."""

    program_words: tuple[str, ...]
    telling_words: tuple[str, ...]
    risk: str


def find_risk(words: Sequence[str]) -> str:
    """Returns the name of what is risky about a command's words, or nothing."""
    for use in _read_risky_uses():
        own_words = tuple(words[: len(use.program_words)])
        if own_words == use.program_words and _is_told_by_words(use, words[len(own_words) :]):
            return use.risk
    return ""


def _is_told_by_words(use: RiskyUse, arguments: Sequence[str]) -> bool:
    if not use.telling_words:
        return True
    for argument in arguments:
        for telling_word in use.telling_words:
            if _fits_telling_word(telling_word, argument):
                return True
    return False


def _fits_telling_word(telling_word: str, argument: str) -> bool:
    """Whether an argument is this word: also `--force=x` for `--force`, and `-xf` for `-f`."""
    if telling_word in _BEGINNINGS:
        return argument.startswith(telling_word)
    if argument.partition("=")[0] == telling_word:
        return True
    is_letter = len(telling_word) == 2 and telling_word.startswith("-") and telling_word != "--"
    is_cluster = argument.startswith("-") and not argument.startswith("--")
    return is_letter and is_cluster and telling_word[1] in argument[1:]


@cache
def _read_risky_uses() -> tuple[RiskyUse, ...]:
    uses: list[RiskyUse] = []
    for fields in read_table("risky_uses")["uses"]:
        program_words = tuple(fields["program"].split())
        telling_words = tuple(fields["words"].split())
        uses.append(RiskyUse(program_words, telling_words, fields["risk"]))
    return tuple(uses)
