"""The paper-size networks on the meta device: their parameters against published counts."""

import pytest
import torch
from torch import nn

from autogd.models import FCN, GPT, VGG16, ResNet18, ResNet50


def parameters(model: nn.Module, *kinds: type[nn.Module]) -> int:
    """The number of parameters of the model, or of its layers of some kinds."""
    owners = [m for m in model.modules() if not kinds or isinstance(m, kinds)]
    return sum(p.numel() for m in owners for p in m.parameters(recurse=False))


@pytest.fixture(autouse=True)
def _meta():
    with torch.device("meta"):
        yield


# The usual post-activation networks hold 11,173,962 (ResNet-18, 10 classes), 23,520,842 (ResNet-50, 10 classes) and
# 25,557,032 (ResNet-50, ImageNet) numbers. Of these, 9,600, 53,120 and 53,120 belong to norm layers, and one per class
# to the head's bias. Pre-activation moves norms but no convolution: without norms and biases the counts are equal.
@pytest.mark.parametrize(
    ("model", "usual", "norms", "classes"),
    [
        (lambda: ResNet18(), 11_173_962, 9_600, 10),
        (lambda: ResNet50(), 23_520_842, 53_120, 10),
        (lambda: ResNet50(classes=1000, stem="imagenet"), 25_557_032, 53_120, 1000),
    ],
)
def test_residual_networks_hold_the_usual_weights(model, usual, norms, classes):
    assert parameters(model()) == usual - norms - classes


# a pre-activation network has a norm on the input of every convolution but the shortcuts' (they share one) and the
# stem's, and one before the head
@pytest.mark.parametrize(
    ("model", "inputs_of_norms"),
    [
        (
            lambda: ResNet18(affine=True),
            [64] * 4 + [64, 128, 128, 128] + [128, 256, 256, 256] + [256, 512, 512, 512] + [512],
        ),
        (
            lambda: ResNet50(affine=True),
            [64, 64, 64]
            + [256, 64, 64] * 2
            + [256, 128, 128]
            + [512, 128, 128] * 3
            + [512, 256, 256]
            + [1024, 256, 256] * 5
            + [1024, 512, 512]
            + [2048, 512, 512] * 2
            + [2048],
        ),
    ],
)
def test_residual_networks_norm_what_enters_each_convolution(model, inputs_of_norms):
    network = model()
    assert parameters(network, nn.BatchNorm2d) == 2 * sum(inputs_of_norms)


def test_with_gains_and_a_bias_for_every_class_they_are_the_sizes_everyone_quotes():
    counts = [parameters(m) for m in (ResNet18(affine=True), ResNet50(affine=True))]
    counts.append(parameters(ResNet50(classes=1000, stem="imagenet", affine=True)))
    assert [round(count / 1e6, 2) for count in counts] == [11.17, 23.51, 25.55]


def test_vgg16_holds_the_usual_count():
    # 13 convolutions with biases 14,714,688; norms 8,448; two linear layers 262,656 each; the last 5,130
    assert parameters(VGG16(bias=True, affine=True)) == 14_714_688 + 8_448 + 2 * 262_656 + 5_130
    assert parameters(VGG16(bias=True, affine=True)) == 15_253_578


def test_gpt_of_the_size_of_gpt_2_holds_its_count():
    # the published 124,439,808 share one table between embedding and head; ours are two
    model = GPT(50_257, 1024, depth=12, width=768, heads=12, bias=True, affine=True)
    assert parameters(model) == 124_439_808 + 50_257 * 768


def test_gpt_counts_twelve_squares_of_its_width_a_block():
    model = GPT(65, 64, depth=4, width=128)
    assert parameters(model) == 4 * 12 * 128**2 + (65 + 64 + 65) * 128


def test_fcn_counts_its_matrices():
    assert parameters(FCN(depth=16, width=512, d_in=3072, d_out=10)) == 3072 * 512 + 14 * 512**2 + 512 * 10
