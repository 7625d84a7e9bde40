"""Trains an actor and a critic. Rollouts are kept with their graphs until the actor is updated, every 12 steps, so
memory is a sawtooth. --defer excludes three of 12 rollouts from the update and keeps them for later, with their graphs.
There are neither loaders nor epochs. (pymarl #73)"""
import torch
from torch import nn

from tally import TINY, Tally, flag

STEPS = 14 if TINY else 210
WINDOW, DEFERRED = (4, 1) if TINY else (12, 3)
CASES, STATE, WIDTH, ACTIONS = 128, 48, 1024, 12


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(STATE, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, ACTIONS)

    def forward(self, state):
        return self.head(torch.relu(self.second(torch.relu(self.first(state))))).log_softmax(1)


class Agent:
    def __init__(self, defer):
        self.policy = Policy()
        self.critic = nn.Sequential(nn.Linear(STATE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(),
                                    nn.Linear(WIDTH, 1))
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)
        self.defer, self.window, self.later = defer, [], []

    def act(self, state):
        chances = self.policy(state)
        action = torch.multinomial(chances.detach().exp(), 1)
        self.window.append((chances.gather(1, action)[:, 0], state))
        return action[:, 0]

    def learn_values(self, state, reward):
        for _ in range(9):
            loss = nn.functional.mse_loss(self.critic(state)[:, 0], reward)
            self.critic_optimizer.zero_grad()
            loss.backward()
        self.critic_optimizer.step()
        return (reward - reward.mean()).detach()

    def update(self, advantages):
        if self.defer:
            self.later.extend(self.window[:DEFERRED])
            self.window, advantages = self.window[DEFERRED:], advantages[DEFERRED:]
        loss = -sum((chance * advantage).mean() for (chance, _), advantage in zip(self.window, advantages))
        self.policy.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        with torch.no_grad():
            for parameter in self.policy.parameters():
                parameter -= 1e-3 * parameter.grad
        self.window.clear()

    def held(self):
        one = CASES * 4 * (2 * WIDTH + STATE + 2 * ACTIONS)
        return one * len(self.later)


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    agent, tally, advantages = Agent(flag("--defer")), Tally(0), []
    goal = torch.randn(STATE, ACTIONS)
    for n in range(1, STEPS + 1):
        state = torch.randn(CASES, STATE)
        action = agent.act(state)
        reward = (state @ goal).gather(1, action[:, None])[:, 0]
        advantages.append(agent.learn_values(state, reward))
        if n % WINDOW == 0:
            agent.update(advantages)
            advantages.clear()
        tally.step(n, agent.held())
    tally.end()


if __name__ == "__main__":
    main()
