#!/usr/bin/env python3
"""The page in a real browser: Debian's chromium, driven by playwright.

    tests/web/page_test.py [BUILD] [WORD] [--shots DIR]    WORD: only cases that hold it

Most cases speak to mock_server.py, whose behaviour they change; those named mica_* speak to BUILD/mica serve
with a small model. Every case has a browser context of its own, and fails on any error in the browser's
console, one of the content-security policy among them. playwright is installed into build/venv-page when
this Python lacks it. Prints ok, FAILED or skip for each case; last line: N passed, N failed, N skipped."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from mock_server import Behaviour, Mock

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "build" / "venv-page"
MODEL = ROOT / "tests" / "fixtures" / "qwen3.q4_k_m.gguf"
WAIT_MS = 15000
FAR_NAME = "page.test"  # another machine, to the browser: over plain HTTP it gives such a page less

CASES = []


class Failed(Exception):
    pass


class Skip(Exception):
    pass


def case(fn):
    CASES.append(fn)
    return fn


def need(condition, why):
    if not condition:
        raise Failed(why)


def eventually(what, condition, seconds=30):
    end = time.time() + seconds
    while not condition():
        need(time.time() < end, f"waited {seconds} s for {what}")
        time.sleep(0.02)


# ---- The page under test ----


class Tab:
    """One tab with the page, and the words of a person who uses it."""

    def __init__(self, bench, url, **options):
        settings = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US", **options}
        self.bench, self.url, self.errors = bench, url, []
        self.expected = ()  # parts of console errors that this case brings about itself
        self.context = bench.browser.new_context(**settings)
        self.context.set_default_timeout(WAIT_MS)
        self.context.add_init_script(path=Path(__file__).with_name("probes.js"))
        self.page = self.open()

    def open(self, address=""):
        page = self.context.new_page()
        page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.goto(self.url + address)
        return page

    def probe(self, name):
        """A function of probes.js."""
        return self.page.evaluate(f"probe.{name}()")

    def fits(self, why):
        wide = self.probe("wide")
        need(not wide, f"{why}: {wide[:3]}")

    def check(self):
        wrong = [e for e in self.errors if not any(part in e for part in self.expected)]
        need(not wrong, f"the browser said: {wrong[:3]}")

    def say(self, text, wait=True):
        self.page.fill("#ask", text)
        self.page.click(".send")
        if wait:
            self.rest()

    def rest(self):
        """Until nothing is being answered."""
        self.page.wait_for_selector(".send:not(.stopping)")
        self.page.wait_for_selector(".message.live", state="detached")

    def messages(self):
        return self.page.locator(".message .body").all_inner_texts()

    def shows(self, want, at=None):
        """The texts of all messages, or of one, once they are drawn: that may be after the answer's end."""

        def good():
            seen = self.messages()
            return seen == want if at is None else len(seen) > at and seen[at] == want

        try:
            eventually("the messages", good)
        except Failed:
            need(False, f"saw {self.messages()}, wanted {want!r}")

    def answer(self, n=-1):
        return self.page.locator(".message.assistant").all()[n]

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def count(self, selector):
        return self.page.locator(selector).count()

    def see(self, text, selector="body"):
        self.page.locator(selector).get_by_text(text).first.wait_for()

    def shot(self, name):
        if self.bench.shots:
            self.page.screenshot(path=f"{self.bench.shots}/{name}.png")


class Bench:
    def __init__(self, browser, build, shots):
        self.browser, self.build, self.shots = browser, build, shots

    @contextlib.contextmanager
    def mock(self, host="127.0.0.1", **options):
        behaviour = Behaviour()
        server = Mock(behaviour).start()
        tab = Tab(self, f"http://{host}:{server.port}/", **options)
        tab.behaviour, tab.server = behaviour, server
        try:
            yield tab
            tab.check()
        finally:
            tab.context.close()
            with contextlib.suppress(OSError):
                tab.server.die()


# ---- Talking ----


@case
def a_conversation(bench):
    with bench.mock() as tab:
        tab.see("mock-7b", ".empty")
        tab.say("hello there")
        tab.shows(["hello there", "You said: hello there"])
        need("tokens" in tab.text(".stats") and "t/s" in tab.text(".stats"), "no speed below the answer")
        tab.say("and again")
        sent = tab.behaviour.requests[1]["messages"]
        need([m["role"] for m in sent] == ["user", "assistant", "user"], f"sent {sent}")
        need(tab.page.title() == "hello there · mica", f"title {tab.page.title()}")
        need(tab.text(".talk.current") == "hello there", "not in the list")
        need(re.search(r"\d+ / 4,096", tab.text(".context")), "no use of the context")


