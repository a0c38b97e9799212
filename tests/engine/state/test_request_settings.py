"""Settings that hold on every branch: what was set last, and what is sent of them."""

from __future__ import annotations

from helix_desktop.engine.facts import (
    Fact,
    ModelRole,
    ModelSet,
    PolicySet,
    Recorded,
    RulesSet,
    SystemSet,
    Text,
    TodoSet,
    ToolsOffered,
    ToolSpec,
)
from helix_desktop.engine.state.request_settings import RULES_HEADER_TOKENS, RequestSettings


def after(*facts: Fact) -> RequestSettings:
    settings = RequestSettings()
    for seq, fact in enumerate(facts, 1):
        settings = settings.settings_after(Recorded("c", seq, 0.0, fact))
    return settings


def test_what_was_set_last_holds_and_other_facts_change_nothing() -> None:
    main = ModelSet(ModelRole.MAIN, "m", 9)
    fast = ModelSet(ModelRole.FAST, "f", 9)
    other = ModelSet(ModelRole.MAIN, "other", 9)
    settings = after(
        SystemSet("old", 1), main, fast, SystemSet("new", 2), other, PolicySet("helix")
    )
    assert settings.system == SystemSet("new", 2)
    assert settings.system_seq == 4
    assert settings.model_for_role(ModelRole.MAIN) == other
    assert settings.model_for_role(ModelRole.FAST) == fast
    assert settings.model_for_role(ModelRole.LONG) is None
    assert settings.policy == PolicySet("helix")
    assert settings.settings_after(Recorded("c", 9, 0.0, TodoSet(()))) is settings


def test_a_changed_rules_file_keeps_its_place_an_equal_one_its_number_and_an_empty_one_goes() -> (
    None
):
    first = RulesSet("AGENTS.md", "one", 1)
    second = RulesSet("src/AGENTS.md", "two", 1)
    changed = RulesSet("AGENTS.md", "three", 1)
    assert after(first, second, changed).rules == ((3, changed), (2, second))
    assert after(first, second, first).rules == ((1, first), (2, second))
    assert after(first, second, RulesSet("AGENTS.md", "", 0)).rules == ((2, second),)
    assert after(RulesSet("AGENTS.md", "", 0)).rules == ()


def test_the_system_prompt_comes_first_and_rules_are_pinned() -> None:
    tools = ToolsOffered((ToolSpec("read", "", "{}"),), 7)
    settings = after(RulesSet("AGENTS.md", "Never.", 2), SystemSet("You are.", 3), tools)
    prompt, rules = settings.settings_blocks
    assert (prompt.tokens, prompt.pinned) == (3, False)
    assert (rules.tokens, rules.pinned) == (2 + RULES_HEADER_TOKENS, True)
    text = "Rules of this workspace, from AGENTS.md:\n\nNever."
    assert rules.content == Text(text, 2 + RULES_HEADER_TOKENS)
    assert settings.settings_tokens == 3 + 2 + RULES_HEADER_TOKENS + 7
    assert after().settings_blocks == ()


def test_settings_are_compared_without_the_numbers_of_their_facts() -> None:
    rules = RulesSet("AGENTS.md", "one", 1)
    assert after(rules).comparable_settings == after(TodoSet(()), rules).comparable_settings
    assert after(rules).comparable_settings != after().comparable_settings
