"""One picture for each suite's JSON document, readable at 800 pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from overlaykit import solvers
from overlaykit.report import duration, save_figure, spread


# Okabe and Ito's palette, told apart with any colour vision; the same as in the demo.
COLOURS = {
    "dp": "#D55E00",
    "hirschberg-shipped": "#CC79A7",
    "ilp": "#56B4E9",
    "greedy": "#E69F00",
    "hirschberg": "#0072B2",
    "exact": "#000000",
}
GREY = "#777777"
OURS = ("exact", "hirschberg")
STYLE: Any = {
    "font.size": 11,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}


def draw(document: dict[str, Any], path: Path) -> None:
    """Draw the picture of a suite's document; whole or not at all.

    Raises:
        UserError: the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
        _PICTURES[document["suite"]](axes, document)
        save_figure(figure, path)
        plt.close(figure)


def _weight(name: str) -> str:
    return "bold" if name in OURS else "normal"


def _real(axes: Any, document: dict[str, Any]) -> None:
    """A dot for each cell: the solver's time over the exact one's; faults at the right."""
    summary, labels = document["summary"], document["labels"]
    names = sorted(
        (name for name in summary if summary[name]["times_exact"] is not None),
        key=lambda name: summary[name]["times_exact"],
    )
    for place, name in enumerate(names):
        plans = [cell["plans"].get(name, {}) for cell in document["cells"]]
        dots = [plan["times_exact"] for plan in plans if "times_exact" in plan]
        jitter = [place + 0.5 * (k / max(1, len(dots)) - 0.5) for k in range(len(dots))]
        colour = COLOURS.get(name, GREY)
        axes.plot(dots, jitter, ".", color=colour, alpha=0.45, ms=6, mew=0)
        mean = summary[name]["times_exact"]
        axes.plot([mean, mean], [place - 0.36, place + 0.36], color=colour, lw=3)
        axes.annotate(
            f"{mean:.3g}x" if mean < 1000 else f"{mean:,.0f}x",
            (mean, place + 0.36),
            ha="center",
            va="bottom",
            fontsize=9,
            color=colour,
            weight="bold",
        )
        line = summary[name]
        over = line["over_bytes"]
        below, cells = line["below_optimum"], line["cells"]
        right = f"{over} over, {below} below"
        if not over and not below:
            right = f"all {cells} right"
        axes.text(
            1.02,
            place,
            right,
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=9.5,
            color="#A04400" if over else "#333333",
            weight=_weight(name),
        )
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), [labels[name] for name in names])
    for tick, name in zip(axes.get_yticklabels(), names):
        tick.set_weight(_weight(name))
    axes.set_ylim(-0.6, len(names) - 0.2)
    axes.grid(visible=False, axis="y")
    axes.axvline(1, color=GREY, lw=1, ls=":")
    axes.set_xlabel("time, in times the exact solver's (a dot: one model and budget)")
    axes.set_title("Real graphs: time, and plans over budget or below the optimum")


def _label_ends(axes: Any, ends: Sequence[tuple[str, str, float]], gap: float) -> None:
    """Name the lines at their right ends, on a logarithmic axis, `gap` decades apart."""
    low, high = (math.log10(edge) for edge in axes.get_ylim())
    places = spread([math.log10(y) for _, _, y in ends], gap, low, high)
    for (label, colour, _), place in zip(ends, places):
        axes.annotate(
            label,
            (1.02, 10**place),
            xycoords=axes.get_yaxis_transform(),
            color=colour,
            va="center",
            weight="bold",
            fontsize=10,
            annotation_clip=False,
        )


