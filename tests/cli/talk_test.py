#!/usr/bin/env python3
"""The conversation of `mica run`, through a pseudo-terminal, as a person has it.

    tests/cli/talk_test.py [BUILD] [WORD]    BUILD: folder with the program; WORD: only cases that hold it
Prints ok, FAILED or skip for each case; last line: N passed, N failed, N skipped."""

import os
import pty
import re
import select
import signal
import sys
import termios
import time

from harness import LLAMA, Failed, case, main, need

# ---- The conversation ----


class Terminal:
    """The program on a pseudo-terminal, as a person sees it."""

    def __init__(self, t, *argv, model=LLAMA, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(t.mica, [t.mica, "run", "-m", str(model), *map(str, argv)], {**t.env, **(env or {})})
        self.seen = ""

    def read(self, seconds):
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def expect(self, text, seconds=20):
        """Waits until the text was seen; what came up to its end is taken."""
        end = time.time() + seconds
        while text not in self.seen and time.time() < end:
            self.read(0.1)
        need(text in self.seen, f"waited for {text!r}, saw {self.seen[-300:]!r}")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def send(self, text):
        os.write(self.fd, text.encode())

    def prompt(self):
        return self.expect("> ")

    def ask(self, text):
        self.send(text + "\r")
        return self.expect("; answer ") + self.expect(")") + self.prompt()

    def end(self, seconds=20):
        """The exit code, after everything was read."""
        end = time.time() + seconds
        while time.time() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        raise Failed(f"still running: {self.seen[-200:]!r}")


@case
def talk_answers_and_remembers(t):
    x = Terminal(t, "--temp", "0", "--think", "off")
    x.expect("/help lists the commands")
    x.prompt()
    need("Nicosia" in x.ask("Capital of Cyprus?"), "the first answer")
    again = x.ask("Capital of Iceland?")
    need("Reykjavik" in again, f"{again!r}")
    cached = re.search(r"prompt (\d+) tokens \((\d+) cached\)", again)
    need(cached and int(cached.group(2)) >= 10, f"the second turn read everything again: {again!r}")
    x.send("/exit\r")
    need(x.end() == 0, "exit code of /exit")


@case
def talk_greets_with_the_device(t):
    """Which is where the flags that choose it can be seen."""

    def greeting(*argv):
        x = Terminal(t, *argv)
        line = x.expect("/help").split("tokens of context")[1]
        x.prompt()
        x.send("\x04")
        need(x.end() == 0, "exit code")
        return line

    need(greeting("-t", "1") != greeting("-t", "2"), "-t 1 and -t 2 look the same")
    need(greeting("--device", "cpu") != greeting("--device", "ref"), "--device cpu and ref look the same")
    need(greeting("--isa", "scalar") != greeting(), "--isa scalar looks like the default")
    need(greeting("-ngl", "0") == greeting("--device", "cpu"), "-ngl 0 is not the CPU")


@case
def talk_commands(t):
    x = Terminal(t, "--temp", "2", "--seed", "5", "-n", "20")
    x.prompt()
    x.send("/help\r")
    page = x.prompt()
    for word in ("/clear", "/regen", "/system", "/exit"):
        need(word in page, f"/help has no {word}")
    x.send("/rgen\r")
    need("did you mean /regen?" in x.prompt(), "no suggestion")
    x.send("/regen\r")
    need("no answer yet" in x.prompt(), "/regen without an answer")
    first = x.ask("Tell me a story.")
    second = x.ask("/regen")
    strip = lambda s: re.sub(r"\d", "", s.split("story.")[-1].replace("/regen", ""))
    need(strip(first) != strip(second), "/regen says the same again")
    before = int(re.search(r"prompt (\d+) tokens", second).group(1))
    x.send("/clear\r")
    x.expect("(forgotten)")
    x.prompt()
    after = int(re.search(r"prompt (\d+) tokens", x.ask("Tell me a story.")).group(1))
    need(after == before, f"/clear forgets not all: {before} {after}")
    x.send("/system Be brief and kind.\r")
    x.expect("(system message set)")
    x.prompt()
    x.send("/clear\r")
    x.prompt()
    need(int(re.search(r"prompt (\d+) tokens", x.ask("Tell me a story.")).group(1)) > after, "/system")
    x.send("/think\r")
    need("on, off" in x.prompt(), "/think")
    x.send("/think bla\r")
    need("'bla': not on, off" in x.prompt(), "/think bla is not refused at once")
    x.send("/THINK Off\r")
    need("'Off': not" in x.prompt(), "commands in capitals")
    f = t.file("question.txt", "Capital of Cyprus?")
    need("prompt" in x.ask(f"/read {f}"), "/read")
    x.send("/read /nonexistent\r")
    need("No such file" in x.prompt(), "/read of nothing")
    need("prompt" in x.ask(f'/read "{f}" '), "/read of a name in quotes")
    (t.tmp / "home" / "at home.txt").write_text("Capital of Cyprus?")
    need("prompt" in x.ask("/read ~/at home.txt"), "/read of ~")
    x.send("\x04")
    need(x.end() == 0, "exit code of Ctrl-D")


@case
def talk_undo_and_trim(t):
    x = Terminal(t, "--temp", "0", "-n", "4")
    count = lambda text: int(re.search(r"prompt (\d+) token", text).group(1))
    x.prompt()
    x.send("/undo\r")
    need("nothing to take back" in x.prompt(), "/undo of nothing")
    one = count(x.ask("Capital of Cyprus?"))
    two = count(x.ask("Capital of Iceland?"))
    x.send("/undo\r")
    x.expect("(taken back)")
    x.prompt()
    need(count(x.ask("Capital of Iceland?")) == two, "/undo left something, or took too much")
    x.send("/trim\r")
    x.expect("are forgotten)")
    x.prompt()
    x.send("/trim\r")
    x.expect("are forgotten)")
    x.prompt()
    x.send("/trim\r")
    need("nothing to forget" in x.prompt(), "/trim of nothing")
    need(count(x.ask("Capital of Cyprus?")) == one, "/trim left something")
    x.send("exit\r")
    need(x.end() == 0, "exit code of the word exit")


@case
def talk_tab_completes(t):
    folder = t.tmp / "tab"
    folder.mkdir()
    (folder / "question one.txt").write_text("Capital of Cyprus?")
    (folder / "other.txt").write_text("x")
    x = Terminal(t, "--temp", "0", "-n", "4")
    x.prompt()
    x.send("/he\t\r")
    x.expect("/undo")
    x.prompt()
    x.send("/re\t")
    x.expect("/regen")  # the choices
    x.send(f"ad {folder}/qu\t\r")
    x.expect("answer ")
    x.prompt()
    x.send("\x04")
    need(x.end() == 0, "exit code")


@case
def talk_keys_do_not_show_in_an_answer(t):
    """And come out at the next prompt; the terminal echoes again afterwards, also after Ctrl-Z."""
    echoes = lambda: bool(termios.tcgetattr(x.fd)[3] & termios.ECHO)

    def until(wanted, what):
        end = time.time() + 20
        while not wanted() and time.time() < end:
            x.read(0.02)
        need(wanted(), what)

    x = Terminal(t, "--raw", "--ignore-eos", "--device", "ref", "-n", "-1", "--temp", "1")
    x.prompt()
    x.send("Tell me everything.\r")
    x.expect("everything.")
    until(lambda: not echoes() and termios.tcgetattr(x.fd)[3] & termios.ICANON, "echo stays on")
    x.send("typed ahead")
    x.read(0.3)
    need("typed ahead" not in x.seen, f"keys show in the answer: {x.seen!r}")
    os.kill(x.pid, signal.SIGTSTP)
    os.waitpid(x.pid, os.WUNTRACED)
    need(echoes(), "no echo while it is stopped")
    os.kill(x.pid, signal.SIGCONT)
    until(lambda: not echoes(), "echo after going on")
    x.send("\x03")
    x.expect("(stopped", 10)
    x.prompt()
    need(not termios.tcgetattr(x.fd)[3] & termios.ICANON, "the line editor has not taken over")
    x.send("\x04")
    need(x.end() == 0, "exit code")
    x = Terminal(t, "--raw", "--ignore-eos", "--device", "ref", "-n", "40", "--temp", "1")
    x.prompt()
    x.send("Tell me everything.\r")
    x.expect("everything.")
    x.send("typed ahead")
    x.expect("; answer ")
    x.prompt()
    x.expect("typed ahead")
    x.send("\x03")
    x.prompt()
    x.send("\x04")
    need(x.end() == 0, "exit code")


@case
def talk_ctrl_c_stops_the_answer_only(t):
    x = Terminal(t, "--raw", "--ignore-eos", "--device", "ref", "-n", "-1", "--temp", "1")
    x.prompt()
    x.send("Tell me everything.\r")
    x.expect("everything.")
    x.read(1)
    x.send("\x03")
    x.send("\x03")  # impatience costs nothing
    x.expect("(stopped;", 10)
    x.prompt()
    x.send("some words")
    x.expect("some words")
    x.send("\x03")
    x.prompt()
    x.send("\x03")
    x.expect("(Ctrl-C again leaves)")
    x.prompt()
    x.send("\x03")
    need(x.end() == 130, "exit code of the second Ctrl-C")


@case
def talk_a_stopped_question_is_taken_back(t):
    """While its prompt is read, which is long here: no word of an answer came."""
    long = t.file("long question.txt", "word " * 900)
    x = Terminal(t, "--device", "ref", "--temp", "0", "-n", "4")
    x.prompt()
    one = int(re.search(r"prompt (\d+) token", x.ask("Capital of Cyprus?")).group(1))
    x.send("/clear\r")
    x.prompt()
    x.send(f"/read {long}\r")
    x.expect("prompt ")  # it is being read
    x.send("\x03")
    x.send("\x03")
    x.expect("the question is taken back", 30)
    x.prompt()
    again = int(re.search(r"prompt (\d+) token", x.ask("Capital of Cyprus?")).group(1))
    need(again == one, "it is still there")
    x.send("\x04")
    need(x.end() == 0, "exit code")


@case
def talk_sigterm_at_the_prompt(t):
    x = Terminal(t)
    x.prompt()
    os.kill(x.pid, signal.SIGTERM)
    need(x.end() == 143, "exit code of SIGTERM")


@case
def talk_lines_of_many_lines(t):
    x = Terminal(t, "-n", "1", "--temp", "0")
    x.prompt()
    one = int(re.search(r"prompt (\d+) tokens", x.ask("one two")).group(1))
    x.send("/clear\r")
    x.prompt()
    x.send("one\\\r")
    x.expect(". ")
    joined = int(re.search(r"prompt (\d+) tokens", x.ask("two")).group(1))
    need(joined != one, "a backslash does not join lines")
    x.send("/clear\r")
    x.prompt()
    x.send("\033[200~one\rtwo\r\033[201~")
    pasted = int(re.search(r"prompt (\d+) tokens", x.ask("")).group(1))
    need(pasted == joined, f"a paste of two lines is another message: {pasted} and {joined}")
    x.send("\x04")
    need(x.end() == 0, "exit code")


@case
def talk_history_is_kept(t):
    home = t.tmp / "history home"
    env = {"MICA_HOME": str(home)}
    x = Terminal(t, "-n", "1", env=env)
    x.prompt()
    x.ask("a line to find again é")
    x.send("/exit\r")
    need(x.end() == 0, "first run")
    need((home / "history").stat().st_mode & 0o777 == 0o600, "others may read the history")
    x = Terminal(t, "-n", "1", env=env)
    x.prompt()
    x.send("\033[A\033[A")
    x.expect("a line to find again é")
    x.send("\r")
    x.prompt()
    x.send("\x04")
    need(x.end() == 0, "second run")


@case
def talk_without_a_place_for_history(t):
    x = Terminal(t, "-n", "1", env={"MICA_HOME": "/proc/nowhere"})
    x.prompt()
    x.ask("hello")
    x.send("\x04")
    need(x.end() == 0, "exit code")


@case
def talk_colours_only_where_wanted(t):
    for env, colour in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        x = Terminal(t, "--think", "on", "--temp", "0", env=env)
        text = x.expect("/help lists the commands")
        text += x.prompt()
        text += x.ask("Capital of Cyprus?")
        x.send("\x04")
        need(x.end() == 0, "exit code")
        need(("\033[2m" in text) == colour, f"{env}: {text!r}")


@case
def talk_error_goes_on(t):
    x = Terminal(t, "-c", "256", "-n", "4", "--temp", "0")
    x.prompt()
    x.send("word " * 300 + "\r")
    need("-c 768 would hold it" in x.expect("short answer"), "no context that would fit")
    need("/clear" not in x.prompt(), "/clear is offered where there is nothing to forget")
    x.ask("Capital of Cyprus?")
    x.send("word " * 300 + "\r")
    x.expect("/trim")
    x.prompt()
    x.ask("/regen")
    x.send("\x04")
    need(x.end() == 0, "exit code")


if __name__ == "__main__":
    sys.exit(main())
