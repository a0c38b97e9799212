"""settings.py: declared once, kept by hand and by the window alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helix_desktop import program_settings
from helix_desktop.errors import ConfigFileMistake
from helix_desktop.program_settings import (
    LOG_SIZE,
    SHORTCUTS,
    THEME,
    ZOOM,
    ProgramSetting,
    ProgramSettings,
)

BY_HAND = """# mine
[appearance]
theme = "dark"   # easier on the eyes
zoom = 125
wallpaper = "clouds"  # another program's

[other]
thing = [1, 2]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "settings.toml"


def written(path: Path, text: str) -> ProgramSettings:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return ProgramSettings(path)


def test_without_a_file_the_defaults_hold_and_nothing_is_written(path: Path) -> None:
    assert ProgramSettings(path)[THEME] == "system"
    assert not path.exists()


def test_a_byte_order_mark_is_no_mistake(path: Path) -> None:
    """Editors of Windows put it at the beginning."""
    settings = written(path, "\ufeff" + BY_HAND)
    assert settings[ZOOM] == 125
    settings.change_setting(ZOOM, 150)
    assert ProgramSettings(path)[ZOOM] == 150


def test_what_is_changed_is_there_at_the_next_start(path: Path) -> None:
    ProgramSettings(path).change_setting(ZOOM, 150)
    ProgramSettings(path).change_setting(SHORTCUTS, {"find": "Ctrl+G"})
    again = ProgramSettings(path)
    assert (again[ZOOM], again[SHORTCUTS], again.file_mistakes) == (150, {"find": "Ctrl+G"}, ())


def test_comments_and_unknown_keys_survive_a_change(path: Path) -> None:
    kept = written(path, BY_HAND)
    assert kept.file_mistakes == ()
    kept.change_setting(ZOOM, 90)
    assert path.read_text(encoding="utf-8") == BY_HAND.replace("125", "90")


def test_a_file_that_still_names_the_address_for_updates_is_read_without_a_complaint(
    path: Path,
) -> None:
    kept = written(
        path,
        "[updates]\naddress = 'https://example.org/releases/latest'\n[appearance]\nzoom = 125\n",
    )
    assert (kept.file_mistakes, kept[ZOOM]) == ((), 125)


def test_the_default_leaves_the_file(path: Path) -> None:
    written(path, BY_HAND).change_setting(ZOOM, ZOOM.default)
    assert path.read_text(encoding="utf-8") == BY_HAND.replace("zoom = 125\n", "")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "[appearance]\n\ntheme = 'drak'\n",
            3,
            ["appearance.theme", "'system', 'light', 'dark'", "Did you mean 'dark'"],
        ),
        (
            "appearance.zoom = 20\n",
            1,
            ["appearance.zoom", "a whole number from 50 to 300", "100 is used"],
        ),
        ("[appearance]\nzoom = true\n", 2, ["a whole number"]),
        (
            "[appearance]\nthem = 'dark'\n",
            2,
            ["no setting appearance.them", "Did you mean appearance.theme"],
        ),
        ("[shortcuts]\nfind = 3\n", 1, ["shortcuts must be a table of texts"]),
        ("[appearance]\ntheme = \n", 2, ["not valid TOML"]),
    ],
)
def test_a_mistake_names_line_key_and_what_was_expected(
    path: Path, text: str, line: int, words: list[str]
) -> None:
    mistaken = written(path, text)
    (mistake,) = mistaken.file_mistakes
    assert f"settings.toml, line {line}:" in str(mistake)
    assert all(word in str(mistake) for word in words), str(mistake)
    assert (mistaken[THEME], mistaken[ZOOM]) == ("system", 100)


def test_a_file_that_is_not_toml_is_never_written_over(path: Path) -> None:
    mistaken = written(path, "theme = = dark")
    with pytest.raises(ConfigFileMistake, match="is unchanged"):
        mistaken.change_setting(THEME, "dark")
    assert path.read_text(encoding="utf-8") == "theme = = dark"


def test_mending_a_mistake_in_the_window_ends_it(path: Path) -> None:
    mistaken = written(path, "[appearance]\nzoom = 1\n")
    mistaken.change_setting(ZOOM, 110)
    assert mistaken.file_mistakes == ()
    assert ProgramSettings(path)[ZOOM] == 110


def test_a_value_that_is_not_allowed_changes_nothing(path: Path) -> None:
    kept = ProgramSettings(path)
    with pytest.raises(ConfigFileMistake, match="from 1 to 100"):
        kept.change_setting(LOG_SIZE, 0)
    assert kept[LOG_SIZE] == LOG_SIZE.default
    assert not path.exists()


def test_listeners_hear_of_changes_until_they_leave(path: Path) -> None:
    kept = ProgramSettings(path)
    heard = list[str]()
    leave = kept.subscribe_to_changes(lambda setting: heard.append(setting.key))
    kept.change_setting(THEME, "dark")
    leave()
    kept.change_setting(THEME, "light")
    assert heard == ["appearance.theme"]


def test_every_declaration_is_complete() -> None:
    for setting in program_settings.ALL:
        assert setting.check_value(setting.default) == setting.default
        assert setting.sentence.endswith("."), setting.key
        assert setting.title, setting.key
        assert setting.section, setting.key
        assert (setting.least is None) == (setting.most is None), setting.key


def test_every_setting_is_looked_at_by_somebody() -> None:
    """A switch that nobody asks does nothing."""
    declared_in = Path(program_settings.__file__)
    words_elsewhere: set[str] = set()
    for file in declared_in.parent.rglob("*.py"):
        if file != declared_in:
            words_elsewhere.update(re.findall(r"\w+", file.read_text("utf-8")))
    names = [
        name for name, value in vars(program_settings).items() if value in program_settings.ALL
    ]
    assert len(names) == len(program_settings.ALL)
    assert [name for name in names if name not in words_elsewhere] == []


def test_settings_that_there_were_are_no_mistake(path: Path) -> None:
    assert (
        written(path, "[appearance]\nmotion = false\n[updates]\ncheck = true\n").file_mistakes == ()
    )


def test_every_declaration_is_listed_once() -> None:
    declared = [
        value for value in vars(program_settings).values() if isinstance(value, ProgramSetting)
    ]
    assert [setting.key for setting in program_settings.ALL] == [
        setting.key for setting in declared
    ]
    assert len({setting.key for setting in declared}) == len(declared)


def test_a_file_that_is_opened_names_what_the_window_does_not_show(tmp_path: Path) -> None:
    settings = ProgramSettings(tmp_path / "settings.toml")
    settings.create_file_if_missing()
    text = settings.settings_path.read_text("utf-8")
    assert '# logs.level = "info"' in text
    assert "# notifications.failed = true" in text
    assert "appearance.theme" not in text
    uncommented = text.replace("# fleet.keep_days = 90", "fleet.keep_days = 30")
    settings.settings_path.write_text(uncommented, "utf-8")
    settings.create_file_if_missing()
    changed = ProgramSettings(settings.settings_path)
    assert changed.file_mistakes == ()
    assert changed[program_settings.KEEP_DAYS] == 30
