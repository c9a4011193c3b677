"""`zinc chat` from a pipe, its commands, and the conversation behind it."""

import itertools
import json

import pytest

import zinc_rt
from tests.cli.tiny import write_tiny_model
from zinc_rt.cli.chat import Chat
from zinc_rt.cli.chat_input import ChatInput, keep_history, read_history
from zinc_rt.cli.conversation import ChatHistory, CommandError
from zinc_rt.errors import ZincError
from zinc_rt.sampling.params import SamplingParams


@pytest.fixture
def chat(zinc, tiny):
    def call(stdin, *args):
        return zinc("chat", "-m", tiny, "-s", 3, "-n", 12, *args, stdin=stdin)

    return call


def encoded(*messages, answer=True):
    body = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
    return body + "<|im_start|>assistant\n" * answer


def test_each_line_is_a_turn_and_history_is_kept(chat, tiny):
    outcome = chat("hello\n\nand you?\n", "--system", "be kind")
    with zinc_rt.load(tiny) as model:

        def answer(*messages):
            ids = model.tokenize(encoded(("system", "be kind"), *messages), add_special=False)
            return model.generate(ids, seed=3, max_tokens=12).text

        first = answer(("user", "hello"))
        second = answer(("user", "hello"), ("assistant", first), ("user", "and you?"))
    assert outcome.code == 0
    assert outcome.out == f"{first}\n{second}\n"


def test_a_backslash_continues_the_line(chat, tmp_path):
    chat(f"one\\\ntwo\n/save {tmp_path / 'c.json'}\n")
    assert json.loads((tmp_path / "c.json").read_text())["messages"][0]["content"] == "one\ntwo"
    chat(f"/save {tmp_path / 'd.json'}\nlast\\\n")
    assert chat("last\\\n").out == chat("last\n").out


def test_commands(chat, tmp_path):
    saved = tmp_path / "talk.json"
    outcome = chat(f"/system be odd\nhello\n/stats\n/save {saved}\n/reset\n/stats\n/system\n/help\n/exit\nnever read\n")
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 1
    assert "2 messages; " in outcome.err
    assert " of 256 tokens; seed 3" in outcome.err
    assert "0 messages; 0 of 256" in outcome.err
    assert "system prompt: be odd" in outcome.err
    assert "/regen" in outcome.err
    tree = json.loads(saved.read_text())
    assert tree["system"] == "be odd"
    assert [m["role"] for m in tree["messages"]] == ["user", "assistant"]
    # A loaded conversation goes on where the saved one ended.
    whole = chat("/system be odd\nhello\nmore\n").out
    assert chat(f"/load {saved}\nmore\n").out == whole.splitlines()[1] + "\n"


def test_lines_between_quotes_are_one_message(chat, tmp_path):
    chat(f'''"""one\n  two\\\n\nthree"""\n"""\n/four\n"""\n/save {tmp_path / "c.json"}\n''')
    saved = json.loads((tmp_path / "c.json").read_text())["messages"]
    assert [m["content"] for m in saved[::2]] == ["one\n  two\\\n\nthree", "/four"]
    assert chat('"""hello').out == chat("hello\n").out


def test_tokens_and_undo(chat, tiny):
    outcome = chat("/tokens\n/tokens the hex\nhello\n/undo\n/tokens\n/undo\n")
    lines = outcome.err.splitlines()
    assert lines[1:3] == ["0 of 256 tokens are taken, 256 are left", "4 tokens: 'the' ' ' 'he' 'x'"]
    assert lines[3:5] == ["taken back; 0 messages left", lines[1]]
    assert outcome.error == "zinc: error: there is no message to take back"
    outcome = chat("hello\n/tokens\n")
    with zinc_rt.load(tiny) as model:
        text = encoded(("user", "hello"), ("assistant", outcome.out.rstrip("\n")))
        taken = len(model.tokenize(text, add_special=False))
    assert outcome.err.splitlines()[1] == f"{taken} of 256 tokens are taken, {256 - taken} are left"


def test_quiet(chat):
    assert chat("hello\n", "-q").err == ""
    assert chat("hello\n", "-q").out == chat("hello\n").out


