"""Figures are drawn at each evaluation and never closed. Like pyplot, the module that draws them keeps all open
figures; --fixed closes each after it is written. Drawn with Pillow, so that matplotlib is not required."""
import io
import kit

opt = kit.options("--fixed")
torch = kit.torch_cpu()
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

try:
    from PIL import Image, ImageDraw
except ImportError as e:
    kit.cannot(e)

EPOCHS, STEPS, BATCH, EVERY = (3, 8, 32, 4) if opt.tiny else (5, 64, 32, 32)
CLASSES, SIZE = 6, (1000, 720)
ledger = kit.Ledger()


class Board:
    """Stores numbered figures, each of which is open until it is closed."""

    def __init__(self):
        self.open, self.count = {}, 0

    def figure(self, title):
        self.count += 1
        canvas = Image.new("RGB", SIZE, "white")
        ImageDraw.Draw(canvas).text((20, 10), title, fill="black")
        self.open[self.count] = canvas
        return self.count, canvas

    def close(self, number):
        self.open.pop(number).close()

    def live_bytes(self):
        return sum(c.size[0] * c.size[1] * 4 for c in self.open.values())


board = Board()


def draw_class(step, k, scores, truth):
    number, canvas = board.figure(f"class {k} at step {step}")
    pen = ImageDraw.Draw(canvas)
    for i, (s, t) in enumerate(zip(scores.tolist(), truth.tolist())):
        x, y = 40 + i * 900 // len(scores), 680 - int(s * 600)
        pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill="red" if t == k else "blue")
    png = io.BytesIO()
    canvas.resize((250, 180)).save(png, "PNG")
    if opt.twin:
        board.close(number)
    return len(png.getvalue())


@torch.no_grad()
def evaluate(net, loader, step, pause):
    net.eval()
    scores, truth = [], []
    for x, y in loader:
        scores.append(net(x).softmax(1))
        truth.append(y)
        pause.tick()
    scores, truth = torch.cat(scores), torch.cat(truth)
    for k in range(CLASSES):
        draw_class(step, k, scores[:, k], truth)
    net.train()
    return (scores.argmax(1) == truth).float().mean().item()


def main():
    x, centers = torch.randn(STEPS * BATCH, 20), torch.randn(20, CLASSES)
    y = (x @ centers).argmax(1)
    train = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
    held_out = DataLoader(TensorDataset(x[:320] + 0.1, y[:320]), batch_size=64)
    net = nn.Sequential(nn.Linear(20, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                        nn.Linear(512, CLASSES))
    optimizer = torch.optim.Adam(net.parameters())
    pace, pause, step = kit.Pace(0.1, opt.tiny), kit.Pace(0.03, opt.tiny), 0
    for epoch in range(EPOCHS):
        for bx, by in train:
            loss = nn.functional.cross_entropy(net(bx), by)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == 1:
                ledger.note(step, board.live_bytes())
            pace.tick()
            if step % EVERY == 0:
                evaluate(net, held_out, step, pause)
                ledger.note(step, board.live_bytes())
    ledger.close(EPOCHS, STEPS,
                 expected_per_step=0 if opt.twin else SIZE[0] * SIZE[1] * 4 * CLASSES // EVERY)


main()
