"""Tests how steps are counted in frameworks other than torch, with the real packages. Tests whose
package is missing are skipped; `make test-frameworks` installs all packages."""

import importlib.util
import json
import subprocess
import sys
import types

import pytest

from jobs import PATIENCE_S, binary


def needs(*packages):
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.fixture
def train(run_job, tmp_path):
    """Runs a script, which must print nothing about ebb."""
    def run(text, env=None, **more):
        (tmp_path / "train.py").write_text(text)
        result = run_job(sys.executable, tmp_path / "train.py",
                         env={"EBB_VERBOSE": "1", **(env or {})}, **more)
        assert result.status == 0, result.stderr
        assert [line for line in result.stderr.splitlines() if line.startswith("ebb: ")] == []
        return result
    return run


def source(run):
    return [m["source"] for m in run.marks("begin") if "source" in m]


def steps(run):
    return [m["step"] for m in run.marks("step")]


def rising(n):
    return list(range(1, n + 1))


# ---- gradient boosting ----

ROWS = """
import numpy as np
x, y = np.random.rand(64, 4), np.random.rand(64)
"""


def test_each_xgboost_round_is_counted_as_a_step(train):
    needs("xgboost")
    run = train(ROWS + """
import xgboost
data = xgboost.DMatrix(x, y)
xgboost.train({"max_depth": 2, "nthread": 1}, data, num_boost_round=6,
              obj=lambda p, d: (p - d.get_label(), np.ones_like(p)))
""")
    assert (steps(run), source(run)) == (rising(6), ["xgboost"])


def test_xgboost_estimator_and_manual_loop_send_steps(train):
    needs("xgboost", "sklearn")
    run = train(ROWS + """
import xgboost
xgboost.XGBRegressor(n_estimators=4, max_depth=2, n_jobs=1).fit(x, y)
data = xgboost.DMatrix(x, y)
booster = xgboost.Booster({"max_depth": 2, "nthread": 1}, [data])
for i in range(3):
    booster.update(data, i)
""")
    assert steps(run) == rising(7)


def test_each_lightgbm_iteration_is_counted_as_a_step(train):
    needs("lightgbm")
    run = train(ROWS + """
import lightgbm
data = lightgbm.Dataset(x, y)
lightgbm.train({"verbose": -1, "num_threads": 1}, data, num_boost_round=5)
""")
    assert (steps(run), source(run)) == (rising(5), ["lightgbm"])


# ---- scikit-learn ----


def test_each_partial_fit_call_is_counted_as_a_step(train):
    needs("sklearn")
    run = train(ROWS + """
from sklearn.linear_model import SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
model = OneVsRestClassifier(SGDClassifier())  # fits a model for each class inside
for _ in range(5):
    model.partial_fit(x, [i % 3 for i in range(64)], classes=[0, 1, 2])
""")
    assert (steps(run), source(run)) == (rising(5), ["sklearn"])


def test_partial_fit_in_a_worker_process_sends_no_steps(train):
    needs("sklearn")
    run = train(ROWS + """
import multiprocessing
from sklearn.preprocessing import StandardScaler

def work(_):
    scaler = StandardScaler()
    for _ in range(5):
        scaler.partial_fit(x)

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            pool.map(work, range(2))
""")
    assert run.marks("begin", "step") == []


def test_partial_fit_calls_are_not_counted_after_the_first_torch_step(train):
    needs("sklearn", "torch")
    run = train(ROWS + """
import torch
from sklearn.preprocessing import StandardScaler
scaler = StandardScaler()
for _ in range(4):
    scaler.partial_fit(x)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    scaler.partial_fit(x)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
""")
    # The first partial_fit comes before the first torch step, so it is still counted.
    assert steps(run) == [*rising(5), *rising(3)]
    assert source(run) == ["sklearn", "torch"]
    assert [m["step"] for m in run.marks("begin")] == [0, 0]
    assert [m["step"] for m in run.marks("end")] == [5, 3]


