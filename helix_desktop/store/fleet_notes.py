"""Notes of workers and people, besides tasks: who works, what to stop, and what may be
and has been spent.

A note is a name, a number and an end by the database's clock. Workers renew their own notes.
If a limit is set, a step's cost is added before the task's next step, in the transaction
that notes it in the task. So if a worker dies, nothing is counted twice or never.
"""

import math
from collections import defaultdict
from dataclasses import field
from typing import Any

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store.fleet_statements import RunStatements, SqlDialect, Statement

# No tasks are given out for this many seconds after a standby took over, as it may lack
# the last claims.
FAILOVER_SECONDS = 30.0
# A request that ended with its worker counts as money spent for so long, even if nobody takes up
# its task and charges for it.
CUT_OFF_SECONDS = 86_400.0
ALL_WORKSPACES = b""  # Used for notes on all workspaces of a store.
_SQL = read_sql_statements("fleet_note_statements")
_FAILOVER = "SELECT 1 FROM {t}notes WHERE space = %s AND name = 'timeline' AND until > {now} AND until < {now} + {longest}"
_STOP = "SELECT 1 FROM {t}notes WHERE space = %s AND name = 'stop'"
_READ = "SELECT name, amount FROM {t}notes WHERE space IN (%s, %s) AND (until = 0 OR (until > {now} AND until < {now} + {longest})) ORDER BY name"
_CHARGED = "UPDATE {t}tasks SET charged = CASE WHEN charged > %s THEN charged ELSE %s END WHERE space = %s AND id = %s AND claims = %s AND state = 'running' RETURNING id"


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request under way, in the note that the next worker finds if this one is killed.

    `claims`: which claim of the task sent it. `cost_before`: what the task had cost by then.
    `dollars`: what it costs at least, by our own count.
    """

    task: str
    claims: int
    cost_before: float
    dollars: float

    @property
    def note_name(self) -> str:
        return f"{note_beginning_of_request(self.task, self.claims)}{self.cost_before!r}"


def note_beginning_of_request(task: str, claims: int) -> str:
    return f"request {task} {claims} "


@dataclass(frozen=True, slots=True)
class FleetState:
    """What the notes say. `workers`: those alive, and whether they must drain. `limits`
    and `spent`: dollars by scope: "workspace", "day", "fleet" or "agent NAME"; and in
    `spent`, "estimated" is the part for requests of killed workers, which nobody measured.
    `reserved`: dollars that the running requests of each worker may cost.
    `paused`: providers that asked for a pause. `setbacks`: how often each worker gave a task
    back. `unsent_facts`: how many facts only its computer has.
    """

    workers: dict[str, bool] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    reserved: dict[str, float] = field(default_factory=dict)
    requests: tuple[SentRequest, ...] = ()
    setbacks: dict[str, int] = field(default_factory=dict)
    unsent_facts: dict[str, int] = field(default_factory=dict)
    paused: tuple[str, ...] = ()
    unable: tuple[str, ...] = ()  # Machines that cannot run tasks, and why.
    is_stopped: bool = False

    def dollars_left(self, agent: str) -> float:
        """Return the dollars left for tasks of this agent, by the tightest limit, or infinity."""
        dollars_by_scope = self._dollars_left_by_scope(agent)
        return min(dollars_by_scope.values(), default=math.inf)

    def tightest_limit(self, agent: str) -> str:
        """Return the scope with the fewest dollars left, or an empty string."""
        tightest_scope = ""
        fewest_dollars = math.inf
        for scope, dollars in self._dollars_left_by_scope(agent).items():
            if dollars < fewest_dollars:
                tightest_scope = scope
                fewest_dollars = dollars
        return tightest_scope

    def _dollars_left_by_scope(self, agent: str) -> dict[str, float]:
        """Return the dollars left in each scope that has a limit and that the agent's tasks
        belong to.
        """
        dollars_by_scope: dict[str, float] = {}
        for scope in ("workspace", "day", "fleet", f"agent {agent}"):
            if scope in self.limits:
                dollars_by_scope[scope] = self.limits[scope] - self.spent.get(scope, 0.0)
        return dollars_by_scope


class FleetNotes:
    """The notes of one workspace, and those for all workspaces of its store."""

    def __init__(self, run_statements: RunStatements, dialect: SqlDialect, space: bytes) -> None:
        self._run_statements = run_statements
        self._dialect = dialect
        self._space = space

    async def _query_notes(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        (rows,) = await self._run_statements([self._dialect.build_statement(text, *values)])
        return rows

    async def read_state(self) -> FleetState:
        amounts_by_kind = defaultdict[str, dict[str, float]](dict)
        for name, amount in await self._query_notes(_READ, self._space, ALL_WORKSPACES):
            # For example "worker desk 1a2b3c.1" or "spent day".
            kind, _, subject = name.partition(" ")
            amounts_by_kind[kind][subject] = amount
        workers: dict[str, bool] = {}
        for worker, is_told_to_drain in amounts_by_kind["worker"].items():
            workers[worker] = bool(is_told_to_drain)
        requests = _parse_requests(amounts_by_kind["request"])
        setbacks = _as_counts(amounts_by_kind["setbacks"])
        unsent_facts = _as_counts(amounts_by_kind["unsent"])
        return FleetState(
            workers=workers,
            limits=amounts_by_kind["limit"],
            spent=amounts_by_kind["spent"],
            reserved=amounts_by_kind["reserved"],
            requests=requests,
            setbacks=setbacks,
            unsent_facts=unsent_facts,
            paused=tuple(amounts_by_kind["pause"]),
            unable=tuple(amounts_by_kind["unable"]),
            is_stopped="stop" in amounts_by_kind,
        )

    async def renew_worker_and_tell_if_draining(self, worker: str, seconds: float) -> bool:
        """Note that the worker is alive for so long. Return whether it was told to drain."""
        ((amount,),) = await self._query_notes(
            _SQL["live"], self._space, f"worker {worker}", seconds
        )
        return bool(amount)

    async def note_trouble_of_worker(
        self, worker: str, *, setbacks: int, unsent_facts: int, seconds: float
    ) -> None:
        """Show operators for so long how often the worker gave a task back, and how many
        facts only its computer has.
        """
        for kind, amount in (("setbacks", setbacks), ("unsent", unsent_facts)):
            name = f"{kind} {worker}"
            await self._query_notes(_SQL["set"], self._space, name, seconds, seconds, float(amount))

    async def drain_workers(self, worker: str = "") -> int:
        """Tell this worker, or all, to take no more tasks and to end. Return how many were told."""
        told = await self._query_notes(_SQL["drain"], self._space, worker, f"worker {worker}")
        return len(told)

    async def pause_provider(self, provider: str, seconds: float) -> None:
        """Keep workers from beginning requests to this provider for so long."""
        await self._query_notes(
            _SQL["set"], self._space, f"pause {provider}", seconds, seconds, 0.0
        )

    async def exclude_machine_for(self, machine: str, why: str, seconds: float) -> None:
        """Make this machine's workers leave tasks to others for so long."""
        await self.include_machine(machine)  # It may have given another reason before.
        await self._query_notes(
            _SQL["set"], self._space, f"unable {machine}: {why}", seconds, seconds, 0.0
        )

    async def include_machine(self, machine: str) -> None:
        """Note that this machine's workers can run tasks."""
        beginning = f"unable {machine}: "
        await self._query_notes(_SQL["remove_beginning"], self._space, len(beginning), beginning)

    async def set_limit(self, scope: str, dollars: float) -> None:
        """Set the dollars that may be spent in this scope. 0: no limit."""
        space = self._space_of_scope(scope)
        if dollars:
            await self._query_notes(_SQL["set"], space, f"limit {scope}", 0.0, 0.0, dollars)
        else:
            await self._query_notes(_SQL["remove"], space, f"limit {scope}")

    async def reserve_dollars(
        self, worker: str, dollars: float, seconds: float, *, for_all: bool
    ) -> None:
        """Tell other workers for so long what this one's running requests may cost.
        `for_all`: also those of other workspaces, which share a limit with it.
        """
        space = self._space
        if for_all:
            space = ALL_WORKSPACES
        await self._query_notes(_SQL["set"], space, f"reserved {worker}", seconds, seconds, dollars)

    async def note_request(self, request: SentRequest) -> None:
        """Note that a request is being sent, for whoever takes up its task after a kill."""
        seconds = CUT_OFF_SECONDS
        await self._query_notes(
            _SQL["set"], self._space, request.note_name, seconds, seconds, request.dollars
        )

    async def charge_cut_off_request(self, request: SentRequest, agent: str) -> None:
        """Charge once for a request whose worker was killed before its cost was known."""
        statements: list[Statement] = []
        for scope in [*_scopes_of_agent(agent), "estimated"]:
            is_daily = int(scope == "day")
            statement = self._dialect.build_statement(
                _SQL["charge_cut_off"],
                self._space_of_scope(scope),
                f"spent {scope}",
                is_daily,
                self._space,
                request.note_name,
            )
            statements.append(statement)
        statements.append(self._removal_of_requests(request.task, request.claims))
        await self._run_statements(statements)

    async def remove_request(self, request: SentRequest) -> None:
        await self._run_statements([self._removal_of_requests(request.task, request.claims)])

    def _removal_of_requests(self, task: str, claims: int) -> Statement:
        beginning = note_beginning_of_request(task, claims)
        return self._dialect.build_statement(
            _SQL["remove_beginning"], self._space, len(beginning), beginning
        )

    async def remove_worker(self, worker: str) -> None:
        """Remove the note of a worker that has ended, and notes that ended long ago."""
        await self._query_notes(_SQL["remove"], self._space, f"worker {worker}")

    def build_release_of_reservations(self, workers_of_process: str) -> Statement:
        """Return the statement that drops what workers of processes that have ended had
        reserved. `workers_of_process`: a pattern of those that have not.
        """
        return self._dialect.build_statement(
            _SQL["release_reservations"], self._space, workers_of_process
        )

    def charge_statements(self, task: str, claims: int, agent: str, cost: float) -> list[Statement]:
        """Return statements that note what a claimed task has cost so far, when it has no
        request under way.
        """
        lease = (self._space, task, claims)
        dollars = float(cost)

        statements = [self._removal_of_requests(task, claims)]
        for scope in _scopes_of_agent(agent):
            space = self._space_of_scope(scope)
            ends_at_midnight = int(scope == "day")
            note = (space, f"spent {scope}", ends_at_midnight, dollars, dollars, *lease)
            statements.append(self._dialect.build_statement(_SQL["charge"], *note))
        # Last, since each note adds what the task has not been charged for yet.
        statements.append(self._dialect.build_statement(_CHARGED, dollars, dollars, *lease))
        return statements

    def _space_of_scope(self, scope: str) -> bytes:
        if scope == "fleet":
            return ALL_WORKSPACES
        return self._space

    def build_stop_statement(self, *, is_stopped: bool) -> Statement:
        """Return the statement that stops all work in this workspace, or allows it again."""
        if is_stopped:
            return self._dialect.build_statement(_SQL["set"], self._space, "stop", 0.0, 0.0, 1.0)
        return self._dialect.build_statement(_SQL["remove"], self._space, "stop")

    def build_stop_question(self) -> Statement:
        """Return a statement that returns a row while all work is stopped."""
        return self._dialect.build_statement(_STOP, self._space)

    def build_failover_statements(self) -> list[Statement]:
        """Return statements that note a standby's takeover. The last one returns a row
        while no task may be claimed.
        """
        noting = self._dialect.build_statement(
            _SQL["timeline"], self._space, self._space, FAILOVER_SECONDS
        )
        return [noting, self._dialect.build_statement(_FAILOVER, self._space)]

    async def add_cost(self, task: str, claims: int, agent: str, cost: float) -> None:
        """Note the cost before a task's next step, if a limit is set."""
        await self._run_statements(self.charge_statements(task, claims, agent, cost))


def _scopes_of_agent(agent: str) -> list[str]:
    """Return the scopes whose limits hold for an agent's tasks."""
    scopes = ["workspace", "day", "fleet"]
    if agent:
        scopes.append(f"agent {agent}")
    return scopes


def _parse_requests(dollars_by_subject: dict[str, float]) -> tuple[SentRequest, ...]:
    requests = []
    for subject, dollars in dollars_by_subject.items():
        task, claims, cost_before = subject.split(" ")
        request = SentRequest(task, int(claims), float(cost_before), dollars)
        requests.append(request)
    return tuple(requests)


def _as_counts(amounts: dict[str, float]) -> dict[str, int]:
    return {worker: int(amount) for worker, amount in amounts.items() if amount}
