"""The MCP server and the client before judges nobody here wrote: the MCP inspector and
the official conformance suite.

    npm install --prefix DIR @modelcontextprotocol/inspector @modelcontextprotocol/conformance@0.2.0-alpha.12
    python -m tests.faults.mcp_peers --node DIR [--all]

The inspector uses the server over stdio and over HTTP with its token, alone and beside
the process that has the workspace open. The suite tries the server over HTTP, and the
host as a client. `--all`: also what does not apply, with what the suite says of it.
Both want Node 22 on the PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.faults.mcp_relay import relayed

# Of the suite's scenarios those that need no tool, prompt or resource of the suite's
# own, and nothing we do not offer.
SERVER = (
    "server-initialize", "server-session-lifecycle", "ping", "tools-list", "resources-list", "server-sse-polling",
    "server-sse-multiple-streams", "sep-2164-resource-not-found", "dns-rebinding-protection", "http-header-validation",
    "input-required-result-missing-input-response", "input-required-result-unsupported-methods",
    "input-required-result-ignore-extra-params", "input-required-result-validate-input",
)  # fmt: skip
CLIENT = (
    "initialize", "tools_call", "sse-retry", "request-metadata", "http-standard-headers", "http-custom-headers",
    "http-invalid-tool-headers", "json-schema-ref-no-deref", "json-schema-2020-12-preservation",
    "elicitation-sep1034-client-defaults", "sep-2322-client-request-state",
    *(f"auth/{name}" for name in (
        "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd", "scope-from-www-authenticate",
        "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
        "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration",
        "2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback", "resource-mismatch", "offline-access-scope",
        "offline-access-not-supported", "authorization-server-migration", "iss-supported", "iss-not-advertised",
        "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized", "metadata-issuer-mismatch",
    )),
)  # fmt: skip
WRONG = ("0" * 64, "../../etc/passwd", "x" * 1_000)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--node", type=Path, required=True, help="a folder with node_modules")
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    failed = asyncio.run(
        judged(arguments.node.resolve() / "node_modules" / ".bin", everything=arguments.all)
    )
    print(f"{failed} failed")
    return int(bool(failed))


async def judged(programs: Path, *, everything: bool) -> int:
    """How many went wrong."""
    inspector = [str(programs / "mcp-inspector"), "--cli"]
    with tempfile.TemporaryDirectory() as folder:
        base = [sys.executable, "-m", "helix_desktop", "--home", f"{folder}/home"]
        digest = await _prepared(base, Path(folder))
        stdio = [*inspector, *base, "mcp", "-w", "w"]
        failed = await inspected("stdio, alone", stdio, digest)
        async with serving(base) as (url, token):
            web = [*inspector, url, "--transport", "http", "--header", f"Authorization: {token}"]
            failed += await inspected("HTTP", web, digest)
            failed += await inspected("stdio, beside the process that has it open", stdio, digest)
            async with serving(base) as (second, other):
                web = [
                    *inspector,
                    second,
                    "--transport",
                    "http",
                    "--header",
                    f"Authorization: {other}",
                ]
                failed += await inspected("HTTP, beside the process that has it open", web, digest)
            async with relayed(url, token) as bare:
                suite = [str(programs / "conformance")]
                failed += await conforms(
                    "server", [*suite, "server", "--url", bare], None if everything else SERVER
                )
        client = f"{sys.executable} -m tests.faults.mcp_client"
        return failed + await conforms("client", [*suite, "client", "--command", client], CLIENT)


async def _prepared(base: list[str], folder: Path) -> str:
    """A workspace, and the hash of a long entry in it."""
    (folder / "w").mkdir()
    await said([*base, "workspace", "new", "w", "--folder", str(folder / "w")])
    (folder / "log").write_text("".join(f"line {number}\n" for number in range(20_000)))
    return (await said([*base, "cache", "put", "-w", "w", str(folder / "log")]))[1].strip()


async def said(command: Sequence[str], seconds: float = 60) -> tuple[int, str]:
    """The exit code, and what was written."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(seconds):
        written, _ = await process.communicate()
    return process.returncode or 0, written.decode("utf-8", "replace")


@asynccontextmanager
async def serving(base: list[str]) -> AsyncIterator[tuple[str, str]]:
    process = await asyncio.create_subprocess_exec(
        *base, "mcp", "-w", "w", "--http", "0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        token = (await process.stdout.readline()).decode().removeprefix("Authorization: ").strip()
        yield url, token
    finally:
        process.terminate()
        await process.wait()


async def inspected(what: str, begin: list[str], digest: str) -> int:
    """List, call, read, and get it wrong: what the inspector's exit code and words say."""
    recall = ["tools/call", "--tool-name", "recall_cached_content"]
    asked = {
        "list tools": (0, "recall_cached_content", ["tools/list", "--strict"]),
        "call": (0, "line 2\\nline 3", [*recall, "--tool-arg", f"sha256={digest}", "lines=3-4"]),
        "put": (
            0,
            '"lines": 1',
            ["tools/call", "--tool-name", "put_cached_content", "--tool-arg", "content=hello"],
        ),
        "list resources": (0, digest, ["resources/list"]),
        "list templates": (0, "helix://entry/{sha256}", ["resources/templates/list"]),
        "read a resource": (
            0,
            "line 19999",
            ["resources/read", "--uri", f"helix://entry/{digest}"],
        ),
        "a resource that is none": (
            1,
            "is not a hash",
            ["resources/read", "--uri", "helix://entry/../etc"],
        ),
        "no argument": (5, "required property", recall),
        "no such tool": (5, "not found", ["tools/call", "--tool-name", "nothing"]),
    }
    asked |= {
        f"a wrong hash, {wrong[:6]}…": (
            5,
            '"isError": true',
            [*recall, "--tool-arg", f"sha256={wrong}"],
        )
        for wrong in WRONG
    }
    failed = []
    for name, (code, words, arguments) in asked.items():
        found, written = await said([*begin, "--method", *arguments])
        if found != code or words not in written:
            failed.append(f"  {name}: exit code {found} ({code} expected), {written[:300]!r}")
    print(
        f"inspector, {what}: {len(asked) - len(failed)} of {len(asked)} as expected",
        *failed,
        sep="\n",
        flush=True,
    )
    return len(failed)


async def conforms(role: str, begin: list[str], scenarios: Sequence[str] | None) -> int:
    """What the suite says of each scenario; None: of all it has."""
    if scenarios is None:
        listed = (await said([begin[0], "list", f"--{role}"]))[1]
        scenarios = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
    failed = 0
    for scenario in scenarios:
        checks: list[dict[str, str]] = []
        with tempfile.TemporaryDirectory() as folder:
            _, words = await said([*begin, "--scenario", scenario, "-o", folder], 120)
            for file in Path(folder).rglob("checks.json"):
                checks += json.loads(file.read_text())
        statuses = Counter(check["status"] for check in checks)
        failures = statuses["FAILURE"]
        failed += bool(failures or not checks)
        print(
            f"conformance, {role}, {scenario}: {statuses['SUCCESS']} passed, {failures} failed, {statuses['WARNING']} warnings",
            flush=True,
        )
        if not checks:
            print(f"  it did not run: {words[-300:]}", flush=True)
        for check in checks:
            if check["status"] in ("FAILURE", "WARNING"):
                why = check.get("errorMessage", "")[:300]
                print(f"  {check['status'].lower()}: {check['id']}: {why}", flush=True)
    return failed


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    sys.exit(main())
