"""The main job on real input: one model, one memory budget, every solver.

Compiles a model forward and backward with torch.compile under an activation memory budget,
once per solver, and prints what each solver's plan keeps and recomputes. `scripts/demo`
runs it; upstream's solvers come from the unpatched files that the apply step kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from overlaykit import cli, solvers
from overlaykit.cli import UserError


if TYPE_CHECKING:
    from overlaykit.capture import Capture
    from overlaykit.report import Plan
    from overlaykit.solvers import Solver


ROOT = Path(__file__).resolve().parent.parent.parent
REPEATS = 5
# Enough for float32 when a backend fuses differently; equal bits are expected of aot_eager.
TOLERANCE = 1e-4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Compile a model under an activation memory budget, once per solver.",
    )
    parser.add_argument("--model", default="llama", help="default: llama; see --list")
    parser.add_argument("--layers", type=int, help="default: the model's own number")
    parser.add_argument(
        "--budget", type=float, default=0.3, help="above 0 and below 1; default: 0.3"
    )
    parser.add_argument(
        "--solver",
        action="append",
        metavar="NAME",
        help="run only this one; repeat for several; default: all that are there",
    )
    parser.add_argument(
        "--backend", default="aot_eager", help="aot_eager (default) or inductor"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="where to save the picture; default: build/demo.png",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, no table")
    parser.add_argument("--list", action="store_true", help="list models and solvers")
    return parser


def _check_output(path: Path) -> None:
    """Say that the picture cannot be saved before the work, not after it."""
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in kinds:
        raise UserError(
            f"--output: {path} does not end in one of {', '.join(sorted(kinds))}"
        )
    if path.parent.exists() and not path.parent.is_dir():
        raise UserError(f"--output: {path.parent} is not a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output: {path.parent}: {error.strerror}") from error
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--output: {path} cannot be written")


def _list(console: Console) -> None:
    from overlaykit.models import build, MODELS

    console.print("[bold]models[/bold]")
    for name, family in MODELS.items():
        text = f"  {name:8} {family.layers:3} layers  {build(name, 1).description}"
        console.print(text, highlight=False)
    console.print("[bold]solvers[/bold]")
    for name in solvers.NAMES:
        reason = solvers.missing(name)
        console.print(
            f"  {name:19} {solvers.label(name)}" + (f": {reason}" if reason else ""),
            highlight=False,
        )


def _choose(names: Sequence[str] | None, notes: list[str]) -> list[Solver]:
    if names:
        return [solvers.get(name) for name in dict.fromkeys(names)]
    for name in solvers.NAMES:
        reason = solvers.missing(name)
        if reason is not None:
            notes.append(f"left out: {name}, {reason}")
    return [solvers.get(name) for name in solvers.available()]


def _result(
    solver: Solver, budget: float, step: Capture, baseline: Capture
) -> tuple[Plan, str | None]:
    """The plan of the compile, with the solver's time, and a complaint about gradients."""
    from overlaykit import report
    from overlaykit.capture import largest_difference

    instance = step.instances[0]
    again = report.solve(instance, solver, budget, REPEATS)
    difference = largest_difference(step, baseline)
    plan = report.weigh(
        instance,
        solver,
        instance.saved,
        # The call inside the compile also pays for imports and caches.
        step.solver_seconds if isinstance(again, str) else again.seconds,
        budget,
        graph_bytes=step.saved_bytes,
        difference=difference,
    )
    if difference <= TOLERANCE:
        return plan, None
    return plan, f"{solver.name}: loss or gradients differ by {difference:.1e}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    console = Console(width=100 if not sys.stdout.isatty() else None)
    if options.list:
        _list(console)
        return 0
    if not 0 < options.budget < 1:
        raise UserError(f"--budget: {options.budget:g} is not above 0 and below 1")
    notes: list[str] = []
    output = options.output or ROOT / "build" / "demo.png"
    _check_output(output)
    begin = time.perf_counter()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task("importing torch", total=None)
        import torch

        from overlaykit import models, report
        from overlaykit.capture import BACKENDS, compile_step

        # Tiny operators: threads would only wait for one another.
        torch.set_num_threads(1)
        if options.backend not in BACKENDS:
            raise UserError(
                f"--backend: {options.backend!r} is not one of {', '.join(BACKENDS)}"
            )
        chosen = _choose(options.solver, notes)
        workload = models.build(options.model, options.layers)
        progress.update(task, total=len(chosen) + 3)

        def advance(text: str) -> None:
            progress.update(task, description=text, advance=1)

        def compiled(budget: float, solver: Solver | None = None) -> Capture:
            try:
                return compile_step(workload, budget, solver, options.backend)
            except torch._dynamo.exc.TorchDynamoException as error:
                reason = " ".join(str(error).splitlines()[:2])
                raise UserError(f"torch.compile failed: {reason}") from error

        advance("compiling at budget 1")
        baseline = compiled(1.0)
        plans: list[Plan] = []
        problems: list[str] = []
        instance = None
        for solver in chosen:
            advance(f"compiling with {solver.label}")
            step = compiled(options.budget, solver)
            if len(step.instances) != 1:
                raise UserError(
                    f"--budget: {options.budget:g} poses no knapsack for "
                    f"{options.model}, the minimum cut alone keeps to it; try a smaller one"
                )
            instance = step.instances[0]
            plan, problem = _result(solver, options.budget, step, baseline)
            plans.append(plan)
            problems += [problem] if problem else []
        if instance is None:
            raise UserError("no solver to run")
        advance("drawing the trade-off")
        layers = options.layers or models.MODELS[options.model].layers
        name = f"{options.model}, {layers} layers"
        report.picture(
            f"{name}: {len(instance.memory)} items, {instance.classes} distinct",
            instance,
            report.curves(instance, chosen, [options.budget]),
            options.budget,
            output,
        )
    seconds = time.perf_counter() - begin
    if options.json:
        document: dict[str, Any] = {
            "torch": torch.__version__,
            "model": options.model,
            "layers": layers,
            "backend": options.backend,
            "budget": options.budget,
            "items": len(instance.memory),
            "distinct_items": instance.classes,
            "span_bytes": instance.span,
            "baseline_saved_bytes": baseline.saved_bytes,
            "loss": baseline.loss.item(),
            "plans": [plan.as_json() for plan in plans],
            "notes": notes,
            "problems": problems,
            "picture": str(output),
            "seconds": seconds,
        }
        print(json.dumps(document, indent=1))
    else:
        _print(console, options, name, workload.description, baseline, instance, plans)
        for note in notes:
            console.print(note, style="dim", highlight=False)
        console.print(f"picture: {output}   ({seconds:.0f} s)", highlight=False)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _print(
    console: Console,
    options: argparse.Namespace,
    name: str,
    description: str,
    baseline: Capture,
    instance: Any,
    plans: list[Plan],
) -> None:
    """The table, and two lines about what the emitted graphs save."""
    from overlaykit import report

    capacity = instance.capacity(options.budget)
    title = (
        f"{name} ({description}), torch.compile, {options.backend}\n"
        f"{len(instance.memory)} items, {instance.classes} distinct; "
        f"budget {options.budget:g} = {capacity:,} bytes"
    )
    console.print(report.table(title, plans, "FLOPs"))
    extra = [(p.graph_bytes or 0) - p.memory for p in plans]
    console.print(
        f"Saved by the emitted forward graphs: the plans' bytes {min(extra):+,} to "
        f"{max(extra):+,} (the minimum cut's own part); at budget 1: "
        f"{baseline.saved_bytes:,} bytes.",
        highlight=False,
    )


def run() -> None:
    warnings.filterwarnings("ignore", module=r"torch\..*")
    cli.run(main)


if __name__ == "__main__":
    run()
