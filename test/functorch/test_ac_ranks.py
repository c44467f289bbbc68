# Owner(s): ["module: functorch"]
"""
Ranks that compile the same model under a memory budget come to the same partition.

The test starts the ranks as processes of this file, each with a PYTHONHASHSEED of its
own, and compares what they saved and the gradients they got with one process's. The
ranks meet over gloo through a file, so no port is reserved, and have a time limit.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch._functorch.config as functorch_config
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import partitioners
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.common_utils import run_tests, TestCase


SOLVERS = ("dp_knapsack_sliding_hirschberg", "exact")
BUDGET = 0.2
WIDTH = 32
ROWS = 8
LIMIT_S = 240


class Block(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up = nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return self.norm(x + self.down(torch.sin(self.up(x)).relu()))


def model():
    # Hidden widths that differ leave the solver with more than one class of items.
    torch.manual_seed(0)
    return nn.Sequential(*(Block(hidden) for hidden in (48, 96, 64, 48)))


def batch(rank, rows=ROWS):
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(rows, WIDTH, generator=generator)


class SharedScale(nn.Module):
    """
    A model whose graph holds a collective, so that upstream lets the ranks agree. Some
    of its activations do not grow with the batch: ranks of other shapes, left to
    themselves, save other ones.
    """

    def __init__(self):
        super().__init__()
        self.inner = model()
        self.left, self.right = (
            nn.Parameter(torch.randn(3, WIDTH, WIDTH) / WIDTH**0.5) for _ in range(2)
        )

    def forward(self, x):
        scale = collectives.all_reduce(
            x.detach().square().mean(), "avg", dist.group.WORLD
        )
        x = self.inner(x) / (1 + scale)
        for left, right in zip(self.left, self.right):
            x = torch.sin(x @ torch.sin(left @ right))
        return x


def trained(module, x, solver, **config):
    """
    What one step of `module` saves, for each graph the names and the number of the
    forward's outputs, how many knapsacks that took, and the gradients.
    """
    graphs, solved = [], []
    dispatch = partitioners._optimize_runtime_with_given_memory

    def count(*args):
        solved.append(dispatch(*args))
        return solved[-1]

    def look_forward(graph_module, inputs):
        graphs.append(graph_module.graph.output_node())
        return graph_module

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=look_forward,
        bw_compiler=lambda graph_module, inputs: graph_module,
        partition_fn=partitioners.min_cut_rematerialization_partition,
    )
    partitioners._optimize_runtime_with_given_memory = count
    try:
        with functorch_config.patch(
            activation_memory_budget=BUDGET,
            activation_memory_budget_solver=solver,
            enable_autograd_cache=False,
            **config,
        ):
            torch.compile(module, backend=backend)(x).square().mean().backward()
    finally:
        partitioners._optimize_runtime_with_given_memory = dispatch
    return {
        "saved": [[str(node) for node in output.args[0]] for output in graphs],
        "outputs": [len(output.args[0]) for output in graphs],
        "knapsacks": len(solved),
        "gradients": [p.grad.flatten().tolist() for p in module.parameters()],
    }


def eager(module, x):
    module(x).square().mean().backward()
    return [p.grad.flatten().tolist() for p in module.parameters()]


def every_case(rank):
    """What a rank does; each case is a step that all ranks take together."""
    found = {}
    for solver in SOLVERS:
        found[f"plain {solver}"] = trained(model(), batch(0), solver)
        # Small buckets split the graph: several partitions for each rank.
        found[f"ddp {solver}"] = trained(
            DistributedDataParallel(model(), bucket_cap_mb=0.02), batch(rank), solver
        )
        rows = ROWS * (1 + rank)
        found[f"shapes {solver}"] = {
            **trained(
                SharedScale(),
                batch(rank, rows),
                solver,
                _sync_decision_cross_ranks=True,
            ),
            "eager": eager(SharedScale(), batch(rank, rows)),
        }
    return found


def run_rank(rank, world_size, folder):
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 20_000  # DDP wants the first bucket the smallest
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=LIMIT_S // 2),
    )
    (folder / f"{rank}.json").write_text(json.dumps(every_case(rank)))
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(world_size):
    """The findings of `world_size` processes, in the ranks' order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks = []
        try:
            for rank in range(world_size):
                with open(folder / f"{rank}.log", "w") as log:
                    ranks.append(
                        subprocess.Popen(
                            [
                                sys.executable,
                                __file__,
                                str(rank),
                                str(world_size),
                                name,
                            ],
                            env={**os.environ, "PYTHONHASHSEED": str(17 * rank + 1)},
                            stdout=log,
                            stderr=subprocess.STDOUT,
                        )
                    )
            deadline = time.monotonic() + LIMIT_S
            for rank, process in enumerate(ranks):
                try:
                    status = process.wait(max(0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    status = f"still running after {LIMIT_S} s"
                if status != 0:
                    said = (folder / f"{rank}.log").read_text()[-3000:]
                    raise AssertionError(
                        f"rank {rank} of {world_size}: {status}\n{said}"
                    )
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        return [
            json.loads((folder / f"{rank}.json").read_text())
            for rank in range(world_size)
        ]


class TestRanks(TestCase):
    def check(self, world_size):
        ranks = run_ranks(world_size)
        whole = torch.cat([batch(rank) for rank in range(world_size)])
        one_batch, all_batches = eager(model(), batch(0)), eager(model(), whole)
        for solver in SOLVERS:
            alone = trained(model(), batch(0), solver)
            self.assertGreater(alone["knapsacks"], 0)
            plain = [rank[f"plain {solver}"] for rank in ranks]
            ddp = [rank[f"ddp {solver}"] for rank in ranks]
            shapes = [rank[f"shapes {solver}"] for rank in ranks]

            for case in plain:
                self.assertEqual(case, alone)
                self.assertEqual(case["gradients"], one_batch)
            for case in ddp:
                self.assertGreater(len(case["saved"]), 1)
                self.assertGreater(case["knapsacks"], 0)
                self.assertEqual(case["saved"], ddp[0]["saved"])
                self.assertEqual(case["outputs"], ddp[0]["outputs"])
                # Ranks of equal batches: their mean gradient is that of the whole.
                self.assertEqual(case["gradients"], all_batches)
            for case in shapes:
                self.assertGreater(case["knapsacks"], 0)
                self.assertEqual(case["saved"], shapes[0]["saved"])
                self.assertEqual(case["gradients"], case["eager"])

    def test_two(self):
        self.check(2)

    def test_four(self):
        self.check(4)


if not (dist.is_available() and dist.is_gloo_available()):
    del TestRanks


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1].isdigit():
        run_rank(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    else:
        run_tests()
