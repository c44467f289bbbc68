"""Solve the knapsacks of trace files again, with every solver: a table and a picture each.

A file is a `min_cut_information` artifact of PyTorch's partitioner, such as those in
test/instances/, or a structured trace log. To record one of your own training run, start it
with AOT_PARTITIONER_DEBUG=1 and TORCH_TRACE=FOLDER and an activation_memory_budget below 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from overlaykit import report, solvers
from overlaykit.cli import UserError
from overlaykit.instances import Instance, load
from overlaykit.report import Plan
from overlaykit.solvers import Solver


ROOT = Path(__file__).resolve().parents[2]


def _parser() -> argparse.ArgumentParser:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest)
    parser.add_argument("file", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--budget", type=float, help="default: the file's own")
    parser.add_argument(
        "--solver", action="append", metavar="NAME", help="repeat for several"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where to save the pictures; default: build",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, no tables")
    return parser


def _replay(
    instance: Instance, chosen: Sequence[Solver], budget: float
) -> list[Plan | tuple[str, str]]:
    """The plan in the file, if it is one at this budget, then the solvers' plans."""
    plans: list[Plan | tuple[str, str]] = []
    if budget == instance.budget:
        recorded = Solver("recorded", "in the file", None, lambda *_: (0.0, [], []))
        plans.append(report.weigh(instance, recorded, instance.saved, None, budget))
    for solver in chosen:
        answer = report.solve(instance, solver, budget, repeats=5)
        plans.append(answer if isinstance(answer, Plan) else (solver.label, answer))
    return plans


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.budget is not None and not 0 <= options.budget <= 1:
        raise UserError(f"--budget: {options.budget:g} is not from 0 to 1")
    found = [instance for path in options.file for instance in load(path)]
    chosen = [solvers.get(name) for name in options.solver or solvers.available()]
    folder = options.output or ROOT / "build"
    console = Console(width=None if sys.stdout.isatty() else 100)
    documents: list[dict[str, Any]] = []
    for instance in found:
        budget = instance.budget if options.budget is None else options.budget
        unit = (
            "FLOPs" if all(isinstance(r, int) for r in instance.runtime) else "runtime"
        )
        picture = folder / f"replay-{instance.name.replace('#', '-')}.png"
        title = f"{len(instance.memory)} items, {instance.classes} distinct"
        with Console(stderr=True).status(f"{instance.name}: solving"):
            plans = _replay(instance, chosen, budget)
            curves = report.curves(instance, chosen, [budget])
            report.picture(
                f"{instance.name}: {title}", instance, curves, budget, picture, unit
            )
        if options.json:
            documents.append(
                {
                    "name": instance.name,
                    "budget": budget,
                    "items": len(instance.memory),
                    "distinct_items": instance.classes,
                    "plans": [p.as_json() for p in plans if isinstance(p, Plan)],
                    "failed": dict(p for p in plans if not isinstance(p, Plan)),
                    "picture": str(picture),
                }
            )
            continue
        capacity = instance.capacity(budget)
        heading = f"{instance.name}\n{title}; budget {budget:g} = {capacity:,} bytes"
        console.print(report.table(heading, plans, unit))
        console.print(f"picture: {picture}\n", highlight=False, soft_wrap=True)
    if options.json:
        print(json.dumps(documents, indent=1))
    return 0
