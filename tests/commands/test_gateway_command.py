"""`gateway`: what is wrong is said before anything listens, and the address is printed for a
person and for a program.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import httpx
import pytest

from helix_desktop import running_instance
from helix_desktop.commands import gateway_command
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.gateway.gateway_socket import GATEWAY_PORT
from helix_desktop.gateway.request_routes import STATUS
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from tests.commands.conftest import Helix


@pytest.fixture
def places(tmp_path: Path) -> ProgramFolders:
    return find_program_folders(tmp_path / "helix")


def arguments(places: ProgramFolders, **given: object) -> Namespace:
    usual = {
        "places": places,
        "upstream": "",
        "no_folds": False,
        "fold_plans": False,
        "key": "",
        "workspace": "",
        "json": False,
        "socket": -1,
        "port": None,
    }
    return Namespace(**{**usual, **given})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--workspace", "Nowhere"), "There is no workspace Nowhere."),
        (("--upstream", "llm.example.org"), "llm.example.org"),
        (("--port", "70000"), "70000"),
    ],
)
def test_a_mistake_is_said_before_anything_listens(
    helix: Helix, tmp_path: Path, words: tuple[str, str], said: str
) -> None:
    thresholds = gc.get_threshold()
    pause = sys.getswitchinterval()
    try:
        code, out, err = helix("--home", tmp_path, "gateway", *words)
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(pause)
    assert (code != 0, out) == (True, "")
    assert said in err


def test_an_agent_without_a_name_is_served_as_the_options_say(places: ProgramFolders) -> None:
    usual = gateway_command._build_manual_registration(arguments(places), places)
    assert (usual.folds, usual.folds_plans, usual.chooses_workspace) == (True, False, True)
    assert (usual.upstream, usual.key, usual.key_host) == ("", "", "")
    chosen = gateway_command._build_manual_registration(
        arguments(places, upstream="https://a", no_folds=True, fold_plans=True, workspace="Work"),
        places,
    )
    assert (chosen.folds, chosen.folds_plans, chosen.chooses_workspace) == (False, True, False)
    assert chosen.upstream == "https://a"
    # The address stays the same, since it stands in an agent's settings.
    assert chosen.token == usual.token


async def test_a_providers_key_goes_to_its_own_host_alone(
    places: ProgramFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(InvalidInput, match="There is no stored key for anthropic") as refusal:
        await gateway_command._provider_key_and_host(places, "anthropic")
    assert refusal.value.remedy.endswith("helix-desktop provider add anthropic --key.")
    with pytest.raises(NotFound):
        await gateway_command._provider_key_and_host(places, "nobody")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "planted")
    key, host = await gateway_command._provider_key_and_host(places, "anthropic")
    assert (key, host) == ("planted", "api.anthropic.com")


@pytest.mark.parametrize(("workspace", "named"), [("", "Connected agents"), ("Work", "Work")])
def test_a_person_reads_how_to_use_the_address(
    places: ProgramFolders, capsys: pytest.CaptureFixture[str], workspace: str, named: str
) -> None:
    given = arguments(places, workspace=workspace)
    gateway_command._print_address(given, port=4356, token="a-token")
    out, err = capsys.readouterr()
    assert out == "listening on http://127.0.0.1:4356/t/a-token\n"
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:4356/t/a-token" in err
    assert f"Conversations are saved in {named}." in err


def test_the_port_is_the_named_one_or_a_free_one_or_that_of_the_parent(
    places: ProgramFolders,
) -> None:
    with gateway_command._open_listening_socket(arguments(places, port=0)) as free:
        number = free.getsockname()[1]
        assert number not in (0, GATEWAY_PORT)
        handed_on = os.dup(free.fileno())
        given = arguments(places, port=0, socket=handed_on)
        with gateway_command._open_listening_socket(given) as inherited:
            assert inherited.getsockname()[1] == number


def test_large_requests_do_not_hold_up_others() -> None:
    """In a process of its own, as it changes how the whole process works."""
    code = (
        "import gc, sys\n"
        "from helix_desktop.commands import gateway_command\n"
        "gateway_command._tune_for_large_requests()\n"
        "print(gc.get_threshold(), sys.getswitchinterval())\n"
    )
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == f"({gateway_command.YOUNG}, 3, {1 << 30}) {gateway_command.TURN}\n"


def test_it_answers_at_the_printed_address_until_it_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "helix_desktop", "--home", str(tmp_path / "helix")]
    command += ["gateway", "--port", "0", "--json"]
    environment = {**os.environ, "HOME": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as gateway:
        try:
            assert gateway.stdout is not None
            address = json.loads(gateway.stdout.readline())["address"]
            answer = httpx.get(f"{address}{STATUS}", trust_env=False)
            assert answer.status_code == 200
        finally:
            gateway.send_signal(signal.SIGINT)
            gateway.communicate()
    with socket.socket() as free:
        port = int(address.split(":")[2].partition("/")[0])
        assert free.connect_ex(("127.0.0.1", port)) != 0


class StoredWorkspaceOfNobody:
    """A workspace that no workbench of this process has open."""

    id = "nobody"


async def test_a_process_that_does_not_have_the_workspace_open_tells_the_gateway_to_ask_again(
    places: ProgramFolders,
) -> None:
    answer = await gateway_command.serve_gateway_or_release_workspace(
        arguments(places, release=False),
        StoredWorkspaceOfNobody(),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
    )
    assert answer == running_instance.LATER