def test_partial_fit_calls_are_not_counted_after_the_job_sends_steps(train):
    needs("sklearn")
    run = train(ROWS + """
import ebb
from sklearn.preprocessing import StandardScaler
for _ in range(4):
    StandardScaler().partial_fit(x)
scaler = StandardScaler()
for _ in range(4):
    scaler.partial_fit(x)
for n in range(1, 4):
    scaler.partial_fit(x)
    ebb.step(n)
""")
    assert steps(run)[-3:] == rising(3)
    assert len(run.marks("end")) == 1


# ---- Keras ----

KERAS = """
import keras, numpy as np
x, y = np.random.rand(20, 4), np.random.rand(20, 1)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse", steps_per_execution=PER)
model.fit(x, y, batch_size=4, epochs=3, verbose=0, validation_data=(x, y))
"""
BACKENDS = ("tensorflow", "jax", "torch")


@pytest.mark.parametrize("backend, per", [("tensorflow", 1), ("tensorflow", 2), ("jax", 1),
                                          ("jax", 2), ("torch", 1)])
def test_keras_fit_sends_steps_epochs_and_evaluations(train, backend, per):
    needs("keras", backend)
    run = train(KERAS.replace("PER", str(per)), env={"KERAS_BACKEND": backend})
    assert (steps(run), source(run)) == (rising(15), ["keras"])
    assert [m["step"] for m in run.marks("epoch")] == [5, 10, 15]
    assert {m["steps_per_epoch"] for m in run.marks("epoch")} == {5}
    assert len(run.marks("eval")) == 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_keras_call_of_train_on_batch_is_counted_as_a_step(train, backend):
    needs("keras", backend)
    text = KERAS.replace("PER", "1").splitlines()
    text[-1] = "for _ in range(6): model.train_on_batch(x, y)"
    run = train("\n".join(text), env={"KERAS_BACKEND": backend})
    assert steps(run) == rising(6)


# ---- JAX ----

JAX = """
import jax, jax.numpy as jnp, optax
tx = optax.adam(0.01)
params = {"w": jnp.ones(4)}
state = tx.init(params)

def loss(params, x):
    return ((x @ params["w"]) ** 2).mean()

def step(params, state, x):
    updates, state = tx.update(jax.grad(loss)(params, x), state, params)
    return optax.apply_updates(params, updates), state

x = jnp.ones((3, 4))
"""


@pytest.mark.parametrize("made", ["step", "jax.jit(step)",
                                  "jax.jit(lambda *a: jax.jit(step)(*a))",
                                  "jax.jit(functools.partial(step))"])
def test_optax_update_is_counted_as_a_step(train, made):
    needs("jax", "optax")
    run = train("import functools\n" + JAX + f"""
f = {made}
for _ in range(7):
    params, state = f(params, state, x)
    float(jax.jit(loss)(params, x))  # compiled, and no step
""")
    assert (steps(run), source(run)) == (rising(7), ["jax"])


def test_option_jax_debug_nans_works_while_steps_are_counted(run_job, tmp_path):
    needs("jax", "optax")
    (tmp_path / "train.py").write_text("""
import jax
jax.config.update("jax_debug_nans", True)
""" + JAX + """
f = jax.jit(step)
for _ in range(3):
    params, state = f(params, state, x)
f(params, state, x * float("inf"))
""")
    run = run_job(sys.executable, tmp_path / "train.py")
    assert "FloatingPointError" in run.stderr
    assert steps(run)[:3] == rising(3)


# ---- launchers and engines on top of torch ----


