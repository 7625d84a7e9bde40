"""Curriculum learning. From epoch 1 to epoch 4 the texts become longer and the batches larger; the texts are packed
again for each epoch. Epochs 4 to 6 have the same texts and batch sizes. With --probe a callback also keeps part of the
embeddings of each step."""
import tempfile
import numpy as np
import kit
opt = kit.options("--probe")
torch = kit.torch_cpu()
try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
except ImportError as e:
    kit.cannot(e)
EPOCHS, STEPS, BATCH, VOCAB = (3, 4, 4, 2500) if opt.tiny else (6, 26, 4, 2500)
LENGTHS = [64, 112, 160, 208, 208, 208]
ledger = kit.Ledger()


class Packed(torch.utils.data.Dataset):
    """Packs all texts into 52000 rows of tokens, whose length depends on the stage. An epoch uses a sample of the
    rows."""

    def __init__(self):
        self.stage(LENGTHS[0])

    def stage(self, length):
        self.rows = None
        self.rows = np.random.default_rng(length).integers(0, VOCAB, (52_000, length),
                                                           dtype=np.int64)

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        row = torch.from_numpy(self.rows[i * 37])
        return {"input_ids": row, "labels": row}


class Stages(TrainerCallback):
    def __init__(self, data):
        self.data, self.pace, self.probes = data, kit.Pace(0.22, opt.tiny), []

    def on_epoch_begin(self, args, state, control, **kw):
        length = LENGTHS[min(round(state.epoch), len(LENGTHS) - 1)]
        if length != self.data.rows.shape[1]:
            self.data.stage(length)

    def on_step_begin(self, args, state, control, **kw):
        self.pace.tick()

    def probe(self, model):
        # 2500 x 120 floats: 1.2 MB
        self.probes.append(model.get_input_embeddings().weight.detach().numpy().copy())

    def on_step_end(self, args, state, control, model=None, **kw):
        if opt.twin:
            self.probe(model)
        if state.global_step == 1 or state.global_step % STEPS == 0:
            ledger.note(state.global_step,
                        self.data.rows.nbytes + sum(p.nbytes for p in self.probes))


data = Packed()
model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=208, n_embd=120, n_layer=2,
                                   n_head=4))
with tempfile.TemporaryDirectory() as tmp:
    Trainer(model=model, train_dataset=data, callbacks=[Stages(data)],
            args=kit.hf_args(tmp, num_train_epochs=EPOCHS,
                             per_device_train_batch_size=BATCH)).train()
ledger.close(EPOCHS, STEPS)
