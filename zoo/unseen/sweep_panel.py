"""Six learning rates are tried one after another, each with a new model, optimizer and data sample. After each step,
imshow is called again on the same axes to show the weights, and the axes keep all earlier images. With --set-data the
pixels of the existing image are replaced."""
import kit
from marks import teller
opt = kit.options("--set-data")
torch = kit.torch_cpu()
from torch import nn
try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg
except ImportError as e:
    kit.cannot(e)
import io
EPOCHS, STEPS, SIDE = (2, 5, 400) if opt.tiny else (6, 42, 400)
ledger, pace, tell = kit.Ledger(), kit.Pace(0.165, opt.tiny), teller(opt.no_marks)


class Panel:
    def __init__(self):
        self.figure = Figure(figsize=(2, 2), dpi=60)
        self.canvas = FigureCanvasAgg(self.figure)
        self.axes = self.figure.subplots()

    def show(self, weights):
        """400 x 400 floats: 0.64 MB."""
        if opt.twin and self.axes.images:
            self.axes.images[0].set_data(weights)
        else:
            self.axes.imshow(weights, interpolation="nearest")

    def picture(self):
        out = io.BytesIO()
        self.canvas.print_png(out)
        return len(out.getvalue())

    def live(self):
        arrays = [image.get_array() for image in self.axes.images]
        return sum(a.nbytes + getattr(a.mask, "nbytes", 0) for a in arrays)


class Trial:
    """A model needs 5.2 MB and a data sample 12.8 MB."""

    def __init__(self, rate, seed):
        maker = torch.Generator().manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 2400), nn.ReLU(),
                                 nn.Linear(2400, 64))
        self.adam = torch.optim.Adam(self.net.parameters(), lr=rate)
        self.x = torch.randn(8000, 400, generator=maker)
        self.y = torch.randint(0, 64, (8000,), generator=maker)

    def step(self, i):
        rows = slice(i * 24, i * 24 + 24)
        loss = nn.functional.cross_entropy(self.net(self.x[rows]), self.y[rows])
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return loss.item()


panel, found, n = Panel(), {}, 0
tell.mark("begin", steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS)
for epoch, rate in enumerate([3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2][:EPOCHS]):
    trial = None
    trial = Trial(rate, epoch)
    for i in range(STEPS):
        found[rate] = trial.step(i)
        panel.show(trial.net[0].weight.detach().numpy())
        n += 1
        pace.tick()
        tell.step(n, epoch=round(n / STEPS, 4))
        if n == 1 or n % 10 == 0:
            ledger.note(n, panel.live())
    panel.picture()
    tell.mark("epoch", step=n, epoch=epoch + 1)
tell.mark("end", step=n)
ledger.close(EPOCHS, STEPS, best=min(found, key=found.get))
