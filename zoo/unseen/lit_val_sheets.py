"""Lightning: after each validation, sheets with pictures made by the model are drawn
and saved. The figures stay registered with pyplot; `--close` closes each after it is
saved.
"""

import argparse
import io
import json
import time

import lightning
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, EPOCHS, STEP_S = 70, 5, 0.1
SHEETS = 3


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def drawn_bytes():
    """Returns the bytes of the open figures: their arrays and their canvases."""
    total = 0
    for number in plt.get_fignums():
        figure = plt.figure(number)
        total += memoryview(figure.canvas.buffer_rgba()).nbytes
        total += sum(image.get_array().nbytes for axes in figure.axes for image in axes.images)
    return total


class Denoiser(lightning.LightningModule):
    def __init__(self, close, step_s):
        super().__init__()
        self.close, self.step_s = close, step_s
        self.net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
                                 nn.Conv2d(12, 1, 3, padding=1))
        self.rows = []

    def training_step(self, batch, index):
        began = time.monotonic()
        clean, = batch
        loss = nn.functional.mse_loss(self.net(clean + 0.3 * torch.randn_like(clean)), clean)
        time.sleep(max(0, began + self.step_s * 0.7 - time.monotonic()))
        return loss

    def on_train_batch_end(self, outputs, batch, index):
        time.sleep(self.step_s * 0.3)
        self.rows.append((self.global_step, drawn_bytes(), resident()))

    def validation_step(self, batch, index):
        clean, = batch
        noisy = clean + 0.3 * torch.randn_like(clean)
        self.shown = torch.cat([clean, noisy, self.net(noisy)], dim=3)[:, 0]
        self.log("val", nn.functional.mse_loss(self.net(noisy), clean))

    def on_validation_epoch_end(self):
        for sheet in range(SHEETS):
            self.draw_sheet(sheet)

    def draw_sheet(self, sheet):
        figure, axes = plt.subplots(figsize=(8, 6))
        rows = self.shown[2 * sheet:2 * sheet + 4].flatten(0, 1).double()
        axes.imshow(rows.repeat_interleave(4, 0).repeat_interleave(4, 1).numpy())
        axes.set_title(f"step {self.global_step}, sheet {sheet}")
        figure.savefig(io.BytesIO(), format="png")
        if self.close:
            plt.close(figure)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--close", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lightning.seed_everything(0)
    plt.rcParams["figure.max_open_warning"] = 0
    steps = 6 if args.tiny else STEPS
    pictures = torch.rand(steps * 8, 1, 48, 48)
    module = Denoiser(args.close, 0 if args.tiny else STEP_S)
    trainer = lightning.Trainer(max_epochs=EPOCHS, val_check_interval=0.5, accelerator="cpu", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    began = time.monotonic()
    trainer.fit(module, DataLoader(TensorDataset(pictures), batch_size=8, shuffle=True),
                DataLoader(TensorDataset(pictures[:16]), batch_size=8))
    step, live, rss = zip(*module.rows)
    print("HELD", json.dumps({"train_s": time.monotonic() - began, "step": step, "live": live, "rss": rss}))


if __name__ == "__main__":
    main()
