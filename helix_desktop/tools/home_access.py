"""What a user can open of their home to a workspace's commands, by name or by folder."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class HomeOpening:
    """One thing people do with programs that keep keys in the home. Only commands with
    network access get it. `what_it_gives_away`: what commands could then do.
    `complaint_pattern`: how programs complain without it.
    """

    name: str
    title: str
    what_it_gives_away: str
    paths: tuple[str, ...]
    variables: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    complaint_pattern: str = ""


@dataclass(frozen=True, slots=True)
class CommandOpenings:
    """What commands can see: named openings and the user's added folders, but never
    hidden files.
    """

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


NOTHING_OPENED = CommandOpenings()


# A socket is named by its path, by a variable, or below a folder that a variable names.
OPENINGS = (
    HomeOpening(
        name="ssh",
        title="SSH, including Git over SSH",
        what_it_gives_away="Commands with network access can read your SSH keys, use your SSH agent, and sign in wherever your keys are accepted.",
        paths=(".ssh",),
        variables=("SSH_AUTH_SOCK",),
        sockets=("SSH_AUTH_SOCK",),
        complaint_pattern=r"Host key verification failed|Permission denied \(publickey|Could not open a connection to your authentication agent",
    ),
    HomeOpening(
        name="git",
        title="Git with saved credentials",
        what_it_gives_away="Commands with network access can read your Git settings and the passwords that Git has stored in files.",
        paths=(
            ".gitconfig",
            ".config/git",
            ".git-credentials",
        ),
        complaint_pattern=r"could not read (?:Username|Password) for|terminal prompts disabled|Authentication failed for 'https",
    ),
    HomeOpening(
        name="gh",
        title="GitHub and GitLab command-line tools",
        what_it_gives_away="Commands with network access can do anything that your gh and glab logins allow.",
        paths=(
            ".config/gh",
            ".config/glab-cli",
            ".config/hub",
        ),
        variables=(
            "GH_TOKEN",
            "GITHUB_TOKEN",
            "GH_HOST",
            "GITLAB_TOKEN",
        ),
        complaint_pattern=r"gh auth login|glab auth login",
    ),
    HomeOpening(
        name="docker",
        title="Docker and Podman",
        what_it_gives_away="Commands with network access can control Docker, and through it everything on this computer, even outside the sandbox.",
        paths=(
            ".docker",
            ".config/containers",
        ),
        variables=(
            "DOCKER_HOST",
            "DOCKER_CONTEXT",
            "CONTAINER_HOST",
        ),
        sockets=(
            "/run/docker.sock",
            "/var/run/docker.sock",
            "DOCKER_HOST",
            "CONTAINER_HOST",
            "XDG_RUNTIME_DIR/docker.sock",
            "XDG_RUNTIME_DIR/podman/podman.sock",
        ),
        complaint_pattern=r"Cannot connect to the Docker daemon|docker\.sock|Cannot connect to Podman|failed to connect to the docker API",
    ),
    HomeOpening(
        name="kubernetes",
        title="Kubernetes and Helm",
        what_it_gives_away="Commands with network access can do anything that your cluster credentials allow.",
        paths=(
            ".kube",
            ".minikube",
            ".config/helm",
        ),
        variables=("KUBECONFIG",),
        complaint_pattern=r"localhost:8080 was refused|no configuration has been provided|current-context is not set",
    ),
    HomeOpening(
        name="aws",
        title="AWS command-line tool",
        what_it_gives_away="Commands with network access can do anything that your AWS credentials allow.",
        paths=(".aws",),
        variables=(
            "AWS_PROFILE",
            "AWS_REGION",
            "AWS_DEFAULT_REGION",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_CONFIG_FILE",
            "AWS_SHARED_CREDENTIALS_FILE",
            "AWS_ENDPOINT_URL",
        ),
        complaint_pattern=r"Unable to locate credentials|aws configure|aws sso login|The config profile \(.{0,200}\) could not be found",
    ),
    HomeOpening(
        name="gcloud",
        title="Google Cloud command-line tool",
        what_it_gives_away="Commands with network access can do anything that your Google Cloud credentials allow.",
        paths=(
            ".config/gcloud",
            ".boto",
        ),
        variables=(
            "CLOUDSDK_CONFIG",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "CLOUDSDK_ACTIVE_CONFIG_NAME",
        ),
        complaint_pattern=r"gcloud auth (?:application-default )?login|Could not automatically determine credentials|default credentials were not found",
    ),
    HomeOpening(
        name="azure",
        title="Azure CLI",
        what_it_gives_away="Commands with network access can do anything that your Azure credentials allow.",
        paths=(".azure",),
        variables=("AZURE_CONFIG_DIR",),
        complaint_pattern=r"az login",
    ),
    HomeOpening(
        name="registries",
        title="Package registries that require sign-in",
        what_it_gives_away="Commands with network access can read your settings for pip, npm, Cargo, Maven, Gradle and others, including the passwords in them.",
        paths=(
            ".npmrc",
            ".yarnrc",
            ".yarnrc.yml",
            ".pypirc",
            ".config/pip",
            ".pip",
            ".config/uv",
            ".config/pypoetry",
            ".netrc",
            ".cargo/config",
            ".cargo/config.toml",
            ".cargo/credentials",
            ".cargo/credentials.toml",
            ".m2/settings.xml",
            ".m2/settings-security.xml",
            ".gradle/gradle.properties",
            ".gradle/init.gradle",
            ".gradle/init.d",
            ".nuget/NuGet",
            ".composer/auth.json",
            ".config/composer/auth.json",
            ".gem/credentials",
            ".bundle/config",
            ".condarc",
            ".config/pnpm",
            ".bunfig.toml",
        ),
        complaint_pattern=r"\bE401\b|ENEEDAUTH|401 Unauthorized|HTTP error 401|status code 401|status: 401|No matching distribution found",
    ),
)
OPENING_NAMES = tuple(opening.name for opening in OPENINGS)
_BY_NAME = {opening.name: opening for opening in OPENINGS}


def openings_in_force(opened: CommandOpenings, *, network: bool) -> list[HomeOpening]:
    """Return the openings that apply to a command. Unknown names open nothing."""
    if not network:
        return []
    return [_BY_NAME[name] for name in opened.names if name in _BY_NAME]


def opened_paths(opened: CommandOpenings, home: str, *, network: bool) -> Iterator[str]:
    """Yield the paths in this home that are open by name, or that the user has added."""
    for opening in openings_in_force(opened, network=network):
        for name in opening.paths:
            yield f"{home}/{name}"
    for folder in opened.folders:
        path = folder
        if folder.startswith("~/"):
            path = home + folder.removeprefix("~")
        if path.startswith(f"{home}/"):
            yield path


def opened_variables(opened: CommandOpenings, *, network: bool) -> list[str]:
    variables: list[str] = []
    for opening in openings_in_force(opened, network=network):
        variables += opening.variables
    return variables


def opened_sockets(
    opened: CommandOpenings, environ: Mapping[str, str], *, network: bool
) -> Iterator[str]:
    """Yield the paths of sockets that a command can reach."""
    for opening in openings_in_force(opened, network=network):
        for name in opening.sockets:
            path = _path_of_socket(name, environ)
            if path.startswith("/"):
                yield path


def _path_of_socket(name: str, environ: Mapping[str, str]) -> str:
    """Return where a socket of `OPENINGS` is. An address of a server elsewhere is returned as it
    is, and begins with no slash. Empty if the variable that would say where it is does not exist:
    what stands behind its name would otherwise be a path of the root.
    """
    if name.startswith("/"):
        return name
    variable, slash, path_below = name.partition("/")
    value = environ.get(variable, "")
    if not value:
        return ""
    # Docker's variable may say `unix:///run/docker.sock`.
    folder_or_socket = value.removeprefix("unix://")
    return folder_or_socket + slash + path_below


def find_openings_on_computer(
    home: Path, environ: Mapping[str, str], opened: Sequence[str]
) -> list[HomeOpening]:
    """Return the openings for programs that are set up on this computer, and those in `opened`,
    which can then be closed. What a computer does not have cannot be given away.
    """
    found: list[HomeOpening] = []
    for opening in OPENINGS:
        if opening.name in opened or _is_set_up_here(opening, home, environ):
            found.append(opening)
    return found


def _is_set_up_here(opening: HomeOpening, home: Path, environ: Mapping[str, str]) -> bool:
    """Whether a program has files, a variable or a socket on this computer."""
    if any((home / path).exists() for path in opening.paths):
        return True
    if any(environ.get(variable) for variable in opening.variables):
        return True
    only_this = CommandOpenings((opening.name,))
    sockets = opened_sockets(only_this, environ, network=True)
    return any(Path(socket).exists() for socket in sockets)


def titles_of_openings(names: Sequence[str]) -> list[str]:
    return [_BY_NAME[name].title for name in names if name in _BY_NAME]


def openings_missed_by(output: str, opened: CommandOpenings, *, network: bool) -> list[HomeOpening]:
    """Return the openings whose absence a program seems to complain about."""
    in_force = openings_in_force(opened, network=network)
    missed = []
    for opening in OPENINGS:
        if opening in in_force or not opening.complaint_pattern:
            continue
        if re.search(opening.complaint_pattern, output):
            missed.append(opening)
    return missed
