"""A tool that counts the words of a text."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from helix_desktop.extensions.extension_interfaces import Extension, ExtensionTool


async def count_words(arguments: Mapping[str, Any]) -> str:
    words = str(arguments["text"]).split()
    most_common = Counter(words).most_common(3)
    lines = [f"{count} {word}" for word, count in most_common]
    return f"{len(words)} words\n" + "\n".join(lines)


extension = Extension(
    title="Words",
    tools=[
        ExtensionTool(
            name="count_words",
            description="Count the words of a text, and name the most common ones.",
            schema={
                "type": "object",
                "properties": {"text": {"type": "string", "description": "The text"}},
                "required": ["text"],
            },
            run=count_words,
        )
    ],
)
