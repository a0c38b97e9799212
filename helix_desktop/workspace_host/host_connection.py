"""How a client reaches the process that has a workspace open, and how that process serves it."""

from collections import Counter
from pathlib import Path

from helix_desktop import running_instance
from helix_desktop.console import Console
from helix_desktop.errors import OwnerEnded
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workspace_host.byte_streams import ConsoleStream, OwnerStream
from helix_desktop.workspace_host.host_server import serve_host_client
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost

# The command line that a client of a host runs at the owner of the workspace.
HOST_ARGUMENTS = ("host", "--workspace")
_client_counts: Counter[str] = Counter()  # By workspace.


async def connect_to_host(run: Path, workspace: str) -> RemoteWorkspaceHost | None:
    """Connects to the process that has the workspace open. None if no process has, or if it has it
    open only for a moment.
    """
    wire = await running_instance.connect_to_owner(run, workspace)
    if wire is None:
        return None
    stream = OwnerStream(wire, [*HOST_ARGUMENTS, workspace])
    try:
        return await RemoteWorkspaceHost.connect_over_stream(stream)
    except OwnerEnded:
        if stream.exit_code == running_instance.LATER:
            return None
        raise


async def serve_host_over_console(bench: Workbench, console: Console) -> None:
    """Serves the client at the other end of a console until it leaves."""
    host = LocalWorkspaceHost(bench)
    _client_counts[bench.id] += 1
    try:
        await serve_host_client(host, ConsoleStream(console))
    finally:
        _client_counts[bench.id] -= 1
        await host.close_host()


def count_clients(workspace: str) -> int:
    """Returns how many clients this process serves in a workspace now."""
    return _client_counts[workspace]
