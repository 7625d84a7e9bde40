"""Policy gradients in a small game. Each episode wraps the environment once more to record it, so all recorders stay
alive, each with its pictures. --once wraps it only before the training. (Gymnasium #1377)"""
import numpy as np
import torch
from torch import nn

from tally import TINY, Tally, flag, marks

EPISODES, LENGTH, SIDE, LAST = (8, 12, 32, 12) if TINY else (200, 48, 64, 40)


class Catch:
    """A game in which a bat catches a falling ball."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.ball, self.bat, self.time = self.rng.integers(0, 16, 2), 8, 0
        return self.draw()

    def step(self, action):
        self.bat = int(np.clip(self.bat + action - 1, 0, 15))
        self.ball[1] = (self.ball[1] + 1) % 16
        self.time += 1
        caught = float(self.ball[1] == 0 and abs(self.ball[0] - self.bat) < 2)
        return self.draw(), caught, self.time == LENGTH

    def draw(self):
        picture, size = np.zeros((SIDE, SIDE, 3), np.uint8), SIDE // 16
        x, y = self.ball * size
        picture[y:y + size, x:x + size] = 255, 80, 0
        picture[-size:, self.bat * size:(self.bat + 2) * size] = 0, 160, 255
        return picture


class Record:
    """Keeps the last pictures of an episode, for a film."""

    def __init__(self, env):
        self.env, self.film, self.at = env, np.zeros((LAST, SIDE, SIDE, 3), np.uint8), 0

    def reset(self):
        return self.keep(self.env.reset())

    def step(self, action):
        picture, reward, done = self.env.step(action)
        return self.keep(picture), reward, done

    def keep(self, picture):
        self.film[self.at % LAST] = picture
        self.at += 1
        return picture


def play(env, policy):
    """Returns the loss of one episode."""
    picture, done, chosen, rewards = env.reset(), False, [], []
    while not done:
        seen = torch.from_numpy(picture[::4, ::4].astype(np.float32) / 255).flatten()
        choice = torch.distributions.Categorical(logits=policy(seen))
        action = choice.sample()
        picture, reward, done = env.step(action.item())
        chosen.append(choice.log_prob(action))
        rewards.append(reward)
    gains = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    return -(torch.stack(chosen) * (gains - gains.mean())).mean()


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(SIDE * SIDE // 16 * 3, 128), nn.ReLU(), nn.Linear(128, 3))
    best = torch.optim.Adam(policy.parameters(), 1e-3)
    env, once, films = Catch(8), flag("--once"), 0
    if once:
        env = Record(env)
    ebb, tally = marks(), Tally(0.21)
    for n in range(1, EPISODES + 1):
        if not once:
            env = Record(env)
            films += env.film.nbytes
        loss = play(env, policy)
        best.zero_grad()
        loss.backward()
        best.step()
        tally.step(n, films)
        ebb.step(n)
    tally.end()


if __name__ == "__main__":
    main()
