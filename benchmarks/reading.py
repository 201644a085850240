"""The cost of reading a forward pass, beside the first step, on GPT-2 small's shapes: python benchmarks/reading.py."""

import time

import torch
from torch.nn import functional as F

from autogd import StochasticAGD
from autogd.models import GPT
from autogd.reading.graph import read_graph

torch.manual_seed(0)
model = GPT(vocabulary=50257, context=128, depth=12, width=768, heads=12, bias=True, affine=True)
tokens = torch.randint(50257, (1, 128))

clock = time.perf_counter()
optimiser = StochasticAGD(model)
built = time.perf_counter() - clock

clock = time.perf_counter()
output = model(tokens)
F.cross_entropy(output[0], tokens[0]).backward()
optimiser.step()
first = time.perf_counter() - clock

output = model(tokens)
clock = time.perf_counter()
reading = read_graph(output, dict(model.named_parameters()))
reading.chain(reading.atoms)
read = time.perf_counter() - clock
print(f"construction {built:.3f} s, first step {first:.2f} s, of which reading {read:.4f} s: {read / first:.2%}")
