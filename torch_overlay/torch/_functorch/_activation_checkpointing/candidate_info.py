"""What a later step needs to know of a candidate to choose among equal plans.

The knapsack sees two numbers of a candidate. Plans that are equal in these can differ
in when their tensors live and in what recomputing reads; `Candidate` says where a
candidate stands and which others it could change places with.
"""

from __future__ import annotations

from typing import NamedTuple, TYPE_CHECKING


if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from torch.fx import Graph, Node


class Candidate(NamedTuple):
    """One item of the knapsack and its place in the joint graph.

    name: the node's name.
    position: its index in the graph's order, from 0.
    class_id: candidates with the same class_id have the same operator, size, runtime
        and kind of inputs, so they cost the same to save and to recompute. Classes
        are numbered from 0, in the order in which the graph first shows them.
    nbytes: the size the partitioner reckons with, in bytes; None if the graph isn't
        known or carries no tensor metadata.
    """

    name: str
    position: int
    class_id: int
    nbytes: int | None


def describe_candidates(
    candidates: Sequence[str],
    positions: dict[str, int],
    memories: Sequence[float],
    runtimes: Sequence[float],
    joint_graph: Graph | None,
) -> list[Candidate]:
    """Describe the candidates in the order given, which is the knapsack's.

    Args:
        candidates: n names, all of them in positions.
        positions: name -> index in the graph's order.
        memories, runtimes: n numbers each, as given to the knapsack.
        joint_graph: the graph that holds the candidates. Without it operators are
            unknown, so that each candidate is a class of its own.

    Inputs are of the same kind if they agree, one by one, in operator (or in being a
    placeholder), in size, and in whether they are candidates themselves. Constant
    arguments, such as the bounds of a slice, are not compared.

    Complexity: O(graph nodes + the candidates' inputs).
    """
    node_of: dict[str, Node] = {}
    if joint_graph is not None:
        node_of = {node.name: node for node in joint_graph.nodes}
    chosen = set(candidates)
    class_ids: dict[Hashable, int] = {}
    described: dict[int, Candidate] = {}
    for i in sorted(range(len(candidates)), key=lambda i: positions[candidates[i]]):
        name = candidates[i]
        node = node_of.get(name)
        kind: Hashable = name
        if node is not None:
            inputs = tuple(
                (_operator(x), _nbytes(x), x.name in chosen)
                for x in node.all_input_nodes
            )
            kind = (_operator(node), memories[i], runtimes[i], inputs)
        described[i] = Candidate(
            name,
            positions[name],
            class_ids.setdefault(kind, len(class_ids)),
            None if node is None else _nbytes(node),
        )
    return [described[i] for i in range(len(candidates))]


def _operator(node: Node) -> Hashable:
    # The target of an input is its own name, which says nothing of its kind.
    if node.op in ("placeholder", "get_attr"):
        return node.op
    return (node.op, node.target)


def _nbytes(node: Node) -> int | None:
    # Imported late: partitioners imports GraphInfoProvider, which imports this file.
    from torch._functorch.partitioners import _size_of

    try:
        return _size_of(node) if "val" in node.meta else None
    except RuntimeError:  # an object that has no size, such as a ScriptObject
        return None
