"""The first forward pass is read before the first step, once, whoever calls it."""

import copy
import ctypes
import io
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import autogd
from autogd import AGD, StochasticAGD, initialise_
from rank_cases import MESHES, Block

OPTIMISERS = pytest.mark.parametrize("optimiser_class", [AGD, StochasticAGD])


class Raw(nn.Module):
    """A hidden matrix stored input × output, gate and up in one, and a readout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Parameter(torch.randn(4, 12) / 2)
        self.late = nn.Parameter(torch.randn(6, 6) / 2)
        self.head = nn.Linear(6, 3)

    def block(self, x):
        gate, up = (x @ self.hidden).chunk(2, -1)
        return F.silu(gate) * up

    def forward(self, x, late=False):
        h = self.block(x)
        return self.head(h @ self.late if late else h)


X = torch.randn(10, 4, generator=torch.Generator().manual_seed(1))


def step(model, optimiser, **kwargs):
    optimiser.zero_grad()
    model(X, **kwargs).square().mean().backward()
    optimiser.step()


def parts(optimiser, parameter):
    return optimiser._architecture.atoms[parameter].parts, optimiser._architecture.sources[parameter]


def hooks(model):
    return sum(len(module._forward_hooks) for module in model.modules())


@OPTIMISERS
def test_the_first_pass_with_gradients_is_read_and_then_nobody_watches(optimiser_class):
    model = Raw()
    optimiser = optimiser_class(model)
    assert parts(optimiser, model.hidden) == (1, "shape")
    with torch.no_grad():
        model(X)
    assert hooks(model) > 0
    model(X)
    assert parts(optimiser, model.hidden) == (2, "graph")
    assert hooks(model) == 0
    step(model, optimiser)


def test_a_pass_costs_no_second_one():
    calls = []
    model = Raw()
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    optimiser = StochasticAGD(model)
    step(model, optimiser)
    assert len(calls) == 1


def test_a_trainer_that_calls_a_method_instead_is_read_from_the_parts():
    class Trainer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Raw()

        def training_step(self):
            return self.net(X).square().mean()

    model = Trainer()
    optimiser = StochasticAGD(model)
    model.training_step().backward()
    optimiser.step()
    assert parts(optimiser, model.net.hidden) == (2, "graph")
    assert hooks(model) == 0


def test_a_parameter_that_is_used_later_is_read_then():
    model = Raw()
    optimiser = StochasticAGD(model)
    step(model, optimiser)
    assert parts(optimiser, model.late) == (1, "shape")
    step(model, optimiser, late=True)
    step(model, optimiser, late=True)
    assert parts(optimiser, model.late) == (1, "graph")
    assert optimiser._architecture.atoms[model.late].columns == (0,)
    assert parts(optimiser, model.hidden) == (2, "graph")
    assert hooks(model) == 0


@OPTIMISERS
def test_a_resumed_run_takes_the_same_steps(optimiser_class):
    model = Raw()
    optimiser = optimiser_class(model)
    for _ in range(3):
        step(model, optimiser)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimiser.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    again = Raw()
    resumed = optimiser_class(again)
    again.load_state_dict(weights)
    resumed.load_state_dict(state)
    assert parts(resumed, again.hidden) == (2, "graph")
    assert hooks(again) == 0
    assert resumed._architecture.chain == optimiser._architecture.chain
    for _ in range(3):
        step(model, optimiser)
        step(again, resumed)
    for ours, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_copies_and_whole_models_in_files_carry_no_watch():
    model = Raw()
    optimiser = StochasticAGD(model)
    copied = copy.deepcopy(model)
    read = pickle.loads(pickle.dumps(model))
    copied(X), read(X)
    assert parts(optimiser, model.hidden) == (1, "shape")
    step(model, optimiser)
    twin = copy.deepcopy(optimiser)
    assert [atom.parts for atom in twin._architecture.atoms.values()] == [
        atom.parts for atom in optimiser._architecture.atoms.values()
    ]


def test_an_optimiser_that_is_gone_leaves_no_trace():
    model = Raw()
    optimiser = StochasticAGD(model)
    del optimiser
    model(X)
    model(X)


def test_your_own_word_stands():
    model = Raw()
    from autogd import atoms

    optimiser = AGD(model, atoms={"hidden": lambda w, m: atoms.matrix(w, transposed=True)})
    step(model, optimiser)
    assert parts(optimiser, model.hidden) == (1, "you")


def test_a_registered_layer_overrules_catalogue_and_pass():
    class Registered(Raw):
        pass

    class Tripled(nn.Linear):
        pass

    autogd.register_atom(Registered, "hidden", autogd.atoms.matrix)
    autogd.register_atom(Tripled, "weight", lambda w, m: autogd.atoms.matrix(w, stack=3))
    model = Registered()
    model.head = Tripled(6, 3)
    optimiser = StochasticAGD(model)
    step(model, optimiser)
    assert parts(optimiser, model.hidden) == (1, "you")
    assert optimiser._architecture.atoms[model.hidden].columns == (1,)  # the pass says 0
    assert parts(optimiser, model.head.weight) == (3, "you")
    assert parts(optimiser, model.head.bias) == (1, "catalogue")


def test_autocast_is_read_through():
    model = Raw()
    optimiser = StochasticAGD(model)
    with torch.autocast("cpu", torch.bfloat16):
        model(X)
    assert parts(optimiser, model.hidden) == (2, "graph")


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    class Checkpointed(Raw):
        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=reentrant))

    model = Checkpointed()
    optimiser = StochasticAGD(model)
    model(X.clone().requires_grad_()).square().mean().backward()
    optimiser.step()  # if it is reentrant, autograd shows the block as one operation: it is read without numbers
    assert parts(optimiser, model.hidden) == (2, "graph")


@pytest.mark.parametrize("first", ["optimiser", "compiler"])
@pytest.mark.parametrize("what", ["whole", "in place", "a part"])
def test_a_compiled_model(what, first):
    class Parted(nn.Sequential):
        def __init__(self):
            super().__init__(Raw(), nn.Linear(3, 2))

    model = inner = Raw()
    if what == "a part":
        model = Parted()
        inner = model[0]
    options = {"backend": "aot_eager", "fullgraph": True}
    run = model
    optimiser = StochasticAGD(model) if first == "optimiser" else None
    if what == "whole":
        run = torch.compile(model, **options)
    else:
        inner.compile(**options)
    optimiser = optimiser or StochasticAGD(run)
    step(run, optimiser)
    assert parts(optimiser, inner.hidden) == (2, "graph")
    with torch._dynamo.config.patch(error_on_recompile=True):  # reading it does not have it compiled anew
        step(run, optimiser)
        step(run, optimiser)


def test_the_gradients_of_torch_func():
    model = Raw()
    optimiser = StochasticAGD(model)
    gradients = grad(lambda weights: functional_call(model, weights, (X,)).square().mean())(
        {name: parameter.detach() for name, parameter in model.named_parameters()}
    )
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name]
    optimiser.step()
    assert parts(optimiser, model.hidden) == (2, "graph")
    assert all(parameter in set(model.parameters()) for parameter in optimiser._architecture.atoms)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return 2 * x @ weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return 2 * g @ weight.T, 2 * x.T @ g


class Opaque(Doubled):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return 2 * x @ weight.detach()


@pytest.mark.parametrize("function", [Doubled, Opaque])
def test_a_function_with_a_backward_of_its_own(function):
    class Own(Raw):
        def block(self, x):
            gate, up = function.apply(x, self.hidden).chunk(2, -1)
            return F.silu(gate) * up

    model = Own()
    optimiser = StochasticAGD(model)
    if function is Doubled:
        step(model, optimiser)
        assert parts(optimiser, model.hidden) == (2, "graph")
        return
    with pytest.warns(UserWarning, match="hidden: .*in a function that cannot be read"):
        step(model, optimiser)
    assert parts(optimiser, model.hidden) == (1, "shape")


class Keeping(Raw):
    """Keeps what it can of a pass: an attribute, losses in a list, activations by name, statistics, counters."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.losses, self.by_name = [], {"last": []}
        self.register_buffer("small", torch.ones(1))
        self.register_buffer("large", torch.ones(50))
        self.calls = torch.zeros(3)  # no buffer

    def forward(self, x):
        self.small.mul_(0.5)
        self.large.add_(1)
        self.calls += 1
        self.kept = h = checkpoint(self.block, x, use_reentrant=True)
        self.losses.append(h.square().mean())
        self.by_name["last"].append(h)
        return self.head(self.norm(h))


