"""paper: the experiments of arXiv 2608.08740 again, each solver in fresh processes.

The paper's instances are not published. What its figures fix is the number of items and,
through the size of the table, the capacity W in quanta of 1/10,000 of a unit: 304 GB of
float32 at 100 items is W = 7.5e8, and 58.4 GB of sliding rows is W = 2.9e9. Whole sizes
are drawn so that half of their sum is that capacity.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from rich.table import Table

from overlaykit import solvers
from overlaykit.bench import generate
from overlaykit.bench.child import measure
from overlaykit.bench.common import (
    grid,
    interleaved,
    Outcome,
    ratio,
    Settings,
    spread,
    Target,
)
from overlaykit.report import duration


HELP = "the paper's memory, time and exactness, reproduced in fresh processes"
GB, MB = 1e9, 1e6
LIMIT, QUICK_LIMIT = 4 * 2**30, 2**30  # address space above the idle import, bytes
HUGE_LIMIT = 22 * 2**30
SOLVERS = ("dp", "hirschberg-shipped", "hirschberg", "exact")
OURS = ("hirschberg", "exact")
SIZES = (20, 50, 100, 200, 500, 1_000, 2_000)
QUICK_SIZES = (100,)
LARGEST = 3_010  # whole sizes to this make W = 7.5e8 quanta at n = 100
ROWS_LARGEST = 584  # and to this W = 2.9e9 at n = 2,000
SCALE = {"n": 2_000, "largest": 10**6}
SHIPPED_ROWS = 5  # float32 rows of the shipped solver: four, and at a split one flipped
PAPER_TABLE, PAPER_ROWS = 304 * GB, 58.4 * GB


def table_bytes(n: int, quanta: int) -> int:
    """Bytes of `dp_knapsack`'s float32 table."""
    return (n + 1) * (quanta + 1) * 4


def rows_bytes(quanta: int) -> int:
    """Bytes of the rows that the shipped sliding solver needs at once."""
    return SHIPPED_ROWS * (quanta + 1) * 4


def size(value: float) -> str:
    if value < 1e5:
        return "< 0.1 MB"  # finer than resident memory shows
    for unit, scale in (("TB", 1e12), ("GB", GB)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / MB:.3g} MB"


def _fresh(
    solver: str, kind: str | None, repeats: int, limit: int | None, **arguments: int
) -> dict[str, Any]:
    """`repeats` fresh processes; one where the allocator refuses."""
    found: list[dict[str, Any]] = []
    for _ in range(repeats):
        found.append(measure(solver, kind, limit=limit, **arguments))
        if "refused" in found[-1]:
            return {"solver": solver, "refused": found[-1]["refused"]}
    row: dict[str, Any] = {"solver": solver}
    for key in ("seconds", "cpu_seconds", "peak_bytes", "process_seconds"):
        if key in found[0]:
            row[key] = spread([one[key] for one in found])
    for key in ("of_budget", "kept_runtime"):
        if key in found[0]:
            row[key] = found[0][key]
    return row


