"""What the Python Package Index shows: the README with links that work there, and where
the project is.

The README's links are relative, as readers of the repository need them. On another site
they lead nowhere, so a build makes them absolute. The repository's address is where this
checkout comes from. Without one, links become plain text and the picture is left out.
"""

import os
import re
import subprocess
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)]+)\)")


class ReadmeAndLinks(MetadataHookInterface):
    """A hook of hatchling, named in pyproject.toml."""

    def update(self, metadata: dict[str, object]) -> None:
        repository = find_repository(Path(self.root))
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": readme_with_absolute_links(text, repository),
        }
        if repository:
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/main/resources/help/index.md",
                "Changelog": f"{repository}/blob/main/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }


def find_repository(root: Path) -> str:
    """Return the address of the public repository, or an empty string."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    asked = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
    address = re.sub(r"^git@([^:]+):", r"https://\1/", said).removesuffix(".git")
    return address if address.startswith("https://") else ""


def readme_with_absolute_links(text: str, repository: str) -> str:
    def absolute_link(match: re.Match[str]) -> str:
        is_picture, label, path = bool(match[1]), match[2], match[3]
        if not repository:
            return "" if is_picture else label
        kind = "raw" if is_picture else "blob"
        return f"{match[1]}[{label}]({repository}/{kind}/main/{path})"

    return RELATIVE_LINK.sub(absolute_link, text)
