"""The settings of the program, each declared once. Workspaces have their own settings.

A declaration holds everything about a setting. The page and the file's checks and messages are built
from it.

`settings.toml` can be edited by hand: comments, order and unknown keys are kept. A message about a
mistake names its line, the key and what was expected; until it is fixed, that setting has its
default.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from helix_desktop import atomic_files
from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.fast_dataclass import dataclass

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

T = TypeVar("T", bool, int, str, tuple[str, ...], dict[str, str])
Value = bool | int | str | tuple[str, ...] | dict[str, str]


@dataclass(frozen=True)
class ProgramSetting(Generic[T]):
    """`key` is "table.name" in the file. `choices`, or `least` and `most`, limit the value."""

    key: str
    section: str
    title: str
    sentence: str
    default: T
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    unit: str = ""
    restart: bool = False  # True if a change takes effect only after a restart.
    long: bool = False  # True if the value can have several lines.
    font: str = ""  # Which font the setting chooses: "text" or "code". The empty value means the default font.

    def check_value(self, value: object) -> T:
        """Returns the value if it is allowed. Otherwise raises ConfigFileMistake, which says what was expected."""
        if isinstance(value, list) and isinstance(self.default, tuple):
            value = tuple(value)
        if type(value) is not type(self.default) or not self._is_allowed(cast(Value, value)):
            raise ConfigFileMistake(
                f"{self.key} must be {self.expected_value}, not {value!r}.{self._suggest_choice(value)}"
            )
        return value

    def _is_allowed(self, value: Value) -> bool:
        if isinstance(value, tuple):
            return all(isinstance(item, str) for item in value)
        if isinstance(value, dict):
            return all(isinstance(item, str) for item in value.values())
        if isinstance(value, str):
            return not self.choices or value in self.choices
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def expected_value(self) -> str:
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, int):
            limits = "" if self.least is None else f" from {self.least} to {self.most}"
            return f"a whole number{limits}"
        if isinstance(self.default, str):
            return f"one of {', '.join(map(repr, self.choices))}" if self.choices else "a text"
        return "a list of texts" if isinstance(self.default, tuple) else "a table of texts"

    def _suggest_choice(self, value: object) -> str:
        near = difflib.get_close_matches(str(value), self.choices, n=1)
        return f" Did you mean {near[0]!r}?" if near else ""


# Each language except English has files in resources/translations.
LANGUAGES = {"en": "English", "de": "Deutsch", "zh_CN": "简体中文"}

THEME = ProgramSetting(
    "appearance.theme", "Appearance", "Theme", "Light, dark, or the same as the system.", "system",
    choices=("system", "light", "dark"),
)  # fmt: skip
ZOOM = ProgramSetting(
    "appearance.zoom", "Appearance", "Text size", "The size of all text.", 100, least=50, most=300, unit="%",
)  # fmt: skip
LANGUAGE = ProgramSetting(
    "appearance.language", "Appearance", "Language", "The language of the window. Agents answer in the language you write in.", "system",
    choices=("system", *LANGUAGES), restart=True,
)  # fmt: skip
FONT = ProgramSetting(
    "appearance.font", "Appearance", "Text font", "The font for the window and for messages.", "", font="text",
)  # fmt: skip
CODE_FONT = ProgramSetting(
    "appearance.code_font", "Appearance", "Code font", "The font for code, outputs and diffs.", "", font="code",
)  # fmt: skip
INSTRUCTIONS = ProgramSetting(
    "agents.instructions", "Instructions", "In every workspace",
    "These instructions are sent to every agent with the system prompt, starting with the next message.", "", long=True,
)  # fmt: skip
ACP_AGENTS = ProgramSetting(
    "agents.acp", "Tools", "Your own agents",
    "Agents that speak the Agent Client Protocol, one per line: NAME = COMMAND LINE. Known agents on your PATH are found automatically.", "", long=True,
)  # fmt: skip
SEND_WITH = ProgramSetting(
    "chat.send_with", "Chat", "Send with", "The key that sends a message. The other key starts a new line.", "enter",
    choices=("enter", "ctrl+enter"),
)  # fmt: skip
ASK_ABOVE = ProgramSetting(
    "chat.ask_above", "Chat", "Ask before a message that costs more than",
    "The cost is estimated for the first step. If the agent uses tools, further steps add to the cost. 0 means that you are never asked.", 0, least=0, most=1_000_000, unit="US cents",
)  # fmt: skip
NOTIFY_DONE = ProgramSetting(
    "notifications.done", "Notifications", "When an agent finishes", "A notification appears only while the window is in the background.", True
)  # fmt: skip
NOTIFY_WAITING = ProgramSetting(
    "notifications.waiting", "Notifications", "When an agent waits for you",
    "A notification appears when an agent asks for permission or has a question, but only while the window is in the background.", True,
)  # fmt: skip
NOTIFY_FAILED = ProgramSetting(
    "notifications.failed", "Notifications", "When a turn fails", "A notification appears only while the window is in the background.", True
)  # fmt: skip
SHORTCUTS = ProgramSetting(
    "shortcuts", "Shortcuts", "Changed shortcuts", "Shortcuts that differ from the defaults.",
    dict[str, str](),
)  # fmt: skip
LOG_LEVEL = ProgramSetting(
    "logs.level", "Logs", "Level", "How much detail the log contains. Content and keys are never logged.", "info",
    choices=("debug", "info", "warning", "error"),
)  # fmt: skip
LOG_SIZE = ProgramSetting(
    "logs.size", "Logs", "Size", "Maximum size of a log file. Four older files are kept.", 5, least=1, most=100, unit="MB",
)  # fmt: skip
FETCH_PAGES = ProgramSetting(
    "tools.fetch", "Tools", "Agents may fetch web pages",
    "Agents get the fetch_url tool. You are asked before each page is fetched. This setting applies to workspaces that you open from now on.", False,
)  # fmt: skip
MACHINE = ProgramSetting(
    "sharing.machine", "Sharing", "Name of this computer",
    "The name that other computers see in a shared workspace. If empty, the computer's network name is used. This setting applies to workspaces that you open from now on.", "",
)  # fmt: skip
RECORDER = ProgramSetting(
    "recorder.on", "Recorder", "Record the conversations of agents on this computer",
    "Reads the history files of Claude Code, Codex, opencode, Gemini CLI, pi, Cline and goose as they grow. Each conversation is saved in the workspace for its folder, even if the window is closed.",
    False,
)  # fmt: skip
RECORDER_WITHOUT_AGENTS = ProgramSetting(
    "recorder.without_agents", "Recorder", "Agents that are not recorded", "One agent per line (for example, goose).", "", long=True,
)  # fmt: skip
RECORDER_WITHOUT_FOLDERS = ProgramSetting(
    "recorder.without_folders", "Recorder", "Folders that are not recorded",
    "One folder per line. Conversations in these folders and their subfolders are not recorded.", "", long=True,
)  # fmt: skip
KEYS_IN_FILE = ProgramSetting(
    "keys.file", "Keys", "Store keys in a file",
    "For systems without a keyring. Only you can read this file, but the keys in it are not encrypted.", False,
)  # fmt: skip

ALL: tuple[ProgramSetting[Any], ...] = (
    THEME, ZOOM, LANGUAGE, FONT, CODE_FONT, INSTRUCTIONS, ACP_AGENTS, SEND_WITH, ASK_ABOVE, NOTIFY_DONE, NOTIFY_WAITING, NOTIFY_FAILED, SHORTCUTS,
    LOG_LEVEL, LOG_SIZE, FETCH_PAGES, MACHINE, RECORDER, RECORDER_WITHOUT_AGENTS,
    RECORDER_WITHOUT_FOLDERS, KEYS_IN_FILE,
)  # fmt: skip


class ProgramSettings:
    """The current settings. `file_mistakes`: sentences for the user on what is wrong in the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        self._listeners: list[Callable[[ProgramSetting[Any]], None]] = []
        self._mistakes: dict[str, ConfigFileMistake] = {}
        self._read_settings_file()

    @property
    def file_mistakes(self) -> tuple[ConfigFileMistake, ...]:
        return tuple(self._mistakes.values())

    def __getitem__(self, setting: ProgramSetting[T]) -> T:
        return cast(T, self._values.get(setting.key, setting.default))

    def subscribe_to_changes(self, listener: Callable[[ProgramSetting[Any]], None]) -> Callable[[], None]:
        """Calls `listener(setting)` after each change. Call the returned function to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def change_setting(self, setting: ProgramSetting[T], value: T) -> None:
        """Checks a value, writes it to the file and notifies listeners. The default removes the key.

        ConfigFileMistake if the value is not allowed or the file cannot be read. The file then stays
        unchanged.
        """
        import tomlkit

        checked = setting.check_value(value)
        with atomic_files.hold_for_change(self._path):
            text = _read_file_text(self._path)
            _parse_toml_text(self._path, text)
            document = tomlkit.parse(text)
            _put_into_toml(document, setting, checked)
            atomic_files.write_file_atomically(self._path, tomlkit.dumps(document), private=True)
        if checked == setting.default:
            self._values.pop(setting.key, None)
        else:
            self._values[setting.key] = checked
        self._mistakes.pop(setting.key, None)
        for listener in tuple(self._listeners):
            listener(setting)

    def _read_settings_file(self) -> None:
        try:
            text = _read_file_text(self._path)
            content = _parse_toml_text(self._path, text)
        except ConfigFileMistake as mistake:
            self._mistakes[""] = mistake
            return
        for setting in ALL:
            table, _, name = setting.key.rpartition(".")
            inner = content.get(table, {}) if table else content
            value = inner.get(name) if isinstance(inner, Mapping) else None
            try:
                if value is not None:
                    self._values[setting.key] = setting.check_value(value)
            except ConfigFileMistake as mistake:
                self._mistakes[setting.key] = ConfigFileMistake(
                    f"{self._path}, line {find_line_of_key(text, setting.key)}: {mistake.what}",
                    remedy=f"Until you fix this setting, {setting.default!r} is used.",
                )
        self._mistakes |= _find_mistyped_keys(content, text, self._path)


def _read_file_text(path: Path) -> str:
    try:
        return atomic_files.read_small_file(path).decode("utf-8") if path.exists() else ""
    except InvalidInput as error:
        raise ConfigFileMistake(error.what, remedy="The default settings apply until you fix the file.") from error
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigFileMistake(
            f"{path} cannot be read: {error}.", remedy="The default settings apply until the file can be read."
        ) from error


def _parse_toml_text(path: Path, text: str) -> dict[str, Any]:
    """Parses the file with the standard library, because the library that writes it takes long to import."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        raise ConfigFileMistake(
            f"{path}, line {line[1] if line else text.count(chr(10)) + 1}: this is not valid TOML ({what}).",
            remedy="The file is unchanged. The default settings apply until you fix the file.",
        ) from error


