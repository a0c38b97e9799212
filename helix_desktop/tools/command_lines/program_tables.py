"""Tables of programs that start other programs, and where these are in the arguments.
For `command_analysis.py`.

The words are in `resources/tables/programs.toml`, which says what each list is for.
"""

from collections.abc import Mapping
from typing import Any

from helix_desktop import resources
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class WrapperProgram:
    """A program that runs the command written behind its own options. `flags` and
    `takes`: its short options without and with a value; `words`, the long ones with a
    value; `bare`, without. `operands`: how many words of its own come first.
    """

    flags: str = ""
    takes: str = ""
    bare: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    operands: int = 0
    sets: bool = False


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TABLE = resources.read_table("programs")
_WORDS = {name: frozenset(words) for name, words in resources.read_word_lists("programs").items()}


def _read_wrapper(fields: Mapping[str, Any]) -> WrapperProgram:
    values: dict[str, Any] = {
        **fields,
        **{key: word_set(fields.get(key, "")) for key in ("bare", "words")},
    }
    return WrapperProgram(**values)


WRAPPERS = {name: _read_wrapper(fields) for name, fields in _TABLE["wrappers"].items()}
LOOSE_WRAPPERS = _WORDS["loose_wrappers"]
LOOSE_AFTER = {name: word_set(text) for name, text in _TABLE["loose_after"].items()}
SHELLS, OTHER_SHELLS = _WORDS["shells"], _WORDS["other_shells"]
MULTI_CALL_PROGRAMS = _WORDS["multi_call_programs"]
COMMAND_OPTIONS = {name: tuple(text.split()) for name, text in _TABLE["command_options"].items()}
WHOLE_OPTIONS = _WORDS["whole_options"]
CODE_OPTIONS, CODE_WORDS = _TABLE["code_options"], _WORDS["code_words"]
EDITORS = _WORDS["editors"]
LOADING_OPTIONS = _TABLE["loading_options"]
UNLIKE_LOADING_OPTIONS = _WORDS["unlike_loading_options"]
SCRIPT_LANGUAGES = _WORDS["script_languages"]

# Matches code that starts other programs or builds code.
STARTING_CODE = (
    r"system|popen|subprocess|\bexec|execv|spawn|\bfork\b|\bpty\b|ctypes|__import__|importlib|\beval\b|compile\(|child_process|"
    r"proc_open|shell_exec|passthru|\bqx\b|`|%x|(?m:^)(?>.*?\bopen\b).*\||\|\s*getline|\|\s*[\"']|\"\s*\||Process\b|\bsh\b|\bcmd\b|:!|!"
)

COMMAND_VARIABLES = _WORDS["command_variables"]
LOADING_VARIABLES = _WORDS["loading_variables"]
LOADING_BEGINNINGS = ("BASH_FUNC_", "GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")
DATA_PROGRAMS = _WORDS["data_programs"]
PROGRAMS_WITH_SUBCOMMANDS = _WORDS["programs_with_subcommands"]
FILE_PLACING_PROGRAMS = _WORDS["file_placing_programs"]
SAFE_PROGRAMS = _WORDS["safe_programs"]
# A subcommand may have two words: `pr/list` stands for `gh pr list`.
SAFE_SUBCOMMANDS = {name: word_set(text) for name, text in _TABLE["safe_subcommands"].items()}
STARTING_OPTIONS = {name: word_set(text) for name, text in _TABLE["starting_options"].items()}
LIKE_STARTING_OPTIONS = _WORDS["like_starting_options"]
MESSAGE_OPTIONS = {name: word_set(text) for name, text in _TABLE["message_options"].items()}
EDITOR_OPTIONS = {name: word_set(text) for name, text in _TABLE["editor_options"].items()}
CHANGING_WORDS = _WORDS["changing_words"]
WRITES_OPERANDS = _WORDS["writes_operands"]
SHELL_KEYWORDS = _WORDS["shell_keywords"]
GIT_FLAGS, GIT_VALUES = _WORDS["git_flags"], _WORDS["git_values"]
GIT_COMMANDS, GIT_COMMAND_OPTIONS = _WORDS["git_commands"], _WORDS["git_command_options"]
GIT_SAFE_SETTINGS = tuple(_WORDS["git_safe_settings"])
