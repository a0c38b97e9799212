"""Other proxies an agent can be pointed at: headroom-ai's and LiteLLM's, each in an
environment of its own that is made first.

HELIX_PEERS names the folder of the environments; without it a temporary one is used (2
GB, some minutes).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from helix_desktop.gateway import gateway_socket

PACKAGES = {"headroom": "headroom-ai[proxy]==0.42.0", "litellm": "litellm[proxy]"}
ALIVE = {"headroom": "/health", "litellm": "/health/liveliness"}
KEY = "sk-of-the-benchmark"  # LiteLLM lets nobody in without one; headroom passes it on
LONGEST = 300.0  # seconds until one must answer


def program(folder: Path, name: str) -> Path:
    """Its program, installed where it is not there; RuntimeError where it cannot be had."""
    found = folder / name / "bin" / name
    if not found.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
        command = [str(folder / name / "bin" / "pip"), "-q", "install", PACKAGES[name]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not found.exists():
            raise RuntimeError(f"{PACKAGES[name]} cannot be installed: {done.stderr[-300:]}")
    return found


@contextmanager
def running(folder: Path, name: str, upstream: str, home: Path) -> Iterator[tuple[str, int]]:
    """The proxy before a provider: its address and its process. headroom without its
    model, which it would have to download.
    """
    with gateway_socket.listen_on_loopback(0) as sock:
        port = sock.getsockname()[1]
    if name == "headroom":
        options = [
            "proxy",
            "--port",
            str(port),
            "--anthropic-api-url",
            upstream,
            "--disable-kompress",
            "--no-rate-limit",
        ]
    else:
        served = {"model": "anthropic/*", "api_base": upstream, "api_key": KEY}
        config = {
            "model_list": [{"model_name": "*", "litellm_params": served}],
            "general_settings": {"master_key": KEY},
            "litellm_settings": {"drop_params": True, "telemetry": False},
        }
        (home / "litellm.json").write_text(json.dumps(config), "utf-8")
        options = [
            "--config",
            str(home / "litellm.json"),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "*", "HF_HUB_OFFLINE": "1", "HEADROOM_TELEMETRY": "off",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip
    command = [str(program(folder, name)), *options]
    none = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, cwd=home, stdout=none, stderr=none)
    try:
        yield _answers(f"http://127.0.0.1:{port}", name, process), process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # LiteLLM does not always end when it is told to
            process.kill()
            process.wait()


def _answers(url: str, name: str, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + LONGEST
    while process.poll() is None and time.monotonic() < until:
        try:
            if httpx.get(url + ALIVE[name], timeout=5, trust_env=False).status_code == 200:
                return url
        except httpx.HTTPError:
            time.sleep(0.5)
    raise RuntimeError(f"{name} did not start")
