"""The settings of the program, each declared once in `resources/program_settings.json`.
Workspaces have their own.

A declaration holds everything about a setting. The page and the file's checks and
messages are built from it.

`settings.toml` can be edited by hand: comments, order and unknown keys are kept. A message about a
mistake names its line, the key and what was expected; until it is fixed, that setting has its
default.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from helix_desktop import atomic_files
from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_json_resource

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

T = TypeVar("T", bool, int, str, tuple[str, ...], dict[str, str])
Value = bool | int | str | tuple[str, ...] | dict[str, str]


# What an error says that a setting must be, by the type of its default.
_EXPECTED: Mapping[type[object], str] = {
    bool: "true or false",
    int: "a whole number",
    str: "a text",
    tuple: "a list of texts",
    dict: "a table of texts",
}


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
    # Which font the setting chooses: "text" or "code". The empty value means the
    # default font.
    font: str = ""
    in_window: bool = True  # False if it is changed in the settings file only.
    shown_while: str = ""  # The key of a switch. While that is off, this setting does nothing.

    def check_value(self, value: object) -> T:
        """Returns the value if it is allowed. Otherwise raises ConfigFileMistake, which
        says what was expected.
        """
        if isinstance(value, list) and isinstance(self.default, tuple):
            value = tuple(value)  # TOML has lists only.
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
        is_large_enough = self.least is None or value >= self.least
        is_small_enough = self.most is None or value <= self.most
        return is_large_enough and is_small_enough

    @property
    def expected_value(self) -> str:
        if isinstance(self.default, str) and self.choices:
            return f"one of {', '.join(map(repr, self.choices))}"
        if type(self.default) is int and self.least is not None:
            return f"a whole number from {self.least} to {self.most}"
        return _EXPECTED[type(self.default)]

    def _suggest_choice(self, value: object) -> str:
        near = difflib.get_close_matches(str(value), self.choices, n=1)
        if not near:
            return ""
        return f" Did you mean {near[0]!r}?"


# Each language except English has files in resources/translations. Not everybody has a
# font for Chinese, so its name is written in English, too.
LANGUAGES = {"en": "English", "de": "Deutsch", "zh_CN": "简体中文 (Chinese)"}


def _read_declared_settings() -> Iterator[ProgramSetting[Any]]:
    for key, fields in read_json_resource("program_settings.json").items():
        choices = tuple(fields.pop("choices", ()))
        if key == "appearance.language":
            choices = ("system",) + tuple(LANGUAGES)
        yield ProgramSetting(key, choices=choices, **fields)


ALL = tuple(_read_declared_settings())
_DECLARED = {setting.key: setting for setting in ALL}
THEME: ProgramSetting[str] = _DECLARED["appearance.theme"]
ZOOM: ProgramSetting[int] = _DECLARED["appearance.zoom"]
LANGUAGE: ProgramSetting[str] = _DECLARED["appearance.language"]
FONT: ProgramSetting[str] = _DECLARED["appearance.font"]
CODE_FONT: ProgramSetting[str] = _DECLARED["appearance.code_font"]
INSTRUCTIONS: ProgramSetting[str] = _DECLARED["agents.instructions"]
ACP_AGENTS: ProgramSetting[str] = _DECLARED["agents.acp"]
SEND_WITH: ProgramSetting[str] = _DECLARED["chat.send_with"]
ASK_ABOVE: ProgramSetting[int] = _DECLARED["chat.ask_above"]
NOTIFY_DONE: ProgramSetting[bool] = _DECLARED["notifications.done"]
NOTIFY_WAITING: ProgramSetting[bool] = _DECLARED["notifications.waiting"]
NOTIFY_FAILED: ProgramSetting[bool] = _DECLARED["notifications.failed"]
SOUND_DONE: ProgramSetting[bool] = _DECLARED["notifications.sound"]
SHORTCUTS: ProgramSetting[dict[str, str]] = _DECLARED["shortcuts"]
LOG_LEVEL: ProgramSetting[str] = _DECLARED["logs.level"]
LOG_SIZE: ProgramSetting[int] = _DECLARED["logs.size"]
FETCH_PAGES: ProgramSetting[bool] = _DECLARED["tools.fetch"]
MACHINE: ProgramSetting[str] = _DECLARED["sharing.machine"]
KEEP_DAYS: ProgramSetting[int] = _DECLARED["fleet.keep_days"]
KEEP_TASKS: ProgramSetting[int] = _DECLARED["fleet.keep_tasks"]
RECORDER: ProgramSetting[bool] = _DECLARED["recorder.on"]
RECORDER_WITHOUT_AGENTS: ProgramSetting[str] = _DECLARED["recorder.without_agents"]
RECORDER_WITHOUT_FOLDERS: ProgramSetting[str] = _DECLARED["recorder.without_folders"]
GATEWAY_ON: ProgramSetting[bool] = _DECLARED["gateway.on"]
GATEWAY_SEND_TO: ProgramSetting[str] = _DECLARED["gateway.send_to"]
PAGE_ON: ProgramSetting[bool] = _DECLARED["page.on"]
PAGE_ADDRESS: ProgramSetting[str] = _DECLARED["page.address"]
PAGE_PORT: ProgramSetting[int] = _DECLARED["page.port"]
PAGE_WEBHOOK: ProgramSetting[str] = _DECLARED["page.webhook"]
PAGE_WEBHOOK_CONTENT: ProgramSetting[bool] = _DECLARED["page.webhook_content"]
KEYS_IN_FILE: ProgramSetting[bool] = _DECLARED["keys.file"]


class ProgramSettings:
    """The current settings. `file_mistakes`: sentences for the user on what is wrong in
    the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        self._listeners: list[Callable[[ProgramSetting[Any]], None]] = []
        self._mistakes: dict[str, ConfigFileMistake] = {}
        self._read_settings_file()

    @property
    def settings_path(self) -> Path:
        return self._path

    @property
    def file_mistakes(self) -> tuple[ConfigFileMistake, ...]:
        return tuple(self._mistakes.values())

    def __getitem__(self, setting: ProgramSetting[T]) -> T:
        return cast(T, self._values.get(setting.key, setting.default))

    def subscribe_to_changes(
        self, listener: Callable[[ProgramSetting[Any]], None]
    ) -> Callable[[], None]:
        """Calls `listener(setting)` after each change. Call the returned function to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def change_setting(self, setting: ProgramSetting[T], value: T) -> None:
        """Checks a value, writes it to the file and notifies listeners. The default
        removes the key.

        ConfigFileMistake if the value is not allowed or the file cannot be read. The
        file then stays unchanged.
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

    def create_file_if_missing(self) -> None:
        """Writes a file that names the settings that the window does not show, each with its
        default and behind a #, for somebody who opens the file to change one.
        """
        with atomic_files.hold_for_change(self._path):
            if self._path.exists():
                return
            lines = ["# Settings of Helix Desktop that its window does not show:"]
            for setting in ALL:
                if not setting.in_window:
                    default = json.dumps(setting.default, ensure_ascii=False)
                    lines += ["#", f"# {setting.sentence}", f"# {setting.key} = {default}"]
            text = "\n".join(lines) + "\n"
            atomic_files.write_file_atomically(self._path, text, private=True)

    def _read_settings_file(self) -> None:
        try:
            text = _read_file_text(self._path)
            content = _parse_toml_text(self._path, text)
        except ConfigFileMistake as mistake:
            self._mistakes[""] = mistake
            return
        for setting in ALL:
            value = _value_in_file(content, setting.key)
            if value is None:
                continue
            try:
                self._values[setting.key] = setting.check_value(value)
            except ConfigFileMistake as mistake:
                self._mistakes[setting.key] = ConfigFileMistake(
                    f"{self._path}, line {find_line_of_key(text, setting.key)}: {mistake.what}",
                    remedy=f"Until you fix this setting, {setting.default!r} is used.",
                )
        self._mistakes |= _find_mistyped_keys(content, text, self._path)