def _alternating(
    names: Sequence[str], kind: str, repeats: int, **arguments: int
) -> dict[str, list[dict[str, Any]]]:
    """Fresh processes of several solvers, in turn, so that their times may be compared."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            found[name].append(measure(name, kind, **arguments))
    return found


def _capacity(n: int, largest: int) -> int:
    """The capacity in quanta of the `integers` instance."""
    return generate.QUANTA * int(generate.integers(n, 0, largest).budget)


def _growth(settings: Settings, limit: int) -> list[dict[str, Any]]:
    """Peak memory and time of every solver from 20 to 2,000 items."""
    sizes = QUICK_SIZES if settings.quick else SIZES
    todo = [(n, LARGEST, solver) for n in sizes for solver in SOLVERS]
    if not settings.quick:
        todo += [(2_000, ROWS_LARGEST, solver) for solver in SOLVERS]
    repeats = settings.count(full=5, quick=1)
    rows = []
    for n, largest, solver in settings.steps(todo, "paper: memory"):
        # Only what may be too large is limited: it is refused, not killed.
        bound = None if solver in OURS else limit
        row = _fresh(solver, "integers", repeats, bound, n=n, seed=0, largest=largest)
        quanta = _capacity(n, largest)
        row |= {"n": n, "largest": largest, "quanta": quanta}
        if solver == "dp":
            row["computed_bytes"] = table_bytes(n, quanta)
        elif solver == "hirschberg-shipped":
            row["computed_bytes"] = rows_bytes(quanta)
        rows.append(row)
    return rows


def _growth_table(rows: Sequence[dict[str, Any]], limit: int) -> Table:
    table = grid(
        "paper: peak memory above an idle import, and time",
        "n",
        "W, quanta",
        "solver",
        "needs\n(computed)",
        "peak\n(measured)",
        "time",
        "CPU\ntime",
        caption=f"refused: by the allocator, with {size(limit)} of address space to use",
    )
    for row in rows:
        refused = "refused" in row
        table.add_row(
            f"{row['n']:,}",
            f"{row['quanta']:.2g}",
            solvers.label(row["solver"]),
            size(row["computed_bytes"]) if "computed_bytes" in row else "",
            "refused" if refused else size(row["peak_bytes"]["median"]),
            "" if refused else duration(row["seconds"]["median"]),
            "" if refused else duration(row["cpu_seconds"]["median"]),
        )
    return table


def _scale(settings: Settings) -> dict[str, Any]:
    """The exact solver on 2,000 whole sizes to a million, beside processes that only import."""
    repeats = settings.count(full=7, quick=2)
    rounds = [
        (
            measure("exact", "integers", seed=0, **SCALE),
            measure("exact"),
        )
        for _ in settings.steps(range(repeats), "paper: exact, n = 2,000")
    ]
    return {
        **SCALE,
        "capacity": int(generate.integers(seed=0, **SCALE).budget),
        "seconds": spread([solved["seconds"] for solved, _ in rounds]),
        "cpu_seconds": spread([solved["cpu_seconds"] for solved, _ in rounds]),
        "peak_bytes": spread([solved["peak_bytes"] for solved, _ in rounds]),
        "process_seconds": spread([solved["process_seconds"] for solved, _ in rounds]),
        "idle_process_seconds": spread([idle["process_seconds"] for _, idle in rounds]),
        # CPU time: the wall time of an import of torch varies by more than a solve.
        "process_cpu_seconds_above_idle": statistics.median(
            solved["process_cpu_seconds"] - idle["process_cpu_seconds"]
            for solved, idle in rounds
        ),
    }


def _odd(settings: Settings) -> dict[str, Any]:
    """Sliding rows where no common divisor helps: bytes for each quantum, and time."""
    capacity = 3 * 10**5 if settings.quick else 10**7
    repeats = settings.count(full=5, quick=1)
    names = ("hirschberg-shipped", "hirschberg", "exact")
    found = _alternating(names, "quanta", repeats, n=100, seed=0, capacity=capacity)
    row: dict[str, Any] = {"n": 100, "quanta": capacity}
    for name in names:
        row[name] = {
            "seconds": spread([one["seconds"] for one in found[name]]),
            "cpu_seconds": spread([one["cpu_seconds"] for one in found[name]]),
            "bytes_per_quantum": statistics.median(
                one["peak_bytes"] / capacity for one in found[name]
            ),
            "of_budget": found[name][0]["of_budget"],
        }
    row["times_faster"] = ratio(
        [one["seconds"] for one in found["hirschberg-shipped"]],
        [one["seconds"] for one in found["hirschberg"]],
    )
    return row


def _odd_table(rows: Sequence[dict[str, Any]]) -> Table:
    table = grid(
        "paper: n = 100, no common divisor, fresh processes",
        "W, quanta",
        "solver",
        "bytes per\nquantum",
        "time",
        "CPU\ntime",
        "of budget",
    )
    for row in rows:
        for name in ("hirschberg-shipped", "hirschberg", "exact"):
            if name in row:
                line = row[name]
                table.add_row(
                    f"{row['quanta']:.2g}",
                    solvers.label(name),
                    f"{line['bytes_per_quantum']:.3g}",
                    duration(line["seconds"]["median"]),
                    duration(line["cpu_seconds"]["median"]),
                    f"{100 * line['of_budget']:.4f} %",
                )
    return table


def _speed(settings: Settings) -> list[dict[str, Any]]:
    """The total of 1,000 runs of each solver at small n, W = 5,000 quanta."""
    runs = settings.count(full=1_000, quick=30)
    rows = []
    for n in settings.steps((20, 100), f"paper: {runs} runs"):
        knapsack = generate.uniform(n, 0)
        calls = {name: partial(solvers.get(name).call, *knapsack) for name in SOLVERS}
        times = interleaved(calls, runs)
        totals = {name: sum(found) for name, found in times.items()}
        row: dict[str, Any] = {"n": n, "runs": runs, "total_seconds": totals}
        row["percent_less_than_dp"] = {
            name: 100 * (1 - totals[name] / totals["dp"]) for name in SOLVERS
        }
        rows.append(row)
    return rows


def _exactness(settings: Settings) -> dict[str, Any]:
    """Random instances in whole quanta against enumeration: over budget, not optimal."""
    rng = random.Random("paper exactness")
    runs = 200 if settings.quick else 2_000
    wrong = {name: {"over": 0, "below": 0} for name in SOLVERS}
    for _ in settings.steps(range(runs), "paper: exactness"):
        n = rng.randint(1, 10)
        weights = [rng.randint(1, 30) for _ in range(n)]
        values = [rng.randint(1, 50) for _ in range(n)]
        capacity = rng.randint(0, sum(weights))
        plans = [(0, 0)]
        for w, v in zip(weights, values):
            plans += [(weight + w, value + v) for weight, value in plans]
        best = max(value for weight, value in plans if weight <= capacity)
        for name in SOLVERS:
            _, saved, _ = solvers.get(name).call(
                [w / generate.QUANTA for w in weights],
                list(values),
                capacity / generate.QUANTA,
            )
            wrong[name]["over"] += sum(weights[i] for i in saved) > capacity
            wrong[name]["below"] += sum(values[i] for i in saved) < best
    return {"instances": runs, "wrong": wrong}


def _huge() -> dict[str, Any]:
    """W = 7.5e8 without a common divisor, by our rows, within this machine's memory."""
    quanta = round(PAPER_TABLE / (4 * 101)) - 1
    found = measure(
        "hirschberg", "quanta", limit=HUGE_LIMIT, n=100, seed=0, capacity=quanta
    )
    if "refused" in found:
        return {"n": 100, "quanta": quanta, "refused": found["refused"]}
    line = {
        "seconds": spread([found["seconds"]]),
        "cpu_seconds": spread([found["cpu_seconds"]]),
        "bytes_per_quantum": found["peak_bytes"] / quanta,
        "of_budget": found["of_budget"],
    }
    return {"n": 100, "quanta": quanta, "hirschberg": line}


