"""Policy gradients with two environments in processes of their own. Each environment records pictures for a film. The
trainer never requests a film, so the pictures of all episodes stay in these processes. With --trim an environment
removes its pictures at the start of an episode. There are no epochs. (stable-baselines3 #2134, Gymnasium #1444)"""
import multiprocessing

import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag

UPDATES, LENGTH, SIDE, EVERY = (8, 8, 32, 2) if TINY else (205, 24, 64, 2)


class Corridor:
    """An agent walks between two walls towards a door."""

    def __init__(self, seed, trim):
        self.rng, self.trim, self.film = np.random.default_rng(seed), trim, []

    def reset(self):
        if self.trim:
            self.film.clear()
        self.place, self.door, self.time = int(self.rng.integers(0, 16)), int(self.rng.integers(0, 16)), 0
        return self.seen()

    def step(self, action):
        self.place = min(15, max(0, self.place + action - 1))
        self.time += 1
        if self.time % EVERY == 0:
            self.film.append(self.picture())
        return self.seen(), float(self.place == self.door), self.time == LENGTH

    def seen(self):
        view = np.zeros(32, np.float32)
        view[self.place], view[16 + self.door] = 1, 1
        return view

    def picture(self):
        picture, size = np.full((SIDE, SIDE, 3), 40, np.uint8), SIDE // 16
        picture[:size, self.door * size:(self.door + 1) * size] = 0, 200, 80
        at = self.time * size % SIDE
        picture[at:at + size, self.place * size:(self.place + 1) * size] = 250, 120, 0
        return picture


def environment(pipe, seed, trim):
    env = Corridor(seed, trim)
    while (request := pipe.recv()) is not None:
        name, argument = request
        if name == "reset":
            pipe.send(env.reset())
        elif name == "step":
            pipe.send(env.step(argument))
        elif name == "film":
            pipe.send(np.stack(env.film) if env.film else None)
            env.film.clear()
        else:
            pipe.send(sum(picture.nbytes for picture in env.film))


class Environments:
    """Environments that are stepped together."""

    def __init__(self, count, trim):
        context = multiprocessing.get_context("fork")
        self.pipes, self.processes = [], []
        for seed in range(count):
            here, there = context.Pipe()
            self.processes.append(context.Process(target=environment, args=(there, seed, trim), daemon=True))
            self.processes[-1].start()
            self.pipes.append(here)

    def ask(self, name, arguments=None):
        for pipe, argument in zip(self.pipes, arguments or [None] * len(self.pipes)):
            pipe.send((name, argument))
        return [pipe.recv() for pipe in self.pipes]

    def close(self):
        for pipe, process in zip(self.pipes, self.processes):
            pipe.send(None)
            process.join()


def rollout(envs, policy):
    seen, done, chosen, rewards = envs.ask("reset"), False, [], []
    while not done:
        choice = torch.distributions.Categorical(logits=policy(torch.from_numpy(np.stack(seen))))
        actions = choice.sample()
        answers = envs.ask("step", actions.tolist())
        seen, done = [answer[0] for answer in answers], answers[0][2]
        chosen.append(choice.log_prob(actions))
        rewards.append([answer[1] for answer in answers])
    gains = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    return -(torch.stack(chosen) * (gains - gains.mean())).mean()


def main():
    torch.manual_seed(36)
    torch.set_num_threads(1)
    envs = Environments(2, flag("--trim"))
    policy = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3))
    best = torch.optim.Adam(policy.parameters(), 1e-3)
    tally = Tally(0.21)
    for n in range(1, UPDATES + 1):
        loss = rollout(envs, policy)
        best.zero_grad()
        loss.backward()
        best.step()
        tally.step(n, sum(envs.ask("size")))
    envs.close()
    tally.end()


if __name__ == "__main__":
    main()
