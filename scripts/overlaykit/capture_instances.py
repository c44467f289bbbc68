"""Capture the knapsack instances of real models into test/instances/, and their optima.

Compiles each model on the CPU with torch.compile(backend="aot_eager") under a memory budget
and stores the `min_cut_information` artifact of torch's structured trace, made smaller.
The `hf-` models come from the transformers library, built from configs: no download.
With --optima it solves every stored instance at eight budgets with OR-tools' CP-SAT on the
integer byte sizes and stores the proven values beside them, checked by a plain exact sweep.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from overlaykit.cli import UserError
from overlaykit.instances import Instance, load_all, save, shrink, write_whole


ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "test" / "instances"
BUDGET = 0.3
BUDGETS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
TORCH_MODELS = {
    "llama": (4, 24),
    "gpt2": (4, 24),
    "vit": (4, 32),
    "resnet": (8, 24),
    "mlp": (12, 48),
}
HF_MODELS = {
    "hf-llama": (4, 16),
    "hf-gpt2": (4, 16),
    "hf-bert": (4, 16),
    "hf-vit": (4, 16),
}


def _hf_workload(name: str, layers: int) -> Any:
    """A transformers model of a small config whose call gives the loss."""
    import torch

    # Untyped on purpose: the configs' signatures differ between releases.
    hf: Any = importlib.import_module("transformers")

    from overlaykit.models import Workload

    class Loss(torch.nn.Module):
        def __init__(self, model: torch.nn.Module, key: str) -> None:
            super().__init__()
            self.model, self.key = model, key

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = self.model(**{self.key: inputs}).logits
            return torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), labels.flatten()
            )

    attention = "eager" if name in ("hf-gpt2", "hf-vit") else "sdpa"
    words, batch, length = 512, 2, 128
    torch.manual_seed(0)
    tokens = torch.randint(words, (batch, length))
    common: dict[str, Any] = {"attn_implementation": attention}
    key, inputs, labels = "input_ids", tokens, tokens
    model: Any
    if name == "hf-llama":
        model = hf.LlamaForCausalLM(
            hf.LlamaConfig(
                vocab_size=words,
                hidden_size=128,
                intermediate_size=352,
                num_hidden_layers=layers,
                num_attention_heads=4,
                num_key_value_heads=2,
                use_cache=False,
                **common,
            )
        )
    elif name == "hf-gpt2":
        model = hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=words,
                n_positions=length,
                n_embd=128,
                n_layer=layers,
                n_head=4,
                bos_token_id=None,
                eos_token_id=None,
                resid_pdrop=0,
                embd_pdrop=0,
                attn_pdrop=0,
                use_cache=False,
                **common,
            )
        )
    elif name == "hf-bert":
        model = hf.BertForMaskedLM(
            hf.BertConfig(
                vocab_size=words,
                hidden_size=128,
                intermediate_size=512,
                num_hidden_layers=layers,
                num_attention_heads=4,
                hidden_dropout_prob=0,
                attention_probs_dropout_prob=0,
                **common,
            )
        )
    else:
        model = hf.ViTForImageClassification(
            hf.ViTConfig(
                hidden_size=192,
                intermediate_size=768,
                num_hidden_layers=layers,
                num_attention_heads=3,
                image_size=64,
                patch_size=8,
                num_labels=10,
                hidden_dropout_prob=0,
                attention_probs_dropout_prob=0,
                **common,
            )
        )
        key, inputs = "pixel_values", torch.randn(batch, 3, 64, 64)
        labels = torch.randint(10, (batch,))
    description = f"transformers {hf.__version__}, {attention} attention"
    return Workload(name, Loss(model, key).train(), (inputs, labels), description)


def capture(name: str, layers: int, folder: Path) -> str:
    """Compile one model and write its file; returns a line that says what was found."""
    import torch

    from overlaykit import models
    from overlaykit.capture import compile_step

    hf = name in HF_MODELS
    workload = _hf_workload(name, layers) if hf else models.build(name, layers)
    begin = time.perf_counter()
    step = compile_step(workload, BUDGET)
    seconds = time.perf_counter() - begin
    if len(step.artifacts) != 1:
        raise UserError(
            f"{name}, {layers} layers: {len(step.artifacts)} knapsacks at budget {BUDGET}"
        )
    meta = {
        "torch": torch.__version__,
        "model": name,
        "layers": layers,
        "description": workload.description,
        "inputs": [f"{str(x.dtype)[6:]}{list(x.shape)}" for x in workload.inputs],
        "backend": "aot_eager",
        "command": f"scripts/capture_instances.py {name} --layers {layers}",
    }
    path = folder / f"{name}-{layers}.json"
    save(path, shrink(step.artifacts[0], meta))
    instance = step.instances[0]
    return (
        f"{path.name}: {len(instance.memory)} items, {instance.classes} distinct, "
        f"{path.stat().st_size / 1024:.0f} KiB, {seconds:.1f} s"
    )


def sweep(instance: Instance, capacity: int) -> tuple[int, int]:
    """Greatest kept runtime within `capacity` bytes, then least bytes: a plain exact DP.

    Python integers throughout; all non-dominated (memory, runtime) states, class by class.
    """
    states = [(0, 0)]
    classes = Counter(zip(instance.memory, instance.runtime))
    for (memory, runtime), count in sorted(classes.items()):
        grown = {
            (m + k * memory, r + k * int(runtime))
            for m, r in states
            for k in range(count + 1)
            if m + k * memory <= capacity
        }
        states, best = [], -1
        for m, r in sorted(grown, key=lambda state: (state[0], -state[1])):
            if r > best:
                states.append((m, r))
                best = r
    return states[-1][1], states[-1][0]


def prove(instance: Instance, capacity: int) -> tuple[int, int]:
    """The same from CP-SAT, one integer variable a class; UserError unless proven optimal."""
    from ortools.sat.python import cp_model

    classes = Counter(zip(instance.memory, instance.runtime))
    model = cp_model.CpModel()
    counts = [model.new_int_var(0, n, f"c{i}") for i, n in enumerate(classes.values())]
    memory = sum(m * c for (m, _), c in zip(classes, counts))
    runtime = sum(int(r) * c for (_, r), c in zip(classes, counts))
    model.add(memory <= capacity)

    def solve() -> list[int]:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(model)
        if status != cp_model.OPTIMAL:
            raise UserError(
                f"{instance.name}: CP-SAT says {solver.status_name(status)}"
            )
        # The bound is a float; the values are recomputed in whole numbers.
        if round(solver.best_objective_bound) != round(solver.objective_value):
            raise UserError(f"{instance.name}: CP-SAT's bound and value differ")
        return [solver.value(c) for c in counts]

    model.maximize(runtime)
    best = sum(int(r) * n for (_, r), n in zip(classes, solve()))
    model.add(runtime == best)
    model.minimize(memory)
    least = sum(m * n for (m, _), n in zip(classes, solve()))
    return best, least


def optima(folder: Path) -> None:
    """Write optima.json: for each instance and budget the capacity, runtime and bytes."""
    ortools: Any = importlib.import_module("ortools")

    if not (instances := load_all(folder)):
        raise UserError(f"{folder}: no instances")
    table: dict[str, dict[str, list[int]]] = {}
    for instance in instances:
        if not all(isinstance(value, int) for value in instance.runtime):
            raise UserError(f"{instance.name}: runtimes are not whole numbers")
        rows = table[instance.name] = {}
        for budget in BUDGETS:
            capacity = instance.capacity(budget)
            proven = prove(instance, capacity)
            if proven != sweep(instance, capacity):
                raise UserError(
                    f"{instance.name} at {budget}: CP-SAT and the sweep differ"
                )
            rows[str(budget)] = [capacity, *proven]
        print(f"{instance.name}: {len(BUDGETS)} optima proven", flush=True)
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(rows, separators=(',', ':'))}"
        for name, rows in table.items()
    )
    about = {
        "columns": ["capacity in bytes", "greatest kept runtime", "least bytes for it"],
        "solver": f"OR-tools {ortools.__version__} CP-SAT, status OPTIMAL, "
        "equal to an exact dynamic programme over the classes in Python integers",
        "command": "scripts/capture_instances.py --optima",
    }
    write_whole(
        folder / "optima.json",
        f'{{"about":{json.dumps(about)},\n"optima":{{\n{lines}\n}}}}\n',
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "model",
        nargs="*",
        help=f"{', '.join([*TORCH_MODELS, *HF_MODELS])}; default all",
    )
    parser.add_argument(
        "--layers", type=int, nargs="+", help="default: two depths each"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write")
    parser.add_argument("--optima", action="store_true", help="prove the stored optima")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.optima:
        if importlib.util.find_spec("ortools") is None:
            raise UserError("--optima needs ortools (pip install ortools)")
        optima(options.folder)
        return 0
    depths = {**TORCH_MODELS, **HF_MODELS}
    for name in options.model:
        if name not in depths:
            raise UserError(f"model: {name!r} is not one of {', '.join(depths)}")
    have_hf = importlib.util.find_spec("transformers") is not None
    for name in options.model or depths:
        if name in HF_MODELS and not have_hf:
            if options.model:
                raise UserError(f"{name} needs transformers (pip install transformers)")
            print(f"{name}: left out, transformers is not installed", file=sys.stderr)
            continue
        for layers in options.layers or depths[name]:
            print(capture(name, layers, options.folder), flush=True)
    return 0
