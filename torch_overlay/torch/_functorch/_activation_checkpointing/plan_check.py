"""
Checks the plan that a solver returns, which may be a CustomKnapsackSolver of the user's.

Without it a wrong index is swallowed: its op is then saved, or another one recomputed.
"""

from __future__ import annotations

import operator
from typing import NoReturn, TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Iterable


def check_plan(
    saved: Iterable[int], recomputable: Iterable[int], count: int, solver: object
) -> None:
    """
    Raises RuntimeError, with the solver and the index, unless `saved` and `recomputable`
    hold each of the `count` candidates once between them.
    """
    name = solver if isinstance(solver, str) else type(solver).__name__

    def fail(fault: str) -> NoReturn:
        raise RuntimeError(
            f"The plan of activation_memory_budget_solver {name} is wrong: {fault}. "
            f"Its two lists must hold each index from 0 to {count - 1} once in all."
        )

    seen = [False] * count
    for part, indices in (("saved", saved), ("recomputed", recomputable)):
        for given in indices:
            try:
                index = operator.index(given)
            except TypeError:
                fail(f"the {part} index {given!r} is not an integer")
            if not 0 <= index < count:
                fail(f"the {part} index {index} is out of range")
            if seen[index]:
                fail(f"index {index} is there twice")
            seen[index] = True
    if not all(seen):
        fail(f"index {seen.index(False)} is missing")
