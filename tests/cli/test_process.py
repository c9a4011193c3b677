"""The command as a process: start-up, signals, pipes, full disks, terminals."""

import glob
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import zinc_rt

pytestmark = pytest.mark.usefixtures("ctrl_c")

ENVIRONMENT = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "ZINC_RT_TIER")}
ENVIRONMENT |= {"TERM": "xterm-256color", "COLUMNS": "100", "XDG_STATE_HOME": os.devnull}
ZINC = [sys.executable, "-m", "zinc_rt"]


def zinc(*args, **kwargs):
    command = [*ZINC, *map(str, args)]
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT, **kwargs)


def test_help_starts_without_the_heavy_libraries():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "zinc_rt", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=ENVIRONMENT,
    )
    loaded = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in loaded
    assert not loaded & {"numpy", "tokenizers", "jinja2", "rich", "gguf"}


def test_a_native_start_imports_nothing_of_the_reference_kernels_and_no_compiler(tiny):
    with zinc_rt.load(tiny, device="cpu") as model:  # from here on the kernels are in the cache
        model.generate("x", max_tokens=1)
    command = [sys.executable, "-X", "importtime", "-m", "zinc_rt", "run", "-m", str(tiny), "x", "-n", "1", "--raw"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=ENVIRONMENT)
    loaded = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "zinc_rt.backends.cpu.backend" in loaded
    assert not loaded & {"threadpoolctl", "zinc_rt.backends.reference.backend", "zinc_rt.kernels.reference.matmul"}
    assert not loaded & {"zinc_rt.lang.frontend", "zinc_rt.lang.children", "llvmlite", "rich", "jinja2", "statistics"}
    amd = glob.glob("/sys/class/drm/renderD*/device")
    assert amd or not loaded & {
        "zinc_rt.amdgpu.drm",
        "zinc_rt.amdgpu.abi",
    }  # looking for a GPU that is not there costs nothing


