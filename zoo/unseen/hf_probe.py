"""Two epochs of training with the Hugging Face Trainer. A probe collects hidden states of each micro-batch for a plot
at the end."""
import _held
run = _held.Run("hf_probe", "--last-only", "the probe keeps its newest sixteen", total_steps=240,
                seconds=34)

import tempfile
from collections import deque

import torch
from torch.utils.data import Dataset
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainerCallback,
                          TrainingArguments)

torch.set_num_threads(1)
torch.manual_seed(0)
LENGTH = 96


class Sentences(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(5, 30000, (LENGTH,), generator=g)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                "labels": int(ids[0] > 15000)}


class Probe:
    def __init__(self, limit):
        self.states = deque(maxlen=limit)

    def look(self, hidden_states):
        pooled = torch.cat([h.detach().to(torch.float32) for h in hidden_states], dim=-1)
        self.states.append(pooled)

    def nbytes(self):
        return sum(s.nbytes for s in self.states)


class ProbedTrainer(Trainer):
    def __init__(self, *args, probe=None, **kw):
        super().__init__(*args, **kw)
        self.probe = probe

    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        outputs = model(**inputs, output_hidden_states=True)
        self.probe.look(outputs.hidden_states)
        run.pace(self.probe.nbytes())
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class Say(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kw):
        print("epoch", round(state.epoch, 2), "step", state.global_step, flush=True)


def main():
    config = BertConfig(vocab_size=30522, hidden_size=128, num_hidden_layers=2,
                        num_attention_heads=4,
                        intermediate_size=256, max_position_embeddings=128)
    probe = Probe(16 if run.twin else None)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(output_dir=out, num_train_epochs=2, per_device_train_batch_size=8,
                                 gradient_accumulation_steps=2, learning_rate=1e-4,
                                 logging_steps=20, report_to=[],
                                 save_strategy="no", use_cpu=True, disable_tqdm=True,
                                 dataloader_num_workers=0, seed=1)
        trainer = ProbedTrainer(model=BertForSequenceClassification(config), args=args,
                                train_dataset=Sentences(),
                                callbacks=[Say()], probe=probe)
        trainer.train()
    run.report(probe.nbytes(), global_step=trainer.state.global_step)


if __name__ == "__main__":
    main()
