"""Databases of opencode that a stranger made: a few bytes that say they are many, and
programs in the schema.

`python -m tests.histories.hostile_databases FOLDER NAME` does with one of them, in a
process with limits, all that is ever done with such a database: it is found, read,
copied, and a session is added to it. It prints what came of each, and is killed for a
file of more than `MOST_FILE_BYTES`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from helix_desktop.errors import HelixError
from helix_desktop.histories import (
    foreign_sqlite,
    history_finding,
    history_reading,
    opencode_writer,
)
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.pending_copies import PendingCopies

PLACE = "home/.local/share/opencode/opencode.db"
MOST_FILE_BYTES = 48 << 20
# The processor's time for one database, instead of the minute that people's own get.
MOST_SECONDS = 0.15
MOST_MEMORY_BYTES = 400 << 20
PAGE = 4096
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
TABLES = {
    "session": "id TEXT, parent_id TEXT, directory TEXT, title TEXT, version TEXT, time_created INT, time_updated INT, project_id TEXT, slug TEXT, revert TEXT",
    "message": "id TEXT, session_id TEXT, time_created INT, time_updated INT, data TEXT",
    "part": "id TEXT, message_id TEXT, session_id TEXT, time_created INT, time_updated INT, data TEXT",
    "project": "id TEXT, worktree TEXT",
}
PART = json.dumps({"type": "text", "text": "honest words"})
DOCUMENT = {
    "id": "ses_1",
    "slug": "s",
    "directory": "/x",
    "title": "t",
    "version": "1",
    "time": {"created": 1, "updated": 1},
}


@contextmanager
def database(path: Path, *, wal: bool = False, **tables: str) -> Iterator[sqlite3.Connection]:
    """One with an honest session. `tables`: what stands in place of a table's columns."""
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        for setting in (
            f"page_size = {PAGE}",
            "synchronous = OFF",
            f"journal_mode = {'WAL' if wal else 'DELETE'}",
        ):
            made.execute(f"PRAGMA {setting}")
        for name, columns in {**TABLES, **tables}.items():
            made.execute(f"CREATE TABLE {name} ({columns})")
        made.execute("BEGIN")
        made.execute(
            "INSERT INTO session (id, title, time_created, time_updated) VALUES ('s', 't', 1, 1)"
        )
        for number, role in enumerate(("user", "assistant")):
            head = json.dumps({"role": role, "modelID": "m", "time": {"created": number}})
            made.execute(
                "INSERT INTO message VALUES (?, 's', ?, 1, ?)", (f"m{number}", number, head)
            )
            made.execute(
                "INSERT INTO part (id, message_id, session_id) VALUES (?, ?, 's')",
                (f"p{number}", f"m{number}"),
            )
            if "part" not in tables:
                made.execute("UPDATE part SET data = ?", (PART,))
        yield made
        if made.in_transaction:
            made.execute("COMMIT")


def swap_in_schema(made: sqlite3.Connection, old: str, new: str) -> None:
    made.execute("PRAGMA writable_schema = ON")
    made.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?)", (old, new))


def calculated_folder(path: Path) -> None:
    columns = TABLES["session"].replace("directory TEXT", "directory AS (1)")
    with database(path, session=columns) as made:
        made.executemany(
            "INSERT INTO session (id, title) VALUES (?, 't')", ((f"s{one}",) for one in range(50))
        )
        swap_in_schema(made, "AS (1)", "AS (hex(zeroblob(4000000)))")


def calculated_part(path: Path) -> None:
    with database(path, part=TABLES["part"].replace("data TEXT", "data AS (1)")) as made:
        made.executemany(
            "INSERT INTO part (id, message_id, session_id) VALUES (?, 'm1', 's')",
            ((f"q{one}",) for one in range(500)),
        )
        swap_in_schema(
            made, "AS (1)", "AS (replace(hex(zeroblob(1000)), '00', hex(zeroblob(1000))))"
        )


def long_default(path: Path) -> None:
    with database(
        path, part="id TEXT, message_id TEXT, session_id TEXT, time_created INT, time_updated INT"
    ) as made:
        made.executemany(
            "INSERT INTO part (id, message_id, session_id) VALUES (?, 'm1', 's')",
            ((f"q{one}",) for one in range(2_000)),
        )
        text = json.dumps({"type": "text", "text": "x" * 500_000})
        made.execute(f"ALTER TABLE part ADD COLUMN data TEXT DEFAULT '{text}'")


def long_definition(path: Path) -> None:
    with database(path) as made:
        made.execute("CREATE VIEW v AS SELECT 1 WHERE 1 IN (1)")
        swap_in_schema(made, "IN (1)", f"IN ({','.join(['1'] * 6_000_000)})")


