"""torch's own description of an optimiser under test, `OptimizerInfo`, for ours."""

import pytest
import torch
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, ReduceLROnPlateau, StepLR

from autogd import AGD, StochasticAGD

common = pytest.importorskip("torch.testing._internal.common_optimizers", exc_type=ImportError)
# importing it forbids other tests of this process to set flags of torch.backends
setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)

# What torch tests of its optimisers and ours have not, with the reason.
NOT_APPLICABLE = {
    "complex": "trained, but not as two real tensors of one more dimension: tests/optim/test_complex.py",
    "sparse": "gradients may be sparse for embeddings only, whose rows are the parts; others are refused by name",
    "fused": "there is no such argument: the compiled passes are chosen if they fit",
    "capturable": "there is no such argument: no step synchronises with the device",
    "differentiable": "there is no such argument: a step is not recorded by autograd",
    "lr": "there is no such argument: η is derived; a group's `lr` multiplies it, for schedulers",
}
SHARED = [
    common.OptimizerInput(params=None, kwargs={}, desc="default"),
    common.OptimizerInput(params=None, kwargs={"gain": 0.5}, desc="gain"),
    common.OptimizerInput(params=None, kwargs={"weight_decay": 0.1}, desc="weight_decay"),
    common.OptimizerInput(params=None, kwargs={"maximize": True}, desc="maximize"),
    common.OptimizerInput(params=None, kwargs={"geometry": "spectral"}, desc="spectral"),
    common.OptimizerInput(params=None, kwargs={"geometry": "frobenius"}, desc="frobenius"),
    common.OptimizerInput(params=None, kwargs={"sizes": "measured"}, desc="measured"),
    common.OptimizerInput(params=None, kwargs={"sizes": "measured", "maximize": True}, desc="measured, maximize"),
]
READABLE = common.OptimizerInput(params=None, kwargs={"foreach": False}, desc="foreach=False")
AVERAGING = common.OptimizerInput(params=None, kwargs={"averaging": True}, desc="averaging")


def _info(kind, inputs):
    return common.OptimizerInfo(
        kind,
        optim_inputs_func=lambda device, dtype=None: inputs,
        optim_error_inputs_func=common.get_error_inputs_for_all_optims,
        scheduler_inputs=(
            [],
            [lambda opt: StepLR(opt, gamma=0.9, step_size=10)],
            [lambda opt: LinearLR(opt, start_factor=0.4, total_iters=4), lambda opt: ExponentialLR(opt, gamma=0.99)],
            [lambda opt: ReduceLROnPlateau(opt), lambda opt: StepLR(opt, gamma=0.9, step_size=10)],
        ),
        supported_impls=("foreach",),
        not_og_supported_flags=("foreach", "maximize", "weight_decay"),
        supports_complex=True,
    )


INFOS = [_info(AGD, [*SHARED, AVERAGING, READABLE]), _info(StochasticAGD, [*SHARED, READABLE])]
EACH = [pytest.param(info, id=info.name) for info in INFOS]
CASES = [
    pytest.param(info, given, id=f"{info.name}-{given.desc}")
    for info in INFOS
    for given in info.optim_inputs_func(device="cpu")
]


def operations():
    """Every operation that torch tests, with samples of its arguments."""
    table = pytest.importorskip("torch.testing._internal.common_methods_invocations", exc_type=ImportError)
    setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)
    return table.op_db