def _find(
    rows: Sequence[dict[str, Any]], solver: str, n: int, largest: int
) -> dict[str, Any]:
    for row in rows:
        if (row["solver"], row["n"], row["largest"]) == (solver, n, largest):
            return row
    return {}


def _peaks(rows: Sequence[dict[str, Any]], n: int, largest: int) -> str:
    found = [(name, _find(rows, name, n, largest)) for name in OURS]
    return ", ".join(
        f"{name} {size(row['peak_bytes']['median'])}" for name, row in found if row
    )


def _claims(data: dict[str, Any]) -> list[dict[str, str]]:
    """The paper's four figures: theirs, reproduced with what ships, and ours."""
    growth, speed = data["growth"], data["speed"]
    wrong, runs = data["exactness"]["wrong"], data["exactness"]["instances"]
    per_quantum = data["odd"]["hirschberg-shipped"]["bytes_per_quantum"]
    claims = [
        {
            "claim": "dp's table, n = 100",
            "paper": "304 GB",
            "reproduced": f"{size(table_bytes(100, _capacity(100, LARGEST)))}, computed; "
            + _find(growth, "dp", 100, LARGEST).get("refused", "not refused"),
            "ours": _peaks(growth, 100, LARGEST),
        },
        {
            "claim": "sliding rows, n = 2,000",
            "paper": "58.4 GB",
            "reproduced": f"{size(rows_bytes(_capacity(2_000, ROWS_LARGEST)))}, "
            f"computed; {per_quantum:.3g} bytes a quantum measured at W = "
            f"{data['odd']['quanta']:.0e}",
            "ours": _peaks(growth, 2_000, ROWS_LARGEST)
            or f"exact, sizes to 1e6: {size(data['scale']['peak_bytes']['median'])}",
        },
    ]
    for row in speed:
        less = row["percent_less_than_dp"]
        claims.append(
            {
                "claim": f"time less than dp's, n = {row['n']}, {row['runs']:,} runs",
                "paper": "25 to 28 %",
                "reproduced": f"{less['hirschberg-shipped']:.0f} %",
                "ours": ", ".join(f"{name} {less[name]:.1f} %" for name in OURS),
            }
        )

    def faults(name: str) -> str:
        return f"{wrong[name]['over']} over budget, {wrong[name]['below']} below"

    claims.append(
        {
            "claim": f"exact, {runs:,} instances",
            "paper": "exact",
            "reproduced": faults("hirschberg-shipped"),
            "ours": "; ".join(f"{name} {faults(name)}" for name in OURS),
        }
    )
    return claims


