"""The table of plans and the trade-off picture that the demo and the replay share."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from overlaykit.cli import UserError
from overlaykit.instances import Instance
from overlaykit.solvers import is_overlay, NAMES, Solver


_OURS = frozenset(name for name in NAMES if is_overlay(name))


@dataclass(frozen=True)
class Plan:
    """A solver's answer to an instance at one budget, weighed in whole bytes.

    `seconds` is the median of the solver's calls, None if unknown. The last two fields are known where the
    plan was compiled: bytes that the emitted forward graph saves beside its inputs, and
    the largest difference of loss and gradients to budget 1 (0.0: the same bits).
    """

    solver: str
    label: str
    budget: float
    capacity: int
    memory: int
    saved: tuple[int, ...]
    kept_runtime: int | float
    recomputed_runtime: int | float
    seconds: float | None
    graph_bytes: int | None = None
    difference: float | None = None

    @property
    def over(self) -> bool:
        return self.memory > self.capacity

    @property
    def share(self) -> float:
        """The plan's bytes as a fraction of the budget's; 0 of 0 is 0."""
        if self.capacity == 0:
            return math.inf if self.memory else 0.0
        return self.memory / self.capacity

    def as_json(self) -> dict[str, Any]:
        return {
            "solver": self.solver,
            "budget_bytes": self.capacity,
            "plan_bytes": self.memory,
            "percent_of_budget": 100 * self.share,
            "over_budget": self.over,
            "items_saved": len(self.saved),
            "runtime_kept": self.kept_runtime,
            "flops_recomputed": self.recomputed_runtime,
            "solver_seconds": self.seconds,
            "graph_saved_bytes": self.graph_bytes,
            "difference_to_budget_1": self.difference,
        }


def weigh(
    instance: Instance,
    solver: Solver,
    saved: Sequence[int],
    seconds: float | None,
    budget: float,
    **known: Any,
) -> Plan:
    """A plan of `saved` items; the rest is recomputed."""
    kept = set(saved)
    rest = [i for i in range(len(instance.memory)) if i not in kept]
    return Plan(
        solver=solver.name,
        label=solver.label,
        budget=budget,
        capacity=instance.capacity(budget),
        memory=instance.bytes_of(list(kept)),
        saved=tuple(sorted(kept)),
        kept_runtime=instance.runtime_of(list(kept)),
        recomputed_runtime=instance.runtime_of(rest),
        seconds=seconds,
        **known,
    )


def solve(
    instance: Instance, solver: Solver, budget: float, repeats: int = 1
) -> Plan | str:
    """Call the solver on what the partitioner would give it; a failure is a one-line text."""
    times = []
    saved: Sequence[int] = ()
    for _ in range(repeats):
        memory, runtime = list(instance.normalized), list(instance.runtime)
        begin = time.perf_counter()
        try:
            _, saved, _ = solver.call(memory, runtime, budget)
        # A solver that fails on a user's trace is a finding, not a crash of the report.
        except Exception as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]
        times.append(time.perf_counter() - begin)
    return weigh(instance, solver, saved, statistics.median(times), budget)


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us"


def quantity(value: float) -> str:
    """Four figures and an SI prefix."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g} {prefix}"
    return f"{value:.4g}"


def _best(plans: Sequence[Plan]) -> float | None:
    """The least recomputation of a plan within the budget."""
    return min((p.recomputed_runtime for p in plans if not p.over), default=None)