def test_run_from_a_pipe_into_a_pipe(tiny):
    done = zinc("run", "-m", tiny, "-n", "8", "-s", "1", stdin=None, input="hello\n")
    assert done.returncode == 0
    assert len(done.stdout) == 9
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_the_text_and_says_how_fast_it_was(tiny):
    command = [*ZINC, "run", "-m", str(tiny), "hello", "-n", "-1", "-c", "20000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        first = os.read(process.stdout.fileno(), 1)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert len(first + out) > 1
    assert out.endswith(b"\n")
    assert b"Traceback" not in err
    assert b"interrupted" in err.splitlines()[-1]
    assert b"tokens/s" in err.splitlines()[-1]


def interrupted_import(tmp_path, *command):
    """Run a command to which Ctrl-C comes while it imports typer; where it goes on, it ends with 5."""
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(5)\n")
    environment = ENVIRONMENT | {"PYTHONPATH": f"{tmp_path}:{Path(zinc_rt.__file__).parents[1]}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    return done.returncode, done.stdout, done.stderr


SCRIPT = "import sys\nfrom zinc_rt.__main__ import entry\nsys.exit(entry())"  # as pip writes it


@pytest.mark.parametrize("command", [ZINC, [sys.executable, "-c", SCRIPT]], ids=["module", "script"])
def test_ctrl_c_before_anything_stands_is_silent(tmp_path, command):
    assert interrupted_import(tmp_path, *command, "run", "x") == (130, "", "")


def test_ctrl_c_stays_ignored_where_the_parent_ignores_it(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert interrupted_import(tmp_path, *ZINC, "run", "x") == (5, "", "")


@pytest.mark.parametrize(
    "delay", [0.1, *(pytest.param(delay, marks=pytest.mark.slow) for delay in (0, 0.05, 0.2, 0.3, 0.5))]
)
def test_ctrl_c_at_any_moment_of_the_start(tiny, delay):
    """From the command's first import on; before that, Python starts."""
    arguments = ["-m", "zinc_rt", "run", "-m", str(tiny), "hello", "-n", "-1", "-c", "20000"]
    command = [sys.executable, "-X", "importtime", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        while not process.stderr.readline().endswith(b"zinc_rt.cli\n"):
            pass
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert b"Traceback" not in err, err
    assert process.returncode == 130, err


def test_a_reader_that_leaves_is_no_failure(tiny):
    command = [*ZINC, "run", "-m", str(tiny), "hello", "-n", "-1", "-c", "20000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=30) == 0
    assert b"rror" not in err
    assert b"Broken" not in err


@pytest.mark.parametrize("args", [("run", "hello", "-n", "4", "-m"), pytest.param(("show",), marks=pytest.mark.slow)])
def test_a_full_disk_is_one_line(tiny, args):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*ZINC, *args, str(tiny)], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_closed_streams(tiny):
    shell = " ".join([*ZINC, "show", str(tiny)])
    done = subprocess.run(shell + " >&-", shell=True, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr.startswith("zinc: error: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_encoding_that_cannot_show_the_text_is_no_failure(tiny):
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    command = [*ZINC, "run", "-m", str(tiny), "h\u00e9", "-n", "3", "--display-prompt"]
    done = subprocess.run(command, capture_output=True, check=False, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    assert done.stdout.startswith(b"h?\n")


def on_terminal(*args, typed=b"", environment=None, until=None):
    """Run on a pseudo-terminal; returns exit code and everything the screen got."""
    parent, child = pty.openpty()
    command = [*ZINC, *map(str, args)]
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment or ENVIRONMENT, start_new_session=True
    )
    os.close(child)
    screen, sent, deadline = b"", False, time.monotonic() + 40
    poll = select.poll()  # not select(): a worker of the tests may hold descriptors above 1023
    poll.register(parent, select.POLLIN)
    while time.monotonic() < deadline:
        if typed and not sent and (until is None or until in screen):
            os.write(parent, typed)
            sent = True
        if poll.poll(200):
            try:
                data = os.read(parent, 65536)
            except OSError:  # the other side has closed
                break
            if not data:
                break
            screen += data
    code = process.wait(timeout=5)
    os.close(parent)
    return code, screen.decode()


def test_on_a_terminal_there_is_colour_and_the_prompt(tiny):
    words = ("run", "-m", tiny, "hello there", "-n", "5", "-s", "1", "--device", "cpu", "--raw")
    code, screen = on_terminal(*words)
    assert code == 0
    assert re.match(r"\x1b\[2mtiny F32 on CPU \(\d+ threads?\), context 256\x1b\[0m\r\n", screen)
    assert re.search(r"\n\x1b\[1mhello there\x1b\[0m[a-z ]{5}\r\n", screen)
    assert "\x1b[2mprompt" in screen


def test_control_characters_and_unwanted_colour_do_not_reach_a_terminal(tiny):
    words = ("run", "-m", tiny, "x", "-n", "4", "-l", "27+inf", "--device", "cpu", "--raw")
    _, screen = on_terminal(*words, environment=ENVIRONMENT | {"NO_COLOR": "1"})
    assert "\ufffd" * 4 in screen
    assert "\x1b[3" not in screen


def test_progress_bar_on_a_terminal(tiny, tmp_path):
    (tmp_path / "t.txt").write_text("abcdefgh" * 30)
    code, screen = on_terminal("perplexity", "-m", tiny, "-f", tmp_path / "t.txt", "-c", "32")
    assert code == 0
    assert "windows" in screen
    assert "/7" in screen
    assert "perplexity " in screen


def test_no_prompt_on_a_terminal(tiny):
    """A base model, as the one in the package is, has nothing to continue; any other one converses."""
    code, screen = on_terminal("run")
    assert code == 2
    assert "no text given" in screen
    code, screen = on_terminal("run", "-m", tiny, "-n", "5", typed=b"hello\n/exit\n", until=b"> ")
    assert code == 0
    assert "/help lists the commands" in screen
    assert "text 5 tokens" in screen


def test_chat_on_a_terminal(tiny):
    code, screen = on_terminal(
        "chat", "-m", tiny, "-n", "5", "-s", "1", typed=b"hello\n/bad\n/stats\n/exit\n", until=b"> "
    )
    assert code == 0
    assert "/help lists the commands" in screen
    assert "unknown command /bad" in screen
    assert "2 messages" in screen


@pytest.mark.parametrize("end", [b"\r", pytest.param(b"", marks=pytest.mark.slow)])
def test_pasted_lines_are_one_message(tiny, tmp_path, end):
    saved = tmp_path / "talk.json"
    pasted = b"\x1b[200~  def f(x):\r    /* \xc3\xa9 */" + end + b"\x1b[201~"
    typed = pasted + b"\n   indented\n /slash\n/save " + bytes(saved) + b"\n/exit\n"
    code, screen = on_terminal("chat", "-m", tiny, "-n", "2", "-s", "1", typed=typed, until=b"> ")
    assert code == 0, screen
    messages = json.loads(saved.read_text())["messages"]
    assert [m["content"] for m in messages[::2]] == ["  def f(x):\n    /* \u00e9 */", "   indented", "/slash"]


@pytest.mark.slow  # commands of `tests/test_docs.py` run it
def test_the_model_in_the_package_speaks():
    done = zinc("run", "Once upon a time", "-n", "12", "--temp", "0")
    assert done.returncode == 0
    assert re.search(r"[a-z]+ [a-z]+ [a-z]+", done.stdout)
    assert done.stdout == zinc("run", "-n", "12", "--temp", "0", stdin=None, input="Once upon a time").stdout
