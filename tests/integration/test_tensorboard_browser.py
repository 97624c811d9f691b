"""The real TensorBoard on a run, seen through a real browser, with no network."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.runs import AUTOTUNE, SERIAL, make_candidates, make_run
from tfpipe.cli.ports import free_port
from tfpipe.report.hparams import write_hparams
from tfpipe.runfile import create_run_directory, write_run

pytestmark = pytest.mark.tensorflow

# TensorBoard imports TensorFlow before it answers.
START_TIMEOUT_S = 120
PAGE_TIMEOUT_S = 60
STEP_S = 0.02
BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,1000",
    # Nothing but this machine: XProf's page asks for chart code on the network.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost",
)
# Everything a page shows or hides, through shadow roots, which TensorBoard's tabs are made of.
ALL_TEXT = """
const parts = [];
(function walk(node) {
  if (node.nodeType === Node.TEXT_NODE) parts.push(node.textContent);
  if (["STYLE", "SCRIPT", "TEMPLATE"].includes(node.nodeName)) return;
  if (node.shadowRoot) walk(node.shadowRoot);
  node.childNodes.forEach(walk);
})(document.body);
return parts.join(" ");
"""

T = TypeVar("T")

# Traces are captured in a process of their own: the profiler is a process-wide thing.
CAPTURE = """
import sys, time
import tensorflow as tf
step = tf.function(lambda batch: tf.reduce_sum(tf.matmul(batch, batch)))
batches = iter(tf.data.Dataset.from_tensors(tf.ones([64, 64])).repeat())
step(next(batches))
for logdir in sys.argv[2:]:
    tf.profiler.experimental.start(logdir)
    for number in range(6):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            step(next(batches)).numpy()
            time.sleep(float(sys.argv[1]))
    tf.profiler.experimental.stop()
"""


def wait_for(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """The first true value of ``condition``; what it raises counts as not yet."""
    end = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < end:
        try:
            last = condition()
        except Exception as error:
            last = error
        else:
            if last:
                return last  # type: ignore[return-value]
        time.sleep(0.25)
    raise AssertionError(f"waited {timeout_s} s for {what}; last seen: {str(last)[:2000]}")


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose every candidate has HParams events and a real trace of six steps of a little over 20 ms."""
    directory = tmp_path_factory.mktemp("runs") / "one"
    create_run_directory(directory, force=False)
    run = make_run()
    write_run(directory, run)
    logdirs = [str(directory / "traces" / candidate.id) for candidate in run.candidates]
    subprocess.run([sys.executable, "-c", CAPTURE, str(STEP_S), *logdirs], check=True, capture_output=True, timeout=120)
    write_hparams(run, directory / "traces")
    return directory


