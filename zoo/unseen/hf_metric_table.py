"""A callback adds a row of metrics to a table in each step and never flushes the table; --fixed flushes it every 32
steps."""
import os, sys, tempfile
import kit

opt = kit.options("--fixed")
torch = kit.torch_cpu()
try:
    from transformers import (DistilBertConfig, DistilBertForSequenceClassification, Trainer,
                              TrainerCallback)
except ImportError as e:
    kit.cannot(e)

EPOCHS, STEPS, BATCH, ACCUMULATE = (3, 5, 4, 2) if opt.tiny else (3, 80, 4, 2)
VOCAB = 1500
ledger = kit.Ledger()


class Reviews(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        self.ids = torch.randint(0, VOCAB, (n, 32), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(32, dtype=torch.long),
                "labels": i % 2}


class WeightTable(TrainerCallback):
    """Adds one row per step: the norms of the embedding's rows and of all other weights."""

    def __init__(self, path):
        self.rows, self.path = [], path

    def on_step_end(self, args, state, control, model=None, **kw):
        row = {"step": state.global_step}
        for name, w in model.named_parameters():
            if w.dim() == 2:
                row[name] = w.detach().norm(dim=1).tolist() + w.detach().norm(dim=0).tolist()
        emb = model.get_input_embeddings().weight.detach()
        for k in range(16):
            row[f"sorted{k}"] = emb[:, k].sort().values.tolist()
        self.rows.append(row)
        if opt.twin and len(self.rows) >= 32:
            self.flush()

    def flush(self):
        with open(self.path, "a") as f:
            for row in self.rows:
                f.write(f"{row['step']} {len(row)}\n")
        self.rows.clear()

    def live_bytes(self):
        """A float of 24 bytes takes a block of 32: Python's allocator uses multiples of 16."""
        n = 0
        for row in self.rows:
            n += sys.getsizeof(row)
            for v in row.values():
                if isinstance(v, list):
                    n += sys.getsizeof(v) + sum((sys.getsizeof(x) + 15) // 16 * 16 for x in v)
        return n


class Throttle(TrainerCallback):
    pace = kit.Pace(0.15, opt.tiny)

    def on_step_begin(self, args, state, control, **kw):
        self.pace.tick()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 1 or state.global_step % STEPS == 0:
            ledger.note(state.global_step, table.live_bytes())


model = DistilBertForSequenceClassification(
    DistilBertConfig(vocab_size=VOCAB, dim=96, hidden_dim=192, n_layers=2,
                     n_heads=4, max_position_embeddings=64))
with tempfile.TemporaryDirectory() as tmp:
    table = WeightTable(os.path.join(tmp, "weights.txt"))
    trainer = Trainer(model=model, train_dataset=Reviews(STEPS * BATCH * ACCUMULATE, 1),
                      eval_dataset=Reviews(40, 2),
                      callbacks=[table, Throttle()],
                      args=kit.hf_args(tmp, num_train_epochs=EPOCHS,
                                       per_device_train_batch_size=BATCH,
                                       gradient_accumulation_steps=ACCUMULATE,
                                       eval_strategy="epoch"))
    trainer.train()
ledger.close(EPOCHS, STEPS)
