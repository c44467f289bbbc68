"""Independent solvers to compare with, where they are installed; each takes whole numbers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """`optimal`: the peer says that it proved its plan the best one."""

    saved: list[int]
    optimal: bool


# (weights, profits, capacity, seconds allowed) -> Answer
Call = Callable[[Sequence[int], Sequence[int], int, float], Answer]


class Peer(NamedTuple):
    name: str
    label: str
    call: Call


def cp_sat(
    weights: Sequence[int], profits: Sequence[int], capacity: int, seconds: float
) -> Answer:
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in weights]
    model.add(cp_model.LinearExpr.weighted_sum(chosen, weights) <= capacity)
    model.maximize(cp_model.LinearExpr.weighted_sum(chosen, profits))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer([], False)
    saved = [i for i, variable in enumerate(chosen) if solver.value(variable)]
    return Answer(saved, status == cp_model.OPTIMAL)


def or_knapsack(
    weights: Sequence[int], profits: Sequence[int], capacity: int, seconds: float
) -> Answer:
    from ortools.algorithms.python import knapsack_solver

    solver = knapsack_solver.KnapsackSolver(
        knapsack_solver.SolverType.KNAPSACK_MULTIDIMENSION_BRANCH_AND_BOUND_SOLVER, ""
    )
    solver.set_time_limit(seconds)
    solver.init(list(profits), [list(weights)], [capacity])
    solver.solve()
    saved = [i for i in range(len(weights)) if solver.best_solution_contains(i)]
    return Answer(saved, bool(solver.is_solution_optimal()))


def highs(
    weights: Sequence[int], profits: Sequence[int], capacity: int, seconds: float
) -> Answer:
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    found = milp(
        c=-np.array(profits, dtype=float),
        constraints=LinearConstraint(np.array([weights], dtype=float), ub=capacity),
        integrality=np.ones(len(weights)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0, "time_limit": seconds},
    )
    if found.x is None:
        return Answer([], False)
    return Answer(np.flatnonzero(found.x > 0.5).tolist(), found.status == 0)


_PEERS = (
    (Peer("or-knapsack", "OR-tools knapsack", or_knapsack), "ortools"),
    (Peer("cp-sat", "OR-tools CP-SAT", cp_sat), "ortools"),
    (Peer("highs", "HiGHS, gap 0", highs), "scipy"),
)


def available(wanted: Sequence[str] | None = None) -> tuple[list[Peer], list[str]]:
    """The peers that can run here, and a line for each that is missing."""
    found: list[Peer] = []
    missing: list[str] = []
    for peer, package in _PEERS:
        if wanted is not None and peer.name not in wanted:
            continue
        if importlib.util.find_spec(package) is None:
            missing.append(f"{peer.label}: missing, it needs {package}")
        else:
            found.append(peer)
    return found, missing


def as_json(answer: Answer, profits: Sequence[int], seconds: float) -> dict[str, Any]:
    return {
        "value": sum(profits[i] for i in answer.saved),
        "optimal": answer.optimal,
        "seconds": seconds,
    }
