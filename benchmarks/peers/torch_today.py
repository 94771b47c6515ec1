"""The transformers of benchmarks/fit_today.py in PyTorch, by the same names: the same layers, sizes and dropout.

Scores are dropped by `scaled_dot_product_attention` itself, which takes the fused kernel that fits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from benchmarks.fit_today import BERT_LENGTH, BERT_WORDS, DROPOUT, GPT2_LENGTH, GPT2_WORDS


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


TODAY: dict[str, Callable[[], nn.Module]] = {
    "gpt2_medium": lambda: Gpt2(DROPOUT, DROPOUT),
    "gpt2_medium_no_scores": lambda: Gpt2(DROPOUT, 0.0),
    "gpt2_medium_no_dropout": lambda: Gpt2(0.0, 0.0),
    "bert_base": lambda: Bert(DROPOUT, DROPOUT),
    "bert_base_no_dropout": lambda: Bert(0.0, 0.0),
}
