"""The providers that the user has set up: `providers.toml` in the settings folder, to be edited by hand.

Comments and order survive changes. Keys are never in it, but in the keyring under the provider's name.

    [provider.work]
    kind = "openai-chat"
    base_url = "https://llm.example.org/v1"
    variable = "WORK_KEY"

    [provider.work.models."big-model"]      # what the catalogue does not know, or knows wrongly
    window = 200000
    input = 1.5                              # dollars per million tokens
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from helix_desktop import atomic_files
from helix_desktop.errors import ConfigFileMistake, HelixError, InvalidInput, NotFound, StoreFailed
from helix_desktop.json_values import Object, dump_json, object_at, parse_object
from helix_desktop.providers.http_transport import ProviderPatience
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig, check_provider_config

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,40}")
_TEXTS = ("kind", "base_url", "variable", "key_host", "key_header")
_TABLES = ("headers", "query")
CORRECTABLE = (
    "window", "max_output", "input", "output", "cache_read", "cache_write", "images", "tools",
    "reasoning", "temperature",
)  # fmt: skip


class ConfiguredProviders:
    """The providers of one settings folder. Every call reads the file again, since
    users may edit it.

    Beside it are two files of the program: what providers last reported about models,
    and what refusals revealed.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._reported = file.with_name("models-reported.json")
        self._learned = file.with_name("models-learned.json")

    def change_stamp(self) -> tuple[object, ...]:
        """Return a value that changes whenever one of these files does."""
        return (_file_stamp(self._file), _file_stamp(self._reported), _file_stamp(self._learned))

    def list_providers(self) -> tuple[ProviderConfig, ...]:
        """Return all providers in the file's order. ConfigFileMistake names the first mistake."""
        tables = self._provider_tables(self._read_document())
        return tuple(self._config_from_table(name, table) for name, table in tables.items())

    def find_provider(self, name: str) -> ProviderConfig:
        """Return a provider that is set up, or a well-known one whose usual settings suffice.

        Raises NotFound, with the names that there are, if it is neither.
        """
        tables = self._provider_tables(self._read_document())
        if name in tables:
            return self._config_from_table(name, tables[name])
        preset = PRESETS.get(name)
        if preset is not None:
            reported = {**preset.reported, **_model_notes_of(self._reported, name)}
            learned = _model_notes_of(self._learned, name)
            return replace(preset, reported=reported, learned=learned)

        available = list(tables)
        for preset_name in PRESETS:
            if preset_name not in tables:
                available.append(preset_name)
        raise NotFound(
            f"There is no provider {name!r}.",
            remedy=f"Available: {', '.join(available)}. To add another provider, use `provider add`.",
        )

    def save_provider(self, config: ProviderConfig) -> ProviderConfig:
        """Add a provider to the file, or replace its settings, and return it as it was saved.

        What the user corrected about its models stays.
        """
        if not NAME.fullmatch(config.name):
            raise InvalidInput(
                f"{config.name!r} is not a valid provider name.",
                remedy="Use only lowercase letters, digits, periods, hyphens and underscores.",
            )
        checked = check_provider_config(config)
        with self._open_document_for_change() as document:
            tables = self._provider_tables(document, make=True)
            table = tables.setdefault(checked.name, tomlkit.table())
            _set_or_remove(table, "kind", checked.kind)
            _set_or_remove(table, "base_url", checked.base_url)
            _set_or_remove(table, "variable", checked.variable)
            _set_or_remove(table, "key_host", checked.key_host)
            _set_or_remove(table, "key_header", checked.key_header)
            _set_or_remove(table, "headers", dict(checked.headers))
            _set_or_remove(table, "query", dict(checked.query))
        return checked

    def remove_provider(self, name: str) -> None:
        """Remove a provider and what the user corrected about its models from the file."""
        with self._open_document_for_change() as document:
            tables = self._provider_tables(document)
            if name not in tables:
                raise NotFound(f"The provider {name!r} is not set up.")
            del tables[name]

    def correct_model(
        self, provider: str, model: str, values: Mapping[str, float | str | bool]
    ) -> None:
        """Save what the user knows better than the catalogue about a model.

        A well-known provider that is used as it is gets a place in the file for it.
        """
        for name in values:
            if name not in CORRECTABLE:
                raise InvalidInput(
                    f"{name} cannot be overridden.",
                    remedy=f"These values can be overridden: {', '.join(CORRECTABLE)}.",
                )
        if provider not in self._provider_tables(self._read_document()):
            self.save_provider(self.find_provider(provider))
        with self._open_document_for_change() as document:
            table = self._provider_tables(document)[provider]
            models = table.setdefault("models", tomlkit.table(is_super_table=True))
            models.setdefault(model, tomlkit.table()).update(values)

    def forget_corrections(self, provider: str, model: str) -> None:
        """Forget what the user and refusals said about a model, so that the provider's
        list counts again.
        """
        with self._open_document_for_change() as document:
            table = self._provider_tables(document).get(provider, {})
            corrections = table.get("models", {})
            corrections.pop(model, None)
        learned = dict(_model_notes_of(self._learned, provider))
        if model in learned:
            del learned[model]
            _write_model_notes(self._learned, provider, learned)

    def save_reported_models(self, provider: str, reported: Mapping[str, Object]) -> None:
        """Save what a provider said about its models, to know windows without asking again."""
        with suppress(StoreFailed):  # On a read-only disk, the provider is asked again.
            _write_model_notes(self._reported, provider, reported)

    def save_reported_model(self, provider: str, model: str, reported: Object) -> None:
        """Save what a provider says of one of its models now."""
        models = dict(_model_notes_of(self._reported, provider))
        models[model] = reported
        self.save_reported_models(provider, models)

    def save_learned_window(
        self, provider: str, model: str, window: int, *, is_assumed: bool = False
    ) -> None:
        """Save a window that a refusal named, or that a reply made likely (`is_assumed`).
        Only the user overrides it.
        """
        learned: Object = {"window": window}
        if is_assumed:
            learned["is_assumed"] = True
        models = dict(_model_notes_of(self._learned, provider))
        models[model] = learned
        _write_model_notes(self._learned, provider, models)

    @contextmanager
    def _open_document_for_change(self) -> Iterator[tomlkit.TOMLDocument]:
        """Yield the current file as a document. If the caller changes it, it is written at the end.

        Meanwhile, no other program of ours can change the file.
        """
        with atomic_files.hold_for_change(self._file):
            document = self._read_document()
            before = tomlkit.dumps(document)
            yield document
            after = tomlkit.dumps(document)
            if after != before:
                atomic_files.write_file_atomically(self._file, after, private=True)

    def _read_document(self) -> tomlkit.TOMLDocument:
        """Return the file as it is now, with its comments. Without a file, the document is empty."""
        try:
            return tomlkit.parse(atomic_files.read_settings_text(self._file))
        except FileNotFoundError:
            return tomlkit.document()
        except TOMLKitError as error:
            raise ConfigFileMistake(
                f"{self._file} is not valid TOML: {error}.",
                remedy="Fix the line that the error names.",
            ) from error

    def _provider_tables(self, document: tomlkit.TOMLDocument, *, make: bool = False) -> Any:
        """Return the providers' tables by name. `make`: add the table of them if it is missing."""
        tables = document.get("provider", {})
        if not _has_only_provider_tables(tables):
            raise ConfigFileMistake(
                f"In {self._file}, each provider must be a table: [provider.name]."
            )
        if make and "provider" not in document:
            document["provider"] = tomlkit.table(is_super_table=True)
            return document["provider"]
        return tables

    def _config_from_table(self, name: str, table: Mapping[str, Any]) -> ProviderConfig:
        """Return what the file says of a provider. What it leaves out is as usual for this name."""
        preset = PRESETS.get(name, ProviderConfig(name))
        text = partial(self._text_setting, name, table)
        kind = text("kind", preset.kind)
        base_url = text("base_url", preset.base_url)
        variable = text("variable", preset.variable)
        key_host = text("key_host", "")
        key_header = text("key_header", preset.key_header)
        headers = self._texts_setting(name, table, "headers")
        query = self._texts_setting(name, table, "query")
        models = self._table_setting(name, table, "models")
        config = ProviderConfig(
            name,
            kind=kind,
            base_url=base_url,
            variable=variable,
            key_host=key_host,
            key_header=key_header,
            headers=tuple(headers.items()),
            query=tuple(query.items()),
            patience=self._patience_setting(name, table),
            corrections=_unwrap_corrections(models),
            reported=_model_notes_of(self._reported, name),
            learned=_model_notes_of(self._learned, name),
        )
        try:
            return check_provider_config(config)
        except InvalidInput as error:
            raise ConfigFileMistake(
                f"In {self._file}: {error.what}", remedy=error.remedy
            ) from error

    def _text_setting(self, provider: str, table: Mapping[str, Any], key: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise ConfigFileMistake(
                f"In {self._file}, provider.{provider}.{key} must be text, not {value!r}."
            )
        return str(value)

    def _table_setting(
        self, provider: str, table: Mapping[str, Any], key: str
    ) -> Mapping[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, Mapping):
            raise ConfigFileMistake(
                f"In {self._file}, provider.{provider}.{key} must be a table, not {value!r}."
            )
        return value

    def _texts_setting(self, provider: str, table: Mapping[str, Any], key: str) -> dict[str, str]:
        values = self._table_setting(provider, table, key)
        return {str(name): str(value) for name, value in values.items()}

    def _patience_setting(self, provider: str, table: Mapping[str, Any]) -> ProviderPatience:
        """Return how long to wait for a provider, and how often to try.

        `[provider.name.patience]` has the values that differ from the usual ones. Raises
        ConfigFileMistake for an unknown name, and for what is no positive number.
        """
        defaults = {field.name: field.default for field in fields(ProviderPatience)}
        values: dict[str, Any] = {}
        for key, value in self._table_setting(provider, table, "patience").items():
            if key not in defaults or not _is_positive_number(value):
                names = ", ".join(sorted(defaults))
                raise ConfigFileMistake(
                    f"In {self._file}, provider.{provider}.patience.{key} is not valid: expected one of {names} with a positive number."
                )
            if isinstance(defaults[key], int):  # A number of attempts.
                values[key] = int(value)
            else:
                values[key] = float(value)
        return ProviderPatience(**values)


def _has_only_provider_tables(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(isinstance(table, Mapping) for table in value.values())


def _read_model_notes(file: Path) -> Object:
    """Return what one of the program's files says of models, by provider."""
    try:
        return parse_object(file.read_bytes()) or {}
    except OSError:
        return {}  # Nothing is lost, as these values can be fetched again.


def _model_notes_of(file: Path, provider: str) -> Mapping[str, Object]:
    models = object_at(_read_model_notes(file), provider)
    return {model: object_at(models, model) for model in models}


def _write_model_notes(file: Path, provider: str, models: Mapping[str, Object]) -> None:
    """Replace what the file says of a provider's models. Other providers stay."""
    content = _read_model_notes(file)
    content[provider] = dict(models)
    atomic_files.write_file_atomically(file, dump_json(content).decode(), private=True)


def _file_stamp(file: Path) -> tuple[int, int, int] | None:
    """Return a value that changes whenever the file does. None: there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_positive_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < math.inf


def _set_or_remove(table: Any, name: str, value: str | dict[str, str]) -> None:
    """Set a value, or remove it from the file if empty."""
    if value:
        table[name] = value
    else:
        table.pop(name, None)


def _unwrap_corrections(corrections: Mapping[str, Any]) -> dict[str, Object]:
    """Return the corrections as plain values instead of tomlkit's."""
    if hasattr(corrections, "unwrap"):
        corrections = corrections.unwrap()
    plain: dict[str, Object] = {}
    for model, values in corrections.items():
        if isinstance(values, Mapping):
            plain[str(model)] = dict(values)
    return plain


def find_config_mistake(file: Path) -> HelixError | None:
    """Return what is wrong with the file, or None, for the doctor."""
    try:
        ConfiguredProviders(file).list_providers()
    except (ConfigFileMistake, StoreFailed) as error:
        return error
    return None
