"""Which recomputation candidates of a joint graph depend on which others.

`GraphInfoProvider` asks for the transitive reduction of reachability between the
candidates: an edge a -> b says that b depends on a, directly or through nodes that
are no candidates, and that no third candidate lies between them.
"""

from collections.abc import Iterable, Sequence


def reduce_reachability(
    nodes_in_order: Sequence[str],
    edges: Iterable[tuple[str, str]],
    candidates: Iterable[str],
) -> dict[str, list[str]]:
    """Give each candidate the candidates that depend on it with none between.

    Args:
        nodes_in_order: the graph's node names, each before all of its users.
        edges: (node, user) pairs; repeated pairs count once.
        candidates: the names to relate; their order and repetition don't matter.

    Returns:
        candidate -> its successors. Keys and successors stand in the graph's order,
        so the answer doesn't depend on how the arguments were put together.

    Raises:
        ValueError: a candidate or an edge's end is not in nodes_in_order, or an edge
            runs against that order.

    Complexity: with n nodes, m edges, k candidates and r edges in the answer,
    O(n + (m + r) k / 64) word operations. A mask is kept for each candidate, and for
    another node only until the sweep has passed it.
    """
    position = {name: i for i, name in enumerate(nodes_in_order)}
    predecessors: list[list[int]] = [[] for _ in nodes_in_order]
    for a, b in edges:
        if a not in position or b not in position:
            raise ValueError(f"edge ({a}, {b}) names a node that is not in the graph")
        if position[a] >= position[b]:
            raise ValueError(f"edge ({a}, {b}) runs against the graph's order")
        predecessors[position[b]].append(position[a])

    bit_of: dict[int, int] = {}
    chosen = set(candidates)
    for name in chosen:
        if name not in position:
            raise ValueError(f"candidate {name} is not in the graph")
    ordered = [name for name in nodes_in_order if name in chosen]
    for bit, name in enumerate(ordered):
        bit_of[position[name]] = bit

    # reachable[v]: the candidates that the nodes after v make v reach, one bit each
    reachable = [0] * len(nodes_in_order)
    reachable_of_candidate = [0] * len(ordered)
    for node in range(len(nodes_in_order) - 1, -1, -1):
        mask = reachable[node]
        reachable[node] = 0  # every user has been here; free the mask
        bit = bit_of.get(node, -1)
        if bit >= 0:
            reachable_of_candidate[bit] = mask
            mask |= 1 << bit
        if mask:
            for predecessor in predecessors[node]:
                reachable[predecessor] |= mask

    reduced: dict[str, list[str]] = {}
    for bit, name in enumerate(ordered):
        successors = []
        left = reachable_of_candidate[bit]
        while left:
            # nothing that is left comes before the lowest bit, so nothing lies between
            nearest = (left & -left).bit_length() - 1
            successors.append(ordered[nearest])
            left &= ~(reachable_of_candidate[nearest] | 1 << nearest)
        reduced[name] = successors
    return reduced