def _value_in_file(content: Mapping[str, Any], key: str) -> object:
    """Returns the value of a key such as "chat.send_with", or None if the file has none."""
    table, _, name = key.rpartition(".")
    inner: object = content
    if table:
        inner = content.get(table)
    if not isinstance(inner, Mapping):
        return None
    return inner.get(name)


def _read_file_text(path: Path) -> str:
    if not path.exists():
        return ""
    try:
        # Editors of Windows may put a byte order mark at the beginning.
        return atomic_files.read_small_file(path).decode("utf-8-sig")
    except InvalidInput as error:
        raise ConfigFileMistake(
            error.what, remedy="The default settings apply until you fix the file."
        ) from error
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigFileMistake(
            f"{path} cannot be read: {error}.",
            remedy="The default settings apply until the file can be read.",
        ) from error


def _parse_toml_text(path: Path, text: str) -> dict[str, Any]:
    """Parses the file with the standard library, because the library that writes it
    takes long to import.
    """
    if not text:
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        line = str(text.count("\n") + 1)
        named_line = re.match(r"line (\d+)", place)
        if named_line:
            line = named_line[1]
        raise ConfigFileMistake(
            f"{path}, line {line}: this is not valid TOML ({what}).",
            remedy="The file is unchanged. The default settings apply until you fix the file.",
        ) from error


