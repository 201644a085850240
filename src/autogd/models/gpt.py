"""A decoder-only transformer."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

__all__ = ["GPT", "Attention", "Block"]


class Attention(nn.Module):
    """Causal self-attention.

    Query, key and value are three layers: three linear maps, each with its own norm.

    >>> Attention(width=8, heads=2, bias=False)(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, width: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Mix every position with those before it."""
        q, k, v = (
            layer(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a two-layer network, each with a norm before it and added to its input.

    >>> Block(width=8, heads=2, bias=False, affine=False)(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, width: int, heads: int, *, bias: bool, affine: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, elementwise_affine=affine)
        self.attention = Attention(width, heads, bias=bias)
        self.norm = nn.LayerNorm(width, elementwise_affine=affine)
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Add the outputs of attention and of the two layers to the input."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(gelu(self.up(self.norm(x))))


class GPT(nn.Module):
    """A decoder-only transformer, without biases unless asked.

    Tokens and positions are embedded. The head is not tied to the embedding, since they are different atoms: a matrix
    and the rows of a table.

    Args:
        vocabulary: number of tokens.
        context: length of the longest sequence.
        depth: number of blocks.
        width: size of the embedding.
        heads: attention heads; by default one per 32 of width, or the next smaller number that divides the width.
        bias: whether linear layers have biases (the head has none).
        affine: whether norm layers have gains and biases.

    >>> GPT(vocabulary=65, context=16, depth=2, width=32)(torch.zeros(3, 16, dtype=torch.long)).shape
    torch.Size([3, 16, 65])
    """

    def __init__(
        self,
        vocabulary: int,
        context: int,
        *,
        depth: int = 4,
        width: int = 128,
        heads: int | None = None,
        bias: bool = False,
        affine: bool = False,
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("context", context), ("depth", depth), ("width", width)):
            if value < 1:
                raise ValueError(f"{name}: a GPT needs at least 1, found {value}")
        if heads is None:
            heads = next(count for count in range(max(width // 32, 1), 0, -1) if width % count == 0)
        if heads < 1 or width % heads:
            raise ValueError(f"heads: {heads} do not divide a width of {width} evenly")
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, bias=bias, affine=affine) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, elementwise_affine=affine)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map a batch of sequences to one logit per token of the vocabulary at each position."""
        length = tokens.shape[1]
        if length > self.context:
            raise ValueError(f"a sequence of {length} tokens is longer than the context of {self.context}")
        places = torch.arange(length, device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(places))))
