"""Q-learning with a replay memory. Its arrays are allocated at the start and become resident as they are filled,
until halfway through the run. --videos also keeps the frames of every episode. There are neither loaders nor
epochs."""
import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

STEPS, ROOM = (10, 40) if TINY else (200, 880)
PLAYS, EPISODE, STACK, SIDE = 8, 160, 4, 84


class Pong:
    """A game with a bouncing dot, whose observations are the last four images."""

    def __init__(self, rng):
        self.rng, self.at, self.speed = rng, np.array([20.0, 30.0]), np.array([3.0, 2.0])
        self.stack = np.zeros((STACK, SIDE, SIDE), np.uint8)

    def play(self, action):
        self.at += self.speed + (action - 1)
        self.speed[(self.at < 4) | (self.at > SIDE - 5)] *= -1
        self.at = self.at.clip(4, SIDE - 5)
        picture = self.rng.integers(0, 12, (SIDE, SIDE), dtype=np.uint8)
        x, y = self.at.astype(int)
        picture[x - 3:x + 3, y - 3:y + 3] = 255
        self.stack = np.concatenate([self.stack[1:], picture[None]])
        return self.stack, float(abs(x - y) < 8)

    def render(self):
        return np.repeat(self.stack[-1][:, :, None], 3, axis=2)


class Replay:
    def __init__(self):
        self.before = np.zeros((ROOM, STACK, SIDE, SIDE), np.uint8)
        self.after = np.zeros((ROOM, STACK, SIDE, SIDE), np.uint8)
        self.action, self.reward, self.count = np.zeros(ROOM, np.int64), np.zeros(ROOM, np.float32), 0

    def push(self, before, action, reward, after):
        i = self.count % ROOM
        self.before[i], self.action[i], self.reward[i], self.after[i] = before, action, reward, after
        self.count += 1

    def sample(self, rng, size):
        i = rng.integers(0, min(self.count, ROOM), size)
        return (torch.from_numpy(self.before[i]).float() / 255, torch.from_numpy(self.action[i]),
                torch.from_numpy(self.reward[i]), torch.from_numpy(self.after[i]).float() / 255)

    def touched(self):
        return min(self.count, ROOM) * 2 * STACK * SIDE * SIDE


class Videos:
    """Keeps frames of the episodes, to show the best at the end."""

    def __init__(self):
        self.episodes, self.count = [], 0

    def add(self, frame):
        if self.count % EPISODE == 0:
            self.episodes.append(np.zeros((EPISODE, SIDE, SIDE, 3), np.uint8))
        self.episodes[-1][self.count % EPISODE] = frame
        self.count += 1

    def written(self):
        return self.count * SIDE * SIDE * 3


def learn(net, optimizer, batch):
    before, action, reward, after = batch
    with torch.no_grad():
        goal = reward + 0.9 * net(after).max(1).values
    loss = nn.functional.smooth_l1_loss(net(before).gather(1, action[:, None])[:, 0], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    rng, replay, videos, tally = np.random.default_rng(4), Replay(), Videos(), Tally(0.17)
    net = nn.Sequential(nn.Conv2d(STACK, 8, 8, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 20 * 20, 3))
    optimizer, game, keep = torch.optim.Adam(net.parameters(), lr=1e-4), Pong(rng), flag("--videos")
    for n in range(1, STEPS + 1):
        for _ in range(PLAYS):
            before, action = game.stack, int(rng.integers(0, 3))
            after, reward = game.play(action)
            replay.push(before, action, reward, after)
            if keep:
                videos.add(game.render())
        learn(net, optimizer, replay.sample(rng, 16))
        tally.step(n, replay.touched() + videos.written())
    tally.end()


if __name__ == "__main__":
    main()
