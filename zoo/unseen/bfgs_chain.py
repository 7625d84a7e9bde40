"""A structure is relaxed with hand-written BFGS and forces from autograd. The inverse Hessian is built from positions
that require gradients, and so keeps the graphs of all earlier steps alive. --detach removes these graphs. There is no
torch optimizer and there are no epochs."""
import torch

from tally import TINY, Tally, flag, marks

STEPS, ATOMS = (8, 20) if TINY else (190, 72)
SIZE = 3 * ATOMS


def energy(positions, springs):
    points = positions.view(ATOMS, 3)
    distances = ((points[:, None] - points[None, :]) ** 2).sum(-1)
    return (springs * (distances - 1.0) ** 2).sum() / ATOMS


class Relaxation:
    def __init__(self, springs, detach):
        self.springs, self.detach = springs, detach
        self.positions = torch.randn(SIZE, requires_grad=True)
        self.inverse = torch.eye(SIZE) * 1e-3
        self.forces = self.compute_forces()

    def compute_forces(self):
        return -torch.autograd.grad(energy(self.positions, self.springs), self.positions)[0]

    def update(self, moved, change):
        """Applies a rank-two update. For each division, the autograd graph saves a matrix."""
        turned = self.inverse @ change
        scale = (moved @ change).abs() + 1e-3
        inverse = (self.inverse + torch.outer(moved, moved) / scale
                   - torch.outer(turned, turned) / ((change @ turned).abs() + 1e-3)) * 0.999
        self.inverse = inverse.detach() if self.detach else inverse

    def step(self):
        before, forces = self.positions, self.forces
        move = (self.inverse @ forces).detach().clamp(-0.02, 0.02)
        self.positions = (before.detach() + move).requires_grad_(True)
        self.forces = self.compute_forces()
        self.update(self.positions - before.detach(), (forces - self.forces).detach())


def main():
    torch.manual_seed(17)
    torch.set_num_threads(1)
    springs = torch.rand(ATOMS, ATOMS)
    ebb, tally, relaxation = marks(), Tally(0.205), Relaxation((springs + springs.T) * 0.1, flag("--detach"))
    per_step = 0 if relaxation.detach else 2 * SIZE * SIZE * 4
    for n in range(1, STEPS + 1):
        relaxation.step()
        tally.step(n, per_step * n)
        ebb.step(n, max_steps=STEPS)
    tally.end()


if __name__ == "__main__":
    main()
