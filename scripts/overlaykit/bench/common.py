"""What the suites share: settings, fair timing, targets, and the environment they ran in."""

from __future__ import annotations

import gc
import importlib.metadata
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from overlaykit.solvers import Solver


SHORTEST = 2e-3  # seconds that a sample takes at least, by repeating the call


@dataclass(frozen=True)
class Settings:
    """What the command line asks of every suite; `repeats` None leaves it to the suite."""

    progress: Progress
    quick: bool = False
    repeats: int | None = None
    instances: tuple[str, ...] = ()
    peers: bool = True
    huge: bool = False

    def count(self, full: int, quick: int) -> int:
        return self.repeats or (quick if self.quick else full)

    def steps(self, items: Sequence[Any], what: str) -> Iterable[Any]:
        return self.progress.track(items, description=what)


@dataclass(frozen=True)
class Target:
    """A figure to reach; `at_least` says on which side of the goal it should lie."""

    name: str
    unit: str
    goal: float
    reached: float
    at_least: bool = True

    @property
    def met(self) -> bool | None:
        """None where nothing was measured."""
        if math.isnan(self.reached):
            return None
        if self.at_least:
            return self.reached >= self.goal
        return self.reached <= self.goal

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass
class Outcome:
    """A suite's findings: `data` is what goes into its JSON file."""

    data: dict[str, Any]
    tables: list[Table]
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def sample(call: Callable[[], object]) -> float:
    """Seconds of one call; a short one is repeated until SHORTEST has passed."""
    calls = 0
    begin = time.perf_counter()
    while True:
        call()
        calls += 1
        passed = time.perf_counter() - begin
        if passed >= SHORTEST:
            return passed / calls


def interleaved(
    calls: Mapping[str, Callable[[], object]], repeats: int
) -> dict[str, list[float]]:
    """Time the calls round by round, so that what the machine does hits all of them.

    Entry r of every list is from the same round. Each round starts with another call.
    """
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in names}
    collecting = gc.isenabled()
    try:
        for r in range(repeats):
            gc.collect()
            gc.disable()
            first = r % max(1, len(names))
            for name in names[first:] + names[:first]:
                times[name].append(sample(calls[name]))
            gc.enable()
    finally:
        (gc.enable if collecting else gc.disable)()
    return times


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """The median, over the rounds, of how many times longer the first took."""
    return statistics.median(a / b for a, b in zip(slow, fast))


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "least": min(values),
        "most": max(values),
        "repeats": len(values),
    }


def geometric_mean(values: Iterable[float]) -> float:
    found = list(values)
    if not found:
        return math.nan
    return math.exp(statistics.fmean(map(math.log, found)))


def attempt(
    solver: Solver, memory: Sequence[float], runtime: Sequence[float], budget: float
) -> list[int] | str:
    """The items that a solver saves, or a line that says how it failed."""
    try:
        return solver.call(list(memory), list(runtime), budget)[1]
    # A solver that fails is a finding of the benchmark, not its end.
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def grid(title: str, first: str, *others: str, caption: str = "") -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    table.caption, table.caption_justify = caption, "left"
    return table


def figure(value: float, unit: str) -> str:
    """A number in three figures with its unit; "x" is for times."""
    if math.isnan(value):
        return "not measured"
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{text}x" if unit == "x" else f"{text} {unit}".rstrip()


def target_table(targets: Sequence[Target]) -> Table:
    table = grid("targets", "what", "target", "reached", "")
    for target in targets:
        sign = ">=" if target.at_least else "<="
        style = "green" if target.met else "bold red"
        verdict = {None: "", True: "met", False: "not met"}[target.met]
        table.add_row(
            target.name,
            f"{sign} {figure(target.goal, target.unit)}",
            figure(target.reached, target.unit),
            Text(verdict, style=style),
        )
    return table


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def environment() -> dict[str, Any]:
    """The machine and the versions that a result depends on; names no path and no host."""
    import torch

    versions = {}
    for name in ("torch", "numpy", "scipy", "ortools"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "missing"
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **versions,
    }
