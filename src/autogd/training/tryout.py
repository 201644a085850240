"""Check that settings, data and network fit together, before anything is trained or written."""

import dataclasses

import torch
from torch import Tensor, nn

from autogd import baselines, rivals
from autogd.data import Task
from autogd.diagnosis.finite import first_bad_layer
from autogd.training.config import Config
from autogd.training.distributed import Place
from autogd.training.objective import classes_last
from autogd.training.own_code import culprit, is_pointer

__all__ = ["DTYPES", "check_config", "ready", "try_out"]

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bf16": torch.float32}
TRIED = 2  # samples


def check_config(config: Config, place: Place | None = None) -> baselines.Entry:
    """Refuse settings that contradict each other or need a missing package; return the optimiser's entry.

    >>> check_config(Config()).rated
    False
    """
    place = place or Place()
    entry = baselines.entry(config.optimiser)
    rivals.require(config.optimiser)
    if config.lr is not None and not entry.rated:
        raise ValueError(f"lr: {config.optimiser} has no learning rate to set; leave it out")
    if config.schedule != "constant" and not entry.rated:
        raise ValueError(f"schedule: {config.optimiser} has no learning rate to schedule; leave it at constant")
    if config.shard and not entry.shards:
        raise ValueError(f"shard: {config.optimiser} measures each process's shard alone; leave --shard out")
    if config.batch_size % (place.world * config.accumulate):
        pieces = f"{place.world} processes × {config.accumulate} pieces"
        raise ValueError(f"batch_size: {config.batch_size} does not divide equally over {pieces}")
    if config.data == "text" and not is_pointer(config.model) and config.model not in (None, "gpt"):
        raise ValueError(f"model: {config.model} takes images, and text is tokens; use gpt, or leave --model out")
    if config.model == "gpt" and config.data != "text" and not is_pointer(config.data):
        raise ValueError(f"model: gpt takes text, and {config.data} has images; use fcn, vgg16, resnet18 or resnet50")
    return entry


def ready(config: Config, task: Task, inputs: Tensor, layout: torch.memory_format) -> Tensor:
    """The inputs in the scale, layout and precision of the network."""
    inputs = task.prepare(inputs)
    inputs = inputs.contiguous(memory_format=layout) if inputs.dim() == 4 else inputs.contiguous()
    return inputs.to(DTYPES[config.precision]) if inputs.is_floating_point() else inputs


@torch.no_grad()
def try_out(config: Config, task: Task, model: nn.Module, layout: torch.memory_format) -> Task:
    """Run the network on two samples; return the task with as many classes as the network has outputs."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if any(True for _ in model.parameters()) and not any(each.requires_grad for each in model.parameters()):
        raise ValueError(
            f"model: every parameter of {config.model} is frozen; leave requires_grad=True on what should be trained"
        )
    inputs, labels = task.test.batch(torch.arange(min(TRIED, len(task.test))))
    inputs = ready(config, task, inputs.to(device), layout)
    modes = [(module, module.training) for module in model.modules()]
    seen = f"samples of {config.data}, of shape {tuple(inputs.shape[1:])} and type {inputs.dtype}"
    try:
        output = model.eval()(inputs)
    except Exception as error:
        if culprit(error) is not None:
            raise  # an error in the user's own code: the command line names the place
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"model: {config.model} does not take {seen}: {said}") from error
    finally:
        for module, training in modes:
            module.training = training
    if not isinstance(output, Tensor) or not output.is_floating_point():
        found = str(output.dtype) if isinstance(output, Tensor) else f"a {type(output).__name__}"
        raise ValueError(f"model: {config.model} must return one tensor of floats, found {found}")
    returns = f"model: {config.model} returns a tensor of shape {tuple(output.shape)} for {len(inputs)} {seen}"
    if labels.is_floating_point():
        if len(output) != len(labels) or output.numel() != labels.numel():
            raise ValueError(
                f"{returns}; the labels of {config.data} are floats, a regression of shape {tuple(labels.shape)}. "
                "Return as many numbers, or make the labels integers if they are classes"
            )
    elif classes_last(output, labels).shape[:-1] != labels.shape or _classes(output, labels) < task.classes:
        raise ValueError(
            f"{returns}; expected {(*labels.shape, task.classes)}, a number for each of the {task.classes} classes of "
            f"{config.data}"
        )
    if torch.isfinite(inputs).all() and not torch.isfinite(output).all():
        layer = first_bad_layer(model, lambda: model(inputs))
        raise ValueError(f"model: {config.model} gives nan or infinity for finite samples: {layer}")
    return task if labels.is_floating_point() else dataclasses.replace(task, classes=_classes(output, labels))


def _classes(output: Tensor, labels: Tensor) -> int:
    return classes_last(output, labels).shape[-1]