def _put_into_toml(document: "TOMLDocument", setting: ProgramSetting[Any], value: Value) -> None:
    table, _, name = setting.key.rpartition(".")
    inner = cast(Any, document.setdefault(table, {}) if table else document)
    if not isinstance(inner, MutableMapping):
        raise ConfigFileMistake(f"{table} in the settings file is not a table, so {setting.key} cannot be written.")
    if value == setting.default:
        inner.pop(name, None)
    else:
        inner[name] = list(value) if isinstance(value, tuple) else value


def _find_mistyped_keys(content: Mapping[str, Any], text: str, path: Path) -> dict[str, ConfigFileMistake]:
    known = [setting.key for setting in ALL]
    mistakes = {}
    for key in _iterate_dotted_keys(content):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.85)
        if key not in known and near and not key.startswith(f"{SHORTCUTS.key}."):
            what = f"{path}, line {find_line_of_key(text, key)}: there is no setting {key}."
            mistakes[key] = ConfigFileMistake(what, remedy=f"Did you mean {near[0]}?")
    return mistakes


def _iterate_dotted_keys(content: Mapping[str, Any]) -> Iterator[str]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


def find_line_of_key(text: str, dotted: str) -> int:
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?", line):
            table = re.sub(r"[\s\"']", "", head[1])
            if table == dotted or table.startswith(f"{dotted}."):
                return number
        elif (key := re.match(r"\s*([\w\-.\"' ]+?)\s*=", line)) is not None:
            name = re.sub(r"[\s\"']", "", key[1])
            full = f"{table}.{name}" if table else name
            if full == dotted or full.startswith(f"{dotted}.") or dotted.startswith(f"{full}."):
                return number
    return 1
