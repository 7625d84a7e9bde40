"""Training with the Hugging Face Trainer on texts of mixed length, with an evaluation and a checkpoint every 24 steps,
and early stopping after 192 of 384 steps. With --average, weights are averaged from step 80 on. Nothing leaks."""
import random, tempfile
import kit
opt = kit.options("--average")
torch = kit.torch_cpu()
try:
    from transformers import (BertConfig, BertForSequenceClassification, EarlyStoppingCallback,
                              Trainer, TrainerCallback)
except ImportError as e:
    kit.cannot(e)
EPOCHS, STEPS, EVERY, FROM, BATCH = (4, 4, 2, 5, 6) if opt.tiny else (4, 48, 24, 80, 6)
ledger, pace = kit.Ledger(), kit.Pace(0.2, opt.tiny)


class Average(TrainerCallback):
    """Averages the weights of the model: 2 million weights, 8 MB. There is only one copy of the average."""

    def __init__(self):
        self.weights = None

    def on_step_begin(self, args, state, control, **kw):
        pace.tick()

    def on_step_end(self, args, state, control, model=None, **kw):
        if opt.twin and state.global_step >= FROM:
            self.update(model)
        if state.global_step == 1 or state.global_step % 12 == 0:
            ledger.note(state.global_step, sum(w.nbytes for w in self.weights or []))

    def update(self, model):
        if self.weights is None:
            self.weights = [p.detach().clone() for p in model.parameters()]
        for mean, p in zip(self.weights, model.parameters()):
            mean.lerp_(p.detach(), 0.05)


class Texts(torch.utils.data.Dataset):
    def __init__(self, n):
        rng = random.Random(n)
        self.ids = [[rng.randrange(1, 12_000) for _ in range(rng.choice((16, 30, 60, 110, 180)))]
                    for _ in range(n)]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": i % 5}


def collate(batch):
    longest = max(len(row["input_ids"]) for row in batch[:3])
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    for out, row in zip(ids, batch):
        short = row["input_ids"][:longest]
        out[: len(short)] = torch.tensor(short)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(),
            "labels": torch.tensor([row["labels"] for row in batch])}


class Score:
    """The metric improves until three evaluations before the end."""

    def __init__(self):
        self.asked, self.last = 0, EPOCHS * STEPS // EVERY

    def __call__(self, predicted):
        self.asked += 1
        return {"score": min(self.asked, self.last - 3) / 10}


model = BertForSequenceClassification(BertConfig(
    vocab_size=12_000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=512, max_position_embeddings=192, num_labels=5))
with tempfile.TemporaryDirectory() as tmp:
    trainer = Trainer(
        model=model, train_dataset=Texts(STEPS * BATCH), eval_dataset=Texts(36),
        data_collator=collate, compute_metrics=Score(),
        callbacks=[Average(), EarlyStoppingCallback(early_stopping_patience=3)],
        args=kit.hf_args(tmp, num_train_epochs=2 * EPOCHS, per_device_train_batch_size=BATCH,
                         per_device_eval_batch_size=6, eval_strategy="steps", eval_steps=EVERY,
                         save_strategy="steps", save_steps=EVERY, save_total_limit=2,
                         load_best_model_at_end=True, metric_for_best_model="score",
                         greater_is_better=True, warmup_steps=30, remove_unused_columns=False))
    trainer.train()
ledger.close(EPOCHS, STEPS, planned=2 * EPOCHS * STEPS, stopped_at=trainer.state.global_step)