def table(title: str, plans: Sequence[Plan | tuple[str, str]], unit: str) -> Table:
    """One line a solver; a pair (label, message) stands for a solver that failed."""
    found = [plan for plan in plans if isinstance(plan, Plan)]
    best = _best(found)
    compiled = any(plan.graph_bytes is not None for plan in found)
    grid = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE)
    grid.add_column("solver", no_wrap=True)
    for heading in ("plan,\nbytes", "% of\nbudget"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("over the\nbudget?", no_wrap=True)
    for heading in (f"{unit}\nrecomputed", "solver\ntime"):
        grid.add_column(heading, justify="right", no_wrap=True)
    if compiled:
        grid.add_column("loss,\ngradients", no_wrap=True)
    failed: list[str] = []
    for plan in plans:
        if not isinstance(plan, Plan):
            grid.add_row(plan[0], Text("failed", style="bold red"))
            failed.append(f"{plan[0]}: {plan[1]}")
            continue
        if plan.over:
            over = Text(f"yes, by {plan.memory - plan.capacity:,}", style="bold red")
        else:
            over = Text("no", style="green")
        recomputed = Text(quantity(plan.recomputed_runtime))
        if plan.over or best is None:
            recomputed.stylize("dim")
        elif plan.recomputed_runtime == best:
            recomputed.stylize("bold green")
        row: list[Text | str] = [
            Text(plan.label, style="bold" if plan.solver in _OURS else ""),
            f"{plan.memory:,}",
            f"{100 * plan.share:.2f}",
            over,
            recomputed,
            "" if plan.seconds is None else duration(plan.seconds),
        ]
        if plan.difference is not None:
            row.append(_agreement(plan.difference))
        grid.add_row(*row)
    if failed:
        grid.caption, grid.caption_justify = Text("\n".join(failed)), "left"
    return grid


def _agreement(difference: float) -> Text:
    if difference == 0:
        return Text("same bits", style="green")
    if difference < 1e-4:
        return Text(f"within {difference:.0e}", style="green")
    return Text(f"DIFFER, {difference:.0e}", style="bold red")


# Okabe and Ito's palette, told apart with any colour vision; dashes help in grey.
_STYLE: dict[str, dict[str, Any]] = {
    "dp": {"color": "#D55E00", "lw": 4.0, "ls": "-"},
    "hirschberg-shipped": {"color": "#CC79A7", "lw": 2.6, "ls": "-"},
    "ilp": {"color": "#56B4E9", "lw": 2.0, "ls": (0, (4, 1))},
    "greedy": {"color": "#E69F00", "lw": 1.8, "ls": (0, (1, 1))},
    "hirschberg": {"color": "#0072B2", "lw": 1.8, "ls": (0, (5, 1, 1, 1))},
    "exact": {"color": "#000000", "lw": 1.4, "ls": "-"},
}
_GREY = "#555555"


def curves(
    instance: Instance,
    solvers: Sequence[Solver],
    also: Sequence[float] = (),
    points: int = 40,
) -> dict[str, list[Plan]]:
    """Each solver's plans at even budgets up to where all items fit, and at `also`."""
    top = min(1.0, sum(instance.memory) / instance.span)
    budgets = sorted(
        {*also, *(round(top * (k + 1) / points, 4) for k in range(points))}
    )
    found: dict[str, list[Plan]] = {}
    for solver in solvers:
        answers = [solve(instance, solver, budget) for budget in budgets]
        found[solver.name] = [plan for plan in answers if isinstance(plan, Plan)]
    return found


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places nearest to the wanted ones, in their order, at least `gap` apart."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    places = [0.0] * len(wanted)
    before = low - gap
    for index in order:
        before = places[index] = max(wanted[index], before + gap)
    after = high + gap
    for index in reversed(order):
        after = places[index] = min(places[index], after - gap)
    return places


def _trade_off(
    axes: Any, instance: Instance, found: dict[str, list[Plan]], budget: float
) -> None:
    """Memory kept against recomputation, a line a solver, the budget's surroundings enlarged."""
    total = instance.runtime_of(range(len(instance.memory))) or 1

    def points(plans: Sequence[Plan]) -> tuple[list[float], list[float]]:
        return (
            [100 * p.memory / instance.span for p in plans],
            [100 * p.recomputed_runtime / total for p in plans],
        )

    inset = axes.inset_axes((0.5, 0.54, 0.48, 0.38))
    xs: list[float] = [100 * budget]
    ys: list[float] = []
    for solver, plans in found.items():
        axes.plot(*points(plans), **_STYLE[solver])
        inset.plot(*points(plans), color="#BBBBBB", lw=0.8)
    for size, (solver, plans) in zip((9, 7, 8, 6, 5, 4), found.items()):
        x, y = points([p for p in plans if p.budget == budget])
        inset.plot(x, y, "o", color=_STYLE[solver]["color"], ms=size)
        xs, ys = xs + x, ys + y
    inset.axvline(100 * budget, color=_GREY, lw=1, ls=":")
    axes.axvline(100 * budget, 0, 0.4, color=_GREY, lw=1, ls=":")
    axes.text(
        100 * budget,
        0.4,
        f"budget {budget:g}",
        color=_GREY,
        ha="center",
        va="bottom",
        fontsize=9,
        transform=axes.get_xaxis_transform(),
    )
    if ys:
        wide = max(0.15 * (max(xs) - min(xs)), 0.05)
        tall = max(0.15 * (max(ys) - min(ys)), 0.05)
        inset.set_xlim(min(xs) - wide, max(xs) + wide)
        inset.set_ylim(min(ys) - tall, max(ys) + tall)
    inset.set_title("the plans, enlarged", fontsize=9, weight="normal")
    inset.tick_params(labelsize=8)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def _adherence(axes: Any, found: dict[str, list[Plan]], budget: float) -> None:
    """Each plan in percent of the budget it was given, with the lines' names at their ends."""
    ends: list[tuple[str, str, float]] = []
    # The first few percent hold few items: ratios there would flatten all the rest.
    shares = [100.0]
    for solver, plans in found.items():
        kept = [p for p in plans if p.capacity > 0]
        ratio = [100 * p.share for p in kept]
        axes.plot([100 * p.budget for p in kept], ratio, **_STYLE[solver])
        shares += [s for s, p in zip(ratio, kept) if p.budget >= min(0.1, budget)]
        ends.append((plans[0].label, _STYLE[solver]["color"], ratio[-1]))
    low, high = min(shares), max(shares)
    margin = max(0.08 * (high - low), 0.2)
    low, high = low - margin, high + margin
    axes.set_ylim(low, high)
    axes.set_xlim(0, max(100 * plans[-1].budget for plans in found.values()))
    axes.axhspan(100, high, color="#D55E00", alpha=0.10, lw=0)
    axes.axhline(100, color=_GREY, lw=1)
    axes.axvline(100 * budget, color=_GREY, lw=1, ls=":")
    axes.text(
        0.98,
        high - 0.02 * (high - low),
        "over budget",
        ha="right",
        va="top",
        color="#A04400",
        weight="bold",
        transform=axes.get_yaxis_transform(),
    )
    # Lines that end together are named from the least memory up, in the lines' own order.
    places = spread([end for _, _, end in ends], (high - low) / 14, low, high)
    for (label, color, end), place in zip(ends, places):
        axes.annotate(
            label,
            (1, min(max(end, low), high)),
            (1.05, place),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            color=color,
            va="center",
            fontsize=9.5,
            weight="bold",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "lw": 0.7,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 1,
            },
        )


