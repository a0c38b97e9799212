"""Decides which git settings may run a program or touch files elsewhere: all not known to be harmless."""

import fnmatch
import re
from collections.abc import Iterator

_SECTION = re.compile(r'\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]\s*')
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_BETWEEN = re.compile(r"(?:[ \t\n]+|[#;][^\n]*)*")
_BLANKS, _LINE = re.compile(r"[ \t]*"), re.compile(r"[^\n]*\n?")
# These settings name no program or path, and do not make git run, read or write anything elsewhere.
# Each setting is listed by name, because a later git may add others. autorun_guard.py checks `core.worktree`.
_HARMLESS = re.findall(
    r"\S+",
    """core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.symlinks core.ignorecase
    core.precomposeunicode core.autocrlf core.eol core.safecrlf core.quotepath core.abbrev core.compression core.loosecompression
    core.sparsecheckout core.sparsecheckoutcone core.sharedrepository core.untrackedcache core.preloadindex core.longpaths
    core.bigfilethreshold core.checkstat core.trustctime core.whitespace core.commentchar core.commitgraph core.multipackindex
    core.splitindex core.deltabasecachelimit core.packedgitlimit core.packedgitwindowsize core.fsync core.fsyncmethod
    remote.*.url remote.*.fetch remote.*.push remote.*.pushurl remote.*.mirror remote.*.tagopt remote.*.prune remote.*.prunetags
    remote.*.skipdefaultupdate remote.*.skipfetchall remote.*.promisor remote.*.partialclonefilter remote.*.gh-resolved remote.pushdefault
    branch.*.remote branch.*.merge branch.*.rebase branch.*.pushremote branch.*.description branch.*.gh-merge-base branch.*.vscode-merge-base
    branch.*.github-pr-owner-number branch.autosetupmerge branch.autosetuprebase branch.sort
    user.name user.email user.useconfigonly author.name author.email committer.name committer.email
    color.ui color.advice color.branch color.diff color.grep color.interactive color.push color.remote color.showbranch color.status
    color.transport color.branch.* color.decorate.* color.diff.* color.grep.* color.interactive.* color.push.* color.remote.* color.status.*
    advice.* init.defaultbranch push.default push.autosetupremote push.followtags pull.rebase pull.ff fetch.prune fetch.prunetags
    fetch.parallel fetch.output fetch.fsckobjects fetch.unpacklimit fetch.writecommitgraph fetch.recursesubmodules fetch.showforcedupdates
    submodule.*.url submodule.*.active submodule.*.branch submodule.*.ignore submodule.*.fetchrecursesubmodules submodule.*.path
    submodule.active submodule.recurse submodule.fetchjobs merge.conflictstyle merge.ff merge.log merge.renames merge.stat merge.autostash
    diff.renames diff.algorithm diff.context diff.submodule diff.colormoved diff.noprefix diff.mnemonicprefix diff.renamelimit
    diff.indentheuristic diff.interhunkcontext diff.ignoresubmodules
    extensions.objectformat extensions.compatobjectformat extensions.noop extensions.noop-v1 extensions.partialclone
    extensions.preciousobjects extensions.relativeworktrees extensions.worktreeconfig
    index.recordendofindexentries index.recordoffsettable index.skiphash index.sparse index.threads index.version
    gc.auto gc.autodetach gc.autopacklimit gc.pruneexpire gc.worktreepruneexpire gc.reflogexpire gc.reflogexpireunreachable
    gc.*.reflogexpire gc.*.reflogexpireunreachable gc.packrefs gc.cruftpacks gc.writecommitgraph
    pack.compression pack.depth pack.indexversion pack.packsizelimit pack.threads pack.window pack.windowmemory pack.usebitmaps
    pack.usesparse pack.writebitmaphashcache pack.writereverseindex status.aheadbehind status.branch status.relativepaths
    status.renamelimit status.renames status.short status.showstash status.showuntrackedfiles status.submodulesummary
    log.abbrevcommit log.date log.decorate log.follow log.showroot commit.verbose commit.status commit.cleanup tag.sort
    http.postbuffer http.lowspeedlimit http.lowspeedtime http.version rerere.enabled rerere.autoupdate
    receive.denycurrentbranch receive.denydeletecurrent receive.denydeletes receive.denynonfastforwards
    rebase.autosquash rebase.autostash rebase.updaterefs blame.blankboundary blame.coloring blame.date blame.showemail blame.showroot
    i18n.commitencoding i18n.logoutputencoding column.branch column.clean column.status column.tag column.ui
    lfs.repositoryformatversion lfs.*.locksverify lfs.*.access maintenance.auto maintenance.strategy maintenance.*.enabled
    maintenance.*.schedule maintenance.*.auto feature.manyfiles feature.experimental""",
)  # fmt: skip
_HARMLESS_NAMES = frozenset(_HARMLESS)
_HARMLESS_PATTERNS = re.compile("|".join(fnmatch.translate(each) for each in _HARMLESS if "*" in each))
# Any other value of these settings would remove the protection of `.git` during a checkout.
_HARMLESS_VALUES = {
    "core.fsmonitor": ("true", "false", ""),
    "core.protecthfs": ("true",),
    "core.protectntfs": ("true",),
    "commit.gpgsign": ("false",),
    "tag.gpgsign": ("false",),
    "log.showsignature": ("false",),
    "extensions.refstorage": ("files", "reftable"),
}


