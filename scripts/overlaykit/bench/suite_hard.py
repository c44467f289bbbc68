"""hard: Pisinger's families, made to be hard: time, states, and what was proven."""

from __future__ import annotations

import contextlib
import importlib
import logging
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from overlaykit import solvers
from overlaykit.bench import generate, peers
from overlaykit.bench.common import figure, grid, Outcome, Settings, Target
from overlaykit.report import duration


HELP = "Pisinger's hard families: the exact solver's time, states and proven gaps"
MODULE = "torch._functorch._activation_checkpointing.knapsack_exact"
SIZES = (50, 200, 1_000)
COEFFICIENTS = (10**3, 10**6, 10**9)
QUICK = ((50, 10**3), (50, 10**6), (200, 10**6))  # (n, R)
PEER_SECONDS = 5.0
QUICK_PEER_SECONDS = 0.2


class _Effort(logging.Handler):
    """The states that the exact solver made, and the gap that its warning gives, if any."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.states = 0
        self.gap = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple):
            _, gap = record.args
            assert isinstance(gap, float)
            self.gap = gap


@contextlib.contextmanager
def _watched() -> Iterator[_Effort]:
    module = importlib.import_module(MODULE)
    effort = _Effort()
    core, solve = module._Core, module._Core.solve

    def counted(self: Any) -> Any:
        try:
            return solve(self)
        finally:
            effort.states += self.states_made

    propagate = module.log.propagate
    core.solve, module.log.propagate = counted, False
    module.log.addHandler(effort)
    try:
        yield effort
    finally:
        module.log.removeHandler(effort)
        core.solve, module.log.propagate = solve, propagate


def _exact(
    weights: Sequence[int], profits: Sequence[int], capacity: int, repeats: int
) -> dict[str, Any]:
    call = solvers.get("exact").call
    times, cpu_times = [], []
    for _ in range(repeats):
        memory: list[float] = list(weights)
        runtime: list[float] = list(profits)
        with _watched() as effort:
            begin, cpu = time.perf_counter(), time.process_time()
            _, saved, _ = call(memory, runtime, capacity)
            times.append(time.perf_counter() - begin)
            cpu_times.append(time.process_time() - cpu)
    assert sum(weights[i] for i in saved) <= capacity
    return {
        "seconds": statistics.median(times),
        "cpu_seconds": statistics.median(cpu_times),
        "states": effort.states,
        "gap": effort.gap,
        "optimal": effort.gap == 0,
        "value": sum(profits[i] for i in saved),
    }


def _contradicts(exact: dict[str, Any], peer: dict[str, Any]) -> bool:
    """Whether a peer's plan is better, or its proof worse, than the exact solver's claim.

    The gap comes in three figures; half a unit of the last is allowed for it.
    """
    bound = exact["value"] / (1 - exact["gap"]) * (1 + 1e-9)
    if exact["optimal"]:
        bound = exact["value"]
    proven_less: bool = peer["optimal"] and peer["value"] < exact["value"]
    return proven_less or peer["value"] > bound


def _row(
    family: str,
    n: int,
    R: int,
    repeats: int,
    others: Sequence[peers.Peer],
    allowed: float,
) -> dict[str, Any]:
    weights, profits, capacity = generate.hard(family, n, R, seed=0)
    exact = _exact(weights, profits, capacity, repeats)
    found = {}
    for peer in others:
        begin = time.perf_counter()
        answer = peer.call(weights, profits, capacity, allowed)
        seconds = time.perf_counter() - begin
        found[peer.name] = peers.as_json(answer, profits, seconds)
        found[peer.name]["contradicts"] = _contradicts(exact, found[peer.name])
    return {"family": family, "n": n, "R": R, "exact": exact, "peers": found}


def _worst(rows: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    return max(rows, key=lambda row: row["exact"][key])


def run(settings: Settings) -> Outcome:
    wanted = ("or-knapsack", "cp-sat")
    others, missing = peers.available(wanted) if settings.peers else ([], [])
    allowed = QUICK_PEER_SECONDS if settings.quick else PEER_SECONDS
    repeats = settings.count(full=3, quick=1)
    shapes = QUICK if settings.quick else [(n, R) for n in SIZES for R in COEFFICIENTS]
    todo = [(family, n, R) for family in generate.FAMILIES for n, R in shapes]
    rows = [
        _row(family, n, R, repeats, others, allowed)
        for family, n, R in settings.steps(todo, "hard")
    ]
    table = grid(
        f"hard: {len(rows)} instances, capacity half the weights",
        "family",
        "proven\noptimal",
        "worst\ntime",
        "at n, R",
        "most\nstates",
        "worst\ngap",
        *(f"{peer.label}\nproven, worst" for peer in others),
        caption="gap: proven by the exact solver"
        + (f"; the peers had {allowed:g} s each" if others else ""),
    )
    for family in generate.FAMILIES:
        part = [row for row in rows if row["family"] == family]
        slow = _worst(part, "seconds")
        gap = _worst(part, "gap")["exact"]["gap"]
        cells = []
        for peer in others:
            answers = [row["peers"][peer.name] for row in part]
            proven = sum(answer["optimal"] for answer in answers)
            worst = max(answer["seconds"] for answer in answers)
            cells.append(f"{proven}/{len(part)}, {duration(worst)}")
        table.add_row(
            family,
            f"{sum(row['exact']['optimal'] for row in part)}/{len(part)}",
            duration(slow["exact"]["seconds"]),
            f"{slow['n']:,}, 1e{len(str(slow['R'])) - 1}",
            f"{_worst(part, 'states')['exact']['states']:,}",
            f"{gap:.2g}" if gap else "0",
            *cells,
        )
    limit = importlib.import_module(MODULE).MAX_STATES
    long = [row for row in rows if row["exact"]["states"] >= limit // 8]
    rate = [row["exact"]["states"] / row["exact"]["cpu_seconds"] for row in long]
    longest = _worst(rows, "cpu_seconds")["exact"]["cpu_seconds"]
    wrong = sum(a["contradicts"] for row in rows for a in row["peers"].values())
    notes = list(missing)
    if rate:
        notes.append(
            f"limit of {limit:,} states: {figure(min(rate), '')} to "
            f"{figure(max(rate), '')} states a second where at least an eighth was used; "
            f"the longest search took {duration(longest)} of CPU time"
        )
    targets = [
        Target("contradicted by a peer", "", 0, wrong, at_least=False),
        Target(
            "longest search, CPU time",
            "s",
            1,
            longest,
            at_least=False,
        ),
    ]
    data = {
        "max_states": limit,
        "states_per_second": rate,
        "peer_seconds": allowed,
        "rows": rows,
    }
    return Outcome(data, [table], targets, notes)
