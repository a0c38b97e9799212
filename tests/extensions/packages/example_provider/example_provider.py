"""An extension for Helix Desktop that declares a provider. It has no code of its own."""

from helix_desktop.extensions.extension_interfaces import Extension
from helix_desktop.providers.known_provider import KnownProvider

extension = Extension(
    title="Example provider",
    providers=[
        KnownProvider(
            name="example",
            title="Example",
            kind="openai-chat",
            base_url="https://llm.example.org/v1",
            key_variable="HELIX_KEY_EXAMPLE",
            key_header="api-key",
            models={"example-large": {"window": 200_000, "input": 1.5, "output": 6.0}},
        )
    ],
)
