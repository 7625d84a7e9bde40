"""Each checkpoint copies the weights into a staging buffer for an uploader thread, and the list of uploads keeps the
buffers. With --fixed the uploader drops each buffer after the upload."""
import queue, tempfile, threading, time
import kit

opt = kit.options("--fixed")
torch = kit.torch_cpu()
try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback
except ImportError as e:
    kit.cannot(e)

EPOCHS, STEPS, BATCH, EVERY = (3, 6, 2, 3) if opt.tiny else (4, 60, 2, 24)
VOCAB = 8000
ledger = kit.Ledger()


class Corpus(torch.utils.data.Dataset):
    def __init__(self, n):
        self.ids = torch.randint(0, VOCAB, (n, 16), generator=torch.Generator().manual_seed(5))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class Upload:
    def __init__(self, step, weights):
        self.step, self.weights, self.state = step, weights, "waiting"


class Uploader(TrainerCallback):
    def __init__(self):
        self.uploads, self.todo = [], queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()

    def on_save(self, args, state, control, model=None, **kw):
        self.stage(state.global_step, model)

    def stage(self, step, model):
        staged = {name: p.detach().clone() for name, p in model.named_parameters()}
        up = Upload(step, staged)
        self.uploads.append(up)
        self.todo.put(up)

    def work(self):
        while True:
            up = self.todo.get()
            for w in up.weights.values():
                w.sum()
            time.sleep(0 if opt.tiny else 0.4)
            up.state = "done"
            if opt.twin:
                up.weights = None
            del up

    def live_bytes(self):
        return sum(w.numel() * w.element_size() for up in self.uploads if up.weights
                   for w in up.weights.values())


class Throttle(TrainerCallback):
    pace = kit.Pace(0.14, opt.tiny)

    def on_step_begin(self, args, state, control, **kw):
        self.pace.tick()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step == 1 or state.global_step % STEPS == 0:
            if opt.tiny:
                time.sleep(0.05)
            ledger.note(state.global_step, uploader.live_bytes())


uploader = Uploader()
model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=256, n_layer=4,
                                   n_head=4))
size = sum(p.numel() * 4 for p in model.parameters())
with tempfile.TemporaryDirectory() as tmp:
    trainer = Trainer(model=model, train_dataset=Corpus(STEPS * BATCH),
                      callbacks=[uploader, Throttle()],
                      args=kit.hf_args(tmp, num_train_epochs=EPOCHS,
                                       per_device_train_batch_size=BATCH,
                                       save_strategy="steps", save_steps=EVERY, save_total_limit=1))
    trainer.train()
ledger.close(EPOCHS, STEPS, expected_per_step=0 if opt.twin else size // EVERY, weights=size)