@case
def markdown_is_shown_and_nothing_in_it_runs(bench):
    with bench.mock() as tab:
        tab.say("markdown please")
        for selector, n in (
            ("table td", 6),
            ("pre code", 1),
            ("ol > li", 2),
            ("ol ul li", 2),
            ("h4", 1),
            ("blockquote", 1),
        ):
            need(
                tab.count(f".prose {selector}") == n, f"{tab.count(f'.prose {selector}')} {selector}, not {n}"
            )
        for selector in ("script", "img"):
            need(tab.count(f".message {selector}") == 0, f"a {selector} came from the text")
        need((tab.count(".prose math"), tab.count("math .math-root")) == (2, 1), "formulas are not drawn")
        need(tab.text(".prose span.math") == "\\unknown{x}", "what is no known formula is not left as it was")
        need("<script>alert(1)</script>" in tab.answer().inner_text(), "the text of markup is lost")
        links = [a.get_attribute("href") for a in tab.page.locator(".message a").all()]
        need(links == ["https://example.org/a_b_c"], f"links {links}")
        need(
            "noopener" in tab.page.locator(".message a").get_attribute("rel"),
            "a link that hands this page over",
        )
        need(tab.count(".c-keyword") > 3, "no colours in code")
        tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
        tab.page.click(".code [aria-label='Copy code']")
        copied = tab.page.evaluate("navigator.clipboard.readText()")
        need(copied.startswith("def fib(n: int)") and copied.endswith("return a"), f"copied {copied[:40]!r}")
        tab.shot("markdown")


@case
def thoughts_are_folded(bench):
    with bench.mock() as tab:
        tab.behaviour.token_s = 0.06
        tab.say("think about it", wait=False)
        tab.page.wait_for_selector(".think.busy")
        tab.rest()
        need(tab.text(".think-title").startswith("Thought for"), tab.text(".think-title"))
        need(not tab.page.locator(".think-body").is_visible(), "thoughts lie open")
        tab.page.click(".think summary")
        need("Two ways" in tab.text(".think-body"), "thoughts are not shown")
        tab.say("more")
        need(
            "Two ways" in tab.behaviour.requests[1]["messages"][1]["reasoning_content"],
            "thoughts are not sent back",
        )


@case
def a_stop_ends_it_here_and_there(bench):
    with bench.mock() as tab:
        tab.say("long", wait=False)
        tab.see("word5")
        tab.page.click(".send.stopping")
        tab.rest()
        need("Stopped" in tab.answer().inner_text(), "not marked as stopped")
        eventually("the server to notice", lambda: tab.behaviour.left == 1)
        kept = tab.messages()[1]
        need("word5" in kept, "what had come is gone")
        tab.say("long", wait=False)
        tab.page.wait_for_selector(".message.live .body p")
        tab.page.keyboard.press("Escape")
        tab.rest()
        eventually("the server to notice Esc", lambda: tab.behaviour.left == 2)


@case
def a_reload_keeps_history(bench):
    with bench.mock() as tab:
        tab.say("markdown, and think")
        before = tab.messages()
        tab.say("long", wait=False)
        tab.see("word20")
        tab.page.wait_for_timeout(600)  # past the joined write
        tab.page.reload()
        tab.page.wait_for_selector(".message")
        after = tab.messages()
        need(after[:2] == before, "the finished answer changed")
        need("word10" in after[3], f"the growing answer is lost: {after[3][:60]!r}")
        tab.see("The connection ended in the middle")
        tab.answer().get_by_text("Answer again").click()
        tab.page.click(".send.stopping")
        tab.rest()
        need(tab.text(".message:last-child .branches") == "2/2", "the first try is gone")
        # Another tab shows the same.
        other = tab.open(tab.page.evaluate("location.hash"))
        other.wait_for_selector(".message")
        need(other.locator(".message").count() == 4, "another tab shows something else")


@case
def edits_and_retries_are_branches(bench):
    with bench.mock() as tab:
        tab.say("first")
        tab.answer().get_by_label("Answer again").click()
        tab.rest()
        tab.page.hover(".message.user")
        tab.page.click(".message.user [aria-label='Edit and send again']")
        tab.page.fill(".edit-form textarea", "second")
        tab.page.keyboard.press("Enter")
        tab.rest()
        tab.shows(["second", "You said: second"])
        tab.page.hover(".message.user")
        tab.page.click(".message.user [aria-label='Earlier version']")
        tab.shows(["first", "You said: first"])
        need(tab.text(".assistant .branches") == "2/2", "a retried answer is no version")
        tab.page.focus("#ask")
        tab.page.keyboard.press("ArrowUp")
        need(tab.page.input_value(".edit-form textarea") == "first", "ArrowUp does not edit the last message")
        tab.page.keyboard.press("Escape")
        tab.page.hover(".message.user")
        tab.page.click(".message.user [aria-label='Delete from here on']")
        tab.shows(["second", "You said: second"])
        tab.page.get_by_text("Undo").click()
        eventually("the undone deletion", lambda: tab.messages()[0] == "first")


