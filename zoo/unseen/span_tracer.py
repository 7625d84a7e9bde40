"""Policy gradient on a toy problem, with steps but without epochs. A tracer records a span for each move and writes all
spans at the end; with --flush it writes them every 50 steps."""
import json, sys, tempfile, time
import kit
from marks import teller
opt = kit.options("--flush")
torch = kit.torch_cpu()
from torch import nn
STEPS = 24 if opt.tiny else 360
LOOK = STEPS // 4
ledger, pace, tell = kit.Ledger(), kit.Pace(0.09, opt.tiny), teller(opt.no_marks)


class Tracer:
    def __init__(self):
        self.events = []

    def span(self, name, step, move):
        now = time.perf_counter()
        self.events.append({"name": name, "ph": "X", "ts": now * 1e6,
                            "dur": (time.perf_counter() - now) * 1e6,
                            "args": {"step": step * 1000 + 7, "move": move * 31 + 300,
                                     "tag": f"{name}/{step}/{move}"}})

    def flush(self):
        with tempfile.TemporaryFile("w") as f:
            for e in self.events:
                f.write(json.dumps(e) + "\n")
        self.events = []

    def size(self):
        if not self.events:
            return 0
        e, a = self.events[-1], self.events[-1]["args"]
        # the last term is the garbage collector's header
        one = sum(map(sys.getsizeof,
                      (e, a, e["ts"], e["dur"], a["step"], a["move"], a["tag"]))) + 8 + 2 * 16
        return one * len(self.events)


policy = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 4))
adam = torch.optim.Adam(policy.parameters(), lr=1e-3)
tracer = Tracer()
for n in range(1, STEPS + 1):
    state = torch.randn(64, 32)
    dist = torch.distributions.Categorical(logits=policy(state))
    action = dist.sample()
    for move in range(500):
        tracer.span("env.move", n, move)
    loss = -(dist.log_prob(action) * (action == 0)).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    if opt.twin and n % 50 == 0:
        tracer.flush()
    pace.tick()
    tell.step(n)
    if n == 1 or n % LOOK == 0:
        ledger.note(n, tracer.size())
ledger.close(4, LOOK)
