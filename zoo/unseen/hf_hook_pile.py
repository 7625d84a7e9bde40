"""Training with the Hugging Face Trainer and four micro-batches per step. Each micro-batch registers a hook on the
embeddings. The hook closes over the embedded input and is never removed. --remove removes the previous hook before it
registers a new one."""
import tempfile, weakref
import kit
opt = kit.options("--remove")
torch = kit.torch_cpu()
try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
except ImportError as e:
    kit.cannot(e)
EPOCHS, STEPS, BATCH, ACCUMULATE, LENGTH = (2, 4, 4, 4, 80) if opt.tiny else (4, 48, 4, 4, 80)
ledger, pace, alive = kit.Ledger(), kit.Pace(0.22, opt.tiny), weakref.WeakSet()


class Focus:
    """The attention of one micro-batch has 4 x 80 x 128 floats: 164 kB."""

    def __init__(self, embedded):
        self.values, self.used = embedded.detach().clone(), False
        alive.add(self)

    def norm(self, grad):
        if self.used:
            return 0.0
        self.used = True
        return (self.values.sum((0, 1)) @ grad.sum(0)).item()


class Probing(Trainer):
    handle, total = None, 0.0

    def watch(self, model, inputs):
        weight = model.get_input_embeddings().weight
        focus = Focus(torch.nn.functional.embedding(inputs["input_ids"], weight))

        def hook(grad):
            self.total += focus.norm(grad)

        if opt.twin and self.handle:
            self.handle.remove()
        self.handle = weight.register_hook(hook)

    def compute_loss(self, model, inputs, *args, **kw):
        if model.training:
            self.watch(model, inputs)
        return super().compute_loss(model, inputs, *args, **kw)


class Watch(TrainerCallback):
    def on_step_begin(self, args, state, control, **kw):
        pace.tick()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 1 or state.global_step % 8 == 0:
            ledger.note(state.global_step, sum(f.values.nbytes for f in alive))


class Text(torch.utils.data.Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, 900, (n, LENGTH), generator=torch.Generator().manual_seed(n))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


model = GPT2LMHeadModel(GPT2Config(vocab_size=900, n_positions=LENGTH, n_embd=128, n_layer=1,
                                   n_head=4))
with tempfile.TemporaryDirectory() as tmp:
    Probing(model=model, train_dataset=Text(STEPS * BATCH * ACCUMULATE), callbacks=[Watch()],
            args=kit.hf_args(tmp, num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH,
                             gradient_accumulation_steps=ACCUMULATE)).train()
ledger.close(EPOCHS, STEPS)