def parse_git_settings(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values as git reads them. What git rejects or cuts short gets a special name."""
    if "\0" in text:
        yield "not understood: git reads a name or value as far as the NUL in it", ""
    text = text.replace("\0", "").replace("\r\n", "\n").removeprefix("\ufeff")
    section, at = "", _end_of_match(_BETWEEN, text, 0)
    while at < len(text):
        if match := _SECTION.match(text, at):
            below = "" if match[2] is None else "." + re.sub(r"\\(.)", r"\1", match[2])
            section = match[1].casefold() + below
            at = match.end()
        elif name := _NAME.match(text, at):
            value, at = _parse_git_value(text, name.end())
            yield f"{section}.{name[0].casefold()}", value
        else:
            line = _LINE.match(text, at)
            at = line.end() if line else len(text)
            yield f"not understood: {line[0] if line else ''}", ""
        at = _end_of_match(_BETWEEN, text, at)


def _end_of_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _parse_git_value(text: str, at: int) -> tuple[str, int]:
    """Parse a value with quotes, comments and continued lines. Return it and where the next line begins."""
    pieces: list[str] = []
    quoted = False
    at = _end_of_match(_BLANKS, text, at)
    if not text.startswith("=", at):
        return "true", _end_of_match(_LINE, text, at)
    at += 1
    while at < len(text):
        char = text[at]
        if char == "\n" or (char in "#;" and not quoted):
            break
        if char == "\\":
            following = text[at + 1 : at + 2]
            pieces.append({"n": "\n", "t": "\t", "\n": ""}.get(following, following))
            at += 1
        elif char == '"':
            quoted = not quoted
        else:
            pieces.append(char)
        at += 1
    return "".join(pieces).strip(), _end_of_match(_LINE, text, at)


def list_doubtful_settings(text: str) -> list[str]:
    """Return the settings not known to be harmless, as `name = value`."""
    return [f"{name} = {value}" for name, value in parse_git_settings(text) if may_setting_run_program(name, value)]


def may_setting_run_program(name: str, value: str) -> bool:
    """Whether this setting may make git run a program or touch files elsewhere."""
    if "::" in value or value.startswith(("-", "!")):
        return True
    if value.casefold() in _HARMLESS_VALUES.get(name, ()):
        return False
    return name not in _HARMLESS_NAMES and not _HARMLESS_PATTERNS.match(name)