def test_regen_answers_again_with_the_next_seed(chat):
    first, second = chat("hello\n/regenerate\n").out.splitlines()
    assert chat("hello\n/regen\n").out == chat("hello\n/retry\n").out == f"{first}\n{second}\n"
    assert first == chat("hello\n").out.strip()
    assert second == chat("hello\n", "-s", 4).out.strip()
    assert "no message" in chat("/regen\n").error


def test_a_regeneration_that_fails_keeps_message_and_answer(chat, monkeypatch):
    answer, calls = Chat._answer, []

    def failing(self):
        calls.append(1)
        if len(calls) == 2:
            raise ZincError("no")
        return answer(self)

    monkeypatch.setattr(Chat, "_answer", failing)
    outcome = chat("hello\n/regenerate\n")
    assert outcome.code == 1
    talk, params = ChatHistory(), SamplingParams(seed=3)
    talk.ask("hello")
    talk.answer("yes")
    one = Chat.__new__(Chat)
    one.conversation, one.params = talk, params
    calls[:] = [1]
    with pytest.raises(ZincError):
        one._regenerate("")
    assert [m["content"] for m in talk.messages] == ["hello", "yes"]
    assert one.params == params


def test_parameters_are_set(chat):
    assert chat("/set temp 0\nhello\n").out == chat("hello\n", "--temp", 0).out
    assert chat("/set -n=4\nhello\n").code == 2
    outcome = chat("/set n 4\n/set seed 9\n/set top_k 3\n/set\nhello\n")
    assert outcome.out == chat("hello\n", "-n", 4, "-s", 9, "--top-k", 3).out
    assert "top-k 3, top-p 0.95" in outcome.err.splitlines()[-1]
    assert "there are: temp, top-k" in chat("/set warmth 1\n").error
    assert "temp is 'hot'; it must be a number" in chat("/set temp hot\n").error
    assert "--top-p is 2.0" in chat("/set top-p 2\n").error


def test_the_text_of_a_file_stands_before_the_next_message(chat, tmp_path):
    (tmp_path / "a b.txt").write_text("one\n")
    saved = tmp_path / "c.json"
    chat(f"/read '{tmp_path / 'a b.txt'}'\nand two\nthree\n/save {saved}\n")
    assert [m["content"] for m in json.loads(saved.read_text())["messages"][::2]] == ["one\n\nand two", "three"]
    assert "cannot read" in chat("/read /nonexistent\n").error
    assert "/read needs a file name" in chat("/read\n").error