def _put_into_toml(document: "TOMLDocument", setting: ProgramSetting[Any], value: Value) -> None:
    """Sets a key such as "chat.send_with" in its table. The default value removes the key."""
    table_name, _, name = setting.key.rpartition(".")
    table: Any = document
    if table_name:
        table = document.setdefault(table_name, {})
    if not isinstance(table, MutableMapping):
        raise ConfigFileMistake(
            f"{table_name} in the settings file is not a table, so {setting.key} cannot be written."
        )
    if value == setting.default:
        table.pop(name, None)
    elif isinstance(value, tuple):
        table[name] = list(value)
    else:
        table[name] = value


def _find_mistyped_keys(
    content: Mapping[str, Any], text: str, path: Path
) -> dict[str, ConfigFileMistake]:
    """Returns keys that are no setting, but are written much like one."""
    known_keys = [setting.key for setting in ALL]
    mistakes: dict[str, ConfigFileMistake] = {}
    for key in _iterate_dotted_keys(content):
        is_shortcut = key.startswith(f"{SHORTCUTS.key}.")
        if key in known_keys or is_shortcut:
            continue
        similar_keys = difflib.get_close_matches(key, known_keys, n=1, cutoff=0.85)
        if similar_keys:
            line = find_line_of_key(text, key)
            sentence = f"{path}, line {line}: there is no setting {key}."
            mistakes[key] = ConfigFileMistake(sentence, remedy=f"Did you mean {similar_keys[0]}?")
    return mistakes


def _iterate_dotted_keys(content: Mapping[str, Any]) -> Iterator[str]:
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


def find_line_of_key(text: str, dotted: str) -> int:
    """Returns the line on which a key or its table stands, or 1."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?", line)
        if head:
            table = _without_quotes(head[1])
            if table == dotted or table.startswith(f"{dotted}."):
                return number
            continue
        assignment = re.match(r"\s*([\w\-.\"' ]+?)\s*=", line)
        if assignment is not None:
            key = _without_quotes(assignment[1])
            if table:
                key = f"{table}.{key}"
            if key == dotted or key.startswith(f"{dotted}.") or dotted.startswith(f"{key}."):
                return number
    return 1


def _without_quotes(name: str) -> str:
    return re.sub(r"[\s\"']", "", name)
