"""Models of benchmarks/fit_today.py in PyTorch, by the same names: the same layers, sizes and dropout.

Scores are dropped by `scaled_dot_product_attention` itself, by the fused kernel that fits. Pictures are flipped,
turned and stretched on the GPU by one reading at projected places, where Keras's layers make two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from benchmarks.fit_today import BERT_LENGTH, BERT_WORDS, CLASSES, DROPOUT, GPT2_LENGTH, GPT2_WORDS
from benchmarks.peers.torch_families import Scaled


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, scores: float, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.scores, self.causal = heads, scores, causal
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        samples, length, width = x.shape
        parts = self.inward(x).view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        rate = self.scores if self.training else 0.0
        seen = functional.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=rate, is_causal=self.causal)
        return self.outward(seen.transpose(1, 2).reshape(samples, length, width))


class Block(nn.Module):
    """first: whether it normalises before each part, and not after."""

    def __init__(self, width: int, heads: int, dropout: float, scores: float, *, causal: bool, first: bool) -> None:
        super().__init__()
        epsilon = 1e-5 if first else 1e-12
        self.first, self.attention = first, Attention(width, heads, scores, causal=causal)
        self.one, self.other = nn.LayerNorm(width, eps=epsilon), nn.LayerNorm(width, eps=epsilon)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.first:
            x = x + self.drop(self.attention(self.one(x), mask))
            return x + self.drop(self.dense(self.other(x)))
        x = self.one(x + self.drop(self.attention(x, mask)))
        return self.other(x + self.drop(self.dense(x)))


class Gpt2(nn.Module):
    def __init__(self, dropout: float, scores: float, width: int = 1_024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(GPT2_WORDS, width), nn.Embedding(GPT2_LENGTH, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, 16, dropout, scores, causal=True, first=True) for _ in range(24)))
        self.last, self.out = nn.LayerNorm(width), nn.Linear(width, GPT2_WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(self.last(self.blocks(self.drop(self.words(tokens) + self.places.weight))))


class Bert(nn.Module):
    def __init__(self, dropout: float, scores: float, width: int = 768) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(BERT_WORDS, width), nn.Embedding(BERT_LENGTH, width)
        self.begin, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, 12, dropout, scores, causal=False, first=False) for _ in range(12))
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.out = nn.Linear(width, BERT_WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = (tokens != 0)[:, None, None]
        x = self.drop(self.begin(self.words(tokens) + self.places.weight))
        for block in self.blocks:
            x = block(x, mask)
        return self.out(self.head(x))


class Augmented(nn.Module):
    """A ResNet-50 behind random flips, turns by a tenth of a circle, zooms and contrasts by a fifth."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        self.body = torchvision.models.resnet50()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = images.permute(0, 3, 1, 2).float()
        return self.body((self.augmented(x) if self.training else x).div(127.5).sub(1.0))

    def augmented(self, x: torch.Tensor) -> torch.Tensor:
        def between(most: float) -> torch.Tensor:
            return (torch.rand(len(x), device=x.device) * 2 - 1) * most

        angle, tall, wide = between(0.1 * 2 * math.pi), 1 + between(0.2), 1 + between(0.2)
        wide = wide * between(1.0).sign()
        nothing = torch.zeros_like(angle)
        rows = [angle.cos() * wide, -angle.sin() * tall, nothing, angle.sin() * wide, angle.cos() * tall, nothing]
        grid = functional.affine_grid(torch.stack(rows, 1).view(-1, 2, 3), list(x.shape), align_corners=False)
        x = functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
        mean = x.mean((2, 3), keepdim=True)
        return ((x - mean) * (1 + between(0.2)).view(-1, 1, 1, 1) + mean).clamp(0, 255)


class Deeplab(nn.Module):
    """DeepLabV3+ over a ResNet-50: a pyramid of dilations 1, 6, 12 and 18 over a sixteenth of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        def seen(given: int, filters: int = 256, size: int = 3, dilation: int = 1) -> nn.Sequential:
            around = (size - 1) // 2 * dilation
            part = nn.Conv2d(given, filters, size, padding=around, dilation=dilation, bias=False)
            return nn.Sequential(part, nn.BatchNorm2d(filters), nn.ReLU())

        body = torchvision.models.resnet50()
        self.first = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1)
        self.second = nn.Sequential(body.layer2, body.layer3)
        self.whole = seen(1024, size=1)
        self.pyramid = nn.ModuleList([seen(1024, size=1), *(seen(1024, dilation=each) for each in (6, 12, 18))])
        self.joined, self.near = seen(5 * 256, size=1), seen(256, 48, 1)
        self.last = nn.Sequential(seen(256 + 48), seen(256))
        self.out = nn.Conv2d(256, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def larger(x: torch.Tensor, factor: int) -> torch.Tensor:
            return functional.interpolate(x, scale_factor=factor, mode="bilinear")

        near = self.first(x)
        deep = self.second(near)
        whole = self.whole(deep.mean((2, 3), keepdim=True))
        parts = [larger(whole, deep.shape[2]), *(part(deep) for part in self.pyramid)]
        x = larger(self.joined(torch.cat(parts, 1)), 4)
        return self.out(larger(self.last(torch.cat([x, self.near(near)], 1)), 4))


def nasnet_mobile() -> Scaled:
    """timm's NASNet-A in the sizes of Keras's NASNetMobile: four cells of each kind in the place of six."""
    from timm.models.nasnet import NASNetALarge

    class Mobile(NASNetALarge):  # type: ignore[misc]
        def forward_features(self, images: torch.Tensor) -> torch.Tensor:
            first = self.conv0(images)
            before = self.cell_stem_0(first)
            x = self.cell_stem_1(first, before)
            for stack in range(3):
                if stack:
                    x, before = getattr(self, f"reduction_cell_{stack - 1}")(x, before), x
                for cell in range(6 * stack, 6 * stack + 4):
                    x, before = getattr(self, f"cell_{cell}")(x, before), x
            return self.act(x)

    body = Mobile(stem_size=32, num_features=1056, pad_type="same")
    for left_out in (4, 5, 10, 11, 16, 17):
        delattr(body, f"cell_{left_out}")
    return Scaled(body)


def inception_resnet() -> Scaled:
    import timm

    return Scaled(timm.create_model("inception_resnet_v2"))


def efficientnet_b4() -> Scaled:
    import torchvision

    return Scaled(torchvision.models.efficientnet_b4(dropout=0.0))


IMAGES = {"resnet50_augmented", "deeplab", "nasnet_mobile", "efficientnet_b4", "inception_resnet"}
TODAY: dict[str, Callable[[], nn.Module]] = {
    "resnet50_augmented": Augmented,
    "deeplab": lambda: Scaled(Deeplab()),
    "nasnet_mobile": nasnet_mobile,
    "efficientnet_b4": efficientnet_b4,
    "inception_resnet": inception_resnet,
    "gpt2_medium": lambda: Gpt2(DROPOUT, DROPOUT),
    "gpt2_medium_no_scores": lambda: Gpt2(DROPOUT, 0.0),
    "gpt2_medium_no_dropout": lambda: Gpt2(0.0, 0.0),
    "bert_base": lambda: Bert(DROPOUT, DROPOUT),
    "bert_base_no_dropout": lambda: Bert(0.0, 0.0),
}
