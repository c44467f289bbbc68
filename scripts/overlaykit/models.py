"""Small models written for the demo and the captured instances; torch only, no download.

Every model returns its loss, so that one call gives a forward and a backward graph. The
sizes are small enough to compile in seconds on two cores; the number of layers is free.
No dropout: at a budget below 1 the partitioner may recompute it with fresh randomness
(upstream issue 190758), which has nothing to do with the solver.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn, Tensor

from overlaykit.cli import UserError


@dataclass(frozen=True)
class Workload:
    """A module whose call on `inputs` gives a scalar loss."""

    name: str
    module: nn.Module
    inputs: tuple[Tensor, ...]
    description: str


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return x * scale * self.weight


def _rotary(length: int, width: int) -> tuple[Tensor, Tensor]:
    frequency = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angle = torch.outer(torch.arange(length), frequency).repeat(1, 2)
    return angle.cos(), angle.sin()


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class LlamaLayer(nn.Module):
    """Grouped-query attention through SDPA, then a SwiGLU feed-forward."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.attention_norm, self.feed_norm = RMSNorm(width), RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, kv_heads * self.head, bias=False)
        self.value = nn.Linear(width, kv_heads * self.head, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, width = x.shape

        def split(y: Tensor, heads: int) -> Tensor:
            return y.view(batch, length, heads, self.head).transpose(1, 2)

        query = _rotate(split(self.query(x), self.heads), cos, sin)
        key = _rotate(split(self.key(x), self.kv_heads), cos, sin)
        value = split(self.value(x), self.kv_heads)
        groups = self.heads // self.kv_heads
        out = F.scaled_dot_product_attention(
            query,
            key.repeat_interleave(groups, 1),
            value.repeat_interleave(groups, 1),
            is_causal=True,
        )
        joined: Tensor = self.out(out.transpose(1, 2).reshape(batch, length, width))
        return joined

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attend(self.attention_norm(x), cos, sin)
        y = self.feed_norm(x)
        out: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class Llama(nn.Module):
    """A decoder in Llama's style: RMSNorm, rotary positions, grouped queries, SwiGLU."""

    cos: Tensor
    sin: Tensor

    def __init__(self, layers: int, length: int) -> None:
        super().__init__()
        width, heads, kv_heads, hidden, words = 128, 4, 2, 352, 512
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            LlamaLayer(width, heads, kv_heads, hidden) for _ in range(layers)
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        cos, sin = _rotary(length, width // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Block(nn.Module):
    """A pre-norm transformer block with a GELU feed-forward.

    Attention is written out (GPT-2's early style, every matrix visible to the partitioner)
    or goes through SDPA.
    """

    def __init__(self, width: int, heads: int, causal: bool, sdpa: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.sdpa = heads, causal, sdpa
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if self.sdpa:
            out = F.scaled_dot_product_attention(
                query, key, value, is_causal=self.causal
            )
        else:
            score = query @ key.transpose(-2, -1) * (width // self.heads) ** -0.5
            if self.causal:
                future = torch.ones(length, length, dtype=torch.bool).triu(1)
                score = score.masked_fill(future, float("-inf"))
            out = score.softmax(-1) @ value
        joined: Tensor = self.out(out.transpose(1, 2).reshape(batch, length, width))
        return joined

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.attention_norm(x))
        up = F.gelu(self.up(self.feed_norm(x)), approximate="tanh")
        out: Tensor = x + self.down(up)
        return out


class GPT2(nn.Module):
    """A decoder in GPT-2's style: learned positions, LayerNorm, attention written out."""

    def __init__(self, layers: int, length: int) -> None:
        super().__init__()
        width, words = 128, 512
        self.embed = nn.Embedding(words, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(
            Block(width, heads=4, causal=True, sdpa=False) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class ViT(nn.Module):
    """A vision transformer: patch convolution, class token, SDPA without a mask."""

    def __init__(self, layers: int, image: int) -> None:
        super().__init__()
        width, patch, classes = 192, 8, 10
        self.patch = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(
            torch.randn((image // patch) ** 2 + 1, width) * 0.02
        )
        self.blocks = nn.ModuleList(
            Block(width, heads=3, causal=False, sdpa=True) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.position
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x[:, 0])), labels)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm; a 1x1 projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.skip = (
            nn.Identity()
            if inputs == outputs
            else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class ResNet(nn.Module):
    """A residual network; the blocks are shared out over four stages that halve the image."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        blocks: list[nn.Module] = []
        channels = 16
        for block in range(layers):
            wanted = 16 * 2 ** (4 * block // layers)
            blocks.append(
                ResidualBlock(channels, wanted, 1 if wanted == channels else 2)
            )
            channels = wanted
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels, 10)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(images)))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


class MLP(nn.Module):
    """A plain perceptron whose widths differ, so that the items do too."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        widths = [width] + [width * (2 + i % 3) // 2 for i in range(layers)]
        self.linears = nn.ModuleList(
            nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(widths)
        )
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        for linear in self.linears:
            x = F.gelu(linear(x))
        return F.cross_entropy(self.head(x), labels)


def _tokens(batch: int, length: int) -> tuple[Tensor, Tensor]:
    return torch.randint(512, (batch, length)), torch.randint(512, (batch, length))


def _images(batch: int, size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, 3, size, size), torch.randint(10, (batch,))


def _llama(layers: int) -> Workload:
    module, inputs = Llama(layers, 128), _tokens(2, 128)
    return Workload("llama", module, inputs, "Llama-style decoder, width 128, 2 x 128")


def _gpt2(layers: int) -> Workload:
    module, inputs = GPT2(layers, 128), _tokens(2, 128)
    return Workload("gpt2", module, inputs, "GPT-2-style decoder, width 128, 2 x 128")


def _vit(layers: int) -> Workload:
    module, inputs = ViT(layers, 64), _images(4, 64)
    return Workload("vit", module, inputs, "vision transformer, width 192, 4 x 3x64x64")


def _resnet(layers: int) -> Workload:
    module, inputs = ResNet(layers), _images(8, 32)
    return Workload("resnet", module, inputs, "residual network, 8 x 3x32x32")


def _mlp(layers: int) -> Workload:
    inputs = (torch.randn(256, 256), torch.randint(10, (256,)))
    return Workload("mlp", MLP(layers, 256), inputs, "perceptron, width 256 to 512")


@dataclass(frozen=True)
class Family:
    """How to make a workload of a number of layers, and a number that shows the point."""

    make: Callable[[int], Workload]
    layers: int


MODELS: dict[str, Family] = {
    "llama": Family(_llama, 8),
    "gpt2": Family(_gpt2, 8),
    "vit": Family(_vit, 8),
    "resnet": Family(_resnet, 12),
    "mlp": Family(_mlp, 12),
}


def build(name: str, layers: int | None = None, seed: int = 0) -> Workload:
    """The workload `name` with `layers` layers (its family's own number without).

    Weights and inputs depend on `seed` alone; the global generator is left as it was.
    Raises UserError for an unknown name or fewer than one layer.
    """
    family = MODELS.get(name)
    if family is None:
        raise UserError(f"model: {name!r} is not one of {', '.join(MODELS)}")
    if layers is None:
        layers = family.layers
    if layers < 1:
        raise UserError(f"layers: {layers} is not 1 or more")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return family.make(layers)
