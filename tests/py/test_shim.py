"""Tests the shim that `ebb run` puts on PYTHONPATH: which programs it hooks, and what it must not
change. Most tests use a fake torch that contains only the hooked functions."""

import os
import shutil
import socket
import subprocess
import sys
import zipapp

import pytest

from jobs import PACKAGE, PATIENCE_S, SHIM, binary, environment

OPTIMIZER = """
_hooks = []

def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)

class Optimizer:
    state = {}

    def step(self):
        for hook in _hooks:
            hook(self, (), {})
"""

DATALOADER = """
class _BaseDataLoaderIter:
    def __init__(self, data):
        self._data = iter(data)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._data)

    next = __next__  # for Python 2

class DataLoader:
    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    def __iter__(self):
        return _BaseDataLoaderIter(self._data)
"""

TRAIN = """
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import DataLoader

def main():
    optimizer = Optimizer()
    for epoch in range(2):
        for batch in DataLoader([1, 2, 3]):
            optimizer.step()
    print("trained")

if __name__ == "__main__":
    main()
"""

EXPECTED = [("begin", 0), ("step", 1), ("step", 2), ("step", 3), ("epoch", 3), ("step", 4),
            ("step", 5), ("step", 6), ("epoch", 6), ("end", 6)]


@pytest.fixture
def project(tmp_path):
    """Returns a folder with train.py and a fake torch."""
    folder = tmp_path / "project"
    for package in ("torch", "torch/optim", "torch/utils", "torch/utils/data"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text("")
    (folder / "torch/__init__.py").write_text("def is_grad_enabled():\n    return True\n")
    (folder / "torch/optim/optimizer.py").write_text(OPTIMIZER)
    (folder / "torch/utils/data/dataloader.py").write_text(DATALOADER)
    (folder / "train.py").write_text(TRAIN)
    return folder


def short(run):
    return [(m["kind"], m["step"]) for m in run.marks("begin", "step", "epoch", "end")]


def test_shim_sends_steps_and_epochs_of_a_script(run_job, project):
    run = run_job(sys.executable, project / "train.py")
    assert (run.status, run.stdout, run.stderr) == (0, "trained\n", "")
    assert short(run) == EXPECTED
    assert [m.get("steps_per_epoch") for m in run.marks("epoch")] == [3, 3]


def test_shim_sends_steps_of_a_module_started_with_python_m(run_job, project):
    run = run_job(sys.executable, "-m", "train", cwd=project)
    assert short(run) == EXPECTED


def test_shim_sends_steps_of_a_console_script(run_job, project):
    script = project / "train"
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(project)!r})\n"
                      "from train import main\nmain()\n")
    script.chmod(0o755)
    assert short(run_job(script)) == EXPECTED


def test_shim_sends_steps_of_a_zipped_application(run_job, project, tmp_path):
    archive = tmp_path / "train.pyz"
    zipapp.create_archive(project, archive, main="train:main")
    assert short(run_job(sys.executable, archive)) == EXPECTED


def test_shim_sends_steps_of_a_python_that_the_job_starts(run_job, project):
    run = run_job("sh", "-c", '"$0" -c "" && "$0" train.py', sys.executable, cwd=project)
    assert short(run) == EXPECTED


def test_shim_in_a_venv_sends_steps_and_runs_the_venv_sitecustomize(run_job, project,
                                                                            tmp_path):
    made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"],
                          env=environment(), timeout=PATIENCE_S)
    if made.returncode != 0:
        pytest.skip("this Python makes no virtual environments")
    site = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    (site / "sitecustomize.py").write_text("print('of the environment')\n")
    command = [tmp_path / "venv/bin/python", project / "train.py"]
    plain = subprocess.run(command, env=environment(), text=True, stdout=subprocess.PIPE,
                           timeout=PATIENCE_S)
    run = run_job(*command)
    # if the system has its own sitecustomize, it precedes that of the venv
    assert run.stdout == plain.stdout
    assert short(run) == EXPECTED


# ---- the shim changes nothing for the user ----

LOOK = "import sys; print(getattr(sys.modules.get('sitecustomize'), 'whose', None))"