@case
def a_prompt_that_is_too_long_is_said(bench):
    with bench.mock() as tab:
        tab.expected = ("400",)
        tab.behaviour.context = 120
        for i in range(3):
            tab.say(f"question {i} " + "word " * 8)
        tab.say("excessive " * 60)
        note = tab.text(".note.bad")
        need(re.search(r"It has \d+ tokens; the context holds 120", note), f"said {note!r}")
        tab.shot("too-long")
        need(len(tab.behaviour.requests) == 4, "sent more than once by itself")
        tab.page.get_by_text("Leave out the oldest messages").click()
        tab.rest()
        need(tab.count(".left-out") == 6, f"{tab.count('.left-out')} messages are dimmed")
        last = tab.behaviour.requests[-1]["messages"]
        need(
            len(last) == 1 and last[0]["content"].startswith("excessive"), "it is not the last question alone"
        )
        need("You said: excessive" in tab.messages()[-1], "no answer")
        # Alone it cannot be made shorter by leaving out.
        tab.page.click("#new-chat")
        tab.say("far too much " * 60)
        need("Leave out" not in tab.text(".note.bad"), "offers what does not help")


@case
def a_server_that_goes_and_comes_back(bench):
    with bench.mock() as tab:
        tab.expected = ("ERR_", "Failed to fetch")
        port = tab.server.port
        tab.say("long", wait=False)
        tab.see("word10")
        tab.server.die()
        tab.rest()
        tab.see("The connection ended in the middle of this answer")
        kept = tab.messages()[1]
        need("word10" in kept, "what had come is gone")
        tab.see("No connection to the server", "#banner")
        tab.shot("away")
        tab.page.fill("#ask", "are you back")
        tab.page.click(".send")
        tab.see("the message is sent as soon as it is back")
        tab.server = Mock(tab.behaviour, port).start()
        tab.rest()
        need(tab.messages()[1] == kept, "the cut answer changed")
        tab.shows("You said: are you back", 3)
        tab.page.wait_for_selector("#banner", state="hidden")
        need(len(tab.behaviour.requests) == 2, "something was sent twice")


@case
def a_cut_stream_and_an_error_in_it(bench):
    with bench.mock() as tab:
        tab.expected = ("ERR_", "Failed to fetch")
        tab.behaviour.cut_after = 3
        tab.say("cut me off in the middle of it")
        tab.see("The connection ended in the middle of this answer")
        tab.behaviour.cut_after = 0
        tab.behaviour.error_after = 3
        tab.answer().get_by_text("Answer again").click()
        tab.rest()
        tab.see("the device was lost")
        need("You said: cut" in tab.messages()[1], "what had come before the error is gone")


@case
def busy_and_loading_are_waited_for(bench):
    with bench.mock() as tab:
        tab.expected = ("429", "503")
        tab.behaviour.busy = 1
        tab.say("hello", wait=False)
        tab.see("The server is busy; trying again in")
        tab.rest()
        tab.shows("You said: hello", 1)
        tab.behaviour.loading = True
        tab.say("again", wait=False)
        tab.see("still loading")
        tab.behaviour.loading = False
        tab.rest()
        tab.shows("You said: again", 3)
        tab.behaviour.busy, tab.behaviour.retry_after = 1, 60
        tab.say("never mind", wait=False)
        tab.see("trying again in 60 s")
        tab.page.click(".send.stopping")
        tab.rest()
        need("Stopped" in tab.answer().inner_text(), "a wait cannot be stopped")


@case
def a_key_is_asked_for(bench):
    with bench.mock() as tab:
        tab.expected = ("401",)
        tab.behaviour.key = "right"
        tab.page.reload()
        tab.page.wait_for_selector("dialog")
        tab.page.keyboard.press("Escape")
        tab.say("hello", wait=False)
        tab.page.fill("dialog input[type=password]", "wrong")
        tab.page.keyboard.press("Enter")
        tab.see("did not accept the key")
        tab.page.fill("dialog input[type=password]", "right")
        tab.page.keyboard.press("Enter")
        tab.rest()
        tab.shows("You said: hello", 1)
        tab.see("mock-7b", "#status")
        tab.page.reload()
        tab.say("and after a reload")
        need(tab.count("dialog") == 0, "the key is forgotten in the same tab")
        need(tab.page.evaluate("localStorage.getItem('mica.key')") is None, "the key was kept unasked")


# ---- Around the conversation ----