def many_tables(path: Path) -> None:
    with database(path) as made:
        made.execute("CREATE TABLE zz (a)")
        made.execute("PRAGMA writable_schema = ON")
        (root,) = made.execute("SELECT rootpage FROM sqlite_master WHERE name = 'zz'").fetchone()
        rows = (
            (f"t{one}", f"t{one}", root, f"CREATE TABLE t{one}(a,b,c,d,e,f,g,h)")
            for one in range(60_000)
        )
        made.executemany("INSERT INTO sqlite_master VALUES ('table', ?, ?, ?, ?)", rows)


def many_sessions(path: Path) -> None:
    """No index, so every session takes a look at every part."""
    with database(path) as made:
        made.executemany(
            "INSERT INTO session (id, title) VALUES (?, 't')",
            ((f"s{one}",) for one in range(5_000)),
        )
        made.executemany(
            "INSERT INTO part (id, session_id) VALUES (?, 'none')",
            ((f"q{one}",) for one in range(20_000)),
        )


def one_session_often(path: Path) -> None:
    with database(path) as made:
        for _ in range(11):
            made.execute("INSERT INTO session SELECT * FROM session")
            made.execute("INSERT INTO part SELECT * FROM part")


def named_query(path: Path) -> None:
    name = f'session", ({ENDLESS} x FROM c) --'.replace('"', '""')
    with database(path) as made:
        made.execute(f'CREATE TABLE "{name}" (a)')


def trigger_without_end(path: Path) -> None:
    with database(path) as made:
        made.execute("CREATE TABLE sink (x)")
        made.execute(f"CREATE VIEW endless AS {ENDLESS} hex(zeroblob(10000)) AS x FROM c")
        made.execute(
            "CREATE TRIGGER t AFTER INSERT ON session BEGIN INSERT INTO sink SELECT x FROM endless; END"
        )


def log_of_endless_pages(path: Path) -> None:
    """Its only commit says that the database has 250 million pages."""
    with database(path, wal=True) as made:
        made.execute("COMMIT")
        made.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        made.execute("INSERT INTO project VALUES ('a', 'b')")
        whole = path.read_bytes()
        log = path.with_name(f"{path.name}-wal").read_bytes()
    order = "<" if struct.unpack(">I", log[:4])[0] == 0x377F0682 else ">"

    def summed(data: bytes, first: int, second: int) -> tuple[int, int]:
        words = struct.unpack(f"{order}{len(data) // 4}I", data)
        for at in range(0, len(words), 2):
            first = (first + words[at] + second) & 0xFFFFFFFF
            second = (second + words[at + 1] + first) & 0xFFFFFFFF
        return first, second

    sums = summed(log[:24], 0, 0)
    spoiled = log[:24] + struct.pack(">II", *sums)
    for at in range(32, len(log), PAGE + 24):
        head = bytearray(log[at : at + 8])
        page = log[at + 24 : at + 24 + PAGE]
        if any(head[4:]):
            head[4:] = struct.pack(">I", 250_000_000)
        sums = summed(page, *summed(bytes(head), *sums))
        spoiled += bytes(head) + log[at + 8 : at + 16] + struct.pack(">II", *sums) + page
    path.write_bytes(whole)
    path.with_name(f"{path.name}-wal").write_bytes(spoiled)


