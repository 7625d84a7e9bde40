"""A Lightning classifier that draws its confusion matrix at the end of each validation."""
import argparse, gc, json, logging, os, shutil, tempfile, time, warnings

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
CLASSES = 8


class Classifier(L.LightningModule):
    def __init__(self, close, pause, folder):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, CLASSES))
        self.close, self.pause, self.folder = close, pause, folder
        self.pairs, self.truth, self.drawn, self.began = [], [], 0, time.monotonic()

    def training_step(self, batch, i):
        x, y = batch
        time.sleep(max(0, self.began + self.global_step * self.pause - time.monotonic()))
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, i):
        x, y = batch
        out = self.net(x)
        self.pairs.append((y, out.argmax(1)))
        self.log("val_loss", nn.functional.cross_entropy(out, y), prog_bar=False)

    def on_validation_epoch_end(self):
        table = np.zeros((CLASSES, CLASSES))
        for y, guess in self.pairs:
            np.add.at(table, (y.numpy(), guess.numpy()), 1)
        self.pairs.clear()
        self.draw_confusion(table)
        gc.collect()
        self.truth.append([self.global_step, open_bytes(), resident()])

    def draw_confusion(self, table):
        fig, ax = plt.subplots(figsize=(8, 7), dpi=180)
        ax.imshow(table, cmap="Blues")
        for (r, c), v in np.ndenumerate(table):
            ax.text(c, r, int(v), ha="center", va="center", fontsize=6)
        self.drawn += 1
        fig.savefig(os.path.join(self.folder, "confusion.png"))
        if self.close:
            plt.close(fig)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def open_bytes():
    return sum(plt.figure(n).canvas.get_renderer().buffer_rgba().nbytes for n in plt.get_fignums())


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fixed", action="store_true", help="close the figure")
    ap.add_argument("--tiny", action="store_true")
    a = ap.parse_args()
    L.seed_everything(5, workers=False)
    torch.set_num_threads(1)
    n, epochs, pause = (16 * 12, 2, 0.0) if a.tiny else (16 * 48, 4, 0.2)
    x, y = torch.randn(n, 64), torch.randint(CLASSES, (n,))
    folder = tempfile.mkdtemp()
    module = Classifier(a.fixed, pause, folder)
    trainer = L.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, val_check_interval=0.25, default_root_dir=folder, num_sanity_val_steps=0)
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True),
                DataLoader(TensorDataset(x[:128], y[:128]), batch_size=64))
    shutil.rmtree(folder)
    print("TRUTH", json.dumps({"drawn": module.drawn, "open": len(plt.get_fignums()),
                               "step_live_rss": module.truth}))


if __name__ == "__main__":
    main()
