"""The solvers that the scripts compare, by name; each module is imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from overlaykit.cli import UserError


Call = Callable[[list[float], list[float], float], tuple[float, list[int], list[int]]]

_PACKAGE = "torch._functorch._activation_checkpointing"


@dataclass(frozen=True)
class Solver:
    """`config` is the value of activation_memory_budget_solver, or None: not reachable so."""

    name: str
    label: str
    config: str | None
    call: Call


@dataclass(frozen=True)
class _Entry:
    label: str
    module: str
    function: str
    config: str | None


# Without a config value: upstream's own code as shipped, which the overlay's patches may
# have changed in the running torch, from the pristine file that the apply step kept.
_SHIPPED = "knapsack"
_ENTRIES: dict[str, _Entry] = {
    "dp": _Entry("dp, the default", _SHIPPED, "dp_knapsack", None),
    "hirschberg-shipped": _Entry(
        "hirschberg, shipped", _SHIPPED, "dp_knapsack_sliding_hirschberg", None
    ),
    "ilp": _Entry("ilp", _SHIPPED, "ilp_knapsack", None),
    "greedy": _Entry("greedy", _SHIPPED, "greedy_knapsack", None),
    "hirschberg": _Entry(
        "hirschberg, overlay",
        "knapsack_hirschberg",
        "dp_knapsack_sliding_hirschberg",
        "dp_knapsack_sliding_hirschberg",
    ),
    "exact": _Entry("exact, overlay", "knapsack_exact", "exact_knapsack", "exact"),
}
NAMES = tuple(_ENTRIES)


def is_overlay(name: str) -> bool:
    return _ENTRIES[name].module != _SHIPPED


def label(name: str) -> str:
    return _ENTRIES[name].label


def missing(name: str) -> str | None:
    """Why the solver cannot run here, or None if it can."""
    module = _ENTRIES[name].module
    if is_overlay(name) and importlib.util.find_spec(f"{_PACKAGE}.{module}") is None:
        return "not in this torch; apply the overlay (scripts/setup)"
    if name == "ilp" and importlib.util.find_spec("scipy") is None:
        return "it needs scipy"
    return None


def available() -> list[str]:
    """The names of the solvers that can run here."""
    return [name for name in NAMES if missing(name) is None]


def get(name: str) -> Solver:
    """Look up a solver; UserError if the name is unknown or its module is not there."""
    entry = _ENTRIES.get(name)
    if entry is None:
        raise UserError(f"solver: {name!r} is not one of {', '.join(NAMES)}")
    reason = missing(name)
    if reason is not None:
        raise UserError(f"solver {name!r}: {reason}")
    if is_overlay(name):
        module = importlib.import_module(f"{_PACKAGE}.{entry.module}")
    else:
        from overlaykit.pristine import load_upstream

        module = load_upstream(entry.module)
    return Solver(name, entry.label, entry.config, getattr(module, entry.function))
