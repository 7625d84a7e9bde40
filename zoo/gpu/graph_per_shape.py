"""A teacher model is replayed from CUDA graphs, one for each pair of sequence length and temperature. The temperature
changes every third step, so no pair recurs and every step captures a new graph. With --fixed there is one graph per
length, six in total."""
import torch
from torch import nn

from kit import CUDA, DEVICE, EPOCHS, FIXED, STEPS, TINY, Tally

WIDTH, LENGTHS = (16, [8]) if TINY else (512, [128, 160, 192, 224, 256, 288])


class Teacher:
    def __init__(self):
        layers = [nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1000)]
        self.net = nn.Sequential(*layers).to(DEVICE).eval()
        self.graphs = {}

    @torch.no_grad()
    def capture(self, length, temperature):
        static_x = torch.zeros(8, length, WIDTH, device=DEVICE)
        self.net(static_x)
        if not CUDA:
            return None, static_x, self.net(static_x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static_y = (self.net(static_x) / temperature).softmax(-1)
        return graph, static_x, static_y

    def __call__(self, x, temperature):
        key = x.shape[1] if FIXED else (x.shape[1], temperature)
        if key not in self.graphs:
            self.graphs[key] = self.capture(x.shape[1], temperature)
        graph, static_x, static_y = self.graphs[key]
        static_x.copy_(x)
        if graph:
            graph.replay()
        return static_y


class Lengths(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return torch.randn(8, LENGTHS[i % len(LENGTHS)], WIDTH)


def main():
    teacher, student = Teacher(), nn.Linear(WIDTH, 1000).to(DEVICE)
    opt = torch.optim.AdamW(student.parameters(), lr=1e-3)
    tally, step, temperature = Tally(), 0, 2.0
    for _ in range(EPOCHS):
        for x in torch.utils.data.DataLoader(Lengths(), batch_size=None):
            x = x.to(DEVICE)
            if step % 3 == 0:
                temperature *= 0.998
            target = teacher(x, temperature)
            loss = nn.functional.mse_loss(student(x).softmax(-1), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            tally.step(step)
    print("graphs", len(teacher.graphs))
    tally.end()


if __name__ == "__main__":
    main()