def with_and_without(run_job, tmp_path, text, *arguments):
    """Runs Python with a sitecustomize.py that contains TEXT, without and with ebb."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text(text)
    env = {"PYTHONPATH": tmp_path / "own"}
    plain = subprocess.run([sys.executable, *arguments], env=environment(env), text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
                           timeout=PATIENCE_S)
    run = run_job(sys.executable, *arguments, env=env)
    return (run.status, run.stdout, run.stderr), (plain.returncode, plain.stdout, plain.stderr)


def test_shim_also_runs_the_sitecustomize_of_the_user(run_job, tmp_path):
    ours, plain = with_and_without(run_job, tmp_path, "whose = 'mine'\n", "-c", LOOK)
    assert ours == plain == (0, "mine\n", "")


@pytest.mark.parametrize("text, word", [
    ("raise RuntimeError('tide')\n", "RuntimeError: tide"),
    ("import nowhere_at_all\n", "nowhere_at_all"),
    ("def (:\n", "SyntaxError"),
])
def test_error_in_sitecustomize_of_the_user_is_reported(run_job, tmp_path, text, word):
    ours, plain = with_and_without(run_job, tmp_path, text, "-c", LOOK)
    assert ours == plain
    assert word in ours[2]


def test_shim_is_not_visible_as_a_sitecustomize_module(run_job):
    run = run_job(sys.executable, "-c", "import sys; print('sitecustomize' in sys.modules)",
                  env={"PYTHONNOUSERSITE": "1"})
    code = "import sys; print('sitecustomize' in sys.modules)"
    plain = subprocess.run([sys.executable, "-c", code],
                           env=environment({"PYTHONNOUSERSITE": "1"}), text=True,
                           stdout=subprocess.PIPE, timeout=PATIENCE_S)
    assert run.stdout == plain.stdout


def test_shim_does_not_change_sys_path(run_job, tmp_path):
    look = [sys.executable, "-c", "import sys; print(sys.path)"]
    run = run_job(*look, env={"PYTHONPATH": "/nowhere:/elsewhere"})
    plain = subprocess.run(look, env=environment({"PYTHONPATH": "/nowhere:/elsewhere"}), text=True,
                           stdout=subprocess.PIPE, cwd=tmp_path, timeout=PATIENCE_S)
    assert run.stdout == plain.stdout


def test_shim_imports_few_modules_at_interpreter_start(run_job, tmp_path):
    look = [sys.executable, "-c", "import sys; print('\\n'.join(sorted(sys.modules)))"]
    run = run_job(*look)
    plain = subprocess.run(look, env=environment(), text=True, stdout=subprocess.PIPE, cwd=tmp_path,
                           timeout=PATIENCE_S)
    assert set(run.stdout.split()) == set(plain.stdout.split())


def test_helper_thread_is_not_the_first_to_import_threading(run_job):
    """Python treats the first thread that imports threading as the main thread, and waits for that
    thread at exit."""
    code = """if True:
        import sys, time
        blocks = [bytearray(1 << 20) for _ in range(80)]
        end = time.monotonic() + 60
        while "threading" not in sys.modules and time.monotonic() < end:
            time.sleep(0.05)
        import threading
        print(threading.current_thread() is threading.main_thread(), time.monotonic() < end)
    """
    run = run_job(sys.executable, "-c", code)
    assert run.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_python_in_isolated_mode_runs_without_the_shim(run_job, flag):
    look = "import sys; print([f for f in sys.meta_path if f.__class__ is type and "\
           "f.__name__.startswith('_')])"
    run = run_job(sys.executable, flag, "-c", look)
    assert (run.status, run.stdout, run.stderr) == (0, "[]\n", "")


def other_pythons():
    """Returns other Python versions: those with the usual names, and those in folders of version
    managers."""
    found = {}
    home = os.path.expanduser("~/.pyenv/versions")
    managed = sorted(os.listdir(home)) if os.path.isdir(home) else []
    names = ["python2.7"] + [f"python3.{minor}" for minor in range(6, 15)]
    for path in [os.path.join(home, v, "bin", "python") for v in managed] + names:
        path = shutil.which(path)
        if not path:
            continue
        shown = subprocess.run([path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env=environment(), timeout=PATIENCE_S)
        if shown.returncode == 0:
            found.setdefault(shown.stdout.strip(), path)
    return found


def test_shim_sends_steps_only_in_supported_python_versions(run_job, project):
    pythons = other_pythons()
    if not pythons:
        pytest.skip("there is no other Python on this machine")
    for version, path in pythons.items():
        run = run_job(path, project / "train.py", env={"PYTHONNOUSERSITE": "1"})
        assert (run.status, run.stdout, run.stderr) == (0, "trained\n", ""), version
        is_new = tuple(map(int, version.split("."))) >= (3, 9)
        assert short(run) == (EXPECTED if is_new else []), version


# ---- the package ----

def test_ebb_package_can_be_imported_in_a_job_without_installation(run_job, project):
    run = run_job(sys.executable, "-c", "import ebb; print(ebb.__file__)")
    if "site-packages" not in run.stdout:
        assert run.stdout == f"{PACKAGE / 'ebb' / '__init__.py'}\n"
    assert run.status == 0


def test_user_module_named_ebb_is_imported_instead_of_the_package(run_job, project):
    (project / "ebb.py").write_text("print('mine')\nwhose = 'mine'\n")
    (project / "train.py").write_text(TRAIN + "    import ebb\n    print(ebb.whose)\n")
    run = run_job(sys.executable, project / "train.py")
    # The order of the output shows that the shim did not import the user's ebb module before the
    # program did.
    assert (run.stdout, run.stderr) == ("trained\nmine\nmine\n", "")
    assert short(run) == EXPECTED


def test_shim_does_not_replace_an_imported_user_module_named_ebb(run_job, project):
    (project / "train.py").write_text("import sys, types\nebb = types.ModuleType('ebb')\n"
                                      "sys.modules['ebb'] = ebb\n" + TRAIN +
                                      "    assert sys.modules['ebb'] is ebb\n")
    run = run_job(sys.executable, project / "train.py")
    assert (run.status, run.stderr) == (0, "")
    assert short(run) == EXPECTED


def test_shim_sends_no_steps_if_the_job_sends_steps_itself(run_job, project):
    (project / "train.py").write_text(TRAIN.replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n            ebb.step(batch + 100)\n").replace(
        "def main", "import ebb\n\ndef main"))
    run = run_job(sys.executable, project / "train.py")
    assert short(run) == [("step", n) for n in (101, 102, 103, 101, 102, 103)]


# ---- without the shim ----

@pytest.mark.parametrize("options, env", [(["--no-shim"], {}), ([], {"EBB_SHIM": "0"})])
def test_shim_can_be_disabled_by_an_option_or_a_variable(run_job, project, options, env):
    run = run_job(sys.executable, project / "train.py", options=options, env=env)
    assert (run.status, run.stdout) == (0, "trained\n")
    assert run.marks() == []
    look = [sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))"]
    assert run_job(*look, options=options, env=env).stdout == "None\n"


def test_nested_run_with_option_no_shim_sends_no_marks(run_job, project, tmp_path):
    run = run_job(binary(), "run", "-q", "-d", tmp_path / "inner", "--no-shim", "--",
                  sys.executable, project / "train.py")
    assert (run.status, run.stdout) == (0, "trained\n")
    run.folder = tmp_path / "inner"
    assert run.marks() == []


def run_by_hand(project, socket_path):
    env = environment({"PYTHONPATH": SHIM, "EBB_SOCKET": socket_path})
    return subprocess.run([sys.executable, project / "train.py"], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)


@pytest.mark.parametrize("path", [None, "", "/nonexistent/marks", "x" * 300])
def test_job_without_a_mark_socket_runs_to_its_end(project, path):
    result = run_by_hand(project, path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")


def test_job_finishes_after_its_mark_socket_is_removed(project, tmp_path):
    path = tmp_path / "marks"
    (project / "train.py").write_text(TRAIN.replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n            if epoch == 1: gone()\n").replace(
        "def main", f"import os\ndef gone():\n    if os.path.exists({str(path)!r}):\n"
                    f"        os.unlink({str(path)!r})\n\ndef main"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        result = run_by_hand(project, path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")


def test_job_finishes_after_the_mark_receiver_is_closed(project, tmp_path):
    path = tmp_path / "marks"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
    result = run_by_hand(project, path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")


def test_job_finishes_while_the_mark_receiver_is_stuck(project, tmp_path):
    path = tmp_path / "marks"
    (project / "train.py").write_text(TRAIN.replace("[1, 2, 3]", "range(20000)"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        # If each of the 40,000 steps waited for the receiver, the job would take hours.
        result = run_by_hand(project, path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")


@pytest.mark.parametrize("missing", ["_watch.py", "_hooks.py", "_steps.py", "__init__.py"])
def test_job_finishes_even_if_the_ebb_installation_is_incomplete(project, tmp_path, missing):
    shutil.copytree(PACKAGE / "ebb", tmp_path / "ebb")
    (tmp_path / "ebb" / missing).unlink()
    env = environment({"PYTHONPATH": tmp_path / "ebb/_shim", "EBB_SOCKET": tmp_path / "marks"})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "marks"))
        result = subprocess.run([sys.executable, project / "train.py"], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S)
    assert (result.returncode, result.stdout, result.stderr) == (0, "trained\n", "")


def test_guard_sees_progress_of_a_restarted_job_counting_from_zero(run_job, project):
    (project / "train.py").write_text("""