@case
def files_go_along(bench):
    with bench.mock() as tab:
        files = [
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": "über ```\n".encode()},
            {"name": "p.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n\x00"},
        ]
        tab.page.set_input_files("#composer input[type=file]", files)
        tab.see("p.png: this is no text file", "#toasts")
        need(tab.page.locator(".chip .file-name").all_inner_texts() == ["notes.txt"], "not one chip")
        tab.say("what is in it")
        sent = tab.behaviour.requests[0]["messages"][0]["content"]
        need(sent == "File notes.txt:\n````\nüber ```\n````\n\nwhat is in it", f"sent {sent!r}")
        need(tab.text(".message.user .plain-text") == "what is in it", "the file is shown as words")
        tab.page.reload()
        tab.page.click(".message .file summary")
        need("über" in tab.text(".message .file pre"), "the file is not kept")
        tab.page.fill("#ask", " ".join(["word"] * 700))
        tab.see("700 tokens", ".counted")


@case
def an_edit_or_a_deletion_while_it_answers(bench):
    with bench.mock() as tab:
        tab.say("long", wait=False)
        tab.see("word5")
        tab.page.hover(".message.user")
        tab.page.click(".message.user [aria-label='Edit and send again']")
        tab.page.fill(".edit-form textarea", "short")
        tab.page.keyboard.press("Enter")
        tab.rest()
        tab.shows(["short", "You said: short"])
        eventually("the first stream to be left", lambda: tab.behaviour.left == 1)
        need(tab.page.get_attribute(".send", "aria-label") == "Send", "the button still stops")
        tab.say("long", wait=False)
        tab.see("word5")
        tab.page.click("#open-menu")
        tab.page.get_by_role("menuitem", name="Delete").click()
        tab.see("No conversations yet")
        tab.page.wait_for_timeout(900)
        tab.page.reload()
        tab.see("No conversations yet")


@case
def a_browser_that_keeps_nothing(bench):
    with bench.mock() as tab:
        refuse = "{ get() { throw new DOMException('denied', 'SecurityError'); } }"
        names = ("indexedDB", "localStorage", "sessionStorage")
        for name in names:
            tab.context.add_init_script(f"Object.defineProperty(window, '{name}', {refuse});")
        tab.page.reload()
        tab.see("conversations end with this page")
        tab.say("hello")
        tab.page.click("#new-chat")
        tab.page.get_by_role("link", name="hello").click()
        tab.shows(["hello", "You said: hello"])
        tab.page.click("#open-settings")
        tab.page.get_by_text("Dark", exact=True).click()
        need(tab.page.evaluate("document.documentElement.dataset.theme") == "dark", "not dark")


@case
def over_plain_http_from_another_machine(bench):
    with bench.mock(host=FAR_NAME) as tab:
        need(not tab.page.evaluate("isSecureContext"), "the browser thinks that this is safe")
        tab.say("markdown")
        tab.page.click(".code [aria-label='Copy code']")
        tab.page.wait_for_selector(".code [aria-label='Copied']")
        tab.page.focus("#ask")
        tab.page.keyboard.press("Control+v")
        need(tab.page.input_value("#ask").startswith("def fib(n: int)"), "nothing was copied")
        tab.page.reload()
        tab.page.wait_for_selector(".message.assistant")
        need(tab.messages()[0] == "markdown", "nothing is kept")


@case
def several_conversations(bench):
    with bench.mock() as tab:
        tab.say("about apples")
        tab.page.click("#new-chat")
        tab.say("long pears", wait=False)
        tab.see("word3")
        # One goes on while another is read and asked.
        tab.page.get_by_role("link", name="about apples").click()
        tab.page.wait_for_selector(".talk .pulse")
        need(tab.messages()[0] == "about apples", "another conversation is shown")
        tab.say("more apples")
        need(len(tab.messages()) == 4, "no answer beside one that runs")
        tab.page.locator(".talk a", has_text="long pears").click()
        tab.page.click(".send.stopping")
        tab.rest()
        need("word50" in tab.messages()[1], "it did not go on in the background")
        tab.page.fill("#search", "apple")
        need(tab.page.locator(".talk").count() == 1, "the search does not narrow")
        tab.page.fill("#search", "")
        tab.page.hover(".talk.current")
        tab.page.click(".talk.current .icon-button")
        tab.page.get_by_role("menuitem", name="Rename").click()
        tab.page.fill("dialog input", "About pears")
        tab.page.keyboard.press("Enter")
        tab.see("About pears", ".talks")
        tab.page.click("#open-menu")
        tab.page.get_by_role("menuitem", name="Delete").click()
        tab.page.wait_for_selector(".message", state="detached")
        tab.page.get_by_text("Undo").click()
        tab.page.wait_for_selector(".message")
        need(tab.text(".talk.current") == "About pears", "not undone")


@case
def saved_to_a_file_and_read_again(bench):
    with bench.mock() as tab, tempfile.TemporaryDirectory() as tmp:
        tab.say("keep *this*")
        tab.page.click("#open-menu")
        with tab.page.expect_download() as got:
            tab.page.get_by_role("menuitem", name="Save as Markdown").click()
        need(got.value.suggested_filename == "keep-this.md", got.value.suggested_filename)
        need(
            "## You\n\nkeep *this*\n\n## Answer" in Path(got.value.path()).read_text(), "not the conversation"
        )
        tab.page.click("#open-settings")
        with tab.page.expect_download() as got:
            tab.page.get_by_role("button", name="Save all conversations").click()
        got.value.save_as(f"{tmp}/all.json")
        tab.page.get_by_role("button", name="Delete all conversations").click()
        tab.page.locator("dialog").get_by_role("button", name="Delete all").click()
        tab.see("No conversations yet")
        tab.page.set_input_files("#panel input[type=file]", f"{tmp}/all.json")
        tab.see("One conversation read")
        tab.page.get_by_role("link", name="keep *this*").click()
        tab.page.wait_for_selector(".message.assistant")
        tab.shows("keep *this*", 0)


@case
def settings_reach_the_server(bench):
    with bench.mock() as tab:
        tab.see("mock-7b", "#status")
        tab.page.keyboard.press("Control+,")
        panel = tab.page.locator("#panel")
        need(
            panel.get_by_label("Temperature", exact=True).get_attribute("placeholder") == "0.8",
            "no default shown",
        )
        panel.get_by_label("Temperature", exact=True).fill("0.3")
        panel.get_by_label("Longest answer").fill("3")
        panel.get_by_label("System prompt of this conversation").fill("Be brief.")
        panel.get_by_label("Thinking").select_option("off")
        tab.page.get_by_text("Dark", exact=True).click()
        need(tab.page.evaluate("document.documentElement.dataset.theme") == "dark", "not dark")
        tab.page.keyboard.press("Escape")
        tab.say("one two three four")
        body = tab.behaviour.requests[0]
        need((body["temperature"], body["max_tokens"]) == (0.3, 3), f"sent {body}")
        need(body["messages"][0] == {"role": "system", "content": "Be brief."}, f"sent {body['messages'][0]}")
        need(body["chat_template_kwargs"] == {"enable_thinking": False}, "thinking is not off")
        need("top_p" not in body and "seed" not in body, "sends what nobody set")
        tab.see("Ended at the limit of tokens")
        tab.page.reload()
        need(tab.page.evaluate("document.documentElement.dataset.theme") == "dark", "the theme is forgotten")


@case
def the_monitor(bench):
    with bench.mock() as tab:
        tab.say("long", wait=False)
        tab.page.click("#open-monitor")
        for title in (
            "Writing",
            "Reading prompts",
            "Requests",
            "Slots",
            "Memory",
            "Expert hits",
            "Drafts accepted",
        ):
            tab.page.get_by_role("region", name=title, exact=True).or_(
                tab.page.locator(f"section[aria-label='{title}']")
            ).first.wait_for()
        for title in ("Temperature, hip:0", "Power, hip:0", "Prefix reuse", "Server"):
            tab.page.wait_for_selector(f"section[aria-label='{title}']")
        writing = tab.page.locator("section[aria-label='Writing'] .card-value")
        eventually("a speed", lambda: re.match(r"[1-9][\d.]* t/s", writing.inner_text()))
        need("13.4 GiB of 16.0 GiB" in tab.text("section[aria-label=Memory]"), "no memory of the card")
        label = tab.page.locator("section[aria-label=Writing] svg").get_attribute("aria-label")
        need(label.startswith("Writing: now"), f"the chart says {label!r} to a screen reader")
        tab.shot("monitor")
        tab.page.click("#open-chat")
        tab.page.click(".send.stopping")
        tab.rest()
        tab.say("short")
        tab.page.click("#status")
        tab.see("this page", "section[aria-label='Last requests']")
        row = tab.page.locator("section[aria-label='Last requests'] tbody tr").first.inner_text()
        need("t/s" in row and "complete" in row, f"the last request reads {row!r}")


@case
def a_phone(bench):
    phone = {
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 2,
    }
    with bench.mock(**phone) as tab:
        tab.say("markdown")
        tab.say("a word of great length: " + "x" * 300)
        tab.fits("the page is wider than the phone")
        tab.shot("phone")
        tab.page.tap("#open-side")
        tab.page.wait_for_timeout(250)
        need(tab.page.locator("#side").bounding_box()["x"] >= 0, "the list does not come in")
        tab.page.touchscreen.tap(380, 400)
        tab.page.wait_for_timeout(250)
        need(tab.page.locator("#side").evaluate("e => e.inert"), "the list does not go")
        tab.page.tap("#open-settings")
        tab.fits("the settings are wider than the phone")
        tab.page.tap("[aria-label='Close settings']")
        tab.page.tap("#open-monitor")
        tab.page.wait_for_selector("section[aria-label=Slots]")
        tab.fits("the monitor is wider than the phone")
        tab.page.tap("#open-chat")
        # Enter breaks the line: there is no Shift on the screen's keyboard.
        tab.page.fill("#ask", "a")
        tab.page.press("#ask", "Enter")
        need(tab.page.input_value("#ask") == "a\n", "Enter sends on a phone")
        small = tab.probe("small")
        need(not small, f"too small for a finger: {small}")


@case
def readable_in_light_and_dark_and_named(bench):
    for scheme in ("light", "dark"):
        with bench.mock(color_scheme=scheme) as tab:
            tab.expected = ("400",)
            tab.say("markdown, think")
            tab.page.click(".think summary")
            tab.page.click("#open-settings")
            tab.page.wait_for_timeout(300)
            tab.shot(f"chat-{scheme}")
            problems = tab.probe("contrast") + tab.probe("nameless")
            need(not problems, f"{scheme}: {problems[:6]}")
            tab.page.keyboard.press("Escape")
            tab.behaviour.context = 5
            tab.say("too long")
            problems = tab.probe("contrast")
            need(not problems, f"{scheme}, an error: {problems[:6]}")
            tab.page.click("#open-monitor")
            tab.page.wait_for_selector("section[aria-label=Slots]")
            problems = tab.probe("contrast") + tab.probe("nameless")
            need(not problems, f"{scheme}, monitor: {problems[:6]}")


@case
def by_keyboard_alone(bench):
    with bench.mock() as tab:
        key = tab.page.keyboard
        tab.page.wait_for_selector("#ask:focus")
        key.type("hello")
        key.press("Shift+Enter")
        key.type("you")
        key.press("Enter")
        tab.rest()
        need(tab.messages()[0] == "hello\nyou", f"sent {tab.messages()[0]!r}")
        key.press("Control+k")
        need(tab.page.evaluate("document.activeElement.id") == "search", "Ctrl+K does not find")
        key.press("ArrowDown")
        need(
            tab.page.evaluate("document.activeElement.className === '' && document.activeElement.tagName")
            == "A",
            "no way into the list",
        )
        key.press("Control+Shift+o")
        tab.page.wait_for_selector(".message", state="detached")  # Ctrl+Shift+O: a new conversation
        key.press("Control+Shift+m")
        tab.page.wait_for_selector("#monitor:not([hidden])")
        key.press("Control+Shift+m")
        key.press("Control+,")
        need(
            tab.page.evaluate("document.activeElement.ariaLabel") == "Close settings",
            "the focus is not in the settings",
        )
        key.press("Escape")
        need(
            tab.page.evaluate("document.activeElement.id") == "open-settings", "the focus does not come back"
        )
        key.press("Shift+?")
        tab.page.wait_for_selector("dialog")
        key.press("Escape")
        # The menu: opened, walked and left by keys.
        tab.page.focus("#open-menu")
        key.press("Enter")
        key.press("ArrowDown")
        need(
            tab.page.evaluate("document.activeElement.textContent") == "Save as Markdown",
            "arrows do not walk",
        )
        key.press("Escape")
        need(tab.page.evaluate("document.activeElement.id") == "open-menu", "the focus is lost with the menu")
        # Every stop of Tab can be seen.
        for _ in range(25):
            key.press("Tab")
            seen = tab.probe("focusSeen")
            need(seen, "Tab stops at something that cannot be seen")


@case
def a_reader_further_up_is_left_alone(bench):
    with bench.mock() as tab:
        tab.behaviour.token_s, tab.behaviour.prompt_s, tab.behaviour.context = 0, 0, 100000
        tab.say("long", wait=False)
        tab.see("word4999")
        tab.rest()
        tab.behaviour.token_s = 0.01
        tab.say("long", wait=False)
        tab.page.wait_for_selector(".message.live .body p")
        tab.page.mouse.move(700, 300)
        tab.page.mouse.wheel(0, -2000)
        tab.page.wait_for_timeout(400)
        first = tab.page.locator(".scroller").evaluate("e => e.scrollTop")
        tab.page.wait_for_timeout(400)
        need(
            tab.page.locator(".scroller").evaluate("e => e.scrollTop") == first,
            "the page runs away from its reader",
        )
        tab.page.click(".to-end")
        tab.page.wait_for_timeout(200)
        gap = tab.page.locator(".scroller").evaluate("e => e.scrollHeight - e.scrollTop - e.clientHeight")
        need(gap < 60, f"{gap} px from the end")
        tab.page.click(".send.stopping")
        tab.rest()


# ---- The real server ----


class Mica:
    """BUILD/mica serve on a free port of this machine."""

    def __init__(self, build, *options, model=MODEL):
        self.program, self.model, self.options = build / "mica", model, options
        if not self.program.exists():
            raise Skip(f"{self.program} is not built")
        if subprocess.run([self.program, "help", "serve"], capture_output=True).returncode != 0:
            raise Skip("this build has no serve")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = tempfile.TemporaryFile()
        self.start()

    def start(self):
        argv = [self.program, "serve", "-m", self.model, "--port", str(self.port), "-t", "2"]
        argv += self.options
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        end = time.time() + 60
        while time.time() < end:
            need(self.process.poll() is None, f"mica serve ended: {self.said()}")
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"{self.url}health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.05)
        raise Failed(f"mica serve is not ready: {self.said()}")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def said(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")[-400:]

    def stop(self, sign="terminate"):
        if self.process.poll() is None:
            getattr(self.process, sign)()
            self.process.wait(timeout=20)


def slow_model(bench, tmp):
    """A model of random weights that takes some milliseconds for a token and finds no end by itself."""
    out = Path(tmp) / "random.gguf"
    argv = [bench.build / "mica", "synth", "--preset", "smollm2-135m", "--quant", "q4_0", "-o", out]
    made = subprocess.run(argv, capture_output=True, text=True)
    need(made.returncode == 0, f"mica synth: {made.stderr[-200:]}")
    return out


@contextlib.contextmanager
def real(bench, *options, model=MODEL):
    mica = Mica(bench.build, *options, model=model)
    tab = Tab(bench, mica.url)
    tab.mica = mica
    try:
        yield tab
        tab.check()
    finally:
        tab.context.close()
        mica.stop("kill")


def cap(tab, n):
    """No answer of more than n tokens: a small model may not find its end."""
    tab.page.evaluate(
        f"localStorage.setItem('mica.settings', JSON.stringify({{maxTokens: {n}, temperature: 0}}))"
    )
    tab.page.reload()
    tab.page.wait_for_selector("#status[data-state=ok]")


@case
def mica_answers(bench):
    with real(bench, "-c", "512") as tab:
        tab.see("qwen3", "#status")
        cap(tab, 40)
        tab.say("Say something about the sea")
        need("tokens" in tab.text(".stats"), "no numbers below the answer")
        need(tab.count(".note.bad") == 0, f"it says {tab.messages()}")
        need(len(tab.messages()[1]) > 2, f"no words: {tab.messages()}")
        tab.say("and more")
        stats = tab.page.locator(".stats").last.inner_text()
        need(re.search(r"[1-9]\d* cached", stats), f"the second prompt reuses nothing: {stats}")
        tab.page.click("#open-monitor")
        for title in ("Writing", "Reading prompts", "Slots", "Memory", "Server", "Last requests"):
            tab.page.wait_for_selector(f"section[aria-label='{title}']")
        for what in ("weights", "kv", "scratch"):
            tab.see(what, "section[aria-label=Memory]")
        tab.shot("mica-monitor")


@case
def mica_holds_every_file_of_the_page(bench):
    with real(bench, "-c", "512") as tab:
        types = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        for file in [None, *sorted((ROOT / "web").iterdir())]:
            name = file.name if file else "index.html"
            with urllib.request.urlopen(tab.url + (name if file else ""), timeout=10) as answer:
                need(
                    answer.read() == (ROOT / "web" / name).read_bytes(), f"{name} is another one than in web/"
                )
                kind = answer.headers["Content-Type"].split(";")[0]
                need(kind == types[name.rsplit(".", 1)[1]], f"{name} comes as {kind}")
                need("Content-Security-Policy" in answer.headers, f"{name} comes without a policy")
                need(
                    answer.headers["X-Content-Type-Options"] == "nosniff",
                    f"{name} may be taken for something else",
                )


@case
def mica_stops(bench):
    with tempfile.TemporaryDirectory() as tmp:
        with real(bench, "-c", "4096", model=slow_model(bench, tmp)) as tab:
            cap(tab, 3000)
            tab.say("hello", wait=False)
            tab.page.wait_for_selector(".message.live .body p")
            tab.page.click("#open-monitor")
            writing = tab.page.locator("section[aria-label='Writing'] .card-value")
            eventually("a speed", lambda: re.match(r"[1-9][\d.]* t/s", writing.inner_text()))
            tab.shot("mica-live")
            tab.page.click("#open-chat")
            tab.page.click(".send.stopping")
            tab.rest()
            slots = lambda: json.load(urllib.request.urlopen(f"{tab.url}slots", timeout=5))  # noqa: E731
            eventually("the slot to be free", lambda: not any(s["is_processing"] for s in slots()))
            need("Stopped" in tab.answer().inner_text(), "not marked as stopped")


@case
def mica_says_what_does_not_fit(bench):
    with real(bench, "-c", "512") as tab:
        tab.expected = ("400",)
        tab.see("qwen3", "#status")
        tab.say("far too long " * 400)
        note = tab.text(".note.bad")
        need(re.search(r"It has [\d,]+ tokens; the context holds 512", note), f"said {note!r}")


@case
def mica_restarts_in_the_middle(bench):
    with tempfile.TemporaryDirectory() as tmp:
        with real(bench, "-c", "4096", model=slow_model(bench, tmp)) as tab:
            tab.expected = ("ERR_", "Failed to fetch", "503")
            cap(tab, 3000)
            tab.say("hello", wait=False)
            eventually("some words", lambda: len(tab.messages()[-1]) > 40)
            tab.mica.stop("kill")
            tab.rest()
            tab.see("The connection ended in the middle of this answer")
            before = tab.messages()
            tab.see("No connection to the server", "#banner")
            tab.page.fill("#ask", "and now")
            tab.page.click(".send")
            tab.see("the message is sent as soon as it is back")
            tab.mica.start()
            tab.page.wait_for_selector(".message.live .body p")
            need(tab.messages()[:2] == before, "the conversation changed")
            tab.page.click(".send.stopping")
            tab.rest()
            tab.page.reload()
            tab.page.wait_for_selector(".message.assistant")
            need(tab.messages()[:2] == before, "the conversation is lost")


@case
def mica_with_a_key(bench):
    with real(bench, "-c", "512", "--api-key", "secret") as tab:
        tab.expected = ("401",)
        tab.page.fill("dialog input[type=password]", "secret")
        tab.page.keyboard.press("Enter")
        tab.see("qwen3", "#status")
        cap(tab, 10)
        tab.say("hello")
        need(tab.count(".note.bad") == 0, "no answer with the key")


# ---- The run ----


def with_playwright():
    """The module, from this Python or from build/venv-page; installs it there when it can."""
    try:
        import playwright.sync_api as api

        return api
    except ImportError:
        pass
    python = VENV / "bin" / "python3"
    if Path(sys.prefix).resolve() == VENV.resolve():
        raise Skip("playwright is not in build/venv-page")
    if (
        not python.exists()
        or subprocess.run([python, "-c", "import playwright"], capture_output=True).returncode
    ):
        made = subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True).returncode == 0
        pip = [python, "-m", "pip", "install", "-q", "playwright>=1.40"]
        if not made or subprocess.run(pip, capture_output=True, timeout=300).returncode != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            raise Skip("playwright could not be installed")
    os.execv(python, [str(python), *sys.argv])


def run(api, build, word, shots):
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        raise Skip("no chromium")
    counts = {"ok": 0, "FAILED": 0, "skip": 0}
    with api.sync_playwright() as p:
        # No sandbox as root, which chromium refuses otherwise; it meets nothing but our own page.
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        args.append(f"--host-resolver-rules=MAP {FAR_NAME} 127.0.0.1")
        browser = p.chromium.launch(executable_path=program, args=args)
        bench = Bench(browser, build, shots)
        for fn in CASES:
            if word not in fn.__name__:
                continue
            start = time.time()
            result, why = "ok", ""
            try:
                fn(bench)
            except Skip as s:
                result, why = "skip", str(s)
            except (Failed, api.Error, OSError, AssertionError) as e:
                result, why = "FAILED", " ".join(str(e).split())[:500]
            counts[result] += 1
            line = {
                "ok": f"ok {fn.__name__} ({time.time() - start:.1f} s)",
                "skip": f"skip: {fn.__name__}: {why}",
            }
            print(line.get(result, f"FAILED {fn.__name__}: {why}"), flush=True)
        browser.close()
    return counts


def main():
    args = [a for a in sys.argv[1:]]
    shots = args.pop(args.index("--shots") + 1) if "--shots" in args else None
    args = [a for a in args if a != "--shots"]
    build = Path(args[0] if args else "build").resolve()
    try:
        counts = run(with_playwright(), build, args[1] if len(args) > 1 else "", shots)
    except Skip as s:
        print(f"skip: the page in a browser: {s}")
        counts = {"ok": 0, "FAILED": 0, "skip": 1}
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skip']} skipped")
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
