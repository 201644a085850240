"""What the networks have in common, and how they differ."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import autogd
from autogd.models import FCN, GPT, VGG16, ResNet18, ResNet50, build
from autogd.models.build import NAMES

READABLE = (nn.Linear, nn.Conv2d, nn.BatchNorm2d, nn.LayerNorm, nn.Embedding)


def thin(name: str, **switches) -> nn.Module:
    shape = (12,) if name == "gpt" else (3, 16, 16)
    size = {"width": 16, "depth": 2} if name in ("fcn", "gpt") else {"width": 4}
    return build(name, shape, 7, **size, **switches)


def sample(name: str, count: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if name == "gpt":
        return torch.randint(7, (count, 12), generator=generator)
    return torch.randn(count, 3, 16, 16, generator=generator)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_every_parameter_belongs_to_a_layer_that_agd_can_read(name, bias, affine):
    model = thin(name, bias=bias, affine=affine and name != "fcn")
    owners = {type(module) for module in model.modules() for _ in module.parameters(recurse=False)}
    assert owners <= set(READABLE)


@pytest.mark.parametrize("name", NAMES)
def test_the_switches_give_and_take_biases_and_gains(name):
    def has(model, kinds, leaf):
        return [getattr(m, leaf) is not None for m in model.modules() if isinstance(m, kinds)]

    linear, norm = (nn.Linear, nn.Conv2d), (nn.BatchNorm2d, nn.LayerNorm)
    assert not any(has(thin(name), linear, "bias"))
    assert not any(has(thin(name), norm, "weight"))
    with_bias = has(thin(name, bias=True), linear, "bias")
    # GPT's head alone never has one
    assert with_bias.count(False) == (1 if name == "gpt" else 0)
    if name != "fcn":
        assert all(has(thin(name, affine=True), norm, "weight"))
        assert not any(has(thin(name, affine=True), linear, "bias"))


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_gets_a_gradient(name):
    torch.manual_seed(0)
    model = thin(name, bias=True, affine=name != "fcn")
    output = model(sample(name))
    cross_entropy(output.flatten(0, -2), torch.randint(7, (output.flatten(0, -2).shape[0],))).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


@pytest.mark.parametrize("name", ["fcn", "vgg16", "resnet18", "resnet50"])
def test_agd_trains_it(name):
    torch.manual_seed(0)
    model = autogd.initialise_(thin(name))
    optimiser = autogd.AGD(model)
    inputs, labels = sample(name, 16), torch.arange(16) % 7

    def loss():
        optimiser.zero_grad()
        value = cross_entropy(model(inputs), labels)
        value.backward()
        return value

    losses = [optimiser.step(loss).item() for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("network", [VGG16, ResNet18, ResNet50])
@pytest.mark.parametrize("side", [8, 28, 32, 40])
def test_images_of_any_size_pass(network, side):
    model = network(classes=3, channels=1, width=4).eval()
    assert model(torch.randn(2, 1, side, side)).shape == (2, 3)


def test_the_imagenet_stem_quarters_the_image():
    assert ResNet50(width=4, stem="imagenet").stem(torch.randn(1, 3, 224, 224)).shape[2:] == (56, 56)


def test_large_images_get_the_imagenet_stem():
    with torch.device("meta"):
        assert build("resnet50", (3, 224, 224), 1000).stem[0].kernel_size == (7, 7)
        assert build("resnet50", (3, 32, 32), 10).stem[0].kernel_size == (3, 3)


def test_a_residual_block_with_a_silent_branch_is_the_identity():
    block = ResNet18(width=4).blocks[0]
    for convolution in block.convolutions:
        nn.init.zeros_(convolution.weight)
    x = torch.randn(2, 4, 8, 8)
    assert torch.equal(block(x), x)


def test_gpt_never_looks_ahead():
    torch.manual_seed(0)
    model = GPT(vocabulary=11, context=10, depth=2, width=16, heads=4)
    tokens = torch.randint(11, (1, 10))
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 11
    before, after = model(tokens), model(changed)
    assert torch.equal(before[0, :6], after[0, :6])
    assert not torch.allclose(before[0, 6:], after[0, 6:])


def test_gpt_attends_as_the_formula_says():
    torch.manual_seed(0)
    attention = GPT(vocabulary=3, context=5, depth=1, width=8, heads=2).double().blocks[0].attention
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    heads = []
    for rows in (slice(0, 4), slice(4, 8)):
        q, k, v = (x[0] @ layer.weight[rows].T for layer in (attention.query, attention.key, attention.value))
        scores = (q @ k.T / math.sqrt(4)).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        heads.append(scores.softmax(1) @ v)
    expected = torch.cat(heads, 1) @ attention.output.weight.T
    torch.testing.assert_close(attention(x)[0], expected)


@pytest.mark.parametrize(("width", "heads"), [(128, 4), (768, 24), (100, 2), (8, 1), (97, 1)])
def test_gpt_finds_a_number_of_heads_that_divides_its_width(width, heads):
    with torch.device("meta"):
        assert GPT(vocabulary=3, context=4, depth=1, width=width).blocks[0].attention.heads == heads


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build("lenet", (3, 32, 32), 10), "'lenet': there is no such network; choose from fcn, vgg16"),
        (lambda: build("resnet18", (3, 32, 32), 10, depth=20), "resnet18: its depth is fixed, found depth=20"),
        (lambda: build("vgg16", (3, 32, 32), 10, depth=3), "vgg16: its depth is fixed"),
        (lambda: build("fcn", (3, 32, 32), 10, affine=True), "fcn: affine is a switch of norm layers"),
        (lambda: build("fcn", (3, 32, 32), 10, depth=0), "depth: expected a whole number of at least 1, found 0"),
        (lambda: build("gpt", (3, 32, 32), 10), "gpt: samples must be sequences of tokens"),
        (lambda: build("vgg16", (64,), 10), "vgg16: samples must be images"),
        (lambda: GPT(5, 5, width=8, heads=3), "heads: 3 do not divide a width of 8 evenly"),
        (lambda: GPT(5, 0), "context: a GPT needs at least 1, found 0"),
        (lambda: ResNet18(stem="cifar100"), "stem: expected 'cifar' or 'imagenet', found 'cifar100'"),
        (lambda: ResNet18(width=0), "width: a ResNet has at least one channel"),
        (lambda: VGG16(width=0), "width: a VGG16 has at least one channel"),
        (lambda: FCN(0, 3, 3, 3), "depth: an FCN has at least one layer"),
        (lambda: GPT(5, 4, depth=1, width=8)(torch.zeros(1, 5, dtype=torch.long)), "longer than the context of 4"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def parameters(model: nn.Module, *kinds: type[nn.Module]) -> int:
    """The number of parameters of the model, or of its layers of some kinds."""
    owners = [m for m in model.modules() if not kinds or isinstance(m, kinds)]
    return sum(p.numel() for m in owners for p in m.parameters(recurse=False))


@pytest.fixture
def _meta():
    with torch.device("meta"):
        yield


# The usual post-activation networks hold 11,173,962 (ResNet-18, 10 classes), 23,520,842 (ResNet-50, 10 classes) and
# 25,557,032 (ResNet-50, ImageNet) numbers. Of these, 9,600, 53,120 and 53,120 belong to norm layers, and one per class
# to the head's bias. Pre-activation moves norms but no convolution: without norms and biases the counts are equal.
@pytest.mark.usefixtures("_meta")
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
@pytest.mark.usefixtures("_meta")
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


@pytest.mark.usefixtures("_meta")
def test_with_gains_and_a_bias_for_every_class_they_are_the_sizes_everyone_quotes():
    counts = [parameters(m) for m in (ResNet18(affine=True), ResNet50(affine=True))]
    counts.append(parameters(ResNet50(classes=1000, stem="imagenet", affine=True)))
    assert [round(count / 1e6, 2) for count in counts] == [11.17, 23.51, 25.55]


@pytest.mark.usefixtures("_meta")
def test_vgg16_holds_the_usual_count():
    # 13 convolutions with biases 14,714,688; norms 8,448; two linear layers 262,656 each; the last 5,130
    assert parameters(VGG16(bias=True, affine=True)) == 14_714_688 + 8_448 + 2 * 262_656 + 5_130
    assert parameters(VGG16(bias=True, affine=True)) == 15_253_578


@pytest.mark.usefixtures("_meta")
def test_gpt_of_the_size_of_gpt_2_holds_its_count():
    # the published 124,439,808 share one table between embedding and head; ours are two
    model = GPT(50_257, 1024, depth=12, width=768, heads=12, bias=True, affine=True)
    assert parameters(model) == 124_439_808 + 50_257 * 768


@pytest.mark.usefixtures("_meta")
def test_gpt_counts_twelve_squares_of_its_width_a_block():
    model = GPT(65, 64, depth=4, width=128)
    assert parameters(model) == 4 * 12 * 128**2 + (65 + 64 + 65) * 128


@pytest.mark.usefixtures("_meta")
def test_fcn_counts_its_matrices():
    assert parameters(FCN(depth=16, width=512, d_in=3072, d_out=10)) == 3072 * 512 + 14 * 512**2 + 512 * 10
