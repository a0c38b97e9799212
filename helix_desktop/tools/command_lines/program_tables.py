"""Tables of programs that start other programs, and where these are in the arguments.
For `command_analysis.py`.

The words are in `resources/tables/programs.toml`, which says what each list is for.
"""

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


# Programs that run the command written behind their own options.
WRAPPERS = {
    "nice": WrapperProgram(flags="0123456789", takes="n", words=word_set("adjustment")),
    "nohup": WrapperProgram(),
    "setsid": WrapperProgram(flags="cfw", bare=word_set("ctty fork wait")),
    "timeout": WrapperProgram(
        flags="vfp",
        takes="ks",
        bare=word_set("foreground preserve-status verbose"),
        words=word_set("kill-after signal"),
        operands=1,
    ),
    "stdbuf": WrapperProgram(takes="ioe", words=word_set("input output error")),
    "ionice": WrapperProgram(
        flags="t", takes="cn", bare=word_set("ignore"), words=word_set("class classdata")
    ),
    "chrt": WrapperProgram(
        flags="abdfiorRvm",
        takes="TPD",
        bare=word_set("all-tasks batch deadline fifo idle other rr verbose"),
        operands=1,
    ),
    "taskset": WrapperProgram(flags="ac", bare=word_set("all-tasks cpu-list"), operands=1),
    "time": WrapperProgram(
        flags="apvq",
        takes="fo",
        bare=word_set("append portability verbose quiet"),
        words=word_set("format output"),
    ),
    "command": WrapperProgram(flags="p"),
    "builtin": WrapperProgram(),
    "exec": WrapperProgram(flags="cl", takes="a"),
    "doas": WrapperProgram(flags="Ln", takes="uC"),
    "chroot": WrapperProgram(
        bare=word_set("skip-chdir"), words=word_set("groups userspec"), operands=1
    ),
    "choom": WrapperProgram(takes="np", words=word_set("adjust pid")),
    "prlimit": WrapperProgram(takes="p", words=word_set("pid output")),
    "linux32": WrapperProgram(flags="vRBFILSTXZ3"),
    "linux64": WrapperProgram(flags="vRBFILSTXZ3"),
    "catchsegv": WrapperProgram(),
    "tini": WrapperProgram(flags="gsvw", takes="pe"),
    "dumb-init": WrapperProgram(flags="cv", takes="r"),
    "gosu": WrapperProgram(operands=1),
    "su-exec": WrapperProgram(operands=1),
    "setuidgid": WrapperProgram(flags="s", operands=1),
    "softlimit": WrapperProgram(takes="adflmnopqrstcu"),
    "envdir": WrapperProgram(operands=1),
    "eatmydata": WrapperProgram(),
    "torsocks": WrapperProgram(flags="iqd"),
    "torify": WrapperProgram(),
    "proxychains": WrapperProgram(flags="q", takes="f"),
    "proxychains4": WrapperProgram(flags="q", takes="f"),
    "rlwrap": WrapperProgram(flags="acEhirRnNuUwW", takes="bCfgHlmpPqsSt"),
    "unbuffer": WrapperProgram(flags="p"),
    "sudo": WrapperProgram(
        flags="AbBEHnNPSis",
        takes="CDghpRrTtUu",
        bare=word_set(
            "askpass background bell preserve-env set-home non-interactive no-update preserve-groups stdin login shell"
        ),
        words=word_set(
            "close-from chdir group host prompt chroot role command-timeout type other-user user"
        ),
        sets=True,
    ),
    "unshare": WrapperProgram(
        flags="imnpuUCTrcf",
        takes="SGRw",
        bare=word_set(
            "ipc mount net pid uts user cgroup time map-root-user map-current-user map-auto keep-caps fork kill-child mount-proc"
        ),
        words=word_set(
            "setuid setgid root wd propagation setgroups map-user map-group map-users map-groups"
        ),
    ),
}
LOOSE_WRAPPERS = _WORDS["loose_wrappers"]
LOOSE_AFTER = {name: word_set(text) for name, text in _TABLE["loose_after"].items()}
SHELLS = _WORDS["shells"]
OTHER_SHELLS = _WORDS["other_shells"]
SCRIPT_INTERPRETERS = _WORDS["script_interpreters"]
MULTI_CALL_PROGRAMS = _WORDS["multi_call_programs"]
COMMAND_OPTIONS = {name: tuple(text.split()) for name, text in _TABLE["command_options"].items()}
WHOLE_OPTIONS = _WORDS["whole_options"]
CODE_OPTIONS = _TABLE["code_options"]
CODE_WORDS = _WORDS["code_words"]
EDITORS = _WORDS["editors"]
READS_COMMANDS = _WORDS["reads_commands"]
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
# With a slash between the words: `gh/config/set`.
STARTING_COMMANDS = word_set(_TABLE["starting_commands"]["list"])
OWN_COMMANDS = {name: word_set(text) for name, text in _TABLE["own_commands"].items()}
MESSAGE_OPTIONS = {name: word_set(text) for name, text in _TABLE["message_options"].items()}
EDITOR_OPTIONS = {name: word_set(text) for name, text in _TABLE["editor_options"].items()}
CHANGING_WORDS = _WORDS["changing_words"]
WRITES_OPERANDS = _WORDS["writes_operands"]
DELETES_OPERANDS = _WORDS["deletes_operands"]
SHELL_KEYWORDS = _WORDS["shell_keywords"]
GIT_FLAGS = _WORDS["git_flags"]
GIT_VALUES = _WORDS["git_values"]
GIT_COMMANDS = _WORDS["git_commands"]
GIT_COMMAND_OPTIONS = _WORDS["git_command_options"]
GIT_SAFE_SETTINGS = tuple(_WORDS["git_safe_settings"])
