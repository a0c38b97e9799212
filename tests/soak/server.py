"""A scripted model server in a process of its own: an agent that reads files, runs
commands and writes, without end.

python -m tests.soak.server [--steps N] [--pause SECONDS]      prints its port, and
serves until its input ends
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from tests.peers.chat_server import Calls, ChatServer, reply
from tests.peers.peer import Answer, Pause, Piece, Seen
from tests.workbench.recorded import ASIDES, CHOOSE, SUMMARY, texts_of

FILES = 40
NOTES = 50
LARGE = 500_000  # lines
ANSWER = """The wait queue now lives in a module of its own and takes the lock only to push or pop. What is left:

- `upgrade()` re-enters the shard that it **already** holds
- the epoch counter is read without the lock

| test | state | seconds |
|------|-------|--------:|
| upgrade | fails | 1.2 |
| promote | passes | 0.3 |

```python
def upgrade(self, key: str) -> Guard:
    waiter = self.queue.park(key)  # released before the wait
    return self.shard(key).promote(waiter)
```

"""


class Agent(ChatServer):
    """Answers from the request alone: `steps` calls after each message of the user, then words."""

    def __init__(self, steps: int, pause: float) -> None:
        super().__init__()
        self.steps = steps
        self.pause = pause
        self.number = 0

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        self.number += 1
        self.requests.clear()  # it serves for hours
        messages = seen.body["messages"]
        last = texts_of(messages[-1])
        if any(mark in last for mark in ASIDES):
            return reply(
                "1: preview"
                if CHOOSE in last
                else SUMMARY + f"\n\nSource: {len(messages)} messages."
            )
        done = self._since_user(messages)
        if done >= self.steps or not seen.body.get("tools"):
            return self._slow(reply(ANSWER * 3 + f"That was message {self.number}."))
        return self._slow(reply(f"Step {done + 1}.", calls=self._calls(self.number, done)))

    @staticmethod
    def _since_user(messages: Sequence[Any]) -> int:
        """Replies with calls since somebody said something."""
        count = 0
        for message in reversed(messages):
            if message["role"] == "user":
                return count
            count += message["role"] == "assistant"
        return count

    @staticmethod
    def _calls(number: int, step: int) -> Calls:
        """A file, a command (one in 30 prints megabytes), a note; every fourth step all
        of them at once.
        """
        read = ("read_file", {"path": f"src/part{number % FILES}.py"})
        lines = LARGE if number % 30 == 0 else 400 * (1 + step)
        run = ("run_command", {"command": f"seq {number % 900} {number % 900 + lines}"})
        # read before it is written: another conversation may have changed it
        note = f"notes/{number % NOTES}.md"
        write = [
            ("read_file", {"path": note}),
            ("write_file", {"path": note, "content": f"Note {number}\n{ANSWER}"}),
        ]
        return [read, run, *write] if step % 4 == 3 else ([read], [run], write)[(number + step) % 3]

    def _slow(self, answer: Answer) -> Answer:
        """A pause after every tenth piece, so that a window is seen while it streams."""
        pieces: list[Piece] = []
        for at, piece in enumerate(answer.pieces):
            pieces += [piece, Pause(self.pause)] if self.pause and at % 10 == 9 else [piece]
        return Answer(answer.status, tuple(pieces), answer.headers, answer.content_type)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.02)
    arguments = parser.parse_args()
    with Agent(arguments.steps, arguments.pause) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        for _ in sys.stdin:  # until whoever started it is gone
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main())
