"""Trainer evaluates and saves the averaged weights, resumes bit for bit, and reports η."""

import pytest
import torch
from safetensors.torch import load_file

from autogd import StochasticAGD
from averaging_optimiser import MeanAGD

transformers = pytest.importorskip("transformers")
from autogd.integrations.transformers import AveragedTrainer, DerivedRate  # noqa: E402


class Trainer(AveragedTrainer):
    """Records at every prediction whether the weights are the averaged ones."""

    judged = ()

    def prediction_step(self, model, *args, **kwargs):
        self.judged = (*self.judged, is_averaged(self.model, self.optimizer))
        return super().prediction_step(model, *args, **kwargs)


def is_averaged(model, optimiser):
    optimiser = getattr(optimiser, "optimizer", optimiser)
    return all(torch.equal(p, optimiser.state[p]["mean"]) for p in model.parameters())


def make(folder, steps, trainer=Trainer, scheduler=DerivedRate, kind=MeanAGD, **settings):
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=10, n_positions=8, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)  # its input and output weights are tied
    optimiser = kind(model)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=4, max_grad_norm=0, logging_steps=1,
        eval_strategy="steps", eval_steps=2, save_steps=2, report_to="none", disable_tqdm=True, use_cpu=True,
        dataloader_pin_memory=False, **settings,
    )  # fmt: skip
    rows = torch.randint(10, (16, 8), generator=torch.Generator().manual_seed(0))
    samples = [{"input_ids": row, "labels": row} for row in rows]
    optimisers = (optimiser, scheduler(optimiser))
    return trainer(model, arguments, train_dataset=samples, eval_dataset=samples[:4], optimizers=optimisers)


def test_the_averaged_weights_are_judged_saved_and_left_in_the_model(tmp_path):
    trainer = make(tmp_path, 4)
    trainer.train()
    assert is_averaged(trainer.model, trainer.optimizer)
    saved = load_file(tmp_path / "checkpoint-4" / "model.safetensors")
    assert torch.equal(saved["transformer.wte.weight"], trainer.model.transformer.wte.weight)
    trainer.evaluate()
    assert len(trainer.judged) == 3
    assert all(trainer.judged)
    shown = [line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line]
    assert len(shown) == 4
    assert shown[-1] == trainer.optimizer.optimizer.learning_rate.item()


def test_a_resumed_training_and_a_second_one_go_on_from_the_weights_in_training(tmp_path):
    whole = make(tmp_path / "whole", 4)
    whole.train()
    resumed = make(tmp_path / "whole", 4)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name

    again = make(tmp_path / "again", 2)
    again.train()
    training = [weight.clone() for weight in again._training]
    assert not torch.equal(training[0], again.optimizer.param_groups[0]["params"][0])
    seen = []
    again.optimizer.optimizer.register_step_pre_hook(
        lambda optimiser, args, kwargs: seen.append([p.detach().clone() for p in optimiser.param_groups[0]["params"]])
    )
    again.train()
    assert all(torch.equal(a, b) for a, b in zip(training, seen[0], strict=True))


def test_the_best_checkpoint_stays_what_it_was(tmp_path):
    trainer = make(tmp_path, 6, load_best_model_at_end=True, metric_for_best_model="loss", greater_is_better=True)
    trainer.train()  # the best is the first here: the one of the highest loss
    assert trainer.state.best_global_step == 2
    best = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    trainer.evaluate()
    trainer.save_model(str(tmp_path / "final"))
    final = load_file(tmp_path / "final" / "model.safetensors")
    assert all(torch.equal(final[name], weight) for name, weight in best.items())


@pytest.mark.parametrize(
    ("scheduler", "shown"),
    [
        (lambda optimiser: torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5**step), [1, 0.5, 0.25, 0.125]),
        (lambda optimiser: None, [1, 0.75, 0.5, 0.25]),  # Trainer's own scheduler
    ],
    ids=["of torch", "none"],
)
def test_a_scheduler_moves_the_multiplier_in_a_plain_trainer_too(scheduler, shown, tmp_path):
    trainer = make(tmp_path, 4, transformers.Trainer, scheduler)
    trainer.train()
    assert [line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line] == shown


def test_a_plain_trainer_is_told_of_its_schedule_once_judges_averages_and_resumes_to_the_bit(tmp_path):
    with pytest.warns(UserWarning, match="a schedule multiplies η") as told:
        make(tmp_path / "scheduled", 4, transformers.Trainer, lambda _: None, StochasticAGD).train()
    assert len([each for each in told if "a schedule" in str(each.message)]) == 1
    # Trainer knows optimisers with eval() and train(): it evaluates, and saves after that, with the averaged weights
    whole = make(tmp_path / "whole", 4, transformers.Trainer, kind=StochasticAGD)
    whole.train()
    averages = {p: whole.optimizer.optimizer.state[p]["average"] for p in whole.model.parameters()}
    assert all(torch.equal(p, average) for p, average in averages.items())
    saved = load_file(tmp_path / "whole" / "checkpoint-4" / "model.safetensors")
    assert torch.equal(saved["transformer.wte.weight"], whole.model.transformer.wte.weight)
    resumed = make(tmp_path / "whole", 4, transformers.Trainer, kind=StochasticAGD)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name
    shown = [line["learning_rate"] for line in whole.state.log_history if "learning_rate" in line]
    assert shown[-1] == whole.optimizer.optimizer.learning_rate.item()
