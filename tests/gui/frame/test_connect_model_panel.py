"""Connecting a model: a key, a server of one's own, or one that runs here already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QSignalSpy, QTest

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.providers_page import ProvidersPage
from tests.gui.fake_setup import ANTHROPIC, OLLAMA, QWEN, SONNET, FakeSetup
from tests.gui.settings.page_widgets import button, said


def test_a_pasted_key_is_tested_kept_and_its_best_model_taken(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    chosen = QSignalSpy(page.model_chosen)
    page._panel._key.setText("bad")
    QTest.mouseClick(button(page, "Connect"), Qt.MouseButton.LeftButton)
    assert "Anthropic does not accept this key. Look whether all of it was copied." in said(page)
    page._panel._key.setText("good")
    QTest.keyClick(page._panel._key, Qt.Key.Key_Return)
    assert setup.added == [(ANTHROPIC, "good", "keyring")]
    assert chosen.at(0) == [SONNET.name]
    assert page._panel._key.text() == ""
    assert "key: keyring" in said(page)


def test_with_another_service_neither_the_key_nor_what_was_said_stays(window: MainWindow) -> None:
    page = ProvidersPage(FakeSetup(), window.background_runner)
    page._panel._key.setText("bad")
    page._panel.test_key_and_add_provider()
    assert "does not accept this key" in said(page)
    page._panel._provider.setCurrentIndex(page._panel._provider.count() - 1)
    assert page._panel._key.text() == ""
    assert "does not accept this key" not in said(page)


def test_without_a_keyring_the_user_chooses_where_the_key_goes(window: MainWindow) -> None:
    setup = FakeSetup(keyring=False)
    page = ProvidersPage(setup, window.background_runner)
    page._panel._key.setText("good")
    page._panel.test_key_and_add_provider()
    assert setup.added == []
    QTest.mouseClick(button(page, "Use the key for this session only"), Qt.MouseButton.LeftButton)
    assert setup.added == [(ANTHROPIC, "good", "session")]


def test_servers_on_this_machine_are_found_by_themselves(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    chosen = QSignalSpy(page.model_chosen)
    QTest.mouseClick(button(page, "qwen3 from Ollama · 32K tokens"), Qt.MouseButton.LeftButton)
    assert chosen.at(0) == [QWEN.name]
    assert setup.added == [(OLLAMA, "", "keyring")]
    none = ProvidersPage(FakeSetup(servers=False), window.background_runner)
    assert "No model server was found at its usual port on this computer." in said(none)


def test_a_model_that_its_server_calls_by_the_path_of_its_file_is_shown_by_its_name(
    window: MainWindow,
) -> None:
    page = ProvidersPage(FakeSetup(), window.background_runner)
    model = replace(QWEN, name="llamacpp//home/ann/models/SmolLM2.gguf", window=8_192)
    page._panel._add_buttons_of_server(OLLAMA, [model])
    assert button(page, "SmolLM2.gguf from Ollama · 8.2K tokens")


def test_a_connected_server_on_this_machine_is_not_denied(window: MainWindow) -> None:
    """Its address is none of the usual ones, so that the search does not find it."""
    setup = FakeSetup(servers=False)
    connected = replace(OLLAMA, address="http://127.0.0.1:8971/v1")
    setup.added.append((connected, "", "keyring"))
    page = ProvidersPage(setup, window.background_runner)
    assert "No model server was found at its usual port on this computer." not in said(page)
    assert "No other model server was found on this computer." in said(page)


def test_a_server_without_a_key_is_connected_by_its_address_under_this_computer(
    window: MainWindow,
) -> None:
    """It was the last of 14 services under "With an API key"."""
    setup = FakeSetup(servers=False)
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    assert "At another port or on another computer" in said(page)
    page.show()
    assert QTest.qWaitForWindowExposed(page)
    assert 0 < panel._local_address.y() < panel._provider.y()
    panel._local_address.setText("localhost:8123/v1")
    panel._key.setText("typed for another service")
    QTest.keyClick(panel._local_address, Qt.Key.Key_Return)
    assert [(p.name, p.address, key) for p, key, _ in setup.added] == [
        ("local-8123", "http://localhost:8123/v1", "")
    ]
    assert "Connected. " in panel._local_status_label.text()


@pytest.mark.parametrize(
    "typed",
    ["rubbish ad dress", "ftp://127.0.0.1", "http://", "http://host:port/v1", "http://[broken/v1"],
)
def test_what_is_no_address_is_quoted_as_it_was_typed(window: MainWindow, typed: str) -> None:
    """It spoke of the address of "rubbish-ad-dress", which nobody had typed."""
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    panel._local_address.setText(typed)
    panel.test_local_address_and_add_provider()
    sentence = f"“{typed}” is not the address of a server. Write it like this: "
    assert panel._local_status_label.text() == f"{sentence}http://localhost:8080/v1"
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    panel._address.setText(typed)
    panel._key.setText("good")
    panel.test_key_and_add_provider()
    assert panel._status_label.text() == f"{sentence}https://llm.example.org/v1"
    assert setup.added == []
    assert setup.checked == []


def test_another_server_needs_an_address(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    assert panel._key.placeholderText() == "Paste the key"
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    assert panel._key.placeholderText() == "Paste the key, if a key is needed"
    assert not panel._address.isHidden()
    panel._address.setText("https://llm.example.org/v1")
    panel._key.setText("good")
    panel.test_key_and_add_provider()
    assert [(p.name, p.address, p.kind) for p, _, _ in setup.added] == [
        ("llm-example-org", "https://llm.example.org/v1", "openai-chat")
    ]


def test_a_wrong_address_is_said_before_a_key_is_asked_for(window: MainWindow) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    page.show()
    panel = page._panel
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    panel._address.setFocus()
    QTest.keyClicks(panel._address, "llm.wrong.example/v1")
    panel._address.editingFinished.emit()
    assert "No connection to llm-wrong-example: host not found." in said(page)
    panel._address.clear()
    QTest.keyClicks(panel._address, "llm.example/v1")
    panel._address.editingFinished.emit()
    assert setup.checked == ["https://llm.wrong.example/v1", "https://llm.example/v1"]
    assert "host not found" not in said(page)
    assert setup.added == []


def test_the_address_that_the_environment_names_is_offered_with_its_key(window: MainWindow) -> None:
    setup = FakeSetup()
    offered = replace(
        ANTHROPIC, address="https://proxy.example", variable="ANTHROPIC_API_KEY", key="environment"
    )
    setup.well_known = (
        replace(offered, address_variable="ANTHROPIC_BASE_URL"),
        replace(ANTHROPIC, name="plain"),
    )
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    assert panel._address.text() == "https://proxy.example"
    assert not panel._address.isHidden()
    assert "This address is set by the environment variable ANTHROPIC_BASE_URL." in said(page)
    assert panel._key.placeholderText() == "Leave empty to use the key in ANTHROPIC_API_KEY"
    panel._key.setText("good")
    panel._address.setText("proxy.example/v1")
    panel.test_key_and_add_provider()
    assert [(each.name, each.address) for each, *_ in setup.added] == [
        ("anthropic", "https://proxy.example/v1")
    ]
    panel._provider.setCurrentIndex(1)
    assert panel._address.isHidden()


@pytest.mark.parametrize(
    ("written", "name", "address"),
    [
        ("http://127.0.0.1:8000/v1", "local-8000", "http://127.0.0.1:8000/v1"),
        ("localhost:8080/v1", "local-8080", "http://localhost:8080/v1"),
        ("llm.example.org/v1", "llm-example-org", "https://llm.example.org/v1"),
    ],
)
def test_a_server_of_ones_own_needs_no_key(
    window: MainWindow, written: str, name: str, address: str
) -> None:
    setup = FakeSetup()
    page = ProvidersPage(setup, window.background_runner)
    panel = page._panel
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    panel._address.setText(written)
    panel.test_key_and_add_provider()
    assert [(p.name, p.address, key) for p, key, _ in setup.added] == [(name, address, "")]
    assert "Connected. " in said(page)
