"""What a request depends on besides messages. What was set last holds, on whichever branch."""

from dataclasses import replace
from functools import cached_property

from helix_desktop.engine import facts
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.fast_dataclass import dataclass

RULES_HEADER_TOKENS = 10  # What the line before the text of a rules file takes.
Rules = tuple[tuple[int, facts.RulesSet], ...]  # Each with the number of its fact.


@dataclass(frozen=True)
class RequestSettings:
    """What a request depends on besides the messages."""

    system: facts.SystemSet = facts.SystemSet("", 0)
    system_seq: int = 0
    rules: Rules = ()
    tools: facts.ToolsOffered = facts.ToolsOffered((), 0)
    policy: facts.PolicySet | None = None
    models: tuple[tuple[str, facts.ModelSet], ...] = ()

    def settings_after(self, recorded: facts.Recorded) -> "RequestSettings":
        """Return the settings after a fact: the same object if it sets nothing."""
        match recorded.fact:
            case facts.SystemSet() as system:
                return replace(self, system=system, system_seq=recorded.seq)
            case facts.RulesSet() as rules:
                all_rules = _update_rules_file(self.rules, recorded.seq, rules)
                return replace(self, rules=all_rules)
            case facts.ToolsOffered() as tools:
                return replace(self, tools=tools)
            case facts.PolicySet() as policy:
                return replace(self, policy=policy)
            case facts.ModelSet() as model:
                models = dict(self.models)
                models[model.role] = model
                sorted_models = sorted(models.items())
                return replace(self, models=tuple(sorted_models))
        return self

    def model_for_role(self, role: facts.ModelRole) -> facts.ModelSet | None:
        return dict(self.models).get(role)

    @property
    def comparable_settings(self) -> tuple[object, ...]:
        """Return the settings without the numbers of the facts that set them."""
        rules = tuple(fact for _, fact in self.rules)
        return (self.system, rules, self.tools, self.policy, self.models)

    @cached_property
    def settings_blocks(self) -> tuple[Block, ...]:
        """Return the system prompt and then each rules file, word for word."""
        blocks = []
        if self.system.text:
            prompt = facts.Text(self.system.text, self.system.tokens)
            blocks.append(_system_block(self.system_seq, prompt, pinned=False))
        for seq, rules in self.rules:
            text = f"Rules of this workspace, from {rules.path}:\n\n{rules.text}"
            rules_text = facts.Text(text, rules.tokens + RULES_HEADER_TOKENS)
            blocks.append(_system_block(seq, rules_text, pinned=True))
        return tuple(blocks)

    @cached_property
    def settings_tokens(self) -> int:
        """Return the tokens of system prompt, rules and tools."""
        return sum(block.tokens for block in self.settings_blocks) + self.tools.tokens


def _system_block(seq: int, text: facts.Text, *, pinned: bool) -> Block:
    ref = facts.PartRef(seq)
    return Block(ContextKind.SYSTEM, Role.SYSTEM, ref, text, text.tokens, pinned=pinned)


def _update_rules_file(known_rules: Rules, seq: int, new_rules: facts.RulesSet) -> Rules:
    """Update the rules. A changed file keeps its place; an empty one is removed."""
    rules_files: list[tuple[int, facts.RulesSet]] = []
    is_known = False
    for known_seq, rules in known_rules:
        if rules.path != new_rules.path:
            rules_files.append((known_seq, rules))
            continue
        is_known = True
        # An unchanged file keeps its number too, so that the view stays the same.
        if rules == new_rules:
            rules_files.append((known_seq, rules))
        else:
            rules_files.append((seq, new_rules))
    if not is_known:
        rules_files.append((seq, new_rules))
    return tuple((rules_seq, rules) for rules_seq, rules in rules_files if rules.text)