@pytest.fixture(scope="module")
def server(run_directory: Path) -> Iterator[str]:
    """The address of ``tfpipe tensorboard`` on the run. Ending it with Ctrl-C leaves no process behind."""
    port = free_port(16006)
    command = [sys.executable, "-m", "tfpipe", "tensorboard", str(run_directory), "--port", str(port)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    address = f"http://localhost:{port}"
    try:
        wait_for(lambda: fetch(f"{address}/data/runs"), START_TIMEOUT_S, "TensorBoard to answer")
        yield address
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=30) in (0, 130)
        wait_for(lambda: not group_is_alive(process.pid), 10, "TensorBoard's own processes to end")
    finally:
        if group_is_alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def fetch(address: str) -> Any:
    # No proxy: it is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=30) as answer:
        return json.loads(answer.read())


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = next(filter(None, map(shutil.which, BROWSER_NAMES)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip(f"no browser: {'chromedriver' if binary else 'chromium'} is not installed")
    options = selenium.ChromeOptions()
    options.binary_location = binary
    for flag in (*BROWSER_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    page = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    page.set_page_load_timeout(PAGE_TIMEOUT_S)
    page.set_script_timeout(PAGE_TIMEOUT_S)
    try:
        yield page
    finally:
        page.quit()


def test_every_candidate_is_a_run_of_tensorboard(server: str) -> None:
    assert set(fetch(f"{server}/data/runs")) == {".", *(candidate.id for candidate in make_candidates())}


@pytest.mark.browser
def test_the_profile_tab_lists_candidates_and_shows_steps(server: str, browser: Any) -> None:
    browser.switch_to.default_content()
    browser.get(f"{server}/#profile")
    frame = wait_for(
        lambda: browser.find_element("css selector", 'iframe[src*="name=profile"]'), PAGE_TIMEOUT_S, "the Profile tab"
    )
    browser.switch_to.frame(frame)

    # "Host Compute Time (σ = 0.1 ms) 2.2 ms": the parts of the average step, drawn without the network's charts.
    def parts() -> dict[str, float]:
        text = browser.execute_script(ALL_TEXT)
        found = re.findall(r"(All Others|Input|Host Compute) Time\s*\(σ = [\d.]+ ms\)\s*([\d.]+) ms", text)
        return {name: float(value) for name, value in found}

    shown = wait_for(parts, PAGE_TIMEOUT_S, "step times on the overview page")
    assert set(shown) == {"All Others", "Input", "Host Compute"}
    assert sum(shown.values()) >= STEP_S * 1000

    browser.find_element("css selector", "mat-select").click()

    # While the list unfolds, ``text`` of an option that is not drawn yet is empty.
    def listed() -> set[str]:
        options = browser.find_elements("css selector", "mat-option")
        return {str(option.get_property("textContent")).strip().split("/")[0] for option in options}

    ids = {candidate.id for candidate in make_candidates()}
    wait_for(lambda: listed() == ids, PAGE_TIMEOUT_S, "the list of sessions")


@pytest.mark.browser
def test_xprof_finds_the_step_markers_of_a_candidate(server: str, browser: Any) -> None:
    browser.switch_to.default_content()
    browser.get(f"{server}/#profile")
    fetched = browser.execute_async_script(
        """
        const [candidate, done] = arguments;
        (async () => {
          const runs = await (await fetch("data/plugin/profile/runs")).json();
          const run = runs.find(name => name.startsWith(candidate + "/"));
          const hosts = await (await fetch("data/plugin/profile/hosts?tag=overview_page&run=" + run)).json();
          const address = "data/plugin/profile/data?tag=overview_page&run=" + run + "&host=" + hosts[0].hostname;
          done(await (await fetch(address)).text());
        })().catch(error => done("failed: " + error));
        """,
        SERIAL.id,
    )
    assert fetched.startswith("["), fetched[:500]
    tables = json.loads(fetched)
    steps = next(table for table in tables if table["cols"] and table["cols"][0]["id"] == "stepnum")
    # XProf leaves out the first and the last step of a window, which may be cut.
    assert [row["c"][0]["v"] for row in steps["rows"]] == ["train 1", "train 2", "train 3", "train 4"]
    average_ms = float(steps["p"]["steptime_ms_average"])
    assert average_ms >= STEP_S * 1000
    assert "no step marker" not in fetched.lower()


@pytest.mark.browser
def test_the_hparams_tab_compares_candidates(server: str, browser: Any) -> None:
    browser.switch_to.default_content()
    browser.get(f"{server}/#hparams")
    ids = [candidate.id for candidate in make_candidates()]

    def text() -> str:
        found: str = browser.execute_script(ALL_TEXT)
        return found if all(candidate_id in found for candidate_id in ids) else ""

    page = wait_for(text, PAGE_TIMEOUT_S, "the candidates in the HParams table")
    for word in ("map_parallelism", "prefetch_depth", "order", "rewrites", "examples_per_s", "input_fraction"):
        assert word in page
    row = re.split("|".join(map(re.escape, ids)), page.split(AUTOTUNE.id, 1)[1])[0].split()
    assert row[:5] == ["true", "auto", "map-batch", "auto", "default"]
    assert "238.81" in row
