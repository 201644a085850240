"""AGD with the plain mean of all its weights, which shows a swap at the wrong moment."""

from contextlib import contextmanager

import torch

from autogd import AGD


class MeanAGD(AGD):
    """The mean is part of the state, as in every optimiser that averages."""

    @torch.no_grad()
    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state.setdefault("steps", torch.zeros(()))
                state.setdefault("mean", torch.zeros_like(parameter))
                state["steps"] += 1
                state["mean"].lerp_(parameter, 1 / state["steps"].item())
        return loss

    @contextmanager
    def averaged(self):
        kept = {p: p.detach().clone() for p in self.state}
        with torch.no_grad():
            for parameter, state in self.state.items():
                parameter.copy_(state["mean"])
            try:
                yield
            finally:
                for parameter, weight in kept.items():
                    parameter.copy_(weight)

    def means(self):
        return [state["mean"].clone() for state in self.state.values()]