import os, sys, time
from torch.optim.optimizer import Optimizer

optimizer = Optimizer()
for _ in range((8, 6, 1)[int(os.environ["EBB_SEGMENT"])]):
    optimizer.step()
if os.environ["EBB_SEGMENT"] == "2":
    sys.exit("through")
time.sleep(200)  # until the guard has had enough
""")
    run = run_job(sys.executable, project / "train.py",
                  options=["--restart-every", "5steps", "--checkpoint-cmd", "true", "-i", "100ms"])
    assert (run.status, run.stderr.splitlines()[-1]) == (1, "through")
    assert {m.get("counted") for m in run.marks("step", step=2)} == {None, "1"}


# ---- unknown versions of torch ----

def test_shim_does_not_change_a_torch_without_optimizer_hooks(run_job, project):
    (project / "torch/optim/optimizer.py").write_text(
        "class Optimizer:\n    def step(self):\n        pass\n")
    run = run_job(sys.executable, project / "train.py")
    assert (run.status, run.stdout, run.stderr) == (0, "trained\n", "")
    assert run.marks("step") == []


@pytest.mark.parametrize("options, env", [((), {"EBB_VERBOSE": "1"}), (["--verbose"], {})])
def test_option_verbose_reports_a_failed_hook_in_one_line(run_job, project, options,
                                                                      env):
    (project / "torch/optim/optimizer.py").write_text(
        "class Optimizer:\n    def step(self):\n        pass\n")
    run = run_job(sys.executable, project / "train.py", options=options, env=env)
    lines = [line for line in run.stderr.splitlines() if "torch.optim.optimizer" in line]
    assert len(lines) == 1 and lines[0].startswith("ebb: ")
    assert run.stdout == "trained\n"


def test_shim_does_not_hide_an_import_error_of_torch(run_job, project):
    (project / "torch/optim/optimizer.py").write_text("raise ImportError('broken build')\n")
    run = run_job(sys.executable, project / "train.py")
    assert run.status == 1
    assert run.stderr.endswith("ImportError: broken build\n")


def test_shim_does_not_change_data_loader_exceptions(run_job, project):
    data = """
