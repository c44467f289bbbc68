"""random: how the exact solver grows with n, and all solvers at n = 5,000, budget 0.5."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from overlaykit import solvers
from overlaykit.bench import generate
from overlaykit.bench.common import (
    attempt,
    grid,
    interleaved,
    Outcome,
    ratio,
    Settings,
    spread,
    Target,
)
from overlaykit.report import duration


HELP = "random items: growth from 100 to 100,000, and n = 5,000 against all solvers"
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
QUICK_SIZES = (100, 1_000, 10_000)
COMPARED = 5_000
GROWING = ("exact", "greedy")


def slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The exponent p of the power law n ** p fitted to the times, by least squares."""
    x, y = [math.log(n) for n in sizes], [math.log(t) for t in times]
    return statistics.linear_regression(x, y).slope


def _growth(n: int, repeats: int) -> dict[str, Any]:
    """Median times over `repeats` instances of n items, one of each seed."""
    times: dict[str, list[float]] = {name: [] for name in GROWING}
    for seed in range(repeats):
        knapsack = generate.uniform(n, seed)
        calls = {name: partial(solvers.get(name).call, *knapsack) for name in GROWING}
        for name, found in interleaved(calls, 3).items():
            times[name].append(statistics.median(found))
    return {
        "n": n,
        **{name: spread(found) for name, found in times.items()},
        "times_greedy": ratio(times["exact"], times["greedy"]),
        "seconds_per_n_log_n": statistics.median(times["exact"]) / (n * math.log2(n)),
    }


def _compared(settings: Settings) -> list[dict[str, Any]]:
    """Every solver on the same instances of 5,000 items, one instance a round."""
    names = solvers.available()
    times: dict[str, list[float]] = {name: [] for name in names}
    used: dict[str, list[float]] = {name: [] for name in names}
    kept: dict[str, list[float]] = {name: [] for name in names}
    seeds = range(settings.count(full=7, quick=2))
    for seed in settings.steps(seeds, f"random: n = {COMPARED:,}"):
        memory, runtime, budget = generate.uniform(COMPARED, seed)
        calls = {}
        for name in names:
            solver = solvers.get(name)
            saved = attempt(solver, memory, runtime, budget)
            if isinstance(saved, str):
                continue
            used[name].append(math.fsum(memory[i] for i in saved) / budget)
            kept[name].append(math.fsum(runtime[i] for i in saved))
            calls[name] = partial(solver.call, memory, runtime, budget)
        for name, found in interleaved(calls, 1).items():
            times[name] += found
    rows = []
    for name in names:
        if len(times[name]) < len(seeds):
            rows.append({"solver": name, "failed": True})
            continue
        row: dict[str, Any] = {"solver": name, "seconds": spread(times[name])}
        row["most_of_budget"] = max(used[name])
        row["least_of_exact_runtime"] = min(
            a / b for a, b in zip(kept[name], kept["exact"])
        )
        for other in ("exact", "hirschberg"):
            row[f"times_{other}"] = ratio(times[name], times[other])
        rows.append(row)
    return rows


def run(settings: Settings) -> Outcome:
    repeats = settings.count(full=9, quick=3)
    sizes = QUICK_SIZES if settings.quick else SIZES
    growth = [_growth(n, repeats) for n in settings.steps(sizes, "random: growth")]
    large = [row for row in growth if row["n"] >= 1_000]
    exponents = {
        name: slope([row["n"] for row in large], [row[name]["median"] for row in large])
        for name in GROWING
    }
    # What n log n itself would show over the same sizes.
    exponents["n log n"] = slope(
        [row["n"] for row in large], [row["n"] * math.log2(row["n"]) for row in large]
    )
    first = grid(
        f"random: growth, budget 0.5, {repeats} instances of each size",
        "n",
        "exact",
        "slowest",
        "greedy",
        "exact /\ngreedy",
        "exact / (n log2 n)",
        caption="exponent for n >= 1,000: "
        + ", ".join(f"{name} {value:.3f}" for name, value in exponents.items()),
    )
    for row in growth:
        first.add_row(
            f"{row['n']:,}",
            duration(row["exact"]["median"]),
            duration(row["exact"]["most"]),
            duration(row["greedy"]["median"]),
            f"{row['times_greedy']:.2f}",
            f"{row['seconds_per_n_log_n'] * 1e9:.1f} ns",
        )
    compared = _compared(settings)
    second = grid(
        f"random: n = {COMPARED:,}, budget 0.5",
        "solver",
        "median\ntime",
        "times\nexact's",
        "times\nhirschberg's",
        "most of\nbudget used",
        "least runtime,\n% of exact's",
    )
    for row in compared:
        if row.get("failed"):
            second.add_row(solvers.label(row["solver"]), "failed")
            continue
        second.add_row(
            solvers.label(row["solver"]),
            duration(row["seconds"]["median"]),
            f"{row['times_exact']:.3g}",
            f"{row['times_hirschberg']:.3g}",
            f"{100 * row['most_of_budget']:.2f} %",
            f"{100 * row['least_of_exact_runtime']:.3f}",
        )
    found = {row["solver"]: row for row in compared}

    def target(name: str, other: str, goal: float) -> Target:
        reached = found.get(other, {}).get(f"times_{name}", math.nan)
        what = f"n = {COMPARED:,}: {name} faster than {solvers.label(other)}"
        return Target(what, "x", goal, reached)

    targets = [
        target("exact", "dp", 30),
        target("exact", "hirschberg-shipped", 100),
        target("exact", "ilp", 500),
        target("hirschberg", "dp", 2),
        target("hirschberg", "hirschberg-shipped", 4),
    ]
    data = {"growth": growth, "exponents": exponents, "compared": compared}
    return Outcome(data, [first, second], targets)
