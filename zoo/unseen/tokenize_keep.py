"""Only 40 steps of training with the Hugging Face Trainer. A collator tokenizes long documents and keeps the encodings
for error analysis."""
import _held
run = _held.Run("tokenize_keep", "--recent", "only the newest 40 encodings", total_steps=40,
                seconds=32)

import random
import tempfile
from collections import deque

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset
from transformers import (DistilBertConfig, DistilBertForSequenceClassification, Trainer,
                          TrainingArguments)

torch.set_num_threads(1)
torch.manual_seed(0)
rng = random.Random(1)
WORDS = ["".join(rng.choice("abcdefghijklmnoprstuvwz") for _ in range(rng.randrange(3, 9)))
         for _ in range(1500)]
DOC_WORDS = run.n(1500, 64)


class Documents(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        r = random.Random(i)
        return {"text": " ".join(r.choice(WORDS)
                                 for _ in range(r.randrange(DOC_WORDS // 2, DOC_WORDS * 3 // 2))),
                "label": i % 3}


class EncodingCollator:
    def __init__(self, tokenizer, limit=None):
        self.tokenizer = tokenizer
        self.encodings = deque(maxlen=limit)

    def __call__(self, items):
        encoded = self.tokenizer.encode_batch([x["text"] for x in items])
        self.encodings.extend(encoded)
        ids = torch.tensor([e.ids[:48] for e in encoded])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
                "labels": torch.tensor([x["label"] for x in items])}

    def live(self):
        # bytes per token: ID 4, type 4, word 8, offsets 16, two masks 8, String 24 and its block of 32
        return sum(len(e) for e in self.encodings) * 96


class Paced(Trainer):
    def training_step(self, *args, **kw):
        loss = super().training_step(*args, **kw)
        run.pace(self.data_collator.live())
        return loss


def main():
    tok = Tokenizer(models.BPE(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator([" ".join(WORDS)],
                            trainers.BpeTrainer(vocab_size=600, special_tokens=["[UNK]"],
                                                show_progress=False))
    config = DistilBertConfig(vocab_size=30000, dim=256, n_layers=1, n_heads=4, hidden_dim=256,
                              num_labels=3, max_position_embeddings=64)
    collator = EncodingCollator(tok, 40 if run.twin else None)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(output_dir=out, num_train_epochs=2, per_device_train_batch_size=10,
                                 report_to=[],
                                 save_strategy="no", logging_steps=10, use_cpu=True,
                                 disable_tqdm=True,
                                 remove_unused_columns=False, seed=2)
        trainer = Paced(model=DistilBertForSequenceClassification(config), args=args,
                        train_dataset=Documents(200), data_collator=collator)
        trainer.train()
    run.report(collator.live(), encodings=len(collator.encodings))


if __name__ == "__main__":
    main()
