"""What is declared of a provider, by the program and by extensions."""

from collections.abc import Mapping
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """`title`: how it writes its own name. `kind`: its protocol, such as "openai-chat".

    `key_variable`: the environment variable in which its users keep their key. A provider
    without one needs no key. `key_header`: the header for the key, if it is not its protocol's.
    `models`: what its list of models does not say, by a model's name, such as `window`,
    `max_output` and the prices `input` and `output` in dollars per million tokens.
    """

    name: str
    title: str
    kind: str
    base_url: str = ""
    key_variable: str = ""
    key_header: str = ""
    models: Mapping[str, Mapping[str, float | bool | str]] = field(default_factory=dict)
