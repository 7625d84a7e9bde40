"""torch.save writes checkpoints into BytesIO objects, which are kept in memory for a rollback: the last two or, with
--all, every one."""
import io
import kit
from marks import teller
opt = kit.options("--all")
torch = kit.torch_cpu()
from torch import nn
EPOCHS, STEPS, EVERY = (2, 6, 3) if opt.tiny else (4, 48, 12)
ledger, pace, tell = kit.Ledger(), kit.Pace(0.17, opt.tiny), teller(opt.no_marks)


class Rollback:
    def __init__(self):
        self.points = []

    def save(self, model, step):
        buf = io.BytesIO()
        torch.save({"model": model.state_dict(), "step": step}, buf)
        self.points.append(buf)
        if not opt.twin:
            del self.points[:-2]


model = nn.LSTM(input_size=256, hidden_size=512, num_layers=1)
extra = nn.Embedding(1400, 512)
head = nn.ModuleList([model, extra])  # 2.3 million: 9.2 MB
sgd = torch.optim.SGD(head.parameters(), lr=0.05)
corpus = torch.randint(0, 1400, (STEPS, 6, 8))
background = torch.rand(30_000_000)  # 120 MB
points, n = Rollback(), 0
for epoch in range(EPOCHS):
    for i in range(STEPS):
        x = extra(corpus[i])[..., :256]
        loss = model(x)[0].pow(2).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        n += 1
        pace.tick()
        tell.step(n, steps_per_epoch=STEPS, max_steps=EPOCHS * STEPS, epoch=round(n / STEPS, 4))
        if n % EVERY == 0:
            points.save(head, n)
            tell.mark("save", step=n)
        if n == 1 or n % STEPS == 0:
            ledger.note(n, sum(b.getbuffer().nbytes for b in points.points))
    tell.mark("epoch", step=n)
tell.mark("end", step=n)
ledger.close(EPOCHS, STEPS)
