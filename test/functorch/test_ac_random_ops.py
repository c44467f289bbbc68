# Owner(s): ["module: functorch"]
"""
Random ops under an activation memory budget: the gradient is that of the draw that the
loss saw. Upstream issues 190758 and 190717.

The expected gradients come from eager under the same seed, and from finite differences
of eager's loss, which draws the same numbers as aot_eager does.
"""

import functools
import itertools
import operator

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
import torch.nn.functional as F
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._activation_checkpointing.random_ops import (
    draws_random_numbers,
    force_save_random_ops,
    outputs_to_save,
)
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import compile_fx
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
    TestCase,
)
from torch.utils.checkpoint import checkpoint, CheckpointPolicy


BUDGETS = (0, 0.05, 0.3, 0.5, 0.9)
WIDTH = 16
aten = torch.ops.aten
uncached = {"enable_autograd_cache": False}


# A custom op is known to be random by its tag alone; the mutating one reaches the
# partitioner inside the auto_functionalized higher-order op.
@torch.library.custom_op(
    "test_ac_random::noise",
    mutates_args=(),
    tags=(torch.Tag.nondeterministic_seeded,),
)
def noise(x: torch.Tensor) -> torch.Tensor:
    return torch.rand(x.shape, dtype=x.dtype)


@torch.library.custom_op(
    "test_ac_random::fill_with_noise",
    mutates_args=("x",),
    tags=(torch.Tag.nondeterministic_seeded,),
)
def fill_with_noise(x: torch.Tensor) -> None:
    x.uniform_()


noise.register_fake(torch.empty_like)
fill_with_noise.register_fake(lambda x: None)


def multinomial(x):
    drawn = torch.multinomial(torch.softmax(x.detach(), -1), 5, replacement=True)
    return x.scatter_add(1, drawn, torch.gather(x, 1, drawn))


def attention(x, dropout_p):
    heads = x.view(2, WIDTH // 2, 2, WIDTH // 2).transpose(1, 2)
    out = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=dropout_p)
    return out.transpose(1, 2).reshape(x.shape)


def deep_chain(x):
    for _ in range(5):
        x = torch.tanh(x)
    x = x * torch.rand_like(x)
    for _ in range(5):
        x = torch.sin(x)
    return x


def filled_with_noise(x):
    mask = torch.empty_like(x)
    fill_with_noise(mask)
    return x * mask


def drawing_branch(x):
    return torch.cond(
        x.sum() > -1e9, lambda y: y * torch.rand_like(y), lambda y: y + 0, (x,)
    )


@torch.compiler.nested_compile_region
def drawing_region(x):
    return F.dropout(torch.sin(x), 0.5)


DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "rand_like": lambda x: x * torch.rand_like(x),
    "rand": lambda x: x * torch.rand(WIDTH, WIDTH, dtype=x.dtype),
    "bernoulli": lambda x: x * torch.bernoulli(torch.sigmoid(x)),
    "multinomial": multinomial,
    "normal": lambda x: x * torch.normal(torch.zeros_like(x), 1.0),
    "exponential": lambda x: x * torch.empty_like(x).exponential_(),
    "attention": lambda x: attention(x, 0.4),
    "deep_chain": deep_chain,
    "custom_op": lambda x: x * noise(x.detach()),
    "mutating_custom_op": filled_with_noise,
    "cond": drawing_branch,
    "nested_region": drawing_region,
}


def loss_with(draw):
    def loss(x, weight):
        for _ in range(3):
            x = draw(torch.relu(x @ weight))
        return x.square().sum()

    return loss


def operands(dtype=torch.float32):
    generator = torch.Generator().manual_seed(7)
    x, weight = torch.randn(2, WIDTH, WIDTH, generator=generator, dtype=dtype)
    return x, (weight * 0.4).requires_grad_()


