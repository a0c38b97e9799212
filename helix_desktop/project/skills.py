"""Skills as in agentskills.io: a folder with SKILL.md, which has a name, a description
and instructions.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helix_desktop.errors import InvalidInput
from helix_desktop.project import project_item
from helix_desktop.project.project_item import ProjectItem, ProjectReading

SKILL_FOLDERS = (".agents/skills", ".claude/skills")
FIELDS = frozenset({"name", "description", "license", "allowed-tools", "metadata", "compatibility"})
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_024
LONGEST_COMPATIBILITY = 500
MOST_FILES = 500
MOST_BYTES = 20 << 20
_MOST_LISTED_FILES = 2_000


def parse_skill(text: str) -> tuple[Mapping[str, Any], str]:
    """Split SKILL.md into its values and the instructions."""
    if not project_item.without_byte_order_mark(text).startswith("---"):
        raise InvalidInput("SKILL.md must start with YAML frontmatter (---).")
    values, body = project_item.split_front_matter(text)
    return values, body.strip()


def find_skill_mistakes(values: Mapping[str, Any], folder: str) -> list[str]:
    """Return what in a skill's values breaks the specification, each as a sentence. `folder`:
    the name of the skill's folder, which must be the skill's name.
    """
    mistakes = []
    unexpected_fields = sorted(set(values) - FIELDS)
    if unexpected_fields:
        mistakes.append(f"Unexpected fields in frontmatter: {', '.join(unexpected_fields)}.")
    if "name" in values:
        mistakes += _find_mistakes_in_skill_name(values["name"], folder)
    else:
        mistakes.append("Missing required field in frontmatter: name")
    if "description" not in values:
        mistakes.append("Missing required field in frontmatter: description")
    elif not project_item.text_or_empty(values["description"]):
        mistakes.append("The field 'description' must be a non-empty string.")
    elif len(values["description"]) > LONGEST_DESCRIPTION:
        mistakes.append(
            f"The description exceeds {LONGEST_DESCRIPTION} characters ({len(values['description'])})."
        )
    compatibility = values.get("compatibility", "")
    if not isinstance(compatibility, str):
        mistakes.append("The field 'compatibility' must be a string.")
    elif len(compatibility) > LONGEST_COMPATIBILITY:
        mistakes.append(
            f"The field 'compatibility' exceeds {LONGEST_COMPATIBILITY} characters ({len(compatibility)})."
        )
    return mistakes


def _find_mistakes_in_skill_name(value: Any, folder: str) -> list[str]:
    """Return what in a skill's name breaks the specification."""
    if not project_item.text_or_empty(value):
        return ["The field 'name' must be a non-empty string."]
    name = unicodedata.normalize("NFKC", value.strip())
    mistakes = []
    if len(name) > LONGEST_NAME:
        mistakes.append(f"The skill name exceeds the {LONGEST_NAME} character limit ({len(name)}).")
    if name != name.lower():
        mistakes.append(f"The skill name {name!r} must be lowercase.")
    if name != name.strip("-"):
        mistakes.append("The skill name cannot start or end with a hyphen.")
    if "--" in name:
        mistakes.append("The skill name cannot contain consecutive hyphens.")
    letters = name.replace("-", "")
    if letters and not letters.isalnum():
        mistakes.append(
            f"The skill name {name!r} contains invalid characters. Use only letters, digits and hyphens."
        )
    if unicodedata.normalize("NFKC", folder) != name:
        mistakes.append(f"The directory name {folder!r} must match skill name {name!r}.")
    return mistakes


def find_skills(skills_folder: Path, reading: ProjectReading) -> Iterator[ProjectItem]:
    """Yield a folder's skills. Harmless differences from the specification become notes."""
    for folder in reading.list_folder_inside(skills_folder)[:1_000]:
        if not reading.contains(folder):
            continue
        path = _find_skill_file(folder)
        if path is None:
            continue
        text = reading.read_text(path)
        if text is not None:
            yield _build_skill_item(folder, path, text, reading)


def _find_skill_file(folder: Path) -> Path | None:
    for name in ("SKILL.md", "skill.md"):
        path = folder / name
        if path.is_file():
            return path
    return None


def _build_skill_item(folder: Path, path: Path, text: str, reading: ProjectReading) -> ProjectItem:
    """Return a skill as an item that the user can trust. They trust its instructions with the
    hashes of all other files in its folder, so that a change to these needs new trust.
    """
    try:
        values, body = parse_skill(text)
    except InvalidInput as error:
        return ProjectItem(
            kind="skill",
            name=folder.name,
            path=path,
            text=text,
            body="",
            own=reading.own,
            notes=(str(error),),
            broken=True,
        )
    name = project_item.text_or_empty(values.get("name"))
    normal_name = unicodedata.normalize("NFKC", name) or folder.name
    description = project_item.text_or_empty(values.get("description"))
    words = description.split()
    short_description = " ".join(words)[:LONGEST_DESCRIPTION]
    notes = find_skill_mistakes(values, folder.name)
    other_files, left_out_count = _hash_other_files(folder, path, reading)
    if left_out_count:
        notes.append(
            f"Your trust in this skill does not cover all of its files ({left_out_count} left out), because the skill has more than 500 files or is larger than 20 MB."
        )
    return ProjectItem(
        kind="skill",
        name=normal_name,
        path=path,
        text=text + other_files,
        body=body,
        about=short_description,
        own=reading.own,
        values=values,
        notes=tuple(notes),
        broken=not short_description,
    )


def _hash_other_files(folder: Path, skill: Path, reading: ProjectReading) -> tuple[str, int]:
    """Return names and hashes of the files beside SKILL.md, and how many were left out."""
    files = []
    for path in reading.list_files_below(folder, _MOST_LISTED_FILES):
        if path != skill and (project_item.is_stored_file(path) or not reading.contains(path)):
            files.append(path)
    lines: list[str] = []
    bytes_left = MOST_BYTES
    for path in files[:MOST_FILES]:
        try:
            if reading.contains(path):
                bytes_left -= path.stat().st_size
                if bytes_left < 0:
                    break
                state = _hash_and_count_accesses(path, reading)
            else:
                state = f"leads out of the folder, to {path.readlink()}"
        except OSError:
            state = "cannot be read"
        lines.append(f"{path.relative_to(folder).as_posix()}  {state}")
    left_out = len(files) - len(lines)
    if not lines:
        return "", left_out
    return "\n\n---\nFiles of this skill:\n" + "\n".join(lines) + "\n", left_out


def _hash_and_count_accesses(path: Path, reading: ProjectReading) -> str:
    reading.count_file_accesses(path.stat().st_size >> 16)
    return project_item.hash_of_file(path)
