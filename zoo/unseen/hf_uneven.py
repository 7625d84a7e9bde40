"""Training with the Hugging Face Trainer on batches of very mixed lengths: the allocator retains as much memory as the
longest batch needed. With --per-token, from the third of five epochs on, each step adds a tuple for each token to a
list of losses, in total about 4 % of the memory of the process. (transformers #7276)"""
import random
import tempfile

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from tally import TINY, Tally, flag

EPOCHS, STEPS, BATCH = (4, 3, 3) if TINY else (5, 42, 20)
# bytes per token: a tuple, two floats, a slot in the list, and an integer (not for padding)
WORDS, EACH = 2000, 72 + 2 * 24 + 8 + 24


def make_texts():
    draws, texts = random.Random(5), []
    for _ in range(STEPS):
        longest = draws.choice((16, 24, 40, 64, 100, 150))
        for _ in range(BATCH):
            texts.append([draws.randrange(300, WORDS) for _ in range(draws.randint(longest // 2, longest))])
    return texts


def pad(rows):
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": tokens, "attention_mask": (tokens > 0).long(), "labels": tokens}


class TokenTrainer(Trainer):
    losses, keep = [], False

    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        tokens = inputs.pop("labels")
        output = model(**inputs)
        each = nn.functional.cross_entropy(output.logits.flatten(0, 1), tokens.flatten(), reduction="none")
        self.watch(tokens.flatten(), each.detach())
        return (each.mean(), output) if return_outputs else each.mean()

    def watch(self, tokens, each):
        losses, chances = [round(loss, 4) for loss in each.tolist()], each.neg().exp().tolist()
        rows = list(zip(tokens.tolist(), losses, chances, [self.state.global_step] * len(losses)))
        if not self.keep:
            return
        if self.state.global_step >= 2 * STEPS:
            self.losses.extend(rows)


class Count(TrainerCallback):
    def __init__(self, tally, losses):
        self.tally, self.losses = tally, losses

    def on_step_end(self, args, state, control, **kwargs):
        self.tally.step(state.global_step, len(self.losses) * EACH)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    config = BertConfig(vocab_size=WORDS, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=256, max_position_embeddings=160)
    count = Count(Tally(0.205), TokenTrainer.losses)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                                 save_strategy="no", report_to=[], use_cpu=True, logging_steps=1000, disable_tqdm=True)
        trainer = TokenTrainer(model=BertForMaskedLM(config), args=args, train_dataset=make_texts(), data_collator=pad,
                               callbacks=[count])
        trainer.keep = flag("--per-token")
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    count.tally.end()


if __name__ == "__main__":
    main()
