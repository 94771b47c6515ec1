"""The models of benchmarks/fit_families.py in PyTorch, by the same names: the same layers, sizes and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.fit_families import DENSE, FIELDS, ITEMS, LENGTH, VOCABULARY


class Scaled(nn.Module):
    """An image classifier on uint8 images, (samples, height, width, 3) as they come."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: torch.Tensor) -> Any:
        return self.body(images.permute(0, 3, 1, 2).float().div(127.5).sub(1.0))


class Block(nn.Module):
    """A transformer layer, normalised before each part."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before_attention, self.before_dense = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        samples, length, width = x.shape
        parts = self.inward(self.before_attention(x)).view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts.unbind(0), attn_mask=mask, is_causal=self.causal)
        x = x + self.outward(seen.transpose(1, 2).reshape(samples, length, width))
        return x + self.dense(self.before_dense(x))


class Language(nn.Module):
    """12 layers x 768 over 512 tokens: all places' next words, or one class for the sentence (words 0 are masked)."""

    def __init__(self, *, causal: bool, outputs: int) -> None:
        super().__init__()
        self.causal = causal
        self.words, self.places = nn.Embedding(VOCABULARY, 768), nn.Embedding(LENGTH, 768)
        self.blocks = nn.ModuleList(Block(768, 12, causal=causal) for _ in range(12))
        self.last, self.out = nn.LayerNorm(768), nn.Linear(768, outputs)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(LENGTH, device=tokens.device))
        mask = None if self.causal else (tokens != 0)[:, None, None]
        for block in self.blocks:
            x = block(x, mask)
        x = self.last(x)
        return self.out(x if self.causal else x[:, 0])


class Vit(nn.Module):
    """ViT-S/16: 12 layers x 384, 6 heads, 196 patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, 384, 16, stride=16), nn.Embedding(196, 384)
        self.blocks = nn.Sequential(*(Block(384, 6) for _ in range(12)), nn.LayerNorm(384))
        self.out = nn.Linear(384, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places.weight
        return self.out(self.blocks(x).mean(1))


class Unet(nn.Module):
    """64 to 1024 channels, four times down and up, batch normalisation."""

    def __init__(self) -> None:
        super().__init__()

        def twice(given: int, filters: int) -> nn.Sequential:
            parts: list[nn.Module] = []
            for channels in (given, filters):
                parts += [nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
            return nn.Sequential(*parts)

        down, up = (3, 64, 128, 256, 512), (1024, 512, 256, 128, 64)
        self.down = nn.ModuleList(twice(a, b) for a, b in zip(down, down[1:], strict=False))
        self.bottom = twice(512, 1024)
        self.wider = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in zip(up, up[1:], strict=False))
        self.up = nn.ModuleList(twice(2 * b, b) for b in up[1:])
        self.out = nn.Conv2d(64, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for part in self.down:
            x = part(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for wider, part in zip(self.wider, self.up, strict=True):
            x = part(torch.cat([wider(x), kept.pop()], 1))
        return self.out(x)


class Recommender(nn.Module):
    """One table of a million items x 64, eight looked up per sample, and three dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(ITEMS, 64)
        sizes = (64 * FIELDS + DENSE, 1024, 512, 256)
        layers = [part for a, b in zip(sizes, sizes[1:], strict=False) for part in (nn.Linear(a, b), nn.ReLU())]
        self.dense = nn.Sequential(*layers, nn.Linear(256, 2))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.dense(torch.cat([self.items(batch["items"]).flatten(1), batch["numbers"]], 1))


class Recurrent(nn.Module):
    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.layers, self.out = cell(64, 512, num_layers=2, batch_first=True), nn.Linear(512, 10)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(series)[0][:, -1])


def _vision(name: str, **options: Any) -> Scaled:
    import torchvision

    return Scaled(getattr(torchvision.models, name)(**options))


def _efficientnet() -> Scaled:
    import timm

    return Scaled(timm.create_model("tf_efficientnetv2_b0"))


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "resnet50": lambda: _vision("resnet50"),
    "convnext_tiny": lambda: _vision("convnext_tiny", stochastic_depth_prob=0.0),
    "efficientnetv2b0": _efficientnet,
    "vit_s": lambda: Scaled(Vit()),
    "decoder": lambda: Language(causal=True, outputs=VOCABULARY),
    "encoder": lambda: Language(causal=False, outputs=2),
    "unet": lambda: Scaled(Unet()),
    "recommender": Recommender,
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
}