def pages_below_many(path: Path) -> None:
    """A tree whose inner pages all have the same page as each of their children: rows
    without end.
    """
    with database(path) as made:
        made.executemany(
            "INSERT INTO session (id, title) VALUES (?, 't')",
            ((f"s{one:06}{'x' * 50}",) for one in range(30_000)),
        )
        (root,) = made.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'session'"
        ).fetchone()
    content = bytearray(path.read_bytes())
    start = (root - 1) * PAGE
    model = bytes(content[start : start + PAGE])
    child = model[8:12]

    def spoil(start: int) -> None:
        for cell in range(struct.unpack(">H", content[start + 3 : start + 5])[0]):
            at = (
                start
                + struct.unpack(">H", content[start + 12 + 2 * cell : start + 14 + 2 * cell])[0]
            )
            content[at : at + 4] = child
        content[start + 8 : start + 12] = child

    for _ in range(8):
        content += model
        spoil(len(content) - PAGE)
        child = struct.pack(">I", len(content) // PAGE)
    spoil(start)
    content[28:32] = struct.pack(">I", len(content) // PAGE)
    path.write_bytes(content)


def files_beside_as_links(path: Path, name: str, link: Callable[[Path, Path], object]) -> None:
    with database(path, wal=True) as made:
        made.execute("COMMIT")
        made.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        made.execute("INSERT INTO project VALUES ('a', 'b')")
        whole = path.read_bytes()
        log = path.with_name(f"{path.name}-wal").read_bytes()
    path.write_bytes(whole)
    path.with_name(f"{path.name}-wal").write_bytes(log)
    place = path.with_name(f"{path.name}{name}")
    place.unlink(missing_ok=True)
    link(path.parents[4] / "outside.txt", place)


def journal_that_names_a_file(path: Path) -> None:
    """A journal left by a crash may name another file, which is deleted when the
    journal is played back.
    """
    with database(path):
        pass
    name = str(path.parents[4] / "outside.txt").encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    head = (magic + struct.pack(">IIIII", 0, 1, 2, 512, PAGE)).ljust(512, b"\0")
    tail = (
        struct.pack(">I", (1 << 30) // PAGE + 1)
        + name
        + struct.pack(">II", len(name), sum(name))
        + magic
    )
    path.with_name(f"{path.name}-journal").write_bytes(head + tail)


def parents_in_a_circle(path: Path) -> None:
    with database(path) as made:
        made.execute(
            "INSERT INTO session (id, parent_id, title) VALUES ('a', 'b', 't'), ('b', 'a', 't'), ('c', 'c', 't')"
        )


def values_of_every_kind(path: Path) -> None:
    values = (None, b"\xff\0", 1e308, -(2**63), 2**63 - 1, "", "\0", float("inf"), "9" * 5000, "s")
    heads = (
        '{"role": "assistant", "time": {"created": 1e400}}',
        '{"role": {}}',
        "[" * 100_000,
        '{"role": "assistant", "summary": true}',
    )
    with database(path) as made:
        for value in values:
            made.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (value,) * 10)
            made.executemany(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
                [(value, value, value, value, head) for head in heads],
            )
            made.execute(
                "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
                (value, value, value, value, value, PART),
            )


HOSTILE: Mapping[str, Callable[[Path], None]] = {
    made.__name__: made
    for made in (
        calculated_folder, calculated_part, long_default, long_definition, many_tables, many_sessions, one_session_often, named_query,
        trigger_without_end, log_of_endless_pages, pages_below_many, journal_that_names_a_file, parents_in_a_circle, values_of_every_kind,
    )
} | {
    "log_as_a_link": lambda path: files_beside_as_links(path, "-wal", lambda there, here: here.symlink_to(there)),
    "shared_memory_as_a_link": lambda path: files_beside_as_links(path, "-shm", lambda there, here: here.symlink_to(there)),
    "shared_memory_as_a_hard_link": lambda path: files_beside_as_links(path, "-shm", os.link),
    "log_as_a_hard_link": lambda path: files_beside_as_links(path, "-wal", os.link),
}  # fmt: skip


def all_that_is_done(path: Path) -> Mapping[str, str]:
    """What came of it; an error that people are told of is an answer too."""
    places = HistoryPlaces(path.parents[3], {})
    steps: Mapping[str, Callable[[], object]] = {
        "find": lambda: len(list(history_finding.find_histories(places))),
        "read": lambda: len(history_reading.read_history_file(path).recordings),
        "copy": lambda: PendingCopies(path.parents[4] / "pending").copy_database(path),
        "write": lambda: opencode_writer.insert_opencode_session(path, json.dumps({"info": DOCUMENT, "messages": []}).encode()),
    }  # fmt: skip
    said = {}
    for name, step in steps.items():
        try:
            said[name] = str(step())
        except HelixError as error:
            said[name] = str(error)
    return said


def what_went_wrong(folder: Path, names: Sequence[str]) -> list[str]:
    """Make them, do all that is done in one process with limits, and look at the file
    outside of each. Empty where nothing went wrong.
    """
    content = b"thesis\n" * 10_000
    paths = [folder / name / PLACE for name in names]
    for name, path in zip(names, paths, strict=True):
        path.parent.mkdir(parents=True)
        (folder / name / "outside.txt").write_bytes(content)
        HOSTILE[name](path)
    words = [sys.executable, "-m", "tests.histories.hostile_databases", *map(str, paths)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    if done.returncode:
        return [f"ended with {done.returncode} after {done.stdout}: {done.stderr[-600:]}"]
    wrong = []
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        report = json.loads(line)
        if report["memory"] > MOST_MEMORY_BYTES:
            wrong.append(f"{name} or one before it took {report['memory'] >> 20} MB: {report}")
        outside = folder / name / "outside.txt"
        if not outside.exists() or outside.read_bytes() != content:
            wrong.append(f"{name} changed a file outside: {report}")
    return wrong


def main(words: Sequence[str]) -> None:
    """Print a line for each database, with the most memory that was taken so far."""
    foreign_sqlite.LONGEST_SECONDS = MOST_SECONDS
    if sys.platform != "win32":
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python would go on.
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    for word in words:
        said = all_that_is_done(Path(word))
        line = json.dumps({**said, "memory": most_memory_taken()})
        print(line, flush=True)  # noqa: T201 -- the answer of this process


def most_memory_taken() -> int:
    """In bytes; 0 where nobody counts it."""
    status = Path("/proc/self/status")
    if status.exists():  # On Linux, the figure below begins with the starting process's.
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) * 1024
    if sys.platform == "win32":
        return 0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main(sys.argv[1:])
