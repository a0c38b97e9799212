"""The settings of the agents after the gateway's address was put in: the user's own stay as they were."""

from __future__ import annotations

from helix_desktop.gateway import known_agents


def test_gemini_keeps_the_users_variables_and_has_one_address() -> None:
    before = "GEMINI_API_KEY=k\nGOOGLE_GEMINI_BASE_URL=http://old\nX=1"
    after = known_agents._change_gemini_settings(before, "http://127.0.0.1:1/a")
    assert after == "GEMINI_API_KEY=k\nX=1\nGOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1/a\n"
    assert known_agents._change_gemini_settings(after, "http://b") == after.replace("http://127.0.0.1:1/a", "http://b")
    assert known_agents._change_gemini_settings("", "http://b") == "GOOGLE_GEMINI_BASE_URL=http://b\n"