def picture(
    title: str,
    instance: Instance,
    found: dict[str, list[Plan]],
    budget: float,
    path: Path,
    unit: str = "FLOPs",
) -> None:
    """Draw memory kept against recomputation, and how the plans keep to their budgets.

    `found` is what `curves` gives. Writes a PNG (or what the suffix says) whole or not at
    all; UserError if it cannot.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = {
        solver: plans
        for solver, plans in found.items()
        if any(p.capacity for p in plans)
    }
    settings: Any = {
        "font.size": 10,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
    }
    with plt.rc_context(settings):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10.5, 4.6), width_ratios=(1, 1.1), layout="constrained"
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        left.set_title("Memory kept against recomputation")
        left.set_xlabel("memory the plan keeps, % (budget 1 = 100)")
        left.set_ylabel(f"{unit} recomputed, % of what can be")
        right.set_title("Does the plan keep to its budget?")
        right.set_xlabel("budget asked for, %")
        right.set_ylabel("plan, % of the budget")
        if found:
            _trade_off(left, instance, found, budget)
            _adherence(right, found, budget)
        save_figure(figure, path)
        plt.close(figure)


def save_figure(figure: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, suffix=path.suffix)
        os.close(handle)
        try:
            figure.savefig(aside, dpi=160)
            os.chmod(aside, 0o644)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from error
