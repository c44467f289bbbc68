"""Compile a workload under a memory budget and record what the partitioner did.

The knapsack instance comes from torch's own structured trace. Two private functions of
torch._functorch.partitioners are wrapped for the duration: the one that calls the solver,
to time it or to put another one in its place, and the one that cuts the joint graph in two,
to measure what the emitted forward graph really saves.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._functorch import partitioners

from overlaykit.instances import ARTIFACT, Instance, parse
from overlaykit.models import Workload
from overlaykit.solvers import Solver


BACKENDS = ("aot_eager", "inductor")


@dataclass
class Record:
    """What one compile showed; sums run over its graphs (a graph break makes several)."""

    artifacts: list[dict[str, Any]] = field(default_factory=list)
    solver_seconds: float = 0.0
    plan: tuple[list[int], list[int]] | None = None
    saved_bytes: int = 0
    saved_input_bytes: int = 0
    recomputed_flops: int = 0


@dataclass(frozen=True)
class Capture:
    """A step of a workload, compiled under `budget`.

    `saved_bytes` are the forward graph's outputs kept for the backward graph that are not
    its own inputs, measured as the partitioner measures sizes; `recomputed_flops` counts
    the operators that stand in both graphs. `instances` is empty where the partitioner's
    minimum cut met the budget without a knapsack.
    """

    budget: float
    loss: Tensor
    gradients: tuple[Tensor, ...]
    instances: tuple[Instance, ...]
    artifacts: tuple[dict[str, Any], ...]
    solver_seconds: float
    saved_bytes: int
    saved_input_bytes: int
    recomputed_flops: int
    compile_seconds: float


class _Artifacts(logging.Handler):
    """Collects one kind of artifact from torch's structured trace."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        super().__init__(logging.DEBUG)
        self.found = found

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", {})
        if metadata.get("artifact", {}).get("name") == ARTIFACT:
            self.found.append(json.loads(getattr(record, "payload", "")))


def _flops(node: torch.fx.Node) -> int:
    with functorch_config.patch(activation_memory_budget_runtime_estimator="flops"):
        return int(partitioners.estimate_runtime(node))


def _is_operator(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)


@contextlib.contextmanager
def recording(solver: Solver | None = None) -> Iterator[Record]:
    """Record every partition made inside; `solver` replaces the configured one.

    A solver with a config value goes through the config, as a user's would; one without
    (upstream's unpatched code) is called in the dispatching function's place.
    """
    record = Record()
    dispatch = partitioners._optimize_runtime_with_given_memory
    extract = partitioners._extract_fwd_bwd_modules
    replacement = solver.call if solver is not None and solver.config is None else None

    def solve(
        joint_graph: torch.fx.Graph,
        memory: list[float],
        runtimes: list[float],
        max_memory: float,
        *rest: Any,
    ) -> tuple[float, list[int], list[int]]:
        begin = time.perf_counter()
        if replacement is None:
            answer = dispatch(joint_graph, memory, runtimes, max_memory, *rest)
        else:
            answer = replacement(memory, runtimes, max_memory)
        record.solver_seconds += time.perf_counter() - begin
        return answer

    def cut(*args: Any, num_fwd_outputs: int, **options: Any) -> Any:
        forward, backward = extract(*args, num_fwd_outputs=num_fwd_outputs, **options)
        outputs: Any = forward.graph.output_node().args[0]
        for node in outputs[num_fwd_outputs:]:
            size = partitioners._size_of(node)
            if node.op == "placeholder":
                record.saved_input_bytes += size
            else:
                record.saved_bytes += size
        forward_names = {n.name for n in forward.graph.nodes if _is_operator(n)}
        for node in backward.graph.nodes:
            if _is_operator(node) and node.name in forward_names:
                flops = _flops(node)
                # The estimator answers 1 for an operator that it counts no FLOPs for.
                record.recomputed_flops += flops if flops > 1 else 0
        return forward, backward

    settings: dict[str, Any] = {}
    if solver is not None and solver.config is not None:
        settings["activation_memory_budget_solver"] = solver.config
    trace = logging.getLogger("torch.__trace")
    handler = _Artifacts(record.artifacts)
    with contextlib.ExitStack() as stack:
        # A cached graph would bring back another solver's plan.
        stack.enter_context(
            functorch_config.patch(enable_autograd_cache=False, **settings)
        )
        stack.enter_context(inductor_config.patch(fx_graph_cache=False))
        for name, value in (
            ("AOT_PARTITIONER_DEBUG", True),
            ("_optimize_runtime_with_given_memory", solve),
            ("_extract_fwd_bwd_modules", cut),
        ):
            stack.enter_context(mock.patch.object(partitioners, name, value))
        trace.addHandler(handler)
        stack.callback(trace.removeHandler, handler)
        yield record


def compile_step(
    workload: Workload,
    budget: float,
    solver: Solver | None = None,
    backend: str = "aot_eager",
    seed: int = 0,
) -> Capture:
    """One forward and backward of a copy of the workload, compiled afresh under `budget`."""
    module = copy.deepcopy(workload.module)
    torch._dynamo.reset()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        with (
            recording(solver) as record,
            functorch_config.patch(activation_memory_budget=budget),
        ):
            begin = time.perf_counter()
            step: Callable[..., Tensor] = torch.compile(
                module, backend=backend, dynamic=False
            )
            loss = step(*workload.inputs)
            loss.backward()  # type: ignore[no-untyped-call]
            seconds = time.perf_counter() - begin
    gradients = tuple(
        torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()
    )
    return Capture(
        budget=budget,
        loss=loss.detach(),
        gradients=gradients,
        instances=tuple(
            parse(artifact, workload.name, "captured artifact")
            for artifact in record.artifacts
        ),
        artifacts=tuple(record.artifacts),
        solver_seconds=record.solver_seconds,
        saved_bytes=record.saved_bytes,
        saved_input_bytes=record.saved_input_bytes,
        recomputed_flops=record.recomputed_flops,
        compile_seconds=seconds,
    )


def same_results(one: Capture, other: Capture) -> bool:
    """Whether loss and every gradient are equal to the last bit."""
    return torch.equal(one.loss, other.loss) and all(
        torch.equal(a, b) for a, b in zip(one.gradients, other.gradients, strict=True)
    )


def largest_difference(one: Capture, other: Capture) -> float:
    """Largest |a - b| over loss and gradients, each relative to the tensor's largest |b|."""
    worst = 0.0
    pairs = [(one.loss, other.loss), *zip(one.gradients, other.gradients, strict=True)]
    for a, b in pairs:
        scale = b.abs().max().item()
        gap = (a - b).abs().max().item()
        if gap > 0:
            worst = max(worst, gap / scale if scale else float("inf"))
    return worst
