"""Evaluation gathers the logits of the whole held-out set and frees them afterwards. With --leak, compute_metrics keeps
them, to compare them with later logits."""
import tempfile, time
import kit

opt = kit.options("--leak")
torch = kit.torch_cpu()
try:
    import numpy as np
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
except ImportError as e:
    kit.cannot(e)

EPOCHS, STEPS, BATCH, EVERY = (3, 6, 4, 3) if opt.tiny else (4, 44, 4, 22)
VOCAB, LENGTH, HELD_OUT = 3000, 48, 72
ledger = kit.Ledger()


class Corpus(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        self.ids = torch.randint(0, VOCAB, (n, LENGTH),
                                 generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Compare:
    def __init__(self):
        self.earlier = []

    def __call__(self, predicted):
        logits, labels = predicted.predictions, predicted.label_ids
        if isinstance(logits, tuple):
            logits = logits[0]
        hits = float((logits[:, :-1].argmax(-1) == labels[:, 1:]).mean())
        moved = float(np.abs(logits[:4] - self.earlier[-1][:4]).mean()) if self.earlier else 0.0
        if opt.twin:
            self.earlier.append(logits)
        time.sleep(0 if opt.tiny else 0.8)
        return {"hits": hits, "moved": moved}


class Throttle(TrainerCallback):
    pace = kit.Pace(0.15, opt.tiny)

    def on_step_begin(self, args, state, control, **kw):
        self.pace.tick()

    def on_prediction_step(self, args, state, control, **kw):
        time.sleep(0 if opt.tiny else 0.06)

    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 1:
            ledger.note(state.global_step, sum(a.nbytes for a in compare.earlier))

    def on_evaluate(self, args, state, control, **kw):
        ledger.note(state.global_step, sum(a.nbytes for a in compare.earlier))


compare = Compare()
model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=LENGTH, n_embd=96, n_layer=2,
                                   n_head=4,
                                   use_cache=False))
with tempfile.TemporaryDirectory() as tmp:
    trainer = Trainer(model=model, train_dataset=Corpus(STEPS * BATCH, 1),
                      eval_dataset=Corpus(HELD_OUT, 2),
                      compute_metrics=compare, callbacks=[Throttle()],
                      args=kit.hf_args(tmp, num_train_epochs=EPOCHS,
                                       per_device_train_batch_size=BATCH,
                                       per_device_eval_batch_size=8, eval_strategy="steps",
                                       eval_steps=EVERY))
    trainer.train()
ledger.close(EPOCHS, STEPS,
             expected_per_step=VOCAB * LENGTH * HELD_OUT * 4 // EVERY if opt.twin else 0)