def run(settings: Settings) -> Outcome:
    limit = QUICK_LIMIT if settings.quick else LIMIT
    data: dict[str, Any] = {
        "limit_bytes": limit,
        "scale": _scale(settings),
        "odd": _odd(settings),
        "growth": _growth(settings, limit),
        "speed": _speed(settings),
        "exactness": _exactness(settings),
    }
    odd = [data["odd"]]
    if settings.huge:
        data["huge"] = _huge()
        odd.append(data["huge"])
    data["claims"] = _claims(data)
    claims = Table(title="paper: its figures", title_justify="left", title_style="bold")
    for heading in ("figure", "the paper", "with what ships", "ours"):
        claims.add_column(heading, overflow="fold")
    for claim in data["claims"]:
        claims.add_row(*claim.values())
    scale = data["scale"]
    above = scale["process_cpu_seconds_above_idle"]
    notes = [
        (
            f"exact, n = 2,000, W = {scale['capacity']:.3g}, "
            f"{scale['seconds']['repeats']} fresh processes: "
            f"{duration(scale['seconds']['median'])} for its first call, "
            f"{size(scale['peak_bytes']['median'])} above an idle import; the process used "
            f"{1e3 * above:.0f} ms more CPU time than one that only imports"
        )
    ]
    if "refused" in data.get("huge", {}):
        notes.append(f"--huge was refused: {data['huge']['refused']}")
    targets = [
        Target(
            "exact, n = 2,000: first call",
            "ms",
            50,
            1e3 * _median(scale, "seconds"),
            False,
        ),
        Target(
            "exact, n = 2,000: memory",
            "MB",
            16,
            _median(scale, "peak_bytes") / MB,
            False,
        ),
        Target(
            "hirschberg, no common divisor, W = 1e7: bytes per quantum",
            "",
            20,
            # At a smaller W the fixed table outweighs the rows.
            math.nan
            if settings.quick
            else data["odd"]["hirschberg"]["bytes_per_quantum"],
            False,
        ),
        Target(
            "hirschberg over as shipped, there", "x", 1, data["odd"]["times_faster"]
        ),
    ]
    tables = [_growth_table(data["growth"], limit), _odd_table(odd), claims]
    return Outcome(data, tables, targets, notes)


def _median(row: dict[str, Any], key: str) -> float:
    value: float = row[key]["median"]
    return value