def test_another_model_goes_on(chat, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", template="{% for m in messages %}{{ m.content }}{% endfor %}")
    outcome = chat(f"/model\nhello\n/model {other}\nmore\n/model {tmp_path / 'none.gguf'}\n")
    assert outcome.err.count("tiny F32 on CPU") == 3
    assert len(outcome.out.splitlines()) == 2
    assert "none.gguf" in outcome.error


def test_a_conversation_that_cannot_be_written_leaves_the_older_one(chat, tmp_path, monkeypatch):
    saved = tmp_path / "c.json"
    chat(f"hello\n/save {saved}\n")
    before = saved.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zinc_rt.utils.atomic_write.os.fsync", full)
    assert "No space left on device" in chat(f"other\n/save {saved}\n").error
    assert saved.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_the_history_is_bounded_and_the_users_alone(tmp_path):
    path = tmp_path / "state" / "history"
    for typed in ("first", "two\n\tlines", "x" * 5000, "bell\a"):
        keep_history(path, typed)
    assert read_history(path) == ["first", "two\n\tlines"]
    path.write_text("".join(f"line {i}\n" for i in range(1500)))
    keep_history(path, "last")
    assert read_history(path) == [*(f"line {i}" for i in range(501, 1500)), "last"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_tab_key_completes_commands_and_what_they_take(tmp_path):
    (tmp_path / "a b.txt").touch()
    (tmp_path / "a").mkdir()
    talk = Chat.__new__(Chat)
    talk._commands = dict.fromkeys(("/read", "/regenerate", "/set"))
    typed = ChatInput(False, talk.commands)

    def found(text):
        return list(itertools.takewhile(bool, (typed._complete(text, state) for state in range(9))))

    assert found("/re") == ["/read", "/regen", "/regenerate", "/retry"]
    assert found(f"/read {tmp_path}/a") == [f"/read {tmp_path}/a/", f"/read {tmp_path}/a b.txt"]
    assert found("/set top-") == ["/set top-k", "/set top-p"]
    assert found("/regen x") == found("read") == found("/read /nonexistent/") == []


@pytest.mark.parametrize("line", ["/nope", "/save", "/load", "/load /nonexistent/x", "/save /nonexistent/x"])
def test_a_bad_command_ends_a_piped_chat(chat, line):
    outcome = chat(f"hello\n{line}\nnever\n")
    assert outcome.code in (1, 2)
    assert line.split()[0] in outcome.error or "/nonexistent/x" in outcome.error
    assert len(outcome.out.splitlines()) == 1


def test_a_space_lets_a_message_begin_with_a_slash(chat):
    assert len(chat(" /etc is a folder\n").out.splitlines()) == 1


def test_what_a_template_says_cannot_act_on_the_terminal(zinc, tmp_path):
    path = tmp_path / "rude.gguf"
    source = "{% set n = 16000000 %}{{ raise_exception('\\x1b]0;owned\\x07\\n' * n) }}"
    outcome = zinc("chat", "-m", write_tiny_model(path, template=source), stdin="hello\n")
    assert outcome.code == 1
    assert outcome.error.isprintable()
    assert "chat template, line 1: it refuses this conversation: \\x1b]0;owned\\x07 \\x1b]0;owned" in outcome.error
    assert len(outcome.error) < 400
    assert outcome.out == ""


def test_no_template_is_said_before_any_turn(zinc, templateless):
    outcome = zinc("chat", "-m", templateless, stdin="hello\n")
    assert outcome.code == 1
    assert "no chat template" in outcome.error
    assert outcome.out == ""


def test_no_lines_no_answers(chat):
    assert chat("").code == 0
    assert chat("").out == ""


def test_a_full_context_drops_the_oldest_turns_and_says_so(chat):
    outcome = chat("a first message\nsecond one\nthird one\nfourth one\n", "-c", 128)
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 4
    assert "no longer sees the oldest 2 of 5 messages" in outcome.err
    too_long = chat("x" * 200 + "\n", "-c", 128)
    assert too_long.code == 1
    assert "shorten it" in too_long.error


def test_an_answer_cut_by_the_context_is_said(chat):
    assert "the answer was cut" in chat("hello\n", "-c", 64, "-n", -1).err


# ---- the conversation


def length(messages):
    return [0] * sum(len(m["content"]) for m in messages)


def talk(*lengths, system=None):
    c = ChatHistory(system)
    for i, n in enumerate(lengths):
        (c.answer if i % 2 else c.ask)("x" * n)
    return c


def test_fit_drops_whole_turns_and_keeps_the_system_prompt():
    c = talk(10, 10, 10, 10, 10, system="s" * 5)
    assert len(c.fit(length, 55)) == 55
    assert c.dropped == 0
    assert len(c.fit(length, 54)) == 35
    assert c.dropped == 2
    assert len(c.fit(length, 20)) == 15
    assert c.dropped == 4
    assert [m["role"] for m in c.seen()] == ["system", "user"]
    assert len(c.messages) == 5


def test_fit_refuses_a_message_that_never_fits_and_drops_nothing():
    c = talk(1, 1, 99)
    with pytest.raises(CommandError, match="99 tokens"):
        c.fit(length, 50)
    assert c.dropped == 0


def test_undo_only_takes_the_role_asked_for():
    c = talk(1, 2)
    assert not c.undo("user")
    assert c.undo("assistant")
    assert c.undo("user")
    assert not c.undo("user")


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[" * 100_000,
        "[]",
        '{"messages": 3}',
        '{"messages": [], "system": 3}',
        '{"messages": [{"role": "assistant", "content": "x"}]}',
        '{"messages": [{"role": "user", "content": 5}]}',
        '{"messages": ["x"]}',
    ],
)
def test_load_refuses_what_save_did_not_write(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    c = talk(1, 2, system="kept")
    with pytest.raises(CommandError, match="no saved conversation"):
        c.load(str(tmp_path / "c.json"))
    assert c.system == "kept"
    assert len(c.messages) == 2
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="is not JSON text"):
        c.load(str(tmp_path / "latin"))
