"""U-Nets of diffusers and layers of torch-geometric: read them, and take 30 steps on one batch beside Adam.

example: pip install diffusers torch_geometric && python benchmarks/other_packages.py
"""

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import diffusers
import torch
import torch_geometric.nn as layers
from torch import Tensor, nn
from torch.nn import functional as F

from autogd import StochasticAGD, explain

Subject = tuple[nn.Module, dict[str, Tensor], Callable[[nn.Module], Tensor]]
UNET: dict[str, Any] = {"sample_size": 16, "layers_per_block": 1, "block_out_channels": (16, 32), "norm_num_groups": 8}
GRAPHS = {
    "GCNConv": {}, "GATConv": {"heads": 4, "concat": False}, "GATv2Conv": {"heads": 4, "concat": False},
    "SAGEConv": {}, "GraphConv": {}, "TransformerConv": {"heads": 4, "concat": False}, "ChebConv": {"K": 3},
}  # fmt: skip


def denoiser(model: nn.Module, **more: Tensor) -> Subject:
    """A batch of images and the noise to find in them."""
    images, noise = torch.randn(2, 4, 3, 16, 16)
    batch = {"sample": images, "timestep": torch.tensor([1, 50, 300, 900]), **more}
    return model, batch, lambda model: F.mse_loss(model(**batch).sample, noise)


def unet() -> Subject:
    """Convolutions, and attention in the inner blocks."""
    kinds = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    return denoiser(diffusers.UNet2DModel(in_channels=3, out_channels=3, **UNET, **kinds))


def unet_with_text() -> Subject:
    """The same with attention to a text."""
    kinds = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }
    sizes = {"cross_attention_dim": 24, "attention_head_dim": 8}
    model = diffusers.UNet2DConditionModel(in_channels=3, out_channels=3, **UNET, **kinds, **sizes)
    return denoiser(model, encoder_hidden_states=torch.randn(4, 5, 24))


class TwoLayers(nn.Module):
    """Two layers of one kind, to classify the nodes of a graph."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        make = getattr(layers, kind)
        self.first, self.second = make(12, 32, **GRAPHS[kind]), make(32, 4, **GRAPHS[kind])

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Logits of every node."""
        return self.second(F.relu(self.first(x, edges)), edges)


def graph(kind: str) -> Subject:
    """60 nodes with random edges, features and labels."""
    batch = {"x": torch.randn(60, 12), "edges": torch.randint(60, (2, 240))}
    labels = torch.randint(4, (60,))
    return TwoLayers(kind), batch, lambda model: F.cross_entropy(model(**batch), labels)


def drop(make: Callable[[], Subject], lr: float | None) -> tuple[float, float]:
    """The loss at the start, and its drop in 30 steps; with StochasticAGD if there is no rate."""
    torch.manual_seed(0)
    model, _, loss = make()
    optimiser: Any = StochasticAGD(model) if lr is None else torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(31):
        optimiser.zero_grad()
        value = loss(model)
        value.backward()
        losses.append(float(value.detach()))
        optimiser.step()
    return losses[0], losses[0] - losses[-1]


def main() -> None:
    """Print a row for each network."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # other packages' own
    subjects: dict[str, Callable[[], Subject]] = {"UNet2DModel": unet, "UNet2DConditionModel": unet_with_text}
    subjects |= {kind: lambda kind=kind: graph(kind) for kind in GRAPHS}
    print("| network | parameters | read from | loss at start | drop | Adam's, best of 3 | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, make in subjects.items():
        torch.manual_seed(0)
        model, batch, _ = make()
        rows = explain(model, batch).rows
        read = ", ".join(f"{source} {count}" for source, count in sorted(Counter(row.source for row in rows).items()))
        start, ours = drop(make, None)
        best = max(drop(make, lr)[1] for lr in (1e-4, 1e-3, 1e-2))
        numbers = f"{start:.3f} | {ours:.3f} | {best:.3f} | {ours / best:.2f}"
        print(f"| {name} | {len(rows)} | {read} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
