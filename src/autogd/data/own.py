"""A user's own data as a task: pairs of tensors, data sets or data loaders, one for training and one for testing.

Integer labels are classes; float labels are the targets of a regression.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from autogd.data.task import Split, Task

__all__ = ["DatasetSplit", "PairSplit", "as_task"]

EXPECTED = (
    "expected (train, test), each a pair (inputs, labels) of tensors, a data set or a DataLoader; or an "
    "autogd.data.Task"
)


class PairSplit:
    """Samples and labels as two tensors, not scaled; bytes become floats.

    >>> PairSplit(torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1])).batch(torch.tensor([1]))
    (tensor([[3, 4]]), tensor([1]))
    """

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        if len(inputs) != len(labels):
            raise ValueError(f"expected a label for every sample, found {len(labels)} for {len(inputs)}")
        self.inputs, self.labels = inputs, labels if labels.is_floating_point() else labels.long()

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and the labels of the samples at `indices`."""
        indices = indices.to(self.inputs.device)
        inputs = self.inputs.index_select(0, indices)
        return inputs.float() if inputs.dtype == torch.uint8 else inputs, self.labels.index_select(0, indices)

    def to(self, device: torch.device | str) -> "PairSplit":
        """The same samples on another device."""
        return PairSplit(self.inputs.to(device), self.labels.to(device))


class DatasetSplit:
    """The samples of a torch data set, or of a DataLoader's data set; the caller chooses order and batch size.

    >>> from torch.utils.data import TensorDataset
    >>> split = DatasetSplit(TensorDataset(torch.eye(3), torch.arange(3)))
    >>> split.batch(torch.tensor([2]))
    (tensor([[0., 0., 1.]]), tensor([2]))
    """

    def __init__(self, dataset: Any) -> None:
        loader = dataset if isinstance(dataset, DataLoader) else None
        self.dataset: Any = dataset if loader is None else loader.dataset
        self.collate: Any = default_collate if loader is None or loader.collate_fn is None else loader.collate_fn

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and labels of the samples at `indices`."""
        inputs, labels = self.collate([self.dataset[index] for index in indices.tolist()])
        return torch.as_tensor(inputs), torch.as_tensor(labels)


def as_task(name: str, found: Any) -> Task:
    """Check what a user's loader returned, and make it a task.

    Args:
        name: of the loader, for errors.
        found: what it returned.

    >>> pair = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> task = as_task("mine:load", (pair, pair))
    >>> task.classes, task.input_shape
    (3, (4,))
    """
    if isinstance(found, Task):
        return found
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise ValueError(f"{name}: {EXPECTED}; found {_kind(found)}")
    train, test = (_split(f"{name}: {part}", each) for part, each in zip(("train", "test"), found, strict=True))
    shape = _check(f"{name}: train", train)
    other = _check(f"{name}: test", test)
    if shape != other:
        raise ValueError(f"{name}: a sample is of shape {shape} for training and {other} for testing")
    return Task(name=name, train=train, test=test, classes=_classes(name, train, test), input_shape=shape)


def _split(name: str, found: Any) -> Split:
    if isinstance(found, Split):
        return found
    if isinstance(found, tuple | list) and len(found) == 2:
        try:
            inputs, labels = (torch.as_tensor(part) for part in found)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{name}: cannot be converted to tensors ({error}); {EXPECTED}") from error
        _check_labels(name, labels)
        if inputs.dim() == 0 or labels.dim() == 0 or len(inputs) != len(labels):
            shapes = f"{tuple(inputs.shape)} and {tuple(labels.shape)}"
            raise ValueError(f"{name}: expected a label for every sample, found the shapes {shapes}")
        _check_inputs(name, inputs)
        return PairSplit(inputs, labels)
    source = found.dataset if isinstance(found, DataLoader) else found
    if not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
        raise ValueError(f"{name}: {_kind(found)} has no length or no samples by index; {EXPECTED}")
    split = DatasetSplit(found)
    if split.collate is default_collate and len(split):
        sample = split.dataset[0]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise ValueError(f"{name}: a sample must be a pair (input, label), found {_kind(sample)}; {EXPECTED}")
    return split


def _check(name: str, split: Split) -> tuple[int, ...]:
    """The shape of a sample; checks that the split has samples and labels that can be trained on."""
    if len(split) == 0:
        raise ValueError(f"{name}: there are no samples")
    inputs, labels = split.batch(torch.tensor([0]))
    _check_labels(name, labels)
    return tuple(inputs.shape[1:])


def _check_inputs(name: str, inputs: Tensor) -> None:
    """Refuse inputs with nan or infinity, and name the first sample that has one."""
    if inputs.is_floating_point() and not torch.isfinite(inputs).all():
        bad = (~torch.isfinite(inputs)).flatten(1).any(1) if inputs.dim() > 1 else ~torch.isfinite(inputs)
        count, first = int(bad.sum()), int(bad.nonzero()[0])
        raise ValueError(
            f"{name}: {count} of {len(inputs)} samples have inputs that are nan or infinite, the first is sample "
            f"{first}; mend or drop these samples"
        )


def _check_labels(name: str, labels: Tensor) -> None:
    if labels.is_complex():
        raise ValueError(f"{name}: the labels are {labels.dtype}; expected integers (classes) or floats (a regression)")
    if labels.is_floating_point():
        if not torch.isfinite(labels).all():
            raise ValueError(f"{name}: labels are nan or infinite; mend or drop these samples")
    elif labels.numel() and int(labels.min()) < 0:
        raise ValueError(f"{name}: the labels start at {int(labels.min())}; integers from 0 on are expected")


def _classes(name: str, *splits: Split) -> int:
    """The number of classes, or in a regression, of values in a label.

    It is the data set's own number if it has one, otherwise the largest label plus one.
    """
    first = [split.batch(torch.tensor([0]))[1] for split in splits]
    if any(labels.is_floating_point() for labels in first):
        if first[0].dtype != first[1].dtype or first[0].shape != first[1].shape:
            found = " and ".join(f"{each.dtype} of shape {tuple(each.shape[1:])}" for each in first)
            raise ValueError(f"{name}: labels for training and testing must have one type and shape, found {found}")
        return first[0].numel()
    counts = []
    for split in splits:
        if isinstance(split, PairSplit):
            counts.append(int(split.labels.max()) + 1)
            continue
        known = getattr(getattr(split, "dataset", None), "classes", None)
        if known is not None:
            counts.append(known if isinstance(known, int) else len(known))
        else:
            chunks = torch.arange(len(split)).split(1024)
            counts.append(max(int(split.batch(chunk)[1].max()) + 1 for chunk in chunks))
    return max(counts)


def _kind(found: Any) -> str:
    size = f" of {len(found)}" if isinstance(found, tuple | list) else ""
    return f"a {type(found).__name__}{size}"
