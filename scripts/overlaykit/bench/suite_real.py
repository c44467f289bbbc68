"""real: the captured instances, every solver at every budget, against proven optima."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from overlaykit import solvers
from overlaykit.bench import peers
from overlaykit.bench.common import (
    attempt,
    figure,
    geometric_mean,
    grid,
    interleaved,
    Outcome,
    ratio,
    Settings,
    Target,
)
from overlaykit.cli import UserError
from overlaykit.instances import Instance, load_all
from overlaykit.report import duration


HELP = "all captured instances at budgets 0.02 to 0.5: budget, optimum and speed"
FOLDER = Path(__file__).resolve().parents[3] / "test" / "instances"
BUDGETS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
QUICK_BUDGETS = (0.1, 0.3, 0.5)
TARGET_BUDGETS = (0.05, 0.5)  # the targets are for budgets between these
PEER_SECONDS, QUICK_PEER_SECONDS = 2.0, 0.1  # a peer has so long for a plan


def _optima() -> dict[str, dict[str, list[int]]]:
    path = FOLDER / "optima.json"
    try:
        found: dict[str, dict[str, list[int]]] = json.loads(path.read_text())["optima"]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path}: no table of proven optima: {type(error).__name__}"
        ) from error
    return found


def _chosen(names: Sequence[str]) -> list[Instance]:
    found = load_all(FOLDER)
    known = [instance.name for instance in found]
    for name in names:
        if name not in known:
            raise UserError(f"--instance: {name!r} is not one of {', '.join(known)}")
    return [i for i in found if not names or i.name in names]


def _judge(
    instance: Instance, budget: float, saved: Sequence[int], optimum: int
) -> dict[str, Any]:
    """Weigh a plan in whole bytes, and in the fractions that the solver saw."""
    kept = instance.runtime_of(saved)
    size = instance.bytes_of(saved)
    fraction = math.fsum(instance.normalized[i] for i in saved)
    return {
        "bytes": size,
        "over_bytes": size > instance.capacity(budget),
        "over_floats": fraction > budget * (1 + 1e-12),
        "kept_runtime": kept,
        "below_optimum": kept < optimum,
    }


def _cell(
    instance: Instance,
    budget: float,
    optimum: int,
    repeats: int,
    others: Sequence[peers.Peer],
    allowed: float,
) -> dict[str, Any]:
    calls: dict[str, Callable[[], object]] = {}
    plans: dict[str, dict[str, Any]] = {}
    memory, runtime = list(instance.normalized), list(instance.runtime)
    for name in solvers.available():
        solver = solvers.get(name)
        answer = attempt(solver, memory, runtime, budget)
        if isinstance(answer, str):
            plans[name] = {"failed": answer}
            continue
        plans[name] = _judge(instance, budget, answer, optimum)
        calls[name] = partial(solver.call, memory, runtime, budget)
    times = interleaved(calls, repeats)
    for name, rounds in times.items():
        plans[name]["seconds"] = statistics.median(rounds)
        for other in ("dp", "greedy", "exact", "hirschberg-shipped"):
            if other in times:
                plans[name][f"times_{other}"] = ratio(rounds, times[other])
    profits = [int(r) for r in runtime]
    if profits == runtime:
        # Once each, not in turn: some need a thousand times as long, or all they may.
        for peer in others:
            begin = time.perf_counter()
            found = peer.call(
                instance.memory, profits, instance.capacity(budget), allowed
            )
            seconds = time.perf_counter() - begin
            plan = plans[peer.name] = _judge(instance, budget, found.saved, optimum)
            plan["seconds"] = seconds
            plan["unproven"] = not found.optimal
            if "exact" in times:
                plan["times_exact"] = seconds / statistics.median(times["exact"])
    return {
        "instance": instance.name,
        "items": len(memory),
        "classes": instance.classes,
        "budget": budget,
        "capacity": instance.capacity(budget),
        "optimum": optimum,
        "plans": plans,
    }


def _ratios(cells: Sequence[dict[str, Any]], name: str, other: str) -> list[float]:
    """Per cell, how many times as long as `other` the solver took."""
    found = (cell["plans"].get(name, {}).get(f"times_{other}") for cell in cells)
    return [value for value in found if value is not None]


def summarise(cells: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    plans = [cell["plans"][name] for cell in cells if name in cell["plans"]]
    solved = [plan for plan in plans if "failed" not in plan]
    to_exact = _ratios(cells, name, "exact")
    return {
        "cells": len(plans),
        "over_bytes": sum(plan["over_bytes"] for plan in solved),
        "over_floats": sum(plan["over_floats"] for plan in solved),
        "below_optimum": sum(plan["below_optimum"] for plan in solved),
        "failed": len(plans) - len(solved),
        "unproven": sum(plan.get("unproven", False) for plan in solved),
        "median_seconds": statistics.median(p["seconds"] for p in solved)
        if solved
        else None,
        "times_exact": geometric_mean(to_exact),
        "times_exact_least": min(to_exact, default=math.nan),
        "times_exact_most": max(to_exact, default=math.nan),
    }


def _targets(cells: Sequence[dict[str, Any]]) -> list[Target]:
    low, high = TARGET_BUDGETS
    kept = [cell for cell in cells if low <= cell["budget"] <= high]
    dp = [1 / r for r in _ratios(kept, "exact", "dp")]
    greedy = _ratios(kept, "exact", "greedy")
    ours_dp = [1 / r for r in _ratios(kept, "hirschberg", "dp")]
    shipped = [1 / r for r in _ratios(kept, "hirschberg", "hirschberg-shipped")]
    mean = "geometric mean"
    plans = [cell["plans"]["exact"] for cell in cells if "exact" in cell["plans"]]
    over = sum(p.get("over_bytes", True) or p["over_floats"] for p in plans)
    below = sum(p.get("below_optimum", True) for p in plans)
    return [
        Target("exact: plans over the budget", "", 0, over, at_least=False),
        Target("exact: plans below the optimum", "", 0, below, at_least=False),
        Target(f"exact faster than dp, {mean}", "x", 30, geometric_mean(dp)),
        Target("exact faster than dp, worst cell", "x", 2, min(dp, default=math.nan)),
        Target(
            f"exact's time over greedy's, {mean}",
            "x",
            4,
            geometric_mean(greedy),
            at_least=False,
        ),
        Target(f"hirschberg faster than dp, {mean}", "x", 2, geometric_mean(ours_dp)),
        Target(
            f"hirschberg faster than as shipped, {mean}",
            "x",
            4,
            geometric_mean(shipped),
        ),
    ]


def run(settings: Settings) -> Outcome:
    optima = _optima()
    budgets = QUICK_BUDGETS if settings.quick else BUDGETS
    repeats = settings.count(full=7, quick=3)
    allowed = QUICK_PEER_SECONDS if settings.quick else PEER_SECONDS
    others, missing = peers.available() if settings.peers else ([], [])
    todo = []
    for instance in _chosen(settings.instances):
        for budget in budgets:
            proven = optima.get(instance.name, {}).get(repr(budget))
            if proven is None or proven[0] != instance.capacity(budget):
                raise UserError(
                    f"{FOLDER / 'optima.json'}: nothing proven for {instance.name} "
                    f"at budget {budget:g}; run scripts/capture_instances.py --optima"
                )
            todo.append((instance, budget, proven[1]))
    cells = [
        _cell(instance, budget, optimum, repeats, others, allowed)
        for instance, budget, optimum in settings.steps(todo, "real")
    ]
    labels = {name: solvers.label(name) for name in solvers.available()}
    labels |= {peer.name: peer.label for peer in others}
    summary = {name: summarise(cells, name) for name in labels}
    table = grid(
        f"real: {len({c['instance'] for c in cells})} instances, {len(cells)} cells",
        "solver",
        "over budget,\nbytes",
        "over budget,\nas given",
        "below\noptimum",
        "failed or\ntimed out",
        "median\ntime",
        "times\nexact's",
        "least",
        "most",
        caption="times exact's: geometric mean over the cells, ratios of the same round; "
        f"peers: whole bytes, one call of at most {allowed:g} s a cell",
    )
    for name, line in summary.items():
        seconds = line["median_seconds"]
        table.add_row(
            labels[name],
            *(str(line[key]) for key in ("over_bytes", "over_floats", "below_optimum")),
            str(line["failed"] + line["unproven"]),
            "" if seconds is None else duration(seconds),
            *(
                figure(line[key], "")
                for key in ("times_exact", "times_exact_least", "times_exact_most")
            ),
        )
    data = {
        "repeats": repeats,
        "peer_seconds": allowed,
        "budgets": budgets,
        "labels": labels,
        "summary": summary,
        "cells": cells,
    }
    return Outcome(data, [table], _targets(cells), missing)
