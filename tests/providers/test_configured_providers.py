from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.errors import ConfigFileMistake, InvalidInput, NotFound, StoreFailed
from helix_desktop.providers.configured_providers import ConfiguredProviders, find_config_mistake
from helix_desktop.providers.http_transport import ProviderPatience
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig, describe_model

WORK = ProviderConfig(
    "work",
    base_url="https://llm.example.org/v1",
    variable="WORK_KEY",
    key_header="api-key",
    headers=(("x-team", "7"),),
    query=(("api-version", "2024-10-21"),),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings" / "providers.toml"


@pytest.fixture
def configured(file: Path) -> ConfiguredProviders:
    return ConfiguredProviders(file)


def test_what_was_put_is_there_and_can_be_removed(configured: ConfiguredProviders) -> None:
    configured.save_provider(WORK)
    configured.save_provider(PRESETS["ollama"])
    assert configured.list_providers() == (WORK, PRESETS["ollama"])
    assert configured.find_provider("work") == WORK
    configured.remove_provider("work")
    assert configured.list_providers() == (PRESETS["ollama"],)
    with pytest.raises(NotFound):
        configured.remove_provider("work")


def test_well_known_ones_are_there_without_being_set_up(configured: ConfiguredProviders) -> None:
    assert configured.find_provider("openai") == PRESETS["openai"]
    assert configured.list_providers() == ()
    with pytest.raises(NotFound, match="no provider 'opnai'") as caught:
        configured.find_provider("opnai")
    assert "openai" in caught.value.remedy


def test_comments_and_order_survive(configured: ConfiguredProviders, file: Path) -> None:
    configured.save_provider(WORK)
    file.write_text(f"# mine\n{file.read_text()}".replace("variable", "# the key\nvariable"))
    configured.save_provider(replace(WORK, base_url="https://other.example.org/v1", headers=()))
    text = file.read_text()
    assert (
        "# mine" in text,
        "# the key" in text,
        "other.example.org" in text,
        "x-team" in text,
    ) == (
        True,
        True,
        True,
        False,
    )


def test_a_model_can_be_corrected_and_stays_so(configured: ConfiguredProviders) -> None:
    configured.correct_model("openai", "gpt-9.5", {"window": 77_000, "input": 1.5})
    configured.correct_model("openai", "gpt-9.5", {"tools": False})
    configured.save_provider(PRESETS["openai"])
    info = describe_model(configured.find_provider("openai"), "gpt-9.5")
    assert (info.window, info.prices.input, info.abilities.tools) == (77_000, 1.5, False)
    with pytest.raises(InvalidInput, match="color"):
        configured.correct_model("openai", "gpt-9.5", {"color": 1})


def test_what_a_provider_said_is_remembered(configured: ConfiguredProviders, file: Path) -> None:
    configured.save_reported_models(
        "ollama", {"llama3.3": {"window": 8192, "note": "window as loaded in Ollama"}}
    )
    configured.save_reported_models("openai", {})
    info = describe_model(configured.find_provider("ollama"), "llama3.3")
    assert (info.window, info.note) == (8192, "window as loaded in Ollama")
    file.with_name("models-reported.json").write_text("{broken")
    assert describe_model(configured.find_provider("ollama"), "llama3.3").window == 131_072


def test_patience_can_be_set(configured: ConfiguredProviders, file: Path) -> None:
    configured.save_provider(WORK)
    file.write_text(
        f"{file.read_text()}\n[provider.work.patience]\nfirst_byte = 900\nattempts = 3\n"
    )
    assert configured.find_provider("work").patience == ProviderPatience(
        first_byte=900.0, attempts=3
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[provider.work", "not valid TOML"),
        ("provider = 7", "each provider must be a table"),
        ("[provider]\nwork = 7", "each provider must be a table"),
        ("[provider.work]\nbase_url = 7", "must be text"),
        ("[provider.work]\nbase_url = 'https://x.org'\nheaders = 7", "must be a table"),
        (
            "[provider.work]\nbase_url = 'https://x.org'\n[provider.work.patience]\nsilence = 'long'",
            "patience.silence",
        ),
        (
            "[provider.work]\nbase_url = 'https://x.org'\n[provider.work.patience]\nattemps = 3",
            "patience.attemps",
        ),
        ("[provider.work]\nkind = 'openai-chat'", "must start with https"),
    ],
)
def test_mistakes_are_sentences_that_name_the_file(
    configured: ConfiguredProviders, file: Path, text: str, words: str
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(ConfigFileMistake, match=words) as caught:
        configured.list_providers()
    assert str(file) in str(caught.value)
    assert isinstance(find_config_mistake(file), ConfigFileMistake)


def test_a_sound_file_has_no_mistake(configured: ConfiguredProviders, file: Path) -> None:
    assert find_config_mistake(file) is None
    configured.save_provider(WORK)
    assert find_config_mistake(file) is None


@pytest.mark.parametrize("name", ["", "Work", "a/b", "a b", "-a", "x" * 60])
def test_names_are_plain(configured: ConfiguredProviders, file: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="not a valid provider name"):
        configured.save_provider(replace(WORK, name=name))
    assert not file.exists()


def test_what_cannot_be_saved_leaves_nothing_behind(
    configured: ConfiguredProviders, file: Path
) -> None:
    configured.save_provider(WORK)
    before = file.read_text()
    with pytest.raises(InvalidInput, match="Only UTF-8"):
        configured.save_provider(replace(WORK, base_url="http://localhost/\udcff"))
    assert file.read_text() == before
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_a_folder_in_the_way_is_a_sentence(configured: ConfiguredProviders, file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(StoreFailed, match="cannot be read"):
        configured.list_providers()
    blocked = file.parent / "a file"
    blocked.write_text("")
    with pytest.raises(StoreFailed):
        ConfiguredProviders(blocked / "providers.toml").save_provider(WORK)


def test_models_are_listed_although_what_is_known_of_them_cannot_be_kept(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    (file.parent / "models-reported.json").mkdir()
    configured = ConfiguredProviders(file)
    configured.save_reported_models("demo", {"demo": {"window": 8_000}})
    assert [one.name for one in configured.list_providers()] == []
