"""A believable conversation, as facts: the one of the pictures. Made anew for each
test, always the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from helix_desktop.engine.facts import (
    ConversationStarted,
    DetailsKept,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    PolicySet,
    Recorded,
    Span,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest

CONVERSATION = "lock-manager"
MODEL = "claude-sonnet"
TABLE = """use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One shard of the lock table. A shard never blocks while it holds its own mutex.
pub struct Shard {
    owners: BTreeMap<Key, Owner>,
    waiters: WaitQueue,
    epoch: AtomicU64,
}

impl Shard {
    pub fn acquire(&self, key: Key, mode: Mode) -> Acquire {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.waiters.park(key, mode)
    }
}
"""
TESTS = """running 214 tests
test lock::upgrade_waits_for_readers ... FAILED
test lock::upgrade_is_fair ... FAILED

failures:
thread 'lock::upgrade_waits_for_readers' panicked at 'shard 3 is held already', src/lock/manager.rs:218
thread 'lock::upgrade_is_fair' panicked at 'shard 7 is held already', src/lock/manager.rs:218

test result: FAILED. 212 passed; 2 failed; 0 ignored
"""
DOCUMENT = """[Conversation History Summary]

## Project Background
Rust storage engine, 14 crates. Lock manager in `src/lock/`; async runtime is tokio.

## Technical Details
Guards must not live across await points. `Shard::promote` re-enters the shard.

## Completed Work
Wait queue extracted; 61 call sites moved; 212 of 214 tests pass. Chose parking over spinning.

## Current Issues
Two tests fail in `tests/upgrade.rs`.

## TODO Items
1. Fix `upgrade()`. 2. Remove the epoch counter. 3. Update the design note.

## User Preferences
“The guard must never be held across an await.” Small commits. No new dependencies.
"""
ANSWER = """The wait queue now lives in its own module and takes the lock only to push or pop. Two tests still fail, both \
for the same reason: `upgrade()` re-enters the shard that it already holds.

```rust
fn upgrade(&mut self, key: Key) -> Result<Guard> {
    let waiter = self.queue.park(key);   // released before the await
    self.shard(key).promote(waiter)
}
```
"""
CONTENT = {Digest.of_content(text.encode()): text for text in (TABLE, TESTS, "ok\n")}


def stored(text: str) -> Stored:
    return Stored(Digest.of_content(text.encode()), len(text.encode()), text.count("\n"))


def call(number: int, name: str, **arguments: object) -> ToolCall:
    return ToolCall(f"call-{number}", name, json.dumps(arguments), tokens=40)


def reply(*parts: Text | ToolCall, tokens: int = 30_000) -> ModelReplied:
    stop = Stop.CALLS if any(isinstance(part, ToolCall) for part in parts) else Stop.END
    return ModelReplied(
        parts, MODEL, stop, Usage(input=tokens, cache_read=tokens * 9 // 10, output=300, cost=0.02)
    )


def facts() -> Sequence[Fact]:
    """Two turns: reading and testing, a handover, then the turn the pictures show."""
    return (
        ConversationStarted("Extract the lock manager"),
        PolicySet("layered"),
        ModelSet(ModelRole.MAIN, MODEL, 128_000, 8_000, 3.0, 15.0, 0.3, 3.75),
        SystemSet("You are Helix.", 3_864),
        UserSaid((Text("Extract the lock manager into its own module.", 12),)),
        reply(call(1, "read_file", path="src/lock/table.rs"), call(2, "run_command", command="cargo test --workspace")),
        ToolReturned("call-1", stored(TABLE), 4_812, seconds=0.02, head=TABLE),
        ToolReturned("call-2", stored(TESTS), 18_240, ok=False, exit_code=101, seconds=41.0, head=TESTS),
        Folded(
            "fold-1", FoldKind.MARKER, PartRef(7), f'[CACHED] recall_cached_content("{stored(TABLE).digest}")', 31, 4_812,
            batch="batch-1", entries=(stored(TABLE).digest,), why="clearing pays from 3,900 tokens on",
        ),
        Folded(
            "fold-2", FoldKind.EXCERPT, PartRef(8), TESTS, 612, 18_240, batch="batch-2", entries=(stored(TESTS).digest,),
            asked="failing tests and panics only",
        ),
        reply(Text("The lock table is read; two tests fail before any change.", 14_000)),
        TurnEnded(TurnEnd.DONE),
        Folded(
            "fold-3", FoldKind.HANDOVER, Span(5, 12), DOCUMENT, 8_640, 98_900, batch="batch-3", number=3,
            details=DetailsKept(42, 38, 4, 0), model=MODEL, seconds=9.8, why="a handover pays",
        ),
        UserSaid((
            Text("The guard must never be held across an await. Move the wait queue out first, then show me the failing "
                 "tests again.", 26),
        )),
        reply(Text(ANSWER, 7_640), call(3, "edit_file", path="src/lock/manager.rs", old="spin", new="park"), tokens=43_900),
        ToolReturned("call-3", stored("ok\n"), 12_700, seconds=0.1, head="ok\n"),
    )  # fmt: skip


def recorded(now: float = 1_795_162_800.0) -> list[Recorded]:
    return [
        Recorded(CONVERSATION, seq, now - 600 + seq, fact) for seq, fact in enumerate(facts(), 1)
    ]
