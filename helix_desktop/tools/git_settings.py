"""What of git's settings can make git run a program. Everything counts that is not known to be harmless."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator

_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_HARMLESS = re.findall(
    r"\S+",
    """core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.symlinks core.ignorecase
    core.precomposeunicode core.autocrlf core.eol core.safecrlf core.quotepath core.abbrev core.compression core.protecthfs
    core.protectntfs core.sparsecheckout* core.sharedrepository core.untrackedcache core.preloadindex core.longpaths
    core.bigfilethreshold core.checkstat core.trustctime core.whitespace core.commentchar core.worktree
    remote.*.url remote.*.fetch remote.*.push remote.*.pushurl remote.*.mirror remote.*.tagopt remote.*.prune remote.*.skip*
    remote.*.promisor remote.*.partialclonefilter remote.*.gh-resolved remote.pushdefault branch.* user.* author.*
    committer.* color.* advice.* init.defaultbranch push.default push.autosetupremote push.followtags pull.rebase pull.ff fetch.*
    submodule.*.url submodule.*.active submodule.*.branch submodule.*.ignore submodule.*.fetchrecursesubmodules submodule.*.path
    submodule.active submodule.recurse merge.conflictstyle merge.ff merge.log merge.renames diff.renames diff.algorithm
    diff.context diff.submodule diff.colormoved diff.noprefix diff.mnemonicprefix extensions.* index.* gc.auto gc.prune*
    gc.reflog* pack.* status.* log.* commit.gpgsign commit.verbose tag.gpgsign tag.sort http.postbuffer http.lowspeed*
    rerere.* receive.deny* rebase.auto* rebase.updaterefs blame.* i18n.* column.* lfs.repositoryformatversion
    lfs.*.locksverify lfs.*.access maintenance.* feature.* safe.*""",
)  # fmt: skip


def settings(text: str) -> Iterator[tuple[str, str]]:
    """Names and values as git reads them; a line it would not take is given as a name of its own."""
    section = ""
    rest = text.replace("\r\n", "\n").removeprefix("\ufeff")
    while rest:
        rest = rest.lstrip(" \t\n")
        if rest[:1] in ("#", ";"):
            rest = rest.partition("\n")[2]
        elif match := _SECTION.match(rest):
            below = "" if match[2] is None else "." + re.sub(r"\\(.)", r"\1", match[2])
            section = match[1].casefold() + below
            rest = rest[match.end() :]
        elif name := _NAME.match(rest):
            value, rest = _value(rest[name.end() :])
            yield f"{section}.{name[0].casefold()}", value
        elif rest:
            line, _, rest = rest.partition("\n")
            yield f"not understood: {line}", ""


def _value(rest: str) -> tuple[str, str]:
    """What stands behind a name, with quotes, comments and continued lines; and the text behind that."""
    pieces: list[str] = []
    quoted, at = False, 0
    rest = rest.lstrip(" \t")
    if not rest.startswith("="):
        return "true", rest.partition("\n")[2]
    at = 1
    while at < len(rest):
        char = rest[at]
        if char == "\n" or (char in "#;" and not quoted):
            break
        if char == "\\":
            pieces.append({"n": "\n", "t": "\t", "\n": ""}.get(rest[at + 1 : at + 2], rest[at + 1 : at + 2]))
            at += 1
        elif char == '"':
            quoted = not quoted
        else:
            pieces.append(char)
        at += 1
    return "".join(pieces).strip(), rest[at:].partition("\n")[2]


def running(text: str) -> list[str]:
    """The settings that can make git run something, as `name = value`."""
    return [f"{name} = {value}" for name, value in settings(text) if runs(name, value)]


def runs(name: str, value: str) -> bool:
    """Whether this setting can make git run something."""
    if "::" in value or value.startswith(("-", "!")):
        return True
    if name == "core.fsmonitor" and value.casefold() in ("true", "false", ""):
        return False
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in _HARMLESS)
