"""The folders in which agents work. What stands there must not run outside the sandbox just because
a variable of ours names the folder.

A shell that was opened in a project often has such variables: an activated environment, or direnv
with its `.envrc`. They name programs, folders with programs, modules or libraries, and settings that
name programs. An agent could put its own there.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FolderReader = Callable[[], Iterable[Path | str]]
# Real paths. See `leave_out_of_search`.
_folders_of_agents: set[str] = set()
_readers: list[FolderReader] = []
_opening = (
    threading.Lock()
)  # Held while variables are other ones for what opens files and addresses.
_MOST_LINKS = 40  # As many as Linux follows.
# By these variables a program finds programs, modules and libraries, or is given options that name
# some. A star stands for any characters.
_LOADING_NAMES = """
PATH LD_* DYLD_* GCONV_PATH LOCPATH OPENSSL_* PYTHON* NODE_* PERL* RUBY* GEM_* LUA_* JAVA_* JDK_* _JAVA_OPTIONS CLASSPATH
GOPATH GOROOT GOBIN GOFLAGS PHP* R_* JULIA_* TCL* GUILE_* PS*PATH SHELL BASH_ENV ENV ZDOTDIR EDITOR VISUAL PAGER MANPAGER
LESSOPEN LESSCLOSE BROWSER TERMINAL GIT_SSH GIT_SSH_COMMAND GIT_ASKPASS GIT_*EDITOR GIT_PAGER GIT_EXEC_PATH
GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF SSH_ASKPASS SSH_SK_PROVIDER GTK* GDK_* GIO_* GST_* QT* QML* VK_* LIBGL_* __EGL_*
GBM_* LIBVA_* VDPAU_*
"""
# By these it finds settings that name such things, and where it writes.
_SETTINGS_NAMES = """
SSLKEYLOGFILE PIP_* PIPX_* UV_* CONDA* POETRY_* PDM_* PYENV_*
NPM_* YARN_* PNPM_* BUN_* DENO_* COREPACK_* VOLTA_* NVM_* BUNDLE_* MAVEN_* GRADLE_* GOENV GO*CACHE CARGO_* RUST* ASDF_* MISE_*
RBENV_* INPUTRC TERMINFO* GIT_CONFIG* GIT_SSL_* GIT_PROXY_SSL_* GIT_TEMPLATE_DIR GH_* GLAB_* GCM_* SSH_AUTH_SOCK GNUPGHOME
PINENTRY_* PASSWORD_STORE_* CURL_HOME WGETRC KRB5_* AWS_* CLOUDSDK_* AZURE_* DOCKER_* KUBE* HELM_* TMPDIR TEMP TMP XDG_*
DBUS_* GSETTINGS_* KDE* FONTCONFIG_* ALSA_* CLAUDE_CONFIG_DIR CODEX_HOME GEMINI_* OPENCODE_*
"""
# Of both, what the libraries of this process read. Commands in the sandbox get none of these from us.
_NAMES_FOR_OWN_LIBRARIES = """
OPENSSL_* SSLKEYLOGFILE GCONV_PATH LOCPATH QT* QML* GTK* GDK* GIO_* GST_* GSETTINGS_* VK_* LIBGL_* __EGL_* GBM_* LIBVA_*
VDPAU_* FONTCONFIG_* XDG_*DIRS XDG_RUNTIME_DIR DBUS_* KDE* ALSA_* KRB5_* TMPDIR TEMP TMP BROWSER
"""
# Lists of folders. A relative or empty one is looked up in the working folder of whoever reads it.
_LIST_NAME = re.compile(r"(?:PATH|PATHS|DIRS|LIB)$")
_WORD = re.compile(r"[^\s:;,=\"'|()]+")


def _compile_names(names: str) -> re.Pattern[str]:
    patterns = [re.escape(name).replace(r"\*", ".*") for name in names.split()]
    return re.compile("|".join(patterns))


# The program's own folders may be in a project, and its own processes must find them there.
_NAMES_OF_OWN_FOLDERS = frozenset(
    ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
)
_NUMBERED_GIT_SETTING = re.compile(r"GIT_CONFIG_(?:COUNT|KEY_\d+|VALUE_\d+)")
_LOADING_NAME = _compile_names(_LOADING_NAMES)
_SETTINGS_NAME = _compile_names(_SETTINGS_NAMES)
_NAME_FOR_OWN_LIBRARIES = _compile_names(_NAMES_FOR_OWN_LIBRARIES)


def leave_out_of_search(folders: Iterable[Path | str]) -> None:
    """Note folders in which agents work, until this process ends.

    PATH may name some, such as a project's virtual environment that is activated. What agents have
    put there must not run outside the sandbox just because it has the name of a program.
    """
    _folders_of_agents.update(os.path.realpath(folder) for folder in folders)


def read_folders_when_asked(reader: FolderReader) -> None:
    """Have a function return further such folders once something is to be started or looked up."""
    _readers.append(reader)


def search_path_without_agents(search_path: str) -> str:
    """Return a PATH, or a variable like it, without relative folders and folders in which agents work,
    for programs of ours that start others by their names, as git starts ssh and gpg.
    """
    kept_folders: list[str] = []
    for folder in search_path.split(os.pathsep):
        is_absolute = os.path.isabs(folder)  # noqa: PTH117 -- a text, as it stands in PATH
        parts = [folder]
        if ";" in folder:
            # LUA_PATH and others have patterns in them, divided by other signs.
            parts += folder.split(";")
        if is_absolute and not any(map(is_in_folder_of_agents, parts)):
            kept_folders.append(folder)
    return os.pathsep.join(kept_folders)


def environment_without_agents(
    environment: Mapping[str, str], *, is_of_program: bool = False
) -> dict[str, str]:
    """Return variables for what runs outside the sandbox, without those by which it would run, load or
    trust what agents have put into a folder of theirs. `is_of_program`: for this program itself.
    """
    kept_environment: dict[str, str] = {}
    for name, value in environment.items():
        kept_value = value
        if not (is_of_program and name in _NAMES_OF_OWN_FOLDERS):
            kept_value = _value_without_agents(name.upper(), value)
        if kept_value or not value:
            kept_environment[name] = kept_value
    removed_names = environment.keys() - kept_environment.keys()
    if any(name.startswith("GIT_CONFIG_VALUE_") for name in removed_names):
        # Git ends if one of so many settings is missing.
        for name in list(kept_environment):
            if _NUMBERED_GIT_SETTING.fullmatch(name):
                del kept_environment[name]
    return kept_environment


def _value_without_agents(name: str, value: str) -> str:
    is_loading = _LOADING_NAME.fullmatch(name) is not None
    if not is_loading and not _SETTINGS_NAME.fullmatch(name):
        return value
    if _LIST_NAME.search(name):
        return search_path_without_agents(value)
    if _leads_to_agents(value, may_name_modules=is_loading):
        return ""
    return value


def _leads_to_agents(value: str, *, may_name_modules: bool) -> bool:
    """Whether a value is or names a place in a folder in which agents work, as `-r /project/x.js` and
    `ssh -F ~/project/config` do. A relative one is looked up in the working folder, perhaps theirs.
    """
    expanded = os.path.expandvars(value)
    if expanded.startswith(os.sep) and is_in_folder_of_agents(expanded):
        return True
    return any(
        _is_word_of_agents(word, may_name_modules=may_name_modules)
        for word in _WORD.findall(expanded)
    )


def _is_word_of_agents(word: str, *, may_name_modules: bool) -> bool:
    path = word
    if word.startswith("~"):
        path = os.path.expanduser(word)  # noqa: PTH111 -- a text of a variable
    before_path, separator, _ = path.partition(os.sep)
    # Without a dot, it may also be a module or something else with a stroke in it.
    is_named_in_folder = before_path and may_name_modules and not before_path.startswith("-")
    is_relative = path.startswith(".")
    if separator:
        is_relative = is_relative or before_path.endswith(".") or bool(is_named_in_folder)
    if is_relative:
        # Where it leads depends on the folder in which it is read.
        return bool(_known_folders())
    if not separator:
        return False
    path_below_root = path[len(before_path) :].lstrip(os.sep)
    return is_in_folder_of_agents(os.sep + path_below_root)


def is_in_folder_of_agents(path: str) -> bool:
    """Whether an agent can choose what stands at a path: it, or a link on the way to it, is in a
    folder in which agents work.
    """
    if not _known_folders():
        return False
    for place in _list_places_on_the_way(path):
        if _is_place_of_agents(place):
            return True
    return False


def _known_folders() -> set[str]:
    """Return the folders, and first those that this process has not needed to know until now."""
    while _readers:
        folders = _readers.pop()()
        leave_out_of_search(folders)
    return _folders_of_agents


def _is_place_of_agents(place: str) -> bool:
    # Texts, not Path objects: this is asked for each folder of PATH before each start of a process.
    folder = place
    while True:
        if folder in _folders_of_agents and not is_setting_in_home(Path(place), Path(folder)):
            return True
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder:
            return False
        folder = parent


def find_folder_without_agents() -> Path:
    """Return a folder for what the user has set up to run without naming one. In the folder in which
    this program was started, perhaps a project, `npx` and Python would take what lies there.
    """
    home = Path.home()
    if is_in_folder_of_agents(str(home)):
        return Path(home.anchor)
    return home


def is_setting_in_home(place: Path, folder: Path) -> bool:
    """Whether a place is behind a name with a dot in the user's home, which is in this folder.

    An agent that works in the home sees nothing there in its commands, and asks before it writes a
    file there: the user's programs are in such places, too.
    """
    home = Path(os.path.realpath(Path.home()))
    if place == home or not (home.is_relative_to(folder) and place.is_relative_to(home)):
        return False
    return place.relative_to(home).parts[0].startswith(".")


def _list_places_on_the_way(path: str) -> list[str]:
    """Return the real places of the links that a path leads through, and of its end.

    A file that is a link into the system today could be another one when it is started.
    """
    whole_path = Path(os.path.abspath(path))  # noqa: PTH100 -- Path.resolve would follow links
    reached = whole_path.anchor
    names_to_follow = list(reversed(whole_path.parts[1:]))
    links: list[str] = []
    while names_to_follow and len(links) < _MOST_LINKS:
        name = names_to_follow.pop()
        if name == os.pardir:
            reached = os.path.dirname(reached)  # noqa: PTH120
            continue
        step = os.path.join(reached, name)  # noqa: PTH118
        if not os.path.islink(step):  # noqa: PTH114
            reached = step
            continue
        links.append(step)
        target = Path(os.readlink(step))  # noqa: PTH115
        if target.is_absolute():
            reached = target.anchor
        names_to_follow += reversed(target.relative_to(target.anchor).parts)
    if names_to_follow or os.pardir in path:
        # So many links may be a circle. And `..` behind a link leads elsewhere than it seems to.
        return [*links, os.path.realpath(path)]
    return [*links, reached]


@contextmanager
def environment_for_openers() -> Iterator[None]:
    """Have libraries that open a file or an address in the desktop's programs search for no program in
    a folder in which agents work. They start `xdg-open`, or what BROWSER names, by themselves.
    """
    with _opening:
        own_environment = dict(os.environ)
        _replace_own_environment(environment_without_agents(own_environment))
        try:
            yield
        finally:
            _replace_own_environment(own_environment)


def leave_out_variables_of_agents() -> None:
    """Have the libraries of this process that read variables later, such as Qt, load nothing that
    agents have put into a folder of theirs. Commands in the sandbox still get their PATH.
    """
    safe_environment = environment_without_agents(os.environ)
    for name in list(os.environ):
        if _NAME_FOR_OWN_LIBRARIES.fullmatch(name):
            if name in safe_environment:
                os.environ[name] = safe_environment[name]
            else:
                del os.environ[name]


def _replace_own_environment(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