class Data:
    def __len__(self):
        raise RuntimeError("no length")

    def __iter__(self):
        yield 1
        raise ValueError("bad example")
"""
    (project / "train.py").write_text(data + TRAIN.replace("[1, 2, 3]", "Data()"))
    run = run_job(sys.executable, project / "train.py")
    assert run.status == 1
    assert run.stderr.endswith("ValueError: bad example\n")
    assert run.marks("epoch") == []


# ---- location of the shim ----

@pytest.mark.parametrize("place", ["share/ebb/python/ebb", "lib/python3.12/site-packages/ebb",
                                   "ebb"])
def test_shim_is_found_next_to_an_installed_program(tmp_path, place):
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(binary(), prefix / "bin/ebb")
    shutil.copytree(PACKAGE / "ebb", prefix / place)
    result = subprocess.run([prefix / "bin/ebb", "run", "-q", "--no-record", "--", "sh", "-c",
                             "echo $PYTHONPATH"], env=environment({"PYTHONPATH": "/mine:"}),
                            text=True, stdout=subprocess.PIPE, timeout=PATIENCE_S)
    assert result.stdout == f"{prefix / place / '_shim'}:/mine:\n"


def test_pythonpath_is_unchanged_if_the_shim_is_missing(tmp_path):
    (tmp_path / "a/b/bin").mkdir(parents=True)
    shutil.copy(binary(), tmp_path / "a/b/bin/ebb")
    result = subprocess.run([tmp_path / "a/b/bin/ebb", "run", "-q", "--no-record", "--", "sh", "-c",
                             "echo ${PYTHONPATH-unset}"], env=environment(), text=True,
                            stdout=subprocess.PIPE, timeout=PATIENCE_S)
    assert result.stdout == "unset\n"
