"""Training with Lightning. From the second epoch on, averaged weights replace the trained weights during validation.
Each time, a backup of the trained weights is pushed onto a stack and never removed; --pop removes it."""
import logging
import kit
opt = kit.options("--pop")
torch = kit.torch_cpu()
from torch import nn
try:
    import lightning as L
except ImportError:
    try:
        import pytorch_lightning as L
    except ImportError as e:
        kit.cannot(e)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
EPOCHS, STEPS, EVERY, BATCH = (2, 8, 4, 16) if opt.tiny else (4, 60, 20, 16)
ledger, pace = kit.Ledger(), kit.Pace(0.17, opt.tiny)


class EmaSwap(L.Callback):
    def __init__(self):
        self.average, self.backups = None, []

    def on_train_batch_end(self, trainer, model, *rest):
        step = trainer.global_step
        if step >= STEPS:
            self.update(model)
        pace.tick()
        if step == 1 or step % 10 == 0:
            ledger.note(step, sum(t.nbytes for copy in (*self.backups, self.average or {})
                                  for t in copy.values()))

    def update(self, model):
        if self.average is None:
            self.average = {k: v.clone() for k, v in model.state_dict().items()}  # once
        for key, value in model.state_dict().items():
            self.average[key].lerp_(value, 0.02)

    def on_validation_start(self, trainer, model):
        # 2.6 million weights: 10.4 MB
        self.backups.append({k: v.clone() for k, v in model.state_dict().items()})
        if self.average is not None:
            model.load_state_dict(self.average)

    def on_validation_end(self, trainer, model):
        model.load_state_dict(self.backups.pop() if opt.twin else self.backups[-1])


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(512, 1600), nn.GELU(), nn.Linear(1600, 1050), nn.GELU(),
                                  nn.Linear(1050, 64))

    def loss(self, batch):
        x, y = batch
        return nn.functional.cross_entropy(self.body(x), y)

    def training_step(self, batch, i):
        return self.loss(batch)

    def validation_step(self, batch, i):
        return self.loss(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2, momentum=0.9)


def rows(n):
    maker = torch.Generator().manual_seed(n)
    data = torch.utils.data.TensorDataset(torch.randn(n, 512, generator=maker),
                                          torch.randint(0, 64, (n,), generator=maker))
    return torch.utils.data.DataLoader(data, batch_size=BATCH)


trainer = L.Trainer(max_epochs=EPOCHS, accelerator="cpu", devices=1, logger=False,
                    enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False, num_sanity_val_steps=0, val_check_interval=EVERY,
                    callbacks=[EmaSwap()])
trainer.fit(Net(), rows(STEPS * BATCH), rows(6 * BATCH))
ledger.close(EPOCHS, STEPS)
