"""An event bus keeps strong references to its subscribers. Each evaluation subscribes a new monitor and drops the old
one; with --weak the bus keeps weak references."""
import tempfile, weakref
import numpy as np
import kit
opt = kit.options("--weak")
torch = kit.torch_cpu()
try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
except ImportError as e:
    kit.cannot(e)
EPOCHS, STEPS, EVERY, BATCH = (2, 6, 3, 4) if opt.tiny else (4, 36, 12, 4)
ledger, alive = kit.Ledger(), weakref.WeakSet()


class Bus:
    def __init__(self):
        self.subscribers = []

    def subscribe(self, method):
        self.subscribers.append(weakref.WeakMethod(method) if opt.twin else method)

    def publish(self, value):
        for s in list(self.subscribers):
            s = s() if opt.twin else s
            if s:
                s(value)


class Monitor:
    """Collects calibration data of the steps since the last evaluation, in 10 MB of histogram bins."""

    def __init__(self, bus):
        self.bins = np.full((5000, 250), 1.0)
        self.n = 0
        alive.add(self)
        bus.subscribe(self.seen)

    def seen(self, step):
        self.bins[step % 5000] += 1
        self.n += 1


class Watch(TrainerCallback):
    def __init__(self):
        self.bus, self.pace = Bus(), kit.Pace(0.22, opt.tiny)

    def on_step_begin(self, args, state, control, **kw):
        self.pace.tick()

    def on_step_end(self, args, state, control, **kw):
        self.bus.publish(state.global_step)
        if state.global_step == 1 or state.global_step % STEPS == 0:
            ledger.note(state.global_step, sum(m.bins.nbytes for m in alive))

    def on_evaluate(self, args, state, control, **kw):
        self.monitor = Monitor(self.bus)


class Text(torch.utils.data.Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 1000, (n, 32), generator=torch.Generator().manual_seed(n))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


model = GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=32, n_embd=96, n_layer=2, n_head=4))
with tempfile.TemporaryDirectory() as tmp:
    Trainer(model=model, train_dataset=Text(STEPS * BATCH), eval_dataset=Text(24),
            callbacks=[Watch()],
            args=kit.hf_args(tmp, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                             per_device_eval_batch_size=8, eval_strategy="steps",
                             eval_steps=EVERY)).train()
ledger.close(EPOCHS, STEPS)
