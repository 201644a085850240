"""Hugging Face's Trainer: a small language model learns to count, by digits."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import autogd
from autogd import StochasticAGD
from autogd.integrations.transformers import AveragedTrainer, DerivedRate

torch.manual_seed(0)
text = torch.tensor([int(digit) for number in range(3000) for digit in f"{number:04d}"])
rows = text[: len(text) // 32 * 32].view(-1, 32)[torch.randperm(len(text) // 32)]
samples = [{"input_ids": row, "labels": row} for row in rows]

config = GPT2Config(vocab_size=10, n_positions=32, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
model = autogd.initialise_(GPT2LMHeadModel(config))
optimiser = StochasticAGD(model)

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=100,
        per_device_train_batch_size=32,
        max_grad_norm=0,  # clipping would shorten steps whose length is derived
        logging_steps=20,
        eval_strategy="steps",
        eval_steps=50,
        save_steps=50,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = AveragedTrainer(  # evaluates, saves and leaves behind the averaged weights
        model,
        arguments,
        train_dataset=samples[40:],
        eval_dataset=samples[:40],
        optimizers=(optimiser, DerivedRate(optimiser)),  # the second makes Trainer report η as `learning_rate`
    )
    trainer.train()
    logits = torch.as_tensor(trainer.predict(samples[:40]).predictions)

# each digit follows from those before; only the start of a row is random
accuracy = (logits[:, 8:-1].argmax(-1) == rows[:40, 9:]).float().mean()
print(f"η {optimiser.learning_rate:.4f}, test accuracy {accuracy:.1%}")