def gradient(loss, x, weight, seed=11):
    """(loss, gradient by the weight, the random state after the backward)."""
    torch.manual_seed(seed)
    value = loss(x, weight)
    (grad,) = torch.autograd.grad(value, weight)
    return value.detach(), grad, torch.get_rng_state()


class RandomOpsTestCase(TestCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def compiled(self, function, budget, backend="aot_eager", **config):
        """`function` compiled at its first call under the budget, from scratch."""

        def call(*args):
            with (
                functorch_config.patch(
                    activation_memory_budget=budget, **uncached, **config
                ),
                inductor_config.patch(force_disable_caches=True),
            ):
                return torch.compile(function, backend=backend)(*args)

        torch._dynamo.reset()
        return call


class TestGradients(RandomOpsTestCase):
    @parametrize("name", list(DRAWS))
    def test_every_budget_gives_eager_gradients(self, name):
        loss = loss_with(DRAWS[name])
        x, weight = operands()
        value, grad, state = gradient(loss, x, weight)
        for budget in (1.0, *BUDGETS):
            with self.subTest(budget=budget):
                got = gradient(self.compiled(loss, budget), x, weight)
                self.assertEqual(got[0], value)
                self.assertEqual(got[1], grad)
                # Nothing is drawn in backward, not even what nobody uses.
                self.assertEqual(got[2], state)

    @parametrize("name", ["dropout", "rand_like", "attention", "deep_chain"])
    def test_gradient_is_the_slope_of_the_loss(self, name):
        loss = loss_with(DRAWS[name])
        x, weight = operands(torch.float64)
        direction = torch.randn(
            weight.shape, generator=torch.Generator().manual_seed(3), dtype=weight.dtype
        )
        step = 1e-6
        up, down = (
            gradient(loss, x, (weight + s * direction).detach().requires_grad_())[0]
            for s in (step, -step)
        )
        slope = (up - down) / (2 * step)
        for budget in (0, 0.3):
            _, grad, _ = gradient(self.compiled(loss, budget), x, weight)
            self.assertEqual((grad * direction).sum(), slope, rtol=1e-5, atol=0)

    def test_aggressive_recomputation_at_the_full_budget(self):
        loss = loss_with(DRAWS["bernoulli"])
        x, weight = operands()
        _, grad, _ = gradient(loss, x, weight)
        compiled = self.compiled(loss, 1.0, aggressive_recomputation=True)
        self.assertEqual(gradient(compiled, x, weight)[1], grad)

    def test_draws_are_saved_where_nothing_else_is_a_candidate(self):
        def loss(x, weight):
            y = x * weight
            for _ in range(3):
                y = torch.native_dropout(torch.sin(y), 0.5, True)[0]
            return y.square().sum()

        x, weight = operands()
        _, grad, _ = gradient(loss, x, weight)
        for budget in BUDGETS:
            compiled = self.compiled(loss, budget)
            self.assertEqual(gradient(compiled, x, weight)[1], grad)

    def test_shapes_that_change(self):
        loss = loss_with(lambda x: torch.native_dropout(x, 0.5, True)[0])
        _, weight = operands()
        for budget in (0, 0.3):
            torch._dynamo.reset()
            config = functorch_config.patch(activation_memory_budget=budget, **uncached)
            compiled = torch.compile(loss, backend="aot_eager", dynamic=True)
            for rows in (5, 9):
                x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1))
                with config:
                    got = gradient(compiled, x, weight)
                self.assertEqual(got[1], gradient(loss, x, weight)[1])

    def test_two_epochs_follow_the_full_budget(self):
        data = torch.randn(6, WIDTH, WIDTH, generator=torch.Generator().manual_seed(2))

        def losses(budget):
            torch.manual_seed(0)
            layers = (
                (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.3)) for _ in range(3)
            )
            model = nn.Sequential(*itertools.chain(*layers), nn.Linear(WIDTH, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            step = self.compiled(lambda x: (model(x) - 1).square().mean(), budget)
            seen = []
            for batch in [*data, *data]:
                optimizer.zero_grad()
                loss = step(batch)
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
            return seen

        expected = losses(1.0)
        self.assertLess(expected[-1], expected[0])
        for budget in (0, 0.3, 0.5):
            self.assertEqual(losses(budget), expected)


class TestPartition(RandomOpsTestCase):
    """What the backward graph holds, seen by a compiler that only looks."""

    def partitioned(self, loss, budget, inductor=False):
        """The forward and the backward graph; with Inductor's own passes before."""
        graphs = []

        def look(module, *args, **kwargs):
            graphs.append(module.graph)
            return make_boxed_func(module.forward)

        if inductor:
            backend = functools.partial(compile_fx, inner_compile=look)
        else:
            backend = aot_autograd(
                fw_compiler=look,
                bw_compiler=look,
                partition_fn=min_cut_rematerialization_partition,
            )
        gradient(self.compiled(loss, budget, backend), *operands())
        forward, backward = graphs
        return forward, backward

    def targets(self, graph):
        return [node.target for node in graph.nodes if node.op == "call_function"]

    @parametrize("name", ["dropout", "normal"])
    def test_inductor_draws_its_seeds_once(self, name):
        for budget in (0, 0.3, 0.9):
            forward, backward = self.partitioned(
                loss_with(DRAWS[name]), budget, inductor=True
            )
            self.assertTrue(any(map(draws_random_numbers, forward.nodes)))
            self.assertFalse(any(map(draws_random_numbers, backward.nodes)))

    def test_inductor_still_recomputes_the_masks_from_the_seeds(self):
        # A seed is 8 bytes: saving it, not the mask, is what a small budget is for.
        _, backward = self.partitioned(loss_with(DRAWS["dropout"]), 0, inductor=True)
        self.assertIn(torch.ops.prims.inductor_random.default, self.targets(backward))

    def test_zero_budget_saves_the_inputs_and_the_draws_alone(self):
        _, backward = self.partitioned(loss_with(DRAWS["rand_like"]), 0)
        saved = [node.name for node in backward.find_nodes(op="placeholder")]
        draws = [name for name in saved if name.startswith("rand_like")]
        self.assertEqual(len(draws), 3)
        inputs = ("primals", "tangents")
        self.assertEqual([name for name in saved if not name.startswith(inputs)], draws)

    def test_attention_without_dropout_is_recomputed(self):
        # Its op carries the tag for dropout's sake, but draws nothing here.
        _, backward = self.partitioned(loss_with(lambda x: attention(x, 0.0)), 0)
        attention_op = aten._scaled_dot_product_flash_attention_for_cpu.default
        self.assertEqual(self.targets(backward).count(attention_op), 3)

    def test_checkpointed_draws_are_still_recomputed(self):
        def checkpointed(x):
            return checkpoint(lambda y: F.dropout(y, 0.5), x, use_reentrant=False)

        loss = loss_with(checkpointed)
        x, weight = operands()
        for budget in (0, 0.3):
            _, backward = self.partitioned(loss, budget)
            replay = torch.ops.higher_order.run_with_rng_state
            self.assertEqual(self.targets(backward).count(replay), 3)
            compiled = self.compiled(loss, budget)
            grad = gradient(loss, x, weight)[1]
            self.assertEqual(gradient(compiled, x, weight)[1], grad)

    def test_draws_beside_checkpointed_ones(self):
        def both(x):
            x = checkpoint(lambda y: F.dropout(y, 0.5), x, use_reentrant=False)
            return F.dropout(x, 0.25)

        loss = loss_with(both)
        x, weight = operands()
        grad = gradient(loss, x, weight)[1]
        for budget in BUDGETS:
            compiled = self.compiled(loss, budget)
            self.assertEqual(gradient(compiled, x, weight)[1], grad)

    def test_inductor_trains_on_the_mask_that_the_loss_saw(self):
        # Linear in the weight, so weight . grad is the loss itself, whatever is drawn.
        def loss(x, weight):
            return F.dropout(F.dropout(x @ weight, 0.5), 0.5).sum()

        x, weight = operands()
        value, grad, _ = gradient(self.compiled(loss, 0, "inductor"), x, weight)
        self.assertEqual((weight * grad).sum(), value, rtol=1e-4, atol=1e-4)


class TestPredicate(TestCase):
    def node(self, target, *args, **kwargs):
        graph = torch.fx.Graph()
        q = graph.placeholder("q")
        return graph.call_function(
            target, tuple(q if arg == "q" else arg for arg in args), kwargs
        )

    def test_tag(self):
        self.assertTrue(draws_random_numbers(self.node(aten.rand_like.default, "q")))
        self.assertFalse(draws_random_numbers(self.node(aten.sin.default, "q")))
        self.assertFalse(draws_random_numbers(self.node(len, "q")))

    def test_dropout_of_attention(self):
        flash = aten._scaled_dot_product_flash_attention.default
        for draws, args, kwargs in (
            (False, (), {}),
            (False, (0.0,), {}),
            (False, (), {"dropout_p": 0}),
            (True, (0.1,), {}),
            (True, (), {"dropout_p": 0.1}),
            (True, ("q",), {}),  # known only at run time
        ):
            node = self.node(flash, "q", "q", "q", *args, **kwargs)
            self.assertEqual(draws_random_numbers(node), draws)

    def test_higher_order_ops(self):
        body = torch.fx.Graph()
        body.output(
            (body.call_function(aten.rand_like.default, (body.placeholder("y"),)),)
        )
        quiet = torch.fx.Graph()
        quiet.output((quiet.placeholder("y"),))
        for inner, draws in ((body, True), (quiet, False)):
            root = torch.nn.Module()
            root.inner = torch.fx.GraphModule({}, inner)
            outer = torch.fx.Graph()
            y = outer.placeholder("y")
            call = outer.call_function(
                torch.ops.higher_order.invoke_subgraph,
                (outer.get_attr("inner"), "inner", y),
            )
            outer.output((call,))
            torch.fx.GraphModule(root, outer)
            self.assertEqual(draws_random_numbers(call), draws)
        saves = torch.ops.higher_order.run_and_save_rng_state
        for op, draws in ((aten.rand_like.default, True), (aten.sin.default, False)):
            self.assertEqual(draws_random_numbers(self.node(saves, op, "q")), draws)

    def test_tuples_are_saved_by_what_is_taken_out_of_them(self):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        pair = graph.call_function(aten.native_dropout.default, (x, 0.5, True))
        pair.meta["val"] = (torch.empty(2), torch.empty(2, dtype=torch.bool))
        mask = graph.call_function(operator.getitem, (pair, 1))
        mask.meta["val"] = pair.meta["val"][1]
        single = graph.call_function(aten.rand_like.default, (x,))
        single.meta["val"] = torch.empty(2)
        self.assertEqual(outputs_to_save([pair, single, single]), [mask, single])

    def test_only_the_forwards_own_draws_are_marked(self):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        kept, asked_for, other = (
            graph.call_function(aten.rand_like.default, (x,)) for _ in range(3)
        )
        asked_for.meta["recompute"] = CheckpointPolicy.PREFER_RECOMPUTE

        class Forward:
            def is_required_fw(self, node):
                return node is not other

        self.assertEqual(force_save_random_ops(graph, Forward()), [kept])
        self.assertEqual(kept.meta["recompute"], CheckpointPolicy.MUST_SAVE)
        self.assertEqual(asked_for.meta["recompute"], CheckpointPolicy.PREFER_RECOMPUTE)
        self.assertNotIn("recompute", other.meta)


instantiate_parametrized_tests(TestGradients)
instantiate_parametrized_tests(TestPartition)


if __name__ == "__main__":
    run_tests()
