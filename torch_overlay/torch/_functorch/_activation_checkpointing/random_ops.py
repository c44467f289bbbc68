"""
Keeps the partitioner from drawing the forward's random numbers again in backward.

A random op that the backward recomputes draws fresh numbers: the gradient then
belongs to another dropout mask than the loss does, and nothing says so. Under a
memory budget the partitioner may choose any op for recomputation, so the random ones
are taken out of its choice here. Those that the user checkpoints explicitly are left
alone: the partitioner replays their random state.

Upstream issues 190758 and 190717.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import torch
import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch._functorch.partitioners import NodeInfo


def force_save_random_ops(joint_graph: fx.Graph, node_info: NodeInfo) -> list[fx.Node]:
    """
    Marks each random op of the forward MUST_SAVE, so that no minimum cut and no
    knapsack plan recomputes it, unless the user asked for just that.

    Returns the marked ops in the graph's order. Time: one pass over the graph and over
    the subgraphs that it calls.
    """
    asked_for = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)
    random_ops = [
        node
        for node in joint_graph.nodes
        if node_info.is_required_fw(node)
        and node.meta.get("recompute") not in asked_for
        and draws_random_numbers(node)
    ]
    for node in random_ops:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return random_ops


def outputs_to_save(ops: Iterable[fx.Node]) -> list[fx.Node]:
    """
    The values by which `ops` are saved: an op itself, or, as a tuple cannot be saved,
    what is taken out of it, but for constants. Each once, in order.
    """

    def leaves(node: fx.Node) -> Iterator[fx.Node]:
        value = node.meta.get("val")
        if isinstance(value, (tuple, list)):
            for user in node.users:
                if user.target is operator.getitem:
                    yield from leaves(user)
        elif value is not None and not isinstance(value, (int, float)):
            yield node

    return list(dict.fromkeys(leaf for op in ops for leaf in leaves(op)))


def draws_random_numbers(node: fx.Node) -> bool:
    """
    Whether running `node` again could give other values, by the tag
    nondeterministic_seeded of the op, of an op that it is handed (functionalized and
    effectful ops, saved random states) or of an op in a subgraph that it calls.
    """
    if node.op != "call_function":
        return False
    if _is_seeded(node.target):
        return not _has_dropout_off(node)
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    return any(map(_is_seeded, node.args)) or any(
        draws_random_numbers(inner)
        for subgraph in _subgraphs(node)
        for inner in subgraph.nodes
    )


def _is_seeded(target: object) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _has_dropout_off(node: fx.Node) -> bool:
    """
    Attention ops carry the tag for their dropout alone. Without dropout they are the
    costliest candidates of a transformer and must stay in the partitioner's choice.
    """
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.name == "dropout_p":
            given = dict(enumerate(node.args)).get(position, argument.default_value)
            dropout: object = node.kwargs.get("dropout_p", given)
            return isinstance(dropout, (int, float)) and dropout == 0
    return False


def _subgraphs(node: fx.Node) -> Iterator[fx.Graph]:
    for source in node.all_input_nodes:
        if source.op == "get_attr" and source.graph.owning_module is not None:
            module = operator.attrgetter(str(source.target))(source.graph.owning_module)
            if isinstance(module, fx.GraphModule):
                yield module.graph