def _random(axes: Any, document: dict[str, Any]) -> None:
    """Time against n, with n log n through the first measured size from 1,000 on."""
    growth = document["growth"]
    sizes = [row["n"] for row in growth]
    ends = []
    for name in ("exact", "greedy"):
        times = [row[name]["median"] for row in growth]
        axes.fill_between(
            sizes,
            [row[name]["least"] for row in growth],
            [row[name]["most"] for row in growth],
            color=COLOURS[name],
            alpha=0.15,
            lw=0,
        )
        axes.plot(sizes, times, "o-", color=COLOURS[name], lw=2, ms=5)
        exponent = document["exponents"][name]
        ends.append(
            (f"{solvers.label(name)}\n~ n^{exponent:.2f}", COLOURS[name], times[-1])
        )
    anchor = next(row for row in growth if row["n"] >= 1_000)
    unit = anchor["exact"]["median"] / (anchor["n"] * math.log2(anchor["n"]))
    guide = [unit * n * math.log2(n) for n in sizes]
    axes.plot(sizes, guide, ":", color=GREY, lw=1.5)
    ends.append(("n log n", GREY, guide[-1]))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: duration(value))
    axes.set_xlabel("items")
    axes.set_ylabel("median and range over the instances")
    axes.set_title("Random items, budget 0.5: time of one solve")
    _label_ends(axes, ends, 0.42)


def _paper(axes: Any, document: dict[str, Any]) -> None:
    """Memory against n; hollow where the allocator refused and the size is computed."""
    rows = document["growth"]
    main = max({row["largest"] for row in rows})
    ends = []
    for name in ("dp", "hirschberg-shipped", "hirschberg", "exact"):
        found = [r for r in rows if r["solver"] == name and r["largest"] == main]
        memory = [
            row["peak_bytes"]["median"]
            if "peak_bytes" in row
            else row["computed_bytes"]
            for row in found
        ]
        sizes = [row["n"] for row in found]
        memory = [max(value, 4096) for value in memory]
        axes.plot(sizes, memory, "-", color=COLOURS[name], lw=2)
        for row, value in zip(found, memory):
            filled = "peak_bytes" in row
            face = COLOURS[name] if filled else "white"
            axes.plot(row["n"], value, "o", color=COLOURS[name], mfc=face, ms=7)
        ends.append((solvers.label(name), COLOURS[name], memory[-1]))
    axes.set_xscale("log")
    axes.set_yscale("log")
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    axes.yaxis.set_major_formatter(
        lambda value, _: next(
            (f"{value / scale:g} {unit}" for scale, unit in units if value >= scale),
            f"{value:g} B",
        )
    )
    limit = document["limit_bytes"]
    axes.axhline(limit, color=GREY, lw=1, ls=":")
    axes.text(
        0.01,
        limit,
        f"{limit / 2**30:g} GiB: beyond it the allocator refused (hollow: computed)",
        transform=axes.get_yaxis_transform(),
        color=GREY,
        fontsize=9,
        va="bottom",
    )
    axes.set_xlabel("items (sizes are whole numbers to 3,010; half of them fit)")
    axes.set_ylabel("peak memory above an idle import")
    axes.set_title("Memory to solve the paper's instances")
    _label_ends(axes, ends, 0.45)


def _hard(axes: Any, document: dict[str, Any]) -> None:
    """Time for each family and shape; a gap is written where optimality was not proven."""
    from matplotlib.colors import LogNorm

    rows = document["rows"]
    families = list(dict.fromkeys(row["family"] for row in rows))
    shapes = list(dict.fromkeys((row["n"], row["R"]) for row in rows))
    times = [[math.nan] * len(shapes) for _ in families]
    for row in rows:
        y, x = families.index(row["family"]), shapes.index((row["n"], row["R"]))
        exact = row["exact"]
        times[y][x] = exact["seconds"]
        if exact["gap"]:
            text = f"gap\n{exact['gap']:.0e}"
            axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white")
    image = axes.imshow(times, norm=LogNorm(), cmap="cividis_r", aspect="auto")
    axes.set_xticks(
        range(len(shapes)),
        [f"n={n:,}\nR=1e{round(math.log10(R))}" for n, R in shapes],
        fontsize=9,
    )
    axes.set_yticks(range(len(families)), families)
    axes.grid(visible=False)
    bar = axes.figure.colorbar(image, ax=axes, pad=0.01)
    bar.ax.yaxis.set_major_formatter(lambda value, _: duration(value))
    bar.ax.minorticks_off()
    axes.set_title("Pisinger's hard families: time, and the gap if not proven optimal")


_PICTURES: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "real": _real,
    "random": _random,
    "paper": _paper,
    "hard": _hard,
}