def test_a_reading_leaves_no_trace_in_the_model():
    """What a checkpoint hides is read by a second pass, without numbers."""

    def trained(optimise):
        model, seen = Keeping(), []
        model.head.register_forward_hook(lambda layer, given, output: seen.append(output))
        optimiser = StochasticAGD(model)
        for _ in range(2):
            optimiser.zero_grad()
            output = model(X.clone().requires_grad_())
            (output.square().mean() + sum(model.losses)).backward()
            model.losses.clear()
            if optimise:
                optimiser.step()
                with torch.no_grad():  # the same weights in both runs, so that all numbers are comparable
                    for parameter, start in zip(model.parameters(), starts, strict=True):
                        parameter.copy_(start)
        return model, seen, optimiser

    starts = [p.detach().clone() for p in Keeping().parameters()]
    model, seen, optimiser = trained(True)
    alone, seen_alone, _ = trained(False)
    assert parts(optimiser, model.hidden) == (2, "graph")
    assert model.losses == []
    assert [len(model.by_name["last"]), len(seen)] == [len(alone.by_name["last"]), len(seen_alone)] == [2, 2]
    kept = [*model.by_name["last"], *seen, model.kept, model.calls, *model.buffers()]
    expected = [*alone.by_name["last"], *seen_alone, alone.kept, alone.calls, *alone.buffers()]
    for tensor, other in zip(kept, expected, strict=True):
        assert type(tensor) is torch.Tensor
        assert torch.equal(tensor, other)


