"""Whether a workspace is shared, by its settings or by the environment, and with which key."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.store.shared.row_encryption import (
    RowCipher,
    format_key_line,
    new_workspace_key,
)
from helix_desktop.store.workspace_link import (
    ADDRESS_VARIABLE,
    KEY_VARIABLE,
    check_only_one_in_space,
    is_set_up_to_be_shared,
    read_store_key,
)
from helix_desktop.store.workspace_settings import WorkspaceConfig

ADDRESS = "postgresql://me@host/helix"


def known(folder: Path, **shared: str) -> KnownWorkspace:
    return KnownWorkspace("w", folder, WorkspaceConfig(name="Work", shared=shared))


def environment(key: bytes) -> dict[str, str]:
    return {ADDRESS_VARIABLE: ADDRESS, KEY_VARIABLE: format_key_line(key)}


def test_a_saved_address_is_enough_and_without_any_it_is_not_shared(tmp_path: Path) -> None:
    assert is_set_up_to_be_shared(known(tmp_path, url=ADDRESS), {})
    assert not is_set_up_to_be_shared(known(tmp_path), {})
    assert not is_set_up_to_be_shared(known(tmp_path, environment="ab"), {})


def test_the_environment_shares_what_was_shared_with_it_and_no_other_workspace(
    tmp_path: Path,
) -> None:
    key = new_workspace_key()
    environ = environment(key)
    assert is_set_up_to_be_shared(known(tmp_path, environment="ab"), environ)
    assert not is_set_up_to_be_shared(known(tmp_path, environment=""), environ), "it has ended"
    assert not is_set_up_to_be_shared(known(tmp_path), environ), "it was never shared"


def test_a_key_that_is_missing_or_wrong_is_an_error_where_it_is_read_and_shares_nothing(
    tmp_path: Path,
) -> None:
    key = new_workspace_key()
    assert read_store_key(environment(key)) == key
    without_key = {ADDRESS_VARIABLE: ADDRESS}
    with pytest.raises(NotFound, match="HELIX_STORE is set, but HELIX_STORE_KEY is not"):
        read_store_key(without_key)
    wrong_key = {ADDRESS_VARIABLE: ADDRESS, KEY_VARIABLE: "nonsense"}
    with pytest.raises(InvalidInput):
        read_store_key(wrong_key)
    for environ in (without_key, wrong_key):
        assert not is_set_up_to_be_shared(known(tmp_path), environ)


async def test_one_computer_has_one_workspace_in_a_space(tmp_path: Path) -> None:
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    space = RowCipher(new_workspace_key()).space.hex()
    shared = workspaces.create_stored_workspace("Shared", tmp_path)
    opened = await workspaces.open_stored_workspace(shared.id)
    opened.change_settings({"shared.environment": space})
    await opened.aclose()
    other = workspaces.create_stored_workspace("Other", tmp_path)

    check_only_one_in_space(shared.folder, space)
    check_only_one_in_space(other.folder, "another space")
    with pytest.raises(ActionRefused, match="The workspace Shared on this computer is already"):
        check_only_one_in_space(other.folder, space)
