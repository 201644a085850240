"""Architectures of transformers: both optimisers take them all, and forward pass and catalogue agree."""

import pytest

pytest.importorskip("transformers", reason="needs the extra 'bench'")

from autogd.experiments.coverage import architectures, build, built, shrunk, trained
from autogd.experiments.zoo import ZOO, specimen
from autogd.reading.agreement import disagreements, merged
from autogd.reading.catalogue import read_roles
from autogd.reading.graph import read_graph

pytestmark = pytest.mark.filterwarnings("ignore")  # other packages' own warnings are theirs to mend

# refused before the forward pass was read: mixtures of experts, windows, state spaces, einsums
ONCE_REFUSED = ["olmoe", "gpt_oss", "qwen3_moe", "llama4_text", "deepseek_v3", "swinv2", "dinov2", "xlnet", "jamba"]


def test_a_sample_of_all_architectures_is_taken():
    sample = [*architectures()[::14], *ONCE_REFUSED]
    rows = [built(name, model) for name in sample if (model := build(name)) is not None]
    assert len(rows) >= 40
    assert {row.architecture: row.error for row in rows if row.error} == {}


@pytest.mark.parametrize("name", ZOO)
def test_forward_pass_and_catalogue_agree_on_the_zoo(name):
    pytest.importorskip("peft", reason="needs the extra 'bench'")
    subject = specimen(name)
    roles = read_roles(subject.model, readout=False)
    reading = read_graph(subject.loss(), dict(subject.model.named_parameters()))
    assert [role.name for role, _ in disagreements(roles, reading)] == []
    read = merged(roles, reading)
    assert all(role.source != "shape" for role in read if role.parameter in reading.uses)


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("qwen3_moe", "model.layers.0.mlp.experts.gate_up_proj", (8, 64, 32)),
        ("gpt_oss", "model.layers.0.mlp.experts.gate_up_proj", (8, 64, 32)),
        ("xlnet", "transformer.layer.0.rel_attn.q", (1, 32, 32)),
        ("gpt_neox", "gpt_neox.layers.0.attention.query_key_value.weight", (3, 32, 32)),
        ("phi3", "model.layers.0.mlp.gate_up_proj.weight", (2, 64, 32)),
        ("mamba", "backbone.layers.0.mixer.in_proj.weight", (2, 64, 32)),
    ],
)
def test_what_is_packed_or_stacked_is_read_as_its_parts(name, parameter, expected):
    subject = shrunk("causal", name)
    parameters = dict(subject.model.named_parameters())
    atom = read_graph(subject.loss(), parameters).atoms[parameters[parameter]]
    assert (atom.parts, atom.fan_out, atom.fan_in) == expected


def test_a_mixture_of_experts_gets_as_far_as_adam():
    row = trained("causal", "olmoe")
    assert row is not None
    assert (row.unread, row.contradicted) == (0, 0)
    assert row.ratio > 0.8
