"""Knapsack instances of real graphs, in PyTorch's own `min_cut_information` format.

With AOT_PARTITIONER_DEBUG=1 the partitioner emits one such JSON artifact for each joint
graph that it solves a knapsack for. Accepted here: the artifact itself (a file written by
`tlparse`, or one of test/instances/), and a structured trace log as TORCH_TRACE writes it,
which may hold several.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from overlaykit.cli import UserError


ARTIFACT = "min_cut_information"
META = "Capture"
_EDGES = "Joint Graph Edges"
_NODES = "Joint Graph Node Information"


@dataclass(frozen=True)
class Instance:
    """One 0/1 knapsack as the partitioner posed it; item i is `candidates[i]`.

    `memory` is in bytes, `runtime` in the estimator's unit (FLOPs by default),
    `normalized[i]` is the weight the solver saw, about memory[i] / span. `nodes` is in the
    joint graph's order; a captured file keeps the paths between candidates only.
    """

    name: str
    memory: tuple[int, ...]
    normalized: tuple[float, ...]
    runtime: tuple[int | float, ...]
    budget: float
    min_bytes: int
    max_bytes: int
    candidates: tuple[str, ...]
    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    saved: tuple[int, ...]
    recomputable: tuple[int, ...]
    saved_values_bytes: int
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def span(self) -> int:
        """The bytes that a budget is a fraction of: activations at budget 1 less those at 0."""
        return self.max_bytes - self.min_bytes

    @property
    def classes(self) -> int:
        """Number of distinct (memory, runtime) pairs."""
        return len(set(zip(self.memory, self.runtime)))

    def capacity(self, budget: float | None = None) -> int:
        """floor(budget * span) bytes, the budget read as the decimal number it is written as."""
        value = self.budget if budget is None else budget
        return math.floor(Fraction(repr(value)) * self.span)

    def bytes_of(self, items: Sequence[int]) -> int:
        return sum(self.memory[i] for i in items)

    def runtime_of(self, items: Sequence[int]) -> int | float:
        """Exact for integers; floats (a profiled runtime) are added without rounding drift."""
        chosen = [self.runtime[i] for i in items]
        if all(isinstance(value, int) for value in chosen):
            return sum(chosen)
        return math.fsum(chosen)


class _Reader:
    """Typed access to an artifact's keys; every complaint is one line that names the file."""

    def __init__(self, source: str, payload: object) -> None:
        self.source = source
        if not isinstance(payload, dict) or "Knapsack Input Memories" not in payload:
            raise UserError(
                f"{source}: no {ARTIFACT} artifact of PyTorch's partitioner"
            )
        self.payload = payload

    def fail(self, key: str, wanted: str) -> UserError:
        return UserError(f"{self.source}: {key!r} is not {wanted}")

    def get(self, key: str, wanted: str) -> Any:
        if key not in self.payload:
            raise UserError(f"{self.source}: {key!r} is missing")
        return self.payload[key]

    def number(self, key: str, low: float, high: float = math.inf) -> float:
        value = self.get(key, "a number")
        if not _is_number(value) or not low <= value <= high:
            raise self.fail(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def numbers(self, key: str, low: float = 0) -> list[int | float]:
        values = self.get(key, "a list")
        wanted = f"a list of finite numbers from {low:g} up"
        if not isinstance(values, list):
            raise self.fail(key, wanted)
        for index, value in enumerate(values):
            if not _is_number(value) or value < low:
                raise self.fail(key, f"{wanted}: index {index} is {value!r}")
        return values

    def names(self, key: str) -> list[str]:
        values = self.get(key, "a list of node names")
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise self.fail(key, "a list of node names")
        return values

    def indices(self, key: str, count: int) -> tuple[int, ...]:
        values = self.get(key, "a list of item indices")
        if not isinstance(values, list) or not all(
            type(v) is int and 0 <= v < count for v in values
        ):
            raise self.fail(key, f"a list of item indices below {count}")
        return tuple(values)

    def edges(self) -> tuple[tuple[str, str], ...]:
        outer = self.payload.get(_EDGES, {})
        pairs = outer.get("Edges", []) if isinstance(outer, dict) else None
        if not isinstance(pairs, list) or not all(
            isinstance(pair, list)
            and len(pair) == 2
            and all(isinstance(name, str) for name in pair)
            for pair in pairs
        ):
            raise self.fail(_EDGES, "a list of pairs of node names")
        return tuple((source, target) for source, target in pairs)

    def nodes(self) -> tuple[str, ...]:
        nodes = self.payload.get(_NODES, {})
        if not isinstance(nodes, dict) or not all(
            isinstance(info, dict) and type(info.get("index")) is int
            for info in nodes.values()
        ):
            raise self.fail(_NODES, "an object of nodes with their index")
        return tuple(sorted(nodes, key=lambda name: nodes[name]["index"]))


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def parse(payload: object, name: str, source: str | None = None) -> Instance:
    """Check one artifact and turn it into an Instance; UserError says what is wrong."""
    reader = _Reader(source or name, payload)
    memory = reader.numbers("Absolute Memories")
    if not all(type(value) is int for value in memory):
        raise reader.fail("Absolute Memories", "a list of whole bytes")
    count = len(memory)
    normalized = reader.numbers("Knapsack Input Memories")
    runtime = reader.numbers("Knapsack Input Runtimes")
    candidates = reader.names("Recomputable Banned Nodes Order")
    for key, found in (
        ("Knapsack Input Memories", len(normalized)),
        ("Knapsack Input Runtimes", len(runtime)),
        ("Recomputable Banned Nodes Order", len(candidates)),
    ):
        if found != count:
            raise reader.fail(key, f"of length {count}, as the memories are")
    # Sizes come as GB in floats; bytes are whole, so rounding recovers them.
    low = round(reader.number("Min Activation Size (GB)", 0) * 1e9)
    high = round(reader.number("Max Activation Size (GB)", 0) * 1e9)
    if high <= low:
        raise reader.fail("Max Activation Size (GB)", "above the minimum")
    meta = reader.payload.get(META, {})
    if not isinstance(meta, dict):
        raise reader.fail(META, "an object")
    return Instance(
        name=name,
        memory=tuple(int(value) for value in memory),
        normalized=tuple(float(value) for value in normalized),
        runtime=tuple(runtime),
        budget=reader.number("Memory Budget", 0, 1),
        min_bytes=low,
        max_bytes=high,
        candidates=tuple(candidates),
        nodes=reader.nodes(),
        edges=reader.edges(),
        saved=reader.indices("Knapsack Saved Nodes", count),
        recomputable=reader.indices("Knapsack Recomputed Nodes", count),
        saved_values_bytes=round(
            reader.number("Saved Values Activation Size (GB)", 0) * 1e9
        ),
        meta=meta,
    )


def _payloads_of_log(text: str) -> list[str]:
    """The artifacts of a structured trace log: a header line, then tab-indented payload lines."""
    payloads: list[str] = []
    wanted = False
    for line in text.splitlines():
        if line.startswith("\t"):
            if wanted:
                payloads[-1] += line[1:] + "\n"
            continue
        wanted = False
        start = line.find("] {")
        if start >= 0 and ARTIFACT in line:
            try:
                header = json.loads(line[start + 2 :])
            except ValueError:
                continue
            artifact = header.get("artifact")
            if isinstance(artifact, dict) and artifact.get("name") == ARTIFACT:
                wanted = True
                payloads.append("")
    return payloads


def load(path: Path) -> list[Instance]:
    """Every instance of a file: one of an artifact, one per solved graph of a trace log.

    Raises UserError with one line that names the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file") from error
    name = path.name.removesuffix(".json").removesuffix(".log")
    if text.lstrip().startswith(("{", "[")):
        payloads = [text]
    else:
        payloads = _payloads_of_log(text)
        if not payloads:
            raise UserError(
                f"{path}: no {ARTIFACT} artifact of PyTorch's partitioner; a run records"
                " one with AOT_PARTITIONER_DEBUG=1, if its budget poses a knapsack"
            )
    instances = []
    for index, payload in enumerate(payloads):
        part = name if len(payloads) == 1 else f"{name}#{index}"
        source = str(path) if len(payloads) == 1 else f"{path}, artifact {index}"
        try:
            decoded = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{source}: broken JSON: {error}") from error
        instances.append(parse(decoded, part, source))
    return instances


def load_all(folder: Path) -> list[Instance]:
    """The captured instances of a folder in name order; `optima.json` is not one of them."""
    files = sorted(p for p in folder.glob("*.json") if p.name != "optima.json")
    return [instance for path in files for instance in load(path)]


def _reached(starts: Sequence[str], edges: Sequence[tuple[str, str]]) -> set[str]:
    """The starts and all nodes that the edges lead to from them."""
    after: dict[str, list[str]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
    reached: set[str] = set()
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(after.get(node, ()))
    return reached


def shrink(payload: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """A small artifact with the same keys: the knapsack whole, of the graph what it needs.

    Kept of the graph: every path between two candidates, with each node's index; the
    total number of edges stays the whole graph's. The meta data say what was dropped.
    """
    edges = [(source, target) for source, target in payload[_EDGES]["Edges"]]
    candidates = payload["Recomputable Banned Nodes Order"]
    kept = _reached(candidates, edges) & _reached(
        candidates, [(target, source) for source, target in edges]
    )
    small = dict(payload)
    small[_EDGES] = {
        "Total": len(edges),
        "Edges": [edge for edge in edges if kept.issuperset(edge)],
    }
    small[_NODES] = {
        name: {"index": info["index"]}
        for name, info in payload[_NODES].items()
        if name in kept
    }
    dropped = (
        "nodes on no path between two candidates, and their edges; "
        "of the other nodes all but the index"
    )
    small[META] = {**meta, "dropped": dropped}
    return small


def save(path: Path, payload: Mapping[str, Any]) -> None:
    """Write an artifact as compact JSON, one key a line; whole or not at all."""
    lines = ",\n".join(
        f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}"
        for key, value in payload.items()
    )
    write_whole(path, "{\n" + lines + "\n}\n")


def write_whole(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step; UserError if the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(aside, 0o644)
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
