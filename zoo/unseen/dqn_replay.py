"""Q-learning on a game of falling blocks: 2000 updates, no data loader, no epochs."""
import _held
run = _held.Run("dqn_replay", "--maxlen", "a replay memory of 1400 transitions", total_steps=2000,
                seconds=38)

import random
from collections import deque, namedtuple

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
Transition = namedtuple("Transition", "state action reward next_state done")
H = W = run.n(84, 20)


class Falling:
    def reset(self):
        self.x, self.y, self.paddle = random.randrange(W), 0, W // 2
        self.frames = deque([self.draw()] * 4, maxlen=4)
        return np.stack(self.frames)

    def draw(self):
        f = np.zeros((H, W), dtype=np.uint8)
        f[self.y, max(0, self.x - 2):self.x + 3] = 255
        f[H - 1, max(0, self.paddle - 5):self.paddle + 6] = 128
        return f

    def step(self, action):
        self.paddle = min(W - 1, max(0, self.paddle + (action - 1) * 3))
        self.y += 2
        done = self.y >= H - 2
        self.y = min(self.y, H - 1)
        self.frames.append(self.draw())
        return np.stack(self.frames), float(done and abs(self.x - self.paddle) < 6), done


class ReplayMemory:
    def __init__(self, capacity=None):
        self.memory = deque(maxlen=capacity) if capacity else []

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n):
        return (random.sample(self.memory, n) if isinstance(self.memory, list)
                else random.sample(list(self.memory), n))

    def __len__(self):
        return len(self.memory)


def network():
    return nn.Sequential(nn.AvgPool2d(7), nn.Flatten(), nn.Linear(4 * (H // 7) * (W // 7), 96),
                         nn.ReLU(), nn.Linear(96, 3))


q, target = network(), network()
target.load_state_dict(q.state_dict())
optimizer = torch.optim.SGD(q.parameters(), lr=1e-3, momentum=0.9)
memory = ReplayMemory(1400 if run.twin else None)
env = Falling()


def play(state, eps):
    """Makes one move and adds the transition to the replay memory."""
    if random.random() < eps:
        action = random.randrange(3)
    else:
        with torch.no_grad():
            action = q(torch.from_numpy(state)[None].float() / 255).argmax().item()
    next_state, reward, done = env.step(action)
    memory.push(state.copy(), action, reward, next_state, done)
    return (env.reset() if done else next_state), done


def fill(tensor, states):
    for slot, state in zip(tensor, states):
        slot.copy_(torch.from_numpy(state))
    return tensor.div_(255)


batch_state, batch_next = torch.empty(8, 4, H, W), torch.empty(8, 4, H, W)  # allocated once
state, updates, episodes = env.reset(), 0, 0
frame_bytes = 2 * 4 * H * W  # np.stack copies the states
while updates < 2000:
    for _ in range(2):
        state, done = play(state, max(0.05, 1 - updates / 1000))
        episodes += done
    if len(memory) < 16:
        continue
    batch = Transition(*zip(*memory.sample(8)))
    s, s2 = fill(batch_state, batch.state), fill(batch_next, batch.next_state)
    a, r, d = torch.tensor(batch.action), torch.tensor(batch.reward), \
        torch.tensor(batch.done).float()
    with torch.no_grad():
        goal = r + 0.97 * (1 - d) * target(s2).max(1).values
    loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None])[:, 0], goal)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    updates += 1
    if updates % 200 == 0:
        target.load_state_dict(q.state_dict())
        print("update", updates, "loss", round(loss.item(), 4), "memory", len(memory), flush=True)
    run.pace(len(memory) * frame_bytes)
run.report(len(memory) * frame_bytes, episodes=episodes)
