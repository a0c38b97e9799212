"""A command that runs in the background: its state, and the end of its output."""

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import field

from helix_desktop.cancellation import finish_even_if_cancelled
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.tools.built_in_tool import ToolResources
from helix_desktop.tools.changes.change_attribution import OpenStep
from helix_desktop.tools.checks_after_command import CommandCheck

ADDRESS_PATTERN = re.compile(
    r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]|\blistening\b|\bport \d", re.IGNORECASE
)
NO_NETWORK_NOTE = (
    "Without the network a command is reached by nobody and reaches no other, on this machine either. What is to be "
    "reached, and what is to reach it, are both started with `network`."
)


@dataclass(slots=True)
class BackgroundCommand:
    """A command that goes on after the call that started it. `newest_output` is the end of its
    output; the `dropped_bytes` before it are gone. The agent has read the first `bytes_read` of all.
    """

    name: str
    command_line: str
    command: RunningCommand
    started: float  # By the monotonic clock.
    check: CommandCheck | None = None
    has_no_network: bool = False  # True if the command has no network access.
    newest_output: bytearray = field(default_factory=bytearray)
    dropped_bytes: int = 0
    bytes_read: int = 0
    code: int | None = None
    step: OpenStep | None = None  # Until the command ends, its changes belong to this step.
    news_event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_running(self) -> bool:
        return self.code is None

    @property
    def run_state(self) -> str:
        if not self.is_running:
            return f"ended, exit code {self.code}"
        return f"running for {time.monotonic() - self.started:.0f} s"

    @property
    def has_new_output(self) -> bool:
        """Whether the command has printed something that the agent has not read."""
        printed_bytes = self.dropped_bytes + len(self.newest_output)
        return self.bytes_read < printed_bytes

    async def collect_newest_output(self, resources: ToolResources, limit_bytes: int) -> None:
        """Keep the last `limit_bytes` bytes of the output until the command ends.

        Then, even if this is cancelled, its changes to protected files are reverted, and its step,
        which is what an undo goes back by, ends.
        """
        try:
            async for piece in self.command.iterate_output():
                self.newest_output += piece
                surplus = len(self.newest_output) - limit_bytes
                if surplus > 0:
                    del self.newest_output[:surplus]
                    self.dropped_bytes += surplus
                self.news_event.set()
        finally:
            code = await finish_even_if_cancelled(self.command.kill_and_wait())
            await finish_even_if_cancelled(self.revert_and_append_note(resources, ask=False))
            if self.step is not None:
                self.step.goes_on = False
            self.code = code
            self.news_event.set()
        if self.step is not None and resources.workspace_resources.checkpoints is not None:
            await resources.workspace_resources.checkpoints.record_end_of_step(self.step)

    async def revert_and_append_note(self, resources: ToolResources, *, ask: bool) -> None:
        """Revert changes to protected files so far, or ask about them, and note that in
        the output.
        """
        if self.check is not None:
            note = await self.check.revert_and_ask(resources, ask=ask)
            self.newest_output += note.encode()

    async def wait_for_end_or_output(self, seconds: float, *, for_news: bool) -> None:
        """Wait for the command's end, or for new output if `for_news`, at most this
        many seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.is_running:
                    if for_news and self.has_new_output:
                        break
                    self.news_event.clear()
                    await self.news_event.wait()

    def read_new_output(self) -> str:
        """Return the output since the last read, with a note of how many bytes were dropped."""
        dropped_unread = max(self.dropped_bytes - self.bytes_read, 0)
        start = max(self.bytes_read - self.dropped_bytes, 0)
        self.bytes_read = self.dropped_bytes + len(self.newest_output)
        text = bytes(self.newest_output[start:]).decode("utf-8", "replace")
        output = text or "[nothing new]\n"
        if dropped_unread:
            output = f"[{dropped_unread:,} bytes before this are gone]\n{output}"
        # A server that says its address is not reached by other commands.
        if self.has_no_network and self.is_running and ADDRESS_PATTERN.search(text):
            output += f"[{NO_NETWORK_NOTE}]\n"
        return output