def test_reading_a_batch_by_hand_and_on_a_guess_leaves_no_trace():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    for look in (autogd.explain, initialise_):
        look(model)
        assert int(model[1].num_batches_tracked) == 0
        keeping = Keeping()
        look(keeping, X.clone().requires_grad_())
        assert int(keeping.norm.num_batches_tracked) == 0
        assert float(keeping.small) == 1
        assert (keeping.losses, keeping.by_name) == ([], {"last": []})


def test_explaining_a_batch_does_not_bring_the_hooks_back():
    model = Raw()
    optimiser = StochasticAGD(model)
    autogd.explain(model, X)
    step(model, optimiser)
    version = optimiser._architecture.version
    step(model, optimiser)
    assert optimiser._architecture.version == version
    assert sum(len(part._forward_hooks) for part in model.modules()) == 0


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_lazy_model_is_initialised_by_a_batch_and_then_works():
    model = initialise_(nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(2)), X)
    assert model(X).shape == (10, 2)
    assert torch.linalg.matrix_norm(model[0].weight, 2).item() == pytest.approx((6 / 4) ** 0.5, rel=1e-4)


class Native(torch.autograd.Function):
    """A product that native code copies by the addresses of tensors, as kernels written by hand do."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        product = x @ weight
        copied = torch.empty_like(product)
        ctypes.memmove(copied.data_ptr(), product.data_ptr(), 4 * product.numel())
        return copied

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight.T, x.T @ g


def test_native_code_does_not_get_the_address_of_a_tensor_without_numbers():
    class Own(Raw):
        def block(self, x):
            gate, up = Native.apply(x, self.hidden).chunk(2, -1)
            return F.silu(gate) * up

    model = Own()
    optimiser = StochasticAGD(model)
    with pytest.warns(UserWarning, match="hidden: .*in a function that cannot be read"):
        step(model, optimiser)  # at address 0 the process would end


def test_a_reading_that_was_loaded_stays_when_the_model_is_compiled():
    def made():
        model = Raw()
        model.compile(backend="eager")
        return model, StochasticAGD(model, sizes="measured")

    model, optimiser = made()
    for _ in range(3):
        step(model, optimiser)
    other, resumed = made()
    other(X)  # a pass before the state is there
    other.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for _ in range(2):
        step(model, optimiser)
        step(other, resumed)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@OPTIMISERS
def test_a_layer_that_was_replaced_is_read_as_itself(optimiser_class):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    optimiser = optimiser_class(model)
    model[2] = nn.Linear(6, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AGD has only the shape of a parameter that is passed by hand
        optimiser.add_param_group({"params": list(model[2].parameters())})
    step(model, optimiser)
    atoms, new = optimiser._architecture.atoms, model[2]
    assert (atoms[new.weight].fan_out, atoms[new.weight].fan_in, atoms[new.bias].kind) == (10, 6, "bias")
    assert optimiser._architecture.readout is new.weight


def test_lists_of_tensors_are_not_watched():
    model = Raw()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimiser = AGD(model.parameters())
    assert hooks(model) == 0
    step(model, optimiser)


@pytest.fixture
def one_process(tmp_path):
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_sharded_and_replicated_models_are_read_alike(one_process):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    sharded = Raw()
    fully_shard(sharded.head)
    fully_shard(sharded)
    optimiser = StochasticAGD(sharded)
    step(sharded, optimiser)
    assert parts(optimiser, sharded.hidden) == (2, "graph")
    assert optimiser._architecture.atoms[sharded.head.weight].free

    replicated = DistributedDataParallel(Raw(), find_unused_parameters=True)
    optimiser = StochasticAGD(replicated)
    step(replicated, optimiser)
    assert parts(optimiser, replicated.module.hidden) == (2, "graph")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ["DDP of compiled", "compiled DDP"])
def test_a_model_that_is_replicated_and_compiled_is_read_behind_both(order, one_process):
    from torch.nn.parallel import DistributedDataParallel

    model = Raw()
    model.late = None
    if order == "compiled DDP":
        run = torch.compile(DistributedDataParallel(model), backend="aot_eager")
    else:
        run = DistributedDataParallel(torch.compile(model, backend="aot_eager"))
    optimiser = StochasticAGD(run)
    for _ in range(3):  # a second pass of DDP itself would break the reduction of the next one
        step(run, optimiser)
    assert parts(optimiser, model.hidden) == (2, "graph")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mesh", ["ddp", "fsdp", "tensor_parallel", "expert_parallel"])
def test_every_mesh_reads_what_one_process_reads(mesh, one_process):
    def read(mesh):
        torch.manual_seed(0)
        model = Block()
        forward, _ = MESHES[mesh](model)
        optimiser = StochasticAGD(model)
        forward(torch.randint(11, (8, 4))).square().mean().backward()
        optimiser.step()
        known = optimiser._architecture
        return {name: (known.atoms[p], known.sources[p]) for name, p in model.named_parameters()}, known.chain

    found = read(mesh)
    assert found == read("alone")
    experts, source = found[0]["experts.weight"]
    assert (experts.parts, experts.columns, source) == (5, (1,), "graph")


def test_a_wrong_guess_of_the_input_is_silent(capfd):
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
            self.positions = nn.Parameter(torch.zeros(1, 5, 8))  # for five tokens; the guess has eight

        def forward(self, tokens):
            return self.head(self.table(tokens) + self.positions)

    initialise_(Positions())
    assert not any(capfd.readouterr())
