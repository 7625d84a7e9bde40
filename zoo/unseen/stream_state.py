"""Streaming recognition: the state of 64 streams is passed from chunk to chunk with gradients enabled, so it keeps the
graph of all earlier chunks. backward() is never called. --detach detaches the state. There are no epochs. (transformers
#26588)"""
import torch
from torch import nn

from tally import TINY, Tally, flag, marks

CHUNKS = 10 if TINY else 210
STREAMS, FEATURES, STATE, SAMPLES = 64, 80, 1024, 6400


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = nn.Conv1d(1, FEATURES, 400, 160)
        self.inward, self.onward, self.words = nn.Linear(FEATURES, STATE), nn.Linear(STATE, STATE), nn.Linear(STATE, 500)

    def features(self, sound):
        with torch.no_grad():
            return self.window(sound).abs().log1p().mean(2)

    def forward(self, features, state):
        state = torch.tanh(self.inward(features) + self.onward(state))
        with torch.no_grad():
            return self.words(state).argmax(1), state


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    draws, detach = torch.Generator().manual_seed(8), flag("--detach")
    net, state, chained = Recogniser(), torch.zeros(STREAMS, STATE), 0
    ebb, tally, words = marks(), Tally(0.21), torch.zeros(500, dtype=torch.int64)
    for n in range(1, CHUNKS + 1):
        sound = torch.randn(STREAMS, 1, SAMPLES, generator=draws)
        said, state = net(net.features(sound), state)
        chained += 1
        if detach:
            state, chained = state.detach(), 1
        words += torch.bincount(said, minlength=500)
        tally.step(n, chained * STREAMS * (STATE + FEATURES) * 4)
        ebb.step(n, max_steps=CHUNKS)
    tally.end()


if __name__ == "__main__":
    main()
