"""SQL statements for a fleet's tables, written once for SQLite (one computer) and
PostgreSQL (several).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.shared.postgres_pool import TIMELINE

Statement = tuple[str, Sequence[Any]]
Rows = list[tuple[Any, ...]]
RunStatements = Callable[[Sequence[Statement]], Awaitable[list[Rows]]]
T = TypeVar("T")


class TableTransaction(Protocol):
    """A transaction of the database with the fleet's tables."""

    def run_all(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements one after the other, and return each one's rows."""
        ...


class RunInTransaction(Protocol):
    """Runs a function in a thread and in one transaction, which commits when the function
    returns. The function is run again if the connection to the database was lost.
    """

    def __call__(self, work: Callable[[TableTransaction], T], /) -> Awaitable[T]: ...


# The notes that last longest end at the next midnight. One that seems to last longer than this was
# written before the database's clock was set back, and holds no more.
LONGEST_NOTE_SECONDS = 90_000


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """How the two databases differ: the tables' `prefix`, the clock in seconds since
    1970 and its next midnight (UTC), how a needed task (`share`) or an ended one (`hold`)
    is kept as it is for a transaction, and a number that grows when a standby takes over.
    """

    prefix: str
    now: str
    midnight: str
    share: str
    hold: str
    timeline: str
    mark: str

    def build_statement(self, template: str, *values: Any) -> Statement:
        """Return the statement for this database. Templates have PostgreSQL's marks for
        values (`%s`, and `%%` for a percent sign).
        """
        text = template.replace("{t}", self.prefix)
        text = text.replace("{midnight}", self.midnight)  # It contains {now}.
        text = text.replace("{longest}", str(LONGEST_NOTE_SECONDS))
        text = text.replace("{now}", self.now)
        text = text.replace("{share}", self.share)
        text = text.replace("{hold}", self.hold)
        text = text.replace("{timeline}", self.timeline)
        if self.mark != "%s":
            text = text.replace("%s", self.mark).replace("%%", "%")
        return text, values


POSTGRES = SqlDialect(
    prefix="helix.",
    now="extract(epoch FROM clock_timestamp())::float8",
    midnight="(floor({now} / 86400) * 86400 + 86400)",
    share="FOR SHARE",
    hold="FOR UPDATE",
    timeline=TIMELINE,
    mark="%s",
)
# One transaction at a time writes to a file, so no row needs a lock, and no standby takes over.
SQLITE = SqlDialect(
    prefix="",
    now="((julianday('now') - 2440587.5) * 86400.0)",  # 2440587.5 is 1970-01-01 there.
    midnight="(CAST({now} / 86400 AS INTEGER) * 86400.0 + 86400)",
    share="",
    hold="",
    timeline="0",
    mark="?",
)