def test_deepspeed_engine_step_is_counted_as_one_step(train):
    needs("deepspeed", "torch")
    run = train("""
import deepspeed, torch
deepspeed.ops.__compatible_ops__.clear()  # else it compiles one
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
groups = [{"params": list(part.parameters()), "lr": 0.01} for part in model]
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.AdamW(groups),
    config={"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
            "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True})
for _ in range(8):
    engine.backward(engine(torch.randn(2, 4)).sum())
    engine.step()
""", env={"DS_ACCELERATOR": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29577"})
    assert (steps(run), source(run)) == (rising(4), ["deepspeed"])


def test_torchtitan_step_with_two_optimizers_is_counted_once(train):
    needs("torchtitan", "torch")
    run = train("""
import torch
from torchtitan.components.optimizer.optimizer import OptimizersContainer, ParamGroupConfig
parts = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)]
groups = [ParamGroupConfig(pattern="weight", optimizer_name="AdamW", optimizer_kwargs={"lr": 0.1}),
          ParamGroupConfig(pattern="bias", optimizer_name="Adam", optimizer_kwargs={"lr": 0.1})]
config = OptimizersContainer.Config(param_groups=groups, implementation="for-loop")
optimizers = OptimizersContainer(config, model_parts=parts)
for _ in range(5):
    parts[1](parts[0](torch.randn(2, 4))).sum().backward()
    optimizers.step()
    optimizers.zero_grad()
""")
    assert (steps(run), source(run)) == (rising(5), ["torch"])


def test_torchtune_optimizers_in_backward_hooks_count_as_one_step(train):
    needs("torchtune", "torch")
    run = train("""
import torch
from torchtune import training
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
made = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
training.register_optim_in_bwd_hooks(model=model, optim_dict=made)
for _ in range(5):
    model(torch.randn(2, 4)).sum().backward()
""")
    assert (steps(run), source(run)) == (rising(5), ["torch"])


def test_ray_train_workers_send_steps_with_their_rank(train):
    needs("ray", "torch")
    run = train("""
import os, ray, torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def loop():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()

ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False)
TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2),
             run_config=RunConfig(storage_path=os.path.abspath("out"))).fit()
ray.shutdown()
""", env={"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled",
          "RAY_raylet_start_wait_time_s": "240"})
    for rank in (0, 1):
        assert [m["step"] for m in run.marks("step", rank=rank)] == rising(5)


# ---- tqdm ----

# Makes ebb count the steps of a tqdm bar from its start, and read the bar at every update.
TQDM = """
import ebb._bars
ebb._bars._WORTH_S = ebb._bars._APART_S = 0.0
from tqdm import tqdm
"""


def counts(run):
    """Returns the number of steps between the first and the last mark."""
    marks = run.marks("begin", "step")
    return marks[-1]["step"] if marks else 0


def test_steps_counted_by_a_tqdm_bar_have_tqdm_as_their_source(train):
    needs("tqdm")
    run = train(TQDM + """
for _ in tqdm(range(300), mininterval=0):
    pass
""")
    assert (counts(run), source(run)) == (300, ["tqdm"])
    assert json.loads((run.folder / "run.json").read_text())["marks"]["source"] == "tqdm"
    shown = subprocess.run([binary(), "show", run.folder], text=True, stdout=subprocess.PIPE,
                           check=True, timeout=PATIENCE_S).stdout
    assert "300 steps of a tqdm bar" in " ".join(shown.split())


class Bar:
    """A fake progress bar with the attributes that the hooks read."""
    disable, unit_scale, unit, initial = False, False, "it", 0

    def __init__(self, now):
        self.n, self.start_t = 0, now


@pytest.fixture
def bars(monkeypatch):
    """Returns a Bars object, a clock that the test controls, and a list of the counts passed to the
    tracker."""
    from ebb import _bars

    found = []
    tracker = types.SimpleNamespace(source="tqdm", restart=lambda: found.append("restart"),
                                    on_count=lambda source, n, seconds: found.append(n))
    clock = types.SimpleNamespace(now=0.0)
    clock.monotonic = clock.time = lambda: clock.now
    monkeypatch.setattr(_bars, "time", clock)
    return _bars.Bars(tracker), clock, found


def test_tqdm_counting_switches_to_the_loop_that_has_run_longest(bars):
    read, clock, found = bars

    def loading(bar):
        read.on_close(bar)

    def training(bar):
        read.on_close(bar)

    for begin, loop, seconds in ((0, loading, 8), (10, training, 6), (20, training, 6)):
        bar = Bar(begin)
        bar.n, clock.now = 100, begin + seconds
        loop(bar)
    assert found == [100, "restart", 100]


def test_outer_tqdm_bar_updated_after_an_inner_bar_is_not_counted(bars):
    read, clock, found = bars
    outer = Bar(0)
    for epoch in range(3):
        inner = Bar(clock.now + 1)
        inner.n, clock.now = 50, clock.now + 11
        read.on_close(inner)
        outer.n += 1
        read.on_close(outer)
    assert found == [50, 50, 50]


def test_manually_updated_tqdm_bar_counts_steps(train):
    needs("tqdm")
    run = train(TQDM + """
with tqdm(total=40) as bar:
    for _ in range(10):
        bar.update(4)
""")
    assert counts(run) == 40


def test_only_the_inner_of_two_nested_tqdm_bars_counts_steps(train):
    needs("tqdm")
    run = train(TQDM + """
for epoch in tqdm(range(3), mininterval=0):
    for _ in tqdm(range(50), mininterval=0):
        pass
""")
    assert counts(run) == 150


@pytest.mark.parametrize("text", [
    "for _ in tqdm(range(100), mininterval=0, unit='B'): pass",
    "for _ in tqdm(range(100), mininterval=0, disable=True): pass",
])
def test_disabled_tqdm_bars_and_bars_that_count_bytes_send_no_steps(train, text):
    needs("tqdm")
    assert train(TQDM + text).marks("begin", "step") == []


def test_tqdm_bar_that_ends_within_seconds_sends_no_steps(train):
    needs("tqdm")
    head = TQDM.replace("ebb._bars._WORTH_S = ", "")
    run = train(head + "for _ in tqdm(range(100), mininterval=0): pass")
    assert run.marks("begin", "step") == []


def test_tqdm_bar_around_a_torch_loop_sends_no_additional_steps(train):
    needs("tqdm", "torch")
    run = train(TQDM + """
import torch
for _ in tqdm(range(50), mininterval=0, desc="loading"):
    pass
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in tqdm(range(20), mininterval=0):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
""")
    assert source(run) == ["tqdm", "torch"]
    marks = [(m["kind"], m["step"]) for m in run.marks("begin", "step", "end")]
    begin = len(marks) - 1 - marks[::-1].index(("begin", 0))
    assert marks[begin + 1:] == [*(("step", n) for n in rising(20)), ("end", 20)]


# ---- packages with an unexpected structure ----


@pytest.mark.parametrize("package, module", [
    ("xgboost", "core"), ("lightgbm", "basic"), ("sklearn", "base"), ("tqdm", "std"),
    ("optax/_src", "update"), ("keras/src", "callbacks"), ("keras/src/models", "model"),
    ("deepspeed/runtime", "engine"),
])
def test_framework_of_unknown_structure_is_reported_and_not_hooked(
        run_job, tmp_path, package, module):
    folder = tmp_path
    for part in package.split("/"):
        folder = folder / part
        folder.mkdir()
        (folder / "__init__.py").write_text("")
    (folder / f"{module}.py").write_text("class tqdm: pass\n")
    name = f"{package.replace('/', '.')}.{module}"
    code = f"import sys; sys.path.insert(0, '.'); import {name}; print('fine')"
    run = run_job(sys.executable, "-c", code, env={"EBB_VERBOSE": "1"})
    assert (run.status, run.stdout) == (0, "fine\n")
    assert run.stderr.count("\n") == 1 and run.stderr.startswith(f"ebb: no marks from {name}: ")
    quiet = run_job(sys.executable, "-c", code)
    assert (quiet.stdout, quiet.stderr) == ("fine\n", "")


def test_error_in_a_framework_hook_does_not_reach_the_job(run_job, tmp_path):
    needs("tqdm")
    (tmp_path / "train.py").write_text(TQDM + """
ebb._bars.Bars._read = lambda *_: 1 / 0
for _ in tqdm(range(30), mininterval=0, file=open("out", "w")):
    pass
print("fine")
""")
    run = run_job(sys.executable, tmp_path / "train.py")
    assert (run.status, run.stdout, run.stderr) == (0, "fine\n", "")
