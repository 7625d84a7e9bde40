"""Training with the Hugging Face Trainer. Texts are sorted by length, so that each epoch begins with small batches and
ends with large ones. From the third epoch on, --worst keeps the logits of the worst text of each step."""
import tempfile

import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from tally import TINY, Tally, flag

STEPS, BATCH, EPOCHS, LATE = (3, 4, 3, 1) if TINY else (34, 8, 5, 2)
VOCABULARY, SHORT, LONG = 1500, 16, 160


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        length = SHORT + (LONG - SHORT) * i // (STEPS * BATCH)
        return torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(i))


def collate(texts):
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return {"input_ids": ids, "labels": ids.clone()}


class SortedTrainer(Trainer):
    worst = None

    def _get_train_sampler(self, *args):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def keep_worst(self, logits, labels):
        losses = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="none")
        at = int(losses.view(len(labels), -1).mean(1).argmax())
        self.worst.append(logits[at].clone())

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        if self.worst is not None and self.state.global_step >= LATE * STEPS:
            self.keep_worst(outputs.logits.detach(), inputs["labels"])
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class Counter(TrainerCallback):
    def __init__(self, tally):
        self.tally, self.trainer = tally, None

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, sum(t.nbytes for t in self.trainer.worst or []))


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=256, n_embd=64, n_layer=2, n_head=4))
    counter = Counter(Tally(0.21))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=20, disable_tqdm=True)
        trainer = SortedTrainer(model=model, args=args, train_dataset=Texts(), data_collator=collate,
                                callbacks=[counter])
        trainer.worst = [] if flag("--worst") else None
        counter.trainer = trainer
        trainer.train()
    counter.tally.end()


if __name__ == "__main__":
    main()
