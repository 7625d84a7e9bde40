"""Tests `ebb mark`, which sends one datagram or prints one error message."""

import os
import socket
import tempfile

import pytest

from commands import refused, refused_with


@pytest.fixture
def receiver():
    """Returns a datagram socket bound to a path short enough for a socket address."""
    with tempfile.TemporaryDirectory(prefix="ebb-", dir="/tmp") as folder:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind(os.path.join(folder, "s"))
            s.settimeout(5)
            yield s


def test_mark_command_sends_all_operands_in_one_mark(ebb, receiver):
    result = ebb("mark", "KIND=step", "STEP=3", "NOTE=a = b, ü",
                 env={"EBB_SOCKET": receiver.getsockname()})
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert receiver.recv(65536).decode() == "KIND=step\nSTEP=3\nNOTE=a = b, ü\n"


def test_mark_socket_option_overrides_the_environment_variable(ebb, receiver):
    result = ebb("mark", "--socket", receiver.getsockname(), "KIND=own-kind",
                 env={"EBB_SOCKET": "/nonexistent"})
    assert result.returncode == 0
    assert receiver.recv(65536) == b"KIND=own-kind\n"


@pytest.mark.parametrize("arguments, sentence", [
    ([], "KEY=VALUE… is missing; usage: ebb mark [OPTION…] KEY=VALUE…"),
    (["-q"], "KEY=VALUE… is missing; usage: ebb mark [OPTION…] KEY=VALUE…"),
    (["STEP=3"], "KIND is missing; write it like KIND=step"),
    (["step"], '"step" is not KEY=VALUE; write it like STEP=3, with the key in capitals'),
    (["kind=step"], '"kind=step" is not KEY=VALUE; write it like STEP=3, with the key in capitals'),
    (["=x"], '"=x" is not KEY=VALUE; write it like STEP=3, with the key in capitals'),
    (["9A=x"], '"9A=x" is not KEY=VALUE; write it like STEP=3, with the key in capitals'),
    (["KIND="], "KIND has no value; write it like KIND=step"),
    (["KIND=step", "STEP=abc"], '"STEP=abc": invalid value for STEP; write it like STEP=3'),
    (["KIND=step", "STEP=-1"], '"STEP=-1": invalid value for STEP; write it like STEP=3'),
    (["KIND=step", "EPOCH=nan"], '"EPOCH=nan": invalid value for EPOCH; write it like EPOCH=3'),
    (["KIND=step", "STEPS_PER_EPOCH=0"], '"STEPS_PER_EPOCH=0": invalid value for STEPS_PER_EPOCH; '
                                         "write it like STEPS_PER_EPOCH=3"),
    (["KIND=step\nSTEP=3"], '"KIND=step\\nSTEP=3" contains a line break; a mark has one line for each '
                            "KEY=VALUE"),
])
def test_invalid_mark_is_refused_and_not_sent(ebb, receiver, arguments, sentence):
    env = {"EBB_SOCKET": receiver.getsockname()}
    assert refused(ebb("mark", *arguments, env=env), f"mark: {sentence}")
    receiver.setblocking(False)
    with pytest.raises(BlockingIOError):
        receiver.recv(1)


def test_mark_command_refuses_an_overlong_mark(ebb, receiver):
    env = {"EBB_SOCKET": receiver.getsockname()}
    assert refused_with(ebb("mark", "KIND=x", "A=" + "y" * 9000, env=env), "at most 8192")
    many = [f"A{i}=" + "y" * 1000 for i in range(9)]
    assert refused_with(ebb("mark", "KIND=x", *many, env=env), "at most 8192")
    assert ebb("mark", "KIND=x", "A=" + "y" * 8000, env=env).returncode == 0


def test_mark_command_fails_outside_a_run_unless_quiet_is_given(ebb):
    for env in ({"EBB_SOCKET": None}, {"EBB_SOCKET": ""}):
        assert refused_with(ebb("mark", "KIND=step", env=env), "EBB_SOCKET is not set", "--quiet")
        result = ebb("mark", "-q", "KIND=step", env=env)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_mark_command_fails_at_a_bad_socket_unless_quiet_is_given(ebb, receiver):
    path = receiver.getsockname()
    env = {"EBB_SOCKET": path}
    receiver.close()
    assert refused_with(ebb("mark", "KIND=step", env=env), path, "Connection refused")
    assert ebb("mark", "-q", "KIND=step", env=env).returncode == 0
    os.unlink(path)
    assert refused(ebb("mark", "KIND=step", env=env),
                   f"mark: cannot send to {path}: No such file or directory")
    assert ebb("mark", "-q", "KIND=step", env=env).returncode == 0


def test_invalid_mark_is_refused_outside_a_run(ebb):
    assert refused_with(ebb("mark", "-q", "KIND=step", "STEP=x", env={"EBB_SOCKET": None}), "STEP=x")


def test_mark_command_refuses_an_overlong_socket_path(ebb):
    assert refused_with(ebb("mark", "--socket", "/tmp/" + "x" * 200, "KIND=step"), "too long")


def test_mark_command_does_not_block_on_a_stuck_receiver(ebb, receiver):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
        filler.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                filler.sendto(b"KIND=step\n", receiver.getsockname())
    result = ebb("mark", "KIND=step", "--socket", receiver.getsockname())
    assert refused_with(result, "the mark is lost")
